"""What browsers ask for, and the views that answer: each computed once for whoever waits for it, and remembered.

A request is checked: JSON goes in, a frozen request or a ValueError with words comes out. A view for which nobody waits
any more leaves the queue. Until a view is ready, the nearest one that is ready can stand in for it: a draft, which the
page marks as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Role = Literal["wall", "inlet", "outlet", "moving", "slip"]
ROLES: tuple[Role, ...] = ("wall", "inlet", "outlet", "moving", "slip")
LEVELS = ("", "fast", "standard", "fine", "refine")
"""Of accuracy: the network's usual one, one of its own, or the cheapest whose expected error is small."""
MOST_SEGMENTS = 200
"""Of a boundary, to choose from on a page."""
MOST_FRAMES = 40
LONGEST = 100.0
"""Reference times, length over speed, after the start."""
_MOST_NUMBERS = 20
_MOST_POLYGONS, _MOST_CORNERS = 20, 2000
"""Of a drawing."""
_Values = tuple[tuple[str, float], ...]
_TELLING, _AFTERWARDS = 0.03, 1.2
"""Share that must be done before the time left can be told, and what a march costs with what comes after it."""
MOST_REMEMBERED = 96 * 2**20
"""Bytes of records that are kept, compressed."""
_LARGE_MESH, _FINE = 15_000, 32
"""Points of a mesh, and cells across the inlet of a design, whose predictions take long."""


@dataclass(frozen=True)
class Moments:
    """When the fields are wanted, of a network that can be asked: times that lie evenly, up to a last one.

    Attributes:
        duration: The last, in reference times of the case (length over speed).
        frames: How many.
        steady: Whether only the steady state is wanted.
    """

    duration: float = 4.0
    frames: int = 1
    steady: bool = False

    @property
    def times(self) -> list[float]:
        if self.steady:
            return [math.inf]
        return [self.duration * (place + 1) / self.frames for place in range(self.frames)]


@dataclass(frozen=True)
class Drawn:
    """A polygon of a drawing: its corners, and what the side from each to the next is."""

    corners: tuple[tuple[float, float], ...]
    roles: tuple[Role, ...]


@dataclass(frozen=True)
class Request:
    """One picture.

    Attributes:
        source: A design, a case of the dataset, what was uploaded, or a drawing.
        name: Of the design or of the case; the key of an upload.
        values: Numbers by name: of sliders, or typed. The viscosity of a stored case replaces its own.
        roles: Of the segments of an uploaded mesh. None: only the mesh is shown.
        moments: When; None: the network's own times.
        level: Of accuracy.
        polygons: Of a drawing: the outline, then bodies in it.
    """

    source: Literal["template", "dataset", "upload", "drawing"]
    name: str
    values: _Values = ()
    roles: tuple[Role, ...] | None = None
    moments: Moments | None = None
    level: str = ""
    polygons: tuple[Drawn, ...] = ()

    @property
    def content(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "values": dict(self.values)}

    @property
    def number(self) -> str:
        """The same for the same request, and another for any other."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:24]

    @property
    def follows(self) -> bool:
        """Whether it is an answer that follows a hand, which comes before others: one time, the fastest level."""
        return self.level == LEVELS[1] and self.moments is not None and self.moments.frames == 1 and not self.is_steady

    @property
    def is_steady(self) -> bool:
        return self.moments is not None and self.moments.steady

    @staticmethod
    def of(content: Any) -> Request:
        """From JSON."""
        if not isinstance(content, Mapping):
            raise ValueError(f"A request is an object, not {type(content).__name__}.")
        unknown = content.keys() - {"source", "name", "values", "roles", "moments", "level", "polygons"}
        if unknown:
            raise ValueError(f"A request has no {', '.join(sorted(map(str, unknown)))}.")
        source, name = content.get("source"), content.get("name")
        if source not in ("template", "dataset", "upload", "drawing"):
            raise ValueError(f"The source is {source!r}; it must be template, dataset, upload or drawing.")
        if not isinstance(name, str) or not 0 < len(name) <= 200:
            raise ValueError("A request needs a name of up to 200 letters.")
        if source == "upload" and not re.fullmatch(r"[0-9a-f]{32}", name):
            raise ValueError("This is not the key of an upload.")
        level = content.get("level") or ""
        if level not in LEVELS:
            raise ValueError(f"The level is {level!r}; it must be one of {', '.join(LEVELS[1:])}.")
        values, roles, moments = (content.get(part) for part in ("values", "roles", "moments"))
        polygons = _polygons(content.get("polygons"))
        return Request(
            source=source,
            name=name,
            values=_values(values),
            roles=_roles(roles),
            moments=_moments(moments),
            level=level,
            polygons=polygons,
        )


def number_of(value: Any, title: str) -> float:
    """A finite number from a browser, or a ValueError that names it."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"The {title.lower()} is {value!r}; it must be a number.") from None
    if not math.isfinite(number):
        raise ValueError(f"The {title.lower()} is {number}; it must be a finite number.")
    return number


def _values(given: Any) -> _Values:
    if given is None:
        return ()
    if not isinstance(given, Mapping) or len(given) > _MOST_NUMBERS:
        raise ValueError(f"The values are an object of up to {_MOST_NUMBERS} numbers.")
    return tuple(sorted((str(name)[:40], number_of(value, str(name)[:40])) for name, value in given.items()))


def _roles(given: Any) -> tuple[Role, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list | tuple) or len(given) > _MOST_CORNERS or not all(role in ROLES for role in given):
        raise ValueError(f"The roles are a list of {', '.join(ROLES)}.")
    return tuple(given)


