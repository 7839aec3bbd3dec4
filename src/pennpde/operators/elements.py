"""Linear finite elements on triangles, quads and tetrahedra: what conservative solvers on the points are made of.

With the linear (triangles) or bilinear (quads) functions φ_i, one per point::

    masses     m_i  = ∫ φ_i                 areas of the dual cells around the points
    stiffness  K_ij = ∫ ∇φ_i · ∇φ_j         minus the Laplacian, times the area
    gradient   G_ij = ∫ φ_i ∇φ_j            the gradient, times the area; also the divergence

Unlike the fitted operators of `operators.py`, G is its own negative transpose up to the boundary, and K is symmetric:
a projection with them does not amplify any velocity, so steps can be composed. The same numbers are a finite volume
scheme: G - Gᵀ are the faces between the dual cells, and what flows through one leaves one cell for the other.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pennpde.mesh.cells import cross

_GAUSS = 1.0 / np.sqrt(3.0)
_CORNERS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], float)
_THIN = 3.0, 6.0
"""Quads up to the first aspect ratio are ordinary, from the second one on they are thin; between both are mixed."""
_FLAT_CORNER = 0.1
"""Of the area of a quad: a corner that turns by less is no place at which to integrate."""


def local_matrices(
    corners: Float[np.ndarray, "cells size space"], *, thin: bool = True
) -> tuple[
    Float[np.ndarray, "cells size"], Float[np.ndarray, "cells size size"], Float[np.ndarray, "cells size size space"]
]:
    """Masses, stiffness and gradient of each triangle, quad or tetrahedron by itself.

    Args:
        corners: counter-clockwise in the plane.
        thin: whether long thin quads are integrated at their corners.
    """
    if corners.shape[2] == 3:
        return _tetrahedra(corners)
    if corners.shape[1] == 3:
        return _triangles(corners)
    return _quads(corners) if thin else _integrated(corners, _CORNERS * _GAUSS)


def _tetrahedra(corners: Float[np.ndarray, "cells 4 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whichever way they are turned; one without volume counts for nothing."""
    a, b, c = (corners[:, 1:] - corners[:, :1]).swapaxes(0, 1)
    areas = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], axis=1)
    sixfold = (a * areas[:, 0]).sum(axis=1)[:, None, None]
    slopes = np.divide(areas, sixfold, out=np.zeros_like(areas), where=sixfold != 0)
    slopes = np.concatenate([-slopes.sum(axis=1, keepdims=True), slopes], axis=1)
    quarter = np.abs(sixfold) / 24.0
    stiffness = np.einsum("cia,cja->cij", slopes, slopes) * 4.0 * quarter
    gradient = np.broadcast_to((slopes * quarter)[:, None], (len(corners), 4, 4, 3))
    return np.broadcast_to(quarter[..., 0], (len(corners), 4)), stiffness, gradient


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
    # Cells are the last axis while sums are made: loops over short last axes take several times as long.
    number = len(corners)
    masses, stiffness, gradient = np.zeros((4, number)), np.zeros((4, 4, number)), np.zeros((2, 4, 4, number))
    for place in places:
        factors = 1.0 + _CORNERS * place
        values = factors.prod(axis=1)[:, None] / 4.0
        by_place = _CORNERS * factors[:, ::-1] / 4.0
        (x_one, x_other), (y_one, y_other) = np.tensordot(corners, by_place, axes=(1, 0)).transpose(1, 2, 0)
        area, (one, other) = x_one * y_other - x_other * y_one, by_place.T[..., None]
        slopes = (y_other * one - y_one * other) / area, (x_one * other - x_other * one) / area
        masses += values * area
        for axis, slope in enumerate(slopes):
            weighted = slope * area
            stiffness += slope[:, None] * weighted
            gradient[axis] += values[:, None] * weighted
    return masses.T, stiffness.transpose(2, 0, 1), gradient.transpose(3, 1, 2, 0)


def _thinness(corners: Float[np.ndarray, "cells 4 2"]) -> Float[np.ndarray, " cells"]:
    """0 for ordinary quads, 1 for long thin ones; 0 for those with a corner that is not convex."""
    one, other = (corners[:, [1, 3]] + corners[:, [2, 2]] - corners[:, [0, 0]] - corners[:, [3, 1]]).swapaxes(0, 1) / 2
    ahead = np.roll(corners, -1, axis=1) - corners
    turns = cross(ahead, np.roll(ahead, -1, axis=1))
    area = np.abs(cross(one, other))
    length_squared = np.maximum((one**2).sum(axis=-1), (other**2).sum(axis=-1))
    low, high = _THIN
    share = np.clip((length_squared / np.maximum(area, 1e-300) - low) / (high - low), 0.0, 1.0)
    return np.where(turns.min(axis=1) > _FLAT_CORNER * area, share, 0.0)
