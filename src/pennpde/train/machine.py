"""What a training runs on: processes, threads of a CPU, a GPU.

Operations on a few thousand points are too small to be worth many threads, and threads that wait for a core which
another program uses hold up all others: on a busy machine with two cores a step took 33 s with two threads and 0.66 s
with one.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from pennpde.case import Case

_POINTS_OF_A_THREAD = 10_000
_ON_A_GPU = 4
"""Threads for what is prepared on the CPU: many small operations."""


class Processes:
    """All processes of a training; with a single one, everything stays as given.

    Started by torchrun or `accelerate launch`, joined by accelerate. Gradients are averaged by hand rather than by
    DistributedDataParallel: a network of this size is one message, and the step stays the same code, which a GPU can
    capture.
    """

    def __init__(self, device: torch.device | str | None):
        self.count, self.rank, self.device = int(os.environ.get("WORLD_SIZE", "1")), 0, device_for(device)
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


def device_for(device: torch.device | str | None) -> torch.device:
    """The given device; by default the GPU where there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def device_name(device: torch.device) -> str:
    """The name of a GPU or processor, for records."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def wait_for(device: torch.device) -> None:
    """Until a GPU has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def threads_for(cases: Sequence[Case], batch_size: int, device: torch.device) -> int:
    """Threads for batches of these cases, on this machine, now."""
    most = torch.get_num_threads()  # what OMP_NUM_THREADS or the user allows
    if device.type != "cpu":
        return min(most, _ON_A_GPU)
    points = batch_size * sum(case.number_of_points for case in cases) / len(cases)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return chosen_threads(points, min(most, cores), load)


def chosen_threads(points: float, cores: int, load: float) -> int:
    """Threads for batches of so many points, on so many cores, of which other programs keep `load` busy."""
    worth = int(points // _POINTS_OF_A_THREAD)
    idle = int(cores - load + 0.5)
    return max(1, min(worth, idle, cores))


@contextmanager
def with_threads(number: int | None) -> Iterator[None]:
    """PyTorch with this many threads, and as before afterwards; None: its default."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
