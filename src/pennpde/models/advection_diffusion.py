"""Advection and diffusion of a scalar in a known flow: dT/dt = -c . grad T + D div grad T (appendix of the paper).

The equation is linear in T, and so is the network: its coefficients depend on the place, on c and on D, never on T.
Twice the boundary value gives twice the field, at temperatures that no training has seen. And because the coefficients
stay the same through a solve, their networks run once, not in every iteration of every step.

Implicit Euler over a quarter of the time is a crude integrator. Many channels make up for it: channel k starts with its
own share s_k of the rates, and a sum over k of 1/(1 - s_k L dt) can follow exp(L dt) far better than any one of them.
Training moves on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from pennpde.case import Case
from pennpde.case.units import Scale, Units
from pennpde.operators import Operators
from pennpde.penn import PENN, SCALAR, EncodedCase, Equation
from pennpde.penn.equation import FoamName, Look
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import distance_levels, near_identity
from pennpde.penn.solver import BarzilaiBorwein, ExplicitSteps, State


@dataclass(frozen=True, eq=False)
class Coefficients:
    """What multiplies the terms of the equation at each point and in each channel."""

    operators: Operators
    """With the Laplacian multiplied out."""
    velocity: Float[Tensor, "points_or_one space 1"]
    advection: Float[Tensor, "points width"]
    diffusivity: Float[Tensor, "points width"]
    """Always positive: a negative one would let every disturbance grow."""
    source: Float[Tensor, "points width"]
    forcing: Float[Tensor, "points width"] | None


class AdvectionDiffusion(Equation):
    """The rate of change of T in the encoded space.

    Args:
        width: Feature channels.
        hidden: Width of the network for the coefficients.
        scale: Share of the physical rates that the untrained network has, on average over the channels.
        spread: How far the channels' shares lie apart: from scale (1 - spread) to scale (1 + spread).
        upwind: Diffusivity over speed that the untrained network adds, as upwind differences do: half a cell. Without
            it fronts oscillate where D = 0.
        laplacian_damping: See `Operators.composed`.
        forcing: A source that does not depend on T. It breaks the linearity; only ablations that keep boundary values
            out of the solver need it, where nothing else would ever change T = 0.
        reference: Length, speed and temperature of the training data that count as one for the network.
    """

    unknowns: ClassVar = {"T": SCALAR}
    foam_fields: ClassVar = {"T": FoamName("T", (0, 0, 0, 1, 0, 0, 0))}
    foam_parameters: ClassVar = {"velocity": "U", "diffusivity": "DT"}
    foam_solvers: ClassVar = ("scalarTransportFoam",)
    looks: ClassVar = {"T": Look("temperature T")}

    def __init__(
        self,
        width: int,
        hidden: int = 64,
        *,
        scale: float = 1.0,
        spread: float = 0.75,
        upwind: float = 0.05,
        laplacian_damping: float = 0.25,
        forcing: bool = False,
        reference: tuple[float, float, float] = (1.0, 1.0, 1.0),
    ):
        super().__init__()
        self.reference = reference
        self.upwind, self.forcing, self.laplacian_damping = upwind, forcing, laplacian_damping
        shares = scale * torch.linspace(1 - spread, 1 + spread, width)
        self.advection = nn.Parameter(near_identity(width) * shares)
        self.diffusion = nn.Parameter(near_identity(width) * shares)
        self.source = nn.Parameter(near_identity(width))
        self.coefficients = MLP((8, hidden, hidden, (4 + forcing) * width), start=0.0)

    def prepare(self, case: EncodedCase) -> Coefficients:
        levels = distance_levels(inlet_distance(case.case))
        velocity, diffusivity = case.parameter("velocity", levels), case.parameter("diffusivity", levels)
        speed = torch.linalg.vector_norm(velocity, dim=1, keepdim=True)  # its derivative at rest is zero, not infinite
        # The velocity enters as invariants: its size, and how it points away from the inlet.
        along = (velocity[:, :, None] * case.operators["T"].plain.grad(levels)).sum(dim=1)
        numbers = torch.cat([diffusivity, speed], dim=1).expand(levels.shape[0], 2)
        by_advection, by_diffusion, by_upwind, by_source, *forcing = self.coefficients(
            torch.cat([levels, numbers, along], dim=1)
        ).chunk(4 + self.forcing, dim=1)
        return Coefficients(
            case.operators["T"].composed(self.laplacian_damping),
            velocity[:, :, None],
            1 + by_advection,
            diffusivity * torch.exp(by_diffusion) + self.upwind * speed * torch.exp(by_upwind),
            by_source,
            forcing[0] if forcing else None,
        )

    def rate(self, state: State, case: EncodedCase) -> State:
        values, derivative = state["T"], case.normal_derivative("T")
        made: Coefficients = case.constants
        slope = made.operators.grad(values, derivative)
        advection = (made.velocity * slope).sum(dim=1)
        rate = (
            made.diffusivity * linear(made.operators.laplacian(values, derivative), self.diffusion.T)
            - made.advection * linear(advection, self.advection.T)
            + made.source * linear(values, self.source.T)
        )
        return {"T": rate if made.forcing is None else rate + made.forcing}

    def complete(self, case: Case) -> Case:
        return complete_transport(case)

    def units(self, case: Case, length: float | None = None, speed: float | None = None) -> Units:
        own_length, own_speed, _ = self.reference
        return transport_units(case, own_length if length is None else length, own_speed if speed is None else speed)

    def training_units(self, case: Case) -> Units:
        # The network is linear in T, so that one unit of it may be anything. That of prediction, the prescribed
        # temperature, would give a case at a tenth of the temperature the same weight in the loss.
        length, speed, temperature = self.reference
        return transport_units(case, length, speed, temperature)


def transport_units(
    case: Case, length: float | None = None, speed: float | None = None, temperature: float | None = None
) -> Units:
    """Units of a transported temperature: zero at the start, one where it is prescribed; lengths and speeds as given.

    Unlike a flow it has no length and speed of its own to choose: by default the case's numbers are taken as they are.

    Args:
        case: In the user's units.
        length: What counts as one.
        speed: Likewise.
        temperature: The temperature above that of the start that counts as one; by default what is prescribed.
    """
    condition = case.dirichlet["T"]
    free = case.initial["T"][~condition.mask]
    level = float(free.amin() + free.amax()) / 2 if len(free) else 0.0
    above = condition.values[condition.mask] - level
    one = float(above[above.abs().argmax()]) if len(above) else 0.0
    length, speed = 1.0 if length is None else length, 1.0 if speed is None else speed
    scales = {
        "T": Scale((one or 1.0) if temperature is None else temperature, level),
        "velocity": Scale(speed),
        "diffusivity": Scale(length * speed),
        "inlet_distance": Scale(length),
    }
    return Units.of_speed(length, speed, scales)


def complete_transport(case: Case) -> Case:
    """The case of a transported scalar with the distance from its prescribed values."""
    if "inlet_distance" in case.features:
        return case
    return replace(case, features={**case.features, "inlet_distance": inlet_distance(case)})


def advection_diffusion_network(
    width: int = 32,
    iterations: int = 8,
    steps: int = 4,
    time_step: float = 0.25,
    *,
    hidden: int = 64,
    solver: Literal["barzilai_borwein", "explicit"] = "barzilai_borwein",
    laplacian_damping: float = 0.25,
    reference_length: float = 1.0,
    reference_speed: float = 1.0,
    reference_temperature: float = 1.0,
    **switches,
) -> PENN:
    """The network for T at `steps` times; `switches` are PENN's, for the ablations.

    The references are the length, speed and temperature that count as one: those of the data that it is trained on.
    """
    reference = (reference_length, reference_speed, reference_temperature)
    explicit = solver == "explicit"
    equation = AdvectionDiffusion(
        width,
        hidden,
        # Explicit steps of the whole rate are unstable: D dt / h^2 = 25 on the paper's mesh. Training starts slower.
        scale=0.1 if explicit else 1.0,
        laplacian_damping=laplacian_damping,
        forcing=switches.get("dirichlet_in_solver") == "none",
        reference=reference,
    )
    made = ExplicitSteps(iterations) if explicit else BarzilaiBorwein(iterations)
    return PENN(equation, width, made, steps=steps, time_step=time_step, **switches)


def inlet_distance(case: Case) -> Float[Tensor, " points"]:
    """The distance to where T is prescribed: the feature "inlet_distance", or else worked out as for the dataset.

    To the nearest place on a facet, not to the nearest point: it must not depend on how fine the inlet's mesh is.
    """
    if "inlet_distance" in case.features:
        return case.features["inlet_distance"]
    masks = torch.block_diag(*(mask[None] for mask in case.dirichlet["T"].mask.cpu().split(case.sizes)))
    found = []
    # In a batch each case has its own inlet, wherever the others lie.
    for held, block in zip(masks.bool(), torch.arange(case.number_of_points).split(case.sizes), strict=True):
        if not bool(held.any()):
            raise ValueError(
                f"Case {case.name!r} prescribes T nowhere. The network knows a place by its distance from such points: "
                'give T a Dirichlet condition, or the feature "inlet_distance".'
            )
        walls = case.mesh.with_patches({"prescribed": held.numpy()})
        found.append(walls.distance_to("prescribed", images=case.periods("T"))[block])
    return torch.cat(found).to(case.initial["T"])
