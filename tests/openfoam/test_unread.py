"""Whatever an OpenFOAM case says and an equation does not know is named; what it knows is not."""

import gzip
import os
import shutil

import pytest
import torch

from foam_cases import write_brick, write_conditions, write_dictionary, write_plane_channel
from pennpde import openfoam
from pennpde.models.advection_diffusion import AdvectionDiffusion
from pennpde.models.ducts import Flow
from pennpde.models.flow_physics import PlaneFlowPhysics
from pennpde.openfoam import UnsupportedConditionError, read_problem
from pennpde.openfoam.unread import about_field, unread

ZERO = "type zeroGradient;"


@pytest.fixture
def channel(tmp_path):
    return write_plane_channel(tmp_path / "channel")


def remarks(folder, severe: bool | None = None) -> list[str]:
    """What `read_problem` adds to the case, without reading its mesh each time."""
    found = [*unread(folder, Flow.foam_fields, ["nu"], Flow.foam_solvers)]
    for each in Flow.foam_fields.values():
        path = folder / "0" / each.name
        found += about_field(each, openfoam.read_field(path, folder), path, folder)
    return [each.text for each in found if severe is None or each.severe == severe]


def test_a_plain_case_has_no_remarks_and_any_other_has_those_that_are_found(channel):
    assert read_problem(channel, Flow(4)).remarks == ()
    for what in ("RAS", "a temperature"):
        NAMED[what][0](channel)
    assert sorted(each.text for each in read_problem(channel, Flow(4)).remarks) == sorted(remarks(channel))
    assert len(remarks(channel)) == 2


def dictionary(path: str, text: str):
    def write(folder):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("FoamFile { version 2.0; format ascii; class dictionary; object any; }\n" + text)

    return write


def field(name: str, internal: str = "uniform 0"):
    return lambda folder: write_conditions(folder, name, internal, {'".*"': ZERO})


NAMED = {
    "a dynamic viscosity": (
        dictionary("constant/transportProperties", "nu [1 -1 -1 0 0 0 0] 1e-3;"),
        "nu has the dimensions [1 -1 -1 0 0 0 0], but the network's nu has [0 2 -1 0 0 0 0]",
    ),
    "a dynamic viscosity in symbols": (
        dictionary("constant/transportProperties", "nu [Pa s] 1e-3;"),
        "nu has the dimensions [Pa s], but the network's nu has [0 2 -1 0 0 0 0]",
    ),
    "a viscosity in square millimetres": (
        dictionary("constant/transportProperties", "nu [mm^2/s] 1;"),
        "nu has the dimensions [mm^2/s], but the network's nu has [0 2 -1 0 0 0 0]",
    ),
    "a source in system": (
        dictionary("system/fvOptions", "push { type meanVelocityForce; active yes; }"),
        "system/fvOptions adds push (meanVelocityForce) to the equations",
    ),
    "a source in constant": (
        dictionary("constant/fvOptions", "disk { type actuationDiskSource; } heat { type x; active off; }"),
        "constant/fvOptions adds disk (actuationDiskSource) to",
    ),
    "sources of newer versions": (dictionary("constant/fvModels", "s { type semiImplicitSource; }"), "fvModels adds s"),
    "sources that cannot be read": (
        dictionary("system/fvOptions", "push { type codedSource; code #{ U = 1; #}; }"),
        "system/fvOptions cannot be read, so that nothing of it is taken into account",
    ),
    "a pipe for sources": (
        lambda folder: os.mkfifo(folder / "system" / "fvOptions"),
        "system/fvOptions cannot be read, so that nothing of it is taken into account: is not a regular file",
    ),
    "a link to sources that are not there": (
        lambda folder: (folder / "constant" / "fvOptions").symlink_to("nowhere"),
        "constant/fvOptions cannot be read, so that nothing of it is taken into account: does not exist",
    ),
    "RAS": (
        dictionary("constant/turbulenceProperties", "simulationType RAS; RAS { RASModel kEpsilon; turbulence on; }"),
        "the flow is turbulent, simulationType RAS with the model kEpsilon; the network knows laminar flow only",
    ),
    "RAS of newer versions": (
        dictionary("constant/momentumTransport", "simulationType RAS; RAS { model kOmegaSST; }"),
        "constant/momentumTransport: the flow is turbulent, simulationType RAS with the model kOmegaSST",
    ),
    "RAS of older versions": (
        dictionary("constant/RASProperties", "RASModel kEpsilon; turbulence on;"),
        "constant/RASProperties: the flow is turbulent, simulationType kEpsilon",
    ),
    "LES": (
        dictionary("constant/turbulenceProperties", "simulationType LES; LES { LESModel Smagorinsky; }"),
        "simulationType LES with the model Smagorinsky",
    ),
    "another laminar model": (
        dictionary("constant/turbulenceProperties", "simulationType laminar; laminar { laminarModel Maxwell; }"),
        "the fluid is viscoelastic (Maxwell)",
    ),
    "gravity": (dictionary("constant/g", "dimensions [0 1 -2 0 0 0 0]; value (0 -9.81 0);"), "gravity is (0 -9.81 0)"),
    "rotating zones": (
        dictionary("constant/MRFProperties", "rotor { cellZone rotor; active yes; omega 3; }"),
        "constant/MRFProperties: rotating zones (rotor)",
    ),
    "porous zones": (
        dictionary("constant/porosityProperties", "block { type DarcyForchheimer; active yes; }"),
        "constant/porosityProperties: porous zones (block)",
    ),
    "a moving mesh": (
        dictionary("constant/dynamicMeshDict", "dynamicFvMesh dynamicMotionSolverFvMesh;"),
        "the mesh moves (dynamicMotionSolverFvMesh)",
    ),
    "heat": (
        dictionary("constant/thermophysicalProperties", "thermoType { type hePsiThermo; }"),
        "constant/thermophysicalProperties: heat and compressibility",
    ),
    "another solver": (
        dictionary("system/controlDict", "application rhoPimpleFoam;"),
        "the application is rhoPimpleFoam; the network solves the equation of icoFoam,",
    ),
    "another solver of foamRun": (
        dictionary("system/controlDict", "application foamRun; solver incompressibleVoF;"),
        "the application is incompressibleVoF",
    ),
    "a temperature": (field("T"), "0/ also has T. The network neither uses nor predicts it."),
    "a packed temperature": (
        lambda folder: (
            field("T")(folder),
            (folder / "0/T.gz").write_bytes(gzip.compress((folder / "0/T").read_bytes())),
            (folder / "0/T").unlink(),
        ),
        "0/ also has T.",
    ),
    "a phase": (field("alpha.water"), "alpha.water belongs to a flow of several phases"),
    "a pressure in Pascal": (
        lambda folder: (folder / "0/p").write_text(
            (folder / "0/p").read_text().replace("[0 0 0 0 0 0 0]", "[1 -1 -2 0 0 0 0]")
        ),
        "0/p has the dimensions [1 -1 -2 0 0 0 0]",
    ),
}


