"""The neural nonlinear solver: Barzilai–Borwein on the residual of an implicit step (equations 16 and 17 of the paper).

The next state solves R(h) = h - h0 - D(h) dt = 0. Each iteration steps along the residual with a size that is the best
scalar approximation of the inverse Jacobian; it is a sum over the whole mesh, which is what couples far points:

    h <- h - alpha R(h),    R(h) = h - project(h0 + D(h) dt),    alpha = <dh, dR> / <dR, dR>

`project` is the Dirichlet layer. The paper applies it to the updated state (`project_state`); inside the residual the
condition holds as well, but the residual is zero where nothing is free, so boundary points do not enter alpha: another
iteration.

One alpha per case and unknown: a batch gives what its cases give one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case import Case

State = Mapping[str, Tensor]
"""The unknowns by name, encoded: [points, *axes, width]."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a solve ended, and how: one that fails says so here."""

    state: State
    residuals: Float[Tensor, "iterations cases"]
    """Root mean square of the residual before each iteration, the unknowns taken together; empty if not recorded."""
    converged: Bool[Tensor, " cases"]
    diverged: Bool[Tensor, " cases"]

    @property
    def iterations(self) -> int:
        return self.residuals.shape[0]


Step = Callable[[State, State, float], State]
"""step(state, start, fraction): where a fraction of the time step leads from `start`, the rate taken at `state`."""

Memory = tuple[State, State] | None
"""State and residual of the previous iteration; None before the first."""

Iterate = Callable[[State, Memory], tuple[State, Memory, State]]
"""iterate(state, memory): the next state, the next memory, and the residual of the state that was given."""


MOST_ITERATIONS = 10_000
"""Networks have 4 to 40; a configuration that asks for more than this would never give an answer."""


class Solver(ABC):
    """Advances a state by one time step under conditions, iteration by iteration."""

    iterations: int
    divergence: float
    tolerance: float | None = None

    def __post_init__(self) -> None:
        number = self.iterations
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_ITERATIONS:
            raise ValueError(f"iterations is {number!r}; it must be a whole number from 0 to {MOST_ITERATIONS}.")

    @abstractmethod
    def iterate(
        self, step: Step, start: State, case: Case, project: Callable[[State], State], state: State, memory: Memory
    ) -> tuple[State, Memory, State]:
        """One iteration."""

    def __call__(
        self,
        step: Step,
        start: State,
        case: Case,
        project: Callable[[State], State] | None = None,
        *,
        record: bool = True,
    ) -> Solution:
        """Solve a step."""
        project = _unchanged if project is None else project
        return self.repeat(partial(self.iterate, step, start, case, project), project(start), case, record=record)

    def repeat(self, iterate: Iterate, start: State, case: Case, *, record: bool = True) -> Solution:
        """All iterations, given how one is done: a network compiles its own."""
        state, memory, history = start, None, []
        for _ in range(self.iterations):
            following, memory, residual = iterate(state, memory)
            if record or self.tolerance is not None:
                history.append(_size(residual, case))
            if self.tolerance is not None and bool((history[-1] <= self.tolerance).all()):
                break
            state = following
        return _solution(state, history, case, self.tolerance, self.divergence)


