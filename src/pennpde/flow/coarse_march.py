"""Where the flow network starts: a march of the plain scheme, or its steady state, on as many cells as a level allows.

    fast       cells as they are, Courant number 4; the network corrects velocity and pressure, but not steady states
    standard   cells split once, Courant number 2; the network corrects these fields, too, and sees both marches
    fine       cells split at least twice where that is affordable, Courant number 1.4; nothing is learned

Each level takes three to six times as long as the one before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.flow.balance import balance
from pennpde.flow.compiled import begin
from pennpde.flow.corrector import FEATURES, coarse_case, corrector
from pennpde.flow.problem import Problem
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import State
from pennpde.models.flow_physics import PlaneFlowPhysics
from pennpde.models.inlet import BoundaryProfile
from pennpde.penn import PENN
from pennpde.penn.equation import Clue
from pennpde.penn.predictor import STEADY
from pennpde.penn.start import Start, Started

FAST, STANDARD, FINE = "fast", "standard", "fine"
_COURANT = {0: 4.0, 1: 2.0}
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

    @property
    def output_times(self) -> tuple[float, ...]:
        return (4.0,)

    def splits(self, case: Case) -> int:
        """How often the cells of a case, in the network's units, are split on this level."""
        least = int(bool(BoundaryProfile.of(case).lost.any()))
        affordable = max(least, int(math.log(max(_MOST_POINTS_SPLIT / case.number_of_points, 1.0), 2.0**case.space)))
        if self.level == FAST:
            return least
        if self.level == STANDARD:
            return min(least + 1, affordable)
        return min(max(least + 2, FlowScheme().number_of_splits(case)), affordable)

    def scheme(self, case: Case) -> FlowScheme:
        """The scheme that marches on this level."""
        return self._scheme(self.splits(case))

    def _courant(self, splits: int) -> float:
        return _FINE_COURANT if self.level == FINE else _COURANT.get(splits, _FINE_COURANT)

    def _scheme(self, splits: int) -> FlowScheme:
        courant = self._courant(splits)
        if (splits, courant) not in self._schemes:
            self._schemes[splits, courant] = FlowScheme(splits=splits, courant=courant).eval()
        return self._schemes[splits, courant]

    def prepare(self, case: Case) -> None:
        self.scheme(case).prepare(case)

    def can_keep(self, cases: Sequence[Case]) -> bool:
        return self._scheme(0).can_keep(cases)

    def points_solved(self, case: Case) -> int:
        return case.number_of_points * 2 ** (case.space * self.splits(case))

    def clues(self, case: Case) -> Sequence[Clue]:
        return self.scheme(case).clues(case)

    def is_started(self, case: Case) -> bool:
        return case.features.keys() >= FEATURES

    def solve(self, case: Case, times: Sequence[float]) -> Started:
        wanted, splits = tuple(times), self.splits(case)
        found = self._scheme(splits).solve(case, wanted)
        coarser = self._coarser(case, wanted, splits)
        # Two solutions tell enough about a steady state, too; a single one does not: training has none.
        enough = coarser is not None if splits else STEADY not in wanted
        start = None
        if self.level != FINE and splits <= 1 and enough:
            own = self._scheme(0).problem(case)
            start = begin(own).velocity[:, own.places].T if _is_familiar(own, case) else None
        learned = start is not None
        cases = []
        for place, time in enumerate(wanted):
            now = _at(found.fields, place, len(wanted))
            then = case.at(time) if case.changes_with_time and time != STEADY else case
            if start is None:
                cases.append(replace(then, initial=now))
                continue
            below = None if coarser is None else _at(coarser, place, len(wanted))
            change = None if below is None else (below["u"], below["p"])
            marched = {"splits": splits, "courant": self._courant(splits), "coarser": change}
            cases.append(coarse_case(then, now["u"], now["p"], start, time, **marched))
        if learned:  # what the network changes tells more about what is left than cells of twice the size
            coarser = {**found.balance, **(coarser or {}), **found.fields}
        return Started(tuple(cases), learned, found.solutions, coarser, found.balance, found.finer)

    def solve_together(
        self, cases: Sequence[Case], times: Sequence[Sequence[float]], device: torch.device | str
    ) -> list[Started | Exception]:
        for coarser in (0, 1):
            of_splits: dict[int, list[int]] = {}
            for place, case in enumerate(cases):
                of_splits.setdefault(self.splits(case) - coarser, []).append(place)
            for splits, places in of_splits.items():
                if splits < 0:
                    continue
                scheme = self._scheme(splits)
                scheme.marched_together([cases[place] for place in places], [times[place] for place in places], device)
        return super().solve_together(cases, times, device)  # what is known now is not marched again

    def learned(self, case: Case, time: float) -> Sequence[Case]:
        found = (CoarseMarch(level).solve(case, (time,)) for level in (FAST, STANDARD))
        return [started for each in found if each.corrected for started in each.cases]

    def finished(self, case: Case, started: Case, fields: dict[str, Tensor]) -> dict[str, Tensor]:
        """With fluxes that conserve mass in every cell: those of the march, or of what was corrected on own cells.

        Velocities at points stay the network's. To make straight lines between them conserve mass, too, would move them
        by the error of such lines, which is larger than what is left after training on runs of one family.
        """
        if float(started.parameters["splits"]) > 0:
            return fields
        # One problem for all times, where conditions do not change: it is kept with the case.
        problem = self._scheme(0).problem(started if case.changes_with_time else case)
        found = conserving(problem, fields["u"])
        given = (fields["p"] - problem.jumps).to(problem.pressure)
        found = replace(found, pressure=problem.pressure.index_copy(0, problem.places, given))
        return {**fields, **balance(problem, BoundaryProfile.of(started), found)}

    def coarser(self, case: Case, times: Sequence[float]) -> Mapping[str, Tensor] | None:
        return self._coarser(case, tuple(times), self.splits(case))

    def _coarser(self, case: Case, wanted: tuple[float, ...], splits: int) -> Mapping[str, Tensor] | None:
        """On cells split once less, which `fast` and `standard` solve as well; None where they are not split."""
        return self._scheme(splits - 1).as_coarser_solution(case, wanted) if splits else None


def _is_familiar(problem: Problem, case: Case) -> bool:
    """Whether cells and domain are like those that the corrector has learned from.

    On others it makes things worse: the wake of a cylinder in open flow came out a quarter too short, pressures in
    layered channels twice as wrong.
    """
    stretching, size = float(problem.cells.aspect_ratios().mean()), math.sqrt(float(problem.cells.areas.sum()))
    lost = bool(BoundaryProfile.of(case).lost.any())
    # There the reference length is that of the far field: bodies and wakes are smaller than any that was learned from.
    opened = PlaneFlowPhysics().kind(case, math.inf) == "open flow"
    plane = problem.cells.space == 2
    return plane and stretching <= _MOST_STRETCHED and size <= _LARGEST and not lost and not opened


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
