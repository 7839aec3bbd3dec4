"""NIsoGCN: differential operators in the encoded space that know Neumann conditions.

And what else a network may do with vectors and tensors and stay equivariant under rotation and reflection: channels
are mixed linearly and scaled by functions of invariants. Fields have points first and feature channels last.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from pennpde.operators import Operators
from pennpde.penn.mlp import MLP


def squared_norm(values: Float[Tensor, "points *axes channels"]) -> Float[Tensor, "points channels"]:
    """Sum of squares over the axes of space, channel by channel: an invariant.

    The paper takes the norm itself, whose derivative at zero, the value on every wall, is infinite.
    """
    return (values * values).sum(dim=tuple(range(1, values.ndim - 1))) if values.ndim > 2 else values * values


def invariant(values: Float[Tensor, "points *axes channels"]) -> Float[Tensor, "points channels"]:
    """What an MLP may see of a field: a scalar itself, the squared norm of anything else."""
    return values if values.ndim == 2 else squared_norm(values)


def scale_by(
    coefficient: Float[Tensor, "points channels"], values: Float[Tensor, "points *axes channels"]
) -> Float[Tensor, "points *axes channels"]:
    """Multiply each channel of a tensor field by a scalar of its own."""
    inserted = coefficient.reshape(coefficient.shape[0], *[1] * (values.ndim - 2), coefficient.shape[-1])
    return inserted * values


def dot(
    vector: Float[Tensor, "points space channels"], tensor: Float[Tensor, "points space *axes channels"]
) -> Float[Tensor, "points *axes channels"]:
    """Contract the first axis of space: `dot(u, grad(u))` is (u . grad) u, `dot(u, v)` the scalar product."""
    inserted = vector.reshape(*vector.shape[:2], *[1] * (tensor.ndim - 3), vector.shape[-1])
    # A sum over an axis of two takes three times as long as its two terms.
    total = inserted[:, 0] * tensor[:, 0]
    for axis in range(1, tensor.shape[1]):
        total = torch.addcmul(total, inserted[:, axis], tensor[:, axis])
    return total


def distance_levels(distance: Float[Tensor, " points"]) -> Float[Tensor, "points 3"]:
    """A distance as the paper's networks see it, on three scales of length."""
    return torch.stack([torch.exp(-0.5 * distance), torch.exp(-distance), torch.exp(-2 * distance)], dim=1)


def near_identity(width: int) -> Float[Tensor, "width width"]:
    """A channel mixing before training: an untrained network is nearly the operator that it is made of."""
    return torch.eye(width) + 0.1 / width**0.5 * torch.randn(width, width)


class NIsoGCN(nn.Module):
    """A differential operator in the encoded space: y = c(x) * (D(x) W).

    D is grad, div or laplacian of the unknown's operators, Neumann conditions included; W mixes channels after it; c is
    a coefficient network on the invariants of the input. It starts as `scale` times the operator itself, so that an
    untrained network already solves a crude form of the real equation.
    """

    def __init__(
        self,
        width: int,
        operator: Literal["grad", "div", "laplacian"],
        *,
        scale: float = 1.0,
        coefficient: bool = True,
    ):
        super().__init__()
        self.operator = operator
        self.mixing = nn.Parameter(scale * near_identity(width))
        self.coefficient = MLP((width, width, width), start=1.0) if coefficient else None

    def forward(
        self,
        values: Float[Tensor, "points *axes width"],
        operators: Operators,
        normal_derivative: Float[Tensor, "points *axes width"] | None = None,
    ) -> Tensor:
        if self.operator == "div":
            derivative = operators.div(values)
        elif self.operator == "laplacian":
            derivative = operators.laplacian(values, normal_derivative)
        else:
            derivative = operators.grad(values, normal_derivative)
        mixed = linear(derivative, self.mixing.T)
        return mixed if self.coefficient is None else scale_by(self.coefficient(invariant(values)), mixed)


def Gradient(width: int, **options) -> NIsoGCN:  # noqa: N802  (reads as the layer that it makes)
    """NIsoGCN 0 -> 1, or 1 -> 2 on vectors."""
    return NIsoGCN(width, "grad", **options)


def Divergence(width: int, **options) -> NIsoGCN:  # noqa: N802
    """NIsoGCN 1 -> 0, or 2 -> 1 on tensors."""
    return NIsoGCN(width, "div", **options)


def Laplacian(width: int, **options) -> NIsoGCN:  # noqa: N802
    """NIsoGCN 0 -> 1 -> 0, component by component on vectors."""
    return NIsoGCN(width, "laplacian", **options)
