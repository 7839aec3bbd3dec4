"""The laws of the differential operators: exactness, order, equivariance, derivatives, batches."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from meshes import ALL_TYPES, PLANE_TYPES, SOLID_TYPES, box
from motions import random_orthogonal
from shapes import unchecked
from torch import Tensor
from torch.testing import assert_close

from pennpde.mesh import Mesh
from pennpde.mesh.rotation import turned
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.damping import Damping
from pennpde.operators.graph import PointGraph

double = torch.float64


@pytest.fixture(autouse=True)
def _same_numbers_each_time():
    torch.manual_seed(0)


def walled(kind: str, cells_along: int = 3, jitter: float = 0.0, seed: int = 0) -> Mesh:
    return box(kind, cells_along, jitter, seed).with_patches(
        {"boundary": lambda x: np.ones(len(x), dtype=bool), "left": lambda x: np.isclose(x[:, 0], 0.0)}
    )


def bent(mesh: Mesh) -> Mesh:
    """The mesh under a smooth map that keeps its cells convex."""
    x = mesh.points
    return replace(mesh, points=x + 0.06 * torch.sin(torch.pi * (x.flip(1) + x.roll(1, dims=1))))


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
    divergence = Operators.on(mesh, ["boundary"]).div(field, normals @ slope)
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


# Order of convergence


def smooth(x: Tensor) -> Tensor:
    return torch.sin(2 * x[:, 0] + 0.3) * torch.exp(x[:, 1]) + x[:, -1] ** 3


def smooth_gradient(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(smooth(x).sum(), x)[0]


def smooth_hessian(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(smooth(x).sum(), x, create_graph=True)
    return torch.stack([torch.autograd.grad(g.sum(), x, retain_graph=True)[0] for g in gradient.T], dim=1)


def smooth_laplacian(x: Tensor) -> Tensor:
    return -3 * torch.sin(2 * x[:, 0] + 0.3) * torch.exp(x[:, 1]) + 6 * x[:, -1]


def order(errors: list[float], sizes: list[int]) -> float:
    """The slope of the error over the distance between points, in logarithms."""
    return -float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def errors(mesh: Mesh, neumann: bool = False) -> dict[str, Tensor]:
    x = mesh.points
    operators = Operators.on(mesh, ["boundary"] if neumann else None)
    gradient = smooth_gradient(x)
    given = (gradient * mesh.normals).sum(dim=1) if neumann else None
    return {
        "grad": (operators.grad(smooth(x), given) - gradient).norm(dim=1),
        "div": operators.div(gradient) - smooth_laplacian(x),
        "laplacian": operators.laplacian(smooth(x), given) - smooth_laplacian(x),
        "hessian": (operators.hessian(smooth(x), given) - smooth_hessian(x)).flatten(1).norm(dim=1),
    }


def inside(mesh: Mesh) -> Tensor:
    return ((mesh.points > 0.2) & (mesh.points < 0.8)).all(dim=1)


SIZES = {2: [12, 24, 48], 3: [8, 12, 18]}


def sizes_of(kind: str) -> list[int]:
    return SIZES[2] if kind in PLANE_TYPES else SIZES[3]


@pytest.mark.parametrize("shape", [lambda mesh: mesh, bent], ids=["regular", "bent"])
@pytest.mark.parametrize("kind", ["quad", "triangle", "hexahedron"])
def test_inside_a_regular_or_smoothly_bent_mesh_all_operators_are_of_second_order(kind, shape):
    sizes = sizes_of(kind)
    found = []
    for size in sizes:
        mesh = shape(walled(kind, size))
        found.append({name: rms(error[inside(mesh)]) for name, error in errors(mesh).items()})
    for name in ("grad", "div", "laplacian", "hessian"):
        assert order([each[name] for each in found], sizes) > 1.7, name


@pytest.mark.parametrize("jitter", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["quad", "tetrahedron"])
def test_up_to_the_boundary_and_on_jittered_meshes_grad_and_div_are_of_first_order(kind, jitter):
    sizes = sizes_of(kind)
    meshes = [walled(kind, size, jitter) for size in sizes]
    plain = [errors(mesh) for mesh in meshes]
    for name in ("grad", "div"):
        assert 0.75 < order([float(each[name].abs().max()) for each in plain], sizes) < 1.4, name
    conditioned = [errors(mesh, neumann=True)["grad"] for mesh in meshes]
    assert 0.75 < order([float(each.max()) for each in conditioned], sizes) < 1.4
    # What the normal derivative is for: the boundary is where the gradient is worst.
    for mesh, without, with_condition in zip(meshes, plain, conditioned, strict=True):
        boundary = mesh.boundary_points
        assert rms(with_condition[boundary]) < 0.8 * rms(without["grad"][boundary])


@pytest.mark.parametrize("neumann", [False, True])
def test_the_laplacian_at_the_boundary_stays_bounded_and_has_no_order(neumann):
    """Its error there is of order one in a strip that thins with the mesh, so the mean square converges with 1/2."""
    sizes = SIZES[2]
    found = [errors(walled("quad", size), neumann)["laplacian"] for size in sizes]
    assert abs(order([float(error.abs().max()) for error in found], sizes)) < 0.15
    assert 0.35 < order([rms(error) for error in found], sizes) < 0.6


def test_the_laplacian_of_a_jittered_mesh_is_wrong_in_proportion_to_the_jitter_at_every_resolution():
    """The fit of a fit: the gradient's first-order error is as rough as the mesh, and is divided by h once more."""
    sizes = SIZES[2]
    found = [rms(errors(mesh)["laplacian"][inside(mesh)]) for mesh in (walled("quad", n, 0.2) for n in sizes)]
    assert abs(order(found, sizes)) < 0.2
    jitters = [0.05, 0.1, 0.2]
    by_jitter = [rms(errors(mesh)["laplacian"][inside(mesh)]) for mesh in (walled("quad", 48, j) for j in jitters)]
    growth = np.polyfit(np.log(jitters), np.log(by_jitter), 1)[0]
    assert 0.8 < growth < 1.2


