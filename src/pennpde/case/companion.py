"""A user's problem on a companion of its mesh: the same domain at the spacing that a network was trained with.

A network does a fixed number of iterations, and each carries what it knows over a few cells: on a mesh much finer than
those of training nothing gets far enough. The same problem on a companion is one that it knows, and what it finds there
is interpolated to the user's points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from torch import Tensor

from pennpde.mesh import Mesh, Patch
from pennpde.mesh.boundary import CORNER, Ring, ends_of, patches_at_points
from pennpde.mesh.cells import connected, cross
from pennpde.mesh.interpolation import cut_into_triangles, interpolation
from pennpde.mesh.triangulation import (
    SMOOTHING,
    delaunay_within,
    doubled_areas,
    inside,
    scattered,
    smallest_angles,
    smoothed,
)

if TYPE_CHECKING:
    from pennpde.case import Case

# Companion meshes: unstructured triangles of a given size that fill the domain of a plane mesh.


_SMALLEST_ANGLE = 8.0
_LOST_AREA = 0.05
_ATTEMPTS = 3
_THIN = 0.99
_STEEPEST = np.radians(60.0)
"""Turn of a curve from one edge of the outline to the next: a hole has at least six."""


class CompanionError(ValueError):
    """A mesh that has no companion of this spacing."""


def companion_mesh(mesh: Mesh, spacing: float, seed: int = 0, keep: Sequence[int] | np.ndarray = ()) -> Mesh:
    """Unstructured triangles that fill the domain of a plane mesh, with its patches.

    Corners and ends of patches stay points; between them the boundary is followed at the spacing, so a curve in many
    short edges becomes one in longer edges, with its points on the old ones.

    Args:
        mesh: Any plane mesh in one piece, with or without holes.
        spacing: Length of an edge, about; of a mesh of squares with as many points.
        seed: Of the scattered points.
        keep: Further points of the boundary, by their numbers in `mesh`, that stay points.
    """
    _check(mesh, spacing)
    outline = Outline.of(mesh, spacing, np.asarray(keep, np.int64))
    _check_area(mesh, outline, spacing)
    points, triangles = _filled(mesh, outline, spacing, seed)
    made = Mesh.from_arrays(points, {"triangle": triangles})
    named = {name: outline.edges[chosen] for name, chosen in outline.patches.items()}
    made = made.with_patch_facets({name: edges for name, edges in named.items() if len(edges)})
    # A patch of single points has them where they are nearest.
    tree, patches = KDTree(points), dict(made.patches)
    for name, patch in mesh.patches.items():
        alone = np.setdiff1d(patch.points, mesh.facets.take(patch.facets).connectivity)
        nearest = np.asarray(tree.query(mesh.points.numpy()[alone])[1], np.int64)
        known = patches.get(name, Patch(np.zeros(0, np.int64), np.zeros(0, np.int64)))
        patches[name] = Patch(np.union1d(known.points, nearest), known.facets)
    return replace(made, patches={name: patches[name] for name in mesh.patches})


def spacing_of(mesh: Mesh, cell_size: float) -> float:
    """The spacing of a companion whose mean cell size, in the terms of `certificate.describe`, is this.

    Points of the boundary have half a cell, so the mean over all points is smaller than the spacing: with the area A
    and the perimeter P there are A / h² + P / 2h points.
    """
    area, perimeter = float(mesh.cell_volumes.sum()), float(mesh.facet_areas.norm(dim=1).sum())
    half = cell_size**2 * perimeter / (4 * area)
    return half + float(np.hypot(half, cell_size))


def _check(mesh: Mesh, spacing: float) -> None:
    if mesh.space != 2:
        raise CompanionError(
            f"A companion belongs to a plane mesh; this one has {mesh.space} dimensions. Mesh.plane_of makes a plane "
            "mesh of one that is one cell thick."
        )
    if not (np.isfinite(spacing) and spacing > 0):
        raise CompanionError(f"The spacing of a companion is {spacing:g}; it must be a positive number.")
    pieces, of_point = connected(mesh.edges, mesh.number_of_points)
    if pieces > 1:
        sizes = ", ".join(map(str, np.bincount(of_point)[:5]))
        raise CompanionError(
            f"The mesh is in {pieces} pieces ({sizes} points); a companion belongs to a mesh in one piece. Take them "
            "one by one."
        )


def _check_area(mesh: Mesh, outline: Outline, spacing: float) -> None:
    area, followed = float(mesh.cell_volumes.sum()), outline.area
    if abs(followed - area) > _LOST_AREA * area:
        raise CompanionError(
            f"The boundary followed at a spacing of {spacing:.4g} encloses {followed:.4g}, but the mesh fills "
            f"{area:.4g}: the domain has details that are smaller than the spacing."
        )


def _filled(
    mesh: Mesh, outline: Outline, spacing: float, seed: int
) -> tuple[Float[np.ndarray, "points 2"], Int64[np.ndarray, "triangles 3"]]:
    """Points, those of the outline first, and triangles; repeated with other random points if they are not valid."""
    boundary = len(outline.points)
    cut, extension = cut_into_triangles(mesh)
    positions = np.asarray(extension @ mesh.points.numpy())
    corners, areas = positions[cut], np.abs(doubled_areas(positions, cut)) / 2
    number = max(1, round(float(areas.sum()) / spacing**2))
    wrong = ""
    for attempt in range(_ATTEMPTS):
        random = np.random.default_rng([seed, attempt])

        def throw(random: np.random.Generator = random) -> np.ndarray:
            # In the cells, not in a box around them: then no throw is outside.
            first = corners[np.searchsorted(np.cumsum(areas), random.random(number) * areas.sum(), side="right")]
            along, across = np.sqrt(random.random((number, 1))), random.random((number, 1))
            return (1 - along) * first[:, 0] + along * ((1 - across) * first[:, 1] + across * first[:, 2])

        inner = scattered(throw, outline.points, spacing)
        inner = inner[inside(inner, outline.sides)]  # cells that are not convex are cut beyond themselves
        points = np.concatenate([outline.points, inner])
        for _ in range(SMOOTHING):
            points = smoothed(points, delaunay_within(points, outline.sides, boundary), boundary)
        triangles = delaunay_within(points, outline.sides, boundary)
        _check_width(points, triangles, outline, spacing)
        wrong = _unsound(points, triangles, outline)
        if not wrong:
            return points, triangles
    raise CompanionError(
        f"No sound triangles with a spacing of {spacing:.4g} fill the domain: {wrong}. It may have details that are "
        "smaller than the spacing."
    )


def _edges(triangles: Int64[np.ndarray, "triangles 3"]) -> tuple[Int64[np.ndarray, "edges 2"], np.ndarray]:
    """The edges of triangles, each once, smaller number first, and how many triangles have it."""
    pairs = np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]), axis=1)
    return np.unique(pairs, axis=0, return_counts=True)


def _check_width(points: np.ndarray, triangles: np.ndarray, outline: Outline, spacing: float) -> None:
    """A place where one triangle reaches from side to side has no point inside for a network to work with."""
    boundary = len(outline.points)
    pairs, counts = _edges(triangles)
    across = pairs[(counts == 2) & (pairs < boundary).all(axis=1)]
    ones = np.ones(len(outline.edges))
    steps = csr_array((ones, tuple(outline.edges.T)), shape=(boundary, boundary))
    steps = csr_array(steps + steps.T)
    one, other = (steps + steps @ steps).nonzero()
    # Around a corner there always are such edges, between points two steps apart along the boundary.
    across = across[~np.isin(across @ [boundary, 1], one.astype(np.int64) * boundary + other)]
    widths = np.linalg.norm(points[across[:, 0]] - points[across[:, 1]], axis=1)
    if len(widths) and widths.min() < _THIN * spacing:
        x, y = points[across[widths.argmin()]].mean(axis=0)
        raise CompanionError(
            f"The domain is only {widths.min():.4g} wide at ({x:.4g}, {y:.4g}), thinner than the spacing of "
            f"{spacing:.4g} of a companion."
        )
    if len(points) == boundary:
        raise CompanionError(f"The domain is thinner than the spacing of {spacing:.4g} of a companion everywhere.")


def _unsound(points: np.ndarray, triangles: np.ndarray, outline: Outline) -> str:
    """What is wrong with triangles, in words; empty if nothing is."""
    pairs, counts = _edges(triangles)
    wanted = np.unique(np.sort(outline.edges, axis=1), axis=0)
    if not np.array_equal(pairs[counts == 1], wanted):
        return f"they have {(counts == 1).sum()} edges on the boundary, which has {len(wanted)}"
    smallest = float(smallest_angles(points[triangles]).min())
    return f"their smallest angle is {smallest:.1f} degrees" if smallest < _SMALLEST_ANGLE else ""


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
    from pennpde.case import Case  # whose conditions know companions

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
