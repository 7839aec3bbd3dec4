"""What the authors' networks share: their layers, their solver, their switches and their inputs (RELEASED.md, 3 to 7).

Their code departs from the paper, and from ours, in details that decide the numbers: the order of indices, step sizes
that are never negative, a Dirichlet layer inside the operator. Those details live here and in the `released_*` modules;
what they have in common with us (operators, MLPs, encoder with pseudoinverse) comes from `layers` and `operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pennpde.kernels import SparseMatrix
from pennpde.layers import MLP, Activation, scale_by
from pennpde.operators import Operators

Kind = Literal["PENN", "A", "B", "C", "D", "E", "F", "G"]
"""A row of the ablation tables."""

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Switches:
    """One row of the ablation tables, as the authors' settings files implement it (RELEASED.md, 12)."""

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

    def encoded(self, encoder: Callable[[Tensor], Tensor]) -> Prescribed:
        """The condition in the encoded space. The authors cut its gradient, because they mark absence with NaN.

        We have no NaN, but to train as they did the cut must stay.
        """
        with torch.no_grad():
            return Prescribed(self.mask[..., None], encoder(self.values))

    def features(self, field: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes 3"]:
        """Initial value, prescribed value (zero where there is none) and flag, for ablation E."""
        return torch.stack([field, self.values, self.mask.to(field)], dim=-1)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a released network takes: fields and operators in the authors' scales (RELEASED.md, 4 and 5)."""

    operators: Operators
    """G / sigma, the same for all unknowns."""
    geometry: Float[Tensor, "points features"]
    initial: Mapping[str, Tensor]
    prescribed: Mapping[str, Prescribed]
    velocity: Float[Tensor, "points space"] | None = None
    """The known velocity of advection-diffusion."""
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
        )


class IsoGCN(nn.Module):
    """c(s) * (D W): a derivative D of the input, mixed by W, scaled by a network on the input's invariant s.

    The derivative is an argument, so that layers on the same input share it. Two entries of the authors' node list
    ("in, out", without hidden layer) mean: no coefficient network.
    """

    released_names: Mapping[str, str] = {"subchains.0.0.": "mixing.", "coefficient_network.": "coefficient."}

    def __init__(self, channels: int, hidden: int, out: int, *, bias: bool):
        super().__init__()
        self.mixing = nn.Linear(channels, out, bias=False)
        self.coefficient = MLP((channels, hidden, out), bias=bias)

    def forward(
        self, derivative: Float[Tensor, "points *axes channels"], invariant: Float[Tensor, "points channels"]
    ) -> Float[Tensor, "points *axes out"]:
        return scale_by(self.coefficient(invariant), self.mixing(derivative))


class GraphConvolution(nn.Module):
    """x <- s((A x) W + b), layer by layer; tensor axes count as further features of the product."""

    released_names: Mapping[str, str] = {"subchains.0.": "network.linears."}

    def __init__(self, sizes: Sequence[int], activations: Sequence[Activation] | None = None, *, bias: bool):
        super().__init__()
        self.network = MLP(sizes, activations, bias=bias)

    def forward(self, values: Float[Tensor, "points *axes channels"], operators: Operators) -> Tensor:
        for linear, activation in zip(self.network.linears, self.network.activations, strict=True):
            values = linear(smooth(operators, values))
            values = torch.tanh(values) if activation == "tanh" else values
        return values


def raise_rank(
    operators: Operators, values: Float[Tensor, "points *axes channels"]
) -> Float[Tensor, "points space *axes channels"]:
    """The authors' "convolution" and "tensor_product": [k, c] = G_k v_c, the axis of the derivative first."""
    number = values.shape[0]
    flat = product(operators.gradient, values.reshape(number, -1))
    return flat.reshape(number, -1, *values.shape[1:])


def contract(
    operators: Operators, values: Float[Tensor, "points *axes space channels"]
) -> Float[Tensor, "points *axes channels"]:
    """The authors' "contraction" with the derivative: [k] = sum_c G_c t[k, c].

    It sums over the *last* axis of space, ours (`Operators.div`) over the first. So raising and contracting a vector
    gives sum_c G_c G_k v_c, the gradient of its divergence, where the paper has the Laplacian of each component.
    """
    if values.ndim == 4:
        values = values.transpose(1, 2)
    flat = product(operators.divergence, values.reshape(values.shape[0] * values.shape[1], -1))
    return flat.reshape(values.shape[0], *values.shape[2:])


def laplacian(operators: Operators, values: Float[Tensor, "points channels"]) -> Float[Tensor, "points channels"]:
    """sum_k G_k G_k of a scalar, where its gradient is not needed: one product where the matrix is multiplied out."""
    if operators.composed_laplacian is None:
        return contract(operators, raise_rank(operators, values))
    return product(operators.composed_laplacian, values)


