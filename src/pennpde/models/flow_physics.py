"""What every network for incompressible flow knows: unknowns, OpenFOAM's names, what is drawn, checked and measured.

Checks are about the balance of mass: divergence inside, flux through the boundary, what flows back in. Clues tell the
error of predicted fields without the true solution: how well they fulfil the equations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case, Remark
from pennpde.case.units import Units
from pennpde.machine import remembered
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import facet_parabolas
from pennpde.mesh.cells import cross
from pennpde.mesh.splitting import PlaneCells
from pennpde.models.inlet import (
    BoundaryProfile,
    checked_viscosity,
    describe_boundary,
    facet_velocity,
    flow_units,
    holes,
    later,
    prescribed_pressures,
    pressure_level,
    total_pressures,
)
from pennpde.operators import Operators
from pennpde.penn.equation import OUTFLOW, SCALAR, VECTOR, Check, Clue, FoamName, Look, Physics

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
    if case.space == 2 or outflow is not None:
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


# What is known about incompressible flows with any inlets, outlets and walls: units, checks, names.


_ROUNDING = 1e-9
_IN_SPACE = "in space the plain scheme alone is at work, without what is learned for the plane, and is not calibrated"
_UNDER_WAY = "widening", "corners", "smooth"
"""Kinds of flows whose errors show otherwise before the flow is steady."""
_FARTHEST = 1e4
"""Between a reference length and the size of the mesh: beyond it, one of them is in another unit."""
_OPEN, _FEW_FACETS, _STRETCHED, _SHARP, _WIDER = 0.6, 6, 2.0, 0.3, 1.2
"""Of kinds of flow: share of the boundary that is open, facets of inlets, mean stretching of cells, `sharpness`, width
of outlets over that of inlets."""


class PlaneFlowPhysics(FlowPhysics):
    """Velocity and kinematic pressure of an incompressible fluid; what is learned about it is of flows in the plane."""

    def complete(self, case: Case) -> Case:
        """The case itself; one that has no solution is refused."""
        checked_viscosity(case)
        facets = case.mesh.facets
        held = case.dirichlet["u"].mask.cpu().numpy()
        pressed = (case.dirichlet["p"].mask | total_pressures(case)).cpu().numpy()
        slips = case.slip["u"].mask.cpu().numpy() if "u" in case.slip else np.zeros(len(held), bool)
        paired = case.periodic["u"].mask.cpu().numpy() if "u" in case.periodic else np.zeros(len(held), bool)
        # A corner may belong to either of its patches: each end of a facet has to know something.
        loose = ~facets.within(held | pressed | paired | slips)
        if loose.any():
            corners = torch.from_numpy(facets.take(np.flatnonzero(loose)[:1]).connectivity)
            where = case.mesh.points[corners].mean(dim=0).tolist()
            raise ValueError(
                f"On {int(loose.sum())} facets of the boundary, the first at {[round(each, 6) for each in where]}, "
                "neither the velocity nor the pressure is prescribed. Give an inlet or wall its velocity, an outlet "
                "its pressure."
            )
        boundary = BoundaryProfile.of(case)
        for each in (case, *later(case)) if not boundary.opened.any() else ():
            BoundaryProfile.of(each).refuse_contradiction(case.mesh.patches)
        return _with_level(case).remarked(*boundary.remarks(case), *_about_start(case))

    def units(self, case: Case, length: float | None = None, speed: float | None = None) -> Units:
        """Width and mean speed of the inlets; of cavities the length and speed of the lid.

        In space a width is the root of an area.
        """
        if length is None or speed is None:
            own_length, own_speed = _reference_over_time(case)
            length, speed = own_length if length is None else length, own_speed if speed is None else speed
        size = float((case.mesh.points.amax(dim=0) - case.mesh.points.amin(dim=0)).norm())
        # Zero and what is not finite is refused by the units themselves.
        if 0 < length < math.inf and not 1 / _FARTHEST < length / size < _FARTHEST:
            raise ValueError(
                f"The reference length is {length:g}, but the mesh is {size:.3g} across; it must be the width of the "
                "inlet or another length of the same order, in the mesh's unit."
            )
        return flow_units(length, speed, pressure_level(case))

    def uncalibrated(self, case: Case) -> str:
        return "" if case.space == 2 else _IN_SPACE

    def kind(self, case: Case, time: float) -> str:
        """By what decides how errors show: openings, cells, bodies, corners, and whether the flow is on its way."""
        if case.space != 2:
            return ""
        kind = _kind(case)
        return f"{kind}, {'steady' if math.isinf(time) else 'on the way'}" if kind in _UNDER_WAY else kind

    def describe(self, case: Case) -> dict[str, float]:
        viscosity = float(case.parameters.get("viscosity", 0.0))
        if viscosity <= 0:
            return {}
        try:
            length, speed = reference(case)
        except ValueError:
            return {}
        return {"Reynolds number": length * speed / viscosity, **describe_boundary(case)}


@remembered  # asked for at each time
def _kind(case: Case) -> str:
    boundary = BoundaryProfile.of(case)
    if not boundary.opened.any():
        return "closed vessel"
    if boundary.entrances.any():
        return "driven by pressure"
    sizes = np.linalg.norm(boundary.outward, axis=1)
    inlets = boundary.held & (boundary.fluxes < 0)
    if float(sizes[inlets | boundary.opened].sum()) > _OPEN * float(sizes.sum()):
        return "open flow"
    if boundary.lost.any() or inlets.sum() <= _FEW_FACETS:
        return "few facets"
    if holes(case.mesh):
        return "bodies"
    if float(sizes[boundary.opened].sum()) > _WIDER * float(sizes[inlets].sum()):
        shape = "widening"  # the pressure that is gained is a small difference
    elif case.mesh.stretching > _STRETCHED:
        return "stretched cells"
    else:
        shape = "corners" if sharpness(case.mesh) > _SHARP else "smooth"
    return shape


@remembered
def sharpness(mesh: Mesh) -> float:
    """Root of the sum of squares over the boundary of how far, in half turns, corners turn into the flow.

    There pressure and shear are singular, so that errors fall more slowly with the size of cells.
    """
    if mesh.space != 2:
        return 0.0
    cells = PlaneCells.of(mesh)
    inside = np.zeros(len(cells.points))
    for corners in (cells.triangles, cells.quads):
        positions = cells.points[corners]
        ahead, behind = (np.roll(positions, shift, axis=1) - positions for shift in (-1, 1))
        np.add.at(inside, corners, np.abs(np.arctan2(cross(ahead, behind), (ahead * behind).sum(axis=-1))))
    beyond = np.maximum(inside[np.unique(cells.facets)] / math.pi - 1.0, 0.0)
    return math.sqrt(float(np.square(beyond).sum()))


def _with_level(case: Case) -> Case:
    """The case with a uniform pressure at the start, which is a first guess, at the level of its outlets."""
    pressure, held = case.initial["p"], case.dirichlet["p"].mask
    if not bool(held.any()) or bool((pressure[~held] != pressure[~held][:1]).any()):
        return case
    level = case.dirichlet["p"].apply(torch.full_like(pressure, pressure_level(case)))
    return case if torch.equal(level, pressure) else replace(case, initial={**case.initial, "p": level})


def _about_start(case: Case) -> list[Remark]:
    velocity = case.initial["u"][~case.dirichlet["u"].mask]
    if not len(velocity) or not bool(velocity[0].any()) or bool((velocity != velocity[:1]).any()):
        return []
    given = ", ".join(f"{each:g}" for each in velocity[0].tolist())
    text = f"The uniform initial velocity ({given}) is taken as a first guess: the flow starts from rest."
    return [Remark(text, severe=False)]


def _reference_over_time(case: Case) -> tuple[float, float]:
    """The reference at the start; where nothing drives the flow yet, as before a ramp, that of its fastest time."""
    try:
        return reference(case)
    except ValueError:
        found = []
        for each in later(case):
            with suppress(ValueError):
                found.append(reference(each))
        if not found:
            raise
        return max(found, key=lambda each: each[1])


def reference(case: Case) -> tuple[float, float]:
    """Reference length and speed of a flow: of inlets, else of moving walls, else from differences of pressure."""
    areas = case.mesh.facet_areas.detach().cpu().numpy()
    sizes = np.linalg.norm(areas, axis=1)
    boundary = BoundaryProfile.of(case)
    inside = boundary.held
    velocity = boundary.means
    if case.space == 2:
        velocity = np.where(boundary.lost[:, None], velocity, boundary.velocity[:, [0, 2]].mean(axis=1))
    through = (velocity * areas).sum(axis=1)
    speeds = np.linalg.norm(velocity, axis=1)
    inward = inside & (through < -_ROUNDING * sizes * speeds)
    flow, width = -float(through[inward].sum()), float(sizes[inward].sum())
    moving = inside & (speeds > 0)
    fastest = float(speeds[moving].max(initial=0.0))
    # A leak of rounding size is no inlet: walls that move in a polygon's direction have such ones.
    root = 1.0 / (case.space - 1)
    if width > 0 and flow > 1e-3 * width * fastest:
        return width**root, flow / width
    if moving.any():
        return float(sizes[moving].sum()) ** root, fastest
    pressures = prescribed_pressures(case)
    difference = float(pressures.amax() - pressures.amin()) if len(pressures) else 0.0
    if "p" in case.periodic:
        difference = max(difference, float(case.periodic["p"].shift.abs().amax()))
    if difference > 0:
        opened = boundary.opened
        volume = float(case.mesh.cell_volumes.sum())
        size = (float(sizes[opened].sum()) / 2) ** root if opened.any() else volume ** (1.0 / case.space)
        return size, math.sqrt(2.0 * difference)
    cyclic = (
        "It is periodic between cyclic patches; forces inside of it are not known. " if "u" in case.periodic else ""
    )
    raise ValueError(
        "Nothing drives this flow: no velocity other than zero and no difference of pressure is prescribed. "
        f"{cyclic}Prescribe one, or give a reference length and speed."
    )
