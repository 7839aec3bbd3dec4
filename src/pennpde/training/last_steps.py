"""Gradients through the last steps of a network that marches in time.

A march of hundreds of steps keeps too much for a gradient, and the first steps have little left to say about its end.
So the march goes without gradient to near the end, and the gradient through the last steps: back-propagation through
time, truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from pennpde.operators.capture import nothing_captured

USUAL = 32
"""Steps where the settings say nothing."""


class LastSteps:
    """Switches gradients on when a march comes to its last steps.

    Args:
        part: The part of the network that each step calls once; its calls are counted.
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

    def __call__(self, key: Hashable, work: Callable[[], Tensor]) -> Tensor:
        """The outcome of a march, with gradient.

        Args:
            key: Of the march: how many steps it takes is known from the last time, as it changes little in training.
            work: Marches and returns a number.
        """
        if key not in self._calls:
            _, self._calls[key] = self._watched(work, None)
        outcome, self._calls[key] = self._watched(work, self._calls[key] - self.number)
        if not outcome.requires_grad:  # it ended much earlier than before
            outcome, self._calls[key] = self._watched(work, self._calls[key] - self.number)
        return outcome

    def _watched(self, work: Callable[[], Tensor], first: int | None) -> tuple[Tensor, int]:
        """The outcome with gradient from a call on (None: without), and how many calls there were."""
        calls = 0

        def count(*_: Any) -> None:
            nonlocal calls
            if first is not None and calls >= first:
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
