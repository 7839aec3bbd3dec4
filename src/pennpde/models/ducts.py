"""Incompressible flow by a fractional step in the encoded space (equations 50 to 52 and 55 to 61 of the paper).

    du/dt = -(u . grad) u + nu lap u - grad p,    div u = 0

One iteration computes the intermediate velocity, relaxes the pressure towards the Poisson equation in an inner
Barzilai–Borwein loop with the divergence as its source, and adds the pressure gradient. Velocity derivatives use the
Neumann condition of the outlet, pressure derivatives that of walls and inlet. Units are physical. With identity channel
mixings and unit coefficients an iteration is a fractional step with `diffusion_start` times the viscosity and the share
`relaxation` of the time step; training starts near it. docs/differences.md compares it with the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from pennpde.case import Case, Remark
from pennpde.case.conditions import TotalPressure
from pennpde.case.units import Units
from pennpde.models.flow_physics import FlowPhysics
from pennpde.models.inlet import BoundaryProfile, checked_viscosity, describe_inlet, inlet_units
from pennpde.models.potential_flow import potential_flow
from pennpde.operators import Operators
from pennpde.operators.damping import Damping
from pennpde.penn import PENN, EncodedCase, Equation
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import distance_levels, dot, near_identity, scale_by, squared_norm
from pennpde.penn.solver import BarzilaiBorwein, ExplicitSteps, Solver, State

DURATION = 4.0
"""Time from the potential flow at the start to the predicted state."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Quantities that are constant during a solve."""

    code: Float[Tensor, "points width"]
    """The encoded wall distance."""
    slope: Float[Tensor, "points space width"]
    """Its gradient, times the typical length."""
    operators: Mapping[str, Operators]
    """With the Laplacian multiplied out: it is applied dozens of times per solve."""
    prescribed: Mapping[str, tuple[Tensor, Tensor]]
    """By unknown, what its prescribed normal derivatives add to gradient and Laplacian; absent where they are zero."""

    def gradient(self, name: str, values: Tensor) -> Tensor:
        gradient = self.operators[name].grad(values)
        return gradient + self.prescribed[name][0] if name in self.prescribed else gradient

    def laplacian(self, name: str, values: Tensor) -> Tensor:
        laplacian = self.operators[name].laplacian(values)
        return laplacian + self.prescribed[name][1] if name in self.prescribed else laplacian


