"""`Quantity`: a number that an engineer wants from a flow, and `Measured`: its value and its expected error."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from pennpde.quantities.calibration import factors_of
from pennpde.quantities.solved import SolvedFlow

if TYPE_CHECKING:
    from pennpde.case import Case
    from pennpde.prediction import Outcome

_FLAT = 1e-9
NEGLIGIBLE = 1e-3
"""Share of a quantity's scale that is added to its difference from the coarser flow: two may agree by chance."""
_DIMENSIONED = {"m²/s²": "Pa", "m³/s²": "N/m", "m⁴/s²": "N", "m⁴/s³": "W/m"}
"""Units of kinematic quantities times kilograms per cubic metre, those of integrals per metre of depth."""


class Raw(NamedTuple):
    """Values of a quantity and how large such a quantity is, by which errors are judged; both one per time."""

    values: Float[np.ndarray, " times"]
    scale: Float[np.ndarray, " times"]


@dataclass(frozen=True)
class Kind:
    """What is measured.

    Attributes:
        name: Its words.
        arguments: What follows them.
        measure: Takes the flow and the quantity.
        unit: In metres and seconds; kinematic where it is proportional to the density.
        group: Quantities whose errors are calibrated together.
        most: Arguments at most; by default as many as there are.
    """

    name: str
    arguments: tuple[str, ...]
    measure: Callable[[SolvedFlow, Quantity], Raw]
    unit: str = ""
    group: str = ""
    most: int = 0

    @property
    def forcelike(self) -> bool:
        """Whether it is proportional to the density."""
        return self.unit in _DIMENSIONED

    @property
    def usage(self) -> str:
        return " ".join((self.name, *self.arguments)) + (" ..." if self.most else "")


@dataclass(frozen=True, eq=False)
class Measured:
    """A quantity of one flow.

    Attributes:
        name: Of the quantity.
        times: When; infinity is the steady state.
        values: One per time.
        error: The absolute error to be expected, the largest of all times; None where it is not known.
        bound: What the error of nine in ten such quantities is below.
        unit: In metres and seconds, for cases that are; "" for what has none.
        per_strouhal: Length over speed: a frequency times it is a Strouhal number.
        scale: What an error is small or large against, as the whole force is for the lift.
    """

    name: str
    times: tuple[float, ...]
    values: Float[np.ndarray, " times"]
    error: float | None
    bound: float | None
    unit: str
    per_strouhal: float = 1.0
    scale: float = math.nan

    def __str__(self) -> str:
        return self.line()

    def __repr__(self) -> str:
        return f"Measured({' '.join(self.line().split())})"

    def line(self, width: int = 0) -> str:
        """For people; names of one table take the same width."""
        unit = f" {self.unit}" if self.unit else ""
        plus = "" if self.error is None else f" ± {self.error:.2g}"
        start = f"{self.name:{width}}  {self.mean:.5g}{plus}{unit}"
        if len(self.values) == 1:
            return start
        more = f", frequency {self.frequency:.4g} (Strouhal number {self.strouhal:.4g})" if self.frequency else ""
        return f"{start} on average, {np.nanmin(self.values):.5g} to {np.nanmax(self.values):.5g}{more}"

    @property
    def mean(self) -> float:
        """Over time, by the trapezoidal rule; a steady state alone is its own mean."""
        times, values = self._finite
        return float(np.trapezoid(values, times) / (times[-1] - times[0])) if len(times) > 1 else float(self.values[-1])

    @property
    def amplitude(self) -> float:
        """Half of the difference between the largest and the smallest value over time."""
        _, values = self._finite
        return 0.5 * float(values.max() - values.min()) if len(values) > 1 else 0.0

    @property
    def frequency(self) -> float | None:
        """The dominant one; None where the values do not swing at least twice, or only by rounding."""
        times, values = self._finite
        if len(times) < 8 or not self.amplitude > 1e-6 * float(np.abs(values).max()):
            return None
        even = np.linspace(times[0], times[-1], 4 * len(times))
        signal = np.interp(even, times, values - self.mean)
        rising = np.flatnonzero((signal[:-1] < 0) & (signal[1:] >= 0))
        strongest = np.abs(np.fft.rfft((signal - signal.mean()) * np.hanning(len(signal)), 16 * len(signal)))
        place = int(strongest[1:].argmax()) + 1
        if len(rising) < 2 or place + 1 >= len(strongest):
            return None
        below, top, above = strongest[place - 1 : place + 2]
        place += 0.5 * (below - above) / (below - 2 * top + above)
        return float(place / (16 * len(signal) * (even[1] - even[0])))

    @property
    def strouhal(self) -> float | None:
        return None if self.frequency is None else self.frequency * self.per_strouhal

    @property
    def _finite(self) -> tuple[np.ndarray, np.ndarray]:
        kept = np.isfinite(self.times) & np.isfinite(self.values)
        return np.array(self.times)[kept], self.values[kept]

    def as_dict(self) -> dict[str, object]:
        """For JSON, which knows no NaN."""
        values = [None if math.isnan(each) else each for each in self.values.tolist()]
        found: dict[str, object] = {"name": self.name, "unit": self.unit, "values": values}
        found |= {"error": self.error, "bound": self.bound}
        if len(values) > 1:
            found |= {"mean": self.mean, "amplitude": self.amplitude}
            found |= {"frequency": self.frequency, "strouhal": self.strouhal}
        return found


