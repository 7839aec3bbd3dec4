"""Checks of user input: cells in one layout and one orientation, errors that name the cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.mesh.cells import (
    CELL_TYPES,
    CODES,
    FLATTEST,
    HEXAHEDRON,
    HIGHER_ORDER,
    POLYGON,
    POLYHEDRON,
    PYRAMID,
    QUAD,
    TETRAHEDRON,
    TRIANGLE,
    WEDGE,
    Cells,
    Facets,
    connected,
    first_and_last_piece,
    in_ring_order,
    joined,
    next_in_row,
    offsets_of,
    pieces,
    reversed_rows,
    signed_volumes,
    take_rows,
    with_outward_faces,
)
from pennpde.mesh.formulas import parse_selection, points_chosen

CellsLike = Cells | Facets | np.ndarray | Tensor | Sequence | Mapping[str, Any]
PatchLike = Callable[[np.ndarray], np.ndarray] | np.ndarray | Tensor | Sequence[int] | str | Mapping[str, Any]

FARTHEST = 1e50
# Points of a plane mesh may leave the plane by this share of its width: what float32 files lose.
OUT_OF_PLANE = 1e-6


class NotConnectedError(ValueError):
    """A mesh falls into parts."""


def cells_from(given: CellsLike, cell_types: str | int | np.ndarray | None, space: int) -> Cells:
    """Cells in one layout, from any of the forms that `Mesh.from_arrays` takes. Nothing is checked but the form."""
    if isinstance(given, Cells):
        return given
    if isinstance(given, Facets):
        return _polyhedra(given)
    if isinstance(given, Mapping):
        if not given:
            raise ValueError("The mesh has no cells: the mapping of cells is empty.")
        return joined_cells([cells_from(rows, name, space) for name, rows in given.items()])
    code = None if cell_types is None or np.ndim(cell_types) else _code(cell_types)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, np.ndarray | Tensor) for part in given):
        connectivity, offsets = (np.asarray(array, dtype=np.int64) for array in given)
        number = len(offsets) - 1
        if cell_types is None:
            raise ValueError(
                "Connectivity and offsets do not determine the cell types; give cell_types, a code for each cell."
            )
        types = np.broadcast_to(np.asarray(cell_types if code is None else code, dtype=np.uint8), (number,)).copy()
        return Cells(connectivity, offsets, types)
    if code == POLYHEDRON:
        return _polyhedra(_nested_faces(given))
    if code == POLYGON and not isinstance(given, np.ndarray | Tensor):
        polygons = Facets.of(given)
        return Cells(polygons.connectivity, polygons.offsets, np.full(len(polygons), POLYGON, dtype=np.uint8))
    rows = np.asarray(given)
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(
            f"Cells are {rows.dtype} of shape {rows.shape}; give the indices of their points as integers of shape "
            "[cells, points of one cell], or several such arrays by name: {'quad': ..., 'triangle': ...}."
        )
    number, size = rows.shape
    if cell_types is None:
        code = _code_from_size(size, space)
    types = np.broadcast_to(np.asarray(cell_types if code is None else code, dtype=np.uint8), (number,)).copy()
    return Cells(rows.astype(np.int64).ravel(), size * np.arange(number + 1), types)


def _code(cell_type: str | int | np.ndarray | None) -> int:
    if isinstance(cell_type, str):
        if cell_type not in CODES:
            raise ValueError(f"Unknown cell type {cell_type!r}. Known are {', '.join(CODES)}.")
        return CODES[cell_type]
    return int(np.asarray(cell_type))


def _code_from_size(size: int, space: int) -> int:
    if space == 2:
        return {3: TRIANGLE, 4: QUAD}.get(size, POLYGON)
    sizes = {3: TRIANGLE, 4: TETRAHEDRON, 5: PYRAMID, 6: WEDGE, 8: HEXAHEDRON}
    if size not in sizes:
        raise ValueError(f"No cell in space has {size} points; name the cell type, as in {{'polygon': cells}}.")
    return sizes[size]


def _nested_faces(cells: Any) -> Facets:
    number_of_faces = np.fromiter(map(len, cells), np.int64, len(cells))
    faces = Facets.of(list(chain.from_iterable(cells)))
    return replace(faces, cells=np.repeat(np.arange(len(cells)), number_of_faces))


def _polyhedra(faces: Facets) -> Cells:
    """Polyhedra from their faces: each cell's points are those of its faces, sorted."""
    faces = faces.take(np.argsort(faces.cells, kind="stable"))
    cell = np.repeat(faces.cells, faces.sizes)
    order = np.lexsort((faces.connectivity, cell))
    pairs = np.stack([cell, faces.connectivity])[:, order]
    new = np.concatenate([[True], (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)])[: pairs.shape[1]]
    cell, connectivity = pairs[:, new]
    number = int(faces.cells.max(initial=-1)) + 1
    offsets = offsets_of(np.bincount(cell, minlength=number))
    return Cells(connectivity, offsets, np.full(number, POLYHEDRON, dtype=np.uint8), faces)


