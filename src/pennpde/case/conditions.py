"""Boundary conditions of one unknown: prescribed values, prescribed normal derivatives, no normal component."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """Prescribed values of one unknown. A point is prescribed whole, all components together."""

    mask: Bool[Tensor, " points"]
    values: Float[Tensor, "points *axes"]
    """Zero where nothing is prescribed: a NaN there would poison the gradients of the boundary encoder."""

    def apply(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        """The field with the prescribed values in place, bit for bit."""
        mask = self.mask.reshape(-1, *[1] * (values.ndim - 1))
        prescribed = self.values
        if prescribed.ndim < values.ndim:  # a trailing axis of times: the condition holds at each
            prescribed = prescribed.reshape(*prescribed.shape, *[1] * (values.ndim - prescribed.ndim))
        return torch.where(mask, prescribed.to(values.dtype), values)


@dataclass(frozen=True, eq=False)
class Neumann:
    """Prescribed normal derivatives of one unknown, with the normals of its own Neumann patches (zero elsewhere)."""

    mask: Bool[Tensor, " points"]
    normals: Float[Tensor, "points space"]
    normal_derivative: Float[Tensor, "points *axes"]
    is_homogeneous: bool = False
    """Known to be zero everywhere: to find out would wait for a GPU."""


@dataclass(frozen=True, eq=False)
class Slip:
    """A vector unknown without normal component: a slip wall or a plane of symmetry.

    Where two slip patches meet at an angle, the mean of their normals counts.
    """

    mask: Bool[Tensor, " points"]
    normals: Float[Tensor, "points space"]
    """Zero off the slip points, so that the projection needs no mask."""

    def apply(self, values: Float[Tensor, "points space *channels"]) -> Float[Tensor, "points space *channels"]:
        normals = self.normals.reshape(*self.normals.shape, *[1] * (values.ndim - 2)).to(values.dtype)
        return values - normals * (normals * values).sum(dim=1, keepdim=True)
