"""Linear finite elements on cells of the plane and of space: what conservative solvers on the points are made of.

With functions φ_i that are linear along each edge (quads: bilinear, hexahedra: trilinear), one per point::

    masses     m_i  = ∫ φ_i                 areas of the dual cells around the points
    stiffness  K_ij = ∫ ∇φ_i · ∇φ_j         minus the Laplacian, times the area
    gradient   G_ij = ∫ φ_i ∇φ_j            the gradient, times the area; also the divergence

Unlike the fitted operators of `operators.py`, G is its own negative transpose up to the boundary, and K is symmetric:
a projection with them does not amplify any velocity, so steps can be composed. The same numbers are a finite volume
scheme: G - Gᵀ are the faces between the dual cells, and what flows through one leaves one cell for the other.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Float

from pennpde.mesh.cells import CELL_TYPES, HEXAHEDRON, WEDGE, cross

_GAUSS = 1.0 / np.sqrt(3.0)
_CORNERS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], float)
_THIN = 3.0, 6.0
"""Quads up to the first aspect ratio are ordinary, from the second one on they are thin; between both are mixed."""
_FLAT_CORNER = 0.1
"""Of the area of a quad, or of the volume of a cell in space that a corner stands for: with less it is no place at
which to integrate."""


def local_matrices(
    corners: Float[np.ndarray, "cells size space"], *, thin: bool = True
) -> tuple[
    Float[np.ndarray, "cells size"], Float[np.ndarray, "cells size size"], Float[np.ndarray, "cells size size space"]
]:
    """Masses, stiffness and gradient of each cell by itself.

    Args:
        corners: of triangles or quads, counter-clockwise; in space of tetrahedra, pyramids, prisms or hexahedra, in
            VTK's order.
        thin: whether long thin quads are integrated at their corners.
    """
    if corners.shape[2] == 3:
        ways = {4: _tetrahedra, 5: _pyramids, 6: _prisms_and_hexahedra, 8: _prisms_and_hexahedra}
        return ways[corners.shape[1]](corners)
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


_HALVES = ((0, 1, 2, 4), (0, 2, 3, 4)), ((0, 1, 3, 4), (1, 2, 3, 4))
"""The tetrahedra of a pyramid, cut along one diagonal of its base or along the other."""


def _pyramids(corners: Float[np.ndarray, "cells 5 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of both ways to cut it into two tetrahedra; on its base that is what bilinear functions have there."""
    number = len(corners)
    masses, stiffness, gradient = np.zeros((number, 5)), np.zeros((number, 5, 5)), np.zeros((number, 5, 5, 3))
    for half in (each for way in _HALVES for each in way):
        own = list(half)
        for whole, part in zip((masses, stiffness, gradient), _tetrahedra(corners[:, own]), strict=True):
            if whole.ndim == 2:
                whole[:, own] += 0.5 * part
            else:
                whole[:, np.array(own)[:, None], own] += 0.5 * part
    return masses, stiffness, gradient


