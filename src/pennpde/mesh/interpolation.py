"""Fields at other places: from the points of a plane mesh to any points, from cells to the points of their mesh.

Between the points of a plane mesh a field is linear in triangles, into which other cells are cut.

Finite volumes know a field at the centres of cells and on the facets of the boundary. At a point a linear function is
fitted to the nearest of these values, weighted by distance; where they do not determine its slope in some direction, it
is flat in that direction. So linear fields are exact. A linear function cuts off the top of a profile, though, and with
it some of the flux: by h² u''/8 between two cells. Half of the change that the gradients in the cells foretell from
their centres to the point makes up for that, and leaves an error of fourth order on a regular mesh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array, eye_array, vstack

from pennpde.mesh import Mesh, triangulation
from pennpde.mesh.cells import cross, mean_rows, next_in_row, sum_rows

_UNDETERMINED = 1e-6
"""Variance of the places in one direction, as a share of the largest, below which the slope is taken as zero."""


def interpolation(mesh: Mesh, targets: Float[np.ndarray, "targets 2"]) -> csr_array:
    """The matrix [targets, points] that interpolates linearly in the triangles of a plane mesh; its rows sum to one.

    Other cells are cut into triangles around their centres, which have the mean of their points. A target outside takes
    the values of the nearest triangle.
    """
    triangles, extension = cut_into_triangles(mesh)
    positions = np.asarray(extension @ mesh.points.numpy())
    in_triangles, _ = triangulation.interpolation(positions, triangles, targets)
    return csr_array(in_triangles @ extension)


def cut_into_triangles(mesh: Mesh) -> tuple[Int64[np.ndarray, "triangles 3"], csr_array]:
    """Cells as triangles, and the matrix [points and centres, points] of the points that they span."""
    sizes = np.diff(mesh.offsets)
    cell = np.repeat(np.arange(len(sizes)), sizes)
    whole, number = sizes == 3, mesh.number_of_points
    identity = csr_array(eye_array(number, format="csr"))
    triangles = mesh.connectivity[whole[cell]].reshape(-1, 3)
    if whole.all():
        return triangles, identity
    centre = number + np.cumsum(~whole) - 1
    following = next_in_row(mesh.connectivity, mesh.offsets)
    around = np.stack([centre[cell], mesh.connectivity, following], axis=1)[~whole[cell]]
    shares = csr_array((1.0 / sizes[cell], mesh.connectivity, mesh.offsets), shape=(len(sizes), number))
    extension = csr_array(vstack([identity, shares[np.flatnonzero(~whole)]], format="csr"))
    return np.concatenate([triangles, around]), extension


@dataclass(frozen=True, eq=False)
class CellsToPoints:
    """From places, which are the centres of all cells and then of facets, to points.

    Attributes:
        linear: [points, places], the linear fit.
        bent: by axis, [points, places]: half of the way from a place to the point, weighted as in the fit.
        gradients: by axis, [cells, points].
        cells: the cell of each place.
    """

    linear: csr_array
    bent: tuple[csr_array, ...]
    gradients: tuple[csr_array, ...]
    cells: Int64[np.ndarray, " places"]

    @staticmethod
    def of(
        mesh: Mesh,
        places: Float[np.ndarray, "places space"],
        cells: Int64[np.ndarray, " places"],
        of_point: Int64[np.ndarray, " pairs"],
        of_place: Int64[np.ndarray, " pairs"],
    ) -> CellsToPoints:
        """For a mesh.

        Args:
            mesh: On whose points values are wanted.
            places: Where they are known: in the cells, in their order, then elsewhere.
            cells: The cell of each place.
            of_point: The point of each pair.
            of_place: The place that belongs to it.
        """
        points = mesh.points.numpy()
        linear = fit(points, places, of_point, of_place).tocoo()
        ways = points[linear.row] - places[linear.col]
        bent = tuple(
            csr_array((0.5 * linear.data * way, (linear.row, linear.col)), shape=linear.shape) for way in ways.T
        )
        return CellsToPoints(csr_array(linear), bent, _gradients(mesh), cells)

    @staticmethod
    def on(mesh: Mesh) -> CellsToPoints:
        """From the cells of a mesh and its exterior facets."""
        cell = np.repeat(np.arange(mesh.number_of_cells), np.diff(mesh.offsets))
        facets = mesh.facets
        facet = np.repeat(np.arange(len(facets)), facets.sizes)
        middles = mean_rows(mesh.points.numpy()[facets.connectivity], facets.offsets)
        return CellsToPoints.of(
            mesh,
            np.concatenate([cell_centres(mesh), middles]),
            np.concatenate([np.arange(mesh.number_of_cells), facets.cells]),
            np.concatenate([mesh.connectivity, facets.connectivity]),
            np.concatenate([cell, mesh.number_of_cells + facet]),
        )

    def __call__(self, values: Float[np.ndarray, "places *axes"]) -> Float[np.ndarray, "points *axes"]:
        """Values at the points. Those that are the same everywhere stay so, to the last bit."""
        flat = values.reshape(len(values), -1)
        origin = flat[:1]
        first = self.linear @ (flat - origin)
        change = sum(bent @ (slope @ first)[self.cells] for bent, slope in zip(self.bent, self.gradients, strict=True))
        return (origin + first + change).reshape(-1, *values.shape[1:])


def fit(
    points: Float[np.ndarray, "points space"],
    places: Float[np.ndarray, "places space"],
    of_point: Int64[np.ndarray, " pairs"],
    of_place: Int64[np.ndarray, " pairs"],
) -> csr_array:
    """The matrix [points, places] that fits a linear function to the places that belong to each point."""
    number = len(points)
    offset = places[of_place] - points[of_point]
    square = (offset**2).sum(axis=1)
    total = np.bincount(of_point, square, number) / np.maximum(np.bincount(of_point, minlength=number), 1)
    # Not infinite where a place is the point itself.
    weight = 1.0 / np.maximum(square, 1e-12 * np.where(total > 0, total, 1.0)[of_point])
    weight /= np.bincount(of_point, weight, number)[of_point]
    middle = np.stack([np.bincount(of_point, weight * column, number) for column in offset.T], axis=1)
    away = offset - middle[of_point]
    # How much the slopes count at the point, seen from the middle.
    slope = np.einsum("pi,pij->pj", -middle, _inverse_spread(away, weight, of_point, number))
    share = weight * (1.0 + (slope[of_point] * away).sum(axis=1))
    return csr_array((share, (of_point, of_place)), shape=(number, len(places)))


def _gradients(mesh: Mesh) -> tuple[csr_array, ...]:
    """By axis the matrix [cells, points] of the gradient in a cell, fitted to its points."""
    sizes = np.diff(mesh.offsets)
    cell = np.repeat(np.arange(len(sizes)), sizes)
    corners = mesh.points.numpy()[mesh.connectivity]
    away = corners - mean_rows(corners, mesh.offsets)[cell]
    inverse = _inverse_spread(away, np.ones(len(cell)), cell, len(sizes))
    rows = np.einsum("pij,pj->pi", inverse[cell], away)
    shape = (len(sizes), mesh.number_of_points)
    return tuple(csr_array((row, (cell, mesh.connectivity)), shape=shape) for row in rows.T)


def _inverse_spread(away: np.ndarray, weight: np.ndarray, index: np.ndarray, number: int) -> np.ndarray:
    space = away.shape[1]
    spread = np.zeros((number, space, space))
    for i in range(space):
        for j in range(space):
            spread[:, i, j] = np.bincount(index, weight * away[:, i] * away[:, j], number)
    return np.linalg.pinv(spread, rcond=_UNDETERMINED, hermitian=True)


def cell_centres(mesh: Mesh) -> Float[np.ndarray, "cells space"]:
    """Centres of area of plane cells; in space the means of the points."""
    positions, sizes = mesh.points.numpy(), np.diff(mesh.offsets)
    corners = positions[mesh.connectivity]
    means = mean_rows(corners, mesh.offsets)
    if mesh.space == 3:
        return means
    from_mean = corners - np.repeat(means, sizes, axis=0)
    following = positions[next_in_row(mesh.connectivity, mesh.offsets)] - np.repeat(means, sizes, axis=0)
    doubled = cross(from_mean, following)
    moments = sum_rows(doubled[:, None] * (from_mean + following) / 3, mesh.offsets)
    return means + moments / sum_rows(doubled[:, None], mesh.offsets)
