"""From a user's case to fields with a certificate, in six stages.

`request` checks what is asked, `prepare` brings the case to the network's units and, where its mesh is unlike the
training meshes, to a mesh of its own, `solve` calls the network, `bring_back` returns to the user's mesh and units,
`compare` computes a cheaper, coarser solution, and `judge` tells from all that how far the fields can be trusted. Each
stage takes what the stage before it returns. The equation knows derived inputs, units, characteristic numbers and
checks (`Equation.complete`, `units`, `describe`, `checks`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from pennpde import metrics, progress
from pennpde.case import Case, Remark
from pennpde.case.companion import CompanionError, back, companion_mesh, ends_of_conditions, on_companion, spacing_of
from pennpde.case.units import Units
from pennpde.checkpoints import config_of, load_pretrained
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from pennpde.penn import STEADY, Physics, Prediction, Predictor
from pennpde.penn.equation import OUTFLOW
from pennpde.penn.predictor import Finer, attempted, check_unknowns
from pennpde.prediction.outcome import Outcome
from pennpde.progress import OutOfTimeError, limited
from pennpde.quantities import Quantity, SolvedFlow
from pennpde.registry import did_you_mean
from pennpde.trust import expected_error
from pennpde.trust.calibration import Calibration
from pennpde.trust.certificate import (
    Certificate,
    Comparison,
    Ranges,
    certify,
    certify_interpolated,
    checked,
    describe_mesh,
)
from pennpde.trust.certificate import compare as compared_with
from pennpde.trust.evidence import Evidence, at_place, gather, without_levels
from pennpde.trust.expected_error import GOOD, Expected, Uncalibrated, calibration_of, worst
from pennpde.trust.swinging import SwingErrors, swing_of

Resolution = Literal["auto", "own", "network"]
"""On which mesh a network works: the user's own, a companion of its own spacing, or whichever it was trained for."""
LONGEST = 10_000.0
"""Reference times that are predicted at most: a flow has long reached its final state, or repeats itself."""
_CELL_SIZE, _NEIGHBOURS = "mean cell size", "typical number of neighbours"
_NEIGHBOURS_OF_TRIANGLES = 6.0
_GRADED = 1.5
"""Times beyond the sizes of training that a tenth of the cells must be for a mesh to count as graded."""
_MOST_POINTS = 100_000
"""Of a companion that nobody asked for."""


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked, checked.

    Attributes:
        model: The network.
        case: The user's.
        ranges: What the network was trained on.
        units: Of the case; None where the equation does not say how it depends on them.
        resolution: On which mesh to predict.
        times: In the user's units; None: the network's own.
    """

    model: Predictor
    case: Case
    ranges: Ranges | None
    units: Units | None
    resolution: Resolution
    times: tuple[float, ...] | None

    @property
    def one_time(self) -> float:
        """The network's unit of time."""
        return 1.0 if self.units is None else self.units.time

    @property
    def own_times(self) -> tuple[float, ...]:
        """The times in the network's units."""
        if self.times is None:
            return self.model.output_times
        return tuple(each / self.one_time for each in self.times)

    @property
    def hold(self) -> tuple[float, ...]:
        """When the fields hold, in the user's units."""
        return tuple(each * self.one_time for each in self.own_times) if self.times is None else self.times


@dataclass(frozen=True, eq=False)
class Prepared:
    """The case as the network sees it.

    Attributes:
        request: What is asked.
        seen: Complete, on the mesh that is predicted on, in the user's units.
        scaled: The same in the network's units.
        ready: The same in the network's precision, on its device.
        has_companion: Whether that mesh is another than the user's.
        notes: On the choice of the mesh.
        seconds: Of meshing, of completing and scaling, and of the network's own preparation.
    """

    request: Request
    seen: Case
    scaled: Case
    ready: Case
    has_companion: bool
    notes: tuple[str, ...]
    seconds: tuple[float, float, float]

    @property
    def case(self) -> Case:
        """The user's case, with what was completed where its own mesh is predicted on."""
        return self.request.case if self.has_companion else self.seen


@dataclass(frozen=True, eq=False)
class Solved:
    """What the network gives, in its units and in its precision."""

    prepared: Prepared
    prediction: Prediction
    seconds: float


