"""What a network was trained on, in a few numbers, and whether a case lies within.

A network interpolates. These numbers do not prove that a case is like the training cases, but a case outside of them
certainly is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from pennpde.conditions import Case

Ranges = Mapping[str, tuple[float, float]]

_SLACK = 1e-6
"""Relative: a value at the end of a range is inside, whatever its last bit."""


def describe(case: Case) -> dict[str, float]:
    """The numbers of one case: dimensions, mesh size, parameters, prescribed values, features."""
    cell_size = float(case.mesh.point_volumes.mean()) ** (1 / case.space)
    numbers = {"space": float(case.space), "mean cell size": cell_size}
    for name, value in case.parameters.items():
        numbers[f"parameter {name}"] = _length(value)
    for name, condition in case.dirichlet.items():
        if bool(condition.mask.any()):
            prescribed = condition.values[condition.mask].reshape(int(condition.mask.sum()), -1)
            numbers[f"largest prescribed {name}"] = float(prescribed.norm(dim=1).amax())
    for name, values in case.features.items():
        numbers[f"largest {name}"] = float(values.abs().amax())
    return numbers


def spanned(cases: Iterable[Case]) -> dict[str, tuple[float, float]]:
    """The range of every number over the training cases."""
    ranges: dict[str, tuple[float, float]] = {}
    for case in cases:
        for name, value in describe(case).items():
            low, high = ranges.get(name, (value, value))
            ranges[name] = (min(low, value), max(high, value))
    return ranges


def outside(case: Case, ranges: Ranges) -> list[str]:
    """One sentence for every number of the case that the training cases did not span."""
    sentences = []
    for name, value in describe(case).items():
        if name not in ranges:
            continue
        low, high = ranges[name]
        slack = _SLACK * max(abs(low), abs(high))
        if not low - slack <= value <= high + slack:
            sentences.append(f"{name} is {value:.4g}; the network was trained on {low:.4g} to {high:.4g}.")
    return sentences


def _length(value: Tensor) -> float:
    return float(value.reshape(-1).norm())
