"""From a user's case to fields with a certificate: what the network wants and the user did not give is worked out.

For a flow that is the distance from the walls, the potential flow to start from, and units in which the inlet has width
and speed one; for advection and diffusion the distance from the prescribed values, and units in which they are one.
A plane mesh unlike those of training gets a companion that is like them, and the fields are interpolated from there.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.case.companion import back, ends_of_conditions, on_companion
from pennpde.case.units import Units, inlet_units, transport_units
from pennpde.checkpoints import config_of
from pennpde.mesh import Mesh
from pennpde.mesh.remesh import CompanionError, companion_mesh, spacing_of
from pennpde.models.advection_diffusion import AdvectionDiffusion
from pennpde.models.flow import Flow
from pennpde.models.potential_flow import potential_flow
from pennpde.network import PENN
from pennpde.prediction.certificate import Certificate, certify, certify_interpolated
from pennpde.prediction.ranges import Comparison, Ranges, checked, compare, describe_mesh

Resolution = Literal["auto", "own", "network"]
"""On which mesh a network works: the user's own, a companion of its own spacing, or whichever it was trained for."""

_CELL_SIZE, _NEIGHBOURS = "mean cell size", "typical number of neighbours"
_NEIGHBOURS_OF_TRIANGLES = 6.0
_GRADED = 1.5
"""Times beyond the sizes of training that a tenth of the cells must be for a mesh to count as graded."""
_MOST_POINTS = 100_000
"""Of a companion that nobody asked for."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A prediction in the user's units."""

    case: Case
    """The user's case; with what was added to it where the network worked on the user's own mesh."""
    fields: dict[str, Tensor]
    """In the precision of the case. Several output times are a trailing axis."""
    certificate: Certificate
    seconds: dict[str, float]
    """Preparing (distances, potential flow), assembling operators, the network itself, and the certificate; where there
    is a companion, making it and interpolating from it."""
    times: tuple[float, ...]
    """When after the start the fields hold, in the user's units."""
    units: Units | None
    companion: Case | None = None
    """The case on a mesh of the network's own spacing, on which it was predicted; None where that is the user's."""

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
    resolution: Resolution = "auto",
) -> Outcome:
    """Predict with a network on any case it can take.

    Args:
        model: A trained network.
        case: Mesh, conditions and parameters.
        ranges: What the network was trained on, for the certificate to warn outside of it; by default what a network
            that was loaded says about itself.
        length: What counts as one; by default, see `units_of`.
        speed: Likewise.
        resolution: "own" predicts on the mesh of the case; "network" on a companion, triangles of the same domain at
            the spacing of training, from which the fields are interpolated; "auto" on a companion where the mesh is
            plane and finer, coarser or more uneven than those of training, and these are known and had triangles.
    """
    begin = time.perf_counter()
    _check(model, case)
    config = config_of(model)
    if ranges is None and config is not None:
        ranges = checked(config.training_range, "The training range in the network's configuration")
    companion, notes = _companion(model, case, ranges or {}, resolution, length, speed)
    meshed = time.perf_counter()
    seen = completed(model, case if companion is None else companion)
    if companion is None:
        case = seen
    units = units_of(model, case, length, speed)
    scaled = units.dimensionless(seen) if units is not None else seen
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
    if companion is not None:
        fields = back(fields, companion.mesh, case.mesh)
        fields |= {name: slip.apply(fields[name]) for name, slip in case.slip.items()}
    if model.fulfils_dirichlet:
        # In the network's precision and multiplied back their last bits are off: put the user's own numbers in place.
        fields = {name: case.dirichlet[name].apply(values) for name, values in fields.items()}
    interpolated = time.perf_counter()
    if companion is None:
        certificate = certify(prediction, case, ranges, fields=fields, compared=scaled)
    else:
        certificate = certify_interpolated(prediction, scaled, case, ranges, fields=fields)
    seconds = {
        "prepare": prepared - meshed,
        "operators": assembled - prepared,
        "network": done - assembled,
        "certificate": time.perf_counter() - interpolated,
    }
    aside = (meshed - begin) + (interpolated - done)
    return Outcome(
        case=case,
        fields=fields,
        certificate=replace(certificate, notes=notes),
        seconds=seconds | ({"prepare": seconds["prepare"] + aside} if companion is None else {"companion": aside}),
        times=tuple(
            (step + 1) * model.time_step * (1.0 if units is None else units.time) for step in range(model.steps)
        ),
        units=units,
        companion=None if companion is None else seen,
    )


