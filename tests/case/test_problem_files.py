"""Case files: what they say becomes the Case that one would write in Python; what they cannot say is refused."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from meshes import box
from pennpde.case import Across, Case, Table, problem_files
from pennpde.case.problem_files import problem_from, read_problem
from pennpde.mesh import Mesh
from problems import rectangle

MESH = rectangle((6, 4), (3.0, 1.0))


def bare(fields: dict | None = None) -> Mesh:
    """The same rectangle without named patches."""
    mesh = Mesh.from_arrays(MESH.points, MESH.connectivity.reshape(-1, 4))
    return mesh.with_fields(fields or {})


def read(tmp_path: Path, text: str, mesh: Mesh | None = None) -> Case:
    path = tmp_path / "duct.toml"
    path.write_text(textwrap.dedent(text))
    return read_problem(path, mesh or bare())


def example() -> str:
    """The file in the module's own documentation."""
    return (problem_files.__doc__ or "").partition("\n\n")[2]


def test_the_documented_file_is_read_as_it_is_documented(tmp_path):
    points = np.array([[x, y] for x in np.linspace(0, 5, 11) for y in np.linspace(0, 2, 5)])
    number = np.arange(55).reshape(11, 5)
    quads = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1).reshape(-1, 4)
    marker = np.where((points[:, 1] == 0) & (points[:, 0] > 4), 3.0, 0.0)
    mesh = Mesh.from_arrays(points, quads).with_fields({"marker": marker})
    mesh = mesh.with_patches({"symmetry": lambda x: np.isclose(x[:, 1], 0) & (x[:, 0] < 2)})
    case = read(tmp_path, example(), mesh)
    x, y = case.mesh.points.T.numpy()
    for name, chosen in (("inlet", x == 0), ("outlet", x == 5), ("top", y == 2), ("hot", marker == 3)):
        np.testing.assert_array_equal(case.mesh.patch(name).points, np.flatnonzero(chosen))
    assert case.name == "duct"
    assert float(case.parameters["viscosity"]) == 1e-3
    assert case.slip["u"].mask.any()
    assert case.conditions["components"]["u"].mask[y == 2].all()
    assert case.conditions["stress_free"]["u"].mask[x == 5].all()
    assert case.initial["u"].shape == (55, 2)


def test_a_file_gives_the_case_that_python_gives(tmp_path):
    case = read(
        tmp_path,
        """
        [patches]
        inlet = "x == 0"
        outlet = "x == 3"
        side = "y == 0 or y == 1"
        [dirichlet.u]
        inlet = [1.0, 0.5]
        side = 0
        [dirichlet.p]
        outlet = 2
        [neumann]
        u = 0.0
        [neumann.p]
        inlet = 0.25
        [parameters]
        viscosity = 0.01
        """,
    )
    expected = Case(
        MESH,
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.5), "side": 0.0}, "p": {"outlet": 2.0}},
        neumann={"u": 0.0, "p": {"inlet": 0.25}},
        parameters={"viscosity": 0.01},
    )
    for name in ("u", "p"):
        assert torch.equal(case.initial[name], expected.initial[name])
        assert torch.equal(case.dirichlet[name].mask, expected.dirichlet[name].mask)
        assert torch.equal(case.dirichlet[name].values, expected.dirichlet[name].values)
        assert torch.equal(case.neumann[name].normals, expected.neumann[name].normals)
        assert torch.equal(case.neumann[name].normal_derivative, expected.neumann[name].normal_derivative)


