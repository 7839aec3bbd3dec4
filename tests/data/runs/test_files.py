"""Runs in VTK files and series."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from finished_runs import PROBLEM, grid_at, pressure, square, velocity
from mesh_writers import DEADLY
from pennlab.datasets.flow.cases import extruded
from pennpde.data import storage
from pennpde.data.runs.collect import NothingCollectedError, collect_runs
from pennpde.data.storage import content_of
from pennpde.mesh import Mesh

TIMES = (0.0, 0.5, 1.0)


def run_folder(tmp_path: Path, problem: str = PROBLEM) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "case.toml").write_text(problem)
    return folder


def as_pvd(folder: Path, mesh, in_cells: bool) -> Path:
    rows = []
    for place, time in enumerate(TIMES):
        grid_at(mesh, time, in_cells).save(folder / f"flow_{place}.vtu")
        rows.append(f'<DataSet timestep="{time}" part="0" file="flow_{place}.vtu"/>')
    path = folder / "flow.pvd"
    path.write_text(f'<VTKFile type="Collection"><Collection>{"".join(rows)}</Collection></VTKFile>')
    return path


def as_series(folder: Path, mesh, in_cells: bool) -> Path:
    rows = []
    for place, time in enumerate(TIMES):
        grid_at(mesh, time, in_cells).save(folder / f"flow_{place}.vtk")
        rows.append({"name": f"flow_{place}.vtk", "time": time})
    path = folder / "flow.vtk.series"
    path.write_text(json.dumps({"file-series-version": "1.0", "files": rows}))
    return path


def as_vtkhdf(folder: Path, mesh, in_cells: bool) -> Path:
    """As VTK writes series itself: its writer is not in all versions, so a case file of ours, which has the format."""
    from pennpde.case import Case
    from pennpde.data.vtkhdf import pack

    assert not in_cells
    places = mesh.points.numpy()
    targets = {
        "U": np.stack([velocity(places, time) for time in TIMES[1:]], axis=-1),
        "p": np.stack([pressure(places, time) for time in TIMES[1:]], axis=-1),
    }
    case = Case(mesh, initial={"U": [0.0, 0.0], "p": 0.0}, targets=targets)
    path = folder / "flow.vtkhdf"
    path.write_bytes(pack(case, TIMES[1:]))
    return path


def check(case, in_cells: bool) -> None:
    places = case.mesh.points.numpy()
    # The walls rest though the field does not: from cells, that is felt as far as the next point.
    near = 0.3 if in_cells else 1e-6
    inside = ((places > near) & (places < 1 - near)).all(axis=1)
    assert inside.sum() > 8
    u, p = case.targets["u"], case.targets["p"]
    if u.ndim == 3:  # at several times
        u, p = u[..., -1], p[..., -1]
    np.testing.assert_allclose(u[inside], velocity(places[inside]), atol=1e-6)
    np.testing.assert_allclose(p[inside], pressure(places[inside]), atol=1e-6)
    held = case.dirichlet["u"].mask
    assert torch.equal(u[held], case.dirichlet["u"].values[held])


@pytest.mark.parametrize("triangles", [False, True])
@pytest.mark.parametrize(
    ("write", "in_cells"),
    [
        (as_pvd, True),
        (as_vtkhdf, False),
        pytest.param(as_pvd, False, marks=pytest.mark.slow),
        pytest.param(as_series, False, marks=pytest.mark.slow),
        pytest.param(as_series, True, marks=pytest.mark.slow),
    ],
)
def test_a_series_of_any_format_gives_the_fields_of_the_run(tmp_path, write, in_cells, triangles):
    folder = run_folder(tmp_path)
    write(folder, square(8, triangles), in_cells)
    made = collect_runs([folder], tmp_path / "set", time="0.5:1:0.5")
    file = storage.read_file(tmp_path / "set", made.collected[0])
    assert file.moments == (0.5, 1.0)
    check(file.case, in_cells)
    assert float(file.case.parameters["viscosity"]) == 0.01
    assert content_of(storage.read_manifest(tmp_path / "set")).network == "flow"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".vtkhdf"])
def test_a_single_file_has_the_time_that_it_states_or_that_is_given(tmp_path, suffix):
    folder = run_folder(tmp_path)
    grid = grid_at(square(), 1.0)
    grid.save(folder / f"flow{suffix}")
    paths = [folder / f"flow{suffix}"]
    with pytest.raises(NothingCollectedError, match="does not say at which time"):
        collect_runs(paths, tmp_path / "set")
    collect_runs(paths, tmp_path / "set", time="3")
    assert float(storage.read(tmp_path / "set")[0].parameters["time"]) == 3.0
    collect_runs(paths, tmp_path / "steady", time="steady")
    assert "steady_u" in storage.read(tmp_path / "steady")[0].targets
    grid.field_data["TimeValue"] = [1.5]
    grid.save(folder / f"flow{suffix}")
    collect_runs(paths, tmp_path / "stated")
    assert float(storage.read(tmp_path / "stated")[0].parameters["time"]) == 1.5


def test_a_converted_plane_case_one_cell_thick_becomes_plane(tmp_path):
    folder = run_folder(tmp_path)
    grid = extruded(square(), 0.1).to_pyvista()
    places = np.asarray(grid.points)
    grid.point_data["U"] = np.concatenate([velocity(places), np.zeros((len(places), 1))], axis=1)
    grid.point_data["p"] = pressure(places)
    grid.save(folder / "flow.vtu")
    collect_runs([folder], tmp_path / "set", time="1")
    case = storage.read(tmp_path / "set")[0]
    assert case.space == 2
    assert case.targets["u"].shape == case.mesh.points.shape


def test_the_start_is_what_the_series_has_at_time_zero_unless_the_problem_file_says_it(tmp_path):
    folder = run_folder(tmp_path)
    mesh = square()
    inside = np.setdiff1d(np.arange(mesh.number_of_points), mesh.boundary_points)
    path = as_pvd(folder, mesh, False)
    grid_at(mesh, 0.25).save(folder / "flow_0.vtu")
    collect_runs([path], tmp_path / "set")
    start = storage.read(tmp_path / "set")[0].initial["u"]
    np.testing.assert_allclose(start[inside], velocity(mesh.points.numpy(), 0.25)[inside], atol=1e-6)


@pytest.mark.slow
def test_problem_files_are_found_next_to_the_file_or_given_for_all(tmp_path):
    grid_at(square(), 1.0).save(tmp_path / "a.vtu")
    (tmp_path / "problem.toml").write_text(PROBLEM)
    with pytest.raises(NothingCollectedError, match=r"no problem file: a.toml or case.toml"):
        collect_runs([tmp_path / "a.vtu"], tmp_path / "set", time="1")
    assert collect_runs([tmp_path / "a.vtu"], tmp_path / "set", time="1", problem=tmp_path / "problem.toml").collected
    (tmp_path / "a.toml").write_text(PROBLEM.replace("0.01", "0.05"))
    collect_runs([tmp_path / "a.vtu"], tmp_path / "own", time="1", problem=tmp_path / "problem.toml")
    assert float(storage.read(tmp_path / "own")[0].parameters["viscosity"]) == 0.05


@pytest.mark.slow
def test_fields_may_have_other_names(tmp_path):
    folder = run_folder(tmp_path)
    grid = grid_at(square(), 1.0)
    grid.rename_array("U", "speed")
    grid.save(folder / "flow.vtu")
    with pytest.raises(
        NothingCollectedError, match=r"no field u; it has p, speed\. Say which it is with --fields u=NAME"
    ):
        collect_runs([folder], tmp_path / "set", time="1")
    assert collect_runs([folder], tmp_path / "set", time="1", fields=["u=speed", "p"]).collected


def test_an_equation_of_your_own_is_collected_without_a_network(tmp_path):
    folder = run_folder(tmp_path, '[patches]\nall = "rest"\n[dirichlet.c]\nall = 1.0\n[parameters]\nrate = 2.0\n')
    grid = square().to_pyvista()
    grid.point_data["c"] = np.linspace(0.0, 1.0, grid.n_points)
    grid.save(folder / "grown.vtu")
    collect_runs([folder], tmp_path / "set", time="1")
    content = content_of(storage.read_manifest(tmp_path / "set"))
    assert (content.network, dict(content.unknowns), content.parameters) == (None, {"c": 0}, ("rate", "time"))


WRONG = {
    "a damaged list": (lambda folder: (folder / "flow.pvd").write_text("<VTKFile>"), "no list of files and times"),
    "no list": (lambda folder: (folder / "flow.pvd").write_text("<VTKFile/>"), "lists no files"),
    "a missing file": (lambda folder: (folder / "flow_1.vtu").unlink(), "lists flow_1.vtu, which does not exist"),
    "a damaged file": (lambda folder: (folder / "flow_2.vtu").write_text("nothing"), "flow_2.vtu is damaged"),
    "a time that is none": (
        lambda folder: (folder / "flow.pvd").write_text((folder / "flow.pvd").read_text().replace('"1.0"', '"nan"')),
        "lists flow_2.vtu at the time nan",
    ),
    "another mesh": (lambda folder: grid_at(square(4), 1.0).save(folder / "flow_2.vtu"), "meshes must not move"),
    "no patches": (
        lambda folder: (folder / "case.toml").write_text("[initial]\nu = [0.0, 0.0]\np = 0.0\n"),
        "its mesh has no patches",
    ),
    "a wrong problem": (lambda folder: (folder / "case.toml").write_text("[walls]\n"), "case.toml has the sections"),
    "a scalar velocity": (
        lambda folder: (folder / "case.toml").write_text(PROBLEM.replace("[0.5, 0.0]", "0.5")),
        "shape",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path, what):
    folder = run_folder(tmp_path)
    as_pvd(folder, square(), False)
    change, message = WRONG[what]
    change(folder)
    with pytest.raises(NothingCollectedError, match=message) as caught:
        collect_runs([folder / "flow.pvd"], tmp_path / "set")
    assert len(str(caught.value).splitlines()) == 2
    assert not (tmp_path / "set").exists()


def test_files_that_end_the_process_that_reads_them_do_not_end_the_collection(tmp_path):
    folder = run_folder(tmp_path)
    grid_at(square(), 1.0).save(folder / "good.vtu")
    announced = re.sub(
        rb'NumberOfPoints="\d+"', b'NumberOfPoints="1000000000000000"', (folder / "good.vtu").read_bytes()
    )
    (folder / "huge.vtu").write_bytes(announced)
    (folder / "deadly.vtk").write_text(DEADLY)
    made = collect_runs(sorted(folder.glob("*.vt*")), tmp_path / "set", time="1")
    assert made.collected == ("good",)
    assert made.failed["deadly"] == "deadly.vtk is damaged so badly that reading it crashed"
    assert made.failed["huge"].startswith("huge.vtu is damaged: it announces 1,000,000,000,000,000 points")


@pytest.mark.parametrize("name", ["flow.pvd", "flow.vtu", "flow.vtkhdf", "flow.msh"])
def test_a_pipe_is_skipped_and_not_waited_for(tmp_path, name):
    folder = run_folder(tmp_path)
    os.mkfifo(folder / name)
    with pytest.raises(NothingCollectedError, match="it is a pipe or a device, not a file"):
        collect_runs([folder / name], tmp_path / "set")


def test_a_list_of_times_that_cannot_be_stored_is_not_read(tmp_path):
    import h5py

    folder = run_folder(tmp_path)
    path = as_vtkhdf(folder, square(), False)
    with h5py.File(path, "a") as file:
        del file["VTKHDF/Steps/Values"]
        file.create_dataset("VTKHDF/Steps/Values", (10**11,), "f8", chunks=(10**4,))
    with pytest.raises(NothingCollectedError, match=r"flow.vtkhdf is damaged: its list of times announces"):
        collect_runs([path], tmp_path / "set")


def of_second_order(mesh: Mesh):
    """A PyVista grid of curved triangles, with one point that belongs to no cell, and a line along a side."""
    import pyvista

    points, corners = mesh.points.numpy(), mesh.connectivity.reshape(-1, 3)
    sides = np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]), axis=1)
    unique, place = np.unique(sides, axis=0, return_inverse=True)
    between = len(points) + place.reshape(3, -1).T
    places = np.concatenate([points, points[unique].mean(axis=1), [[5.0, 5.0]]])
    rows = np.concatenate([np.full((len(corners), 1), 6), corners, between], axis=1)
    cells = np.concatenate([[2, *unique[0]], rows.ravel()])
    types = np.array([3, *[22] * len(corners)], np.uint8)
    return pyvista.UnstructuredGrid(cells, types, np.pad(places, ((0, 0), (0, 1)))), points[corners].mean(axis=1)


@pytest.mark.parametrize("in_cells", [False, True])
def test_meshes_are_repaired_with_a_note_unless_that_is_refused(tmp_path, in_cells):
    folder = run_folder(tmp_path)
    grid, centres = of_second_order(square(8, True))
    places = np.concatenate([[[0.0, 0.0]], centres]) if in_cells else np.asarray(grid.points)[:, :2]
    arrays = grid.cell_data if in_cells else grid.point_data
    arrays["U"], arrays["p"] = np.pad(velocity(places), ((0, 0), (0, 1))), pressure(places)
    grid.save(folder / "flow.vtu")
    with pytest.raises(NothingCollectedError, match="of second or higher order"):
        collect_runs([folder], tmp_path / "set", time="1", repair=False)
    made = collect_runs([folder], tmp_path / "set", time="1")
    notes = made.report["cases"]["flow"]["notes"]
    assert any("brought to first order: 128 cells" in note for note in notes)
    assert any("left out: 1 point of no cell" in note for note in notes)
    check(storage.read(tmp_path / "set")[0], in_cells)


def test_blocks_in_one_file_become_one_mesh(tmp_path):
    import pyvista

    folder = run_folder(tmp_path)
    grid = grid_at(square(8), 1.0)
    left = np.asarray(grid.cell_centers().points)[:, 0] < 0.5
    pyvista.MultiBlock([grid.extract_cells(left), grid.extract_cells(~left)]).save(folder / "flow.vtm")
    collect_runs([folder / "flow.vtm"], tmp_path / "set", time="1")
    check(storage.read(tmp_path / "set")[0], False)


CONDITIONS = PROBLEM[PROBLEM.index("[dirichlet.u]") :]
"""Of a file that brings its patches."""


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


def node_data(name: str, tags: np.ndarray, values: np.ndarray, binary: bool) -> bytes:
    """A section $NodeData of Gmsh."""
    values = values.reshape(len(tags), -1)
    header = f'$NodeData\n1\n"{name}"\n1\n0.5\n3\n0\n{values.shape[1]}\n{len(tags)}\n'.encode()
    if binary:
        rows = np.zeros(len(tags), [("tag", "<i4"), ("values", "<f8", values.shape[1])])
        rows["tag"], rows["values"] = tags, values.reshape(rows["values"].shape)
        return header + rows.tobytes() + b"\n$EndNodeData\n"
    lines = [f"{tag} {' '.join(map(repr, row))}\n" for tag, row in zip(tags.tolist(), values.tolist(), strict=True)]
    return header + "".join(lines).encode() + b"$EndNodeData\n"


@pytest.mark.parametrize("kind", ["gmsh 2.2 text", "gmsh 2.2 binary", "gmsh 4.1 text", "gmsh 4.1 binary"])
def test_a_gmsh_file_brings_its_groups_and_fields(tmp_path, kind):
    from mesh_writers import positions_of, write_as

    folder = run_folder(tmp_path, CONDITIONS)
    mesh = with_patches()
    path = write_as(kind, folder, mesh)
    gaps = 10 if kind in ("gmsh 2.2 text", "gmsh 4.1 binary") else 1
    places, tags = positions_of(mesh), gaps * np.arange(1, mesh.number_of_points + 1)
    order = np.random.default_rng(0).permutation(len(tags))
    speeds = np.column_stack([velocity(places), np.zeros(len(tags))])
    with path.open("ab") as file:
        for values, name in ((0 * speeds, "u"), (speeds, "u"), (pressure(places), "p"), (tags, "some points")):
            some = order[: 5 if name == "some points" else None]
            file.write(node_data(name, tags[some], np.asarray(values, float)[some], "binary" in kind))
    assert set(Mesh.read(path).fields) == {"u", "p"}, "one that most points lack is no field of the mesh"
    collect_runs([path], tmp_path / "set", time="steady")
    check_steady(tmp_path / "set")


def test_a_gmsh_field_that_is_cut_is_refused_in_words(tmp_path):
    from mesh_writers import write_as

    path = write_as("gmsh 4.1 binary", tmp_path, with_patches())
    whole, data = path.read_bytes(), node_data("p", np.arange(10, 500, 10), np.ones(49), binary=True)
    for length in (12, 30, 50, 200):
        path.write_bytes(whole + data[:length])
        with pytest.raises(ValueError, match="damaged"):
            Mesh.read(path)


def test_a_med_file_brings_its_fields(tmp_path):
    meshio = pytest.importorskip("meshio")

    folder = run_folder(tmp_path)
    mesh = square(triangles=True)
    places = mesh.points.numpy()
    rows = [("triangle", mesh.connectivity.reshape(-1, 3))]
    meshio.Mesh(places, rows, point_data={"u": velocity(places), "p": pressure(places)}).write(folder / "flow.med")
    collect_runs([folder / "flow.med"], tmp_path / "set", time="steady")
    check_steady(tmp_path / "set")
