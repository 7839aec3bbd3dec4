"""Triangles without any structure: points are scattered at random, joined by Delaunay and smoothed; what lies in which.

What meshes of the ducts, companions of a user's mesh and interpolations have in common: arithmetic on positions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array
from scipy.spatial import Delaunay, KDTree

from pennpde.mesh.cells import cross

# Of the spacing: with these throws there is then one point for each square of the spacing, as in a mesh of squares.
NEAREST = 0.79
_THROWS = 40
SMOOTHING = 12
"""Rounds after which triangles hardly get any better."""
_CANDIDATES = (12, 100, 1000)
"""Triangles with the nearest centres that are tried, in turn; thin ones may have theirs far away."""
_PAIRS_AT_ONCE = 4_000_000
"""Of points and sides: what memory holds easily."""


def scattered(
    throw: Callable[[], Float[np.ndarray, "thrown 2"]], boundary: Float[np.ndarray, "boundary 2"], spacing: float
) -> Float[np.ndarray, "inner 2"]:
    """Thrown points, none nearer to another or to the boundary's than a share of the spacing.

    Throws of one point for each square of the spacing go on until hardly one more fits.
    """
    inner = np.zeros((0, 2))
    for _ in range(_THROWS):
        thrown = throw()
        thrown = thrown[KDTree(np.concatenate([boundary, inner])).query(thrown)[0] > NEAREST * spacing]
        # Of two that are too near to each other, the later one goes.
        crowded = KDTree(thrown).query_pairs(NEAREST * spacing, output_type="ndarray").max(axis=1, initial=-1)
        inner = np.concatenate([inner, np.delete(thrown, crowded, axis=0)])
    return inner


def delaunay(points: Float[np.ndarray, "points 2"]) -> Int64[np.ndarray, "triangles 3"]:
    """Delaunay's triangles, also those that fill hollows of the boundary, without the flat ones along its sides."""
    triangles = Delaunay(points).simplices.astype(np.int64)
    corners = points[triangles]
    doubled = np.abs(cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    return triangles[doubled > 1e-6 * np.median(doubled)]


def smoothed(
    points: Float[np.ndarray, "points 2"], triangles: Int64[np.ndarray, "triangles 3"], fixed: int
) -> Float[np.ndarray, "points 2"]:
    """All points but the first ones, which are fixed, in the middle of their neighbours."""
    sums, counts = np.zeros_like(points), np.zeros(len(points))
    for one, other in ((0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)):
        np.add.at(sums, triangles[:, one], points[triangles[:, other]])
        np.add.at(counts, triangles[:, one], 1.0)
    moved = points.copy()
    moved[fixed:] = sums[fixed:] / counts[fixed:, None]
    return moved


def inside(points: Float[np.ndarray, "points 2"], sides: Float[np.ndarray, "sides 2 2"]) -> Bool[np.ndarray, " points"]:
    """Whether a ray to the right crosses the boundary an odd number of times."""
    (start_x, start_y), (end_x, end_y) = sides[:, 0].T, sides[:, 1].T
    height = np.where(end_y == start_y, 1.0, end_y - start_y)
    found = np.zeros(len(points), bool)
    at_once = max(1, _PAIRS_AT_ONCE // max(1, len(sides)))
    for first in range(0, len(points), at_once):
        x, y = points[first : first + at_once, :1], points[first : first + at_once, 1:]
        rises = (start_y > y) != (end_y > y)
        crossing = start_x + (y - start_y) / height * (end_x - start_x)
        found[first : first + at_once] = (rises & (x < crossing)).sum(axis=1) % 2 == 1
    return found


def interpolation(
    positions: Float[np.ndarray, "points 2"],
    triangles: Int64[np.ndarray, "triangles 3"],
    targets: Float[np.ndarray, "targets 2"],
    tolerance: float = 1e-9,
) -> tuple[csr_array, Bool[np.ndarray, " targets"]]:
    """The matrix [targets, points] that is linear in each triangle, its rows summing to one, and who lies outside.

    A target that is outside of all triangles by more than the tolerance, a share of a triangle, takes the nearest.
    """
    found, weights = _containing(positions[triangles], targets, tolerance)
    outside = weights.min(axis=1) < -tolerance
    weights = np.clip(weights, 0.0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    rows = np.arange(0, 3 * len(targets) + 1, 3)
    shape = (len(targets), len(positions))
    return csr_array((weights.ravel(), triangles[found].ravel(), rows), shape=shape), outside


def _containing(
    corners: Float[np.ndarray, "triangles 3 2"], targets: Float[np.ndarray, "targets 2"], tolerance: float
) -> tuple[Int64[np.ndarray, " targets"], Float[np.ndarray, "targets 3"]]:
    """The triangle that each target lies in, or nearest to, and its barycentric coordinates there."""
    tree = KDTree(corners.mean(axis=1))
    found, weights = np.zeros(len(targets), np.int64), np.full((len(targets), 3), -np.inf)
    left = np.arange(len(targets))
    for candidates in _CANDIDATES:
        number = min(candidates, len(corners))
        nearest = np.asarray(tree.query(targets[left], k=number)[1]).reshape(len(left), number)
        coordinates = _barycentric(corners[nearest], targets[left])
        best = coordinates.min(axis=2).argmax(axis=1)
        found[left] = nearest[np.arange(len(left)), best]
        weights[left] = coordinates[np.arange(len(left)), best]
        left = left[weights[left].min(axis=1) < -tolerance]
        if number == len(corners) or not len(left):
            break
    return found, weights


def _barycentric(
    corners: Float[np.ndarray, "targets candidates 3 2"], targets: Float[np.ndarray, "targets 2"]
) -> Float[np.ndarray, "targets candidates 3"]:
    a, b, c = np.moveaxis(corners, 2, 0)
    target = targets[:, None]
    area = cross(b - a, c - a)
    area = np.where(area == 0, np.finfo(float).tiny, area)
    first, second = cross(b - target, c - target) / area, cross(c - target, a - target) / area
    return np.stack([first, second, 1.0 - first - second], axis=-1)


def smallest_angles(corners: Float[np.ndarray, "triangles 3 2"]) -> Float[np.ndarray, " triangles"]:
    """The smallest angle of each triangle, in degrees."""
    angles = []
    for here in range(3):
        one, other = (corners[:, (here + step) % 3] - corners[:, here] for step in (1, 2))
        angles.append(np.arctan2(cross(one, other), (one * other).sum(axis=1)))
    return np.degrees(np.min(angles, axis=0))
