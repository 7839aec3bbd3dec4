"""Which points are neighbours, and where the entries of the operators' matrices go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from pennpde.operators.sparse import index_tensor


@dataclass(frozen=True, eq=False)
class PointGraph:
    """A symmetric graph in which every point is its own neighbour too: where the entries of all matrices go.

    It depends only on the mesh, so the unknowns of a case share one.

    Attributes:
        space: number of axes.
        starts: where the entries of each point begin, and the end.
        rows: the point i of each entry (i, j).
        columns: the point j of each entry, ascending for each i.
        diagonal: the position of each entry (i, i).
        reverse: for each entry (i, j) the position of (j, i).
    """

    space: int
    starts: np.ndarray
    rows: Int[Tensor, " entries"]
    columns: Int[Tensor, " entries"]
    diagonal: Int[Tensor, " points"]
    reverse: Int[Tensor, " entries"]

    @classmethod
    def of(cls, edges: np.ndarray, number: int, space: int) -> PointGraph:
        """The graph of the edges, both directions (i, j) of each, sorted by i, then j."""
        import scipy.sparse

        counts = np.bincount(edges[0], minlength=number) + 1
        starts = np.concatenate([[0], np.cumsum(counts)])
        index_tensor(space * starts)  # refuses what 32 bits do not hold, before anything here overflows
        diagonal = starts[:-1] + np.bincount(edges[0], edges[1] < edges[0], minlength=number).astype(np.int64)
        apart = np.ones(starts[-1], dtype=bool)
        apart[diagonal] = False
        columns = np.empty(starts[-1], dtype=np.int32)
        columns[diagonal] = np.arange(number)
        columns[apart] = edges[1]
        places = np.arange(starts[-1], dtype=np.int32)
        across = scipy.sparse.csr_matrix((places, columns, starts.astype(np.int32)), (number, number)).T.tocsr()
        ordered = (np.diff(edges[0]) >= 0).all() and across.has_canonical_format
        if not (ordered and np.array_equal(across.indptr, starts) and np.array_equal(across.indices, columns)):
            raise ValueError(
                "The edges are not those of a symmetric graph in order: give both (i, j) and (j, i) of each edge, "
                "once, sorted by i, then j, as mesh.edges has them."
            )
        rows = np.repeat(np.arange(number, dtype=np.int32), counts)
        return cls(space, starts, *map(torch.from_numpy, (rows, columns, diagonal, across.data)))

    def edges(self) -> np.ndarray:
        """Ordered pairs (i, j) of different points, as `of` takes them."""
        apart = self.rows != self.columns
        return torch.stack([self.rows[apart], self.columns[apart]]).numpy().astype(np.int64)

    def tall(self, per_axis: Sequence[Shaped[Tensor, " entries"]]) -> Shaped[Tensor, " all_entries"]:
        """Values in the order of the gradient's matrix, in which row (i, k) holds the entries of axis k."""
        merged = per_axis[0].new_empty(self.space * len(self.rows))
        for places, values in zip(self._tall_places, per_axis, strict=True):
            merged.index_copy_(0, places, values)
        return merged

    @cached_property
    def _tall_places(self) -> list[Tensor]:
        counts = np.diff(self.starts)
        first = torch.from_numpy(np.repeat((self.space - 1) * self.starts[:-1], counts))
        first += torch.arange(len(first))
        step = torch.from_numpy(np.repeat(counts, counts))
        return [first + axis * step for axis in range(self.space)]

    def wide(self, per_axis: Sequence[Shaped[Tensor, " entries"]]) -> Shaped[Tensor, " all_entries"]:
        """Values in the order of the divergence's matrix, in which row i holds all axes of each entry side by side."""
        return torch.stack(list(per_axis), dim=1).reshape(-1)

    @cached_property
    def tall_indices(self) -> tuple[Tensor, Tensor]:
        counts = np.diff(self.starts)
        starts = (self.space * self.starts[:-1, None] + counts[:, None] * np.arange(self.space)).ravel()
        return index_tensor(np.append(starts, self.space * self.starts[-1])), self.tall([self.columns] * self.space)

    @cached_property
    def wide_indices(self) -> tuple[Tensor, Tensor]:
        columns = self.wide([self.space * self.columns + axis for axis in range(self.space)])
        return index_tensor(self.space * self.starts), columns
