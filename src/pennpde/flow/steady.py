"""Steady states by Newton's method: the scheme's own equations, without time.

In a steady state the fluxes are functions of velocity and pressure, F = S + B + s (smooth - uphill) with the terms of
`step`: what the velocities at the points give, what their curvature adds, and the pressure damping with its relaxation
time s. So the unknowns are u, v and p at the points, and the momentum and mass equations of each cell are solved for
all of them together, by a sparse direct factorisation per iteration. Far from the solution an implicit step in
pseudo-time takes the place of Newton's; it grows as the residual falls, so that the end is Newton's again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, gmres, splu
from torch import Tensor

from pennpde.flow.problem import Problem
from pennpde.flow.step import UPWIND, State, along_edges, begin, own_time, straight
from pennpde.limits import limits

TOLERANCE = 1e-7
"""Of the residual: the unbalanced acceleration, root mean square over the domain, in reference speeds squared per
reference length."""
MOST_ITERATIONS = 60
_FIRST_STEP = 0.5
"""Of pseudo-time, in the time that fluid takes for the reference length."""
_GROWTH, _SHRINKAGE = 4.0, 0.25
_LINEAR = 0.03
"""How far each linear equation is solved."""
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
    problem: Problem, *, tolerance: float = TOLERANCE, most_iterations: int = MOST_ITERATIONS
) -> SteadyState:
    """The steady state of one flow, from its potential flow on.

    Args:
        problem: One flow, in double precision, on the CPU.
        tolerance: Of the residual.
        most_iterations: Factorisations at most.
    """
    start = begin(problem)
    equations = _Equations(problem)
    unknowns = equations.packed(start.velocity, start.pressure)
    found = equations.at(unknowns)
    step, residuals = _FIRST_STEP, [found.size]
    for _ in range(most_iterations):
        if limits().is_over:
            break
        if found.size < tolerance:
            break
        change = equations.change(unknowns, found, step)
        tried = equations.at(unknowns + change)
        if not tried.size < 3.0 * found.size or not np.abs(unknowns + change).max() < _LARGEST:  # NaN is not
            step *= _SHRINKAGE
            if step < 1e-4 * _FIRST_STEP:
                break
            continue
        unknowns, ratio = unknowns + change, found.size / max(tried.size, 1e-300)
        found = tried
        residuals.append(found.size)
        step *= min(max(ratio, 1.5), _GROWTH) ** (1.0 if ratio > 1.0 else 0.5)
    velocity, pressure = equations.unpacked(unknowns)
    # As it was a step ago: a march that goes on from here does not begin with a start-up.
    before = (velocity, found.fluxes, torch.full_like(problem.viscosity, _FIRST_STEP))
    return SteadyState(State(velocity, pressure, found.fluxes, before), tuple(residuals), found.size < tolerance)


@dataclass(frozen=True, eq=False)
class _Residual:
    """What is left of the equations at some velocity and pressure, and what their derivatives need."""

    values: Float[np.ndarray, " unknowns"]
    size: float
    velocity: Float[Tensor, "2 points"]
    fluxes: Float[Tensor, " edges"]
    own: Float[Tensor, " edges"]
    difference: Float[Tensor, "2 edges"]
    roughness: Float[Tensor, "2 edges"]
    backward: Float[Tensor, " points"]


class _Equations:
    """The steady equations of a flow, and their derivatives as sparse matrices."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        cells = problem.cells
        self.points, edges = cells.number_of_points, len(cells.first)
        self.viscous = problem.viscosity * cells.conductances
        one, every = np.ones(edges), np.arange(edges)
        self.first = sparse.csr_array((one, (every, cells.first.numpy())), shape=(edges, self.points))
        self.second = sparse.csr_array((one, (every, cells.second.numpy())), shape=(edges, self.points))
        self.difference = self.second - self.first
        self.mean = 0.5 * (self.first + self.second)
        self.gradient = [each.to_scipy() for each in cells.gradient]
        self.by_velocity = [_diagonal(face) @ self.mean for face in cells.faces]
        normal = torch.zeros_like(problem.velocity) if problem.slip is None else problem.slip
        free = problem.free
        self.restrict = [
            [_diagonal(free * (float(row == column) - normal[row] * normal[column])) for column in (0, 1)]
            for row in (0, 1)
        ]
        self.keep = [
            [_diagonal(float(row == column) * (1 - free) + free * normal[row] * normal[column]) for column in (0, 1)]
            for row in (0, 1)
        ]
        self.uphill = _diagonal(cells.conductances) @ self.difference
        self.pressure_free = _diagonal(problem.pressure_free)
        self.pressure_held = _diagonal(1 - problem.pressure_free)

    def packed(self, velocity: Float[Tensor, "2 points"], pressure: Float[Tensor, " points"]) -> np.ndarray:
        held = self.problem.pressure_free < 0.5
        pressure = torch.where(held, self.problem.pressure, pressure)
        return torch.cat([velocity.reshape(-1), pressure]).numpy().astype(np.float64)

    def unpacked(self, unknowns: np.ndarray) -> tuple[Float[Tensor, "2 points"], Float[Tensor, " points"]]:
        values = torch.from_numpy(np.ascontiguousarray(unknowns))
        return values[: 2 * self.points].reshape(2, -1), values[2 * self.points :]

    def at(self, unknowns: np.ndarray) -> _Residual:
        problem, cells = self.problem, self.problem.cells
        velocity, pressure = self.unpacked(unknowns)
        here, there = along_edges(problem, cells.slope(velocity))
        convected = straight(problem, velocity, torch.ones_like(problem.viscosity)) + cells.curvature.fluxes(
            here, there
        )
        own = cells.mean(own_time(problem, convected))
        gradient = problem.gradient(pressure)
        rise = 0.0 if problem.jump is None else problem.jump[0]
        uphill = cells.conductances * (cells.difference(pressure) + rise)
        smooth = (cells.faces * cells.mean(problem.restrict(gradient))).sum(dim=0)
        fluxes = convected + own * (smooth - uphill)
        difference = cells.difference(velocity)
        roughness = difference - torch.where(fluxes > 0, here, there)
        gained = 0.5 * UPWIND * fluxes.abs() * roughness
        backward = 0.5 * problem.open * cells.collected(fluxes).clamp_min(0.0)
        # Advection and diffusion act on differences, as in `DualCells.matrix`.
        momentum = cells.gathered(0.5 * fluxes * difference) - cells.collected(self.viscous * difference + gained)
        momentum = momentum + backward * velocity + cells.areas * gradient
        mass = cells.collected(fluxes) + problem.inflow
        mass = mass - cells.areas * problem.closed * (mass.sum() / cells.areas.sum())
        free = problem.restrict(momentum)
        held = velocity - problem.velocity
        held = held * (1 - problem.free) + (velocity - problem.along_slip_walls(velocity)) * problem.free
        given = (pressure - problem.held_pressure(velocity)) * (1 - problem.pressure_free)
        mass = mass * problem.pressure_free
        values = torch.cat([(free + held).reshape(-1), mass + given])
        size = float(((free.square().sum(dim=0) + mass.square()) / cells.areas).sum() / cells.areas.sum()) ** 0.5
        size = size + float(held.abs().amax())
        return _Residual(
            values.numpy(), size if math.isfinite(size) else math.inf, velocity, fluxes, own, difference, roughness,
            backward,
        )  # fmt: skip

    def change(self, unknowns: np.ndarray, found: _Residual, step: float) -> np.ndarray:
        """An implicit step in pseudo-time, Newton's where it is long."""
        factors = splu(
            self._nearby(found, step),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.01,
            options={"SymmetricMode": True},
        )
        masses = (self.problem.free * self.problem.cells.areas).numpy() / step
        inertia = np.concatenate([masses, masses, np.zeros(self.points)])
        one = 1e-7 * max(1.0, float(np.abs(unknowns).max()))

        def derivative(direction: np.ndarray) -> np.ndarray:
            size = float(np.abs(direction).max())
            if size == 0.0:
                return direction
            ahead = self.at(unknowns + one / size * direction).values
            return (ahead - found.values) * (size / one) + inertia * direction

        shape = (len(unknowns), len(unknowns))
        found_change, _ = gmres(
            LinearOperator(shape, derivative), -found.values, rtol=_LINEAR, restart=60, maxiter=1,
            M=LinearOperator(shape, factors.solve),
        )  # fmt: skip
        return found_change

    def _nearby(self, found: _Residual, step: float) -> sparse.csc_array:
        """The derivatives as far as neighbours go: cheap to factorise, and near enough to the whole ones.

        Left out are the curvature of the velocity, gradients in the upwind and pressure terms, and how relaxation times
        depend on the flow.
        """
        fluxes = found.fluxes
        by_pressure = -(_diagonal(found.own) @ self.uphill)
        out = self.difference.T  # minus what `collected` does
        gathered = (self.first + self.second).T
        conducted = _diagonal(self.viscous + 0.5 * UPWIND * fluxes.abs())
        transport = gathered @ _diagonal(0.5 * fluxes) @ self.difference + out @ conducted @ self.difference
        transport = transport + _diagonal(found.backward + self.problem.cells.areas / step)
        by_flux = [gathered @ _diagonal(0.5 * found.difference[axis]) for axis in (0, 1)]
        rows = []
        for axis in (0, 1):
            blocks = [by_flux[axis] @ each for each in self.by_velocity]
            blocks[axis] = blocks[axis] + transport
            rows.append([*blocks, _diagonal(self.problem.cells.areas) @ self.gradient[axis]])
        restricted = [
            [
                sum(self.restrict[row][each] @ rows[each][column] for each in (0, 1))
                + (self.keep[row][column] if column < 2 else 0.0 * self.pressure_free)
                for column in range(3)
            ]
            for row in (0, 1)
        ]
        mass = [-self.pressure_free @ out @ each for each in (*self.by_velocity, by_pressure)]
        mass[2] = mass[2] + self.pressure_held
        return sparse.csc_array(sparse.block_array([*restricted, mass]))


def _diagonal(values: Float[Tensor, " entries"]) -> sparse.dia_array:
    return sparse.diags_array(values.numpy())
