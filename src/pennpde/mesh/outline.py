"""The boundary of a plane mesh as edges that follow each other, and the same boundary at another spacing.

Corners and ends of patches stay points; between them a curve in many short edges becomes one in longer edges, with its
points on the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int64

from pennpde.mesh import Mesh
from pennpde.mesh.triangulation import cross

CORNER = np.radians(30.0)
"""A boundary that turns by more at a point has a corner there; by less, it may be a curve in short edges."""
_STEEPEST = np.radians(60.0)
"""Turn of a curve from one edge of the outline to the next: a hole has at least six."""


@dataclass(frozen=True, eq=False)
class Ring:
    """The facets of a plane mesh as edges that follow each other, with the domain to their left."""

    edges: Int64[np.ndarray, "facets 2"]
    before: Int64[np.ndarray, " joints"]
    """By joint, the facet that ends there."""
    after: Int64[np.ndarray, " joints"]
    """The facet that starts there."""
    joints: Int64[np.ndarray, " joints"]
    """Points at which one facet ends and one starts."""
    knots: Int64[np.ndarray, " knots"]
    """Points at which more do: the domain touches itself there."""

    @staticmethod
    def of(mesh: Mesh) -> Ring:
        edges = edges_of(mesh)
        starts = np.bincount(edges[:, 0], minlength=mesh.number_of_points)
        facets = np.zeros((2, mesh.number_of_points), np.int64)
        facets[0, edges[:, 1]], facets[1, edges[:, 0]] = np.arange(len(edges)), np.arange(len(edges))
        joints = np.flatnonzero(starts == 1)
        return Ring(edges, facets[0, joints], facets[1, joints], joints, np.flatnonzero(starts > 1))

    def turns(self, positions: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, " joints"]:
        """By joint, the angle by which the boundary turns there, positive to the left."""
        directions = positions[self.edges[:, 1]] - positions[self.edges[:, 0]]
        one, other = directions[self.before], directions[self.after]
        return np.arctan2(cross(one, other), (one * other).sum(axis=1))


def edges_of(mesh: Mesh) -> Int64[np.ndarray, "facets 2"]:
    """The points of each exterior facet of a plane mesh."""
    if mesh.space != 2:
        raise ValueError(f"Only a plane mesh has a boundary of edges; this one has {mesh.space} dimensions.")
    return mesh.facets.connectivity.reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class Outline:
    """The boundary at the new spacing.

    Attributes:
        edges: Numbers of points, with the domain to their left.
        patches: By name, which edges belong to it.
    """

    points: Float[np.ndarray, "boundary 2"]
    edges: Int64[np.ndarray, "edges 2"]
    patches: Mapping[str, Bool[np.ndarray, " edges"]]

    @staticmethod
    def of(mesh: Mesh, spacing: float, keep: Int64[np.ndarray, " keep"]) -> Outline:
        positions, ring = mesh.points.numpy(), Ring.of(mesh)
        labels = np.zeros((len(ring.edges), len(mesh.patches)), bool)
        for column, patch in enumerate(mesh.patches.values()):
            labels[patch.facets, column] = True
        turns = np.zeros(len(positions))
        turns[ring.joints] = ring.turns(positions)
        fixed = np.zeros(len(positions), bool)
        for each in (ring.knots, keep, np.flatnonzero(np.abs(turns) > CORNER), ends_of(ring, labels)):
            fixed[each] = True
        numbers: dict[int, int] = {}
        points: list[np.ndarray] = []
        edges, of_facet = [], []
        for chain in _chains(ring, fixed):
            facets, ends = chain[:, 0], chain[:, 1]
            path = positions[np.concatenate([ring.edges[facets[:1], 0], ends])]
            between = _resampled(path, turns[ends[:-1]], spacing, closed=bool(ring.edges[facets[0], 0] == ends[-1]))
            row = []
            for place, position in enumerate(between):
                # The two ends are points of the mesh, and those of other chains, too.
                own = {0: int(ring.edges[facets[0], 0]), len(between) - 1: int(ends[-1])}.get(place)
                if own is None or own not in numbers:
                    points.append(position)
                    if own is not None:
                        numbers[own] = len(points) - 1
                row.append(len(points) - 1 if own is None else numbers[own])
            edges.extend(pairwise(row))
            of_facet.extend([int(facets[0])] * (len(row) - 1))
        patches = {name: labels[of_facet, column] for column, name in enumerate(mesh.patches)}
        return Outline(np.array(points), np.array(edges, np.int64), patches)

    @property
    def sides(self) -> Float[np.ndarray, "edges 2 2"]:
        return self.points[self.edges]

    @property
    def area(self) -> float:
        """What it encloses."""
        return float(cross(self.sides[:, 0], self.sides[:, 1]).sum()) / 2


def ends_of(ring: Ring, labels: Bool[np.ndarray, "facets labels"]) -> Int64[np.ndarray, " ends"]:
    """Points between two facets that differ in a label."""
    return ring.joints[(labels[ring.before] != labels[ring.after]).any(axis=1)]


def _chains(ring: Ring, fixed: Bool[np.ndarray, " points"]) -> list[Int64[np.ndarray, "facets 2"]]:
    """Facets and the points they end at, from one fixed point to the next, or once around where there is none."""
    following = np.full(len(fixed), -1)
    following[ring.edges[:, 0]] = np.arange(len(ring.edges))
    visited = np.zeros(len(ring.edges), bool)
    chains = []
    starts = fixed[ring.edges[:, 0]]
    for first in [*np.flatnonzero(starts), *np.flatnonzero(~starts)]:
        if visited[first]:
            continue
        begin, facet, chain = ring.edges[first, 0], int(first), []
        while not visited[facet]:
            visited[facet] = True
            end = int(ring.edges[facet, 1])
            chain.append((facet, end))
            if fixed[end] or end == begin:
                break
            facet = int(following[end])
        chains.append(np.array(chain, np.int64))
    return chains


def _resampled(
    path: Float[np.ndarray, "path 2"], turns: Float[np.ndarray, " joints"], spacing: float, *, closed: bool
) -> Float[np.ndarray, "fewer_or_more 2"]:
    """Points along a path at the spacing, or a little off it, so that both ends are among them."""
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    bend = np.concatenate([[0.0], np.cumsum(turns)])
    turned = 2 * np.pi if closed else float(np.ptp(bend))
    count = max(1, round(float(lengths[-1]) / spacing), int(np.ceil(turned / _STEEPEST - 1e-6)))
    places = np.linspace(0.0, lengths[-1], count + 1)
    found = np.stack([np.interp(places, lengths, path[:, axis]) for axis in range(2)], axis=1)
    found[[0, -1]] = path[[0, -1]]
    return found
