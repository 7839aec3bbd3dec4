"""Cases whose truth is known at several moments, and in the steady state.

The target of an unknown has a trailing axis of moments; when they are is known besides (`CaseFile.times`). The steady
state of an unknown `u` is a target of its own, `steady_u`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pennpde.case.case import Case

STEADY_PREFIX = "steady_"
TIME = "time"
"""The parameter of a case that says when its targets hold."""


@dataclass(frozen=True, eq=False)
class Moment:
    """A case with its truth at one moment.

    Attributes:
        case: Its targets are those of the unknowns at this moment.
        time: After the start, in the units of the case; infinity for the steady state, None where it is not known.
        number: Among the moments of the case, from 0; None for the steady state.
    """

    case: Case
    time: float | None
    number: int | None

    @property
    def is_steady(self) -> bool:
        return self.time == float("inf")


def unknown_of(target: str, unknowns: Iterable[str]) -> str | None:
    """The unknown that a target is the truth of, or its steady state; None for another quantity."""
    names = set(unknowns)
    if target in names:
        return target
    unknown = target.removeprefix(STEADY_PREFIX)
    return unknown if unknown != target and unknown in names else None


def number_of_moments(case: Case) -> int | None:
    """The length of the trailing axis of the targets; None where they have none."""
    for name, values in case.targets.items():
        if name in case.initial and values.ndim > case.initial[name].ndim:
            return values.shape[-1]
    return None


def has_steady_state(case: Case) -> bool:
    return any(STEADY_PREFIX + name in case.targets for name in case.initial)


def at_moment(case: Case, number: int, time: float | None = None) -> Case:
    """The case at one of its moments; `time`, where it is given, becomes its parameter of that name."""
    targets = {
        name: values[..., number] if values.ndim > case.initial[name].ndim else values
        for name, values in case.targets.items()
        if name in case.initial
    }
    parameters = case.parameters if time is None else {**case.parameters, TIME: _as_parameter(time)}
    return replace(case, targets=targets, parameters=parameters)


def steady_state(case: Case) -> Case | None:
    """The case with its steady state as target; None where it has none."""
    if not has_steady_state(case):
        return None
    steady = {name: case.targets.get(STEADY_PREFIX + name) for name in case.initial}
    return replace(case, targets={name: values for name, values in steady.items() if values is not None})


def moments(case: Case, times: Sequence[float] = ()) -> list[Moment]:
    """The case at each of its moments, and last in its steady state.

    Args:
        case: With targets.
        times: When the moments are; empty where that is not known.
    """
    count = number_of_moments(case)
    known: Sequence[float | None] = times if len(times) == (count or 1) else [None] * (count or 1)
    found = []
    if any(name in case.initial for name in case.targets):
        found = [Moment(at_moment(case, number), known[number], number) for number in range(count or 1)]
    steady = steady_state(case)
    return found if steady is None else [*found, Moment(steady, float("inf"), None)]


def without_steady_state(targets: Mapping[str, Tensor], unknowns: Iterable[str]) -> dict[str, Tensor]:
    """The targets but for steady states."""
    names = set(unknowns)
    return {name: values for name, values in targets.items() if name in names or unknown_of(name, names) is None}


def _as_parameter(time: float) -> Tensor:
    return torch.tensor(time, dtype=torch.float64)
