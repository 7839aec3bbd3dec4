"""What every network for incompressible flow knows: unknowns, OpenFOAM's names, what is drawn, checked and measured.

Checks are about the balance of mass: divergence inside, flux through the boundary, what flows back in. Clues tell the
error of predicted fields without the true solution: how well they fulfil the equations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh.boundary import facet_parabolas
from pennpde.models.boundary_profile import BoundaryProfile
from pennpde.models.inlet import facet_velocity, prescribed_pressures
from pennpde.operators import Operators
from pennpde.penn.physics import OUTFLOW, SCALAR, VECTOR, Check, Clue, FoamName, Look, Physics

BACKFLOW = "fluid that flows back through outlets"
_HARDLY = 0.01
"""Less of what enters than this is as good as nothing."""
_LARGE_IMBALANCE = 0.05
_LARGE_BACKFLOW = 0.1
_DIVERGENCE_AGAINST_TRUTH = 3.0


class FlowPhysics(Physics):
    """Velocity and kinematic pressure. Subclasses complete a case, choose its units and describe it."""

    unknowns: ClassVar = {"u": VECTOR, "p": SCALAR}
    foam_fields: ClassVar = {
        "u": FoamName("U", (0, 1, -1, 0, 0, 0, 0), has_flux=True),
        "p": FoamName("p", (0, 2, -2, 0, 0, 0, 0), has_reference=True),
    }
    foam_parameters: ClassVar = {"viscosity": "nu"}
    foam_solvers: ClassVar = ("icoFoam", "pisoFoam", "pimpleFoam", "simpleFoam", "incompressibleFluid")
    """OpenFOAM's programs for incompressible flow of one Newtonian fluid."""
    looks: ClassVar = {"u": Look("speed |u|", unit="m/s"), "p": Look("pressure p", signed=True, unit="m²/s²")}
    headline: ClassVar = ("Reynolds number",)

    def free_levels(self, case: Case) -> tuple[str, ...]:
        return ("p",) if len(prescribed_pressures(case)) <= 1 else ()

    def checks(self, case: Case, fields: Mapping[str, Tensor], operators: Operators) -> list[Check]:
        velocity = fields["u"]
        divergence = divergence_share(velocity, case, operators)
        truth = case.targets.get("u")
        of_truth = None
        if truth is not None and truth.shape == velocity.shape:
            of_truth = divergence_share(truth.to(velocity), case, operators)
        flux = boundary_flux(velocity, case, fields.get(OUTFLOW))
        return [
            Check(
                "divergence",
                divergence,
                f"{100 * divergence:.2g} % of a cell's throughput"
                + ("" if of_truth is None else f" (truth: {100 * of_truth:.2g} %)"),
                limit=None if of_truth is None else _DIVERGENCE_AGAINST_TRUTH * of_truth,
                warning="" if not of_truth else f"The divergence is {divergence / of_truth:.1f} times the truth's own.",
                training_name="divergence over a cell's throughput",
            ),
            Check(
                "flux imbalance",
                flux.imbalance,
                f"{100 * flux.imbalance:.2g} % ({flux.inward:.4g} in, {flux.outward:.4g} out)",
                limit=_LARGE_IMBALANCE,
                warning=f"Inflow and outflow differ by {100 * flux.imbalance:.0f} %.",
            ),
            Check(
                "backflow",
                flux.backflow,
                f"{100 * flux.backflow:.2g} % of what enters does so through outlets",
                limit=_LARGE_BACKFLOW,
                warning=f"Fluid flows back through an outlet, {100 * flux.backflow:.0f} % of all that enters. Nothing "
                "prescribes what it brings, so the fields near it and the level of the pressure are uncertain; an "
                "outlet further downstream would help.",
            ),
        ]

    def clues(self, case: Case, fields: Mapping[str, Tensor], operators: Operators) -> list[Clue]:
        return flow_clues(case, fields, operators)

    def error_shape(self, case: Case, fields: Mapping[str, Tensor], operators: Operators) -> dict[str, Tensor]:
        """Where velocity and pressure are likely to be wrong: what linear interpolation misses of the pressure.

        On trials with truth it agrees better with the error of both (rank correlation 0.6 with that of the velocity)
        than the same of the velocity (0.3): velocity is rough in layers that the scheme resolves, pressure at edges and
        corners from which errors spread.
        """
        sizes = case.mesh.point_volumes.to(fields["p"]) ** (1 / case.space)
        shape = sizes.square() * operators.grad(operators.grad(fields["p"])).reshape(len(sizes), -1).norm(dim=1)
        return {"u": shape, "p": shape}


@dataclass(frozen=True)
class Flux:
    """Volume that crosses the boundary in a unit of time."""

    inward: float
    outward: float
    back: float = 0.0
    """The part of what enters that does so where no velocity is prescribed."""

    @property
    def backflow(self) -> float:
        """What enters through outlets, as a share of all that enters."""
        return self.back / self.inward if self.inward > 0 else 0.0

    @property
    def imbalance(self) -> float:
        """What is lost or gained, as a share of the larger of the two."""
        largest = max(self.inward, self.outward)
        return abs(self.outward - self.inward) / largest if largest > 0 else 0.0


