"""From a user's case to fields with a certificate: what the network wants and the user did not give is worked out.

For a flow that is the distance from the walls, the potential flow to start from, and units in which the inlet has width
and speed one; for advection and diffusion the distance from the prescribed values, and units in which they are one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pennpde.certificate import Certificate, certify
from pennpde.checkpoints import config_of
from pennpde.conditions import Case
from pennpde.mesh import Mesh
from pennpde.models.advection_diffusion import AdvectionDiffusion
from pennpde.models.flow import Flow
from pennpde.network import PENN
from pennpde.potential import potential_flow
from pennpde.ranges import Ranges, checked
from pennpde.similarity import Units, inlet_units, transport_units


@dataclass(frozen=True, eq=False)
class Outcome:
    """A prediction in the user's units."""

    case: Case
    """The user's case with what was added to it."""
    fields: dict[str, Tensor]
    """In the precision of the case. Several output times are a trailing axis."""
    certificate: Certificate
    seconds: dict[str, float]
    """Preparing (distances, potential flow), assembling operators, the network itself, and the certificate."""
    times: tuple[float, ...]
    """When after the start the fields hold, in the user's units."""
    units: Units | None

    @property
    def time(self) -> float:
        return self.times[-1]

    @property
    def last(self) -> dict[str, Tensor]:
        """The fields at the last of the times."""
        return {
            name: values[..., -1] if values.ndim > self.case.initial[name].ndim else values
            for name, values in self.fields.items()
        }

    def mesh(self) -> Mesh:
        """The mesh with the predicted fields attached, ready to be saved: the last, and of a series each, numbered.

        A file has no axis of times beside that of components: four times of a scalar would look like a tensor.
        """
        series = {
            f"{name}_{place + 1}": values[..., place]
            for name, values in self.fields.items()
            if values.ndim > self.case.initial[name].ndim
            for place in range(len(self.times))
        }
        return self.case.mesh.with_fields(self.last | series)


def predict(
    model: PENN,
    case: Case,
    ranges: Ranges | None = None,
    *,
    length: float | None = None,
    speed: float | None = None,
) -> Outcome:
    """Predict with a network on any case it can take.

    Args:
        model: A trained network.
        case: Mesh, conditions and parameters.
        ranges: What the network was trained on, for the certificate to warn outside of it; by default what a network
            that was loaded says about itself.
        length: What counts as one; by default, see `units_of`.
        speed: Likewise.
    """
    begin = time.perf_counter()
    _check(model, case)
    config = config_of(model)
    if ranges is None and config is not None:
        ranges = checked(config.training_range, "The training range in the network's configuration")
    case = completed(model, case)
    units = units_of(model, case, length, speed)
    scaled = units.dimensionless(case) if units is not None else case
    prepared = time.perf_counter()
    parameter = next(model.parameters())
    ready = scaled.to(parameter.dtype, parameter.device)
    # A first product loads parts of torch, which takes longer than a small network: no part of the network's own time.
    name, start = next(iter(ready.initial.items()))
    ready.operators[name].grad(start)
    assembled = time.perf_counter()
    with torch.inference_mode():
        prediction = model.solve(ready)
        # To the CPU within the time that is measured: a GPU is done when its numbers have arrived.
        fields = {name: values.to(case.initial[name]) for name, values in prediction.fields.items()}
    done = time.perf_counter()
    fields = {name: values.clone() for name, values in fields.items()}  # free of inference mode
    if units is not None:
        fields = units.physical(fields)
    if model.fulfils_dirichlet:
        # In the network's precision and multiplied back their last bits are off: put the user's own numbers in place.
        fields = {name: case.dirichlet[name].apply(values) for name, values in fields.items()}
    certificate = certify(prediction, case, ranges, fields=fields, compared=scaled)
    return Outcome(
        case=case,
        fields=fields,
        certificate=certificate,
        seconds={
            "prepare": prepared - begin,
            "operators": assembled - prepared,
            "network": done - assembled,
            "certificate": time.perf_counter() - done,
        },
        times=tuple(
            (step + 1) * model.time_step * (1.0 if units is None else units.time) for step in range(model.steps)
        ),
        units=units,
    )


