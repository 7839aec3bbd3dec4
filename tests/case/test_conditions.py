"""Dirichlet, Neumann and slip conditions of a case."""

import pytest
import torch
from torch.testing import assert_close

from flow_problems import flow, mask_of, square, tensors_of
from pennpde.case import Case, Dirichlet, Neumann, Slip
from pennpde.operators import Operators

double = torch.float64


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
