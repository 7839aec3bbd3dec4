"""One flow of the dataset, as a solver and a mesh generator need it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from pennlab.datasets.plane_flow.conditions import Condition, Inlet, Outlet, Prescribed, Slip, Wall
from pennlab.datasets.plane_flow.domain import Domain

STARTS = ("potential", "rest")
INTERVAL = 0.125
"""Moments are multiples of this: the solver's steps meet them."""


@dataclass(frozen=True, eq=False)
class Flow:
    """A domain, what holds on its patches, and the numbers of the flow; lengths in inlet widths, speeds in bulk speeds.

    Attributes:
        name: family, number and split tell it from all others.
        family: of its shape.
        domain: the fluid.
        conditions: by patch. Where patches meet, the later one holds.
        reynolds: bulk speed × inlet width / viscosity; cavities: lid speed × side / viscosity.
        moments: at which the flow is wanted, growing.
        start: "potential" or "rest": what networks see at the start. An impulsive start from rest becomes the
            potential flow at once, so the truth is the same for both.
        parameters: that the shape was drawn with.
        mirrored: whether the shape was turned upside down.
        pressure_point: where the pressure is zero in a domain without outlet.
    """

    name: str
    family: str
    domain: Domain
    conditions: Mapping[str, Condition]
    reynolds: float
    moments: tuple[float, ...]
    start: str = "potential"
    parameters: Mapping[str, float] = field(default_factory=dict)
    mirrored: bool = False
    pressure_point: tuple[float, float] | None = None

    @property
    def viscosity(self) -> float:
        return 1.0 / self.reynolds

    def patches(self, kind: type[Condition]) -> list[str]:
        return [name for name, condition in self.conditions.items() if isinstance(condition, kind)]

    @property
    def outlets(self) -> list[str]:
        return self.patches(Outlet)

    @property
    def inlets(self) -> list[str]:
        return self.patches(Inlet)

    @property
    def slips(self) -> list[str]:
        return self.patches(Slip)

    @property
    def prescribed(self) -> dict[str, Prescribed]:
        """Patches with known velocity: inlets, then moving walls, then walls at rest, which win where they meet."""
        found = {name: each for name, each in self.conditions.items() if isinstance(each, Prescribed)}
        rank = {name: (1 + each.at_rest if isinstance(each, Wall) else 0) for name, each in found.items()}
        return {name: found[name] for name in sorted(found, key=lambda name: rank[name])}

    @property
    def walls_at_rest(self) -> list[str]:
        return [name for name, each in self.prescribed.items() if each.at_rest]

    def inflow(self) -> float:
        """Volume that enters per time."""
        lengths = self.domain.lengths()
        return float(
            sum(each.speed * lengths[name] for name, each in self.conditions.items() if isinstance(each, Inlet))
        )

    def describe(self) -> dict[str, Any]:
        """All that defines the flow, in JSON's terms."""
        return {
            "family": self.family,
            "reynolds": self.reynolds,
            "moments": list(self.moments),
            "start": self.start,
            "mirrored": self.mirrored,
            "parameters": {name: float(value) for name, value in self.parameters.items()},
            "conditions": {name: each.describe() for name, each in self.conditions.items()},
        }

    def fingerprint(self) -> str:
        """A hash of shape and conditions that is the same on any machine."""
        paths = [[piece.patch, _text(piece.path)] for piece in self.domain.pieces]
        conditions = {name: _rounded(each.describe()) for name, each in self.conditions.items()}
        numbers = [_rounded(self.reynolds), list(self.moments), self.start, _rounded(self.pressure_point)]
        return hashlib.sha256(json.dumps([paths, conditions, numbers], sort_keys=True).encode()).hexdigest()


def _text(path: Float[np.ndarray, "path 2"]) -> list[int]:
    # Seven digits: what nine-digit rounding leaves of a sine that differs in its last bit cannot flip them.
    return np.floor(path * 1e7 + 0.5).astype(np.int64).ravel().tolist()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
