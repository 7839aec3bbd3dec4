"""Evaluation of a network for any time: relative errors at every moment of every case, and in the steady state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor

from pennpde import __version__
from pennpde.case import Case
from pennpde.case.moments import FOREVER, moments
from pennpde.metrics import relative_l2
from pennpde.penn import Predictor
from pennpde.penn.predictor import seen_by
from pennpde.train.evaluation import device_name, wait_for, with_threads

KIND = "evaluation at moments"


@dataclass(frozen=True)
class MomentRecord:
    """What a network did on one case.

    Attributes:
        name: Of the case.
        group: What it belongs to, such as a family of shapes.
        points: Of its mesh.
        seconds: For all moments and the steady state together.
        preparation: Seconds for operators and the transfer to the device, once per mesh.
        times: Of the moments, in the units of the case; None where they are not known.
        errors: By unknown, the relative L2 error at each moment.
        steady: By unknown, that of the steady state; empty where the case has none.
    """

    name: str
    group: str
    points: int
    seconds: float
    preparation: float
    times: tuple[float | None, ...]
    errors: Mapping[str, tuple[float, ...]]
    steady: Mapping[str, float]


@dataclass(frozen=True)
class MomentEvaluation:
    """Records of a test set."""

    records: tuple[MomentRecord, ...]
    threads: int
    device: str
    precision: str
    parameters: int
    about: Mapping[str, Any]

    @property
    def unknowns(self) -> list[str]:
        return list(dict.fromkeys(name for record in self.records for name in (*record.errors, *record.steady)))

    @property
    def groups(self) -> list[str]:
        return sorted({record.group for record in self.records} - {""})

    def summary(self, group: str | None = None) -> dict[str, Any]:
        """Mean over cases of the relative errors: at all moments together, at each, and in the steady state."""
        records = [record for record in self.records if group is None or record.group == group]
        longest = max((len(errors) for record in records for errors in record.errors.values()), default=0)
        by_moment = []
        for number in range(longest):
            reached = [r for r in records if any(number < len(errors) for errors in r.errors.values())]
            found = {name: _mean(r.errors[name][number] for r in reached if name in r.errors) for name in self.unknowns}
            by_moment.append({"moment": number + 1, "cases": len(reached), **found})
        steady = [record for record in records if record.steady]
        return {
            "cases": len(records),
            "not_finite": sum(not _is_finite(record) for record in records),
            "moments": {name: _of_cases(records, name) for name in self.unknowns},
            "by_moment": by_moment,
            "steady": {
                "cases": len(steady),
                **{name: _mean(record.steady[name] for record in steady) for name in self.unknowns if steady},
            },
        }

    def to_plain(self) -> dict[str, Any]:
        """The evaluation in JSON's terms."""
        return {
            "kind": KIND,
            "version": __version__,
            **self.about,
            "parameters": self.parameters,
            "cases": len(self.records),
            "device": self.device,
            "threads": self.threads,
            "precision": self.precision,
            "seconds": {
                "mean": mean(record.seconds for record in self.records),
                "preparation": mean(record.preparation for record in self.records),
            },
            "relative_l2": self.summary(),
            "groups": {group: self.summary(group) for group in self.groups},
            "records": [
                {
                    "name": record.name,
                    "group": record.group,
                    "points": record.points,
                    "seconds": record.seconds,
                    "times": list(record.times),
                    **{name: [_or_none(error) for error in errors] for name, errors in record.errors.items()},
                    "steady": {name: _or_none(error) for name, error in record.steady.items()},
                }
                for record in self.records
            ],
        }


