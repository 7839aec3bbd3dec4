"""Linear elements of a whole mesh, assembled from the matrices of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from pennpde.mesh import Mesh
from pennpde.mesh.cells import QUAD, TRIANGLE
from pennpde.operators.elements import local_matrices


@dataclass(frozen=True, eq=False)
class Elements:
    """The matrices of linear finite elements.

    Attributes:
        masses: areas of the dual cells.
        stiffness: symmetric, its rows sum to zero.
        gradient: one matrix per axis; their rows sum to zero.
    """

    masses: Float[np.ndarray, " points"]
    stiffness: scipy.sparse.csr_matrix
    gradient: tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]

    @classmethod
    def of(cls, mesh: Mesh) -> Elements:
        """Assemble the matrices of a plane mesh of triangles and quads."""
        wrong = ~np.isin(mesh.cell_types, (TRIANGLE, QUAD))
        if mesh.space != 2 or wrong.any():
            kinds = sorted({int(kind) for kind in mesh.cell_types[wrong]})
            raise ValueError(
                f"Linear elements are made for plane meshes of triangles and quads; this mesh is in {mesh.space}D"
                + (f" and has cells of VTK's types {kinds}" if kinds else "")
                + ". Split polygons into triangles; take Mesh.plane_of of a mesh that is one cell thick."
            )
        cells = [
            mesh.connectivity[mesh.offsets[chosen, None] + np.arange(size)]
            for kind, size in ((TRIANGLE, 3), (QUAD, 4))
            if len(chosen := np.flatnonzero(mesh.cell_types == kind))
        ]
        return cls.of_cells(mesh.points.detach().cpu().numpy().astype(float), cells)

    @classmethod
    def of_cells(
        cls, points: Float[np.ndarray, "points 2"], groups: Sequence[Int[np.ndarray, "cells corners"]]
    ) -> Elements:
        """Assemble the matrices of cells that are given by their corners, triangles and quads apart."""
        parts = [(cells, *local_matrices(points[cells])) for cells in groups if len(cells)]
        number = len(points)
        masses = sum(
            (np.bincount(cells.ravel(), mass.ravel(), number) for cells, mass, _, _ in parts), np.zeros(number)
        )
        stiffness = _assembled([(cells, each) for cells, _, each, _ in parts], number)
        x, y = (_assembled([(cells, each[..., axis]) for cells, _, _, each in parts], number) for axis in (0, 1))
        return cls(masses, stiffness, (x, y))


def _assembled(
    parts: list[tuple[Int[np.ndarray, "cells size"], Float[np.ndarray, "cells size size"]]], number: int
) -> scipy.sparse.csr_matrix:
    rows = np.concatenate([np.repeat(cells, cells.shape[1], axis=1).ravel() for cells, _ in parts])
    columns = np.concatenate([np.tile(cells, (1, cells.shape[1])).ravel() for cells, _ in parts])
    values = np.concatenate([each.ravel() for _, each in parts])
    return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(number, number))