@pytest.mark.parametrize("what", NAMED)
def test_what_changes_the_flow_is_a_warning(channel, what):
    write, words = NAMED[what]
    write(channel)
    found = remarks(channel, severe=True)
    assert len(found) == 1
    assert words in found[0]


NOTED = {
    "a start at a time that is not there": (
        dictionary("system/controlDict", "application icoFoam; startFrom startTime; startTime 5;"),
        "controlDict starts at 5, but there is no such time",
    ),
    "fields of turbulence": (field("nut"), "nut of turbulence models"),
    "a steady solver": (
        dictionary("system/controlDict", "application simpleFoam;"),
        "simpleFoam seeks the steady state",
    ),
    "an unknown dictionary": (dictionary("constant/somethingElse", "a 1;"), "constant has somethingElse"),
    "a later time": (
        lambda folder: (
            shutil.copytree(folder / "0", folder / "2"),
            write_dictionary(folder / "system/controlDict", {"application": "icoFoam", "startFrom": "latestTime"}),
        ),
        "starts from the latest time 2; conditions and initial fields were read from 0/",
    ),
}


@pytest.mark.parametrize("what", NOTED)
def test_what_does_not_change_the_flow_is_a_note(channel, what):
    write, words = NOTED[what]
    write(channel)
    assert remarks(channel, severe=True) == []
    found = remarks(channel, severe=False)
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    "write",
    [
        dictionary("constant/turbulenceProperties", "simulationType laminar;"),
        dictionary("constant/turbulenceProperties", "simulationType laminar; laminar { laminarModel Stokes; }"),
        dictionary("constant/turbulenceProperties", "simulationType RAS; RAS { RASModel kEpsilon; turbulence off; }"),
        dictionary("constant/turbulenceProperties", "simulationType RAS; RAS { RASModel laminar; }"),
        dictionary("constant/fvOptions", "push { type meanVelocityForce; active no; }"),
        dictionary("constant/fvOptions", ""),
        dictionary("constant/g", "value (0 0 0);"),
        dictionary("constant/dynamicMeshDict", "dynamicFvMesh staticFvMesh;"),
        dictionary("constant/MRFProperties", "rotor { active false; }"),
        dictionary("system/controlDict", "application pimpleFoam; functions { #includeFunc residuals\n }"),
        lambda folder: (folder / "0/phi").write_text("not a field, and not looked at"),
        lambda folder: (folder / "0/U.orig").write_text(""),
        dictionary("0/initialConditions", "speed 1;"),
    ],
)
def test_what_is_switched_off_is_not_named(channel, write):
    write(channel)
    assert remarks(channel) == []


