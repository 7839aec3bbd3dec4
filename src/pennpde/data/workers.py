"""One function on many arguments: in this process, or in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Status:
    """Progress of work on many cases.

    Attributes:
        total: number of cases asked for; None: not known.
        done: of these, the complete ones.
        failed: those given up.
        under_way: how much is done of the others, in cases.
    """

    total: int | None
    done: int = 0
    failed: int = 0
    under_way: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Why the work on one case failed."""

    error: str


def each(
    work: Callable[..., Result],
    arguments: Mapping[str, tuple[Any, ...]],
    *,
    workers: int | None = None,
    on_progress: Callable[[Status], None] | None = None,
) -> Iterator[tuple[str, Result | Failure]]:
    """By name, what the function returns, or why it failed, as the results come.

    Args:
        work: a function of a module, which other processes can import.
        arguments: by name, for each call.
        workers: number of processes on this machine; 0: this one. By default one for each processor.
        on_progress: is called at the start and after each result.
    """
    status = Status(len(arguments))
    heard = on_progress or (lambda _: None)
    heard(status)
    for name, result in _results(work, arguments, workers):
        if isinstance(result, Failure):
            status = replace(status, failed=status.failed + 1)
        else:
            status = replace(status, done=status.done + 1)
        heard(status)
        yield name, result


def _results(
    work: Callable[..., Result], arguments: Mapping[str, tuple[Any, ...]], workers: int | None
) -> Iterator[tuple[str, Result | Failure]]:
    if not arguments or workers == 0:
        for name, given in arguments.items():
            yield name, _attempt(work, *given)
        return
    lost: list[str] = []
    number = min(workers or processors(), len(arguments))
    # A forked copy of this process would hang where torch has started threads.
    with ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), initializer=_one_thread) as executor:
        futures = {executor.submit(_attempt, work, *given): name for name, given in arguments.items()}
        for future in as_completed(futures):
            name = futures.pop(future)  # results may be large: none is kept after it was handed on
            try:
                yield name, future.result()
            except BrokenExecutor:
                lost.append(name)
    for name in lost:
        # A process that dies takes the pool with it, and nobody says which call it was: each gets its own process.
        if len(arguments) == 1:
            yield name, Failure(DIED)
        else:
            yield from _results(work, {name: arguments[name]}, 1)


DIED = "the process that worked on it died, perhaps for lack of memory"


def _attempt(work: Callable[..., Result], *arguments: Any) -> Result | Failure:
    try:
        return work(*arguments)
    except Exception as error:  # a worker must survive whatever libraries do with damaged files
        return Failure(str(error))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
