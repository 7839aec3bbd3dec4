"""What a file or a dataset says about a mesh, unchecked: points, cells, fields and named parts of the boundary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int64

from pennpde.mesh.cells import (
    CELL_TYPES,
    HIGHER_ORDER,
    POINTS_AND_LINES,
    QUADRATIC_POLYGON,
    Cells,
    Facets,
    facet_keys,
    offsets_of,
    take_rows,
)


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
