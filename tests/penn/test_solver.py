"""Laws of the solvers, against NumPy and SciPy."""

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from torch.testing import assert_close

from pennpde.case import Case, batch
from pennpde.penn.solver import BarzilaiBorwein, ExplicitSteps, Solution, State
from problems import heated_plate, rectangle


def line(points: int = 12, value: float = 1.0) -> Case:
    """A case that only counts: as many points as asked for."""
    return heated_plate(cells=(points // 2 - 1, 1), inlet=value)


def linear(matrix: torch.Tensor, right_side: torch.Tensor):
    """The residual A x - b of the unknown x."""
    return lambda state: {"x": matrix @ state["x"] - right_side}


def follow(solver: BarzilaiBorwein, residual, start: State, case: Case, *, record: bool = True) -> Solution:
    """Follow a residual to zero: that of the step from h to h - R(h)."""

    def step(state: State, _start: State, _share: float) -> State:
        return {name: state[name] - values for name, values in residual(state).items()}

    return solver(step, start, case, record=record)


def random_system(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    square = torch.randn(size, size, generator=draw, dtype=torch.float64)
    matrix = torch.eye(size, dtype=torch.float64) + 0.2 * square @ square.T
    return matrix, torch.randn(size, 3, generator=draw, dtype=torch.float64)


def test_iterations_are_those_of_equations_16_and_17():
    matrix, right_side = random_system(12)
    start = torch.zeros(12, 3, dtype=torch.float64)
    solution = follow(BarzilaiBorwein(iterations=5), linear(matrix, right_side), {"x": start}, line(12))

    A, b = matrix.numpy(), right_side.numpy()
    x = np.zeros((12, 3))
    residual = A @ x - b
    x, previous, previous_residual = x - residual, x, residual
    for _ in range(4):
        residual = A @ x - b
        dx, dr = x - previous, residual - previous_residual
        x, previous, previous_residual = x - (dx * dr).sum() / (dr * dr).sum() * residual, x, residual
    assert_close(solution.state["x"], torch.from_numpy(x), atol=1e-12, rtol=0)
    assert solution.residuals.shape == (5, 1)
    assert float(solution.residuals[0]) == pytest.approx(np.sqrt((b**2).mean()))


def test_a_linear_system_is_solved_to_the_tolerance_and_no_further():
    matrix, right_side = random_system(12)
    solver = BarzilaiBorwein(iterations=500, tolerance=1e-11)
    solution = follow(solver, linear(matrix, right_side), {"x": torch.zeros_like(right_side)}, line(12))
    assert bool(solution.converged)
    assert not bool(solution.diverged)
    assert solution.iterations < 200
    assert_close(solution.state["x"], torch.linalg.solve(matrix, right_side), atol=1e-9, rtol=0)


def test_the_first_iteration_is_the_explicit_step():
    case = heated_plate()
    start = {"T": torch.randn(case.number_of_points, 2, dtype=torch.float64)}

    def step(state: State, begin: State, fraction: float) -> State:
        return {"T": begin["T"] + fraction * 0.01 * case.operators["T"].laplacian(state["T"])}

    implicit = BarzilaiBorwein(iterations=1)(step, start, case)
    explicit = ExplicitSteps(iterations=1)(step, start, case)
    assert_close(implicit.state["T"], explicit.state["T"])


def test_explicit_steps_converge_to_the_exponential_with_first_order():
    matrix = -random_system(12)[0]
    start = {"x": torch.randn(12, 1, dtype=torch.float64)}
    exact = torch.linalg.matrix_exp(0.5 * matrix) @ start["x"]

    def step(state: State, begin: State, fraction: float) -> State:
        return {"x": begin["x"] + fraction * 0.5 * matrix @ state["x"]}

    errors = [
        float((ExplicitSteps(iterations=number)(step, start, line(12)).state["x"] - exact).norm())
        for number in (400, 800)
    ]
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)


def test_the_projection_holds_in_every_iteration_and_boundary_points_have_no_residual():
    case = heated_plate()
    mask = case.dirichlet["T"].mask
    seen = []

    def step(state: State, begin: State, fraction: float) -> State:
        seen.append(state["T"][mask])
        return {"T": begin["T"] + fraction * 0.1 * case.operators["T"].laplacian(state["T"])}

    def project(state: State) -> State:
        return {"T": torch.where(mask[:, None], torch.full_like(state["T"], 0.7), state["T"])}

    start = {"T": torch.zeros(case.number_of_points, 2, dtype=torch.float64)}
    solution = BarzilaiBorwein(iterations=6)(step, start, case, project)
    for values in [*seen, solution.state["T"][mask]]:
        assert bool((values == 0.7).all())


def test_a_batch_has_the_step_sizes_of_its_cases():
    cases = [heated_plate(diffusivity=value, cells=cells) for value, cells in ((0.05, (4, 4)), (0.9, (6, 3)))]

    def solve(case: Case) -> torch.Tensor:
        diffusivity = case.parameter("diffusivity", case.initial["T"][:, None])
        start = {"T": case.dirichlet["T"].apply(case.initial["T"])[:, None]}

        def step(state: State, begin: State, fraction: float) -> State:
            return {"T": begin["T"] + fraction * 0.1 * diffusivity * case.operators["T"].laplacian(state["T"])}

        return BarzilaiBorwein(iterations=6)(step, start, case).state["T"]

    together = solve(batch(cases)).split([case.number_of_points for case in cases])
    for joint, case in zip(together, cases, strict=True):
        assert_close(joint, solve(case), atol=1e-12, rtol=0)


def test_every_unknown_has_its_own_step_size():
    first, second = random_system(12, seed=1), random_system(12, seed=2)

    def residual(state: State) -> State:
        return {"x": first[0] @ state["x"] - first[1], "y": 50 * (second[0] @ state["y"] - second[1])}

    start = torch.zeros(12, 3, dtype=torch.float64)
    solver = BarzilaiBorwein(iterations=7, first_step=0.1)
    together = follow(solver, residual, {"x": start, "y": start}, line(12))
    alone = follow(solver, linear(*first), {"x": start}, line(12))
    assert_close(together.state["x"], alone.state["x"])


def test_steps_do_not_depend_on_units():
    matrix, right_side = random_system(12)
    start = {"x": torch.zeros_like(right_side)}
    small, large = (
        follow(BarzilaiBorwein(iterations=8), linear(matrix, unit * right_side), start, line(12)).state["x"]
        for unit in (1e-6, 1e6)
    )
    assert_close(1e12 * small, large, rtol=1e-9, atol=0)


def test_negative_steps_are_taken_only_when_allowed():
    flipped = -torch.eye(12, dtype=torch.float64)
    start = {"x": torch.ones(12, 1, dtype=torch.float64)}
    residual = linear(flipped, torch.zeros(12, 1, dtype=torch.float64))
    solve = {
        allow: follow(BarzilaiBorwein(4, allow_negative_steps=allow), residual, start, line(12)) for allow in (0, 1)
    }
    assert float(solve[1].state["x"].abs().amax()) < 1e-12
    assert float(solve[0].state["x"].abs().amax()) > 10.0


def test_a_fixed_point_stays_and_its_gradients_are_finite():
    matrix, right_side = random_system(12)
    solved = torch.linalg.solve(matrix, right_side)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)

    def residual(state: State) -> State:
        return {"x": scale * (state["x"] - solved)}

    solution = follow(BarzilaiBorwein(iterations=8), residual, {"x": solved.clone()}, line(12))
    assert_close(solution.state["x"], solved)
    solution.state["x"].sum().backward()
    assert torch.isfinite(scale.grad)


def test_gradients_through_the_iterations_are_those_of_finite_differences():
    matrix, right_side = random_system(6)
    case = line(6)

    def solve(scale: torch.Tensor) -> torch.Tensor:
        residual = linear(scale * matrix, right_side[:, :1])
        return follow(
            BarzilaiBorwein(iterations=4), residual, {"x": torch.zeros(6, 1, dtype=torch.float64)}, case
        ).state["x"]

    assert torch.autograd.gradcheck(solve, torch.tensor(0.8, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("growth", [1e3, float("nan"), float("inf")])
def test_divergence_is_reported_and_raised_only_on_request(growth):
    cases = batch([line(12), line(12)])
    case_factor = torch.tensor([1.0, growth], dtype=torch.float64).repeat_interleave(12)[:, None]

    def step(state: State, begin: State, fraction: float) -> State:
        return {"x": begin["x"] + fraction * case_factor * state["x"]}

    start = {"x": torch.ones(24, 1, dtype=torch.float64)}
    solution = ExplicitSteps(iterations=8)(step, start, cases)
    assert solution.diverged.tolist() == [False, True]
    assert not solution.converged[1]


def test_without_a_record_the_answer_is_the_same_and_the_history_empty():
    matrix, right_side = random_system(12)
    start = {"x": torch.zeros_like(right_side)}
    told, silent = (
        follow(BarzilaiBorwein(6), linear(matrix, right_side), start, line(12), record=record)
        for record in (True, False)
    )
    assert torch.equal(told.state["x"], silent.state["x"])
    assert silent.iterations == 0
    assert not bool(silent.converged | silent.diverged)


def poisson(cells: int) -> tuple[float, float]:
    """Solve lap T = f with T = 0 all around; the distance to the direct solution, and to the exact field."""
    mesh = rectangle((cells, cells))
    x, y = mesh.points.T
    exact = torch.sin(torch.pi * x) * torch.sin(torch.pi * y)
    source = -2 * torch.pi**2 * exact
    case = Case(mesh, initial={"T": 0.0}, dirichlet={"T": {"inlet": 0.0, "outlet": 0.0, "side": 0.0}})

    def step(state: State, begin: State, fraction: float) -> State:
        # The state plus the defect, so that the residual is the defect and the Poisson equation is what it solves.
        defect = case.operators["T"].laplacian(state["T"]) - source[:, None]
        return {"T": state["T"] + fraction / cells**2 * defect}

    def project(state: State) -> State:
        return {"T": case.dirichlet["T"].apply(state["T"][:, 0])[:, None]}

    start = {"T": torch.zeros_like(x)[:, None]}
    solution = BarzilaiBorwein(iterations=5000, tolerance=1e-9)(step, start, case, project)
    assert bool(solution.converged)
    found = solution.state["T"][:, 0]

    matrix = sum(axis @ axis for axis in case.operators["T"].gradient_matrices()).tocsc()
    free = (~case.dirichlet["T"].mask).nonzero()[:, 0].numpy()
    direct = np.zeros(mesh.number_of_points)
    direct[free] = scipy.sparse.linalg.spsolve(matrix[free][:, free], source.numpy()[free])
    return float((found - torch.from_numpy(direct)).abs().amax()), float((found - exact).square().mean().sqrt())


@pytest.mark.slow
def test_the_converged_solver_solves_a_poisson_problem_to_the_accuracy_of_the_discretisation():
    (coarse_to_direct, coarse), (fine_to_direct, fine) = poisson(8), poisson(16)
    assert coarse_to_direct < 1e-2 * coarse
    assert fine_to_direct < 1e-2 * fine
    assert coarse < 0.07
    assert coarse / fine > 3.0  # about second order, the direct solutions' 3.7


def test_a_limited_explicit_step_stays_finite_beyond_the_stability_limit_and_is_itself_well_below_it():
    case = line()
    matrix, _ = random_system(12)

    def step(state: State, begin: State, fraction: float) -> State:
        return {"T": begin["T"] - 1e4 * fraction * (matrix @ state["T"])}

    start = {"T": torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]}
    wild = ExplicitSteps(iterations=60)(step, start, case).state["T"]
    tame = ExplicitSteps(iterations=60, limit=1.0)(step, start, case).state["T"]
    assert wild.abs().max() > 1e30
    assert tame.abs().max() <= 61.0

    def small(state: State, begin: State, fraction: float) -> State:
        return {"T": begin["T"] - 1e-5 * fraction * (matrix @ state["T"])}

    free, limited = (ExplicitSteps(4, limit=limit)(small, start, case).state["T"] for limit in (None, 1.0))
    assert_close(free, limited, rtol=1e-8, atol=1e-12)


def test_the_limit_on_a_vector_does_not_single_out_directions():
    case = line()
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    change = torch.randn(12, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def solve(change: torch.Tensor) -> torch.Tensor:
        def step(state: State, begin: State, fraction: float) -> State:
            return {"T": begin["T"] + change}

        return ExplicitSteps(1, limit=0.5)(step, {"T": torch.zeros_like(change)}, case).state["T"]

    turned = torch.einsum("ij,pjc->pic", turn, change)
    assert_close(solve(turned), torch.einsum("ij,pjc->pic", turn, solve(change)))
    assert solve(change).norm(dim=1).max() < 0.5


def test_equation_17_projects_the_updated_state_and_its_step_size_sees_the_boundary():
    case = line()
    matrix, right_side = random_system(12)
    right_side = right_side[:, :1]
    held = torch.zeros(12, 1, dtype=torch.bool)
    held[0] = True

    def step(state: State, begin: State, fraction: float) -> State:
        return {"T": state["T"] - (matrix @ state["T"] - right_side)}

    def project(state: State) -> State:
        return {name: torch.where(held, 2.0, values) for name, values in state.items()}

    start = {"T": torch.zeros(12, 1, dtype=torch.float64)}
    written = BarzilaiBorwein(3, project_state=True)(step, start, case, project).state["T"]

    # Equations 16 and 17 by hand.
    state, before = project(start)["T"], None
    for _ in range(3):
        residual = matrix @ state - right_side
        alpha = 1.0
        if before is not None:
            change, of_residual = state - before[0], residual - before[1]
            alpha = abs(float((change * of_residual).sum() / (of_residual * of_residual).sum()))
        before = state, residual
        state = torch.where(held, 2.0, state - alpha * residual)
    assert_close(written, state)
    inside = BarzilaiBorwein(3)(step, start, case, project).state["T"]
    assert not torch.allclose(inside, written)
    assert float(inside[0]) == float(written[0]) == 2.0


def test_an_unknown_that_is_taken_becomes_what_the_step_gives():
    case = line()

    def step(state: State, begin: State, fraction: float) -> State:
        return {"T": 0.5 * state["T"], "p": 3.0 * state["T"]}

    start = {"T": torch.ones(12, 1), "p": torch.zeros(12, 1)}
    solved = BarzilaiBorwein(1, first_step=0.1, taken=("p",))(step, start, case).state
    assert_close(solved["p"], torch.full((12, 1), 3.0))
    assert_close(solved["T"], torch.full((12, 1), 0.95))
