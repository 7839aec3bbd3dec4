"""A prediction in the user's units, with what is known about its error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.mesh import Mesh
from pennpde.mesh.files import SERIES, write_series
from pennpde.penn import STEADY
from pennpde.penn.equation import OUTFLOW, Look
from pennpde.penn.predictor import Finer
from pennpde.pictures import Picture, animate, cut_flat, error_panels, field_panels, picture, series_panels, stacked
from pennpde.quantities import Measured, Quantity, SolvedFlow, parse, usual
from pennpde.trust.certificate import Certificate
from pennpde.trust.evidence import Evidence
from pennpde.trust.expected_error import REFUSED, REFUSED_ABOVE, Expected, worst

if TYPE_CHECKING:
    import pyvista

_MOST_SHOWN = 500_000
"""Points times times of a page inside of a notebook, which keeps it: some ten megabytes."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A prediction in the user's units: `outcome["u"]` is an array; it plots, plays and saves itself."""

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
    """At each of the times, what was measured without a reference solution and says how wrong the fields may be."""
    expected: Expected = field(default_factory=Expected)
    """How wrong the fields probably are: expected error and grade by unknown, at the worst of the times."""
    expected_by_time: tuple[Expected, ...] = ()
    """The same at each of the times."""
    level: str = ""
    """Of accuracy, on which the network predicted; empty where it has no levels."""
    looks: Mapping[str, Look] = field(default_factory=dict)
    """How the fields are titled and coloured."""
    flow: SolvedFlow | None = None
    """Of a plane flow, what its quantities are taken from, on the mesh on which it was predicted."""
    si: bool = False
    """Whether the units are known to be SI, as those of OpenFOAM cases."""
    stopped: str = ""
    """Why not all was computed that was asked for; empty where it was."""
    finer: Finer | None = None
    """The solution on split cells that the fields were taken from, in the user's units; None where there is none."""

    def __repr__(self) -> str:
        names, points = ", ".join(self.fields), self.case.number_of_points
        return f"Outcome({names} at {points} points, {self.when}; {self.expected.in_short})"

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.fields:
            raise KeyError(f"There is no field {name!r}; predicted are {', '.join(self.fields)}.")
        return self.fields[name].detach().cpu().numpy()

    @property
    def when(self) -> str:
        """At which times the fields hold, in words."""
        last = time_name(self.time)
        return last if len(self.times) == 1 else f"{len(self.times)} times, {time_name(self.times[0])} to {last}"

    @property
    def time(self) -> float:
        return self.times[-1]

    @property
    def last(self) -> dict[str, Tensor]:
        """The fields at the last of the times."""
        return self.at(-1).fields

    def at(self, place: int) -> Outcome:
        """The prediction at one of its times only."""
        changes: dict[str, Any] = self._at_places([place]) | {"times": (self.times[place],)}
        if self.expected_by_time:
            now = self.expected_by_time[place]
            changes |= {"evidence": (self.evidence[place],), "expected": now, "expected_by_time": (now,)}
        return replace(self, **changes)

    def _at_places(self, places: list[int]) -> dict[str, Any]:
        """What the prediction at some of its times has other than all of it."""
        chosen = places if len(places) > 1 else places[0]

        def each(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {
                name: values[..., chosen] if values.ndim > self.case.initial[name].ndim else values
                for name, values in fields.items()
            }

        flow = None if self.flow is None else self.flow.at(places)
        return {"fields": each(self.fields), "flow": flow, "finer": self.finer and self.finer.map(each)}

    def usable(self) -> tuple[Outcome, tuple[float, ...]]:
        """The prediction at those times whose expected error does not refuse it, and the others.

        Each time is judged by itself: where an inflow has come to zero, as at the end of a pulse, errors are large
        relative to what is left, and the times before are none the worse. Without a usable time, it is as it was; so is
        a flow that swings, which is judged as a whole.
        """
        by_time = self.expected_by_time
        good = [place for place, each in enumerate(by_time) if each.grade != REFUSED]
        if not good or len(good) == len(by_time) or self.expected.swing is not None:
            return self, ()
        kept = tuple(by_time[place] for place in good)
        left_out = tuple(self.times[place] for place in range(len(by_time)) if place not in good)
        part = replace(
            self,
            **self._at_places(good),
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

    def quantities(self, wanted: str | Sequence[str | Quantity] | None = None) -> list[Measured]:
        """Numbers such as `outcome.quantities("drag cylinder")`, with expected errors.

        Args:
            wanted: A text, or several, or what `pennpde.quantities.parse` makes of them; by default of a plane flow the
                forces on its bodies and its losses.
        """
        if wanted is None:
            wanted = [] if self.flow is None else usual(self.flow)
        wanted = [wanted] if isinstance(wanted, str) else wanted
        return [(parse(each) if isinstance(each, str) else each).of(self) for each in wanted]

    @property
    def outflow(self) -> Float[Tensor, "facets *times"] | None:
        """Volume per time and depth that leaves the domain through each of `case.mesh.facets`, negative at inlets.

        They are the fluxes of the scheme, whose sum is zero to round-off. Several times are a trailing axis. None for
        networks that conserve mass only as well as their velocity does, and for predictions on another mesh.
        """
        if self.flow is None or self.companion is not None or OUTFLOW not in self.flow.balance:
            return None
        values = torch.from_numpy(self.flow.balance[OUTFLOW])
        return values[0] if len(self.times) == 1 else values.T

    def fluxes(self, patch: str) -> Float[Tensor, "facets *times"]:
        """What leaves the domain through each facet of a patch, see `outflow`; their sum is the patch's flow rate."""
        if self.outflow is None:
            raise ValueError("This network has no fluxes of its own; integrate its velocity over the patch.")
        return self.outflow[torch.from_numpy(self.case.mesh.patch(patch).facets)]

    @property
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
            write_series(path, self.shown_times, [self.at(place).mesh for place in range(len(self.times))])
        else:
            self.mesh.save(path)

    def to_pyvista(self) -> pyvista.UnstructuredGrid:
        """PyVista's grid with the predicted fields; of one of several times `outcome.at(0).to_pyvista()`."""
        return self.mesh.to_pyvista()

    def plot(self, *names: str, path: Path | str | None = None, error: bool = False, title: str = "") -> Picture:
        """A picture of the fields at the last time, which shows itself in a notebook; in space of a slice.

        Args:
            names: Of the fields; by default all.
            path: Where it is written as well, as .png, .pdf or .svg.
            error: Whether the error that is expected at each point is drawn in a second row.
            title: Before the time.
        """
        shown = {name: self.last[name] for name in names or self.last if self[name] is not None}
        mesh, errors, title = self.case.mesh, dict(self.expected.local) if error else {}, self.title(self.time, title)
        if mesh.space == 3:
            every = [*shown.values(), *errors.values()]
            mesh, cut, where = cut_flat(mesh, [each if each.ndim == 1 else each.norm(dim=1) for each in every])
            shown, errors = dict(zip(shown, cut, strict=False)), dict(zip(errors, cut[len(shown) :], strict=True))
            title = f"{title}, {where}"
        rows = [field_panels(mesh, shown, self.looks, units=self.si)]
        if errors:
            rows.append(error_panels(mesh, errors, self.looks, units=self.si))
        made = picture(stacked(rows), title=title, **self._small_print)
        if path is not None:
            made.save(path)
        return made

    def animate(self, path: Path | str, *names: str, title: str = "") -> None:
        """Write all times as an animation, .mp4, .webm or .gif: colours mean the same at all times.

        Args:
            path: Of the file.
            names: Of the fields; by default all.
            title: Before the times.
        """
        if len(self.times) < 2:
            raise ValueError("An animation takes several times, as in predict(..., times=[1.0, 2.0, 3.0]).")
        every = [self.at(place).fields for place in range(len(self.times))]
        fields = [{name: now[name] for name in names or now} for now in every]
        frames = series_panels(self.case.mesh, fields, self.looks, units=self.si)
        animate(path, frames, [self.title(time, title) for time in self.times], **self._small_print)

    def title(self, time: float, first: str = "") -> str:
        """When the fields hold, and the numbers that characterise the case."""
        numbers = [f"{name} {value:.4g}" for name, value in self.numbers.items() if name.endswith("number")]
        return ", ".join([*[first] * bool(first), f"{time_name(time)}{' s' * (self.si and time != STEADY)}", *numbers])

    @property
    def _small_print(self) -> dict[str, Any]:
        # The grade is in the corner already.
        others = [each for each in self.certificate.warnings if each not in self.expected.warnings]
        return {"corner": self.expected.in_short, "notes": [f"warning: {each}" for each in others]}

    def _repr_html_(self) -> str:
        """The page of `penn predict --html` in a notebook; of a mesh in space, and where it is too large, one line."""
        if self.case.space != 2 or self.case.number_of_points * len(self.times) > _MOST_SHOWN:
            return f"<code>{escape(repr(self))}</code>"
        # By name: pages are made by a layer above.
        page = import_module("pennpde.viewer.records").page_of(self)
        return f'<iframe srcdoc="{escape(page)}" style="width: 100%; height: 640px; border: 0"></iframe>'

    @property
    def shown_times(self) -> tuple[float, ...]:
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
