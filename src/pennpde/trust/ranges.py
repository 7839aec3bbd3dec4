"""The training range of a network: characteristic numbers of its training cases, and whether a case lies within.

A case within the range need not be like the training cases, but a case outside of it certainly is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.penn import Physics

Ranges = Mapping[str, tuple[float, float]]

_SLACK = 0.05
"""Relative: no network breaks down a few percent beyond its data, and no mesh is quite as fine as was asked for."""
_ZERO = 1e-6
"""Absolute: rounding errors of a number that was zero in training. Cases are compared in units that make them one."""
_FARTHEST = 100.0
"""No number is further outside than this: beyond it, how far no longer matters."""
_SMALLER_IS_BETTER = ("mean stretching of cells",)
"""Numbers whose range has no lower end: good triangles are less stretched than those of training."""


@dataclass(frozen=True)
class Comparison:
    """One number of a case and its range in training."""

    name: str
    value: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        below, above = (_SLACK * abs(end) + _ZERO for end in (self.low, self.high))
        return (self.name in _SMALLER_IS_BETTER or self.low - below <= self.value) and self.value <= self.high + above

    @property
    def beyond(self) -> float:
        """How far the value lies outside, in units of the range's own size; zero inside."""
        if self.inside:
            return 0.0
        one = max(self.high - self.low, _SLACK * max(abs(self.low), abs(self.high)), _ZERO)
        away = max(self.low - self.value, self.value - self.high) / one
        return _FARTHEST if math.isnan(away) else min(away, _FARTHEST)

    def __str__(self) -> str:
        trained = f"only at {self.low:.4g}" if self.low == self.high else f"on {self.low:.4g} to {self.high:.4g}"
        return f"{self.name.replace('_', ' ')} is {self.value:.4g}; the network was trained {trained}."


def describe(case: Case, equation: Physics | None = None) -> dict[str, float]:
    """The numbers of one case: dimensions, sizes of domain and cells, parameters, conditions, features, start.

    Args:
        case: In the units of the network.
        equation: What it knows about the case comes last.
    """
    numbers = describe_mesh(case.mesh)
    for name, value in case.parameters.items():
        numbers[f"parameter {name}"] = float(value.reshape(-1).norm())
    for name, start in case.initial.items():
        held = case.dirichlet[name].mask
        numbers[f"largest prescribed {name}"] = _largest(case.dirichlet[name].values)
        numbers[f"largest normal derivative of {name}"] = _largest(case.neumann[name].normal_derivative)
        free = start[~held].reshape(int((~held).sum()), -1)
        numbers[f"typical {name} at the start"] = float(free.square().sum(dim=1).mean().sqrt()) if len(free) else 0.0
        if start.ndim > 1:
            slipping = case.slip[name].mask & ~held if name in case.slip else held.new_zeros(())
            numbers[f"share of boundary points where {name} slips"] = float(slipping.sum()) / len(
                case.mesh.boundary_points
            )
    for name, values in case.features.items():
        numbers[f"largest {name}"] = _largest(values)
    return numbers if equation is None else numbers | equation.describe(case)


def describe_mesh(mesh: Mesh) -> dict[str, float]:
    """Mesh-only quantities."""
    volumes = mesh.point_volumes
    return {
        "space": float(mesh.space),
        "domain size": float(volumes.sum()) ** (1 / mesh.space),
        "mean cell size": float(volumes.mean()) ** (1 / mesh.space),
        **_of_graph(mesh),
    }


def spanned(cases: Iterable[Case], equation: Physics | None = None) -> dict[str, tuple[float, float]]:
    """The range of every number over the training cases, with those that the equation knows."""
    ranges: dict[str, tuple[float, float]] = {}
    for case in cases:
        for name, value in describe(case, equation).items():
            low, high = ranges.get(name, (value, value))
            ranges[name] = (min(low, value), max(high, value))
    return ranges


def checked(given: Any, where: str = "The training range") -> dict[str, tuple[float, float]]:
    """Ranges as they were stored, such as in a network's configuration; an error names what is none."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} is {given!r}; it must have a lowest and a highest value for each number.")
    ranges = {}
    for name, ends in given.items():
        sound = isinstance(ends, list | tuple) and len(ends) == 2 and all(_is_number(end) for end in ends)
        if not sound or ends[0] > ends[1]:
            raise ValueError(f"{where} of {name!r} is {ends!r}; it must be a lowest and a highest value.")
        ranges[str(name)] = (float(ends[0]), float(ends[1]))
    return ranges


def compare(numbers: Mapping[str, float], ranges: Ranges) -> tuple[Comparison, ...]:
    """Every number, as `describe` gives them, that has a training range, with this range."""
    return tuple(Comparison(name, value, *ranges[name]) for name, value in numbers.items() if name in ranges)


def outside(case: Case, ranges: Ranges, equation: Physics | None = None) -> list[str]:
    """One sentence for every number of the case that the training cases did not span."""
    return [str(each) for each in compare(describe(case, equation), ranges) if not each.inside]


def _of_graph(mesh: Mesh) -> dict[str, float]:
    """Of which shape the cells are, as a network sees it: squares have 8 neighbours, triangles 6."""
    first, second = mesh.edges
    starts = np.flatnonzero(np.diff(first, prepend=-1))
    lengths = (mesh.points[torch.from_numpy(first)] - mesh.points[torch.from_numpy(second)]).norm(dim=1).numpy()
    ratios = np.maximum.reduceat(lengths, starts) / np.minimum.reduceat(lengths, starts)
    # The median, as points of the boundary have fewer, and a fine mesh has few of those.
    return {
        "typical number of neighbours": float(np.median(np.diff(starts, append=len(first)))),
        "mean stretching of cells": float(ratios.mean()),
    }


def _largest(values: Tensor) -> float:
    return float(values.reshape(len(values), -1).norm(dim=1).amax())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
