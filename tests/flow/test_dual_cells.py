"""Dual cells: what they are exact on and conserve; the two solvers on top of them and their derivatives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from meshes import arrays
from pennpde.flow import krylov
from pennpde.flow.dual_cells import DualCells, product
from pennpde.flow.pressure import poisson, side_by_side, stiffness_of, usual_way
from pennpde.mesh import Mesh
from pennpde.mesh.splitting import PlaneCells

PLANE = ("triangle", "quad", "mixed_plane")


def plane_cells(kind: str, cells_along: int = 6, jitter: float = 0.2) -> PlaneCells:
    points, cells = arrays(kind, cells_along, jitter=jitter)
    return PlaneCells.of(Mesh.from_arrays(points, cells))


def cells_of(kind: str, cells_along: int = 6, jitter: float = 0.2) -> DualCells:
    plane = plane_cells(kind, cells_along, jitter)
    return DualCells.of(plane.points, (plane.triangles, plane.quads))


@pytest.mark.parametrize("kind", PLANE)
def test_the_gradient_of_a_linear_vector_field_is_exact(kind):
    plane, cells = plane_cells(kind), cells_of(kind)
    slope = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    field = slope.T @ torch.from_numpy(plane.points.T)
    expected = slope.T[:, :, None].expand(2, 2, len(plane.points))
    assert_close(cells.slope(field), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", PLANE)
def test_faces_of_an_interior_cell_close(kind):
    """A uniform flow brings as much into a dual cell as it takes out."""
    plane, cells = plane_cells(kind), cells_of(kind)
    inside = np.setdiff1d(np.arange(len(plane.points)), plane.facets)
    assert_close(
        cells.collected(cells.faces)[:, inside], torch.zeros(2, len(inside), dtype=torch.float64), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("kind", PLANE)
def test_the_matrix_is_its_formula(kind):
    cells = cells_of(kind)
    generator = torch.Generator().manual_seed(1)
    diagonal, field = (torch.rand(cells.number_of_points, generator=generator, dtype=torch.float64) for _ in range(2))
    symmetric, skew = (torch.rand(len(cells.first), generator=generator, dtype=torch.float64) for _ in range(2))
    along = cells.difference(field)
    expected = diagonal * field
    expected = expected.index_add(0, cells.first, (skew - symmetric) * along)
    expected = expected.index_add(0, cells.second, (-skew - symmetric) * -along)
    matrix = cells.matrix(diagonal, symmetric, skew)
    assert_close(matrix @ field[:, None], expected[:, None])
    assert_close(matrix.transposed @ field[:, None], torch.from_numpy(matrix.to_scipy().T @ field.numpy())[:, None])


@pytest.mark.parametrize("kind", PLANE)
def test_splitting_keeps_area_points_and_boundary(kind):
    plane = plane_cells(kind)
    split = plane.split()
    whole, parts = (DualCells.of(each.points, (each.triangles, each.quads)) for each in (plane, split))
    assert_close(parts.areas.sum(), whole.areas.sum())
    assert (split.points[: len(plane.points)] == plane.points).all()
    assert len(split.facets) == 2 * len(plane.facets)
    middle = split.facets[0::2, 1]
    assert np.allclose(split.points[middle], plane.points[plane.facets].mean(axis=1))


def test_neighbours_that_meet_twice_around_a_period_are_one():
    """A channel that is periodic in x: the gradient of sin 2πx does not see the seam."""
    points, cells = arrays("quad", 16)
    mesh = Mesh.from_arrays(points, cells)
    positions = mesh.points.numpy()
    partner = np.arange(len(positions))
    for place in np.flatnonzero(np.isclose(positions[:, 0], 1.0)):
        partner[place] = np.flatnonzero(np.isclose(positions, [0.0, positions[place, 1]]).all(axis=1))[0]
    stands, places = np.unique(partner, return_inverse=True)
    plane = PlaneCells.of(mesh)
    closed = DualCells.of(plane.points, (plane.triangles, plane.quads), places)
    x = torch.from_numpy(positions[stands, 0])
    found = closed.slope(torch.sin(2 * torch.pi * x))[0]
    # Of second order with 16 cells, and alike at all points with the same x, seam or not.
    assert float((found - 2 * torch.pi * torch.cos(2 * torch.pi * x)).abs().max()) < 0.2
    assert_close(found[x == 0.0], found[(x - 0.5).abs() < 1e-9].neg(), rtol=0, atol=1e-9)


def curved(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A velocity of second degree without divergence, and its gradient, the axis of the derivative second."""
    x, y = positions
    velocity = torch.stack([x**2 + y**2, -2 * x * y + 3 * x**2])
    slopes = torch.stack([torch.stack([2 * x, 2 * y]), torch.stack([-2 * y + 6 * x, -2 * x])])
    return velocity, slopes


