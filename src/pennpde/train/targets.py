"""Which targets of a case a network learns, and which it is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from pennpde.case import Case
from pennpde.case.moments import FOREVER, Moment, moments, number_of_moments, without_steady_state
from pennpde.data.vtkhdf import CaseFile
from pennpde.penn.physics import Physics
from pennpde.penn.predictor import seen_by

_SAME_MOMENT = 0.02
"""Relative difference of two times that count as the same."""


def learned(model: nn.Module, file: CaseFile, *, frames: bool = False) -> list[Case]:
    """The case with the targets that a network learns; one case for each moment where it takes any time.

    Args:
        model: A network that does not say at which times it predicts learns all of them.
        file: The case with its times.
        frames: Whether the targets are a run from its start on, of which such a network learns the end.
    """
    case = file.case
    if getattr(model, "takes_times", False):
        found = moments(case, file.times)
        # To march until nothing changes takes many steps, too many to learn from where there are moments.
        return [each.with_parameter for each in found if not each.is_steady or len(found) == 1]
    times = _own_times(model)
    if (not times and not frames) or (len(times) > 1 and number_of_moments(case) == len(times)):
        return [without_steady_state(case)]
    found = _moments(model, file)
    if not found or (number_of_moments(case) is None and len(found) == 1 and not found[0].is_steady):
        return [case]  # such as a gradient, or one moment: as it is
    return [_nearest(found, times).case]


def judged(model: nn.Module, file: CaseFile, *, frames: bool = False) -> Case | None:
    """The case with the targets that a network of fixed output times predicts; None where it has no such moment."""
    times, found = _own_times(model), _moments(model, file)
    is_fixed = bool(times) and not getattr(model, "takes_times", False)
    if is_fixed and len(found) > 1 and number_of_moments(file.case) != len(times) and _matching(found, times) is None:
        return None
    return learned(model, file, frames=frames)[0]


def known_times(model: nn.Module, files: Sequence[CaseFile]) -> list[float]:
    """All times of the targets, in the network's units."""
    known = (each.time for file in files for each in _moments(model, file))
    return sorted({float(f"{time:.3g}") for time in known if time is not None})


def learned_time(model: nn.Module, file: CaseFile) -> float | None:
    """The time of the single target that a network learns, in the network's units; None where there is none."""
    found = _moments(model, file)
    return _nearest(found, _own_times(model)).time if found else None


def _own_times(model: nn.Module) -> tuple[float, ...]:
    return tuple(getattr(model, "output_times", ()))


def _moments(model: nn.Module, file: CaseFile) -> list[Moment]:
    """The case at each of its moments, with their times in the network's units."""
    found, equation = moments(file.case, file.times), getattr(model, "equation", None)
    units = equation.training_units(file.case) if found and isinstance(equation, Physics) else None
    unit = 1.0 if units is None else units.time
    return [each if each.time is None else replace(each, time=each.time / unit) for each in found]


def _nearest(found: Sequence[Moment], wanted: Sequence[float]) -> Moment:
    """The moment that a network predicts; where there is none, the last, and the steady state only if it is alone."""
    moving = [each for each in found if not each.is_steady]
    return _matching(found, wanted) or (moving or found)[-1]


def _matching(found: Sequence[Moment], wanted: Sequence[float]) -> Moment | None:
    last = wanted[-1] if wanted else None
    for each in found:
        if each.time is None or last is None:
            continue
        if each.time == last or abs(each.time - last) <= _SAME_MOMENT * last < FOREVER:
            return each
    return None


def seen_cases(model: nn.Module, cases: Sequence[Case]) -> list[Case]:
    """The cases as the network sees them, with operators as it wants them."""
    adapted = getattr(model, "adapted", lambda case: case)
    return [adapted(seen_by(model, case).case) for case in cases]
