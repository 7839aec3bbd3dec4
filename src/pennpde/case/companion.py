"""A user's problem on a companion of its mesh: the same domain at the spacing that a network was trained with.

A network does a fixed number of iterations, and each carries what it knows over a few cells: on a mesh much finer than
those of training nothing gets far enough. The same problem on a companion is one that it knows, and what it finds there
is interpolated to the user's points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import Ring, ends_of, patches_at_points
from pennpde.mesh.interpolation import interpolation

_PAIRS_AT_ONCE = 2_000_000


def ends_of_conditions(case: Case) -> Int64[np.ndarray, " ends"]:
    """Points of the boundary at which a condition of an unknown begins or ends: a companion has to keep them."""
    facets = case.mesh.facets
    labels = []
    for by_unknown in case.conditions.values():
        for condition in by_unknown.values():
            condition.check_companion()
            labels.append(facets.within(condition.mask.cpu().numpy()))
    return ends_of(Ring.of(case.mesh), np.array(labels).T) if labels else np.zeros(0, np.int64)


def on_companion(case: Case, companion: Mesh) -> Case:
    """The same problem on a companion of its mesh.

    Conditions are interpolated along the boundary, and fields, such as a flow to start from, in the cells; a field that
    is the same everywhere stays so. Targets are left behind.
    """
    along = Along.of(case.mesh, companion)
    field = None

    def moved(values: Tensor) -> Tensor:
        nonlocal field
        field = interpolation(case.mesh, companion.points.numpy()) if field is None else field
        return _applied(field, values)

    conditions = {
        kind: {name: each.onto(along) for name, each in by_unknown.items()}
        for kind, by_unknown in case.conditions.items()
    }
    initial = {}
    for name, start in case.initial.items():
        free = start[~case.dirichlet[name].mask]
        # Not by interpolation, which rounds: a start that is the same everywhere is a first guess and no field.
        even = len(free) > 0 and bool((free == free[0]).all())
        values = free[:1].expand(companion.number_of_points, *free.shape[1:]).clone() if even else moved(start)
        for by_unknown in conditions.values():
            if name in by_unknown and by_unknown[name].is_exact:
                values = by_unknown[name].apply(values)
        initial[name] = values
    return Case(
        companion,
        initial=initial,
        conditions=conditions,
        parameters=case.parameters,
        features={name: moved(values) for name, values in case.features.items()},
        name=case.name,
        remarks=case.remarks,
    )


def back(fields: Mapping[str, Tensor], companion: Mesh, mesh: Mesh) -> dict[str, Tensor]:
    """Fields on a companion at the points of the mesh that it belongs to, linear in each triangle.

    Where a curved boundary was cut short, points lie a little outside and take the values of the nearest triangle.
    """
    matrix = interpolation(companion, mesh.points.numpy())
    return {name: _applied(matrix, values) for name, values in fields.items()}


@dataclass(frozen=True, eq=False)
class Along:
    """The boundary of a companion along that of the mesh it belongs to."""

    mesh: Mesh
    companion: Mesh
    matrix: csr_array
    """[points of the companion, points of the mesh]: values along the boundary, zero inside."""
    ends: Int64[np.ndarray, "boundary 2"]
    """By point of the companion's boundary, the points between which it lies, twice the same where it is one."""
    facets: Int64[np.ndarray, " facets"]
    """By facet of the companion, that of the mesh at its middle."""

    @staticmethod
    def of(mesh: Mesh, companion: Mesh) -> Along:
        points = companion.points.numpy()
        boundary = companion.boundary_points
        edges = mesh.facets.connectivity.reshape(-1, 2)
        facet, share = _nearest(mesh, points[boundary])
        facets, _ = _nearest(mesh, points[companion.facets.connectivity.reshape(-1, 2)].mean(axis=1))
        at_point = (share < 1e-6) | (share > 1 - 1e-6)
        ends = np.where(at_point[:, None], edges[facet, (share > 0.5).astype(int)][:, None], edges[facet])
        # A corner may have the value of another patch: on a facet that has one, the other end counts.
        membership = patches_at_points(mesh)
        fewer = np.sign(membership[ends[:, 1]] - membership[ends[:, 0]])
        second = np.select([fewer > 0, fewer < 0], [0.0, 1.0], share)
        weights = np.stack([1 - second, second], axis=1)
        shape = (len(points), mesh.number_of_points)
        matrix = csr_array((weights.ravel(), (np.repeat(boundary, 2), ends.ravel())), shape=shape)
        return Along(mesh, companion, matrix, ends, facets)

    def held(self, mask: Bool[Tensor, " points"]) -> Bool[Tensor, " other_points"]:
        """The points between points of a mask; for a point of it on no whole facet, the nearest."""
        within = mask.cpu().numpy()
        held = np.zeros(self.companion.number_of_points, bool)
        held[self.companion.boundary_points] = within[self.ends].all(axis=1)
        held[self._next_to(self._alone(within))] = True
        return torch.from_numpy(held)

    def values(self, values: Tensor, mask: Bool[Tensor, " points"]) -> Float[Tensor, "other_points *axes"]:
        """Values along the boundary, zero inside; at a point of the mask on no whole facet, those of that point."""
        there = _applied(self.matrix, values)
        alone = self._alone(mask.cpu().numpy())
        if len(alone):
            there[torch.from_numpy(self._next_to(alone))] = values[torch.from_numpy(alone)]
        return there

    def normals(self, mask: Bool[Tensor, " points"]) -> Float[Tensor, "other_points space"]:
        """The unit normals from the facets that lie within the points of a mask."""
        within = self.mesh.facets.within(mask.cpu().numpy())
        return self.companion.normals_of_facets(np.flatnonzero(within[self.facets]))

    def _alone(self, held: Bool[np.ndarray, " points"]) -> Int64[np.ndarray, " alone"]:
        """Points on no facet that is held whole."""
        on_facets = self.mesh.facets.take(np.flatnonzero(self.mesh.facets.within(held))).connectivity
        return np.setdiff1d(np.flatnonzero(held), on_facets)

    def _next_to(self, points: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " some"]:
        if not len(points):
            return points
        return np.asarray(KDTree(self.companion.points.numpy()).query(self.mesh.points.numpy()[points])[1])


def _nearest(
    mesh: Mesh, targets: Float[np.ndarray, "targets 2"]
) -> tuple[Int64[np.ndarray, " targets"], Float[np.ndarray, " targets"]]:
    """The facet that is nearest to each target, and the share of the way along it."""
    start, end = np.moveaxis(mesh.points.numpy()[mesh.facets.connectivity.reshape(-1, 2)], 1, 0)
    along = end - start
    squares = (along * along).sum(axis=1)
    facets, shares = np.zeros(len(targets), np.int64), np.zeros(len(targets))
    at_once = max(1, _PAIRS_AT_ONCE // len(start))
    for first in range(0, len(targets), at_once):
        chunk = slice(first, first + at_once)
        offset = targets[chunk, None] - start
        share = np.clip((offset * along).sum(axis=2) / squares, 0.0, 1.0)
        away = np.square(offset - share[..., None] * along).sum(axis=2)
        facets[chunk] = away.argmin(axis=1)
        shares[chunk] = share[np.arange(len(share)), facets[chunk]]
    return facets, shares


def _applied(matrix: csr_array, values: Tensor) -> Tensor:
    """A matrix over the points times a field with any further axes."""
    flat = values.detach().cpu().double().numpy().reshape(len(values), -1)
    return torch.from_numpy(np.asarray(matrix @ flat).reshape(-1, *values.shape[1:])).to(values)
