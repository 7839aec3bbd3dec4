"""Calibrating a network: predict cases with truth, compare, and learn how its error shows.

Measured cases are kept in a file, one line each, so that an interrupted calibration goes on where it was.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from pennpde import __version__, metrics
from pennpde.case import Case
from pennpde.checkpoints import config_of
from pennpde.files import plain, read_regular
from pennpde.penn import STEADY, Predictor
from pennpde.penn.predictor import check_unknowns
from pennpde.prediction import Resolution, predict
from pennpde.trust import expected_error
from pennpde.trust.calibration import LEVEL, Calibration, Sample, cross_validated, fit
from pennpde.trust.evidence import NOT_FINITE
from pennpde.trust.expected_error import GOOD, GRADES, ExpectedError

DETERMINED = "truth determined"
"""Moments whose truth hardly changes with its mesh; then those where it does, and those where nobody looked."""
UNDETERMINED = "truth not determined"
NOT_MEASURED = "not known whether"
_WRONG = 0.2
"""A prediction with a larger error must not be graded good."""
_PARTS = 10
_LARGEST_CACHE = 500_000_000
_NEAR = 0.07
"""Relative distance between a time of the truth and that of a network that predicts only its own."""


@dataclass(frozen=True, eq=False)
class Known:
    """A case whose solution is known at some times.

    Attributes:
        case: What is predicted; its targets are not looked at.
        family: Cases of one family are alike; how well the expected error holds is judged without them.
        truth: By time in the units of the case, the fields by unknown; `STEADY` for a steady state.
        determined: By time, whether the truth hardly changes with the mesh that it was computed on; where nobody has
            measured that, it has no entry.
    """

    case: Case
    family: str
    truth: Mapping[float, Mapping[str, Tensor]]
    determined: Mapping[float, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """Errors and clues of one case at one time.

    Attributes:
        case: Its name.
        family: Of the case.
        time: In the units of the case; infinite for a steady state.
        errors: Relative L2, by unknown; without the level of those that have none (`Physics.free_levels`).
        clues: By name.
        worse: By clue, whether more of it can only mean a larger error.
        determined: Whether the truth hardly changes with the mesh that it was computed on; None: not measured.
    """

    case: str
    family: str
    time: float
    errors: Mapping[str, float]
    clues: Mapping[str, float]
    worse: Mapping[str, bool]
    determined: bool | None = None

    @property
    def sample(self) -> Sample:
        name = f"{self.case} {'steady' if self.time == STEADY else f't={self.time:g}'}"
        return Sample(name, self.family, self.clues, self.errors)


@dataclass(frozen=True)
class Coverage:
    """How often the bound held, of cases of one family or of all.

    Attributes:
        cases: Number of predictions.
        covered: By unknown, the share whose error is below the bound.
        errors: By unknown, the median error.
        expected: By unknown, the median of the expected errors.
        grades: Number of predictions by grade.
        good_but_wrong: Number of those graded good with an error above 20 %.
        wrong: Their names.
    """

    cases: int
    covered: Mapping[str, float]
    errors: Mapping[str, float]
    expected: Mapping[str, float]
    grades: Mapping[str, int] = field(default_factory=dict)
    good_but_wrong: int = 0
    wrong: tuple[str, ...] = ()


def of_case(case: Case, times: Sequence[float], family: str = "") -> Known:
    """A case with targets at some times, as datasets hold them; the time of a single one may be `STEADY`.

    Args:
        case: With targets.
        times: Of the targets.
        family: By default the first part of the name: "step_0012.a" is a "step".
    """
    truth: dict[float, dict[str, Tensor]] = defaultdict(dict)
    for name, start in case.initial.items():
        target, steady = case.targets.get(name), case.targets.get(f"steady_{name}")
        if steady is not None:
            truth[STEADY][name] = steady
        if target is None and steady is not None:
            continue
        if target is None:
            raise ValueError(f"The case {case.name!r} has no true {name}, so the error of {name} cannot be measured.")
        series = target if target.ndim > start.ndim else target[..., None]
        if series.shape[-1] != len(times):
            raise ValueError(f"{case.name!r} has {series.shape[-1]} true fields of {name}, but {len(times)} times.")
        for place, time in enumerate(times):
            truth[time][name] = series[..., place]
    return Known(case, family or case.name.split("_")[0], dict(truth))


def measure(model: nn.Module, known: Known, resolution: Resolution = "auto") -> list[Measured]:
    """Predict a case at the times of its truth that the network can predict, and compare."""
    if not isinstance(model, Predictor):
        raise TypeError(f"{type(model).__name__} is no Predictor, so its predictions have no expected error.")
    case = replace(known.case, targets={})
    check_unknowns(model, case)
    wanted = sorted(known.truth)
    if not model.takes_times:
        units = model.equation.units(case)
        own = model.output_times[-1] * (1.0 if units is None else units.time)
        nearest = min(wanted, key=lambda time: abs(time - own))
        if abs(nearest - own) > _NEAR * own:
            return []
        wanted = [nearest]
    outcome = predict(model, case, times=wanted if model.takes_times else None, resolution=resolution)
    volumes = case.mesh.point_volumes
    units, free = outcome.units, model.equation.free_levels(case)
    found = []
    for place, time in enumerate(wanted):
        # A network with times of its own gives several of them; the last is the one that was compared with.
        place = place if model.takes_times else len(outcome.times) - 1  # noqa: PLW2901
        errors = {}
        for name, truth in known.truth[time].items():
            zero = 0.0 if units is None else units.scale(name).zero
            values = outcome.fields[name]
            values = values[..., place] if values.ndim > case.initial[name].ndim else values
            predicted, true = (
                metrics.without_level(each.double(), volumes) if name in free else each.double() - zero
                for each in (values, truth)
            )
            errors[name] = float(metrics.relative_l2(predicted, true, volumes))
        clues = outcome.evidence[place].clues
        found.append(
            Measured(
                known.case.name,
                known.family,
                time,
                errors,
                {each.name: each.value for each in clues},
                {each.name: each.worse for each in clues},
                known.determined.get(time),
            )
        )
    return found


def measure_all(
    model: nn.Module,
    cases: Iterable[Known],
    cache: Path | None = None,
    resolution: Resolution = "auto",
    on_case: Callable[[Known, Sequence[Measured] | Exception], None] | None = None,
) -> list[Measured]:
    """Measure many cases; those in the cache are not predicted again.

    A case that the network cannot take is left out; it is tried again the next time.

    Args:
        model: The network.
        cases: With truth.
        cache: File that measured cases are added to as they come.
        resolution: As for `predict`.
        on_case: Is called after each case that was predicted.
    """
    weights = _weights_of(model)
    done = kept(model, cache, resolution)
    found: list[Measured] = []
    for known in cases:
        name = known.case.name
        if name not in done:
            try:
                with expected_error.uncalibrated(model):
                    outcome: Sequence[Measured] | Exception = measure(model, known, resolution)
            except (ValueError, KeyError, ArithmeticError, RuntimeError) as error:
                outcome = error
            if on_case is not None:
                on_case(known, outcome)
            if isinstance(outcome, Exception):
                continue
            done[name] = list(outcome)
            if cache is not None:
                _add(cache, weights, resolution, name, outcome)
        found += done[name]
    return found


def kept(model: nn.Module, cache: Path | None, resolution: Resolution = "auto") -> dict[str, list[Measured]]:
    """By name, the cases that were measured before with these weights."""
    return {} if cache is None else _cached(cache, _weights_of(model), resolution)


def calibrate(
    model: nn.Module,
    cases: Iterable[Known],
    *,
    cache: Path | None = None,
    resolution: Resolution = "auto",
    on_case: Callable[[Known, Sequence[Measured] | Exception], None] | None = None,
) -> tuple[Calibration, list[Measured]]:
    """Learn from cases with truth how wrong a network is.

    Args:
        model: A trained network.
        cases: That it was not trained on, of several families; `of_case` makes them of cases with targets.
        cache: File for measured cases, to go on after an interruption.
        resolution: As for `predict`.
        on_case: Is called after each case.
    """
    measured = usable(measure_all(model, cases, cache, resolution, on_case))
    return fitted(measured), measured


def fitted(measured: Sequence[Measured]) -> Calibration:
    """The calibration by predictions that were measured.

    Where the truth depends on its own mesh, such as the phase of eddies, the difference from it says little about the
    network: such moments are not learned from.
    """
    return fit([each.sample for each in measured if each.determined is not False], worse_of(measured))


def usable(measured: Sequence[Measured]) -> list[Measured]:
    """Those with finite fields: what is not finite is refused anyway. A single family is divided into ten parts."""
    finite = [each for each in measured if NOT_FINITE not in each.clues]
    if len({each.family for each in finite}) > 1:
        return finite
    names = list(dict.fromkeys(each.case for each in finite))
    return [replace(each, family=f"part {names.index(each.case) % _PARTS}") for each in finite]


def worse_of(measured: Iterable[Measured]) -> dict[str, bool]:
    """By clue, whether more of it can only mean a larger error."""
    return {name: worse for each in measured for name, worse in each.worse.items()}


def save(
    folder: Path | str,
    model: nn.Module,
    calibration: Calibration,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write `expected_error.json` into the folder of a network.

    Args:
        folder: Of the network.
        model: As it was loaded from there.
        calibration: From `calibrate`.
        about: Datasets and splits, for the record.
    """
    return expected_error.write(folder, calibration, {**(about or {}), "weights_sha256": _weights_of(model)})


