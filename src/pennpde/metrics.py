"""Errors on the domain and on its boundaries, one number per point, in physical units.

The mean square of a vector divides by three components on plane meshes as well: the paper's meshes are one cell thick,
their third component is zero, and only so do the numbers compare.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case, Neumann

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
    return over_components((prediction - target).square(), rank)


def mean_squared_error(
    prediction: Float[Tensor, "points *axes"], target: Float[Tensor, "points *axes"], rank: int
) -> Float[Tensor, ""]:
    """The mean of `squared_error` over all points; differentiable."""
    return squared_error(prediction, target, rank).mean()


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
    return over_components(((normals * gradient).sum(dim=1) - prescribed).square(), rank)


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


def rank_of(name: str, case: Case) -> int:
    """The number of axes of space of a target: that of the unknown of this name, else all axes that it has."""
    return case.initial[name].ndim - 1 if name in case.initial else case.targets[name].ndim - 1


def _check_shapes(prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape:
        raise ValueError(f"The prediction has shape {list(prediction.shape)}, the target {list(target.shape)}.")


def over_components(squares: Float[Tensor, "points *axes"], rank: int) -> Float[Tensor, " points"]:
    if rank:
        squares = squares.sum(dim=tuple(range(1, 1 + rank))) / COMPONENTS**rank
    return squares.flatten(1).mean(dim=1) if squares.ndim > 1 else squares


def _beside(values: Float[Tensor, " points"], field: Float[Tensor, "points *axes"]) -> Tensor:
    return values.reshape(-1, *[1] * (field.ndim - 1))