@pytest.mark.parametrize(
    ("kind", "jitter", "off"), [("triangle", 0.2, 1e-12), ("quad", 0.0, 1e-12), ("quad", 0.2, 0.1)]
)
def test_what_a_velocity_of_second_degree_makes_flow_is_exact(kind, jitter, off):
    """On cells inside what flows in flows out, on crooked quads nearly. Of a straight one it does on squares only."""
    points, dual = plane_cells(kind, 8, jitter).points, cells_of(kind, 8, jitter)
    # Derivatives are exact here, also at walls.
    bending = replace(dual.curvature, heights=torch.full_like(dual.curvature.heights, 1 / 8))
    velocity, slopes = curved(torch.from_numpy(points.T.copy()))
    here, there = (
        dual.offsets[0] * slopes[:, 0].index_select(1, ends) + dual.offsets[1] * slopes[:, 1].index_select(1, ends)
        for ends in (dual.first, dual.second)
    )
    inside = ((points > 1e-9) & (points < 1 - 1e-9)).all(axis=1)
    straight = (dual.faces * dual.mean(velocity)).sum(dim=0)
    left = [dual.collected(each)[inside].norm() for each in (straight, straight + bending.fluxes(here, there))]
    assert float(left[0]) > 1e-4 or not jitter
    assert float(left[1]) <= off * float(left[0]) + 1e-12


def test_edges_that_end_at_the_boundary_have_twice_the_height():
    cells = cells_of("quad", 4)
    x, y = torch.from_numpy(plane_cells("quad", 4).points).T
    outside = (x < 1e-9) | (x > 1 - 1e-9) | (y < 1e-9) | (y > 1 - 1e-9)
    across = outside[cells.first] ^ outside[cells.second]
    assert_close(cells.curvature.heights, torch.where(across, 0.25, 0.125).double())


def test_the_curvature_of_meshes_side_by_side_is_that_of_each():
    parts = [cells_of(kind, 5) for kind in PLANE]
    both = DualCells.side_by_side(parts)
    here, there = torch.randn(2, 2, len(both.first), dtype=torch.float64)
    edges = [len(part.first) for part in parts]
    apart = [
        part.curvature.fluxes(one, other)
        for part, one, other in zip(parts, here.split(edges, 1), there.split(edges, 1), strict=True)
    ]
    assert_close(both.curvature.fluxes(here, there), torch.cat(apart))


WAYS = ("factors", "inverse", "levels")


