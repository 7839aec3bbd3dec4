"""Steps in a row: to given times, or until nothing changes any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde import progress
from pennpde.flow.krylov import Effort
from pennpde.flow.problem import Problem
from pennpde.flow.step import State, advance
from pennpde.progress import OutOfTimeError, limits

NEARLY_FASTEST = 0.99
"""A step is as long as this share of the cells allows: a few thin ones must not decide."""
FASTER = 4.0
"""Nor many tiny ones, in layers that meet in a corner: a step is not shorter than such a share of what cells allow that
fill this share of the area."""

JUMP = 3.0
"""No step makes the fastest fluid, or the reference speed, so many times faster."""
SHORTEST = 0.02
"""Of the first step: shorter steps than this do not save a flow."""
LARGEST = 1e3
"""Velocities beyond so many reference speeds are a divergence."""


class FlowDivergedError(ArithmeticError):
    """Velocities grew without bound, whatever the step.

    Attributes:
        velocity: the last one, which shows where.
    """

    def __init__(self, message: str, velocity: Float[Tensor, "space points"]) -> None:
        super().__init__(message)
        self.velocity = velocity


@dataclass(frozen=True)
class Pace:
    """How long steps are.

    Attributes:
        courant: cells that fluid may cross in a step.
        first: length of the first step, in the time that fluid takes for the reference length. Layers at walls are thin
            at the start.
        growth: by how much a step may be longer than the one before.
        longest: of all steps.
        calm: a flow is calm if the velocity after a step differs from the continued one by less than this share.
        stretch: by how much steps of a calm flow may be longer than the Courant number says.
        tolerance: of the momentum equation. In a unit of time a velocity gains as much noise as this over a step.
    """

    courant: float = 1.4
    first: float = 0.005
    growth: float = 1.3
    longest: float = 0.25
    calm: float = 1e-3
    stretch: float = 3.0
    tolerance: float = 3e-5


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A state on the way.

    Attributes:
        time: since the start.
        state: then.
        step: length of the last step.
        change: of the velocity in a unit of time, root mean square over that of the velocity.
    """

    time: float
    state: State
    step: float
    change: float


def rate(problem: Problem, fluxes: Float[Tensor, " edges"]) -> Float[Tensor, " points"]:
    """How often per time the content of each cell is exchanged."""
    cells = problem.cells
    leaving = torch.zeros_like(cells.areas).index_add(0, cells.first, fluxes.clamp_min(0.0))
    return leaving.index_add(0, cells.second, (-fluxes).clamp_min(0.0)) / cells.areas


def changes(problem: Problem, following: State, state: State, step: float) -> tuple[float, float]:
    """How far the velocity after a step is from the one before, and from that one continued.

    Root mean squares over that of the velocity; the second is infinite where nothing is known before the step.
    """
    velocity, before = following.velocity.detach(), state.velocity.detach()
    change = distance(problem, velocity, before)
    return change, math.inf if state.before is None else float(
        distance(problem, velocity, continued(state, step).detach())
    )


@dataclass(frozen=True, eq=False)
class Control:
    """A march between two steps.

    Attributes:
        state: Then.
        now: The time.
        step: Length of the last step.
        allowed: Of the next one, by how long the last one was.
        stretch: By how much it may be longer than the Courant number says.
        fastest: Speed of the fastest fluid, by components.
        change: By the last step, as a share.
        lost: Whether the flow has diverged.
    """

    state: State
    now: float
    step: float
    allowed: float
    stretch: float
    fastest: float
    change: float = math.inf
    lost: bool = False


@dataclass(frozen=True)
class Way:
    """Who does the arithmetic of a march: PyTorch, or something that does the same faster.

    Attributes:
        take: takes a step.
        rate: finds how often cells are exchanged.
        changes: finds what a step has changed.
        go: takes some steps towards a time, where conditions stay the same; None: they are taken one by one.
    """

    take: Callable[..., State] = advance
    rate: Callable[[Problem, Tensor], Tensor] = rate
    changes: Callable[[Problem, State, State, float], tuple[float, float]] = changes
    go: Callable[[Problem, Control, Pace, float], Control] | None = None