def _companion(
    model: PENN, case: Case, ranges: Ranges, resolution: Resolution, length: float | None, speed: float | None
) -> tuple[Case | None, tuple[str, ...]]:
    """The case on a companion, where it is to be predicted on one, and what to tell about that."""
    if resolution not in get_args(Resolution):
        raise ValueError(f"The resolution is {resolution!r}; it may be {', '.join(map(repr, get_args(Resolution)))}.")
    if resolution == "own" or (resolution == "auto" and not _knows_triangles(case, ranges)):
        return None, ()
    if case.space != 2:
        raise ValueError(
            "The network's resolution was asked for, but only plane cases have companion meshes; this one is in space. "
            'Leave the resolution out, or take "own".'
        )
    if _CELL_SIZE not in ranges:
        raise ValueError(
            "The network's resolution was asked for, but the network does not tell on which cell sizes it was trained. "
            'Take the resolution "own".'
        )
    units = units_of(model, case, length, speed)
    one = 1.0 if units is None else units.length
    if resolution == "auto" and _is_like_training(case.mesh, one, ranges):
        return None, ()
    spacing = spacing_of(case.mesh, one * math.sqrt(math.prod(ranges[_CELL_SIZE])))
    points = float(case.mesh.cell_volumes.sum()) / spacing**2
    try:
        if resolution == "auto" and points > _MOST_POINTS:
            raise CompanionError(
                f"At the network's spacing of {spacing:.4g} the domain has about {points:.1e} points; ask for them "
                'with the resolution "network".'
            )
        mesh = companion_mesh(case.mesh, spacing, keep=ends_of_conditions(case))
    except CompanionError as error:
        if resolution == "network":
            raise
        return None, (f"The mesh is unlike those of training, but could not be replaced by one of their kind. {error}",)
    note = (
        f"Predicted on a companion mesh of {mesh.number_of_cells} triangles at the network's spacing, interpolated to "
        f"your {case.number_of_points} points."
    )
    return on_companion(case, mesh), (note,)


def _knows_triangles(case: Case, ranges: Ranges) -> bool:
    """Whether a companion of this case would be one of the meshes that the network was trained on, as far as known."""
    if case.space != 2 or _CELL_SIZE not in ranges or _NEIGHBOURS not in ranges:
        return False
    return Comparison(_NEIGHBOURS, _NEIGHBOURS_OF_TRIANGLES, *ranges[_NEIGHBOURS]).inside


def _is_like_training(mesh: Mesh, one: float, ranges: Ranges) -> bool:
    """Whether cells have sizes and shapes of training, in units of the length that counts as one."""
    numbers = describe_mesh(mesh)
    numbers[_CELL_SIZE] /= one
    compared = {each.name: each for each in compare(numbers, ranges)}
    low, high = ranges[_CELL_SIZE]
    within = np.setdiff1d(np.arange(mesh.number_of_points), mesh.boundary_points)
    sizes = mesh.point_volumes.sqrt().numpy()[within if len(within) else slice(None)] / one
    finest, coarsest = np.quantile(sizes, [0.1, 0.9])
    stretching = compared.get("mean stretching of cells")
    return bool(
        compared[_CELL_SIZE].inside
        and compared[_NEIGHBOURS].inside
        and _GRADED * finest >= low
        and coarsest <= _GRADED * high
        # Less stretched than in training can only be better.
        and (stretching is None or stretching.inside or stretching.value < stretching.low)
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
