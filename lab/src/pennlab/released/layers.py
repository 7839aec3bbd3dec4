"""What the authors' networks share: their layers, their switches, and their inputs from a case.

Their code departs from the paper, and from ours, in details that decide the numbers: the order of indices, squared
norms, a Dirichlet layer inside the operator. Those details live here and in the other modules of `released`; what they
have in common with us (operators, MLPs, encoder with pseudoinverse) comes from `penn` and `operators`.

They solve plane problems on meshes of space that are one cell thick, put normals on *every* boundary point, Dirichlet
boundaries included, and use the same matrices for every unknown. So none of `case.operators` will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from pennlab.datasets.flow.cases import extruded
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from pennpde.operators.graph import PointGraph
from pennpde.operators.sparse import SparseMatrix, index_tensor
from pennpde.penn.mlp import MLP, Activation, activated
from pennpde.penn.nisogcn import scale_by, squared_norm

# Assembly takes longer than a prediction, and a mesh never changes.
_SLABS: WeakKeyDictionary[Mesh, dict[float, Mesh]] = WeakKeyDictionary()
_OPERATORS: WeakKeyDictionary[Mesh, dict[tuple, Operators]] = WeakKeyDictionary()
_SMOOTHINGS: WeakKeyDictionary[Mesh, dict[tuple | None, SparseMatrix]] = WeakKeyDictionary()

Kind = Literal["PENN", "A", "B", "C", "D", "E", "F", "G"]
"""A row of the ablation tables."""

State = Mapping[str, Tensor]


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

    @classmethod
    def nothing(cls, like: Float[Tensor, "points *axes"]) -> Prescribed:
        """For the ablations without Dirichlet layer."""
        return cls(torch.zeros_like(like, dtype=torch.bool), torch.zeros_like(like))

    def apply(self, field: Float[Tensor, "points *any"]) -> Float[Tensor, "points *any"]:
        return torch.where(self.mask, self.values, field)

    def encoded(self, encoder: Callable[[Tensor], Tensor]) -> Prescribed:
        """The condition in the encoded space. The authors cut its gradient, because they mark absence with NaN.

        We have no NaN, but to train as they did the cut must stay.
        """
        with torch.no_grad():
            encoded = encoder(self.values)
        return Prescribed(self.mask[..., None].expand_as(encoded), encoded)

    def features(self, field: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes 3"]:
        """Initial value, prescribed value (zero where there is none) and flag, for ablation E."""
        return torch.stack([field, self.values, self.mask.to(field)], dim=-1)


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


class IsoGCN(nn.Module):
    """c(s) * (D W): a derivative D of the input, mixed by W, scaled by a network on the input's invariant s.

    The derivative is an argument, so that layers on the same input share it.
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


class EquivariantMLP(nn.Module):
    """L(x) * MLP(|x|^2), linear in the vector itself (equation 62 of the paper); L is the identity at equal widths."""

    released_names: Mapping[str, str] = {"linears.": "gate.linears.", "linear_weight.": "linear."}

    def __init__(self, sizes: Sequence[int], *, bias: bool = True):
        super().__init__()
        self.gate = MLP(sizes, bias=bias)
        self.linear = nn.Linear(sizes[0], sizes[-1], bias=False) if sizes[0] != sizes[-1] else nn.Identity()

    def forward(self, values: Float[Tensor, "points *axes channels"]) -> Float[Tensor, "points *axes out"]:
        return scale_by(self.gate(squared_norm(values)), self.linear(values))


class GraphConvolution(nn.Module):
    """x <- s((A x) W + b), layer by layer, A the normalised adjacency; on vectors without bias and activation."""

    released_names: Mapping[str, str] = {"subchains.0.": "network.linears."}

    def __init__(self, sizes: Sequence[int], activations: Sequence[Activation] | None = None, *, bias: bool = True):
        super().__init__()
        self.network = MLP(sizes, activations, bias=bias)

    def forward(
        self, values: Float[Tensor, "points *axes channels"], adjacency: SparseMatrix
    ) -> Float[Tensor, "points *axes out"]:
        for linear, activation in zip(self.network.layers, self.network.activations, strict=True):
            smoothed = (adjacency @ values.reshape(len(values), -1)).reshape(values.shape)
            values = activated(activation, linear(smoothed))
        return values


