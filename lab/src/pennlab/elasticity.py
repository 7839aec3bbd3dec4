"""Linear elasticity of plates with a hole, in plane stress: a PENN from `penn.Equation` beyond flow.

A quarter of a plate is pulled at its top: rollers on its two lines of symmetry (one component each), the vertical
displacement prescribed at the top, all else free of traction. The hole has [grad u + (grad u)^T] n = 0, which is free
of traction but for the pressure-like part of the stress; what that lacks is learned. Component-wise conditions on three
sides:

    mu [lap u + (1 + nu) / (1 - nu) grad div u] = 0,   u_x = 0 left,   u_y = 0 below,   u_y = 1 above

Reference: linear finite elements on four times as many intervals each way, whose points contain the case's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int64
from scipy.sparse.linalg import spsolve
from torch import Tensor, nn

from pennpde.case import Case, StressFree
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from pennpde.penn import PENN, VECTOR, EncodedCase, Equation
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import distance_levels, dot, near_identity, scale_by
from pennpde.penn.solver import BarzilaiBorwein, State

INTERVALS = 12
FINER = 4
_LENGTH = 1 / INTERVALS


@dataclass(frozen=True)
class Plate:
    """Half axes of the elliptic hole in a plate of half width and half height 1, and Poisson's ratio."""

    a: float
    b: float
    poisson: float

    @property
    def name(self) -> str:
        return f"a{self.a:.3f}_b{self.b:.3f}_nu{self.poisson:.3f}"


def drawn(number: int, seed: int) -> list[Plate]:
    generator = np.random.default_rng(seed)
    return [
        Plate(*(round(float(generator.uniform(low, high)), 3) for low, high in ((0.2, 0.6), (0.2, 0.6), (0.0, 0.45))))
        for _ in range(number)
    ]


# Mesh and finite elements


def points_of(plate: Plate, intervals: int) -> Float[np.ndarray, "points 2"]:
    """Between hole and outline, from the bottom round to the left."""
    s, t = np.meshgrid(*[np.linspace(0.0, 1.0, intervals + 1)] * 2, indexing="ij")
    inner = np.stack([plate.a * np.cos(np.pi * t / 2), plate.b * np.sin(np.pi * t / 2)], axis=-1)
    outer = np.stack([np.minimum(1.0, 2 - 2 * t), np.minimum(1.0, 2 * t)], axis=-1)
    points = ((1 - s[..., None]) * inner + s[..., None] * outer).reshape(-1, 2)
    points[np.abs(points) < 1e-12] = 0.0
    return points


