"""Plane cells split into smaller ones: the points of the mesh stay, midpoints of edges and centres of cells come after.

Triangles become four triangles, quads four quads, boundary facets two each. Polygons become triangles around their
centre, or, where they are not convex enough for that, around one of their corners.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array

from pennpde.mesh.cells import Facets, cross, fans, next_in_row, take_rows
from pennpde.mesh.interpolation import cell_centres
from pennpde.mesh.mesh import Mesh

_THINNEST = 1e-4
"""Of a triangle in a polygon, as a share of the polygon."""


@dataclass(frozen=True, eq=False)
class PlaneCells:
    """Triangles, quads and boundary facets of a plane domain.

    Attributes:
        points: positions.
        triangles: their corners.
        quads: likewise.
        facets: of the boundary, by their two ends, as the mesh has them.
    """

    points: Float[np.ndarray, "points 2"]
    triangles: Int64[np.ndarray, "triangles 3"]
    quads: Int64[np.ndarray, "quads 4"]
    facets: Int64[np.ndarray, "facets 2"]

    @property
    def groups(self) -> tuple[np.ndarray, ...]:
        """The corners of all cells, kind by kind."""
        return self.triangles, self.quads

    @staticmethod
    def of(mesh: Mesh) -> PlaneCells:
        """The cells of a plane mesh. Centres of polygons come after the points of the mesh."""
        sizes = np.diff(mesh.offsets)
        triangles, quads = (
            mesh.connectivity[mesh.offsets[:-1][sizes == size, None] + np.arange(size)] for size in (3, 4)
        )
        points, facets = _positions(mesh), mesh.facets.connectivity.reshape(-1, 2)
        if (sizes > 4).any():
            centres, more, _ = _polygons(mesh, points, np.flatnonzero(sizes > 4))
            points, triangles = np.concatenate([points, centres]), np.concatenate([triangles, more])
        return PlaneCells(points, triangles, quads, facets)

    def split(self) -> PlaneCells:
        """Each cell into four."""
        edges = _Edges.of([self.triangles, self.quads], len(self.points))
        triangles, quads = self.triangles, self.quads
        ab, bc, ca = (edges.middle(triangles[:, one], triangles[:, other]) for one, other in ((0, 1), (1, 2), (2, 0)))
        a, b, c = triangles.T
        small = np.concatenate(
            [np.stack(each, axis=1) for each in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        )
        centre = edges.number + len(edges.ends) + np.arange(len(quads))
        around = [edges.middle(quads[:, place], quads[:, (place + 1) % 4]) for place in range(4)]
        parts = [np.stack([quads[:, place], around[place], centre, around[place - 1]], axis=1) for place in range(4)]
        return PlaneCells(
            np.concatenate([self.points, edges.middles(self.points), self.points[quads].mean(axis=1)]),
            small,
            np.concatenate(parts),
            edges.halves(self.facets),
        )


@dataclass(frozen=True, eq=False)
class SplitMeans:
    """Means over the cells and the sides of cells of a plane mesh, of fields at the points of its split cells.

    Over a side by Simpson's rule. Over a cell by the means of the corners of its parts, weighted by area, and by those
    of parts twice as large: the two extrapolated are exact for squares, too.
    """

    to_cells: csr_array
    sides: _Edges

    @staticmethod
    def of(mesh: Mesh, number_of_points: int) -> SplitMeans:
        sizes = np.diff(mesh.offsets)
        cells = coarser = first = PlaneCells.of(mesh)
        whole = [np.flatnonzero(sizes == size) for size in (3, 4)]
        if (sizes > 4).any():
            whole[0] = np.concatenate([whole[0], _polygons(mesh, _positions(mesh), np.flatnonzero(sizes > 4))[2]])
        while len(cells.points) < number_of_points:
            coarser, cells = cells, cells.split()
        sides = _Edges.of([first.triangles, first.quads], len(first.points))
        fine, coarse = (_corner_means(each, whole, (len(sizes), number_of_points)) for each in (cells, coarser))
        return SplitMeans((4.0 * fine - coarse) / 3.0, sides)

    def in_cells(self, values: Float[np.ndarray, "points *axes"]) -> Float[np.ndarray, "cells *axes"]:
        return self.to_cells @ values

    def on_sides(
        self, values: Float[np.ndarray, "points *axes"], one: np.ndarray, other: np.ndarray
    ) -> Float[np.ndarray, "sides *axes"]:
        """Over the sides between two points of the mesh each."""
        return (values[one] + 4.0 * values[self.sides.middle(one, other)] + values[other]) / 6.0


def _corner_means(cells: PlaneCells, whole: list[np.ndarray], shape: tuple[int, int]) -> csr_array:
    rows, columns, weights = [], [], []
    for corners, owners in zip((cells.triangles, cells.quads), whole, strict=True):
        if not len(corners):
            continue
        away = cells.points[corners] - cells.points[corners[:, :1]]
        beside = np.roll(away, -1, axis=1)
        around = cross(away, beside).sum(axis=1) / 2.0
        # Parts come in four blocks of all cells, however often that is repeated.
        rows.append(np.repeat(owners[np.arange(len(corners)) % len(owners)], corners.shape[1]))
        columns.append(corners.ravel())
        weights.append(np.repeat(around / corners.shape[1], corners.shape[1]))
    matrix = csr_array((np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    return csr_array(matrix / matrix.sum(axis=1)[:, None])


def _polygons(mesh: Mesh, points: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres of polygons, triangles that fill them, and the polygon of each."""
    one, first = take_rows(mesh.connectivity, mesh.offsets, chosen)
    other, owner = next_in_row(one, first), np.repeat(np.arange(len(chosen)), np.diff(first))
    # The centroid: close to all edges, whatever the corners' density.
    centres, whole = cell_centres(mesh)[chosen], mesh.cell_volumes.numpy()[chosen]
    around = _areas(centres[owner], points[one], points[other])
    sound = np.minimum.reduceat(around, first[:-1]) > _THINNEST * whole
    number = np.cumsum(sound) - 1
    kept = sound[owner]
    triangles = [np.stack([one[kept], other[kept], len(points) + number[owner[kept]]], axis=1)]
    owners = [owner[kept]]
    for polygon in np.flatnonzero(~sound):
        triangles.append(_fan(points, one[first[polygon] : first[polygon + 1]]))
        owners.append(np.full(len(triangles[-1]), polygon))
    return centres[sound], np.concatenate(triangles), chosen[np.concatenate(owners)]