@pytest.mark.parametrize(
    "selection",
    [
        '"x == 3"',
        "{ box = [[2.9, -1.0], [3.1, 2.0]] }",
        "{ box = [[3.0, 1.0], [3.0, 0.0]] }",
        "{ half_space = { point = [3, 0], normal = [7, 0] } }",
        "{ half_space = { point = [3, 0], normal = [1e-99, 0] } }",
        '{ array = "marker", equals = 4 }',
        '{ array = "flag" }',
        '"rest"',
    ],
)
def test_every_kind_of_selection_finds_the_outlet(tmp_path, selection):
    x = MESH.points[:, 0]
    mesh = bare({"marker": torch.where(x == 3, 4.0, 1.0), "flag": (x == 3).double()})
    others = 'inlet = "x == 0"\nside = "y == 0 or y == 1"'
    case = read(tmp_path, f"[patches]\n{others}\noutlet = {selection}\n[dirichlet.T]\noutlet = 1", mesh)
    np.testing.assert_array_equal(case.mesh.patch("outlet").points, MESH.patch("outlet").points)
    assert len(case.mesh.patch("outlet").facets) == 4


def test_patches_of_the_mesh_file_serve_as_they_are(tmp_path):
    case = read(tmp_path, "[dirichlet.T]\ninlet = 1.0", MESH)
    assert case.dirichlet["T"].mask.sum() == 5


def test_values_may_be_arrays_of_the_mesh_file(tmp_path):
    profile = torch.stack([MESH.points[:, 1] * (1 - MESH.points[:, 1]), 0 * MESH.points[:, 0]], dim=1)
    mesh = bare({"profile": profile, "start": MESH.points[:, 0].clone()})
    text = '[patches]\ninlet = "x == 0"\n[dirichlet.u]\ninlet = "profile"\n[initial]\nu = [0, 0]\nT = "start"'
    case = read(tmp_path, text, mesh)
    mask = case.dirichlet["u"].mask
    assert torch.equal(case.dirichlet["u"].values[mask], profile[mask])
    assert torch.equal(case.initial["T"], MESH.points[:, 0])


def test_three_components_of_a_plane_array_are_two(tmp_path):
    mesh = bare({"velocity": torch.ones(35, 3)})
    assert read(tmp_path, '[initial]\nu = "velocity"', mesh).initial["u"].shape == (35, 2)