@dataclass(frozen=True, eq=False)
class Returned:
    """The fields on the user's mesh, in the user's units and precision, and so the finer ones that they are part of."""

    solved: Solved
    fields: dict[str, Tensor]
    finer: Finer | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Compared:
    """The fields with a cheaper solution of the same problem, in the network's units; None where there is none."""

    returned: Returned
    coarse: Mapping[str, Tensor] | None
    seconds: float


def predict(
    model: nn.Module | str | Path,
    case: Case | str | Path,
    ranges: Ranges | None = None,
    *,
    times: float | Sequence[float] | None = None,
    steady: bool = False,
    accuracy: float | None = None,
    quantities: Sequence[Quantity] = (),
    length: float | None = None,
    speed: float | None = None,
    resolution: Resolution = "auto",
) -> Outcome:
    """Predict with a network on any case it can take: `penn.predict("flow", case, times=1.0)`.

    Args:
        model: A trained network, or what `load_pretrained` takes, such as "flow".
        case: Mesh, conditions and parameters; or the folder of an OpenFOAM case.
        ranges: What the network was trained on, for the certificate to warn outside of it; by default what a network
            that was loaded says about itself.
        times: When after the start, in the user's units: one time, or several, increasing. Only networks with
            `takes_times` take them; None: the network's own.
        steady: Whether the steady state is predicted, after the times if there are any.
        accuracy: The largest expected error of the first unknown in per cent, for networks that have levels of
            accuracy: the cheapest level is taken on which it holds, or else the most accurate one. None: the level that
            the network is set to.
        quantities: Whose expected errors are to be as small, see `pennpde.quantities`; forces take finer cells than
            velocities.
        length: The reference length; by default what the equation takes for it (of a flow the inlet width).
        speed: The reference speed, likewise.
        resolution: "own" predicts on the mesh of the case; "network" on a companion, triangles of the same domain at
            the spacing of training, from which the fields are interpolated; "auto" on a companion where the mesh is
            plane and finer, coarser or more uneven than those of training, and these are known and had triangles.
    """
    if not isinstance(model, nn.Module | str | PathLike):
        raise TypeError(
            f'The network is given as {_kind(model)}; give its name first, then the case: predict("flow", case).'
        )
    if not isinstance(model, nn.Module):
        model = load_pretrained(model)
    from_openfoam = isinstance(case, str | PathLike)
    if from_openfoam:
        case = Case.from_openfoam(case, getattr(model, "equation", None))
    elif not isinstance(case, Case):
        raise TypeError(f"predict takes a Case or the folder of an OpenFOAM case, not {_kind(case)}.")
    for name, reference in (("length", length), ("speed", speed)):
        if not (reference is None or isinstance(reference, float | int)):
            raise TypeError(f"The reference {name} is {reference!r:.60}; give a number, in the units of the case.")
    asked: dict[str, Any] = {"length": length, "speed": speed, "resolution": resolution}
    asked["times"] = _listed(times, steady)
    if accuracy is None:
        outcome = _predicted(model, case, ranges, **asked)
    else:
        outcome = _accurate(model, case, ranges, accuracy, quantities, **asked)
    return replace(outcome, si=from_openfoam)


def predict_together(
    model: Predictor,
    cases: Sequence[Case],
    *,
    times: Sequence[Sequence[float] | None],
    device: torch.device | str = "cpu",
    length: float | None = None,
    speed: float | None = None,
    resolution: Resolution = "auto",
) -> list[Outcome | Exception]:
    """What `predict` gives for each of several cases, solved side by side; what is wrong with one takes its place.

    Args:
        model: A network on the CPU, on the level that is wanted.
        cases: Likewise.
        times: Of each case, as for `predict`; infinity is the steady state.
        device: That does as much of the work as it can, such as "cuda".
        length: As for `predict`.
        speed: Likewise.
        resolution: Likewise.
    """
    asked: dict[str, Any] = {"length": length, "speed": speed, "resolution": resolution}

    def prepared(case: Case, when: Sequence[float] | None) -> Prepared:
        return prepare(request(model, case, None, **asked, times=when))

    def judged(solved: Solved) -> Outcome:
        return judge(compare(bring_back(solved)))

    found: list[Any] = [attempted(prepared, *each) for each in zip(cases, times, strict=True)]
    sound = [place for place, each in enumerate(found) if isinstance(each, Prepared)]
    for place, each in zip(sound, solve_together([found[place] for place in sound], device), strict=True):
        found[place] = each if isinstance(each, Exception) else attempted(judged, each)
    return found


