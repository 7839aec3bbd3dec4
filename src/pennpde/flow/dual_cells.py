"""Dual cells: the finite volume scheme that linear elements are, edge by edge.

Each point has a cell of area (in space: volume) m around it; between two neighbours i and j lies a face with the area
vector a_ij = G_ij - G_ji, and k_ij = -K_ij is what diffusion conducts through it (`elements` has G and K). What flows
through a face leaves one cell for the other, so sums are conserved, and everything acts on differences of neighbours.

Points and edges are the last axis here, components come before them: gathering and summing long rows of one component
takes a third of the time that short rows of all components take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pennpde.flow.curvature_flux import Curvature
from pennpde.mesh.space_cells import EDGES
from pennpde.operators.elements import local_matrices
from pennpde.operators.sparse import SparseMatrix

_BLOCK = 16_384
"""So many cells are assembled at a time."""
_OPEN = 1e-6
"""Of the size of a cell in space, so much of its surface lies on the boundary, or nothing does."""
_NOTHING = 1e-9
"""Corners of a cell in space that conduct less than this share of its largest conductance, and have no more of a face
between them, are no neighbours: in a box only those along edges are."""


@dataclass(frozen=True, eq=False)
class DualCells:
    """The dual cells of one mesh, or of the meshes of a batch side by side.

    Attributes:
        areas: of the cells; in space their volumes.
        first: of each edge the point with the smaller number.
        second: the other one.
        faces: area vector of the face between them, from the first to the second.
        conductances: k_ij, so that k (f_first - f_second) diffuses through the face.
        offsets: from the first to the second.
        gradient: a matrix for each axis that gives the derivative at the points.
        pattern_rows: rows of a sparse matrix with an entry for each point and two for each edge (CSR).
        pattern_columns: its columns.
        entries: what each entry is: a point's own, then those of edges from their first to their second point, then
            back, counted in this order.
        diagonal: the places of the diagonal among the entries.
        mirrored: for each entry the place of its mirror image, the transposed matrix.
        curvature: what flows because a velocity is curved between the points.
        owner: the mesh of each point; None for one mesh.
        edge_owner: the mesh of each edge, likewise.
        number_of_meshes: side by side.
    """

    areas: Float[Tensor, " points"]
    first: Int[Tensor, " edges"]
    second: Int[Tensor, " edges"]
    faces: Float[Tensor, "space edges"]
    conductances: Float[Tensor, " edges"]
    offsets: Float[Tensor, "space edges"]
    gradient: tuple[SparseMatrix, ...]
    pattern_rows: Int[Tensor, " starts"]
    pattern_columns: Int[Tensor, " entries"]
    entries: Int[Tensor, " entries"]
    diagonal: Int[Tensor, " points"]
    mirrored: Int[Tensor, " entries"]
    curvature: Curvature
    owner: Int[Tensor, " points"] | None = None
    edge_owner: Int[Tensor, " edges"] | None = None
    number_of_meshes: int = 1

    @classmethod
    def of(
        cls,
        points: Float[np.ndarray, "points space"],
        groups: Sequence[Int[np.ndarray, "cells corners"]],
        representative: Int[np.ndarray, " points"] | None = None,
    ) -> DualCells:
        """Assemble the dual cells of a mesh, in double precision.

        Args:
            points: positions.
            groups: corners of triangles and of quads; in space of tetrahedra, pyramids, prisms and hexahedra.
            representative: for each point the copy that stands for it (periodic boundaries), numbered from zero
                without gaps; the dual cells are those of the representatives.
        """
        places = np.arange(len(points)) if representative is None else representative
        number = int(places.max()) + 1
        areas = np.zeros(number)
        parts = []
        for cells in groups:
            if len(cells):
                masses, part = _pairs(points, cells, places)
                areas += np.bincount(places[cells].ravel(), masses.ravel(), number)
                parts.append(part)
        start, end, stiffness, *gradients = (
            each[0] if len(parts) == 1 else np.concatenate(each) for each in zip(*parts, strict=True)
        )
        keys = places[start] * np.int64(number) + places[end]
        first, second, where, edge, apart, pattern = _edges(keys.tobytes(), number)
        offsets = np.ascontiguousarray((points[end[where]] - points[start[where]]).T)
        space = points.shape[1]

        def summed(values: np.ndarray) -> np.ndarray:
            return np.bincount(edge, values, len(apart))[apart]

        def curvature() -> Curvature:
            edges = edge if apart.all() else np.where(apart, np.cumsum(apart) - 1, -1)[edge]
            shares = np.stack([there - back for there, back in zip(gradients[:space], gradients[space:], strict=True)])
            squares = (offsets**2).sum(axis=0)
            powers = squares if space == 2 else squares**1.5
            stretch = powers / np.maximum(areas[first], areas[second])
            outside = None
            if space == 3:  # there the faces between a point and its neighbours do not close
                faces = np.array([summed(each) for each in shares])
                open_sides = [np.bincount(first, each, number) - np.bincount(second, each, number) for each in faces]
                outside = np.linalg.norm(open_sides, axis=0) > _OPEN * areas ** (2.0 / 3.0)
            return Curvature.of(groups, edges, np.stack([first, second]), shares, stretch, offsets, outside)

        # What does not wait for the rest is made by another thread: of a million points each takes a second.
        with ThreadPoolExecutor(torch.get_num_threads()) if number > _BLOCK else _ThisThread() as pool:
            curved = pool.submit(curvature)
            forth, reverse = (
                np.stack([summed(each) for each in both]) for both in (gradients[:space], gradients[space:])
            )
            conductances = -summed(stiffness)
            slopes = pool.submit(_gradient, first, second, forth, reverse, areas, pattern)
            return cls(
                areas=torch.from_numpy(areas),
                first=torch.from_numpy(first),
                second=torch.from_numpy(second),
                faces=torch.from_numpy(forth - reverse),
                conductances=torch.from_numpy(conductances),
                offsets=torch.from_numpy(offsets),
                gradient=slopes.result(),
                **pattern,
                curvature=curved.result(),
            )

    @classmethod
    def side_by_side(cls, parts: Sequence[DualCells]) -> DualCells:
        """The dual cells of a batch."""
        like = parts[0].areas
        sizes = torch.tensor([part.number_of_points for part in parts], device=like.device)
        counts = torch.tensor([part.first.shape[0] for part in parts], device=like.device)
        every = sizes + 2 * counts
        points, edges, entries = (each.cumsum(0) - each for each in (sizes, counts, every))
        number, number_of_edges = sum(part.number_of_points for part in parts), sum(len(part.first) for part in parts)

        def joined(name: str, starts: Tensor | None = None, lengths: Tensor = every) -> Tensor:
            values = torch.cat([getattr(part, name) for part in parts], dim=-1)
            if starts is None:
                return values
            return values + starts.to(values.dtype).repeat_interleave(lengths, output_size=len(values))

        # What an entry is: a point's own, an edge forth, an edge back, counted anew over all meshes.
        what, own, forth, back = (
            each.repeat_interleave(every, output_size=number + 2 * number_of_edges)
            for each in (sizes, points, number + edges - sizes, number + number_of_edges + edges - sizes - counts)
        )
        what_of = joined("entries")
        is_back = what_of >= what + counts.repeat_interleave(every, output_size=len(what))
        what_of = what_of + torch.where(what_of < what, own, torch.where(is_back, back, forth))
        starts = [part.pattern_rows[:-1] for part in parts]
        rows = torch.cat([*starts, like.new_tensor([number + 2 * number_of_edges], dtype=starts[0].dtype)])
        rows[:-1] += entries.to(rows.dtype).repeat_interleave(sizes, output_size=number)
        columns = joined("pattern_columns", points)
        slopes = []
        for axis in range(parts[0].space):
            values = torch.cat([part.gradient[axis].values for part in parts])
            across = torch.cat([part.gradient[axis].transposed_values for part in parts])
            slopes.append(SparseMatrix(rows, columns, values, rows, columns, across))
        numbers = torch.arange(len(parts), device=like.device)
        return cls(
            areas=joined("areas"),
            first=joined("first", points, counts),
            second=joined("second", points, counts),
            faces=joined("faces"),
            conductances=joined("conductances"),
            offsets=joined("offsets"),
            gradient=tuple(slopes),
            pattern_rows=rows,
            pattern_columns=columns,
            entries=what_of,
            diagonal=joined("diagonal", entries, sizes),
            mirrored=joined("mirrored", entries),
            curvature=Curvature.side_by_side([part.curvature for part in parts]),
            owner=numbers.repeat_interleave(sizes, output_size=number),
            edge_owner=numbers.repeat_interleave(counts, output_size=number_of_edges),
            number_of_meshes=len(parts),
        )

    @property
    def number_of_points(self) -> int:
        return self.areas.shape[0]

    @property
    def space(self) -> int:
        return self.offsets.shape[0]

    @property
    def crossings(self) -> Float[Tensor, " points"]:
        """The size of a face through the middle of each cell, were they squares or cubes."""
        return self.areas.sqrt() if self.space == 2 else self.areas ** (2.0 / 3.0)

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> DualCells:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else None)

        return self.map(move)

    def map(self, change: Callable[[Tensor], Tensor]) -> DualCells:
        """The same cells with each of their tensors changed."""
        changes: dict[str, object] = {
            "gradient": tuple(each.map(change) for each in self.gradient),
            "curvature": self.curvature.map(change),
        }
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changes[each.name] = change(value)
        return replace(self, **changes)

    # Sums over faces, and differences over edges

    def collected(self, fluxes: Float[Tensor, "*axes edges"]) -> Float[Tensor, "*axes points"]:
        """What leaves each cell through its faces: fluxes go from the first point to the second."""
        nothing = fluxes.new_zeros(*fluxes.shape[:-1], self.number_of_points)
        # Not index_add's own factor of -1: with it PyTorch takes thirty times as long for rows of a matrix.
        return nothing.index_add(-1, self.first, fluxes).index_add_(-1, self.second, -fluxes)

    def gathered(self, values: Float[Tensor, "*axes edges"]) -> Float[Tensor, "*axes points"]:
        """The sum over the edges of each point."""
        nothing = values.new_zeros(*values.shape[:-1], self.number_of_points)
        return nothing.index_add(-1, self.first, values).index_add_(-1, self.second, values)

    def difference(self, values: Float[Tensor, "*axes points"]) -> Float[Tensor, "*axes edges"]:
        """Second minus first."""
        first, second = self.ends(values)
        return second - first

    def mean(self, values: Float[Tensor, "*axes points"]) -> Float[Tensor, "*axes edges"]:
        first, second = self.ends(values)
        return 0.5 * (first + second)

    def ends(
        self, values: Float[Tensor, "*axes points"]
    ) -> tuple[Float[Tensor, "*axes edges"], Float[Tensor, "*axes edges"]]:
        """The values at the first and at the second point of each edge."""
        # As a matrix: of more axes PyTorch takes thirty times as long.
        rows = values.reshape(-1, values.shape[-1])
        first, second = (
            rows.index_select(1, each).reshape(*values.shape[:-1], -1) for each in (self.first, self.second)
        )
        return first, second

    def slope(self, values: Float[Tensor, "*axes points"]) -> Float[Tensor, "*axes space points"]:
        """The gradient at the points; the axis of the derivative comes directly before the points."""
        return torch.stack([product(each, values) for each in self.gradient], dim=-2)

    def aspect_ratios(self) -> Float[Tensor, " points"]:
        """Of the longest edge of each point to its shortest one."""
        lengths = self.offsets.square().sum(dim=0).sqrt()
        longest, shortest = torch.zeros_like(self.areas), torch.full_like(self.areas, torch.inf)
        for ends in (self.first, self.second):
            longest.scatter_reduce_(0, ends, lengths, "amax")
            shortest.scatter_reduce_(0, ends, lengths, "amin")
        return longest / shortest

    def matrix(
        self, diagonal: Float[Tensor, " points"], symmetric: Float[Tensor, " edges"], skew: Float[Tensor, " edges"]
    ) -> SparseMatrix:
        """diagonal_i f_i + sum_j (skew_ij - symmetric_ij) (f_j - f_i), with skew_ji = -skew_ij, as a sparse matrix."""
        there, back = skew - symmetric, -skew - symmetric
        on = diagonal.index_add(0, self.first, there, alpha=-1).index_add_(0, self.second, back, alpha=-1)
        values = torch.cat([on, there, back]).index_select(0, self.entries)
        return SparseMatrix(
            self.pattern_rows,
            self.pattern_columns,
            values,
            self.pattern_rows,
            self.pattern_columns,
            values.index_select(0, self.mirrored),
        )

    # Sums over each mesh of a batch

    def total(self, values: Float[Tensor, "*axes points"]) -> Float[Tensor, " meshes"]:
        """The sum over all points and components, mesh by mesh."""
        if self.owner is None:
            return values.sum().reshape(1)
        flat = values.reshape(-1, values.shape[-1]).sum(dim=0)
        return flat.new_zeros(self.number_of_meshes).index_add(0, self.owner, flat)

    def inner(
        self, one: Float[Tensor, "*axes points"], other: Float[Tensor, "*axes points"]
    ) -> Float[Tensor, " meshes"]:
        """The sum of the products of two fields, mesh by mesh."""
        # Not torch.dot: its last bits depend on where in memory the fields lie.
        return self.total(one * other)

    def at_points(self, per_mesh: Float[Tensor, " meshes"]) -> Float[Tensor, " points_or_one"]:
        return per_mesh if self.owner is None else per_mesh[self.owner]

    def at_edges(self, per_mesh: Float[Tensor, " meshes"]) -> Float[Tensor, " edges_or_one"]:
        return per_mesh if self.edge_owner is None else per_mesh[self.edge_owner]


def product(matrix: SparseMatrix, values: Float[Tensor, "*axes columns"]) -> Float[Tensor, "*axes rows"]:
    """A sparse matrix times each row of values."""
    rows = values.reshape(-1, values.shape[-1])
    return matrix.times_rows(rows).reshape(*values.shape[:-1], -1)


def _gradient(
    first: np.ndarray,
    second: np.ndarray,
    there: np.ndarray,
    back: np.ndarray,
    areas: np.ndarray,
    pattern: dict[str, Any],
) -> tuple[SparseMatrix, ...]:
    """The matrices of the derivatives, from what the edges' ends contribute to each other."""
    rows, columns = pattern["pattern_rows"], pattern["pattern_columns"]
    order, mirrored = pattern["entries"].numpy(), pattern["mirrored"].numpy()
    made = []
    for forth, reverse in zip(there, back, strict=True):
        # The rows of G sum to zero: differences of neighbours are all that a gradient sees.
        own = -np.bincount(first, forth, len(areas)) - np.bincount(second, reverse, len(areas))
        values = np.concatenate([own / areas, forth / areas[first], reverse / areas[second]])[order]
        made.append(
            SparseMatrix(rows, columns, torch.from_numpy(values), rows, columns, torch.from_numpy(values[mirrored]))
        )
    return tuple(made)


