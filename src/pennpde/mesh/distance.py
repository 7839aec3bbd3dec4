"""Distance from points to a surface of segments (plane) or triangles (space), exact to rounding.

The parts of the surface are sorted along a space-filling curve and gathered four by four into a tree of discs, each
a little thicker than the flat piece of surface it covers. All queries go down the tree together, one level at a time,
and leave out a disc that is farther away than something they already know. (Boxes along the axes, the usual choice,
cover a tilted wall so badly that twenty times as many candidates are left.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from pennpde.mesh.cells import Facets, fans

BRANCHES = 4
# Queries that go down together: enough to keep NumPy busy, few enough for some hundred candidates each.
QUERIES_AT_ONCE = 20_000


def parts_of(points: Float[np.ndarray, "points space"], facets: Facets) -> Float[np.ndarray, "parts corners space"]:
    """The facets as segments or triangles."""
    if points.shape[1] == 2:
        return points[facets.connectivity.reshape(-1, 2)]
    return points[fans(points, facets)]


def distances(
    queries: Float[np.ndarray, "queries space"], parts: Float[np.ndarray, "parts corners space"]
) -> Float[np.ndarray, " queries"]:
    """The distance from each query to the nearest of the parts: points, segments or triangles, at least one."""
    corners = parts.shape[1]
    ordered = parts[np.argsort(_place_on_curve(parts.mean(axis=1)), kind="stable")]
    levels = _tree(ordered)
    nearest = np.full(len(queries), np.inf)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        chunk = slice(start, start + QUERIES_AT_ONCE)
        query, part = _candidates(queries[chunk], levels)
        exact = (_to_points, _to_segments, _to_triangles)[corners - 1](queries[chunk][query], ordered[part])
        np.minimum.at(nearest[chunk], query, exact)
    return nearest


def _place_on_curve(positions: Float[np.ndarray, "parts space"]) -> Int64[np.ndarray, " parts"]:
    """Where a position comes on the Morton curve, which keeps neighbours together: the bits of x, y, z in turn."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    grid = ((positions - low) / np.maximum(high - low, np.finfo(float).tiny) * (2**20 - 1)).astype(np.int64)
    space = positions.shape[1]
    place = np.zeros(len(positions), dtype=np.int64)
    for axis in range(space):
        for bit in range(20):
            place |= (grid[:, axis] >> bit & 1) << (bit * space + axis)
    return place


@dataclass(frozen=True, eq=False)
class _Discs:
    """Flat round boxes, each around one piece of the surface and with its centre on it."""

    centres: Float[np.ndarray, "discs space"]
    axes: Float[np.ndarray, "discs space"]
    radii: Float[np.ndarray, " discs"]
    half_thicknesses: Float[np.ndarray, " discs"]

    @staticmethod
    def around(parts: Float[np.ndarray, "discs parts corners space"]) -> _Discs:
        middles = parts.mean(axis=2)
        away = np.square(middles - middles.mean(axis=1, keepdims=True)).sum(axis=2)
        centres = middles[np.arange(len(parts)), away.argmin(axis=1)]
        offsets = parts.reshape(len(parts), -1, parts.shape[3]) - centres[:, None]
        axes = np.linalg.eigh(np.einsum("dci,dcj->dij", offsets, offsets))[1][:, :, 0]
        heights = np.einsum("dci,di->dc", offsets, axes)
        across = np.einsum("dci,dci->dc", offsets, offsets) - heights**2
        radii, half_thicknesses = np.sqrt(np.maximum(across, 0.0)).max(axis=1), np.abs(heights).max(axis=1)
        # Rounding must not cut off a corner.
        slack = 1e-12 * (radii + half_thicknesses + np.abs(centres).max(axis=1))
        return _Discs(centres, axes, radii + slack, half_thicknesses + slack)

    def squared_bounds(self, queries: np.ndarray, disc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The squared distance from each query to its disc's centre, and what all of the disc is beyond."""
        offset = queries - self.centres[disc]
        square = _dot(offset, offset)
        height = np.abs(_dot(offset, self.axes[disc]))
        across = np.sqrt(np.maximum(square - height**2, 0.0))
        above = np.maximum(height - self.half_thicknesses[disc], 0.0)
        outside = np.maximum(across - self.radii[disc], 0.0)
        return square, above**2 + outside**2


def _tree(parts: Float[np.ndarray, "parts corners space"]) -> list[_Discs]:
    """The discs of each level, the few largest first, those of single parts last."""
    levels, width = [], 1
    while True:
        whole = np.concatenate([parts, np.repeat(parts[-1:], -len(parts) % width, axis=0)])
        levels.insert(0, _Discs.around(whole.reshape(-1, width, *parts.shape[1:])))
        if len(levels[0].centres) <= BRANCHES:
            return levels
        width *= BRANCHES


def _candidates(
    queries: Float[np.ndarray, "queries space"], levels: list[_Discs]
) -> tuple[Int64[np.ndarray, " candidates"], Int64[np.ndarray, " candidates"]]:
    """Pairs of a query and a part that may be the nearest to it."""
    query, disc = np.arange(len(queries)), np.zeros(len(queries), dtype=np.int64)
    nearest = np.full(len(queries), np.inf)
    for discs in levels:
        query = np.repeat(query, BRANCHES)
        disc = (disc[:, None] * BRANCHES + np.arange(BRANCHES)).ravel()
        query, disc = query[disc < len(discs.centres)], disc[disc < len(discs.centres)]
        to_centre, beyond = discs.squared_bounds(queries[query], disc)
        np.minimum.at(nearest, query, to_centre)
        close = beyond <= nearest[query] * (1 + 1e-12)
        query, disc = query[close], disc[close]
    return query, disc


def _to_points(
    queries: Float[np.ndarray, "pairs space"], points: Float[np.ndarray, "pairs 1 space"]
) -> Float[np.ndarray, " pairs"]:
    return np.sqrt(np.square(queries - points[:, 0]).sum(axis=1))


def _to_segments(
    queries: Float[np.ndarray, "pairs space"], segments: Float[np.ndarray, "pairs 2 space"]
) -> Float[np.ndarray, " pairs"]:
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    share = _dot(queries - start, along) / np.maximum(_dot(along, along), np.finfo(float).tiny)
    offset = queries - start - np.clip(share, 0.0, 1.0)[:, None] * along
    return np.sqrt(_dot(offset, offset))


def _to_triangles(
    queries: Float[np.ndarray, "pairs 3"], triangles: Float[np.ndarray, "pairs 3 3"]
) -> Float[np.ndarray, " pairs"]:
    rim = np.min([_to_segments(queries, triangles[:, side]) for side in ([0, 1], [1, 2], [2, 0])], axis=0)
    one, other = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    offset = queries - triangles[:, 0]
    a, b, c, p, q = _dot(one, one), _dot(one, other), _dot(other, other), _dot(offset, one), _dot(offset, other)
    size = np.maximum(a * c - b * b, np.finfo(float).tiny)
    first, second = (c * p - b * q) / size, (a * q - b * p) / size
    inside = (first >= 0) & (second >= 0) & (first + second <= 1)
    height = offset - first[:, None] * one - second[:, None] * other
    return np.where(inside, np.minimum(rim, np.sqrt(_dot(height, height))), rim)


def _dot(one: Float[np.ndarray, "pairs space"], other: Float[np.ndarray, "pairs space"]) -> np.ndarray:
    return np.einsum("qi,qi->q", one, other)