def test_problems_in_space_have_three_coordinates(tmp_path):
    text = '[patches]\nlow = "z == 0"\ncorner = { box = [[0, 0, 0], [0.4, 0.4, 0.4]] }\n[dirichlet.u]\nlow = [1, 2, 3]'
    case = read(tmp_path, text, box("hexahedron", 3))
    assert case.dirichlet["u"].mask.sum() == 16
    assert len(case.mesh.patch("corner").points) == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no unknown"),
        ("x = ", "not a TOML file"),
        ("a = 1", r"sections \['a'\]"),
        ("[patchs]\n", r"sections \['patchs'\]; it knows"),
        ("patches = 3", "must be a table"),
        ("[initial]\nT = true", "give a finite number"),
        ("[initial]\nT = nan", "give a finite number"),
        ("[initial]\nT = inf", "give a finite number"),
        (f"[initial]\nT = {10**400}", "give a finite number"),
        ("[initial]\nT = 1" + "0" * 5000, "cannot be read|give a finite number"),
        ("[initial]\nT = 1979-05-27", "give a finite number"),
        ('[initial]\nT = "absent"', r"'absent'; the mesh file has \[\]"),
        ("[initial]\nT = [1, 2, 3]", "has shape"),
        ("[initial]\nT = []", "has shape"),
        ("[patches]\na = 3\n[initial]\nT=0", "write a comparison"),
        ('[patches]\na = "x = 0"\n[initial]\nT=0', r"\[patches\] a of .*duct.toml: Cannot read"),
        ('[patches]\na = "x == 7"\n[initial]\nT=0', "empty"),
        ('[patches]\na = "z == 0"\n[initial]\nT=0', "plane"),
        ('[patches]\na = "rest"\nb = "rest"\n[initial]\nT=0', "cover the whole boundary"),
        ('[patches]\na = "x > -1"\nb = "rest"\n[initial]\nT=0', "cover the whole boundary"),
        ("[patches]\na = {}\n[initial]\nT=0", "exactly one of"),
        ("[patches]\na = { box = [[0, 0], [1, 1]], array = 'b' }\n[initial]\nT=0", "exactly one of"),
        ("[patches]\na = { box = [[0, 0], [1, 1]], equals = 1 }\n[initial]\nT=0", "exactly one of"),
        ("[patches]\na = { box = 1 }\n[initial]\nT=0", "give two corners"),
        ("[patches]\na = { box = [[0, 0, 0], [1, 1, 1]] }\n[initial]\nT=0", "so give 2 numbers"),
        ("[patches]\na = { half_space = { point = [0, 0] } }\n[initial]\nT=0", "needs `point` and `normal`"),
        ("[patches]\na = { half_space = { point = [0, 0], normal = [0, 0] } }\n[initial]\nT=0", "length zero"),
        ("[patches]\na = { array = 'b' }\n[initial]\nT=0", r"the array 'b'; the mesh file has"),
        ("[patches]\na = { array = 1 }\n[initial]\nT=0", "the array 1"),
        ("[dirichlet]\nT = 1.0", r"by patch: \[dirichlet.T\]"),
        ("[dirichlet.T]\nhto = 1.0", "no patch 'hto'"),
        ("[neumann.T]\nhto = 1.0", "no patch 'hto'"),
        ("[slip]\nu = 'wall'", "give a list of patches"),
        ("[slip]\nu = ['wall']", "no patch 'wall'"),
        ("[initial]\nT = 0\n[slip]\nT = []", "scalar"),
        ("[initial]\nT = 0\n[parameters]\nnu = 'thick'", r"\[parameters\] nu .*give a finite number"),
        ("[initial]\nT = 0\n[parameters]\nnu = [1, 2, 3]", "a number or a vector of 2"),
        ("[initial]\ns = [[1, 2], 3]", "as many rows as columns"),
        ("[initial]\ns = [[1, 2], [3, 'x']]", "give a finite number"),
        ("[initial]\ns = [[[1, 2], [3, 4]], [[1, 2], [3, 4]]]", "give a finite number"),
        ("[initial]\ns = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]", "a matrix of 2 by 2"),
        ("[initial]\nT = 0\n[parameters]\nnu = [[1, 0], [0, 1]]", r"\[parameters\] nu .*give a finite number"),
        ("a = " + "[" * 3000, "not a TOML file|cannot be read"),
    ],
)
def test_every_mistake_is_a_value_error_that_names_the_file(tmp_path, text, words):
    with pytest.raises(ValueError, match=words) as caught:
        read(tmp_path, text)
    assert "duct.toml" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_an_unknown_whose_values_are_matrices_starts_as_a_tensor(tmp_path):
    text = """
        [patches]
        inlet = "x == 0"
        side = "y == 0"
        [dirichlet.s]
        inlet = [[1, 2], [2, 5]]
        side = { table = [[0.0, [[0, 0], [0, 0]]], [1.0, [[4, 0], [0, 4]]]] }
        [neumann]
        s = 0.0
    """
    case = read(tmp_path, text)
    assert case.initial["s"].shape == (len(MESH.points), 2, 2)
    inner = np.setdiff1d(case.mesh.patch("inlet").points, case.mesh.patch("side").points)
    assert case.dirichlet["s"].values[int(inner[0])].tolist() == [[1, 2], [2, 5]]
    assert case.at(0.5).dirichlet["s"].values[int(case.mesh.patch("side").points[0])].tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[initial]\nT = \x00"])
def test_bytes_that_are_no_text_are_refused(tmp_path, content):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad.toml is not a TOML file"):
        read_problem(tmp_path / "bad.toml", MESH)


