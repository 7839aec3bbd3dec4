"""Quantities from the inlet of a flow: its width and speed as units, and the inflow.

The Navier–Stokes equations do not change when lengths are divided by L, velocities by U, kinematic pressures by U²,
times by L/U and viscosities by U L, nor when a constant is added to the pressure. The flow network was trained with
inlets of width 1 and speed 1 and outlets of pressure 0; any other flow is scaled to these and back, exactly.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case import Case, Dirichlet
from pennpde.case.conditions import TotalPressure
from pennpde.case.units import Scale, Units
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import facet_means

_LEAK = 1e-9
"""Share of its speed that a wall's velocity may have across itself: rounding errors."""
_SMALLEST_VISCOSITY = float(torch.finfo(torch.float32).tiny)
"""Smaller numbers lose their digits, and then vanish, in the precision of networks."""


def checked_viscosity(case: Case) -> float:
    """The viscosity of a flow; an error where it has none to compute with."""
    viscosity = case.parameters.get("viscosity")
    if viscosity is None:
        raise ValueError(f"A flow needs the parameter viscosity; the case has {sorted(case.parameters)}.")
    if not float(viscosity) > 0:
        raise ValueError(f"The viscosity is {float(viscosity):g}; it must be positive.")
    if float(viscosity) < _SMALLEST_VISCOSITY:
        raise ValueError(f"The viscosity is {float(viscosity):g}, which is too small to compute with; is it in m²/s?")
    return float(viscosity)


def inlet_units(case: Case, length: float | None = None, speed: float | None = None) -> Units:
    """Units of a flow: width and largest speed of its inlet, unless given, and the prescribed pressure as zero.

    The inlet is where the prescribed velocity points into the domain, or, where it does so nowhere, as below the lid
    of a cavity, where a velocity other than zero is prescribed.
    """
    if length is None or speed is None:
        condition = case.dirichlet["u"]
        moving = condition.mask & (condition.values != 0).any(dim=1)
        if not bool(moving.any()):
            cyclic = "" if "u" not in case.periodic else "It is periodic between cyclic patches. "
            raise ValueError(
                "No velocity other than zero is prescribed anywhere, so the flow has no inlet to take its units from. "
                f"{cyclic}Prescribe one, or give a reference length and speed."
            )
        if speed is None:
            speed = float(condition.values[moving].norm(dim=1).amax())
        if length is None:
            length = _inlet_width(case, speed)
    return flow_units(length, speed, pressure_level(case))


def pressure_level(case: Case) -> float:
    """The prescribed pressure that counts as zero; nothing prescribed is zero.

    The middle rather than the mean: it is exact where there is one outlet.
    """
    pressure = prescribed_pressures(case)
    return float(pressure.amin() + pressure.amax()) / 2 if len(pressure) else 0.0


def prescribed_pressures(case: Case) -> Float[Tensor, " some"]:
    """All of them, total ones among them."""
    known = [case.conditions.get(kind.kind, {}).get("p") for kind in (Dirichlet, TotalPressure)]
    found = [each.values[each.mask] for each in known if isinstance(each, Dirichlet | TotalPressure)]
    return torch.cat(found) if found else torch.zeros(0)


def flow_units(length: float, speed: float, pressure_level: float = 0.0) -> Units:
    """Units of a flow with this reference length, speed and pressure."""
    scales = {
        "u": Scale(speed),
        "p": Scale(speed * speed, pressure_level),
        "viscosity": Scale(length * speed),
        "wall_distance": Scale(length),
    }
    return Units.of_speed(length, speed, scales)


def describe_inlet(case: Case) -> dict[str, float]:
    """Characteristic numbers of a flow with an inlet; none if it has no inlet or no viscosity."""
    if float(case.parameters.get("viscosity", 0.0)) <= 0:
        return {}
    try:
        units = inlet_units(case)
    except ValueError:  # no inlet, and so no numbers of one
        return {}
    _, inflow = prescribed_inflow(case)
    return {
        "Reynolds number": units.length * units.speed / float(case.parameters["viscosity"]),
        "inlet width": units.length,
        "inflow over that of an even inlet": inflow / (units.speed * units.length ** (case.space - 1)),
        **describe_boundary(case),
    }


