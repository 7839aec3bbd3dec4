"""What can be had without a network, to compare a network with: the start, and the nearest training case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import KDTree
from torch import Tensor

from pennpde.case import Case

_BOUNDARY_POINTS = 100
"""Of which the shapes of two cases are compared."""
_OF_SHAPE = 5.0
"""Boundaries that lie apart by 2 % of the domain's size count as much as parameters that differ by 10 %."""


def start(case: Case) -> dict[str, Tensor]:
    """The fields at the start with the prescribed values in place, at every output time."""
    found = {}
    for name, target in case.targets.items():
        values = case.dirichlet[name].apply(case.initial[name])
        found[name] = values[..., None].expand_as(target) if target.ndim > values.ndim else values
    return found


@dataclass(frozen=True, eq=False)
class NearestCase:
    """The training case that is most alike, its fields carried over to the points of the case that is wanted.

    Alike are cases whose boundaries lie close to each other and whose parameters and prescribed values are about the
    same. Both are taken from their lower left corners on.

    Attributes:
        train: The cases to look among, as the network sees them.
    """

    train: Sequence[Case]

    def __call__(self, case: Case) -> dict[str, Tensor]:
        others = [place for place, each in enumerate(self.train) if each.name != case.name] or [0]
        own, numbers = _outline(case), _numbers(case)
        distances = [
            _OF_SHAPE * _shape_distance(own, self._outlines[place]) + _difference(numbers, self._all_numbers[place])
            for place in others
        ]
        return self._carried(case, self.train[others[int(np.argmin(distances))]])

    @cached_property
    def _outlines(self) -> list[np.ndarray]:
        return [_outline(each) for each in self.train]

    @cached_property
    def _all_numbers(self) -> list[dict[str, np.ndarray]]:
        return [_numbers(each) for each in self.train]

    def _carried(self, case: Case, known: Case) -> dict[str, Tensor]:
        corners = known.space + 1
        distances, nearest = KDTree(_from_corner(known)).query(_from_corner(case), k=corners)
        weights = 1 / np.maximum(distances, 1e-12)
        weights = torch.from_numpy(weights / weights.sum(axis=1, keepdims=True))
        found = {}
        for name in case.targets:
            values = known.targets[name].double()[torch.from_numpy(nearest)]
            carried = (weights.reshape(*weights.shape, *[1] * (values.ndim - 2)) * values).sum(dim=1)
            found[name] = (
                case.dirichlet[name].apply(carried.to(case.initial[name])) if name in case.initial else carried
            )
        return found


def _from_corner(case: Case) -> Float[np.ndarray, "points space"]:
    points = case.mesh.points.double().numpy()
    return points - points.min(axis=0)


def _outline(case: Case) -> Float[np.ndarray, "some space"]:
    boundary = np.asarray(case.mesh.boundary_points)
    return _from_corner(case)[boundary[:: max(1, len(boundary) // _BOUNDARY_POINTS)]]


def _shape_distance(one: np.ndarray, other: np.ndarray) -> float:
    """How far the boundaries lie apart on average, over the size of the domain."""
    if one.shape[1] != other.shape[1]:
        return np.inf
    size = max(float(np.ptp(one, axis=0).max()), float(np.ptp(other, axis=0).max()), 1e-300)
    apart = KDTree(one).query(other)[0].mean() + KDTree(other).query(one)[0].mean()
    return float(apart) / 2 / size


def _numbers(case: Case) -> dict[str, np.ndarray]:
    numbers = {name: value.double().reshape(-1).numpy() for name, value in case.parameters.items()}
    for name, condition in case.dirichlet.items():
        numbers[f"prescribed {name}"] = np.array([float(condition.values.abs().max())])
    return numbers


def _difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The relative difference of all numbers, summed up."""
    total = 0.0
    for name in one.keys() & other.keys():
        for mine, theirs in zip(one[name], other[name], strict=False):
            if mine != theirs:
                largest = max(abs(mine), abs(theirs))
                total += 1.0 if not np.isfinite(largest) else abs(mine - theirs) / largest
    return total
