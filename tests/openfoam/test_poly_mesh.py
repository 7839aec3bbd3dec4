"""OpenFOAM's meshes of faces, in and out."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from foam_cases import flow_case, read_flow, write_brick
from pennlab.running import write_mesh
from pennpde.openfoam import FoamFormatError, PolyMesh


@pytest.fixture(params=[False, True], ids=["text", "binary"])
def brick(request, tmp_path) -> Path:
    return write_brick(tmp_path / "brick", (3, 2, 2), binary=request.param, shear=0.7)


def test_the_faces_of_every_cell_are_closed(brick):
    mesh = PolyMesh.read(brick)
    assert mesh.number_of_cells == 12
    total = np.zeros((12, 3))
    np.add.at(total, mesh.owner, mesh.face_vectors)
    np.subtract.at(total, mesh.neighbour, mesh.face_vectors[: len(mesh.neighbour)])
    np.testing.assert_allclose(total, 0, atol=1e-14)


def test_fluxes_of_a_uniform_flow_give_that_flow_back_on_sheared_cells(brick):
    mesh = PolyMesh.read(brick)
    velocity = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(mesh.cell_velocity(mesh.face_vectors @ velocity), np.tile(velocity, (12, 1)), atol=1e-13)


def test_a_plane_case_has_no_velocity_across(tmp_path):
    mesh = PolyMesh.read(
        write_brick(tmp_path / "case", (3, 2, 1), shear=0.5, types={"front": "empty", "back": "empty"})
    )
    velocity = mesh.cell_velocity(mesh.face_vectors @ np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(velocity, np.tile([1.0, 2.0, 0.0], (6, 1)), atol=1e-13)


@pytest.mark.parametrize("name", ["points", "faces", "owner", "neighbour", "boundary"])
def test_a_damaged_mesh_is_refused(brick, name):
    path = brick / "constant" / "polyMesh" / name
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"garbage" * 50, content.replace(b"(", b"\xff", 2)):
        path.write_bytes(damaged)
        with pytest.raises(FoamFormatError):
            PolyMesh.read(brick)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=name):
        PolyMesh.read(brick)


@pytest.mark.parametrize("shape", [(3, 2, 2), (1, 1, 1)])
def test_a_mesh_that_is_written_is_read_back(tmp_path, shape):
    mesh = PolyMesh.read(write_brick(tmp_path / "case", shape, shear=0.3))
    write_mesh(tmp_path / "copy", mesh)
    copy = PolyMesh.read(tmp_path / "copy")
    for name in ("points", "face_points", "face_offsets", "owner", "neighbour"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(mesh, name))
    assert [patch.faces for patch in copy.patches.values()] == [patch.faces for patch in mesh.patches.values()]


def test_a_mesh_of_a_single_cell_is_a_case(tmp_path):
    assert read_flow(flow_case(tmp_path, {}, shape=(1, 1, 1))).mesh.number_of_cells == 1


def test_a_broken_header_does_not_end_the_process(tmp_path):
    """VTK's reader, which once read the cells, crashed on it."""
    folder = flow_case(tmp_path, {})
    path = folder / "constant" / "polyMesh" / "owner"
    content = path.read_text()
    path.write_text(content.replace("version 2.0;", "version 2.0#include;").replace("class labelList; object", "c"))
    with contextlib.suppress(FoamFormatError):
        read_flow(folder)


def test_numbers_that_do_not_belong_together_are_refused(tmp_path):
    case = write_brick(tmp_path / "case", (2, 2, 2))
    mesh = case / "constant" / "polyMesh"
    owner, boundary = (mesh / "owner").read_text(), (mesh / "boundary").read_text()
    (mesh / "owner").write_text(owner.replace("\n7\n", "\n70000000\n", 1))
    with pytest.raises(FoamFormatError, match="cells"):
        PolyMesh.read(case)
    (mesh / "owner").write_text(owner.replace("(0\n", "(1\n", 1))
    with pytest.raises(FoamFormatError, match="faces of 2 cells do not close them, the first is cell 0"):
        PolyMesh.read(case)
    (mesh / "owner").write_text(owner)
    (mesh / "boundary").write_text(boundary.replace("startFace 12", "startFace 11"))
    with pytest.raises(FoamFormatError, match="left"):
        PolyMesh.read(case)
