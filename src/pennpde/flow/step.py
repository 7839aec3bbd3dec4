"""One time step of an incompressible flow on dual cells, in formulas of docs/general_flow.md.

The momentum equation is implicit and of second order in time (BDF2), the pressure's equation is solved, and mass is
conserved by the fluxes F through the faces to the precision of that solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.flow import krylov
from pennpde.flow.problem import Problem

CROSSED, DIFFUSED, PASSED = 2.0, 1.0, 1.0
"""How many cells fluid crosses, how often a cell diffuses, and how many cells the reference speed passes, in the time
in which a flux forgets: see `own_time`."""
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
        left: of the momentum equation's residual, see `krylov.solve`; None at the start.
    """

    velocity: Float[Tensor, "space points"]
    pressure: Float[Tensor, " points"]
    fluxes: Float[Tensor, " edges"]
    before: tuple[Float[Tensor, "space points"], Float[Tensor, " edges"], Float[Tensor, " flows"]] | None = None
    left: Float[Tensor, " flows"] | None = None

    def to(self, like: Tensor) -> State:
        """The same in another precision and on another device."""
        before = self.before and (self.before[0].to(like), self.before[1].to(like), self.before[2].to(like))
        return State(self.velocity.to(like), self.pressure.to(like), self.fluxes.to(like), before)

    def detached(self) -> State:
        before = self.before and (self.before[0].detach(), self.before[1].detach(), self.before[2])
        return State(self.velocity.detach(), self.pressure.detach(), self.fluxes.detach(), before)


def begin(problem: Problem) -> State:
    """The state at the start: the given velocity without what mass conservation does not allow.

    From rest that leaves the potential flow: what an impulsive start makes of it.
    """
    step = torch.ones_like(problem.viscosity)
    velocity = problem.along_slip_walls(problem.velocity)
    nothing = torch.zeros_like(problem.pressure)
    curved = problem.cells.curvature.fluxes(*along_edges(problem, problem.cells.slope(velocity)))
    velocity, _, fluxes = _projected(problem, velocity, nothing, step, curved, with_jump=False)
    return State(velocity, problem.pressure, fluxes)


def advance(
    problem: Problem,
    state: State,
    step: Float[Tensor, " flows"],
    *,
    passes: int = 1,
    effort: krylov.Effort | None = None,
) -> State:
    """The state a step later.

    Args:
        problem: Conditions as they hold at the end of the step.
        state: From which the step starts.
        step: Its length, one per flow.
        passes: How often momentum and pressure are solved in turn; two for the first step, whose pressure is unknown.
        effort: For the momentum equation.
    """
    cells = problem.cells
    velocity, pressure = state.velocity, state.pressure
    if state.before is None:
        leading, past, expected, fluxes = torch.ones_like(step), velocity, velocity, state.fluxes
        past_fluxes = None
    else:
        ratio = step / state.before[2]
        leading = (1 + 2 * ratio) / (1 + ratio)
        at_points, at_edges = cells.at_points(ratio), cells.at_edges(ratio)
        past = (1 + at_points) * velocity - at_points.square() / (1 + at_points) * state.before[0]
        expected = (1 + at_points) * velocity - at_points * state.before[0]
        fluxes = (1 + at_edges) * state.fluxes - at_edges * state.before[1]
        past_fluxes = (1 + at_edges) * state.fluxes - at_edges.square() / (1 + at_edges) * state.before[1]
    shorter = step / leading
    mass = cells.areas / cells.at_points(step)
    new_velocity, new_pressure, new_fluxes, left = velocity, pressure, fluxes, None
    viscous = cells.at_edges(problem.viscosity) * cells.conductances
    for _ in range(passes):
        first, second = cells.ends(expected)
        here, there = along_edges(problem, cells.slope(expected))
        # What of the difference along an edge the gradient upstream does not explain.
        rough = second - first - torch.where(fluxes > 0, here, there)
        entering = from_static(problem, fluxes)
        gained = 0.5 * UPWIND * (1 - entering) * fluxes.abs() * rough
        diagonal = cells.at_points(leading) * mass + backward(problem, fluxes)
        matrix = cells.matrix(diagonal, viscous + 0.5 * entering * fluxes.abs(), 0.5 * fluxes)
        right = mass * past + cells.collected(gained)
        right = right - cells.areas * problem.gradient(new_pressure)
        guess = torch.where(problem.free > 0, problem.restrict(expected), problem.velocity)
        found, left = krylov.solve(cells, matrix, right, guess, problem.restrict, effort)
        # Of the expected velocity: what is curved is small, and its gradients are there.
        curved = cells.curvature.fluxes(here, there)
        # What the fluxes had beyond the velocities at the points, before the step; nothing where it starts.
        beyond = None
        if past_fluxes is not None:
            beyond = (past_fluxes - straight(problem, past, leading)) / cells.at_edges(leading) - curved
        new_velocity, new_pressure, new_fluxes = _projected(problem, found, new_pressure, shorter, curved, beyond)
        fluxes = new_fluxes
    return State(new_velocity, new_pressure, new_fluxes, (velocity, state.fluxes, step), left)


