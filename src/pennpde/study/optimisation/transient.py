"""Flows that change with time: their steps, and gradients of quantities at the end through all of them.

The scheme's steps are a function of what a problem holds: areas, faces, conductances, viscosity, prescribed velocities.
Autograd goes back through all steps, which are computed again from a few that are kept (checkpoints), and gives the
derivative of every quantity with respect to each of these numbers. How they change with a parameter is a difference of
assembled problems, as for steady flows: nothing is solved for it. The lengths of the steps are those of the first
design; otherwise quantities would jump where a step more is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pennpde.flow.compiled import CompiledSteps
from pennpde.flow.dual_cells import DualCells
from pennpde.flow.krylov import Effort
from pennpde.flow.march import LARGEST, FlowDivergedError, Pace, march
from pennpde.flow.pressure import Solver
from pennpde.flow.problem import Problem
from pennpde.flow.step import State, advance, begin

if TYPE_CHECKING:
    from pennpde.case import Case
    from pennpde.study.optimisation.adjoint import Measure
    from pennpde.study.optimisation.flows import Answer

_EFFORT = Effort(1e-11, most=300)
"""What is left of the momentum equation is far below what a gradient is wanted to."""
_OF_PROBLEM = "viscosity", "velocity", "pressure", "inflow", "facet_shift"
_OF_CELLS = "areas", "faces", "conductances", "offsets"


def steps_until(problem: Problem, time: float, courant: float) -> tuple[float, ...]:
    """The lengths of the steps that a march takes."""
    way, taken = CompiledSteps().way(), []

    def take(problem: Problem, state: State, step: Tensor, **how: object) -> State:
        taken.append((state, float(step)))
        return way.take(problem, state, step, **how)

    for snapshot in march(problem, begin(problem), [time], pace=Pace(courant), way=replace(way, take=take, go=None)):
        taken.append((snapshot.state, 0.0))
    # One that was taken again began where the next one did.
    return tuple(step for (state, step), (then, _) in pairwise(taken) if then is not state)


def marched(problem: Problem, steps: Sequence[float]) -> State:
    """The state after steps of these lengths."""
    state, compiled = begin(problem), CompiledSteps()
    for place, step in enumerate(steps):
        length = torch.tensor([step], dtype=torch.float64)
        state = compiled(problem, state, length, passes=1 if place else 2, effort=_EFFORT)
        if not float(state.velocity.abs().amax()) <= LARGEST:
            raise FlowDivergedError(f"The flow diverged after {place + 1} steps.", state.velocity)
    return state


def transient_gradients(
    answer: Answer,
    measures: Sequence[Measure],
    case_at: Callable[[np.ndarray], Case],
    design: Float[np.ndarray, " parameters"],
    sizes: Float[np.ndarray, " parameters"],
) -> Float[np.ndarray, "measures parameters"]:
    """The derivatives of quantities at the last step; for the arguments see `adjoint.gradients`.

    Args:
        answer: The flow of the design.
        measures: The quantities.
        case_at: The case of any design.
        design: The parameters.
        sizes: Of the differences of assembled problems, by parameter.
    """
    flow = answer.flow
    numbers = {name: each.clone().requires_grad_() for name, each in _numbers(flow.problem).items()}
    with torch.enable_grad():
        fields = flow.at_state(_replayed(_with(flow.problem, numbers), flow.family.steps))
        # The measure's own cells stay: what they change is a difference, too.
        found = [
            torch.autograd.grad(each(fields), list(numbers.values()), retain_graph=True, allow_unused=True)
            for each in measures
        ]
    result = np.zeros((len(measures), len(design)))
    for place, size in enumerate(sizes):
        ends = [flow.family.flow(case_at(design + sign * size * np.eye(len(design))[place]), flow) for sign in (1, -1)]
        one, other = (_numbers(each.problem) for each in ends)
        with torch.no_grad():
            own = [[float(measure(each.at_state(answer.state))) for measure in measures] for each in ends]
        for row, derivatives in enumerate(found):
            through = sum(
                float((derivative * (one[name] - other[name])).sum())
                for name, derivative in zip(numbers, derivatives, strict=True)
                if derivative is not None
            )
            result[row, place] = (through + own[0][row] - own[1][row]) / (2.0 * size)
    return result


def _replayed(problem: Problem, steps: Sequence[float]) -> State:
    """As `marched`, in operations that autograd can take back."""
    each = max(1, math.isqrt(len(steps)))
    state = begin(problem)
    for start in range(0, len(steps), each):
        state = checkpoint(_some_steps, problem, state, steps[start : start + each], use_reentrant=False)
    return state


def _some_steps(problem: Problem, state: State, steps: Sequence[float]) -> State:
    for step in steps:
        length = torch.tensor([step], dtype=torch.float64)
        state = advance(problem, state, length, passes=1 if state.before else 2, effort=_EFFORT)
    return state


def _numbers(problem: Problem) -> dict[str, Tensor]:
    """What a problem is made of, as far as it changes with parameters and with the shape."""
    cells = problem.cells
    found = {name: getattr(problem, name) for name in _OF_PROBLEM} | {name: getattr(cells, name) for name in _OF_CELLS}
    found |= {f"gradient {axis}": each.values for axis, each in enumerate(cells.gradient)}
    found |= {"heights": cells.curvature.heights, "shares": cells.curvature.faces}
    return found if problem.slip is None else found | {"slip": problem.slip}


def _with(problem: Problem, numbers: Mapping[str, Tensor]) -> Problem:
    """The problem with these numbers in place of its own."""
    cells = problem.cells
    curvature = replace(cells.curvature, heights=numbers["heights"], faces=numbers["shares"])
    gradient = tuple(replace(each, values=numbers[f"gradient {axis}"]) for axis, each in enumerate(cells.gradient))
    changed = replace(
        cells, gradient=gradient, curvature=curvature, **{name: numbers[name] for name in _OF_CELLS}
    )  # fmt: skip
    solver = _Followed(problem.pressure_solver, cells, numbers["conductances"])
    own = {name: numbers[name] for name in _OF_PROBLEM if name in numbers}
    return replace(problem, cells=changed, pressure_solver=solver, slip=numbers.get("slip"), **own)


@dataclass(frozen=True, eq=False)
class _Followed:
    """A solver of the pressure's equation whose solutions have derivatives with respect to the conductances."""

    solver: Solver
    cells: DualCells
    conductances: Float[Tensor, " edges"]

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:  # noqa: ARG002
        found = _Solution.apply(right, self.conductances, self.solver, self.cells)
        assert isinstance(found, Tensor)
        return found


class _Solution(torch.autograd.Function):
    """Of a matrix Σ k (e_i - e_j)(e_i - e_j)ᵀ over edges: symmetric, and simple in k."""

    @staticmethod
    def forward(ctx, right, conductances, solver, cells):  # noqa: ARG004
        found = solver.solve(right, torch.zeros_like(right))
        ctx.save_for_backward(found)
        ctx.rest = solver, cells
        return found

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        (found,), (solver, cells) = ctx.saved_tensors, ctx.rest
        multiplier = solver.solve(gradient, torch.zeros_like(gradient))
        return multiplier, -cells.difference(multiplier) * cells.difference(found), None, None
