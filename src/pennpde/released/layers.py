"""What the authors' networks share: their layers, their switches and their inputs.

Their code departs from the paper, and from ours, in details that decide the numbers: the order of indices, squared
norms, a Dirichlet layer inside the operator. Those details live here and in the other `released_*` modules; what they
have in common with us (operators, MLPs, encoder with pseudoinverse) comes from `layers` and `operators`.

Axes: inside these networks a vector is [space, points, channels], its components first. A scalar then multiplies it
without an axis to be inserted, and that product and the norm run along memory: with points first they take four times
as long on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from pennpde.operators import Operators
from pennpde.operators.sparse import SparseMatrix
from pennpde.penn.mlp import MLP, Activation

Kind = Literal["PENN", "A", "B", "C", "D", "E", "F", "G"]
"""A row of the ablation tables."""


@dataclass(frozen=True)
class Switches:
    """One row of the ablation tables, as the authors' settings files implement it."""

    decoder: Literal["pseudoinverse", "mlp"] = "pseudoinverse"
    dirichlet_in_solver: Literal["encoded", "physical", "none"] = "encoded"
    dirichlet_before_decoding: bool = True
    """On the encoded state."""
    dirichlet_after_decoding: bool = False
    """On the physical field."""
    boundary_features: bool = False
    """Value and flag of the condition are further inputs of the encoders."""
    solver: Literal["barzilai_borwein", "simple"] = "barzilai_borwein"


SWITCHES: Mapping[Kind, Switches] = {
    "PENN": Switches(),
    # Row A of the flow has physical states, and so no decoder at all.
    "A": Switches("mlp", "physical", dirichlet_before_decoding=False, dirichlet_after_decoding=True),
    "B": Switches("mlp", "none", dirichlet_before_decoding=False, dirichlet_after_decoding=True),
    "C": Switches(solver="simple"),
    "D": Switches(dirichlet_in_solver="none", dirichlet_before_decoding=False),
    "E": Switches("mlp", "none", dirichlet_before_decoding=False, boundary_features=True),
    "F": Switches("mlp"),
    # Row G of the flow drops the encoded layer before the decoder, row G of advection-diffusion keeps it.
    "G": Switches("mlp", dirichlet_before_decoding=False, dirichlet_after_decoding=True),
}


