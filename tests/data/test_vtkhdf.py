"""One case in one file: it comes back as it was, opens in viewers, or an error says what to do."""

import contextlib
import io
import lzma
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from meshes import ALL_TYPES, PLANE_TYPES, box
from pennpde.case import Case, batch
from pennpde.data import vtkhdf
from pennpde.mesh import Mesh
from stored_cases import EXACT, assert_same_case, assert_same_mesh, frames_of, some_case


def unpacked(content):
    return vtkhdf.unpack(content, "some.vtkhdf")


# One case in one file


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_a_case_on_any_mesh_comes_back_as_it_was(kind):
    case = some_case(kind)
    assert_same_case(unpacked(vtkhdf.pack(case)).case, case)


def test_a_case_without_targets_or_conditions_comes_back_as_it_was():
    case = Case(box("triangle"), initial={"T": 0.5})
    assert_same_case(unpacked(vtkhdf.pack(case)).case, case)


def test_a_target_without_times_comes_back_without_them():
    case = some_case()
    case = replace(case, targets={"p": case.initial["p"] + 1})
    found = unpacked(vtkhdf.pack(case, [4.0]))
    assert found.times == (4.0,)
    assert_same_case(found.case, replace(case, targets={"p": (case.initial["p"] + 1).float().double()}))


def test_times_and_notes_come_back():
    found = unpacked(vtkhdf.pack(some_case(), [0.25, 0.5], notes={"author": "me"}))
    assert (found.times, found.notes) == ((0.25, 0.5), {"author": "me"})


def test_the_same_case_gives_the_same_bytes():
    assert vtkhdf.pack(some_case()) == vtkhdf.pack(some_case())


def test_the_same_case_gives_the_same_bytes_while_something_else_holds_its_arrays(monkeypatch):
    """Such as Dask's profiler, which looks at frames from another thread."""
    alone = vtkhdf.pack(some_case())
    held, create = [], h5py.Group.create_dataset

    def created(*arguments, **options):
        held.append(create(*arguments, **options))
        return held[-1]

    monkeypatch.setattr(h5py.Group, "create_dataset", created)
    assert vtkhdf.pack(some_case()) == alone
    assert held


def test_without_compression_a_case_comes_back_as_it_was_and_compresses_better_as_a_whole():
    case = some_case()
    plain = vtkhdf.pack(case, compressed=False)
    assert_same_case(unpacked(plain).case, case)
    assert len(vtkhdf.pack(case)) < len(plain)
    assert len(lzma.compress(plain)) < len(lzma.compress(vtkhdf.pack(case)))


def test_a_case_moved_by_a_rigid_motion_comes_back_as_it_was():
    angle = torch.tensor(0.3, dtype=torch.float64)
    turn = torch.stack([torch.stack([angle.cos(), angle.sin()]), torch.stack([angle.sin(), -angle.cos()])])
    case = some_case().moved(turn, torch.tensor([3.0, -1.0], dtype=torch.float64)).to(torch.float32)
    found = unpacked(vtkhdf.pack(case.to(torch.float64))).case
    assert_close(found.initial["u"].float(), case.initial["u"], **EXACT)
    assert_same_mesh(found.mesh, case.mesh)


