"""Cells in space split into smaller ones: the points of the mesh stay, middles of edges, faces and cells come after.

Tetrahedra, prisms and hexahedra become eight each, pyramids six pyramids and four tetrahedra, facets of the boundary
four. Polyhedra become tetrahedra and pyramids around their centre, on faces of more than four corners around the
centre of the face, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array

from pennpde.mesh.cells import CELL_TYPES, HEXAHEDRON, POLYHEDRON, PYRAMID, TETRAHEDRON, WEDGE, mean_rows, take_rows
from pennpde.mesh.mesh import Mesh

_KINDS = {TETRAHEDRON: 4, PYRAMID: 5, WEDGE: 6, HEXAHEDRON: 8}
"""With their numbers of corners."""
_FLATTEST = 1e-6
"""Of a part of a polyhedron, as a share of the mean part: the centre must see every face from inside."""

EDGES = {
    4: tuple(combinations(range(4), 2)),
    5: ((0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4), (2, 4), (3, 4)),
    6: ((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (0, 3), (1, 4), (2, 5)),
    8: (
        *((0, 1), (1, 2), (2, 3), (0, 3)),
        *((4, 5), (5, 6), (6, 7), (4, 7)),
        *((0, 4), (1, 5), (2, 6), (3, 7)),
    ),
}
"""Of a cell by its number of corners: pairs of these."""


@dataclass(frozen=True, eq=False)
class SpaceCells:
    """Cells and boundary facets of a domain in space.

    Attributes:
        points: positions.
        groups: corners of tetrahedra, pyramids, prisms and hexahedra, in VTK's order.
        facets: of the boundary, outward; of triangles the last corner counts twice.
        owner: the facet of the mesh that each of them is a part of.
        parents: a matrix that makes of values at the points before splitting those at the points.
    """

    points: Float[np.ndarray, "points 3"]
    groups: tuple[Int64[np.ndarray, "_ _"], ...]
    facets: Int64[np.ndarray, "facets 4"]
    owner: Int64[np.ndarray, " facets"]
    parents: csr_array

    @staticmethod
    def of(mesh: Mesh) -> SpaceCells:
        """The cells of a mesh in space. Centres of faces and of polyhedra come after its points."""
        points = mesh.points.detach().cpu().numpy().astype(float)
        groups = []
        for kind, size in _KINDS.items():
            chosen = np.flatnonzero(mesh.cell_types == kind)
            groups.append(mesh.connectivity[mesh.offsets[:-1][chosen, None] + np.arange(size)])
        facets, sizes = mesh.facets, mesh.facets.sizes
        if not (mesh.cell_types == POLYHEDRON).any():
            table, owner = np.empty((len(sizes), 4), np.int64), np.arange(len(sizes))
            for size in (3, 4):
                chosen = np.flatnonzero(sizes == size)
                rows = take_rows(facets.connectivity, facets.offsets, chosen)[0].reshape(-1, size)
                table[chosen] = rows[:, [0, 1, 2, size - 1]]
            return SpaceCells(points, tuple(groups), table, owner, _identity(len(points)))
        return _with_polyhedra(mesh, points, groups)

    def split(self) -> SpaceCells:
        """Each cell into eight; pyramids into ten."""
        tetrahedra, pyramids, prisms, hexahedra = self.groups
        number = len(self.points)
        edges = _Rows.of([cells[:, pair] for cells in self.groups for pair in EDGES[cells.shape[1]]], number)
        quads = [
            cells[:, facet]
            for cells, kind in zip(self.groups, _KINDS, strict=True)
            for facet in CELL_TYPES[kind].facets
            if len(facet) == 4
        ]
        faces = _Rows.of(quads, number + len(edges.corners))
        after = faces.start + len(faces.corners)
        centres = after + np.arange(len(hexahedra))

        def mid(cells: np.ndarray, one: int, other: int) -> np.ndarray:
            return edges.place(cells[:, [one, other]])

        small_tetrahedra = [*_of_tetrahedra(self._positions(edges), tetrahedra, mid)]
        small_pyramids = []
        if len(pyramids):
            more, small_pyramids = _of_pyramids(pyramids, mid, faces.place(pyramids[:, :4]))
            small_tetrahedra += more
        made = (
            _together(small_tetrahedra, 4),
            _together(small_pyramids, 5),
            _together(_of_prisms(prisms, mid, faces) if len(prisms) else [], 6),
            _together(_of_hexahedra(hexahedra, mid, faces, centres) if len(hexahedra) else [], 8),
        )
        parents = _means([edges.corners, faces.corners, hexahedra], number)
        facets, bent = self.facets, self.facets[:, 2] != self.facets[:, 3]
        sides = [edges.place(facets[:, [one, other]]) for one, other in ((0, 1), (1, 2), (2, 3), (3, 0), (2, 0))]
        centre = np.where(bent, faces.place(facets), 0)
        return SpaceCells(
            parents @ self.points,
            made,
            _parts([*facets.T], sides, centre, ~bent).reshape(-1, 4),
            np.repeat(self.owner, 4),
            parents,
        )

    def _positions(self, edges: _Rows) -> Float[np.ndarray, "points 3"]:
        return np.concatenate([self.points, self.points[edges.corners].mean(axis=1)])


def quartered(
    values: Float[np.ndarray, "facets 4 *axes"],
    heights: Float[np.ndarray, "facets 4 *axes"],
    facets: Int64[np.ndarray, "facets 4"],
) -> tuple[Float[np.ndarray, "parts 4 *axes"], Float[np.ndarray, "parts 4 *axes"]]:
    """Values at the corners of facets, and heights of the parabolas along their sides, for the four parts of each.

    A height is what a value in the middle of a side has above the mean of its ends.
    """
    (a, b, c, d), (ab, bc, cd, da) = np.moveaxis(values, 1, 0), np.moveaxis(heights, 1, 0)
    middles = [
        0.5 * (one + other) + above
        for one, other, above in ((a, b, ab), (b, c, bc), (c, d, cd), (d, a, da), (c, a, da))
    ]
    triangular = facets[:, 2] == facets[:, 3]
    centre = 0.25 * (a + b + c + d) + 0.5 * heights.sum(axis=1)
    along, up, none = 0.5 * (ab + cd), 0.5 * (bc + da), np.zeros_like(ab)
    of_triangles = (ab, bc, none, da), (ab, bc, none, da), (ab, bc, none, da), (da, ab, none, bc)
    of_quads = (ab, up, along, da), (ab, bc, along, up), (along, bc, cd, up), (along, up, cd, da)
    parts = _parts((a, b, c, d), middles, centre, triangular)
    return (
        parts.reshape(-1, *values.shape[1:]),
        0.25 * _either(of_triangles, of_quads, triangular).reshape(-1, *values.shape[1:]),
    )


def _parts(
    corners: Sequence[np.ndarray], sides: Sequence[np.ndarray], centre: np.ndarray, triangular: np.ndarray
) -> np.ndarray:
    """The four parts of facets, by their corners; of triangles with the last corner twice.

    Args:
        corners: Numbers of points, or values there.
        sides: The same in the middle between corners that follow each other, and between the third and the first.
        centre: The same there.
        triangular: Which of them are triangles.
    """
    (a, b, c, d), (ab, bc, cd, da, ca) = corners, sides
    of_triangles = (a, ab, ca, ca), (ab, b, bc, bc), (ca, bc, c, c), (ab, bc, ca, ca)
    of_quads = (a, ab, centre, da), (ab, b, bc, centre), (centre, bc, c, cd), (da, centre, cd, d)
    return _either(of_triangles, of_quads, triangular)


def _either(
    of_triangles: Sequence[Sequence[np.ndarray]], of_quads: Sequence[Sequence[np.ndarray]], triangular: np.ndarray
) -> np.ndarray:
    made = [np.stack([np.stack(part, axis=1) for part in each], axis=1) for each in (of_triangles, of_quads)]
    return np.where(triangular.reshape(-1, *[1] * (made[0].ndim - 1)), *made)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Edges or faces by their corners, each once, with a new point in the middle of each."""

    corners: Int64[np.ndarray, "rows size"]
    keys: np.ndarray
    start: int
    """The number of the first new point."""

    @staticmethod
    def of(found: list[np.ndarray], start: int) -> _Rows:
        rows = np.concatenate([each for each in found if len(each)] or [np.zeros((0, 2), np.int64)])
        keys, first = np.unique(_keys(rows), return_index=True)
        return _Rows(rows[first], keys, start)

    def place(self, rows: Int64[np.ndarray, "rows size"]) -> Int64[np.ndarray, " rows"]:
        """The new points in the middle of edges or faces."""
        return self.start + np.minimum(np.searchsorted(self.keys, _keys(rows)), max(len(self.keys) - 1, 0))