def averaged(mesh: Mesh, error: Tensor) -> Tensor:
    """The mean against a smooth bump in the middle of the mesh."""
    bump = (1 - (mesh.points - 0.5).square().sum(dim=1) / 0.16).clamp_min(0) ** 3 * mesh.point_volumes
    return (error * bump).sum() / bump.sum()


def test_averaged_over_a_jittered_mesh_the_gradient_is_of_second_order_and_the_laplacian_nearly_unbiased():
    sizes = SIZES[2]
    gradients, laplacians, pointwise = [], [], []
    for size in sizes:
        meshes = [walled("quad", size, 0.2, seed) for seed in range(8)]
        gradient = [
            averaged(m, Operators.on(m).grad(smooth(m.points))[:, 0] - smooth_gradient(m.points)[:, 0]) for m in meshes
        ]
        gradients.append(rms(torch.stack(gradient)))
        every = [errors(m)["laplacian"] for m in meshes]
        laplacians.append(rms(torch.stack([averaged(m, error) for m, error in zip(meshes, every, strict=True)])))
        pointwise.append(rms(every[0][inside(meshes[0])]))
    assert order(gradients, sizes) > 1.7
    # The errors of points nearly cancel, as the noise of h^(d/2) that they are; at this jitter a bias of some 1e-3
    # remains (of the jitter's fourth power: 3e-2 at 0.4).
    assert order(laplacians, sizes) > 0.7
    assert laplacians[-1] < 0.02 * pointwise[-1]


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


# Derivatives


def tiny(kind: str) -> Mesh:
    return walled(kind, 1, jitter=0.1) if kind in SOLID_TYPES else walled(kind, 2, jitter=0.1)


