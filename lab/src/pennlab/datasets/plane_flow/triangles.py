"""Triangles that fill a domain at given sizes: lattices of several spacings, relaxed by forces along their edges.

Only sums, products and roots are used once the boundary is given, so that every machine makes the same triangles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.spatial import Delaunay, KDTree

from pennlab.datasets.plane_flow.domain import Domain
from pennpde.mesh.cells import cross
from pennpde.mesh.triangulation import inside, smallest_angles

Size = Callable[[Float[np.ndarray, "points 2"]], Float[np.ndarray, " points"]]
_BAND = 1.25
"""Ratio of the spacings of neighbouring lattices."""
_FORCE_ROUNDS = 30
_MEAN_ROUNDS = 6
_NEAREST_TO_BOUNDARY = 0.6
_SMALLEST_ANGLE = 10.0


class MeshingError(ValueError):
    """No sound mesh fills a domain at the wanted sizes."""


@dataclass(frozen=True, eq=False)
class Triangles:
    """A triangulation of a domain.

    Attributes:
        points: those of the boundary first.
        triangles: counter-clockwise.
        edges: of the boundary, with the fluid to their left.
        patches: by name, which of these edges belong to it.
        fixed: number of points of the boundary.
    """

    points: Float[np.ndarray, "points 2"]
    triangles: Int64[np.ndarray, "triangles 3"]
    edges: Int64[np.ndarray, "edges 2"]
    patches: Mapping[str, Bool[np.ndarray, " edges"]]

    @property
    def fixed(self) -> int:
        return len(self.edges)


def boundary_of(
    domain: Domain, size: Size
) -> tuple[
    Float[np.ndarray, "boundary 2"], Int64[np.ndarray, "boundary 2"], Mapping[str, Bool[np.ndarray, " boundary"]]
]:
    """Points along all loops at the wanted sizes, their edges, and by patch which edges it has. Corners are points."""
    points, edges, names = [], [], []
    count = 0
    for loop in domain.loops:
        first = count
        for piece in loop:
            path = piece.path
            lengths = np.concatenate([[0.0], np.cumsum(np.sqrt((np.diff(path, axis=0) ** 2).sum(axis=1)))])
            fine = np.linspace(0.0, lengths[-1], max(200, 4 * len(path)))
            along = np.stack([np.interp(fine, lengths, path[:, axis]) for axis in range(2)], axis=1)
            density = 1.0 / size(along)
            total = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(fine))])
            number = max(1 if len(path) == 2 else 3, int(np.floor(total[-1] + 0.5)))
            places = np.interp(np.arange(number) * (total[-1] / number), total, fine)
            points.append(np.stack([np.interp(places, lengths, path[:, axis]) for axis in range(2)], axis=1))
            names += [piece.patch] * number
            count += number
        numbers = np.arange(first, count)
        edges.append(np.stack([numbers, np.roll(numbers, -1)], axis=1))
    labels = np.array(names)
    return (
        np.round(np.concatenate(points), 9),
        np.concatenate(edges),
        {name: labels == name for name in dict.fromkeys(names)},
    )


def triangulated(domain: Domain, size: Size, coarsest: float, finest: float, attempts: int = 4) -> Triangles:
    """Fill a domain with triangles.

    Args:
        domain: to be filled.
        size: the wanted length of edges at positions.
        coarsest: largest size.
        finest: smallest size.
        attempts: after which a MeshingError says what is wrong; each shifts the lattices.
    """
    boundary, edges, patches = boundary_of(domain, size)
    sides, chords = domain.sides, boundary[edges]  # there are fewer sides wherever the boundary is straight
    wrong = ""
    for attempt in range(attempts):
        inner = _lattices(boundary, sides, size, coarsest, finest, attempt)
        points = np.concatenate([boundary, inner])
        points, triangles = _relaxed(points, len(boundary), sides, chords, size)
        wrong = _unsound(points, triangles, edges)
        if not wrong:
            return Triangles(points, triangles, edges, patches)
    raise MeshingError(f"No sound triangles with edges of {finest:.3g} to {coarsest:.3g} fill the domain: {wrong}.")


def _lattices(
    boundary: np.ndarray, sides: np.ndarray, size: Size, coarsest: float, finest: float, attempt: int
) -> Float[np.ndarray, "inner 2"]:
    """Points of triangular lattices, each where its spacing is nearest to the wanted size."""
    low, high = boundary.min(axis=0), boundary.max(axis=0)
    kept = np.zeros((0, 2))
    spacing = coarsest
    while True:
        x = np.arange(low[0] + 0.31 * attempt * spacing, high[0], spacing)
        y = np.arange(low[1] + 0.17 * attempt * spacing, high[1], spacing * 0.8660254037844386)
        lattice = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
        lattice[:, 1::2, 0] += 0.5 * spacing
        lattice = lattice.reshape(-1, 2)
        wanted = size(lattice)
        lattice = lattice[
            (wanted > spacing / _BAND**0.5) & (wanted <= spacing * _BAND**0.5)
            | (spacing == coarsest) & (wanted > spacing)
        ]
        lattice = lattice[inside(lattice, sides)]
        for others, share in ((boundary, _NEAREST_TO_BOUNDARY), (kept, 0.75)):
            if len(others) and len(lattice):
                lattice = lattice[KDTree(others).query(lattice)[0] > share * size(lattice)]
        kept = np.concatenate([kept, lattice])
        if spacing < finest / _BAND**0.5:
            return kept
        spacing /= _BAND


def within(points: np.ndarray, fixed: int, chords: np.ndarray) -> Int64[np.ndarray, "triangles 3"]:
    """Delaunay's triangles of the domain, counter-clockwise."""
    triangles = Delaunay(points).simplices.astype(np.int64)
    corners = points[triangles]
    doubled = cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    triangles[doubled < 0] = triangles[doubled < 0][:, ::-1]
    shortest = np.min([((corners[:, i] - corners[:, i - 1]) ** 2).sum(axis=1) for i in range(3)], axis=0)
    triangles = triangles[np.abs(doubled) > 1e-6 * shortest]
    doubtful = np.flatnonzero((triangles < fixed).all(axis=1))
    outside = doubtful[~inside(points[triangles[doubtful]].mean(axis=1), chords)]
    return np.delete(triangles, outside, axis=0)


