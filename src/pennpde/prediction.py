"""From a user's case to fields with a certificate: what the network wants and the user did not give is worked out.

For a flow that is the distance from the walls, the potential flow to start from, and units in which the inlet has width
and speed one; for advection and diffusion the distance from the prescribed values.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pennpde.certificate import Certificate, certify
from pennpde.conditions import Case
from pennpde.mesh import Mesh
from pennpde.models.flow import DURATION
from pennpde.network import PENN
from pennpde.potential import potential_flow
from pennpde.ranges import Ranges
from pennpde.similarity import Units, inlet_units


@dataclass(frozen=True, eq=False)
class Outcome:
    """A prediction in the user's units."""

    case: Case
    """The user's case with what was added to it."""
    fields: dict[str, Tensor]
    certificate: Certificate
    seconds: dict[str, float]
    """Preparing (distances, potential flow), assembling operators, and the network itself."""
    time: float | None
    """For a flow, the time after the start that the fields belong to, in the user's units."""
    units: Units | None

    def mesh(self) -> Mesh:
        """The mesh with the predicted fields attached, ready to be saved."""
        return self.case.mesh.with_fields(self.fields)


def predict(model: PENN, case: Case, ranges: Ranges | None = None, units: Units | None = None) -> Outcome:
    """Predict with a network on any case it can take.

    Args:
        model: A trained network.
        case: Mesh, conditions and parameters.
        ranges: What the network was trained on; the certificate warns outside of it.
        units: For a flow, the length and speed that count as one; by default those of the inlet.
    """
    begin = time.perf_counter()
    missing = model.equation.unknowns.keys() - case.initial.keys()
    if missing:
        raise ValueError(
            f"The network solves for {sorted(model.equation.unknowns)}, but the case has no {sorted(missing)}: its "
            f"unknowns are {sorted(case.initial)}."
        )
    is_flow = model.equation.unknowns.keys() == {"u", "p"}
    case = complete_flow(case) if is_flow else complete_transport(case)
    units = (units or inlet_units(case)) if is_flow else None
    scaled = units.dimensionless(case) if units is not None else case
    prepared = time.perf_counter()
    parameter = next(model.parameters())
    ready = scaled.to(parameter.dtype, parameter.device)
    assembled = time.perf_counter()
    with torch.inference_mode():
        prediction = model.solve(ready)
    done = time.perf_counter()
    certificate = certify(prediction, scaled, ranges)
    fields = {name: values.cpu() for name, values in prediction.fields.items()}
    if units is not None:
        # Multiplied back the last bit of a prescribed value may be off: put the user's own numbers in place.
        fields = {name: case.dirichlet[name].apply(values) for name, values in units.physical(fields).items()}
    return Outcome(
        case=case,
        fields=fields,
        certificate=certificate,
        seconds={"prepare": prepared - begin, "operators": assembled - prepared, "network": done - assembled},
        time=DURATION * units.time if units is not None else None,
        units=units,
    )


def complete_flow(case: Case) -> Case:
    """The flow case with wall distance and, where it starts from rest, potential flow."""
    if "viscosity" not in case.parameters:
        raise ValueError(f"A flow needs the parameter viscosity; the case has {sorted(case.parameters)}.")
    if not bool(case.dirichlet["p"].mask.any()):
        raise ValueError(
            "No pressure is prescribed anywhere, so its level is undetermined. Prescribe p on the outlet, as "
            "dirichlet={'p': {'outlet': 0.0}}."
        )
    if "wall_distance" not in case.features:
        condition = case.dirichlet["u"]
        still = (condition.mask & (condition.values == 0).all(dim=1)).numpy()
        if not still.any():
            raise ValueError("The flow has no walls: nowhere is the velocity prescribed as zero.")
        walls = case.mesh.with_patches({"no-slip wall": still})
        if not len(walls.patch("no-slip wall").facets):
            raise ValueError("The flow has no walls: the velocity is prescribed as zero at single points only.")
        distance = walls.distance_to(["no-slip wall"])
        case = replace(case, features={**case.features, "wall_distance": distance.to(case.initial["p"])})
    if not bool(case.initial["u"].any()):
        case = replace(case, initial={**case.initial, "u": potential_flow(case)})
    return case


def complete_transport(case: Case) -> Case:
    """The case of a transported scalar with the distance from its prescribed values."""
    if "inlet_distance" in case.features or "T" not in case.initial:
        return case
    held = case.dirichlet["T"].mask.numpy()
    if not held.any():
        raise ValueError("T is prescribed nowhere; the network needs a patch with a prescribed temperature.")
    distance = case.mesh.with_patches({"prescribed": held}).distance_to(["prescribed"])
    return replace(case, features={**case.features, "inlet_distance": distance.to(case.initial["T"])})
