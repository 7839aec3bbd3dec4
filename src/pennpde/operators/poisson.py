"""The pressure's equation, solved: by factors of its matrix on a CPU, by multigrid (`levels`) on large meshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float
from scipy.sparse.linalg import splu
from torch import Tensor

from pennpde.operators.dual_cells import DualCells
from pennpde.operators.levels import Levels

LARGEST_FACTORISED = 60_000
"""Up to so many points a factorised matrix solves faster on one core than multigrid does."""


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

    def _solved(self, right: Tensor) -> Tensor:
        values = right.detach().cpu().numpy().astype(float)
        result, start = np.zeros_like(values), 0
        for factors, free, size in zip(self.factors, self.free, self.sizes, strict=True):
            result[start + free] = factors.solve(values[start + free])  # pyright: ignore[reportAttributeAccessIssue]
            start += size
        return torch.from_numpy(result).to(right)


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
class Multigrid:
    """Conjugate gradients with a multigrid cycle as preconditioner, a fixed number of times."""

    levels: Levels
    cycles: int

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        return self.levels.solve(right[:, None], guess[:, None], cycles=self.cycles)[:, 0]


def stiffness_of(cells: DualCells) -> scipy.sparse.csr_matrix:
    """The stiffness matrix of dual cells."""
    nothing = torch.zeros_like(cells.areas)
    return cells.matrix(nothing, cells.conductances, torch.zeros_like(cells.conductances)).to_scipy()


def poisson(
    cells: DualCells, prescribed: Bool[np.ndarray, " points"], *, cycles: int = 6, factorise: bool | None = None
) -> Factorised | Multigrid:
    """A solver of the equation stiffness × values = right side, zero where a value is prescribed.

    Args:
        cells: of one mesh, in double precision.
        prescribed: where the pressure is known; at least one point.
        cycles: of multigrid.
        factorise: whether to factorise; by default where there are few enough points.
    """
    matrix = stiffness_of(cells)
    if factorise if factorise is not None else cells.number_of_points <= LARGEST_FACTORISED:
        return Factorised.of(matrix, prescribed)
    return Multigrid(Levels.of(matrix, prescribed), cycles)
