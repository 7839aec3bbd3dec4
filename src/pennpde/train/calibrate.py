"""Calibrating a network: predict cases with a reference solution, compare, and learn how its error shows.

Measured cases are kept in a file, one line each, so that an interrupted calibration goes on where it was.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from pennpde import __version__, metrics
from pennpde.case import Case
from pennpde.case.moments import STEADY_PREFIX, moments
from pennpde.checkpoints import config_of
from pennpde.data import storage
from pennpde.files import plain, read_regular
from pennpde.penn import STEADY, Predictor
from pennpde.penn.predictor import check_unknowns
from pennpde.prediction import Resolution, predict
from pennpde.trust import expected_error
from pennpde.trust.calibration import LEVEL, Calibration, LeftOut, Sample, cross_validated, fit
from pennpde.trust.evidence import NOT_FINITE
from pennpde.trust.expected_error import GOOD, GRADES, ExpectedError

Judged = tuple[Sample, Mapping[str, tuple[float, float]]]
"""A sample with the expected error and the bound of each unknown."""
_WRONG = 0.2
"""A prediction with a larger error must not be graded good."""
_PARTS = 10
_LARGEST_CACHE = 500_000_000
_NEAR = 0.07
"""Relative distance between a time of the reference and that of a network that predicts only its own."""


@dataclass(frozen=True, eq=False)
class Known:
    """A case whose solution is known at some times.

    Attributes:
        case: What is predicted; its targets are not looked at.
        family: Cases of one family are alike; how well the expected error holds is judged without them.
        reference: By time in the units of the case, the fields by unknown; `STEADY` for a steady state.
    """

    case: Case
    family: str
    reference: Mapping[float, Mapping[str, Tensor]]


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
    """

    case: str
    family: str
    time: float
    errors: Mapping[str, float]
    clues: Mapping[str, float]
    worse: Mapping[str, bool]

    @property
    def sample(self) -> Sample:
        name = f"{self.case} {'steady' if self.time == STEADY else f't={self.time:g}'}"
        return Sample(name, self.family, self.clues, self.errors)


OnCase = Callable[[Known, Sequence[Measured] | Exception], None]


def of_case(case: Case, times: Sequence[float], family: str = "") -> Known:
    """A case with targets at some times, as datasets hold them; the time of a single one may be `STEADY`.

    The family is by default the first part of the name: "step_0012.a" is a "step".
    """
    if unknown := [name for name in case.initial if not {name, STEADY_PREFIX + name} & case.targets.keys()]:
        raise ValueError(
            f"The case {case.name!r} has no reference {unknown[0]}, so the error of {unknown[0]} cannot be measured."
        )
    found = moments(case, times)
    if any(each.time is None for each in found):
        number = sum(not each.is_steady for each in found)
        raise ValueError(f"{case.name!r} has reference fields of {number} times, but {len(times)} times are given.")
    reference = {each.time: each.case.targets for each in found if each.time is not None}
    return Known(case, family or case.name.split("_")[0], reference)


def read_dataset(
    folder: Path, split: str | None = None, every: int = 1, without: Container[str] = ()
) -> Iterator[Known]:
    """The cases of a dataset, one by one; those `without` need not be read, such as those measured before.

    A manifest may say at which times a reference is not mesh-converged (`determined`): nothing is learned from those.
    """
    manifest = storage.read_manifest(folder)
    names = [name for name in manifest.names(split) if name in manifest.cases]
    for name in names[::every]:
        if name in without:
            continue
        file, facts = storage.read_file(folder, name, manifest), manifest.cases[name].facts
        known = of_case(file.case, file.times, str(facts.get("family", "")))
        judged = dict(zip(file.times, facts.get("determined", ()), strict=False))
        judged[STEADY] = facts.get("steady_determined")
        converged = {time: each for time, each in known.reference.items() if judged.get(time) is not False}
        yield replace(known, reference=converged)