def smooth(
    operators: Operators, values: Float[Tensor, "points *axes channels"]
) -> Float[Tensor, "points *axes channels"]:
    """A x with the normalised adjacency."""
    return product(operators.smoothing, values.reshape(values.shape[0], -1)).reshape(values.shape)


def product(matrix: SparseMatrix, dense: Float[Tensor, "columns channels"]) -> Float[Tensor, "rows channels"]:
    """The product `matrix @ dense`.

    Without gradients, in single precision on the CPU, a sum of embeddings does the same with a kernel made for the
    number of channels: 3 times as fast as the sparse library at 48 channels, level with it at 16.
    """
    fast = dense.device.type == "cpu" and dense.dtype == torch.float32 == matrix.values.dtype
    if fast and not (torch.is_grad_enabled() and dense.requires_grad):
        return torch.embedding_bag(
            dense.contiguous(), matrix.columns, matrix.row_starts, False, 0, False, matrix.values, True
        )[0]
    return matrix @ dense


@dataclass(frozen=True)
class ReleasedSolver:
    """The authors' Barzilai–Borwein iteration (RELEASED.md, 7).

    It differs from ours: the step size is never negative, 1e-5 is added to its denominator, the Dirichlet layer is no
    part of it, and it stops early where the state hardly moves or, by `divergence`, moves too far.
    """

    iterations: int
    divergence: float
    shared_step_size: bool = False
    """One step size for a whole batch, as in the authors' training. By default every case has its own."""

    def __call__(self, residual: Callable[[State], State], start: State, sizes: tuple[int, ...]) -> State:
        sums = _Sums(() if self.shared_step_size else sizes)
        state, steps = dict(start), dict[str, Tensor]()
        previous: State = {}
        active = None
        for iteration in range(self.iterations):
            current = residual(state)
            moves = []
            for name, values in state.items():
                now = current[name]
                if iteration == 0:
                    # The authors evaluate the residual twice at the start; equal states and residuals give a step of 1.
                    steps[name] = sums.one_each(now)
                else:
                    steps[name] = _step_size(steps[name], previous[name], now, sums)
                if active is not None:
                    steps[name] = torch.where(active, steps[name], torch.zeros_like(steps[name]))
                with torch.no_grad():
                    distance = steps[name] * sums.dot(now, now).sqrt()
                    moves.append(distance / (sums.dot(values, values).sqrt() + 1e-5))
                state[name] = torch.addcmul(values, now, sums.spread(steps[name], now), value=-1)
            previous = current
            moved = torch.stack(moves).sum(dim=0)
            going_on = ~((moved < 1e-5) | (moved > self.divergence))
            if not bool(going_on.any()):
                break
            if not bool(going_on.all()):
                active = going_on if active is None else active & going_on
                if not bool(active.any()):
                    break
        return state


def _step_size(last_step: Tensor, previous: Tensor, current: Tensor, sums: _Sums) -> Tensor:
    """|<dh, dR> / (<dR, dR> + 1e-5)| with dh = -last_step * previous residual, which need not be stored."""
    change = current - previous
    above = last_step * sums.dot(previous, change)
    below = sums.dot(change, change)
    step = (above / (below + 1e-5)).abs()
    # Where nothing changed by more than 1e-8 anywhere, the authors take a full step. So small a change has a tiny sum
    # of squares, which is known already; only then is the largest change worth looking for.
    still = below <= 1e-16 * change.numel()
    if bool(still.any()):
        largest_move = last_step * sums.largest(previous)
        still = still & (sums.largest(change) <= 1e-8) & (largest_move <= 1e-8)
        step = torch.where(still, torch.ones_like(step), step)
    return step


@dataclass(frozen=True)
class _Sums:
    """Inner products over all points, axes and channels of each case."""

    sizes: tuple[int, ...]
    one: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "one", len(self.sizes) < 2)

    def dot(self, a: Tensor, b: Tensor) -> Float[Tensor, " cases"]:
        if self.one:
            return torch.dot(a.reshape(-1), b.reshape(-1)).reshape(1)
        return torch.stack([part.sum() for part in (a * b).split(self.sizes)])

    def largest(self, values: Tensor) -> Float[Tensor, " cases"]:
        parts = [values] if self.one else values.split(self.sizes)
        return torch.stack([part.abs().amax() for part in parts])

    def one_each(self, like: Tensor) -> Float[Tensor, " cases"]:
        return like.new_ones(max(len(self.sizes), 1))

    def spread(self, per_case: Float[Tensor, " cases"], like: Tensor) -> Tensor:
        if not self.one:
            counts = torch.tensor(self.sizes, device=per_case.device)
            per_case = per_case.repeat_interleave(counts, output_size=like.shape[0])
        return per_case.reshape(-1, *[1] * (like.ndim - 1))
