"""Linear equations with a matrix that is not symmetric: stabilised biconjugate gradients (van der Vorst 1992).

Each mesh of a batch has coefficients of its own, and both components of a velocity share them: the solution turns with
the mesh. The derivative is the solution of the transposed equation, so that no iteration is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.flow.dual_cells import DualCells, product
from pennpde.operators.sparse import SparseMatrix

Restriction = Callable[[Tensor], Tensor]
"""A projection onto what is free: zero where values are prescribed, tangential at slip walls."""


@dataclass(frozen=True)
class Effort:
    """How long is iterated.

    Attributes:
        tolerance: what may be left of the residual, as a share of the right side.
        most: iterations.
        look: after how many iterations it is seen whether they suffice; each look waits for the device. With 0 nobody
            looks, all iterations are made, and a step can be captured as a graph.
    """

    tolerance: float = 1e-4
    most: int = 60
    look: int = 1


def solve(
    cells: DualCells,
    matrix: SparseMatrix,
    right: Float[Tensor, "components points"],
    guess: Float[Tensor, "components points"],
    restrict: Restriction,
    effort: Effort | None = None,
) -> tuple[Float[Tensor, "components points"], Float[Tensor, " meshes"]]:
    """The solution of restrict(matrix × solution) = restrict(right side) that differs from the guess only where free.

    Also gives, for each mesh, the square of what is left of the residual, over what may be left: up to 1 where the
    iterations sufficed.

    Args:
        cells: whose points they are; sums are taken mesh by mesh.
        matrix: with a positive diagonal, made by `DualCells.matrix`.
        right: the right side.
        guess: has the prescribed values; the closer, the fewer iterations.
        restrict: a symmetric projection that commutes with a factor per point.
        effort: how long is iterated.
    """
    diagonal = matrix.values[cells.diagonal]
    return _Solve.apply(matrix.values, right, guess, cells, matrix, diagonal, restrict, effort or Effort())


def _iterate(
    cells: DualCells,
    matrix: SparseMatrix,
    diagonal: Tensor,
    residual: Tensor,
    scale: Tensor,
    restrict: Restriction,
    effort: Effort,
) -> tuple[Tensor, Tensor]:
    """The change that takes the residual away, and the square of what is left of it over what may be left."""
    inverse = 1.0 / diagonal
    tiny = torch.finfo(residual.dtype).tiny

    inner, spread = cells.inner, cells.at_points

    def image(values: Tensor) -> Tensor:
        return restrict(product(matrix, values))

    # Divisors that vanish do so with what they divide: a tiny number keeps 0 / 0 from spoiling a mesh that has
    # converged before the others of its batch.
    change = torch.zeros_like(residual)
    shadow, direction = residual, residual
    rho = inner(shadow, residual)
    limit = (effort.tolerance**2) * scale
    square = inner(residual, residual)
    # Of one mesh, the loop ends when it is done. Of several, those that are done stand still: further iterations would
    # lose themselves in rounding, and each mesh gets what it would get alone.
    alone = cells.number_of_meshes == 1 and effort.look == 1
    for number in range(effort.most):
        if effort.look and number % effort.look == 0 and not bool((square > limit).any()):
            break
        moving = None if alone else square > limit
        going = inverse * direction
        through = image(going)
        alpha = _while(moving, rho / (inner(shadow, through) + tiny))
        half = torch.addcmul(residual, spread(alpha), through, value=-1)
        smoothed = inverse * half
        smoothed_image = image(smoothed)
        omega = _while(moving, inner(smoothed_image, half) / (inner(smoothed_image, smoothed_image) + tiny))
        along, across = spread(alpha), spread(omega)
        change.addcmul_(along, going).addcmul_(across, smoothed)
        residual = torch.addcmul(half, across, smoothed_image, value=-1)
        following = inner(shadow, residual)
        beta = _while(moving, following / (rho + tiny) * (alpha / (omega + tiny)))
        direction = torch.addcmul(residual, spread(beta), torch.addcmul(direction, across, through, value=-1))
        rho, square = following, inner(residual, residual)
    return change, square / limit.clamp_min(tiny)


def _while(moving: Tensor | None, coefficient: Tensor) -> Tensor:
    """The coefficient, nothing for meshes that are done."""
    return coefficient if moving is None else torch.where(moving, coefficient, 0.0)


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, right, guess, cells, matrix, diagonal, restrict, effort):  # noqa: ARG004
        residual = restrict(right - product(matrix, guess))
        scale = cells.total(restrict(right).square()) + torch.finfo(right.dtype).tiny
        change, left = _iterate(cells, matrix, diagonal, residual, scale, restrict, effort)
        found = guess + change
        ctx.save_for_backward(found)
        ctx.mark_non_differentiable(left)
        ctx.rest = (cells, matrix, diagonal, restrict, effort)
        return found, left

    @staticmethod
    def backward(ctx, gradient, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        (found,) = ctx.saved_tensors
        cells, matrix, diagonal, restrict, effort = ctx.rest
        free = restrict(gradient)
        scale = cells.total(free.square()) + torch.finfo(free.dtype).tiny
        multiplier, _ = _iterate(cells, matrix.transposed, diagonal, free, scale, restrict, effort)
        rows = torch.repeat_interleave(matrix.row_starts.diff(), output_size=matrix.columns.shape[0])
        of_values = -(multiplier.index_select(1, rows) * found.index_select(1, matrix.columns)).sum(dim=0)
        # What is not free passes through: the solution there is the guess; its images act on the free part.
        images = product(matrix.transposed, multiplier)
        of_guess = gradient - free - (images - restrict(images))
        return of_values, multiplier, of_guess, None, None, None, None, None