def _predicted(model: nn.Module, case: Case, ranges: Ranges | None, **asked: Any) -> Outcome:
    """The outcome at the times asked for; where the seconds are over before the last, at those that were reached."""
    prepared = prepare(request(model, case, ranges, **asked))
    try:
        return judge(compare(bring_back(solve(prepared))))
    except OutOfTimeError as error:
        times = prepared.request.times
        if not error.times or times is None:
            raise
        reached, left = times[: len(error.times)], times[len(error.times) :]
    shorter = replace(prepared, request=replace(prepared.request, times=reached))
    with limited():  # nothing is solved again: the network has kept what it reached
        outcome = judge(compare(bring_back(solve(shorter))))
    names = ", ".join("the steady state" if time == STEADY else f"t = {time:.4g}" for time in left)
    return _stopped(outcome, f"The seconds were over after t = {reached[-1]:.4g}; not reached: {names}.")


def _stopped(outcome: Outcome, why: str) -> Outcome:
    certificate = replace(outcome.certificate, warnings=(why, *outcome.certificate.warnings))
    return replace(outcome, certificate=certificate, stopped=why)


def _kind(given: object) -> str:
    name = type(given).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _listed(times: float | Sequence[float] | None, steady: bool) -> tuple[float, ...] | None:
    """The times that are asked for, the steady state as the last of them."""
    if times is None:
        return (STEADY,) if steady else None
    try:
        listed = tuple(np.atleast_1d(np.asarray(times, dtype=float)).tolist())
    except (TypeError, ValueError):
        raise ValueError(f"The times are {times!r:.60}; give a number, or several such as [0.5, 1.0, 2.0].") from None
    return (*listed, STEADY) if steady and STEADY not in listed else listed


def _accurate(
    model: nn.Module,
    case: Case,
    ranges: Ranges | None,
    accuracy: float,
    quantities: Sequence[Quantity],
    **asked: Any,
) -> Outcome:
    """The outcome of the cheapest level whose expected errors are small enough, else that of the last one."""
    if not isinstance(accuracy, float | int) or not 0 < accuracy < 100:
        raise ValueError(f"accuracy is {accuracy!r}; it is in per cent, above 0 and below 100.")
    if not isinstance(model, Predictor) or not model.levels:
        return _predicted(model, case, ranges, **asked)
    before, spent, best = model.level, {}, None
    try:
        for level in model.levels:
            model.set_level(level)
            try:
                outcome = _predicted(model, case, ranges, **asked)
                if outcome.stopped and best is not None:
                    raise OutOfTimeError(outcome.stopped)
            except OutOfTimeError:
                if best is None:
                    raise
                why = f"The seconds were over before the level {level} was done; this is {best.level}."
                return _stopped(replace(best, seconds=spent), why)
            except ArithmeticError:  # cells too coarse for a march that does not diverge
                if level == model.levels[-1]:
                    raise
                continue
            spent = {name: spent.get(name, 0.0) + seconds for name, seconds in outcome.seconds.items()}
            first = next(iter(outcome.expected.errors.values()), None)
            # Without a calibration no level is known to be better, and what was learned acts on the first.
            enough = first is None or (100 * first.expected <= accuracy and not outcome.expected.unconverged)
            enough = enough and all(
                _is_within(each, outcome, accuracy, unknown=best is not None) for each in quantities
            )
            if enough or outcome.stopped or level == model.levels[-1]:
                return replace(outcome, seconds=spent)
            best = outcome
    finally:
        model.set_level(before)
    raise AssertionError("a network with levels has a last one")


def _is_within(quantity: Quantity, outcome: Outcome, accuracy: float, *, unknown: bool) -> bool:
    """Whether a quantity is accurate enough; where its error is not known, as on unsplit cells, `unknown`."""
    try:
        found = quantity.of(outcome)
    except (ValueError, LookupError, ArithmeticError):  # it has no value here, on no level
        return True
    return unknown if found.error is None else 100 * found.error <= accuracy * found.scale


