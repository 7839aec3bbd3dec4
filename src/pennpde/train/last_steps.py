"""Gradients through the last steps of a network that marches in time.

A march of hundreds of steps keeps too much for a gradient, and the first steps have little left to say about its end.
So the march goes without gradient to near the end, and the gradient through the last steps: back-propagation through
time, truncated. Where the time of the end is known, the lengths of the steps tell when it is near; otherwise the march
is made once to count its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pennpde.operators.machine import nothing_captured

USUAL = 32
"""Steps where the settings say nothing."""


class LastSteps:
    """Switches gradients on when a march comes to its last steps.

    Args:
        part: The part of the network that each step calls once; its calls are counted. Of a network that takes times,
            its last argument is the length of the step.
        number: Of steps with gradient.
    """

    def __init__(self, part: nn.Module, number: int):
        self.part, self.number = part, number
        self._calls: dict[Hashable, int] = {}

    @staticmethod
    def of(model: nn.Module, number: int | None) -> LastSteps | None:
        """For a network that names the part which its steps call, `called_each_step`; None for others."""
        name = getattr(model, "called_each_step", None)
        return None if name is None else LastSteps(model.get_submodule(name), USUAL if number is None else number)

    def __call__(self, key: Hashable, work: Callable[[], Tensor], end: float = math.inf) -> Tensor:
        """The outcome of a march, with gradient.

        Args:
            key: Of the march: how many steps it takes is known from the last time, as it changes little in training.
            work: Marches and returns a number.
            end: The time to which it marches, infinity where that is not known. With it nothing has to be remembered:
                about as many steps as were asked for have a gradient, fewer while steps still grow.
        """
        if math.isfinite(end):
            outcome, self._calls[key] = self._watched(work, self._near(end))
        else:
            if key not in self._calls:
                _, self._calls[key] = self._watched(work, lambda *_: False)
            outcome, self._calls[key] = self._watched(work, self._after(self._calls[key]))
        if not outcome.requires_grad:  # it ended much earlier than before, or than it should
            outcome, self._calls[key] = self._watched(work, self._after(self._calls[key]))
        return outcome

    def _after(self, calls: int) -> Callable[[int, Sequence[Any]], bool]:
        return lambda call, _: call >= calls - self.number

    def _near(self, end: float) -> Callable[[int, Sequence[Any]], bool]:
        now = 0.0

        def is_near(_: int, arguments: Sequence[Any]) -> bool:
            nonlocal now
            step = float(arguments[-1])
            # A step that calls twice, or that is taken again, counts twice; then there are a few more with gradient.
            left, now = (end - now) / step, now + step
            return left < self.number + 0.5

        return is_near

    def _watched(self, work: Callable[[], Tensor], is_near: Callable[[int, Sequence[Any]], bool]) -> tuple[Tensor, int]:
        """The outcome with gradient from the first call on that is near the end, and how many calls there were."""
        calls = 0

        def count(_: nn.Module, arguments: Sequence[Any]) -> None:
            nonlocal calls
            if is_near(calls, arguments):
                torch.set_grad_enabled(True)
            calls += 1

        hook = self.part.register_forward_pre_hook(count)
        try:
            # Without gradient a march may be captured; then its steps could not be counted, and the last would have
            # none either. `no_grad` also restores what `count` has switched on.
            with nothing_captured(), torch.no_grad():
                return work(), calls
        finally:
            hook.remove()
