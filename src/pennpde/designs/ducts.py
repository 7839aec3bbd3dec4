"""The ducts of the flow dataset: three templates with one or two design parameters each.

The paper's drawing of the templates was not available. Type A (a step) was recovered from the authors' samples; B (an
offset duct) and C (an expansion) are our own shapes, with the same inlet and Reynolds number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

Corner = tuple[float, float]
Side = tuple[Corner, Corner]

PARAMETERS = tuple(round(0.1 * tenths, 1) for tenths in range(11))
_NUMBER_OF_PARAMETERS = {"a": 1, "b": 2, "c": 2}


@dataclass(frozen=True)
class Region:
    """A four-sided part of a duct, which becomes one block of cells.

    Attributes:
        corners: counter-clockwise.
        reference: the rectangle (left, right, bottom, top) that the region is when all parameters are zero. Only
            it determines the numbers of cells, so that neighbouring regions match for all parameters.
    """

    corners: tuple[Corner, Corner, Corner, Corner]
    reference: tuple[float, float, float, float]

    def cells(self, per_length: float) -> tuple[int, int]:
        """Cells along and across: grid lines of the reference rectangle at rounded multiples of the cell size."""
        left, right, bottom, top = (math.floor(per_length * value + 0.5) for value in self.reference)
        return max(1, right - left), max(1, top - bottom)

    def ends(self, up: Float[np.ndarray, " points"]) -> tuple[np.ndarray, np.ndarray]:
        """Where the left and the right side stand at a share of the height."""
        (left_bottom, _), (right_bottom, _), (right_top, _), (left_top, _) = self.corners
        return left_bottom + up * (left_top - left_bottom), right_bottom + up * (right_top - right_bottom)


@dataclass(frozen=True)
class Duct:
    """The domain of one case: its regions, and the sides of its patches inlet, wall and outlet."""

    name: str
    regions: tuple[Region, ...]
    patches: Mapping[str, tuple[Side, ...]]

    def grid(self, cells_per_length: float) -> tuple[Float[np.ndarray, "points 2"], Int64[np.ndarray, "cells 4"]]:
        """Points and counter-clockwise quads of the mesh that `blockMesh` would make."""
        positions, quads, count = [], [], 0
        for region in self.regions:
            along, across = region.cells(cells_per_length)
            s, t = np.meshgrid(np.linspace(0, 1, along + 1), np.linspace(0, 1, across + 1))
            shape = np.stack([(1 - s) * (1 - t), s * (1 - t), s * t, (1 - s) * t], axis=-1).reshape(-1, 4)
            positions.append(shape @ np.array(region.corners, float))
            first = np.arange(along)[None, :] + (along + 1) * np.arange(across)[:, None] + count
            quads.append(np.stack([first, first + 1, first + along + 2, first + along + 1], axis=-1).reshape(-1, 4))
            count += len(positions[-1])
        # Regions share the points of their common sides.
        points = np.concatenate(positions)
        _, kept, number = np.unique(np.round(points, 9), axis=0, return_index=True, return_inverse=True)
        return points[kept], number.reshape(-1)[np.concatenate(quads)].astype(np.int64)

    def on_patch(self, name: str, points: Float[np.ndarray, "points 2"]) -> np.ndarray:
        """True at points that lie on a patch."""
        found = np.zeros(len(points), bool)
        for start, end in self.patches[name]:
            origin, direction = np.array(start, float), np.subtract(end, start).astype(float)
            place = np.clip((points - origin) @ direction / (direction @ direction), 0.0, 1.0)
            found |= np.linalg.norm(points - origin - place[:, None] * direction, axis=1) < 1e-9
        return found

    def carried(self, points: Float[np.ndarray, "points 2"], to: Duct) -> Float[np.ndarray, "points 2"]:
        """The places in another duct of the same template that correspond to points of this one.

        All regions have a horizontal bottom and top: a place is how far up it lies, and how far along at that height.
        """
        carried, found = np.array(points, float), np.zeros(len(points), bool)
        for region, other in zip(self.regions, to.regions, strict=True):
            bottom, top = region.corners[0][1], region.corners[2][1]
            up = (points[:, 1] - bottom) / (top - bottom)
            left, right = region.ends(up)
            along = (points[:, 0] - left) / (right - left)
            slack = 1e-6
            here = ~found & (abs(up - 0.5) <= 0.5 + slack) & (abs(along - 0.5) <= 0.5 + slack)
            start, end = other.ends(up[here])
            height = other.corners[2][1] - other.corners[0][1]
            carried[here, 0] = start + along[here] * (end - start)
            carried[here, 1] = other.corners[0][1] + up[here] * height
            found |= here
        if not found.all():
            raise ValueError(f"{(~found).sum()} points lie outside of the duct {self.name}, as {points[~found][0]}.")
        return carried


def case_name(kind: str, parameters: tuple[float, ...]) -> str:
    """Such as `a_0.30`, `b_0.10_0.70`."""
    return "_".join([kind, *(f"{value:.2f}" for value in parameters)])


def all_names() -> list[str]:
    """The 253 cases of the set: 11 of type A, 121 of B and 121 of C."""
    return [
        case_name(kind, values)
        for kind, number in _NUMBER_OF_PARAMETERS.items()
        for values in itertools.product(PARAMETERS, repeat=number)
    ]


def parse_name(name: str) -> tuple[str, tuple[float, ...]]:
    """Type and design parameters of a case; each parameter is from 0 to 1."""
    kind, *texts = name.split("_")
    if len(texts) != _NUMBER_OF_PARAMETERS.get(kind):
        raise ValueError(f"{name!r} names no flow case; names look like 'a_0.30', 'b_0.10_0.70' or 'c_0.00_1.00'.")
    try:
        parameters = tuple(float(text) for text in texts)
    except ValueError:
        raise ValueError(f"{name!r} names no flow case: its parameters must be numbers, as in 'b_0.10_0.70'.") from None
    for value in parameters:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name!r}: the design parameter {value:g} is outside of its range from 0 to 1.")
    return kind, parameters


def duct(name: str) -> Duct:
    """The duct of a case."""
    kind, parameters = parse_name(name)
    build = {"a": _step, "b": _offset_duct, "c": _expansion}[kind]
    regions, patches = build(*parameters)
    return Duct(name, regions, patches)


def _step(ramp: float) -> tuple[tuple[Region, ...], dict[str, tuple[Side, ...]]]:
    regions = (
        Region(((0, 1), (1, 1), (1, 2), (0, 2)), (0, 1, 1, 2)),
        Region(((1, 1), (3, 1), (3, 2), (1, 2)), (1, 3, 1, 2)),
        Region(((1 + ramp, 0), (3, 0), (3, 1), (1, 1)), (1, 3, 0, 1)),
    )
    lower = (((0, 1), (1, 1)), ((1, 1), (1 + ramp, 0)), ((1 + ramp, 0), (3, 0)))
    upper = (((3, 2), (1, 2)), ((1, 2), (0, 2)))
    return regions, {
        "inlet": (((0, 2), (0, 1)),),
        "wall": lower + upper,
        "outlet": (((3, 0), (3, 1)), ((3, 1), (3, 2))),
    }


def _offset_duct(lower_ramp: float, upper_ramp: float) -> tuple[tuple[Region, ...], dict[str, tuple[Side, ...]]]:
    # The outlet lies at x = 5, not 4: there a vortex would just cross it at t = 4, and the pressure would not converge.
    bottom, top = 1 + lower_ramp, 3 - upper_ramp
    regions = (
        Region(((0, 1), (1, 1), (1, 2), (0, 2)), (0, 1, 1, 2)),
        Region(((1, 1), (3, 1), (top, 2), (1, 2)), (1, 3, 1, 2)),
        Region(((bottom, 0), (3, 0), (3, 1), (1, 1)), (1, 3, 0, 1)),
        Region(((3, 0), (5, 0), (5, 1), (3, 1)), (3, 5, 0, 1)),
    )
    lower = (((0, 1), (1, 1)), ((1, 1), (bottom, 0)), ((bottom, 0), (3, 0)), ((3, 0), (5, 0)))
    upper = (((5, 1), (3, 1)), ((3, 1), (top, 2)), ((top, 2), (1, 2)), ((1, 2), (0, 2)))
    return regions, {"inlet": (((0, 2), (0, 1)),), "wall": lower + upper, "outlet": (((5, 0), (5, 1)),)}


def _expansion(lower_ramp: float, upper_ramp: float) -> tuple[tuple[Region, ...], dict[str, tuple[Side, ...]]]:
    bottom, top = 1 + lower_ramp, 1 + upper_ramp
    regions = (
        Region(((0, 0.5), (1, 0.5), (1, 1.5), (0, 1.5)), (0, 1, 0.5, 1.5)),
        Region(((1, 0.5), (3, 0.5), (3, 1.5), (1, 1.5)), (1, 3, 0.5, 1.5)),
        Region(((bottom, 0), (3, 0), (3, 0.5), (1, 0.5)), (1, 3, 0, 0.5)),
        Region(((1, 1.5), (3, 1.5), (3, 2), (top, 2)), (1, 3, 1.5, 2)),
    )
    lower = (((0, 0.5), (1, 0.5)), ((1, 0.5), (bottom, 0)), ((bottom, 0), (3, 0)))
    upper = (((3, 2), (top, 2)), ((top, 2), (1, 1.5)), ((1, 1.5), (0, 1.5)))
    outlet = (((3, 0), (3, 0.5)), ((3, 0.5), (3, 1.5)), ((3, 1.5), (3, 2)))
    return regions, {"inlet": (((0, 1.5), (0, 0.5)),), "wall": lower + upper, "outlet": outlet}
