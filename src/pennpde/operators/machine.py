"""What costs time between the products: memory that is given back, and kernels that a GPU is told one by one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Protocol

import torch

_WARM_UP = 3
"""Times before a capture: kernels are compiled and memory is taken in them."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 256 * 2**20
_LARGEST = 32 * 2**20
"""Arrays up to this size; the C library takes no larger number."""

_FORBIDDEN: ContextVar[bool] = ContextVar("nothing_captured", default=False)


class Graph(Protocol):
    """Work that was captured once; `replay` does it again with whatever its tensors hold by then."""

    def replay(self) -> None: ...


def can_capture(device: torch.device) -> bool:
    return device.type == "cuda" and not _FORBIDDEN.get()


@contextmanager
def nothing_captured() -> Iterator[None]:
    """For work that must really run: a replay has no gradient, and calls none of the functions it came from."""
    token = _FORBIDDEN.set(True)
    try:
        yield
    finally:
        _FORBIDDEN.reset(token)


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
