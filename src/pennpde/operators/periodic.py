"""Neighbours across pairs of periodic patches: points that are one have all neighbours of all their copies.

Both copies of a point stay in the mesh, each with the value that it has there. A neighbour j of the copy q is a
neighbour of every other copy p of q, in the direction x_j - x_q and with the difference f_j - f_q. Differences are
taken where both values are at hand, so an unknown that grows by the same amount over every period, as the pressure in a
channel, needs no further term: its copies differ by that amount.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_matrix

_SAME = 1e-3
"""Of two directions to the same point, as a share of their length: images are whole periods apart."""


@dataclass(frozen=True, eq=False)
class ClosedNeighbours:
    """One entry for each neighbour of each point.

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
