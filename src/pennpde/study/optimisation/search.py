"""The search for the best design: with gradients by quadratic models in a trust region, without them by evolution.

Each model has the gradients of the adjoint, curvatures learned from them (BFGS) and linear constraints; SLSQP finds its
minimum within the region, and the region grows or shrinks with how well the model foretold the flow. A design that has
no flow shrinks it, too.

A step changes a quantity, and it changes what the size of the cells adds to it. Near the best design the first falls
with the square of the step, the second with the step: where a step gains less than it changes that error, a better
design could not be told from a worse one, and the search ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pennpde.study.optimisation.trials import BROKEN, Designs, Trial

_FIRST, _LARGEST, _SMALLEST = 0.15, 0.5, 1e-4
"""Half the width of the trust region, as a share of the variables' ranges."""
_FLAT = 1e-4
"""Gains below this share of the objective are none."""
_LIGHTEST, _HEAVIEST = 10.0, 1e5
"""What missing a constraint by its own size costs, in sizes of the objective: more, where it is missed at the end."""
_FEASIBLE = 1e-3
"""What a constraint may be missed by, as a share of its own size."""


@dataclass(frozen=True)
class Limit:
    """The second, third ... quantity of the designs stays between two numbers."""

    low: float
    high: float

    def missed(self, number: float) -> float:
        return max(self.low - number, number - self.high, 0.0) / self.size

    @property
    def size(self) -> float:
        known = [abs(each) for each in (self.low, self.high) if np.isfinite(each)]
        return max(*known, 1e-12) if len(known) > 1 else max(known[0], 1e-12)


@dataclass(frozen=True)
class Step:
    """One accepted design of a search."""

    trial: Trial
    radius: float
    trials: int

    @property
    def objective(self) -> float:
        """As the search minimises it: of root mean squares the square, of what is maximised the negative."""
        return float(self.trial.numbers[0])


@dataclass(frozen=True)
class Found:
    """Where a search ended.

    Attributes:
        steps: Accepted designs, from the first to the best.
        reason: Why it ended, a sentence.
        trials: Flows that were solved.
        broken: Designs that had none.
    """

    steps: tuple[Step, ...]
    reason: str
    trials: int
    broken: int

    @property
    def first(self) -> Trial:
        return self.steps[0].trial

    @property
    def best(self) -> Trial:
        return self.steps[-1].trial


def descend(
    designs: Designs,
    start: Float[np.ndarray, " variables"],
    limits: Sequence[Limit] = (),
    *,
    most: int | None = None,
    watch: Callable[[Step], None] = lambda _: None,
) -> Found:
    """The smallest first quantity that keeps the others within limits, by gradients.

    Args:
        designs: To choose from; cells may move, but stay the same.
        start: Position of the first design.
        limits: Of the second quantity, the third and so on.
        most: Flows that are solved.
        watch: Is told every accepted design.
    """
    most = most or 60
    now = designs.trial(start)
    scale = max(abs(now.numbers[0]), 1e-12)
    weight, radius, broken, trials = _LIGHTEST, _FIRST, 0, 1
    curvature = None
    steps = [Step(now, radius, trials)]
    watch(steps[0])

    def merit(trial: Trial) -> float:
        missed = sum(limit.missed(number) for limit, number in zip(limits, trial.numbers[1:], strict=True))
        return trial.numbers[0] / scale + weight * missed

    def ended(reason: str) -> Found:
        return Found(tuple(steps), reason, trials, broken)

    while trials < most:
        slope = now.gradients[0] / scale
        change, foreseen = _model_step(
            now, slope, _first(slope) if curvature is None else curvature, limits, radius, weight
        )
        if foreseen < _FLAT and curvature is not None:  # maybe what was learned is wrong
            curvature, radius = None, max(radius, _FIRST)
            continue
        if foreseen < _FLAT and _missed(now, limits) > _FEASIBLE and weight < _HEAVIEST:
            weight *= 10.0
            continue
        if foreseen < _FLAT:
            return ended("No small change of the design gains anything.")
        trials += 1
        try:
            tried = designs.trial(np.clip(now.position + change, 0.0, 1.0), now)
        except BROKEN:
            broken += 1
            radius *= 0.3
            if radius < _SMALLEST:
                return ended("Beyond the best design, shapes are unsound or flows unsteady.")
            continue
        gained = merit(now) - merit(tried)
        if gained < 0.1 * foreseen:
            radius = 0.4 * min(radius, float(np.abs(change).max()))
            if radius < _SMALLEST:
                return ended("No smaller step gains anything.")
            continue
        if gained > 0.7 * foreseen:
            radius = min(2.0 * radius, _LARGEST)
        change = tried.position - now.position
        curvature = _first(slope) if curvature is None else curvature
        curvature = _learned(curvature, change, _lagrangian(tried, limits, scale) - _lagrangian(now, limits, scale))
        before, now = now, tried
        steps.append(Step(now, radius, trials))
        watch(steps[-1])
        uncertain = abs(now.errors[0] - before.errors[0]) / scale
        if gained < uncertain and _missed(before, limits) <= _FEASIBLE:
            return ended(
                f"The last step gained {gained:.2%} and changed the expected error by {uncertain:.2%}: on these cells "
                "better designs cannot be told from worse ones. A finer level of accuracy can."
            )
        if gained < _FLAT:
            return ended("Steps gain nothing any more.")
    return ended(f"{most} flows have been solved.")


