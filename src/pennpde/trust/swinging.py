"""Flows that swing, such as those that shed eddies: mean, amplitude and frequency count, not the phase.

Small errors shift the phase of eddies, so that the error at a late time says little about a prediction. Where enough
times are asked for, it is judged by the mean over whole periods, and told how much amplitude and frequency change
when cells are twice as large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

_FEWEST = 12
"""Times, below which nothing is said."""
_LEAST = 0.02
"""Root mean square of what swings, as a share of the field."""
_TOGETHER = 0.6
"""Share of the variance in the two strongest modes: of a flow that repeats itself most of it."""


@dataclass(frozen=True, eq=False)
class Swing:
    """A flow that repeats itself.

    Attributes:
        means: By unknown, the field averaged over whole periods.
        amplitudes: By unknown, the root mean square over domain and periods of the distance from it.
        frequency: In one over the unit of the times.
    """

    means: Mapping[str, Tensor]
    amplitudes: Mapping[str, float]
    frequency: float


@dataclass(frozen=True)
class SwingErrors:
    """By how much a swing differs from that on coarser cells, as a share.

    Attributes:
        amplitudes: By unknown.
        frequency: Likewise.
    """

    amplitudes: Mapping[str, float]
    frequency: float

    @property
    def largest(self) -> float:
        """Of the first unknown's amplitude and of the frequency."""
        return max(self.frequency, next(iter(self.amplitudes.values())))

    @staticmethod
    def between(swing: Swing, coarser: Swing) -> SwingErrors:
        return SwingErrors(
            {name: abs(each / coarser.amplitudes[name] - 1.0) for name, each in swing.amplitudes.items()},
            abs(swing.frequency / coarser.frequency - 1.0),
        )


def swing_of(
    fields: Mapping[str, Float[Tensor, "points *axes times"]],
    times: Sequence[float],
    volumes: Float[Tensor, " points"],
) -> Swing | None:
    """What the second half of the times has of a flow that repeats itself; None where it does not.

    Args:
        fields: The first one decides.
        times: Increasing; a steady state is left out.
        volumes: Of the points.
    """
    later = [place for place, time in enumerate(times) if math.isfinite(time)]
    later = later[len(later) // 2 :] if len(later) >= 2 * _FEWEST else later
    if len(later) < _FEWEST:
        return None
    moments = np.array([times[place] for place in later])
    weights = (volumes / volumes.sum()).double()

    def at_times(name: str) -> Float[np.ndarray, "numbers times"]:
        """Weighted, so that squares add up to the mean square over the domain."""
        values = fields[name][..., later].double()
        values = values.reshape(len(values), -1, len(later)) * weights.sqrt()[:, None, None]
        return values.reshape(-1, len(later)).numpy()

    first = at_times(next(iter(fields)))
    apart = first - first.mean(axis=1, keepdims=True)
    strengths, modes = np.linalg.eigh(apart.T @ apart)
    total = float(strengths.sum()) / len(later)
    if not total > (_LEAST**2) * float(np.square(first).sum()) / len(later):
        return None
    if strengths[-2:].sum() < _TOGETHER * strengths.sum():
        return None
    crossings = _rising(moments, modes[:, -1])
    if len(crossings) < 2:
        return None
    start, end = crossings[0], crossings[-1]
    even = np.linspace(start, end, 1 + 8 * len(later), endpoint=False)

    def over_periods(values: Float[np.ndarray, "numbers times"]) -> Float[np.ndarray, " numbers"]:
        place = np.clip(np.searchsorted(moments, even, side="right") - 1, 0, len(moments) - 2)
        share = (even - moments[place]) / (moments[place + 1] - moments[place])
        steps = np.bincount(place, 1 - share, len(moments)) + np.bincount(place + 1, share, len(moments))
        return values @ (steps / steps.sum())

    means, amplitudes = {}, {}
    for name, values in fields.items():
        series = at_times(name)
        mean = over_periods(series)
        amplitudes[name] = math.sqrt(float(over_periods(np.square(series - mean[:, None])).sum()))
        unweighted = torch.from_numpy(mean).reshape(len(weights), -1) / weights.sqrt()[:, None]
        means[name] = unweighted.reshape(values.shape[:-1]).to(values)
    return Swing(means, amplitudes, (len(crossings) - 1) / (end - start))


def _rising(times: Float[np.ndarray, " times"], signal: Float[np.ndarray, " times"]) -> list[float]:
    """When a signal passes its mean upwards."""
    signal = signal - signal.mean()
    places = np.flatnonzero((signal[:-1] < 0) & (signal[1:] >= 0))
    return [
        float(times[each] - signal[each] * (times[each + 1] - times[each]) / (signal[each + 1] - signal[each]))
        for each in places
    ]
