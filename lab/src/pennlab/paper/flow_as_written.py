"""Incompressible flow as the paper writes it: its equations 55 to 62, nothing added that helps training.

    u~ = u - dt [u . N12(u) - nu N21(N12(u))]                                        intermediate velocity, 56
    R_p(p) = N10(N01(p)) - N10(u~) / dt = 0        five Barzilai–Borwein iterations, 60 and 61
    u = u0 - dt [u . N12(u) - nu N21(N12(u)) + N01(p)]     eight of them, 57 to 59, with the minus sign that 59 lacks

N are NIsoGCN layers: a derivative, a mixing of channels, a coefficient network on the invariants of the input. Velocity
has a linear encoder, pressure an MLP with LeakyReLU, both are decoded by their pseudoinverses. Places are known by the
encoded wall distance, which enters as in the authors' code: through an equivariant MLP of velocity and geometry.
Graph convolutions smooth the source of the pressure and the change of the velocity ("Implementation details").

`pennpde.models.ducts` is the network of the library. It differs: docs/training.md says where, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from pennlab.released.layers import EquivariantMLP, GraphConvolution, released_smoothing
from pennlab.stacks import UniformMatrix
from pennpde.case import Case
from pennpde.models.ducts import DURATION, wall_levels
from pennpde.operators import Operators
from pennpde.operators.sparse import SparseMatrix
from pennpde.penn import PENN, SCALAR, VECTOR, EncodedCase, Equation
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import Divergence, Gradient, Laplacian, dot, scale_by
from pennpde.penn.solver import BarzilaiBorwein, State


@dataclass(frozen=True, eq=False)
class Geometry:
    """What stays the same during a solve."""

    code: Float[Tensor, "points width"]
    """The encoded wall distance."""
    slope: Float[Tensor, "points space width"]
    """Its gradient."""
    operators: Mapping[str, Operators]
    """With the Laplacian multiplied out, div of grad without damping."""
    adjacency: SparseMatrix | UniformMatrix
    """Of the graph convolutions, normalised."""


class FlowAsWritten(Equation):
    """Momentum and pressure, equations 55 to 61.

    Args:
        width: Feature channels.
        pressure_iterations: Of the loop for the pressure.
        relaxation: Share of the time step dt = 4 that the untrained network takes. The authors' code leaves the time
            step to the weights.
        first_pressure_step: The step size of the pressure's first iteration, which has no history. The Laplacian is
            negative, so a step that goes down is negative as well; later ones come out of equation 16.
    """

    unknowns: ClassVar = {"u": VECTOR, "p": SCALAR}

    def __init__(
        self,
        width: int,
        pressure_iterations: int = 5,
        *,
        relaxation: float = 1.0,
        first_pressure_step: float = -1e-3,
    ):
        super().__init__()
        self.relaxation = relaxation
        self.pressure_solver = BarzilaiBorwein(
            pressure_iterations, first_step=first_pressure_step, allow_negative_steps=True, project_state=True
        )
        self.geometry = MLP((3, max(width // 2, 4), width), bias=False)
        self.geometry_gradient = Gradient(width)
        self.velocity = EquivariantMLP((2 * width, width, width))
        self.jacobian, self.diffusion = Gradient(width), Laplacian(width)
        self.divergence, self.poisson, self.pressure_gradient = Divergence(width), Laplacian(width), Gradient(width)
        self.source_smoothing = GraphConvolution((width, width, width))
        self.smoothing = GraphConvolution((width, width), ("identity",), bias=False)

    def prepare(self, case: EncodedCase) -> Geometry:
        code = self.geometry(wall_levels(case))
        operators = {name: case.operators[name].composed() for name in self.unknowns}
        adjacency = _adjacency(case.case, code.dtype, code.device)
        return Geometry(code, self.geometry_gradient(code, operators["p"]), operators, adjacency)

    def step(self, state: State, start: State, case: EncodedCase, time_step: float) -> State:
        place: Geometry = case.constants
        of_velocity, of_pressure = place.operators["u"], place.operators["p"]
        duration = self.relaxation * time_step
        seen = torch.cat([scale_by(place.code, state["u"]), place.slope], dim=-1)
        velocity = case.project({"u": self.velocity(seen)})["u"]
        advection = dot(velocity, self.jacobian(velocity, of_velocity, case.normal_derivative("u")))
        diffusion = self.diffusion(velocity, of_velocity, case.normal_derivative("u"))
        rate = case.parameter("viscosity", velocity) * diffusion - advection
        intermediate = velocity + duration * rate
        source = self.source_smoothing(self.divergence(intermediate, of_velocity) / duration, place.adjacency)

        def descend(pressure: State, begin: State, fraction: float) -> State:  # noqa: ARG001
            curvature = self.poisson(pressure["p"], of_pressure, case.normal_derivative("p"))
            return {"p": pressure["p"] - (curvature - source)}

        inner = self.pressure_solver(descend, {"p": state["p"]}, case.case, case.project, record=False)
        push = self.pressure_gradient(inner.state["p"], of_pressure, case.normal_derivative("p"))
        change = self.smoothing(rate - push, place.adjacency)
        return {"u": start["u"] + duration * change, "p": inner.state["p"]}


def flow_as_written(
    width: int = 16,
    iterations: int = 8,
    pressure_iterations: int = 5,
    *,
    relaxation: float = 1.0,
    first_pressure_step: float = -1e-3,
    allow_negative_steps: bool = True,
    **switches,
) -> PENN:
    """The paper's flow network; `switches` are PENN's."""
    equation = FlowAsWritten(width, pressure_iterations, relaxation=relaxation, first_pressure_step=first_pressure_step)
    solver = BarzilaiBorwein(iterations, allow_negative_steps=allow_negative_steps, project_state=True, taken=("p",))
    switches.setdefault("encoders", {"p": "mlp"})
    return PENN(equation, width, solver, time_step=DURATION, **switches)


def _adjacency(case: Case, dtype: torch.dtype, device: torch.device) -> SparseMatrix | UniformMatrix:
    """Of a case, normalised; cases that are filled up to one shape have operators, but no mesh."""
    gradient = next(iter(case.operators.values())).gradient
    if not isinstance(gradient, UniformMatrix):
        return released_smoothing(case.mesh, dtype, device)
    # One row per point and axis; what fills a row up points at the point itself, as its own entry does.
    columns = gradient.columns[:: case.space]
    own = torch.arange(len(columns), dtype=columns.dtype, device=columns.device)[:, None]
    others = columns != own
    share = (others.sum(dim=1) + 1).to(dtype).rsqrt()
    values = torch.where(others, share[:, None] * share[columns], 0.0)
    columns, values = torch.cat([columns, own], dim=1), torch.cat([values, share.square()[:, None]], dim=1)
    return UniformMatrix(columns, values, columns, values)  # it is symmetric
