"""Companions of a user's mesh: triangles of the same domain at the spacing that a network was trained with.

A network does a fixed number of iterations, and each carries what it knows over a few cells: on a mesh much finer than
those of training nothing gets far enough. The same problem on a companion is one that it knows, and what it finds there
is interpolated to the user's points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array, eye_array, vstack
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from torch import Tensor

from pennpde.conditions import Case, Dirichlet, Neumann, Slip
from pennpde.mesh import Mesh, Patch
from pennpde.mesh_topology import next_in_row
from pennpde.triangulation import SMOOTHING, cross, delaunay, inside, scattered, smallest_angles, smoothed

_CORNER = np.radians(30.0)
"""A boundary that turns by more at a point has a corner there; by less, it may be a curve in short edges."""
_STEEPEST = np.radians(60.0)
"""Turn of a curve from one edge of the companion to the next: a hole has at least six."""
_SMALLEST_ANGLE = 8.0
_LOST_AREA = 0.05
_ATTEMPTS = 3
_THIN = 0.99
_CANDIDATES = (12, 100, 1000)
_TOLERANCE = 1e-9
_PAIRS_AT_ONCE = 2_000_000


class CompanionError(ValueError):
    """A mesh that has no companion of this spacing."""


def companion_mesh(mesh: Mesh, spacing: float, seed: int = 0, keep: Sequence[int] | np.ndarray = ()) -> Mesh:
    """Triangles without structure that fill the domain of a plane mesh, with its patches.

    Corners and ends of patches stay points; between them the boundary is followed at the spacing, so a curve in many
    short edges becomes one in longer edges, with its points on the old ones.

    Args:
        mesh: Any plane mesh in one piece, with or without holes.
        spacing: Length of an edge, about; of a mesh of squares with as many points.
        seed: Of the scattered points.
        keep: Further points of the boundary, by their numbers in `mesh`, that stay points.
    """
    _check(mesh, spacing)
    outline = _Outline.of(mesh, spacing, np.asarray(keep, np.int64))
    outline.check_area(mesh, spacing)
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
    """The spacing of a companion whose mean cell size, in the terms of `ranges.describe`, is this.

    Points of the boundary have half a cell, so the mean over all points is smaller than the spacing: with the area A
    and the perimeter P there are A / h² + P / 2h points.
    """
    area, perimeter = float(mesh.cell_volumes.sum()), float(mesh.facet_areas.norm(dim=1).sum())
    half = cell_size**2 * perimeter / (4 * area)
    return half + float(np.hypot(half, cell_size))


def ends_of_conditions(case: Case) -> Int64[np.ndarray, " ends"]:
    """Points of the boundary at which a condition of an unknown begins or ends: a companion has to keep them."""
    facets = case.mesh.facets
    labels = [facets.within(mask.cpu().numpy()) for mask in _masks(case)]
    return _ends(_Ring.of(case.mesh), np.array(labels).T) if labels else np.zeros(0, np.int64)


def on_companion(case: Case, companion: Mesh) -> Case:
    """The same problem on a companion of its mesh.

    Conditions are interpolated along the boundary, and fields, such as a flow to start from, in the cells; a field that
    is the same everywhere stays so. Targets are left behind.
    """
    along = _Along.of(case.mesh, companion)
    field = None

    def moved(values: Tensor) -> Tensor:
        nonlocal field
        field = interpolation(case.mesh, companion.points.numpy()) if field is None else field
        return _applied(field, values)

    dirichlet = {name: along.dirichlet(each) for name, each in case.dirichlet.items()}
    initial = {}
    for name, start in case.initial.items():
        free = start[~case.dirichlet[name].mask]
        # Not by interpolation, which rounds: a start that is the same everywhere is a first guess and no field.
        even = len(free) > 0 and bool((free == free[0]).all())
        values = free[:1].expand(companion.number_of_points, *free.shape[1:]).clone() if even else moved(start)
        initial[name] = dirichlet[name].apply(values)
    return Case(
        companion,
        initial=initial,
        dirichlet=dirichlet,
        neumann={name: along.neumann(each) for name, each in case.neumann.items()},
        slip={name: along.slip(each) for name, each in case.slip.items()},
        parameters=case.parameters,
        features={name: moved(values) for name, values in case.features.items()},
        name=case.name,
    )


def back(fields: Mapping[str, Tensor], companion: Mesh, mesh: Mesh) -> dict[str, Tensor]:
    """Fields on a companion at the points of the mesh that it belongs to, linear in each triangle.

    Where a curved boundary was cut short, points lie a little outside and take the values of the nearest triangle.
    """
    matrix = interpolation(companion, mesh.points.numpy())
    return {name: _applied(matrix, values) for name, values in fields.items()}


def interpolation(mesh: Mesh, targets: Float[np.ndarray, "targets 2"]) -> csr_array:
    """The matrix [targets, points] that interpolates linearly in the triangles of a plane mesh; its rows sum to one.

    Other cells are cut into triangles around their centres, which have the mean of their points.
    """
    triangles, extension = _cut(mesh)
    positions = np.asarray(extension @ mesh.points.numpy())
    corners = positions[triangles]
    tree = KDTree(corners.mean(axis=1))
    found, weights = np.zeros(len(targets), np.int64), np.full((len(targets), 3), -np.inf)
    left = np.arange(len(targets))
    for candidates in _CANDIDATES:
        number = min(candidates, len(corners))
        nearest = np.asarray(tree.query(targets[left], k=number)[1]).reshape(len(left), number)
        coordinates = _barycentric(corners[nearest], targets[left])
        best = coordinates.min(axis=2).argmax(axis=1)
        found[left] = nearest[np.arange(len(left)), best]
        weights[left] = coordinates[np.arange(len(left)), best]
        left = left[weights[left].min(axis=1) < -_TOLERANCE]
        if number == len(corners) or not len(left):
            break
    weights = np.clip(weights, 0.0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    rows = np.arange(0, 3 * len(targets) + 1, 3)
    in_triangles = csr_array((weights.ravel(), triangles[found].ravel(), rows), shape=(len(targets), len(positions)))
    return csr_array(in_triangles @ extension)


# The boundary


@dataclass(frozen=True, eq=False)
class _Ring:
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
    def of(mesh: Mesh) -> _Ring:
        edges = mesh.facets.connectivity.reshape(-1, 2)
        starts = np.bincount(edges[:, 0], minlength=mesh.number_of_points)
        facets = np.zeros((2, mesh.number_of_points), np.int64)
        facets[0, edges[:, 1]], facets[1, edges[:, 0]] = np.arange(len(edges)), np.arange(len(edges))
        joints = np.flatnonzero(starts == 1)
        return _Ring(edges, facets[0, joints], facets[1, joints], joints, np.flatnonzero(starts > 1))


@dataclass(frozen=True, eq=False)
class _Outline:
    """The boundary of a companion.

    Attributes:
        edges: Numbers of points, with the domain to their left.
        patches: By name, which edges belong to it.
    """

    points: Float[np.ndarray, "boundary 2"]
    edges: Int64[np.ndarray, "edges 2"]
    patches: Mapping[str, Bool[np.ndarray, " edges"]]

    @staticmethod
    def of(mesh: Mesh, spacing: float, keep: Int64[np.ndarray, " keep"]) -> _Outline:
        positions, ring = mesh.points.numpy(), _Ring.of(mesh)
        labels = np.zeros((len(ring.edges), len(mesh.patches)), bool)
        for column, patch in enumerate(mesh.patches.values()):
            labels[patch.facets, column] = True
        directions = positions[ring.edges[:, 1]] - positions[ring.edges[:, 0]]
        one, other = directions[ring.before], directions[ring.after]
        turns = np.zeros(len(positions))
        turns[ring.joints] = np.arctan2(cross(one, other), (one * other).sum(axis=1))
        fixed = np.zeros(len(positions), bool)
        for each in (ring.knots, keep, np.flatnonzero(np.abs(turns) > _CORNER), _ends(ring, labels)):
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
        return _Outline(np.array(points), np.array(edges, np.int64), patches)

    @property
    def sides(self) -> Float[np.ndarray, "edges 2 2"]:
        return self.points[self.edges]

    def check_area(self, mesh: Mesh, spacing: float) -> None:
        area = float(mesh.cell_volumes.sum())
        followed = float(cross(self.sides[:, 0], self.sides[:, 1]).sum()) / 2
        if abs(followed - area) > _LOST_AREA * area:
            raise CompanionError(
                f"The boundary followed at a spacing of {spacing:.4g} encloses {followed:.4g}, but the mesh fills "
                f"{area:.4g}: the domain has details that are smaller than the spacing."
            )


def _ends(ring: _Ring, labels: Bool[np.ndarray, "facets labels"]) -> Int64[np.ndarray, " ends"]:
    """Points between two facets that differ in a label."""
    return ring.joints[(labels[ring.before] != labels[ring.after]).any(axis=1)]


def _chains(ring: _Ring, fixed: Bool[np.ndarray, " points"]) -> list[Int64[np.ndarray, "facets 2"]]:
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


# The triangles


def _check(mesh: Mesh, spacing: float) -> None:
    if mesh.space != 2:
        raise CompanionError(
            f"A companion belongs to a plane mesh; this one has {mesh.space} dimensions. Mesh.plane_of makes a plane "
            "mesh of one that is one cell thick."
        )
    if not (np.isfinite(spacing) and spacing > 0):
        raise CompanionError(f"The spacing of a companion is {spacing:g}; it must be a positive number.")
    first, second = mesh.edges
    graph = csr_array((np.ones(len(first), bool), (first, second)), shape=(mesh.number_of_points,) * 2)
    pieces, of_point = connected_components(graph, directed=False)
    if pieces > 1:
        sizes = ", ".join(map(str, np.bincount(of_point)[:5]))
        raise CompanionError(
            f"The mesh is in {pieces} pieces ({sizes} points); a companion belongs to a mesh in one piece. Take them "
            "one by one."
        )


def _filled(
    mesh: Mesh, outline: _Outline, spacing: float, seed: int
) -> tuple[Float[np.ndarray, "points 2"], Int64[np.ndarray, "triangles 3"]]:
    """Points, those of the outline first, and triangles; drawn anew where they are not sound."""
    boundary = len(outline.points)
    cut, extension = _cut(mesh)
    corners = np.asarray(extension @ mesh.points.numpy())[cut]
    areas = np.abs(cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])) / 2
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
            points = smoothed(points, _within(points, outline), boundary)
        triangles = _within(points, outline)
        _check_width(points, triangles, outline, spacing)
        wrong = _unsound(points, triangles, outline)
        if not wrong:
            return points, triangles
    raise CompanionError(
        f"No sound triangles with a spacing of {spacing:.4g} fill the domain: {wrong}. It may have details that are "
        "smaller than the spacing."
    )


def _within(points: Float[np.ndarray, "points 2"], outline: _Outline) -> Int64[np.ndarray, "triangles 3"]:
    """Delaunay's triangles of the domain."""
    triangles = delaunay(points)
    # Only between points of the boundary are there triangles outside, as long as its edges are edges of triangles.
    doubtful = np.flatnonzero((triangles < len(outline.points)).all(axis=1))
    outside = doubtful[~inside(points[triangles[doubtful]].mean(axis=1), outline.sides)]
    return np.delete(triangles, outside, axis=0)


