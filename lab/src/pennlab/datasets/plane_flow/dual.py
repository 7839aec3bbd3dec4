"""The dual of a triangulation: one polygonal cell around each point, as finite volumes like them.

A face between two cells joins the circumcentres of the triangles on both sides of an edge, so it is normal to that
edge and halfway along it: cells without shear or skew where triangles are nearly equilateral.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from pennlab.datasets.plane_flow.triangles import Triangles, edges_of
from pennpde.mesh.cells import cross
from pennpde.openfoam import FacePatch, PolyMesh

_INSIDE = 0.08
"""Least barycentric coordinate of a triangle's centre: a circumcentre nearer to an edge, or beyond it, is moved in."""
THICKNESS = 0.1


@dataclass(frozen=True, eq=False)
class Dual:
    """The cells around the points of a triangulation.

    Attributes:
        mesh: one layer of cells, in the order of the points; front and back are `empty`.
        centres: the centroid of each cell.
        areas: of each cell.
        face_centres: by patch, the midpoints of its faces.
        face_points: by patch, the point whose cell each of its faces belongs to.
        face_lengths: by patch, the length of its faces in the plane.
    """

    mesh: PolyMesh
    centres: Float[np.ndarray, "cells 2"]
    areas: Float[np.ndarray, " cells"]
    face_centres: Mapping[str, Float[np.ndarray, "faces 2"]]
    face_points: Mapping[str, Int64[np.ndarray, " faces"]]
    face_lengths: Mapping[str, Float[np.ndarray, " faces"]]


def renumbered(mesh: Triangles) -> Triangles:
    """The same triangles with points in an order that keeps neighbours near each other, as solvers like it."""
    pairs = edges_of(mesh.triangles)[0]
    number = len(mesh.points)
    graph = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(number, number))
    order = reverse_cuthill_mckee(csr_array(graph + graph.T), symmetric_mode=True)
    place = np.empty(number, np.int64)
    place[order] = np.arange(number)
    return Triangles(mesh.points[order], place[mesh.triangles], place[mesh.edges], mesh.patches)


def dual_of(mesh: Triangles) -> Dual:
    """The dual of a triangulation; faces on the boundary run from its points to the midpoints of its edges."""
    points, triangles = mesh.points, mesh.triangles
    number, cells = len(points), len(points)
    centre = _triangle_centres(points[triangles])
    middles = points[mesh.edges].mean(axis=1)
    corner_number = len(triangles) + len(middles) + np.arange(len(mesh.edges))  # of the point each edge starts at
    starts_at = np.full(number, -1)
    starts_at[mesh.edges[:, 0]] = corner_number
    plane = np.concatenate([centre, middles, points[mesh.edges[:, 0]]])

    # Each half edge (i to j, its triangle to the left) knows the centre on its left.
    half = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    left = np.tile(np.arange(len(triangles)), 3)
    keys = half[:, 0] * number + half[:, 1]
    order = np.argsort(keys)
    back = half[:, 1] * number + half[:, 0]
    found = np.minimum(np.searchsorted(keys, back, sorter=order), len(keys) - 1)
    partner = order[found]
    paired = keys[partner] == back
    right = np.where(paired, left[partner], -1)
    # On the boundary the place of the missing triangle is taken by the midpoint of the edge.
    edge_keys = mesh.edges[:, 0] * number + mesh.edges[:, 1]
    edge_order = np.argsort(edge_keys)
    alone = np.flatnonzero(~paired)
    right[alone] = len(triangles) + edge_order[np.searchsorted(edge_keys, keys[alone], sorter=edge_order)]
    own = (half[:, 0] < half[:, 1]) | ~paired
    first, second, at_left, at_right = half[own, 0], half[own, 1], left[own], right[own]
    swap = first > second  # half edges of the boundary may run either way
    owner, neighbour = np.where(swap, second, first), np.where(swap, first, second)
    start, end = np.where(swap, at_left, at_right), np.where(swap, at_right, at_left)
    inner = np.lexsort((neighbour, owner))
    owner, neighbour, start, end = owner[inner], neighbour[inner], start[inner], end[inner]

    above = len(plane)
    sides = [np.stack([start, end, end + above, start + above], axis=1)]
    owners = [owner]
    patches, face_centres, face_points, face_lengths = {}, {}, {}, {}
    begin = len(owner)
    for name, chosen in mesh.patches.items():
        edges, numbers = mesh.edges[chosen], np.flatnonzero(chosen)
        middle = len(triangles) + numbers
        from_, to = starts_at[edges[:, 0]], starts_at[edges[:, 1]]
        one = np.stack([from_, middle, middle + above, from_ + above], axis=1)
        two = np.stack([middle, to, to + above, middle + above], axis=1)
        sides += [one, two]
        cell = np.concatenate([edges[:, 0], edges[:, 1]])
        owners.append(cell)
        ends = plane[np.concatenate([one[:, :2], two[:, :2]])]
        face_centres[name], face_points[name] = ends.mean(axis=1), cell
        face_lengths[name] = np.sqrt(((ends[:, 1] - ends[:, 0]) ** 2).sum(axis=1))
        patches[name] = FacePatch(name, "patch", begin, len(cell))
        begin += len(cell)

    polygons, offsets = _polygons(points, owner, neighbour, start, end, mesh.edges, starts_at, len(triangles))
    quads = np.concatenate(sides)
    # Polygons run counter-clockwise: seen from above for the top, so the bottom is turned around.
    turned = _reversed(polygons, offsets)
    face_points_all = np.concatenate([quads.ravel(), turned, polygons + above])
    sizes = np.concatenate([np.full(len(quads), 4), np.diff(offsets), np.diff(offsets)])
    patches["frontAndBack"] = FacePatch("frontAndBack", "empty", begin, 2 * cells)
    body = np.concatenate([np.column_stack([plane, np.full(len(plane), z)]) for z in (0.0, THICKNESS)])
    centres, areas = _centroids(plane, polygons, offsets)
    poly = PolyMesh(
        body,
        face_points_all,
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([*owners, np.arange(cells), np.arange(cells)]),
        neighbour,
        patches,
    )
    return Dual(poly, centres, areas, face_centres, face_points, face_lengths)


