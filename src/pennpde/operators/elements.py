"""Linear finite elements on plane meshes: what a conservative flow solver on the points is made of.

With the linear (triangles) or bilinear (quads) functions φ_i, one per point::

    masses     m_i  = ∫ φ_i                 areas of the dual cells around the points
    stiffness  K_ij = ∫ ∇φ_i · ∇φ_j         minus the Laplacian, times the area
    gradient   G_ij = ∫ φ_i ∇φ_j            the gradient, times the area; also the divergence

Unlike the fitted operators of `operators.py`, G is its own negative transpose up to the boundary, and K is symmetric:
a projection with them does not amplify any velocity, so steps can be composed. The same numbers are a finite volume
scheme: G - Gᵀ are the faces between the dual cells, and what flows through one leaves one cell for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from pennpde.mesh import Mesh
from pennpde.mesh.cells import QUAD, TRIANGLE

_GAUSS = 1.0 / np.sqrt(3.0)
_CORNERS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], float)
_THIN = 3.0, 6.0
"""Quads up to the first aspect ratio are ordinary, from the second one on they are thin; between both are mixed."""
_FLAT_CORNER = 0.1
"""Of the area of a quad: a corner that turns by less is no place at which to integrate."""


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


def local_matrices(
    corners: Float[np.ndarray, "cells size 2"],
) -> tuple[
    Float[np.ndarray, "cells size"], Float[np.ndarray, "cells size size"], Float[np.ndarray, "cells size size 2"]
]:
    """Masses, stiffness and gradient of each triangle or quad by itself."""
    return _triangles(corners) if corners.shape[1] == 3 else _quads(corners)


def _triangles(corners: Float[np.ndarray, "cells 3 2"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    opposite = corners[:, [2, 0, 1]] - corners[:, [1, 2, 0]]
    doubled = opposite[:, 2, 0] * -opposite[:, 1, 1] + opposite[:, 2, 1] * opposite[:, 1, 0]
    slopes = np.stack([-opposite[..., 1], opposite[..., 0]], axis=-1) / doubled[:, None, None]
    third = doubled[:, None] / 6.0
    stiffness = np.einsum("cia,cja->cij", slopes, slopes) * doubled[:, None, None] / 2.0
    gradient = np.broadcast_to((slopes * third[:, :, None])[:, None], (len(corners), 3, 3, 2))
    return np.broadcast_to(third, (len(corners), 3)), stiffness, gradient


def _quads(corners: Float[np.ndarray, "cells 4 2"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With Gauss points, or, in long thin quads, with the corners as points of integration.

    Both are exact where a linear field needs it. With Gauss points the sides of a rectangle conduct h/(3 l) - l/(6 h)
    along its length l, which is negative beyond l/h = √2, and a smooth pressure sends (l/h)² times too much through a
    side and back through the diagonals. With the corners it is h/(2 l), diagonals have no part, and the dual cells are
    those of finite volumes.
    """
    made = _integrated(corners, _CORNERS * _GAUSS)
    share = _thinness(corners)
    thin = np.flatnonzero(share)
    if len(thin):
        for ordinary, other in zip(made, _integrated(corners[thin], _CORNERS), strict=True):
            weight = share[thin].reshape(-1, *[1] * (other.ndim - 1))
            ordinary[thin] += weight * (other - ordinary[thin])
    return made


def _integrated(
    corners: Float[np.ndarray, "cells 4 2"], places: Float[np.ndarray, "4 2"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    masses, stiffness = np.zeros((len(corners), 4)), np.zeros((len(corners), 4, 4))
    gradient = np.zeros((len(corners), 4, 4, 2))
    for place in places:
        factors = 1.0 + _CORNERS * place
        values = factors.prod(axis=1) / 4.0
        by_place = _CORNERS * factors[:, ::-1] / 4.0
        jacobian = np.einsum("ia,cib->cab", by_place, corners)
        area = np.linalg.det(jacobian)
        slopes = np.einsum("ia,cba->cib", by_place, np.linalg.inv(jacobian))
        masses += values * area[:, None]
        stiffness += np.einsum("cia,cja->cij", slopes, slopes) * area[:, None, None]
        gradient += np.einsum("i,cja->cija", values, slopes) * area[:, None, None, None]
    return masses, stiffness, gradient


def _thinness(corners: Float[np.ndarray, "cells 4 2"]) -> Float[np.ndarray, " cells"]:
    """0 for ordinary quads, 1 for long thin ones; 0 for those with a corner that is not convex."""
    one, other = (corners[:, [1, 3]] + corners[:, [2, 2]] - corners[:, [0, 0]] - corners[:, [3, 1]]).swapaxes(0, 1) / 2
    ahead = np.roll(corners, -1, axis=1) - corners
    turns = _cross(ahead, np.roll(ahead, -1, axis=1))
    area = np.abs(_cross(one, other))
    length_squared = np.maximum((one**2).sum(axis=-1), (other**2).sum(axis=-1))
    low, high = _THIN
    share = np.clip((length_squared / np.maximum(area, 1e-300) - low) / (high - low), 0.0, 1.0)
    return np.where(turns.min(axis=1) > _FLAT_CORNER * area, share, 0.0)


def _cross(one: Float[np.ndarray, "... 2"], other: Float[np.ndarray, "... 2"]) -> Float[np.ndarray, "..."]:
    return one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0]


def _assembled(
    parts: list[tuple[Int[np.ndarray, "cells size"], Float[np.ndarray, "cells size size"]]], number: int
) -> scipy.sparse.csr_matrix:
    rows = np.concatenate([np.repeat(cells, cells.shape[1], axis=1).ravel() for cells, _ in parts])
    columns = np.concatenate([np.tile(cells, (1, cells.shape[1])).ravel() for cells, _ in parts])
    values = np.concatenate([each.ravel() for _, each in parts])
    return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(number, number))
