"""Plane cells split into smaller ones: the points of the mesh stay, midpoints of edges and centres of cells come after.

Triangles become four triangles, quads four quads, boundary facets two each. Polygons become triangles around their
centre, or, where they are not convex enough for that, around one of their corners.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from pennpde.mesh.cells import Facets, fans, next_in_row, take_rows
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

    @staticmethod
    def of(mesh: Mesh) -> PlaneCells:
        """The cells of a plane mesh. Centres of polygons come after the points of the mesh."""
        sizes = np.diff(mesh.offsets)
        triangles, quads = (
            mesh.connectivity[mesh.offsets[:-1][sizes == size, None] + np.arange(size)] for size in (3, 4)
        )
        points, facets = _positions(mesh), mesh.facets.connectivity.reshape(-1, 2)
        if (sizes > 4).any():
            centres, more = _polygons(mesh, points, np.flatnonzero(sizes > 4))
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


def _polygons(mesh: Mesh, points: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres of polygons, and triangles that fill them."""
    one, first = take_rows(mesh.connectivity, mesh.offsets, chosen)
    other, owner = next_in_row(one, first), np.repeat(np.arange(len(chosen)), np.diff(first))
    # The centroid: close to all edges, whatever the corners' density.
    centres, whole = cell_centres(mesh)[chosen], mesh.cell_volumes.numpy()[chosen]
    around = _areas(centres[owner], points[one], points[other])
    sound = np.minimum.reduceat(around, first[:-1]) > _THINNEST * whole
    number = np.cumsum(sound) - 1
    kept = sound[owner]
    triangles = [np.stack([one[kept], other[kept], len(points) + number[owner[kept]]], axis=1)]
    for polygon in np.flatnonzero(~sound):
        triangles.append(_fan(points, one[first[polygon] : first[polygon + 1]]))
    return centres[sound], np.concatenate(triangles)


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
    along, across = b - a, c - a
    return 0.5 * (along[:, 0] * across[:, 1] - along[:, 1] * across[:, 0])


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
