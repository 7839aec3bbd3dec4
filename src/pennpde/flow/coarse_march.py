"""Where the flow network starts: a march of the plain scheme, or its steady state, on as many cells as a level allows.

    fast       cells as they are, Courant number 4; the network corrects velocity and pressure
    standard   cells split once, Courant number 1.4
    fine       cells split at least twice where that is affordable, Courant number 1.4

Each level takes three to six times as long as the one before. Only on `fast` is there something learned: on split cells
what the network takes away is less than what the same seconds buy in steps and cells (docs/flow.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.flow.balance import balance
from pennpde.flow.corrector import FEATURES, coarse_case, corrector
from pennpde.flow.march import FlowDivergedError
from pennpde.flow.problem import Problem
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import State, begin
from pennpde.models.boundary_profile import BoundaryProfile
from pennpde.penn import PENN
from pennpde.penn.limits import OutOfTimeError, limited, limits
from pennpde.penn.physics import Clue
from pennpde.penn.predictor import STEADY, Prediction
from pennpde.penn.start import Start, Started

FAST, STANDARD, FINE = "fast", "standard", "fine"
_COURANT = {0: 4.0, 1: 1.4}
"""By how often cells are split, how many of them fluid may cross in a step; the most accurate of a price."""
_FINE_COURANT = 1.4
_MOST_STRETCHED, _LARGEST = 2.0, 7.0
"""Of training: the mean ratio of a point's longest to its shortest edge, and the root of the area in inlet widths."""
_MOST_POINTS_SPLIT = 60_000
"""Meshes are split as long as they have no more points afterwards; those of users are fine enough beyond."""


