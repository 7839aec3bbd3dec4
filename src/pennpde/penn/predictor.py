"""`Predictor`: what a network must offer so that `predict` can use it: fields at times, with how they came about.

`seen_by` gives a case as a network sees it, complete and in the network's units. Prediction, training and evaluation
all go through this, so that the same data in SI units, millimetres or dimensionless give the same network and the same
relative errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.penn.equation import OUTFLOW, Clue, Physics
from pennpde.penn.solver import Solution

STEADY = float("inf")
"""The time of a steady state: where a flow goes if one waits for ever."""


@dataclass(frozen=True, eq=False)
class Finer:
    """A solution on split cells, of which the fields at the points of the mesh are a part.

    Attributes:
        split: The fields at all points of the split cells (`mesh.splitting.PlaneCells`), those of the mesh first.
        own: The same solution at the points of the mesh, before a network corrected it.
    """

    split: Mapping[str, Tensor]
    own: Mapping[str, Tensor]

    def map(self, change: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]) -> Finer:
        return Finer(change(self.split), change(self.own))


@dataclass(frozen=True, eq=False)
class Prediction:
    """Fields at the output, and how they came about."""

    fields: dict[str, Tensor]
    solutions: tuple[Solution, ...]
    """One per time step; empty where the network keeps no history."""
    round_off: dict[str, Tensor]
    """Largest Dirichlet error of each unknown that the pseudoinverse decoder left, before the last correction."""
    coarser: Mapping[str, Tensor] | None = None
    """The same fields, and the same balance, by a cheaper way; see `Predictor.coarser_solution`."""
    balance: Mapping[str, Tensor] = field(default_factory=dict)
    """What the network's own balance gives, see `BALANCE`; several times are a trailing axis. Empty without one."""
    finer: Finer | None = None
    """Where it was solved on split cells."""

    @property
    def outflow(self) -> Tensor | None:
        """What leaves the domain through each facet of its boundary; None where velocities have to be integrated."""
        return self.balance.get(OUTFLOW)


class Asked(nn.Module, ABC):
    """What may be asked of whatever solves a case: a network, or the cheap solution that it starts from."""

    def prepare(self, case: Case) -> None:
        """Compute what depends only on the mesh and keep it with the case."""

    def can_keep(self, cases: Sequence[Case]) -> bool:  # noqa: ARG002
        """Whether all that `prepare` computes for these cases is kept; otherwise to prepare all of them is in vain."""
        return True

    def points_solved(self, case: Case) -> int:
        """About how many points it computes on for a case, which tells how long it takes."""
        return case.number_of_points

    def clues(self, case: Case) -> Sequence[Clue]:  # noqa: ARG002
        """What only it knows about how wrong it may be on a case, such as the cells that it works on."""
        return ()


class Predictor(Asked):
    """A network that solves boundary value problems.

    Subclasses are final. They set `equation`, a `Physics`: what is known about the equation that they solve.
    """

    equation: Any

    @property
    def takes_times(self) -> bool:
        """Whether `solve` takes any times, also `STEADY`; otherwise it gives its own `output_times` only."""
        return False

    @property
    def takes_any_precision(self) -> bool:
        """Whether it computes in its own precision and gives fields in that of the case, whatever its parameters'."""
        return False

    @property
    def levels(self) -> tuple[str, ...]:
        """By name, from fast to accurate, how much it can spend on a prediction; empty where that is fixed."""
        return ()

    @property
    def level(self) -> str:
        """That of these on which it predicts; empty where it has none."""
        return ""

    def set_level(self, level: str) -> None:
        """Predict on another level from now on."""
        self._check_level(level)

    def _check_level(self, level: str) -> None:
        if level not in self.levels:
            known = f"it has {', '.join(self.levels)}" if self.levels else "it has none"
            raise ValueError(f"This network has no level {level!r} of accuracy; {known}.")

    @property
    def placement(self) -> tuple[torch.dtype, torch.device]:
        """The precision and the device in which it computes: those of its weights."""
        one = next(chain(self.parameters(), self.buffers()))
        return one.dtype, one.device

    @property
    @abstractmethod
    def output_times(self) -> tuple[float, ...]:
        """When the fields hold that come out where no times are given, in the network's units."""

    @property
    @abstractmethod
    def fulfils_dirichlet(self) -> bool:
        """Whether the structure guarantees prescribed values, so that the last round-off may be removed."""

    @abstractmethod
    def solve(self, case: Case, times: Sequence[float] | None = None) -> Prediction:
        """Predict, with what the certificate needs.

        Args:
            case: In the network's units.
            times: Increasing, in the network's units; `STEADY` may be the last. None: `output_times`. Several times
                are a trailing axis of the fields.
        """

    def solve_together(
        self,
        cases: Sequence[Case],
        times: Sequence[Sequence[float] | None],
        device: torch.device | str = "cpu",  # noqa: ARG002
    ) -> list[Prediction | Exception]:
        """What `solve` gives for each of several cases, maybe side by side; what is wrong with one takes its place.

        Args:
            cases: On the CPU.
            times: Of each.
            device: That does as much of the work as it can.
        """
        return [attempted(self.solve, *each) for each in zip(cases, times, strict=True)]

    def adapted(self, case: Case) -> Case:
        """The case with operators as this network wants them; the case itself where it has them already."""
        return case

    def learned(self, case: Case) -> Sequence[Case]:
        """The cases from which it learns what one case tells: most networks, from the case itself."""
        return (case,)

    def coarser_solution(self, case: Case, times: Sequence[float]) -> Mapping[str, Tensor] | None:  # noqa: ARG002
        """The same fields computed in another way, cheaper and less accurate: where both agree, both may be trusted.

        With their balance, if it has one. None where there is no such way. For the arguments see `solve`.
        """
        return None

    def only_own_times(self, times: Sequence[float] | None) -> None:
        """Refuse times that a network of fixed output times cannot give."""
        if times is not None and tuple(times) != self.output_times:
            own = ", ".join(f"{time:g}" for time in self.output_times)
            asked = ", ".join("steady" if time == STEADY else f"{time:g}" for time in times)
            raise ValueError(
                f"This network predicts only t = {own} in its own units, not {asked}: it was trained for that. Leave "
                "the times out, or take a network for any time."
            )


Result = TypeVar("Result")


def attempted(work: Callable[..., Result], *given: Any) -> Result | Exception:
    """What is returned, or what is wrong."""
    try:
        return work(*given)
    except Exception as error:
        return error


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
