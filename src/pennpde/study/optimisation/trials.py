"""Designs tried out: the flow of each, its quantities, and how far the size of the cells changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pennpde.case import Case
from pennpde.flow.march import FlowDivergedError
from pennpde.study.morphing import MorphError
from pennpde.study.optimisation.adjoint import Measure, gradients, value_of
from pennpde.study.optimisation.flows import Answer, Family, NoSteadyStateError, UnsoundShapeError
from pennpde.study.variables import Variable

CaseAt = Callable[[Mapping[str, float]], Case]
"""Makes the case of a design from its numbers."""
BROKEN = (NoSteadyStateError, UnsoundShapeError, MorphError, FlowDivergedError)
"""What ends a line search, but not a search."""
_ORDER = 3.0
"""A scheme of second order on cells twice as large is wrong by four times as much: the difference is three errors."""


@dataclass(frozen=True, eq=False)
class Designs:
    """The designs between some limits.

    Attributes:
        variables: What varies; positions count from 0 at their lower to 1 at their upper ends.
        case_at: Makes a case.
        family: What their flows have in common.
        measures: The quantities that count.
    """

    variables: Sequence[Variable]
    case_at: CaseAt
    family: Family
    measures: Sequence[Measure]

    def values(self, position: Float[np.ndarray, " variables"]) -> dict[str, float]:
        return {each.name: each.at(share) for each, share in zip(self.variables, position.tolist(), strict=True)}

    def position(self, values: Mapping[str, float]) -> Float[np.ndarray, " variables"]:
        return np.array([each.share(values[each.name]) for each in self.variables])

    def case(self, position: Float[np.ndarray, " variables"]) -> Case:
        return self.case_at(self.values(position))

    def trial(self, position: Float[np.ndarray, " variables"], near: Trial | None = None) -> Trial:
        """The flow of a design; raises what is in `BROKEN` where there is none.

        Args:
            position: Of the design.
            near: One on the same cells, whose flow the search for the steady state starts at.
        """
        case = self.case(position)
        flow = self.family.flow(case, like=None if near is None else near.answer.flow)
        return Trial(self, position, case, flow.solved(None if near is None else near.answer))


@dataclass(frozen=True, eq=False)
class Trial:
    """A design and its flow.

    Attributes:
        designs: Whose it is.
        position: Among them.
        case: Its own.
        answer: Its steady state.
    """

    designs: Designs
    position: Float[np.ndarray, " variables"]
    case: Case
    answer: Answer
    _coarse: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, float]:
        return self.designs.values(self.position)

    @cached_property
    def numbers(self) -> Float[np.ndarray, " measures"]:
        return np.array([value_of(self.answer, each) for each in self.designs.measures])

    @cached_property
    def gradients(self) -> Float[np.ndarray, "measures variables"]:
        """By position."""
        designs = self.designs
        return gradients(self.answer, designs.measures, designs.case, self.position, np.ones(len(self.position)))

    @cached_property
    def errors(self) -> Float[np.ndarray, " measures"]:
        """What the size of the cells adds to each number, as cells twice as large tell; NaN where they do not."""
        coarser = self.designs.family.coarser
        if coarser is None:
            return np.full(len(self.numbers), np.nan)
        try:
            answer = coarser.flow(self.case).solved()
        except BROKEN:
            return np.full(len(self.numbers), np.nan)
        return (np.array([value_of(answer, each) for each in self.designs.measures]) - self.numbers) / _ORDER