@pytest.mark.parametrize(
    ("name", "kind", "patch"),
    [
        ("U", "inletOutlet", "right"),
        ("U", "pressureInletOutletVelocity", "right"),
        ("U", "movingWallVelocity", "top"),
        ("p", "fixedFluxPressure", "top"),
    ],
)
def test_a_condition_that_is_approximated_is_named_with_patch_and_field(channel, name, kind, patch):
    plain = read_problem(channel, Flow(4))
    path = channel / "0" / name
    before = f"{patch} {{ type {'noSlip' if kind == 'movingWallVelocity' else 'zeroGradient'};"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, f"{patch} {{ type {kind}; value uniform 0;"))
    case = read_problem(channel, Flow(4))
    assert [each.text for each in case.remarks if f"Patch '{patch}', field '{name}': {kind} is taken as" in each.text]
    unknown = "u" if name == "U" else "p"
    for condition in ("dirichlet", "neumann"):
        read, expected = getattr(case, condition)[unknown], getattr(plain, condition)[unknown]
        assert torch.equal(read.mask, expected.mask)


def test_cyclic_patches_are_named_also_where_the_flow_has_no_inlet(tmp_path):
    folder = write_brick(
        tmp_path / "case", (4, 3, 1), types={"front": "empty", "back": "empty", "left": "cyclic", "right": "cyclic"}
    )
    boundary = folder / "constant/polyMesh/boundary"
    text = boundary.read_text()
    for one, other in (("left", "right"), ("right", "left")):
        text = text.replace(f"{one} {{ type cyclic;", f"{one} {{ type cyclic; neighbourPatch {other};")
    boundary.write_text(text)
    walls = dict.fromkeys(("top", "bottom"), "type noSlip;")
    write_conditions(folder, "U", "uniform (0 0 0)", walls)
    write_conditions(folder, "p", "uniform 0", dict.fromkeys(walls, ZERO))
    write_dictionary(folder / "system/fvSolution", {"PISO": {"pRefCell": 0, "pRefValue": 0}})
    case = read_problem(folder, Flow(4))
    assert [each.text for each in case.remarks] == ["The cyclic patches left and right are taken as periodic."]
    with pytest.raises(ValueError, match="periodic between cyclic patches"):
        Flow(4).units(case)


def test_a_start_that_is_not_uniform_is_named_where_a_network_has_a_start_of_its_own(channel):
    write_conditions(
        channel,
        "U",
        "nonuniform List<vector> 12(" + "(1 0 0)" * 11 + "(0 0 0))",
        {'".*"': "type noSlip;", "right": ZERO, "left": "type fixedValue; value uniform (1 0 0);"},
    )
    (found,) = read_problem(channel, Flow(4)).remarks
    assert found.severe
    assert "The initial U of the case is not uniform" in found.text
    assert "trained on starts from potential flow" in found.text
    assert read_problem(channel, PlaneFlowPhysics()).remarks == ()  # from any state


def test_several_phases_are_refused_by_that_name(channel):
    dictionary("constant/transportProperties", "phases (water air); water { nu 1e-6; }")(channel)
    with pytest.raises(UnsupportedConditionError, match="several phases"):
        read_problem(channel, Flow(4))


def test_an_equation_without_known_solvers_questions_none(tmp_path):
    folder = write_brick(tmp_path / "case", (4, 3, 1))
    write_conditions(folder, "T", "uniform 0", {'".*"': ZERO, "left": "type fixedValue; value uniform 1;"})
    write_conditions(folder, "U", "uniform (1 0 0)", {'".*"': ZERO})
    write_dictionary(folder / "constant/transportProperties", {"DT": "[0 2 -1 0 0 0 0] 0.1"})

    class Other(AdvectionDiffusion):
        foam_solvers = ()

    warned = [each.text for each in read_problem(folder, AdvectionDiffusion(4)).remarks]
    assert len(warned) == 1
    assert "the application is icoFoam; the network solves the equation of scalarTransportFoam" in warned[0]
    assert read_problem(folder, Other(4)).remarks == ()


def test_the_start_and_the_kind_of_solver_are_found(channel):
    assert openfoam.start_time(channel) == 0
    assert not openfoam.is_steady(channel)
    write_dictionary(channel / "system/controlDict", {"application": "simpleFoam"})
    assert openfoam.is_steady(channel)
    (channel / "0").rename(channel / "2.5")
    assert openfoam.start_time(channel) == 2.5