def _fan(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Triangles around that corner of a polygon which makes the thickest ones."""
    fan = corners[fans(np.pad(points[corners], ((0, 0), (0, 1))), Facets.of([range(len(corners))]))]
    if _areas(*np.moveaxis(points[fan], 1, 0)).min() <= 0:
        where = points[corners].mean(axis=0)
        raise ValueError(
            f"The polygon of {len(corners)} corners at {where.round(6).tolist()} cannot be cut into triangles around "
            "one point: it is not convex enough. Split it in the mesher, or use triangles or quads."
        )
    return fan


def _areas(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return 0.5 * cross(b - a, c - a)


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges by their two ends, sorted, each with a new point in its middle."""

    ends: Int64[np.ndarray, "edges 2"]
    keys: Int64[np.ndarray, " edges"]
    number: int

    @staticmethod
    def of(groups: list[np.ndarray], number: int) -> _Edges:
        pairs = np.concatenate(
            [np.stack([cells, np.roll(cells, -1, axis=1)], axis=-1).reshape(-1, 2) for cells in groups if len(cells)]
        )
        keys = np.unique(pairs.min(axis=1) * np.int64(number) + pairs.max(axis=1))
        return _Edges(np.stack([keys // number, keys % number], axis=1), keys, number)

    def middle(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return self.number + np.searchsorted(
            self.keys, np.minimum(one, other) * np.int64(self.number) + np.maximum(one, other)
        )

    def middles(self, points: np.ndarray) -> np.ndarray:
        return points[self.ends].mean(axis=1)

    def halves(self, facets: np.ndarray) -> np.ndarray:
        """The two halves of each facet, one after the other."""
        middle = self.middle(facets[:, 0], facets[:, 1])
        return np.stack([facets[:, 0], middle, middle, facets[:, 1]], axis=1).reshape(-1, 2)


def _positions(mesh: Mesh) -> np.ndarray:
    return mesh.points.detach().cpu().numpy().astype(float)


# Obtuse triangles replaced by better ones between the same points: Lawson's flips, which end at a Delaunay mesh.
#
# Through an edge whose two opposite angles are together larger than a straight one, linear elements conduct from cold
# to warm. Mesh makers that cut long quads crosswise leave many of them.


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
    return (one * other).sum(axis=1) / cross(one, other)


def _counter_clockwise(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    turned = _areas(*np.moveaxis(points[triangles], 1, 0)) < 0
    return np.where(turned[:, None], triangles[:, ::-1], triangles)
