"""Time folders from which OpenFOAM goes on: cell values, boundary values, and fluxes that leave nothing in a cell."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from foam_cases import RESTING, flow_case, read_flow, write_conditions, write_dictionary, write_plane_channel
from pennlab import running
from pennpde import openfoam
from pennpde.case import Case
from pennpde.mesh.splitting import PlaneCells
from pennpde.models.ducts import Flow
from pennpde.openfoam import NonUniform, PolyMesh
from pennpde.penn.predictor import Finer


def written(folder: Path, case: Case, fields: dict[str, torch.Tensor], time: str = "4") -> tuple[PolyMesh, np.ndarray]:
    """The mesh, and the flux through all of its faces as it was written."""
    openfoam.write_time(folder, time, case.mesh, fields, Flow.foam_fields)
    mesh, flux = PolyMesh.read(folder), openfoam.read_field(folder / time / "phi", folder)
    faces = np.zeros(mesh.number_of_faces)
    faces[: len(mesh.neighbour)] = flux.values(len(mesh.neighbour))
    for name, patch in mesh.patches.items():
        given = flux.boundary[name]["value"]
        if isinstance(given, NonUniform):
            faces[patch.faces] = given.values
    return mesh, faces


def rough_flow(case: Case) -> dict[str, torch.Tensor]:
    """Along the channel, but neither free of divergence nor as prescribed at the inlet."""
    position = case.mesh.points
    x, y = position[:, 0], position[:, 1]
    across = [0.2 * torch.cos(3 * x * y)] + [0.1 * x * y] * (case.space - 2)
    return {"u": torch.stack([6 * y * (1 - y) + 0.1 * torch.sin(5 * x), *across], dim=1), "p": 1 - x}


def test_a_flux_leaves_nothing_in_any_cell_and_enters_as_prescribed(tmp_path):
    folder = write_plane_channel(tmp_path / "channel", (12, 9, 1))
    case = read_flow(folder)
    mesh, flux = written(folder, case, rough_flow(case))
    np.testing.assert_allclose(mesh.outward @ flux, 0.0, atol=1e-15)
    inlet, outlet = mesh.patches["left"], mesh.patches["right"]
    np.testing.assert_allclose(flux[inlet.faces], -1 / 9, rtol=1e-14)  # also at the corners, whose points rest
    assert flux[outlet.faces].sum() == pytest.approx(1.0)
    for wall in ("bottom", "top", "front", "back"):
        assert not flux[mesh.patches[wall].faces].any()


@pytest.mark.parametrize("form", ["ascii", "binary", None])
def test_files_are_text_or_binary_as_the_case_writes_its_own(tmp_path, form):
    folder = write_plane_channel(tmp_path / "case")
    control = {"application": "icoFoam", "startTime": 0, "deltaT": 1} | ({"writeFormat": form} if form else {})
    write_dictionary(folder / "system" / "controlDict", control)
    case = openfoam.read_case(folder, Flow.foam_fields, Flow.foam_parameters)
    fields = rough_flow(case)
    openfoam.write_time(folder, "4", case.mesh, fields, Flow.foam_fields)
    for name in ("U", "p", "phi"):
        content = (folder / "4" / name).read_bytes()
        assert (b"format binary" in content) == (form == "binary")
        assert content.isascii() == (form != "binary")
    cells = PolyMesh.read(folder).number_of_cells
    assert openfoam.read_field(folder / "4" / "U", folder).values(cells).any()


@pytest.mark.parametrize("shear", [0.0, 0.7])
def test_a_flux_in_space_leaves_nothing_in_any_cell(tmp_path, shear):
    inlet = {
        "left": "type fixedValue; value uniform (1 0 0);",
        "right": "type inletOutlet; inletValue uniform (0 0 0);",
    }
    outlet = {"right": "type fixedValue; value uniform 0;"}
    folder = flow_case(tmp_path, inlet, outlet, shape=(4, 3, 3), shear=shear)
    case = read_flow(folder)
    mesh, flux = written(folder, case, rough_flow(case))
    np.testing.assert_allclose(mesh.outward @ flux, 0.0, atol=1e-15)
    assert flux[mesh.patches["right"].faces].sum() == pytest.approx(-flux[mesh.patches["left"].faces].sum())


def test_a_closed_flow_has_no_flux_through_its_walls(tmp_path):
    lid = {"top": "type fixedValue; value uniform (1 0 0);"}
    folder = flow_case(tmp_path, lid, shape=(5, 5, 1), types={"front": "empty", "back": "empty"})
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | lid | {"front": "type empty;", "back": "type empty;"})
    write_conditions(folder, "p", "uniform 0", {'".*"': "type zeroGradient;"})
    case = read_flow(folder)
    mesh, flux = written(folder, case, rough_flow(case))
    np.testing.assert_allclose(mesh.outward @ flux, 0.0, atol=1e-15)
    assert not flux[len(mesh.neighbour) :].any()


def periodic_channel(tmp_path: Path) -> Path:
    folder = write_plane_channel(tmp_path / "channel", (6, 4, 1))
    boundary = folder / "constant" / "polyMesh" / "boundary"
    text = boundary.read_text()
    for one, other in (("left", "right"), ("right", "left")):
        text = text.replace(f"{one} {{ type patch;", f"{one} {{ type cyclic; neighbourPatch {other};")
    boundary.write_text(text)
    ends = {"left": "type cyclic;", "right": "type cyclic;", "front": "type empty;", "back": "type empty;"}
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | ends)
    write_conditions(folder, "p", "uniform 0", {'".*"': "type zeroGradient;"} | ends)
    return folder


def test_what_leaves_through_a_periodic_patch_comes_in_through_its_partner(tmp_path):
    folder = periodic_channel(tmp_path)
    case = read_flow(folder)
    mesh, flux = written(folder, case, rough_flow(case))
    left, right = (flux[mesh.patches[name].faces] for name in ("left", "right"))
    np.testing.assert_allclose(left, -right, rtol=0, atol=1e-16)
    assert right.sum() == pytest.approx(1.0, abs=0.2)
    np.testing.assert_allclose(mesh.outward @ flux, 0.0, atol=1e-15)


def test_a_flow_without_divergence_is_not_changed(tmp_path):
    folder = write_plane_channel(tmp_path / "channel", (8, 8, 1))
    case = read_flow(folder)
    uniform = {"u": torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(case.number_of_points, 2)}
    mesh, flux = written(folder, case, uniform)
    expected = mesh.face_vectors[:, 0] * (~mesh.faces_of_type("empty"))
    np.testing.assert_allclose(flux, expected, rtol=0, atol=1e-15)
    velocity = openfoam.read_field(folder / "4" / "U", folder).values(64)
    np.testing.assert_allclose(velocity, np.broadcast_to([1.0, 0, 0], (64, 3)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("shear", [0.0, 0.6])
def test_cells_get_the_value_at_their_centre(tmp_path, shear):
    """Linear fields exactly; of a quadratic one the mean of the points is off by the curvature, inside the mesh."""
    empty = {"front": "type empty;", "back": "type empty;"}
    types = {"front": "empty", "back": "empty"}
    folder = flow_case(tmp_path, empty, empty, shape=(10, 10, 1), shear=shear, types=types)
    case = read_flow(folder)
    mesh = PolyMesh.read(folder)

    def in_cells(field: torch.Tensor) -> np.ndarray:
        openfoam.write_time(folder, "4", case.mesh, {"p": field}, Flow.foam_fields, overwrite=True)
        return openfoam.read_field(folder / "4" / "p", folder).values(100)

    x, y = case.mesh.points.T
    a, b = torch.from_numpy(mesh.cell_centres[:, :2]).T
    np.testing.assert_allclose(in_cells(2 * x - 3 * y + 1), 2 * a - 3 * b + 1, rtol=0, atol=1e-12)
    inside = ((b - 0.5).abs() < 0.35) & ((a - shear * b - 0.5).abs() < 0.35)
    error = (torch.from_numpy(in_cells(x**2 + x * y)) - (a**2 + a * b))[inside].abs()
    by_mean = (x**2 + x * y)[case.mesh.connectivity.reshape(-1, 4)].mean(dim=1)
    assert error.max() < 0.1 * (by_mean - (a**2 + a * b))[inside].abs().min()


def test_values_that_are_not_prescribed_are_those_of_the_cells(tmp_path):
    folder = write_plane_channel(tmp_path / "channel")
    open_end = {"right": "type inletOutlet; inletValue uniform (0 0 0); value uniform (0 0 0);"}
    inlet = {"left": "type fixedValue; value uniform (1 0 0);"}
    empty = {"front": "type empty;", "back": "type empty;"}
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | inlet | open_end | empty)
    case = read_flow(folder)
    mesh, _ = written(folder, case, rough_flow(case))
    field = openfoam.read_field(folder / "4" / "U", folder)
    outlet = mesh.patches["right"]
    given = field.boundary["right"]["value"]
    assert isinstance(given, NonUniform)
    np.testing.assert_array_equal(given.values, field.values(12)[mesh.owner[outlet.faces]])
    assert field.boundary["left"]["value"].value.tolist() == [1, 0, 0]
    assert field.boundary["right"]["type"] == "inletOutlet"


# With OpenFOAM


def settings(folder: Path, program: str, steps: int, time_step: float) -> None:
    """A solver that starts at the last time, and fields with their dimensions."""
    for name, dimensions in (("U", "[0 1 -1 0 0 0 0]"), ("p", "[0 2 -2 0 0 0 0]")):
        path = folder / "0" / name
        path.write_text(path.read_text().replace("[0 0 0 0 0 0 0]", dimensions))
    control = {
        "application": program,
        "startFrom": "latestTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": 4 + steps * time_step,
        "deltaT": time_step,
        "writeControl": "timeStep",
        "writeInterval": steps,
        "timePrecision": 12,
    }
    schemes = {
        "ddtSchemes": {"default": "Euler" if program == "icoFoam" else "steadyState"},
        "gradSchemes": {"default": "Gauss linear"},
        "divSchemes": {"default": "Gauss linear"},
        "laplacianSchemes": {"default": "Gauss linear corrected"},
        "interpolationSchemes": {"default": "linear"},
        "snGradSchemes": {"default": "corrected"},
    }
    solver = {"solver": "PBiCGStab", "preconditioner": "diagonal", "tolerance": 1e-10, "relTol": 0}
    loop = {"nCorrectors": 2, "nNonOrthogonalCorrectors": 0}
    relaxation = {"equations": {"U": 0.9}, "fields": {"p": 0.9}}
    solution = {"solvers": {'"(p|pFinal|U)"': solver}, "PISO": loop, "SIMPLE": loop, "relaxationFactors": relaxation}
    write_dictionary(folder / "system" / "controlDict", control)
    write_dictionary(folder / "system" / "fvSchemes", schemes)
    write_dictionary(folder / "system" / "fvSolution", solution)
    write_dictionary(folder / "constant" / "transportProperties", {"transportModel": "Newtonian", "nu": 0.01})
    write_dictionary(folder / "constant" / "turbulenceProperties", {"simulationType": "laminar"})


@pytest.mark.openfoam
@pytest.mark.parametrize(("program", "time_step"), [("icoFoam", 0.01), ("simpleFoam", 1.0)])
def test_solvers_go_on_from_the_written_flux_without_complaint(installation, tmp_path, program, time_step):
    folder = write_plane_channel(tmp_path / "channel", (12, 9, 1))
    case = read_flow(folder)
    settings(folder, program, 2, time_step)
    mesh, flux = written(folder, case, rough_flow(case))
    running.run(folder, program, installation=installation, timeout=120)
    log = (folder / f"log.{program}").read_text()
    assert "FOAM Warning" not in log
    local = [float(number) for number in re.findall(r"continuity errors : sum local = (\S+),", log)]
    assert max(local) < 1e-7  # of fluxes of about 1, by solvers of 1e-10
    assert max(float(path.name) for path in openfoam.time_folders(folder)) == pytest.approx(4 + 2 * time_step)
    if program == "icoFoam":
        # The Courant number of the start is that of our own flux: OpenFOAM has read it.
        sides = np.bincount(mesh.owner, np.abs(flux), mesh.number_of_cells)
        sides += np.bincount(mesh.neighbour, np.abs(flux[: len(mesh.neighbour)]), mesh.number_of_cells)
        found = re.search(r"Courant Number mean: \S+ max: (\S+)", log)
        assert found is not None
        volume = 1 / (12 * 9)
        assert float(found[1]) == pytest.approx(0.5 * time_step * sides.max() / volume, rel=1e-5)


@pytest.mark.openfoam
def test_a_periodic_flow_goes_on_too(installation, tmp_path):
    folder = periodic_channel(tmp_path)
    case = read_flow(folder)
    settings(folder, "icoFoam", 2, 0.01)
    written(folder, case, rough_flow(case))
    path = folder / "system" / "fvSolution"
    path.write_text(path.read_text().replace("nCorrectors 2;", "nCorrectors 2; pRefCell 0; pRefValue 0;"))
    running.run(folder, "icoFoam", installation=installation, timeout=120)
    log = (folder / "log.icoFoam").read_text()
    local = [float(number) for number in re.findall(r"continuity errors : sum local = (\S+),", log)]
    assert max(local) < 1e-7


def test_cells_get_the_means_of_a_finer_solution(tmp_path):
    folder = write_plane_channel(tmp_path / "channel", (4, 3, 1))
    case = read_flow(folder)
    cells = PlaneCells.of(case.mesh).split()
    number = case.number_of_points
    bump = torch.zeros(len(cells.points)).double()
    bump[number:] = 1.0  # nothing of it at the points of the mesh
    pressure = 1 - case.mesh.points[:, 0].double()
    own = {"p": pressure}
    split = {"p": bump + torch.from_numpy(1 - cells.points[:, 0])}
    writer = openfoam.TimeWriter.of(folder, case.mesh)
    for time, finer in (("1", None), ("2", Finer(split, own))):
        writer.write(time, {"p": pressure + 5.0}, Flow.foam_fields, finer=finer)
    plain, detailed = (openfoam.read_field(folder / time / "p", folder).values(12) for time in ("1", "2"))
    np.testing.assert_allclose(detailed - plain, 1.0, atol=1e-9)  # Simpson's rule leaves nothing to the corners


def test_next_to_a_corner_with_a_pressure_of_its_own_cells_keep_the_values_of_the_points(tmp_path):
    folder = write_plane_channel(tmp_path / "channel", (4, 3, 1))
    case = read_flow(folder)
    split = {"p": torch.ones(len(PlaneCells.of(case.mesh).split().points)).double()}
    split["p"][case.number_of_points :] += 1.0
    own = {"p": torch.ones(case.number_of_points).double()}
    own["p"][0] = 9.0
    writer = openfoam.TimeWriter.of(folder, case.mesh)
    for time, finer in (("1", None), ("2", Finer(split, own))):
        writer.write(time, own, Flow.foam_fields, finer=finer)
    plain, detailed = (openfoam.read_field(folder / time / "p", folder).values(12) for time in ("1", "2"))
    beside = [(corners == 0).any() for corners in np.split(case.mesh.connectivity, case.mesh.offsets[1:-1])]
    np.testing.assert_array_equal(detailed[beside], plain[beside])
    assert (detailed[~np.array(beside)] > plain[~np.array(beside)] + 0.5).all()