class Flow(Equation, FlowPhysics):
    """Momentum and pressure of an incompressible fluid.

    Args:
        width: Feature channels.
        pressure_solver: The inner loop.
        relaxation: Share of the time step that one iteration covers before training. The whole step at once would be
            far outside the stability of any iteration on a mesh.
        laplacian_damping: See `Operators.composed`. Without it the pressure's operator has growing modes.
        smallest_decay: See `Damping`. More makes sheared, split cells safer.
        length: A typical length of the mesh's cells times a few: makes the inputs of the force term of one size.
        diffusion_start: The untrained network's viscosity over the real one: the coarse mesh needs more to stay smooth.
        pressure_step: Pseudo time of the pressure loop before training, in squares of the typical length. Its default
            is about the limit of stability for the loop's own step sizes; explicit steps need a quarter of it.
    """

    own_start: ClassVar = "potential flow"

    def __init__(
        self,
        width: int,
        pressure_solver: Solver | None = None,
        *,
        relaxation: float = 0.03,
        laplacian_damping: float = 0.25,
        smallest_decay: float = 0.1,
        length: float = 0.15,
        diffusion_start: float = 5.0,
        pressure_step: float = 0.2,
    ):
        super().__init__()
        self.pressure_solver = pressure_solver or BarzilaiBorwein(iterations=5)
        self.relaxation, self.length, self.diffusion_start = relaxation, length, diffusion_start
        self.laplacian_damping, self.pressure_step = Damping(laplacian_damping, smallest_decay), pressure_step
        self.geometry = MLP((3, width, width))
        self.correction = nn.Linear(2 * width, width, bias=False)
        self.correction_gate = MLP((3 * width, width, width), start=0.0)
        self.advection, self.diffusion, self.source, self.poisson, self.pressure_gradient = (
            nn.Parameter(near_identity(width)) for _ in range(5)
        )
        # One network for the coefficients of all five operators: they look at the same invariants.
        self.coefficients = MLP((2 * width, 2 * width, 5 * width), start=1.0)
        self.local_pressure = MLP((4 * width, width, width), start=0.0, spread=0.1)
        self.force = nn.Linear(4 * width, width, bias=False)
        self.force_gate = MLP((2 * width, width, width), start=0.0)

    def prepare(self, case: EncodedCase) -> Surroundings:
        code = self.geometry(wall_levels(case))
        operators = {name: case.operators[name].composed(self.laplacian_damping) for name in self.unknowns}
        prescribed = {}
        for name in self.unknowns:
            derivative = case.normal_derivative(name)
            if derivative is not None:
                # The operators are linear: what the boundary adds is added once, outside the loops.
                nothing = torch.zeros_like(derivative)
                prescribed[name] = tuple(
                    derive(nothing, derivative) for derive in (operators[name].grad, operators[name].laplacian)
                )
        return Surroundings(code, self.length * operators["p"].plain.grad(code), operators, prescribed)

    def step(self, state: State, start: State, case: EncodedCase, time_step: float) -> State:
        place: Surroundings = case.constants
        duration, length = self.relaxation * time_step, self.length
        velocity = self._corrected(state["u"], case)
        jacobian = place.gradient("u", velocity)
        advection = dot(velocity, jacobian)
        diffusion = place.laplacian("u", velocity)
        divergence = jacobian.diagonal(dim1=1, dim2=2).sum(dim=-1)
        speed = squared_norm(velocity)
        invariants = torch.cat([place.code, speed], dim=1)
        by_advection, by_diffusion, by_source, by_poisson, by_pressure = self.coefficients(invariants).chunk(5, dim=1)

        viscosity = self.diffusion_start * case.parameter("viscosity", velocity)
        intermediate_rate = viscosity * scale_by(by_diffusion, linear(diffusion, self.diffusion.T)) - scale_by(
            by_advection, linear(advection, self.advection.T)
        )
        # Equations 50 and 51: divergence of the intermediate velocity u + dt (...), over dt.
        source = divergence / duration + place.operators["u"].div(intermediate_rate)
        source = by_source * linear(source, self.source.T)
        local = self.local_pressure(torch.cat([invariants, state["p"], length * divergence], dim=1))

        def relax(pressure: State, begin: State, fraction: float) -> State:
            laplacian = linear(place.laplacian("p", pressure["p"]), self.poisson.T)
            change = self.pressure_step * length**2 * (by_poisson * laplacian - source) + local
            return {"p": begin["p"] + fraction * change}

        inner = self.pressure_solver(relax, {"p": state["p"]}, case.case, case.project, record=False)
        pressure = inner.state["p"]
        slope = place.gradient("p", pressure)
        push = scale_by(by_pressure, linear(slope, self.pressure_gradient.T))
        terms = torch.cat([velocity, length * advection, length**2 * diffusion, length * slope], dim=-1)
        # Learned for the whole time step; of a share of it, as explicit steps take, it acts for that share.
        force = scale_by(time_step / DURATION * self.force_gate(invariants), self.force(terms))
        return {"u": start["u"] + duration * (intermediate_rate - push) + force, "p": pressure}

    def complete(self, case: Case) -> Case:
        return complete_flow(case)

    def units(self, case: Case, length: float | None = None, speed: float | None = None) -> Units:
        if case.conditions.get(TotalPressure.kind):
            raise ValueError("A total pressure is prescribed, which this network does not know. Take the network flow.")
        if case.space == 2 and bool(BoundaryProfile.of(case).lost.any()):
            raise ValueError(
                "A condition of the boundary holds on one facet, or changes from facet to facet. This network takes "
                "values at points, which cannot hold that. Take the network flow, or refine the mesh there."
            )
        return inlet_units(case, length, speed)

    def describe(self, case: Case) -> dict[str, float]:
        return describe_inlet(case)

    def _corrected(self, velocity: Tensor, case: EncodedCase) -> Tensor:
        """A learned correction of the velocity that sees the place; zero before training."""
        place: Surroundings = case.constants
        seen = torch.cat([place.code, squared_norm(velocity), squared_norm(place.slope)], dim=1)
        change = self.correction(torch.cat([velocity, place.slope], dim=-1))
        return case.project({"u": velocity + scale_by(self.correction_gate(seen), change)})["u"]


def wall_levels(case: EncodedCase) -> Float[Tensor, "points 3"]:
    """How near the no-slip walls are, on three scales of length."""
    if "wall_distance" not in case.features:
        raise KeyError(
            'The flow network needs the feature "wall_distance", the distance from the no-slip walls: '
            'Case(..., features={"wall_distance": mesh.distance_to(["wall"])}).'
        )
    return distance_levels(case.features["wall_distance"])