@pytest.mark.parametrize("method", ["grad", "div", "laplacian", "hessian"])
@pytest.mark.parametrize("kind", ["quad", "tetrahedron"])
def test_first_and_second_derivatives_by_the_field(kind, method):
    mesh = tiny(kind)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, mesh.space, 2, dtype=double, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(operators, method), field)
    assert torch.autograd.gradgradcheck(lambda x: getattr(operators, method)(torch.sin(x)), field)


@pytest.mark.parametrize("neumann", [None, ["left"], ["boundary"]])
@pytest.mark.parametrize("kind", ["quad", "mixed_plane", "tetrahedron", "hexahedron"])
def test_derivatives_by_the_positions_of_points_normals_included(kind, neumann):
    mesh = bent(tiny(kind))
    field = torch.randn(mesh.number_of_points, dtype=double)
    given = torch.randn(mesh.number_of_points, dtype=double)

    def through(points: Tensor) -> tuple[Tensor, ...]:
        operators = Operators.on(replace(mesh, points=points), neumann)
        return operators.grad(field, given), operators.laplacian(field, given), operators.neumann_lift

    positions = mesh.points.clone().requires_grad_()
    assert torch.autograd.gradcheck(through, positions, atol=1e-4)  # second differences over 1e-6
    fixed = Operators.on(mesh, neumann)
    for found, expected in zip(
        through(positions), (fixed.grad(field, given), fixed.laplacian(field, given), fixed.neumann_lift), strict=True
    ):
        assert_close(found.detach(), expected, rtol=0, atol=1e-12)


def test_second_derivatives_by_positions_and_field_together():
    mesh = bent(tiny("triangle"))
    positions = mesh.points.clone().requires_grad_()
    field = torch.randn(mesh.number_of_points, dtype=double, requires_grad=True)

    def energy(points: Tensor, values: Tensor) -> Tensor:
        return Operators.on(replace(mesh, points=points), ["boundary"]).grad(values).square().sum()

    assert torch.autograd.gradgradcheck(energy, (positions, field), atol=1e-4)


def test_a_mesh_made_of_points_that_require_gradients_keeps_them():
    mesh = walled("quad", jitter=0.1)
    points = mesh.points.clone().requires_grad_()
    made = Mesh.from_arrays(points, {"quad": mesh.connectivity.reshape(-1, 4)}).with_patches(
        {"left": mesh.patch("left").points}
    )
    Operators.on(made, "left", dtype=torch.float32).grad(torch.sin(made.points.detach()).float()).sum().backward()
    assert points.grad is not None
    assert (points.grad != 0).any()


# Precision, devices, tracing


@pytest.mark.parametrize("kind", ["quad", "hexahedron"])
def test_single_precision_is_the_double_one_rounded(kind):
    mesh = walled(kind, jitter=0.2)
    field = torch.sin(mesh.points)
    exact, rounded = Operators.on(mesh, ["left"]), Operators.on(mesh, ["left"], dtype=torch.float32)
    assert rounded.dtype == rounded.moment_inverse.dtype == rounded.neumann_lift.dtype == torch.float32
    assert torch.equal(rounded.gradient.values, exact.to(torch.float32).gradient.values)
    scale = exact.grad(field).abs().max()
    assert (rounded.grad(field.float()) - exact.grad(field)).abs().max() < 1e-5 * scale
    assert exact.to(double) is exact


