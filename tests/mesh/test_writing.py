"""Fields at several times in files: ParaView's readers find every time, and old files stay until new ones are whole."""

import numpy as np
import pytest
import pyvista
import torch

from pennpde.mesh import Mesh, files
from pennpde.mesh.files import write_series
from problems import rectangle
from temporal import frames_of, steps_of

TIMES = [0.5, 1.0, 2.5]


def frames(factor: float = 1.0) -> list[Mesh]:
    """A plane mesh with a scalar, a vector and a tensor that grow with time."""
    mesh = rectangle((3, 2))
    x, y = mesh.points.T
    velocity = torch.stack([1 + y, x * y], dim=1)
    stress = velocity[:, :, None] * velocity[:, None, :]
    return [
        mesh.with_fields({"p": factor * t * x, "u": factor * t * velocity, "s": factor * t * stress}) for t in TIMES
    ]


def test_one_file_holds_every_time(tmp_path, capfd):
    meshes = frames()
    write_series(tmp_path / "flow.vtkhdf", TIMES, meshes)
    assert [path.name for path in tmp_path.iterdir()] == ["flow.vtkhdf"]
    found = steps_of(tmp_path / "flow.vtkhdf")
    assert list(found) == TIMES
    for mesh, grid in zip(meshes, found.values(), strict=True):
        expected = mesh.to_pyvista()
        for name in ("p", "u", "s", "patch:inlet"):
            np.testing.assert_array_equal(grid.point_data[name], expected.point_data[name])
        assert grid.n_cells == mesh.number_of_cells
        np.testing.assert_array_equal(grid.field_data["axes:u"], [2])
    assert capfd.readouterr().err == ""  # VTK complains on the terminal where it cannot read something


def test_pyvista_steps_through_one_file_as_the_docs_say(tmp_path):
    meshes = frames()
    write_series(tmp_path / "flow.vtkhdf", TIMES, meshes)
    reader = pyvista.get_reader(tmp_path / "flow.vtkhdf")
    assert reader.reader.GetNumberOfSteps() == len(TIMES)
    for step in (2, 0, 1):
        reader.reader.SetStep(step)
        grid = reader.read()
        np.testing.assert_array_equal(grid.point_data["p"], meshes[step].fields["p"])
        assert reader.reader.GetTimeValue() == TIMES[step]


def test_a_small_mesh_is_a_small_file(tmp_path):
    frames()[0].save(tmp_path / "flow.vtkhdf")
    assert (tmp_path / "flow.vtkhdf").stat().st_size < 100_000


def test_a_name_that_hdf5_takes_for_a_path_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot be called 'T/in' in a \.vtkhdf file"):
        rectangle((3, 2)).with_fields({"T/in": torch.zeros(12)}).save(tmp_path / "flow.vtkhdf")


def test_our_own_reader_takes_the_mesh_with_the_first_time(tmp_path):
    meshes = frames()
    write_series(tmp_path / "flow.vtkhdf", TIMES, meshes)
    found = Mesh.read(tmp_path / "flow.vtkhdf")
    for name in ("p", "u", "s"):
        torch.testing.assert_close(found.fields[name], meshes[0].fields[name], rtol=0, atol=0)
    assert found.patches.keys() == meshes[0].patches.keys()


def test_a_list_names_a_file_for_every_time(tmp_path):
    meshes = frames()
    write_series(tmp_path / "flow.pvd", TIMES, meshes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flow.pvd", "flow.pvd.files"]
    found = frames_of(tmp_path / "flow.pvd")
    assert list(found) == TIMES
    for grid, mesh in zip(found.values(), meshes, strict=True):
        np.testing.assert_array_equal(grid.point_data["u"], mesh.to_pyvista().point_data["u"])


def test_a_new_list_replaces_the_old_files_and_no_others(tmp_path):
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow" / "mine.txt").write_text("not a frame")
    write_series(tmp_path / "flow.pvd", TIMES, frames())
    write_series(tmp_path / "flow.pvd", TIMES[:2], frames(2.0)[:2])
    assert (tmp_path / "flow" / "mine.txt").read_text() == "not a frame"
    folders = [path for path in tmp_path.iterdir() if path.is_dir() and path.name != "flow"]
    assert len(folders) == 1
    assert len(list(folders[0].iterdir())) == 2
    grid = frames_of(tmp_path / "flow.pvd")[TIMES[0]]
    np.testing.assert_array_equal(grid.point_data["p"], frames(2.0)[0].fields["p"].numpy())


@pytest.mark.parametrize("suffix", [".pvd", ".vtkhdf"])
def test_what_was_there_stays_where_writing_fails(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"flow{suffix}"
    write_series(path, TIMES, frames())
    before = {each.relative_to(tmp_path): each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(files, "write_atomically", full)
    with pytest.raises(OSError, match="no space"):
        write_series(path, TIMES, frames(2.0))
    after = {each.relative_to(tmp_path): each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    assert after == before


@pytest.mark.parametrize(
    ("name", "times", "number", "words"),
    [
        ("flow.vtu", TIMES, 3, "choose one of"),
        ("flow.pvd", TIMES[:2], 3, "2 times, but 3 meshes"),
        ("flow.pvd", [1.0, 1.0, 2.0], 3, "increase"),
        ("flow.vtkhdf", [1.0, 2.0, float("inf")], 3, "finite"),
    ],
)
def test_what_cannot_be_a_series_is_refused(tmp_path, name, times, number, words):
    with pytest.raises(ValueError, match=words):
        write_series(tmp_path / name, times, frames()[:number])
    assert list(tmp_path.iterdir()) == []
