"""What is wanted of a design, in words: quantities, and limits of them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from pennpde.files import read_regular
from pennpde.optimisation.adjoint import Measure
from pennpde.optimisation.flows import Fields
from pennpde.optimisation.measures import FlowRate, Force, Imbalance, Misfit, PressureDrop
from pennpde.optimisation.search import Limit

KNOWN = (
    "pressure drop A B, total pressure drop A B, flow rate A, flow share A of A B ..., flow imbalance A B ..., drag A, "
    "lift A, misfit FILE.csv"
)
_NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"
_LIMIT = re.compile(
    rf"^(?P<what>.+?)\s+(?:(?:<=?|below)\s*(?P<most>{_NUMBER})|(?:>=?|above)\s*(?P<least>{_NUMBER})"
    rf"|between\s+(?P<low>{_NUMBER})\s+and\s+(?P<high>{_NUMBER}))\s*(?P<percent>%?)$"
)
_SPLIT = re.compile(rf"^flow split\s+(?P<patches>.+?)\s+within\s+(?P<percent>{_NUMBER})\s*%$")


@dataclass(frozen=True)
class Times:
    """A quantity times a number: its negative is what is maximised."""

    measure: Measure
    factor: float

    def __call__(self, fields: Fields) -> Tensor:
        return self.factor * self.measure(fields)


@dataclass(frozen=True)
class Squared:
    """A root mean square as a search wants it: the square is smooth where the root is zero."""

    measure: Measure

    def __call__(self, fields: Fields) -> Tensor:
        return self.measure(fields).square()


def searched(measure: Measure) -> Measure:
    """The quantity in the form in which it is minimised."""
    return Squared(measure) if isinstance(measure, Imbalance | Misfit) else measure


def parse_measure(text: str, patches: Collection[str]) -> Measure:
    """A quantity from its words; patches are named as in the mesh."""
    words = text.split()

    def named(names: list[str], least: int, most: int) -> tuple[str, ...]:
        if not least <= len(names) <= most:
            raise ValueError(f"{text!r} names {len(names)} patches. Known are: {KNOWN}.")
        if unknown := sorted(set(names) - set(patches)):
            raise ValueError(f"{text!r} names {unknown}; the mesh has the patches {sorted(patches)}.")
        return tuple(names)

    match words:
        case ["pressure", "drop", *names]:
            return PressureDrop(*named(names, 2, 2))
        case ["total", "pressure", "drop", *names]:
            return PressureDrop(*named(names, 2, 2), total=True)
        case ["flow", "rate", *names]:
            return FlowRate(*named(names, 1, 1))
        case ["flow", "share", one, "of", *names]:
            return FlowRate(*named([one], 1, 1), named(names, 2, 99))
        case ["flow", "imbalance", *names]:
            return Imbalance(named(names, 2, 99))
        case ["drag", *names]:
            return Force(*named(names, 1, 1), (1.0, 0.0))
        case ["lift", *names]:
            return Force(*named(names, 1, 1), (0.0, 1.0))
        case ["misfit", *rest]:
            return read_misfit(Path(" ".join(rest)))
    raise ValueError(f"{text!r} is no quantity that has gradients. Known are: {KNOWN}.")


def parse_limits(text: str, patches: Collection[str]) -> list[tuple[Measure, Limit]]:
    """A constraint from its words: `flow split a b within 5 %`, or a quantity `< 0.3`, `> 0.3`, `between 1 and 2`."""
    if found := _SPLIT.match(text):
        names = tuple(found["patches"].split())
        share, off = 1.0 / len(names), float(found["percent"]) / 100.0
        parse_measure("flow imbalance " + " ".join(names), patches)  # refuses unknown patches
        return [(FlowRate(each, names), Limit(share * (1 - off), share * (1 + off))) for each in names]
    if not (found := _LIMIT.match(text)):
        raise ValueError(
            f"{text!r} is no constraint; write QUANTITY < 0.3, QUANTITY > 0.3, QUANTITY between 1 and 2, or "
            '"flow split A B within 5 %".'
        )
    one = 0.01 if found["percent"] else 1.0
    low, high = found["least"] or found["low"], found["most"] or found["high"]
    limit = Limit(-math.inf if low is None else one * float(low), math.inf if high is None else one * float(high))
    return [(parse_measure(found["what"], patches), limit)]


def read_misfit(path: Path) -> Misfit:
    """Measured velocities: a CSV file with the columns x, y, u and v."""
    lines = [line.split(",") for line in read_regular(path).decode("utf-8-sig").splitlines() if line.strip()]
    try:
        rows = np.array([[float(item) for item in line] for line in lines[1:]])
    except ValueError:
        rows = np.zeros((0, 0))
    if [each.strip() for each in lines[0] if lines] != ["x", "y", "u", "v"] or rows.ndim != 2 or not len(rows):
        raise ValueError(f"{path} has no measured velocities; its first line is x,y,u,v and each other one four numbers.")
    return Misfit(rows[:, :2], rows[:, 2:])
