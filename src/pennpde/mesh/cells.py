"""Cells and their facets: what the cell types are made of, for every type and size at once.

Cells and facets have different numbers of points, so both are kept ragged: one flat array of points and the
offsets at which each row starts. Everything here is arithmetic on such arrays; loops run over the ten cell
types or over the facets of one type, never over cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

if TYPE_CHECKING:
    pass

TRIANGLE, POLYGON, PIXEL, QUAD = 5, 7, 8, 9
TETRAHEDRON, VOXEL, HEXAHEDRON, WEDGE, PYRAMID, POLYHEDRON = 10, 11, 12, 13, 14, 42

POINTS_AND_LINES = (0, 1, 2, 3, 4, 21, 35, 68, 75)
# VTK's cell types with points on their edges, sides or inside, and the type that their corners make. In all of them the
# corners come first, but for polygons, whose corners are the first half.
QUADRATIC_POLYGON = 36
HIGHER_ORDER = {
    **dict.fromkeys((22, 34, 69, 76), TRIANGLE),
    **dict.fromkeys((23, 28, 30, 70, 77), QUAD),
    QUADRATIC_POLYGON: POLYGON,
    **dict.fromkeys((24, 71, 78), TETRAHEDRON),
    **dict.fromkeys((25, 29, 33, 72, 79), HEXAHEDRON),
    **dict.fromkeys((26, 31, 32, 73, 80), WEDGE),
    **dict.fromkeys((27, 37, 74, 81), PYRAMID),
}

_CONTINUED = 0.8
"""Cosine of the angle by which an edge that goes on may turn: 37 degrees."""

# A cell with less volume than this share of a cube (square) of its own width is degenerate: rounding alone leaves
# 1e-16, and the thinnest cells of boundary layers keep 1e-8.
FLATTEST = 1e-12


@dataclass(frozen=True)
class CellType:
    """One of VTK's linear cell types.

    Attributes:
        number_of_points: None where every cell may have its own.
        facets: the points of each facet, counter-clockwise as seen from outside; empty for plane cells, whose
            facets are the consecutive pairs of points, and for polyhedra, which bring their own.
        mirrored: the order of points that turns a cell inside out.
    """

    name: str
    dimension: int
    number_of_points: int | None
    facets: tuple[tuple[int, ...], ...] = ()
    mirrored: tuple[int, ...] = ()


# The wedge's first triangle looks like the hexahedron's first quad: its normal points into the cell. So do VTK (from
# 9.6), Gmsh and meshio; older VTK had it point outward, and files of both kinds are about (see `checks`).
CELL_TYPES = {
    TRIANGLE: CellType("triangle", 2, 3),
    POLYGON: CellType("polygon", 2, None),
    PIXEL: CellType("pixel", 2, 4),
    QUAD: CellType("quad", 2, 4),
    TETRAHEDRON: CellType("tetrahedron", 3, 4, ((0, 1, 3), (1, 2, 3), (2, 0, 3), (0, 2, 1)), (0, 2, 1, 3)),
    VOXEL: CellType("voxel", 3, 8),
    HEXAHEDRON: CellType(
        "hexahedron",
        3,
        8,
        ((0, 4, 7, 3), (1, 2, 6, 5), (0, 1, 5, 4), (3, 7, 6, 2), (0, 3, 2, 1), (4, 5, 6, 7)),
        (4, 5, 6, 7, 0, 1, 2, 3),
    ),
    WEDGE: CellType(
        "wedge",
        3,
        6,
        ((0, 2, 1), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
        (0, 2, 1, 3, 5, 4),
    ),
    PYRAMID: CellType("pyramid", 3, 5, ((0, 3, 2, 1), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)), (0, 3, 2, 1, 4)),
    POLYHEDRON: CellType("polyhedron", 3, None),
}

CODES = {cell_type.name: code for code, cell_type in CELL_TYPES.items()} | {
    "tet": TETRAHEDRON,
    "tetra": TETRAHEDRON,
    "hex": HEXAHEDRON,
    "prism": WEDGE,
}


PLANE_TYPES = tuple(
    code for code in (*CELL_TYPES, *HIGHER_ORDER) if CELL_TYPES[HIGHER_ORDER.get(code, code)].dimension == 2
)


@dataclass(frozen=True, eq=False)
class Facets:
    """Facets of cells: polygons in space, edges in the plane.

    Attributes:
        connectivity: the points of all facets, one facet after the other, turning so that the normal points out
            of the cell (in the plane: the cell lies to the left).
        offsets: where each facet starts in `connectivity`, and its end.
        cells: the cell that each facet belongs to.
    """

    connectivity: Int64[np.ndarray, " entries"]
    offsets: Int64[np.ndarray, " facets+1"]
    cells: Int64[np.ndarray, " facets"]

    @staticmethod
    def of(rows: np.ndarray | Sequence[Sequence[int]] | Facets) -> Facets:
        """Facets from only their points, as a table or as rows of different lengths; all are assigned to cell 0."""
        if isinstance(rows, Facets):
            return rows
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            sizes = np.full(len(rows), rows.shape[1])
            connectivity = rows.astype(np.int64).ravel()
        else:
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            connectivity = np.fromiter(chain.from_iterable(rows), np.int64, int(sizes.sum()))
        return Facets(connectivity, offsets_of(sizes), np.zeros(len(sizes), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def sizes(self) -> Int64[np.ndarray, " facets"]:
        return np.diff(self.offsets)

    def take(self, indices: np.ndarray) -> Facets:
        connectivity, offsets = take_rows(self.connectivity, self.offsets, indices)
        return Facets(connectivity, offsets, self.cells[indices])

    def within(self, mask: Bool[np.ndarray, " points"]) -> Bool[np.ndarray, " facets"]:
        """Which facets have all of their points in the mask."""
        return np.logical_and.reduceat(mask[self.connectivity], self.offsets[:-1])


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of mixed types.

    Attributes:
        connectivity: the points of all cells, one cell after the other, in VTK's order.
        offsets: where each cell starts in `connectivity`, and the end.
        types: VTK's codes.
        polyhedron_faces: the faces of polyhedra, where there are any.
    """

    connectivity: Int64[np.ndarray, " entries"]
    offsets: Int64[np.ndarray, " cells+1"]
    types: UInt8[np.ndarray, " cells"]
    polyhedron_faces: Facets | None = None

    def __len__(self) -> int:
        return len(self.types)

    @property
    def sizes(self) -> Int64[np.ndarray, " cells"]:
        return np.diff(self.offsets)

    @property
    def dimension(self) -> int:
        """2 for plane cells, 3 for cells in space; no mesh has both."""
        return CELL_TYPES[int(self.types[0])].dimension

    def renumbered(self, numbers: Int64[np.ndarray, " points"]) -> Cells:
        """The cells over other points: each point gets the number that stands in its place."""
        faces = self.polyhedron_faces
        if faces is not None:
            faces = replace(faces, connectivity=numbers[faces.connectivity])
        return replace(self, connectivity=numbers[self.connectivity], polyhedron_faces=faces)

    def groups(self) -> Iterator[tuple[CellType, np.ndarray, np.ndarray]]:
        """For each type other than polyhedra: the type, its cells, and their points as [cells, points of a cell]."""
        for code in np.unique(self.types[self.types != POLYHEDRON]):
            cells = np.flatnonzero(self.types == code)
            cell_type = CELL_TYPES[int(code)]
            assert cell_type.number_of_points is not None, "polygons are never taken apart by type"
            places = self.offsets[cells][:, None] + np.arange(cell_type.number_of_points)
            yield cell_type, cells, self.connectivity[places]


