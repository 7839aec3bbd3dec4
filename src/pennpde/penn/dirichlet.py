"""The Dirichlet layer."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def apply_dirichlet(
    encoded: Float[Tensor, "points *axes"],
    boundary: Float[Tensor, "points *axes"],
    mask: Bool[Tensor, " points"],
) -> Float[Tensor, "points *axes"]:
    """The Dirichlet layer: the encoded boundary value where one is prescribed, the state elsewhere."""
    return torch.where(mask.reshape(-1, *[1] * (encoded.ndim - 1)), boundary, encoded)
