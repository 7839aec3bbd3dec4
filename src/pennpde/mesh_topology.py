"""Cells and their facets: what the cell types are made of, for every type and size at once.

Cells and facets have different numbers of points, so both are kept ragged: one flat array of points and the
offsets at which each row starts. Everything here is arithmetic on such arrays; loops run over the ten cell
types or over the facets of one type, never over cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64, UInt8

TRIANGLE, POLYGON, PIXEL, QUAD = 5, 7, 8, 9
TETRAHEDRON, VOXEL, HEXAHEDRON, WEDGE, PYRAMID, POLYHEDRON = 10, 11, 12, 13, 14, 42


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


# VTK draws the wedge's first triangle with its normal pointing outward, unlike the hexahedron's first quad.
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
        ((0, 1, 2), (3, 5, 4), (0, 3, 4, 1), (1, 4, 5, 2), (2, 5, 3, 0)),
        (3, 4, 5, 0, 1, 2),
    ),
    PYRAMID: CellType(
        "pyramid", 3, 5, ((0, 3, 2, 1), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)), (0, 3, 2, 1, 4)
    ),
    POLYHEDRON: CellType("polyhedron", 3, None),
}

CODES = {cell_type.name: code for code, cell_type in CELL_TYPES.items()} | {
    "tet": TETRAHEDRON,
    "tetra": TETRAHEDRON,
    "hex": HEXAHEDRON,
    "prism": WEDGE,
}


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

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def sizes(self) -> Int64[np.ndarray, " facets"]:
        return np.diff(self.offsets)

    def take(self, indices: np.ndarray) -> Facets:
        connectivity, offsets = take_rows(self.connectivity, self.offsets, indices)
        return Facets(connectivity, offsets, self.cells[indices])


def offsets_of(sizes: np.ndarray) -> Int64[np.ndarray, " rows+1"]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def take_rows(values: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a ragged array, in the order asked for."""
    sizes = np.diff(offsets)[rows]
    taken = offsets_of(sizes)
    return values[np.arange(taken[-1]) + np.repeat(offsets[:-1][rows] - taken[:-1], sizes)], taken


