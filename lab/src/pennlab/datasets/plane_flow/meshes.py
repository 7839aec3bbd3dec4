"""The meshes on which networks see a flow: two per flow, of different kind and fineness."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.spatial import KDTree

from pennlab.datasets.plane_flow.conditions import Wall
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.flows import box_of
from pennlab.datasets.plane_flow.sizes import SizeField, Sizing
from pennlab.datasets.plane_flow.triangles import MeshingError, Triangles, boundary_of, edges_of, triangulated, within
from pennpde.mesh import Mesh
from pennpde.mesh.cells import cross
from pennpde.mesh.triangulation import inside, smallest_angles

KINDS = ("lattice", "triangles", "graded", "quads", "mixed")
"""Squares that follow no boundary, with triangles along it; triangles of one size; triangles graded towards walls;
triangles merged to quads wherever two make a good one; half of them merged."""
_WEIGHTS = (0.32, 0.22, 0.18, 0.16, 0.12)
POINTS_PER_WIDTH = (12.0, 45.0)
MOST_POINTS = 3000
_SMALLEST_ANGLE = 8.0
_GRID = 2.0**15
"""Interior points are rounded to this part of an inlet width: further digits are noise that does not pack."""


@dataclass(frozen=True)
class MeshPlan:
    """What kind of mesh a flow gets.

    Attributes:
        kind: one of `KINDS`.
        points_per_width: away from walls.
        grading: size at walls as a share of that elsewhere, for graded meshes.
        seed: of what is random in it.
    """

    kind: str
    points_per_width: float
    grading: float
    seed: int


def mesh_plans(flow: Flow, seed: int = 0) -> tuple[MeshPlan, MeshPlan]:
    """The two meshes of a flow, drawn from its name."""
    key = [seed, zlib.crc32(flow.name.encode()), zlib.crc32(b"meshes")]
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
    kinds, weights = list(KINDS), list(_WEIGHTS)
    plans = []
    for place in range(2):
        total = np.cumsum(weights) / sum(weights)
        chosen = min(int((random.random() > total).sum()), len(kinds) - 1)
        kind = kinds.pop(chosen)
        weights.pop(chosen)
        grading = round(float(random.uniform(0.4, 0.7)), 3)
        low, high = POINTS_PER_WIDTH
        # Graded meshes have about half as many points more.
        high = min(high, math.sqrt(MOST_POINTS / (flow.domain.area * (1.5 if kind == "graded" else 1.0))))
        # More coarse ones than fine ones; the second mesh of a flow may be finer.
        place_between = float(random.random()) ** (2.4 if place == 0 else 1.7)
        fineness = low * (max(high, low) / low) ** place_between
        plans.append(MeshPlan(kind, round(fineness, 2), grading, int(random.integers(2**31))))
    return plans[0], plans[1]


def network_mesh(flow: Flow, plan: MeshPlan) -> Mesh:
    """A mesh with the patches of the flow, the same on any machine."""
    bulk = 1.0 / plan.points_per_width
    at_walls = bulk * (plan.grading if plan.kind == "graded" else 1.0)
    walls = {name: at_walls for name, each in flow.conditions.items() if isinstance(each, Wall)}
    sizing = Sizing(
        bulk, walls, growth=0.3, cells_in_gap=5.0, at_corners=1.0, at_jumps=1.0, edges_around=14.0, edges_per_turn=16.0
    )
    size = SizeField.of(flow.domain, sizing)
    if plan.kind == "lattice":
        made = _lattice(flow, size, bulk)
    else:
        made = triangulated(flow.domain, size.at, bulk, float(size.values.min()))
    made = _ordered(made)
    cells = {"triangle": made.triangles}
    if plan.kind in ("lattice", "quads"):
        cells = _merged(made, 1.0, plan.seed)
    elif plan.kind == "mixed":
        cells = _merged(made, 0.5, plan.seed)
    mesh = Mesh.from_arrays(made.points, {name: each for name, each in cells.items() if len(each)})
    return mesh.with_patch_facets({name: made.edges[chosen] for name, chosen in made.patches.items()})


def _lattice(flow: Flow, size: SizeField, bulk: float) -> Triangles:
    """Points of a square lattice inside, points along the boundary, joined by Delaunay."""
    boundary, edges, patches = boundary_of(flow.domain, size.at)
    low, _ = flow.domain.box
    length, height = box_of(flow.domain)
    # The lattice meets the sides of the box, so that it fits rectangles.
    number = [max(2, round(extent / bulk)) for extent in (length, height)]
    x, y = (
        low[axis] + extent / number[axis] * np.arange(1, number[axis]) for axis, extent in enumerate((length, height))
    )
    nodes = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    nodes = np.round(nodes[inside(nodes, flow.domain.sides)] * _GRID) / _GRID
    chords = boundary[edges]
    for share in (0.55, 0.65, 0.75, 0.45):
        kept = nodes[KDTree(boundary).query(nodes)[0] > share * size.at(nodes)]
        # Where cells are smaller than the lattice, at bodies and in gaps, triangles of the right size are better.
        kept = kept[size.at(kept) > 0.7 * bulk]
        points = np.concatenate([boundary, kept])
        triangles = within(points, len(boundary), chords)
        pairs, counts = edges_of(triangles)
        wanted = np.unique(np.sort(edges, axis=1), axis=0)
        sound = np.array_equal(pairs[counts == 1], wanted) and len(np.unique(triangles)) == len(points)
        if sound and smallest_angles(points[triangles]).min() > _SMALLEST_ANGLE:
            return Triangles(points, triangles, edges, patches)
    # Narrow passages: relaxed triangles, of which most are merged to quads all the same.
    try:
        return triangulated(flow.domain, size.at, bulk, float(size.values.min()))
    except MeshingError as error:
        raise MeshingError(f"{flow.name}: {error}") from error


def _ordered(mesh: Triangles) -> Triangles:
    """Points from left to right in strips, so that neighbours in the list are neighbours in space and pack well."""
    points = np.concatenate([mesh.points[: mesh.fixed], np.round(mesh.points[mesh.fixed :] * _GRID) / _GRID])
    strip = np.floor(points[:, 0] * 8.0).astype(np.int64)
    upward = np.where(strip % 2 == 0, points[:, 1], -points[:, 1])
    order = np.lexsort((upward, strip))
    place = np.empty(len(points), np.int64)
    place[order] = np.arange(len(points))
    triangles = place[mesh.triangles]
    # Each starts with its first point, and they are sorted by it.
    shift = triangles.argmin(axis=1)
    triangles = np.take_along_axis(triangles, (shift[:, None] + np.arange(3)) % 3, axis=1)
    triangles = triangles[np.lexsort((triangles[:, 2], triangles[:, 1], triangles[:, 0]))]
    return Triangles(points[order], triangles, place[mesh.edges], mesh.patches)


_WORST_CORNER = math.sin(math.radians(65.0))
"""A quad's corners may differ from a right angle by so much: the cosine of its angles is at most this."""


