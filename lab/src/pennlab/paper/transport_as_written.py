"""Advection and diffusion as the paper writes it, in its appendix on that dataset.

    D(h) = - h_c . N01(h) + h_D N010(h)
    h <- h - alpha [h - h0 - D(h) dt]          eight Barzilai–Borwein iterations for each of four output times

N are NIsoGCN layers; h_c encodes the velocity by an equivariant MLP, h_D diffusivity, speed and the distance to the
inlet by an MLP. The temperature is encoded by an MLP with LeakyReLU and decoded by its pseudoinverse; each output time
starts from the encoded state of the one before. `pennpde.models.advection_diffusion` is the network of the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from pennlab.released.layers import EquivariantMLP
from pennpde.case import Case
from pennpde.models.advection_diffusion import complete_transport, inlet_distance
from pennpde.operators import Operators
from pennpde.penn import PENN, SCALAR, EncodedCase, Equation
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import Gradient, Laplacian, distance_levels, dot
from pennpde.penn.solver import BarzilaiBorwein, State


@dataclass(frozen=True, eq=False)
class Known:
    """What stays the same during a solve."""

    velocity: Float[Tensor, "points space width"]
    diffusivity: Float[Tensor, "points width"]
    operators: Operators
    """With the Laplacian multiplied out, div of grad without damping."""


class TransportAsWritten(Equation):
    unknowns: ClassVar = {"T": SCALAR}

    def __init__(self, width: int, hidden: int = 16):
        super().__init__()
        self.velocity = EquivariantMLP((1, width, width), bias=False)
        self.diffusivity = MLP((5, hidden, width))
        self.gradient, self.laplacian = Gradient(width), Laplacian(width)

    def prepare(self, case: EncodedCase) -> Known:
        levels = distance_levels(inlet_distance(case.case))
        velocity = case.parameter("velocity", levels).expand(len(levels), case.case.space)
        numbers = [case.parameter("diffusivity", levels).expand(len(levels), 1)]
        numbers.append(torch.linalg.vector_norm(velocity, dim=1, keepdim=True))
        known = self.diffusivity(torch.cat([levels, *numbers], dim=1))
        return Known(self.velocity(velocity[..., None]), known, case.operators["T"].composed())

    def rate(self, state: State, case: EncodedCase) -> State:
        known: Known = case.constants
        values, derivative = state["T"], case.normal_derivative("T")
        advection = dot(known.velocity, self.gradient(values, known.operators, derivative))
        return {"T": known.diffusivity * self.laplacian(values, known.operators, derivative) - advection}

    def complete(self, case: Case) -> Case:
        return complete_transport(case)


def transport_as_written(
    width: int = 64, iterations: int = 8, steps: int = 4, time_step: float = 0.25, **switches
) -> PENN:
    """The paper's network for temperatures at `steps` times; `switches` are PENN's."""
    switches.setdefault("encoders", {"T": "mlp"})
    solver = BarzilaiBorwein(iterations, allow_negative_steps=True, project_state=True)
    return PENN(TransportAsWritten(width), width, solver, steps=steps, time_step=time_step, **switches)
