"""An OpenFOAM case: its dictionaries, mesh, conditions and fields in and out; running it."""

import contextlib
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from foam_cases import read_flow, write_brick, write_conditions, write_dictionary
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pennpde import openfoam
from pennpde.models.advection_diffusion import AdvectionDiffusion
from pennpde.models.flow import Flow
from pennpde.openfoam import Dimensions, FoamFormatError, NonUniform, PolyMesh, Uniform, UnsupportedConditionError
from pennpde.openfoam.dictionaries import Quoted, format_entry, number_of

WALLS = dict.fromkeys(("left", "right", "bottom", "top", "back", "front"), "type zeroGradient;")
RESTING = dict.fromkeys(WALLS, "type noSlip;")

# Dictionaries


def test_a_dictionary_is_read_as_nested_python_values():
    entries = openfoam.parse_dictionary(
        """
        FoamFile { version 2.0; format ascii; class dictionary; object any; }
        // a comment with { and "
        nu              nu [0 2 -1 0 0 0 0] 1e-3;   /* another ; one */
        solvers { "(U|k)" { tolerance 1e-06; relTol 0; } p { solver GAMG; } }
        div(phi,U)      Gauss linearUpwind grad(U);
        vertices        ((0 0 0) (1 0 0));
        empty           ;
        sentence        "with a \\" quote";
        on              true;
        symbolic        [m^2 s^-1];
        """
    )
    assert entries["nu"] == ("nu", Dimensions((0, 2, -1, 0, 0, 0, 0)), 1e-3)
    assert number_of(entries["nu"]) == 1e-3
    assert entries["solvers"]["(U|k)"] == {"tolerance": 1e-6, "relTol": 0}
    assert isinstance(next(iter(entries["solvers"])), Quoted)
    assert entries["div(phi,U)"] == ("Gauss", "linearUpwind", "grad(U)")
    assert entries["vertices"] == [[0, 0, 0], [1, 0, 0]]
    assert entries["empty"] == ()
    assert entries["sentence"] == 'with a \\" quote'
    assert entries["symbolic"] == Dimensions((), "m^2 s^-1")


def test_later_entries_win_and_dictionaries_of_one_name_are_merged():
    entries = openfoam.parse_dictionary("a 1; b { x 1; y 1; } a 2; b { y 2; z 3; }")
    assert entries == {"a": 2, "b": {"x": 1, "y": 2, "z": 3}}


def test_macros_stand_for_entries_before_them():
    text = (
        "speed 3; walls { type noSlip; } a { $walls; own $speed; } b { $a; nested { again ${speed}; } } c $:walls.type;"
    )
    entries = openfoam.parse_dictionary(text)
    assert entries["b"] == {"type": "noSlip", "own": 3, "nested": {"again": 3}}
    assert entries["c"] == "noSlip"
    with pytest.raises(FoamFormatError, match="names nothing"):
        openfoam.parse_dictionary("a $later; later 1;")


def test_macros_that_double_each_other_do_not_take_for_ever():
    text = "a0 (1 1);" + "".join(f"a{k + 1} ($a{k} $a{k} $a{k});" for k in range(60))
    assert openfoam.parse_dictionary(text)["a60"]
    with pytest.raises(FoamFormatError):
        openfoam.parse_dictionary(text + "b uniform $a60;")


@pytest.mark.parametrize(
    "text", ['a #calc "1+1";', "#codeStream { code #{ system(0); #}; }", "x #eval{ 1 };", "code #{ 1 #};", "#neon 1;"]
)
def test_what_could_run_code_is_refused(text):
    with pytest.raises(FoamFormatError, match="refused"):
        openfoam.parse_dictionary(text)


