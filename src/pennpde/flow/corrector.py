"""The corrector: a PENN that starts at a coarse-grid solution of a plane flow and gives what it misses.

A march on coarse cells costs a fraction of a second and is wrong by a few per cent. The error of a smooth solution is
a smooth function of the solution itself (its truncation error), carried through the domain by the linearised equation.
So the network iterates on the encoded correction d = h - h0 of the encoded coarse solution h0:

    R(h) = h - project(h0 + s N(d / s, c)),        N sees d, (u.grad) d, lap d, grad d_p, div d

with u the coarse velocity and c what is known of the coarse solution at each point: its derivatives as vectors and as
invariants, the flow at the start, the distance to walls, the cells, the Reynolds number, the time, and what the last
splitting of cells changed, where there was one. `project` is the Dirichlet layer; derivatives are those of operators
that know each unknown's Neumann conditions, which are homogeneous for a difference of two solutions. Slices (`slices`)
couple far points. Lengths are in cells and s falls with the square of their size, as the error does, so that the same
weights serve coarse and fine meshes, split or not. Before training N is zero, and the coarse solution comes out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import KDTree
from torch import Tensor, nn

from pennpde.case import Case, Condition
from pennpde.mesh import Mesh
from pennpde.models.flow_physics import PlaneFlowPhysics
from pennpde.operators import Operators
from pennpde.penn import PENN, EncodedCase, Equation
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import dot, scale_by
from pennpde.penn.solver import BarzilaiBorwein, ExplicitSteps, Solver, State
from pennpde.penn.start import Start

# Learned global coupling in linear time: points exchange through a few slices of the mesh.
#
# Every point belongs to K slices with weights that sum to one. Slices have the means of their points, attend to each
# other, and give what they learn back to the points: N K + K^2 instead of N^2. Weights and attention depend on
# invariants only, vectors are mixed linearly, so the exchange is equivariant.


_NOTHING = 1e-12
"""Area of a slice to which no point belongs."""


class Slices(nn.Module):
    """Exchange of scalars and vectors between all points of a case; nothing before training.

    w = softmax(z W), means m = w^T (a z) / w^T a with the areas a, m' = softmax(q(m) k(m)^T) v(m), out = w m'.

    Args:
        channels: Of the scalars z.
        vectors: Channels of the vectors.
        number: Of slices.
    """

    def __init__(self, channels: int, vectors: int, number: int):
        super().__init__()
        self.channels, self.number = channels, number
        self.weights = nn.Linear(channels, number)
        self.query, self.key = nn.Linear(channels, channels, bias=False), nn.Linear(channels, channels, bias=False)
        self.value = nn.Linear(channels, channels, bias=False)
        self.vector_value = nn.Linear(vectors, vectors, bias=False)
        for layer in (self.value, self.vector_value):
            nn.init.zeros_(layer.weight)

    def forward(
        self,
        scalars: Float[Tensor, "points channels"],
        vectors: Float[Tensor, "points space vectors"],
        areas: Float[Tensor, " points"],
        case: Case,
    ) -> tuple[Float[Tensor, "points channels"], Float[Tensor, "points space vectors"]]:
        weights = torch.softmax(self.weights(scalars), dim=1)
        number, space, width = vectors.shape
        sizes = list(case.sizes)
        if len(set(sizes)) == 1:
            return self._of_one_size(weights, scalars, vectors, areas, len(sizes))
        together = torch.cat([scalars, vectors.reshape(number, -1)], dim=1)
        parts = zip(weights.split(sizes), together.split(sizes), areas.split(sizes), strict=True)
        # Case by case, so that a batch gives what its cases give one by one.
        means = torch.stack([_means(*part) for part in parts])
        learned = self._exchanged(means, space)
        spread = torch.cat([part @ each for part, each in zip(weights.split(sizes), learned, strict=True)])
        return spread[:, : self.channels], spread[:, self.channels :].reshape(number, space, width)

    def _of_one_size(
        self, weights: Tensor, scalars: Tensor, vectors: Tensor, areas: Tensor, cases: int
    ) -> tuple[Float[Tensor, "points channels"], Float[Tensor, "points space vectors"]]:
        """The same in a few batched products, for cases of as many points: a GPU wants those."""
        number, space, width = vectors.shape
        weights = weights.reshape(cases, number // cases, -1)
        weighted = weights * areas.reshape(cases, -1, 1)
        together = torch.cat([scalars, vectors.reshape(number, -1)], dim=1).reshape(cases, number // cases, -1)
        means = (weighted.transpose(1, 2) @ together) / weighted.sum(dim=1).clamp_min(_NOTHING)[..., None]
        spread = (weights @ self._exchanged(means, space)).reshape(number, -1)
        return spread[:, : self.channels], spread[:, self.channels :].reshape(number, space, width)

    def _exchanged(
        self, means: Float[Tensor, "cases slices channels"], space: int
    ) -> Float[Tensor, "cases slices channels"]:
        """What the slices learn from each other."""
        tokens, token_vectors = means.split([self.channels, means.shape[2] - self.channels], dim=2)
        likeness = self.query(tokens) @ self.key(tokens).transpose(1, 2) / math.sqrt(self.channels)
        token_vectors = self.vector_value(token_vectors.reshape(*means.shape[:2], space, -1)).flatten(2)
        return torch.softmax(likeness, dim=2) @ torch.cat([self.value(tokens), token_vectors], dim=2)


def _means(weights: Tensor, values: Tensor, areas: Tensor) -> Float[Tensor, "slices channels"]:
    weighted = weights * areas[:, None]
    return (weighted.T @ values) / weighted.sum(dim=0).clamp_min(_NOTHING)[:, None]


_SIZE = 0.05
"""s on cells that are not split, in reference speeds, so that the network sees numbers around one."""
_ORDER = 2.0
"""Of the scheme: cells of half the size have a quarter of the error."""
_LATEST = 8.0
"""Times beyond, also that of the steady state, count as this: the last one that training sees."""
_VECTORS, _INVARIANTS = 11, 37


@dataclass(frozen=True, eq=False)
class _Known:
    """What stays the same during a solve.

    Attributes:
        velocity: Of the coarse solution.
        size: s, at each point.
        length: Of the cells of the mesh.
        areas: Of these cells.
        context: The encoded invariants of the coarse solution.
        vectors: Its encoded vectors.
    """

    velocity: Float[Tensor, "points space 1"]
    size: Float[Tensor, "points 1"]
    length: Float[Tensor, " points"]
    areas: Float[Tensor, " points"]
    context: Float[Tensor, "points hidden"]
    vectors: Float[Tensor, "points space width"]


class CoarseFlowCorrection(PlaneFlowPhysics, Equation):
    """The equation of the correction in the encoded space.

    Args:
        width: Feature channels of the unknowns.
        hidden: Channels of the scalars that decide about the correction.
        slices: Number of slices that couple far points; 0: none.
    """

    def __init__(self, width: int, hidden: int = 48, slices: int = 16):
        super().__init__()
        self.known = MLP((_INVARIANTS, hidden, hidden))
        self.known_vectors = nn.Linear(_VECTORS, width, bias=False)
        self.invariants = nn.Linear(6 * width, hidden, bias=False)
        self.inner = nn.Linear(hidden, hidden)
        self.mixed = nn.Linear(5 * width, 2 * width, bias=False)
        self.slices = Slices(hidden, 2 * width, slices) if slices else None
        self.gates = nn.Linear(hidden, 2 * width)
        self.velocity = nn.Linear(2 * width, width, bias=False)
        self.pressure = nn.Linear(hidden, width, bias=False)
        for layer in (self.velocity, self.pressure):  # the coarse solution before training
            nn.init.zeros_(layer.weight)

    def prepare(self, case: EncodedCase) -> _Known:
        if missing := sorted(FEATURES - case.features.keys()):
            raise KeyError(f"The corrector needs the features {missing}; make its cases with `coarse_case`.")
        velocity, length = case.case.initial["u"], case.features["cell_size"]
        size = _size(case.case)[:, None]
        vectors, invariants = _of_coarse_solution(case.case)
        context, encoded = self.known(invariants), self.known_vectors(vectors)
        return _Known(velocity[..., None], size, length, length.square(), context, encoded)

    def step(self, state: State, start: State, case: EncodedCase, time_step: float) -> State:
        known: _Known = case.constants
        velocity = (state["u"] - start["u"]) / known.size[:, None]
        pressure = (state["p"] - start["p"]) / known.size
        length, slope_length = known.length[:, None], known.length[:, None, None]
        jacobian, smoothed = _derivatives(velocity, case.operators["u"])
        slope, pressure_smoothed = _derivatives(pressure, case.operators["p"])
        jacobian, slope = slope_length[..., None] * jacobian, slope_length * slope
        carrier = known.velocity.expand_as(velocity)
        advected = dot(carrier, jacobian)
        divergence = jacobian[:, 0, 0] + jacobian[:, 1, 1]
        vectors = torch.cat([velocity, advected, slope_length.square() * smoothed, slope, known.vectors], dim=-1)
        vectors = self.mixed(vectors)
        scalars = [
            pressure,
            length.square() * pressure_smoothed,
            divergence,
            dot(carrier, velocity),
            dot(known.vectors, velocity),
            dot(carrier, slope),
        ]
        # tanh(x), in a quarter of its time on a CPU.
        hidden = 2.0 * torch.sigmoid(2.0 * (self.invariants(torch.cat(scalars, dim=1)) + known.context)) - 1.0
        if self.slices is not None:
            far, far_vectors = self.slices(hidden, vectors, known.areas, case.case)
            hidden, vectors = hidden + far, vectors + far_vectors
        hidden = nn.functional.silu(self.inner(hidden))
        change = self.velocity(scale_by(self.gates(hidden), vectors))
        return {
            "u": start["u"] + time_step * known.size[:, None] * change,
            "p": start["p"] + time_step * known.size * self.pressure(hidden),
        }


def _size(case: Case) -> Float[Tensor, " points"]:
    """s: of a correction, in reference speeds."""
    return _SIZE * torch.exp2(-_ORDER * case.parameter("splits", case.initial["p"])).expand_as(case.initial["p"])


def _derivatives(values: Tensor, operators: Operators) -> tuple[Tensor, Tensor]:
    """Gradient and Laplacian of what obeys the homogeneous form of the unknown's Neumann conditions."""
    gradient = operators.grad(values)
    return gradient, operators.plain.div(gradient)