def _relaxed(
    points: np.ndarray, fixed: int, sides: np.ndarray, chords: np.ndarray, size: Size
) -> tuple[Float[np.ndarray, "points 2"], Int64[np.ndarray, "triangles 3"]]:
    points = points.copy()
    triangles = within(points, fixed, chords)
    bars = edges_of(triangles)[0]
    for round_ in range(_FORCE_ROUNDS + _MEAN_ROUNDS):
        if round_ and (round_ < 6 or round_ % 3 == 0 or round_ >= _FORCE_ROUNDS):
            triangles = within(points, fixed, chords)
            bars = edges_of(triangles)[0]
        if round_ in (8, 20):
            points, lost = _without_crowded(points, bars, fixed, size)
            if lost:
                triangles = within(points, fixed, chords)
                bars = edges_of(triangles)[0]
        moved = _pushed(points, bars, size) if round_ < _FORCE_ROUNDS else _centred(points, triangles, size)
        # Rounding keeps differences of the last bit from growing, should there be any.
        points[fixed:] = np.round(moved[fixed:], 10)
        if round_ % 10 == 9:
            points = _without_escaped(points, fixed, sides, size)
            triangles = within(points, fixed, chords)
            bars = edges_of(triangles)[0]
    triangles = within(points, fixed, chords)
    used = np.unique(np.concatenate([np.arange(fixed), triangles.ravel()]))
    return points[used], np.searchsorted(used, triangles)


