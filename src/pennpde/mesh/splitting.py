"""Plane cells split into smaller ones: the points of the mesh stay, midpoints of edges and centres of cells come after.

Triangles become four triangles, quads four quads, polygons one quad per corner. Boundary facets become two each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from pennpde.mesh.cells import offsets_of
from pennpde.mesh.mesh import Mesh


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
    def of(mesh: Mesh) -> PlaneCells | None:
        """The cells of a plane mesh; None where it has polygons, which `split_polygons` makes quads of."""
        sizes = np.diff(mesh.offsets)
        if (sizes > 4).any():
            return None
        groups = [mesh.connectivity[mesh.offsets[:-1][sizes == size, None] + np.arange(size)] for size in (3, 4)]
        return PlaneCells(_positions(mesh), groups[0], groups[1], mesh.facets.connectivity.reshape(-1, 2))

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


def split_polygons(mesh: Mesh) -> PlaneCells:
    """Every cell of a plane mesh, whatever its number of corners, as quads between corner, middles and centre."""
    sizes = np.diff(mesh.offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    corner = mesh.connectivity
    starts = offsets_of(sizes)[:-1]
    place = np.arange(len(corner)) - starts[owner]
    following = corner[starts[owner] + (place + 1) % sizes[owner]]
    before = corner[starts[owner] + (place - 1) % sizes[owner]]
    edges = _Edges.of([np.stack([corner, following], axis=1)], mesh.number_of_points)
    points = _positions(mesh)
    centres = np.stack([np.bincount(owner, points[corner, axis]) / sizes for axis in (0, 1)], axis=1)
    middle_of_cell = edges.number + len(edges.ends) + owner
    quads = np.stack([corner, edges.middle(corner, following), middle_of_cell, edges.middle(before, corner)], axis=1)
    return PlaneCells(
        np.concatenate([points, edges.middles(points), centres]),
        np.zeros((0, 3), np.int64),
        quads,
        edges.halves(mesh.facets.connectivity.reshape(-1, 2)),
    )


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