def test_a_field_of_another_precision_or_size_is_refused_with_the_way_out():
    mesh = walled("quad")
    operators = Operators.on(mesh)
    with unchecked():
        with pytest.raises(ValueError, match=r"float32, the operators .* operators.to\(torch.float32\)"):
            operators.grad(torch.zeros(mesh.number_of_points))
        with pytest.raises(ValueError, match=rf"has {mesh.number_of_points} points .* got shape \[7\]"):
            operators.grad(torch.zeros(7, dtype=double))
        with pytest.raises(ValueError, match=r"shape \[points, 2, ...\]"):
            operators.div(torch.zeros(mesh.number_of_points, 3, dtype=double))
        with pytest.raises(ValueError, match=r"shape \[points, 2, ...\]"):
            operators.div(torch.zeros(mesh.number_of_points, dtype=double))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_under_autocast_half_precision_goes_in_and_single_comes_out(half):
    mesh = walled("quad")
    operators = Operators.on(mesh, ["left"], dtype=torch.float32)
    field = torch.sin(mesh.points).float().requires_grad_()
    with torch.autocast("cpu", dtype=half):
        linear_layer = torch.ones(2, 2) @ torch.ones(2, 2)
        assert linear_layer.dtype == half
        gradient = operators.grad(field.to(half), field.to(half))
        laplacian = operators.laplacian(field)
    assert gradient.dtype == laplacian.dtype == torch.float32
    assert_close(gradient, operators.grad(field.to(half).float(), field.to(half).float()))
    assert torch.autograd.grad(gradient.sum(), field)[0].isfinite().all()
    with (
        unchecked(),
        torch.autocast("cpu", dtype=half),
        pytest.raises(ValueError, match=r"operators are torch.float64"),
    ):
        Operators.on(mesh).grad(field.to(half))


def test_operators_compile_whole_with_their_backward():
    meshes = [walled("quad", size, jitter=0.1) for size in (3, 5, 6)]

    def energy(operators: Operators, field: Tensor, given: Tensor) -> Tensor:
        return torch.tanh(operators.laplacian(field, given)).square().sum()

    compiled = torch.compile(energy, fullgraph=True, backend="aot_eager", dynamic=True)

    def check(mesh: Mesh, channels: int) -> None:
        operators = Operators.on(mesh, ["left"])
        field = torch.randn(mesh.number_of_points, channels, dtype=double, requires_grad=True)
        given = torch.ones_like(field)
        expected, found = energy(operators, field, given), compiled(operators, field, given)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found, field), torch.autograd.grad(expected, field))

    check(meshes[0], 3)
    with torch.compiler.set_stance("fail_on_recompile"):
        check(meshes[1], 5)
        check(meshes[2], 7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # inductor's own
def test_operators_compile_to_machine_code():
    mesh = walled("quad", 5, jitter=0.1)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, 4, dtype=double, requires_grad=True)
    compiled = torch.compile(lambda x: torch.tanh(operators.laplacian(torch.sin(x))), fullgraph=True)
    expected = torch.tanh(operators.laplacian(torch.sin(field)))
    assert_close(compiled(field), expected)
    assert_close(torch.autograd.grad(compiled(field).sum(), field), torch.autograd.grad(expected.sum(), field))


class Flux(torch.nn.Module):
    """Takes a mesh's matrices as inputs, as a network does that is exported once for all meshes."""

    def forward(self, gradient, divergence, field):
        lift = field.new_zeros(field.shape[0], 2)
        operators = Operators(gradient, divergence, gradient, field.new_zeros(field.shape[0], 2, 2), lift)
        return operators.div(torch.tanh(operators.grad(field)))


def test_operators_export_with_free_numbers_of_points_edges_and_channels():
    class FromTensors(torch.nn.Module):
        def forward(self, tensors, field):
            from pennpde.operators.sparse import SparseMatrix

            tall_starts, tall_columns, wide_starts, wide_columns, straight, across, wide, tall = tensors
            gradient = SparseMatrix(tall_starts, tall_columns, straight, wide_starts, wide_columns, across)
            divergence = SparseMatrix(wide_starts, wide_columns, wide, tall_starts, tall_columns, tall)
            return Flux()(gradient, divergence, field)

    def tensors(operators: Operators) -> list[Tensor]:
        gradient, divergence = operators.gradient, operators.divergence
        return [
            gradient.row_starts,
            gradient.columns,
            gradient.transposed_row_starts,
            gradient.transposed_columns,
            gradient.values,
            gradient.transposed_values,
            divergence.values,
            divergence.transposed_values,
        ]

    mesh, other = walled("quad", 3, jitter=0.1), walled("triangle", 5, jitter=0.1)
    operators = Operators.on(mesh)
    free = torch.export.Dim.DYNAMIC
    exported = torch.export.export(
        FromTensors(),
        (tensors(operators), torch.randn(mesh.number_of_points, 3, dtype=double)),
        dynamic_shapes=([{0: free}] * 8, {0: free, 1: free}),
    )
    operators = Operators.on(other)
    field = torch.randn(other.number_of_points, 5, dtype=double)
    found = exported.module()(tensors(operators), field)
    assert_close(found, operators.div(torch.tanh(operators.grad(field))))


