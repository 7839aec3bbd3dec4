"""Global coupling in linear time: a multigrid solver for symmetric matrices such as a pressure's Poisson equation.

Points that are strongly connected are joined to aggregates, these to larger ones, and so on, until a few hundred are
left, whose matrix is inverted. Between two levels stands a prolongation P, one constant per aggregate, smoothed once
by the matrix, and the coarser matrix is Pᵀ A P (smoothed aggregation, Vaněk, Mandel & Brezina 1996). One V-cycle
down and up through the levels takes out most of an error, smooth or rough, whatever the number of points.

SciPy builds the levels once per mesh; what is applied afterwards are sparse products of PyTorch. Everything depends on
the matrix only. The matrix of a Poisson equation does not change when the mesh is turned, mirrored or shifted, and the
solution is a scalar: what is solved here is equivariant by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array, diags_array, sparray, spmatrix
from torch import Tensor

from pennpde.operators.sparse import SparseMatrix

LARGEST_INVERSE = 160
"""Levels end at so few points: their inverse has as many entries as the matrix of some 3,000 points."""
STRENGTH = 0.08
"""Two points are strongly connected if |a_ij| reaches this share of √(a_ii a_jj)."""
SMOOTHING_STEPS, ROUGHEST_SHARE = 2, 0.15
"""So many steps before and after the coarser level. They take out errors whose eigenvalue lies between this share of
the largest one and the largest one; the coarser level represents smoother ones."""
_SINGULAR = 1e-9
_MOST_LEVELS = 20
_PROLONGATION_STEP = 2.0 / 3.0


@dataclass(frozen=True, eq=False)
class Level:
    """A matrix, its smoother and the way to the next coarser level.

    Attributes:
        matrix: symmetric.
        smoothing: the inverse diagonal, divided by the largest eigenvalue of (inverse diagonal × matrix): smoothing ×
            matrix has its eigenvalues between 0 and 1. It is scaled mesh by mesh, so that a batch needs no
            coefficients of its own.
        prolongation: rows points of this level, columns those of the coarser one.
    """

    matrix: SparseMatrix
    smoothing: Float[Tensor, " points"]
    prolongation: SparseMatrix

    def map(self, change: Callable[[Tensor], Tensor]) -> Level:
        return Level(self.matrix.map(change), change(self.smoothing), self.prolongation.map(change))


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of one mesh.

    Attributes:
        finer: all levels but the coarsest, the finest one first.
        coarsest: the inverse of the coarsest matrix; a pseudoinverse where it is singular.
        free: 1 where a value is looked for, 0 where it is prescribed.
    """

    finer: tuple[Level, ...]
    coarsest: SparseMatrix
    free: Float[Tensor, " points"]

    # Set-up

    @classmethod
    def of(
        cls,
        matrix: sparray | spmatrix,
        prescribed: Bool[np.ndarray, " points"] | None = None,
        *,
        largest_inverse: int = LARGEST_INVERSE,
    ) -> Levels:
        """Build the levels of a matrix, in double precision.

        Args:
            matrix: symmetric and positive definite, or semidefinite with the constants as null space (a pressure that
                is prescribed nowhere).
            prescribed: points whose value is known. Solutions are zero there.
            largest_inverse: number of points at which the levels end.
        """
        current = csr_array(matrix, dtype=float)
        number = _size(current)
        if current.shape != (number, number) or abs(current - current.T).max() > 1e-8 * abs(current).max():
            raise ValueError(
                f"Levels are made for symmetric matrices; this one, of shape {current.shape}, is not. "
                "For a Poisson equation take the stiffness matrix, not one divided by the masses."
            )
        free = np.ones(number) if prescribed is None else 1.0 - np.asarray(prescribed, float)
        keep = diags_array(free)
        # A prescribed point keeps a one on the diagonal and is coupled to nothing: no renumbering, and zero stays zero.
        current = csr_array(keep @ current @ keep + diags_array(1.0 - free))
        current.eliminate_zeros()
        finer = []
        while _size(current) > largest_inverse and len(finer) < _MOST_LEVELS:
            strong = _strong(current, STRENGTH)
            aggregates = aggregate(strong)
            if aggregates.max(initial=-1) + 1 >= 0.8 * _size(current):
                break  # hardly any point is connected to another
            level, current = _level(current, strong, aggregates)
            finer.append(level)
        return cls(tuple(finer), _symmetric(_inverse(current)), torch.from_numpy(free))

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Levels:
        return self.map(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else None))

    def map(self, change: Callable[[Tensor], Tensor]) -> Levels:
        """The same levels with each of their tensors changed."""
        return replace(
            self,
            finer=tuple(level.map(change) for level in self.finer),
            coarsest=self.coarsest.map(change),
            free=change(self.free),
        )

    @property
    def number_of_points(self) -> int:
        return self.free.shape[0]

    @property
    def sizes(self) -> list[int]:
        """Points of each level, the finest first."""
        return [*(level.matrix.shape[0] for level in self.finer), self.coarsest.shape[0]]

    # Solving

    def cycle(self, right: Float[Tensor, "points channels"]) -> Float[Tensor, "points channels"]:
        """One V-cycle from zero: nearly the solution. Linear, symmetric and positive definite in the right side."""
        return self._cycle(right * self.free[:, None], 0)

    def _cycle(self, right: Tensor, place: int) -> Tensor:
        if place == len(self.finer):
            return self.coarsest @ right
        level = self.finer[place]
        smoothing = level.smoothing[:, None]
        found = _STEPS[0] * smoothing * right
        for step in _STEPS[1:]:
            found = found + step * smoothing * (right - level.matrix @ found)
        rest = level.prolongation.transposed @ (right - level.matrix @ found)
        found = found + level.prolongation @ self._cycle(rest, place + 1)
        # The same steps in the opposite order make the cycle symmetric.
        for step in reversed(_STEPS):
            found = found + step * smoothing * (right - level.matrix @ found)
        return found

    def solve(
        self,
        right: Float[Tensor, "points channels"],
        start: Float[Tensor, "points channels"] | None = None,
        *,
        cycles: int = 8,
    ) -> Float[Tensor, "points channels"]:
        """The solution of matrix × solution = right side, zero at prescribed points.

        Conjugate gradients with a V-cycle as preconditioner, a fixed number of times; each channel has its own
        coefficients. Every cycle leaves about a third of the residual: from zero, 5 to 9 cycles leave a thousandth of
        it, 9 to 18 a millionth, at 3,000 to 300,000 points.

        The derivative is the solution of the same equation with the derivative as right side, by as many cycles:
        nothing is stored, however many cycles there are.

        Args:
            right: without effect at prescribed points.
            start: a guess, such as the solution at the last time step; zero by default. No derivative goes through it.
            cycles: how many.
        """
        guess = torch.zeros_like(right) if start is None else start.detach() * self.free[:, None]
        if not self.finer:
            return self.free[:, None] * (self.coarsest @ (self.free[:, None] * right))
        found = _Solve.apply(self, right, guess, cycles)
        assert isinstance(found, Tensor)
        return found

    def _conjugate_gradients(self, right: Tensor, start: Tensor, cycles: int) -> Tensor:
        free, matrix = self.free[:, None], self.finer[0].matrix
        found = start
        residual = free * right - matrix @ found
        smallest = torch.finfo(right.dtype).tiny
        direction = image = None
        square = None
        for _ in range(cycles):
            preconditioned = self._cycle(residual, 0)
            if direction is None or image is None or square is None:
                direction = preconditioned
            else:
                # Polak and Ribière's form forgives a preconditioner that rounding has made slightly unsymmetric.
                share = -_sum(preconditioned * image) / square.clamp_min(smallest)
                direction = preconditioned + share * direction
            image = matrix @ direction
            square = _sum(direction * image)
            length = _sum(direction * residual) / square.clamp_min(smallest)
            found = found + length * direction
            residual = residual - length * image
        return found


