"""Conditions of OpenFOAM cases: mixed, cyclic, values over time."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from foam_cases import flow_case, read_flow, write_brick, write_conditions, write_dictionary
from pennlab import running
from pennpde import openfoam
from pennpde.case import Case
from pennpde.case.conditions import TotalPressure
from pennpde.models.ducts import Flow
from pennpde.openfoam import FoamFormatError, PolyMesh, UnsupportedConditionError
from pennpde.penn.equation import FoamName
from poisson import solve_poisson

SIDES = ("left", "right", "bottom", "top", "back", "front")
FLAT = {"front": "empty", "back": "empty"}


def read(folder: Path) -> Case:
    return openfoam.read_case(folder, Flow.foam_fields, Flow.foam_parameters)


def foam_case(tmp_path: Path, pressure=None, velocity=None, shape=(4, 3, 1), types=None, **options) -> Case:
    """A plane brick at rest, but for some conditions."""
    folder = write_brick(tmp_path / "case", shape, types=FLAT | (types or {}), **options)
    kept = [side for side in SIDES[:4] if (types or {}).get(side) != "cyclic"]
    write_conditions(folder, "U", "uniform (0 0 0)", dict.fromkeys(kept, "type noSlip;") | (velocity or {}))
    write_conditions(folder, "p", "uniform 0", dict.fromkeys(kept, "type zeroGradient;") | (pressure or {}))
    return read(folder)


def test_mixed_is_the_robin_condition_that_openfoam_discretises(tmp_path):
    # Four cells along x: from face to cell it is 1/8. w f + (1 - w) d df/dn = w refValue + (1 - w) d refGradient.
    text = "type mixed; refValue uniform 5; refGradient uniform 2; valueFraction uniform 0.25;"
    condition = foam_case(tmp_path, {"right": text}).robin["p"]
    held = condition.mask
    a, b = 0.25, 0.75 / 8
    torch.testing.assert_close(condition.transfer[held], torch.full((4,), a / b).double())
    torch.testing.assert_close(condition.normal_derivative[held], torch.full((4,), (a * 5 + b * 2) / b).double())
    assert (condition.normals[held] == torch.tensor([1.0, 0.0]).double()).all()


def test_mixed_of_a_vector_in_a_plane_case(tmp_path):
    text = "type mixed; refValue uniform (1 2 0); refGradient uniform (0 0 0); valueFraction uniform 0.5;"
    condition = foam_case(tmp_path, velocity={"right": text}).robin["u"]
    found = condition.normal_derivative[condition.mask]
    torch.testing.assert_close(found, torch.tensor([[8.0, 16.0]]).double().expand_as(found))


def test_mixed_at_its_ends_prescribes_the_value_or_the_normal_derivative(tmp_path):
    text = "type mixed; refValue uniform 5; refGradient uniform 2; valueFraction uniform {};"
    held = foam_case(tmp_path / "one", {"right": text.format(1)})
    assert not held.robin
    assert (held.dirichlet["p"].values[held.dirichlet["p"].mask] == 5).all()
    free = foam_case(tmp_path / "none", {"right": text.format(0)})
    assert not free.robin
    assert free.neumann["p"].normal_derivative.amax() == 2


@pytest.mark.parametrize(
    ("fraction", "message"),
    [
        ("uniform 1.5", "'right', field 'p': valueFraction must lie between 0 and 1"),
        ("nonuniform List<scalar> 3(0.5 1 0.5)", "split the patch"),
        ("uniform (1 0 0)", "valueFraction is .* but must have shape"),
        ("nonuniform List<scalar> 2(0.5 0.5)", "the patch has 3 faces"),
    ],
)
def test_a_mixed_condition_that_makes_no_sense_is_refused(tmp_path, fraction, message):
    text = f"type mixed; refValue uniform 5; refGradient uniform 2; valueFraction {fraction};"
    with pytest.raises((FoamFormatError, UnsupportedConditionError), match=message):
        foam_case(tmp_path, {"right": text})


def test_centres_of_sheared_cells_are_where_they_are(tmp_path):
    mesh = PolyMesh.read(write_brick(tmp_path / "case", (2, 2, 2), shear=0.5))
    x, y = mesh.cell_centres[:, 0] - 0.5 * mesh.cell_centres[:, 1], mesh.cell_centres[:, 1]
    np.testing.assert_allclose(sorted(set(np.round(x, 12))), [0.25, 0.75])
    np.testing.assert_allclose(sorted(set(np.round(y, 12))), [0.25, 0.75])
    top = mesh.patches["top"]
    np.testing.assert_allclose(mesh.distances_to_cells(top), 0.25, atol=1e-12)


def cyclic(folder: Path, transform: str = "") -> None:
    """Tell the patches left and right about each other."""
    path = folder / "constant" / "polyMesh" / "boundary"
    text = path.read_text()
    for here, there in (("left", "right"), ("right", "left")):
        text = text.replace(f"{here} {{ type cyclic;", f"{here} {{ type cyclic; neighbourPatch {there}; {transform}")
    path.write_text(text)


def periodic_case(tmp_path: Path, transform: str = "", **options) -> Path:
    types = FLAT | {"left": "cyclic", "right": "cyclic"}
    folder = write_brick(tmp_path / "case", (4, 3, 1), types=types, **options)
    cyclic(folder, transform)
    walls = {"bottom": "type noSlip;", "top": "type noSlip;", "left": "type cyclic;", "right": "type cyclic;"}
    write_conditions(folder, "U", "uniform (1 0 0)", walls)
    write_conditions(folder, "p", "uniform 0", {"bottom": "type zeroGradient;", "top": "type zeroGradient;"})
    return folder


@pytest.mark.parametrize("shear", [0.0, 0.4])
def test_cyclic_patches_are_periodic_for_every_field(tmp_path, shear):
    case = read(periodic_case(tmp_path, shear=shear))
    x = case.mesh.points
    slope = torch.tensor([2.0, -1.0]).double()
    for name in ("u", "p"):
        assert case.periodic[name].mask.sum() == 8
        np.testing.assert_allclose(np.abs(case.periods(name)), [[1.0, 0.0]] * 2, atol=1e-12)
        gradient = case.operators[name].plain.grad(x @ slope, case.neumann[name].normals @ slope)
        torch.testing.assert_close(gradient, slope.expand_as(gradient), rtol=0, atol=1e-12)
    inside = case.mesh.patch("left").points[1:-1]
    assert not case.neumann["p"].mask[inside].any()


def test_cyclic_patches_that_are_turned_or_alone_are_refused(tmp_path):
    with pytest.raises(UnsupportedConditionError, match="'left' is cyclic with a rotational transform"):
        read(periodic_case(tmp_path / "turned", "transform rotational;"))
    folder = periodic_case(tmp_path / "alone")
    path = folder / "constant" / "polyMesh" / "boundary"
    path.write_text(path.read_text().replace("neighbourPatch right", "neighbourPatch nowhere"))
    with pytest.raises(FoamFormatError, match="its neighbourPatch is 'nowhere', which does not exist"):
        read(folder)
    folder = periodic_case(tmp_path / "field")
    write_conditions(folder, "p", "uniform 0", {'".*"': "type zeroGradient;", "left": "type zeroGradient;"})
    with pytest.raises(
        UnsupportedConditionError, match="'left', field 'p': the condition 'zeroGradient' on a patch of"
    ):
        read(folder)


@pytest.mark.parametrize("kind", ["cyclicAMI", "symmetry", "symmetryPlane", "wedge"])
def test_a_field_that_does_not_know_the_type_of_its_patch_is_refused(tmp_path, kind):
    """As OpenFOAM does: read as a wall or an outflow, two halves of a duct would lose each other in silence."""
    folder = write_brick(tmp_path / "case", (4, 3, 1), types=FLAT | {"left": kind, "right": kind})
    write_conditions(folder, "U", "uniform (1 0 0)", {'".*"': "type noSlip;", "left": "type zeroGradient;"})
    write_conditions(folder, "p", "uniform 0", {'".*"': "type zeroGradient;"})
    message = rf"'left', field '\w': the condition 'zeroGradient' on a patch of type '{kind}' is not supported"
    with pytest.raises(UnsupportedConditionError, match=message):
        read(folder)


def test_an_axisymmetric_case_is_refused_as_such(tmp_path):
    folder = write_brick(tmp_path / "case", (4, 3, 1), types={"front": "wedge", "back": "wedge"})
    for name, start in (("U", "uniform (1 0 0)"), ("p", "uniform 0")):
        write_conditions(folder, name, start, {'".*"': "type zeroGradient;", '"front|back"': "type wedge;"})
    with pytest.raises(UnsupportedConditionError, match="is a wedge: the flow is axisymmetric, and only plane flow"):
        read(folder)


@pytest.mark.parametrize(
    "text",
    [
        "uniformValue table ((0 (0 0 0)) (2 (4 1 0)));",
        "uniformValue table; uniformValueCoeffs { values ((0 (0 0 0)) (2 (4 1 0))); outOfBounds clamp; }",
        "uniformValue { type table; values ((0 (0 0 0)) (2 (4 1 0))); outOfBounds clamp; }",
    ],
)
def test_a_value_over_time_is_read_from_a_table_in_each_of_its_forms(tmp_path, text):
    case = foam_case(tmp_path, velocity={"left": f"type uniformFixedValue; {text}"})
    condition, x = case.dirichlet["u"], case.mesh.points
    middle, corner = (int(((x[:, 0] == 0) & near).nonzero()[0]) for near in ((x[:, 1] - 0.4).abs() < 0.1, x[:, 1] == 0))
    assert condition.at(1.0).values[middle].tolist() == [2.0, 0.5]
    assert condition.at(2.0).values[middle].tolist() == [4.0, 1.0]
    assert condition.at(9.0).values[middle].tolist() == [4.0, 1.0]  # OpenFOAM clamps unless told otherwise
    assert condition.at(1.0).values[corner].tolist() == [0.0, 0.0]  # it rests with the wall


def test_constants_are_constant(tmp_path):
    for place, text in enumerate(("constant 3", "3", "{ type constant; value 3; }")):
        condition = foam_case(
            tmp_path / str(place), {"left": f"type uniformFixedValue; uniformValue {text};"}
        ).dirichlet["p"]
        assert condition.course is None
        assert (condition.values[condition.mask] == 3).all()
    text = "type uniformFixedGradient; uniformGradient table ((0 1) (1 3));"
    gradient = foam_case(tmp_path / "gradient", {"left": text}).neumann["p"]
    assert gradient.at(0.5).normal_derivative.amax() == 2.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uniformValue table ((1 3) (0 2));", "'left', field 'p': uniformValue: The times of a table must increase"),
        ("uniformValue table ((0 (1 2 3)));", "has the value .* but the field has shape"),
        ("uniformValue table (0 1);", "must be a table of"),
        ("uniformValue sine; amplitude 1;", "is given as 'sine'; known are a value, constant and table"),
        ("uniformValue { type table; values ((0 1)); outOfBounds repeat; }", "outOfBounds 'repeat'"),
        ("uniformValue { type table; values ((0 1)); interpolationScheme spline; }", "interpolationScheme 'spline'"),
        ("value uniform 3;", "has the value None"),
    ],
)
def test_functions_of_time_that_are_not_known_are_refused(tmp_path, text, message):
    with pytest.raises((FoamFormatError, UnsupportedConditionError), match=message):
        foam_case(tmp_path, {"left": f"type uniformFixedValue; {text}"})


BLOCK = """
scale 1;
vertices ((0 0 0) (2 0 0) (2 1 0) (0 1 0) (0 0 1) (2 0 1) (2 1 1) (0 1 1));
blocks (hex (0 1 2 3 4 5 6 7) (CELLS 8 1) simpleGrading (1 4 1));
boundary
(
    left { type cyclic; neighbourPatch right; faces ((0 3 7 4)); }
    right { type cyclic; neighbourPatch left; faces ((1 2 6 5)); }
    walls { type wall; faces ((0 1 5 4) (2 3 7 6)); }
    frontAndBack { type empty; faces ((0 1 2 3) (4 5 6 7)); }
);
"""


@pytest.mark.openfoam
@pytest.mark.parametrize("cells", [1, 2, 5])
def test_a_channel_of_block_mesh_is_read_with_its_pair_and_pressure_reference(installation, tmp_path, cells):
    folder = tmp_path / "channel"
    (folder / "system").mkdir(parents=True)
    header = openfoam.format_dictionary("blockMeshDict", {})
    (folder / "system" / "blockMeshDict").write_text(header + BLOCK.replace("CELLS", str(cells)))
    control = {"application": "icoFoam", "startTime": 0, "endTime": 1, "deltaT": 1, "writeInterval": 1}
    (folder / "system" / "controlDict").write_text(openfoam.format_dictionary("controlDict", control))
    settings = {"PISO": {"pRefCell": 0, "pRefValue": 3}}
    (folder / "system" / "fvSolution").write_text(openfoam.format_dictionary("fvSolution", settings))
    subprocess.run(["blockMesh"], cwd=folder, env=installation.environment(), check=True, capture_output=True)
    (folder / "constant" / "transportProperties").write_text(
        openfoam.format_dictionary("transportProperties", {"nu": "[0 2 -1 0 0 0 0] 0.1"})
    )
    write_conditions(folder, "U", "uniform (1 0 0)", {"walls": "type noSlip;"})
    write_conditions(folder, "p", "uniform 0", {"walls": "type zeroGradient;"})
    case = openfoam.read_problem(folder, Flow(4))
    assert case.mesh.number_of_points == 9 * (cells + 1)
    assert int(case.periodic["u"].mask.sum()) == 18
    assert case.dirichlet["p"].mask.any()
    assert (case.dirichlet["p"].values[case.dirichlet["p"].mask] == 3).all()
    complete = Flow(4).complete(case)
    torch.testing.assert_close(
        complete.features["wall_distance"], torch.minimum(case.mesh.points[:, 1], 1 - case.mesh.points[:, 1])
    )
    free = ~case.dirichlet["u"].mask
    torch.testing.assert_close(
        complete.initial["u"][free], torch.tensor([1.0, 0.0]).double().expand(int(free.sum()), 2), rtol=0, atol=1e-6
    )


def test_conditions_of_a_time_that_was_written_are_those_that_were_read(tmp_path):
    folder = periodic_case(tmp_path)
    mixed = "type mixed; refValue uniform 5; refGradient uniform 2; valueFraction uniform 0.25;"
    walls = {"bottom": mixed, "top": "type uniformFixedValue; uniformValue table ((0 1) (2 3));"}
    write_conditions(folder, "p", "uniform 0", walls)
    case = read(folder)
    openfoam.write_time(folder, 1.0, case.mesh, case.initial, Flow.foam_fields)
    again = openfoam.read_case(folder, Flow.foam_fields, Flow.foam_parameters, time=1.0)
    for kind, by_unknown in case.conditions.items():
        assert again.conditions[kind].keys() == by_unknown.keys()
        for name, condition in by_unknown.items():
            # What was read again starts at time 1.
            one, other = condition.at(1.5), again.conditions[kind][name].at(0.5)
            for part in condition.roles():
                torch.testing.assert_close(getattr(one, part), getattr(other, part), rtol=0, atol=1e-12)
    assert case.dirichlet["p"].at(1.0).values.amax() == 2.0


@pytest.mark.openfoam
def test_laplacian_foam_finds_the_same_heat_with_a_mixed_side_and_a_table_over_time(installation, tmp_path):
    folder = write_brick(tmp_path / "case", (5, 3, 1), types=FLAT)
    mixed = "type mixed; refValue uniform 5; refGradient uniform 2; valueFraction uniform 0.25; value uniform 0;"
    sides = {"bottom": "type zeroGradient;", "top": "type zeroGradient;", "right": mixed}
    sides["left"] = "type uniformFixedValue; uniformValue table ((0 0) (2 2)); value uniform 0;"
    write_conditions(folder, "T", "uniform 0", sides)
    dictionaries = {
        "constant/transportProperties": {"DT": "DT [0 2 -1 0 0 0 0] 1"},
        "system/controlDict": {
            "application": "laplacianFoam",
            "startFrom": "startTime",
            "startTime": 0,
            "stopAt": "endTime",
            "endTime": 1,
            "deltaT": 1,
            "writeControl": "timeStep",
            "writeInterval": 1,
            "writePrecision": 12,
        },
        "system/fvSchemes": {
            "ddtSchemes": {"default": "steadyState"},
            "gradSchemes": {"default": "Gauss linear"},
            "divSchemes": {"default": "none"},
            "laplacianSchemes": {"default": "Gauss linear corrected"},
            "interpolationSchemes": {"default": "linear"},
            "snGradSchemes": {"default": "corrected"},
        },
        "system/fvSolution": {
            "solvers": {"T": {"solver": "PCG", "preconditioner": "DIC", "tolerance": 1e-12, "relTol": 0}},
            "SIMPLE": {"nNonOrthogonalCorrectors": 0},
        },
    }
    for name, entries in dictionaries.items():
        write_dictionary(folder / name, entries)
    running.run(folder, "laplacianFoam", installation=installation)
    theirs = openfoam.read_field(folder / "1" / "T").values(15)
    case = openfoam.read_case(folder, {"T": FoamName("T", (0, 0, 0, 1, 0, 0, 0))}, time=0.0).at(1.0)
    found = solve_poisson(case, torch.zeros(case.number_of_points, dtype=torch.float64)).numpy()
    ours = found[case.mesh.connectivity.reshape(-1, 4)].mean(axis=1)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)  # linear: exact in both, up to OpenFOAM's solver


def test_tables_count_from_the_start_of_the_case(tmp_path):
    table = "type uniformFixedValue; uniformValue table ((10 (1 0 0)) (12 (3 0 0)));"
    folder = write_brick(tmp_path / "case")
    write_conditions(folder, "U", "uniform (0 0 0)", {'".*"': "type noSlip;", "left": table})
    write_conditions(folder, "p", "uniform 0", {'".*"': "type zeroGradient;"})
    (folder / "0").rename(folder / "10")
    case = openfoam.read_case(folder, Flow.foam_fields)
    inlet = case.mesh.patch("left").points
    assert case.at(1.0).dirichlet["u"].values[inlet, 0].max() == 2.0


def inlet_velocity(case: Case, patch: str = "left") -> np.ndarray:
    """At the points of a patch but its ends, which are those of the walls."""
    return case.dirichlet["u"].values[case.mesh.patch(patch).points[1:-1]].numpy()


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        # The brick is 1 x 1 and one cell of 1 thick.
        ("type flowRateInletVelocity; volumetricFlowRate 0.5;", 0.5),
        ("type flowRateInletVelocity; volumetricFlowRate constant 0.5;", 0.5),
        ("type flowRateInletVelocity; massFlowRate 500; rhoInlet 1000;", 0.5),
        ("type flowRateInletVelocity; meanVelocity 0.5;", 0.5),
        ("type surfaceNormalFixedValue; refValue uniform -0.5;", 0.5),
    ],
)
def test_a_flow_rate_enters_along_the_normal(tmp_path, text, speed):
    case = foam_case(tmp_path, velocity={"left": text, "right": "type zeroGradient;"})
    np.testing.assert_allclose(inlet_velocity(case), [[speed, 0.0]] * 2, atol=1e-9)


def test_a_flow_rate_over_time_is_a_ramp(tmp_path):
    text = "type flowRateInletVelocity; volumetricFlowRate table ((0 0) (2 1));"
    case = foam_case(tmp_path, velocity={"left": text, "right": "type zeroGradient;"})
    assert not inlet_velocity(case).any()
    np.testing.assert_allclose(inlet_velocity(case.at(1.0)), [[0.5, 0.0]] * 2, atol=1e-9)


@pytest.mark.parametrize(
    ("velocity", "words"),
    [
        ("type flowRateInletVelocity; massFlowRate 1; rhoInlet none;", "number as rhoInlet"),
        ("type flowRateInletVelocity;", "needs a volumetricFlowRate"),
        ("type flowRateInletVelocity; volumetricFlowRate 1; extrapolateProfile yes;", "without extrapolateProfile"),
        ("type codedFixedValue; name parabola;", "contains code, which is never run"),
        ('type groovyBC; valueExpression "vector(pos().y,0,0)";', "contains code, which is never run"),
    ],
)
def test_what_cannot_be_known_of_an_inlet_is_refused_by_name(tmp_path, velocity, words):
    with pytest.raises(UnsupportedConditionError, match=words) as caught:
        foam_case(tmp_path, velocity={"left": velocity})
    assert "'left', field 'U'" in str(caught.value)


@pytest.mark.parametrize("kind", ["totalPressure; p0 uniform 2", "uniformTotalPressure; p0 2"])
def test_a_total_pressure_is_no_prescribed_pressure(tmp_path, kind):
    free = "type pressureInletOutletVelocity; value uniform (0 0 0);"
    case = foam_case(tmp_path, {"left": f"type {kind};"}, {"left": free, "right": free})
    total = case.conditions["total_pressure"]["p"]
    assert isinstance(total, TotalPressure)
    assert not case.dirichlet["p"].mask.any()
    assert (total.values[case.mesh.patch("left").points] == 2).all()
    assert any("enters at right angles" in remark.text for remark in case.remarks)


def test_a_free_stream_enters_on_one_side_and_leaves_on_the_other(tmp_path):
    velocity = "type freestreamVelocity; freestreamValue uniform (1 0.5 0);"
    pressure = "type freestreamPressure; freestreamValue uniform 3;"
    sides = SIDES[:4]
    case = foam_case(tmp_path, dict.fromkeys(sides, pressure), dict.fromkeys(sides, velocity))
    x, y = case.mesh.points.T.numpy()
    np.testing.assert_array_equal(case.dirichlet["u"].mask.numpy(), (x == 0) | (y == 0))
    np.testing.assert_array_equal(case.dirichlet["p"].mask.numpy(), (x == x.max()) | (y == y.max()))
    assert (case.dirichlet["u"].values[case.dirichlet["u"].mask] == torch.tensor([1.0, 0.5])).all()


def test_a_free_stream_of_the_pressure_needs_one_of_the_velocity(tmp_path):
    with pytest.raises(UnsupportedConditionError, match="needs a velocity that is a freestream"):
        foam_case(tmp_path, {"left": "type freestreamPressure; freestreamValue uniform 3;"})


@pytest.mark.parametrize(
    "entry",
    [
        "type directionMixed; refValue uniform (9 0.5 9); refGradient uniform (0 0 0); "
        "valueFraction uniform (0 0 0 1 0 0);",
        "type fixedNormalSlip; fixedValue uniform (9 0.5 9);",
    ],
    ids=["directionMixed", "fixedNormalSlip"],
)
def test_single_components_are_prescribed_and_others_left_free(tmp_path, entry):
    case = read_flow(flow_case(tmp_path, {"top": entry}, {"top": "type zeroGradient;"}))
    components = case.conditions["components"]["u"]
    inside = (case.mesh.points[:, 1] == case.mesh.points[:, 1].max()) & ~case.dirichlet["u"].mask
    assert inside.any()
    assert components.mask[inside].all()
    values = torch.full_like(case.initial["u"], 7.0)
    there = case.fulfilled({"u": values})["u"]
    assert (there[inside] == torch.tensor([7.0, 0.5, 7.0], dtype=values.dtype)).all()


def test_blends_of_value_and_gradient_in_a_direction_are_refused(tmp_path):
    entry = "type directionMixed; refValue uniform (0 0 0); valueFraction uniform (0 0 0 0.5 0 0);"
    with pytest.raises(UnsupportedConditionError, match="must be one projector for the whole patch"):
        read_flow(flow_case(tmp_path, {"top": entry}, {"top": "type zeroGradient;"}))