def units_of(model: PENN, case: Case, length: float | None = None, speed: float | None = None) -> Units | None:
    """The units in which a network sees a case, with the length and the speed that count as one if given.

    A flow has those of its inlet, a transported temperature those of its prescribed values. How other equations change
    with units is not known here: their cases are taken as they are.
    """
    if isinstance(model.equation, Flow):
        return inlet_units(case, length, speed)
    if isinstance(model.equation, AdvectionDiffusion):
        return transport_units(case, length, speed)
    if length is not None or speed is not None:
        raise ValueError(
            f"A reference length or speed was given, but how a {type(model.equation).__name__} depends on units is not "
            "known: only flows and advection-diffusion can be rescaled."
        )
    return None


def completed(model: PENN, case: Case) -> Case:
    """The case with everything that a network wants to know, as far as its equation is one of ours."""
    if isinstance(model.equation, Flow):
        return complete_flow(case)
    return complete_transport(case) if isinstance(model.equation, AdvectionDiffusion) else case


def complete_flow(case: Case) -> Case:
    """The flow case with wall distance and, where no flow is given to start from, potential flow."""
    viscosity = case.parameters.get("viscosity")
    if viscosity is None:
        raise ValueError(f"A flow needs the parameter viscosity; the case has {sorted(case.parameters)}.")
    if not float(viscosity) > 0:
        raise ValueError(f"The viscosity is {float(viscosity):g}; it must be positive.")
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
        distance = walls.distance_to(["no-slip wall"])
        case = replace(case, features={**case.features, "wall_distance": distance.to(case.initial["p"])})
    velocity, pressure = case.initial["u"], case.initial["p"]
    # The same everywhere is a first guess, as OpenFOAM's cases have it, and no flow.
    if _is_uniform(velocity[~case.dirichlet["u"].mask]):
        velocity = potential_flow(case)
    if _is_uniform(pressure[~case.dirichlet["p"].mask]):
        pressure = torch.full_like(pressure, inlet_units(case, 1.0, 1.0).pressure_level)
    return replace(case, initial={**case.initial, "u": velocity, "p": pressure})


def complete_transport(case: Case) -> Case:
    """The case of a transported scalar with the distance from its prescribed values."""
    if "inlet_distance" in case.features:
        return case
    held = case.dirichlet["T"].mask.numpy()
    if not held.any():
        raise ValueError("T is prescribed nowhere; the network needs a patch with a prescribed temperature.")
    distance = case.mesh.with_patches({"prescribed": held}).distance_to(["prescribed"])
    return replace(case, features={**case.features, "inlet_distance": distance.to(case.initial["T"])})


def _check(model: PENN, case: Case) -> None:
    if case.initial.keys() != model.equation.unknowns.keys():
        raise ValueError(
            f"The network solves for {', '.join(sorted(model.equation.unknowns))}, but the unknowns of the case are "
            f"{', '.join(sorted(case.initial))}. Choose another network, or give just these."
        )
    for name, rank in model.equation.unknowns.items():
        if case.initial[name].ndim - 1 != rank:
            kinds = ("a scalar", "a vector", "a tensor")
            raise ValueError(
                f"{name} is {kinds[case.initial[name].ndim - 1]} in the case, but {kinds[rank]} for the network. Its "
                "initial field decides: a number is a scalar, a list of numbers a vector."
            )
    if len(case.sizes) > 1:
        raise ValueError(f"This is a batch of {len(case.sizes)} cases; predict them one by one.")


def _is_uniform(values: Tensor) -> bool:
    return len(values) == 0 or bool((values == values[0]).all())
