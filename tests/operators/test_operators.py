"""The laws of the differential operators: exactness, Neumann conditions, equivariance, derivatives by positions."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from meshes import ALL_TYPES, SOLID_TYPES, bent, walled
from motions import random_orthogonal
from pennpde.mesh import Mesh
from pennpde.mesh.mesh import turned
from pennpde.operators import NEUMANN_WEIGHT, Operators

double = torch.float64


def linear(mesh: Mesh) -> tuple[Tensor, Tensor]:
    """A linear vector field of three components, and its slope [space, components]."""
    slope = torch.randn(mesh.space, 3, generator=torch.Generator().manual_seed(1), dtype=double)
    return mesh.points @ slope + 0.7, slope


# Exactness


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_the_gradient_of_a_linear_field_is_exact_up_to_the_boundary(kind):
    mesh = bent(walled(kind, jitter=0.2))
    field, slope = linear(mesh)
    gradient = Operators.on(mesh).grad(field)
    assert_close(gradient, slope.expand_as(gradient), rtol=0, atol=1e-12)


@pytest.mark.parametrize("patch", ["boundary", "left"])
@pytest.mark.parametrize("kind", ALL_TYPES)
def test_it_is_exact_on_a_neumann_boundary_with_the_matching_normal_derivative(kind, patch):
    mesh = bent(walled(kind, jitter=0.2))
    field, slope = linear(mesh)
    gradient = Operators.on(mesh, [patch]).grad(field, mesh.point_normals([patch]) @ slope)
    assert_close(gradient, slope.expand_as(gradient), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["triangle", "hexahedron"])
def test_the_divergence_of_a_linear_field_is_exact(kind):
    mesh = bent(walled(kind, jitter=0.2))
    slope = torch.randn(mesh.space, mesh.space, generator=torch.Generator().manual_seed(2), dtype=double)
    field, normals = mesh.points @ slope, mesh.normals
    divergence = Operators.on(mesh).div(field)
    assert_close(divergence, slope.trace().expand_as(divergence), rtol=0, atol=1e-12)
    inside = normals.norm(dim=1) == 0
    without = Operators.on(mesh, ["boundary"]).div(field)
    assert_close(without[inside], divergence[inside], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["quad", "tetrahedron"])
@pytest.mark.parametrize("neumann", [None, ["boundary"]])
def test_second_derivatives_of_a_linear_field_vanish(kind, neumann):
    mesh = bent(walled(kind, jitter=0.2))
    field, slope = linear(mesh)
    derivative = mesh.normals @ slope if neumann else None
    operators = Operators.on(mesh, neumann)
    assert operators.laplacian(field, derivative).abs().max() < 1e-10  # round-off of the gradient over h
    assert operators.hessian(field, derivative).abs().max() < 1e-10


def test_axes_are_points_then_the_derivative_then_the_field():
    mesh = walled("quad")
    x, y = mesh.points.T
    operators = Operators.on(mesh)
    velocity = torch.stack([2 * x + 3 * y, 5 * x + 7 * y], dim=1)
    jacobian = operators.grad(velocity)
    assert_close(jacobian[0], torch.tensor([[2.0, 5.0], [3.0, 7.0]], dtype=double))  # [j, i] = d u_i / d x_j
    channels = torch.stack([velocity, 10 * velocity], dim=-1)
    assert_close(operators.grad(channels)[..., 1], 10 * jacobian)
    assert_close(operators.div(channels)[:, 1], 10 * operators.div(velocity))
    tensor = velocity[:, :, None] * torch.tensor([1.0, 2.0, 3.0], dtype=double)
    assert_close(operators.div(tensor)[0], 9.0 * torch.tensor([1.0, 2.0, 3.0], dtype=double))
    assert operators.hessian(velocity).shape == (mesh.number_of_points, 2, 2, 2)
    assert operators.laplacian(channels).shape == channels.shape


# Neumann conditions


@pytest.mark.parametrize("kind", ["triangle", "wedge"])
def test_a_neumann_patch_changes_its_own_points_alone(kind):
    mesh = walled(kind, jitter=0.2)
    field = torch.sin(3 * mesh.points).sum(dim=1)
    plain, conditioned = Operators.on(mesh), Operators.on(mesh, ["left"])
    on_patch = torch.from_numpy(np.isin(np.arange(mesh.number_of_points), mesh.patch("left").points))
    assert torch.equal(plain.grad(field)[~on_patch], conditioned.grad(field)[~on_patch])
    assert (plain.grad(field) != conditioned.grad(field)).any(dim=1)[on_patch].all()
    assert (conditioned.neumann_lift[~on_patch] == 0).all()
    assert (conditioned.neumann_lift[on_patch] != 0).any(dim=1).all()


def test_the_lift_is_the_weight_times_the_moment_inverse_times_the_normal():
    mesh = walled("hexahedron", jitter=0.2)
    operators = Operators.on(mesh, ["boundary"], neumann_weight=4.0)
    expected = 4.0 * (operators.moment_inverse @ mesh.normals[:, :, None])[..., 0]
    assert_close(operators.neumann_lift, expected)
    field, derivative = mesh.points[:, 0] ** 2, torch.sin(mesh.points[:, 1])
    added = operators.grad(field, derivative) - operators.grad(field)
    assert_close(added, operators.neumann_lift * derivative[:, None], rtol=0, atol=1e-13)


def test_no_weight_is_no_condition_and_much_weight_is_obeyed():
    mesh = walled("quad", jitter=0.2)
    field, wanted = torch.sin(3 * mesh.points).sum(dim=1), torch.full((mesh.number_of_points,), 2.5, dtype=double)
    assert torch.equal(
        Operators.on(mesh, ["left"], neumann_weight=0.0).grad(field, wanted), Operators.on(mesh).grad(field)
    )
    left = mesh.patch("left").points

    def miss(weight: float) -> float:
        gradient = Operators.on(mesh, ["left"], neumann_weight=weight).grad(field, wanted)
        return float((gradient * mesh.point_normals(["left"])).sum(dim=1)[left].sub(2.5).abs().max())

    assert 0.9 < math.log10(miss(1e3) / miss(1e4)) < 1.1  # it misses by one over the weight
    assert miss(1e3) < miss(NEUMANN_WEIGHT) < miss(0.1)


def test_one_patch_may_be_named_by_itself():
    mesh = walled("quad")
    assert torch.equal(Operators.on(mesh, "left").neumann_lift, Operators.on(mesh, ["left"]).neumann_lift)
    with pytest.raises(KeyError, match="no patch 'lid'"):
        Operators.on(mesh, "lid")


# Equivariance


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("kind", ["quad", "triangle", "hexahedron", "tetrahedron", "mixed_solid"])
def test_operators_are_equivariant_under_rotation_reflection_and_translation(kind, reflection):
    mesh = walled(kind, 4, jitter=0.2)
    motion = random_orthogonal(mesh.space, seed=3, reflection=reflection)
    moved = mesh.moved(motion, torch.linspace(-0.8, 1.1, mesh.space, dtype=double))
    here, there = Operators.on(mesh, ["left"]), Operators.on(moved, ["left"])
    generator = torch.Generator().manual_seed(4)
    scalar = torch.randn(mesh.number_of_points, 3, generator=generator, dtype=double)
    vector = torch.randn(mesh.number_of_points, mesh.space, 3, generator=generator, dtype=double)
    tensor = torch.randn(mesh.number_of_points, mesh.space, mesh.space, generator=generator, dtype=double)
    given = torch.randn(mesh.number_of_points, 3, generator=generator, dtype=double)

    def check(function: Callable[[Operators, Tensor], Tensor], field: Tensor, rank: int, change: int) -> None:
        expected = turned(function(here, field), motion, rank + change)
        found = function(there, turned(field, motion, rank))
        assert (found - expected).norm() <= 1e-12 * expected.norm()

    check(lambda operators, field: operators.grad(field), scalar, 0, +1)
    check(lambda operators, field: operators.grad(field, given), scalar, 0, +1)
    check(lambda operators, field: operators.grad(field), vector, 1, +1)
    check(lambda operators, field: operators.div(field), vector, 1, -1)
    check(lambda operators, field: operators.div(field), tensor, 2, -1)
    check(lambda operators, field: operators.laplacian(field, given), scalar, 0, 0)
    check(lambda operators, field: operators.laplacian(field), vector, 1, 0)
    check(lambda operators, field: operators.hessian(field), scalar, 0, +2)


@pytest.mark.parametrize("kind", ["triangle", "hexahedron"])
def test_a_mesh_of_another_size_has_derivatives_of_another_unit(kind):
    mesh = walled(kind, jitter=0.2)
    field = torch.sin(mesh.points).sum(dim=1)
    small = Operators.on(replace(mesh, points=0.01 * mesh.points), ["left"])
    assert_close(small.grad(field), 100 * Operators.on(mesh, ["left"]).grad(field))
    assert_close(small.grad(field), Operators.on(mesh, ["left"]).scaled(100.0).grad(field))


def tiny(kind: str) -> Mesh:
    return walled(kind, 1, jitter=0.1) if kind in SOLID_TYPES else walled(kind, 2, jitter=0.1)


# Derivatives


@pytest.mark.parametrize("method", ["grad", "div", "laplacian", "hessian"])
@pytest.mark.parametrize("kind", ["quad", pytest.param("tetrahedron", marks=pytest.mark.slow)])
def test_first_and_second_derivatives_by_the_field(kind, method):
    mesh = tiny(kind)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, mesh.space, 2, dtype=double, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(operators, method), field)
    assert torch.autograd.gradgradcheck(lambda x: getattr(operators, method)(torch.sin(x)), field)


def flat_sheet_in_space() -> tuple[Tensor, np.ndarray]:
    mesh = walled("quad", 3)
    return torch.nn.functional.pad(mesh.points, (0, 1)), mesh.edges


# What cannot work


def test_a_singular_moment_matrix_is_named_by_its_point():
    points, edges = flat_sheet_in_space()
    with pytest.raises(ValueError, match=r"point 0 at \[0.0, 0.0, 0.0\] is singular: its 3 neighbours .*pseudoinverse"):
        Operators.from_normals(points, edges, torch.zeros_like(points))
    points[6:, 2] = torch.linspace(0, 1, len(points) - 6, dtype=double) ** 2
    with pytest.raises(ValueError, match=r"moment matrix of point \d+ at .* \(\d such points\)"):
        Operators.from_normals(points, edges, torch.zeros_like(points))


def test_the_pseudoinverse_takes_the_gradient_in_the_directions_that_the_neighbours_span():
    points, edges = flat_sheet_in_space()
    operators = Operators.from_normals(points, edges, torch.zeros_like(points), singular="pseudoinverse")
    slope = torch.tensor([1.0, -2.0, 5.0], dtype=double)
    found = operators.grad(points @ slope)
    assert_close(found, torch.tensor([1.0, -2.0, 0.0], dtype=double).expand_as(found), rtol=0, atol=1e-12)
    # Where nothing is singular it changes nothing.
    mesh = walled("hexahedron", jitter=0.2)
    careful = Operators.on(mesh, singular="pseudoinverse")
    assert torch.equal(careful.gradient.values, Operators.on(mesh).gradient.values)


def test_a_normal_makes_up_for_missing_neighbours():
    points, edges = flat_sheet_in_space()
    normals = torch.tensor([0.0, 0.0, 1.0], dtype=double).expand_as(points)
    operators = Operators.from_normals(points, edges, normals)
    slope = torch.tensor([1.0, -2.0, 5.0], dtype=double)
    found = operators.grad(points @ slope, torch.full((len(points),), 5.0, dtype=double))
    assert_close(found, slope.expand_as(found), rtol=0, atol=1e-12)