def complete_flow(case: Case) -> Case:
    """The flow case with wall distance and, where no flow is given to start from, potential flow."""
    checked_viscosity(case)
    if not bool(case.dirichlet["p"].mask.any()):
        raise ValueError(
            "No pressure is prescribed anywhere, so its level is undetermined. Prescribe p on the outlet, as "
            "dirichlet={'p': {'outlet': 0.0}}, or at a single point."
        )
    if "wall_distance" not in case.features:
        condition = case.dirichlet["u"]
        still = (condition.mask & (condition.values == 0).all(dim=1)).numpy()
        if not still.any():
            raise ValueError("The flow has no walls: nowhere is the velocity prescribed as zero.")
        walls = case.mesh.with_patches({"no-slip wall": still})
        if not len(walls.patch("no-slip wall").facets):
            raise ValueError("The flow has no walls: the velocity is prescribed as zero at single points only.")
        distance = walls.distance_to(["no-slip wall"], images=case.periods("u"))
        case = replace(case, features={**case.features, "wall_distance": distance.to(case.initial["p"])})
    velocity, pressure = case.initial["u"], case.initial["p"]
    remarks = _about_free_boundary(case)
    # A uniform field is a first guess, as in OpenFOAM's cases, not a flow to start from.
    free = velocity[~case.dirichlet["u"].mask]
    if _is_uniform(free):
        velocity = potential_flow(case)
        if len(free) and bool((free[0] != 0).any()):
            given = ", ".join(f"{each:g}" for each in free[0].tolist())
            remarks.append(Remark(f"The initial velocity ({given}) was replaced by potential flow.", severe=False))
    if _is_uniform(pressure[~case.dirichlet["p"].mask]):
        pressure = torch.full_like(pressure, inlet_units(case, 1.0, 1.0).scale("p").zero)
    return replace(case, initial={**case.initial, "u": velocity, "p": pressure}).remarked(*remarks)


def _about_free_boundary(case: Case) -> list[Remark]:
    """Where the boundary has no condition on an unknown, as networks were never trained."""
    outside = torch.zeros(case.number_of_points, dtype=torch.bool)
    outside[torch.from_numpy(case.mesh.boundary_points)] = True
    remarks = []
    for name in ("u", "p"):
        free = outside.clone()
        for condition in case.conditions_of(name):
            free &= ~condition.mask.cpu()
        if bool(free.any()):
            first = ", ".join(f"{each:.4g}" for each in case.mesh.points[free][0].tolist())
            remarks.append(
                Remark(
                    f"{name} has no condition at {int(free.sum())} points of the boundary, such as ({first}); a flow "
                    f"network was trained with one everywhere. [neumann] {name} = 0.0 gives one to the rest."
                )
            )
    return remarks


def _is_uniform(values: Tensor) -> bool:
    return len(values) == 0 or bool((values == values[0]).all())


def flow_network(
    width: int = 16,
    iterations: int = 8,
    pressure_iterations: int = 5,
    *,
    solver: Literal["barzilai_borwein", "explicit"] = "barzilai_borwein",
    allow_negative_steps: bool = False,
    step_limit: float | None = None,
    relaxation: float = 0.03,
    laplacian_damping: float = 0.25,
    smallest_decay: float = 0.1,
    diffusion_start: float = 5.0,
    pressure_step: float = 0.2,
    **switches,
) -> PENN:
    """The flow network of the paper's size.

    Args:
        width: Feature channels.
        iterations: Of the solver for velocity and pressure together.
        pressure_iterations: Of the inner loop for pressure.
        solver: "explicit" takes explicit steps in both loops (ablation C).
        allow_negative_steps: See `BarzilaiBorwein`.
        step_limit: See `ExplicitSteps`.
        relaxation: See `Flow`, as the following.
        laplacian_damping: See there.
        smallest_decay: See there.
        diffusion_start: See there.
        pressure_step: See there.
        **switches: Those of `PENN`: `decoder`, `dirichlet_in_solver`, `neumann_weight`, `encoders` ...
    """

    def made(number: int) -> Solver:
        if solver == "explicit":
            return ExplicitSteps(number, limit=step_limit)
        return BarzilaiBorwein(number, allow_negative_steps=allow_negative_steps)

    equation = Flow(
        width,
        made(pressure_iterations),
        relaxation=relaxation,
        laplacian_damping=laplacian_damping,
        smallest_decay=smallest_decay,
        diffusion_start=diffusion_start,
        pressure_step=pressure_step,
    )
    return PENN(equation, width, made(iterations), time_step=DURATION, **switches)