def _edges(triangles: Int64[np.ndarray, "triangles 3"]) -> tuple[Int64[np.ndarray, "edges 2"], np.ndarray]:
    """The edges of triangles, each once, smaller number first, and how many triangles have it."""
    pairs = np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]), axis=1)
    return np.unique(pairs, axis=0, return_counts=True)


def _check_width(points: np.ndarray, triangles: np.ndarray, outline: _Outline, spacing: float) -> None:
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


def _unsound(points: np.ndarray, triangles: np.ndarray, outline: _Outline) -> str:
    """What is wrong with triangles, in words; empty if nothing is."""
    pairs, counts = _edges(triangles)
    wanted = np.unique(np.sort(outline.edges, axis=1), axis=0)
    if not np.array_equal(pairs[counts == 1], wanted):
        return f"they have {(counts == 1).sum()} edges on the boundary, which has {len(wanted)}"
    smallest = float(smallest_angles(points[triangles]).min())
    return f"their smallest angle is {smallest:.1f} degrees" if smallest < _SMALLEST_ANGLE else ""


# From mesh to mesh


@dataclass(frozen=True, eq=False)
class _Along:
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
    def of(mesh: Mesh, companion: Mesh) -> _Along:
        points = companion.points.numpy()
        boundary = companion.boundary_points
        edges = mesh.facets.connectivity.reshape(-1, 2)
        facet, share = _nearest(mesh, points[boundary])
        facets, _ = _nearest(mesh, points[companion.facets.connectivity.reshape(-1, 2)].mean(axis=1))
        at_point = (share < 1e-6) | (share > 1 - 1e-6)
        ends = np.where(at_point[:, None], edges[facet, (share > 0.5).astype(int)][:, None], edges[facet])
        # A corner may have the value of another patch: on a facet that has one, the other end counts.
        membership = np.zeros(mesh.number_of_points, np.int64)
        for patch in mesh.patches.values():
            membership[patch.points] += 1
        fewer = np.sign(membership[ends[:, 1]] - membership[ends[:, 0]])
        second = np.select([fewer > 0, fewer < 0], [0.0, 1.0], share)
        weights = np.stack([1 - second, second], axis=1)
        shape = (len(points), mesh.number_of_points)
        matrix = csr_array((weights.ravel(), (np.repeat(boundary, 2), ends.ravel())), shape=shape)
        return _Along(mesh, companion, matrix, ends, facets)

    def dirichlet(self, condition: Dirichlet) -> Dirichlet:
        held = condition.mask.cpu().numpy()
        mask = np.zeros(self.companion.number_of_points, bool)
        mask[self.companion.boundary_points] = held[self.ends].all(axis=1)
        values = _applied(self.matrix, condition.values)
        values[torch.from_numpy(~mask)] = 0.0
        # What holds at single points, on no facet, does so at the points that are nearest.
        on_facets = self.mesh.facets.take(np.flatnonzero(self.mesh.facets.within(held))).connectivity
        alone = np.setdiff1d(np.flatnonzero(held), on_facets)
        if len(alone):
            positions = self.mesh.points.numpy()[alone]
            nearest = np.asarray(KDTree(self.companion.points.numpy()).query(positions)[1])
            mask[nearest] = True
            values[torch.from_numpy(nearest)] = condition.values[torch.from_numpy(alone)]
        return Dirichlet(torch.from_numpy(mask), values)

    def neumann(self, condition: Neumann) -> Neumann:
        normals = self._normals(condition.mask)
        mask = (normals != 0).any(dim=1)
        derivative = _applied(self.matrix, condition.normal_derivative)
        derivative[~mask] = 0.0
        return Neumann(mask, normals, derivative)

    def slip(self, condition: Slip) -> Slip:
        normals = self._normals(condition.mask)
        return Slip((normals != 0).any(dim=1), normals)

    def _normals(self, mask: Bool[Tensor, " points"]) -> Float[Tensor, "points space"]:
        within = self.mesh.facets.within(mask.cpu().numpy())
        return self.companion.normals_of_facets(np.flatnonzero(within[self.facets]))


def _masks(case: Case) -> list[Bool[Tensor, " points"]]:
    return [each.mask for kind in (case.dirichlet, case.neumann, case.slip) for each in kind.values()]


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


def _cut(mesh: Mesh) -> tuple[Int64[np.ndarray, "triangles 3"], csr_array]:
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


def _barycentric(
    corners: Float[np.ndarray, "targets candidates 3 2"], targets: Float[np.ndarray, "targets 2"]
) -> Float[np.ndarray, "targets candidates 3"]:
    a, b, c = np.moveaxis(corners, 2, 0)
    target = targets[:, None]
    area = cross(b - a, c - a)
    area = np.where(area == 0, np.finfo(float).tiny, area)
    first, second = cross(b - target, c - target) / area, cross(c - target, a - target) / area
    return np.stack([first, second, 1.0 - first - second], axis=-1)


def _applied(matrix: csr_array, values: Tensor) -> Tensor:
    """A matrix over the points times a field with any further axes."""
    flat = values.detach().cpu().double().numpy().reshape(len(values), -1)
    return torch.from_numpy(np.asarray(matrix @ flat).reshape(-1, *values.shape[1:])).to(values)
