"""Cases whose reference solution is known at several times, and in the steady state.

The target of an unknown has a trailing axis of moments; when they are is known besides (`CaseFile.times`). The steady
state of an unknown `u` is a target of its own, `steady_u`. A case at one moment has its time as the parameter `time`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pennpde.case.case import Case

STEADY_PREFIX = "steady_"
TIME = "time"
FOREVER = float("inf")
"""The time of a steady state."""


@dataclass(frozen=True, eq=False)
class Moment:
    """A case with its reference solution at one time.

    Attributes:
        case: Its targets are those of its unknowns then.
        time: After the start, in the units of the case; `FOREVER` for the steady state, None where it is not known.
    """

    case: Case
    time: float | None

    @property
    def is_steady(self) -> bool:
        return self.time == FOREVER

    @property
    def with_parameter(self) -> Case:
        """The case with its time as a parameter."""
        if self.time is None:
            return self.case
        return replace(self.case, parameters={**self.case.parameters, TIME: as_parameter(self.time)})


def unknown_of(target: str, unknowns: Iterable[str]) -> str | None:
    """The unknown that a target is the reference solution of, or its steady state; None for another quantity."""
    names = set(unknowns)
    if target in names:
        return target
    unknown = target.removeprefix(STEADY_PREFIX)
    return unknown if unknown != target and unknown in names else None


def number_of_moments(case: Case) -> int | None:
    """How many moments the unknowns' targets have, None where they have no axis of them."""
    for name, values in case.targets.items():
        if name in case.initial and values.ndim > case.initial[name].ndim:
            return values.shape[-1]
    return None


def at_moment(case: Case, number: int) -> Case:
    """The case with the targets of its unknowns at one of its moments."""
    targets = {
        name: values[..., number] if values.ndim > case.initial[name].ndim else values
        for name, values in case.targets.items()
        if name in case.initial
    }
    return replace(case, targets=targets)


def steady_state(case: Case) -> Case | None:
    """The case with its steady state as target; None where it has none."""
    known = {name: case.targets[STEADY_PREFIX + name] for name in case.initial if STEADY_PREFIX + name in case.targets}
    if not known:
        return None
    parameters = {name: value for name, value in case.parameters.items() if name != TIME}
    return replace(case, targets=known, parameters=parameters)


def without_steady_state(case: Case) -> Case:
    """The case with the targets of its unknowns at its moments, and other quantities."""
    kept = {
        name: values
        for name, values in case.targets.items()
        if name in case.initial or unknown_of(name, case.initial) is None
    }
    return case if len(kept) == len(case.targets) else replace(case, targets=kept)


def moments(case: Case, times: Sequence[float] = ()) -> list[Moment]:
    """The case at each of its moments, and last in its steady state.

    Args:
        case: With targets.
        times: When the moments are; empty where that is not known.
    """
    found = []
    if any(name in case.initial for name in case.targets):
        count = number_of_moments(case) or 1
        known: Sequence[float | None] = times if len(times) == count else [None] * count
        found = [Moment(at_moment(case, number), known[number]) for number in range(count)]
    steady = steady_state(case)
    return found if steady is None else [*found, Moment(steady, FOREVER)]


def as_parameter(time: float) -> Tensor:
    return torch.tensor(time, dtype=torch.float64)