def step_limit(problem: Problem, fluxes: Float[Tensor, " edges"], courant: float, way: Way | None = None) -> float:
    """The step of a Courant number."""
    rates = (way or Way()).rate(problem, fluxes.detach())
    fastest = float(rates.kthvalue(max(1, int(NEARLY_FASTEST * len(rates)))).values)
    areas = problem.cells.areas
    slower = float((areas * (rates <= fastest / FASTER)).sum())
    if slower > NEARLY_FASTEST * float(areas.sum()):
        ordered = rates.argsort()
        filled = areas[ordered].cumsum(dim=0)
        fastest = FASTER * float(rates[ordered[int((filled < NEARLY_FASTEST * filled[-1]).sum())]])
    return courant / max(fastest, 1e-12)


def march(
    problem: Problem,
    state: State,
    times: Sequence[float],
    *,
    pace: Pace | None = None,
    start: float = 0.0,
    conditions: Callable[[Problem, float], Problem] | None = None,
    way: Way | None = None,
) -> Iterator[Snapshot]:
    """Step to each of the times, in order; every one is met exactly. A flow that is lost is a `FlowDivergedError`.

    Args:
        problem: One flow.
        state: At `start`.
        times: Increasing.
        pace: How long steps are.
        start: The time of the state.
        conditions: What makes the problem at a time, where conditions change with it.
        way: Who does the arithmetic.
    """
    pace, way = pace or Pace(), way or Way()
    control = Control(state, start, 0.0, pace.first, 1.0, _fastest(state))
    for time in times:
        while control.now < time - 1e-9 * max(1.0, time):
            if limits().is_over:
                raise OutOfTimeError(f"The time was over at t = {control.now:.3g} of {time:.3g}, in reference times.")
            if way.go is not None and conditions is None and problem.total is None:
                control = way.go(problem, control, pace, time)
            else:
                control = stepped(problem, control, pace, time, conditions, way)
            if control.lost:
                raise FlowDivergedError(f"The flow diverged at t = {control.now:.3g}.", control.state.velocity)
            progress.tell(f"marching, {len(problem.cells.areas):,} cells", control.now / times[-1])
        step = control.step
        yield Snapshot(time, control.state, step, control.change / step if step else 0.0)


def stepped(
    problem: Problem,
    control: Control,
    pace: Pace,
    time: float,
    conditions: Callable[[Problem, float], Problem] | None,
    way: Way,
) -> Control:
    """A step towards a time; one that blew up is not taken, and the next one is half as long."""
    state, now = control.state, control.now
    by_courant = step_limit(problem, state.fluxes, pace.courant, way)
    limit = min(control.stretch * by_courant, pace.longest, control.allowed)
    step = (time - now) / math.ceil((time - now) / limit - 1e-9)
    at_end = problem if conditions is None else conditions(problem, now + step)
    if at_end.total is not None:
        at_end = at_end.drawing(continued(state, step), state.pressure, step)
    length, passes = torch.full_like(problem.viscosity, step), 2 if state.before is None else 1
    following = way.take(at_end, state, length, passes=passes, effort=Effort(pace.tolerance))
    faster = _fastest(following)
    # NaN is not small.
    if not faster <= JUMP * (1.0 + control.fastest) and step > SHORTEST * pace.first:
        return replace(control, allowed=0.5 * step)
    if not faster <= LARGEST:
        return replace(control, state=following, lost=True)
    change, surprise = way.changes(problem, following, state, step)
    # What is left of a continued velocity grows with the square of the step.
    longer = step * math.sqrt(pace.calm / max(surprise, 1e-12))
    stretch = min(max(longer / by_courant, 1.0), pace.stretch)
    allowed = pace.growth * max(step, min(control.allowed, limit))
    return Control(
        state=following, now=now + step, step=step, allowed=allowed, stretch=stretch, fastest=faster, change=change
    )


def _fastest(state: State) -> float:
    return float(state.velocity.detach().abs().amax())


def continued(state: State, step: float) -> Float[Tensor, "space points"]:
    """The velocity a step later, if it goes on as in the step before."""
    if state.before is None:
        return state.velocity
    ratio = step / float(state.before[2])
    return (1.0 + ratio) * state.velocity - ratio * state.before[0]


def distance(problem: Problem, velocity: Tensor, other: Tensor) -> float:
    """Root mean square of a difference over that of the velocity."""
    weights = problem.cells.areas
    square = (weights * (velocity - other).square()).sum() / (weights * velocity.square()).sum().clamp_min(1e-30)
    return math.sqrt(float(square))