@dataclass(frozen=True)
class ReleasedSolver:
    """The authors' neural nonlinear solver: Barzilai–Borwein on the residual R(h) = h - h0 - change(h).

        h <- h - alpha R(h),   alpha = |<dh, dR> / (<dR, dR> + 1e-5)|, 1 at first; one for each unknown, over all points

    Unlike in the paper the Dirichlet layer does not act on the updated state: it is inside `change`.

    It stops early where the state hardly moves or, by `divergence`, moves too far, each relative to the state. In a
    batch every case has a step size of its own, as in the authors' predictions; in their training all cases of a batch
    share one.
    """

    iterations: int
    divergence: float

    def __call__(self, residual: Callable[[State], State], start: State, sizes: tuple[int, ...]) -> State:
        """Follow the residual from `start`, with one step size for each case (`sizes` points) and unknown."""
        like = next(iter(start.values()))
        sizes = sizes or (len(like),)
        active = torch.ones(len(sizes), dtype=torch.bool, device=like.device)
        state, before, residual_before = dict(start), start, start
        for iteration in range(self.iterations):
            current, following = residual(state), {}
            moved = torch.zeros(len(sizes), dtype=like.dtype, device=like.device)
            for name, values in state.items():
                now = current[name]
                # The authors evaluate the residual twice at the start; equal states and residuals give a step of 1.
                step = torch.ones_like(moved)
                if iteration > 0:
                    step = active * _step_size(values - before[name], now - residual_before[name], sizes)
                moved = moved + step.detach() * _norm(now, sizes) / (_norm(values, sizes) + 1e-5)
                at_points = _at_points(step, sizes)
                following[name] = values - at_points.reshape(-1, *[1] * (values.ndim - 1)) * now
            before, residual_before, state = state, current, following
            active = (moved >= 1e-5) & (moved <= self.divergence) & active
            # A case that has stopped takes steps of zero. To ask whether all have waits for a GPU.
            if not like.is_cuda and not bool(active.any()):
                break
        return state


def _step_size(change: Tensor, of_residual: Tensor, sizes: tuple[int, ...]) -> Float[Tensor, " cases"]:
    step = (_dot(change, of_residual, sizes) / (_dot(of_residual, of_residual, sizes) + 1e-5)).abs()
    # Where nothing changed by more than 1e-8 anywhere, the authors take a full step.
    return torch.where(_is_still(change, sizes) & _is_still(of_residual, sizes), 1.0, step)


def _at_points(of_cases: Float[Tensor, " cases"], sizes: tuple[int, ...]) -> Float[Tensor, " points"]:
    if len(set(sizes)) == 1:
        return of_cases.repeat_interleave(sizes[0])
    return torch.cat([one.expand(size) for one, size in zip(of_cases, sizes, strict=True)])


def _by_case(values: Tensor, sizes: tuple[int, ...], reduce: Callable[..., Tensor]) -> Float[Tensor, " cases"]:
    if len(set(sizes)) == 1:  # in one go: a batch of a hundred cases would ask a GPU a hundred times
        return reduce(values.reshape(len(sizes), -1), dim=1)
    return torch.stack([reduce(part) for part in values.split(sizes)])


def _dot(a: Tensor, b: Tensor, sizes: tuple[int, ...]) -> Float[Tensor, " cases"]:
    return _by_case(a * b, sizes, torch.sum)


def _norm(values: Tensor, sizes: tuple[int, ...]) -> Float[Tensor, " cases"]:
    return _dot(values.detach(), values.detach(), sizes).sqrt()


def _is_still(values: Tensor, sizes: tuple[int, ...]) -> Bool[Tensor, " cases"]:
    return _by_case(values.detach().abs(), sizes, torch.amax) <= 1e-8


