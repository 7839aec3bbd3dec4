"""Values that change with time: a function of time, or a table of times and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Table:
    """Values at some times, linear in between: what a condition may be given as.

    Args:
        rows: Pairs (time, value), times increasing. A value is whatever the condition could be given as.
        outside: Before the first and after the last time either an "error", or the first and last value ("clamp").
    """

    rows: Sequence[tuple[float, Any]]
    outside: Literal["error", "clamp"] = "error"

    def __post_init__(self) -> None:
        if len(self.rows) == 0:
            raise ValueError("A table needs at least one row, (time, value).")
        for row in self.rows:
            if not isinstance(row, Sequence) or len(row) != 2 or not isinstance(row[0], int | float):
                raise ValueError(f"A row of a table is (time, value); got {row!r}.")
        times = self.times
        if not all(np.isfinite(times)) or any(after <= before for before, after in pairwise(times)):
            raise ValueError(f"The times of a table must increase from row to row; got {times}.")
        if self.outside not in ("error", "clamp"):
            raise ValueError(f'What a table gives outside of its times is "error" or "clamp"; got {self.outside!r}.')

    @property
    def times(self) -> list[float]:
        return [float(time) for time, _ in self.rows]


@dataclass(frozen=True, eq=False)
class Course:
    """Values over all points as a function of time, in the precision and on the device of their case."""

    function: Callable[[float], Tensor]
    first: float = 0.0
    """Where it starts: at zero, or where a table that does not hold zero comes nearest to it."""

    def at(self, time: float) -> Float[Tensor, "points *axes"]:
        return self.function(time)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Course:
        return Course(lambda time: change(self.function(time)), self.first)

    def with_unit_of_time(self, unit: float) -> Course:
        """The same course with times counted in a unit."""
        return Course(lambda time: self.function(time * unit), self.first / unit)

    @classmethod
    def joined(cls, parts: Sequence[Course | Tensor]) -> Course:
        """Several courses, or constant values, side by side."""
        return cls(lambda time: torch.cat([part.at(time) if isinstance(part, Course) else part for part in parts]))

    @classmethod
    def of_table(
        cls, times: Sequence[float], values: Sequence[Tensor], outside: Literal["error", "clamp"], where: str
    ) -> Course:
        """Linear between the times of a table; at one of them its value, bit for bit."""

        def at(time: float) -> Tensor:
            if not times[0] <= time <= times[-1]:
                if outside == "error":
                    raise ValueError(
                        f"{where} is asked for at time {time:g}, but its table goes from {times[0]:g} to "
                        f'{times[-1]:g}. Add rows, or let the ends hold beyond: Table(rows, outside="clamp").'
                    )
                return values[0] if time < times[0] else values[-1]
            after = int(np.searchsorted(times, time))
            if times[after] == time:
                return values[after]
            share = (time - times[after - 1]) / (times[after] - times[after - 1])
            return (1 - share) * values[after - 1] + share * values[after]

        return cls(at, first=min(max(0.0, times[0]), times[-1]))

    @classmethod
    def of_series(cls, times: Sequence[float], values: Float[Tensor, "points *axes times"]) -> Course:
        """Known at these times only."""

        def at(time: float) -> Tensor:
            if time not in times:
                raise ValueError(f"The conditions are known at the times {list(times)} only; asked for is {time:g}.")
            return values[..., list(times).index(time)]

        return cls(at, first=times[0])