def request(
    model: nn.Module,
    case: Case,
    ranges: Ranges | None,
    *,
    length: float | None,
    speed: float | None,
    resolution: Resolution,
    times: Sequence[float] | None,
) -> Request:
    """Check what is asked before any work is done; for the arguments see `predict`."""
    if not isinstance(model, Predictor):
        raise TypeError(f"{type(model).__name__} is no Predictor: call it as model(case); it is not certified.")
    check_unknowns(model, case)
    if len(case.sizes) > 1:
        raise ValueError(f"This is a batch of {len(case.sizes)} cases; predict them one by one.")
    if times is not None:
        _check_times(times)
    config = config_of(model)
    if ranges is None and config is not None:
        ranges = checked(config.training_range, "The training range in the network's configuration")
    units = model.equation.units(case, length, speed)
    if units is None and (length is not None or speed is not None):
        raise ValueError(
            f"A reference length or speed was given, but {type(model.equation).__name__} does not say how it depends "
            "on units: give it the method `units`, or leave them out."
        )
    asked = Request(model, case, ranges, units, resolution, None if times is None else tuple(times))
    _check_duration(asked)
    return asked


def prepare(asked: Request) -> Prepared:
    """The case complete, on the mesh to predict on, in the network's units, precision and on its device."""
    begin = time.perf_counter()
    progress.tell(f"preparing {asked.case.number_of_points:,} points")
    model, units = asked.model, asked.units
    one = 1.0 if units is None else units.length
    # One that starts from a solution on coarse cells works on any cells, whichever it was trained on.
    resolution = "own" if asked.resolution == "auto" and model.levels else asked.resolution
    companion, notes = _companion_of(asked.case, one, asked.ranges or {}, resolution)
    meshed = time.perf_counter()
    seen = model.equation.complete(asked.case if companion is None else companion)
    scaled = units.dimensionless(seen) if units is not None else seen
    completed = time.perf_counter()
    ready = scaled.to(*model.placement)
    model.prepare(ready)
    seconds = (meshed - begin, completed - meshed, time.perf_counter() - completed)
    return Prepared(
        request=asked,
        seen=seen,
        scaled=scaled,
        ready=ready,
        has_companion=companion is not None,
        notes=tuple(notes),
        seconds=seconds,
    )


def solve(prepared: Prepared) -> Solved:
    """Call the network."""
    begin = time.perf_counter()
    progress.tell(f"solving {prepared.case.number_of_points:,} points")
    asked = prepared.request
    with torch.inference_mode():
        prediction = asked.model.solve(prepared.ready, None if asked.times is None else asked.own_times)
    return _solved(prepared, prediction, begin)


def solve_together(prepared: Sequence[Prepared], device: torch.device | str) -> list[Solved | Exception]:
    """Call the network once for several cases."""
    if not prepared:
        return []
    begin = time.perf_counter()
    asked = [each.request for each in prepared]
    times = [None if each.times is None else each.own_times for each in asked]
    with torch.inference_mode():
        predictions = asked[0].model.solve_together([each.ready for each in prepared], times, device)
    begin = time.perf_counter() - (time.perf_counter() - begin) / len(prepared)
    return [
        found if isinstance(found, Exception) else _solved(each, found, begin)
        for each, found in zip(prepared, predictions, strict=True)
    ]


def _solved(prepared: Prepared, prediction: Prediction, begin: float) -> Solved:
    with torch.inference_mode():
        # To the CPU within the time that is measured: a GPU is done when its numbers have arrived.
        fields = {name: values.to(prepared.case.initial[name]) for name, values in prediction.fields.items()}
    seconds = time.perf_counter() - begin
    fields = {name: values.clone() for name, values in fields.items()}  # free of inference mode
    return Solved(prepared, replace(prediction, fields=fields), seconds)