def _of_coarse_solution(
    case: Case,
) -> tuple[Float[Tensor, "points space vectors"], Float[Tensor, "points invariants"]]:
    """What the network sees of the coarse solution: vectors, and invariants of them, lengths in cells."""
    velocity, pressure, start = case.initial["u"], case.initial["p"], case.features["start"]
    distance, length = case.features["wall_distance"], case.features["cell_size"]
    viscosity, time = (case.parameter(name, pressure) for name in ("viscosity", "time"))
    normals = [case.slope(name).normal_derivative for name in ("u", "p")]
    jacobian = length[:, None, None] * case.operators["u"].grad(velocity, normals[0])
    smoothed = length[:, None] * case.operators["u"].plain.div(jacobian)
    slope = length[:, None] * case.operators["p"].grad(pressure, normals[1])
    pressure_smoothed = length * case.operators["p"].plain.div(slope)
    wall = case.operators["p"].plain.grad(distance)
    advected = dot(velocity[..., None], jacobian[..., None])[..., 0]
    size = _size(case)
    changed, changed_pressure = case.features["change_u"] / size[:, None], case.features["change_p"] / size
    changed_slope = length[:, None] * case.operators["p"].grad(changed_pressure)
    # How the flow carries what the last splitting has changed, as it carries the error that is left.
    changed_jacobian = length[:, None, None] * case.operators["u"].grad(changed)
    carried = dot(velocity[..., None], changed_jacobian[..., None])[..., 0]
    turned = dot(changed[..., None], jacobian[..., None])[..., 0]
    of_change = [changed, changed_slope, carried, turned]
    vectors = torch.stack([velocity, start, advected, smoothed, slope, velocity - start, wall, *of_change], dim=-1)
    strain = jacobian + jacobian.transpose(1, 2)
    spin = jacobian[:, 0, 1] - jacobian[:, 1, 0]
    speed = (velocity.square().sum(dim=1) + 1e-12).sqrt()
    products = [(vectors[..., first] * vectors[..., second]).sum(dim=1) for first, second in _PAIRS]
    logarithms = [
        torch.log(length) + 2.5,
        torch.log(viscosity.expand_as(length)) + 5.0,
        torch.log(time.clamp(max=_LATEST).expand_as(length)),
        torch.log(speed * length / viscosity + 1e-2),
        torch.log(distance + 0.1 * length) + 1.5,
        torch.log(distance / (viscosity * time.clamp(max=_LATEST)).sqrt() + 1e-2),
    ]
    flags = [case.dirichlet[name].mask.to(pressure) for name in ("u", "p")]
    flags += [case.parameter(name, pressure).expand_as(pressure) for name in ("splits", "log_courant")]
    others = [
        pressure,
        pressure_smoothed,
        speed,
        distance / length,
        jacobian[:, 0, 0] + jacobian[:, 1, 1],
        strain.square().sum(dim=(1, 2)),
        spin.square(),
        changed_pressure,
    ]
    # Derivatives at corners and in jets are a hundred times those elsewhere: only their order matters there.
    invariants = torch.stack([*logarithms, *flags, *(torch.asinh(4.0 * each) for each in (*others, *products))], dim=1)
    return vectors, invariants


