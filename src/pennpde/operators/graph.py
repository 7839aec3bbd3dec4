"""Which points are neighbours, also across periodic patches, and where the entries of the operators' matrices go."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, Shaped
from scipy.sparse import csr_matrix
from torch import Tensor

from pennpde.operators.sparse import index_tensor

_SAME = 1e-3
"""Of two directions to the same point, as a share of their length: images are whole periods apart."""

LARGEST_KEPT = 50_000
"""Points of graphs that are kept."""


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
        for known, graph in list(_LAST):
            if known is edges and graph.space == space and len(graph.starts) == number + 1:
                return graph
        graph = cls._made(edges, number, space)
        if number <= LARGEST_KEPT:
            _LAST.append((edges, graph))
        return graph

    @classmethod
    def _made(cls, edges: np.ndarray, number: int, space: int) -> PointGraph:
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
        across = csr_matrix((places, columns, starts.astype(np.int32)), (number, number)).T.tocsr()
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


_LAST: deque[tuple[np.ndarray, PointGraph]] = deque(maxlen=2)
"""Edges and their graphs: a prediction assembles operators three times on one mesh."""


@dataclass(frozen=True, eq=False)
class ClosedNeighbours:
    """The neighbours of points some of which are copies of one another: one entry for each neighbour of each point.

    Both copies of a point stay in the mesh, each with the value that it has there. A neighbour j of the copy q is a
    neighbour of every other copy p of q, in the direction x_j - x_q and with the difference f_j - f_q. Differences are
    taken where both values are at hand, so an unknown that grows by the same amount over every period, as the pressure
    in a channel, needs no further term: its copies differ by that amount.

    Attributes:
        rows: the point p whose neighbour it is.
        centres: the copy q of p from which the neighbour is seen; p itself, but across a pair.
        columns: the neighbour j.
        offsets: x_j - x_q.
        copies: [points, points], one where two points are copies of one another, each point a copy of itself.
    """

    rows: Int64[np.ndarray, " entries"]
    centres: Int64[np.ndarray, " entries"]
    columns: Int64[np.ndarray, " entries"]
    offsets: Float[np.ndarray, "entries space"]
    copies: csr_matrix

    @staticmethod
    def of(
        points: Float[np.ndarray, "points space"],
        edges: Int64[np.ndarray, "2 edges"],
        representative: Int64[np.ndarray, " points"],
    ) -> ClosedNeighbours:
        """Close the graph of these edges over points that have the same representative."""
        number = len(points)
        member = csr_matrix((np.ones(number), (np.arange(number), representative)), shape=(number, number))
        copies = csr_matrix(member @ member.T)
        copies.sort_indices()
        row = np.repeat(np.arange(number), np.diff(copies.indptr))
        centre = copies.indices.astype(np.int64)
        starts = np.searchsorted(edges[0], np.arange(number + 1))
        degree = np.diff(starts)[centre]
        places = np.repeat(starts[centre] - np.concatenate([[0], np.cumsum(degree)[:-1]]), degree)
        columns = edges[1][places + np.arange(len(places))]
        rows, centres = np.repeat(row, degree), np.repeat(centre, degree)
        offsets = points[columns] - points[centres]
        kept = _first_of_each(rows, centres, representative[columns], offsets)
        return ClosedNeighbours(rows[kept], centres[kept], columns[kept], offsets[kept], copies)

    @property
    def number_of_points(self) -> int:
        return len(self.copies.indptr) - 1

    def counts(self) -> Int64[np.ndarray, " points"]:
        """Neighbours of each point."""
        return np.bincount(self.rows, minlength=self.number_of_points)

    def differences(self, weights: Float[np.ndarray, " entries"]) -> csr_matrix:
        """The matrix of sum_j w_j (f_j - f_q) at every point."""
        shape = (self.number_of_points, self.number_of_points)
        both = (np.tile(self.rows, 2), np.concatenate([self.columns, self.centres]))
        return csr_matrix((np.concatenate([weights, -weights]), both), shape=shape)

    def own(self, matrix: csr_matrix) -> Float[np.ndarray, " points"]:
        """What a matrix takes of each point's own value, at whichever copy it takes it."""
        return np.asarray(csr_matrix(matrix).multiply(self.copies).sum(axis=1)).ravel()


def _first_of_each(
    rows: np.ndarray, centres: np.ndarray, targets: np.ndarray, offsets: np.ndarray
) -> Int64[np.ndarray, " kept"]:
    """Entries without those that show a point the same image a second time; those seen from itself go first."""
    order = np.lexsort((centres != rows, targets, rows))
    key = np.stack([rows[order], targets[order]])
    there, doubled = offsets[order], np.zeros(len(order), bool)
    for back in range(1, len(order)):
        together = np.flatnonzero((key[:, back:] == key[:, :-back]).all(axis=0))
        if not len(together):
            break
        apart = np.linalg.norm(there[together + back] - there[together], axis=1)
        doubled[together[apart < _SAME * np.linalg.norm(there[together], axis=1)] + back] = True
    return np.sort(order[~doubled])
