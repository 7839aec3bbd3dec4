"""One time step of an incompressible flow on dual cells, in formulas of docs/theory.md ("Steps from any state").

The momentum equation is implicit and of second order in time (BDF2), the pressure's equation is solved, and mass is
conserved by the fluxes F through the faces to the precision of that solution. Before training, nothing else happens; a
learned correction (`correction`) changes the stress between neighbouring cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.models.stepping.problem import Problem
from pennpde.operators import krylov

UPWIND = 0.1
"""Share of linear upwind interpolation of the advected velocity; the rest is the mean of two neighbours."""


@dataclass(frozen=True, eq=False)
class State:
    """Velocity and pressure at the points, fluxes through the faces, and the state one step before.

    Attributes:
        velocity: at the points.
        pressure: at the points, without periodic jumps.
        fluxes: volume per time through each face, from the edge's first point to its second.
        before: velocity, fluxes and length of the last step; None at the start.
    """

    velocity: Float[Tensor, "points 2"]
    pressure: Float[Tensor, " points"]
    fluxes: Float[Tensor, " edges"]
    before: tuple[Float[Tensor, "points 2"], Float[Tensor, " edges"], Float[Tensor, " flows"]] | None = None

    def detached(self) -> State:
        before = self.before and (self.before[0].detach(), self.before[1].detach(), self.before[2])
        return State(self.velocity.detach(), self.pressure.detach(), self.fluxes.detach(), before)


@dataclass(frozen=True, eq=False)
class Stress:
    """What a correction adds to the exchange of momentum between neighbours.

    Attributes:
        conductance: times the difference of their velocities; with that of viscosity it must stay positive.
        roughness: times what of that difference a linear velocity does not explain.
    """

    conductance: Float[Tensor, " edges"]
    roughness: Float[Tensor, " edges"]


Correction = Callable[[Problem, Float[Tensor, "points 2"], Float[Tensor, " edges"], Float[Tensor, " flows"]], Stress]
"""From a problem, velocity, fluxes and step to the additional stress."""


def begin(problem: Problem) -> State:
    """The state at the start: the given velocity without what mass conservation does not allow.

    From rest that leaves the potential flow: what an impulsive start makes of it.
    """
    step = torch.ones_like(problem.viscosity)
    velocity = problem.velocity - problem.slip * (problem.slip * problem.velocity).sum(dim=1, keepdim=True)
    nothing = torch.zeros_like(problem.pressure)
    velocity, _, fluxes = _projected(problem, velocity, nothing, step, with_jump=False)
    return State(velocity, problem.pressure, fluxes)


def advance(
    problem: Problem,
    state: State,
    step: Float[Tensor, " flows"],
    correction: Correction | None = None,
    *,
    passes: int = 1,
    tolerance: float = 1e-4,
) -> State:
    """The state a step later.

    Args:
        problem: Conditions as they hold at the end of the step.
        state: From which the step starts.
        step: Its length, one per flow.
        correction: The learned part.
        passes: How often momentum and pressure are solved in turn; two for the first step, whose pressure is unknown.
        tolerance: Of the momentum equation.
    """
    cells = problem.cells
    velocity, pressure = state.velocity, state.pressure
    if state.before is None:
        leading, past, expected, fluxes = torch.ones_like(step), velocity, velocity, state.fluxes
    else:
        ratio = step / state.before[2]
        leading = (1 + 2 * ratio) / (1 + ratio)
        at_points, at_edges = cells.at_points(ratio)[:, None], cells.at_edges(ratio)
        past = (1 + at_points) * velocity - at_points.square() / (1 + at_points) * state.before[0]
        expected = (1 + at_points) * velocity - at_points * state.before[0]
        fluxes = (1 + at_edges) * state.fluxes - at_edges * state.before[1]
    shorter = step / leading
    mass = cells.areas / cells.at_points(step)
    new_velocity, new_pressure, new_fluxes = velocity, pressure, fluxes
    viscous = cells.at_edges(problem.viscosity) * cells.conductances
    for _ in range(passes):
        stress = None if correction is None else correction(problem, expected, fluxes, step)
        size = 0.5 * fluxes.abs()
        slope = cells.slope(expected)
        rough = cells.difference(expected) - _along(cells.offsets, slope[_upwind(cells, fluxes)])
        rough_size = UPWIND * size
        symmetric = viscous
        if stress is not None:
            symmetric, rough_size = viscous + stress.conductance, rough_size + stress.roughness
        # Where fluid enters through an outlet, advection would bring energy that nobody knows of.
        backward = 0.5 * problem.open * cells.collected(fluxes).clamp_min(0.0)
        matrix = cells.matrix(cells.at_points(leading) * mass + backward, symmetric, 0.5 * fluxes)
        right = mass[:, None] * past + cells.collected(rough_size[:, None] * rough)
        right = right - cells.areas[:, None] * problem.gradient(new_pressure)
        guess = torch.where(problem.free[:, None] > 0, problem.restrict(expected), problem.velocity)
        found = krylov.solve(cells, matrix, right, guess, problem.restrict, tolerance=tolerance)
        new_velocity, new_pressure, new_fluxes = _projected(problem, found, new_pressure, shorter)
        fluxes = new_fluxes
    return State(new_velocity, new_pressure, new_fluxes, (velocity, state.fluxes, step))


def _projected(
    problem: Problem, velocity: Tensor, pressure: Tensor, step: Tensor, *, with_jump: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Velocity, pressure and fluxes that conserve mass, from a velocity under an earlier pressure."""
    cells = problem.cells
    at_points, at_edges = cells.at_points(step), cells.at_edges(step)
    slope = problem.gradient if with_jump else cells.slope
    before = slope(pressure) if with_jump else torch.zeros_like(velocity)
    without = velocity + at_points[:, None] * problem.restrict(before)
    fluxes = (cells.faces * (cells.mean(without) + problem.facet_shift)).sum(dim=1)
    missing = cells.collected(fluxes) + problem.inflow
    right = -missing / at_points
    rise = torch.zeros_like(fluxes) if problem.jump is None or not with_jump else problem.jump[0]
    right = right + cells.collected(cells.conductances * rise)
    # In a closed domain all that flows in must flow out: rounding and discretisation are spread evenly.
    whole = cells.total(right) / cells.total(cells.areas)
    right = right - cells.areas * cells.at_points(problem.closed * whole)
    if with_jump:
        # Prescribed values of the pressure act on their neighbours; the solver looks for the rest.
        given = problem.pressure * (1 - problem.pressure_free)
        right = right + cells.collected(cells.conductances * cells.difference(given))
        found = problem.pressure_solver.solve(right, pressure * problem.pressure_free) + given
    else:
        found = problem.pressure_solver.solve(right, torch.zeros_like(pressure))
    fluxes = fluxes - at_edges * cells.conductances * (cells.difference(found) + rise)
    change = slope(found) - before
    return velocity - at_points[:, None] * problem.restrict(change), found, fluxes


def _upwind(cells, fluxes: Tensor) -> Tensor:
    return torch.where(fluxes > 0, cells.first, cells.second)


def _along(offsets: Tensor, slope: Tensor) -> Tensor:
    """The change along an edge that a velocity with this gradient has."""
    return (offsets[:, :, None] * slope).sum(dim=1)