def test_files_are_included_inside_the_case_only(tmp_path):
    case = tmp_path / "case"
    (case / "0").mkdir(parents=True)
    (case / "constant").mkdir()
    (tmp_path / "secret").write_text("key 1;")
    (case / "0" / "speed").write_text("speed 2;")
    (case / "constant" / "more").write_text("more 4;")
    main = case / "0" / "U"
    main.write_text('#include "speed"\ntwice $speed;\n#include "<constant>/more"\n#includeIfPresent "absent"\n')
    assert openfoam.read_dictionary(main, case) == {"speed": 2, "twice": 2, "more": 4}
    for text, message in (
        ('#include "../../secret"', "leads out of the case"),
        (f'#include "{tmp_path / "secret"}"', "leads out of the case"),
        ('#include "absent"', "does not exist"),
        ('#include "U"', "deep"),
    ):
        main.write_text(text)
        with pytest.raises(FoamFormatError, match=message):
            openfoam.read_dictionary(main, case)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1", "';'"),
        ("a { b 1;", "'}'"),
        ("a (1 2;", "unexpected|closed"),
        ("a [0 1", "closed"),
        ('a "b;', "never ends"),
        ("/* a", "never ends"),
        ("a uniform (1 b);", "number or a vector"),
        ("a nonuniform List<vector> 2 ((1 2 3));", "6 numbers"),
        ("a nonuniform List<scalar> 2 (1 b);", "not a number"),
        ("a nonuniform List<scalar> 99999999999 (1);", "99999999999"),
        ("a nonuniform List<scalar> 99999999999 {1};", "memory"),
        ("a nonuniform List<horse> 2 (1 2);", "horse"),
        ("a nonuniform 3 (1 2 3);", "type|List"),
        ("a div(phi;", "parenthesis"),
        ("}", "keyword"),
        ("a " + "(" * 100, "deep"),
        ("{" * 100, "keyword"),
        ("a " + "{ a " * 100, "deep"),
    ],
)
def test_malformed_text_is_an_error_that_names_file_and_line(text, message):
    with pytest.raises(FoamFormatError, match=message) as caught:
        openfoam.parse_dictionary(text, "0/U")
    assert "0/U, line 1" in str(caught.value)


@pytest.mark.parametrize("binary", [False, True])
@given(values=arrays(float, st.sampled_from([(0,), (1,), (7,), (1, 3), (5, 3)]), elements=st.floats(-1e300, 1e300)))
@settings(max_examples=30, deadline=None)
def test_lists_of_numbers_come_back_bit_by_bit(binary, values):
    header = {"format": "binary" if binary else "ascii", "arch": '"LSB;label=32;scalar=64"'}
    written = format_entry("FoamFile", header) + format_entry("value", NonUniform(values), binary=binary)
    read = openfoam.parse_dictionary(written)["value"]
    assert isinstance(read, NonUniform)
    np.testing.assert_array_equal(read.values, values.reshape(read.values.shape))


def test_short_forms_of_lists_are_read():
    entries = openfoam.parse_dictionary(
        "a nonuniform 0(); b nonuniform List<vector> 3{(1 2 3)}; c nonuniform List<scalar> 0(); d List<word> 2(x y);"
    )
    assert entries["a"].values.size == 0
    np.testing.assert_array_equal(entries["b"].values, [[1, 2, 3]] * 3)
    assert entries["c"].values.shape == (0,)
    assert entries["d"] == ["x", "y"]


@pytest.mark.parametrize("binary", [False, True])
def test_every_truncation_of_a_field_is_an_error(tmp_path, binary):
    folder = write_brick(tmp_path / "case", (1, 1, 1))
    path = folder / "0" / "U"
    path.parent.mkdir()
    if binary:
        openfoam.write_field(path, np.ones((4, 3)), openfoam.VELOCITY, {"left": {"type": "noSlip"}})
    else:
        write_conditions(folder, "U", "nonuniform List<vector> 2((1 0 0)(0 1 0))", {"left": "type noSlip;"})
    content = path.read_bytes().rstrip()
    openfoam.read_field(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FoamFormatError):
            openfoam.read_field(path)


@given(content=st.one_of(st.binary(max_size=200), st.text('(){}[];"#$/* \n01a.-List<vector>uniform', max_size=80)))
@settings(max_examples=300, deadline=None)
def test_garbage_is_read_or_refused_but_nothing_else(content):
    with contextlib.suppress(FoamFormatError):
        assert isinstance(openfoam.parse_dictionary(content), dict)


def test_a_field_that_is_missing_or_packed_badly_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="0/U"):
        openfoam.read_field(tmp_path / "0" / "U")
    (tmp_path / "p.gz").write_bytes(b"\x1f\x8b and no more")
    with pytest.raises(FoamFormatError, match="unpacked"):
        openfoam.read_field(tmp_path / "p")


def test_values_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="not finite"):
        openfoam.write_field(tmp_path / "p", np.array([1.0, np.nan]), openfoam.PRESSURE, {})
    assert list(tmp_path.iterdir()) == []


# Meshes


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
    mesh.write(tmp_path / "copy")
    copy = PolyMesh.read(tmp_path / "copy")
    for name in ("points", "face_points", "face_offsets", "owner", "neighbour"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(mesh, name))
    assert [patch.faces for patch in copy.patches.values()] == [patch.faces for patch in mesh.patches.values()]


def test_a_mesh_of_a_single_cell_is_a_case(tmp_path):
    assert read_flow(flow_case(tmp_path, {}, shape=(1, 1, 1))).mesh.number_of_cells == 1


