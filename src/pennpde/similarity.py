"""Units: a flow in metres and seconds as the same flow in inlet widths and inlet speeds.

The Navier–Stokes equations do not change when lengths are divided by L, velocities by U, kinematic pressures by U²,
times by L/U and viscosities by U L. The flow network was trained with inlets of width 1 and speed 1; any other flow is
brought there and back, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pennpde.conditions import Case, Dirichlet, Neumann


@dataclass(frozen=True)
class Units:
    """The length and the speed that count as one."""

    length: float
    speed: float

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("speed", self.speed)):
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"The reference {name} is {value}; it must be a positive number.")

    @property
    def time(self) -> float:
        return self.length / self.speed

    @property
    def viscosity(self) -> float:
        return self.length * self.speed

    @property
    def _fields(self) -> dict[str, float]:
        return {"u": self.speed, "p": self.speed**2}

    def dimensionless(self, case: Case) -> Case:
        """The flow case in these units."""
        lengths = {name: 1 / unit for name, unit in self._fields.items()}
        return replace(
            case,
            mesh=replace(case.mesh, points=case.mesh.points / self.length),
            initial={name: values * lengths[name] for name, values in case.initial.items()},
            dirichlet={
                name: Dirichlet(each.mask, each.values * lengths[name]) for name, each in case.dirichlet.items()
            },
            neumann={
                name: Neumann(each.mask, each.normals, each.normal_derivative * lengths[name] * self.length)
                for name, each in case.neumann.items()
            },
            parameters={**case.parameters, "viscosity": case.parameters["viscosity"] / self.viscosity},
            features={
                name: values / self.length if name == "wall_distance" else values
                for name, values in case.features.items()
            },
            targets={name: values * lengths.get(name, 1.0) for name, values in case.targets.items()},
            cached_operators=None,
        )

    def physical(self, fields: dict[str, Tensor]) -> dict[str, Tensor]:
        """Fields of the dimensionless case in the units of the original one."""
        return {name: values * self._fields.get(name, 1.0) for name, values in fields.items()}


def inlet_units(case: Case) -> Units:
    """Width and largest speed of the inlet: the facets on which a velocity other than zero is prescribed."""
    condition = case.dirichlet["u"]
    moving = condition.mask & (condition.values != 0).any(dim=1)
    if not bool(moving.any()):
        raise ValueError(
            "No velocity other than zero is prescribed anywhere, so the flow has no inlet to take its units from. "
            "Prescribe one, or give a reference length and speed."
        )
    facets = case.mesh.facets
    # At its rim the inlet meets a wall, whose zero wins: a facet belongs to it if any of its points moves.
    flows = np.logical_or.reduceat(moving.numpy()[facets.connectivity], facets.offsets[:-1])
    prescribed = np.logical_and.reduceat(condition.mask.numpy()[facets.connectivity], facets.offsets[:-1])
    area = float(case.mesh.facet_areas.norm(dim=1)[torch.from_numpy(flows & prescribed)].sum())
    return Units(area ** (1 / (case.space - 1)), float(condition.values[moving].norm(dim=1).amax()))
