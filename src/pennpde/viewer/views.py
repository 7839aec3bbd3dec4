"""Views of all browsers: each is computed once for whoever waits for it, and remembered as long as there is room.

A view for which nobody waits any more leaves the queue. Until a view is ready, the nearest one that is ready can stand
in for it: a draft, which the page marks as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pennpde.viewer.requests import Request

MOST_REMEMBERED = 96 * 2**20
"""Bytes of records that are kept, compressed."""
_LARGE_MESH, _FINE = 15_000, 32
"""Points of a mesh, and cells across the inlet of a design, whose predictions take long."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A view that is ready: the words of the page, and the record of the picture."""

    request: Request
    words: dict[str, Any]
    record: bytes


@dataclass(eq=False)
class Computation:
    """A view on its way.

    Attributes:
        task: Ends with the view, or with an error that has words for the user.
        waiting: How many wait for it.
        begun: When a process took it up, by the clock of `time.monotonic`; None: it is in the queue.
    """

    request: Request
    large: bool
    task: asyncio.Task[Shown] = field(init=False)
    waiting: int = 0
    begun: float | None = None

    def begin(self) -> None:
        self.begun = time.monotonic()

    @property
    def kind(self) -> tuple[str, bool, bool]:
        """Computations of a kind take about the same time."""
        moments = self.request.moments
        return self.request.source, self.large, moments is not None and moments.steady


class Views:
    """What is ready, and what is on its way.

    Args:
        compute: Makes a view; it calls `Computation.begin` when the work begins.
        most_bytes: Of records that are remembered; the examples count, but stay.
    """

    def __init__(self, compute: Callable[[Computation], Awaitable[Shown]], most_bytes: int = MOST_REMEMBERED):
        self._compute, self._most_bytes = compute, most_bytes
        self._ready: OrderedDict[str, Shown] = OrderedDict()
        self._asked: dict[str, Computation] = {}
        self._examples: set[str] = set()
        self._seconds: dict[tuple[str, bool, bool], float] = {}
        self.spans: dict[str, float] = {}
        """By the name of a slider, from its low to its high end; other numbers are compared by their ratio."""

    def find(self, number: str) -> Shown | None:
        """The view with a number, if it is still remembered."""
        if number in self._ready:
            self._ready.move_to_end(number)
        return self._ready.get(number)

    @contextlib.contextmanager
    def wanted(self, request: Request, large: bool) -> Iterator[Computation]:
        """Wait for a view that is not ready. When the last who waits leaves, it leaves the queue."""
        number = request.number
        if number not in self._asked:
            self._asked[number] = self._started(number, Computation(request, large))
        computation = self._asked[number]
        computation.waiting += 1
        try:
            yield computation
        finally:
            computation.waiting -= 1
            # What a process has begun is finished: to end the process would cost more than the rest of the work.
            if not computation.waiting and computation.begun is None and self._asked.get(number) is computation:
                del self._asked[number]  # at once: whoever comes next must not wait for what is being cancelled
                computation.task.cancel()

    async def prepare(self, request: Request) -> None:
        """Have an example ready, and keep it."""
        self._examples.add(request.number)
        with self.wanted(request, large=False) as computation:
            await asyncio.shield(computation.task)

    def nearest(self, request: Request) -> Shown | None:
        """The ready prediction of the same design, case or mesh that differs least from a request."""
        distances = {
            number: distance(request, shown.request, self.spans)
            for number, shown in self._ready.items()
            if shown.words["predicted"]
        }
        nearest = min(distances, key=lambda number: distances[number], default=None)
        return None if nearest is None or math.isinf(distances[nearest]) else self.find(nearest)

    def progress(self, computation: Computation) -> dict[str, Any]:
        """How far a computation is: how many come before it, its seconds, and how many such ones usually take."""
        before = 0
        for each in self._asked.values():
            if each is computation:
                break
            before += each.large == computation.large and each.begun is None
        return {
            "before": before if computation.begun is None else 0,
            "seconds": 0.0 if computation.begun is None else round(time.monotonic() - computation.begun, 2),
            "usual_seconds": self._seconds.get(computation.kind),
        }

    async def close(self) -> None:
        """Give up what is on its way."""
        tasks = [computation.task for computation in self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _started(self, number: str, computation: Computation) -> Computation:
        computation.task = asyncio.create_task(self._computed(number, computation))
        # Where nobody waits any more, nobody else would hear of an error.
        computation.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return computation

    async def _computed(self, number: str, computation: Computation) -> Shown:
        try:
            shown = await self._compute(computation)
        finally:
            if self._asked.get(number) is computation:
                del self._asked[number]
        if computation.begun is not None:
            seconds = time.monotonic() - computation.begun
            self._seconds[computation.kind] = 0.7 * self._seconds.get(computation.kind, seconds) + 0.3 * seconds
        self._remember(number, shown)
        return shown

    def _remember(self, number: str, shown: Shown) -> None:
        self._ready[number] = shown
        size = sum(len(each.record) for each in self._ready.values())
        for oldest in [each for each in self._ready if each not in self._examples and each != number]:
            if size <= self._most_bytes:
                break
            size -= len(self._ready.pop(oldest).record)


def distance(first: Request, second: Request, spans: Mapping[str, float]) -> float:
    """How much two requests differ; infinite where one says nothing about the other.

    Args:
        first: A request.
        second: Another.
        spans: By the name of a slider, from its low to its high end.
    """
    if (first.source, first.name, first.roles) != (second.source, second.name, second.roles):
        return math.inf
    ours, theirs = dict(first.values), dict(second.values)
    if ours.keys() != theirs.keys():
        return math.inf
    parts = [_apart(value, theirs[name], spans.get(name)) for name, value in ours.items()]
    return sum(parts) + (first.moments != second.moments)


def is_large(request: Request, points: int) -> bool:
    """Whether a prediction takes so long that it must not keep others waiting.

    Args:
        request: Of a prediction.
        points: Of the uploaded mesh; 0 for others.
    """
    steady = request.moments is not None and request.moments.steady
    return steady or points > _LARGE_MESH or dict(request.values).get("resolution", 0.0) > _FINE


def _apart(first: float, second: float, span: float | None) -> float:
    if first == second:
        return 0.0
    if span:
        return abs(first - second) / span
    return abs(math.log(first / second)) if first * second > 0 else math.inf