def _prisms_and_hexahedra(corners: Float[np.ndarray, "cells size 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integrated at the corners, or, where one of them is too flat for that, inside.

    With the corners a box is a cell of finite volumes: only its edges conduct, nothing along diagonals, and never from
    cold to warm, however thin it is. Corners know the faces of a twisted cell less well: their slopes are shifted by
    what the integral over the faces says, so that what flows through closed surfaces is exact for constant fields.
    """
    size = corners.shape[1]
    inward = _slopes_inside(corners)
    volume = np.einsum("cia,cia->c", corners, inward) / 3.0
    made = _at_places(corners, inward, volume, *_reference(size, at_corners=True))
    flat = np.flatnonzero(made[0].min(axis=1) < _FLAT_CORNER * volume / size)
    if len(flat):
        for each, other in zip(
            made,
            _at_places(corners[flat], inward[flat], volume[flat], *_reference(size, at_corners=False)),
            strict=True,
        ):
            each[flat] = other
    return made


def _at_places(
    corners: Float[np.ndarray, "cells size 3"],
    inside: Float[np.ndarray, "cells size 3"],
    volume: Float[np.ndarray, " cells"],
    values: Float[np.ndarray, "places size"],
    by_place: Float[np.ndarray, "places size 3"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums over places inside the cells.

    Args:
        corners: Of the cells.
        inside: The integrals of the slopes of the functions over each cell, which the sums have to give.
        volume: Of each cell.
        values: Of the functions of the reference cell.
        by_place: Their derivatives there.
    """
    to_places = np.einsum("cia,pib->cpab", corners, by_place)
    parts = np.linalg.det(to_places)
    sound = parts > 0  # the inverse of the others means nothing; such cells are integrated elsewhere, or refused
    inverse = np.linalg.inv(np.where(sound[..., None, None], to_places, np.eye(3)))
    slopes = np.einsum("pib,cpba->cpia", by_place, inverse)
    parts = parts * (volume / parts.sum(axis=1))[:, None]
    missing = (inside - np.einsum("cp,cpia->cia", parts, slopes)) / volume[:, None, None]
    slopes += missing[:, None]
    weighted = slopes * parts[..., None, None]
    return (
        parts @ values,
        np.einsum("cpia,cpja->cij", slopes, weighted),
        np.einsum("pi,cpja->cija", values, weighted),
    )


def _slopes_inside(corners: Float[np.ndarray, "cells size 3"]) -> Float[np.ndarray, "cells size 3"]:
    """The integral of each function's slope over the cell: that of the function times the normal over its faces."""
    found = np.zeros_like(corners)
    for facet in CELL_TYPES[HEXAHEDRON if corners.shape[1] == 8 else WEDGE].facets:
        found[:, list(facet)] += corner_normals(corners[:, list(facet)])
    return found


def corner_normals(corners: Float[np.ndarray, "facets size 3"]) -> Float[np.ndarray, "facets size 3"]:
    """The integral of the function of each corner times the normal, over triangles or quads that may be bent."""
    ahead, behind = np.roll(corners, -1, axis=1) - corners, np.roll(corners, 1, axis=1) - corners
    at_corners = np.cross(ahead, behind)
    if corners.shape[1] == 3:
        return at_corners / 6.0
    doubled = 0.5 * at_corners.sum(axis=1, keepdims=True)  # twice the area
    return (at_corners + doubled) / 12.0


@cache
def _reference(size: int, *, at_corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """Functions of a prism or hexahedron and their derivatives, at its corners or at places within."""
    across = np.array([-1.0, 1.0]) * (1.0 if at_corners else _GAUSS)
    if size == 8:
        ends = np.concatenate([np.insert(_CORNERS, 2, end, axis=1) for end in (-1.0, 1.0)])
        places = ends * (1.0 if at_corners else _GAUSS)
        factors = 1.0 + ends * places[:, None]
        values = factors.prod(axis=2) / 8.0
        others = np.stack([np.delete(factors, axis, axis=2).prod(axis=2) for axis in range(3)], axis=2)
        return values, ends * others / 8.0
    # Triangles between (0, 0), (1, 0) and (0, 1), one below the other.
    shares = np.eye(3) if at_corners else (1.0 + 3.0 * np.eye(3)) / 6.0
    by_triangle = np.array([[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]])
    values, derivatives = [], []
    for height in across:
        for share in shares:
            layers = 0.5 * (1.0 - height), 0.5 * (1.0 + height)
            values.append(np.concatenate([layer * share for layer in layers]))
            rows = [
                np.insert(layer * by_triangle, 2, sign * share, axis=1)
                for layer, sign in zip(layers, (-0.5, 0.5), strict=True)
            ]
            derivatives.append(np.concatenate(rows))
    return np.array(values), np.array(derivatives)


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
