"""The pressure's equation, solved: by factors of its matrix, by its inverse, or by multigrid on large meshes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse.linalg import splu
from torch import Tensor

from pennpde.flow.dual_cells import DualCells
from pennpde.operators.multigrid import Levels

LARGEST_FACTORISED = 60_000
"""Up to so many points a factorised matrix solves faster on one core than multigrid does."""
LARGEST_INVERTED = 16_000
"""Up to so many points the inverse, one product, solves faster on a GPU than multigrid does: 1 GB in single precision,
which a GPU reads in a fraction of a millisecond."""


@dataclass(frozen=True, eq=False)
class Factorised:
    """Factors of a symmetric matrix at the points that are free; other values are zero."""

    factors: tuple[object, ...]
    free: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, matrix: scipy.sparse.spmatrix, prescribed: Bool[np.ndarray, " points"]) -> Factorised:
        free = np.flatnonzero(~prescribed)
        inner = scipy.sparse.csc_matrix(scipy.sparse.csr_matrix(matrix)[free][:, free])
        # Symmetric and positive definite: no pivoting, and an ordering of the graph itself.
        factors = splu(inner, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        return cls((factors,), (free,), (len(prescribed),))

    @classmethod
    def side_by_side(cls, parts: Sequence[Factorised]) -> Factorised:
        return cls(
            tuple(each for part in parts for each in part.factors),
            tuple(each for part in parts for each in part.free),
            tuple(each for part in parts for each in part.sizes),
        )

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:  # noqa: ARG002
        found = _Direct.apply(right, self)
        assert isinstance(found, Tensor)
        return found

    @cached_property
    def lower(self) -> tuple[np.ndarray, ...] | None:
        """The lower factor for compiled loops, which solve in half of the time that SciPy takes; None for batches.

        Column by column: starts, rows and values; one over the diagonal; for each row the point that it is.
        """
        if len(self.factors) > 1:
            return None
        factors: Any = next(iter(self.factors))
        if not np.array_equal(factors.perm_r, factors.perm_c):
            return None
        lower = factors.L.tocsc()
        lower.sort_indices()
        (free,) = self.free
        point = np.empty(len(free), np.uint32)
        point[factors.perm_r] = free
        starts, rows = lower.indptr.astype(np.uint32), lower.indices.astype(np.uint32)
        return starts, rows, lower.data, 1.0 / factors.U.diagonal(), point

    def _solved(self, right: Tensor) -> Tensor:
        return torch.from_numpy(self.solved(right.detach().cpu().numpy().astype(float))).to(right)

    def solved(self, values: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        """The solution in NumPy, in double precision."""
        result, start = np.zeros_like(values), 0
        for factors, free, size in zip(self.factors, self.free, self.sizes, strict=True):
            result[start + free] = factors.solve(values[start + free])  # pyright: ignore[reportAttributeAccessIssue]
            start += size
        return result


class _Direct(torch.autograd.Function):
    """The matrix is symmetric, so the derivative of a solution is a solution."""

    @staticmethod
    def forward(ctx, right, factorised):
        ctx.factorised = factorised
        return factorised._solved(right)

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.factorised._solved(gradient), None


@dataclass(frozen=True, eq=False)
class Inverse:
    """The inverse of a symmetric matrix at the points that are free; other values are zero."""

    inverses: tuple[Float[Tensor, "free free"], ...]
    free: tuple[Int[Tensor, " free"], ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls, matrix: scipy.sparse.spmatrix, prescribed: Bool[np.ndarray, " points"], device: torch.device | str
    ) -> Inverse:
        free = np.flatnonzero(~prescribed)
        entries = scipy.sparse.coo_matrix(scipy.sparse.csr_matrix(matrix)[free][:, free])
        places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64)).to(device)
        full = torch.zeros(len(free), len(free), dtype=torch.float64, device=device)
        full[places[0], places[1]] = torch.from_numpy(entries.data).to(device)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(full))
        return cls((inverse,), (torch.from_numpy(free).to(device),), (len(prescribed),))

    @classmethod
    def side_by_side(cls, parts: Sequence[Inverse]) -> Inverse:
        sizes = tuple(each for part in parts for each in part.sizes)
        starts = np.concatenate([[0], np.cumsum([sum(part.sizes) for part in parts])])
        return cls(
            tuple(each for part in parts for each in part.inverses),
            tuple(each + int(start) for part, start in zip(parts, starts, strict=False) for each in part.free),
            sizes,
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> Inverse:
        """The same inverses with each of their tensors changed."""
        return Inverse(tuple(map(change, self.inverses)), tuple(map(change, self.free)), self.sizes)

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        result = torch.zeros_like(guess)
        for inverse, free in zip(self.inverses, self.free, strict=True):
            result = result.index_copy(0, free, inverse @ right.index_select(0, free))
        return result


@dataclass(frozen=True, eq=False)
class Multigrid:
    """Conjugate gradients with a multigrid cycle as preconditioner, a fixed number of times."""

    levels: tuple[Levels, ...]
    """Of each mesh."""
    cycles: int

    @classmethod
    def side_by_side(cls, parts: Sequence[Multigrid]) -> Multigrid:
        return cls(tuple(each for part in parts for each in part.levels), max(part.cycles for part in parts))

    def map(self, change: Callable[[Tensor], Tensor]) -> Multigrid:
        """The same levels with each of their tensors changed."""
        return Multigrid(tuple(each.map(change) for each in self.levels), self.cycles)

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        sizes = [each.number_of_points for each in self.levels]
        parts = zip(self.levels, right[:, None].split(sizes), guess[:, None].split(sizes), strict=True)
        return torch.cat([each.solve(*given, cycles=self.cycles)[:, 0] for each, *given in parts])


Solver = Factorised | Inverse | Multigrid
Way = Literal["factors", "inverse", "levels"]
"""How the equation is solved."""


def side_by_side(parts: Sequence[Solver]) -> Solver:
    """A solver for the meshes of a batch."""
    for kind in (Factorised, Inverse, Multigrid):
        same = [part for part in parts if isinstance(part, kind)]
        if len(same) == len(parts):
            return kind.side_by_side(same)  # pyright: ignore[reportArgumentType]
    kinds = ", ".join(sorted({type(part).__name__ for part in parts}))
    raise ValueError(
        f"The pressure's equations of a batch are solved in one way, but these are {kinds}: give all the same `way`."
    )


def stiffness_of(cells: DualCells) -> scipy.sparse.csr_matrix:
    """The stiffness matrix of dual cells."""
    nothing = torch.zeros_like(cells.areas)
    return cells.matrix(nothing, cells.conductances, torch.zeros_like(cells.conductances)).to_scipy()


def usual_way(number_of_points: int, device: torch.device | str) -> Way:
    """The fastest way for a mesh on a device."""
    if torch.device(device).type == "cpu":
        return "factors" if number_of_points <= LARGEST_FACTORISED else "levels"
    return "inverse" if number_of_points <= LARGEST_INVERTED else "levels"


def poisson(
    cells: DualCells,
    prescribed: Bool[np.ndarray, " points"],
    *,
    cycles: int = 6,
    way: Way | None = None,
    device: torch.device | str = "cpu",
) -> Solver:
    """A solver of the equation stiffness × values = right side, zero where a value is prescribed.

    Args:
        cells: of one mesh, in double precision, on the CPU.
        prescribed: where the pressure is known; at least one point.
        cycles: of multigrid.
        way: how the equation is solved; by default the fastest.
        device: on which it will be; the inverse is computed there.
    """
    matrix = stiffness_of(cells)
    chosen = way or usual_way(cells.number_of_points, device)
    if chosen == "factors":
        return Factorised.of(matrix, prescribed)
    if chosen == "inverse":
        return Inverse.of(matrix, prescribed, device)
    return Multigrid((Levels.of(matrix, prescribed),), cycles)
