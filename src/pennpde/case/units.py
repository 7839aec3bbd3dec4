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

    def dimensionless(self, case: Case) -> Case:
        """The case in these units."""

        def scaled(name: str, values: Tensor) -> Tensor:
            scale = self.scale(name)
            return (values - scale.zero) / scale.one

        def reference(name: str) -> Reference:
            scale = self.scale(name)
            return Reference(scale.one, scale.zero, self.length, self.time)

        return case.with_conditions(
            lambda name, each: each.in_units(reference(name)),
            mesh=case.mesh.with_points(case.mesh.points / self.length),
            initial={name: scaled(name, values) for name, values in case.initial.items()},
            parameters={name: value / self.scale(name).one for name, value in case.parameters.items()},
            features={name: values / self.scale(name).one for name, values in case.features.items()},
            targets={
                name: scaled(name, values) if name in case.initial else values for name, values in case.targets.items()
            },
            cached_operators=None,
        )

    def physical(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields of the dimensionless case in the units of the original one."""
        return {name: values * self.scale(name).one + self.scale(name).zero for name, values in fields.items()}


def _check_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"The reference {name} is {value}; it must be a positive number.")
