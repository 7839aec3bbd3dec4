"""A case as a network sees it: complete, and in the network's units.

Prediction, training and evaluation all go through this, so that the same data in SI units, millimetres or dimensionless
give the same network and the same relative errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.penn.physics import Physics


@dataclass(frozen=True, eq=False)
class Seen:
    """A case as a network sees it.

    Attributes:
        case: Complete, in the network's units; the given one where nothing had to be changed.
        units: From these units to those of the user; None: they are the same.
    """

    case: Case
    units: Units | None

    def scale(self, name: str) -> float:
        """One unit of an unknown, a steady state of it or another target, in the user's units."""
        return 1.0 if self.units is None else self.units.target_scale(name, self.case.initial).one

    @property
    def length(self) -> float:
        return 1.0 if self.units is None else self.units.length

    @property
    def time(self) -> float:
        return 1.0 if self.units is None else self.units.time

    def physical(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields in the user's units."""
        return dict(fields) if self.units is None else self.units.physical(fields)


def seen_by(model: nn.Module | Any, case: Case) -> Seen:
    """A case as a network sees it in training and evaluation.

    Cases in the network's units already are not multiplied by one: they stay the same, bit for bit. A network that
    declares no equation, such as one of a user's own, sees every case as it is.
    """
    equation = getattr(model, "equation", None)
    if len(case.sizes) > 1 or not isinstance(equation, Physics):
        return Seen(case, None)
    if not equation.unknowns.keys() <= case.initial.keys():
        check_unknowns(model, case)  # which says so; a case may have further fields
    try:
        units = equation.training_units(case)
        complete = equation.complete(case)
    except ValueError as error:
        raise ValueError(f"Case {case.name!r}: {error}" if case.name else str(error)) from error
    if units is None or units.is_one:
        return Seen(complete, None)
    return Seen(units.dimensionless(complete), units)


def check_unknowns(model: nn.Module | Any, case: Case) -> None:
    """Refuse a case with other unknowns than those that the network solves for."""
    equation = getattr(model, "equation", None)
    if not isinstance(equation, Physics):
        return
    unknowns = equation.unknowns
    if case.initial.keys() != unknowns.keys():
        raise ValueError(
            f"The network solves for {', '.join(sorted(unknowns))}, but the unknowns of the case are "
            f"{', '.join(sorted(case.initial))}. Choose another network, or give just these."
        )
    for name, rank in unknowns.items():
        if case.initial[name].ndim - 1 != rank:
            kinds = ("a scalar", "a vector", "a tensor")
            raise ValueError(
                f"{name} is {kinds[case.initial[name].ndim - 1]} in the case, but {kinds[rank]} for the network. Its "
                "initial field decides: a number is a scalar, a list of numbers a vector, a list of lists a tensor."
            )
