"""Differential operators on a mesh: the linear part of IsoGCN and NIsoGCN (equations 14 and 15 of the paper).

Every point fits a gradient to the slopes towards its neighbours and, on a Neumann boundary, to the prescribed normal
derivative with weight w. The fit is one small moment matrix a point:

    M_i = sum_j r_ij r_ij^T / |r_ij|^2 + w n_i n_i^T          r_ij = x_j - x_i
    (grad f)_i = M_i^{-1} [ sum_j r_ij (f_j - f_i) / |r_ij|^2 + w n_i g_i ]

It is exact on linear fields. Axes: points first, the axis of the derivative directly after them, feature channels last:
`grad(u)[p, j, i]` is the derivative of u_i by x_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.kernels import SparseMatrix, index_tensor
from pennpde.mesh import Mesh

if TYPE_CHECKING:
    import scipy.sparse

NEUMANN_WEIGHT = 10.0
"""w of the paper: about ten points lie virtually outside a flat boundary in space."""

# Moment matrices are sums of unit dyads, so their largest eigenvalue is of the order of the number of neighbours. Below
# this share of it the smallest is round-off: the neighbours do not span the space.
_SINGULAR = 1e-10


@dataclass(frozen=True, eq=False)
class Operators:
    """grad, div, laplacian, hessian and smoothing for one unknown: its mesh with its own Neumann boundary."""

    gradient: SparseMatrix
    """Rows (point, axis), columns points: all axes in one product."""
    divergence: SparseMatrix
    """Rows points, columns (point, axis). It shares its index tensors with the transpose of `gradient`."""
    smoothing: SparseMatrix
    """The normalised adjacency D^-1/2 (A + 1) D^-1/2 of a graph convolution."""
    moment_inverse: Float[Tensor, "points space space"]
    neumann_lift: Float[Tensor, "points space"]
    """w M^-1 n: what one unit of prescribed normal derivative adds to the gradient. Zero off the Neumann boundary."""
    composed_laplacian: SparseMatrix | None = None
    """divergence x gradient as one matrix, where `composed()` made it."""

    @classmethod
    def on(
        cls,
        mesh: Mesh,
        neumann: Sequence[str] | None = None,
        *,
        neumann_weight: float = NEUMANN_WEIGHT,
        singular: Literal["error", "pseudoinverse"] = "error",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Operators:
        """Assemble the operators of a mesh.

        Args:
            mesh: The mesh. Where `mesh.points` requires gradients, so do the operators' values.
            neumann: Names of the patches on which the unknown's normal derivative is prescribed; None: nowhere, which
                is IsoGCN.
            neumann_weight: The strength w of the Neumann condition against one neighbour.
            singular: What to do at a point whose neighbours (and normal) do not span the space.
            dtype: Precision of the result; assembly is always in that of `mesh.points`.
            device: Where the result goes.
        """
        normals = torch.zeros_like(mesh.points) if not neumann else mesh.point_normals(neumann)
        operators = cls.from_normals(mesh.points, mesh.edges, normals, neumann_weight=neumann_weight, singular=singular)
        return operators.to(dtype, device)

    @classmethod
    def from_normals(
        cls,
        points: Float[Tensor, "points space"],
        edges: np.ndarray,
        normals: Float[Tensor, "points space"],
        *,
        neumann_weight: float = NEUMANN_WEIGHT,
        singular: Literal["error", "pseudoinverse"] = "error",
    ) -> Operators:
        """Assemble from a point graph (both directions of every edge, sorted) and the Neumann normals, zero elsewhere."""
        rows, columns = torch.from_numpy(edges[0]), torch.from_numpy(edges[1])
        offsets = points[columns] - points[rows]
        directions = offsets / (offsets * offsets).sum(dim=1, keepdim=True)

        number, space = points.shape
        moments = neumann_weight * normals[:, :, None] * normals[:, None, :]
        for k in range(space):
            for m in range(k, space):
                # One component at a time: all of them at once would need nine numbers an edge.
                component = torch.zeros(number, dtype=points.dtype).index_add(0, rows, offsets[:, k] * directions[:, m])
                unit = torch.zeros(space, space, dtype=points.dtype)
                unit[k, m] = unit[m, k] = 1.0
                moments = moments + component[:, None, None] * unit
        inverse = _invert(moments, singular, points, rows)

        weights = torch.zeros_like(directions)
        for m in range(space):
            weights = weights + inverse[rows, :, m] * directions[:, m, None]
        diagonal = -torch.zeros(number, space, dtype=points.dtype).index_add(0, rows, weights)
        lift = neumann_weight * (inverse * normals[:, None, :]).sum(dim=2)
        graph = _Graph.with_diagonal(edges, number)
        return cls._from_weights(graph, graph.interleave(diagonal, weights), inverse, lift)

    @classmethod
    def from_matrices(
        cls,
        gradient: Sequence[scipy.sparse.spmatrix],
        *,
        smoothing: scipy.sparse.spmatrix | None = None,
        moment_inverse: Float[Tensor, "points space space"] | None = None,
        neumann_lift: Float[Tensor, "points space"] | None = None,
    ) -> Operators:
        """Take gradient matrices from elsewhere, one an axis: how stored networks bring their own."""
        import scipy.sparse

        number, space = gradient[0].shape[0], len(gradient)
        pattern = scipy.sparse.csr_matrix((number, number))
        for matrix in [*gradient, scipy.sparse.identity(number)]:
            pattern = pattern + abs(matrix) + abs(matrix.T)
        pattern = scipy.sparse.csr_matrix(pattern)
        pattern.sort_indices()
        rows = np.repeat(np.arange(number), np.diff(pattern.indptr))
        off_diagonal = rows != pattern.indices
        edges = np.stack([rows[off_diagonal], pattern.indices[off_diagonal]]).astype(np.int64)
        graph = _Graph.with_diagonal(edges, number)

        def pick(i: np.ndarray, j: np.ndarray) -> Tensor:
            return torch.from_numpy(
                np.stack([np.asarray(scipy.sparse.csr_matrix(m)[i, j]).ravel() for m in gradient], axis=1)
            )

        every = np.arange(number)
        weights = graph.interleave(pick(every, every), pick(edges[0], edges[1]))
        if moment_inverse is None:
            moment_inverse = torch.zeros(number, space, space, dtype=weights.dtype)
        if neumann_lift is None:
            neumann_lift = torch.zeros(number, space, dtype=weights.dtype)
        operators = cls._from_weights(graph, weights, moment_inverse, neumann_lift)
        if smoothing is None:
            return operators
        return replace(operators, smoothing=SparseMatrix.from_scipy(smoothing))

    @classmethod
    def _from_weights(
        cls, graph: _Graph, weights: Float[Tensor, "entries space"], inverse: Tensor, lift: Tensor
    ) -> Operators:
        """Lay out one weight vector an edge as the matrices of gradient and divergence.

        The graph is symmetric, so the transpose of the gradient has the index tensors of the divergence and the other
        way round; only the values differ, by the weights of the edge in the other direction.
        """
        space = weights.shape[1]
        tall_starts, tall_columns, tall_order = graph.tall(space)
        wide_starts, wide_columns = graph.wide(space)
        reverse = weights[graph.reverse]
        gradient = SparseMatrix(
            tall_starts,
            tall_columns,
            weights.reshape(-1)[tall_order],
            wide_starts,
            wide_columns,
            reverse.reshape(-1),
        )
        divergence = SparseMatrix(
            wide_starts,
            wide_columns,
            weights.reshape(-1),
            tall_starts,
            tall_columns,
            reverse.reshape(-1)[tall_order],
        )
        return cls(gradient, divergence, graph.smoothing(weights.dtype), inverse, lift)

    @property
    def number_of_points(self) -> int:
        return self.neumann_lift.shape[0]

    @property
    def space(self) -> int:
        return self.neumann_lift.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.gradient.values.dtype

    def grad(
        self,
        field: Float[Tensor, "points *axes"],
        normal_derivative: Float[Tensor, "points *axes"] | None = None,
    ) -> Float[Tensor, "points space *axes"]:
        """Gradient of a field of any rank; `normal_derivative` is the Neumann value, zero where none is given."""
        self._check(field)
        flat = self.gradient @ field.reshape(self.number_of_points, -1)
        gradient = flat.reshape(self.number_of_points, self.space, *field.shape[1:])
        if normal_derivative is None:
            return gradient
        lift = self.neumann_lift.reshape(*self.neumann_lift.shape, *[1] * (field.ndim - 1))
        return gradient + lift * normal_derivative[:, None]

    def div(self, field: Float[Tensor, "points space *axes"]) -> Float[Tensor, "points *axes"]:
        """Divergence: the derivative's axis, directly after the points, is contracted."""
        self._check(field)
        if field.ndim < 2 or field.shape[1] != self.space:
            raise ValueError(
                f"div takes a field of shape [points, {self.space}, ...], its second axis the one to contract; "
                f"got {list(field.shape)}."
            )
        flat = self.divergence @ field.reshape(self.number_of_points * self.space, -1)
        return flat.reshape(self.number_of_points, *field.shape[2:])

    def laplacian(
        self,
        field: Float[Tensor, "points *axes"],
        normal_derivative: Float[Tensor, "points *axes"] | None = None,
    ) -> Float[Tensor, "points *axes"]:
        """div(grad(field)): of each component, for a field of any rank."""
        if self.composed_laplacian is None or normal_derivative is not None:
            return self.div(self.grad(field, normal_derivative))
        self._check(field)
        return (self.composed_laplacian @ field.reshape(self.number_of_points, -1)).reshape(field.shape)

    def hessian(
        self,
        field: Float[Tensor, "points *axes"],
        normal_derivative: Float[Tensor, "points *axes"] | None = None,
    ) -> Float[Tensor, "points space space *axes"]:
        """grad(grad(field))."""
        return self.grad(self.grad(field, normal_derivative))

    def smooth(self, field: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        """Average over neighbours with the normalised adjacency, the linear part of a GCN."""
        self._check(field)
        return (self.smoothing @ field.reshape(self.number_of_points, -1)).reshape(field.shape)

    def composed(self) -> Operators:
        """The same operators with the Laplacian multiplied out.

        In the plane 25 entries a point replace 36 and the gradient in between is never stored; in space 125 replace
        162. It pays where a Laplacian is taken alone and often, as in a Poisson loop.
        """
        if self.composed_laplacian is not None:
            return self
        product = self.divergence.to_scipy() @ self.gradient.to_scipy()
        laplacian = SparseMatrix.from_scipy(product).to(self.dtype, self.gradient.values.device)
        return replace(self, composed_laplacian=laplacian)

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Operators:
        if (dtype is None or dtype == self.dtype) and device is None:
            return self
        return self._each(
            lambda matrix: matrix.to(dtype, device), lambda tensor: tensor.to(device, dtype or tensor.dtype)
        )

    def scaled(self, factor: float) -> Operators:
        """Operators in another unit of length: every first derivative is multiplied by the factor."""
        return replace(
            self,
            gradient=self.gradient.scaled(factor),
            divergence=self.divergence.scaled(factor),
            moment_inverse=self.moment_inverse * factor,
            neumann_lift=self.neumann_lift * factor,
            composed_laplacian=self.composed_laplacian and self.composed_laplacian.scaled(factor**2),
        )

    def gradient_matrices(self) -> list[scipy.sparse.csr_matrix]:
        """The gradient as one SciPy matrix an axis."""
        stacked = self.gradient.to_scipy()
        return [stacked[axis :: self.space] for axis in range(self.space)]

    @classmethod
    def block_diagonal(cls, operators: Sequence[Operators]) -> Operators:
        """The operators of several meshes side by side, as one."""
        if len(operators) == 1:
            return operators[0]
        composed = [each.composed_laplacian for each in operators]
        present = [each for each in composed if each is not None]
        return cls(
            SparseMatrix.block_diagonal([each.gradient for each in operators]),
            SparseMatrix.block_diagonal([each.divergence for each in operators]),
            SparseMatrix.block_diagonal([each.smoothing for each in operators]),
            torch.cat([each.moment_inverse for each in operators]),
            torch.cat([each.neumann_lift for each in operators]),
            SparseMatrix.block_diagonal(present) if len(present) == len(operators) else None,
        )

    def _each(self, of_matrix, of_tensor) -> Operators:
        return Operators(
            of_matrix(self.gradient),
            of_matrix(self.divergence),
            of_matrix(self.smoothing),
            of_tensor(self.moment_inverse),
            of_tensor(self.neumann_lift),
            self.composed_laplacian and of_matrix(self.composed_laplacian),
        )

    def _check(self, field: Tensor) -> None:
        if field.shape[:1] != (self.number_of_points,):
            raise ValueError(
                f"A field on these operators has {self.number_of_points} points as its first axis; "
                f"got shape {list(field.shape)}."
            )
        if field.dtype != self.dtype and not torch.is_autocast_enabled(field.device.type):
            raise ValueError(
                f"The field is {field.dtype}, the operators are {self.dtype}. "
                f"Convert one of them: operators.to({field.dtype}) or field.to({self.dtype})."
            )


@dataclass(frozen=True, eq=False)
class _Graph:
    """The index arithmetic of a symmetric point graph with its diagonal, the diagonal first in each row."""

    starts: np.ndarray
    columns: np.ndarray
    reverse: Tensor
    """For each entry (i, j) the position of (j, i)."""
    edge_positions: Tensor

    @classmethod
    def with_diagonal(cls, edges: np.ndarray, number: int) -> _Graph:
        import scipy.sparse

        counts = np.bincount(edges[0], minlength=number)
        edge_starts = np.concatenate([[0], np.cumsum(counts)])
        numbering = scipy.sparse.csr_matrix((np.arange(edges.shape[1]), edges[1], edge_starts), shape=(number, number))
        reverse_edge = numbering.T.tocsr().data
        starts = edge_starts + np.arange(number + 1)
        positions = np.arange(edges.shape[1]) + edges[0] + 1
        columns = np.empty(starts[-1], dtype=np.int64)
        columns[starts[:-1]] = np.arange(number)
        columns[positions] = edges[1]
        reverse = np.empty(starts[-1], dtype=np.int64)
        reverse[starts[:-1]] = starts[:-1]
        reverse[positions] = positions[reverse_edge]
        return cls(starts, columns, torch.from_numpy(reverse), torch.from_numpy(positions))

    def interleave(
        self, diagonal: Float[Tensor, "points space"], weights: Float[Tensor, "edges space"]
    ) -> Float[Tensor, "entries space"]:
        merged = torch.zeros(len(self.columns), diagonal.shape[1], dtype=diagonal.dtype)
        merged = merged.index_copy(0, torch.from_numpy(self.starts[:-1]), diagonal)
        return merged.index_copy(0, self.edge_positions, weights)

    def tall(self, space: int) -> tuple[Tensor, Tensor, Tensor]:
        """Row (i, k) holds entry (i, j) of axis k: starts, columns, and where each value comes from."""
        counts = np.diff(self.starts)
        starts = np.repeat(self.starts[:-1] * space, space) + np.tile(np.arange(space), len(counts)) * np.repeat(
            counts, space
        )
        starts = np.append(starts, self.starts[-1] * space)
        rows = np.repeat(np.arange(len(counts)), counts)
        first = np.arange(len(self.columns)) + (space - 1) * self.starts[rows]
        order = np.empty(len(self.columns) * space, dtype=np.int64)
        for axis in range(space):
            order[first + axis * counts[rows]] = np.arange(len(self.columns)) * space + axis
        columns = self.columns[order // space]
        return index_tensor(starts), index_tensor(columns), torch.from_numpy(order)

    def wide(self, space: int) -> tuple[Tensor, Tensor]:
        """Row i holds all axes of each entry (i, j) side by side."""
        columns = (self.columns[:, None] * space + np.arange(space)).ravel()
        return index_tensor(self.starts * space), index_tensor(columns)

    def smoothing(self, dtype: torch.dtype) -> SparseMatrix:
        counts = np.diff(self.starts)
        rows = np.repeat(np.arange(len(counts)), counts)
        values = torch.from_numpy(1.0 / np.sqrt(counts[rows] * counts[self.columns])).to(dtype)
        starts, columns = index_tensor(self.starts), index_tensor(self.columns)
        return SparseMatrix(starts, columns, values, starts, columns, values)


def _invert(
    moments: Float[Tensor, "points space space"],
    singular: Literal["error", "pseudoinverse"],
    points: Tensor,
    rows: Tensor,
) -> Float[Tensor, "points space space"]:
    eigenvalues = torch.linalg.eigvalsh(moments.detach())
    broken = eigenvalues[:, 0] <= _SINGULAR * eigenvalues[:, -1].clamp_min(1.0)
    if not broken.any():
        return torch.linalg.inv(moments)
    if singular == "pseudoinverse":
        return torch.where(
            broken[:, None, None],
            torch.linalg.pinv(moments.detach(), rtol=_SINGULAR, hermitian=True),
            torch.linalg.inv(torch.where(broken[:, None, None], torch.eye(points.shape[1]).to(moments), moments)),
        )
    point = int(broken.nonzero()[0])
    neighbours = int((rows == point).sum())
    raise ValueError(
        f"The moment matrix of point {point} at {points[point].tolist()} is singular: its {neighbours} neighbours do "
        f"not span the space ({int(broken.sum())} such points). Mend the mesh there, or pass "
        'singular="pseudoinverse" to take the gradient in the directions that they do span.'
    )