def test_a_broken_header_does_not_end_the_process(tmp_path):
    """VTK's reader crashes on it."""
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


# Cases


def flow_case(tmp_path: Path, velocity: dict[str, str], pressure: dict[str, str] | None = None, **options) -> Path:
    folder = write_brick(tmp_path / "case", **options)
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | velocity)
    write_conditions(folder, "p", "uniform 0", WALLS | (pressure or {}))
    return folder


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
    torch.testing.assert_close(case.features["wall_distance"], walls)


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
        ("U", "left", "type flowRateInletVelocity; volumetricFlowRate 1;", "flowRateInletVelocity"),
        ("p", "top", "type totalPressure; p0 uniform 0;", "totalPressure"),
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
            "never end",
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
    centres = velocity.values(12)
    # Linear fields: a cell's mean is the value at its centre.
    np.testing.assert_allclose(pressure.values(12), centres[:, : mesh.space] @ slope.numpy(), atol=1e-14)
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


# Running


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a shell script that stands in for one of OpenFOAM's programs."""
    programs, project = tmp_path / "bin", tmp_path / "project"
    programs.mkdir()
    (project / "etc").mkdir(parents=True)
    (project / "etc" / "controlDict").touch()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("WM_PROJECT_DIR", str(project))

    def make(name: str, script: str) -> Path:
        path = programs / name
        help_text = "echo 'Using: OpenFOAM-v2406 (2406) - visit www.openfoam.com'; exit 0"
        path.write_text(f'#!/bin/sh\nif [ "$1" = -help ]; then {help_text}; fi\n{script}\n')
        path.chmod(0o755)
        return tmp_path

    return make


STEP = """cat <<'END'
Courant Number mean: 0.1 max: {courant}
Time = {time}

smoothSolver:  Solving for Ux, Initial residual = 0.5, Final residual = 1e-7, No Iterations 2
GAMG:  Solving for p, Initial residual = {residual}, Final residual = 1e-7, No Iterations 9
END
"""


def test_progress_is_reported_after_every_step(program):
    steps = [(0.5, 0.1, 0.9), (0.8, 0.2, 0.3), (0.4, 0.3, 0.2)]
    folder = program("solver", "".join(STEP.format(courant=c, time=t, residual=r) for c, t, r in steps))
    heard = []
    last = openfoam.run(folder, "solver", on_progress=heard.append)
    assert [(step.time, step.residuals["p"]) for step in heard] == [(t, r) for _, t, r in steps]
    assert last.time == 0.3
    assert last.largest_courant == 0.8
    assert "Courant" in (folder / "log.solver").read_text()


@pytest.mark.parametrize("courant", ["1e6", "nan", "-nan", "inf"])
def test_a_courant_number_without_bound_is_divergence(program, courant):
    folder = program("solver", STEP.format(courant=courant, time=0.1, residual=1) + "sleep 60")
    started = time.monotonic()
    with pytest.raises(openfoam.DivergenceError, match="Courant number") as caught:
        openfoam.run(folder, "solver")
    assert "Solving" in caught.value.log_tail or "Courant" in caught.value.log_tail
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("script", ["echo '#1 Foam::sigFpe::sigHandler(int)'; exit 1", "kill -FPE $$"])
def test_a_floating_point_exception_is_divergence(program, script):
    with pytest.raises(openfoam.DivergenceError, match="floating-point"):
        openfoam.run(program("solver", script), "solver")


def test_a_short_log_that_says_that_exceptions_are_trapped_is_none(program):
    folder = program("solver", "echo 'trapFpe: Floating point exception trapping enabled (FOAM_SIGFPE).'")
    openfoam.run(folder, "solver")


def test_a_failure_shows_the_end_of_the_log(program):
    folder = program("solver", "echo '--> FOAM FATAL ERROR: keyword nu is undefined'; exit 1")
    with pytest.raises(openfoam.OpenFOAMError, match="nu is undefined"):
        openfoam.run(folder, "solver")


def test_a_program_that_hangs_is_ended(program):
    started = time.monotonic()
    with pytest.raises(openfoam.OpenFOAMError, match=r"ended after 0\.5 s"):
        openfoam.run(program("solver", "exec sleep 60"), "solver", timeout=0.5)
    assert time.monotonic() - started < 30


def test_the_installation_says_its_version(program):
    program("solver", "")
    found = openfoam.find_installation(("solver",))
    assert found.version == "2406"
    assert found.environment()["WM_PROJECT_DIR"] == str(found.project)