_PAIRS = (
    *((0, 1), (0, 2), (0, 3), (0, 4), (0, 6), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (4, 6), (3, 6)),
    *((0, 7), (3, 7), (4, 7), (6, 7), (7, 7), (0, 8), (8, 8)),
)
"""Vectors whose scalar products the network sees."""
FEATURES = frozenset({"start", "wall_distance", "cell_size", "change_u", "change_p"})
"""Of a case that `coarse_case` made."""


_WALL_DISTANCES: WeakKeyDictionary[Condition, tuple[Mesh, Float[np.ndarray, " points"]]] = WeakKeyDictionary()


def _wall_distance(case: Case) -> Float[np.ndarray, " points"]:
    """From walls at rest: the same at all times, as long as the conditions are."""
    held = case.dirichlet["u"]
    mesh, distance = _WALL_DISTANCES.get(held, (None, None))
    if distance is None or mesh is not case.mesh:
        walls = (held.mask & (held.values == 0).all(dim=1)).cpu().numpy()
        positions = case.mesh.points.detach().cpu().numpy()
        distance = np.full(len(positions), float(np.ptp(positions, axis=0).max()))
        if walls.any():
            distance = np.asarray(KDTree(positions[walls]).query(positions)[0])
        _WALL_DISTANCES[held] = case.mesh, distance
    return distance


