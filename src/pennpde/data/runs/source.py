"""What every run can give, whatever wrote it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from pennpde.case import Case
from pennpde.data.runs.quantities import Quantities
from pennpde.data.runs.times import RunError

NOT_KNOWN = "no network knows this: "
"""Begins a note about what changed a run and no case can hold, such as a body force."""


@dataclass(frozen=True)
class End:
    """How far a run came.

    Attributes:
        finished: whether it came to its end, as far as can be told.
        reason: if not, in words.
    """

    finished: bool
    reason: str = ""


class Source(ABC):
    """A run, opened. Anything wrong with it is an error that says what, without the name of the run."""

    format: str
    """In words, such as "OpenFOAM, decomposed"."""
    notes: list[str]
    """What a user should know about how it was read."""

    @abstractmethod
    def quantities(self) -> Quantities:
        """Which fields and parameters are whose."""

    @abstractmethod
    def times(self) -> tuple[float, Sequence[float]]:
        """The start, and all times that it has, grown."""

    @abstractmethod
    def end(self) -> End:
        """Whether it came to its end."""

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
    def units(self) -> Mapping[str, tuple[int, ...]]:
        """By unknown, powers of kilogram, metre, second, kelvin ...; empty where the files do not say."""

    @abstractmethod
    def state(self, times: Sequence[float]) -> str:
        """A hash that changes when the files of the run do."""

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
