"""Triangles that fill a domain given by polygons, its outline and bodies in it, whose sides name their patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from pennpde.mesh.triangulation import cross, delaunay, inside, smallest_angles, smoothed

if TYPE_CHECKING:
    from pennpde.mesh import Mesh

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
        every = smoothed(every, _within(every, sides), len(points))
    triangles = _within(every, sides)
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


def _within(points: np.ndarray, sides: np.ndarray) -> np.ndarray:
    triangles = delaunay(points)
    # Only between points of the boundary there are triangles outside.
    doubtful = np.flatnonzero((triangles < len(sides)).all(axis=1))
    outside = doubtful[~inside(points[triangles[doubtful]].mean(axis=1), sides)]
    return np.delete(triangles, outside, axis=0)


def _check(points: np.ndarray, triangles: np.ndarray, ends: np.ndarray, area: float) -> None:
    corners = points[triangles]
    covered = float(np.abs(cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])).sum()) / 2
    pairs = np.sort(np.concatenate([triangles[:, :2], triangles[:, 1:], triangles[:, ::2]]), axis=1)
    size = len(points)
    lost = np.setdiff1d(np.sort(ends, axis=1) @ (size, 1), pairs @ (size, 1))
    if len(lost) or abs(covered - area) > 1e-6 * area:
        raise ValueError(
            "No triangles fill the shape: sides cross each other, or bodies are nearer to a wall than the spacing. "
            "Draw simpler sides, or take more cells."
        )
    if smallest_angles(corners).min() < _SMALLEST_ANGLE:
        raise ValueError(
            f"The triangles have angles below {_SMALLEST_ANGLE:g}°: the shape has details that are smaller than the "
            "spacing. Take more cells, or a simpler shape."
        )