# Measuring


def measure(model: nn.Module, known: Known, resolution: Resolution = "auto") -> list[Measured]:
    """Predict a case at the times of its reference solution that the network can predict, and compare."""
    if not isinstance(model, Predictor):
        raise TypeError(f"{type(model).__name__} is no Predictor, so its predictions have no expected error.")
    case = replace(known.case, targets={})
    check_unknowns(model, case)
    wanted = sorted(known.reference)
    if not wanted:
        return []
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
    # A network with times of its own gives several of them; the last is the one that was compared with.
    places = range(len(wanted)) if model.takes_times else [len(outcome.times) - 1]
    for place, time in zip(places, wanted, strict=True):
        errors = {}
        for name, reference in known.reference[time].items():
            zero = 0.0 if units is None else units.scale(name).zero
            values = outcome.fields[name]
            values = values[..., place] if values.ndim > case.initial[name].ndim else values
            predicted, true = (
                metrics.without_level(each.double(), volumes) if name in free else each.double() - zero
                for each in (values, reference)
            )
            errors[name] = float(metrics.relative_l2(predicted, true, volumes))
        clues = {each.name: each.value for each in outcome.evidence[place].clues}
        worse = {each.name: each.worse for each in outcome.evidence[place].clues}
        found.append(Measured(known.case.name, known.family, time, errors, clues, worse))
    return found


def measure_all(
    model: nn.Module,
    cases: Iterable[Known],
    cache: Path | None = None,
    resolution: Resolution = "auto",
    on_case: OnCase | None = None,
) -> list[Measured]:
    """Measure many cases; those in the cache are not predicted again. For the arguments see `calibrate`.

    A case that the network cannot take is left out; it is tried again the next time.
    """
    weights = weights_of(model)
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


def calibrate(
    model: nn.Module,
    cases: Iterable[Known],
    *,
    cache: Path | None = None,
    resolution: Resolution = "auto",
    on_case: OnCase | None = None,
) -> tuple[Calibration, list[Measured]]:
    """Learn from cases with reference solutions how wrong a network is.

    Args:
        model: A trained network.
        cases: That it was not trained on, of several families; `of_case` makes them of cases with targets.
        cache: File that measured cases are added to as they come, to go on after an interruption.
        resolution: As for `predict`.
        on_case: Is called after each case that was predicted.
    """
    measured = usable(measure_all(model, cases, cache, resolution, on_case))
    return fitted(measured), measured


def fitted(measured: Sequence[Measured], left_out: LeftOut = "families") -> Calibration:
    """The calibration by predictions that were measured."""
    return fit([each.sample for each in measured], worse_of(measured), left_out)


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
    folder: Path | str, model: nn.Module, calibration: Calibration, about: Mapping[str, Any] | None = None
) -> Path:
    """Write `expected_error.json`, or that of the level that the network is set to, into the folder it was loaded from.

    `about` names datasets and splits, for the record.
    """
    config = config_of(model)
    arguments = {} if config is None else {"arguments": plain(config.arguments)}
    about = {**(about or {}), "weights_sha256": weights_of(model), **arguments}
    return expected_error.write(folder, calibration, about, getattr(model, "level", ""))


# How often the bound holds


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


def coverage_by_family(measured: Sequence[Measured]) -> dict[str, Coverage]:
    """How often the bound holds where the family of a case was left out of the calibration; "all" comes last."""
    return coverage(cross_validated([each.sample for each in measured], worse_of(measured)))


def coverage(judged: Sequence[Judged]) -> dict[str, Coverage]:
    """By family and of "all", how often the bound held; empty where nothing was judged."""
    families = sorted({sample.family for sample, _ in judged})
    groups = {family: [pair for pair in judged if pair[0].family == family] for family in families}
    return {title: _coverage(members) for title, members in (groups | {"all": judged}).items() if members}


