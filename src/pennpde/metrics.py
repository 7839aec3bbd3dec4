"""Errors on the domain and on its boundaries, as the paper's tables define them.

Every error is first one number per point, in physical units, and then a mean over the points of all cases together with
its standard error. The mean square of a vector divides by three components on plane meshes as well: the paper's meshes
are one cell thick, their third component is zero, and only so do the numbers compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case, Dirichlet, Neumann

COMPONENTS = 3
"""What the components of a vector are averaged over, in the plane as in space."""


def squared_error(
    prediction: Float[Tensor, "points *axes"], target: Float[Tensor, "points *axes"], rank: int
) -> Float[Tensor, " points"]:
    """The squared error at each point: mean over three components for each rank, and over output times.

    Args:
        prediction: A field, with a trailing axis where it has several output times.
        target: What it should be.
        rank: 0 for a scalar, 1 for a vector: distinguishes an axis of space from one of times.
    """
    _check_shapes(prediction, target)
    if not 0 <= rank < max(prediction.ndim, 1):
        raise ValueError(f"A field of shape {list(prediction.shape)} has no {rank} axes of space after its points.")
    return _over_components((prediction - target).square(), rank)


def mean_squared_error(
    prediction: Float[Tensor, "points *axes"], target: Float[Tensor, "points *axes"], rank: int
) -> Float[Tensor, ""]:
    """The mean of `squared_error` over all points; differentiable."""
    return squared_error(prediction, target, rank).mean()


def dirichlet_squared_error(
    prediction: Float[Tensor, "points *axes"], condition: Dirichlet
) -> Float[Tensor, " prescribed"]:
    """The squared error at the points whose value is prescribed; none of them, an empty tensor."""
    difference = prediction - condition.apply(prediction)
    return _over_components(difference.square(), condition.rank(condition.values))[condition.mask]


def neumann_squared_error(
    gradient: Float[Tensor, "points space *axes"], condition: Neumann
) -> Float[Tensor, " prescribed"]:
    """The squared error of n . gradient at the points whose normal derivative is prescribed.

    To judge a field, take its gradient with operators that do not know the condition, `Operators.on(mesh)`; those of
    the case, `case.operators[name]`, were made to agree with it.
    """
    held, rank = condition.mask, condition.rank(condition.normal_derivative)
    gradient = gradient[held]
    normals, prescribed = (each[held].to(gradient) for each in (condition.normals, condition.normal_derivative))
    normals = normals.reshape(*normals.shape, *[1] * (gradient.ndim - 2))
    prescribed = prescribed.reshape(*prescribed.shape, *[1] * (gradient.ndim - 1 - prescribed.ndim))
    return _over_components(((normals * gradient).sum(dim=1) - prescribed).square(), rank)


def without_level(
    values: Float[Tensor, "points *axes"], volumes: Float[Tensor, " points"]
) -> Float[Tensor, "points *axes"]:
    """The values less their mean over the domain."""
    weights = _beside((volumes / volumes.sum()).to(values), values)
    return values - (weights * values).sum(dim=0)


def root_mean_square(values: Float[Tensor, "points *axes"], volumes: Float[Tensor, " points"]) -> float:
    """Over the domain, of the length of vectors and matrices."""
    squares, weights = values.reshape(len(values), -1).square().sum(dim=1), volumes.to(values)
    return float(((weights * squares).sum() / weights.sum()).sqrt())


def relative_l2(
    prediction: Float[Tensor, "points *axes"],
    target: Float[Tensor, "points *axes"],
    volumes: Float[Tensor, " points"] | None = None,
) -> Float[Tensor, ""]:
    """The norm of the error over the norm of the target.

    Args:
        prediction: A field.
        target: What it should be; where it is zero everywhere the result is the norm of the error itself.
        volumes: Weights of the points, such as `mesh.point_volumes`, for the norm of the continuum; None: all alike.
    """
    _check_shapes(prediction, target)
    weights = torch.ones_like(target) if volumes is None else _beside(volumes.to(target), target)
    size = (weights * target.square()).sum().sqrt()
    error = (weights * (prediction - target).square()).sum().sqrt()
    return error / torch.where(size > 0, size, torch.ones_like(size))


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


def rank_of(name: str, case: Case) -> int:
    """The number of axes of space of a target: that of the unknown of this name, else all axes that it has."""
    return case.initial[name].ndim - 1 if name in case.initial else case.targets[name].ndim - 1


def domain_errors(fields: Mapping[str, Tensor], case: Case) -> dict[str, Estimate]:
    """Mean squared error of every target over the points of the case."""
    if missing := case.targets.keys() - fields.keys():
        raise KeyError(f"The prediction lacks {sorted(missing)}; it has {sorted(fields)}.")
    return {
        name: Estimate.of(squared_error(fields[name], target.to(fields[name]), rank_of(name, case)))
        for name, target in case.targets.items()
    }


def _check_shapes(prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape:
        raise ValueError(f"The prediction has shape {list(prediction.shape)}, the target {list(target.shape)}.")


def _over_components(squares: Float[Tensor, "points *axes"], rank: int) -> Float[Tensor, " points"]:
    if rank:
        squares = squares.sum(dim=tuple(range(1, 1 + rank))) / COMPONENTS**rank
    return squares.flatten(1).mean(dim=1) if squares.ndim > 1 else squares


def _beside(values: Float[Tensor, " points"], field: Float[Tensor, "points *axes"]) -> Tensor:
    return values.reshape(-1, *[1] * (field.ndim - 1))