def _without_escaped(points: np.ndarray, fixed: int, sides: np.ndarray, size: Size) -> np.ndarray:
    """Without interior points that were pushed through the boundary; only those near it can have been."""
    near = fixed + np.flatnonzero(KDTree(points[:fixed]).query(points[fixed:])[0] < 2.0 * size(points[fixed:]))
    return np.delete(points, near[~inside(points[near], sides)], axis=0)


def _without_crowded(points: np.ndarray, bars: np.ndarray, fixed: int, size: Size) -> tuple[np.ndarray, bool]:
    """Without interior points that have a neighbour much too near."""
    length = np.sqrt(((points[bars[:, 0]] - points[bars[:, 1]]) ** 2).sum(axis=1))
    wanted = size(0.5 * (points[bars[:, 0]] + points[bars[:, 1]]))
    crowded = np.unique(bars[(length < 0.55 * wanted) & (bars[:, 1] >= fixed), 1])
    # Not both of a pair: of two crowded neighbours the earlier one stays.
    pair = bars[np.isin(bars[:, 0], crowded) & np.isin(bars[:, 1], crowded)]
    crowded = np.setdiff1d(crowded, pair[:, 0])
    return np.delete(points, crowded, axis=0), bool(len(crowded))


def _pushed(points: np.ndarray, bars: np.ndarray, size: Size) -> Float[np.ndarray, "points 2"]:
    """Points pushed apart where edges are shorter than wanted, as by springs."""
    offset = points[bars[:, 0]] - points[bars[:, 1]]
    length = np.sqrt((offset**2).sum(axis=1))
    wanted = size(0.5 * (points[bars[:, 0]] + points[bars[:, 1]]))
    scale = np.sqrt((length**2).sum() / (wanted**2).sum())
    force = np.maximum(1.2 * scale * wanted - length, 0.0) / length
    push = offset * force[:, None]
    moved = points.copy()
    for axis in range(2):
        moved[:, axis] += 0.2 * (
            np.bincount(bars[:, 0], push[:, axis], len(points)) - np.bincount(bars[:, 1], push[:, axis], len(points))
        )
    return moved


def _centred(points: np.ndarray, triangles: np.ndarray, size: Size) -> Float[np.ndarray, "points 2"]:
    """Points at the mean of the centres of their triangles, weighted by area over the wanted one."""
    corners = points[triangles]
    area = np.abs(cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    centre = (corners[:, 0] + corners[:, 1] + corners[:, 2]) / 3.0
    weight = area / size(centre) ** 3
    sums, weights = np.zeros_like(points), np.zeros(len(points))
    for place in range(3):
        weights += np.bincount(triangles[:, place], weight, len(points))
        for axis in range(2):
            sums[:, axis] += np.bincount(triangles[:, place], weight * centre[:, axis], len(points))
    return sums / np.where(weights > 0, weights, 1.0)[:, None]


def edges_of(triangles: Int64[np.ndarray, "triangles 3"]) -> tuple[Int64[np.ndarray, "edges 2"], np.ndarray]:
    """The edges of triangles, each once, smaller number first, and how many triangles have it."""
    pairs = np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]), axis=1)
    number = int(triangles.max()) + 1
    keys, counts = np.unique(pairs[:, 0] * number + pairs[:, 1], return_counts=True)
    return np.stack([keys // number, keys % number], axis=1), counts


def _unsound(points: np.ndarray, triangles: np.ndarray, edges: np.ndarray) -> str:
    """What is wrong with triangles, in words; empty if nothing is."""
    pairs, counts = edges_of(triangles)
    wanted = np.unique(np.sort(edges, axis=1), axis=0)
    found = pairs[counts == 1]
    if not np.array_equal(found, wanted):
        lost = sorted(set(map(tuple, wanted.tolist())) - set(map(tuple, found.tolist())))
        place = points[lost[0][0]] if lost else np.zeros(2)
        return f"{len(found)} edges on the boundary, which has {len(wanted)}; the first missing one at {place}"
    smallest = float(smallest_angles(points[triangles]).min())
    return f"their smallest angle is {smallest:.1f} degrees" if smallest < _SMALLEST_ANGLE else ""