def mirrored(cells: Cells) -> Cells:
    """The cells with their points in the order that a reflection makes right."""
    if cells.dimension == 2:
        everywhere = np.ones(len(cells), dtype=bool)
        return replace(cells, connectivity=reversed_rows(cells.connectivity, cells.offsets, everywhere))
    connectivity, faces = cells.connectivity.copy(), cells.polyhedron_faces
    for cell_type, chosen, points in cells.groups():
        places = cells.offsets[chosen][:, None] + np.arange(points.shape[1])
        connectivity[places] = points[:, cell_type.mirrored]
    if faces is not None:
        turned = reversed_rows(faces.connectivity, faces.offsets, np.ones(len(faces), dtype=bool))
        faces = replace(faces, connectivity=turned)
    return replace(cells, connectivity=connectivity, polyhedron_faces=faces)


def in_ring_order(cells: Cells) -> Cells:
    """Pixels and voxels, whose points run in rows, as quads and hexahedra, whose points run around."""
    connectivity, types = cells.connectivity.copy(), cells.types.copy()
    for code, ring, swaps in ((PIXEL, QUAD, ((2, 3),)), (VOXEL, HEXAHEDRON, ((2, 3), (6, 7)))):
        start = cells.offsets[:-1][cells.types == code]
        for one, other in swaps:
            connectivity[start + one], connectivity[start + other] = (
                cells.connectivity[start + other],
                cells.connectivity[start + one],
            )
        types[types == code] = ring
    return replace(cells, connectivity=connectivity, types=types)


