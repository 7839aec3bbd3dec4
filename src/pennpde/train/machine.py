"""What a training runs on: threads of a CPU, a GPU.

Operations on a few thousand points are too small to be worth many threads, and threads that wait for a core which
another program uses hold up all others: on a busy machine with two cores a step took 33 s with two threads and 0.66 s
with one.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pennpde.case import Case

_POINTS_OF_A_THREAD = 10_000
_ON_A_GPU = 4
"""Threads for what is prepared on the CPU: many small operations."""


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