def _coverage(judged: Sequence[Judged]) -> Coverage:
    grades, wrong = [], []
    for sample, estimates in judged:
        grades.append(expected_error.grade_of({name: ExpectedError(*each) for name, each in estimates.items()}))
        if grades[-1] == GOOD and any(not error <= _WRONG for error in sample.errors.values()):
            wrong.append(sample.name)
    columns = {
        name: np.array([(sample.errors[name], *each[name]) for sample, each in judged]).T for name in judged[0][1]
    }
    return Coverage(
        len(judged),
        {name: float(np.mean(errors <= bounds)) for name, (errors, _, bounds) in columns.items()},
        {name: float(np.median(errors)) for name, (errors, _, _) in columns.items()},
        {name: float(np.median(expected)) for name, (_, expected, _) in columns.items()},
        {grade: grades.count(grade) for grade in GRADES if grade in grades},
        good_but_wrong=len(wrong),
        wrong=tuple(wrong),
    )


def table(found: Mapping[str, Coverage]) -> list[str]:
    """Coverage by family as a Markdown table."""
    rows = []
    for family, each in found.items():
        columns = {"family": family, "predictions": str(each.cases)}
        for name in each.covered:
            columns[f"median error of {name}"] = f"{100 * each.errors[name]:.1f} %"
            columns[f"expected error of {name}"] = f"{100 * min(each.expected[name], 99.99):.1f} %"
            columns[f"{name} below its bound"] = f"{100 * each.covered[name]:.0f} %"
        columns |= {grade: str(each.grades.get(grade, 0)) for grade in GRADES}
        columns["good, but above 20 %"] = str(each.good_but_wrong)
        rows = rows or [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * (len(columns) - 1)]
        rows.append(f"| {' | '.join(columns.values())} |")
    return rows


def summary(found: Mapping[str, Coverage]) -> str:
    """Coverage in a sentence."""
    if "all" not in found:
        return "Too few families to see how often the bound holds."
    covered = ", ".join(f"{100 * share:.0f} % for {name}" for name, share in found["all"].covered.items())
    return f"The {100 * LEVEL:.0f} % bound holds for {covered}."


# Measured cases on disk


def weights_of(model: nn.Module) -> str:
    """The hash that predictions which are kept belong to."""
    config = config_of(model)
    return "" if config is None else config.weights_sha256


def _add(cache: Path, weights: str, resolution: str, name: str, measured: Sequence[Measured]) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    about = {"version": __version__, "weights": weights, "resolution": resolution, "case": name}
    with cache.open("ab") as stream:
        # The first end of line is that of a process that was killed while it wrote.
        stream.write(b"\n" + json.dumps(about | {"measured": as_rows(measured)}).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def kept(model: nn.Module, cache: Path | None, resolution: Resolution = "auto") -> dict[str, list[Measured]]:
    """By name, the cases that were measured before with these weights."""
    found: dict[str, list[Measured]] = {}
    if cache is None or not cache.exists():
        return found
    wanted = (__version__, weights_of(model), resolution)
    for line in read_regular(cache, _LARGEST_CACHE).splitlines():
        try:
            entry = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError):
            continue  # empty, or of a process that was killed while it wrote
        if isinstance(entry, dict) and (entry.get("version"), entry.get("weights"), entry.get("resolution")) == wanted:
            found[str(entry["case"])] = [from_row(row) for row in entry["measured"]]
    return found


def as_rows(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """For JSON, which knows no infinity."""
    return [plain(asdict(each)) | {"time": None if each.time == STEADY else each.time} for each in measured]


def from_row(row: Mapping[str, Any]) -> Measured:
    """One of `as_rows`."""
    errors, clues = (
        {name: math.inf if value is None else value for name, value in row[part].items()}
        for part in ("errors", "clues")
    )
    time = STEADY if row["time"] is None else row["time"]
    return Measured(row["case"], row["family"], time, errors, clues, row["worse"])