@pytest.mark.parametrize("way", WAYS)
def test_the_pressure_equation_is_solved_and_its_derivative_is_a_solution(way):
    cells = cells_of("mixed_plane", 20)
    held = np.zeros(cells.number_of_points, bool)
    held[:3] = True
    solver = poisson(cells, held, way=way, cycles=14)
    right = torch.randn(cells.number_of_points, dtype=torch.float64, requires_grad=True)
    found = solver.solve(right, torch.zeros_like(right))
    left = torch.from_numpy(stiffness_of(cells) @ found.detach().numpy()) - right
    # Fourteen cycles of multigrid leave about a millionth.
    assert float(left.detach()[3:].norm()) < (1e-4 if way == "levels" else 1e-10) * float(right.detach().norm())
    assert (found[:3] == 0).all()
    weights = torch.randn(len(right), dtype=torch.float64)
    (derivative,) = torch.autograd.grad(found @ weights, right)
    assert_close(derivative, solver.solve(weights, torch.zeros_like(weights)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_the_pressures_of_a_batch_are_those_of_its_meshes(way):
    parts = [cells_of("mixed_plane", 20), cells_of("triangle", 14)]
    solvers = []
    for cells in parts:
        held = np.zeros(cells.number_of_points, bool)
        held[0] = True
        solvers.append(poisson(cells, held, way=way))
    rights = [torch.randn(cells.number_of_points, dtype=torch.float64) for cells in parts]
    together = side_by_side(solvers).solve(torch.cat(rights), torch.zeros_like(torch.cat(rights)))
    alone = [solver.solve(right, torch.zeros_like(right)) for solver, right in zip(solvers, rights, strict=True)]
    assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)


def test_the_way_follows_from_size_and_device_and_a_batch_has_one():
    assert [usual_way(points, "cpu") for points in (3_000, 60_001)] == ["factors", "levels"]
    assert [usual_way(points, "cuda") for points in (3_000, 16_001)] == ["inverse", "levels"]
    cells = cells_of("triangle", 3)
    held = np.arange(cells.number_of_points) == 0
    with pytest.raises(ValueError, match="in one way, but these are Factorised, Multigrid"):
        side_by_side([poisson(cells, held, way=way) for way in ("factors", "levels")])


def test_equations_that_are_not_symmetric_are_solved_with_derivatives():
    cells = cells_of("triangle", 3)
    generator = torch.Generator().manual_seed(2)
    free = torch.ones(cells.number_of_points, dtype=torch.float64)
    free[:2] = 0.0

    def solution(symmetric, skew, right, guess):
        matrix = cells.matrix(torch.ones_like(cells.areas), symmetric, skew)
        effort = krylov.Effort(1e-13, most=200)
        return krylov.solve(cells, matrix, right, guess, lambda values: values * free, effort)[0]

    edges, points = len(cells.first), cells.number_of_points
    inputs = [
        torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((edges,), (edges,), (2, points), (2, points))
    ]
    found = solution(*inputs).detach()
    assert_close(found[:, :2], inputs[3].detach()[:, :2])
    matrix = cells.matrix(torch.ones_like(cells.areas), inputs[0].detach(), inputs[1].detach())
    assert_close(product(matrix, found)[:, 2:], inputs[2].detach()[:, 2:], rtol=0, atol=1e-10)
    assert torch.autograd.gradcheck(solution, inputs, atol=1e-5)


def test_iterations_without_a_look_give_the_same_solution():
    """A mesh that has converged waits for nothing: further iterations leave it as it is."""
    cells = DualCells.side_by_side([cells_of("triangle", 3), cells_of("quad", 4)])
    generator = torch.Generator().manual_seed(3)
    symmetric, skew = (torch.rand(len(cells.first), generator=generator, dtype=torch.float64) for _ in range(2))
    matrix = cells.matrix(torch.ones_like(cells.areas), symmetric, skew)
    right = torch.rand(2, cells.number_of_points, generator=generator, dtype=torch.float64)
    right[:, cells.owner == 0] = 0.0
    nothing = torch.zeros_like(right)
    (looked, left), (blind, _), (_, too_much) = (
        krylov.solve(cells, matrix, right, nothing, lambda values: values, krylov.Effort(1e-9, most, look))
        for most, look in ((200, 1), (200, 0), (2, 0))
    )
    assert_close(blind, looked, rtol=0, atol=0)
    assert float(left.max()) <= 1.0 < float(too_much[1])
    assert not blind[:, cells.owner == 0].any()


def test_a_batch_is_its_meshes_side_by_side():
    parts = [cells_of("triangle", 4), cells_of("quad", 5)]
    both = DualCells.side_by_side(parts)
    fields = [torch.randn(2, part.number_of_points, dtype=torch.float64) for part in parts]
    together = torch.cat(fields, dim=-1)
    slopes = [part.slope(field) for part, field in zip(parts, fields, strict=True)]
    assert_close(both.slope(together), torch.cat(slopes, dim=-1))
    assert_close(both.total(together), torch.stack([field.sum() for field in fields]))


def test_polygons_are_filled_by_triangles_around_their_centre_or_a_corner():
    """A hexagon, and an L whose centroid does not see all of its edges well."""
    points = [[0, 0], [2, 0], [2, 0.2], [0.2, 0.2], [0.2, 2], [0, 2], [1, -1], [2, -1]]
    mesh = Mesh.from_arrays(np.array(points, float), {"polygon": [[0, 1, 2, 3, 4, 5], [6, 7, 1, 0]]})
    cells = PlaneCells.of(mesh)
    corners = cells.points[cells.triangles]
    along, across = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    areas = 0.5 * (along[:, 0] * across[:, 1] - along[:, 1] * across[:, 0])
    assert areas.min() > 0
    assert areas.sum() + 1.5 == pytest.approx(float(mesh.cell_volumes.sum()))  # the other cell is a quad
    assert len(cells.quads) == 1