def bring_back(solved: Solved) -> Returned:
    """The fields on the user's mesh, in the user's units, with prescribed values bit for bit."""
    begin = time.perf_counter()
    prepared, fields = solved.prepared, solved.prediction.fields
    case, units = prepared.case, prepared.request.units
    if units is not None:
        fields = units.physical(fields)
    if prepared.has_companion:
        fields = back(fields, prepared.seen.mesh, case.mesh)
        fields |= {name: slip.apply(fields[name]) for name, slip in case.slip.items()}
    if prepared.request.model.fulfils_dirichlet:
        # In the network's precision and multiplied back their last bits are off: put the user's own numbers in place.
        fields = case.over(prepared.request.hold).fulfilled(fields)
    finer = None if prepared.has_companion else solved.prediction.finer
    if finer is not None and units is not None:
        finer = finer.map(units.physical)
    return Returned(solved, dict(fields), finer, time.perf_counter() - begin)


def compare(returned: Returned) -> Compared:
    """Solve again, coarser and cheaper, where the calibration of the network knows what to make of it."""
    begin = time.perf_counter()
    prepared = returned.solved.prepared
    model = prepared.request.model
    calibration = _calibration(prepared)
    wanted = calibration.measuring if isinstance(calibration, Uncalibrated) else calibration.knows_coarser_solutions
    coarse = returned.solved.prediction.coarser if wanted else None
    if wanted and coarse is None:
        with torch.inference_mode(), limited():  # a part of what was spent already
            coarse = model.coarser_solution(prepared.ready, prepared.request.own_times)
    return Compared(returned, coarse, time.perf_counter() - begin)


def _calibration(prepared: Prepared) -> Calibration | Uncalibrated:
    """That of the network, where it knows such cases."""
    model = prepared.request.model
    why = model.equation.uncalibrated(prepared.scaled)
    return Uncalibrated(why) if why else calibration_of(model)


def judge(compared: Compared) -> Outcome:
    """The certificate and the expected error: what can be measured without a reference solution, and what it tells."""
    begin = time.perf_counter()
    progress.tell("estimating the error")
    returned = compared.returned
    solved = returned.solved
    prepared = solved.prepared
    asked, prediction, scaled, case = prepared.request, solved.prediction, prepared.scaled, prepared.case
    model, equation = asked.model, asked.model.equation
    operators = Operators.on(scaled.mesh, singular="pseudoinverse")
    certificate = _certified(returned, operators)
    coarse = None if compared.coarse is None else {name: compared.coarse[name] for name in equation.unknowns}
    evidence = gather(scaled, prediction, asked.own_times, certificate, model, prepared.ready, coarse, operators)
    free = equation.free_levels(case)
    calibration, why = _calibration(prepared), equation.uncalibrated(scaled)
    unknown = [f"The expected error is unknown: {why}."] if why else []
    remarks = dict.fromkeys((*case.remarks, *prepared.seen.remarks, *_about(case, equation, free)))
    missing = tuple(each.text for each in remarks if each.severe)
    ignored = tuple(each.text for each in remarks if each.other_physics)
    if ignored:
        # The error of the flow that was solved says nothing about the flow that was asked for.
        calibration = Uncalibrated("the equations of the case have terms that were left out")
    by_time = []
    for place, (each, when) in enumerate(zip(evidence, asked.own_times, strict=True)):
        found = expected_error.judge(calibration, each, list(equation.unknowns))
        fields = without_levels(at_place(prediction.fields, place, scaled), free, scaled)
        unconverged = when == STEADY and not certificate.converged
        local = _local(found, each, fields, prepared)
        by_time.append(replace(found, local=local, missing=missing, ignored=ignored, unconverged=unconverged))
    expected = _judged_by_mean(compared, certificate, calibration, by_time) or worst(by_time)
    certificate = replace(
        certificate,
        notes=(*prepared.notes, *(each.text for each in remarks if not each.severe)),
        warnings=(*missing, *unknown, *certificate.warnings),
    )
    return Outcome(
        case=case,
        fields=returned.fields,
        certificate=_graded(certificate, expected),
        seconds=_seconds(compared, time.perf_counter() - begin),
        times=asked.hold,
        units=asked.units,
        numbers=equation.describe(scaled),
        companion=prepared.seen if prepared.has_companion else None,
        evidence=evidence,
        expected=expected,
        expected_by_time=tuple(by_time),
        level=asked.model.level,
        looks=equation.looks,
        flow=_flow(compared),
        finer=returned.finer,
    )


