"""Steady states by Newton's method: the scheme's own equations (`steady_equations`), without time.

It starts with a viscous fluid and goes on to the given one. Where a step of Newton's goes too far, an implicit step in
pseudo-time takes its place; that grows as the residual falls, so that the end is Newton's again. Each linear equation
is solved by GMRES with all derivatives. Its preconditioner are the factors of the derivatives by neighbours, which are
made again only when they no longer serve. On split cells the iteration starts at the steady state of the cells before
splitting: one factorisation and a few steps remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, SuperLU, gmres, splu

from pennpde.flow.problem import Problem
from pennpde.flow.steady_equations import Residual, SteadyEquations
from pennpde.flow.step import State, begin
from pennpde.penn.limits import OutOfTimeError, limits

TOLERANCE = 1e-7
"""Of the residual: the unbalanced acceleration, root mean square over the domain, in reference speeds squared per
reference length."""
MOST_ITERATIONS = 60
"""Linear equations, for one viscosity."""
_VISCOUS, _RATIO = 0.05, 2.0
"""The viscosity, times reference speed and length, at which the potential flow is near enough to the steady state; from
there it falls by such factors. That takes half the time of marching in pseudo-time, and arrives more often."""
_ON_THE_WAY = 1e-2
"""The residual at which the next viscosity is tried."""
_FIRST_STEP = 1.0
"""Of pseudo-time, in the time that fluid takes for the reference length."""
_LONGEST_STEP = 1e6
_SLOWEST, _GROWTH, _SHRINKAGE = 2.0, 4.0, 0.25
_LINEAR = 0.03
"""How far each linear equation is solved."""
_FEW, _MOST = 10, 30
"""Iterations of a linear solver: after up to so many factors are kept, after so many it is stopped."""
_PIVOT = 0.01
_LARGEST = 1e3
"""Velocities beyond so many reference speeds are a divergence."""


@dataclass(frozen=True, eq=False)
class SteadyState:
    """Where Newton's method ended.

    Attributes:
        state: of the flow.
        residuals: before each iteration, and at the end.
        converged: whether the last of them is below the tolerance.
    """

    state: State
    residuals: tuple[float, ...]
    converged: bool


def steady_state(
    problem: Problem,
    start: State | None = None,
    *,
    tolerance: float = TOLERANCE,
    most_iterations: int = MOST_ITERATIONS,
) -> SteadyState:
    """The steady state of one flow.

    Args:
        problem: One flow, in double precision, on the CPU.
        start: Near the steady state, such as the one on coarser cells, `prolonged`; by default the steady state of a
            more viscous fluid.
        tolerance: Of the residual.
        most_iterations: Linear equations at most.
    """
    equations = SteadyEquations(problem)
    if start is None:
        unknowns = _of_more_viscous_fluids(equations, most_iterations)
        step = _FIRST_STEP if float(problem.viscosity) >= _VISCOUS else _LONGEST_STEP
    else:
        unknowns, step = equations.packed(start.velocity, start.pressure), _LONGEST_STEP
    unknowns, found, residuals = _newton(equations, unknowns, step, tolerance, most_iterations)
    velocity, pressure = equations.unpacked(unknowns)
    # As it was a step ago: a march that goes on from here does not begin with a start-up.
    before = (velocity, found.fluxes, torch.full_like(problem.viscosity, _FIRST_STEP))
    return SteadyState(State(velocity, pressure, found.fluxes, before), tuple(residuals), found.size < tolerance)


def _of_more_viscous_fluids(equations: SteadyEquations, most_iterations: int) -> Float[np.ndarray, " unknowns"]:
    """From the potential flow through the steady states of more and more fluid ones, almost to that of the flow."""
    first = begin(equations.problem)
    unknowns = equations.packed(first.velocity, first.pressure)
    viscosity = float(equations.problem.viscosity)
    number, step = math.ceil(math.log(max(_VISCOUS / viscosity, 1.0), _RATIO)), _FIRST_STEP
    for each in reversed(range(1, number + 1)):
        thicker = equations.with_viscosity(viscosity * _RATIO**each)
        unknowns, _, _ = _newton(thicker, unknowns, step, _ON_THE_WAY, most_iterations)
        step = _LONGEST_STEP
    return unknowns


def _newton(
    equations: SteadyEquations,
    unknowns: Float[np.ndarray, " unknowns"],
    step: float,
    tolerance: float,
    most_iterations: int,
) -> tuple[Float[np.ndarray, " unknowns"], Residual, list[float]]:
    """The unknowns, what is left of the equations, and the residuals on the way."""
    linear = _Linear(equations)
    found = equations.residual(unknowns)
    residuals = [found.size]
    for _ in range(most_iterations):
        if found.size < tolerance:
            break
        if limits().is_over:
            raise OutOfTimeError(f"The time was over before the steady state, at a residual of {found.size:.1e}.")
        change = linear.change(found, step)
        tried = equations.residual(unknowns + change)
        # NaN is not smaller; pressures grow without bound in corners where the velocity jumps.
        if not tried.size < 3.0 * found.size or not float(tried.velocity.abs().max()) < _LARGEST:
            step = min(step, _FIRST_STEP / _SHRINKAGE) * _SHRINKAGE
            if step < 1e-4 * _FIRST_STEP:
                break
            continue
        unknowns, ratio = unknowns + change, found.size / max(tried.size, 1e-300)
        found = tried
        residuals.append(found.size)
        step = min(step * min(max(ratio, _SLOWEST), _GROWTH) ** (1.0 if ratio > 1.0 else 0.5), _LONGEST_STEP)
    return unknowns, found, residuals


def prolonged(coarse: Problem, state: State, fine: Problem) -> State:
    """A state on cells that were split once more: a cubic along each edge that was halved."""
    assert coarse.numbering is not None, "batches are not split"
    assert fine.numbering is not None, "batches are not split"
    cells, places = fine.cells, torch.from_numpy(fine.numbering.places[coarse.numbering.stands])
    number = cells.number_of_points
    values, slopes = torch.zeros(3, number, dtype=torch.float64), torch.zeros(3, 2, number, dtype=torch.float64)
    given = torch.cat([state.velocity, state.pressure[None]])
    values[:, places], slopes[:, :, places] = given, coarse.cells.slope(given)
    known = torch.zeros(number, dtype=torch.bool)
    known[places] = True
    # New points are neighbours of the ends of their edge, or of the corners of their quad.
    total, count = torch.zeros_like(values), torch.zeros(number, dtype=torch.float64)
    for one, other, sign in ((cells.first, cells.second, 1.0), (cells.second, cells.first, -1.0)):
        new = known[one] & ~known[other]
        old, offsets = one[new], 0.5 * sign * cells.offsets[:, new]
        ahead = values[:, old] + slopes[:, 0, old] * offsets[0] + slopes[:, 1, old] * offsets[1]
        total.index_add_(1, other[new], ahead)
        count.index_add_(0, other[new], torch.ones_like(ahead[0]))
    values = torch.where(known, values, total / count.clamp_min(1.0))
    return State(values[:2], values[2], torch.zeros_like(cells.conductances))


class _Linear:
    """The linear equation of each iteration; its factors are kept while they serve."""

    def __init__(self, equations: SteadyEquations) -> None:
        self.equations = equations
        self.solve: Callable[[np.ndarray], np.ndarray] | None = None
        self.taken = 0
        free = equations.problem.free * equations.problem.cells.areas
        self.masses = torch.cat([free, free, torch.zeros_like(free)]).numpy()

    def change(self, found: Residual, step: float) -> Float[np.ndarray, " unknowns"]:
        """An implicit step in pseudo-time, Newton's where it is long."""
        if self.solve is None or self.taken > _FEW:
            self.solve = factors(self.equations, found, step).solve
        self.taken = 0
        inertia, shape = self.masses / step, (len(self.masses),) * 2
        changed = self.equations.derivative(found)

        def derivative(direction: np.ndarray) -> np.ndarray:
            return np.concatenate(changed(tuple(direction.reshape(3, -1)))) + inertia * direction

        def counted(_: float) -> None:
            self.taken += 1

        whole, solve = (
            LinearOperator(shape, each, dtype=float)  # pyright: ignore[reportCallIssue]
            for each in (derivative, self.solve)
        )
        change, _ = gmres(
            whole, -found.values.numpy(), rtol=_LINEAR, restart=_MOST, maxiter=1, M=solve,
            callback=counted, callback_type="pr_norm",
        )  # fmt: skip
        return change


@dataclass(frozen=True, eq=False)
class Factors:
    """Of a matrix whose rows and columns are scaled to a diagonal of ones.

    Without, thin cells make pivots small; rows are exchanged then, and factors have ten times as many entries.
    """

    factors: SuperLU
    scale: Float[np.ndarray, " unknowns"]

    def solve(self, right: Float[np.ndarray, " unknowns"], trans: str = "N") -> Float[np.ndarray, " unknowns"]:
        return self.scale * self.factors.solve(self.scale * right, trans=trans)


def factors(equations: SteadyEquations, found: Residual, step: float = math.inf) -> Factors:
    """Of the derivatives by neighbours."""
    matrix = equations.nearby(found, step)
    scale = 1.0 / np.sqrt(np.maximum(np.abs(matrix.diagonal()), 1e-300))
    # In place: the matrix is this function's own.
    matrix.data *= scale[matrix.indices] * np.repeat(scale, np.diff(matrix.indptr))
    return Factors(
        splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=_PIVOT, options={"SymmetricMode": True}), scale
    )
