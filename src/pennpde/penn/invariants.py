"""What a network may do with vectors and tensors and stay equivariant under rotation and reflection.

Fields have points first and feature channels last. Channels are mixed linearly and scaled by functions of invariants.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


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
    return (inserted * tensor).sum(dim=1)
