"""Values of cells at the points of a mesh, exact where they are linear in space.

Finite volumes know a field at the centres of cells and on the facets of the boundary. At a point the nearest of these
values, weighted by distance, are fitted by a linear function. Where they do not determine its slope in some direction,
the fit is flat in that direction.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array

from pennpde.mesh.cells import next_in_row, sum_rows
from pennpde.mesh.mesh import Mesh

_UNDETERMINED = 1e-6
"""Variance of the places in one direction, as a share of the largest, below which the slope is taken as zero."""


def fit(
    points: Float[np.ndarray, "points space"],
    places: Float[np.ndarray, "places space"],
    of_point: Int64[np.ndarray, " pairs"],
    of_place: Int64[np.ndarray, " pairs"],
) -> csr_array:
    """The matrix [points, places] that fits a linear function to the places that belong to each point.

    Args:
        points: Where values are wanted.
        places: Where they are known.
        of_point: The point of each pair.
        of_place: The place that belongs to it.
    """
    number, space = points.shape
    offset = places[of_place] - points[of_point]
    square = (offset**2).sum(axis=1)
    total = np.bincount(of_point, square, number) / np.maximum(np.bincount(of_point, minlength=number), 1)
    # Not infinite where a place is the point itself.
    weight = 1.0 / np.maximum(square, 1e-12 * np.where(total > 0, total, 1.0)[of_point])
    weight /= np.bincount(of_point, weight, number)[of_point]
    middle = np.stack([np.bincount(of_point, weight * column, number) for column in offset.T], axis=1)
    away = offset - middle[of_point]
    spread = np.zeros((number, space, space))
    for i in range(space):
        for j in range(space):
            spread[:, i, j] = np.bincount(of_point, weight * away[:, i] * away[:, j], number)
    inverse = np.linalg.pinv(spread, rcond=_UNDETERMINED, hermitian=True)
    slope = np.einsum("pi,pij->pj", -middle, inverse)  # how much the slopes count at the point, seen from the middle
    share = weight * (1.0 + (slope[of_point] * away).sum(axis=1))
    return csr_array((share, (of_point, of_place)), shape=(number, len(places)))


def cells_and_facets(mesh: Mesh) -> csr_array:
    """The matrix [points, cells and exterior facets] for a mesh; it takes the cells' values first."""
    cell = np.repeat(np.arange(mesh.number_of_cells), np.diff(mesh.offsets))
    facets = mesh.facets
    facet = np.repeat(np.arange(len(facets)), facets.sizes)
    positions = mesh.points.numpy()
    middles = sum_rows(positions[facets.connectivity], facets.offsets) / facets.sizes[:, None]
    return fit(
        positions,
        np.concatenate([cell_centres(mesh), middles]),
        np.concatenate([mesh.connectivity, facets.connectivity]),
        np.concatenate([cell, mesh.number_of_cells + facet]),
    )


def cell_centres(mesh: Mesh) -> Float[np.ndarray, "cells space"]:
    """Centres of area of plane cells; in space the means of the points."""
    positions, sizes = mesh.points.numpy(), np.diff(mesh.offsets)
    corners = positions[mesh.connectivity]
    means = sum_rows(corners, mesh.offsets) / sizes[:, None]
    if mesh.space == 3:
        return means
    from_mean = corners - np.repeat(means, sizes, axis=0)
    following = positions[next_in_row(mesh.connectivity, mesh.offsets)] - np.repeat(means, sizes, axis=0)
    doubled = from_mean[:, 0] * following[:, 1] - from_mean[:, 1] * following[:, 0]
    moments = sum_rows(doubled[:, None] * (from_mean + following) / 3, mesh.offsets)
    return means + moments / sum_rows(doubled[:, None], mesh.offsets)


def at_points(matrix: csr_array, values: Float[np.ndarray, "places *axes"]) -> Float[np.ndarray, "points *axes"]:
    """Values at the points. Those that are the same everywhere stay so, to the last bit."""
    flat = values.reshape(len(values), -1)
    origin = flat[:1]
    return (origin + matrix @ (flat - origin)).reshape(-1, *values.shape[1:])
