"""Which times of a run become targets: the option `--time`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pennpde.data.content import Targets

_CLOSE = 1e-6
_MOST = 10_000


class RunError(ValueError):
    """A run that cannot be collected, and why."""


@dataclass(frozen=True)
class Times:
    """Times of a run's own clock.

    Attributes:
        kind: the last time, the last time as the steady state, one time, or several.
        listed: the times, where they were given.
        text: as the user gave it.
    """

    kind: Literal["latest", "steady", "one", "several"]
    listed: tuple[float, ...]
    text: str

    @staticmethod
    def parse(text: str) -> Times:
        """`latest`, `steady`, a time such as `4`, times such as `1,2,4`, or first, last and step as `0:4:0.5`."""
        if text == "latest":
            return Times("latest", (), text)
        if text == "steady":
            return Times("steady", (), text)
        try:
            if ":" in text:
                return Times("several", _stepped([float(part) for part in text.split(":")]), text)
            listed = tuple(float(part) for part in text.split(","))
        except ValueError as error:
            reason = f" ({error})" if "step" in str(error) else ""
            raise ValueError(
                f"The time is {text!r}{reason}; give latest, steady, a time such as 4, times such as 1,2,4, or "
                "first:last:step such as 0:4:0.5."
            ) from None
        if not all(math.isfinite(time) for time in listed) or list(listed) != sorted(set(listed)):
            raise ValueError(f"The times are {text!r}; they must be finite and grow.")
        return Times("several" if len(listed) > 1 else "one", listed, text)

    @property
    def needs_the_end(self) -> bool:
        """Whether the run must have come to its end."""
        return self.kind in ("latest", "steady")

    @property
    def targets(self) -> Targets:
        if self.kind == "steady":
            return "steady"
        return "several times" if self.kind == "several" else "one time"

    def chosen(self, known: Sequence[float], start: float) -> tuple[float, ...]:
        """Those of the known times, grown, that are wanted; those up to the start are no targets."""
        later = [time for time in known if time > start + _CLOSE * max(abs(time), abs(start), 1e-9)]
        if not later:
            raise RunError(
                f"it has no time after its start at {start:g}; it was not run, or wrote nothing"
                if known
                else "it has no times; it was not run, or wrote nothing"
            )
        if self.needs_the_end:
            return (later[-1],)
        found = []
        for wanted in self.listed:
            if wanted <= start + _CLOSE * max(abs(wanted), abs(start), 1e-9):
                if self.kind == "several":
                    continue  # 0:4:0.5 begins with the start, which is given and not predicted
                raise RunError(f"time {wanted:g} is not after its start at {start:g}")
            nearest = min(later, key=lambda time, wanted=wanted: abs(time - wanted))
            if abs(nearest - wanted) > _CLOSE * max(abs(wanted), 1e-9):
                raise RunError(f"it has no time {wanted:g}; its times are {_shown(known)}")
            found.append(nearest)
        return tuple(found)


def _stepped(given: Sequence[float]) -> tuple[float, ...]:
    if len(given) != 3:
        raise ValueError("it needs three numbers: first, last and step")
    first, last, step = given
    if not (math.isfinite(first) and math.isfinite(last) and step > 0 and last >= first):
        raise ValueError("the step must be positive, and the last time not before the first")
    number = (last - first) / step * (1 + 1e-9) + 1e-9 + 1
    if number > _MOST:
        raise ValueError(f"at this step there are {number:.6g} times")
    return tuple(first + place * step for place in range(math.floor(number)))


def _shown(times: Sequence[float]) -> str:
    words = [f"{time:g}" for time in times]
    return ", ".join(words if len(words) <= 8 else [*words[:4], "...", *words[-3:]]) or "none"
