"""What only the laboratory asks of the ducts: their list, the blocks of OpenFOAM's meshes, places carried over."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from pennlab.running import Block
from pennpde.case import Case
from pennpde.models.designs import NUMBER_OF_PARAMETERS, Duct, Region, case_name
from pennpde.models.potential_flow import potential_flow

PARAMETERS = tuple(round(0.1 * tenths, 1) for tenths in range(11))


def all_names() -> list[str]:
    """The 253 cases of the set: 11 of type A, 121 of B and 121 of C."""
    return [
        case_name(kind, values)
        for kind, number in NUMBER_OF_PARAMETERS.items()
        for values in itertools.product(PARAMETERS, repeat=number)
    ]


def blocks_of(duct: Duct, cells_per_length: float) -> list[Block]:
    """The blocks of a `blockMesh` at this resolution."""
    return [Block(region.corners, region.cells(cells_per_length)) for region in duct.regions]


def carried(points: Float[np.ndarray, "points 2"], duct: Duct, to: Duct) -> Float[np.ndarray, "points 2"]:
    """The places in another duct of the same template that correspond to points of one.

    All regions have a horizontal bottom and top: a place is how far up it lies, and how far along at that height.
    """
    carried, found = np.array(points, float), np.zeros(len(points), bool)
    for region, other in zip(duct.regions, to.regions, strict=True):
        bottom, top = region.corners[0][1], region.corners[2][1]
        up = (points[:, 1] - bottom) / (top - bottom)
        left, right = _ends(region, up)
        along = (points[:, 0] - left) / (right - left)
        slack = 1e-6
        here = ~found & (abs(up - 0.5) <= 0.5 + slack) & (abs(along - 0.5) <= 0.5 + slack)
        start, end = _ends(other, up[here])
        height = other.corners[2][1] - other.corners[0][1]
        carried[here, 0] = start + along[here] * (end - start)
        carried[here, 1] = other.corners[0][1] + up[here] * height
        found |= here
    if not found.all():
        raise ValueError(f"{(~found).sum()} points lie outside of the duct {duct.name}, as {points[~found][0]}.")
    return carried


def _ends(region: Region, up: Float[np.ndarray, " points"]) -> tuple[np.ndarray, np.ndarray]:
    """Where the left and the right side stand at a share of the height."""
    (left_bottom, _), (right_bottom, _), (right_top, _), (left_top, _) = region.corners
    return left_bottom + up * (left_top - left_bottom), right_bottom + up * (right_top - right_bottom)


def with_potential_flow(case: Case) -> Case:
    """The case, started from the potential flow of its conditions and from zero pressure."""
    return replace(case, initial={**case.initial, "u": potential_flow(case), "p": torch.zeros_like(case.initial["p"])})