def next_in_row(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """For each entry of a ragged array the entry after it, and for the last of a row the first."""
    following = np.arange(1, len(values) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    return values[following]


def sum_rows(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, offsets[:-1], axis=0)


def cell_facets(
    connectivity: Int64[np.ndarray, " entries"],
    offsets: Int64[np.ndarray, " cells+1"],
    cell_types: UInt8[np.ndarray, " cells"],
    polyhedron_faces: Facets | None = None,
) -> Facets:
    """The facets of all cells, inner ones twice, sorted by cell."""
    if CELL_TYPES[int(cell_types[0])].dimension == 2:
        pairs = np.stack([connectivity, next_in_row(connectivity, offsets)], axis=1)
        cells = np.repeat(np.arange(len(cell_types)), np.diff(offsets))
        return Facets(pairs.ravel(), 2 * np.arange(len(pairs) + 1), cells)
    groups = [polyhedron_faces] if polyhedron_faces is not None else []
    for code in np.unique(cell_types[cell_types != POLYHEDRON]):
        facets = CELL_TYPES[int(code)].facets
        cells = np.flatnonzero(cell_types == code)
        points = connectivity[offsets[cells][:, None] + np.concatenate(facets)]
        sizes = np.tile([len(facet) for facet in facets], len(cells))
        groups.append(Facets(points.ravel(), offsets_of(sizes), np.repeat(cells, len(facets))))
    if len(groups) == 1:
        return groups[0]
    merged = Facets(
        np.concatenate([group.connectivity for group in groups]),
        offsets_of(np.concatenate([group.sizes for group in groups])),
        np.concatenate([group.cells for group in groups]),
    )
    return merged.take(np.argsort(merged.cells, kind="stable"))


def facet_keys(
    connectivity: np.ndarray, offsets: np.ndarray, number_of_points: int
) -> Int64[np.ndarray, " facets"]:
    """A number that two facets share if and only if they have the same points, in whatever order.

    Every point gets 63 random bits and a facet the sum of its points'. Sorting the points of each facet instead
    takes five times as long and one pass for each facet size; ten million facets clash with probability 1e-5.
    """
    bits = np.random.default_rng(0).integers(2**63, size=number_of_points)
    return sum_rows(bits[connectivity], offsets)


def exterior_facets(facets: Facets, number_of_points: int) -> Facets:
    """The facets that belong to one cell only, sorted by cell."""
    keys = facet_keys(facets.connectivity, facets.offsets, number_of_points)
    order = np.argsort(keys)
    ordered = keys[order]
    different = ordered[1:] != ordered[:-1]
    alone = np.concatenate([[True], different]) & np.concatenate([different, [True]])
    return facets.take(np.sort(order[alone]))


def facet_areas(
    points: Float[np.ndarray, "points space"], facets: Facets
) -> Float[np.ndarray, "facets space"]:
    """Normals of the facets as long as the facets are large.

    In the plane the edge turned clockwise. In space half the sum of cross products around the polygon, which for a
    quad is ((p1-p0)x(p2-p0) + (p3-p2)x(p0-p2)) / 2 and for a polygon that is not flat its mean normal.
    """
    if points.shape[1] == 2:
        start, end = facets.connectivity.reshape(-1, 2).T
        edge = points[end] - points[start]
        return np.stack([edge[:, 1], -edge[:, 0]], axis=1)
    origin = np.repeat(points[facets.connectivity[facets.offsets[:-1]]], facets.sizes, axis=0)
    here = points[facets.connectivity] - origin
    return 0.5 * sum_rows(np.cross(here, next_in_row(here, facets.offsets)), facets.offsets)


def signed_volumes(
    points: Float[np.ndarray, "points space"],
    connectivity: Int64[np.ndarray, " entries"],
    offsets: Int64[np.ndarray, " cells+1"],
    cell_types: UInt8[np.ndarray, " cells"],
    polyhedron_faces: Facets | None = None,
) -> Float[np.ndarray, " cells"]:
    """Area (plane) or volume (space) of every cell, negative where it is inside out.

    The volume is the sum over facets of centre . area / 3: facets that are not flat count as the fan of triangles
    around their mean point, so that the cells of a mesh add up to the body they fill.
    """
    if points.shape[1] == 2:
        here = points[connectivity] - np.repeat(points[connectivity[offsets[:-1]]], np.diff(offsets), axis=0)
        after = next_in_row(here, offsets)
        return 0.5 * sum_rows(here[:, 0] * after[:, 1] - here[:, 1] * after[:, 0], offsets)
    volumes = np.zeros(len(cell_types))
    for code in np.unique(cell_types[cell_types != POLYHEDRON]):
        cell_type = CELL_TYPES[int(code)]
        cells = np.flatnonzero(cell_types == code)
        corners = points[connectivity[offsets[cells][:, None] + np.arange(cell_type.number_of_points)]]
        corners -= corners[:, :1].copy()
        for facet in cell_type.facets:
            polygon = corners[:, facet]
            # Fanned from the first corner: one cross product fewer than all around.
            spokes = polygon[:, 1:] - polygon[:, :1]
            area = np.cross(spokes[:, :-1], spokes[:, 1:]).sum(axis=1)
            volumes[cells] += np.einsum("ci,ci->c", polygon.mean(axis=1), area) / 6
    if polyhedron_faces is not None:
        volumes += face_sums(points, connectivity[offsets[:-1]], polyhedron_faces)
    return volumes


def face_sums(
    points: Float[np.ndarray, "points 3"], origins: Int64[np.ndarray, " cells"], faces: Facets
) -> Float[np.ndarray, " cells"]:
    """The sum over each cell's faces of centre . area / 3, with the cell's origin at one of its points."""
    centres = sum_rows(points[faces.connectivity], faces.offsets) / faces.sizes[:, None]
    centres -= points[origins[faces.cells]]
    contributions = np.einsum("fi,fi->f", centres, facet_areas(points, faces)) / 3
    return np.bincount(faces.cells, contributions, minlength=len(origins))
