"""The search without gradients: differential evolution, for numbers to choose from and shapes that are meshed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from pennpde.study.optimisation.search import Found, Limit, Step
from pennpde.study.optimisation.trials import BROKEN, Designs, Trial

_SEED = 0


class _SpentError(Exception):
    """As many flows as are allowed have been solved."""


def evolve(
    designs: Designs,
    start: Float[np.ndarray, " variables"],
    limits: Sequence[Limit] = (),
    *,
    most: int | None = None,
    watch: Callable[[Step], None] = lambda _: None,
) -> Found:
    """The smallest first quantity that keeps the others within limits; for the arguments see `search.descend`.

    A design that has no flow is worse than any other one; of those that miss a limit the one that misses it least is
    better.
    """
    from scipy.optimize import differential_evolution

    most = most or 200
    steps: list[Step] = []
    known: dict[tuple[float, ...], tuple[float, float]] = {}
    broken = 0

    def rank(trial: Trial) -> tuple[float, float]:
        missed = sum(limit.missed(number) for limit, number in zip(limits, trial.numbers[1:], strict=True))
        return (missed if missed > 1e-3 else 0.0), float(trial.numbers[0])

    best = (math.inf, math.inf)

    def tried(position: np.ndarray) -> tuple[float, float]:
        nonlocal best, broken
        key = tuple(designs.values(position).values())
        if key in known:
            return known[key]
        if len(known) >= most:
            raise _SpentError
        known[key] = math.inf, math.inf
        try:
            trial = designs.trial(position)
        except BROKEN:
            broken += 1
            return known[key]
        known[key] = rank(trial)
        if not steps or known[key] < best:
            best = known[key]
            steps.append(Step(trial, math.nan, len(known)))
            watch(steps[-1])
        return known[key]

    tried(start)
    if not steps:
        designs.trial(start)  # says why the first design has no flow
    scale = max(abs(steps[0].trial.numbers[0]), 1e-12)

    def worth(position: np.ndarray) -> float:
        missed, number = tried(position)
        return math.inf if math.isinf(missed) else number / scale + (1e3 * (1.0 + missed) if missed else 0.0)

    reason = "The population has drawn together."
    try:
        differential_evolution(
            worth,
            [(0.0, 1.0)] * len(start),
            x0=start,
            popsize=max(3, min(10, most // (8 * len(start)))),
            rng=np.random.default_rng(_SEED),
            polish=False,
            tol=1e-3,
            maxiter=1000,
        )
    except _SpentError:
        reason = f"{most} flows have been solved."
    return Found(tuple(steps), reason, len(known), broken)
