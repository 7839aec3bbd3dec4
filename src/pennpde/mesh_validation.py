"""From what a user gives to cells that can be trusted: one layout, one orientation, errors that name the cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from pennpde.mesh_topology import (
    CELL_TYPES,
    CODES,
    HEXAHEDRON,
    PIXEL,
    POLYGON,
    POLYHEDRON,
    PYRAMID,
    QUAD,
    TETRAHEDRON,
    TRIANGLE,
    VOXEL,
    WEDGE,
    Facets,
    offsets_of,
    signed_volumes,
    take_rows,
)

# A cell flatter than this, relative to a cube (square) of its own width, is degenerate. Boundary layers reach 1e-6.
FLATTEST = 1e-12


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of mixed types, ragged; see `Mesh` for the attributes."""

    connectivity: Int64[np.ndarray, " entries"]
    offsets: Int64[np.ndarray, " cells+1"]
    types: UInt8[np.ndarray, " cells"]
    polyhedron_faces: Facets | None = None

    @staticmethod
    def of(
        cells: np.ndarray | Tensor | Mapping[str, Sequence] | tuple[np.ndarray, np.ndarray],
        cell_types: str | int | np.ndarray | None,
        space: int,
    ) -> Cells:
        if isinstance(cells, Mapping):
            return joined([Cells.of(given, name, space) for name, given in cells.items()])
        if isinstance(cells, tuple):
            connectivity, offsets = (np.asarray(array, dtype=np.int64) for array in cells)
            return Cells(connectivity, offsets, np.asarray(cell_types, dtype=np.uint8))
        rows = np.asarray(cells)
        if cell_types is None:
            names = {2: {3: TRIANGLE, 4: QUAD}, 3: {3: TRIANGLE, 4: TETRAHEDRON, 5: PYRAMID, 6: WEDGE, 8: HEXAHEDRON}}
            code = names[space].get(rows.shape[1], POLYGON)
        else:
            code = CODES[cell_types] if isinstance(cell_types, str) else int(cell_types)
        number, size = rows.shape
        return Cells(
            rows.astype(np.int64).ravel(), size * np.arange(number + 1), np.full(number, code, dtype=np.uint8)
        )


def joined(parts: Sequence[Cells]) -> Cells:
    """All cells of the parts, one part after the other."""
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    return Cells(
        np.concatenate([part.connectivity for part in parts]),
        offsets_of(sizes),
        np.concatenate([part.types for part in parts]),
    )


def checked_points(points: np.ndarray | Tensor | Sequence) -> Float[Tensor, "points space"]:
    return torch.as_tensor(np.asarray(points) if not isinstance(points, Tensor) else points, dtype=torch.float64)


def checked_cells(points: Tensor, cells: Cells) -> tuple[Tensor, Cells]:
    return points, cells
