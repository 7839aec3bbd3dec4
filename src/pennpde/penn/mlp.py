"""Linear layers with activations, on the channels of scalar fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

LEAKY_SLOPE = 0.5
"""The paper's slope: an extreme one would make the inverse steep."""

Activation = Literal["tanh", "leaky_relu", "identity"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "leaky_relu": lambda x: nn.functional.leaky_relu(x, LEAKY_SLOPE),
    "identity": lambda x: x,
}

INVERSES: dict[str, Callable[[Tensor], Tensor]] = {
    "leaky_relu": lambda x: nn.functional.leaky_relu(x, 1 / LEAKY_SLOPE),
    "identity": lambda x: x,
}


def activated(activation: Activation, values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Values after an activation, by name."""
    return _ACTIVATIONS[activation](values)


class MLP(nn.Module):
    """Linear layers with an activation between them, on the channels of a scalar field."""

    def __init__(
        self,
        sizes: Sequence[int],
        activations: Sequence[Activation] | None = None,
        *,
        bias: bool = True,
        start: float | None = None,
        spread: float = 0.3,
    ):
        """Build the layers.

        Args:
            sizes: Channels from the input to the output.
            activations: One per layer; by default tanh inside and none at the end.
            bias: Whether the layers have one.
            start: The output before training, for a network that should begin as a known constant; None keeps
                PyTorch's own start.
            spread: With `start`, the factor on the last layer's weights.
        """
        super().__init__()
        inside = len(sizes) - 2
        self.activations: tuple[Activation, ...] = tuple(activations or ("tanh",) * inside + ("identity",))
        if len(self.activations) != len(sizes) - 1:
            raise ValueError(f"{len(sizes) - 1} layers need as many activations; got {self.activations}.")
        self.linears = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in pairwise(sizes))
        if start is not None:
            last = self.layers[-1]
            with torch.no_grad():
                last.weight.mul_(spread)
                if bias:
                    last.bias.fill_(start)

    @property
    def layers(self) -> list[nn.Linear]:
        return cast("list[nn.Linear]", list(self.linears))

    def forward(self, values: Float[Tensor, "points *axes channels"]) -> Float[Tensor, "points *axes out"]:
        for linear, activation in zip(self.layers, self.activations, strict=True):
            values = activated(activation, linear(values))
        return values
