"""Units: a case in the reference scales of its equation, and its fields back in those of the user.

An equation knows which scales leave it as it is (`Equation.units`): flows are brought to an inlet of width and speed
one, and back, exactly. Nothing here depends on which equation that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from pennpde.case.case import Case
from pennpde.case.conditions import Reference
from pennpde.case.moments import unknown_of

_LARGEST = 1e30
_SAME = 1e-9
"""Relative: units this close to one are one. A width that was summed up over facets is not exact to the last bit."""


@dataclass(frozen=True)
class Scale:
    """Reference value and zero of an unknown, a parameter or a feature."""

    one: float = 1.0
    zero: float = 0.0


@dataclass(frozen=True)
class Units:
    """Reference scales.

    Attributes:
        length: What counts as one.
        time: Likewise.
        scales: Of unknowns, parameters and features by name; what is not named stays as it is.
    """

    length: float
    time: float = 1.0
    scales: Mapping[str, Scale] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("time", self.time)):
            _check_positive(name, value)

    @classmethod
    def of_speed(cls, length: float, speed: float, scales: Mapping[str, Scale]) -> Units:
        """Units in which the time is the one that a reference speed takes for the reference length."""
        _check_positive("speed", speed)
        return cls(length, length / speed, scales)

    @property
    def speed(self) -> float:
        return self.length / self.time

    def scale(self, name: str) -> Scale:
        """The scale of an unknown, a parameter or a feature."""
        return self.scales.get(name, Scale(self.time if name == "time" else 1.0))

    @property
    def is_one(self) -> bool:
        """Whether a case in these units is as it was."""
        ones = [self.length, self.time, *(scale.one for scale in self.scales.values())]
        zeros = [scale.zero for scale in self.scales.values()]
        return all(abs(one - 1) <= _SAME for one in ones) and all(abs(zero) <= _SAME for zero in zeros)

    def target_scale(self, name: str, unknowns: Mapping[str, Tensor]) -> Scale:
        """The scale of a target: that of its unknown, also where it is the steady state; others stay as they are."""
        unknown = unknown_of(name, unknowns)
        return Scale() if unknown is None else self.scale(unknown)

    def dimensionless(self, case: Case) -> Case:
        """The case in these units."""

        def scaled(scale: Scale, values: Tensor) -> Tensor:
            return (values - scale.zero) / scale.one

        def reference(name: str) -> Reference:
            scale = self.scale(name)
            return Reference(scale.one, scale.zero, self.length, self.time)

        return case.with_conditions(
            lambda name, each: each.in_units(reference(name)),
            mesh=case.mesh.with_points(case.mesh.points / self.length),
            initial={name: scaled(self.scale(name), values) for name, values in case.initial.items()},
            parameters={name: value / self.scale(name).one for name, value in case.parameters.items()},
            features={name: values / self.scale(name).one for name, values in case.features.items()},
            targets={
                name: scaled(scale, values) if (scale := self.target_scale(name, case.initial)) != Scale() else values
                for name, values in case.targets.items()
            },
            cached_operators=None,
        )

    def physical(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields of the dimensionless case in the units of the original one."""
        return {name: values * self.scale(name).one + self.scale(name).zero for name, values in fields.items()}


def _check_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"The reference {name} is {value}; it must be a positive number.")
    if not 1 / _LARGEST < value < _LARGEST:
        raise ValueError(f"The reference {name} is {value:g}, which no computation in these numbers survives.")
