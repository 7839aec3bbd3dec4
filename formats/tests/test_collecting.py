"""Runs in files of these formats become datasets."""

from pathlib import Path

import numpy as np

from finished_runs import PROBLEM, pressure, square, velocity
from format_writers import write_as
from pennpde.data import storage
from pennpde.data.runs.collect import collect_runs
from pennpde.mesh import Mesh


def with_patches() -> Mesh:
    return square().with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], 1.0),
            "wall": lambda x: np.isclose(x[:, 1], 0.0) | np.isclose(x[:, 1], 1.0),
        }
    )


def check_steady(folder: Path) -> None:
    case = storage.read(folder)[0]
    assert set(case.mesh.patches) == {"inlet", "outlet", "wall"}
    places = case.mesh.points.numpy()
    inside = np.setdiff1d(np.arange(len(places)), case.mesh.boundary_points)
    np.testing.assert_allclose(case.targets["steady_u"][inside], velocity(places[inside]), atol=1e-6)
    np.testing.assert_allclose(case.targets["steady_p"][inside], pressure(places[inside]), atol=1e-6)


def test_a_cgns_file_brings_its_patches_and_fields(tmp_path):
    import h5py

    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "case.toml").write_text(PROBLEM[PROBLEM.index("[dirichlet.u]") :])
    path = write_as("cgns", folder, with_patches())
    written = Mesh.read(path).points.numpy()
    fields = {"VelocityX": velocity(written)[:, 0], "VelocityY": velocity(written)[:, 1], "Pressure": pressure(written)}
    with h5py.File(path, "a") as file:
        solution = file["Base/Zone"].create_group("Solution")  # pyright: ignore[reportAttributeAccessIssue]
        solution.attrs.create("label", np.bytes_("FlowSolution_t"), dtype="S33")
        for name, values in fields.items():
            node = solution.create_group(name)
            node.attrs.create("label", np.bytes_("DataArray_t"), dtype="S33")
            node[" data"] = values
    collect_runs([path], tmp_path / "set", time="steady")
    check_steady(tmp_path / "set")