def _keys(rows: np.ndarray) -> np.ndarray:
    """The same number for the same corners: of a face, its smallest and the one opposite or next in size tell it."""
    ordered = np.sort(rows, axis=1)
    return (ordered[:, 0] << np.int64(42)) ^ (ordered[:, 1] << np.int64(21)) ^ ordered[:, min(2, rows.shape[1] - 1)]


def _together(parts: list[np.ndarray], size: int) -> Int64[np.ndarray, "cells size"]:
    return np.concatenate(parts) if parts else np.zeros((0, size), np.int64)


def _identity(number: int) -> csr_array:
    return _means([], number)


def _means(rows: list[np.ndarray], number: int) -> csr_array:
    """The values at the points, then their means over each row of corners."""
    rows = [each for each in rows if len(each)]
    counts = np.concatenate([np.ones(number, np.int64), *(np.full(len(each), each.shape[1]) for each in rows)])
    columns = np.concatenate([np.arange(number), *(each.ravel() for each in rows)])
    starts = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((np.repeat(1.0 / counts, counts), columns, starts), shape=(len(counts), number))


def _of_tetrahedra(points: np.ndarray, cells: np.ndarray, mid) -> list[np.ndarray]:
    """Four at the corners; the octahedron between them is cut along its shortest diagonal."""
    if not len(cells):
        return []
    middles = {pair: mid(cells, *pair) for pair in EDGES[4]}
    corners = [
        np.stack([cells[:, corner], *(middles[min(corner, o), max(corner, o)] for o in range(4) if o != corner)], 1)
        for corner in range(4)
    ]
    diagonals = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    lengths = np.stack(
        [np.linalg.norm(points[middles[one]] - points[middles[other]], axis=1) for one, other in diagonals], 1
    )
    # Of as good as equal ones the first, whichever way rounding has turned them.
    shortest = (lengths <= 1.000001 * lengths.min(axis=1, keepdims=True)).argmax(axis=1)
    inner = []
    for place, (one, other) in enumerate(diagonals):
        chosen = shortest == place
        around = [middles[pair][chosen] for each in diagonals if each != (one, other) for pair in each]
        # Around the diagonal: two that are opposite to each other are not neighbours.
        ring = [around[0], around[2], around[1], around[3]]
        ends = middles[one][chosen], middles[other][chosen]
        inner += [np.stack([*ends, ring[k], ring[(k + 1) % 4]], 1) for k in range(4)]
    return [*corners, *inner]