def coverage_by_family(measured: Sequence[Measured]) -> dict[str, Coverage]:
    """How often the bound holds where the family of a case was left out of the calibration; "all" comes last.

    Before it, where known: the moments whose truth hardly changes with its mesh (`DETERMINED`), and the others, which
    are judged as all are, but not learned from.
    """
    undetermined = {each.sample.name for each in measured if each.determined is False}
    judged = cross_validated([each.sample for each in measured], worse_of(measured), only_judged=undetermined)
    found = coverage(judged)
    if not found or all(each.determined is None for each in measured):
        return found
    total = found.pop("all")
    known = {each.sample.name: each.determined for each in measured}
    parts = {
        title: [pair for pair in judged if known[pair[0].name] is value]
        for title, value in ((DETERMINED, True), (UNDETERMINED, False), (NOT_MEASURED, None))
    }
    return found | {title: _coverage(members) for title, members in parts.items() if members} | {"all": total}


def coverage_of(calibration: Calibration, measured: Sequence[Measured]) -> dict[str, Coverage]:
    """How often the bound holds on cases that are not part of the calibration."""
    judged = [
        (each.sample, {name: calibration.estimate(name, each.clues) for name in calibration.unknowns})
        for each in measured
    ]
    return coverage(judged)


def coverage(judged: Sequence[tuple[Sample, Mapping[str, tuple[float, float]]]]) -> dict[str, Coverage]:
    """By family and of "all", how often the bound held; empty where nothing was judged."""
    if not judged:
        return {}
    families: dict[str, list[tuple[Sample, Mapping[str, tuple[float, float]]]]] = defaultdict(list)
    for sample, estimates in judged:
        families[sample.family].append((sample, estimates))
    return {family: _coverage(members) for family, members in sorted(families.items())} | {"all": _coverage(judged)}