def _pairs(
    points: Float[np.ndarray, "points space"],
    cells: Int[np.ndarray, "cells corners"],
    places: Int[np.ndarray, " points"],
) -> tuple[Float[np.ndarray, "cells corners"], tuple[np.ndarray, ...]]:
    """Masses, and of each pair of corners: start, end, stiffness, and G there and back, axis by axis.

    A pair that exchanges nothing ends where it starts.

    Block by block: a block fits into a processor's own memory, and several processors share them.
    """
    one, other = np.triu_indices(cells.shape[1], 1)
    masses = np.empty(cells.shape)
    space = points.shape[1]
    kinds = [np.int64, np.int64, *[float] * (1 + 2 * space)]
    made = [np.empty((len(cells), len(one)), kind) for kind in kinds]
    sides = [pair in EDGES[cells.shape[1]] for pair in zip(one, other, strict=True)] if space == 3 else []

    def fill(begin: int) -> None:
        block = slice(begin, begin + _BLOCK)
        chosen = cells[block]
        mass, stiffness, gradient = local_matrices(points[chosen])
        start, end = chosen[:, one], chosen[:, other]
        # From the smaller number to the larger one, the way in which edges go.
        turned = places[start] > places[end]
        masses[block] = mass
        made[0][block], made[1][block] = np.where(turned, end, start), np.where(turned, start, end)
        made[2][block] = stiffness[:, one, other]
        for axis in range(space):
            there, back = gradient[:, one, other, axis], gradient[:, other, one, axis]
            made[3 + axis][block] = np.where(turned, back, there)
            made[3 + space + axis][block] = np.where(turned, there, back)
        if space == 3 and not all(sides):
            conducted, crossed = np.abs(stiffness[:, one, other]), np.abs(gradient).max(axis=3)
            crossed = np.maximum(crossed[:, one, other], crossed[:, other, one])
            near = np.array(sides) | np.any(
                [each > _NOTHING * each.max(axis=1, keepdims=True) for each in (conducted, crossed)], axis=0
            )
            made[1][block] = np.where(near, made[1][block], made[0][block])

    with ThreadPoolExecutor(torch.get_num_threads()) if len(cells) > _BLOCK else _ThisThread() as pool:
        list(pool.map(fill, range(0, len(cells), _BLOCK)))
    return masses, tuple(each.ravel() for each in made)