def gradient_of_divergence(
    operators: Operators, gradient: Float[Tensor, "points space space channels"]
) -> Float[Tensor, "points space channels"]:
    """The authors' "contraction" of the gradient [k, c] = G_k v_c of a vector: sum_c G_c G_k v_c.

    It sums over the *last* axis of space, ours (`Operators.div`) over the first. So it is the gradient of the
    divergence, where the paper has the Laplacian of each component.
    """
    return operators.div(gradient.transpose(1, 2))


@dataclass(frozen=True, eq=False)
class Slab:
    """A mesh of space for a case: its own, or its plane mesh made one cell thick, each point followed by its copy."""

    mesh: Mesh
    copies: int

    @classmethod
    def of(cls, case: Case, thickness: float) -> Slab:
        if case.space == 3:
            return cls(case.mesh, 1)
        known = _SLABS.setdefault(case.mesh, {})
        if thickness not in known:
            known[thickness] = extruded(replace(case.mesh, patches={}), thickness)
        return cls(known[thickness], 2)

    def lift(self, values: Shaped[Tensor, "points *axes"]) -> Shaped[Tensor, "slab_points *slab_axes"]:
        """A scalar or vector field of the case on the slab."""
        if self.copies == 1:
            return values
        if values.ndim == 2:
            values = torch.cat([values, torch.zeros_like(values[:, :1])], dim=1)
        return values.repeat_interleave(2, dim=0)

    def lower(self, values: Float[Tensor, "slab_points *slab_axes"], rank: int) -> Float[Tensor, "points *axes"]:
        """Back to the case: both layers hold mirror images, so the first of them says everything."""
        if self.copies == 1:
            return values
        return values[::2, :2] if rank else values[::2]

    def sizes(self, case: Case) -> tuple[int, ...]:
        return tuple(self.copies * size for size in case.sizes)


def released_operators(
    mesh: Mesh, scale: float, *, thin_faces: bool, dtype: torch.dtype, device: torch.device
) -> Operators:
    """G / sigma with the authors' normals.

    Args:
        mesh: A mesh of space.
        scale: sigma, which the authors' weights were trained with.
        thin_faces: Whether the two large faces of the slab count as boundary. They do for the flow, where every point
            then has a normal; they do not for advection-diffusion.
        dtype: Precision of the result; assembly is in that of the mesh.
        device: Where the result goes.
    """
    known = _OPERATORS.setdefault(mesh, {})
    exact, wanted = (scale, thin_faces), (scale, thin_faces, dtype, device)
    # What is kept must serve training too, even if the first to ask for it was a prediction in inference mode.
    with torch.inference_mode(mode=False), torch.no_grad():
        if exact not in known:
            normals = mesh.normals if thin_faces else mesh.normals_of_facets(_lateral_facets(mesh))
            known[exact] = Operators.from_normals(mesh.points, mesh.edges, normals).scaled(1 / scale).composed()
        if wanted not in known:
            known[wanted] = known[exact].to(dtype, device)
    return known[wanted]


def _lateral_facets(mesh: Mesh) -> np.ndarray:
    """The facets along the rim of a slab, however it is turned: those not normal to its thin direction."""
    positions = mesh.points.detach()
    centred = positions - positions.mean(dim=0)
    thin = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, 0]
    return np.flatnonzero(((mesh.facet_normals @ thin).abs() < 0.5).numpy())


def released_smoothing(mesh: Mesh, dtype: torch.dtype, device: torch.device) -> SparseMatrix:
    """The normalised adjacency D^-1/2 (A + 1) D^-1/2 of a graph convolution; a point is a neighbour of its own."""
    known = _SMOOTHINGS.setdefault(mesh, {})
    with torch.inference_mode(mode=False), torch.no_grad():
        if None not in known:
            graph = PointGraph.of(mesh.edges, mesh.number_of_points, mesh.space)
            shares = torch.from_numpy(1.0 / np.sqrt(np.diff(graph.starts)))
            values = (shares.index_select(0, graph.rows) * shares.index_select(0, graph.columns)).to(mesh.points.dtype)
            starts = index_tensor(graph.starts)
            known[None] = SparseMatrix(starts, graph.columns, values, starts, graph.columns, values)
        if (dtype, device) not in known:
            known[dtype, device] = known[None].to(dtype, device)
    return known[dtype, device]