def test_operators_export_as_constants_of_a_network(tmp_path):
    mesh = walled("quad", 3)

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.operators = Operators.on(mesh, ["left"], dtype=torch.float32)

        def forward(self, field):
            return self.operators.grad(torch.sin(field))

    field = torch.randn(mesh.number_of_points, 4)
    free = torch.export.Dim.DYNAMIC
    exported = torch.export.export(Network(), (field,), dynamic_shapes=({1: free},))
    torch.export.save(exported, tmp_path / "network.pt2")
    read = torch.export.load(tmp_path / "network.pt2").module()
    more = torch.randn(mesh.number_of_points, 9)
    assert_close(read(more), Network()(more))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, double])
@pytest.mark.parametrize("kind", ["quad", "tetrahedron", "hexahedron"])
def test_the_gpu_computes_what_the_cpu_computes(kind, dtype):
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    mesh = walled(kind, 5, jitter=0.2)
    here = Operators.on(mesh, ["left"], dtype=dtype)
    there = Operators.on(mesh, ["left"], dtype=dtype, device="cuda")
    for channels in (1, 5, 16, 70):
        field = torch.randn(mesh.number_of_points, mesh.space, channels, dtype=dtype)
        on_device = field.cuda().requires_grad_()
        field.requires_grad_()
        for method in ("grad", "div", "laplacian", "hessian"):
            expected, found = getattr(here, method)(field), getattr(there, method)(on_device)
            tolerance = {torch.float32: 1e-5, double: 1e-13}[dtype] * float(expected.abs().max())
            assert_close(found.cpu(), expected, rtol=0, atol=tolerance)
            cotangent = torch.randn_like(expected)
            (back,) = torch.autograd.grad(expected, field, cotangent)
            (back_there,) = torch.autograd.grad(found, on_device, cotangent.cuda())
            assert_close(back_there.cpu(), back, rtol=0, atol=2 * tolerance * float(cotangent.abs().max()))


def test_matrices_share_their_index_tensors_also_after_conversion_and_in_batches():
    operators = Operators.on(walled("quad"))
    for each in (operators, operators.to(torch.float32), Operators.block_diagonal([operators, operators])):
        assert each.gradient.columns is each.divergence.transposed_columns
        assert each.gradient.transposed_columns is each.divergence.columns


# Batches


@pytest.mark.parametrize("dtype", [torch.float32, double])
@pytest.mark.parametrize("kinds", [("quad", "triangle", "polygon"), ("hexahedron", "tetrahedron", "wedge")])
def test_meshes_side_by_side_give_what_they_give_one_by_one_bit_for_bit(kinds, dtype):
    meshes = [walled(kind, 2 + number, jitter=0.2) for number, kind in enumerate(kinds)]
    separate = [Operators.on(mesh, ["left"], dtype=dtype) for mesh in meshes]
    together = Operators.block_diagonal(separate)
    fields = [torch.randn(mesh.number_of_points, mesh.space, 3, dtype=dtype) for mesh in meshes]
    for method in ("grad", "div", "laplacian", "hessian"):
        expected = [getattr(operators, method)(field) for operators, field in zip(separate, fields, strict=True)]
        assert torch.equal(getattr(together, method)(torch.cat(fields)), torch.cat(expected))
    assembled = Operators.on(Mesh.concatenate(meshes), ["left"], dtype=dtype)
    assert torch.equal(assembled.grad(torch.cat(fields)), together.grad(torch.cat(fields)))
    assert Operators.block_diagonal(separate[:1]) is separate[0]


