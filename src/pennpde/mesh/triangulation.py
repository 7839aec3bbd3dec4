"""Triangles without any structure: points are scattered at random, joined by Delaunay and smoothed; what lies in which.

What meshes of the ducts, companions of a user's mesh and interpolations have in common: arithmetic on positions. It
loads no torch: the page makes shapes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array
from scipy.spatial import Delaunay, KDTree

from pennpde.mesh.cells import cross

if TYPE_CHECKING:
    from pennpde.mesh import Mesh

# Of the spacing: with these throws there is then one point for each square of the spacing, as in a mesh of squares.
NEAREST = 0.79
_THROWS = 40
SMOOTHING = 12
"""Rounds after which triangles hardly get any better."""
_CANDIDATES = (12, 100, 1000)
"""Triangles with the nearest centres that are tried, in turn; thin ones may have theirs far away."""
_PAIRS_AT_ONCE = 4_000_000
"""Of points and sides: what memory holds easily."""


def doubled_areas(points: Float[np.ndarray, "points 2"], triangles: np.ndarray) -> Float[np.ndarray, " triangles"]:
    """Of each triangle, negative where it runs clockwise."""
    a, b, c = np.moveaxis(points[triangles], 1, 0)
    return cross(b - a, c - a)


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
    doubled = np.abs(doubled_areas(points, triangles))
    return triangles[doubled > 1e-6 * np.median(doubled)]


def delaunay_within(
    points: Float[np.ndarray, "points 2"], sides: Float[np.ndarray, "sides 2 2"], boundary: int
) -> Int64[np.ndarray, "triangles 3"]:
    """Delaunay's triangles of the domain between sides, whose ends are the first points, so many."""
    triangles = delaunay(points)
    # Only between points of the boundary are there triangles outside, as long as its edges are edges of triangles.
    doubtful = np.flatnonzero((triangles < boundary).all(axis=1))
    outside = doubtful[~inside(points[triangles[doubtful]].mean(axis=1), sides)]
    return np.delete(triangles, outside, axis=0)


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


# Triangles that fill a domain given by polygons, its outline and bodies in it, whose sides name their patches.


_SIDE = (4 / 3) ** 0.25
"""Of an equilateral triangle, where there is one point for each square of the spacing."""
_FROM_BOUNDARY = 0.6
"""Of the spacing, that points within keep from those of the boundary."""
_ROUNDS = 3
_SMALLEST_ANGLE = 5.0
_MOST_POINTS = 200_000


@dataclass(frozen=True, eq=False)
class Polygon:
    """A closed line; the last corner is joined to the first.

    Attributes:
        corners: Of many sides, where it is a curve.
        patches: By side, from each corner to the next, the name of its patch.
    """

    corners: Float[np.ndarray, "corners 2"]
    patches: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.corners) < 3 or len(self.patches) != len(self.corners):
            raise ValueError(
                f"A polygon has {len(self.corners)} corners and {len(self.patches)} patches; it needs three corners at "
                "least, and a patch for each of its sides."
            )
        if not np.isfinite(self.corners).all():
            raise ValueError("A corner of a polygon is not finite.")

    @property
    def area(self) -> float:
        """Positive where it goes counter-clockwise."""
        return float(cross(self.corners, np.roll(self.corners, -1, axis=0)).sum()) / 2


def fill(polygons: Sequence[Polygon], spacing: float) -> Mesh:
    """Triangles between an outline, the first polygon, and bodies, the others.

    Args:
        polygons: None of which crosses itself or another one.
        spacing: Length of an edge, about; of a mesh of squares with as many points. Sides are cut into equal parts of
            about this length; shorter sides stay as they are.
    """
    area = abs(polygons[0].area) - sum(abs(each.area) for each in polygons[1:])
    if not (spacing > 0 and 0 < area / spacing**2 < _MOST_POINTS):
        raise ValueError(
            f"With a spacing of {spacing:.4g} a domain of area {area:.4g} would have {area / spacing**2:.3g} points; "
            f"choose one that gives up to {_MOST_POINTS:,}."
        )
    points, ends, names = _boundary(polygons, spacing)
    sides = points[ends]
    inner = _lattice(points.min(axis=0), points.max(axis=0), spacing)
    # Nearer to the middle of a side it would be seen from beyond it, and the side no longer be one of a triangle.
    inner = inner[KDTree(np.concatenate([points, sides.mean(axis=1)])).query(inner)[0] > _FROM_BOUNDARY * spacing]
    inner = inner[inside(inner, sides)]
    every = np.concatenate([points, inner])
    for _ in range(_ROUNDS):
        every = smoothed(every, delaunay_within(every, sides, len(points)), len(points))
    triangles = delaunay_within(every, sides, len(points))
    _check(every, triangles, ends, area)
    from pennpde.mesh import Mesh  # which loads torch: the page makes polygons without it

    mesh = Mesh.from_arrays(every, {"triangle": triangles})
    by_name: Mapping[str, np.ndarray] = {name: ends[np.array(names) == name] for name in dict.fromkeys(names)}
    return mesh.with_patch_facets(dict(by_name))


def _boundary(polygons: Sequence[Polygon], spacing: float) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Points, and edges with the names of their patches."""
    points, ends, names = [], [], []
    for polygon in polygons:
        first = len(points)
        for start, end, name in zip(
            polygon.corners, np.roll(polygon.corners, -1, axis=0), polygon.patches, strict=True
        ):
            number = max(1, round(float(np.linalg.norm(end - start)) / (_SIDE * spacing) + 0.2))
            points += [start + (end - start) * place / number for place in range(number)]
            names += [name] * number
        count = len(points) - first
        ends += [(first + place, first + (place + 1) % count) for place in range(count)]
    return np.array(points), np.array(ends), names


def _lattice(low: np.ndarray, high: np.ndarray, spacing: float) -> np.ndarray:
    """Corners of equilateral triangles."""
    side = _SIDE * spacing
    rows = np.arange(low[1], high[1] + side, side * 0.75**0.5)
    columns = np.arange(low[0] - side, high[0] + side, side)
    x, y = np.meshgrid(columns, rows)
    return np.stack([x + 0.5 * side * (np.arange(len(rows))[:, None] % 2), y], axis=-1).reshape(-1, 2)


def _check(points: np.ndarray, triangles: np.ndarray, ends: np.ndarray, area: float) -> None:
    covered = float(np.abs(doubled_areas(points, triangles)).sum()) / 2
    pairs = np.sort(np.concatenate([triangles[:, :2], triangles[:, 1:], triangles[:, ::2]]), axis=1)
    size = len(points)
    lost = np.setdiff1d(np.sort(ends, axis=1) @ (size, 1), pairs @ (size, 1))
    if len(lost) or abs(covered - area) > 1e-6 * area:
        raise ValueError(
            "No triangles fill the shape: sides cross each other, or bodies are nearer to a wall than the spacing. "
            "Draw simpler sides, or take more cells."
        )
    if smallest_angles(points[triangles]).min() < _SMALLEST_ANGLE:
        raise ValueError(
            f"The triangles have angles below {_SMALLEST_ANGLE:g}°: the shape has details that are smaller than the "
            "spacing. Take more cells, or a simpler shape."
        )