def _projected(
    problem: Problem,
    velocity: Tensor,
    pressure: Tensor,
    step: Tensor,
    curved: Tensor,
    beyond: Tensor | None = None,
    *,
    with_jump: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Velocity, pressure and fluxes that conserve mass, from a velocity under an earlier pressure.

    `curved` is what flows because the velocity is curved between the points. `beyond` is what the fluxes had beyond
    that before the step.

    A pressure that alternates from point to point has no gradient there; the fluxes see it. So they have a momentum of
    their own: they feel the pressure of their two points, and forget what they have beyond the velocities in the time
    of their cells. The steady state does not depend on the step.
    """
    cells = problem.cells
    at_points, at_edges = cells.at_points(step), cells.at_edges(step)
    slope = problem.gradient if with_jump else cells.slope
    before = slope(pressure) if with_jump else torch.zeros_like(velocity)
    fluxes = straight(problem, velocity, torch.ones_like(step)) + curved
    if with_jump:
        rise = 0.0 if problem.jump is None else problem.jump[0]
        uphill = cells.conductances * (cells.difference(pressure) + rise)
        smooth = (cells.faces * cells.mean(problem.restrict(before))).sum(dim=0)
        own = cells.mean(own_time(problem, fluxes))
        gained = at_edges * (smooth - uphill)
        fluxes = fluxes + own / (own + at_edges) * (gained if beyond is None else gained + beyond)
    missing = cells.collected(fluxes) + problem.inflow
    right = -missing / at_points
    # In a closed domain all that flows in must flow out: rounding and discretisation are spread evenly.
    whole = cells.total(right) / cells.total(cells.areas)
    right = right - cells.areas * cells.at_points(problem.closed * whole)
    given = torch.zeros_like(pressure)
    if with_jump:
        # Prescribed values of the pressure act on their neighbours; the solver looks for the rest.
        given = (problem.pressure - pressure) * (1 - problem.pressure_free)
        right = right + cells.collected(cells.conductances * cells.difference(given))
    change = problem.pressure_solver.solve(right, torch.zeros_like(pressure)) + given
    fluxes = fluxes - at_edges * cells.conductances * cells.difference(change)
    velocity = velocity - at_points * problem.restrict(cells.slope(change))
    return velocity, pressure + change, fluxes


def along_edges(
    problem: Problem, slopes: Float[Tensor, "space space points"]
) -> tuple[Float[Tensor, "space edges"], Float[Tensor, "space edges"]]:
    """By how much the gradients at the first and at the second point of each edge change the velocity along it."""
    cells = problem.cells
    first, second = cells.ends(slopes)
    here, there = (
        reduce(add, (offset * each[:, axis] for axis, offset in enumerate(cells.offsets))) for each in (first, second)
    )
    return here, there


def unbalanced(
    problem: Problem,
    velocity: Float[Tensor, "space points"],
    fluxes: Float[Tensor, " edges"],
    gradient: Float[Tensor, "space points"],
    along: tuple[Float[Tensor, "space edges"], Float[Tensor, "space edges"]],
) -> Float[Tensor, "space points"]:
    """What advection, diffusion and pressure take from the momentum of each cell; in a steady flow nothing.

    Args:
        problem: One flow.
        velocity: At the points.
        fluxes: Through the faces.
        gradient: Of the pressure.
        along: See `along_edges`.
    """
    cells = problem.cells
    difference = cells.difference(velocity)
    rough, entering = difference - torch.where(fluxes > 0, *along), from_static(problem, fluxes)
    gained = 0.5 * fluxes.abs() * (UPWIND * (1 - entering) * rough + entering * difference)
    diffused = cells.at_edges(problem.viscosity) * cells.conductances * difference
    # Advection and diffusion act on differences, as in `DualCells.matrix`.
    momentum = cells.gathered(0.5 * fluxes * difference) - cells.collected(diffused + gained)
    return momentum + backward(problem, fluxes) * velocity + cells.areas * gradient


def backward(problem: Problem, fluxes: Float[Tensor, " edges"]) -> Float[Tensor, " points"]:
    """Half of what enters through outlets, where advection would bring energy that nobody knows of."""
    return 0.5 * problem.open * problem.cells.collected(fluxes).clamp_min(0.0)


def from_static(problem: Problem, fluxes: Float[Tensor, " edges"]) -> Tensor | float:
    """1 for fluxes that leave a point through which a static pressure drives fluid in, else 0.

    They carry the velocity of that point alone: its normal derivative is zero. The mean of both ends would let what is
    downstream accelerate what enters, and nothing would limit that.
    """
    return 0.0 if problem.static is None else torch.where(fluxes > 0, *problem.cells.ends(problem.static))


def straight(problem: Problem, velocity: Float[Tensor, "space points"], shift: Float[Tensor, " flows"]) -> Tensor:
    """What flows through the faces if velocities are straight between the points; prescribed ones times a factor."""
    cells = problem.cells
    return (cells.faces * (cells.mean(velocity) + cells.at_edges(shift) * problem.facet_shift)).sum(dim=0)


def own_time(problem: Problem, fluxes: Tensor) -> Float[Tensor, " points"]:
    """The time in which the fluxes of each cell forget: that of advection, viscosity and the reference speed in it.

    Where it is long, alternating pressures are damped more, and smooth ones are, too. The last of the three matters
    where the fluid hardly moves.
    """
    cells = problem.cells
    exchange = 0.5 * cells.gathered(fluxes.abs()) / CROSSED
    viscous = cells.at_points(problem.viscosity) * cells.gathered(cells.conductances.clamp_min(0.0)) / DIFFUSED
    return cells.areas / (exchange + viscous + cells.crossings / PASSED)