def _coverage(judged: Sequence[tuple[Sample, Mapping[str, tuple[float, float]]]]) -> Coverage:
    unknowns = list(judged[0][1])
    grades = [grade_of(estimates) for _, estimates in judged]
    wrong = [
        sample.name
        for (sample, _), grade in zip(judged, grades, strict=True)
        if grade == GOOD and any(not error <= _WRONG for error in sample.errors.values())
    ]
    return Coverage(
        len(judged),
        {name: float(np.mean([sample.errors[name] <= each[name][1] for sample, each in judged])) for name in unknowns},
        {name: float(np.median([sample.errors[name] for sample, _ in judged])) for name in unknowns},
        {name: float(np.median([each[name][0] for _, each in judged])) for name in unknowns},
        {grade: grades.count(grade) for grade in GRADES if grade in grades},
        len(wrong),
        tuple(wrong),
    )


def grade_of(estimates: Mapping[str, tuple[float, float]]) -> str:
    """The grade of a prediction with these expected errors and bounds."""
    return expected_error.grade_of({name: ExpectedError(*each) for name, each in estimates.items()})


def table(found: Mapping[str, Coverage]) -> list[str]:
    """Coverage by family as a Markdown table."""
    if not found:
        return []
    unknowns = list(next(iter(found.values())).covered)
    titles = ["family", "predictions"]
    for name in unknowns:
        titles += [f"median error of {name}", f"expected error of {name}", f"{name} below its bound"]
    titles += [*GRADES, "good, but above 20 %"]
    rows = [f"| {' | '.join(titles)} |", "| --- |" + " ---: |" * (len(titles) - 1)]
    for family, each in found.items():
        entries = [family, str(each.cases)]
        for name in unknowns:
            entries += [
                f"{100 * each.errors[name]:.1f} %",
                f"{100 * min(each.expected[name], 99.99):.1f} %",
                f"{100 * each.covered[name]:.0f} %",
            ]
        entries += [str(each.grades.get(grade, 0)) for grade in GRADES]
        rows.append(f"| {' | '.join([*entries, str(each.good_but_wrong)])} |")
    return rows