def test_a_missing_installation_says_how_to_get_one(program, monkeypatch):
    program("other", "")
    with pytest.raises(openfoam.InstallationError, match="apt install openfoam"):
        openfoam.find_installation(("solver",))
    with pytest.raises(openfoam.InstallationError, match="apt install openfoam"):
        openfoam.run(".", "solver")


def test_a_program_that_does_not_start_is_no_installation(program):
    folder = program("solver", "")
    (folder / "bin" / "solver").write_text("#!/bin/sh\necho broken library; exit 127\n")
    with pytest.raises(openfoam.InstallationError, match="broken library"):
        openfoam.find_installation(("solver",))


def test_sides_that_no_block_has_are_refused():
    block = openfoam.Block(((0, 0), (1, 0), (1, 1), (0, 1)), (2, 2))
    with pytest.raises(ValueError, match="inlet"):
        openfoam.block_mesh_dictionary([block], {"inlet": ("patch", [((0, 0), (0, 2))])}, 0.1)


# With OpenFOAM itself


@pytest.fixture(scope="module")
def installation() -> openfoam.Installation:
    try:
        return openfoam.find_installation(("blockMesh", "icoFoam", "decomposePar"))
    except openfoam.InstallationError as error:
        pytest.skip(f"OpenFOAM is not installed: {error}")


@pytest.fixture(scope="module")
def channel(installation, tmp_path_factory) -> Path:
    """A channel of 12 x 6 cells, meshed by OpenFOAM, with a list of inlet velocities."""
    folder = tmp_path_factory.mktemp("channel")
    block = openfoam.Block(((0, 0), (2, 0), (2, 1), (0, 1)), (12, 6))
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
    (folder / "system" / "blockMeshDict").write_text(openfoam.block_mesh_dictionary([block], sides, 0.1))
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
    openfoam.run(folder, "blockMesh", installation=installation)
    openfoam.write_field(folder / "0" / "U", np.zeros((72, 3)), openfoam.VELOCITY, velocity)
    openfoam.write_field(folder / "0" / "p", np.zeros(72), openfoam.PRESSURE, pressure)
    return folder


@pytest.mark.openfoam
def test_openfoam_goes_on_from_a_time_that_we_wrote(channel, installation, tmp_path):
    folder = shutil.copytree(channel, tmp_path / "case")
    case = read_flow(folder)
    assert case.mesh.number_of_points == 13 * 7
    speed = case.mesh.points[:, 1] * (1 - case.mesh.points[:, 1])
    velocity = torch.stack([speed, torch.zeros_like(speed)], dim=1)
    openfoam.write_time(folder, 0.1, case.mesh, {"u": velocity, "p": torch.zeros_like(speed)}, Flow.foam_fields)
    steps: list[float] = []
    openfoam.run(folder, "icoFoam", installation=installation, on_progress=lambda step: steps.append(step.time))
    np.testing.assert_allclose(steps, [0.15, 0.2])
    assert openfoam.read_field(folder / "0.2" / "U").values(72)[:, 0].max() > 0.1  # text, as OpenFOAM wrote it


@pytest.mark.openfoam
def test_a_decomposed_case_is_the_same_case(channel, installation, tmp_path):
    folder = shutil.copytree(channel, tmp_path / "case")
    whole = read_flow(folder)
    openfoam.run(folder, "decomposePar", installation=installation)
    shutil.rmtree(folder / "0")
    shutil.rmtree(folder / "constant" / "polyMesh")
    parts = read_flow(folder)
    assert parts.mesh.number_of_cells == whole.mesh.number_of_cells

    def sorted_rows(case: openfoam.cases.Case) -> torch.Tensor:
        columns = [case.mesh.points, case.dirichlet["u"].mask[:, None], case.dirichlet["u"].values, case.initial["u"]]
        columns += [case.neumann["p"].normals, case.features["wall_distance"][:, None]]
        rows = torch.cat([column.double() for column in columns], dim=1).numpy()
        return torch.from_numpy(rows[np.lexsort(rows[:, :2].round(9).T)])

    torch.testing.assert_close(sorted_rows(parts), sorted_rows(whole))


@pytest.mark.openfoam
def test_the_dictionaries_that_come_with_openfoam_can_be_read(installation):
    examples = Path("/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam")
    if not examples.is_dir():
        examples = installation.project / "tutorials" / "incompressible" / "icoFoam"
    found = [path for path in examples.rglob("*") if path.is_file() and path.parent.name in ("0", "constant")]
    for path in found:
        if path.suffix != ".gz":
            openfoam.read_dictionary(path, path.parents[1])
