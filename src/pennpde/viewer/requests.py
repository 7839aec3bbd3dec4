"""What a browser asks for, checked: JSON goes in, a frozen request or a ValueError with words comes out."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Role = Literal["wall", "inlet", "outlet"]
ROLES: tuple[Role, ...] = ("wall", "inlet", "outlet")
MOST_SEGMENTS = 200
"""Of a boundary, to choose from on a page."""
MOST_FRAMES = 40
LONGEST = 100.0
"""Reference times, length over speed, after the start."""
_MOST_NUMBERS = 20
_Values = tuple[tuple[str, float], ...]


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
class Request:
    """One picture.

    Attributes:
        source: A design, a case of the dataset, or what was uploaded.
        name: Of the design or of the case; the key of an upload.
        values: Numbers by name: of sliders, or typed. The viscosity of a stored case replaces its own.
        roles: Of the segments of an uploaded mesh. None: only the mesh is shown.
        moments: When; None: the network's own times.
    """

    source: Literal["template", "dataset", "upload"]
    name: str
    values: _Values = ()
    roles: tuple[Role, ...] | None = None
    moments: Moments | None = None

    @property
    def content(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "values": dict(self.values)}

    @property
    def number(self) -> str:
        """The same for the same request, and another for any other."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:24]

    @staticmethod
    def of(content: Any) -> Request:
        """From JSON."""
        if not isinstance(content, Mapping):
            raise ValueError(f"A request is an object, not {type(content).__name__}.")
        unknown = content.keys() - {"source", "name", "values", "roles", "moments"}
        if unknown:
            raise ValueError(f"A request has no {', '.join(sorted(map(str, unknown)))}.")
        source, name = content.get("source"), content.get("name")
        if source not in ("template", "dataset", "upload"):
            raise ValueError(f"The source is {source!r}; it must be template, dataset or upload.")
        if not isinstance(name, str) or not 0 < len(name) <= 200:
            raise ValueError("A request needs a name of up to 200 letters.")
        if source == "upload" and not re.fullmatch(r"[0-9a-f]{32}", name):
            raise ValueError("This is not the key of an upload.")
        return Request(
            source, name, _values(content.get("values")), _roles(content.get("roles")), _moments(content.get("moments"))
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
    if not isinstance(given, list) or len(given) > MOST_SEGMENTS or not all(role in ROLES for role in given):
        raise ValueError(f"The roles are a list of {', '.join(ROLES)}.")
    return tuple(given)


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
