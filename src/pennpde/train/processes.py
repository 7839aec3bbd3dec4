"""Several processes that train one network: torchrun or `accelerate launch` starts them, accelerate joins them."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor


class Processes:
    """All processes of a training; with a single one, everything stays as given.

    Gradients are averaged by hand rather than by DistributedDataParallel: a network of this size is one message, and
    the step stays the same code, which a GPU can capture.
    """

    def __init__(self, device: torch.device | str | None):
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = 0
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.count == 1:
            return
        from accelerate import PartialState

        state = PartialState(cpu=self.device.type == "cpu")
        self.count, self.rank = state.num_processes, state.process_index
        if self.device.type != "cpu":  # of a CPU accelerate says "cpu:0", which torch takes for another device
            self.device = torch.device(state.device or self.device)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        if self.count == 1:
            return values
        from accelerate.utils import reduce

        return reduce(values, "mean")  # pyright: ignore[reportReturnType]

    def total(self, values: Tensor) -> Tensor:
        return self.mean(values) * self.count

    def same(self, value: Any) -> Any:
        """The main process's value, in all of them."""
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        held = [value]
        broadcast_object_list(held)
        return held[0]

    def share(self, batch_size: int) -> slice:
        """This process's part of a batch."""
        if batch_size % self.count:
            raise ValueError(
                f"A batch of {batch_size} cases does not divide into {self.count} processes; "
                f"take a multiple of {self.count}."
            )
        size = batch_size // self.count
        return slice(self.rank * size, (self.rank + 1) * size)
