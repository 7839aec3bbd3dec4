"""Errors of whole test sets, as the paper's tables define them: means over points, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case, Dirichlet
from pennpde.metrics import over_components, rank_of, squared_error


@dataclass(frozen=True)
class Estimate:
    """A mean over points with its standard error; estimates of several cases pool into that of all their points."""

    mean: float
    squared_deviations: float
    count: int

    @classmethod
    def of(cls, samples: Float[Tensor, " points"]) -> Estimate:
        if samples.numel() == 0:
            return cls(0.0, 0.0, 0)
        values = samples.detach().double()
        mean = values.mean()
        return cls(float(mean), float((values - mean).square().sum()), values.numel())

    @classmethod
    def pooled(cls, estimates: Iterable[Estimate]) -> Estimate:
        """As if the samples had been taken together (Chan, Golub and LeVeque 1979)."""
        mean, deviations, count = 0.0, 0.0, 0
        for each in estimates:
            if not each.count:
                continue
            total = count + each.count
            difference = each.mean - mean
            deviations += each.squared_deviations + difference**2 * count * each.count / total
            mean += difference * each.count / total
            count = total
        return cls(mean, deviations, count)

    def times(self, factor: float) -> Estimate:
        """As if every sample had been multiplied."""
        return Estimate(factor * self.mean, factor**2 * self.squared_deviations, self.count)

    @property
    def standard_error(self) -> float:
        """Standard deviation over the root of the number of points.

        The paper's definition. Errors of neighbouring points are far from independent, so it is smaller than what a
        second test set would show.
        """
        return math.sqrt(self.squared_deviations) / self.count if self.count else 0.0


def dirichlet_squared_error(
    prediction: Float[Tensor, "points *axes"], condition: Dirichlet
) -> Float[Tensor, " prescribed"]:
    """The squared error at the points whose value is prescribed; none of them, an empty tensor."""
    difference = prediction - condition.apply(prediction)
    return over_components(difference.square(), condition.rank(condition.values))[condition.mask]


def domain_errors(fields: Mapping[str, Tensor], case: Case) -> dict[str, Estimate]:
    """Mean squared error of every target over the points of the case."""
    if missing := case.targets.keys() - fields.keys():
        raise KeyError(f"The prediction lacks {sorted(missing)}; it has {sorted(fields)}.")
    return {
        name: Estimate.of(squared_error(fields[name], target.to(fields[name]), rank_of(name, case)))
        for name, target in case.targets.items()
    }
