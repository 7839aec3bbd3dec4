"""From a user's case to fields with a certificate.

The equation knows derived inputs, units, characteristic numbers and checks (`Equation.complete`, `units`, `describe`,
`checks`). A plane mesh unlike the training meshes is remeshed for the prediction (`policy`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from pennpde import metrics
from pennpde.case import Case, Remark
from pennpde.case.companion import back
from pennpde.case.units import Units
from pennpde.checkpoints import config_of
from pennpde.mesh import Mesh
from pennpde.network import STEADY, Physics, Predictor
from pennpde.network.inputs import check_unknowns
from pennpde.prediction.certificate import Certificate, certify, certify_interpolated
from pennpde.prediction.evidence import Evidence, at_place, gather, without_levels
from pennpde.prediction.expected_error import BEING_CALIBRATED, GOOD, Expected, calibration_of, judge, worst
from pennpde.prediction.policy import Resolution, companion_of
from pennpde.prediction.ranges import Ranges, checked

LONGEST = 10_000.0
"""Reference times that are predicted at most: a flow has long reached its final state, or repeats itself."""


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
    numbers: dict[str, float] = field(default_factory=dict)
    """What the equation knows about the case, such as its Reynolds number."""
    companion: Case | None = None
    """The case on a mesh of the network's own spacing, on which it was predicted; None where that is the user's."""
    evidence: tuple[Evidence, ...] = ()
    """At each of the times, what was measured without the truth and says how wrong the fields may be."""
    expected: Expected = field(default_factory=Expected)
    """How wrong the fields probably are: expected error and grade by unknown, at the worst of the times."""
    expected_by_time: tuple[Expected, ...] = ()
    """The same at each of the times."""

    @property
    def time(self) -> float:
        return self.times[-1]

    @property
    def last(self) -> dict[str, Tensor]:
        """The fields at the last of the times."""
        return self.at(-1).fields

    def at(self, place: int) -> Outcome:
        """The prediction at one of its times only."""
        fields = {
            name: values[..., place] if values.ndim > self.case.initial[name].ndim else values
            for name, values in self.fields.items()
        }
        changes: dict[str, Any] = {"fields": fields, "times": (self.times[place],)}
        if self.expected_by_time:
            now = self.expected_by_time[place]
            changes |= {"evidence": (self.evidence[place],), "expected": now, "expected_by_time": (now,)}
        return replace(self, **changes)

    def mesh(self) -> Mesh:
        """The mesh with the predicted fields attached, ready to be saved: the last, and of a series each, numbered.

        A file has no separate axis for times: four times of a scalar would look like a tensor.
        """
        series = {
            f"{name}_{place + 1}": values[..., place]
            for name, values in self.fields.items()
            if values.ndim > self.case.initial[name].ndim
            for place in range(len(self.times))
        }
        doubts = {f"expected_error_{name}": values for name, values in self.expected.local.items()}
        facts = self.expected.facts()
        if self.certificate.warnings:
            facts["warnings"] = "\n".join(self.certificate.warnings)
        return self.case.mesh.with_fields(self.last | series | doubts).with_facts(facts)


def predict(
    model: nn.Module,
    case: Case,
    ranges: Ranges | None = None,
    *,
    length: float | None = None,
    speed: float | None = None,
    resolution: Resolution = "auto",
    times: Sequence[float] | None = None,
) -> Outcome:
    """Predict with a network on any case it can take.

    Args:
        model: A trained network.
        case: Mesh, conditions and parameters.
        ranges: What the network was trained on, for the certificate to warn outside of it; by default what a network
            that was loaded says about itself.
        length: The reference length; by default what the equation takes for it (of a flow the inlet width).
        speed: The reference speed, likewise.
        resolution: "own" predicts on the mesh of the case; "network" on a companion, triangles of the same domain at
            the spacing of training, from which the fields are interpolated; "auto" on a companion where the mesh is
            plane and finer, coarser or more uneven than those of training, and these are known and had triangles.
        times: When after the start, in the user's units, increasing; `STEADY` may be the last. Only networks with
            `takes_times` take them; None: the network's own.
    """
    begin = time.perf_counter()
    if not isinstance(model, Predictor):
        raise TypeError(f"{type(model).__name__} is no Predictor: call it as model(case); it is not certified.")
    _check(model, case)
    _check_times(times)
    config = config_of(model)
    if ranges is None and config is not None:
        ranges = checked(config.training_range, "The training range in the network's configuration")
    equation = model.equation
    units = equation.units(case, length, speed)
    if units is None and (length is not None or speed is not None):
        raise ValueError(
            f"A reference length or speed was given, but {type(equation).__name__} does not say how it depends on "
            "units: give it the method `units`, or leave them out."
        )
    companion, notes = companion_of(case, units, ranges or {}, resolution)
    meshed = time.perf_counter()
    seen = equation.complete(case if companion is None else companion)
    if companion is None:
        case = seen
    scaled = units.dimensionless(seen) if units is not None else seen
    prepared = time.perf_counter()
    one_time = 1.0 if units is None else units.time
    parameter = next(model.parameters())
    ready = scaled.to(parameter.dtype, parameter.device)
    model.prepare(ready)
    assembled = time.perf_counter()
    own_times = model.output_times if times is None else tuple(each / one_time for each in times)
    _check_duration(own_times, times, one_time)
    with torch.inference_mode():
        prediction = model.solve(ready, None if times is None else own_times)
        # To the CPU within the time that is measured: a GPU is done when its numbers have arrived.
        fields = {name: values.to(case.initial[name]) for name, values in prediction.fields.items()}
    done = time.perf_counter()
    fields = {name: values.clone() for name, values in fields.items()}  # free of inference mode
    hold = tuple(each * one_time for each in own_times) if times is None else tuple(times)
    judged = case.over(hold)
    if units is not None:
        fields = units.physical(fields)
    if companion is not None:
        fields = back(fields, companion.mesh, case.mesh)
        fields |= {name: slip.apply(fields[name]) for name, slip in case.slip.items()}
    if model.fulfils_dirichlet:
        # In the network's precision and multiplied back their last bits are off: put the user's own numbers in place.
        fields = judged.fulfilled(fields)
    interpolated = time.perf_counter()
    if companion is None:
        certificate = certify(prediction, judged, ranges, equation, fields=fields, compared=scaled)
    else:
        seen_over = scaled.over(own_times)
        certificate = certify_interpolated(prediction, seen_over, judged, ranges, equation, fields=fields)
    calibration, why_not = calibration_of(model)
    # Nobody else would listen to it.
    listened = why_not == BEING_CALIBRATED if calibration is None else calibration.knows_second_opinions
    free = equation.free_levels(case)
    evidence = gather(scaled, prediction.fields, own_times, certificate, model, ready, second_opinion=listened)
    judged_by_time = tuple(
        _with_local(
            judge(calibration, each, list(equation.unknowns), why_not),
            each,
            without_levels(at_place(prediction.fields, place, scaled), free, scaled),
            (scaled, case.mesh if companion is not None else None, units),
        )
        for place, each in enumerate(evidence)
    )
    remarks = tuple(
        dict.fromkeys((*case.remarks, *seen.remarks, *_about_parameters(case, equation), *_about_levels(free)))
    )
    missing = tuple(each.text for each in remarks if each.severe)
    judged_by_time = tuple(replace(each, missing=missing) for each in judged_by_time)
    expected = worst(judged_by_time)
    certificate = replace(
        certificate,
        notes=(*notes, *(each.text for each in remarks if not each.severe)),
        warnings=(*missing, *certificate.warnings),
    )
    certificate = _graded(certificate, expected)
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
        certificate=certificate,
        seconds=seconds | ({"prepare": seconds["prepare"] + aside} if companion is None else {"companion": aside}),
        times=hold,
        units=units,
        numbers=equation.describe(scaled),
        companion=None if companion is None else seen,
        evidence=evidence,
        expected=expected,
        expected_by_time=judged_by_time,
    )


def _graded(certificate: Certificate, expected: Expected) -> Certificate:
    """The certificate with what the expected error means for its warnings.

    Where the error is known to be small, a number outside of the training range is worth a note, not a warning.
    """
    warnings = (*expected.warnings, *certificate.warnings)
    if expected.grade != GOOD:
        return replace(certificate, warnings=warnings)
    outside = set(certificate.outside)
    return replace(
        certificate,
        warnings=tuple(each for each in warnings if each not in outside),
        notes=(*certificate.notes, *certificate.outside),
    )


def _with_local(
    expected: Expected,
    evidence: Evidence,
    fields: Mapping[str, Tensor],
    where: tuple[Case, Mesh | None, Units | None],
) -> Expected:
    """The expected error with fields of where it is likely to be, on the user's mesh and in the user's units.

    Args:
        expected: Of the whole domain.
        evidence: Its measure at each point.
        fields: The prediction in the network's units.
        where: The case that the network saw, the user's mesh where that is another one, and the units.
    """
    case, mesh, units = where
    volumes = case.mesh.point_volumes
    local = {}
    for name, each in expected.errors.items():
        if name not in evidence.local or not math.isfinite(each.expected):
            continue
        size = metrics.root_mean_square(fields[name], volumes)
        measured = metrics.root_mean_square(evidence.local[name], volumes)
        one = 1.0 if units is None else units.scale(name).one
        local[name] = evidence.local[name] * (one * each.expected * size / measured if measured > 0 else 0.0)
    if mesh is not None and local:
        local = back(local, case.mesh, mesh) if units is None else back(local, _in_user_units(case.mesh, units), mesh)
    return replace(expected, local=local)


def _in_user_units(mesh: Mesh, units: Units) -> Mesh:
    return mesh.with_points(mesh.points * units.length)


def _check_times(times: Sequence[float] | None) -> None:
    if times is None:
        return
    usable = len(times) > 0 and all(time > 0 and not math.isnan(time) for time in times)
    if not usable or any(later <= earlier for earlier, later in pairwise(times)):
        raise ValueError(
            f"The times are {list(times)}; give positive numbers in increasing order, such as [0.5, 1.0, {STEADY}], "
            "where infinity stands for the steady state."
        )


def _check_duration(own_times: Sequence[float], times: Sequence[float] | None, one_time: float) -> None:
    """Refuse a prediction that would step for days."""
    last = max((each for each in own_times if each != STEADY), default=0.0)
    if times is not None and last > LONGEST:
        raise ValueError(
            f"The time {max(each for each in times if each != STEADY):g} is {last:.3g} times the reference time "
            f"{one_time:.3g} (length over speed), and at most {LONGEST:,.0f} are predicted. Is its unit right? For the "
            "state that a flow ends in, ask for the steady state."
        )


def _about_parameters(case: Case, equation: Physics) -> list[Remark]:
    """Parameters of a case that the equation does not have, as far as it says which it has."""
    known = {*equation.foam_parameters, "time"}
    unknown = sorted(case.parameters.keys() - known) if equation.foam_parameters else []
    names = ", ".join(equation.foam_parameters)
    return [Remark(f"The parameter {name} is ignored; those of the network are {names}.") for name in unknown]


def _about_levels(free: Collection[str]) -> list[Remark]:
    text = "is prescribed at no more than one point, so only its differences count in its expected error."
    return [Remark(f"{name} {text}", severe=False) for name in free]


def _check(model: Predictor, case: Case) -> None:
    check_unknowns(model, case)
    if len(case.sizes) > 1:
        raise ValueError(f"This is a batch of {len(case.sizes)} cases; predict them one by one.")