@dataclass(frozen=True)
class Quantity:
    """A quantity of flows; `parse` makes it from a text.

    Attributes:
        kind: What is measured.
        arguments: Of it, such as patches.
        options: Numbers after the words along, about, speed, length and density.
    """

    kind: Kind
    arguments: tuple[str, ...] = ()
    options: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = (f"{name} {' '.join(f'{each:g}' for each in values)}" for name, values in self.options.items())
        return " ".join((self.kind.name, *map(shlex.quote, self.arguments), *words))

    def __repr__(self) -> str:
        return f"Quantity({self.name!r})"

    @property
    def patches(self) -> tuple[str, ...]:
        """Those of its arguments that name patches."""
        words = [*self.kind.arguments, *self.kind.arguments[-1:] * len(self.arguments)]
        return tuple(each for word, each in zip(words, self.arguments, strict=False) if word.startswith("PATCH"))

    def check(self, case: Case) -> None:
        """Refuse patches that the mesh of a case does not have."""
        known = case.mesh.patches
        for patch in self.patches:
            missing = [] if patch in known else [each for each in patch.split("+") if each not in known]
            if missing:
                raise ValueError(
                    f"{self.name!r} names the patch {missing[0]!r}, which the mesh does not have; its patches are "
                    f"{', '.join(sorted(known)) or 'none'}."
                )

    def of(self, outcome: Outcome | SolvedFlow) -> Measured:
        """Measure it.

        Args:
            outcome: A prediction.
        """
        flow = outcome if isinstance(outcome, SolvedFlow) else outcome.flow
        if flow is None:
            raise ValueError(f"{self.name!r} is a quantity of plane flows; this prediction is none.")
        self.check(flow.case)
        found = self.kind.measure(flow, self)
        density = self.options.get("density", (1.0,))[0]
        # The error of the flow that was solved says nothing about one with other physics.
        other = not isinstance(outcome, SolvedFlow) and outcome.expected.ignored
        error, bound = (None, None) if other else self._expected(flow, found)
        return Measured(
            name=self.name,
            times=flow.times,
            values=density * found.values,
            error=None if error is None else density * error,
            bound=None if bound is None else density * bound,
            unit=self.unit,
            per_strouhal=np.divide(*self.reference(flow)),
            scale=density * float(np.nanmax(np.abs(found.scale))),
        )

    def difference(self, flow: SolvedFlow, found: Raw) -> float | None:
        """How far the coarser flow is from it at the worst time, at least a small share of its scale."""
        if flow.coarser is None:
            return None
        apart = np.abs(self.kind.measure(flow.coarser, self).values - found.values) + NEGLIGIBLE * found.scale
        return float(np.nanmax(apart)) if np.isfinite(apart).any() else None

    def _expected(self, flow: SolvedFlow, found: Raw) -> tuple[float, float] | tuple[None, None]:
        factors, apart = factors_of(flow.level, self.kind.group), self.difference(flow, found)
        return (None, None) if factors is None or apart is None else (factors[0] * apart, factors[1] * apart)

    @property
    def unit(self) -> str:
        return _DIMENSIONED[self.kind.unit] if "density" in self.options else self.kind.unit

    def reference(self, flow: SolvedFlow) -> tuple[float, float]:
        """Length and speed of its coefficient: as given, else those of the flow.

        Of a force the length is the height of the patch across the flow.
        """
        speed = self.options.get("speed", (flow.speed,))[0]
        if "length" in self.options or self.kind.group != "force":
            return self.options.get("length", (flow.length,))[0], speed
        points = flow.points[flow.ends[flow.facets(self.patches[0])].ravel()]
        length, height = (float(np.ptp(points @ each)) for each in self.directions(flow))
        return height if height > _FLAT * length else length, speed

    def directions(self, flow: SolvedFlow) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
        """Of drag, and of lift to its left."""
        drag = np.array(self.options.get("along", flow.direction), float)
        size = np.linalg.norm(drag)
        if not size > 0:
            raise ValueError(f"{self.name!r} has no direction; give two numbers after along that are not both zero.")
        drag = drag / size
        return drag, np.array([-drag[1], drag[0]])
