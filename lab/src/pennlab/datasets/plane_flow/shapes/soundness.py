"""Whether an outline can be meshed: it does not cross or touch itself, and leaves no gap too narrow."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pennlab.datasets.plane_flow.domain import Domain
from pennpde.mesh.cells import cross

LEAST_GAP = 0.12
LONGEST = 15.5
_LARGEST_AREA = 40.0


def unsound(domain: Domain) -> str:
    """What is wrong with an outline, in words; empty if nothing is."""
    for loop in domain.loops:
        for piece, following in zip(loop, (*loop[1:], loop[0]), strict=True):
            if not np.allclose(piece.path[-1], following.path[0], atol=1e-8):
                return f"{piece.patch} ends at {piece.path[-1]}, but {following.patch} starts at {following.path[0]}"
            if piece.length < 0.04:
                return f"a piece of {piece.patch} is only {piece.length:.3g} long"
    low, high = domain.box
    if max(high - low) > LONGEST or domain.area > _LARGEST_AREA:
        return f"the domain is {max(high - low):.3g} long and has an area of {domain.area:.3g}"
    if domain.area <= 0:
        return "the outline runs clockwise"
    sides = domain.sides
    if crossings(sides):
        return "the outline crosses itself"
    narrowest = _narrowest(sides)
    return f"a gap is only {narrowest:.3g} wide" if narrowest < LEAST_GAP else ""


def crossings(sides: Float[np.ndarray, "sides 2 2"]) -> int:
    """How many pairs of sides that are no neighbours have a point in common."""
    start, end = sides[:, 0], sides[:, 1]
    along = end - start
    first = cross(along[:, None], start[None] - start[:, None])
    second = cross(along[:, None], end[None] - start[:, None])
    apart = first * second > 0
    together = ~apart & ~apart.T
    # Neighbours share an end.
    same = np.zeros(together.shape, bool)
    for one in (start, end):
        for other in (start, end):
            same |= (np.abs(one[:, None] - other[None]) < 1e-8).all(axis=-1)
    flat = (np.abs(first) < 1e-12) & (np.abs(second) < 1e-12)  # on one line: they overlap only if their boxes do
    low, high = np.minimum(start, end), np.maximum(start, end)
    boxes = ((low[:, None] <= high[None] + 1e-12) & (low[None] <= high[:, None] + 1e-12)).all(axis=-1)
    return int((together & ~same & boxes | (flat & ~same & boxes)).sum()) // 2


def _narrowest(sides: Float[np.ndarray, "sides 2 2"]) -> float:
    """The least distance across the fluid between places that face each other."""
    places, inward = [], []
    for start, end in sides:
        along = end - start
        length = float(np.sqrt((along**2).sum()))
        number = max(1, int(np.ceil(length / 0.06)))
        places.append(start + ((np.arange(number) + 0.5) / number)[:, None] * along)
        inward.append(np.broadcast_to(np.array([-along[1], along[0]]) / length, (number, 2)))
    position, normal = np.concatenate(places), np.concatenate(inward)
    offset = position[None] - position[:, None]
    ahead = (offset * normal[:, None]).sum(axis=-1)
    facing = (normal[:, None] * normal[None]).sum(axis=-1)
    distance = np.sqrt((offset**2).sum(axis=-1))
    opposite = (facing < -0.3) & (ahead > 0.5 * distance) & (distance > 1e-9)
    return float(np.where(opposite, distance, np.inf).min())
