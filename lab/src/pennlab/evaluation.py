"""Evaluation of a network on a test set: one timed record per case, and errors over all of them.

`evaluate` takes any function from a case to fields. Its errors are those of the paper's tables (`metrics`): in the
units of the data, pooled over all points of all cases, vectors over three components, with the standard error of the
mean. `evaluate_moments` takes a network for any time: relative errors at every moment of every case and in its steady
state.

Relative errors do not depend on units: they are taken in the network's units, with the pressure of the outlet as zero.
Time is that of the forward call only, as in the paper; what has to be done once per mesh, assembling operators and a
network's own `prepare(case)`, is listed separately.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor, nn

from pennlab.errors import Estimate, dirichlet_squared_error, domain_errors
from pennlab.motions import moved
from pennpde import __version__
from pennpde.case import Case
from pennpde.case.moments import FOREVER, moments
from pennpde.machine import device_name, wait_for, with_threads
from pennpde.metrics import neumann_squared_error, relative_l2
from pennpde.operators import Operators
from pennpde.penn import Predictor
from pennpde.penn.predictor import Seen, seen_by

Model = Callable[[Case], Mapping[str, Tensor]]
Watch = Callable[[Sequence[Any]], Iterable[Any]]
"""Wraps cases, for a progress bar."""
Keep = Callable[[Case, Mapping[str, Tensor]], None]
"""Is called with each case and its fields, for pictures."""

KIND, KIND_OF_MOMENTS = "evaluation", "evaluation at moments"


@dataclass(frozen=True)
class Setting:
    """What was measured, and on what."""

    threads: int
    device: str
    precision: str
    parameters: int
    about: Mapping[str, Any]
    """What the caller knows: model, dataset, split ..."""

    @classmethod
    def of(cls, model: Model, dtype: torch.dtype, device: torch.device, about: Mapping[str, Any] | None) -> Setting:
        parameters = sum(each.numel() for each in model.parameters()) if isinstance(model, nn.Module) else 0
        precision = str(dtype).removeprefix("torch.")
        return cls(torch.get_num_threads(), device_name(device), precision, parameters, dict(about or {}))

    def to_plain(self) -> dict[str, Any]:
        known = {name: value for name, value in vars(self).items() if name != "about"}
        return {"version": __version__, **self.about, **known}


@dataclass(frozen=True)
class CaseRecord:
    """What a model did on one case."""

    name: str
    points: int
    seconds: float
    """Of one forward call."""
    preparation: float
    """Seconds for operators, graphs and the transfer to the device, once per mesh."""
    domain: Mapping[str, Estimate]
    """By target, the squared error over the points."""
    dirichlet: Mapping[str, Estimate]
    """By unknown, the squared error at prescribed values."""
    neumann: Mapping[str, Estimate]
    """By unknown, the squared error of the normal derivative where it is prescribed."""
    relative: Mapping[str, float]
    """By target, the relative L2 error."""

    @property
    def type(self) -> str:
        """The template of a duct: "b" of "b_0.10_0.70"; empty where a name does not begin so."""
        found = re.match(r"([a-z])_\d", self.name)
        return found[1] if found else ""


@dataclass(frozen=True)
class Evaluation:
    """Records of a test set."""

    records: tuple[CaseRecord, ...]
    setting: Setting
    transformed: bool

    def pooled(self, type: str | None = None) -> dict[str, dict[str, Any]]:  # noqa: A002
        """Errors over all points of all cases, or of those of a type."""
        records = [record for record in self.records if type is None or record.type == type]
        found: dict[str, dict[str, Any]] = {}
        for what in ("domain", "dirichlet", "neumann"):
            by_case: list[Mapping[str, Estimate]] = [getattr(record, what) for record in records]
            found[what] = {}
            for name in dict.fromkeys(name for each in by_case for name in each):
                pooled = Estimate.pooled(each[name] for each in by_case if name in each)
                found[what][name] = {
                    "mse": pooled.mean,
                    "standard_error": pooled.standard_error,
                    "count": pooled.count,
                }
        found["relative_l2"] = {
            name: sum(record.relative[name] for record in records) / len(records) for name in records[0].relative
        }
        return found

    @property
    def types(self) -> list[str]:
        return sorted({record.type for record in self.records} - {""})

    def to_plain(self) -> dict[str, Any]:
        """The evaluation in JSON's terms: what `penn report` reads."""
        seconds = Estimate.of(torch.tensor([record.seconds for record in self.records]))
        return {
            "kind": KIND,
            **self.setting.to_plain(),
            "transformed": self.transformed,
            "cases": len(self.records),
            "seconds": {
                "mean": seconds.mean,
                "standard_error": seconds.standard_error,
                "preparation": sum(record.preparation for record in self.records) / len(self.records),
            },
            "pooled": self.pooled(),
            "types": {each: self.pooled(each) for each in self.types},
            "records": [
                {
                    "name": record.name,
                    "points": record.points,
                    "seconds": record.seconds,
                    **{name: estimate.mean for name, estimate in record.domain.items()},
                }
                for record in self.records
            ],
        }


