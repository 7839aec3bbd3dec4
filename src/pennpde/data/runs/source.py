"""What is asked of every run (its times, its quantities) and what every run can give, whatever wrote it."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch import Tensor

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.data.storage import Targets
from pennpde.models.advection_diffusion import AdvectionDiffusion
from pennpde.models.ducts import Flow
from pennpde.models.inlet import describe_inlet, inlet_units
from pennpde.penn.equation import FoamName

NOT_KNOWN = "no network knows this: "
"""Begins a note about what changed a run and no case can hold, such as a body force."""


class RunError(ValueError):
    """A run that cannot be collected, and why."""


class Source(ABC):
    """A run, opened. Anything wrong with it is an error that says what, without the name of the run."""

    def __init__(self, wanted: Quantities | None) -> None:
        self.wanted = wanted
        self.notes: list[str] = []
        """What a user should know about how it was read."""

    @property
    @abstractmethod
    def format(self) -> str:
        """In words, such as "OpenFOAM, decomposed"."""

    @abstractmethod
    def quantities(self) -> Quantities:
        """Which fields and parameters are whose."""

    @abstractmethod
    def times(self) -> tuple[float, Sequence[float]]:
        """The start, and all times that it has, grown."""

    @abstractmethod
    def check(self, times: Sequence[float]) -> None:
        """Raise an error where a field is missing at one of these times; nothing is read in full."""

    @abstractmethod
    def problem(self) -> Case:
        """Mesh, conditions, start and parameters; without targets. See `with_patches`."""

    @abstractmethod
    def fields(self, time: float) -> dict[str, Tensor]:
        """The unknowns at the points, as the run has them at a time."""

    @abstractmethod
    def files(self, times: Sequence[float]) -> list[Path]:
        """The files that its case is made of."""

    def state(self, times: Sequence[float]) -> str:
        """A hash that changes when the files of the run do."""
        digest = hashlib.sha256()
        for path in self.files(times):
            state = path.stat()
            digest.update(f"{path.parent.name}/{path.name} {state.st_size} {state.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:16]

    def unfinished(self) -> str | None:
        """Why the run did not come to its end; None where it did, as far as can be told."""
        return None

    def units(self) -> Mapping[str, tuple[int, ...]]:
        """By unknown, powers of kilogram, metre, second, kelvin ...; empty where the files do not say."""
        return {}

    def counts_iterations(self) -> bool:
        """Whether its times are iterations of a steady solver."""
        return False

    def fluxes(self, time: float) -> dict[str, float]:  # noqa: ARG002
        """By patch, the solver's own flux out of the domain; none where it does not say."""
        return {}


def with_patches(case: Case) -> Case:
    """The case; one whose mesh has no named boundaries is refused."""
    if not case.mesh.patches:
        raise RunError("its mesh has no patches, so nothing says where its conditions hold; name them")
    return case


# Times: the option --time

_CLOSE = 1e-6
_MOST_TIMES = 10_000


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
    if number > _MOST_TIMES:
        raise ValueError(f"at this step there are {number:.6g} times")
    return tuple(first + place * step for place in range(math.floor(number)))


def _shown(times: Sequence[float]) -> str:
    words = [f"{time:g}" for time in times]
    return ", ".join(words if len(words) <= 8 else [*words[:4], "...", *words[-3:]]) or "none"


# Quantities: the options --fields and --parameters

_OURS = {"U": "u"}
"""Our names of fields that are called differently in OpenFOAM."""
OTHER_NAMES = {"u": ("u", "U", "velocity", "Velocity"), "p": ("p", "P", "pressure", "Pressure")} | {
    "T": ("T", "temperature", "Temperature")
}
"""Under which a file may have an unknown."""


@dataclass(frozen=True)
class Quantities:
    """What is read from every run.

    Attributes:
        network: the kind of network that fits, as in `Content`; None: none of ours.
        fields: by unknown, its field in the run. Dimensions of a field of another equation are not known: ().
        parameters: by name, the entry of `constant/transportProperties`, or else a uniform field.
    """

    network: str | None
    fields: Mapping[str, FoamName]
    parameters: Mapping[str, str]

    def units(self, case: Case) -> Units | None:
        """Reference scales that make similar runs the same; None: lengths and values are as they are."""
        if self.network != "flow":
            return None
        try:
            return inlet_units(case)
        except ValueError:  # driven by pressure or by nothing: no inlet to take units from
            return None

    def describe(self, case: Case) -> dict[str, float]:
        """Characteristic numbers of a case, for the report."""
        return describe_inlet(case) if self.network == "flow" else {}


FLOW = Quantities("flow", Flow.foam_fields, Flow.foam_parameters)
SCALAR = Quantities("advection-diffusion", AdvectionDiffusion.foam_fields, AdvectionDiffusion.foam_parameters)


def parse(fields: Sequence[str], parameters: Sequence[str] = ()) -> Quantities | None:
    """From `--fields`, such as U and p, T, or p=p_rgh, and `--parameters`, such as viscosity=nu; None: by the run."""
    if not fields:
        if parameters:
            raise ValueError("Parameters were named, but no fields; name both, as in --fields U,p --parameters nu.")
        return None
    names = dict(_named(each, "field") for each in fields)
    given = dict(_named(each, "parameter") for each in parameters)
    known = next((each for each in (FLOW, SCALAR) if each.fields.keys() == names.keys()), None)
    if known is not None:
        renamed = {ours: replace(known.fields[ours], name=theirs) for ours, theirs in names.items()}
        return replace(known, fields=renamed, parameters={**known.parameters, **given})
    return Quantities(None, {ours: FoamName(theirs, ()) for ours, theirs in names.items()}, given)


def of_unknowns(unknowns: Sequence[str], parameters: Sequence[str]) -> Quantities:
    """Of a problem file, which names unknowns and parameters by itself."""
    for known in (FLOW, SCALAR):
        if known.fields.keys() == set(unknowns) and set(known.parameters) <= set(parameters):
            return known
    return Quantities(None, {name: FoamName(name, ()) for name in unknowns}, {name: name for name in parameters})


def _named(given: str, what: str) -> tuple[str, str]:
    ours, equals, theirs = given.partition("=")
    theirs = theirs if equals else ours
    if not ours.strip() or not theirs.strip() or "/" in given:
        raise ValueError(f"The {what} is {given!r}; give its name in the run, or OURS=THEIRS such as p=p_rgh.")
    return (ours.strip() if equals else _OURS.get(ours.strip(), ours.strip())), theirs.strip()
