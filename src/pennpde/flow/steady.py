"""Steady states by Newton's method: the scheme's own equations (`steady_equations`), without time.

It starts with a viscous fluid and goes on to the given one. Where a step of Newton's goes too far, an implicit step in
pseudo-time takes its place; that grows as the residual falls, so that the end is Newton's again. Each linear equation
is solved by GMRES with all derivatives. Its preconditioner are the factors of the derivatives by neighbours, which are
made again only when they no longer serve. On split cells the iteration starts at the steady state of the cells before
splitting: one factorisation and a few steps remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, SuperLU, gmres, splu
from torch import Tensor

from pennpde.flow.curvature_flux import MEAN
from pennpde.flow.problem import Problem
from pennpde.flow.step import (
    CROSSED,
    UPWIND,
    State,
    along_edges,
    backward,
    begin,
    from_static,
    own_time,
    straight,
    unbalanced,
)
from pennpde.progress import OutOfTimeError, limits, tell

# The steady equations of a flow: what is left of them, and their derivatives.
#
# In a steady state the fluxes are functions of velocity and pressure, F = S + B + s (smooth - uphill) with the terms of
# `step`: what the velocities at the points give, what their curvature adds, and the pressure damping with its
# relaxation time s. So the unknowns are the components of u and p at the points, one after the other, and there are as
# many equations: of momentum and mass in each cell, or what is prescribed there.


Changes = tuple[np.ndarray, ...] | tuple[sparse.csr_array, ...]
"""Of the components of u and of p."""


@dataclass(frozen=True, eq=False)
class Residual:
    """What is left of the equations at some velocity and pressure, and what their derivatives need.

    Attributes:
        values: of the equations.
        size: the unbalanced acceleration, root mean square over the domain.
        velocity: at the points.
        fluxes: through the faces.
        convected: what of the fluxes velocities bring.
        own: relaxation time at the points.
        damped: pressure differences that the fluxes feel beyond smooth ones.
        momentum: what is left of its equation, also where the velocity is prescribed: there walls take it up.
    """

    values: Float[Tensor, " unknowns"]
    size: float
    velocity: Float[Tensor, "space points"]
    fluxes: Float[Tensor, " edges"]
    convected: Float[Tensor, " edges"]
    own: Float[Tensor, " points"]
    damped: Float[Tensor, " edges"]
    momentum: Float[Tensor, "space points"]


class SteadyEquations:
    """The steady equations of one flow.

    Args:
        problem: In double precision, on the CPU.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        cells = problem.cells
        self.points, edges = cells.number_of_points, len(cells.first)
        self.viscous = problem.viscosity * cells.conductances
        one, every = np.ones(edges), np.arange(edges)
        first = sparse.csr_array((one, (every, cells.first.numpy())), shape=(edges, self.points))
        second = sparse.csr_array((one, (every, cells.second.numpy())), shape=(edges, self.points))
        self._difference, self._mean = second - first, 0.5 * (first + second)
        # Sums over the edges of each point, and what leaves its cell.
        self._gathered, self._collected = (first + second).T.tocsr(), (first - second).T.tocsr()
        self._gradient = [each.to_scipy() for each in cells.gradient]
        # How much the gradient at one end, and at the other, changes a value along an edge.
        self._along = [
            sum(_diagonal(offset) @ end @ slope for offset, slope in zip(cells.offsets, self._gradient, strict=True))
            for end in (first, second)
        ]
        curved, bent = cells.curvature, self._along[0] - self._along[1]
        shape = edges, curved.number_of_cells
        shares = np.ones(len(curved.side_cell)) if curved.means is None else curved.means.numpy()
        sides = sparse.csr_array((shares, (curved.side_cell, curved.side_edge)), shape[::-1])
        above = sides @ _diagonal(MEAN * curved.heights) @ bent
        self._convected = [
            _diagonal(face) @ self._mean
            + sparse.csr_array((share.numpy(), (curved.face_edge.numpy(), curved.face_cell.numpy())), shape) @ above
            for face, share in zip(cells.faces, curved.faces, strict=True)
        ]
        normals = [each for each in (problem.slip, problem.slip_too) if each is not None]
        free, axes = problem.free, range(cells.space)
        same = [[float(row == column) for column in axes] for row in axes]
        across = [[sum((each[row] * each[column] for each in normals), 0.0 * free) for column in axes] for row in axes]
        self._restrict, self._keep = (
            [[made(row, column).numpy() for column in axes] for row in axes]
            for made in (
                lambda row, column: free * (same[row][column] - across[row][column]),
                lambda row, column: same[row][column] * (1 - free) + free * across[row][column],
            )
        )
        restricted = [
            sum(_diagonal(self._restrict[row][column]) @ self._gradient[column] for column in axes) for row in axes
        ]
        self._damped = sum(
            _diagonal(face) @ self._mean @ each for face, each in zip(cells.faces, restricted, strict=True)
        )
        self._damped = self._damped - _diagonal(cells.conductances) @ self._difference
        self._places = _block_places(problem)

    def with_viscosity(self, viscosity: float) -> SteadyEquations:
        """Those of another fluid in the same cells."""
        other = copy(self)
        other.problem = replace(self.problem, viscosity=torch.full_like(self.problem.viscosity, viscosity))
        other.viscous = viscosity * self.problem.cells.conductances
        return other

    def packed(self, velocity: Float[Tensor, "space points"], pressure: Float[Tensor, " points"]) -> np.ndarray:
        """The unknowns, with what is prescribed."""
        problem = self.problem
        pressure = torch.where(problem.pressure_free < 0.5, problem.pressure, pressure)
        velocity = torch.where(problem.free > 0.5, problem.along_slip_walls(velocity), problem.velocity)
        return torch.cat([velocity.reshape(-1), pressure]).numpy().astype(np.float64)

    def unpacked(self, unknowns: np.ndarray | Tensor) -> tuple[Float[Tensor, "space points"], Float[Tensor, " points"]]:
        values = unknowns if isinstance(unknowns, Tensor) else torch.from_numpy(np.ascontiguousarray(unknowns))
        velocity, pressure = values[: -self.points], values[-self.points :]
        return velocity.reshape(self.problem.cells.space, -1), pressure

    def residual(self, unknowns: np.ndarray | Tensor) -> Residual:
        """What is left there; of a tensor with its derivatives by autograd."""
        problem, cells = self.problem, self.problem.cells
        velocity, pressure = self.unpacked(unknowns)
        here, there = along_edges(problem, cells.slope(velocity))
        convected = straight(problem, velocity, torch.ones_like(problem.viscosity)) + cells.curvature.fluxes(
            here, there
        )
        own = own_time(problem, convected)
        gradient = problem.gradient(pressure)
        rise = 0.0 if problem.jump is None else problem.jump[0]
        uphill = cells.conductances * (cells.difference(pressure) + rise)
        damped = (cells.faces * cells.mean(problem.restrict(gradient))).sum(dim=0) - uphill
        fluxes = convected + cells.mean(own) * damped
        momentum = unbalanced(problem, velocity, fluxes, gradient, (here, there))
        mass = cells.collected(fluxes) + problem.inflow
        mass = mass - cells.areas * problem.closed * (mass.sum() / cells.areas.sum())
        free = problem.restrict(momentum)
        held = velocity - problem.velocity
        held = held * (1 - problem.free) + (velocity - problem.along_slip_walls(velocity)) * problem.free
        given = (pressure - problem.held_pressure(velocity)) * (1 - problem.pressure_free)
        mass = mass * problem.pressure_free
        values = torch.cat([(free + held).reshape(-1), mass + given])
        squares = (free.detach().square().sum(dim=0) + mass.detach().square()) / cells.areas
        size = float(squares.sum() / cells.areas.sum()) ** 0.5 + float(held.detach().abs().amax())
        return Residual(
            values=values,
            size=size if math.isfinite(size) else math.inf,
            velocity=velocity,
            fluxes=fluxes,
            convected=convected,
            own=own,
            damped=damped,
            momentum=momentum,
        )

    def derivative(self, found: Residual) -> Callable[[Changes], tuple[Any, ...]]:
        """The function from changes of u and p to that of the equations: of vectors, or of columns of matrices."""
        problem, areas = self.problem, self.problem.cells.areas
        signs = _diagonal(found.convected.sign())
        slower = _diagonal(-0.5 / CROSSED * found.own.square() / areas)
        own, damped = _diagonal(self._mean @ found.own.numpy()), _diagonal(found.damped)
        enters = 0.5 * problem.open * (problem.cells.collected(found.fluxes) > 0)
        forth = (found.fluxes > 0).to(areas)
        ahead, behind, half, viscous = map(_diagonal, (forth, 1 - forth, 0.5 * found.fluxes, self.viscous))
        differences = problem.cells.difference(found.velocity)
        along = along_edges(problem, problem.cells.slope(found.velocity))
        roughness = differences - torch.where(found.fluxes > 0, *along)
        entering = from_static(problem, found.fluxes)
        linear, gained = UPWIND * (1 - entering), UPWIND * (1 - entering) * roughness + entering * differences
        gains = _diagonal(0.5 * linear * found.fluxes.abs())
        carried_along = _diagonal(0.5 * entering * found.fluxes.abs())
        by_flux = [
            (_diagonal(0.5 * each), _diagonal(0.5 * found.fluxes.sign() * gain), _diagonal(enters * velocity))
            for each, gain, velocity in zip(differences, gained, found.velocity, strict=True)
        ]
        entered, volumes = _diagonal(backward(problem, found.fluxes)), _diagonal(areas)
        held = 1 - problem.pressure_free
        free, given = _diagonal(problem.pressure_free), _diagonal(held)
        # A total pressure falls with the velocity of what enters.
        total = torch.zeros_like(found.velocity) if problem.total is None else problem.total
        entering_speed = held * (total * found.velocity).sum(dim=0).clamp_min(0.0)
        drawn = [_diagonal(entering_speed * each) for each in total]
        restrict, keep = ([[_diagonal(each) for each in row] for row in rows] for rows in (self._restrict, self._keep))

        def changed(changes: Changes) -> tuple[Any, ...]:
            *velocities, pressure = changes
            convected = _product(self._convected, velocities)
            fluxes = convected + own @ (self._damped @ pressure)
            fluxes = fluxes + damped @ (self._mean @ (slower @ (self._gathered @ (signs @ convected))))
            leaving = self._collected @ fluxes
            rates = []
            for axis, (velocity, (carried, rough, entering)) in enumerate(zip(velocities, by_flux, strict=True)):
                difference = self._difference @ velocity
                here, there = (along @ velocity for along in self._along)
                rate = self._gathered @ (carried @ fluxes + half @ difference)
                gained = rough @ fluxes + gains @ (difference - ahead @ here - behind @ there)
                gained = gained + (viscous + carried_along) @ difference
                rate = rate - self._collected @ gained
                rate = rate + entered @ velocity + entering @ leaving
                rates.append(rate + volumes @ (self._gradient[axis] @ pressure))
            momentum = [
                _product(of_rates, rates) + _product(of_velocities, velocities)
                for of_rates, of_velocities in zip(restrict, keep, strict=True)
            ]
            mass = free @ leaving + given @ pressure + _product(drawn, velocities)
            return *momentum, mass

        return changed

    def jacobian(self, found: Residual) -> sparse.csr_array:
        """All derivatives. The rows are wide: a direct solver is better served by `nearby`, corrected by iterations."""
        blocks = self.problem.cells.space + 1
        whole = sparse.csr_array(sparse.eye_array(blocks * self.points))
        columns = tuple(
            sparse.csr_array(whole[start * self.points : (start + 1) * self.points]) for start in range(blocks)
        )
        return sparse.csr_array(sparse.vstack(self.derivative(found)(columns)))

    def nearby(self, found: Residual, step: float = math.inf) -> sparse.csc_array:
        """The derivatives as far as neighbours go: cheap to factorise, and near enough to the whole ones.

        Left out are the curvature of the velocity, gradients in the upwind and pressure terms, and how relaxation times
        depend on the flow.

        Args:
            found: Where.
            step: Of an implicit step in pseudo-time; infinite for none.
        """
        problem, cells = self.problem, self.problem.cells
        fluxes, faces, areas = found.fluxes.numpy(), cells.faces.numpy(), cells.areas.numpy()
        first, second = cells.first.numpy(), cells.second.numpy()
        gradient = [each.values.numpy() for each in cells.gradient]
        entries, differences = cells.entries.numpy(), cells.difference(found.velocity).numpy()

        def laid(here: np.ndarray, there: np.ndarray, other: np.ndarray, own: np.ndarray) -> np.ndarray:
            """Diagonal, then entries forth and back, from what first and second points do to each other's rows.

            Args:
                here: what the first point does to its own row.
                there: what the second point does to the row of the first.
                other: what the first point does to the row of the second.
                own: what the second point does to its own row.
            """
            on = np.bincount(first, here, self.points) + np.bincount(second, own, self.points)
            return np.concatenate([on, there, other])

        entering = from_static(problem, found.fluxes)
        conducted = self.viscous.numpy() + 0.5 * np.asarray(UPWIND * (1 - entering) + entering) * np.abs(fluxes)
        transport = laid(
            conducted - 0.5 * fluxes, 0.5 * fluxes - conducted, -0.5 * fluxes - conducted, 0.5 * fluxes + conducted
        )
        transport[: self.points] += backward(problem, found.fluxes).numpy() + areas / step
        rows = np.concatenate([np.arange(self.points), first, second])
        blocks: list[list[np.ndarray]] = []
        axes = range(cells.space)
        for axis in axes:
            shares = 0.25 * differences[axis] * faces
            made = [laid(*(share,) * 4) for share in shares]
            made[axis] = made[axis] + transport
            slope = np.empty(len(entries))
            slope[entries] = gradient[axis]
            blocks.append([*made, areas[rows] * slope])
        own = self._mean @ found.own.numpy() * cells.conductances.numpy()
        mass = [laid(0.5 * face, 0.5 * face, -0.5 * face, -0.5 * face) for face in faces]
        mass.append(laid(own, -own, -own, own))
        restricted = [
            [
                reduce(add, (self._restrict[row][axis][rows] * blocks[axis][column] for axis in axes))
                for column in range(cells.space + 1)
            ]
            for row in axes
        ]
        restricted.append([problem.pressure_free.numpy()[rows] * each for each in mass])
        for row in axes:
            for column in axes:
                restricted[row][column][: self.points] += self._keep[row][column]
        restricted[-1][-1][: self.points] += 1 - problem.pressure_free.numpy()
        order, indices, starts = self._places
        values = np.concatenate([each for row in restricted for each in row])[order]
        return sparse.csc_array((values, indices, starts), shape=((cells.space + 1) * self.points,) * 2)


