"""Obtuse triangles replaced by better ones between the same points: Lawson's flips, which end at a Delaunay mesh.

Through an edge whose two opposite angles are together larger than a straight one, linear elements conduct from cold to
warm. Mesh makers that cut long quads crosswise leave many of them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

_STRAIGHT = 0.1
"""Edges with conductances above minus this stay: good meshes are left as they are."""
_MOST_ROUNDS = 100


def flipped(
    points: Float[np.ndarray, "points 2"], triangles: Int64[np.ndarray, "triangles 3"]
) -> Int64[np.ndarray, "triangles 3"]:
    """The triangles with diagonals turned wherever the opposite angles are too large."""
    triangles = _counter_clockwise(points, triangles)
    corners = [triangles[:, (place + turn) % 3] for place in range(3) for turn in (0, 1, 2)]
    if not any((_cotangent(points, *corners[start : start + 3]) < -_STRAIGHT).any() for start in (0, 3, 6)):
        return triangles  # of acute triangles none needs to be looked at
    for _ in range(_MOST_ROUNDS):
        edges = _worst_edges(points, triangles)
        if not len(edges[0]):
            break
        one, other, (a, b, c, d) = edges
        triangles = triangles.copy()
        triangles[one], triangles[other] = np.stack([a, d, c], axis=1), np.stack([d, b, c], axis=1)
    return triangles


def flips(points: Float[np.ndarray, "points 2"], triangles: Int64[np.ndarray, "triangles 3"]) -> bool:
    """Whether any triangle is another afterwards."""
    return not np.array_equal(np.sort(flipped(points, triangles), axis=1), np.sort(triangles, axis=1))


def _worst_edges(points: np.ndarray, triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Edges to turn, no two in one triangle: both triangles, and the ends and the corners opposite to each edge."""
    number, total = len(points), len(triangles)
    starts, ends, tops = (
        np.concatenate([triangles[:, (place + turn) % 3] for place in range(3)]) for turn in (0, 1, 2)
    )
    owner = np.tile(np.arange(total), 3)
    keys = np.minimum(starts, ends) * np.int64(number) + np.maximum(starts, ends)
    order = np.argsort(keys, kind="stable")
    pairs = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    first, second = order[pairs], order[pairs + 1]
    cotangents = _cotangent(points, starts, ends, tops)
    conducted = 0.5 * (cotangents[first] + cotangents[second])
    bad = conducted < -_STRAIGHT
    first, second, conducted = first[bad], second[bad], conducted[bad]
    least = np.full(total, np.inf)
    np.minimum.at(least, owner[first], conducted)
    np.minimum.at(least, owner[second], conducted)
    chosen = (conducted == least[owner[first]]) & (conducted == least[owner[second]])
    first, second = first[chosen], second[chosen]
    # Of several alike in one triangle the first.
    taken = np.full(total, len(first))
    np.minimum.at(taken, owner[first], np.arange(len(first)))
    np.minimum.at(taken, owner[second], np.arange(len(first)))
    alone = (taken[owner[first]] == np.arange(len(first))) & (taken[owner[second]] == np.arange(len(first)))
    first, second = first[alone], second[alone]
    return owner[first], owner[second], (starts[first], ends[first], tops[first], tops[second])


def _cotangent(points: np.ndarray, starts: np.ndarray, ends: np.ndarray, tops: np.ndarray) -> np.ndarray:
    """Of the angle at the top."""
    one, other = points[starts] - points[tops], points[ends] - points[tops]
    return (one * other).sum(axis=1) / (one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0])


def _counter_clockwise(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    a, b, c = points[triangles].transpose(1, 0, 2)
    areas = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    return np.where((areas < 0)[:, None], triangles[:, ::-1], triangles)
