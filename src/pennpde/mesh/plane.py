"""Plane meshes: the one under a mesh one cell thick, and the mesh one cell thick over a plane one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from pennpde.mesh.cells import HEXAHEDRON, POLYGON, QUAD, TRIANGLE, WEDGE, Cells, Facets, offsets_of

# A point belongs to a flat side if it is this close, as a share of the thickness: what float32 files lose, and more.
CLOSE = 1e-3


@dataclass(frozen=True, eq=False)
class Floor:
    """The lower side of a mesh that is one cell thick in z.

    Attributes:
        layer: the points of the lower side, in the order they have in the mesh.
        cells: one plane cell for each cell of the mesh, in the same order, numbered by place in `layer`.
        flat: which exterior facets of the mesh lie in its lower or upper side.
    """

    layer: Int64[np.ndarray, " layer"]
    cells: Cells
    flat: Bool[np.ndarray, " facets"]
    _lower: Bool[np.ndarray, " points"]
    _number: Int64[np.ndarray, " points"]

    @staticmethod
    def under(positions: Float[np.ndarray, "points 3"], facets: Facets, number_of_cells: int) -> Floor:
        height = positions[:, 2]
        low, high = height.min(), height.max()
        lower, upper = height - low < CLOSE * (high - low), high - height < CLOSE * (high - low)
        bottom, top = facets.within(lower), facets.within(upper)
        reaches = np.ones(number_of_cells, dtype=bool)
        for side in (bottom, top):
            reaches &= np.bincount(facets.cells[side], minlength=number_of_cells) == 1
        between = ~(lower | upper)
        if between.any() or not reaches.all():
            raise ValueError(
                f"The mesh is not one cell thick in z: it spans z = {low:.6g} to {high:.6g}, {between.sum()} of its "
                f"points lie between, and {(~reaches).sum()} of its cells do not have one facet on each side. "
                "A mesh that is thin along another axis must be turned first."
            )
        number = np.cumsum(lower) - 1
        floor = facets.take(np.flatnonzero(bottom))
        types = np.select([floor.sizes == 3, floor.sizes == 4], [TRIANGLE, QUAD], POLYGON).astype(np.uint8)
        cells = Cells(number[floor.connectivity], floor.offsets, types)
        return Floor(np.flatnonzero(lower), cells, bottom | top, lower, number)

    def points_of(self, points: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " fewer"]:
        """The plane mesh's own numbers of those of the points that it has."""
        return self._number[points[self._lower[points]]]

    def edges_of(self, upright: Facets) -> Int64[np.ndarray, "facets 2"]:
        """The edges on which facets that are not flat stand."""
        return self.points_of(upright.connectivity).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class Slab:
    """A plane mesh made one cell thick: the copy of point i is point 2 i + 1, right behind point 2 i, its original.

    Attributes:
        cells: wedges on triangles first, then hexahedra on quads.
        sides: the facets of the two flat sides.
    """

    cells: Cells
    sides: Facets

    @staticmethod
    def over(plane: Cells) -> Slab:
        if plane.sizes.max(initial=0) > 4:
            raise ValueError(
                "Only triangles and quads can be extruded, to wedges and hexahedra; this mesh has polygons with "
                f"{plane.sizes.max()} corners."
            )
        connectivity, sizes, types, sides = [], [], [], []
        for size, solid in ((3, WEDGE), (4, HEXAHEDRON)):
            starts = plane.offsets[:-1][plane.sizes == size]
            below = 2 * plane.connectivity[starts[:, None] + np.arange(size)]
            connectivity.append(np.concatenate([below, below + 1], axis=1).ravel())
            sizes.append(np.full(len(starts), 2 * size))
            types.append(np.full(len(starts), solid, dtype=np.uint8))
            sides += [*below, *(below + 1)]
        cells = Cells(np.concatenate(connectivity), offsets_of(np.concatenate(sizes)), np.concatenate(types))
        return Slab(cells, Facets.of(sides))

    @staticmethod
    def upright(edges: Int64[np.ndarray, "edges 2"]) -> Facets:
        """The facets that stand on edges of the plane mesh."""
        return Facets.of(np.concatenate([2 * edges, 2 * edges[:, ::-1] + 1], axis=1))