@dataclass(frozen=True)
class BarzilaiBorwein(Solver):
    """Solves h = project(step(h)), an implicit step, with one step size per case and unknown.

    Args:
        iterations: Number of iterations; a network unrolls exactly this many.
        tolerance: Stop once the residual of every case is this small. Checking it after each iteration costs time, so
        the default is None, a fixed number of iterations.
        divergence: A case whose residual passes this many times its first one counts as diverged.
        first_step: The step size of the first iteration, which has no history.
        allow_negative_steps: Equation 16 may give a negative step, which increases the residual. The authors' code
        takes the absolute value, and so do we by default.
        settled: Where <dR, dR> is no larger, the residual has stopped changing and the quotient is meaningless. Adding
        a small number instead would shorten every step near the solution, and make steps depend on units.
        project_state: Apply the Dirichlet layer to the updated state, as equation 17 has it, instead of inside the
            residual. Then the residual at prescribed points takes part in the step size.
        taken: Unknowns whose new value is what the step gives, without a step size: the paper's pressure, which comes
            out of a loop of its own.
    """

    iterations: int
    tolerance: float | None = None
    divergence: float = 1e6
    first_step: float = 1.0
    allow_negative_steps: bool = False
    settled: float = 1e-24
    project_state: bool = False
    taken: tuple[str, ...] = ()

    def iterate(
        self, step: Step, start: State, case: Case, project: Callable[[State], State], state: State, memory: Memory
    ) -> tuple[State, Memory, State]:
        advanced = step(state, start, 1.0)
        if not self.project_state:
            advanced = project(advanced)
        residual = {name: state[name] - advanced[name] for name in state}
        moved, memory, residual = self._follow(residual, state, memory, case)
        return (project(moved) if self.project_state else moved), memory, residual

    def _follow(self, residual: State, state: State, memory: Memory, case: Case) -> tuple[State, Memory, State]:
        moved = {}
        for name, values in state.items():
            if name in self.taken:
                moved[name] = values - residual[name]
                continue
            if memory is None:
                moved[name] = values - self.first_step * residual[name]
                continue
            before, residual_before = memory[0][name], memory[1][name]
            step = self.step_size(values - before, residual[name] - residual_before, case)
            moved[name] = values - step * residual[name]
        return moved, (state, residual), residual

    def step_size(self, change: Tensor, change_of_residual: Tensor, case: Case) -> Tensor:
        """The step size of equation 16 for each case, shaped to multiply the residual."""
        above = case.total(change * change_of_residual)
        below = case.total(change_of_residual * change_of_residual)
        settled = below <= self.settled
        # Divided by one there, so that no infinity enters the gradients; a plain step keeps a fixed point.
        step = torch.where(settled, self.first_step, above / torch.where(settled, 1.0, below))
        if not self.allow_negative_steps:
            step = step.abs()
        return case.at_points(step).reshape(-1, *[1] * (change.ndim - 1))


@dataclass(frozen=True)
class ExplicitSteps(Solver):
    """Explicit Euler: `iterations` steps of an equal share of the time. The ablation without nonlinear solver.

    Args:
        iterations: Number of steps.
        divergence: A case whose change passes this many times its first one counts as diverged.
        limit: The most that one step may change a channel of a point by (the length of the change, for a vector). A
            change well below it stays as it is. Explicit steps have a stability limit, and training pushes learned
            coefficients beyond it: without a limit on the change a few such steps overflow, and with them the gradient.
            It acts on each point separately; nothing is summed over the mesh.
    """

    iterations: int
    divergence: float = 1e6
    limit: float | None = None

    def iterate(
        self,
        step: Step,
        start: State,  # noqa: ARG002
        case: Case,  # noqa: ARG002
        project: Callable[[State], State],
        state: State,
        memory: Memory,
    ) -> tuple[State, Memory, State]:
        advanced = project(step(state, state, 1 / self.iterations))
        if self.limit is not None:
            limited = {name: state[name] + self._limited(advanced[name] - state[name]) for name in state}
            advanced = project(limited)
        return advanced, memory, {name: advanced[name] - state[name] for name in state}

    def _limited(self, change: Tensor) -> Tensor:
        assert self.limit is not None
        axes = tuple(range(1, change.ndim - 1))
        square = change * change
        size = square.sum(dim=axes, keepdim=True) if axes else square
        return change * torch.rsqrt(1 + size / self.limit**2)


def _unchanged(state: State) -> State:
    return state


def _size(residual: State, case: Case) -> Float[Tensor, " cases"]:
    squares = sum(values.detach().square().flatten(1).mean(dim=1) for values in residual.values())
    assert isinstance(squares, Tensor)
    return (case.sum(squares) / case.sum(torch.ones_like(squares))).sqrt()


def _solution(state: State, history: list[Tensor], case: Case, tolerance: float | None, divergence: float) -> Solution:
    if not history:
        values = next(iter(state.values()))
        unknown = torch.zeros(len(case.sizes), dtype=torch.bool, device=values.device)
        return Solution(state, values.new_zeros(0, len(case.sizes)), unknown, unknown)
    residuals = torch.stack(history)
    first, last = residuals[0], residuals[-1]
    # Written so that NaN counts as diverged.
    diverged = ~(last <= divergence * first.clamp_min(torch.finfo(first.dtype).tiny))
    converged = last <= tolerance if tolerance is not None else (last < 1e-3 * first)
    return Solution(state, residuals, converged & ~diverged, diverged)
