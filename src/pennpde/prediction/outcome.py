"""A prediction in the user's units, with what is known about its error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.mesh import Mesh
from pennpde.mesh.writing import SERIES, write_series
from pennpde.penn import STEADY
from pennpde.trust.certificate import Certificate
from pennpde.trust.evidence import Evidence
from pennpde.trust.expected_error import REFUSED, REFUSED_ABOVE, Expected, worst


@dataclass(frozen=True, eq=False)
class Outcome:
    """A prediction in the user's units."""

    case: Case
    """The user's case; with what was added to it where the network worked on the user's own mesh."""
    fields: dict[str, Tensor]
    """In the precision of the case. Several output times are a trailing axis."""
    certificate: Certificate
    seconds: dict[str, float]
    """Preparing (distances, potential flow), assembling operators, the network itself, and the certificate; where there
    is a companion, making it and interpolating from it."""
    times: tuple[float, ...]
    """When after the start the fields hold, in the user's units."""
    units: Units | None
    numbers: dict[str, float] = field(default_factory=dict)
    """What the equation knows about the case, such as its Reynolds number."""
    companion: Case | None = None
    """The case on a mesh of the network's own spacing, on which it was predicted; None where that is the user's."""
    evidence: tuple[Evidence, ...] = ()
    """At each of the times, what was measured without the truth and says how wrong the fields may be."""
    expected: Expected = field(default_factory=Expected)
    """How wrong the fields probably are: expected error and grade by unknown, at the worst of the times."""
    expected_by_time: tuple[Expected, ...] = ()
    """The same at each of the times."""
    level: str = ""
    """Of accuracy, on which the network predicted; empty where it has no levels."""
    outflow: Float[Tensor, "facets *times"] | None = None
    """Volume per time (in the plane also per depth) that leaves the domain through each of `case.mesh.facets`, negative
    at inlets: the fluxes of the scheme, whose sum is zero to round-off. Several times are a trailing axis. None for
    networks that conserve mass only as well as their velocity does."""

    @property
    def time(self) -> float:
        return self.times[-1]

    @property
    def last(self) -> dict[str, Tensor]:
        """The fields at the last of the times."""
        return self.at(-1).fields

    def at(self, place: int) -> Outcome:
        """The prediction at one of its times only."""
        fields = {
            name: values[..., place] if values.ndim > self.case.initial[name].ndim else values
            for name, values in self.fields.items()
        }
        changes: dict[str, Any] = {"fields": fields, "times": (self.times[place],)}
        if self.outflow is not None and self.outflow.ndim > 1:
            changes["outflow"] = self.outflow[:, place]
        if self.expected_by_time:
            now = self.expected_by_time[place]
            changes |= {"evidence": (self.evidence[place],), "expected": now, "expected_by_time": (now,)}
        return replace(self, **changes)

    def usable(self) -> tuple[Outcome, tuple[float, ...]]:
        """The prediction at those times whose expected error does not refuse it, and the others.

        Each time is judged by itself: where an inflow has come to zero, as at the end of a pulse, errors are large
        relative to what is left, and the times before are none the worse. Without a usable time, it is as it was.
        """
        by_time = self.expected_by_time
        good = [place for place, each in enumerate(by_time) if each.grade != REFUSED]
        if not good or len(good) == len(by_time):
            return self, ()
        fields = {
            name: values[..., good if len(good) > 1 else good[0]]
            for name, values in self.fields.items()
            if values.ndim > self.case.initial[name].ndim
        }
        outflow = self.outflow
        if outflow is not None and outflow.ndim > 1:
            outflow = outflow[:, good if len(good) > 1 else good[0]]
        kept = tuple(by_time[place] for place in good)
        left_out = tuple(self.times[place] for place in range(len(by_time)) if place not in good)
        part = replace(
            self,
            fields=self.fields | fields,
            outflow=outflow,
            times=tuple(self.times[place] for place in good),
            evidence=tuple(self.evidence[place] for place in good),
            expected=worst(kept),
            expected_by_time=kept,
        )
        told = [each for each in self.certificate.warnings if each not in self.expected.warnings]
        names = ", ".join("the steady state" if time == math.inf else f"t = {time:.4g}" for time in left_out)
        refused = f"Left out because their expected error is above {100 * REFUSED_ABOVE:.0f} %: {names}."
        certificate = replace(self.certificate, warnings=(*part.expected.warnings, refused, *told))
        return replace(part, certificate=certificate), left_out

    def fluxes(self, patch: str) -> Float[Tensor, "facets *times"]:
        """What leaves the domain through each facet of a patch, see `outflow`; their sum is the patch's flow rate."""
        if self.outflow is None:
            raise ValueError("This network has no fluxes of its own; integrate its velocity over the patch.")
        return self.outflow[torch.from_numpy(self.case.mesh.patch(patch).facets)]

    def mesh(self) -> Mesh:
        """The mesh with the predicted fields attached, ready to be saved: the last, and of a series each, numbered.

        A file has no separate axis for times: four times of a scalar would look like a tensor.
        """
        series = {
            f"{name}_{place + 1}": values[..., place]
            for name, values in self.fields.items()
            if values.ndim > self.case.initial[name].ndim
            for place in range(len(self.times))
        }
        doubts = {f"expected_error_{name}": values for name, values in self.expected.local.items()}
        facts = self.expected.facts()
        if self.certificate.warnings:
            facts["warnings"] = "\n".join(self.certificate.warnings)
        return self.case.mesh.with_fields(self.last | series | doubts).with_facts(facts)

    def save(self, path: Path | str) -> None:
        """Write the mesh with the predicted fields: several times as a series, where the format has such (`SERIES`)."""
        path = Path(path)
        if path.suffix == ".pvd" or (path.suffix in SERIES and len(self.times) > 1):
            write_series(path, self._shown_times, [self.at(place).mesh() for place in range(len(self.times))])
        else:
            self.mesh().save(path)

    @property
    def _shown_times(self) -> tuple[float, ...]:
        """The times of a file for viewers: a steady state, which has none, follows at one more interval."""
        if self.time != STEADY:
            return self.times
        before = list(self.times[:-1])
        if not before:
            return (0.0,)
        interval = before[-1] - before[-2] if len(before) > 1 else before[-1]
        return (*before, before[-1] + interval)


def time_name(time: float) -> str:
    """A time in words."""
    return "steady state" if time == STEADY else f"t = {time:.4g}"
