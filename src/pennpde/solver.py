"""The neural nonlinear solver: Barzilai–Borwein on the residual of an implicit step (equations 16 and 17 of the paper).

The next state solves R(h) = h - h0 - D(h) dt = 0. Each iteration steps along the residual with a size that is the best
scalar approximation of the inverse Jacobian; it is a sum over the whole mesh, which is what couples far points:

    h <- h - alpha R(h),    R(h) = h - project(h0 + D(h) dt),    alpha = <dh, dR> / <dR, dR>

`project` is the Dirichlet layer. The paper applies it to the updated state; inside the residual it does the same (both
terms fulfil the condition, so does the difference's step) and the residual is zero where nothing is free, so boundary
points do not distort alpha.

One alpha per case and unknown: a batch gives what its cases give one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.conditions import Case

State = Mapping[str, Tensor]
"""The unknowns by name, encoded: [points, *axes, width]."""


class DivergedError(RuntimeError):
    """A solve that a caller wanted to converge did not."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a solve ended, and how. A solve that fails says so here; `check` turns that into an error."""

    state: State
    residuals: Float[Tensor, "iterations cases"]
    """Root mean square of the residual before each iteration, the unknowns taken together; empty if not recorded."""
    converged: Bool[Tensor, " cases"]
    diverged: Bool[Tensor, " cases"]

    @property
    def iterations(self) -> int:
        return self.residuals.shape[0]

    def check(self) -> Solution:
        """Raise where a case diverged."""
        if self.diverged.any():
            bad = self.diverged.nonzero()[:, 0].tolist()
            last = [f"{value:.3g}" for value in self.residuals[-1, bad].tolist()]
            raise DivergedError(
                f"The solver diverged for cases {bad} of the batch: residuals {last} after {self.iterations} "
                "iterations. Check that the case lies in the range that the network was trained on."
            )
        return self


Step = Callable[[State, State, float], State]
"""step(state, start, fraction): where a fraction of the time step leads from `start`, the rate taken at `state`."""


class Solver(Protocol):
    """Advances a state by one time step under conditions."""

    def __call__(
        self,
        step: Step,
        start: State,
        case: Case,
        project: Callable[[State], State] | None = None,
        *,
        record: bool = True,
    ) -> Solution: ...


@dataclass(frozen=True)
class BarzilaiBorwein:
    """Solves h = project(step(h)), an implicit step, with a step size of its own for every case and unknown.

    Args:
        iterations: How often the residual is followed. A network unrolls exactly so many.
        tolerance: Stop once the residual is this small everywhere. It costs a look at the numbers after each iteration,
            so None, a fixed depth, is the default.
        divergence: A case whose residual passes this many times its first one counts as diverged.
        first_step: The step size of the first iteration, which has no history.
        allow_negative_steps: Equation 16 may give a negative step, which climbs the residual. The authors' code takes
            the absolute value, and so do we by default.
        settled: Where <dR, dR> is no larger, the residual has stopped changing and the quotient says nothing. Adding a
            small number instead would shorten every step near the solution, and make steps depend on units.
    """

    iterations: int
    tolerance: float | None = None
    divergence: float = 1e6
    first_step: float = 1.0
    allow_negative_steps: bool = False
    settled: float = 1e-24

    def __call__(
        self,
        step: Step,
        start: State,
        case: Case,
        project: Callable[[State], State] | None = None,
        *,
        record: bool = True,
    ) -> Solution:
        project = _unchanged if project is None else project

        def residual(state: State) -> State:
            advanced = project(step(state, start, 1.0))
            return {name: state[name] - advanced[name] for name in state}

        return self.minimise(residual, project(start), case, record=record)

    def minimise(
        self,
        residual: Callable[[State], State],
        start: State,
        case: Case,
        *,
        record: bool = True,
    ) -> Solution:
        """Follow any residual to zero; `record=False` leaves out its history, which training has no use for."""
        state, previous_state, previous_residual = start, None, None
        history = []
        for _ in range(self.iterations):
            current = residual(state)
            if record or self.tolerance is not None:
                history.append(_size(current, case))
            if self.tolerance is not None and bool((history[-1] <= self.tolerance).all()):
                break
            moved = {}
            for name, values in state.items():
                if previous_state is None or previous_residual is None:
                    moved[name] = values - self.first_step * current[name]
                    continue
                step = self.step_size(values - previous_state[name], current[name] - previous_residual[name], case)
                moved[name] = values - step * current[name]
            previous_state, previous_residual, state = state, current, moved
        return _solution(state, history, case, self.tolerance, self.divergence)

    def step_size(self, change: Tensor, change_of_residual: Tensor, case: Case) -> Tensor:
        """The step size of equation 16 for each case, shaped to multiply the residual."""
        axes = tuple(range(1, change.ndim))
        above = case.sum((change * change_of_residual).sum(dim=axes))
        below = case.sum((change_of_residual * change_of_residual).sum(dim=axes))
        settled = below <= self.settled
        # Divided by one there, so that no infinity enters the gradients; a plain step keeps a fixed point.
        step = torch.where(settled, self.first_step, above / torch.where(settled, 1.0, below))
        if not self.allow_negative_steps:
            step = step.abs()
        return case.at_points(step).reshape(-1, *[1] * len(axes))


@dataclass(frozen=True)
class ExplicitSteps:
    """Explicit Euler: `iterations` steps of an equal share of the time. The ablation without nonlinear solver."""

    iterations: int
    divergence: float = 1e6

    def __call__(
        self,
        step: Step,
        start: State,
        case: Case,
        project: Callable[[State], State] | None = None,
        *,
        record: bool = True,
    ) -> Solution:
        project = _unchanged if project is None else project
        state, history = project(start), []
        for _ in range(self.iterations):
            advanced = project(step(state, state, 1 / self.iterations))
            if record:
                history.append(_size({name: advanced[name] - state[name] for name in state}, case))
            state = advanced
        return _solution(state, history, case, None, self.divergence)


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
