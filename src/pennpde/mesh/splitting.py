"""Plane cells split into smaller ones: the points of the mesh stay, midpoints of edges and centres of cells come after.

Triangles become four triangles, quads four quads, polygons one quad per corner, or two triangles at a corner that is
not convex. Boundary facets become two each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from pennpde.mesh.cells import offsets_of
from pennpde.mesh.mesh import Mesh
from pennpde.mesh.triangulation import cross

_FLAT = 1e-3
"""A corner that turns by less, relative to the largest of its quad, counts as flat."""
_ALONG = np.linspace(0.02, 1.0, 25)


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
    """Every cell of a plane mesh, whatever its number of corners, as quads between corner, middles and centre.

    Where such a quad would not be convex, as at the inner corner of a step, it is cut from the corner to the centre.
    """
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
    _see_all_sides(centres, points, corner, following, owner)
    middle_of_cell = edges.number + len(edges.ends) + owner
    quads = np.stack([corner, edges.middle(corner, following), middle_of_cell, edges.middle(before, corner)], axis=1)
    every = np.concatenate([points, edges.middles(points), centres])
    corners = every[quads]
    turns = cross(np.roll(corners, -1, axis=1) - corners, np.roll(corners, 1, axis=1) - corners)
    convex = (turns > _FLAT * np.abs(turns).max(axis=1, keepdims=True)).all(axis=1)
    cut = quads[~convex]
    return PlaneCells(
        every,
        np.concatenate([cut[:, [0, 1, 2]], cut[:, [0, 2, 3]]]),
        quads[convex],
        edges.halves(mesh.facets.connectivity.reshape(-1, 2)),
    )


def _see_all_sides(
    centres: Float[np.ndarray, "cells 2"],
    points: Float[np.ndarray, "points 2"],
    corner: Int64[np.ndarray, " entries"],
    following: Int64[np.ndarray, " entries"],
    owner: Int64[np.ndarray, " entries"],
) -> None:
    """Move the centres of cells that are not convex to where they see every side from within, if there is such a place.

    It is looked for in front of each corner that turns inward, along the line that halves its angle.
    """
    start, end = points[corner], points[following]
    seen = cross(start - centres[owner], end - centres[owner])
    lengths = ((end - start) ** 2).sum(axis=1)
    for cell in np.unique(owner[seen <= _FLAT * lengths]):
        sides = owner == cell
        polygon, after = start[sides], end[sides]
        ahead, back = after - polygon, np.roll(polygon, 1, axis=0) - polygon
        ahead /= np.sqrt((ahead**2).sum(axis=1, keepdims=True))
        back /= np.sqrt((back**2).sum(axis=1, keepdims=True))
        inward = cross(ahead, back) < 0
        direction = -(ahead + back)[inward]
        size = np.sqrt(lengths[sides].max())
        places = polygon[inward][:, None] + direction[:, None] * (size * _ALONG)[None, :, None]
        candidates = np.concatenate([centres[cell][None], places.reshape(-1, 2)])
        away = polygon[None] - candidates[:, None]
        worst = (cross(away, after[None] - candidates[:, None]) / np.sqrt(lengths[sides])).min(axis=1)
        centres[cell] = candidates[worst.argmax()]


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
