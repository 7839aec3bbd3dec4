"""The times of a case's targets: at one moment, at several, or in the steady state.

A file holds the targets of the unknowns at one moment without an axis of times, at several with one, behind all others.
Moments count from the start of the run; `CaseFile.times` has them, and a case at one moment has its own as the
parameter `time`. The steady state of an unknown u is the target `steady_u`. `case.moments` has the same of a case.
"""

from __future__ import annotations

from dataclasses import replace

from pennpde.case import Case
from pennpde.case import moments as of_cases
from pennpde.case.moments import STEADY_PREFIX as STEADY
from pennpde.case.moments import TIME, as_parameter
from pennpde.case.moments import steady_state as steady_case
from pennpde.data.vtkhdf import CaseFile

__all__ = ["STEADY", "at_moment", "between_moments", "moments", "steady_case", "steady_state"]


def moments(file: CaseFile) -> tuple[float, ...]:
    """The moments at which the unknowns of a case have targets; none where only the steady state is known."""
    return file.times if any(name in file.case.initial for name in file.case.targets) else ()


def at_moment(file: CaseFile, number: int) -> Case:
    """The case at one of its moments: the unknowns' targets then, and the parameter `time`."""
    case = of_cases.at_moment(file.case, number)
    return replace(case, parameters={**case.parameters, TIME: as_parameter(file.times[number])})


def between_moments(file: CaseFile, first: int, second: int) -> Case:
    """The step from one moment to a later one: it starts from the truth, and its time is the difference."""
    case, start = at_moment(file, second), of_cases.at_moment(file.case, first).targets
    passed = as_parameter(file.times[second] - file.times[first])
    return replace(case, initial={**case.initial, **start}, parameters={**case.parameters, TIME: passed})


def steady_state(file: CaseFile) -> Case | None:
    """The case with its steady state as target; None where it has none."""
    return steady_case(file.case)