def evaluate(
    model: Model,
    cases: Sequence[Case],
    *,
    transformed: bool = False,
    threads: int | None = 1,
    repeats: int = 1,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    keep: Keep | None = None,
) -> Evaluation:
    """Measure an `nn.Module`, or any function from a case to fields, on cases with targets.

    Args:
        model: The network or function.
        cases: The test set.
        transformed: Move every case by a rigid motion of its own first: rotation or reflection, and translation.
        threads: On a CPU; None: PyTorch's default. The paper uses one.
        repeats: Forward calls a case; the fastest counts.
        dtype: Precision of a network; None: its own.
        device: Of a network; None: where it is.
        about: Goes into the record as it is.
        watch: See `Watch`.
        keep: See `Keep`.
    """
    if not cases:
        raise ValueError("evaluate needs at least one case; got none.")
    if lacking := [case.name for case in cases if not case.targets]:
        raise ValueError(f"{len(lacking)} cases have no targets to compare with, the first is {lacking[0]!r}.")
    wanted, place = dtype or torch.float64, torch.device(device or "cpu")
    if isinstance(model, nn.Module):
        model.to(device=device, dtype=dtype).eval()
        wanted, place = next(((each.dtype, each.device) for each in model.parameters()), (wanted, place))
    if transformed:
        cases = moved(cases)
    records = []
    with with_threads(threads), torch.no_grad():
        # The first call pays for memory and kernels, which none of the test cases should be charged with.
        model(seen_by(model, replace(cases[0])).case.to(wanted, place))
        wait_for(place)
        for case in watch(cases) if watch else cases:
            record, fields = _measured(model, case, wanted, place, repeats)
            records.append(record)
            if keep is not None:
                keep(case, fields)
        setting = Setting.of(model, wanted, place, about)
    return Evaluation(tuple(records), setting, transformed)


def _measured(
    model: Model, case: Case, dtype: torch.dtype, device: torch.device, repeats: int
) -> tuple[CaseRecord, dict[str, Tensor]]:
    seen, prepared, preparation = _prepared(model, case, dtype, device)
    seconds, fields = [], {}
    for _ in range(repeats):
        begin = time.perf_counter()
        fields = model(prepared)
        wait_for(device)
        seconds.append(time.perf_counter() - begin)
    found = _in_double(fields)
    compared = seen.case
    judged = compared.over(getattr(model, "output_times", ()))
    record = CaseRecord(
        name=case.name,
        points=case.number_of_points,
        seconds=min(seconds),
        preparation=preparation,
        domain=_in_units(seen, domain_errors(found, compared)),
        dirichlet=_in_units(seen, _dirichlet_errors(found, judged, dtype)),
        neumann=_in_units(seen, _neumann_errors(found, judged), seen.length),
        relative={name: float(relative_l2(found[name], target.double())) for name, target in compared.targets.items()},
    )
    return record, seen.physical(found)


