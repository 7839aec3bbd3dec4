"""The times of a case's targets: at one moment, at several, or in the steady state.

A file holds the targets of the unknowns at one moment without an axis of times, at several with one, behind all others.
Moments count from the start of the run; `CaseFile.times` has them, and a case at one moment has its own as the
parameter `time`. The steady state of an unknown u is the target `steady_u`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.datasets.vtkhdf import CaseFile

STEADY = "steady_"
"""Before the name of an unknown: its target in the steady state."""


def moments(file: CaseFile) -> tuple[float, ...]:
    """The moments at which the unknowns of a case have targets; none where only the steady state is known."""
    return file.times if any(name in file.case.initial for name in file.case.targets) else ()


def at_moment(file: CaseFile, number: int) -> Case:
    """The case at one of its moments: the unknowns' targets then, and the parameter `time`."""
    targets = {name: each[number] for name, each in _by_moment(file).items()}
    return replace(file.case, targets=targets, parameters=_with_time(file.case, file.times[number]))


def between_moments(file: CaseFile, first: int, second: int) -> Case:
    """The step from one moment to a later one: it starts from the truth, and its time is the difference."""
    case = at_moment(file, second)
    initial = {**case.initial, **{name: each[first] for name, each in _by_moment(file).items()}}
    return replace(case, initial=initial, parameters=_with_time(case, file.times[second] - file.times[first]))


def steady_state(file: CaseFile) -> Case | None:
    """The case with its steady state as target; None where it has none."""
    return steady_case(file.case)


def steady_case(case: Case) -> Case | None:
    """The same of a case."""
    known = {name: case.targets[STEADY + name] for name in case.initial if STEADY + name in case.targets}
    if not known:
        return None
    parameters = {name: value for name, value in case.parameters.items() if name != "time"}
    return replace(case, targets=known, parameters=parameters)


def _by_moment(file: CaseFile) -> dict[str, list[Tensor]]:
    case = file.case
    found = {}
    for name, values in case.targets.items():
        if name in case.initial:
            with_times = values.ndim > case.initial[name].ndim
            found[name] = list(values.unbind(dim=-1)) if with_times else [values]
    return found


def _with_time(case: Case, time: float) -> dict[str, Tensor]:
    return {**case.parameters, "time": torch.tensor(time, dtype=torch.float64)}
