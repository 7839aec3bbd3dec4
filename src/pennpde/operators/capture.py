"""Work on a GPU that is captured once and done again without launching its kernels one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch

_WARM_UP = 3
"""Times before a capture: kernels are compiled and memory is taken in them."""


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
