"""Quantities of the whole domain and of single places, from the fields at the points."""

from __future__ import annotations

import numpy as np

from pennpde.mesh import triangulation
from pennpde.mesh.interpolation import cut_into_triangles, interpolation
from pennpde.penn.equation import DISSIPATION
from pennpde.quantities.quantity import Quantity, Raw
from pennpde.quantities.solved import SolvedFlow

FIELDS = ("u", "v", "speed", "p")


def probe(flow: SolvedFlow, quantity: Quantity) -> Raw:
    name, *numbers = quantity.arguments
    place = np.array([[float(each) for each in numbers]])
    if not triangulation.inside(place, flow.points[flow.ends])[0]:
        low, high = flow.points.min(axis=0), flow.points.max(axis=0)
        raise ValueError(f"{quantity.name!r} lies outside of the fluid, which spans {low} to {high}.")
    values = field(flow, name)
    there = values @ interpolation(flow.case.mesh, place).toarray()[0]
    return Raw(there, np.abs(values).max(axis=1))


def largest(flow: SolvedFlow, quantity: Quantity) -> Raw:
    values = field(flow, quantity.arguments[0])
    return Raw(values.max(axis=1), np.abs(values).max(axis=1))


def smallest(flow: SolvedFlow, quantity: Quantity) -> Raw:
    values = field(flow, quantity.arguments[0])
    return Raw(values.min(axis=1), np.abs(values).max(axis=1))


def field(flow: SolvedFlow, name: str) -> np.ndarray:
    """A component or the modulus of the velocity, or the pressure [times, points]."""
    velocity = flow.fields["u"]
    if name == "speed":
        return np.linalg.norm(velocity, axis=2)
    return flow.fields["p"] if name == "p" else velocity[..., FIELDS.index(name)]


def kinetic_energy(flow: SolvedFlow, _: Quantity) -> Raw:
    """The integral of u²/2."""
    volumes = flow.case.mesh.point_volumes.double().numpy()
    values = 0.5 * (flow.fields["u"] ** 2).sum(axis=2) @ volumes
    return Raw(values, values)


def dissipation(flow: SolvedFlow, _: Quantity) -> Raw:
    """The integral of 2 ν e : e, e the rate of strain, on the cells of the scheme."""
    values = flow.balanced(DISSIPATION)
    return Raw(values, np.abs(values))


def recirculation_area(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """Where the velocity points against the flow's direction; between points it is linear."""
    triangles, extension = cut_into_triangles(flow.case.mesh)
    corners = np.asarray(extension @ flow.points)[triangles]
    areas = 0.5 * np.abs(triangulation.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    along = flow.fields["u"] @ quantity.directions(flow)[0]
    values = np.array([(areas * _negative_share(np.asarray(extension @ each)[triangles])).sum() for each in along])
    return Raw(values, values + 0.1 * flow.length**2)


def _negative_share(values: np.ndarray) -> np.ndarray:
    """The share of each triangle in which a linear function is negative."""
    low, middle, high = np.sort(values, axis=1).T
    one = np.where(high > low, high - low, 1.0)
    below = low**2 / (one * np.where(middle > low, middle - low, 1.0))  # the corner of the smallest value
    above = high**2 / (one * np.where(high > middle, high - middle, 1.0))
    return np.select([low >= 0, high <= 0, middle >= 0], [np.zeros_like(low), np.ones_like(low), below], 1.0 - above)
