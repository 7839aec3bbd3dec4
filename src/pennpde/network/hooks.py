"""What an equation can declare, so that prediction, certificate, pictures and OpenFOAM need no field names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FoamName:
    """An unknown as OpenFOAM calls it.

    Attributes:
        name: Of the field's file, such as "U".
        dimensions: Powers of kilogram, metre, second, kelvin, mole, ampere and candela.
        has_reference: Whether `system/fvSolution` fixes its level (pRefCell, pRefValue) where no patch prescribes it.
        has_flux: Whether it is the velocity of an incompressible fluid, whose flux solvers store as `phi`.
    """

    name: str
    dimensions: tuple[int, ...]
    has_reference: bool = False
    has_flux: bool = False


@dataclass(frozen=True)
class Look:
    """How an unknown is drawn; a vector by its length.

    Attributes:
        title: Above the picture.
        signed: Whether its sign matters, so that the colours diverge from zero.
    """

    title: str
    signed: bool = False


@dataclass(frozen=True)
class Check:
    """A quantity measured on predicted fields without the true solution. Smaller is better.

    Attributes:
        name: What is measured.
        value: The number.
        text: The number in words, for people.
        limit: Above it the fields are wrong; None where only a person can judge.
        warning: The sentence to print above the limit.
        training_name: How its range in training is recorded; empty: it is not compared with training.
    """

    name: str
    value: float
    text: str
    limit: float | None = None
    warning: str = ""
    training_name: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the value is within its limit; None where it has none."""
        return None if self.limit is None else self.value <= self.limit  # NaN does not pass