def _product(matrices: Sequence[Any], parts: Sequence[Any]) -> Any:
    """A row of blocks times a column."""
    return reduce(add, (matrix @ part for matrix, part in zip(matrices, parts, strict=True)))


def _block_places(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the entries of all blocks of neighbours, of each equation and unknown, go in a matrix by columns."""
    cells = problem.cells
    number, blocks = cells.number_of_points, range(cells.space + 1)
    every = np.arange(number)
    first, second = cells.first.numpy(), cells.second.numpy()
    rows, columns = np.concatenate([every, first, second]), np.concatenate([every, second, first])
    row = np.concatenate([rows + number * block for block in blocks for _ in blocks])
    column = np.concatenate([columns + number * block for _ in blocks for block in blocks])
    # Counted from one: a matrix drops no entry that is not zero.
    numbered = sparse.csc_array((np.arange(1, len(row) + 1), (row, column)), shape=(len(blocks) * number,) * 2)
    return numbered.data - 1, numbered.indices, numbered.indptr


def _diagonal(values: Tensor | np.ndarray) -> sparse.dia_array:
    return sparse.diags_array(np.asarray(values))


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
_HALF = 0.5
"""Of the time, which viscous fluids take, roughly."""
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
    done = _HALF if start is None else 0.0, 1.0
    unknowns, found, residuals = _newton(equations, unknowns, step, tolerance, most_iterations, done)
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
        done = _HALF * (number - each) / number, _HALF * (number - each + 1) / number
        unknowns, _, _ = _newton(thicker, unknowns, step, _ON_THE_WAY, most_iterations, done)
        step = _LONGEST_STEP
    return unknowns


def _newton(
    equations: SteadyEquations,
    unknowns: Float[np.ndarray, " unknowns"],
    step: float,
    tolerance: float,
    most_iterations: int,
    done: tuple[float, float],
) -> tuple[Float[np.ndarray, " unknowns"], Residual, list[float]]:
    """The unknowns, what is left of the equations, and the residuals on the way.

    Args:
        equations: Of one viscosity.
        unknowns: To begin with.
        step: Of pseudo-time.
        tolerance: Of the residual.
        most_iterations: Linear equations at most.
        done: Shares of the whole work before and after, for whoever watches.
    """
    linear = _Linear(equations)
    found = equations.residual(unknowns)
    residuals = [found.size]
    for _ in range(most_iterations):
        if found.size < tolerance:
            break
        fallen = math.log(max(residuals) / min(residuals)) / math.log(max(residuals) / tolerance)
        tell(f"steady state, {equations.points:,} cells", done[0] + (done[1] - done[0]) * fallen)
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
    space = cells.space
    values = torch.zeros(space + 1, number, dtype=torch.float64)
    slopes = torch.zeros(space + 1, space, number, dtype=torch.float64)
    given = torch.cat([state.velocity, state.pressure[None]])
    values[:, places], slopes[:, :, places] = given, coarse.cells.slope(given)
    known = torch.zeros(number, dtype=torch.bool)
    known[places] = True
    # New points are neighbours of the ends of their edge, or of the corners of their quad.
    total, count = torch.zeros_like(values), torch.zeros(number, dtype=torch.float64)
    for one, other, sign in ((cells.first, cells.second, 1.0), (cells.second, cells.first, -1.0)):
        new = known[one] & ~known[other]
        old, offsets = one[new], 0.5 * sign * cells.offsets[:, new]
        ahead = reduce(add, (slopes[:, axis, old] * offset for axis, offset in enumerate(offsets)), values[:, old])
        total.index_add_(1, other[new], ahead)
        count.index_add_(0, other[new], torch.ones_like(ahead[0]))
    values = torch.where(known, values, total / count.clamp_min(1.0))
    return State(values[:space], values[space], torch.zeros_like(cells.conductances))


class _Linear:
    """The linear equation of each iteration; its factors are kept while they serve."""

    def __init__(self, equations: SteadyEquations) -> None:
        self.equations = equations
        self.solve: Callable[[np.ndarray], np.ndarray] | None = None
        self.taken = 0
        cells = equations.problem.cells
        free = equations.problem.free * cells.areas
        self.blocks = cells.space + 1
        self.masses = torch.cat([*[free] * cells.space, torch.zeros_like(free)]).numpy()

    def change(self, found: Residual, step: float) -> Float[np.ndarray, " unknowns"]:
        """An implicit step in pseudo-time, Newton's where it is long."""
        if self.solve is None or self.taken > _FEW:
            self.solve = factors(self.equations, found, step).solve
        self.taken = 0
        inertia, shape = self.masses / step, (len(self.masses),) * 2
        changed = self.equations.derivative(found)

        def derivative(direction: np.ndarray) -> np.ndarray:
            return np.concatenate(changed(tuple(direction.reshape(self.blocks, -1)))) + inertia * direction

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