def _missed(trial: Trial, limits: Sequence[Limit]) -> float:
    return max((limit.missed(number) for limit, number in zip(limits, trial.numbers[1:], strict=True)), default=0.0)


def _model_step(
    now: Trial, slope: np.ndarray, curvature: np.ndarray, limits: Sequence[Limit], radius: float, weight: float
) -> tuple[np.ndarray, float]:
    """The minimum of the model within the region, and what it foretells to gain.

    Constraints that cannot be kept within it are missed by as little as possible: each may be, at a price.
    """
    from scipy.optimize import minimize

    number = len(slope)
    sizes = np.array([limit.size for limit in limits])
    rows, values = (now.gradients[1:].T / sizes).T, now.numbers[1:] / sizes
    low, high = (np.array([getattr(limit, end) for limit in limits]) / sizes for end in ("low", "high"))
    held_low, held_high = np.isfinite(low), np.isfinite(high)

    def model(unknowns: np.ndarray) -> float:
        change = unknowns[:number]
        return slope @ change + 0.5 * change @ curvature @ change + weight * unknowns[number:].sum()

    def model_slope(unknowns: np.ndarray) -> np.ndarray:
        return np.concatenate([slope + curvature @ unknowns[:number], np.full(len(limits), weight)])

    matrix = np.concatenate(
        [
            np.hstack([rows, np.eye(len(limits))])[held_low],
            np.hstack([-rows, np.eye(len(limits))])[held_high],
        ]
    )
    offset = np.concatenate([(values - low)[held_low], (high - values)[held_high]])
    start = np.maximum(np.maximum(low - values, values - high), 0.0)
    bounds = [*zip(np.maximum(-radius, -now.position), np.minimum(radius, 1 - now.position), strict=True)]
    found = minimize(
        model,
        np.concatenate([np.zeros(number), start]),
        jac=model_slope,
        bounds=[*bounds, *[(0.0, None)] * len(limits)],
        constraints=[{"type": "ineq", "fun": lambda at: matrix @ at + offset, "jac": lambda _: matrix}]
        if len(offset)
        else [],
        method="SLSQP",
        options={"maxiter": 200, "ftol": 1e-12},
    )
    return found.x[:number], weight * float(start.sum()) - model(found.x)


def _lagrangian(trial: Trial, limits: Sequence[Limit], scale: float) -> np.ndarray:
    """The slope of the objective and of the constraints that hold it back."""
    slope = trial.gradients[0] / scale
    near = [
        number + 1
        for number, limit in enumerate(limits)
        if min(abs(trial.numbers[number + 1] - limit.low), abs(trial.numbers[number + 1] - limit.high))
        < 0.02 * limit.size
    ]
    if not near:
        return slope
    rows = trial.gradients[near]
    prices = np.linalg.lstsq(rows.T, -slope, rcond=None)[0]
    return slope + prices @ rows


def _first(slope: np.ndarray) -> np.ndarray:
    """A small curvature: the region alone limits the first step."""
    return np.eye(len(slope)) * max(float(np.linalg.norm(slope)), 1e-12) / 2.0


def _learned(curvature: np.ndarray, change: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Damped BFGS: stays positive definite (Powell)."""
    stretched = curvature @ change
    expected, seen = change @ stretched, change @ difference
    if expected < 1e-16:
        return curvature
    share = 1.0 if seen >= 0.2 * expected else 0.8 * expected / (expected - seen)
    difference = share * difference + (1 - share) * stretched
    return (
        curvature - np.outer(stretched, stretched) / expected + np.outer(difference, difference) / (change @ difference)
    )
