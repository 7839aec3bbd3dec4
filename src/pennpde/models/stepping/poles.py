"""Corners in which the prescribed velocity jumps: a lid or a uniform inlet next to a wall.

The pressure grows like 1/r towards them, so its value in the corner says how fine the cells are, and nothing else. The
mean over half a cell of the user's mesh does not depend on that. The scheme gives it by itself on cells split once,
whose halves are cells of its own; on cells split more often it is taken here.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int64

from pennpde.models.stepping.grid import Grid

_JUMP = 0.05
"""Of velocities, in units of the reference speed."""
_FINENESS = 12
"""Points along the edge of a triangle that its part of the mean is summed over."""
_SOFTNESS = 0.1
"""Of the rim, as a share of the radius: a rim without width would depend on rounding."""


def half_cell_means(coarse: Grid, fine: Grid) -> tuple[Int64[np.ndarray, " corners"], scipy.sparse.csr_matrix]:
    """The corners of a user's cells in which the velocity jumps, and weights at the points of finer cells.

    Args:
        coarse: the user's cells, whose points are the first ones of the finer cells.
        fine: the same cells, split.
    """
    corners = jumps(coarse)
    number = len(fine.cells.points)
    rows = [_weights(fine, corner, 0.5 * _nearest(coarse, corner)) for corner in corners]
    if not rows:
        return corners, scipy.sparse.csr_matrix((0, number))
    return corners, scipy.sparse.csr_matrix(np.stack(rows))


def jumps(grid: Grid) -> Int64[np.ndarray, " corners"]:
    """Points at which two facets prescribe different velocities."""
    shape = len(grid.cells.points), 2
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    ends, velocity = grid.cells.facets[grid.facet_held], grid.facet_velocity[grid.facet_held][:, [0, 2]]
    np.minimum.at(low, ends, velocity)
    np.maximum.at(high, ends, velocity)
    return np.flatnonzero(np.linalg.norm(np.where(high > low, high - low, 0.0), axis=1) > _JUMP)


def _nearest(grid: Grid, point: int) -> float:
    apart = np.linalg.norm(grid.cells.points - grid.cells.points[point], axis=1)
    return float(np.delete(apart, point).min())


def _weights(grid: Grid, corner: int, radius: float) -> Float[np.ndarray, " points"]:
    """Of a mean over the part of a disc that lies in the domain, with linear functions on triangles."""
    quads, points = grid.cells.quads, grid.cells.points
    triangles = np.concatenate([grid.cells.triangles, quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    apart = np.linalg.norm(points - points[corner], axis=1)
    triangles = triangles[apart[triangles].min(axis=1) < (1.0 + _SOFTNESS) * radius]
    shares = _barycentric(_FINENESS)
    positions = np.einsum("qc,tca->tqa", shares, points[triangles])
    along, across = (points[triangles[:, place]] - points[triangles[:, 0]] for place in (1, 2))
    areas = np.abs(along[:, 0] * across[:, 1] - along[:, 1] * across[:, 0])
    outward = (np.linalg.norm(positions - points[corner], axis=2) / radius - 1.0) / _SOFTNESS
    counted = areas[:, None] * np.clip(0.5 - outward, 0.0, 1.0)
    weights = np.bincount(triangles.ravel(), np.einsum("tq,qc->tc", counted, shares).ravel(), len(points))
    return weights / weights.sum()


def _barycentric(number: int) -> Float[np.ndarray, "places 3"]:
    """Centres of the triangles that a triangle is divided into."""
    first, second = (each.ravel() for each in np.meshgrid(np.arange(number), np.arange(number)))
    upward, downward = first + second < number, first + second < number - 1
    places = [
        (np.stack([first, second], axis=1)[kept] + shift) / number
        for kept, shift in ((upward, 1 / 3), (downward, 2 / 3))
    ]
    inner = np.concatenate(places)
    return np.concatenate([1.0 - inner.sum(axis=1, keepdims=True), inner], axis=1)
