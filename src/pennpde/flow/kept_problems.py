"""Problems that are kept for as long as their cases are in use, and as long as there is room for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

from pennpde.case import Case
from pennpde.case.moments import TIME
from pennpde.flow.problem import Problem
from pennpde.machine import give_back_freed_memory

MOST_POINTS = 1_000_000
"""Of the cells that are solved, in all problems together: 1.6 GB on a CPU, much of it factors of the pressure's matrix.
A hundred runs fit. Of thousands only those used last are kept: to prepare one takes a tenth of a march."""
_GIVE_BACK_EVERY = 100_000
"""Points of new problems after which freed memory goes back to the system: each time costs a fifth of a march."""

Start = tuple[object, ...]


class KeptProblems:
    """Problems by case; those that were not used for longest are dropped when there are too many.

    Moments of one run start alike and share a problem.

    Args:
        most_points: Of all problems together; a single one may have more.
    """

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self.most_points, self._points_made = most_points, 0
        # In the order of their last use. A case that nobody holds any more takes its problem along.
        self._problems: WeakKeyDictionary[Case, tuple[Start, Problem]] = WeakKeyDictionary()

    def of(self, case: Case, make: Callable[[], Problem]) -> Problem:
        """The problem of a case, made where it is not known."""
        known = self._problems.pop(case, None)
        if known is None:
            start = _start(case)
            problem = next((problem for other, problem in self._problems.values() if other == start), None)
            known = (start, self._made(make) if problem is None else problem)
        self._problems[case] = known
        if self.number_of_points > self.most_points:
            self._drop(known[1])
        return known[1]

    def has_room_for(self, cases: Iterable[tuple[Case, int]]) -> bool:
        """Whether the problems of all cases, each with its number of points, can be kept together."""
        return sum({_start(case): points for case, points in cases}.values()) <= self.most_points

    @property
    def number_of_points(self) -> int:
        return sum({id(each): each.cells.number_of_points for _, each in self._problems.values()}.values())

    def _made(self, make: Callable[[], Problem]) -> Problem:
        problem = make()
        self._points_made += problem.cells.number_of_points
        if self._points_made > _GIVE_BACK_EVERY:
            give_back_freed_memory()
            self._points_made = 0
        return problem

    def _drop(self, last: Problem) -> None:
        """Make room, but keep the problem that was used last."""
        for case, (_, problem) in list(self._problems.items()):
            if problem is last:
                continue
            del self._problems[case]
            if self.number_of_points <= self.most_points:
                break


def _start(case: Case) -> Start:
    """Equal for two cases, both of which are still in use, only if their flows start alike on the same mesh.

    Things are the same object or not: to compare their numbers would take longer than it saves.
    """
    parameters = {name: value for name, value in case.parameters.items() if name != TIME or case.changes_with_time}
    conditions = (each for by_unknown in case.conditions.values() for each in by_unknown.values())
    return tuple(map(id, (case.mesh, *case.initial.values(), *conditions, *parameters.values())))
