"""Units: a flow in metres and seconds as the same flow in inlet widths and inlet speeds.

The Navier–Stokes equations do not change when lengths are divided by L, velocities by U, kinematic pressures by U²,
times by L/U and viscosities by U L, nor when a constant is added to the pressure. The flow network was trained with
inlets of width 1 and speed 1 and outlets of pressure 0; any other flow is brought there and back, exactly. In the same
way a temperature becomes its share of the way from the temperature at the start to the prescribed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case import Case, Dirichlet, Neumann
from pennpde.mesh import Mesh

_LENGTHS = ("wall_distance", "inlet_distance")


@dataclass(frozen=True)
class Units:
    """What counts as one, and for pressure and temperature what counts as zero."""

    length: float
    speed: float
    pressure_level: float = 0.0
    temperature: float = 1.0
    temperature_level: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("speed", self.speed)):
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"The reference {name} is {value}; it must be a positive number.")

    @property
    def time(self) -> float:
        return self.length / self.speed

    def _one(self, name: str) -> float:
        return {"u": self.speed, "p": self.speed**2, "T": self.temperature}.get(name, 1.0)

    def _zero(self, name: str) -> float:
        return {"p": self.pressure_level, "T": self.temperature_level}.get(name, 0.0)

    def dimensionless(self, case: Case) -> Case:
        """The case in these units."""

        def scaled(name: str, values: Tensor) -> Tensor:
            return (values - self._zero(name)) / self._one(name)

        by_parameter = {
            "viscosity": self.length * self.speed,
            "diffusivity": self.length * self.speed,
            "velocity": self.speed,
        }
        return replace(
            case,
            mesh=_shrunk(case.mesh, self.length),
            initial={name: scaled(name, values) for name, values in case.initial.items()},
            dirichlet={
                name: Dirichlet(each.mask, _only(each.mask, scaled(name, each.values)))
                for name, each in case.dirichlet.items()
            },
            neumann={
                name: Neumann(each.mask, each.normals, each.normal_derivative * (self.length / self._one(name)))
                for name, each in case.neumann.items()
            },
            parameters={name: value / by_parameter.get(name, 1.0) for name, value in case.parameters.items()},
            features={
                name: values / self.length if name in _LENGTHS else values for name, values in case.features.items()
            },
            targets={
                name: scaled(name, values) if name in case.initial else values for name, values in case.targets.items()
            },
            cached_operators=None,
        )

    def physical(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields of the dimensionless case in the units of the original one."""
        return {name: values * self._one(name) + self._zero(name) for name, values in fields.items()}


def inlet_units(case: Case, length: float | None = None, speed: float | None = None) -> Units:
    """Units of a flow: width and largest speed of its inlet, unless given, and the prescribed pressure as zero.

    The inlet is where the prescribed velocity points into the domain, or, where it does so nowhere, as below the lid
    of a cavity, where a velocity other than zero is prescribed.
    """
    pressure = case.dirichlet["p"].values[case.dirichlet["p"].mask] if "p" in case.dirichlet else torch.zeros(0)
    # The middle rather than the mean: it is exact where there is one outlet.
    level = float(pressure.amin() + pressure.amax()) / 2 if len(pressure) else 0.0
    if length is None or speed is None:
        condition = case.dirichlet["u"]
        moving = condition.mask & (condition.values != 0).any(dim=1)
        if not bool(moving.any()):
            raise ValueError(
                "No velocity other than zero is prescribed anywhere, so the flow has no inlet to take its units from. "
                "Prescribe one, or give a reference length and speed."
            )
        if speed is None:
            speed = float(condition.values[moving].norm(dim=1).amax())
        if length is None:
            length = _inlet_width(case, speed)
    return Units(length, speed, pressure_level=level)


def transport_units(case: Case, length: float | None = None, speed: float | None = None) -> Units:
    """Units of a transported temperature: zero at the start, one where it is prescribed; lengths and speeds as given.

    Unlike a flow it has no length and speed of its own to choose: by default the case's numbers are taken as they are.
    """
    condition = case.dirichlet["T"]
    free = case.initial["T"][~condition.mask]
    level = float(free.amin() + free.amax()) / 2 if len(free) else 0.0
    above = condition.values[condition.mask] - level
    one = float(above[above.abs().argmax()]) if len(above) else 0.0
    return Units(
        1.0 if length is None else length,
        1.0 if speed is None else speed,
        temperature=one or 1.0,
        temperature_level=level,
    )


def facet_velocity(
    velocity: Float[Tensor, "points space"], mesh: Mesh, prescribed: Bool[Tensor, " points"]
) -> tuple[Float[Tensor, "facets space"], Bool[Tensor, " facets"]]:
    """The velocity of each exterior facet, and whether all of its points are prescribed.

    It is the mean of the facet's points, but where all are prescribed, of those in the fewest patches: where an inlet
    meets a wall, one of them has the corner, and neither the inlet's last facet nor the wall's is to take a half of the
    other's velocity.
    """
    facets = mesh.facets
    sizes = np.diff(facets.offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    values = velocity.numpy()[facets.connectivity]
    inside = np.logical_and.reduceat(prescribed.numpy()[facets.connectivity], facets.offsets[:-1])
    patches = np.zeros(mesh.number_of_points, np.int64)
    for patch in mesh.patches.values():
        patches[patch.points] += 1
    membership = patches[facets.connectivity]
    counted = ~inside[owner] | (membership == np.minimum.reduceat(membership, facets.offsets[:-1])[owner])
    sums = np.stack([np.bincount(owner, counted * column, len(sizes)) for column in values.T], axis=1)
    means = sums / np.bincount(owner, counted, len(sizes))[:, None]
    return torch.from_numpy(means), torch.from_numpy(inside)


def prescribed_inflow(case: Case) -> tuple[float, float]:
    """Size of the inlet and what flows through it: the facets on which the prescribed velocity points inwards."""
    condition = case.dirichlet["u"]
    velocity, prescribed = facet_velocity(condition.values, case.mesh, condition.mask)
    through = (velocity * case.mesh.facet_areas).sum(dim=1)
    sizes = case.mesh.facet_areas.norm(dim=1)
    # A wall that moves along itself has a flux of rounding errors.
    inward = prescribed & (through < -1e-9 * sizes * velocity.norm(dim=1))
    return float(sizes[inward].sum()), float(through[inward].abs().sum())


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


def _shrunk(mesh: Mesh, length: float) -> Mesh:
    """The mesh in units of a length; what does not depend on lengths is not worked out anew."""
    shrunk = replace(mesh, points=mesh.points / length)
    shrunk.__dict__.update({name: mesh.__dict__[name] for name in ("facets", "edges") if name in mesh.__dict__})
    return shrunk


def _only(mask: Bool[Tensor, " points"], values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
    """The values at these points, zero elsewhere."""
    return values.where(mask.reshape(-1, *[1] * (values.ndim - 1)), 0.0)
