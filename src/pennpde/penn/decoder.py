"""The pseudoinverse decoder, what corrects it, and what ablations put in its place."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Dirichlet
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import scale_by, squared_norm


def pseudoinverse(weight: Float[Tensor, "out channels"]) -> Float[Tensor, "channels out"]:
    """Moore–Penrose inverse of a layer's weight; for a single input channel it is a division."""
    if weight.shape[1] == 1:
        return weight.T / (weight * weight).sum()
    return _left_inverse(weight) if weight.is_cuda else torch.linalg.pinv(weight)


def _left_inverse(weight: Float[Tensor, "out channels"]) -> Float[Tensor, "channels out"]:
    """(W^T W)^-1 W^T, the pseudoinverse of a weight whose columns are independent, by elimination in double precision.

    A singular value decomposition waits for the GPU, and no graph of a training step can hold it.
    """
    number = weight.shape[1]
    wide = weight.double()
    rows = torch.cat([wide.T @ wide, wide.T], dim=1)
    for pivot in range(number):
        scaled = rows[pivot] / rows[pivot, pivot]
        is_pivot = (torch.arange(number, device=weight.device) == pivot)[:, None]
        rows = torch.where(is_pivot, scaled, rows - rows[:, pivot, None] * scaled)
    return rows[:, number:].to(weight.dtype)


class Correction(nn.Module):
    """What is added to the pseudoinverse, nothing before training: for a vector its channels, gated by their lengths.

    The pseudoinverse sees only one direction of the encoded space, that of the encoder.
    """

    def __init__(self, width: int, rank: int):
        super().__init__()
        self.rank = rank
        self.gate = MLP((width, width, width if rank else 1), start=0.0, spread=0.0)

    def forward(self, encoded: Float[Tensor, "points *axes width"]) -> Float[Tensor, "points *axes"]:
        if not self.rank:
            return self.gate(encoded)[..., 0]
        return scale_by(self.gate(squared_norm(encoded)), encoded).sum(dim=-1)


class PlainDecoder(nn.Module):
    """A decoder without guarantee, for the ablations: an MLP on scalars, a gated linear layer on vectors.

    The authors' decoder of vectors has a bias, which breaks rotation equivariance; this one does not.
    """

    def __init__(self, width: int, rank: int):
        super().__init__()
        hidden = max(width // 2, 1)
        self.linear = nn.Linear(width, 1, bias=False) if rank else None
        self.network = None if rank else MLP((width, hidden, 1))

    def forward(self, encoded: Float[Tensor, "points *axes width"]) -> Float[Tensor, "points *axes"]:
        module = self.linear or self.network
        assert module is not None
        return module(encoded)[..., 0]


class BoundaryFeatures(nn.Module):
    """Dirichlet value and flag as further inputs of an encoder (ablation E), equivariant for vectors."""

    def __init__(self, width: int, rank: int):
        super().__init__()
        self.value = nn.Linear(1, width, bias=False)
        self.flag = None if rank else nn.Linear(1, width, bias=False)

    def forward(self, condition: Dirichlet) -> Tensor:
        encoded = self.value(condition.values[..., None])
        if self.flag is None:
            return encoded
        return encoded + self.flag(condition.mask.to(encoded.dtype)[:, None])