def _merged(mesh: Triangles, share: float, seed: int) -> dict[str, np.ndarray]:
    """Pairs of triangles as quads, the best ones first; a share of those possible."""
    triangles, points = mesh.triangles, mesh.points
    number = len(points)
    half = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    owner = np.tile(np.arange(len(triangles)), 3)
    opposite = np.concatenate([triangles[:, 2], triangles[:, 0], triangles[:, 1]])
    forward = np.flatnonzero(half[:, 0] < half[:, 1])
    keys = half[:, 1] * number + half[:, 0]
    order = np.argsort(keys)
    wanted = half[forward, 0] * number + half[forward, 1]
    found = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    shared = keys[found] == wanted
    one, other = forward[shared], found[shared]
    # Counter-clockwise: start of the edge, corner beyond it, end of the edge, corner on this side.
    quads = np.stack([half[one, 0], opposite[other], half[one, 1], opposite[one]], axis=1)
    quality = _straightness(points[quads])
    possible = np.flatnonzero(quality < _WORST_CORNER)
    used = np.zeros(len(triangles), bool)
    chosen = []
    # Rounded, so that equally good ones keep their order everywhere.
    for pair in possible[np.lexsort((one[possible], np.round(quality[possible], 6)))]:
        first, second = owner[one[pair]], owner[other[pair]]
        if not (used[first] or used[second]):
            used[first] = used[second] = True
            chosen.append(pair)
    kept = np.array(chosen, np.int64)
    if share < 1.0:
        random = np.random.Generator(np.random.PCG64(seed))
        kept = kept[random.random(len(kept)) < share]
    used = np.zeros(len(triangles), bool)
    used[owner[one[kept]]] = used[owner[other[kept]]] = True
    return {"quad": quads[kept], "triangle": triangles[~used]}


def _straightness(corners: Float[np.ndarray, "quads 4 2"]) -> Float[np.ndarray, " quads"]:
    """The largest |cosine| of the corners of quads; 2 where one is not convex."""
    worst = np.zeros(len(corners))
    for place in range(4):
        before = corners[:, place - 1] - corners[:, place]
        after = corners[:, (place + 1) % 4] - corners[:, place]
        lengths = np.sqrt((before**2).sum(axis=1) * (after**2).sum(axis=1))
        cosine = np.abs((before * after).sum(axis=1)) / lengths
        worst = np.maximum(worst, np.where(cross(after, before) > 0.05 * lengths, cosine, 2.0))
    return worst


def cells_of(mesh: Mesh) -> dict[str, Int64[np.ndarray, "cells size"]]:
    """Quads and triangles of a mesh."""
    sizes = np.diff(mesh.offsets)
    found = {}
    for name, size in (("quad", 4), ("triangle", 3)):
        chosen = np.flatnonzero(sizes == size)
        if len(chosen):
            found[name] = mesh.connectivity[mesh.offsets[chosen, None] + np.arange(size)]
    return found
