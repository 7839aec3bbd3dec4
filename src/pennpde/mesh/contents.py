"""What a file or a dataset says about a mesh, unchecked: points, cells, fields and named parts of the boundary.

And what is mended in meshes as other programs write them, each with a note: see docs/meshes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int64

from pennpde.mesh.cells import (
    CELL_TYPES,
    HIGHER_ORDER,
    POINTS_AND_LINES,
    QUADRATIC_POLYGON,
    Cells,
    Facets,
    cell_facets,
    connected,
    facet_keys,
    first_and_last_piece,
    in_ring_order,
    matched,
    offsets_of,
    pieces,
    take_rows,
)

_SAME_PLACE = 1e-9
"""Points nearer than this share of the mesh's size are at the same place: what is left of numbers written as text."""


def _table(values: Mapping[int, int | None]) -> Int64[np.ndarray, " codes"]:
    return np.array([values.get(code) or 0 for code in range(256)], dtype=np.int64)


_LINES = POINTS_AND_LINES[3:]
_SOLID_OR_PLANE = {code: CELL_TYPES[HIGHER_ORDER.get(code, code)] for code in (*CELL_TYPES, *HIGHER_ORDER)}
_DIMENSION = _table(dict.fromkeys(_LINES, 1) | {code: known.dimension for code, known in _SOLID_OR_PLANE.items()})
_CORNERS = _table(dict.fromkeys(_LINES, 2) | {code: known.number_of_points for code, known in _SOLID_OR_PLANE.items()})


@dataclass(frozen=True, eq=False)
class Contents:
    """What a dataset says about a mesh.

    Attributes:
        patch_points: one bool for each point, by name of the patch.
        patch_facets: indices into the mesh's exterior facets, for patches whose facets were chosen one by one.
        chosen_facets: the facets of patches that a file lists as cells of their own.
        notes: what was changed since it was read, in words for the user.
        facts: to be written as field data: texts, or a few numbers.
        cell_fields: values in the cells, in their order, which repairs do not change.
        time: at which the fields are; None where the file does not say.
    """

    points: Float[np.ndarray, "points space"]
    cells: Cells
    fields: Mapping[str, np.ndarray] = field(default_factory=dict)
    patch_points: Mapping[str, np.ndarray] = field(default_factory=dict)
    patch_facets: Mapping[str, np.ndarray] = field(default_factory=dict)
    chosen_facets: Mapping[str, Facets] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str | Sequence[float]] = field(default_factory=dict)
    cell_fields: Mapping[str, np.ndarray] = field(default_factory=dict)
    time: float | None = None


def from_elements(
    points: Float[np.ndarray, "points space"],
    elements: Cells,
    groups: Mapping[str, Int64[np.ndarray, " members"]],
    patch_points: Mapping[str, np.ndarray] | None = None,
) -> Contents:
    """The contents of a file that lists cells and pieces of the boundary together, as mesh generators write it.

    The cells are the elements of the highest dimension. A group becomes a patch of its elements of one dimension less;
    its other elements are left out.

    Args:
        points: positions.
        elements: of any dimension, with VTK's codes.
        groups: indices into the elements, by name.
        patch_points: patches that the file gives by their points.
    """
    dimensions = dimensions_of(elements.types)
    highest = int(dimensions.max(initial=0))
    kept = _listed_once(elements, np.flatnonzero(dimensions == highest) if highest >= 2 else np.zeros(0, np.int64))
    cells = Cells(*take_rows(elements.connectivity, elements.offsets, kept), elements.types[kept])
    patches = {}
    for name, members in groups.items():
        facets = members[dimensions[members] == highest - 1]
        if len(facets):
            patches[name] = _corners(elements, facets)
    return Contents(points, cells, chosen_facets=patches, patch_points=patch_points or {})


