"""What is known about plane incompressible flows with any inlets, outlets and walls: units, checks, names."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from pennpde.case import Case, Remark
from pennpde.case.units import Units
from pennpde.mesh.boundary import facet_ends
from pennpde.models.boundary_profile import BoundaryProfile, later, total_pressures
from pennpde.models.flow_physics import FlowPhysics
from pennpde.models.inlet import checked_viscosity, describe_boundary, flow_units, prescribed_pressures, pressure_level

_ROUNDING = 1e-9
_FARTHEST = 1e4
"""Between a reference length and the size of the mesh: beyond it, one of them is in another unit."""


class PlaneFlowPhysics(FlowPhysics):
    """Velocity and kinematic pressure of an incompressible fluid in the plane."""

    def complete(self, case: Case) -> Case:
        """The case itself; one that has no solution is refused."""
        checked_viscosity(case)
        ends = case.mesh.facets.connectivity.reshape(-1, 2) if case.space == 2 else np.zeros((0, 2), int)
        held = case.dirichlet["u"].mask.cpu().numpy()
        pressed = (case.dirichlet["p"].mask | total_pressures(case)).cpu().numpy()
        slips = case.slip["u"].mask.cpu().numpy() if "u" in case.slip else np.zeros(len(held), bool)
        paired = case.periodic["u"].mask.cpu().numpy() if "u" in case.periodic else np.zeros(len(held), bool)
        # A corner may belong to either of its patches: each end of a facet has to know something.
        loose = ~(held | pressed | paired | slips)[ends].all(axis=1)
        if loose.any():
            where = case.mesh.points[torch.from_numpy(ends[loose][0])].mean(dim=0).tolist()
            raise ValueError(
                f"On {int(loose.sum())} facets of the boundary, the first at {[round(each, 6) for each in where]}, "
                "neither the velocity nor the pressure is prescribed. Give an inlet or wall its velocity, an outlet "
                "its pressure."
            )
        if case.space != 2:
            return case
        boundary = BoundaryProfile.of(case)
        for each in (case, *later(case)) if not boundary.opened.any() else ():
            BoundaryProfile.of(each).refuse_contradiction(case.mesh.patches)
        return _with_level(case).remarked(*boundary.remarks(case), *_about_start(case))

    def units(self, case: Case, length: float | None = None, speed: float | None = None) -> Units:
        """Width and mean speed of the inlets; of cavities the length and speed of the lid."""
        if case.space != 2:
            raise ValueError(
                f"This network predicts flows in the plane, but the case has {case.space} dimensions. An OpenFOAM case "
                "is plane if it is one cell thick and its front and back are of type empty."
            )
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

    def describe(self, case: Case) -> dict[str, float]:
        viscosity = float(case.parameters.get("viscosity", 0.0))
        if viscosity <= 0:
            return {}
        try:
            length, speed = reference(case)
        except ValueError:
            return {}
        return {"Reynolds number": length * speed / viscosity, **describe_boundary(case)}


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
    condition = case.dirichlet["u"]
    held = condition.mask.cpu().numpy()
    values = condition.values.detach().cpu().numpy().astype(float)
    areas = case.mesh.facet_areas.detach().cpu().numpy()
    sizes = np.linalg.norm(areas, axis=1)
    boundary = BoundaryProfile.of(case)
    inside = boundary.held
    velocity = facet_ends(values, case.mesh, held).mean(axis=1)
    velocity = np.where(boundary.lost[:, None], boundary.means, velocity)
    through = (velocity * areas).sum(axis=1)
    speeds = np.linalg.norm(velocity, axis=1)
    inward = inside & (through < -_ROUNDING * sizes * speeds)
    flow, width = -float(through[inward].sum()), float(sizes[inward].sum())
    moving = inside & (speeds > 0)
    fastest = float(speeds[moving].max(initial=0.0))
    # A leak of rounding size is no inlet: walls that move in a polygon's direction have such ones.
    if width > 0 and flow > 1e-3 * width * fastest:
        return width, flow / width
    if moving.any():
        return float(sizes[moving].sum()), fastest
    pressures = prescribed_pressures(case)
    difference = float(pressures.amax() - pressures.amin()) if len(pressures) else 0.0
    if "p" in case.periodic:
        difference = max(difference, float(case.periodic["p"].shift.abs().amax()))
    if difference > 0:
        opened = boundary.opened
        size = float(sizes[opened].sum()) / 2 if opened.any() else float(case.mesh.cell_volumes.sum()) ** 0.5
        return size, math.sqrt(2.0 * difference)
    cyclic = (
        "It is periodic between cyclic patches; forces inside of it are not known. " if "u" in case.periodic else ""
    )
    raise ValueError(
        "Nothing drives this flow: no velocity other than zero and no difference of pressure is prescribed. "
        f"{cyclic}Prescribe one, or give a reference length and speed."
    )