def _sum(values: Float[Tensor, "points channels"]) -> Float[Tensor, "1 channels"]:
    return values.sum(dim=0, keepdim=True)


def _chebyshev_steps(number: int, share: float) -> tuple[float, ...]:
    """Lengths of smoothing steps whose product is smallest for eigenvalues between the share and one."""
    roots = np.cos(np.pi * (np.arange(number) + 0.5) / number)
    return tuple(float(1.0 / (0.5 * (1.0 + share) + 0.5 * (1.0 - share) * root)) for root in roots)


_STEPS = _chebyshev_steps(SMOOTHING_STEPS, ROUGHEST_SHARE)


class _Solve(torch.autograd.Function):
    """The matrix is symmetric, so the derivative of a solution is a solution."""

    @staticmethod
    def forward(ctx, levels: Levels, right: Tensor, start: Tensor, cycles: int) -> Tensor:
        ctx.levels, ctx.cycles = levels, cycles
        return levels._conjugate_gradients(right, start, cycles)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, ctx.levels.solve(gradient, cycles=ctx.cycles), None, None


# Set-up in SciPy


def _size(matrix: csr_array) -> int:
    return len(matrix.indptr) - 1


def aggregate(strong: csr_array) -> Int[np.ndarray, " points"]:
    """The aggregate of each point, -1 for points without neighbours.

    Roots are points at a distance of at least three edges from each other, such that no other point could become one;
    each gathers its neighbours, and what is left joins a neighbour's aggregate. Roots are found in a few sweeps over
    all points at once: a point becomes a root if its number, scrambled, is the largest among all points still undecided
    within two edges.
    """
    number = _size(strong)
    connected = np.diff(strong.indptr) > 0
    # Multiplying by an odd number mod 2³² scrambles, is one to one, and is the same on every machine.
    rank = (np.arange(1, number + 1, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)).astype(np.int64) + 1
    undecided, roots = connected.copy(), np.zeros(number, bool)
    while undecided.any():
        competing = np.where(undecided, rank, 0)
        chosen = undecided & (_largest_near(strong, _largest_near(strong, competing)) == competing)
        roots |= chosen
        near = _largest_near(strong, _largest_near(strong, chosen.astype(np.int64))) > 0
        undecided &= ~near
    found = np.where(roots, np.cumsum(roots), 0)
    # Twice: neighbours of roots, then neighbours of those; all points lie within two edges of a root.
    for _ in range(2):
        found = np.where(found > 0, found, _largest_near(strong, found))
    return found - 1