def _listed_once(elements: Cells, chosen: Int64[np.ndarray, " chosen"]) -> Int64[np.ndarray, " kept"]:
    """Without copies: some programs list a cell once for each group that it belongs to."""
    if len(chosen) == 0:
        return chosen
    rows = Facets(elements.connectivity, elements.offsets, np.zeros(len(elements), dtype=np.int64)).take(chosen)
    keys = facet_keys(rows, int(rows.connectivity.max(initial=0)) + 1)
    return chosen[np.sort(np.unique(keys, return_index=True)[1])]


def dimensions_of(types: np.ndarray) -> Int64[np.ndarray, " cells"]:
    """The dimension of each of VTK's cell types; 0 for unknown ones, which checks refuse by their number."""
    return _DIMENSION[types]


def corners_of(types: np.ndarray, sizes: np.ndarray) -> Int64[np.ndarray, " cells"]:
    """How many of a cell's points are its corners."""
    corners = np.where(types == QUADRATIC_POLYGON, sizes // 2, _CORNERS[types])
    return np.where(corners == 0, sizes, np.minimum(corners, sizes))


def _corners(elements: Cells, chosen: Int64[np.ndarray, " chosen"]) -> Facets:
    rows = Facets(elements.connectivity, elements.offsets, np.zeros(len(elements), dtype=np.int64)).take(chosen)
    return first_of_rows(rows, corners_of(elements.types[chosen], rows.sizes))


def first_of_rows(rows: Facets, sizes: Int64[np.ndarray, " rows"]) -> Facets:
    """The first so many points of each row."""
    place = np.arange(len(rows.connectivity)) - np.repeat(rows.offsets[:-1], rows.sizes)
    kept = place < np.repeat(sizes, rows.sizes)
    return Facets(rows.connectivity[kept], offsets_of(sizes), rows.cells)


# Repairs


def first_order(contents: Contents) -> Contents:
    """Cells of higher order as those that their corners make. Patches and fields keep their values at corners."""
    cells = contents.cells
    higher = np.isin(cells.types, list(HIGHER_ORDER))
    if not higher.any() or not _is_in_order(contents):
        return contents
    sizes = np.where(higher, corners_of(cells.types, cells.sizes), cells.sizes)
    rows = first_of_rows(Facets(cells.connectivity, cells.offsets, np.zeros(len(cells), np.int64)), sizes)
    types = np.array([HIGHER_ORDER.get(code, code) for code in range(256)], dtype=np.uint8)[cells.types]
    linear = Cells(rows.connectivity, rows.offsets, types, cells.polyhedron_faces)
    before, after = _used(cells, len(contents.points)), _used(linear, len(contents.points))
    note = (
        f"brought to first order: {_counted(higher, 'cell')} of second or higher order; "
        f"{_counted(before & ~after, 'point')} between corners left out, curved sides are straight now"
    )
    kept = after | ~before
    return replace(_with_points(replace(contents, cells=linear), kept), notes=(*contents.notes, note))


def without_unused(contents: Contents) -> Contents:
    """Without the points that belong to no cell, such as centres of circles in Gmsh."""
    if not _is_in_order(contents):
        return contents
    used = _used(contents.cells, len(contents.points))
    if used.all() or not used.any():
        return contents
    note = f"left out: {_counted(~used, 'point')} of no cell"
    return replace(_with_points(contents, used), notes=(*contents.notes, note))


def glued(contents: Contents) -> Contents:
    """Points at the same place become one where they belong to different pieces of a mesh that falls apart.

    Not within a piece: there two points at one place are the two sides of a slit, which is a wall.
    """
    if not _is_in_order(contents):
        return contents
    cells = in_ring_order(contents.cells)
    facets = cell_facets(cells)
    try:
        _, piece = pieces(cells, facets, matched(facets, len(contents.points))[1])
    except ValueError:  # cells overlap, which checks say better
        return contents
    lowest, highest = first_and_last_piece(cells, piece, len(contents.points))
    one, other = coincident(contents.points).T
    apart = (lowest[one] != lowest[other]) | (highest[one] != highest[other])
    first = first_of_joined(one[apart], other[apart], len(contents.points))
    kept = first == np.arange(len(first))
    if kept.all():
        return contents
    merged = replace(
        contents,
        cells=cells.renumbered(first),
        chosen_facets={
            name: replace(facets, connectivity=first[facets.connectivity])
            for name, facets in contents.chosen_facets.items()
        },
        patch_points={name: _gathered(mask, first) for name, mask in contents.patch_points.items()},
        patch_facets={},
    )
    note = (
        f"merged: {_counted(~kept, 'point')} with others at the same place, as the mesh falls into parts without that"
    )
    return replace(_with_points(merged, kept), notes=(*contents.notes, note))


def slit_note(positions: Float[np.ndarray, "boundary space"], size: float) -> str | None:
    """The note on points of the boundary at the same place, in a mesh that hangs together without them."""
    doubled = np.isin(np.arange(len(positions)), coincident(positions, size))
    if not doubled.any():
        return None
    return (
        f"kept apart: {_counted(doubled, 'point')} at the place of another; the mesh has a slit there, which is a "
        "boundary. If it is not meant, merge the points in the program that made the mesh"
    )


def _counted(mask: Bool[np.ndarray, " items"], noun: str) -> str:
    number = int(mask.sum())
    return f"{number:,} {noun}{'s' * (number != 1)}"


def coincident(
    positions: Float[np.ndarray, "points space"], size: float | None = None, share: float = _SAME_PLACE
) -> Int64[np.ndarray, "pairs 2"]:
    """Pairs of points at the same place: nearer than a share of the size, which by default is that of all of them."""
    from scipy.spatial import KDTree

    size = float(np.ptp(positions, axis=0).max(initial=0.0)) if size is None else size
    if not np.isfinite(size) or len(positions) < 2:
        return np.zeros((0, 2), np.int64)
    return KDTree(positions).query_pairs(share * size, output_type="ndarray").astype(np.int64)


def first_of_joined(one: np.ndarray, other: np.ndarray, number: int) -> Int64[np.ndarray, " points"]:
    """For each point the first of those that it is joined with, itself where there is none."""
    _, label = connected(np.stack([one, other]), number)
    _, first = np.unique(label, return_index=True)
    return first[label].astype(np.int64)


def _gathered(mask: np.ndarray, first: np.ndarray) -> np.ndarray:
    return np.bincount(first, mask, minlength=len(first)) > 0


def _used(cells: Cells, number_of_points: int) -> Bool[np.ndarray, " points"]:
    return np.bincount(cells.connectivity, minlength=number_of_points) > 0


def _is_in_order(contents: Contents) -> bool:
    """Whether indices can be followed at all; if not, the checks of meshes say what is wrong."""
    cells, number = contents.cells, len(contents.points)
    return (
        len(cells) > 0
        and len(cells.offsets) == len(cells) + 1
        and bool((cells.sizes > 0).all())
        and cells.offsets[-1] == len(cells.connectivity)
        and cells.connectivity.min() >= 0
        and cells.connectivity.max() < number
        and all(
            len(facets.connectivity) == 0 or (facets.connectivity.min() >= 0 and facets.connectivity.max() < number)
            for facets in contents.chosen_facets.values()
        )
    )


def _with_points(contents: Contents, kept: Bool[np.ndarray, " points"]) -> Contents:
    """Only the chosen points, which are all that cells need; facets that need others are left out."""
    new = np.cumsum(kept) - 1
    chosen = {}
    for name, facets in contents.chosen_facets.items():
        whole = facets.take(np.flatnonzero(facets.within(kept))) if len(facets) else facets
        chosen[name] = replace(whole, connectivity=new[whole.connectivity])
    return replace(
        contents,
        points=contents.points[kept],
        cells=contents.cells.renumbered(new),
        fields={name: values[kept] for name, values in contents.fields.items()},
        patch_points={name: mask[kept] for name, mask in contents.patch_points.items()},
        chosen_facets=chosen,
    )