def _of_pyramids(cells: np.ndarray, mid, centre: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    base, top = [mid(cells, k, (k + 1) % 4) for k in range(4)], [mid(cells, k, 4) for k in range(4)]
    pyramids = [np.stack([cells[:, k], base[k], centre, base[k - 1], top[k]], 1) for k in range(4)]
    pyramids.append(np.stack([*top, cells[:, 4]], 1))
    pyramids.append(np.stack([*top[::-1], centre], 1))
    tetrahedra = [np.stack([base[k], top[(k + 1) % 4], top[k], centre], 1) for k in range(4)]
    return tetrahedra, pyramids


def _of_prisms(cells: np.ndarray, mid, faces: _Rows) -> list[np.ndarray]:
    sides = {(k, (k + 1) % 3): faces.place(cells[:, [k, (k + 1) % 3, (k + 1) % 3 + 3, k + 3]]) for k in range(3)}
    across = [sides[k, (k + 1) % 3] for k in range(3)]
    upright = [mid(cells, k, k + 3) for k in range(3)]
    layers = []
    for shift in (0, 3):
        ends = [cells[:, k + shift] for k in range(3)]
        middles = [mid(cells, k + shift, (k + 1) % 3 + shift) for k in range(3)]
        layers.append((ends, middles))
    layers.insert(1, (upright, across))
    parts = []
    for (low_ends, low), (high_ends, high) in pairwise(layers):
        for k in range(3):
            parts.append(np.stack([low_ends[k], low[k], low[k - 1], high_ends[k], high[k], high[k - 1]], 1))
        parts.append(np.stack([*low, *high], 1))
    return parts


def _of_hexahedra(cells: np.ndarray, mid, faces: _Rows, centres: np.ndarray) -> list[np.ndarray]:
    upright = [mid(cells, k, k + 4) for k in range(4)]
    sides = [faces.place(cells[:, [k, (k + 1) % 4, (k + 1) % 4 + 4, k + 4]]) for k in range(4)]
    layers = []
    for shift in (0, 4):
        ends = [cells[:, k + shift] for k in range(4)]
        middles = [mid(cells, k + shift, (k + 1) % 4 + shift) for k in range(4)]
        layers.append((ends, middles, faces.place(cells[:, shift : shift + 4])))
    layers.insert(1, (upright, sides, centres))
    return [
        np.stack([e[k], m[k], c, m[k - 1], above_e[k], above_m[k], above_c, above_m[k - 1]], 1)
        for (e, m, c), (above_e, above_m, above_c) in pairwise(layers)
        for k in range(4)
    ]


def _with_polyhedra(mesh: Mesh, points: np.ndarray, groups: list[np.ndarray]) -> SpaceCells:
    """With a point in each polyhedron and on each of its faces of more than four corners."""
    faces = mesh.polyhedron_faces
    assert faces is not None
    number, owners = len(points), np.unique(faces.cells)
    many = np.flatnonzero(faces.sizes > 4)
    rows = [
        np.sort(take_rows(faces.connectivity, faces.offsets, many[k : k + 1])[0]).tobytes() for k in range(len(many))
    ]
    known = {row: k for k, row in enumerate(dict.fromkeys(rows))}
    on_faces = np.full(len(faces), -1)
    on_faces[many] = [number + known[row] for row in rows]
    first = {known[row]: place for row, place in zip(reversed(rows), reversed(many), strict=True)}
    means = mean_rows(points[faces.connectivity], faces.offsets)
    centre_of = np.full(mesh.number_of_cells, -1)
    centre_of[owners] = number + len(known) + np.arange(len(owners))
    in_cells = np.stack([np.bincount(faces.cells, column, mesh.number_of_cells)[owners] for column in means.T], 1)
    in_cells /= np.bincount(faces.cells, minlength=mesh.number_of_cells)[owners, None]
    on = means[[first[k] for k in range(len(known))]].reshape(-1, 3)
    all_points = np.concatenate([points, on, in_cells])
    tetrahedra, pyramids = [groups[0]], [groups[1]]
    for size in (3, 4):
        chosen = np.flatnonzero(faces.sizes == size)
        corners = take_rows(faces.connectivity, faces.offsets, chosen)[0].reshape(-1, size)[:, ::-1]
        (tetrahedra if size == 3 else pyramids).append(np.column_stack([corners, centre_of[faces.cells[chosen]]]))
    for face in many:
        corners = faces.connectivity[faces.offsets[face] : faces.offsets[face + 1]]
        top = np.full(len(corners), centre_of[faces.cells[face]])
        tetrahedra.append(np.stack([np.roll(corners, -1), corners, np.full(len(corners), on_faces[face]), top], 1))
    made = np.concatenate(tetrahedra), np.concatenate(pyramids)
    _refuse_hollow(all_points, made[0][len(groups[0]) :], made[1][len(groups[1]) :])
    facets, owner = [], []
    for k, size in enumerate(mesh.facets.sizes):
        corners = mesh.facets.connectivity[mesh.facets.offsets[k] : mesh.facets.offsets[k + 1]]
        if size > 4:
            centre = number + known[np.sort(corners).tobytes()]
            facets += [[one, other, centre, centre] for one, other in zip(corners, np.roll(corners, -1), strict=True)]
        else:
            facets.append(corners[[0, 1, 2, size - 1]].tolist())
        owner += [k] * (size if size > 4 else 1)
    # The start at the new points: means of the points around, as far as the face's; of polyhedra all points.
    own_rows = [mesh.connectivity[mesh.offsets[cell] : mesh.offsets[cell + 1]] for cell in owners]
    face_rows = [faces.connectivity[faces.offsets[first[k]] : faces.offsets[first[k] + 1]] for k in range(len(known))]
    counts = np.array([1] * number + [len(row) for row in (*face_rows, *own_rows)])
    columns = np.concatenate([np.arange(number), *face_rows, *own_rows])
    parents = csr_array(
        (np.repeat(1.0 / counts, counts), columns, np.concatenate([[0], np.cumsum(counts)])),
        shape=(len(counts), number),
    )
    return SpaceCells(all_points, (*made, groups[2], groups[3]), np.array(facets), np.array(owner), parents)


def _refuse_hollow(points: np.ndarray, tetrahedra: np.ndarray, pyramids: np.ndarray) -> None:
    halves = np.concatenate([tetrahedra, pyramids[:, [0, 1, 2, 4]], pyramids[:, [0, 2, 3, 4]]])
    a, b, c, d = points[halves].transpose(1, 0, 2)
    volumes = np.einsum("ci,ci->c", np.cross(b - a, c - a), d - a)
    bad = np.flatnonzero(volumes < _FLATTEST * max(float(volumes.mean()), 0.0))
    if len(bad):
        where = points[halves[bad[0]]].mean(axis=0)
        raise ValueError(
            f"A polyhedron at {where.round(6).tolist()} is not convex enough to be cut into tetrahedra around its "
            f"centre ({len(bad)} of their parts are inside out). Improve that cell in the mesher, or mesh with "
            "tetrahedra, prisms or hexahedra."
        )