def test_unknowns_may_share_one_graph():
    mesh = walled("hexahedron")
    graph = PointGraph.of(mesh.edges, mesh.number_of_points, mesh.space)
    normals = mesh.point_normals(["left"])
    one = Operators.from_normals(mesh.points, graph, normals)
    other = Operators.from_normals(mesh.points, graph, torch.zeros_like(normals))
    assert one.gradient.columns is other.gradient.columns
    assert torch.equal(one.gradient.values, Operators.on(mesh, ["left"]).gradient.values)


# The matrices themselves


def test_gradient_matrices_are_the_gradient_axis_by_axis():
    mesh = walled("tetrahedron", jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, dtype=double)
    found = np.stack([matrix @ field.numpy() for matrix in operators.gradient_matrices()], axis=1)
    assert_close(torch.from_numpy(found), operators.grad(field), rtol=0, atol=1e-13)
    for matrix in operators.gradient_matrices():
        assert abs(matrix.sum(axis=1)).max() < 1e-13  # a constant has no gradient
        assert matrix.has_sorted_indices


def test_stored_transposes_are_transposes():
    operators = Operators.on(walled("mixed_solid", jitter=0.2), ["left"])
    for matrix in (operators.gradient, operators.divergence):
        assert abs(matrix.transposed.to_scipy() - matrix.to_scipy().T).max() == 0


