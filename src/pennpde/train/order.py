"""Which cases a training step sees: depends only on seed and step, so that a resumed training sees the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

Item = TypeVar("Item")


def evenly(items: Sequence[Item], most: int | None) -> list[Item]:
    """At most so many of a list, evenly over all of it; None: all."""
    if most is None or len(items) <= most:
        return list(items)
    return [items[(2 * place + 1) * len(items) // (2 * most)] for place in range(most)]


class Order:
    """Which cases a step sees: every case once per epoch, each epoch in a different order."""

    def __init__(self, cases: int, batch_size: int, seed: int):
        self.cases, self.batch_size, self.seed = cases, batch_size, seed
        self._epochs: dict[int, list[int]] = {}

    def batches(self, step: int, count: int) -> Int[Tensor, "count batch"]:
        """The batches of `count` steps from `step` on. One may hold the end of an epoch and the start of the next."""
        first, last = step * self.batch_size, (step + count) * self.batch_size
        chosen = [self._epoch(place // self.cases)[place % self.cases] for place in range(first, last)]
        return torch.tensor(chosen).reshape(count, self.batch_size)

    def _epoch(self, number: int) -> list[int]:
        if number not in self._epochs:
            self._epochs = {old: order for old, order in self._epochs.items() if old == number - 1}
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + number)
            self._epochs[number] = torch.randperm(self.cases, generator=generator).tolist()
        return self._epochs[number]