def coarse_case(
    case: Case,
    velocity: Float[Tensor, "points space"],
    pressure: Float[Tensor, " points"],
    start: Float[Tensor, "points space"],
    time: float,
    *,
    splits: int = 0,
    courant: float = 4.0,
    coarser: tuple[Float[Tensor, "points space"], Float[Tensor, " points"]] | None = None,
) -> Case:
    """The case as the corrector sees it: its initial fields are the coarse solution at a time.

    Args:
        case: In the network's units.
        velocity: Of the coarse solution.
        pressure: Likewise.
        start: The velocity at the start.
        time: Since the start.
        splits: How often the cells were split for the coarse solution.
        courant: With which Courant number it was marched.
        coarser: Velocity and pressure on cells split once less; None where cells are not split.
    """
    distance = torch.from_numpy(_wall_distance(case))
    like = case.initial["p"]
    features = {
        "start": start.to(like),
        "wall_distance": distance.to(like),
        "cell_size": case.mesh.point_volumes.sqrt().to(like),
        "change_u": torch.zeros_like(case.initial["u"]) if coarser is None else (velocity - coarser[0]).to(like),
        "change_p": torch.zeros_like(like) if coarser is None else (pressure - coarser[1]).to(like),
    }
    return replace(
        case,
        initial={"u": velocity.to(like), "p": pressure.to(like)},
        features=features,
        parameters={
            "viscosity": case.parameters["viscosity"],
            "time": like.new_tensor(time),
            "splits": like.new_tensor(float(splits)),
            "log_courant": like.new_tensor(math.log(courant)),
        },
    )


def corrector(
    width: int = 16,
    iterations: int = 5,
    hidden: int = 48,
    slices: int = 16,
    solver: Literal["barzilai-borwein", "explicit"] = "barzilai-borwein",
    start: Start | None = None,
) -> PENN:
    """The network that corrects coarse-grid solutions; its cases come from `coarse_case`.

    Args:
        width: Feature channels of velocity and pressure.
        iterations: Of the neural nonlinear solver.
        hidden: See `CoarseFlowCorrection`.
        slices: Likewise.
        solver: "explicit": steps of one size, for comparison.
        start: Makes such cases of any flow case.
    """
    how: Solver = BarzilaiBorwein(iterations) if solver == "barzilai-borwein" else ExplicitSteps(iterations)
    moment = "steady" if start is None else None
    return PENN(CoarseFlowCorrection(width, hidden, slices), width, how, moment=moment, start=start)