def cross(first: Float[np.ndarray, "... 2"], second: Float[np.ndarray, "... 2"]) -> Float[np.ndarray, "..."]:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


def offsets_of(sizes: np.ndarray) -> Int64[np.ndarray, " rows+1"]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def take_rows(values: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a ragged array, in the order asked for."""
    sizes = np.diff(offsets)[rows]
    taken = offsets_of(sizes)
    return values[np.arange(taken[-1]) + np.repeat(offsets[:-1][rows] - taken[:-1], sizes)], taken


def joined_rows(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A ragged array of the rows of all tables, and the offsets at which they start."""
    sizes = np.concatenate([np.full(len(table), table.shape[1]) for table in tables])
    return np.concatenate([table.ravel() for table in tables]).astype(np.int64), offsets_of(sizes)


def next_in_row(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """For each entry of a ragged array the entry after it, and for the last of a row the first."""
    following = np.arange(1, len(values) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    return values[following]


def reversed_rows(values: np.ndarray, offsets: np.ndarray, rows: Bool[np.ndarray, " rows"]) -> np.ndarray:
    """A ragged array in which the chosen rows run backwards, from the same first entry."""
    sizes, starts = np.repeat(np.diff(offsets), np.diff(offsets)), np.repeat(offsets[:-1], np.diff(offsets))
    place = np.arange(len(values)) - starts
    return values[starts + np.where(np.repeat(rows, np.diff(offsets)), -place % sizes, place)]


def sum_rows(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, offsets[:-1], axis=0)


def mean_rows(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return sum_rows(values, offsets) / np.diff(offsets).reshape(-1, *[1] * (values.ndim - 1))


def at_corners(
    facets: Facets, values: Float[np.ndarray, "points *axes"], corners: int
) -> Float[np.ndarray, "facets corners *axes"]:
    """The values at the corners of each facet, and after them their mean, up to so many corners."""
    if (facets.sizes == corners).all():
        return values[facets.connectivity.reshape(-1, corners)]
    found = np.repeat(mean_rows(values[facets.connectivity], facets.offsets)[:, None], corners, axis=1)
    found[np.arange(corners) < facets.sizes[:, None]] = values[facets.connectivity]
    return found


def leads_across(
    first: Int64[np.ndarray, " edges"],
    second: Int64[np.ndarray, " edges"],
    along: Float[np.ndarray, "edges space"],
    rim: Bool[np.ndarray, " points"],
) -> Bool[np.ndarray, " edges"]:
    """Which edges begin at a boundary and lead away from it: at one of their ends no other edge continues them.

    Args:
        first: The point at which each edge starts.
        second: Where it ends.
        along: From the one to the other.
        rim: Points on the boundary. An edge between two of them may lead from one part of it to another.
    """
    directions = along / np.maximum(np.linalg.norm(along, axis=1), 1e-300)[:, None]
    points, away = np.concatenate([first, second]), np.concatenate([directions, -directions])
    order = np.argsort(points, kind="stable")
    degrees = np.bincount(points)
    starts = (np.cumsum(degrees) - degrees)[points[order]]
    places, degrees, sorted_away = np.arange(len(order)) - starts, degrees[points[order]], away[order]
    least = np.ones(len(order))
    for turn in range(1, int(degrees.max(initial=1))):
        other = starts + (places + turn) % degrees
        np.minimum(least, np.einsum("ea,ea->e", sorted_away, sorted_away[other]), out=least)
    found = np.empty(len(order), bool)
    found[order] = rim[points[order]] & (least >= -_CONTINUED)
    return np.logical_xor(*found.reshape(2, -1))


def joined(parts: Sequence[Facets]) -> Facets:
    """All facets of the parts, one part after the other."""
    return Facets(
        np.concatenate([part.connectivity for part in parts]),
        offsets_of(np.concatenate([part.sizes for part in parts])),
        np.concatenate([part.cells for part in parts]),
    )


def cell_facets(cells: Cells) -> Facets:
    """The facets of all cells, inner ones twice, sorted by cell."""
    if cells.dimension == 2:
        pairs = np.stack([cells.connectivity, next_in_row(cells.connectivity, cells.offsets)], axis=1)
        return Facets(pairs.ravel(), 2 * np.arange(len(pairs) + 1), np.repeat(np.arange(len(cells)), cells.sizes))
    groups = [cells.polyhedron_faces] if cells.polyhedron_faces is not None else []
    for cell_type, chosen, points in cells.groups():
        sizes = np.tile([len(facet) for facet in cell_type.facets], len(chosen))
        connectivity = points[:, np.concatenate(cell_type.facets)].ravel()
        groups.append(Facets(connectivity, offsets_of(sizes), np.repeat(chosen, len(cell_type.facets))))
    if len(groups) == 1:
        return groups[0]
    facets = joined(groups)
    return facets.take(np.argsort(facets.cells, kind="stable"))


def facet_keys(facets: Facets, number_of_points: int) -> Int64[np.ndarray, " facets"]:
    """A number that two facets share if and only if they have the same points, in whatever order.

    Every point gets 63 random bits, a facet the sum of its points'. It is one pass for facets of all sizes, where
    sorting the points of each would take one for each size; ten million facets clash with probability 1e-5.
    """
    bits = np.random.default_rng(0).integers(2**63, size=number_of_points)
    return sum_rows(bits[facets.connectivity], facets.offsets)


def exterior_facets(facets: Facets, number_of_points: int) -> Facets:
    """The facets that belong to one cell only, sorted by cell.

    Raises:
        ValueError: where cells overlap: three share a facet, or two lie on the same side of theirs.
    """
    return facets.take(matched(facets, number_of_points)[0])


def matched(
    facets: Facets, number_of_points: int
) -> tuple[Int64[np.ndarray, " exterior"], Int64[np.ndarray, "inner 2"]]:
    """The facets of all cells that belong to one cell only, and the pairs of those that two cells share.

    Raises:
        ValueError: where cells overlap, see `exterior_facets`.
    """
    keys = facet_keys(facets, number_of_points)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    as_before = ordered[1:] == ordered[:-1]
    crowded = np.flatnonzero(as_before[1:] & as_before[:-1])
    if crowded.size:
        cells = facets.cells[order[crowded[0] : crowded[0] + 3]]
        raise ValueError(
            f"Cells {cells[0]}, {cells[1]} and {cells[2]} share one facet; at most two can. Is a cell listed twice?"
        )
    pairs = np.flatnonzero(as_before)
    winding = _windings(facets)[order]
    folded = np.flatnonzero(winding[pairs] == winding[pairs + 1])
    if folded.size:
        first, second = facets.cells[order[pairs[folded[0]] : pairs[folded[0]] + 2]]
        raise ValueError(
            f"Cells {first} and {second} lie on the same side of the facet they share, so they overlap "
            f"({folded.size} such pairs): the mesh is folded there, or one of them has its points in the wrong order."
        )
    alone = np.ones(len(facets), dtype=bool)
    alone[pairs] = alone[pairs + 1] = False
    return np.sort(order[alone]), np.stack([order[pairs], order[pairs + 1]], axis=1)


def pieces(
    cells: Cells, facets: Facets, pairs: Int64[np.ndarray, "inner 2"]
) -> tuple[int, Int64[np.ndarray, " cells"]]:
    """The number of pieces that hang together by whole facets, and the piece of each cell."""
    return connected(facets.cells[pairs].T, len(cells))


def connected(pairs: Int64[np.ndarray, "2 pairs"], number: int) -> tuple[int, Int64[np.ndarray, " nodes"]]:
    """How many parts so many nodes fall into that are linked in pairs, and the part of each node."""
    links = coo_array((np.ones(pairs.shape[1], dtype=bool), tuple(pairs)), shape=(number, number))
    parts, part = connected_components(links, directed=False)
    return parts, part.astype(np.int64)


def first_and_last_piece(
    cells: Cells, piece: Int64[np.ndarray, " cells"], number_of_points: int
) -> tuple[Int64[np.ndarray, " points"], Int64[np.ndarray, " points"]]:
    """The smallest and the largest number of the pieces that each point belongs to."""
    of_entry = np.repeat(piece, cells.sizes)
    first, last = np.full(number_of_points, len(cells)), np.full(number_of_points, -1)
    np.minimum.at(first, cells.connectivity, of_entry)
    np.maximum.at(last, cells.connectivity, of_entry)
    return first, last


def _windings(facets: Facets) -> Int64[np.ndarray, " facets"]:
    """A number that differs between two facets of the same points which turn in opposite directions."""
    first = facets.offsets[:-1]
    if (facets.sizes == 2).all():
        return facets.connectivity[first]
    smallest = np.repeat(np.minimum.reduceat(facets.connectivity, first), facets.sizes)
    return next_in_row(facets.connectivity, facets.offsets)[facets.connectivity == smallest]


def facet_areas(points: Float[np.ndarray, "points space"], facets: Facets) -> Float[np.ndarray, "facets space"]:
    """Normals of the facets as long as the facets are large.

    In the plane the edge turned clockwise. In space half the sum of cross products around the polygon, which for a
    quad is ((p1-p0)x(p2-p0) + (p3-p2)x(p0-p2)) / 2, and for a polygon that is not flat its mean normal.
    """
    if points.shape[1] == 2:
        start, end = facets.connectivity.reshape(-1, 2).T
        edge = points[end] - points[start]
        return np.stack([edge[:, 1], -edge[:, 0]], axis=1)
    origin = np.repeat(points[facets.connectivity[facets.offsets[:-1]]], facets.sizes, axis=0)
    here = points[facets.connectivity] - origin
    return 0.5 * sum_rows(np.cross(here, next_in_row(here, facets.offsets)), facets.offsets)


def fans(points: Float[np.ndarray, "points 3"], facets: Facets) -> Int64[np.ndarray, "triangles 3"]:
    """The facets as triangles, those of the fewest corners first.

    A polygon becomes a fan of triangles around the corner that sees the others best, which is exact for every quad
    and for every larger polygon that has a corner from which all of it can be seen.
    """
    normals = facet_areas(points, facets)
    found = []
    for size in np.unique(facets.sizes):
        chosen = np.flatnonzero(facets.sizes == size)
        polygons = take_rows(facets.connectivity, facets.offsets, chosen)[0].reshape(-1, size)
        turned = np.stack([np.roll(polygons, -apex, axis=1) for apex in range(size)])
        apexes = np.broadcast_to(turned[..., :1], turned[..., 2:].shape)
        triangles = np.stack([apexes, turned[..., 1:-1], turned[..., 2:]], axis=-1)
        # Where the view from a corner is blocked, the fan has a triangle that turns the other way.
        corners = points[triangles]
        sides = np.cross(corners[..., 1, :] - corners[..., 0, :], corners[..., 2, :] - corners[..., 0, :])
        worst = np.einsum("apti,pi->apt", sides, normals[chosen]).min(axis=2)
        found.append(triangles[worst.argmax(axis=0), np.arange(len(chosen))].reshape(-1, 3))
    return np.concatenate(found)


def signed_volumes(points: Float[np.ndarray, "points space"], cells: Cells) -> Float[np.ndarray, " cells"]:
    """Area (plane) or volume (space) of every cell, negative where it is inside out.

    The volume is the sum over facets of centre . area / 3: a facet that is not flat counts as the fan of triangles
    around its mean point, so that the cells of a mesh add up to the body they fill.
    """
    if cells.dimension == 2:
        origin = np.repeat(points[cells.connectivity[cells.offsets[:-1]]], cells.sizes, axis=0)
        here = points[cells.connectivity] - origin
        after = next_in_row(here, cells.offsets)
        return 0.5 * sum_rows(cross(here, after), cells.offsets)
    volumes = np.zeros(len(cells))
    for cell_type, chosen, cell_points in cells.groups():
        # Coordinates first and cells last: NumPy is faster along long rows.
        corners = points.T[:, cell_points.T]
        corners -= corners[:, :1].copy()
        for facet in cell_type.facets:
            polygon = corners[:, facet]
            spokes = polygon[:, 1:] - polygon[:, :1]
            area = np.cross(spokes[:, :-1], spokes[:, 1:], axis=0).sum(axis=1)
            volumes[chosen] += np.einsum("ic,ic->c", polygon.mean(axis=1), area) / 6
    if cells.polyhedron_faces is not None:
        volumes += _enclosed(points, cells, cells.polyhedron_faces)
    return volumes


def _enclosed(points: np.ndarray, cells: Cells, faces: Facets) -> Float[np.ndarray, " cells"]:
    centres = mean_rows(points[faces.connectivity], faces.offsets)
    centres -= points[cells.connectivity[cells.offsets[faces.cells]]]
    contributions = np.einsum("fi,fi->f", centres, facet_areas(points, faces)) / 3
    return np.bincount(faces.cells, contributions, minlength=len(cells))


def with_outward_faces(points: Float[np.ndarray, "points space"], cells: Cells) -> Cells:
    """The same cells with every face of every polyhedron turning so that its normal points outward.

    Files do not agree on this. Faces that share an edge must run along it in opposite directions, which settles all
    faces of a polyhedron but for one common sign, and that is the sign of the volume: no assumption of convexity.

    Raises:
        ValueError: where a polyhedron is not closed, or one-sided.
    """
    faces = cells.polyhedron_faces
    if faces is None:
        return cells
    start, end = faces.connectivity, next_in_row(faces.connectivity, faces.offsets)
    face = np.repeat(np.arange(len(faces)), faces.sizes)
    low, high = np.minimum(start, end), np.maximum(start, end)
    order = np.lexsort((high, low, faces.cells[face]))
    edge = np.stack([faces.cells[face], low, high])[:, order]
    new = np.concatenate([[True], (edge[:, 1:] != edge[:, :-1]).any(axis=0), [True]])
    uses = np.diff(np.flatnonzero(new))
    if (uses != 2).any():
        cell, one, other = edge[:, np.flatnonzero(new)[np.flatnonzero(uses != 2)[0]]]
        raise ValueError(
            f"Polyhedron {cell} is not closed: its edge from point {one} to point {other} does not belong to exactly "
            "two of its faces."
        )
    one, other = order.reshape(-1, 2).T
    agree = start[one] != start[other]
    # Every face twice, as it is and turned over; what must go together is connected.
    number = len(faces)
    partner = np.where(agree, face[other], face[other] + number)
    opposite = np.where(agree, face[other] + number, face[other])
    _, side = connected(np.stack([np.r_[face[one], face[one] + number], np.r_[partner, opposite]]), 2 * number)
    if (one_sided := side[:number] == side[number:]).any():
        raise ValueError(f"The faces of polyhedron {faces.cells[one_sided][0]} form a one-sided surface.")
    turned = side[:number] > side[number:]
    consistent = replace(faces, connectivity=reversed_rows(faces.connectivity, faces.offsets, turned))
    inward = (_enclosed(points, cells, consistent) < 0)[faces.cells]
    outward = replace(consistent, connectivity=reversed_rows(consistent.connectivity, faces.offsets, inward))
    return replace(cells, polyhedron_faces=outward)
