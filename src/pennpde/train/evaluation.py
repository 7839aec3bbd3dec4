"""Evaluation of a network on a test set: one timed record per case, and pooled errors.

Errors are those of the paper's tables (`metrics`): in the units of the data, pooled over all points of all cases,
vectors over three components, with the standard error of the mean. Relative errors do not depend on units: they are
taken in the network's units, with the pressure of the outlet as zero. Time is that of the forward call only, as in the
paper; what has to be done once per mesh, assembling operators and a network's own `prepare(case)`, is listed
separately.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from pennpde import __version__
from pennpde.case import Case
from pennpde.metrics import Estimate, dirichlet_squared_error, domain_errors, neumann_squared_error, relative_l2
from pennpde.operators import Operators
from pennpde.penn.predictor import Seen, seen_by

Model = Callable[[Case], Mapping[str, Tensor]]

KIND = "evaluation"


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
    threads: int
    device: str
    precision: str
    transformed: bool
    parameters: int
    about: Mapping[str, Any]
    """What the caller knows: model, dataset, split ..."""

    def pooled(self, type: str | None = None) -> dict[str, dict[str, Any]]:  # noqa: A002
        """Errors over all points of all cases, or of those of a type."""
        records = [record for record in self.records if type is None or record.type == type]
        found: dict[str, dict[str, Any]] = {}
        for what in ("domain", "dirichlet", "neumann"):
            names = dict.fromkeys(name for record in records for name in getattr(record, what))
            found[what] = {
                name: _plain(
                    Estimate.pooled(getattr(each, what)[name] for each in records if name in getattr(each, what))
                )
                for name in names
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
            "version": __version__,
            **self.about,
            "transformed": self.transformed,
            "parameters": self.parameters,
            "cases": len(self.records),
            "device": self.device,
            "threads": self.threads,
            "precision": self.precision,
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
    seed: int = 0,
    threads: int | None = 1,
    repeats: int = 1,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Callable[[Sequence[Case]], Any] | None = None,
    keep: Callable[[Case, Mapping[str, Tensor]], None] | None = None,
) -> Evaluation:
    """Measure a model on cases with targets.

    Args:
        model: An `nn.Module`, or any function from a case to fields.
        cases: The test set.
        transformed: Move every case by a rigid motion of its own first: rotation or reflection, and translation.
        seed: Of the motions.
        threads: On a CPU; None: PyTorch's default. The paper uses one.
        repeats: Forward calls a case; the fastest counts.
        dtype: Precision of a network; None: its own.
        device: Of a network; None: where it is.
        about: Goes into the record as it is.
        watch: Wraps the cases, for a progress bar.
        keep: Called with each case and its fields, for pictures.
    """
    if not cases:
        raise ValueError("evaluate needs at least one case; got none.")
    if lacking := [case.name for case in cases if not case.targets]:
        raise ValueError(f"{len(lacking)} cases have no targets to compare with, the first is {lacking[0]!r}.")
    if isinstance(model, nn.Module):
        model.to(device=device, dtype=dtype).eval()
        first = next(model.parameters(), None)
        wanted, place = (first.dtype, first.device) if first is not None else (torch.float64, torch.device("cpu"))
    else:
        wanted, place = dtype or torch.float64, torch.device(device or "cpu")
    if transformed:
        from pennpde.testing import moved

        cases = moved(cases, seed=seed)
    records = []
    with with_threads(threads), torch.no_grad():
        _warm_up(model, seen_by(model, replace(cases[0])).case.to(wanted, place))
        for case in watch(cases) if watch else cases:
            record, fields = _measure(model, cast(Case, case), wanted, place, repeats)
            records.append(record)
            if keep is not None:
                keep(case, fields)
        used = torch.get_num_threads()
    parameters = sum(each.numel() for each in model.parameters()) if isinstance(model, nn.Module) else 0
    return Evaluation(
        tuple(records),
        threads=used,
        device=device_name(place),
        precision=str(wanted).removeprefix("torch."),
        transformed=transformed,
        parameters=parameters,
        about=dict(about or {}),
    )


def _measure(
    model: Model, case: Case, dtype: torch.dtype, device: torch.device, repeats: int
) -> tuple[CaseRecord, dict[str, Tensor]]:
    begin = time.perf_counter()
    seen = seen_by(model, replace(case))  # a copy: the operators of a whole test set would fill the memory
    prepared = seen.case
    if adapted := getattr(model, "adapted", None):
        prepared = adapted(prepared)
    prepared = prepared.to(dtype, device)
    _ = prepared.operators
    if prepare := getattr(model, "prepare", None):
        prepare(prepared)  # graphs of its own
    wait_for(device)
    preparation = time.perf_counter() - begin
    seconds, fields = [], {}
    for _ in range(repeats):
        begin = time.perf_counter()
        fields = model(prepared)
        wait_for(device)
        seconds.append(time.perf_counter() - begin)
    # Compared in double precision on the CPU: float32 cannot tell 1e-4 from a standard error below it.
    found = {name: values.detach().double().cpu() for name, values in fields.items()}
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


def _warm_up(model: Model, case: Case) -> None:
    """The first call pays for memory and kernels, which none of the test cases should be charged with."""
    model(case)
    wait_for(case.device)


def wait_for(device: torch.device) -> None:
    """Until a GPU has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """The name of a GPU or processor, for records."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _plain(estimate: Estimate) -> dict[str, Any]:
    return {"mse": estimate.mean, "standard_error": estimate.standard_error, "count": estimate.count}


@contextmanager
def with_threads(number: int | None) -> Iterator[None]:
    """PyTorch with this many threads, and as before afterwards; None: its default."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
