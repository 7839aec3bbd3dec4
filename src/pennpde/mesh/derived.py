"""Quantities derived from the cells and points of a mesh, computed once, on first use.

It lies apart from `Mesh` so that copies of a mesh share it: one with other patches or fields has the same graph,
boundary, normals and volumes; one that was moved or scaled still has the same graph and boundary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.sparse import csr_array
from torch import Tensor

from pennpde.mesh.cells import Cells, Facets, cell_facets, exterior_facets, facet_areas, signed_volumes

if TYPE_CHECKING:
    from pennpde.mesh.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Topology:
    """What follows from the cells, wherever their points lie.

    Attributes:
        known_facets: the exterior facets, where they are known already.
    """

    cells: Cells
    number_of_points: int
    known_facets: Facets | None = None

    def is_of(self, cells: Cells, number_of_points: int) -> bool:
        """Whether it belongs to these very arrays. To compare their content would take longer than it could save."""
        mine = self.cells
        return (
            mine.connectivity is cells.connectivity
            and mine.offsets is cells.offsets
            and mine.types is cells.types
            and mine.polyhedron_faces is cells.polyhedron_faces
            and self.number_of_points == number_of_points
        )

    @cached_property
    def edges(self) -> Int64[np.ndarray, "2 edges"]:
        entries = len(self.cells.connectivity)
        membership = csr_array(
            (np.ones(entries, dtype=bool), self.cells.connectivity, self.cells.offsets),
            shape=(len(self.cells), self.number_of_points),
        )
        neighbours = membership.T.tocsr() @ membership
        neighbours.sort_indices()
        first = np.repeat(np.arange(self.number_of_points), np.diff(neighbours.indptr))
        second = neighbours.indices
        other = first != second
        return np.stack([first[other], second[other].astype(np.int64)])

    @cached_property
    def facets(self) -> Facets:
        if self.known_facets is not None:
            return self.known_facets
        return exterior_facets(cell_facets(self.cells), self.number_of_points)

    @cached_property
    def boundary_points(self) -> Int64[np.ndarray, " boundary_points"]:
        return np.unique(self.facets.connectivity)


@dataclass(frozen=True, eq=False)
class Geometry:
    """What follows from the cells and where their points lie.

    Attributes:
        parts: the meshes that were put together side by side to make this one, if any.
    """

    topology: Topology
    points: Float[Tensor, "points space"]
    parts: tuple[Mesh, ...] = ()

    @staticmethod
    def of(cells: Cells, points: Float[Tensor, "points space"], known: Geometry | None) -> Geometry:
        """That of these cells and points, with as much of what is known of another mesh as holds for them."""
        if known is None or not known.topology.is_of(cells, len(points)):
            return Geometry(Topology(cells, len(points)), points)
        return known if known.points is points else Geometry(known.topology, points)

    @property
    def positions(self) -> Float[np.ndarray, "points space"]:
        return self.points.detach().numpy()

    @cached_property
    def facet_areas(self) -> Float[Tensor, "facets space"]:
        return torch.from_numpy(facet_areas(self.positions, self.topology.facets))

    @cached_property
    def facet_normals(self) -> Float[Tensor, "facets space"]:
        return torch.nn.functional.normalize(self.facet_areas, dim=1, eps=np.finfo(float).tiny)

    @cached_property
    def normals(self) -> Float[Tensor, "points space"]:
        return self.normals_of_facets(np.arange(len(self.topology.facets)))

    def normals_of_facets(self, chosen: np.ndarray) -> Float[Tensor, "points space"]:
        # Each facet gives its unit normal divided by its number of points, whatever its area: a corner's normal then
        # does not depend on how finely the mesh is graded towards it, and it is what the published networks use.
        facets = self.topology.facets.take(chosen)
        shares = np.repeat(self.facet_normals.numpy()[chosen] / facets.sizes[:, None], facets.sizes, axis=0)
        sums = np.stack([np.bincount(facets.connectivity, share, minlength=len(self.points)) for share in shares.T], 1)
        sums = sums.astype(float)  # without facets NumPy counts in integers
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # The two sides of a thin plate cancel: what rounding leaves has no direction.
        return torch.from_numpy(np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 1e-12))

    @cached_property
    def cell_volumes(self) -> Float[Tensor, " cells"]:
        return torch.from_numpy(signed_volumes(self.positions, self.topology.cells))

    @cached_property
    def point_volumes(self) -> Float[Tensor, " points"]:
        cells = self.topology.cells
        shares = np.repeat(self.cell_volumes.numpy() / cells.sizes, cells.sizes)
        return torch.from_numpy(np.bincount(cells.connectivity, shares, minlength=len(self.points)))