def evaluate_moments(
    model: Predictor,
    cases: Sequence[tuple[Case, Sequence[float]]],
    *,
    groups: Mapping[str, str] | None = None,
    threads: int | None = 1,
    about: Mapping[str, Any] | None = None,
    watch: Callable[[Sequence[Any]], Iterable[Any]] | None = None,
    keep: Callable[[Case, Mapping[str, Tensor]], None] | None = None,
) -> MomentEvaluation:
    """Measure a network that takes any times on cases with several moments.

    Args:
        model: With `takes_times`.
        cases: Each with the times of its targets.
        groups: By the name of a case, the group that it belongs to.
        threads: On a CPU; None: PyTorch's default.
        about: Goes into the record as it is.
        watch: Wraps the cases, for a progress bar.
        keep: Called with each case and its fields, whose last axis is that of times, for pictures.
    """
    if not model.takes_times:
        raise ValueError(f"{type(model).__name__} predicts only its own times; use `evaluate`.")
    if not cases:
        raise ValueError("evaluate_moments needs at least one case; got none.")
    model.eval()
    parameter = next(model.parameters())
    records = []
    with with_threads(threads), torch.no_grad():
        for case, times in watch(cases) if watch else cases:
            record, fields = _measure(model, case, times, parameter, (groups or {}).get(case.name, ""))
            records.append(record)
            if keep is not None:
                keep(case, fields)
        used = torch.get_num_threads()
    return MomentEvaluation(
        tuple(records),
        threads=used,
        device=device_name(parameter.device),
        precision=str(parameter.dtype).removeprefix("torch."),
        parameters=sum(each.numel() for each in model.parameters()),
        about=dict(about or {}),
    )


def _measure(
    model: Predictor, case: Case, times: Sequence[float], like: Tensor, group: str
) -> tuple[MomentRecord, dict[str, Tensor]]:
    begin = time.perf_counter()
    seen = seen_by(model, replace(case))  # a copy: the operators of a whole test set would fill the memory
    truth = [each for each in moments(seen.case, times) if each.time is not None]
    if not truth:
        raise ValueError(f"Case {case.name!r} has no targets at known times, and no steady state.")
    own = [FOREVER if each.is_steady else (each.time or 0.0) / seen.time for each in truth]
    prepared = model.adapted(seen.case).to(like.dtype, like.device)
    _ = prepared.operators
    model.prepare(prepared)
    wait_for(like.device)
    preparation = time.perf_counter() - begin
    begin = time.perf_counter()
    try:
        fields = model.solve(prepared, own).fields
    except ArithmeticError:  # a flow that diverged is a record of its own, not the end of an evaluation
        shape = [len(own)] if len(own) > 1 else []
        fields = {name: values.new_full([*values.shape, *shape], math.nan) for name, values in prepared.initial.items()}
    wait_for(like.device)
    seconds = time.perf_counter() - begin
    found = {name: values.detach().double().cpu() for name, values in fields.items()}
    series = {name: values if len(own) > 1 else values[..., None] for name, values in found.items()}
    errors: dict[str, list[float]] = {}
    steady: dict[str, float] = {}
    for place, each in enumerate(truth):
        for name, target in each.case.targets.items():
            error = float(relative_l2(series[name][..., place], target.double()))
            if each.is_steady:
                steady[name] = error
            else:
                errors.setdefault(name, []).append(error)
    record = MomentRecord(
        name=case.name,
        group=group,
        points=case.number_of_points,
        seconds=seconds,
        preparation=preparation,
        times=tuple(each.time for each in truth if not each.is_steady),
        errors={name: tuple(values) for name, values in errors.items()},
        steady=steady,
    )
    return record, seen.physical(series)


def _of_cases(records: Sequence[MomentRecord], name: str) -> dict[str, float | None]:
    means = [_or_infinite(mean(record.errors[name])) for record in records if record.errors.get(name)]
    if not means:
        return {"mean": None, "median": None, "worst": None}
    return {"mean": _mean(means), "median": _or_none(median(means)), "worst": _or_none(max(means))}


def _or_infinite(error: float) -> float:
    """What is not a number is the largest error."""
    return math.inf if math.isnan(error) else error


def _or_none(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _mean(errors: Iterable[float]) -> float | None:
    """Of the finite ones; how many are not is said apart."""
    finite = [error for error in errors if math.isfinite(error)]
    return mean(finite) if finite else None


def _is_finite(record: MomentRecord) -> bool:
    return all(math.isfinite(e) for errors in (*record.errors.values(), record.steady.values()) for e in errors)
