"""The trainable parts: encoder with pseudoinverse decoder, NIsoGCN layers.

Every layer takes fields with points first and feature channels last. A layer that acts on vectors or tensors only ever
mixes channels linearly and scales them by functions of invariants: that is what keeps it equivariant under rotation and
reflection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pennpde.network.mixing import Linear, mix
from pennpde.operators import Operators

LEAKY_SLOPE = 0.5
"""The paper's slope: an extreme one would make the inverse steep."""

Activation = Literal["tanh", "leaky_relu", "identity"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "leaky_relu": lambda x: nn.functional.leaky_relu(x, LEAKY_SLOPE),
    "identity": lambda x: x,
}


def activated(activation: Activation, values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Values after an activation, by name."""
    return _ACTIVATIONS[activation](values)


_INVERSES: dict[str, Callable[[Tensor], Tensor]] = {
    "leaky_relu": lambda x: nn.functional.leaky_relu(x, 1 / LEAKY_SLOPE),
    "identity": lambda x: x,
}


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
        self.linears = nn.ModuleList(Linear(a, b, bias=bias) for a, b in pairwise(sizes))
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
            if activation not in _INVERSES:
                raise ValueError(f"The encoder's activation {activation!r} has no inverse; use {sorted(_INVERSES)}.")

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
            encoded = _INVERSES[activation](encoded)
            if linear.bias is not None:
                encoded = encoded - linear.bias
            encoded = encoded @ pseudoinverse(linear.weight).T
        return encoded[..., 0]


def pseudoinverse(weight: Float[Tensor, "out channels"]) -> Float[Tensor, "channels out"]:
    """Moore–Penrose inverse of a layer's weight; for a single input channel it is a division."""
    if weight.shape[1] == 1:
        return weight.T / (weight * weight).sum()
    if weight.is_cuda:
        return _left_inverse(weight)
    return torch.linalg.pinv(weight)


def _left_inverse(weight: Float[Tensor, "out channels"]) -> Float[Tensor, "channels out"]:
    """(W^T W)^-1 W^T, the pseudoinverse of a weight whose columns are independent, by elimination in double precision.

    A captured training step cannot hold a singular value decomposition, which waits for the GPU.
    """
    number = weight.shape[1]
    wide = weight.double()
    rows = torch.cat([wide.T @ wide, wide.T], dim=1)
    for pivot in range(number):
        scaled = rows[pivot] / rows[pivot, pivot]
        is_pivot = (torch.arange(number, device=weight.device) == pivot)[:, None]
        rows = torch.where(is_pivot, scaled, rows - rows[:, pivot, None] * scaled)
    return rows[:, number:].to(weight.dtype)


def apply_dirichlet(
    encoded: Float[Tensor, "points *axes"],
    boundary: Float[Tensor, "points *axes"],
    mask: Bool[Tensor, " points"],
) -> Float[Tensor, "points *axes"]:
    """The Dirichlet layer: the encoded boundary value where one is prescribed, the state elsewhere."""
    return torch.where(mask.reshape(-1, *[1] * (encoded.ndim - 1)), boundary, encoded)


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
        self.mixing = nn.Parameter(scale * (torch.eye(width) + 0.1 / width**0.5 * torch.randn(width, width)))
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
        mixed = mix(derivative, self.mixing.T)
        return mixed if self.coefficient is None else scale_by(self.coefficient(invariant(values)), mixed)

    def extra_repr(self) -> str:
        return f"{self.operator}, width={self.mixing.shape[0]}"


def Gradient(width: int, **options) -> NIsoGCN:  # noqa: N802  (reads as the layer that it makes)
    """NIsoGCN 0 -> 1, or 1 -> 2 on vectors."""
    return NIsoGCN(width, "grad", **options)


def Divergence(width: int, **options) -> NIsoGCN:  # noqa: N802
    """NIsoGCN 1 -> 0, or 2 -> 1 on tensors."""
    return NIsoGCN(width, "div", **options)


def Laplacian(width: int, **options) -> NIsoGCN:  # noqa: N802
    """NIsoGCN 0 -> 1 -> 0, component by component on vectors."""
    return NIsoGCN(width, "laplacian", **options)