def _largest_near(strong: csr_array, values: Int[np.ndarray, " points"]) -> Int[np.ndarray, " points"]:
    """The largest value among a point and its neighbours."""
    starts, counts = strong.indptr[:-1], np.diff(strong.indptr)
    result = values.copy()
    having = counts > 0
    if having.any():
        result[having] = np.maximum(result[having], np.maximum.reduceat(values[strong.indices], starts[having]))
    return result


def _strong(matrix: csr_array, threshold: float) -> csr_array:
    entries = matrix.tocoo()
    diagonal = np.abs(matrix.diagonal())
    kept = (entries.row != entries.col) & (
        np.abs(entries.data) >= threshold * np.sqrt(diagonal[entries.row] * diagonal[entries.col])
    )
    return csr_array((entries.data[kept], (entries.row[kept], entries.col[kept])), shape=matrix.shape)


def _level(matrix: csr_array, strong: csr_array, aggregates: Int[np.ndarray, " points"]) -> tuple[Level, csr_array]:
    """The level of a matrix, and the matrix of the next one."""
    inverse = 1.0 / np.asarray(matrix.diagonal(), float)
    largest = _largest_eigenvalue(matrix, inverse)
    joined = np.flatnonzero(aggregates >= 0)
    number = int(aggregates.max()) + 1
    constant = csr_array((np.ones(len(joined)), (joined, aggregates[joined])), shape=(_size(matrix), number))
    # Smoothed along strong connections only; weak ones go to the diagonal, which keeps the sums of the rows. Otherwise
    # the functions of neighbouring aggregates overlap across thin cells, and coarser matrices fill up.
    lumped = np.asarray(matrix.sum(axis=1)).ravel() - np.asarray(strong.sum(axis=1)).ravel()
    lumped = np.where(lumped > 0.2 / inverse, lumped, 1.0 / inverse)
    filtered = strong + diags_array(lumped)
    prolongation = csr_array(constant - diags_array(_PROLONGATION_STEP / lumped) @ (filtered @ constant))
    coarser = csr_array(prolongation.T @ matrix @ prolongation)
    # Exactly symmetric, so that one set of tensors serves as its own transpose.
    coarser = csr_array(0.5 * (coarser + coarser.T))
    level = Level(_symmetric(matrix), torch.from_numpy(inverse / largest), SparseMatrix.from_scipy(prolongation))
    return level, coarser


def _largest_eigenvalue(matrix: csr_array, inverse: Float[np.ndarray, " points"]) -> float:
    """A little more than the largest eigenvalue of (inverse diagonal × matrix)."""
    root = np.sqrt(inverse)
    vector = np.cos(np.arange(_size(matrix)) * 2.399963)  # anything that is far from smooth
    value = 1.0
    for _ in range(20):
        vector = root * (matrix @ (root * (vector / np.linalg.norm(vector))))
        value = float(np.linalg.norm(vector))
    rows = np.repeat(np.arange(_size(matrix)), np.diff(matrix.indptr))
    bound = float((inverse * np.bincount(rows, np.abs(matrix.data), minlength=len(inverse))).max())
    return min(1.1 * value, bound)


def _inverse(matrix: csr_array) -> csr_array:
    """The inverse as a full matrix; eigenvectors that the matrix does not see, the constants, are left out."""
    values, vectors = np.linalg.eigh(matrix.toarray())
    seen = values > _SINGULAR * values.max(initial=0.0)
    inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
    return csr_array(0.5 * (inverse + inverse.T))


def _symmetric(matrix: csr_array) -> SparseMatrix:
    """A symmetric matrix and its transpose share their tensors."""
    straight = SparseMatrix.from_scipy(matrix)
    return replace(
        straight,
        transposed_row_starts=straight.row_starts,
        transposed_columns=straight.columns,
        transposed_values=straight.values,
    )
