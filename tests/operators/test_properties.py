"""Laws of the operators, over random small meshes of every cell type with random Neumann boundaries."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from meshes import ALL_TYPES, PLANE_TYPES, SOLID_TYPES, box
from motions import random_orthogonal
from pennpde.mesh import Mesh
from pennpde.mesh.mesh import turned
from pennpde.operators import Operators
from sampling import EXAMPLES

double = torch.float64
some = settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)


@st.composite
def meshes(draw: st.DrawFn, kinds: tuple[str, ...] = ALL_TYPES) -> Mesh:
    """A box of any cell type, jittered, stretched along its axes, with a patch "some" of random facets."""
    mesh = box(draw(st.sampled_from(kinds)), draw(st.integers(2, 3)), draw(st.floats(0.0, 0.25)), draw(seeds))
    stretch = draw(st.lists(st.floats(0.4, 2.5), min_size=mesh.space, max_size=mesh.space))
    mesh = replace(mesh, points=mesh.points * torch.tensor(stretch, dtype=double))
    number = len(mesh.facets)
    chosen = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=number, unique=True))
    facets = np.split(mesh.facets.connectivity, mesh.facets.offsets[1:-1])
    return mesh.with_patch_facets({"some": [facets[facet].tolist() for facet in sorted(chosen)]})


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=double)


def assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert (found - expected).norm() <= tolerance * expected.norm()


@some
@given(meshes(), seeds)
def test_linear_fields_have_exact_gradients_with_and_without_conditions(mesh, seed):
    slope = random(seed, mesh.space, 2)
    field = mesh.points @ slope + 3.0
    plain = Operators.on(mesh).grad(field)
    assert_close(plain, slope.expand_as(plain), rtol=0, atol=1e-11)
    conditioned = Operators.on(mesh, ["some"]).grad(field, mesh.point_normals(["some"]) @ slope)
    assert_close(conditioned, slope.expand_as(conditioned), rtol=0, atol=1e-11)


@some
@given(meshes(), seeds)
def test_the_trace_of_the_gradient_is_the_divergence_and_of_the_hessian_the_laplacian(mesh, seed):
    operators = Operators.on(mesh, ["some"])
    vector, given_derivative = random(seed, 2, mesh.number_of_points, mesh.space)
    trace = operators.grad(vector).diagonal(dim1=1, dim2=2).sum(dim=1)
    assert_near(operators.div(vector), trace, 1e-13)
    scalar, derivative = vector[:, 0], given_derivative[:, 0]
    trace = operators.hessian(scalar, derivative).diagonal(dim1=1, dim2=2).sum(dim=1)
    assert_near(operators.laplacian(scalar, derivative), trace, 1e-12)


@some
@given(meshes(), seeds, st.booleans())
def test_a_rigid_motion_turns_all_results(mesh, seed, reflection):
    motion = random_orthogonal(mesh.space, seed, reflection=reflection)
    moved = mesh.moved(motion, 2 * torch.rand(mesh.space, dtype=double, generator=torch.Generator().manual_seed(seed)))
    here, there = Operators.on(mesh, ["some"]), Operators.on(moved, ["some"])
    scalar, vector = random(seed, mesh.number_of_points, 2), random(seed, mesh.number_of_points, mesh.space)
    derivative = random(seed + 1, mesh.number_of_points, 2)
    assert_near(there.grad(scalar, derivative), turned(here.grad(scalar, derivative), motion, 1), 1e-12)
    assert_near(there.grad(turned(vector, motion, 1)), turned(here.grad(vector), motion, 2), 1e-12)
    assert_near(there.div(turned(vector, motion, 1)), here.div(vector), 1e-12)
    assert_near(there.laplacian(scalar, derivative), here.laplacian(scalar, derivative), 1e-12)
    assert_near(there.hessian(scalar), turned(here.hessian(scalar), motion, 2), 1e-12)


@some
@given(meshes(), seeds)
def test_the_numbering_of_points_does_not_matter(mesh, seed):
    order = np.random.default_rng(seed).permutation(mesh.number_of_points)
    edges = np.argsort(order)[mesh.edges]
    edges = edges[:, np.lexsort((edges[1], edges[0]))]
    normals = mesh.point_normals(["some"])
    renumbered = Operators.from_normals(mesh.points[order], edges, normals[order])
    operators = Operators.on(mesh, ["some"])
    field = random(seed, mesh.number_of_points, mesh.space)
    for method in ("grad", "div", "laplacian"):
        assert_near(getattr(renumbered, method)(field[order]), getattr(operators, method)(field)[order], 1e-12)


@some
@given(meshes(), seeds)
def test_backward_is_the_adjoint_of_forward(mesh, seed):
    operators = Operators.on(mesh, ["some"])
    field = random(seed, mesh.number_of_points, mesh.space, 2).requires_grad_()
    for method in ("grad", "div", "laplacian"):
        result = getattr(operators, method)(field)
        cotangent = random(seed + 1, *result.shape)
        (back,) = torch.autograd.grad(result, field, cotangent)
        size = result.norm() * cotangent.norm()
        assert ((back * field).sum() - (result * cotangent).sum()).abs() <= 1e-13 * size


@some
@given(meshes())
def test_moment_inverses_are_symmetric_and_positive_and_constants_have_no_gradient(mesh):
    operators = Operators.on(mesh, ["some"])
    inverse = operators.moment_inverse
    assert_near(inverse.mT, inverse, 1e-12)
    assert (torch.linalg.eigvalsh(inverse) > 0).all()
    constant = torch.full((mesh.number_of_points,), 7.0, dtype=double)
    assert operators.grad(constant).abs().max() < 1e-11


@some
@given(meshes(), st.floats(1e-3, 1e3), seeds)
def test_lengths_come_out_as_they_went_in(mesh, factor, seed):
    field = random(seed, mesh.number_of_points)
    there = Operators.on(replace(mesh, points=factor * mesh.points), ["some"])
    assert_near(factor * there.grad(field), Operators.on(mesh, ["some"]).grad(field), 1e-12)


def check_batch(parts: list[Mesh], seed: int) -> None:
    separate = [Operators.on(mesh, ["some"]) for mesh in parts]
    fields = [random(seed, mesh.number_of_points, mesh.space) for mesh in parts]
    for together in (Operators.block_diagonal(separate), Operators.on(Mesh.concatenate(parts), ["some"])):
        for method in ("grad", "div", "laplacian"):
            expected = [getattr(operators, method)(field) for operators, field in zip(separate, fields, strict=True)]
            assert torch.equal(getattr(together, method)(torch.cat(fields)), torch.cat(expected))


@some
@given(st.lists(meshes(PLANE_TYPES), min_size=2, max_size=3), seeds)
def test_plane_meshes_in_a_batch_do_not_see_each_other(parts, seed):
    check_batch(parts, seed)


@settings(some, max_examples=EXAMPLES // 2)
@given(st.lists(meshes(SOLID_TYPES), min_size=2, max_size=3), seeds)
def test_meshes_in_space_in_a_batch_do_not_see_each_other(parts, seed):
    check_batch(parts, seed)