def triangles_of(intervals: int) -> Int64[np.ndarray, "triangles 3"]:
    number = np.arange((intervals + 1) ** 2).reshape(intervals + 1, intervals + 1)
    a, b, c, d = (each.ravel() for each in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def stiffness(
    points: Float[np.ndarray, "points 2"], triangles: Int64[np.ndarray, "triangles 3"], poisson: float
) -> scipy.sparse.csr_matrix:
    """Of linear elements in plane stress, Young's modulus 1; unknowns point by point, x before y."""
    corners = points[triangles]
    edges = np.roll(corners, -1, axis=1) - np.roll(corners, 1, axis=1)
    (first_x, first_y), (second_x, second_y) = ((corners[:, k] - corners[:, 0]).T for k in (1, 2))
    double_areas = first_x * second_y - first_y * second_x
    slopes = np.stack([-edges[..., 1], edges[..., 0]], axis=-1) / -double_areas[:, None, None]
    strain = np.zeros((len(triangles), 3, 6))
    strain[:, 0, 0::2] = strain[:, 2, 1::2] = slopes[..., 0]
    strain[:, 1, 1::2] = strain[:, 2, 0::2] = slopes[..., 1]
    material = np.array([[1, poisson, 0], [poisson, 1, 0], [0, 0, (1 - poisson) / 2]]) / (1 - poisson**2)
    local = np.einsum("eki,kl,elj,e->eij", strain, material, strain, np.abs(double_areas) / 2)
    places = (2 * triangles[:, :, None] + np.arange(2)).reshape(-1, 6)
    rows, columns = np.repeat(places, 6, axis=1).ravel(), np.tile(places, (1, 6)).ravel()
    return scipy.sparse.csr_matrix((local.ravel(), (rows, columns)), shape=(2 * len(points),) * 2)


def solved(plate: Plate, intervals: int) -> Float[np.ndarray, "points 2"]:
    """The displacement by finite elements."""
    points = points_of(plate, intervals)
    matrix = stiffness(points, triangles_of(intervals), plate.poisson)
    held = np.stack([points[:, 0] == 0, (points[:, 1] == 0) | (points[:, 1] == 1)], axis=1).ravel()
    u = np.where(held, np.stack([0 * points[:, 0], points[:, 1]], axis=1).ravel(), 0.0)
    free = ~held
    u[free] = spsolve(matrix[free][:, free].tocsc(), -(matrix[free][:, held] @ u[held]))
    return u.reshape(-1, 2)


def case_of(plate: Plate, reference: bool = True) -> Case:
    """The plate as a case; it starts from the displacement of a plate without hole."""
    points = points_of(plate, INTERVALS)
    hole = np.arange(len(points)) < INTERVALS + 1
    mesh = Mesh.from_arrays(points, triangles_of(INTERVALS)).with_patches(
        {
            "left": points[:, 0] == 0,
            "bottom": points[:, 1] == 0,
            "top": points[:, 1] == 1,
            "hole": hole,
        }
    )
    start = np.stack([-plate.poisson * points[:, 0], points[:, 1]], axis=1)
    targets = {}
    if reference:
        number = INTERVALS * FINER + 1
        fine = solved(plate, INTERVALS * FINER).reshape(number, number, 2)
        targets = {"u": fine[::FINER, ::FINER].reshape(-1, 2)}
    return Case(
        mesh,
        initial={"u": start},
        dirichlet={"u": {"left": (0.0, None), "bottom": (None, 0.0), "top": (None, 1.0)}},
        conditions={StressFree: {"u": "hole"}},
        parameters={"poisson": plate.poisson},
        features={"hole_distance": mesh.distance_to("hole")},
        targets=targets,
        name=plate.name,
    )


# The network


@dataclass(frozen=True, eq=False)
class Surroundings:
    code: Float[Tensor, "points width"]
    slope: Float[Tensor, "points 2 width"]
    operators: Operators


class Elasticity(Equation):
    """Equilibrium by pseudo time: u = u0 + a step along lap u + (1 + nu) / (1 - nu) grad div u, and what is learned.

    Everything is linear in u but for the geometry's coefficients, and of vectors made from u, so that a turned plate
    turns its displacement.
    """

    unknowns: ClassVar = {"u": VECTOR}

    def __init__(self, width: int, pseudo_time: float = 30.0):
        super().__init__()
        self.pseudo_time = pseudo_time
        self.geometry = MLP((4, width, width))
        self.mixing = nn.Parameter(near_identity(width))
        self.coefficient = MLP((width, width, width), start=1.0)
        self.force = nn.Linear(5 * width, width, bias=False)
        self.gate = MLP((width, width, width), start=0.0)

    def prepare(self, case: EncodedCase) -> Surroundings:
        levels = distance_levels(case.features["hole_distance"])
        poisson = case.parameter("poisson", levels).expand(len(levels), 1)
        code = self.geometry(torch.cat([levels, poisson], dim=1))
        operators = case.operators["u"].composed(0.25)
        return Surroundings(code, _LENGTH * operators.grad(code), operators)

    def step(self, state: State, start: State, case: EncodedCase, time_step: float) -> State:
        place: Surroundings = case.constants
        u, poisson = state["u"], case.parameter("poisson", state["u"])
        slopes = place.operators.grad(u)
        divergence = slopes.diagonal(dim1=1, dim2=2).sum(dim=-1)
        curvature = place.operators.laplacian(u)
        bulk = place.operators.grad(divergence)
        rate = curvature + (1 + poisson) / (1 - poisson) * bulk
        along = dot(place.slope, slopes)
        across = (slopes * place.slope[:, None]).sum(dim=2)
        terms = [_LENGTH * along, _LENGTH * across, _LENGTH * divergence[:, None] * place.slope]
        terms += [_LENGTH**2 * curvature, _LENGTH**2 * bulk]
        force = scale_by(self.gate(place.code), self.force(torch.cat(terms, dim=-1)))
        change = scale_by(self.coefficient(place.code), rate @ self.mixing)
        return {"u": start["u"] + time_step * (self.pseudo_time * _LENGTH**2 * change + force)}


def network(width: int = 16, iterations: int = 12) -> PENN:
    return PENN(Elasticity(width), width, BarzilaiBorwein(iterations))


class PointwiseMLP(nn.Module):
    """What knows places by their coordinates: (x, y, a, b, nu) to u, prescribed components written over."""

    def __init__(self, width: int = 96):
        super().__init__()
        sizes = (5, width, width, width, 2)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.Tanh()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, case: Case) -> dict[str, Tensor]:
        like = next(self.parameters())
        points = case.mesh.points.to(like)
        # The first and the last point of the hole are its half axes, in each plate of a batch.
        hole = torch.stack([each[[0, INTERVALS]].norm(dim=1) for each in points.split(case.sizes)])
        of_case = torch.repeat_interleave(hole, torch.tensor(case.sizes), dim=0)
        poisson = case.parameter("poisson", points).expand(len(points), 1).to(like)
        u = case.initial["u"].to(like) + self.layers(torch.cat([points, of_case, poisson], dim=1))
        return case.fulfilled({"u": u})


# Without data: the elastic energy of the network's displacement, by linear elements on the case's own mesh

_MATRICES: WeakKeyDictionary[Mesh, Any] = WeakKeyDictionary()


def energy(model: Callable[[Case], Mapping[str, Tensor]], case: Case, weights: Tensor) -> Tensor:  # noqa: ARG001
    """Mean elastic energy of a batch. Among displacements with the prescribed components the solution has the least.

    No reference enters; free sides are free of traction by themselves.
    """
    u = model(case)["u"]
    ratios = case.parameters["poisson"].reshape(-1).tolist()
    energies = []
    for part, mesh, ratio in zip(u.split(case.sizes), case.mesh.parts, ratios, strict=True):
        if mesh not in _MATRICES:
            matrix = stiffness(mesh.points.numpy(), triangles_of(INTERVALS), ratio).tocoo()
            places = torch.from_numpy(np.stack([matrix.row, matrix.col]).astype(np.int64))
            _MATRICES[mesh] = torch.sparse_coo_tensor(places, torch.from_numpy(matrix.data), matrix.shape).coalesce()
        flat = part.reshape(-1, 1)
        energies.append(0.5 * (flat * torch.sparse.mm(_MATRICES[mesh].to(flat.dtype), flat)).sum())
    return torch.stack(energies).mean()
