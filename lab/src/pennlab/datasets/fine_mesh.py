"""Cell values on a fine plane mesh, interpolated to other points, exactly where the values are linear in space.

Finite volumes know values at cell centres and on the boundary. Between these the domain is cut into triangles: around
each interior point of the mesh a polygon of cell centres, at each boundary point a fan that also uses the midpoints of
its boundary edges. The triangles fill the domain and nothing else, unlike a Delaunay triangulation, which reaches
across re-entrant corners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array

from pennpde.mesh import triangulation
from pennpde.mesh.cells import cross
from pennpde.openfoam import FoamFormatError, PolyMesh

_TOLERANCE = 1e-3  # of a triangle: points of the boundary may be off by what single precision loses


@dataclass(frozen=True, eq=False)
class FineMesh:
    """Quads of the plane, in the order of the cells whose values they carry.

    Attributes:
        edges: by patch, the two points of each of its edges.
        edge_cells: by patch, the cell that each edge belongs to.
    """

    points: Float[np.ndarray, "points 2"]
    quads: Int64[np.ndarray, "cells 4"]
    edges: Mapping[str, Int64[np.ndarray, "edges 2"]]
    edge_cells: Mapping[str, Int64[np.ndarray, " edges"]]

    @staticmethod
    def of(mesh: PolyMesh) -> FineMesh:
        """The lower layer of a mesh of hexahedra that is one cell thick in z."""
        low = mesh.points[:, 2] < 0.5 * (mesh.points[:, 2].min() + mesh.points[:, 2].max())
        number = np.full(len(mesh.points), -1)
        number[low] = np.arange(low.sum())
        if np.any(np.diff(mesh.face_offsets) != 4):
            raise FoamFormatError("The mesh has faces that are no quads; a mesh of hexahedra is needed here.")
        faces = number[mesh.face_points.reshape(-1, 4)]
        base = np.flatnonzero((faces >= 0).all(axis=1))
        if len(np.unique(mesh.owner[base])) != mesh.number_of_cells:
            raise FoamFormatError(f"The mesh has {mesh.number_of_cells} cells, {len(base)} of them in its lower layer.")
        quads = np.zeros((mesh.number_of_cells, 4), np.int64)
        quads[mesh.owner[base]] = faces[base, ::-1]  # their normals point down, out of the cell
        patches = {name: patch for name, patch in mesh.patches.items() if patch.type != "empty"}
        edges = {name: _pairs(faces[patch.faces]) for name, patch in patches.items()}
        cells = {name: mesh.owner[patch.faces] for name, patch in patches.items()}
        return FineMesh(mesh.points[low, :2], quads, edges, cells)

    @cached_property
    def centres(self) -> Float[np.ndarray, "cells 2"]:
        """The centroids of the cells, where finite volumes have their values."""
        corners = self.points[self.quads]
        one, two = (cross(corners[:, i] - corners[:, 0], corners[:, i + 1] - corners[:, 0]) for i in (1, 2))
        first, second = corners[:, [0, 1, 2]].mean(axis=1), corners[:, [0, 2, 3]].mean(axis=1)
        return (one[:, None] * first + two[:, None] * second) / (one + two)[:, None]

    @cached_property
    def boundary_edges(self) -> Int64[np.ndarray, "edges 2"]:
        return np.concatenate([np.zeros((0, 2), np.int64), *self.edges.values()])

    @cached_property
    def boundary_points(self) -> Int64[np.ndarray, " boundary_points"]:
        return np.unique(self.boundary_edges)

    @cached_property
    def positions(self) -> Float[np.ndarray, "samples 2"]:
        """Where samples are: centres of cells, then midpoints of boundary edges, then points of the boundary."""
        midpoints = self.points[self.boundary_edges].mean(axis=1)
        return np.concatenate([self.centres, midpoints, self.points[self.boundary_points]])

    def samples(
        self, values: Float[np.ndarray, "cells *axes"], prescribed: Mapping[str, float | np.ndarray]
    ) -> Float[np.ndarray, "samples *axes"]:
        """Values at all samples from those of the cells.

        Args:
            values: one for each cell.
            prescribed: by patch. Where patches meet, the later one holds. On the other patches the normal derivative is
                zero: an edge has the value of its cell, a point the mean of its edges.
        """
        axes = values.shape[1:]
        edges = {name: values[cells] for name, cells in self.edge_cells.items()}
        for name, value in prescribed.items():
            edges[name] = np.broadcast_to(np.asarray(value, float), (len(self.edges[name]), *axes))
        at_edges = np.concatenate([np.zeros((0, *axes)), *edges.values()])
        sums, counts = np.zeros((len(self.points), *axes)), np.zeros(len(self.points))
        for end in (0, 1):
            np.add.at(sums, self.boundary_edges[:, end], at_edges)
            np.add.at(counts, self.boundary_edges[:, end], 1.0)
        for name, value in prescribed.items():
            sums[self.edges[name]], counts[self.edges[name]] = np.asarray(value, float), 1.0
        at_points = sums[self.boundary_points] / counts[self.boundary_points].reshape(-1, *[1] * len(axes))
        return np.concatenate([values, at_edges, at_points])

    @cached_property
    def triangles(self) -> Int64[np.ndarray, "triangles 3"]:
        """Triangles of samples that fill the domain."""
        cells, edges = len(self.quads), len(self.boundary_edges)
        order = np.argsort(self.quads, axis=None, kind="stable")
        valence = np.bincount(self.quads.reshape(-1), minlength=len(self.points))
        start = np.concatenate([[0], np.cumsum(valence)])
        boundary = np.zeros(len(self.points), bool)
        boundary[self.boundary_points] = True
        edge_order = np.argsort(self.boundary_edges, axis=None, kind="stable")
        edge_valence = np.bincount(self.boundary_edges.reshape(-1), minlength=len(self.points))
        if np.any(edge_valence[boundary] != 2):
            raise ValueError("Each point of the boundary must have two boundary edges; patches overlap or are missing.")
        edge_start = np.concatenate([[0], np.cumsum(edge_valence)])
        made = []
        for size in np.unique(valence[valence > 0]):
            inner = np.flatnonzero((valence == size) & ~boundary)
            around = order[start[inner, None] + np.arange(size)] // 4
            made.append(_fans(self._turned(inner, around, np.zeros((len(inner), 1)))))
            outer = np.flatnonzero((valence == size) & boundary)
            around = order[start[outer, None] + np.arange(size)] // 4
            ends = cells + edge_order[edge_start[outer, None] + np.arange(2)] // 2
            # The cells lie counter-clockwise of one of the two edges, before the other.
            angle = self._angles(outer, np.concatenate([ends, around], axis=1))
            swap = (angle[:, 2] - angle[:, 0]) % (2 * np.pi) > (angle[:, 1] - angle[:, 0]) % (2 * np.pi)
            ends[swap] = ends[swap, ::-1]
            turned = self._turned(outer, around, self._angles(outer, ends[:, :1]))
            centre = cells + edges + np.searchsorted(self.boundary_points, outer)
            made.append(_fans(np.concatenate([centre[:, None], ends[:, :1], turned, ends[:, 1:]], axis=1)))
        return np.concatenate(made)

    def _angles(self, points: np.ndarray, samples: np.ndarray) -> np.ndarray:
        offset = self.positions[samples] - self.points[points][:, None]
        return np.arctan2(offset[..., 1], offset[..., 0])

    def _turned(self, points: np.ndarray, samples: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Samples around points, sorted counter-clockwise from a starting angle."""
        return np.take_along_axis(samples, ((self._angles(points, samples) - start) % (2 * np.pi)).argsort(axis=1), 1)

    def interpolation(self, points: Float[np.ndarray, "targets 2"]) -> csr_array:
        """The matrix [targets, samples] that interpolates linearly; its rows sum to one."""
        matrix, outside = triangulation.interpolation(self.positions, self.triangles, points, _TOLERANCE)
        if outside.any():
            lost = points[outside]
            raise ValueError(f"{len(lost)} points lie outside of the fine mesh, the first at {lost[0]}.")
        return matrix


def _pairs(faces: Int64[np.ndarray, "faces 4"]) -> Int64[np.ndarray, "faces 2"]:
    """The two points of each face that are in the layer."""
    inside = faces >= 0
    if np.any(inside.sum(axis=1) != 2):
        raise FoamFormatError("A patch has faces that do not stand upright on the plane.")
    return faces[inside].reshape(-1, 2)


def _fans(rows: Int64[np.ndarray, "fans size"]) -> Int64[np.ndarray, "triangles 3"]:
    """Triangles (first, second, third), (first, third, fourth), ... of each row."""
    return np.concatenate([np.zeros((0, 3), np.int64), *(rows[:, [0, i, i + 1]] for i in range(1, rows.shape[1] - 1))])
