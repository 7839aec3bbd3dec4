"""Meshes from PyVista and from files."""

import os
import resource
import signal

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from forks import forked
from meshes import LEFT, box, grid, unit_cube
from pennpde.mesh import Mesh
from problems import brick


def test_structured_grids_of_pyvista_are_read():
    import pyvista

    image = pyvista.ImageData(dimensions=(3, 4, 5)).cast_to_unstructured_grid()
    mesh = Mesh.from_pyvista(pyvista.ImageData(dimensions=(3, 4, 5)))
    assert mesh.number_of_points == image.n_points
    assert_close(mesh.cell_volumes.sum().item(), 24.0)
    plane = Mesh.from_pyvista(pyvista.ImageData(dimensions=(3, 4, 1)))
    assert plane.space == 2
    assert_close(plane.cell_volumes.sum().item(), 6.0)


def test_surfaces_and_lines_beside_the_cells_of_a_body_are_left_out():
    import pyvista

    points, cubes = grid((1, 1, 1))
    cells = np.concatenate([[4], cubes[0, :4], [2], cubes[0, :2], [8], cubes[0]])
    mesh = Mesh.from_pyvista(pyvista.UnstructuredGrid(cells, [9, 3, 12], points))
    assert mesh.number_of_cells == 1


def test_vectors_of_a_plane_mesh_have_three_components_in_pyvista_alone():
    import pyvista

    mesh = box("quad").with_fields({"u": torch.rand(20, 2)})
    dataset = mesh.to_pyvista()
    assert dataset["u"].shape == (20, 3)
    assert (dataset.points[:, 2] == 0).all()
    del dataset.field_data["axes:u"]  # as any other program would write it
    assert_close(Mesh.from_pyvista(dataset).fields["u"], mesh.fields["u"])
    assert isinstance(dataset, pyvista.UnstructuredGrid)


def test_patches_that_were_cut_away_from_a_file_are_gone():
    mesh = unit_cube().with_patches({**LEFT, "right": lambda x: np.isclose(x[:, 0], 1.0)})
    mesh = mesh.with_patch_facets({"piece": mesh.facets.take(mesh.patch("left").facets[:1])})
    dataset = mesh.to_pyvista()
    kept = np.flatnonzero(dataset.cell_centers().points[:, 0] > 0.5)
    rest = Mesh.from_pyvista(dataset.extract_cells(kept))
    assert list(rest.patches) == ["right"]


def test_surface_files_of_pyvista_are_plane_meshes(tmp_path):
    import pyvista

    pyvista.Plane(i_resolution=3, j_resolution=2).save(tmp_path / "plane.vtp")
    mesh = Mesh.read(tmp_path / "plane.vtp")
    assert mesh.space == 2
    assert_close(mesh.cell_volumes.sum().item(), 1.0)


GMSH = """$MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
3
1 1 "inlet"
1 2 "wall"
2 3 "fluid"
$EndPhysicalNames
$Nodes
4
1 0 0 0
2 1 0 0
3 1 1 0
4 0 1 0
$EndNodes
$Elements
6
1 1 2 1 1 4 1
2 1 2 2 2 1 2
3 1 2 2 2 2 3
4 1 2 2 2 3 4
5 2 2 3 1 1 2 3
6 2 2 3 1 1 3 4
$EndElements
"""


def test_the_named_boundaries_of_a_gmsh_file_become_patches(tmp_path, capsys):
    (tmp_path / "square.msh").write_text(GMSH)
    mesh = Mesh.read(tmp_path / "square.msh")
    assert mesh.number_of_cells == 2
    np.testing.assert_array_equal(mesh.patch("inlet").points, [0, 3])
    assert len(mesh.patch("wall").facets) == 3
    assert not mesh.fields
    assert capsys.readouterr().out == ""


def test_a_surface_that_a_gmsh_file_names_inside_the_body_is_no_patch(tmp_path):
    inner = GMSH.replace("3\n1 1", '4\n1 4 "diagonal"\n1 1').replace(
        "6\n1 1 2 1 1 4 1", "7\n7 1 2 4 4 1 3\n1 1 2 1 1 4 1"
    )
    (tmp_path / "square.msh").write_text(inner)
    assert set(Mesh.read(tmp_path / "square.msh").patches) == {"inlet", "wall"}


def test_files_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Cannot save a mesh as 'mesh.stl': choose one of .vtu, .vtk, .vtkhdf"):
        unit_cube().save(tmp_path / "mesh.stl")
    with pytest.raises(FileNotFoundError, match="There is no mesh file"):
        Mesh.read(tmp_path / "missing.vtu")


def test_datasets_that_are_no_mesh_are_refused():
    import pyvista

    with pytest.raises(ValueError, match=r"2 blocks \(Block-00, Block-01\); choose one"):
        Mesh.from_pyvista(pyvista.MultiBlock([pyvista.Cube(), pyvista.Cube()]))
    with pytest.raises(ValueError, match="no cells"):
        Mesh.from_pyvista(pyvista.PolyData(np.zeros((3, 3))))
    with pytest.raises(ValueError, match="curved surface"):
        Mesh.from_pyvista(pyvista.Sphere())
    with pytest.raises(ValueError, match="VTK's cell type 24"):
        Mesh.from_pyvista(pyvista.examples.cells.QuadraticTetrahedron())


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".vtkhdf"])
def test_a_disk_that_fills_while_a_mesh_is_saved_raises_and_leaves_the_old_file(tmp_path, suffix):
    # In a copy of this process: VTK and HDF5 complain on the terminal, and some versions end the program.
    path = tmp_path / f"mesh{suffix}"
    mesh = brick((20, 20, 20))
    mesh.save(path)
    before = path.read_bytes()

    def save_on_a_full_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2))
        with pytest.raises(OSError, match=rf"mesh\{suffix}"):
            mesh.save(path)

    with forked(save_on_a_full_disk) as process:
        assert os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == 0
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