_SOLIDS = ((TETRAHEDRON, 3, 4, 0), (PYRAMID, 4, 4, 1), (WEDGE, 3, 2, 3), (HEXAHEDRON, 4, 0, 6))
"""Cells with one base: the corners of the base, the number of triangles and of quads."""


def solids(faces: Facets) -> Cells:
    """Cells from their faces, as seen from outside: tetrahedra, pyramids, wedges, hexahedra, and polyhedra.

    The base is the first face of its size. From each of its points one edge leads up, to the point above or to the top.

    Args:
        faces: of all cells, sorted by cell.
    """
    number = int(faces.cells.max(initial=-1)) + 1
    counts = [np.bincount(faces.cells[faces.sizes == size], minlength=number) for size in (3, 4)]
    kinds = np.stack([*counts, np.bincount(faces.cells, minlength=number)], axis=1)
    types, sizes = np.full(number, POLYHEDRON, np.uint8), np.zeros(number, np.int64)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for code, size, triangles, quads in _SOLIDS:
        points = CELL_TYPES[code].number_of_points or 0
        alike = (kinds == [triangles, quads, triangles + quads]).all(axis=1)
        own = faces.take(np.flatnonzero(alike[faces.cells]))
        start = own.connectivity.reshape(-1, 3 * triangles + 4 * quads)
        end = next_in_row(own.connectivity, own.offsets).reshape(start.shape)
        bases = np.flatnonzero(own.sizes == size)
        bases = bases[np.unique(own.cells[bases], return_index=True)[1]]
        below = own.connectivity[own.offsets[bases, None] + np.arange(size)]
        below = below[:, [0, *range(size - 1, 0, -1)]]  # VTK looks at it from inside
        leaves, above, whole = ~_among(below, end), [], np.ones(len(below), bool)
        for corner in below.T:
            up = leaves & (start == corner[:, None])
            above.append(end[np.arange(len(end)), up.argmax(axis=1)])
            whole &= up.sum(axis=1) == 1
        rows = np.stack([*below.T, *above][:points], axis=1)
        whole &= (np.diff(np.sort(rows, axis=1), axis=1) > 0).all(axis=1) & _among(rows, start).all(axis=1)
        found.append((np.flatnonzero(alike)[whole], rows[whole]))
        types[found[-1][0]], sizes[found[-1][0]] = code, points
    left = faces.take(np.flatnonzero(types[faces.cells] == POLYHEDRON))
    others, cells = np.unique(left.cells, return_inverse=True)
    polyhedra = _polyhedra(replace(left, cells=cells))
    sizes[others] = polyhedra.sizes
    offsets = offsets_of(sizes)
    connectivity = np.zeros(offsets[-1], np.int64)
    for chosen, rows in found:
        connectivity[offsets[chosen, None] + np.arange(rows.shape[1])] = rows
    connectivity[np.repeat(types == POLYHEDRON, sizes)] = polyhedra.connectivity
    return Cells(connectivity, offsets, types, left if len(left) else None)


