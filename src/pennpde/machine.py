"""The machine: its devices and threads, memory that is given back, and kernels that a GPU is told one by one.

Operations on a few thousand points are too small to be worth many threads, and threads that wait for a core which
another program uses hold up all others: on a busy machine with two cores a step took 33 s with two threads and 0.66 s
with one.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch

Subject = TypeVar("Subject")
Found = TypeVar("Found")
_POINTS_OF_A_THREAD = 10_000
_ON_A_GPU = 4
"""Threads for what is prepared on the CPU: many small operations."""
_WARM_UP = 3
"""Times before a capture: kernels are compiled and memory is taken in them."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 256 * 2**20
_LARGEST = 32 * 2**20
"""Arrays up to this size; the C library takes no larger number."""


def remembered(ask: Callable[[Subject], Found]) -> Callable[[Subject], Found]:
    """A function of one thing that works out its answer once, and keeps it for as long as the thing is in use."""
    known: WeakKeyDictionary[Any, Found] = WeakKeyDictionary()

    @wraps(ask)
    def answer(subject: Subject) -> Found:
        if subject not in known:
            known[subject] = ask(subject)
        return known[subject]

    return answer


class Graph(Protocol):
    """Work that was captured once; `replay` does it again with whatever its tensors hold by then."""

    def replay(self) -> None: ...


def can_capture(device: torch.device) -> bool:
    return device.type == "cuda"


def capture(work: Callable[[], object], begin: Callable[[], object]) -> Graph:
    """Do the work some times, each after `begin`, and then capture it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            begin()
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    begin()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()  # the first one uploads the graph
    torch.cuda.synchronize()
    return graph


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep up to 256 MB of freed memory for the next arrays; whether it understood.

    By default it returns arrays of a megabyte to the system as soon as they are freed, and every new one costs a page
    fault per 4 kB: a third of the time of a flow with 7,000 points. Holds for the whole process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not the GNU library: others decide for themselves
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))


def give_back_freed_memory() -> bool:
    """Return freed memory to the system now; whether the C library understood.

    For arrays that stay. They are put into gaps between short-lived ones, which then fit no longer: without this, a
    process that keeps a new array after each of many computations takes four times the memory of what it keeps.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False


# Devices and threads


def device_for(device: torch.device | str | None) -> torch.device:
    """The given device; by default the GPU where there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def check_device(name: str) -> None:
    """Refuse a device that PyTorch does not know, or that this machine does not have."""
    try:
        torch.zeros(1, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{name!r} cannot be used on this machine; take cpu, or cuda where there is a GPU. PyTorch says: {reason}"
        ) from None


def device_name(device: torch.device) -> str:
    """The name of a GPU or processor, for records."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def wait_for(device: torch.device) -> None:
    """Until a GPU has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def threads_for(points: float, device: torch.device) -> int:
    """Threads for operations on so many points, on this machine, now."""
    most = torch.get_num_threads()  # what OMP_NUM_THREADS or the user allows
    if device.type != "cpu":
        return min(most, _ON_A_GPU)
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
