"""How many threads of a CPU a training takes.

Operations on a few thousand points are too small to be worth many threads, and threads that wait for a core which
another program uses hold up all others: on a busy machine with two cores a step took 33 s with two threads and 0.66 s
with one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from pennpde.case import Case
from pennpde.train import state

_POINTS_OF_A_THREAD = 10_000
_ON_A_GPU = 4
"""For what is prepared on the CPU: many small operations."""


def threads_for(cases: Sequence[Case], batch_size: int, device: torch.device) -> int:
    """Threads for batches of these cases, on this machine, now."""
    most = torch.get_num_threads()  # what OMP_NUM_THREADS or the user allows
    if device.type != "cpu":
        return min(most, _ON_A_GPU)
    points = batch_size * sum(case.number_of_points for case in cases) / len(cases)
    return chosen(points, min(most, _cores()), _load())


def chosen(points: float, cores: int, load: float) -> int:
    """Threads for batches of this many points.

    Args:
        points: In a batch.
        cores: That may be used.
        load: How many of them other programs keep busy.
    """
    worth = int(points // _POINTS_OF_A_THREAD)
    idle = int(cores - load + 0.5)
    return max(1, min(worth, idle, cores))


def threads_of_before(folder: Path) -> int | None:
    """What the training in a folder ran with: another number would change the last bits."""
    found = state.load(folder)
    threads = None if found is None else found.plain.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