@pytest.mark.parametrize("part", ["initial", "features", "targets"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_fields_that_are_not_finite_are_not_written(part, value):
    case = some_case()
    name, values = next(iter(getattr(case, part).items()))
    values = values.clone()
    values[3] = value
    with pytest.raises(ValueError, match=rf"Field '{name}' is not finite at 1 points, the first of them point 3"):
        vtkhdf.pack(replace(case, **{part: {**getattr(case, part), name: values}}))


def test_fields_that_are_not_finite_are_not_read():
    content = io.BytesIO(vtkhdf.pack(some_case()))
    with h5py.File(content, "r+") as file:
        values = file["VTKHDF/PointData/distance"][...]
        values[0] = np.nan
        file["VTKHDF/PointData/distance"][...] = values
    with pytest.raises(vtkhdf.CaseFileError, match="'distance' holds values that are not finite"):
        unpacked(content.getvalue())


def test_a_batch_and_colliding_names_are_refused():
    with pytest.raises(ValueError, match="batch of 2"):
        vtkhdf.pack(batch([some_case(), some_case()]))
    case = some_case()
    with pytest.raises(ValueError, match="Two fields of the case are called 'p'"):
        vtkhdf.pack(replace(case, features={"p": case.initial["p"]}))
    with pytest.raises(ValueError, match="'a/b'"):
        vtkhdf.pack(replace(case, features={"a/b": case.initial["p"]}))


@pytest.mark.parametrize("times", [[1.0], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [1.0, float("nan")]])
def test_times_that_do_not_fit_the_targets_are_refused(times):
    with pytest.raises(ValueError, match=r"The t(imes|argets) of case 'some'"):
        vtkhdf.pack(some_case(), times)


@pytest.mark.parametrize("keep", [0, 10, 500, 3000, -1])
def test_a_truncated_file_is_named(keep):
    with pytest.raises(vtkhdf.CaseFileError, match=r"some.vtkhdf is not a complete case file .*generate it again"):
        unpacked(vtkhdf.pack(some_case())[:keep])


def test_a_file_of_another_program_is_named(tmp_path):
    some_case().mesh.save(tmp_path / "mesh.vtkhdf")
    with pytest.raises(vtkhdf.CaseFileError, match=r"mesh.vtkhdf is an HDF5 file, but no case of pennpde"):
        vtkhdf.unpack((tmp_path / "mesh.vtkhdf").read_bytes(), "mesh.vtkhdf")
    assert not vtkhdf.is_case_file(tmp_path / "mesh.vtkhdf")


def test_a_file_of_a_newer_pennpde_says_so(monkeypatch):
    monkeypatch.setattr(vtkhdf, "FORMAT_VERSION", 99)
    content = vtkhdf.pack(some_case())
    monkeypatch.undo()
    with pytest.raises(vtkhdf.CaseFileError, match=r"format 99.*install a newer pennpde"):
        unpacked(content)


@pytest.mark.parametrize("array", ["Connectivity", "Offsets", "Types", "Points"])
def test_numbers_that_point_outside_of_their_arrays_are_refused(array):
    content = io.BytesIO(vtkhdf.pack(some_case()))
    with h5py.File(content, "r+") as file:
        values = file[f"VTKHDF/{array}"][...]
        values[-1] = 10**5 if array != "Types" else 200
        file[f"VTKHDF/{array}"][...] = values if array != "Points" else np.full_like(values, np.nan)
    with pytest.raises(vtkhdf.CaseFileError, match="take a good copy"):
        unpacked(content.getvalue())


@given(place=st.integers(0, 10**6), byte=st.integers(1, 255))
@settings(deadline=None, max_examples=40)
def test_a_changed_byte_gives_a_case_or_an_error_of_ours(place, byte):
    content = bytearray(_SMALL)
    content[place % len(content)] ^= byte
    with contextlib.suppress(vtkhdf.CaseFileError):  # any other error, or a crash, fails
        unpacked(bytes(content))


_SMALL = vtkhdf.pack(Case(box("quad", 2), initial={"T": 0.5}))


# In viewers


@pytest.mark.parametrize("kind", ["mixed_plane", "polygon", "mixed_solid"])
def test_vtk_shows_the_fields_of_every_time(kind, tmp_path):
    case = some_case(kind)
    (tmp_path / "case.vtkhdf").write_bytes(vtkhdf.pack(case, [0.5, 2.0]))
    frames = dict(frames_of(tmp_path / "case.vtkhdf"))
    assert list(frames) == [0.0, 0.5, 2.0]
    space = case.space
    for number, grid in enumerate(frames.values()):
        assert np.array_equal(grid.points[:, :space], case.mesh.points.numpy())
        assert np.array_equal(grid.celltypes, case.mesh.cell_types)
        for name in ("u", "p"):
            values = case.initial[name] if number == 0 else case.targets[name][..., number - 1]
            found = grid[name]
            assert found.shape == ((len(values), 3) if name == "u" else (len(values),))
            assert np.array_equal(found[:, :space] if name == "u" else found, values.numpy())
        assert np.array_equal(grid["distance"], case.features["distance"].numpy())
        assert np.array_equal(np.flatnonzero(grid["patch:inlet"]), case.mesh.patch("inlet").points)


def test_vtk_shows_the_truth_at_time_zero_where_there_is_one(tmp_path):
    case = some_case()
    (tmp_path / "case.vtkhdf").write_bytes(vtkhdf.pack(case, [0.0, 1.0]))
    frames = dict(frames_of(tmp_path / "case.vtkhdf"))
    assert np.array_equal(frames[0.0]["p"], case.targets["p"][:, 0].numpy())
    assert np.array_equal(frames[1.0]["p"], case.targets["p"][:, 1].numpy())


@pytest.mark.parametrize("kind", PLANE_TYPES)
def test_pyvista_and_mesh_read_open_a_case_file(kind, tmp_path):
    import pyvista

    case = some_case(kind)
    path = tmp_path / "case.vtkhdf"
    path.write_bytes(vtkhdf.pack(case))
    assert pyvista.read(path)["u"].shape == (case.number_of_points, 3)
    mesh = Mesh.read(path)
    assert np.array_equal(mesh.points, case.mesh.points)
    assert set(mesh.patches) == set(case.mesh.patches)
