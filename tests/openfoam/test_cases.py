"""An OpenFOAM case: its mesh and conditions become a Case, and fields become a time folder."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from foam_cases import RESTING, WALLS, flow_case, read_flow, write_brick, write_conditions, write_dictionary
from pennlab import running
from pennpde import openfoam
from pennpde.models.advection_diffusion import AdvectionDiffusion
from pennpde.models.ducts import Flow, complete_flow
from pennpde.openfoam import Dimensions, FoamFormatError, NonUniform, Uniform, UnsupportedConditionError

# Cases


def test_conditions_become_masks_and_values(tmp_path):
    folder = flow_case(
        tmp_path,
        {"left": "type fixedValue; value uniform (2 0 0);", "right": "type inletOutlet; inletValue uniform (0 0 0);"},
        {"right": "type fixedValue; value uniform 5;", "left": "type fixedGradient; gradient uniform 3;"},
    )
    case = read_flow(folder)
    x = case.mesh.points
    assert case.mesh.space == 3
    assert case.parameters["viscosity"] == 0.01
    inlet = (x[:, 0] == 0) & ((x[:, 1:] > 0) & (x[:, 1:] < 1)).all(dim=1)
    torch.testing.assert_close(
        case.dirichlet["u"].values[inlet], torch.tensor([2.0, 0, 0]).double().expand(inlet.sum(), 3)
    )
    # Where the inlet meets a wall, the wall wins.
    corner = (x == torch.tensor([0.0, 0, 0])).all(dim=1)
    assert case.dirichlet["u"].mask[corner].all()
    assert not case.dirichlet["u"].values[corner].any()
    outlet = x[:, 0] == 1
    assert torch.equal(case.dirichlet["p"].mask, outlet)
    assert (case.dirichlet["p"].values[outlet] == 5).all()
    assert (case.neumann["p"].normal_derivative[inlet] == 3).all()
    torch.testing.assert_close(
        case.neumann["u"].normals[outlet], torch.tensor([1.0, 0, 0]).double().expand(outlet.sum(), 3)
    )
    walls = torch.stack([x[:, 1], 1 - x[:, 1], x[:, 2], 1 - x[:, 2]]).amin(dim=0)
    torch.testing.assert_close(complete_flow(case).features["wall_distance"], walls)


def test_a_list_of_values_is_averaged_to_the_points(tmp_path):
    # Two by two faces: the middle point of the side touches all of them.
    values = "nonuniform List<vector> 4((1 0 0)(2 0 0)(3 0 0)(4 0 0))"
    case = read_flow(flow_case(tmp_path, {"left": f"type fixedValue; value {values};"}, shape=(2, 2, 2)))
    middle = (case.mesh.points == torch.tensor([0.0, 0.5, 0.5])).all(dim=1)
    torch.testing.assert_close(case.dirichlet["u"].values[middle], torch.tensor([[2.5, 0, 0]]).double())
    bad = flow_case(tmp_path / "short", {"left": f"type fixedValue; value {values};"}, shape=(2, 3, 2))
    with pytest.raises(FoamFormatError, match=r"'left', field 'U'.*6 faces"):
        read_flow(bad)


def test_what_is_uniform_stays_so_to_the_last_bit(tmp_path):
    velocity = "uniform (0.1 0.7 -1e-7)"
    folder = flow_case(tmp_path, {"left": f"type fixedValue; value {velocity};"}, shape=(3, 5, 7), shear=0.3)
    write_conditions(
        folder, "U", velocity, {'".*"': "type zeroGradient;", "left": f"type fixedValue; value {velocity};"}
    )
    case = read_flow(folder)
    expected = torch.tensor([[0.1, 0.7, -1e-7]], dtype=torch.float64)
    assert torch.equal(case.dirichlet["u"].values[case.dirichlet["u"].mask].unique(dim=0), expected)
    assert torch.equal(case.initial["u"].unique(dim=0), expected)


def test_a_case_between_empty_patches_becomes_plane(tmp_path):
    folder = write_brick(tmp_path / "case", (4, 3, 1), types={"front": "empty", "back": "empty"}, height=0.1)
    plane = {"left": "type fixedValue; value uniform (1 0 0);", '"(right|top|bottom)"': "type zeroGradient;"}
    write_conditions(folder, "U", "uniform (1 0 0)", plane)
    write_conditions(
        folder, "p", "uniform 0", {'".*"': "type zeroGradient;", "right": "type fixedValue; value uniform 0;"}
    )
    case = read_flow(folder)
    assert case.mesh.space == 2
    assert case.mesh.number_of_points == 20
    assert set(case.mesh.patches) == {"left", "right", "top", "bottom"}
    torch.testing.assert_close(case.mesh.cell_volumes.sum().item(), 1.0)
    assert case.initial["u"].shape == (20, 2)


def test_a_plane_case_with_one_side_that_is_not_empty_is_refused(tmp_path):
    folder = flow_case(
        tmp_path, {"front": "type empty;"}, {"front": "type empty;"}, shape=(3, 2, 1), types={"front": "empty"}
    )
    with pytest.raises(UnsupportedConditionError, match=r"'back' is a flat side .*of type 'patch'; both"):
        read_flow(folder)


def test_patches_are_found_by_name_then_group_then_expression(tmp_path):
    groups = {"left": "sides", "right": "sides", "top": "sides"}
    conditions = {
        '"(top|left|right)"': "type fixedValue; value uniform (3 0 0);",
        "sides": "type fixedValue; value uniform (2 0 0);",
        "left": "type fixedValue; value uniform (1 0 0);",
        '".*"': "type noSlip;",
        '"b.*"': "type slip;",
    }
    folder = write_brick(tmp_path / "case", (2, 2, 2), groups=groups)
    write_conditions(folder, "U", "uniform (0 0 0)", conditions)
    write_conditions(folder, "p", "uniform 0", WALLS)
    case = read_flow(folder)
    x = case.mesh.points
    values = case.dirichlet["u"].values[:, 0]
    assert values[(x == torch.tensor([0, 0.5, 0.5])).all(dim=1)] == 1
    assert values[(x == torch.tensor([1, 0.5, 0.5])).all(dim=1)] == 2
    assert values[(x == torch.tensor([0.5, 1, 0.5])).all(dim=1)] == 2
    assert case.slip["u"].mask[(x == torch.tensor([0.5, 0, 0.5])).all(dim=1)].all()


@pytest.mark.parametrize("kind", ["slip", "symmetry", "symmetryPlane"])
def test_slip_and_symmetry_forbid_flow_across_and_leave_scalars_free(tmp_path, kind):
    folder = flow_case(
        tmp_path, {"top": f"type {kind};"}, {"top": f"type {kind};"}, types={"top": "patch" if kind == "slip" else kind}
    )
    case = read_flow(folder)
    inside = (case.mesh.points[:, 1] == 1) & ~case.dirichlet["u"].mask
    assert inside.any()
    assert case.slip["u"].mask[inside].all()
    assert case.neumann["p"].mask[inside].all()


def test_a_constraint_patch_needs_no_entry_of_its_own(tmp_path):
    folder = write_brick(
        tmp_path / "case", (2, 2, 1), types={"front": "empty", "back": "empty", "top": "symmetryPlane"}
    )
    three = dict.fromkeys(("left", "right", "bottom"), "type noSlip;")
    write_conditions(folder, "U", "uniform (0 0 0)", three, extra='#includeEtc "caseDicts/setConstraintTypes"')
    write_conditions(folder, "p", "uniform 0", dict.fromkeys(three, "type zeroGradient;"))
    assert read_flow(folder).slip["u"].mask.any()


@pytest.mark.parametrize(
    ("field", "patch", "text", "kind"),
    [
        ("U", "left", "type swirlInletVelocity;", "swirlInletVelocity"),
        ("p", "top", "type prghPressure; p uniform 0;", "prghPressure"),
        ("U", "left", "type totalPressure; p0 uniform 0;", "totalPressure"),
        ("p", "top", "type noSlip;", "noSlip"),
        ("U", "top", "type empty;", "empty"),
    ],
)
def test_an_unknown_condition_is_an_error_with_patch_field_and_type(tmp_path, field, patch, text, kind):
    given_text = {patch: text}
    folder = flow_case(tmp_path, given_text if field == "U" else {}, given_text if field == "p" else {})
    with pytest.raises(UnsupportedConditionError, match=rf"'{patch}', field '{field}'.*'{kind}'"):
        read_flow(folder)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda case: shutil.rmtree(case / "constant" / "polyMesh"), FileNotFoundError, "blockMesh"),
        (lambda case: shutil.rmtree(case / "0"), FileNotFoundError, "'U'"),
        (lambda case: (case / "system" / "controlDict").unlink(), FileNotFoundError, "controlDict"),
        (lambda case: (case / "0" / "p").write_bytes(b"\x00\xff" * 100), FoamFormatError, "0/p"),
        (
            lambda case: write_conditions(case, "p", "uniform 0", {"left": "type zeroGradient;"}),
            FoamFormatError,
            "'right'",
        ),
        (
            lambda case: write_conditions(case, "U", "nonuniform List<vector> 1((1 0 0))", RESTING),
            FoamFormatError,
            "12",
        ),
        (
            lambda case: write_conditions(case, "p", "uniform 0", {'"(a+)+"': "type noSlip;"}),
            FoamFormatError,
            "might not terminate",
        ),
        (
            lambda case: write_conditions(case, "p", "uniform 0", {'"("': "type noSlip;"}),
            FoamFormatError,
            "cannot be read",
        ),
        (
            lambda case: write_dictionary(case / "constant/transportProperties", {"transportModel": "CrossPowerLaw"}),
            UnsupportedConditionError,
            "CrossPowerLaw",
        ),
    ],
)
def test_a_broken_case_is_an_error_that_names_what_is_wrong(tmp_path, damage, error, message):
    folder = flow_case(tmp_path, {})
    damage(folder)
    with pytest.raises(error, match=message):
        read_flow(folder)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_flow(tmp_path / "nowhere")


def test_one_scalar_can_be_read_alone(tmp_path):
    folder = write_brick(tmp_path / "case")
    write_conditions(folder, "T", "uniform 0", WALLS | {"left": "type fixedValue; value uniform 0.8;"})
    write_dictionary(folder / "constant" / "transportProperties", {"DT": "DT [0 2 -1 0 0 0 0] 0.3"})
    case = openfoam.read_case(folder, AdvectionDiffusion.foam_fields, AdvectionDiffusion.foam_parameters)
    assert set(case.initial) == {"T"}
    assert case.parameters["diffusivity"] == 0.3
    assert case.dirichlet["T"].mask.sum() == 9


@pytest.mark.parametrize("plane", [False, True])
def test_what_is_written_as_a_time_is_read_back(tmp_path, plane):
    folder = write_brick(tmp_path / "case", (4, 3, 1), types={"front": "empty", "back": "empty"} if plane else {})
    inlet = {"left": "type fixedValue; value uniform (1 0 0);"}
    write_conditions(folder, "U", "uniform (0 0 0)", {'".*"': "type noSlip;"} | inlet)
    write_conditions(folder, "p", "uniform 0", {'".*"': "type zeroGradient;"})
    mesh = read_flow(folder).mesh
    slope = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)[: mesh.space]
    fields = {"u": mesh.points.clone(), "p": mesh.points @ slope}
    written = openfoam.write_time(folder, 0.5, mesh, fields, Flow.foam_fields)
    assert written == folder / "0.5"
    pressure, velocity = openfoam.read_field(written / "p"), openfoam.read_field(written / "U")
    centres = openfoam.PolyMesh.read(folder).cell_centres
    np.testing.assert_allclose(pressure.values(12), centres[:, : mesh.space] @ slope.numpy(), atol=1e-13)
    assert velocity.boundary["left"]["type"] == "fixedValue"
    assert pressure.dimensions == Dimensions((0.0,) * 7)  # as in the case itself
    assert sorted(path.name for path in folder.iterdir()) == ["0", "0.5", "constant", "system"]
    with pytest.raises(FileExistsError, match=r"0\.5"):
        openfoam.write_time(folder, 0.5, mesh, fields, Flow.foam_fields)
    with pytest.raises(ValueError, match="not finite"):
        openfoam.write_time(
            folder, 0.5, mesh, {"p": torch.full_like(fields["p"], torch.nan)}, Flow.foam_fields, overwrite=True
        )
    assert openfoam.read_field(written / "U")  # what was there is still there
    with pytest.raises(KeyError, match="vorticity"):
        openfoam.write_time(folder, 0.6, mesh, {"vorticity": fields["p"]}, Flow.foam_fields)


@pytest.fixture(scope="module")
def channel(installation, tmp_path_factory) -> Path:
    """A channel of 12 x 6 cells, meshed by OpenFOAM, with a list of inlet velocities."""
    folder = tmp_path_factory.mktemp("channel")
    block = running.Block(((0, 0), (2, 0), (2, 1), (0, 1)), (12, 6))
    sides = {
        "inlet": ("patch", [((0, 0), (0, 1))]),
        "outlet": ("patch", [((2, 0), (2, 1))]),
        "walls": ("wall", [((0, 0), (2, 0)), ((0, 1), (2, 1))]),
    }
    control = {
        "application": "icoFoam",
        "startFrom": "latestTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": 0.2,
        "deltaT": 0.05,
        "writeControl": "timeStep",
        "writeInterval": 2,
        "writeFormat": "ascii",
    }
    schemes = {f"{name}Schemes": {"default": "Gauss linear"} for name in ("grad", "div")} | {
        "ddtSchemes": {"default": "Euler"},
        "laplacianSchemes": {"default": "Gauss linear corrected"},
        "interpolationSchemes": {"default": "linear"},
        "snGradSchemes": {"default": "corrected"},
    }
    solver = {"solver": "PBiCGStab", "preconditioner": "diagonal", "tolerance": 1e-8, "relTol": 0}
    solution = {"solvers": {'"(p|pFinal|U)"': solver}, "PISO": {"nCorrectors": 2, "pRefCell": 0, "pRefValue": 0}}
    (folder / "system").mkdir()
    (folder / "constant").mkdir()
    (folder / "system" / "blockMeshDict").write_text(running.block_mesh_dictionary([block], sides, 0.1))
    write_dictionary(folder / "system" / "controlDict", control)
    write_dictionary(folder / "system" / "fvSchemes", schemes)
    write_dictionary(folder / "system" / "fvSolution", solution)
    write_dictionary(folder / "constant" / "transportProperties", {"nu": "[0 2 -1 0 0 0 0] 0.1"})
    halves = {"numberOfSubdomains": 2, "method": "simple", "simpleCoeffs": {"n": "(2 1 1)", "delta": 0.001}}
    write_dictionary(folder / "system" / "decomposeParDict", halves)
    velocities = NonUniform(np.array([[0.1 * k, 0, 0] for k in range(6)]))
    velocity = {
        "inlet": {"type": "fixedValue", "value": velocities},
        "outlet": {"type": "zeroGradient"},
        "walls": {"type": "noSlip"},
        "frontAndBack": {"type": "empty"},
    }
    pressure = {
        "outlet": {"type": "fixedValue", "value": Uniform(0.0)},
        '"(inlet|walls)"': {"type": "zeroGradient"},
        "frontAndBack": {"type": "empty"},
    }
    (folder / "0").mkdir()
    running.run(folder, "blockMesh", installation=installation)
    openfoam.write_field(folder / "0" / "U", np.zeros((72, 3)), openfoam.VELOCITY, velocity)
    openfoam.write_field(folder / "0" / "p", np.zeros(72), openfoam.PRESSURE, pressure)
    return folder


# With OpenFOAM itself


@pytest.mark.openfoam
def test_openfoam_goes_on_from_a_time_that_we_wrote(channel, installation, tmp_path):
    folder = shutil.copytree(channel, tmp_path / "case")
    case = read_flow(folder)
    assert case.mesh.number_of_points == 13 * 7
    speed = case.mesh.points[:, 1] * (1 - case.mesh.points[:, 1])
    velocity = torch.stack([speed, torch.zeros_like(speed)], dim=1)
    openfoam.write_time(folder, 0.1, case.mesh, {"u": velocity, "p": torch.zeros_like(speed)}, Flow.foam_fields)
    steps: list[float] = []
    running.run(folder, "icoFoam", installation=installation, on_progress=lambda step: steps.append(step.time))
    np.testing.assert_allclose(steps, [0.15, 0.2])
    assert openfoam.read_field(folder / "0.2" / "U").values(72)[:, 0].max() > 0.1  # text, as OpenFOAM wrote it


@pytest.mark.openfoam
def test_a_decomposed_case_is_the_same_case(channel, installation, tmp_path):
    folder = shutil.copytree(channel, tmp_path / "case")
    whole = read_flow(folder)
    running.run(folder, "decomposePar", installation=installation)
    shutil.rmtree(folder / "0")
    shutil.rmtree(folder / "constant" / "polyMesh")
    parts = read_flow(folder)
    assert parts.mesh.number_of_cells == whole.mesh.number_of_cells

    def sorted_rows(case: openfoam.cases.Case) -> torch.Tensor:
        columns = [case.mesh.points, case.dirichlet["u"].mask[:, None], case.dirichlet["u"].values, case.initial["u"]]
        columns += [case.neumann["p"].normals, complete_flow(case).features["wall_distance"][:, None]]
        rows = torch.cat([column.double() for column in columns], dim=1).numpy()
        return torch.from_numpy(rows[np.lexsort(rows[:, :2].round(9).T)])

    torch.testing.assert_close(sorted_rows(parts), sorted_rows(whole))