class CoarseMarch(Start):
    """The plain scheme on cells split as often as a level wants it.

    Args:
        level: "fast", "standard" or "fine".
    """

    levels: ClassVar = (FAST, STANDARD, FINE)

    def __init__(self, level: str = STANDARD) -> None:
        super().__init__()
        if level not in self.levels:
            raise ValueError(f"level is {level!r}; it may be {', '.join(self.levels)}.")
        self.level = level
        # Not submodules: they have nothing that is trained.
        self._schemes: dict[tuple[int, float], FlowScheme] = {}
        self._marched: WeakKeyDictionary[Case, dict[tuple[object, ...], Prediction]] = WeakKeyDictionary()

    @property
    def output_times(self) -> tuple[float, ...]:
        return (4.0,)

    def splits(self, case: Case) -> int:
        """How often the cells of a case, in the network's units, are split on this level."""
        least = int(bool(BoundaryProfile.of(case).lost.any()))
        affordable = max(least, int(math.log(max(_MOST_POINTS_SPLIT / case.number_of_points, 1.0), 4.0)))
        if self.level == FAST:
            return least
        if self.level == STANDARD:
            return min(least + 1, affordable)
        return min(max(least + 2, FlowScheme().number_of_splits(case)), affordable)

    def scheme(self, case: Case) -> FlowScheme:
        """The scheme that marches on this level."""
        return self._scheme(self.splits(case))

    def _scheme(self, splits: int) -> FlowScheme:
        courant = _FINE_COURANT if self.level == FINE else _COURANT.get(splits, _FINE_COURANT)
        if (splits, courant) not in self._schemes:
            self._schemes[splits, courant] = FlowScheme(splits=splits, courant=courant).eval()
        return self._schemes[splits, courant]

    def prepare(self, case: Case) -> None:
        self.scheme(case).prepare(case)

    def can_keep(self, cases: Sequence[Case]) -> bool:
        return self._scheme(0).can_keep(cases)

    def points_solved(self, case: Case) -> int:
        return case.number_of_points * 4 ** self.splits(case)

    def clues(self, case: Case) -> Sequence[Clue]:
        return self.scheme(case).clues(case)

    def is_started(self, case: Case) -> bool:
        return case.features.keys() >= FEATURES

    def solve(self, case: Case, times: Sequence[float]) -> Started:
        wanted, splits = tuple(times), self.splits(case)
        found = self._march(case, wanted, splits)
        problem = self._scheme(splits).problem(case)
        learned = self.level == FAST and splits == 0 and _is_familiar(problem)
        start = begin(problem).velocity[:, problem.places].T if learned else None
        cases = []
        for place, time in enumerate(wanted):
            now = _at(found.fields, place, len(wanted))
            then = case.at(time) if case.changes_with_time and time != STEADY else case
            if start is None:
                cases.append(replace(then, initial=now))
            else:
                cases.append(coarse_case(then, now["u"], now["p"], start, time))
        uncorrected = {**found.fields, **found.balance} if learned else self._coarser(case, wanted, splits)
        return Started(tuple(cases), learned, found.solutions, uncorrected, found.balance, found.finer)

    def finished(self, case: Case, started: Case, fields: dict[str, Tensor]) -> dict[str, Tensor]:
        """With mass conserved in every cell of the mesh."""
        # One problem for all times, where conditions do not change: it is kept with the case.
        problem = self._scheme(0).problem(started if case.changes_with_time else case)
        found = conserving(problem, fields["u"])
        velocity = found.velocity[:, problem.places].T
        given = (fields["p"] - problem.jumps).to(problem.pressure)
        found = replace(found, pressure=problem.pressure.index_copy(0, problem.places, given))
        return {**fields, "u": velocity.to(fields["u"]), **balance(problem, BoundaryProfile.of(started), found)}

    def coarser(self, case: Case, times: Sequence[float]) -> Mapping[str, Tensor] | None:
        return self._coarser(case, tuple(times), self.splits(case))

    def _coarser(self, case: Case, wanted: tuple[float, ...], splits: int) -> Mapping[str, Tensor] | None:
        """On cells split once less; None where they are not split, or where that march gives nothing to go by."""
        if not splits:
            return None
        try:
            with limited():  # a sixth of what was spent already
                found = self._march(case, wanted, splits - 1)
        except FlowDivergedError:
            return None
        # A coarse solution that is on its way to somewhere else is no evidence.
        settled = all(bool(each.converged.all()) for each in found.solutions)
        return {**found.fields, **found.balance} if settled else None

    def _march(self, case: Case, wanted: tuple[float, ...], splits: int) -> Prediction:
        """Kept, because the next level asks for the same again."""
        scheme = self._scheme(splits)
        known = self._marched.setdefault(case, {})
        key = splits, scheme.courant, wanted, limits().iterations, limits().residual
        if key not in known:
            try:
                known[key] = scheme.solve(case, wanted)
            except OutOfTimeError as error:
                if error.times:  # what was reached is asked for again
                    known[splits, scheme.courant, error.times, None, None] = error.result
                raise
        return known[key]


def _is_familiar(problem: Problem) -> bool:
    """Whether cells and domain are like those that the corrector has learned from.

    On others it makes things worse: the wake of a cylinder in open flow came out a quarter too short, pressures in
    layered channels twice as wrong.
    """
    stretching, size = float(problem.cells.aspect_ratios().mean()), math.sqrt(float(problem.cells.areas.sum()))
    return stretching <= _MOST_STRETCHED and size <= _LARGEST


def _at(fields: Mapping[str, Tensor], place: int, times: int) -> dict[str, Tensor]:
    return {name: values[..., place] if times > 1 else values for name, values in fields.items()}


def conserving(problem: Problem, velocity: Float[Tensor, "points space"]) -> State:
    """The nearest flow whose fluxes conserve mass in every cell, by the factors of the pressure's equation.

    Args:
        problem: On the cells as they are.
        velocity: At the points of the mesh.
    """
    given = problem.velocity.index_copy(1, problem.places, velocity.detach().T.to(problem.velocity))
    return begin(replace(problem, velocity=torch.where(problem.free > 0, given, problem.velocity)))


def flow_network(
    width: int = 16, iterations: int = 5, hidden: int = 64, slices: int = 16, level: str = STANDARD
) -> PENN:
    """The flow network: a PENN that starts from a coarse march; for the arguments see `corrector`, `CoarseMarch`."""
    return corrector(width, iterations, hidden, slices, start=CoarseMarch(level))