def test_a_file_of_megabytes_is_taken_for_the_mesh(tmp_path):
    (tmp_path / "mesh.toml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(ValueError, match="Is it the mesh"):
        read_problem(tmp_path / "mesh.toml", MESH)


def test_the_sections_may_come_from_anywhere():
    case = problem_from({"initial": {"T": 0.5}}, MESH)
    assert (case.initial["T"] == 0.5).all()


CONDITIONS = """
[patches]
inlet = "x == 0"
outlet = "x == 3"
side = "y == 0 or y == 1"
[initial]
T = 0.0
"""


def problem(tmp_path, text: str):
    return read(tmp_path, CONDITIONS + text, rectangle((6, 2), (3.0, 1.0)))


def test_robin_periodic_and_tables_are_those_of_python(tmp_path):
    mesh = rectangle((6, 2), (3.0, 1.0))
    case = problem(tmp_path, "[robin.T]\noutlet = { a = 2, b = 0.5, c = { table = [[0, 1.0], [2, 3.0]] } }")
    expected = Case(mesh, initial={"T": 0.0}, robin={"T": {"outlet": (2.0, 0.5, Table([(0.0, 1.0), (2.0, 3.0)]))}})
    for time in (0.0, 0.7):
        one, other = (each.at(time).robin["T"] for each in (case, expected))
        assert torch.equal(one.normal_derivative, other.normal_derivative)
        assert torch.equal(one.transfer, other.transfer)
    case = problem(tmp_path, '[periodic.T]\ninlet = { across = "outlet", jump = -1.5 }')
    expected = Case(mesh, initial={"T": 0.0}, periodic={"T": {"inlet": Across("outlet", -1.5)}})
    assert torch.equal(case.periodic["T"].points, expected.periodic["T"].points)
    assert torch.equal(case.periodic["T"].shift, expected.periodic["T"].shift)
    assert problem(tmp_path, '[periodic.T]\ninlet = "outlet"').periodic["T"].is_seamless
    table = '[dirichlet.u]\ninlet = { table = [[0.0, [1.0, 0.0]], [1.0, [3.0, 1.0]]], outside = "clamp" }'
    case = problem(tmp_path, table)
    assert case.initial["u"].shape == (21, 2)  # the table tells that it is a vector
    values = case.at(0.5).dirichlet["u"].values[case.dirichlet["u"].mask]
    assert torch.equal(values, torch.tensor([[2.0, 0.5]]).double().expand_as(values))
    assert case.at(9.0).dirichlet["u"].values.amax() == 3.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[robin.T]\noutlet = 1.0", r"\[robin.T\] outlet of .* is written as \{ a = 1.0"),
        ("[robin.T]\noutlet = { a = 1, b = 1 }", r"\[robin.T\] outlet .* is written as"),
        ("[robin.T]\noutlet = { a = 0, b = 0, c = 1 }", "a = b = 0"),
        ("[robin]\nT = 1.0", r"give the values by patch: \[robin.T\]"),
        ("[periodic.T]\ninlet = 3", r"\[periodic.T\] inlet .* give the opposite patch"),
        ('[periodic.T]\ninlet = { across = "outlet", drop = 3 }', "give the opposite patch"),
        ('[periodic.T]\ninlet = "side"', "have 3 and 14 points"),
        ("[dirichlet.T]\ninlet = { table = [[0, 1], [0, 2]] }", r"\[dirichlet.T\] inlet .* must increase"),
        ("[dirichlet.T]\ninlet = { table = [0, 1] }", r"inlet of .*row of a table is a time.*got 0"),
        ("[dirichlet.T]\ninlet = { table = [[[0], 1]] }", r"a time, which is a number, and a value; got \[\[0\], 1\]"),
        ("[dirichlet.T]\ninlet = { tabel = [[0, 1]] }", "write { table ="),
        ('[dirichlet.T]\ninlet = { table = [[0, 1]], outside = "repeat" }', '"error" or "clamp"'),
    ],
)
def test_mistakes_in_new_kinds_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        problem(tmp_path, text)


def test_an_unknown_that_only_an_array_prescribes_needs_no_initial_field(tmp_path):
    profile = np.stack([np.linspace(0, 1, MESH.number_of_points), np.zeros(MESH.number_of_points)], axis=1)
    text = """
        [patches]
        inlet = "x == 0"
        [dirichlet.u]
        inlet = "profile"
        """
    case = read(tmp_path, text, bare({"profile": profile}))
    assert case.initial["u"].shape == (MESH.number_of_points, 2)
    np.testing.assert_array_equal(
        case.dirichlet["u"].values[case.mesh.patch("inlet").points], profile[MESH.points[:, 0] == 0]
    )
