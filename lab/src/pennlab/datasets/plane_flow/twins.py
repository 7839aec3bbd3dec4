"""How far flows are from each other, mirror images included: no flow of one split may have a twin in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from pennlab.datasets.plane_flow.conditions import Prescribed
from pennlab.datasets.plane_flow.flow import Flow

SHAPE_SCALE, REYNOLDS_SCALE, SPEED_SCALE = 0.03, 0.15, 0.1
"""Outlines that differ by this mean distance (in inlet widths), Reynolds numbers by this factor, or prescribed
velocities by this much, are different flows."""
_SAMPLES = 240
_FURTHEST, _FURTHEST_EXTENT = 3.0, 1.0
"""Flows further apart than this in the logarithm of Re, or in length or height, are not looked at."""


@dataclass(frozen=True, eq=False)
class Signature:
    """What tells flows apart.

    Attributes:
        outline: places along the boundary at equal distances, relative to the middle of the inlet, or of the box.
        velocity: prescribed there, zero elsewhere.
        slips: 1 where the boundary is without friction.
        bodies: whether a place is on a body in the flow.
        reynolds: natural logarithm of the Reynolds number.
        origin: the middle of the inlet, or of the box.
    """

    family: str
    outline: Float[np.ndarray, "samples 2"]
    velocity: Float[np.ndarray, "samples 2"]
    slips: Float[np.ndarray, " samples"]
    bodies: Bool[np.ndarray, " samples"]
    reynolds: float
    origin: Float[np.ndarray, " 2"]

    @staticmethod
    def of(flow: Flow) -> Signature:
        sides = flow.domain.sides
        patches = [piece.patch for piece in flow.domain.pieces for _ in range(len(piece.path) - 1)]
        lengths = np.sqrt(((sides[:, 1] - sides[:, 0]) ** 2).sum(axis=1))
        ends = np.concatenate([[0.0], np.cumsum(lengths)])
        places = (np.arange(_SAMPLES) + 0.5) / _SAMPLES * ends[-1]
        of_side = np.clip(np.searchsorted(ends, places) - 1, 0, len(sides) - 1)
        share = ((places - ends[of_side]) / lengths[of_side])[:, None]
        outline = (1 - share) * sides[of_side, 0] + share * sides[of_side, 1]
        velocity, slips = np.zeros_like(outline), np.zeros(len(outline))
        names = np.array(patches)[of_side]
        for name, condition in flow.conditions.items():
            chosen = names == name
            if isinstance(condition, Prescribed):
                velocity[chosen] = condition.velocity(outline[chosen])
            slips[chosen] = name in flow.slips
        outer = sum(len(piece.path) - 1 for piece in flow.domain.loops[0])
        inlet = [sides[place] for place, name in enumerate(patches) if name == "inlet"]
        origin = np.mean(inlet, axis=(0, 1)) if inlet else np.mean(flow.domain.box, axis=0)
        reynolds = float(np.log(flow.reynolds))
        return Signature(flow.family, outline - origin, velocity, slips, of_side >= outer, reynolds, origin)

    @property
    def extent(self) -> Float[np.ndarray, " 2"]:
        """Length and height."""
        return np.ptp(self.outline, axis=0)

    def mirrored(self) -> Signature:
        flip = np.array([1.0, -1.0])
        return replace(self, outline=self.outline * flip, velocity=self.velocity * flip)


def distance(one: Signature, other: Signature) -> float:
    """Below 1 for twins: the largest of the differences of shape, Reynolds number and conditions, in their scales."""
    apart = abs(one.reynolds - other.reynolds) / REYNOLDS_SCALE
    return max(apart, min(_apart(one, other), _apart(one, other.mirrored())))


def is_nearer_mirrored(one: Signature, other: Signature) -> bool:
    """Whether the other flow has to be turned upside down to be most alike."""
    return _apart(one, other.mirrored()) < _apart(one, other)


def _apart(one: Signature, other: Signature) -> float:
    to_other, there = KDTree(other.outline).query(one.outline)
    back = KDTree(one.outline).query(other.outline)[0]
    shape = 0.5 * (float(to_other.mean()) + float(back.mean())) / SHAPE_SCALE
    # A body is a small part of the outline, but makes the flow: it is compared on its own, too.
    for away, bodies in ((to_other, one.bodies), (back, other.bodies)):
        if bodies.any():
            shape = max(shape, float(away[bodies].mean()) / SHAPE_SCALE)
    # Positions along the outline are half a sample apart at most, so a mean of velocities is compared.
    change = np.abs(one.velocity - other.velocity[there]).sum(axis=1) + np.abs(one.slips - other.slips[there])
    prescribed = max(1.0, float((np.abs(one.velocity).sum(axis=1) > 0).sum()))
    return max(shape, float(change.sum()) / prescribed / SPEED_SCALE)


def nearest_across(
    signatures: Mapping[str, Signature], splits: Mapping[str, Sequence[str]]
) -> list[tuple[float, str, str]]:
    """By flow outside of the training set, its nearest flow in another split, the nearest pairs first.

    Flows of all families are compared, since a jet without a duct may be an expansion; only those whose Reynolds
    numbers are too far apart for twins are left out.
    """
    found = []
    for one, other in combinations(splits, 2):
        for name in splits[other]:
            mine = signatures[name]
            close = [
                rival
                for rival in splits[one]
                if abs(signatures[rival].reynolds - mine.reynolds) < _FURTHEST * REYNOLDS_SCALE
                and np.abs(signatures[rival].extent - mine.extent).max() < _FURTHEST_EXTENT
            ]
            if close:
                best = min((distance(mine, signatures[rival]), rival) for rival in close)
                found.append((best[0], name, best[1]))
    return sorted(found)
