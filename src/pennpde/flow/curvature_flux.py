"""What flows through the faces of dual cells because a velocity is curved between the points, not straight.

A cubic along an edge, with given values and derivatives at its ends, is above the straight line by an eighth of the
difference of the derivatives, in the middle. Parabolas of that height along its sides, each falling to zero towards the
other sides, give a cell of the mesh a mean velocity above the straight one, which flows through its share of the faces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pennpde.mesh.cells import leads_across
from pennpde.mesh.space_cells import EDGES

MEAN = 1.0 / 3.0
"""Of such a parabola over a cell, triangle or parallelogram, as a share of its height."""
_MEANS = {4: (0.2,) * 6, 5: (0.1,) * 4 + (0.15,) * 4, 6: (1 / 6,) * 6 + (2 / 9,) * 3, 8: (1 / 6,) * 12}
"""The same over a cell in space, by its number of corners, for each of its `EDGES`."""
_LONG = 8.0, 16.0
"""Edges whose squared length is up to the first number times the area of a cell at their ends (in space the cube, and
the volume) bend fully, from the second one on not at all. Along a wall it is the aspect ratio, at its points twice as
much."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """Sides and faces of the cells of a mesh, or of the meshes of a batch side by side.

    Attributes:
        heights: for each edge, the height of its parabola over the difference of the derivatives at its ends.
        side_cell: the cell of each side of each cell.
        side_edge: its edge.
        face_cell: the cell of each share of a face.
        face_edge: the edge that crosses it.
        faces: the area vector of each share, from the edge's first point to its second.
        number_of_cells: of the mesh.
        means: for each side, the mean of its parabola over its cell, over that in the plane; None where it is one.
    """

    heights: Float[Tensor, " edges"]
    side_cell: Int[Tensor, " sides"]
    side_edge: Int[Tensor, " sides"]
    face_cell: Int[Tensor, " shares"]
    face_edge: Int[Tensor, " shares"]
    faces: Float[Tensor, "space shares"]
    number_of_cells: int
    means: Float[Tensor, " sides"] | None = None

    @staticmethod
    def of(
        groups: Sequence[Int[np.ndarray, "cells corners"]],
        edge: Int[np.ndarray, " pairs"],
        ends: Int[np.ndarray, "2 edges"],
        faces: Float[np.ndarray, "space pairs"],
        stretch: Float[np.ndarray, " edges"],
        offsets: Float[np.ndarray, "space edges"],
        outside: Bool[np.ndarray, " points"] | None = None,
    ) -> Curvature:
        """From the cells, and for each pair of corners, cell by cell, its edge and its face.

        The middle of a long edge along a curved wall may lie outside of the thin cells at its ends, where their
        derivatives say nothing. So long edges do not bend; the short ones across the layer do.

        Args:
            groups: corners of the cells, kind by kind.
            edge: of each pair; below zero for pairs that are none.
            ends: of each edge.
            faces: of each pair.
            stretch: of each edge, its squared length over the area of the larger dual cell at its ends; in space of
                its cube over the volume.
            offsets: of each edge, from one end to the other.
            outside: points on the boundary; in the plane they are found.
        """
        cell, side, means, total, space = [], [], [], 0, len(faces)
        for cells in groups:
            one, other = np.triu_indices(cells.shape[1], 1)
            cell.append(np.repeat(np.arange(total, total + len(cells)), len(one)))
            if space == 2:
                # Corners follow each other around a cell; the last and the first do, too.
                side.append(np.tile((other - one == 1) | (other - one == cells.shape[1] - 1), len(cells)))
            else:
                size = cells.shape[1]
                shares = dict(zip(EDGES[size], _MEANS[size], strict=True))
                of_pairs = np.array([shares.get(pair, 0.0) for pair in zip(one.tolist(), other.tolist(), strict=True)])
                side.append(np.tile(of_pairs > 0, len(cells)))
                means.append(np.tile(of_pairs / MEAN, len(cells)))
            total += len(cells)
        kept = edge >= 0
        cells_of_pairs = np.concatenate(cell)
        sides = np.concatenate(side) & kept
        side_edges = _chosen(edge, sides)
        return Curvature(
            heights=torch.from_numpy(
                _heights(side_edges, ends, offsets, outside)
                * np.clip((_LONG[1] - stretch) / (_LONG[1] - _LONG[0]), 0.0, 1.0)
            ),
            side_cell=torch.from_numpy(_chosen(cells_of_pairs, sides)),
            side_edge=torch.from_numpy(side_edges),
            face_cell=torch.from_numpy(_chosen(cells_of_pairs, kept)),
            face_edge=torch.from_numpy(_chosen(edge, kept)),
            faces=torch.from_numpy(_chosen(faces, kept)),
            number_of_cells=total,
            means=torch.from_numpy(np.concatenate(means)[sides]) if means else None,
        )

    @staticmethod
    def side_by_side(parts: Sequence[Curvature]) -> Curvature:
        """Those of a batch."""
        device = parts[0].heights.device

        def starts(counts: list[int]) -> Tensor:
            numbers = torch.tensor(counts, device=device)
            return numbers.cumsum(0) - numbers

        edges = starts([len(part.heights) for part in parts])
        cells = starts([part.number_of_cells for part in parts])

        def moved(name: str, starts: Tensor) -> Tensor:
            values = [getattr(part, name) for part in parts]
            lengths = torch.tensor([len(each) for each in values], device=device)
            return torch.cat(values) + starts.repeat_interleave(lengths, output_size=sum(map(len, values)))

        return Curvature(
            heights=torch.cat([part.heights for part in parts]),
            side_cell=moved("side_cell", cells),
            side_edge=moved("side_edge", edges),
            face_cell=moved("face_cell", cells),
            face_edge=moved("face_edge", edges),
            faces=torch.cat([part.faces for part in parts], dim=1),
            number_of_cells=sum(part.number_of_cells for part in parts),
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> Curvature:
        """The same with each tensor changed."""
        tensors = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: change(value) for name, value in tensors.items() if isinstance(value, Tensor)})

    def fluxes(
        self, here: Float[Tensor, "space edges"], there: Float[Tensor, "space edges"]
    ) -> Float[Tensor, " edges"]:
        """What flows through the face of each edge, from its first point to its second.

        Args:
            here: the derivative of the velocity along each edge, times its length, at the first point.
            there: at the second point.
        """
        above = (MEAN * self.heights * (here - there)).index_select(1, self.side_edge)
        above = above if self.means is None else self.means * above
        means = above.new_zeros(len(above), self.number_of_cells).index_add(1, self.side_cell, above)
        through = (self.faces * means.index_select(1, self.face_cell)).sum(dim=0)
        return torch.zeros_like(self.heights).index_add(0, self.face_edge, through)


def _chosen(values: np.ndarray, mask: Bool[np.ndarray, " pairs"]) -> np.ndarray:
    """Values where a mask holds; in triangles that are all of them, and a copy of millions takes its time."""
    return values if mask.all() else values[..., mask]


def _heights(
    sides: Int[np.ndarray, " sides"],
    ends: Int[np.ndarray, "2 edges"],
    offsets: Float[np.ndarray, "space edges"],
    outside: Bool[np.ndarray, " points"] | None,
) -> Float[np.ndarray, " edges"]:
    """An eighth, and a quarter across the first edge from a boundary.

    There derivatives differ by half of what they should: at a point of the boundary they are those half an edge inside.
    """
    if outside is not None:
        own, across = np.unique(sides), np.zeros(ends.shape[1], bool)
        across[own] = leads_across(ends[0, own], ends[1, own], offsets[:, own].T, outside)
        return np.where(across, 0.25, 0.125)
    number = int(ends.max(initial=-1)) + 1
    outside = np.zeros(number, bool)
    outside[ends[:, np.bincount(sides, minlength=ends.shape[1]) == 1]] = True  # sides of one cell only
    across = outside[ends[0]] ^ outside[ends[1]]
    return np.where(across, 0.25, 0.125)