def _judged_by_mean(
    compared: Compared, certificate: Certificate, calibration: Calibration | Uncalibrated, by_time: Sequence[Expected]
) -> Expected | None:
    """The expected error of a flow that repeats itself, on coarser cells as well; None of others."""
    prepared, prediction = compared.returned.solved.prepared, compared.returned.solved.prediction
    asked, scaled, unknowns = prepared.request, prepared.scaled, list(prepared.request.model.equation.unknowns)
    times, volumes = asked.own_times, scaled.mesh.point_volumes
    if compared.coarse is None or isinstance(calibration, Uncalibrated):
        return None
    coarse = {name: compared.coarse[name].cpu() for name in unknowns}
    swing, coarser = (
        swing_of({name: fields[name] for name in unknowns}, times, volumes) for fields in (prediction.fields, coarse)
    )
    if swing is None or coarser is None:
        return None
    mean = replace(prediction, fields=dict(swing.means), balance={}, finer=None)
    last = max(time for time in times if time != STEADY)
    evidence = gather(scaled, mean, (last,), certificate, asked.model, prepared.ready, coarser.means)
    found = expected_error.judge(calibration, evidence[0], unknowns)
    missing, unconverged = by_time[-1].missing, any(each.unconverged for each in by_time)
    errors = SwingErrors.between(swing, coarser)
    return replace(found, missing=missing, unconverged=unconverged, local=by_time[-1].local, swing=errors)


def _flow(compared: Compared) -> SolvedFlow | None:
    """Of a plane flow, with the coarser solution of it if there is one."""
    prepared, prediction = compared.returned.solved.prepared, compared.returned.solved.prediction
    asked = prepared.request
    if not SolvedFlow.is_of(prepared.seen, prediction.fields):
        return None
    make = partial(SolvedFlow.of, prepared.seen, asked.hold, units=asked.units, level=asked.model.level)
    coarser = None if compared.coarse is None else make(compared.coarse)
    return make({**prediction.fields, **prediction.balance}, coarser=coarser)


def _certified(returned: Returned, operators: Operators) -> Certificate:
    prepared = returned.solved.prepared
    asked, fields = prepared.request, returned.fields
    prediction, units = returned.solved.prediction, asked.units
    if prediction.outflow is not None and units is not None and not prepared.has_companion:
        balance = {OUTFLOW: prediction.outflow * (units.speed * units.length ** (prepared.case.space - 1))}
        prediction = replace(prediction, balance=balance)
    judged, equation = prepared.case.over(asked.hold), asked.model.equation
    if not prepared.has_companion:
        own = operators if units is None or units.length == 1.0 else operators.scaled(1.0 / units.length)
        return certify(
            prediction, judged, asked.ranges, equation, fields=fields, compared=prepared.scaled, operators=own
        )
    seen = prepared.scaled.over(asked.own_times)
    return certify_interpolated(prediction, seen, judged, asked.ranges, equation, fields=fields)


def _seconds(compared: Compared, judging: float) -> dict[str, float]:
    """By part of the work; a companion mesh counts apart, with the interpolation from it."""
    returned = compared.returned
    prepared = returned.solved.prepared
    meshing, completing, preparing = prepared.seconds
    aside = meshing + returned.seconds
    spent = {
        "prepare": completing if prepared.has_companion else completing + aside,
        "operators": preparing,
        "network": returned.solved.seconds,
        "certificate": compared.seconds + judging,
    }
    return spent | ({"companion": aside} if prepared.has_companion else {})


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


def _local(
    expected: Expected, evidence: Evidence, fields: Mapping[str, Tensor], prepared: Prepared
) -> Mapping[str, Tensor]:
    """Where the expected error is likely to be: fields on the user's mesh, in the user's units.

    Args:
        expected: Of the whole domain.
        evidence: Its measure at each point.
        fields: The prediction in the network's units.
        prepared: The case.
    """
    volumes, units = prepared.scaled.mesh.point_volumes, prepared.request.units
    local = {}
    for name, each in expected.errors.items():
        if name not in evidence.local or not math.isfinite(each.expected):
            continue
        size = metrics.root_mean_square(fields[name], volumes)
        measured = metrics.root_mean_square(evidence.local[name], volumes)
        one = 1.0 if units is None else units.scale(name).one
        local[name] = evidence.local[name] * (one * each.expected * size / measured if measured > 0 else 0.0)
    return back(local, prepared.seen.mesh, prepared.case.mesh) if prepared.has_companion and local else local