@dataclass(frozen=True, eq=False)
class Prescribed:
    """Dirichlet values with a mask for each component: the authors' files may prescribe some components of a vector."""

    mask: Bool[Tensor, "points *axes"]
    values: Float[Tensor, "points *axes"]

    def apply(self, field: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        return torch.where(self.mask, self.values, field)

    def encoded(self, encoder: Callable[[Tensor], Tensor]) -> EncodedCondition:
        """The condition in the encoded space. The authors cut its gradient, because they mark absence with NaN.

        We have no NaN, but to train as they did the cut must stay.
        """
        mask, values = self.mask, self.values
        if mask.ndim == 2:
            mask, values = mask.T, values.T
        rows = mask.reshape(-1).nonzero()[:, 0]
        with torch.no_grad():
            return EncodedCondition(rows, encoder(values.reshape(-1)[rows]))

    def features(self, field: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes 3"]:
        """Initial value, prescribed value (zero where there is none) and flag, for ablation E."""
        return torch.stack([field, self.values, self.mask.to(field)], dim=-1)


@dataclass(frozen=True, eq=False)
class EncodedCondition:
    """The authors' Dirichlet layer: encoded values in place of the prescribed rows of [*space, points, channels]."""

    rows: Int[Tensor, " prescribed"]
    values: Float[Tensor, "prescribed channels"]

    @classmethod
    def nothing(cls, like: Float[Tensor, "points channels"]) -> EncodedCondition:
        """A condition that prescribes nothing, for the ablations without Dirichlet layer."""
        return cls(torch.empty(0, dtype=torch.int64, device=like.device), like[:0])

    def apply(self, field: Float[Tensor, "*space points channels"]) -> Float[Tensor, "*space points channels"]:
        # Few rows are prescribed: a copy of the field and then of those is cheaper than a choice at every entry.
        return field.reshape(-1, field.shape[-1]).index_copy(0, self.rows, self.values).reshape(field.shape)

    def apply_over(self, field: Float[Tensor, "*space points channels"]) -> Float[Tensor, "*space points channels"]:
        """The same for a field that nobody needs any more."""
        if over(field) is None:
            return self.apply(field)
        field.view(-1, field.shape[-1]).index_copy_(0, self.rows, self.values)
        return field


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a released network takes: fields and operators in the authors' scales."""

    operators: Operators
    """G / sigma, the same for all unknowns."""
    geometry: Float[Tensor, "points features"]
    initial: Mapping[str, Tensor]
    prescribed: Mapping[str, Prescribed]
    velocity: Float[Tensor, "points space"] | None = None
    """The known velocity of advection-diffusion."""
    smoothing: SparseMatrix | None = None
    """The normalised adjacency D^-1/2 (A + 1) D^-1/2 of the flow network's graph convolutions."""
    sizes: tuple[int, ...] = ()
    """Points of each case of a batch."""

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Inputs:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype)

        return replace(
            self,
            operators=self.operators.to(dtype, device),
            geometry=move(self.geometry),
            initial={name: move(values) for name, values in self.initial.items()},
            prescribed={
                name: Prescribed(each.mask.to(device), move(each.values)) for name, each in self.prescribed.items()
            },
            velocity=None if self.velocity is None else move(self.velocity),
            smoothing=self.smoothing and self.smoothing.to(dtype, device),
        )


class FoldedMLP:
    """An MLP of two layers, tanh between them, made ready for many evaluations.

    PyTorch's sigmoid takes a sixth of the time of its tanh on a CPU, so tanh(x) = 2 (sigmoid(2 x) - 1/2), with the
    factors in the weights; the half is taken off before the second layer, where it costs no digits. Where one part of
    the input never changes, its share of the first layer is worked out once.
    """

    def __init__(
        self,
        network: MLP,
        constant: Float[Tensor, "points fixed"] | None = None,
        *,
        constant_first: bool = False,
    ):
        """Fold the weights.

        Args:
            network: The MLP.
            constant: The part of its input that never changes.
            constant_first: Whether that comes before the part that changes.
        """
        first, second = (_linear(each) for each in network.linears)
        weight, share = split_linear(first, constant, constant_first=constant_first)
        self._first = 2 * weight.T, None if share is None else 2 * share
        self._second = 2 * second.weight.T, second.bias

    def __call__(self, values: Float[Tensor, "points channels"]) -> Float[Tensor, "points out"]:
        hidden = _affine(values, *self._first).sigmoid_()
        return _affine(torch.sub(hidden, 0.5, out=over(hidden)), *self._second)


def _affine(values: Tensor, weight: Tensor, share: Tensor | None) -> Tensor:
    return values @ weight if share is None else torch.addmm(share, values, weight)


def split_linear(
    linear: nn.Linear, constant: Float[Tensor, "*axes fixed"] | None, *, constant_first: bool = False
) -> tuple[Float[Tensor, "out varying"], Tensor | None]:
    """The weight for the part of the input that changes, and the share of bias and constant part, [*axes, out]."""
    if constant is None:
        return linear.weight, linear.bias
    width = constant.shape[-1]
    at = width if constant_first else linear.in_features - width
    before, after = linear.weight[:, :at], linear.weight[:, at:]
    varying, fixed = (after, before) if constant_first else (before, after)
    return varying, nn.functional.linear(constant, fixed, linear.bias)


def _linear(module: nn.Module) -> nn.Linear:
    assert isinstance(module, nn.Linear)
    return module


class IsoGCN(nn.Module):
    """c(s) * (D W): a derivative D of the input, mixed by W, scaled by a network on the input's invariant s.

    The derivative is an argument, so that layers on the same input share it.
    """

    released_names: Mapping[str, str] = {"subchains.0.0.": "mixing.", "coefficient_network.": "coefficient."}

    def __init__(self, channels: int, hidden: int, out: int, *, bias: bool):
        super().__init__()
        self.mixing = nn.Linear(channels, out, bias=False)
        self.coefficient = MLP((channels, hidden, out), bias=bias)

    def folded(self) -> FoldedIsoGCN:
        return FoldedIsoGCN(FoldedMLP(self.coefficient), self.mixing)


@dataclass(frozen=True, eq=False)
class FoldedIsoGCN:
    """An IsoGCN layer made ready for many evaluations."""

    coefficient: FoldedMLP
    mixing: nn.Linear

    def __call__(
        self, derivative: Float[Tensor, "*space points channels"], invariant: Float[Tensor, "points channels"]
    ) -> Float[Tensor, "*space points out"]:
        mixed = self.mixing(derivative)
        return torch.mul(mixed, self.coefficient(invariant), out=over(mixed))


class GatedMLP(nn.Module):
    """L(x) * MLP(|x|^2), the authors' equivariant MLP; L is the identity between equal widths."""

    released_names: Mapping[str, str] = {"linears.": "gate.linears.", "linear_weight.": "linear."}

    def __init__(self, sizes: Sequence[int], *, bias: bool = True):
        super().__init__()
        self.gate = MLP(sizes, bias=bias)
        self.linear = nn.Linear(sizes[0], sizes[-1], bias=False) if sizes[0] != sizes[-1] else None

    def folded(
        self, constant: Float[Tensor, "space points fixed"] | None = None
    ) -> Callable[[Float[Tensor, "space points channels"]], Float[Tensor, "space points out"]]:
        """The layer, between different widths, as a function of the first channels; `constant` are the others."""
        gate = FoldedMLP(self.gate, None if constant is None else squared_norm(constant))
        assert self.linear is not None, "between equal widths there is nothing but the gate"
        weight, share = split_linear(self.linear, constant)

        def layer(vector: Tensor) -> Tensor:
            flat = vector.reshape(-1, vector.shape[-1])
            mixed = _affine(flat, weight.T, None if share is None else share.flatten(0, 1))
            mixed = mixed.reshape(*vector.shape[:-1], -1)
            return torch.mul(mixed, gate(squared_norm(vector)), out=over(mixed))

        return layer


class GraphConvolution(nn.Module):
    """x <- s((A x) W + b), layer by layer; the components of a vector count as further channels of the product."""

    released_names: Mapping[str, str] = {"subchains.0.": "network.linears."}

    def __init__(self, sizes: Sequence[int], activations: Sequence[Activation] | None = None, *, bias: bool):
        super().__init__()
        self.network = MLP(sizes, activations, bias=bias)

    def forward(
        self, values: Float[Tensor, "*space points channels"], smoothing: SparseMatrix
    ) -> Float[Tensor, "*space points out"]:
        for linear, activation in zip(self.network.linears, self.network.activations, strict=True):
            values = linear(smooth(smoothing, values))
            if activation == "tanh":
                values = 2 * torch.sigmoid(2 * values) - 1
        return values


def over(result: Tensor) -> Tensor | None:
    """The argument `out` of an operation that may write over an intermediate result: unless gradients still need it.

    These networks are made of many small steps, each as long as its way to memory.
    """
    return None if torch.is_grad_enabled() else result


def squared_norm(vector: Float[Tensor, "space points channels"]) -> Float[Tensor, "points channels"]:
    """The square of the length, not the length that the paper has."""
    total = vector[0] * vector[0]
    for component in vector[1:]:
        total = torch.addcmul(total, component, component, out=over(total))
    return total


def contract_with(
    tensor: Float[Tensor, "space space points channels"], vector: Float[Tensor, "space points channels"]
) -> Float[Tensor, "space points channels"]:
    """The sum over c of t[k, c] v[c]."""
    total = tensor[:, 0] * vector[0]
    for axis in range(1, len(vector)):
        total = torch.addcmul(total, tensor[:, axis], vector[axis], out=over(total))
    return total


def gradient_of_scalar(
    operators: Operators, values: Float[Tensor, "points channels"]
) -> Float[Tensor, "space points channels"]:
    """The authors' "convolution"."""
    return _components_first(product(operators.gradient, values), operators.number_of_points, operators.space)


def gradient_of_vector(
    operators: Operators, vector: Float[Tensor, "space points channels"]
) -> Float[Tensor, "points space space channels"]:
    """The authors' "tensor_product": [k, c] = G_k v_c, the axis of the derivative before that of the vector."""
    space, number, channels = vector.shape
    return product(operators.gradient, _points_first(vector)).reshape(number, space, space, channels)


def mix_components(
    tensor: Float[Tensor, "points space space channels"], mixing: nn.Linear
) -> Float[Tensor, "space space points out"]:
    """Mix the channels of a gradient of a vector, and put its components first on the way."""
    number, space, _, channels = tensor.shape
    components = tensor.reshape(number, space * space, channels).transpose(0, 1)
    weights = mixing.weight.T.expand(space * space, -1, -1)
    return torch.bmm(components, weights).reshape(space, space, number, -1)


def divergence(
    operators: Operators, vector: Float[Tensor, "space points channels"]
) -> Float[Tensor, "points channels"]:
    """The authors' "contraction" of a vector."""
    flat = _points_first(vector).reshape(-1, vector.shape[-1])
    return product(operators.divergence, flat)


def contract_gradient(
    operators: Operators, tensor: Float[Tensor, "points space space channels"]
) -> Float[Tensor, "space points channels"]:
    """The authors' "contraction" of a gradient: [k] = sum_c G_c t[k, c].

    It sums over the *last* axis of space, ours (`Operators.div`) over the first. So the contracted gradient of a vector
    is sum_c G_c G_k v_c, the gradient of the divergence, where the paper has the Laplacian of each component.
    """
    number, space, _, channels = tensor.shape
    exchanged = torch.arange(space * space, device=tensor.device).reshape(space, space).T.reshape(-1)
    # Three times as fast as a copy of tensor.transpose(1, 2).
    last_axis_first = tensor.reshape(number, space * space, channels).index_select(1, exchanged)
    flat = product(operators.divergence, last_axis_first.reshape(number * space, space * channels))
    return _components_first(flat, operators.number_of_points, operators.space)


def laplacian(operators: Operators, values: Float[Tensor, "points channels"]) -> Float[Tensor, "points channels"]:
    """The sum of G_k G_k of a scalar whose gradient is not needed: one product, if the matrix is multiplied out."""
    if operators.composed_laplacian is None:
        return product(operators.divergence, product(operators.gradient, values).reshape(-1, values.shape[-1]))
    return product(operators.composed_laplacian, values)


def smooth(
    smoothing: SparseMatrix, values: Float[Tensor, "*space points channels"]
) -> Float[Tensor, "*space points channels"]:
    """A x with the normalised adjacency."""
    if values.ndim == 2:
        return product(smoothing, values)
    return _components_first(product(smoothing, _points_first(values)), *values.shape[1::-1])


def _points_first(vector: Float[Tensor, "space points channels"]) -> Float[Tensor, "points space*channels"]:
    return vector.transpose(0, 1).reshape(vector.shape[1], -1)


def _components_first(flat: Tensor, points: int, space: int) -> Float[Tensor, "space points channels"]:
    return flat.reshape(points, space, -1).transpose(0, 1).contiguous()


def product(matrix: SparseMatrix, dense: Float[Tensor, "columns channels"]) -> Float[Tensor, "rows channels"]:
    """The product `matrix @ dense`.

    Without gradients, in single precision on the CPU, a sum of embeddings does the same with a kernel made for the
    number of channels: 3 times as fast as the sparse library at 48 channels, level with it at 16.
    """
    single = dense.device.type == "cpu" and dense.dtype == torch.float32 == matrix.values.dtype
    if single and not (torch.is_grad_enabled() and dense.requires_grad):
        return torch.embedding_bag(
            dense.contiguous(), matrix.columns, matrix.row_starts, False, 0, False, matrix.values, True
        )[0]
    return matrix @ dense
