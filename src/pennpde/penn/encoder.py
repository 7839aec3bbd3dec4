"""The boundary encoder: unknowns and their prescribed values, encoded with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.penn.decoder import pseudoinverse
from pennpde.penn.mlp import INVERSES, MLP, Activation


class Encoder(nn.Module):
    """Encodes an unknown *and* its Dirichlet values with the same weights; `decode` is the pseudoinverse.

    f(x) = s2(W2 s1(W1 x + b1) + b2), decoded as f+(h) = W1+ (s1^-1(W2+ (s2^-1(h) - b2)) - b1).

    Equation 19 of the paper subtracts the biases after the pseudoinverses, which does not invert the layer; they go
    first. `decode(encode(x)) = x` for every x, whatever the weights, as long as no layer has more inputs than outputs.
    """

    def __init__(self, sizes: Sequence[int], activations: Sequence[Activation] | None = None, *, bias: bool = False):
        super().__init__()
        if any(a > b for a, b in pairwise(sizes)):
            raise ValueError(f"An encoder that narrows cannot be inverted; got layers {list(sizes)}.")
        layers = len(sizes) - 1
        self.network = MLP(sizes, activations or ("leaky_relu",) * (layers - 1) + ("identity",), bias=bias)
        for activation in self.network.activations:
            if activation not in INVERSES:
                raise ValueError(f"The encoder's activation {activation!r} has no inverse; use {sorted(INVERSES)}.")

    @classmethod
    def linear(cls, width: int, spread: float = 0.3) -> Encoder:
        """One linear layer without bias that starts near one in every channel: the physical field, many times over."""
        encoder = cls((1, width))
        with torch.no_grad():
            weight = encoder.network.layers[0].weight
            weight.copy_(1.0 + spread * torch.randn_like(weight))
        return encoder

    @property
    def is_linear(self) -> bool:
        """Whether it commutes with derivatives: then it also encodes normal derivatives."""
        return self.network.activations == ("identity",) and self.network.layers[0].bias is None

    def forward(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes width"]:
        return self.network(values[..., None])

    def decode(self, encoded: Float[Tensor, "points *axes width"]) -> Float[Tensor, "points *axes"]:
        for linear, activation in zip(reversed(self.network.layers), reversed(self.network.activations), strict=True):
            encoded = INVERSES[activation](encoded)
            if linear.bias is not None:
                encoded = encoded - linear.bias
            encoded = encoded @ pseudoinverse(linear.weight).T
        return encoded[..., 0]