def _check_times(times: Sequence[float]) -> None:
    usable = len(times) > 0 and all(time > 0 and not math.isnan(time) for time in times)
    if not usable or any(later <= earlier for earlier, later in pairwise(times)):
        raise ValueError(
            f"The times are {list(times)}; give positive numbers in increasing order, such as [0.5, 1.0, {STEADY}], "
            "where infinity stands for the steady state."
        )


def _check_duration(asked: Request) -> None:
    """Refuse a prediction that would step for days."""
    last = max((each for each in asked.own_times if each != STEADY), default=0.0)
    if asked.times is not None and last > LONGEST:
        raise ValueError(
            f"The time {max(each for each in asked.times if each != STEADY):g} is {last:.3g} times the reference time "
            f"{asked.one_time:.3g} (length over speed), and at most {LONGEST:,.0f} are predicted. Is its unit right? "
            "For the state that a flow ends in, ask for the steady state."
        )


def _about(case: Case, equation: Physics, free: Collection[str]) -> list[Remark]:
    """On parameters that the equation does not have, as far as it says which it has, and on unknowns without level."""
    known = {*equation.foam_parameters, "time"}
    unknown = sorted(case.parameters.keys() - known) if equation.foam_parameters else []
    names = ", ".join(equation.foam_parameters)
    ignored = [
        Remark(f"The parameter {name} is ignored; those of the network are {names}.{did_you_mean(name, known)}")
        for name in unknown
    ]
    text = "is prescribed at no more than one point, so only its differences count in its expected error."
    return [*ignored, *(Remark(f"{name} {text}", severe=False) for name in free)]


# The mesh to predict on


def _companion_of(
    case: Case, one: float, ranges: Ranges, resolution: Resolution
) -> tuple[Case | None, tuple[str, ...]]:
    """The case on a companion, if it is to be predicted on one, and the notes about that.

    A plane mesh that is finer, coarser or more graded than those of training gets a companion of their kind: triangles
    of the same domain at the network's spacing, from which the fields are interpolated.

    Args:
        case: In the user's units.
        one: The length that the network sees as one.
        ranges: What the network was trained on.
        resolution: What the user asks for.
    """
    if resolution not in get_args(Resolution):
        raise ValueError(f"The resolution is {resolution!r}; it may be {', '.join(map(repr, get_args(Resolution)))}.")
    if resolution == "own" or (resolution == "auto" and not _knows_triangles(case, ranges)):
        return None, ()
    if case.space != 2:
        raise ValueError(
            'Resolution "network" was requested, but only two-dimensional cases can be remeshed; this one has three. '
            'Leave the resolution out, or take "own".'
        )
    if _CELL_SIZE not in ranges:
        raise ValueError(
            'Resolution "network" was requested, but the network does not record the cell sizes of its training. '
            'Take the resolution "own".'
        )
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
        return None, (f"The mesh is unlike the training meshes, but could not be remeshed. {error}",)
    note = (
        f"Predicted on a companion mesh of {mesh.number_of_cells} triangles of the network's cell size, interpolated "
        f"to your {case.number_of_points} points."
    )
    return on_companion(case, mesh), (note,)


def _knows_triangles(case: Case, ranges: Ranges) -> bool:
    """Whether a companion of this case would be one of the meshes that the network was trained on, as far as known."""
    if case.space != 2 or _CELL_SIZE not in ranges or _NEIGHBOURS not in ranges:
        return False
    return Comparison(_NEIGHBOURS, _NEIGHBOURS_OF_TRIANGLES, *ranges[_NEIGHBOURS]).inside


def _is_like_training(mesh: Mesh, one: float, ranges: Ranges) -> bool:
    """Whether cells have sizes and shapes of training, in units of the length that counts as one."""
    numbers = dict(describe_mesh(mesh))
    numbers[_CELL_SIZE] /= one
    compared = {each.name: each for each in compared_with(numbers, ranges)}
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