class _ThisThread(Executor):
    """Does the work at once: of a few thousand points it takes less time than to start a thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@lru_cache(maxsize=4)
def _edges(keys: bytes, number: int) -> tuple[Any, ...]:
    """The edges of pairs of points, and what follows from them alone; kept, because shapes of a study share it.

    Gives both ends of each edge, the pair that stands for it, the edge of each pair, which of these are edges, and the
    pattern of a matrix.
    """
    found, where, edge = np.unique(np.frombuffer(keys, np.int64), return_index=True, return_inverse=True)
    # A cell that meets its own copy around a period exchanges nothing with it.
    apart = found // number != found % number
    first, second = found[apart] // number, found[apart] % number
    return first, second, where[apart], edge, apart, _pattern(first, second, number)


def _pattern(first: np.ndarray, second: np.ndarray, number: int) -> dict[str, Any]:
    """Rows and columns of a matrix with the diagonal and both directions of each edge, and what each entry is.

    Edges come sorted by their first point, then by their second. So a row holds its edges as a second point, itself,
    and its edges as a first point, each already in order: nothing has to be sorted.
    """
    edges = np.arange(len(first))
    points = np.arange(number)
    before, after = np.bincount(second, minlength=number), np.bincount(first, minlength=number)
    starts = np.concatenate([[0], np.cumsum(before + after + 1)])
    diagonal = starts[:-1] + before
    forth = diagonal[first] + 1 + edges - (np.cumsum(after) - after)[first]
    by_second = np.asarray(scipy.sparse.csr_array((edges, (second, first)), shape=(number, number)).data, np.int64)
    reverse = np.empty(len(edges), np.int64)
    reverse[by_second] = (starts[:-1] - (np.cumsum(before) - before))[second[by_second]] + edges
    place = np.concatenate([diagonal, forth, reverse])
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    columns = np.empty(len(place), np.int32)
    columns[place] = np.concatenate([points, second, first])
    mirror = np.empty(len(place), np.int64)
    mirror[place] = np.concatenate([diagonal, reverse, forth])
    return {
        "pattern_rows": torch.from_numpy(starts).to(torch.int32),
        "pattern_columns": torch.from_numpy(columns),
        "entries": torch.from_numpy(order),
        "diagonal": torch.from_numpy(diagonal),
        "mirrored": torch.from_numpy(mirror),
    }