def _triangle_centres(corners: Float[np.ndarray, "triangles 3 2"]) -> Float[np.ndarray, "triangles 2"]:
    squared = [((corners[:, (i + 1) % 3] - corners[:, (i + 2) % 3]) ** 2).sum(axis=1) for i in range(3)]
    weights = np.stack(
        [squared[i] * (squared[(i + 1) % 3] + squared[(i + 2) % 3] - squared[i]) for i in range(3)], axis=1
    )
    weights /= weights.sum(axis=1, keepdims=True)
    # Towards the centroid, as far as needed.
    lowest = weights.min(axis=1)
    share = np.where(lowest < _INSIDE, (_INSIDE - lowest) / (1 / 3 - lowest), 0.0)[:, None]
    weights = (1 - share) * weights + share / 3
    return (weights[:, :, None] * corners).sum(axis=1)


def _polygons(
    points: np.ndarray,
    owner: np.ndarray,
    neighbour: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    edges: np.ndarray,
    starts_at: np.ndarray,
    triangles: int,
) -> tuple[Int64[np.ndarray, " entries"], Int64[np.ndarray, " offsets"]]:
    """The corners of all cells, counter-clockwise, one cell after the other."""
    # Every side of a cell, run counter-clockwise around it, starts at one of its corners.
    middle = triangles + np.arange(len(edges))
    cell = np.concatenate([owner, neighbour, edges[:, 0], edges[:, 1]])
    corner = np.concatenate([start, end, starts_at[edges[:, 0]], middle])
    following = np.concatenate([end, start, middle, starts_at[edges[:, 1]]])
    sizes = np.bincount(cell, minlength=len(points))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # Follow all cells at once: a corner occurs once in a cell, so (cell, corner) finds the next side.
    width = int(max(corner.max(), following.max())) + 1
    keys = cell * width + corner
    order = np.argsort(keys)
    sorted_keys = keys[order]
    here = order[offsets[:-1]]  # any side of each cell
    found = np.empty(len(cell), np.int64)
    for turn in range(int(sizes.max())):
        active = sizes > turn
        found[offsets[:-1][active] + turn] = corner[here[active]]
        wanted = cell[here[active]] * width + following[here[active]]
        here[active] = order[np.searchsorted(sorted_keys, wanted)]
    return found, offsets


def _reversed(entries: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return entries[offsets[row] + offsets[row + 1] - 1 - np.arange(len(entries))]


def _centroids(
    plane: np.ndarray, polygons: np.ndarray, offsets: np.ndarray
) -> tuple[Float[np.ndarray, "cells 2"], Float[np.ndarray, " cells"]]:
    cells = len(offsets) - 1
    row = np.repeat(np.arange(cells), np.diff(offsets))
    following = np.arange(len(polygons)) + 1
    following[offsets[1:] - 1] = offsets[:-1]
    origin = plane[polygons[offsets[:-1]]]
    one, two = plane[polygons] - origin[row], plane[polygons[following]] - origin[row]
    doubled = cross(one, two)
    area = np.bincount(row, doubled, cells) / 2
    moment = np.stack([np.bincount(row, doubled * (one + two)[:, axis], cells) for axis in range(2)], axis=1) / 6
    return origin + moment / area[:, None], area
