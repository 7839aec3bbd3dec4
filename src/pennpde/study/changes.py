"""A case with other parameters, or with other values on its patches.

The value of a vector on a patch is a number as a rule: its largest length there. The profile keeps its shape, whether
it is uniform, a parabola or a list of an OpenFOAM case; on a patch at rest, flow enters at right angles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from pennpde.case import Case, Dirichlet
from pennpde.mesh import Mesh

_AXES = "xyz"


@dataclass(frozen=True)
class Place:
    """Where a value is prescribed: `inlet.u`, or `inlet.u.y` for one component."""

    patch: str
    unknown: str
    axis: int | None = None

    @staticmethod
    def parse(name: str, case: Case) -> Place | None:
        """From the name of a variable; None where it names no patch and unknown of the case."""
        patch, _, unknown = name.rpartition(".")
        axis = None
        if unknown in _AXES and "." in patch:
            axis = _AXES.index(unknown)
            patch, _, unknown = patch.rpartition(".")
        if patch not in case.mesh.patches or unknown not in case.initial:
            return None
        if axis is not None and (case.initial[unknown].ndim < 2 or axis >= case.space):
            return None
        return Place(patch, unknown, axis)


def check_names(case: Case, names: Mapping[str, float]) -> None:
    """Refuse names that the case does not have."""
    scalars = [name for name, value in case.parameters.items() if not value.ndim]
    for name in names:
        if name not in scalars and Place.parse(name, case) is None:
            held = [
                f"{patch}.{unknown}"
                for unknown, condition in case.dirichlet.items()
                for patch, each in case.mesh.patches.items()
                if bool(condition.mask[torch.from_numpy(each.points)].all())
            ]
            raise ValueError(
                f"{name!r} cannot vary: the case has the parameters {', '.join(scalars) or 'none'} and the "
                f"prescribed values {', '.join(held) or 'none'}; a shape has its own names, and time is called time."
            )


def changed(case: Case, values: Mapping[str, float]) -> Case:
    """The case with these parameters and prescribed values."""
    check_names(case, values)
    parameters = {
        name: torch.tensor(values[name], dtype=old.dtype) if name in values else old
        for name, old in case.parameters.items()
    }
    conditions = dict(case.dirichlet)
    for name, value in values.items():
        if name not in case.parameters:
            place = Place.parse(name, case)
            assert place is not None
            conditions[place.unknown] = _with_value(case.mesh, conditions[place.unknown], place, value)
    # OpenFOAM's cases begin with the prescribed values in place.
    initial = dict(case.initial)
    for name, field in case.initial.items():
        if conditions[name] is not case.dirichlet[name] and torch.equal(case.dirichlet[name].apply(field), field):
            initial[name] = conditions[name].apply(field)
    every = {**case.conditions, "dirichlet": conditions}
    return replace(case, parameters=parameters, conditions=every, initial=initial)


def _with_value(mesh: Mesh, condition: Dirichlet, place: Place, value: float) -> Dirichlet:
    own = mesh.patch(place.patch)
    label = f"{place.patch}.{place.unknown}"
    known = condition.on_facets
    if known is None or not len(own.facets) or not bool(known.held[own.facets].all()):
        raise ValueError(f"{label} cannot vary: {place.unknown} is not prescribed on the patch {place.patch}.")
    if condition.course is not None:
        raise ValueError(
            f"{label} cannot vary, because {place.unknown} changes with time; let a Python function make the case, "
            "or write {{name}} into its file in an OpenFOAM template."
        )
    # A point that several patches share has the value of the last one that was given.
    last = np.full(mesh.number_of_points, -1)
    np.maximum.at(last, mesh.facets.connectivity, np.repeat(known.patch, mesh.facets.sizes))
    points = torch.from_numpy(own.points[np.isin(last[own.points], np.unique(known.patch[own.facets]))])
    at_points, on_facets = condition.values.clone(), known.ends.copy()
    if at_points.ndim > 1 and place.axis is None:
        speed = max(
            float(at_points[points].norm(dim=-1).amax()) if len(points) else 0.0,
            float(np.linalg.norm(on_facets[own.facets], axis=-1).max()),
        )
        if speed > 0:
            at_points[points] *= value / speed
            on_facets[own.facets] *= value / speed
        else:
            inwards = -mesh.normals_of_facets(own.facets)
            at_points[points] = value * inwards[points].to(at_points)
            on_facets[own.facets] = -value * mesh.facet_normals.numpy()[own.facets][:, None]
    else:
        where = (points,) if place.axis is None else (points, place.axis)
        at_points[where] = value
        on_facets[(own.facets, ...) if place.axis is None else (own.facets, slice(None), place.axis)] = value
    return replace(condition, values=at_points, on_facets=replace(known, ends=on_facets))
