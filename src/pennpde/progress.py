"""What is being computed, for whoever watches, and how long it may go on: seconds, iterations, a residual."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

Hear = Callable[[str, float], None]
"""Takes what is being computed, and how much of it is done, from zero to one."""
_HEAR: ContextVar[Hear | None] = ContextVar("hear", default=None)


def tell(stage: str, share: float = 0.0) -> None:
    """Tell whoever watches what begins, or how much of it is done; cheap where nobody does."""
    hear = _HEAR.get()
    if hear is not None:
        hear(stage, share)


@contextmanager
def watched(hear: Hear) -> Iterator[None]:
    """Within this context, `hear` is told; it must be quick."""
    before = _HEAR.set(hear)
    try:
        yield
    finally:
        _HEAR.reset(before)


# How long a computation may go on: seconds, iterations, a residual; for whoever iterates, however deep below.


@dataclass(frozen=True)
class Limits:
    """By default none.

    Attributes:
        until: By the clock of `time.monotonic`.
        iterations: At most, of a solver that iterates to a steady state; None: its own.
        residual: At which such a solver stops; None: its own.
    """

    until: float = math.inf
    iterations: int | None = None
    residual: float | None = None

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


_NONE = Limits()
_LIMITS: ContextVar[Limits] = ContextVar("limits", default=_NONE)


class OutOfTimeError(RuntimeError):
    """The seconds are over.

    Attributes:
        times: Those that were reached, in the solver's units.
        result: What the solver has at these; None where there are none.
    """

    def __init__(self, message: str, times: tuple[float, ...] = (), result: Any = None) -> None:
        super().__init__(message)
        self.times, self.result = times, result


def limits() -> Limits:
    """Those of this context."""
    return _LIMITS.get()


@contextmanager
def limited(
    *, seconds: float = math.inf, iterations: int | None = None, residual: float | None = None
) -> Iterator[None]:
    """Within this context, these limits hold, and no others."""
    before = _LIMITS.set(Limits(time.monotonic() + seconds, iterations, residual))
    try:
        yield
    finally:
        _LIMITS.reset(before)
