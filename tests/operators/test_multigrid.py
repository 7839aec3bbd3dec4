"""The multigrid solver: how fast it converges, that it is symmetric, exact conditions, batches, derivatives."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph
import torch
from torch.testing import assert_close

from elements import Elements
from meshes import arrays
from pennpde.mesh import Mesh
from pennpde.operators.multigrid import Levels, aggregate


def poisson(cells_along: int, kind: str = "mixed_plane", outlet: bool = True, stretch: float = 1.0):
    """Stiffness matrix of the unit square and the points of its outlet, the right side."""
    points, cells = arrays(kind, cells_along, jitter=0.2)
    right = points[:, 0] > 1 - 1e-9
    mesh = Mesh.from_arrays(points * np.array([stretch, 1.0]), cells)
    return Elements.of(mesh).stiffness, right & outlet


def right_side(levels: Levels, channels: int = 1, seed: int = 0) -> torch.Tensor:
    random = torch.randn(
        levels.number_of_points, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return random - random.mean(dim=0)


def relative_residual(levels: Levels, found: torch.Tensor, right: torch.Tensor) -> float:
    free = levels.free.double()[:, None]
    matrix = levels.finer[0].matrix.to(torch.float64)
    return float((free * (right - matrix @ found.double())).norm() / (free * right).norm())


@pytest.mark.slow
@pytest.mark.parametrize("outlet", [True, False])
@pytest.mark.parametrize("kind", ["triangle", "mixed_plane"])
def test_the_number_of_cycles_hardly_grows_with_the_mesh(kind, outlet):
    for cells_along in (20, 60, 140):
        levels = Levels.of(*poisson(cells_along, kind, outlet))
        right = right_side(levels)
        assert relative_residual(levels, levels.solve(right, cycles=8), right) < 1e-3
        assert relative_residual(levels, levels.solve(right, cycles=16), right) < 1e-6


def test_stretched_cells_converge_too():
    levels = Levels.of(*poisson(60, "triangle", stretch=8.0))
    right = right_side(levels)
    assert relative_residual(levels, levels.solve(right, cycles=16), right) < 1e-3


def test_work_and_memory_are_linear():
    small, large = (Levels.of(*poisson(cells)) for cells in (30, 120))
    entries = [
        sum(level.matrix.values.numel() + level.prolongation.values.numel() for level in levels.finer)
        / levels.number_of_points
        for levels in (small, large)
    ]
    assert entries[1] < 1.3 * entries[0]
    assert entries[1] < 20


def test_a_cycle_is_symmetric_and_positive_definite():
    levels = Levels.of(*poisson(12), largest_inverse=20)
    free = levels.free.numpy() > 0
    cycle = levels.cycle(torch.eye(levels.number_of_points, dtype=torch.float64)).numpy()[np.ix_(free, free)]
    assert np.abs(cycle - cycle.T).max() < 1e-12 * np.abs(cycle).max()
    matrix = levels.finer[0].matrix.to_scipy().toarray()[np.ix_(free, free)]
    root = np.linalg.cholesky(matrix)
    eigenvalues = np.linalg.eigvalsh(root.T @ cycle @ root)
    # Eigenvalues of cycle × matrix: positive, and below two, so that cycles converge without conjugate gradients too.
    assert eigenvalues.min() > 0.1
    assert eigenvalues.max() < 1.5


def test_prescribed_points_stay_zero_bit_for_bit():
    matrix, outlet = poisson(20)
    levels = Levels.of(matrix, outlet)
    for found in (levels.solve(right_side(levels)), levels.cycle(right_side(levels))):
        assert (found[torch.from_numpy(outlet)] == 0).all()


def test_the_solution_is_that_of_a_direct_solver():
    matrix, outlet = poisson(20)
    levels = Levels.of(matrix, outlet)
    right = right_side(levels, channels=2)
    free = ~outlet
    expected = np.zeros(right.shape)
    expected[free] = np.linalg.solve(matrix.toarray()[np.ix_(free, free)], right.numpy()[free])
    assert_close(levels.solve(right, cycles=30), torch.from_numpy(expected), rtol=1e-9, atol=1e-9)


def test_a_small_mesh_is_solved_by_its_inverse():
    matrix, outlet = poisson(6)
    levels = Levels.of(matrix, outlet)
    assert not levels.finer
    found = levels.solve(right_side(levels), cycles=1)
    residual = matrix @ found.numpy() - right_side(levels).numpy()
    assert np.abs(residual[~outlet]).max() < 1e-10
    assert (found[torch.from_numpy(outlet)] == 0).all()


def test_a_guess_saves_cycles():
    levels = Levels.of(*poisson(40))
    right = right_side(levels)
    near = levels.solve(right, cycles=6)
    assert relative_residual(levels, levels.solve(right, near, cycles=2), right) < 1e-3
    assert relative_residual(levels, levels.solve(right, cycles=2), right) > 1e-2


def test_single_precision_is_enough_for_a_pressure():
    levels = Levels.of(*poisson(120)).to(torch.float32)
    right = right_side(levels)
    found = levels.solve(right.float(), cycles=10)
    assert found.dtype == torch.float32
    # Round-off of the residual itself: machine precision × largest values of the solution.
    assert relative_residual(levels, found, right) < 3e-4
    many = levels.solve(right.float(), cycles=40)
    assert torch.isfinite(many).all()
    assert relative_residual(levels, many, right) < 3e-4


def test_the_derivative_of_a_solution_is_a_solution():
    levels = Levels.of(*poisson(10), largest_inverse=20)
    right = right_side(levels).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: levels.solve(given, cycles=25), right, fast_mode=True)


def test_without_a_prescribed_point_the_constant_is_free():
    matrix, _ = poisson(40, outlet=False)
    levels = Levels.of(matrix)
    right = right_side(levels)
    found = levels.solve(right, cycles=20)
    assert relative_residual(levels, found, right) < 1e-6


def test_aggregates_cover_all_points_and_are_connected():
    matrix, _ = poisson(30)
    graph = matrix - scipy.sparse.diags(matrix.diagonal())
    graph = scipy.sparse.csr_array(graph)
    graph.eliminate_zeros()
    found = aggregate(graph)
    assert found.min() == 0
    members = np.bincount(found)
    assert members.min() >= 1
    assert 4 < members.mean() < 20
    for each in range(0, len(members), 7):
        chosen = np.flatnonzero(found == each)
        parts, _ = scipy.sparse.csgraph.connected_components(graph[chosen][:, chosen], directed=False)
        assert parts == 1


def test_a_matrix_that_is_not_symmetric_is_refused():
    matrix, _ = poisson(6)
    with pytest.raises(ValueError, match="symmetric"):
        Levels.of(scipy.sparse.diags(np.linspace(1.0, 2.0, len(matrix.indptr) - 1)) @ matrix)