def summary(found: Mapping[str, Coverage]) -> str:
    """Coverage in a sentence."""
    if "all" not in found:
        return "Too few families to see how often the bound holds."
    covered = ", ".join(f"{100 * share:.0f} % for {name}" for name, share in found["all"].covered.items())
    return f"The {100 * LEVEL:.0f} % bound holds for {covered}."


# The cache


def _weights_of(model: nn.Module) -> str:
    config = config_of(model)
    return "" if config is None else config.weights_sha256


def _add(cache: Path, weights: str, resolution: str, name: str, measured: Sequence[Measured]) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    rows = [plain(asdict(each)) | {"time": None if each.time == STEADY else each.time} for each in measured]
    entry = {"version": __version__, "weights": weights, "resolution": resolution, "case": name, "measured": rows}
    with cache.open("ab+") as stream:
        # The line of a process that was killed while it wrote has no end.
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, end - 1))
        torn = stream.read(1) not in (b"", b"\n")
        stream.write(b"\n" * torn + json.dumps(entry).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _cached(cache: Path, weights: str, resolution: str) -> dict[str, list[Measured]]:
    if not cache.exists():
        return {}
    wanted = (__version__, weights, resolution)
    return {
        str(entry["case"]): [_measured(row) for row in entry["measured"]]
        for entry in _entries(cache)
        if (entry.get("version"), entry.get("weights"), entry.get("resolution")) == wanted
    }


def _entries(cache: Path) -> Iterator[dict[str, Any]]:
    for line in read_regular(cache, _LARGEST_CACHE).splitlines():
        try:
            entry = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError):
            continue  # of a process that was killed while it wrote
        if isinstance(entry, dict):
            yield entry


def _measured(row: Mapping[str, Any]) -> Measured:
    def numbers(values: Mapping[str, float | None]) -> dict[str, float]:
        return {name: math.inf if value is None else value for name, value in values.items()}

    return Measured(
        row["case"],
        row["family"],
        STEADY if row["time"] is None else row["time"],
        numbers(row["errors"]),
        numbers(row["clues"]),
        row["worse"],
        row.get("determined"),
    )
