"""What varies in a study: a range of numbers, or some numbers, under a name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_DIGITS = 12
"""Of the numbers of a range: 3 * 0.1 is 0.30000000000000004, and would stand in every table."""
_MOST = 100_000


@dataclass(frozen=True)
class Variable:
    """A name, and the numbers it takes.

    Attributes:
        name: A parameter of the equation, `PATCH.UNKNOWN`, `PATCH.UNKNOWN.AXIS`, "time", or a number of the shape.
        choices: The numbers; none where it takes any of a range.
        low: The lower end of the range.
        high: The upper end.
        is_logarithmic: Whether equal ratios, not differences, are equal steps.
        number: Of steps in a full grid; None where a sampled design decides.
    """

    name: str
    choices: tuple[float, ...] = ()
    low: float = math.nan
    high: float = math.nan
    is_logarithmic: bool = False
    number: int | None = None

    @staticmethod
    def of(name: str, given: Variable | str | float | Sequence[float]) -> Variable:
        """From numbers, or from text: `0.5,1,2`, `0.1:0.3`, `0.1:0.3:5` or `1e-3:1e-2:log:20`."""
        if isinstance(given, Variable):
            return given
        if isinstance(given, str):
            return _parsed(name, given)
        listed = [given] if isinstance(given, int | float) else list(given)
        if not listed or not all(isinstance(each, int | float) and math.isfinite(each) for each in listed):
            raise ValueError(f'{name} varies over {given!r}; give finite numbers, or a range such as "0.1:0.3:5".')
        return Variable(name, tuple(map(float, dict.fromkeys(listed))))

    @property
    def steps(self) -> tuple[float, ...]:
        """All its numbers, for a full grid."""
        if self.choices:
            return self.choices
        if self.number is None:
            raise ValueError(
                f"A full grid needs the number of steps of {self.name}: write {self.low:g}:{self.high:g}:5 (or "
                f'{self.low:g}:{self.high:g}:log:5), or choose the design "latin-hypercube" or "sobol".'
            )
        shares = np.linspace(0.0, 1.0, self.number) if self.number > 1 else [0.5]
        return tuple(map(self.neatly, shares))

    def at(self, share: float) -> float:
        """The number at a share of the way, from 0 to 1."""
        if self.choices:
            return self.choices[min(int(share * len(self.choices)), len(self.choices) - 1)]
        if share in (0.0, 1.0):
            return self.high if share else self.low
        if self.is_logarithmic:
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)

    def neatly(self, share: float) -> float:
        """The same in as many digits as people want to read."""
        return self.at(share) if self.choices else float(f"{self.at(share):.{_DIGITS}g}")

    def share(self, number: float) -> float:
        """The share of the way at which it takes a number; the middle of the shares of a choice."""
        if self.choices:
            if number not in self.choices:
                raise ValueError(f"The search starts at {self.name} = {number:g}, which is none of {self.choices}.")
            return (self.choices.index(number) + 0.5) / len(self.choices)
        if not self.low <= number <= self.high:
            raise ValueError(
                f"The search starts at {self.name} = {number:g}, outside of {self.low:g} to {self.high:g}."
            )
        if self.is_logarithmic:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    @property
    def text(self) -> str:
        """As `of` reads it."""
        if self.choices:
            return ",".join(f"{each!r}" for each in self.choices)
        scale = ["log"] if self.is_logarithmic else []
        return ":".join(
            [f"{self.low!r}", f"{self.high!r}", *scale, *([] if self.number is None else [f"{self.number}"])]
        )


def parse_vary(text: str) -> Variable:
    """From the option --vary: `viscosity=1e-3:1e-2:log:20`."""
    name, equals, given = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"--vary {text!r} is not NAME=VALUES, such as viscosity=1e-3:1e-2:log:20 or inlet.u=0.5,1,2.")
    return _parsed(name.strip(), given)


def _parsed(name: str, text: str) -> Variable:
    separator = ":" if ":" in text else ","
    parts = [part.strip() for part in text.split(separator)]
    is_logarithmic = separator == ":" and "log" in parts[2:]
    try:
        numbers = [float(part) for part in parts if part != "log"]
    except ValueError:
        numbers = [math.nan]
    wrong = ValueError(
        f"{name} varies over {text!r}; write numbers as 0.5,1,2 or a range as LOW:HIGH, LOW:HIGH:NUMBER or "
        "LOW:HIGH:log:NUMBER."
    )
    if not all(map(math.isfinite, numbers)):
        raise wrong
    if separator == ",":
        return Variable.of(name, numbers)
    if len(numbers) not in (2, 3) or len(parts) != len(numbers) + is_logarithmic:
        raise wrong
    low, high = numbers[:2]
    number = int(numbers[2]) if len(numbers) == 3 else None
    if not low < high or (number is not None and (number != numbers[2] or not 1 <= number <= _MOST)):
        raise ValueError(f"{name} varies over {text!r}; the first number is the lower end, the last a count of steps.")
    if is_logarithmic and low <= 0:
        raise ValueError(f"{name} varies over {text!r}; a logarithmic range starts above zero.")
    return Variable(name, (), low, high, is_logarithmic, number)