def test_the_divergence_is_the_sum_of_the_gradient_matrices():
    mesh = walled("wedge", jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, 3, dtype=double)
    expected = sum(matrix @ field[:, axis].numpy() for axis, matrix in enumerate(operators.gradient_matrices()))
    assert_close(operators.div(field).numpy(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["quad", "tetrahedron"])
def test_the_composed_laplacian_is_div_of_grad_with_fewer_entries(kind):
    mesh = walled(kind, 5, jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    composed = operators.composed()
    field = torch.randn(mesh.number_of_points, 2, dtype=double, requires_grad=True)
    expected = operators.div(operators.grad(field))
    assert torch.equal(operators.laplacian(field), expected)
    scale = float(expected.detach().abs().max())
    assert_close(composed.laplacian(field), expected, rtol=0, atol=1e-13 * scale)
    back = [torch.autograd.grad(each.laplacian(field).square().sum(), field)[0] for each in (operators, composed)]
    assert_close(*back, rtol=1e-11, atol=1e-11 * float(back[0].abs().max()))
    given = torch.ones_like(field)
    assert_close(composed.laplacian(field, given), operators.laplacian(field, given), rtol=0, atol=1e-13 * scale)
    assert composed.composed() is composed
    assert composed.composed_laplacian.values.numel() < 2 * operators.gradient.values.numel()
    for changed in (composed.scaled(0.5), Operators.block_diagonal([composed, composed]).scaled(0.5)):
        twice = torch.cat([field] * (changed.number_of_points // mesh.number_of_points))
        assert_close(changed.laplacian(twice), changed.div(changed.grad(twice)), rtol=0, atol=1e-13 * scale)
    assert Operators.block_diagonal([composed, operators]).composed_laplacian is None
    assert composed.to(torch.float32).composed_laplacian.values.dtype == torch.float32
    with pytest.raises(ValueError, match=r"composed with a damping of 0 .*, asked for is 0\.25"):
        composed.composed(damping=0.25)


@pytest.mark.parametrize("kind", ["quad", "triangle", "tetrahedron"])
@pytest.mark.parametrize("damping", [0.25, 1.0])
def test_the_damped_laplacian_vanishes_on_linear_fields_up_to_the_boundary(kind, damping):
    mesh = walled(kind, 5, jitter=0.2)
    patches = list(mesh.patches)
    operators = Operators.on(mesh, patches).composed(damping)
    slope = torch.arange(1.0, 1 + mesh.space, dtype=double)
    laplacian = operators.laplacian(mesh.points @ slope, mesh.point_normals(patches) @ slope)
    assert_close(laplacian, torch.zeros_like(laplacian), rtol=0, atol=1e-9)  # entries reach 1e3


def test_damping_makes_every_mode_decay_that_div_of_grad_lets_grow():
    mesh = walled("quad", 8, jitter=0.2).with_patches({"others": lambda x: (x[:, 0] > 1 - 1e-9) | (x[:, 1] % 1 == 0)})
    free = np.setdiff1d(np.arange(mesh.number_of_points), mesh.patch("left").points)
    operators = Operators.on(mesh, ["others"])

    def fastest(damping: float) -> float:
        matrix = operators.composed(damping).composed_laplacian.to_scipy().toarray()
        return float(np.linalg.eigvals(matrix[np.ix_(free, free)]).real.max())

    assert fastest(0.0) > 0.1
    # One side held, the others insulated: the slowest mode of the unit square decays with (pi / 2)^2. The boundary
    # is of first order, so on eight cells that is roughly so.
    assert -1.5 * (np.pi / 2) ** 2 < fastest(0.25) < -0.5 * (np.pi / 2) ** 2


def test_no_point_of_a_bad_mesh_feeds_its_own_value():
    """Sheared and split along random diagonals: some points have so few neighbours that plain damping is too weak."""
    grid = walled("quad", 10, jitter=0.2).with_patches({"others": lambda x: (x[:, 0] > 1 - 1e-9) | (x[:, 1] % 1 == 0)})
    mesh = replace(grid, points=grid.points + 1.2 * grid.points[:, 1:] * torch.tensor([1.0, 0.0])).triangulated(1.0, 0)
    free = np.setdiff1d(np.arange(mesh.number_of_points), mesh.patch("left").points)
    operators = Operators.on(mesh, ["others"])
    plain, damped = (operators.composed(damping).composed_laplacian.to_scipy() for damping in (0.0, 0.25))
    assert plain.diagonal().max() > 0
    assert damped.diagonal().max() < 0
    assert np.linalg.eigvals(damped.toarray()[np.ix_(free, free)]).real.max() < -1.0
    more = operators.composed(Damping(0.25, smallest_decay=0.4)).composed_laplacian.to_scipy()
    assert (more.diagonal() <= damped.diagonal()).all()
    # Where div(grad) takes less than 0.1 of the roughness, the two together take 0.25 + 0.1 of it, or 0.25 + 0.4.
    assert more.diagonal().max() == pytest.approx(0.65 / 0.35 * damped.diagonal().max())
    assert operators.composed(Damping(0.25, smallest_decay=0.4)) is not operators.composed(0.25)


def test_operators_that_were_composed_for_a_prediction_serve_a_training():
    mesh = walled("quad", 4)
    operators = Operators.on(mesh)
    with torch.inference_mode():
        operators.composed(0.25)
    field = torch.randn(mesh.number_of_points, dtype=double, requires_grad=True)
    operators.composed(0.25).laplacian(field).square().sum().backward()
    assert field.grad is not None


def test_each_mesh_is_composed_once_whatever_batches_and_precisions_it_goes_through(monkeypatch):
    composed, multiply = [], Operators._multiplied_out
    monkeypatch.setattr(
        Operators, "_multiplied_out", lambda self, damping: composed.append(damping) or multiply(self, damping)
    )
    parts = [Operators.on(walled("quad", cells, jitter=0.2), ["left"]) for cells in (3, 4)]
    fields = [torch.randn(each.number_of_points, 2, dtype=double) for each in parts]
    alone = torch.cat([each.composed(0.25).laplacian(field) for each, field in zip(parts, fields, strict=True)])
    for _ in range(2):
        together = Operators.block_diagonal(parts).composed(0.25)
        assert_close(together.laplacian(torch.cat(fields)), alone, rtol=0, atol=1e-12 * float(alone.abs().max()))
    single = [each.to(torch.float32) for each in parts]
    found = Operators.block_diagonal(single).composed(0.25).laplacian(torch.cat(fields).float())
    assert_close(found.double(), alone, rtol=0, atol=1e-5 * float(alone.abs().max()))
    assert composed == [Damping(0.25)] * 2


def test_the_damped_laplacian_still_converges():
    """Inside a regular mesh, where div of grad is of second order, the damping takes none of it away."""
    errors = []
    for cells in (8, 16, 32):
        mesh = walled("quad", cells)
        x, y = mesh.points.T
        field = torch.sin(2 * x) * torch.exp(y)
        inside = ((mesh.points - 0.5).abs() < 0.3).all(dim=1)
        laplacian = Operators.on(mesh).composed(0.25).laplacian(field)
        errors.append(float((laplacian + 3 * field)[inside].abs().max()))
    assert errors[0] / errors[1] > 3.5
    assert errors[1] / errors[2] > 3.5


def test_scaled_operators_have_another_unit_of_length():
    mesh = walled("quad", jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    field, given = torch.randn(2, mesh.number_of_points, dtype=double)
    half = operators.scaled(0.5)
    assert torch.equal(half.grad(field, given), 0.5 * operators.grad(field, given))
    assert torch.equal(half.laplacian(field, given), 0.25 * operators.laplacian(field, given))


def test_matrices_from_elsewhere_become_the_same_operators():
    mesh = walled("mixed_plane", 4, jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    again = Operators.from_matrices(
        operators.gradient_matrices(),
        moment_inverse=operators.moment_inverse,
        neumann_lift=operators.neumann_lift,
    )
    field, given = torch.randn(2, mesh.number_of_points, 2, 3, dtype=double)
    for method in ("grad", "div", "laplacian"):
        arguments = (field,) if method == "div" else (field, given)
        assert torch.equal(getattr(again, method)(*arguments), getattr(operators, method)(*arguments))


def test_matrices_from_elsewhere_need_not_be_symmetric_in_pattern_nor_of_one_precision():
    generator = np.random.default_rng(0)
    matrices = [
        scipy.sparse.random_array((9, 9), density=0.2, rng=generator).astype(np.float32).tocsr() for _ in range(2)
    ]
    operators = Operators.from_matrices(matrices, moment_inverse=torch.zeros(9, 2, 2, dtype=double))
    field = torch.randn(9, 4)
    expected = np.stack([matrix @ field.numpy() for matrix in matrices], axis=1)
    assert_close(operators.grad(field).numpy(), expected)
    assert operators.moment_inverse.dtype == operators.gradient.values.dtype == torch.float32
    field = torch.randn(9, 2, requires_grad=True)
    (back,) = torch.autograd.grad(operators.grad(field), field, torch.ones(9, 2, 2))
    assert_close(back.numpy()[:, 0], sum(matrix.T @ np.ones(9, dtype=np.float32) for matrix in matrices))


# What cannot work


def flat_sheet_in_space() -> tuple[Tensor, np.ndarray]:
    mesh = walled("quad", 3)
    return torch.nn.functional.pad(mesh.points, (0, 1)), mesh.edges


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


def test_gradients_by_positions_pass_by_a_singular_point():
    points, edges = flat_sheet_in_space()
    points[0, 2] = 0.3  # the neighbours of point 0 span the space, and so does it for each of its neighbours
    points.requires_grad_()
    field = torch.sin(points.detach()).sum(dim=1)
    operators = Operators.from_normals(points, edges, torch.zeros_like(points), singular="pseudoinverse")
    (back,) = torch.autograd.grad(operators.grad(field).square().sum(), points)
    assert back.isfinite().all()
    assert (back != 0).any()


def test_a_graph_that_is_not_symmetric_is_refused():
    mesh = walled("quad")
    for edges in (mesh.edges[:, 1:], mesh.edges[:, ::-1], np.repeat(mesh.edges, 2, axis=1)):
        with pytest.raises(ValueError, match="not those of a symmetric graph"):
            Operators.from_normals(mesh.points, edges, torch.zeros_like(mesh.points))