def describe_boundary(case: Case) -> dict[str, float]:
    """What tells flows of one Reynolds number apart: direction and profile of the inlet, moving walls, holes, outlets.

    Args:
        case: In units of the inlet's width and speed.
    """
    if case.space != 2:
        return inlet_profile(case)
    ends = case.mesh.facets.connectivity.reshape(-1, 2)
    areas = case.mesh.facet_areas
    held = case.dirichlet["u"].mask.cpu().numpy()
    open_facets = case.dirichlet["p"].mask.cpu().numpy()[ends].all(axis=1) & ~held[ends].all(axis=1)
    velocity, prescribed = facet_velocity(case.dirichlet["u"].values, case.mesh, case.dirichlet["u"].mask)
    through = (velocity * areas).sum(dim=1)
    sizes, speeds = areas.norm(dim=1), velocity.norm(dim=1)
    sliding = prescribed & (through.abs() <= _LEAK * sizes * speeds)
    inward = prescribed & (through < -_LEAK * sizes * speeds)
    numbers = {
        "speed of moving walls": float(speeds[sliding].amax()) if bool(sliding.any()) else 0.0,
        "holes": float(_components(ends) - 1),
        "outlets": float(_components(ends[open_facets])),
    }
    if bool(inward.any()) and open_facets.any():
        into, out = -areas[inward].sum(dim=0), areas[torch.from_numpy(open_facets)].sum(dim=0)
        cosine = float((into * out).sum() / (into.norm() * out.norm()).clamp(min=1e-30))
        # Rounded: of parallel directions the cosine is not one to the last bit.
        numbers["angle from inlet to outlet in degrees"] = round(
            math.degrees(math.acos(max(-1.0, min(1.0, cosine)))), 1
        )
    return numbers | inlet_profile(case)


def _components(ends: np.ndarray) -> int:
    """Connected parts of a set of facets."""
    if not len(ends):
        return 0
    points, places = np.unique(ends, return_inverse=True)
    places = places.reshape(ends.shape)
    first, second = np.repeat(places[:, 0], ends.shape[1] - 1), places[:, 1:].ravel()
    graph = scipy.sparse.coo_matrix((np.ones(len(first)), (first, second)), shape=(len(points), len(points)))
    return int(scipy.sparse.csgraph.connected_components(graph, directed=False)[0])


def inlet_profile(case: Case) -> dict[str, float]:
    """How the inflow is directed and distributed: a slanted or peaked inlet is another flow at the same mean speed."""
    through, sizes, velocity = _inward(case)
    flux = float(through.sum())
    if not flux > 0:
        return {}
    normal = through / sizes
    along = (velocity.square().sum(dim=1) - normal.square()).clamp(min=0).sqrt()
    # Of the mean velocity: in a profile that is zero at its ends, single facets have no direction worth the name.
    # Rounded, because a velocity in single precision has an angle of its own.
    slope = float((sizes * along).sum() / (sizes * normal).sum())
    return {
        "inlet angle in degrees": round(math.degrees(math.atan(slope)), 3),
        "inlet peak over mean": float(normal.amax() * sizes.sum()) / flux,
    }


def facet_velocity(
    velocity: Float[Tensor, "points space"], mesh: Mesh, prescribed: Bool[Tensor, " points"]
) -> tuple[Float[Tensor, "facets space"], Bool[Tensor, " facets"]]:
    """The velocity of each exterior facet, and whether all of its points are prescribed.

    Where an inlet meets a wall, `mesh.boundary` says whose velocity counts.
    """
    means, inside = facet_means(velocity.numpy(), mesh, prescribed.numpy())
    return torch.from_numpy(means), torch.from_numpy(inside)


def prescribed_inflow(case: Case) -> tuple[float, float]:
    """Size of the inlet and flux through it: the facets on which the prescribed velocity points inwards."""
    through, sizes, _ = _inward(case)
    return float(sizes.sum()), float(through.sum())


def _inward(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Inflow, size and velocity of the facets through which the prescribed velocity enters."""
    condition = case.dirichlet["u"]
    velocity, prescribed = facet_velocity(condition.values, case.mesh, condition.mask)
    through = (velocity * case.mesh.facet_areas).sum(dim=1)
    sizes = case.mesh.facet_areas.norm(dim=1)
    # A wall that moves along itself has a flux of rounding errors.
    inward = prescribed & (through < -_LEAK * sizes * velocity.norm(dim=1))
    return through[inward].abs(), sizes[inward], velocity[inward]


def _inlet_width(case: Case, speed: float) -> float:
    size, flow = prescribed_inflow(case)
    if flow <= 1e-6 * size * speed:
        condition = case.dirichlet["u"]
        velocity, prescribed = facet_velocity(condition.values, case.mesh, condition.mask)
        size = float(case.mesh.facet_areas.norm(dim=1)[prescribed & (velocity != 0).any(dim=1)].sum())
    if size <= 0:
        raise ValueError(
            "The velocity is prescribed at single points, on no whole facet of the boundary, so the flow has no inlet "
            "to take its length from. Give a reference length, or the patch all points of its facets."
        )
    return size ** (1 / (case.space - 1))