def _prepared(model: Model, case: Case, dtype: torch.dtype, device: torch.device) -> tuple[Seen, Case, float]:
    """The case as the network sees it, the same with operators on its device, and how many seconds that took."""
    begin = time.perf_counter()
    seen = seen_by(model, replace(case))  # a copy: the operators of a whole test set would fill the memory
    adapted = getattr(model, "adapted", lambda case: case)
    prepared = adapted(seen.case).to(dtype, device)
    _ = prepared.operators
    if prepare := getattr(model, "prepare", None):
        prepare(prepared)  # graphs of its own
    wait_for(device)
    return seen, prepared, time.perf_counter() - begin


def _in_double(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Compared in double precision on the CPU: float32 cannot tell 1e-4 from a standard error below it."""
    return {name: values.detach().double().cpu() for name, values in fields.items()}


def _in_units(seen: Seen, errors: Mapping[str, Estimate], length: float = 1.0) -> Mapping[str, Estimate]:
    """Squared errors in the units of the data; of derivatives, with the length that counts as one."""
    if seen.units is None:
        return errors
    return {name: estimate.times((seen.scale(name) / length) ** 2) for name, estimate in errors.items()}


def _dirichlet_errors(fields: Mapping[str, Tensor], case: Case, dtype: torch.dtype) -> dict[str, Estimate]:
    found = {}
    for name, condition in case.dirichlet.items():
        if name in fields and bool(condition.mask.any()):
            # What the model can know: 0.1 in float32 is not 0.1 in float64.
            known = replace(condition, values=condition.values.to(dtype).double())
            found[name] = Estimate.of(dirichlet_squared_error(fields[name], known))
    return found


def _neumann_errors(fields: Mapping[str, Tensor], case: Case) -> dict[str, Estimate]:
    """The error of normal derivatives, from operators that know no condition, or from a predicted gradient itself."""
    found = {}
    plain: Operators | None = None
    for name, condition in case.neumann.items():
        if not bool(condition.mask.any()):
            continue
        if name in fields:
            plain = plain or Operators.on(case.mesh, singular="pseudoinverse", dtype=torch.float64)
            slope = plain.grad(fields[name])
        elif "grad" in fields and len(case.initial) == 1:
            slope = fields["grad"]
        else:
            continue
        found[name] = Estimate.of(neumann_squared_error(slope, condition))
    return found


# At every moment


@dataclass(frozen=True)
class MomentRecord:
    """What a network for any time did on one case."""

    name: str
    group: str
    points: int
    seconds: float
    """For all moments and the steady state together."""
    preparation: float
    times: tuple[float | None, ...]
    """In the units of the case; None where they are not known."""
    errors: Mapping[str, tuple[float, ...]]
    """By unknown, the relative L2 error at each moment."""
    steady: Mapping[str, float]
    """By unknown, that of the steady state; empty where the case has none."""

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "group": self.group,
            "points": self.points,
            "seconds": self.seconds,
            "times": list(self.times),
            **{name: [_or_none(error) for error in errors] for name, errors in self.errors.items()},
            "steady": {name: _or_none(error) for name, error in self.steady.items()},
        }


@dataclass(frozen=True)
class MomentEvaluation:
    """Records of a test set."""

    records: tuple[MomentRecord, ...]
    setting: Setting

    def summary(self, group: str | None = None) -> dict[str, Any]:
        """Mean over cases of the relative errors: at all moments together, at each, and in the steady state."""
        records = [record for record in self.records if group is None or record.group == group]
        unknowns = list(dict.fromkeys(name for record in self.records for name in (*record.errors, *record.steady)))
        longest = max((len(errors) for record in records for errors in record.errors.values()), default=0)
        by_moment = []
        for number in range(longest):
            reached = [r for r in records if any(number < len(errors) for errors in r.errors.values())]
            found = {name: _mean(r.errors[name][number] for r in reached if name in r.errors) for name in unknowns}
            by_moment.append({"moment": number + 1, "cases": len(reached), **found})
        steady = [record.steady for record in records if record.steady]
        every = [[e for errors in (*r.errors.values(), r.steady.values()) for e in errors] for r in records]
        return {
            "cases": len(records),
            "not_finite": sum(not all(map(math.isfinite, errors)) for errors in every),
            "moments": {name: _of_cases(records, name) for name in unknowns},
            "by_moment": by_moment,
            "steady": {
                "cases": len(steady),
                **{name: _mean(errors[name] for errors in steady) for name in unknowns if steady},
            },
        }

    def to_plain(self) -> dict[str, Any]:
        """The evaluation in JSON's terms."""
        groups = sorted({record.group for record in self.records} - {""})
        return {
            "kind": KIND_OF_MOMENTS,
            **self.setting.to_plain(),
            "cases": len(self.records),
            "seconds": {
                "mean": mean(record.seconds for record in self.records),
                "preparation": mean(record.preparation for record in self.records),
            },
            "relative_l2": self.summary(),
            "groups": {group: self.summary(group) for group in groups},
            "records": [record.to_plain() for record in self.records],
        }


def evaluate_moments(
    model: Predictor,
    cases: Sequence[tuple[Case, Sequence[float]]],
    *,
    groups: Mapping[str, str] | None = None,
    threads: int | None = 1,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    keep: Keep | None = None,
) -> MomentEvaluation:
    """Measure a network that takes any times on cases with several moments, each given with the times of its targets.

    `groups` says by the name of a case what it belongs to, such as a family of shapes. The last axis of the fields that
    are kept is that of times. For the other arguments see `evaluate`.
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
            record, fields = _measured_at_moments(model, case, times, parameter, (groups or {}).get(case.name, ""))
            records.append(record)
            if keep is not None:
                keep(case, fields)
        setting = Setting.of(model, parameter.dtype, parameter.device, about)
    return MomentEvaluation(tuple(records), setting)


def _measured_at_moments(
    model: Predictor, case: Case, times: Sequence[float], like: Tensor, group: str
) -> tuple[MomentRecord, dict[str, Tensor]]:
    seen, prepared, preparation = _prepared(model, case, like.dtype, like.device)
    truth = [each for each in moments(seen.case, times) if each.time is not None]
    if not truth:
        raise ValueError(f"Case {case.name!r} has no targets at known times, and no steady state.")
    own = [FOREVER if each.is_steady else (each.time or 0.0) / seen.time for each in truth]
    begin = time.perf_counter()
    try:
        fields = model.solve(prepared, own).fields
    except ArithmeticError:  # a flow that diverged is a record of its own, not the end of an evaluation
        shape = [len(own)] if len(own) > 1 else []
        fields = {name: values.new_full([*values.shape, *shape], math.nan) for name, values in prepared.initial.items()}
    wait_for(like.device)
    seconds = time.perf_counter() - begin
    series = {name: values if len(own) > 1 else values[..., None] for name, values in _in_double(fields).items()}
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
    means = [worst_if_nan(mean(record.errors[name])) for record in records if record.errors.get(name)]
    if not means:
        return {"mean": None, "median": None, "worst": None}
    return {"mean": _mean(means), "median": _or_none(median(means)), "worst": _or_none(max(means))}


def worst_if_nan(error: float) -> float:
    """What is not a number is the largest error."""
    return math.inf if math.isnan(error) else error


def _or_none(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _mean(errors: Iterable[float]) -> float | None:
    """Of the finite ones; how many are not is said apart."""
    finite = [error for error in errors if math.isfinite(error)]
    return mean(finite) if finite else None