def _among(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Which numbers of each row of a table are among those of the same row of another one."""
    return np.logical_or.reduce([numbers == column[:, None] for column in rows.T])


def joined_cells(parts: Sequence[Cells]) -> Cells:
    starts = offsets_of(np.array([len(part) for part in parts]))
    faces = [
        replace(part.polyhedron_faces, cells=part.polyhedron_faces.cells + start)
        for part, start in zip(parts, starts, strict=False)
        if part.polyhedron_faces is not None
    ]
    return Cells(
        np.concatenate([part.connectivity for part in parts]),
        offsets_of(np.concatenate([part.sizes for part in parts])),
        np.concatenate([part.types for part in parts]),
        joined(faces) if faces else None,
    )


def checked_points(points: np.ndarray | Tensor | Sequence) -> Float[Tensor, "points space"]:
    positions = torch.as_tensor(points if isinstance(points, Tensor) else np.asarray(points), dtype=torch.float64).cpu()
    if positions.ndim != 2 or positions.shape[1] not in (2, 3):
        raise ValueError(f"Points have shape {tuple(positions.shape)}; give one row of 2 or 3 coordinates for each.")
    wrong = torch.nonzero(~torch.isfinite(positions).all(dim=1)).flatten()
    if len(wrong):
        raise ValueError(
            f"{_named('Point', wrong.numpy())} not finite: point {wrong[0]} is at {positions[wrong[0]].tolist()}. "
            "Remove or repair it."
        )
    far = torch.nonzero((positions.abs() > FARTHEST).any(dim=1)).flatten()
    if len(far):
        raise ValueError(
            f"{_named('Point', far.numpy())} too far away: point {far[0]} is at {positions[far[0]].tolist()}, where "
            "volumes overflow. Remove or repair it, or take another unit of length."
        )
    return positions


def checked_cells(points: Float[Tensor, "points space"], cells: Cells) -> tuple[Tensor, Cells]:
    """Points and cells of a sound mesh.

    Plane cells come back counter-clockwise and with two coordinates, pixels as quads, voxels as hexahedra, wedges in
    VTK's present order, faces of polyhedra outward.

    Raises:
        ValueError: naming the cells or points that are wrong.
    """
    check_layout(cells, len(points))
    points = _in_the_plane(points) if cells.dimension == 2 else points
    positions = points.detach().numpy()
    if cells.dimension > positions.shape[1]:
        raise ValueError(f"{CELL_TYPES[int(cells.types[0])].name} cells need 3 coordinates; the points have 2.")
    cells = in_ring_order(cells)
    _check_points_apart(positions, cells)
    cells = with_outward_faces(positions, cells)
    cells = _oriented(positions, cells)
    _check_connected(cells, len(points))
    return points, cells


def check_layout(cells: Cells, number_of_points: int) -> None:
    """Refuse numbers that point outside of their arrays, and cells that have not the points of their type."""
    if len(cells) == 0:
        raise ValueError("The mesh has no cells.")
    if len(cells.offsets) != len(cells) + 1:
        raise ValueError(f"There are {len(cells)} cell types for {len(cells.offsets) - 1} cells.")
    if cells.offsets[0] != 0 or cells.offsets[-1] != len(cells.connectivity) or (cells.sizes < 0).any():
        raise ValueError(
            f"The offsets of the cells run from {cells.offsets[0]} to {cells.offsets[-1]}; they must rise from 0 to "
            f"the {len(cells.connectivity)} entries of the connectivity."
        )
    unknown = np.setdiff1d(cells.types, list(CELL_TYPES))
    if unknown.size:
        first = np.flatnonzero(cells.types == unknown[0])[0]
        if int(unknown[0]) in HIGHER_ORDER:
            raise ValueError(
                f"Cell {first} is of second or higher order (VTK's cell type {unknown[0]}). Mesh.read and "
                "Mesh.from_pyvista make it linear with repair=True, the command without --no-repair and --strict."
            )
        raise ValueError(
            f"Cell {first} has VTK's cell type {unknown[0]}; known are "
            f"{', '.join(f'{cell_type.name} ({code})' for code, cell_type in CELL_TYPES.items())}."
        )
    dimensions = {CELL_TYPES[int(code)].dimension for code in np.unique(cells.types)}
    if len(dimensions) > 1:
        raise ValueError("The mesh mixes plane cells with cells in space; keep the cells of one dimension.")
    for code in np.unique(cells.types):
        cell_type = CELL_TYPES[int(code)]
        wanted = cell_type.number_of_points
        sizes = np.where(cells.types == code, cells.sizes, wanted or 3)
        wrong = np.flatnonzero(sizes != wanted if wanted else sizes < 3)
        if wrong.size:
            raise ValueError(
                f"Cell {wrong[0]} is a {cell_type.name} of {sizes[wrong[0]]} points; "
                f"it must have {wanted or 'at least 3'}."
            )
    if (cells.types == POLYHEDRON).any() and cells.polyhedron_faces is None:
        raise ValueError(
            "Polyhedra need their faces: give {'polyhedron': [[face, face, ...], ...]} with the points of each face."
        )
    wrong = np.flatnonzero((cells.connectivity < 0) | (cells.connectivity >= number_of_points))
    if wrong.size:
        cell = np.searchsorted(cells.offsets, wrong[0], side="right") - 1
        raise ValueError(
            f"Cell {cell} names point {cells.connectivity[wrong[0]]}; the mesh has points 0 to {number_of_points - 1}."
        )


def _in_the_plane(points: Float[Tensor, "points space"]) -> Float[Tensor, "points 2"]:
    if points.shape[1] == 2:
        return points
    positions = points.detach().numpy()
    width = np.ptp(positions, axis=0).max()
    if np.ptp(positions[:, 2]) <= OUT_OF_PLANE * width:
        return points[:, :2]
    centred = positions - positions.mean(axis=0)
    axes = np.linalg.eigh(centred.T @ centred / len(centred))[1]
    if np.abs(centred @ axes[:, 0]).max() <= OUT_OF_PLANE * width:
        normal = np.round(axes[:, 0], 6)
        raise ValueError(
            f"The cells are plane but lie in a tilted plane with normal {normal.tolist()}. Turn the mesh so that z is "
            "constant; its x and y become the two coordinates."
        )
    raise ValueError(
        "The cells are plane but do not lie in one plane: this is a curved surface. Meshes are either plane "
        "(z constant) or made of cells that fill space."
    )


def _check_points_apart(positions: np.ndarray, cells: Cells) -> None:
    """Refuse cells that name a point twice or two points in the same place: neighbours must have a distance."""
    order = np.lexsort(positions.T)
    moved = (positions[order[1:]] != positions[order[:-1]]).any(axis=1)
    place = np.empty(len(positions), dtype=np.int64)
    place[order] = offsets_of(moved)
    keys = np.repeat(np.arange(len(cells)), cells.sizes) * len(positions) + place[cells.connectivity]
    keys.sort()
    repeated = np.unique(keys[1:][keys[1:] == keys[:-1]] // len(positions))
    if repeated.size:
        cell = repeated[0]
        points = cells.connectivity[cells.offsets[cell] : cells.offsets[cell + 1]]
        raise ValueError(
            f"{_named('Cell', repeated)} degenerate: two points of cell {cell} ({points.tolist()}) are in the same "
            "place. Merge the points and give the cell the type that it then has, or remove it."
        )


def _oriented(positions: np.ndarray, cells: Cells) -> Cells:
    volumes = signed_volumes(positions, cells)
    space = positions.shape[1]
    # No cell is wider than the mesh, so that few need their own width.
    suspects = np.flatnonzero(np.abs(volumes) <= FLATTEST * np.ptp(positions, axis=0).max() ** space)
    points, offsets = take_rows(cells.connectivity, cells.offsets, suspects)
    if suspects.size:
        corners = positions[points]
        highest, lowest = np.maximum.reduceat(corners, offsets[:-1]), np.minimum.reduceat(corners, offsets[:-1])
        flat = suspects[np.abs(volumes[suspects]) <= FLATTEST * (highest - lowest).max(axis=1) ** space]
        if flat.size:
            measure = "area" if space == 2 else "volume"
            raise ValueError(
                f"{_named('Cell', flat)} degenerate: cell {flat[0]} ({_described(cells, flat[0])}) has {measure} "
                f"{volumes[flat[0]]:.3g}. Check the order of its points, or remove it."
            )
    negative = volumes < 0
    if space == 2:
        return replace(cells, connectivity=reversed_rows(cells.connectivity, cells.offsets, negative))
    connectivity = cells.connectivity
    if (turned := negative & (cells.types == WEDGE)).any():
        # Not an error: VTK before 9.6 and after disagree on which way a wedge's first triangle looks.
        connectivity = connectivity.copy()
        rows = cells.offsets[:-1][turned][:, None]
        connectivity[rows + np.arange(6)] = connectivity[rows + np.array(CELL_TYPES[WEDGE].mirrored)]
    inverted = np.flatnonzero(negative & ~turned)
    if inverted.size:
        raise ValueError(
            f"{_named('Cell', inverted)} inverted: cell {inverted[0]} ({_described(cells, inverted[0])}) has volume "
            f"{volumes[inverted[0]]:.3g}. Give its points in VTK's order, which here may be that of "
            f"cells[:, {list(CELL_TYPES[int(cells.types[inverted[0]])].mirrored)}]."
        )
    return replace(cells, connectivity=connectivity)


def _check_connected(cells: Cells, number_of_points: int) -> None:
    unused = np.flatnonzero(np.bincount(cells.connectivity, minlength=number_of_points) == 0)
    if unused.size:
        raise ValueError(
            f"{_named('Point', unused)} in no cell. Remove such points: Mesh.read does with repair=True, and "
            "PyVista's dataset.clean()."
        )
    following = next_in_row(cells.connectivity, cells.offsets)
    number, part = connected(np.stack([cells.connectivity, following]), number_of_points)
    if number > 1:
        other = np.flatnonzero(part != part[0])[0]
        raise NotConnectedError(
            f"The mesh falls into {number} parts that share no point: point {other} cannot be reached from point 0. "
            "Merge points that coincide (PyVista: dataset.clean()), or make one mesh for each part."
        )


def check_one_piece(points: Float[Tensor, "points space"], cells: Cells, facets: Facets, pairs: np.ndarray) -> None:
    """Refuse parts that touch in points or edges without sharing a side: nothing can flow from one to the other.

    Args:
        points: positions.
        cells: of the mesh.
        facets: of all cells.
        pairs: of those facets that two cells share.
    """
    number, piece = pieces(cells, facets, pairs)
    if number == 1:
        return
    first, last = first_and_last_piece(cells, piece, len(points))
    shared = np.flatnonzero(first != last)
    side = "edge" if points.shape[1] == 2 else "face"
    raise NotConnectedError(
        f"The mesh falls into {number} parts that touch only in points: {_named('Point', shared)} shared, the first "
        f"at {points[shared[0]].tolist()}, and no whole {side} is. Make one mesh for each part, or connect their cells "
        f"{side} by {side} (no point within the {side} of another cell)."
    )


def patch_points(
    name: str,
    given: PatchLike,
    positions: Float[np.ndarray, "points space"],
    boundary_points: Int64[np.ndarray, " boundary_points"],
    fields: Mapping[str, Tensor],
) -> Int64[np.ndarray, " patch_points"]:
    """The points of a patch, from any of the forms that `Mesh.with_patches` takes."""
    if isinstance(given, Mapping):
        given = points_chosen(given, name, positions.shape[1], fields)
    elif isinstance(given, str) and given not in fields:
        if given.isidentifier():
            raise KeyError(
                f"Patch {name!r} is to be taken from the field {given!r}, which the mesh does not have. "
                f"Its fields: {', '.join(fields) or 'none'}."
            )
        given = parse_selection(given)
    if callable(given):
        chosen = np.asarray(given(positions[boundary_points]))
        if chosen.shape != boundary_points.shape or chosen.dtype != bool:
            raise ValueError(
                f"The test of patch {name!r} returned {chosen.dtype} of shape {chosen.shape} for positions of shape "
                f"{positions[boundary_points].shape}; it must return one bool for each position."
            )
        points, reason = boundary_points[chosen], "its test holds at no boundary point"
    elif isinstance(given, str):
        points, reason = np.flatnonzero(np.asarray(fields[given])), f"the field {given!r} is zero everywhere"
    else:
        points, reason = _listed_points(name, np.asarray(given), len(positions)), "it was given no points"
    if points.size == 0:
        low, high = positions.min(axis=0).tolist(), positions.max(axis=0).tolist()
        raise ValueError(
            f"Patch {name!r} is empty: {reason}. The mesh spans {low} to {high}; compare positions with np.isclose "
            "rather than ==."
        )
    return points


def _listed_points(name: str, given: np.ndarray, number_of_points: int) -> Int64[np.ndarray, " patch_points"]:
    if given.dtype == bool and given.shape == (number_of_points,):
        return np.flatnonzero(given)
    if given.ndim != 1 or not (given.size == 0 or np.issubdtype(given.dtype, np.integer)):
        raise ValueError(
            f"Patch {name!r} is given as {given.dtype} of shape {given.shape}; give a test on positions, a list of "
            f"point indices, or one bool for each of the {number_of_points} points."
        )
    points = np.unique(given.astype(np.int64))
    outside = points[(points < 0) | (points >= number_of_points)]
    if outside.size:
        raise ValueError(f"Patch {name!r} names point {outside[0]}; the mesh has points 0 to {number_of_points - 1}.")
    return points


def _described(cells: Cells, cell: int) -> str:
    points = cells.connectivity[cells.offsets[cell] : cells.offsets[cell + 1]]
    return f"{CELL_TYPES[int(cells.types[cell])].name} of points {points.tolist()}"


def _named(kind: str, indices: np.ndarray) -> str:
    if len(indices) == 1:
        return f"{kind} {indices[0]} is"
    shown = ", ".join(str(index) for index in indices[:5])
    return f"{kind}s {shown}{', ...' if len(indices) > 5 else ''} ({len(indices)} in all) are"
