"""`Start`: a cheap solution from which a network starts, instead of the initial fields of the case.

The first is what an engineer would call a coarse solution: a march on the user's own cells, for example. The network
then only has to give what that misses, at any time for which the cheap solution can be had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.penn.predictor import Asked, Finer, attempted
from pennpde.penn.solver import Solution


@dataclass(frozen=True, eq=False)
class Started:
    """A cheap solution.

    Attributes:
        cases: The case at each time, its initial fields those of the cheap solution.
        corrected: Whether the network is to correct it.
        solutions: How it came about.
        coarser: The same fields by an even cheaper way, all times as a trailing axis as in `Prediction`; None where
            there is none.
        balance: What the cheap solution's own balance gives, see `Prediction`.
        finer: See `Prediction`.
    """

    cases: tuple[Case, ...]
    corrected: bool
    solutions: tuple[Solution, ...] = ()
    coarser: Mapping[str, Tensor] | None = None
    balance: Mapping[str, Tensor] = field(default_factory=dict)
    finer: Finer | None = None


class Start(Asked):
    """Gives cheap solutions of cases, at any time. Subclasses are final."""

    levels: ClassVar[tuple[str, ...]] = ()
    """By name, from fast to accurate, how much is spent on it."""
    level: str

    @property
    @abstractmethod
    def output_times(self) -> tuple[float, ...]:
        """When the fields hold where no times are given."""

    @abstractmethod
    def solve(self, case: Case, times: Sequence[float]) -> Started:
        """The cheap solution at increasing times; a steady state comes last."""

    def solve_together(
        self,
        cases: Sequence[Case],
        times: Sequence[Sequence[float]],
        device: torch.device | str,  # noqa: ARG002
    ) -> list[Started | Exception]:
        """Those of several cases, maybe side by side on a device; what is wrong with one takes its place."""
        return [attempted(self.solve, *each) for each in zip(cases, times, strict=True)]

    @abstractmethod
    def is_started(self, case: Case) -> bool:
        """Whether the initial fields of a case are those of a cheap solution already, as in training."""

    def learned(self, case: Case, time: float) -> Sequence[Case]:
        """The case with its cheap solution, on each level where a network learns to correct it."""
        found = self.solve(case, (time,))
        return found.cases if found.corrected else ()

    def finished(self, case: Case, started: Case, fields: dict[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        """The network's fields with what else the cheap solution guarantees, such as mass in every cell.

        Where that changes the balance, it is among them.

        Args:
            case: As it was given.
            started: As the network saw it.
            fields: The network's.
        """
        return fields

    def coarser(self, case: Case, times: Sequence[float]) -> Mapping[str, Tensor] | None:  # noqa: ARG002
        """The same fields in another way, cheaper and less accurate; None where there is none."""
        return None