def boundary_flux(
    velocity: Float[Tensor, "points space"], case: Case, outflow: Float[Tensor, " facets"] | None = None
) -> Flux:
    """Flux through the exterior facets of a case.

    Args:
        velocity: At the points, to be integrated where nothing better is known.
        case: With the conditions of its time.
        outflow: What leaves through each facet by the network's own balance.
    """
    if case.space == 2:
        boundary = BoundaryProfile.of(case.with_conditions(lambda _, each: each.last()))
        opened = boundary.opened & ~boundary.entrances
        through = _plane_flux(velocity, case, boundary) if outflow is None else outflow.numpy()
    else:
        mean, prescribed = facet_velocity(velocity, case.mesh, case.dirichlet["u"].mask)
        through = (mean * case.mesh.facet_areas).sum(dim=1).numpy()
        # Through periodic patches and slip walls, where no pressure is prescribed either, nothing flows back.
        opened = case.mesh.facets.within(case.dirichlet["p"].mask.cpu().numpy()) & ~prescribed.numpy()
    inward, outward = float(-through[through < 0].sum() + 0.0), float(through[through > 0].sum())
    return Flux(inward, outward, float(np.abs(through[(through < 0) & opened]).sum()))


def _plane_flux(
    velocity: Float[Tensor, "points 2"], case: Case, boundary: BoundaryProfile
) -> Float[np.ndarray, " facets"]:
    """Integrals of parabolas along the facets: a mean of the ends would be 15 % off for a profile on a few facets."""
    mesh, held = case.mesh, case.dirichlet["u"].mask.cpu().numpy()
    values, ends = velocity.detach().cpu().numpy().astype(float), mesh.facets.connectivity.reshape(-1, 2)
    by_patch = _means(facet_parabolas(values, mesh, held))
    opening = np.zeros(len(values), bool)
    opening[ends[boundary.opened]] = True
    along = _means(facet_parabolas(values, mesh, opening, by_patch=False))
    # Where the points have what is prescribed, each facet has what its own patch prescribes.
    prescribed = case.dirichlet["u"].last().values.detach().cpu().numpy()
    near = np.abs(values - prescribed) <= 1e-5 * np.abs(prescribed).max()  # NaN is not
    kept = near.all(axis=1)[ends].all(axis=1)
    means = np.where(boundary.held[:, None], np.where(kept[:, None], boundary.means, by_patch), along)
    return (means * boundary.outward).sum(axis=1)


def _means(parabolas: Float[np.ndarray, "facets 3 2"]) -> Float[np.ndarray, "facets 2"]:
    return (parabolas[:, 0] + 4.0 * parabolas[:, 1] + parabolas[:, 2]) / 6.0


def divergence_share(velocity: Float[Tensor, "points space"], case: Case, operators: Operators) -> float:
    """Root mean square of div u times cell size over the largest speed: the share of a cell's throughput that is lost.

    Weighted by volume; a cell's throughput is its size to the power of space - 1 times the speed.
    """
    volumes = case.mesh.point_volumes
    largest = float(velocity.norm(dim=1).amax())
    if largest == 0:
        return 0.0
    relative = operators.div(velocity) * volumes ** (1 / case.space) / largest
    return float(((volumes * relative.square()).sum() / volumes.sum()).sqrt())


def flow_clues(case: Case, fields: Mapping[str, Tensor], operators: Operators) -> list[Clue]:
    """Residuals of mass, momentum and pressure, resolution of the layers, Reynolds number and inlet.

    The momentum's residual contains the acceleration of the flow: in an unsteady state it is not an error. The
    pressure's equation, div(u . grad u + grad p) = 0, holds at any time.

    Args:
        case: In units of the inlet's width and speed, so that its viscosity is one over the Reynolds number.
        fields: Velocity and pressure, likewise.
        operators: Of the mesh.
    """
    velocity, pressure = fields["u"], fields["p"]
    viscosity = float(case.parameters["viscosity"])
    volumes = case.mesh.point_volumes.to(velocity)
    sizes = volumes ** (1 / case.space)
    speed = velocity.norm(dim=1)
    typical = _mean_square(speed, volumes) or 1.0
    jacobian = operators.grad(velocity)
    advection = torch.einsum("pj,pji->pi", velocity, jacobian)
    inviscid = advection + operators.grad(pressure)
    inside = torch.from_numpy(np.setdiff1d(np.arange(case.number_of_points), case.mesh.boundary_points))
    inside = inside if len(inside) else torch.arange(case.number_of_points)

    def within(values: Tensor) -> float:
        return math.sqrt(_mean_square(values[inside], volumes[inside]))

    divergence = within(jacobian.diagonal(dim1=1, dim2=2).sum(dim=1) * sizes) / math.sqrt(typical)
    momentum = inviscid - viscosity * operators.laplacian(velocity)
    return [
        Clue.of_size("divergence of u", divergence),
        Clue.of_size("residual of momentum", within(momentum.norm(dim=1) * sizes) / typical),
        Clue.of_size("residual of the pressure's equation", within(operators.div(inviscid) * sizes**2) / typical),
        Clue.of_size("Reynolds number of a cell", within(speed * sizes) / viscosity, remedy="a finer mesh"),
        # A layer that grew along one reference length is 5 L / sqrt(Re) thick.
        Clue.of_size(
            "cell size over the thickness of a layer", within(sizes) / math.sqrt(viscosity), remedy="a finer mesh"
        ),
        # Errors are relative to the norm of p. Where losses and recovery nearly cancel, it is small against what the
        # flow balances, which is of the size of speed squared; errors of that do not cancel.
        Clue.of_size("speed squared over pressure", typical / (math.sqrt(_mean_square(pressure, volumes)) or 1.0)),
        # Nothing prescribes what comes back: no second solution, on whatever cells, sees what that changes.
        Clue.of_size(
            BACKFLOW,
            _HARDLY + boundary_flux(velocity, case, fields.get(OUTFLOW)).backflow,
            remedy="an outlet further downstream",
        ),
        Clue.of_size("largest speed", float(speed.amax()), worse=False),
        Clue.of_size("Reynolds number", 1.0 / viscosity, worse=False),
    ]


def _mean_square(values: Float[Tensor, " points"], volumes: Float[Tensor, " points"]) -> float:
    return float((volumes * values.square()).sum() / volumes.sum())
