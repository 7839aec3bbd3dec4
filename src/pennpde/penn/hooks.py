"""What an equation can declare, so that prediction, certificate, pictures and OpenFOAM need no field names."""

from __future__ import annotations

import math
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


@dataclass(frozen=True)
class Clue:
    """A number that says something about the error of a prediction and is measured without the true solution.

    Attributes:
        name: What is measured.
        value: On a scale on which differences count: of sizes the logarithm, see `logarithm`.
        worse: Whether a larger value can only mean a larger error; otherwise it just tells cases apart.
        remedy: What a user can do about a large value; empty: nothing.
    """

    name: str
    value: float
    worse: bool = True
    remedy: str = ""

    @classmethod
    def of_size(cls, name: str, size: float, *, worse: bool = True, remedy: str = "") -> Clue:
        """A clue from a size that is zero or positive, by its decimal logarithm."""
        return cls(name, logarithm(size), worse, remedy)


def logarithm(size: float) -> float:
    """The decimal logarithm of a size, between those of 1e-6 and 1e6; of what is not finite the largest."""
    largest = 1.0 / _SMALLEST
    return math.log10(largest if math.isnan(size) else min(max(size, _SMALLEST), largest))


_SMALLEST = 1e-6