def _polygons(given: Any) -> tuple[Drawn, ...]:
    if not given:
        return ()
    try:
        found = tuple(
            Drawn(tuple((float(x), float(y)) for x, y in each["corners"]), _roles(each["roles"]) or ())
            for each in given
        )
    except (TypeError, KeyError, ValueError):
        raise ValueError("A polygon has corners, which are pairs of numbers, and roles of its sides.") from None
    if len(found) > _MOST_POLYGONS or sum(len(each.corners) for each in found) > _MOST_CORNERS:
        raise ValueError(f"A drawing has up to {_MOST_POLYGONS} polygons and {_MOST_CORNERS:,} corners.")
    return found


def _moments(given: Any) -> Moments | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or given.keys() - {"steady"} != {"duration", "frames"}:
        raise ValueError("The moments have a duration and a number of frames.")
    if given.get("steady"):
        return Moments(steady=True)
    duration, frames = number_of(given["duration"], "last time"), number_of(given["frames"], "number of frames")
    if not 0 < duration <= LONGEST:
        raise ValueError(f"The last time is {duration:g}; it must be above 0 and at most {LONGEST:g}.")
    if not 1 <= frames <= MOST_FRAMES or frames != int(frames):
        raise ValueError(f"The number of frames is {frames:g}; it must be a whole number from 1 to {MOST_FRAMES}.")
    return Moments(duration, int(frames))


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
        stage: What is being computed, how much of it is done, and since when.
    """

    request: Request
    large: bool
    task: asyncio.Task[Shown] = field(init=False)
    waiting: int = 0
    begun: float | None = None
    stage: tuple[str, float, float] = ("", 0.0, 0.0)

    def begin(self) -> None:
        self.begun = time.monotonic()

    def hear(self, stage: str, share: float) -> None:
        """What the process says about its progress."""
        name, before, since = self.stage
        self.stage = (stage, share, since if stage == name and share >= before else time.monotonic())

    @property
    def left(self) -> float | None:
        """Seconds that it will still take, as far as what is being computed tells."""
        _, share, since = self.stage
        if share < _TELLING:
            return None
        return _AFTERWARDS * (time.monotonic() - since) * (1 - share) / share

    @property
    def kind(self) -> tuple[str, str, bool, bool]:
        """Computations of a kind take about the same time."""
        return self.request.name, self.request.level, self.large, self.request.is_steady


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
        self._seconds: dict[tuple[str, str, bool, bool], float] = {}
        self.spans: dict[str, float] = {}
        """By the name of a slider, from its low to its high end; other numbers are compared by their ratio."""
        self.shapes: frozenset[str] = frozenset()
        """Names of sliders that change the domain: a picture of another shape is none of what is asked."""

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
            computation = self._asked[number] = Computation(request, large)
            computation.task = asyncio.create_task(self._computed(number, computation))
            # Where nobody waits any more, nobody else would hear of an error.
            computation.task.add_done_callback(lambda task: task.cancelled() or task.exception())
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
            number: distance(request, shown.request, self.spans, self.shapes)
            for number, shown in self._ready.items()
            if shown.words["predicted"]
        }
        nearest = min(distances, key=lambda number: distances[number], default=None)
        return None if nearest is None or math.isinf(distances[nearest]) else self.find(nearest)

    def progress(self, computation: Computation) -> dict[str, Any]:
        """How far a computation is: how many come before it, its seconds, and how many such ones usually take."""
        before, passed = 0, False
        for each in self._asked.values():
            passed |= each is computation
            first = each.request.follows if each.request.follows != computation.request.follows else not passed
            before += first and each.large == computation.large and each.begun is None
        return {
            "before": before if computation.begun is None else 0,
            "seconds": 0.0 if computation.begun is None else round(time.monotonic() - computation.begun, 2),
            "usual_seconds": self._seconds.get(computation.kind),
            "stage": computation.stage[0],
            "share": computation.stage[1],
            "left": computation.left,
        }

    async def close(self) -> None:
        """Give up what is on its way."""
        tasks = [computation.task for computation in self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _computed(self, number: str, computation: Computation) -> Shown:
        try:
            shown = await self._compute(computation)
        finally:
            if self._asked.get(number) is computation:
                del self._asked[number]
        if computation.begun is not None:
            seconds = time.monotonic() - computation.begun
            self._seconds[computation.kind] = 0.7 * self._seconds.get(computation.kind, seconds) + 0.3 * seconds
        self._ready[number] = shown
        size = sum(len(each.record) for each in self._ready.values())
        for oldest in [each for each in self._ready if each not in self._examples and each != number]:
            if size <= self._most_bytes:
                break
            size -= len(self._ready.pop(oldest).record)
        return shown


def distance(
    first: Request, second: Request, spans: Mapping[str, float], shapes: frozenset[str] = frozenset()
) -> float:
    """How much two requests differ, with the spans of sliders; infinite where one says nothing about the other."""
    if any(getattr(first, part) != getattr(second, part) for part in ("source", "name", "roles", "polygons")):
        return math.inf
    ours, theirs = dict(first.values), dict(second.values)
    if ours.keys() != theirs.keys():
        return math.inf
    if any(ours[name] != theirs[name] for name in shapes & ours.keys()):
        return math.inf
    apart = float(first.moments != second.moments) + 0.01 * (first.level != second.level)
    for name, value in ours.items():
        other, span = theirs[name], spans.get(name)
        if span:
            apart += abs(value - other) / span
        elif value != other:
            apart += abs(math.log(value / other)) if value * other > 0 else math.inf
    return apart


def is_large(request: Request, points: int) -> bool:
    """Whether a prediction, on an upload of so many points, takes so long that it must not keep others waiting."""
    fine = dict(request.values).get("resolution", 0.0) > _FINE
    return request.is_steady or points > _LARGE_MESH or fine or request.level not in ("", LEVELS[1])
