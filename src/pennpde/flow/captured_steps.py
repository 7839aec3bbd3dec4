"""Steps on a GPU: captured once, then replayed, so that launching a thousand small kernels costs nothing.

A captured step cannot decide how many iterations its momentum equation needs. So there is one graph for each of a few
numbers of iterations; a step whose iterations did not suffice is taken again with more, and so are those after it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pennpde.flow.krylov import Effort
from pennpde.flow.problem import Problem
from pennpde.flow.step import State, advance
from pennpde.machine import Graph, capture

_LOGGER = logging.getLogger(__name__)

ITERATIONS = (6, 12, 24, 60)
_CALM_STEPS = 20
"""After so many steps without need for more iterations, fewer are tried."""


@dataclass(frozen=True, eq=False)
class _Graphs:
    """Graphs of one problem, by the place of their number of iterations, and the tensors from which they read."""

    problem: Problem
    effort: Effort
    inputs: State
    length: Tensor
    made: dict[int, tuple[Graph, list[State]]] = field(default_factory=dict)

    @staticmethod
    def of(problem: Problem, effort: Effort, state: State, step: Tensor) -> _Graphs:
        assert state.before is not None
        velocity, fluxes, last = state.before
        before = (velocity.clone(), fluxes.clone(), last.clone())
        inputs = State(state.velocity.clone(), state.pressure.clone(), state.fluxes.clone(), before)
        return _Graphs(problem, effort, inputs, step.clone())

    def are_for(self, problem: Problem, effort: Effort) -> bool:
        return self.problem is problem and self.effort == effort

    def read(self, state: State, step: Tensor) -> None:
        for own, given in zip(_tensors(self.inputs), _tensors(state), strict=True):
            own.copy_(given)
        self.length.copy_(step)

    def replayed(self, place: int) -> State:
        """The state after a step; the next replay writes over it."""
        if place not in self.made:
            fixed = replace(self.effort, most=ITERATIONS[place], look=0)
            results: list[State] = []

            def work() -> None:
                results[:] = [advance(self.problem, self.inputs, self.length, effort=fixed)]

            with torch.no_grad():
                self.made[place] = capture(work, lambda: None), results
        graph, results = self.made[place]
        graph.replay()
        return results[0]


class CapturedSteps:
    """Takes steps of one flow, as `advance` does, without derivatives; also where they cannot be captured."""

    def __init__(self) -> None:
        self.graphs: _Graphs | None = None
        self.place, self.calm, self.fails = 0, 0, False

    def __call__(
        self,
        problem: Problem,
        state: State,
        step: Tensor,
        *,
        passes: int = 1,
        effort: Effort | None = None,
    ) -> State:
        """The state a step later; see `advance`."""
        if state.before is None or passes > 1 or self.fails:  # the first step, taken once in a flow, is not captured
            return advance(problem, state, step, passes=passes, effort=effort)
        try:
            return self._replayed(problem, state, step, effort or Effort())
        except RuntimeError as error:  # of a driver, or memory that another program holds: slower steps still work
            self.fails, self.graphs = True, None
            _LOGGER.warning("steps could not be captured: %s", str(error).partition("\n")[0])
            return advance(problem, state, step, effort=effort)

    def _replayed(self, problem: Problem, state: State, step: Tensor, effort: Effort) -> State:
        if self.graphs is None or not self.graphs.are_for(problem, effort):
            self.graphs = _Graphs.of(problem, effort, state, step)
        self.graphs.read(state, step)
        if self.calm >= _CALM_STEPS:
            self.place, self.calm = max(0, self.place - 1), 0
        self.calm += 1
        result = self.graphs.replayed(self.place)
        while self.place + 1 < len(ITERATIONS) and not _suffices(result):
            self.place, self.calm = self.place + 1, 0
            result = self.graphs.replayed(self.place)
        new = (result.velocity.clone(), result.pressure.clone(), result.fluxes.clone())
        return State(*new, (state.velocity, state.fluxes, step), result.left)


def _suffices(state: State) -> bool:
    return state.left is not None and bool((state.left <= 1.0).all())


def _tensors(state: State) -> tuple[Tensor, ...]:
    assert state.before is not None
    return state.velocity, state.pressure, state.fluxes, *state.before
