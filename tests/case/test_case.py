"""Conditions and cases: what the loose forms become, their motion, and batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from meshes import box
from motions import random_orthogonal
from problems import heated_plate
from shapes import unchecked
from torch import Tensor
from torch.testing import assert_close

from pennpde.case import Case, Dirichlet, Neumann, Slip, batch, unbatch
from pennpde.mesh import Mesh
from pennpde.mesh.rotation import turned
from pennpde.operators import Operators

double = torch.float64


@pytest.fixture(autouse=True)
def _same_numbers_each_time():
    torch.manual_seed(0)


def square(kind: str = "quad", cells_along: int = 4, jitter: float = 0.1, seed: int = 0) -> Mesh:
    """The unit square (or cube) with its sides along x as patches, and the rest as another."""
    mesh = box(kind, cells_along, jitter, seed)
    return mesh.with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], 1.0),
            "wall": lambda x: (np.isclose(x[:, 1:], 0.0) | np.isclose(x[:, 1:], 1.0)).any(axis=1),
        }
    )


def mask_of(mesh: Mesh, *patches: str) -> Tensor:
    mask = torch.zeros(mesh.number_of_points, dtype=torch.bool)
    for patch in patches:
        mask[torch.from_numpy(mesh.patch(patch).points)] = True
    return mask


def flow(mesh: Mesh, viscosity: float = 1e-3, name: str = "") -> Case:
    inflow = (1.0, *[0.0] * (mesh.space - 1))
    return Case(
        mesh,
        initial={"u": torch.sin(mesh.points), "p": mesh.points[:, 0]},
        dirichlet={"u": {"inlet": inflow, "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.25}, "p": {"wall": 0.0, "inlet": -2.0}},
        parameters={"viscosity": viscosity, "gravity": tuple(range(1, mesh.space + 1))},
        features={
            "wall_distance": mesh.distance_to(["wall"]),
            "stretch": mesh.points[:, :, None] * mesh.points[:, None],
        },
        targets={"u": torch.stack([mesh.points, 2 * mesh.points], dim=-1), "p": mesh.points[:, 0]},
        name=name,
    )


def tensors_of(case: Case) -> dict[str, Tensor]:
    """Every tensor that a case holds, by where it is."""
    found = {}
    for part in ("initial", "parameters", "features", "targets"):
        found |= {f"{part}.{name}": values for name, values in getattr(case, part).items()}
    for part in ("dirichlet", "neumann", "slip"):
        for name, condition in getattr(case, part).items():
            values = {key: values for key, values in vars(condition).items() if isinstance(values, Tensor)}
            found |= {f"{part}.{name}.{key}": each for key, each in values.items()}
    return found


# What the loose forms become


def test_numbers_vectors_and_arrays_become_fields():
    mesh = square()
    array = torch.sin(mesh.points[:, 0])
    case = Case(mesh, initial={"a": 2, "b": (1.0, -1.0), "c": array.numpy().astype(np.float32), "d": mesh.points})
    number = mesh.number_of_points
    assert torch.equal(case.initial["a"], torch.full((number,), 2.0, dtype=double))
    assert torch.equal(case.initial["b"], torch.tensor([1.0, -1.0], dtype=double).expand(number, 2))
    assert_close(case.initial["c"], array, rtol=0, atol=1e-7)
    assert torch.equal(case.initial["d"], mesh.points)
    assert {values.dtype for values in case.initial.values()} == {double}
    assert case.sizes == (number,)


def test_a_case_keeps_no_hold_on_what_it_was_given():
    mesh = square()
    given = torch.zeros(mesh.number_of_points, dtype=double)
    case = Case(mesh, initial={"T": given}, dirichlet={"T": {"inlet": given}}, features={"f": given})
    given += 1.0
    assert case.initial["T"].max() == case.dirichlet["T"].values.max() == case.features["f"].max() == 0


def test_dirichlet_values_hold_on_their_patches_and_are_zero_elsewhere():
    mesh = square()
    case = flow(mesh)
    condition = case.dirichlet["u"]
    assert torch.equal(condition.mask, mask_of(mesh, "inlet", "wall"))
    inlet = mask_of(mesh, "inlet") & ~mask_of(mesh, "wall")
    assert torch.equal(condition.values[inlet], torch.tensor([1.0, 0.0], dtype=double).expand(int(inlet.sum()), 2))
    assert (condition.values[~inlet] == 0).all()


def test_at_a_shared_point_the_later_patch_wins():
    mesh = square()
    corner = mask_of(mesh, "inlet") & mask_of(mesh, "wall")
    assert corner.any()
    for order in (["inlet", "wall"], ["wall", "inlet"]):
        values = {"inlet": 1.0, "wall": 2.0}
        condition = Case(mesh, {"T": 0.0}, dirichlet={"T": {name: values[name] for name in order}}).dirichlet["T"]
        assert (condition.values[corner] == values[order[-1]]).all()


def test_dirichlet_values_may_vary_over_a_patch():
    mesh = square()
    profile = mesh.points[:, 1] * (1 - mesh.points[:, 1])
    case = Case(
        mesh,
        {"u": 0.0 * mesh.points, "T": 0.0},
        dirichlet={"u": {"inlet": torch.stack([profile, 0 * profile], dim=1)}, "T": {"inlet": profile.tolist()}},
    )
    inlet = mask_of(mesh, "inlet")
    assert torch.equal(case.dirichlet["u"].values[inlet, 0], profile[inlet])
    assert torch.equal(case.dirichlet["T"].values[inlet], profile[inlet])
    assert (case.dirichlet["u"].values[~inlet] == 0).all()


def test_applied_dirichlet_values_are_met_bit_for_bit_also_at_several_times_and_in_single_precision():
    mesh = square()
    condition = flow(mesh).dirichlet["u"]
    field = torch.randn(mesh.number_of_points, 2, dtype=double)
    applied = condition.apply(field)
    assert torch.equal(applied[condition.mask], condition.values[condition.mask])
    assert torch.equal(applied[~condition.mask], field[~condition.mask])
    times = torch.stack([field, 2 * field, 3 * field], dim=-1)
    for step in range(3):
        assert torch.equal(condition.apply(times)[..., step], condition.apply(times[..., step]))
    assert condition.apply(field.float()).dtype == torch.float32


def test_gradients_pass_by_prescribed_points_and_stay_finite():
    condition = flow(square()).dirichlet["u"]
    field = torch.randn_like(condition.values, requires_grad=True)
    (gradient,) = torch.autograd.grad(condition.apply(field).square().sum(), field)
    assert (gradient[condition.mask] == 0).all()
    assert torch.equal(gradient[~condition.mask], 2 * field.detach()[~condition.mask])


def test_each_unknown_has_the_normals_of_its_own_neumann_patches():
    mesh = square()
    case = flow(mesh)
    for name, patches in (("u", ["outlet"]), ("p", ["wall", "inlet"])):
        condition = case.neumann[name]
        assert torch.equal(condition.normals, mesh.point_normals(patches))
        assert torch.equal(condition.mask, mask_of(mesh, *patches))
        assert torch.equal(case.operators[name].gradient.values, Operators.on(mesh, patches).gradient.values)
    assert torch.equal(case.neumann["u"].normal_derivative[mask_of(mesh, "outlet")], torch.full((5, 2), 0.25).double())
    derivative = case.neumann["p"].normal_derivative
    assert (derivative[mask_of(mesh, "inlet")] == -2.0).all()  # the later one at the corners
    assert (derivative[~mask_of(mesh, "inlet")] == 0.0).all()


@pytest.mark.parametrize("kind", ["quad", "hexahedron"])
def test_a_number_for_neumann_is_the_boundary_without_another_condition(kind):
    mesh = square(kind, 3)
    case = Case(mesh, {"T": 0.0}, dirichlet={"T": {"inlet": 1.0}}, neumann={"T": 0.5})
    assert torch.equal(case.neumann["T"].normals, mesh.point_normals(["outlet", "wall"]))
    assert (case.neumann["T"].normal_derivative[case.neumann["T"].mask] == 0.5).all()
    assert (case.neumann["T"].normal_derivative[~case.neumann["T"].mask] == 0.0).all()
    everywhere = Case(mesh, {"T": 0.0}, neumann={"T": 0.0})
    assert torch.equal(everywhere.neumann["T"].normals, mesh.normals)
    inner = Case(mesh, {"u": mesh.points}, slip={"u": ["wall"]}, neumann={"u": 0.0})
    assert torch.equal(inner.neumann["u"].normals, mesh.point_normals(["inlet", "outlet"]))
    everything = Case(mesh, {"T": 0.0}, dirichlet={"T": {"inlet": 0, "wall": 0, "outlet": 0}}, neumann={"T": 1.0})
    assert not everything.neumann["T"].mask.any()


def test_ready_made_conditions_are_taken_and_count_for_the_rest_of_the_boundary():
    mesh = square()
    by_patch = Case(mesh, {"u": mesh.points}, {"u": {"inlet": 1.0}}, {"u": 0.0}, slip={"u": "wall"})
    made = Case(
        mesh,
        {"u": mesh.points},
        {"u": Dirichlet(by_patch.dirichlet["u"].mask, by_patch.dirichlet["u"].values.float())},
        {"u": 0.0},
        slip={"u": Slip(by_patch.slip["u"].mask, by_patch.slip["u"].normals.float())},
    )
    for name, values in tensors_of(by_patch).items():
        assert_close(tensors_of(made)[name], values, rtol=0, atol=1e-7)  # the dtypes agree too
    given = Neumann(by_patch.neumann["u"].mask, by_patch.neumann["u"].normals, by_patch.neumann["u"].normal_derivative)
    again = Case(mesh, {"u": mesh.points}, neumann={"u": given})
    assert torch.equal(again.neumann["u"].normals, given.normals)


def test_a_slip_boundary_takes_the_normal_component_and_nothing_else():
    mesh = square("hexahedron", 3)
    case = Case(mesh, {"u": mesh.points}, slip={"u": ["wall"]})
    slip, normals = case.slip["u"], mesh.point_normals(["wall"])
    assert torch.equal(slip.mask, mask_of(mesh, "wall"))
    field = torch.randn(mesh.number_of_points, 3, 5, dtype=double)
    applied = slip.apply(field)
    assert (applied * normals[..., None]).sum(dim=1).abs().max() < 1e-15
    assert_close(slip.apply(applied), applied, rtol=0, atol=1e-15)  # a projection
    assert torch.equal(applied[~slip.mask], field[~slip.mask])
    tangent = field - (field * normals[..., None]).sum(dim=1, keepdim=True) * normals[..., None]
    assert_close(applied, tangent)
    assert torch.equal(slip.apply(field[..., 0]), applied[..., 0])


def test_an_inhomogeneous_neumann_condition_reaches_the_gradient():
    mesh = square("triangle")
    slope = torch.tensor([1.5, -0.5], dtype=double)
    field = mesh.points @ slope
    case = Case(mesh, {"T": field}, neumann={"T": {"wall": mesh.point_normals(["wall"]) @ slope}})
    gradient = case.operators["T"].grad(case.initial["T"], case.neumann["T"].normal_derivative)
    assert_close(gradient, slope.expand_as(gradient), rtol=0, atol=1e-12)


def test_unknowns_without_neumann_conditions_share_their_operators():
    mesh = square()
    case = Case(mesh, {"a": 0.0, "b": 1.0, "c": 2.0}, neumann={"c": {"wall": 0.0}})
    assert case.operators["a"] is case.operators["b"]
    assert case.operators["a"].gradient.columns is case.operators["c"].gradient.columns
    assert case.operators is case.operators  # assembled once


# Errors


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"initial": {}}, ValueError, "at least one unknown"),
        ({"initial": {"T": float("nan")}}, ValueError, r"initial\['T'\] holds a value that is not finite: nan"),
        ({"initial": {"T": [0.0, 1.0, 2.0]}}, ValueError, r"initial\['T'\] has shape \[3\]; .* each of the 25 points"),
        ({"initial": {"T": np.zeros((25, 3))}}, ValueError, r"initial\['T'\] has shape \[25, 3\]"),
        ({"initial": {"T": "warm"}}, ValueError, r"initial\['T'\] is 'warm'"),
        ({"initial": {"T": None}}, ValueError, r"initial\['T'\] is None"),
        ({"dirichlet": {"T": {"lid": 0.0}}}, KeyError, "no patch 'lid'.*inlet, outlet, wall"),
        ({"dirichlet": {"p": {"wall": 0.0}}}, KeyError, r"dirichlet names \['p'\].*unknowns of the case are \['T'\]"),
        ({"neumann": {"p": 0.0}}, KeyError, r"neumann names \['p'\].*give each unknown an initial field"),
        ({"slip": {"p": ["wall"]}}, KeyError, r"slip names \['p'\]"),
        ({"dirichlet": {"T": 1.0}}, ValueError, r"dirichlet\['T'\] is 1.0; give the values by patch"),
        ({"dirichlet": {"T": {"wall": (1.0, 0.0)}}}, ValueError, r"shape \[25, 2\], but the unknown has \[25\]"),
        ({"dirichlet": {"T": {"wall": float("inf")}}}, ValueError, r"dirichlet\['T'\]\['wall'\] .* not finite: inf"),
        ({"neumann": {"T": {"lid": 0.0}}}, KeyError, "no patch 'lid'"),
        ({"neumann": {"T": "wall"}}, ValueError, r"neumann\['T'\] is 'wall'"),
        ({"neumann": {"T": {"corner": 0.0}}}, ValueError, "'corner', which has points but no whole facet"),
        ({"slip": {"T": ["wall"]}}, ValueError, "'T', which is a scalar"),
        ({"parameters": {"c": np.zeros(25)}}, ValueError, r"parameters\['c'\] has shape \[25\].*belongs into features"),
        ({"parameters": {"c": float("nan")}}, ValueError, r"parameters\['c'\] holds a value that is not finite"),
        ({"features": {"d": np.zeros((25, 5))}}, ValueError, r"features\['d'\] has shape \[25, 5\]"),
        ({"targets": {"T": np.zeros((24, 4))}}, ValueError, r"targets\['T'\] has shape \[24, 4\].*\[25\]"),
        ({"targets": {"T": np.full((25, 4), np.nan)}}, ValueError, r"targets\['T'\] .* not finite, at index \[0, 0\]"),
        ({"targets": {"T": np.zeros((25, 4, 2))}}, ValueError, r"targets\['T'\] .* one axis of times more"),
        ({"targets": {"grad": np.zeros((25, 4))}}, ValueError, r"targets\['grad'\] has shape \[25, 4\]"),
        (
            {"dirichlet": {"T": Dirichlet(torch.zeros(25, dtype=torch.bool), torch.zeros(25, 2))}},
            ValueError,
            r"dirichlet\['T'\].values has shape \[25, 2\]; it must have \[25\]",
        ),
        (
            {"neumann": {"T": Neumann(torch.zeros(25, dtype=torch.bool), torch.zeros(25, 3), torch.zeros(25))}},
            ValueError,
            r"neumann\['T'\].normals has shape \[25, 3\]; it must have \[25, 2\]",
        ),
    ],
)
def test_an_error_names_the_thing_and_shows_the_value(given, error, message):
    mesh = square().with_patches({"corner": [0]})
    with unchecked(), pytest.raises(error, match=message):
        Case(**({"mesh": mesh, "initial": {"T": 0.0}} | given))


def test_a_parameter_that_is_missing_or_does_not_fit_is_named():
    case = flow(square())
    with pytest.raises(KeyError, match=r"no parameter 'density'; it has \['gravity', 'viscosity'\]"):
        case.parameter("density", case.initial["p"])
    with pytest.raises(ValueError, match=r"'gravity' is a vector; it cannot multiply a field of \[25\]"):
        case.parameter("gravity", case.initial["p"])


# Precision


def test_a_case_in_another_precision_has_every_tensor_in_it():
    case = flow(square())
    single = case.to(torch.float32)
    for name, values in tensors_of(single).items():
        assert values.dtype == (torch.bool if name.endswith("mask") else torch.float32), name
        assert_close(values.double(), tensors_of(case)[name].double(), rtol=1e-6, atol=1e-7)
    for name, operators in single.operators.items():
        assert torch.equal(operators.gradient.values, case.operators[name].gradient.values.float())
    assert case.to(double) is case
    assert single.to(torch.float32, "cpu") is single
    assert single.to(double).operators["u"].dtype == double


@pytest.mark.gpu
def test_a_case_on_the_gpu_is_there_whole():
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    case = batch([flow(square()), flow(square("triangle", 3))]).to(torch.float32, "cuda")
    assert {values.device.type for values in tensors_of(case).values()} == {"cuda"}
    assert case.index.device.type == "cuda"
    assert case.operators["u"].grad(case.initial["u"]).device.type == "cuda"
    here = case.to(device="cpu")
    assert_close(here.operators["u"].grad(here.initial["u"]), case.operators["u"].grad(case.initial["u"]).cpu())


# Rigid motion


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("kind", ["quad", "triangle", "hexahedron", "tetrahedron"])
def test_a_case_moves_as_a_rigid_body(kind, reflection):
    mesh = square(kind, 3)
    case = replace(flow(mesh), slip={"u": Slip(mask_of(mesh, "wall"), mesh.point_normals(["wall"]))})
    motion = random_orthogonal(mesh.space, seed=5, reflection=reflection)
    shift = torch.linspace(-1, 2, mesh.space, dtype=double)
    moved = case.moved(motion, shift)
    assert_close(moved.mesh.points, mesh.points @ motion.T + shift)
    ranks = {
        "initial.u": 1,
        "dirichlet.u.values": 1,
        "neumann.u.normals": 1,
        "neumann.p.normals": 1,
        "neumann.u.normal_derivative": 1,
        "slip.u.normals": 1,
        "features.stretch": 2,
        "targets.u": 1,  # and an axis of two times, which stays
    }
    for name, values in tensors_of(case).items():
        found = tensors_of(moved)[name]
        if name == "parameters.gravity":
            assert_close(found, motion @ values)
        elif values.dtype == torch.bool:
            assert torch.equal(found, values)
        else:
            assert_close(found, turned(values, motion, ranks.get(name, 0)), rtol=0, atol=1e-13)
    assert_close(moved.neumann["u"].normals, moved.mesh.point_normals(["outlet"]), rtol=0, atol=1e-13)
    assert (moved.mesh.cell_volumes > 0).all()


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("kind", ["triangle", "hexahedron"])
def test_the_operators_of_a_moved_case_are_the_moved_operators(kind, reflection):
    case = flow(square(kind, 3))
    motion = random_orthogonal(case.space, seed=6, reflection=reflection)
    moved = case.moved(motion, torch.ones(case.space, dtype=double))
    for name, rank in (("u", 1), ("p", 0)):
        given = case.neumann[name].normal_derivative
        expected = turned(case.operators[name].grad(case.initial[name], given), motion, rank + 1)
        found = moved.operators[name].grad(moved.initial[name], moved.neumann[name].normal_derivative)
        assert (found - expected).norm() <= 1e-12 * expected.norm()


def test_a_motion_and_its_inverse_leave_the_case_as_it_was():
    case = flow(square("tetrahedron", 2))
    motion = random_orthogonal(3, seed=7, reflection=True)
    shift = torch.tensor([1.0, 2.0, 3.0], dtype=double)
    back = case.moved(motion, shift).moved(motion.T, -motion.T @ shift)
    for name, values in tensors_of(case).items():
        assert_close(tensors_of(back)[name], values, rtol=0, atol=1e-13)
    assert_close(back.mesh.points, case.mesh.points, rtol=0, atol=1e-13)


def test_a_batch_moves_as_its_cases_do():
    cases = [flow(square("quad", 3)), flow(square("triangle", 2))]
    motion, shift = random_orthogonal(2, seed=8), torch.tensor([0.3, -0.2], dtype=double)
    together, separate = batch(cases).moved(motion, shift), batch([case.moved(motion, shift) for case in cases])
    for name, values in tensors_of(separate).items():
        assert_close(tensors_of(together)[name], values, rtol=0, atol=1e-14)


def test_a_motion_that_is_not_rigid_is_refused():
    with pytest.raises(ValueError, match="orthogonal 2 x 2 matrix"):
        flow(square()).moved(torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=double), torch.zeros(2, dtype=double))


# Batches


def three_cases(same_size: bool = False) -> list[Case]:
    shapes = [("quad", 4), ("quad", 4), ("quad", 4)] if same_size else [("quad", 4), ("triangle", 3), ("polygon", 2)]
    return [
        flow(square(kind, size, seed=seed), viscosity=10.0**-seed, name=f"case {seed}")
        for seed, (kind, size) in enumerate(shapes)
    ]


@pytest.mark.parametrize("same_size", [False, True])
def test_a_batch_is_its_cases_side_by_side_bit_for_bit(same_size):
    cases = three_cases(same_size)
    together = batch(cases)
    assert together.sizes == tuple(case.number_of_points for case in cases)
    assert together.number_of_points == sum(together.sizes) == together.mesh.number_of_points
    assert together.name == "case 0 + case 1 + case 2"
    for name, values in tensors_of(together).items():
        parts = [tensors_of(case)[name] for case in cases]
        assert torch.equal(values, torch.stack(parts) if name.startswith("parameters") else torch.cat(parts)), name
    for name in ("u", "p"):
        separate = [
            case.operators[name].laplacian(case.initial[name], case.neumann[name].normal_derivative) for case in cases
        ]
        found = together.operators[name].laplacian(together.initial[name], together.neumann[name].normal_derivative)
        assert torch.equal(found, torch.cat(separate))


@pytest.mark.parametrize("same_size", [False, True])
def test_each_point_of_a_batch_knows_its_case_and_its_parameters(same_size):
    cases = three_cases(same_size)
    together = batch(cases)
    assert torch.equal(together.index, torch.cat([torch.full((n,), k) for k, n in enumerate(together.sizes)]))
    for name, like in (
        ("viscosity", together.initial["p"]),
        ("viscosity", together.initial["u"]),
        ("viscosity", together.initial["u"][..., None].expand(-1, -1, 3)),
        ("gravity", together.initial["u"]),
        ("gravity", together.initial["u"][..., None].expand(-1, -1, 3)),
    ):
        expected = torch.cat(
            [case.parameter(name, part) * part for case, part in zip(cases, like.split(together.sizes), strict=True)]
        )
        found = together.parameter(name, like) * like
        assert found.shape == like.shape
        assert torch.equal(found, expected)
    assert together.parameter("viscosity", together.initial["u"].float()).dtype == torch.float32


@pytest.mark.parametrize("same_size", [False, True])
def test_sums_over_a_batch_are_taken_case_by_case(same_size):
    cases = three_cases(same_size)
    together = batch(cases)
    sums = together.sum(together.initial["u"])
    assert_close(sums, torch.stack([case.initial["u"].sum(dim=0) for case in cases]))
    for name, values in together.initial.items():
        assert_close(together.total(values), torch.stack([case.initial[name].sum() for case in cases]))
    spread = together.at_points(sums)
    assert torch.equal(spread, sums[together.index])
    assert_close(cases[0].sum(cases[0].initial["p"]), cases[0].initial["p"].sum(dim=0, keepdim=True))


def test_unbatch_takes_apart_what_batch_put_together():
    cases = three_cases()
    together = batch(cases)
    for fields, case in zip(unbatch(together.initial, together), cases, strict=True):
        assert fields.keys() == case.initial.keys()
        assert all(torch.equal(fields[name], case.initial[name]) for name in fields)
    alone = cases[0]
    assert batch([alone]) is alone
    assert torch.equal(unbatch(alone.initial, alone)[0]["u"], alone.initial["u"])


def test_batches_can_be_batched_and_converted():
    first, second, third = three_cases()
    nested, flat = batch([batch([first, second]), third]), batch([first, second, third])
    assert nested.sizes == flat.sizes
    for name, values in tensors_of(flat).items():
        assert torch.equal(tensors_of(nested)[name], values), name
    single = flat.to(torch.float32)
    assert single.sizes == flat.sizes
    assert torch.equal(single.operators["u"].gradient.values, flat.operators["u"].gradient.values.float())


def test_cases_that_do_not_go_together_are_named():
    mesh = square()
    one = Case(mesh, {"T": 0.0}, parameters={"c": 1.0}, name="one")
    other = Case(mesh, {"T": 0.0}, name="other")
    with pytest.raises(ValueError, match=r"same parameters; 'one' has \['c'\], 'other' has \[\]"):
        batch([one, other])
    with pytest.raises(ValueError, match="at least one case"):
        batch([])
    with pytest.raises(ValueError, match="cannot be concatenated"):
        batch([other, Case(square("hexahedron", 2), {"T": 0.0}, name="solid")])


def test_a_case_that_was_predicted_without_gradients_can_still_be_trained_on():
    case = heated_plate()
    with torch.inference_mode():
        case.operators["T"].grad(case.initial["T"])
    field = torch.ones_like(case.initial["T"], requires_grad=True)
    case.operators["T"].laplacian(field).square().sum().backward()
    assert field.grad is not None
