"""One function on many arguments: in this process, in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

Result = TypeVar("Result")


class SchedulerError(RuntimeError):
    """There is no Dask scheduler, or it is gone."""


@dataclass(frozen=True)
class Status:
    """Progress of work on many cases.

    Attributes:
        total: number of cases asked for.
        done: of these, the complete ones.
        failed: those given up.
        under_way: how much is done of the others, in cases.
    """

    total: int
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
    scheduler: str | None = None,
    on_progress: Callable[[Status], None] | None = None,
) -> Iterator[tuple[str, Result | Failure]]:
    """By name, what the function returns, or why it failed, as the results come.

    Args:
        work: a function of a module, which other processes can import.
        arguments: by name, for each call.
        workers: number of processes on this machine; 0: this one. By default one for each processor.
        scheduler: address of a running Dask scheduler instead.
        on_progress: is called at the start and after each result.
    """
    status = Status(len(arguments))
    heard = on_progress or (lambda _: None)
    heard(status)
    for name, result in _results(work, arguments, workers, scheduler):
        if isinstance(result, Failure):
            status = replace(status, failed=status.failed + 1)
        else:
            status = replace(status, done=status.done + 1)
        heard(status)
        yield name, result


def _results(
    work: Callable[..., Result], arguments: Mapping[str, tuple[Any, ...]], workers: int | None, scheduler: str | None
) -> Iterator[tuple[str, Result | Failure]]:
    if not arguments or (scheduler is None and workers == 0):
        for name, given in arguments.items():
            yield name, _attempt(work, *given)
        return
    lost: list[str] = []
    with _executor(min(workers or processors(), len(arguments)), scheduler) as executor:
        futures = {executor.submit(_attempt, work, *given): name for name, given in arguments.items()}
        for future in as_completed(futures):
            name = futures.pop(future)  # results may be large: none is kept after it was handed on
            try:
                yield name, future.result()
            except BrokenExecutor:
                lost.append(name)
            except Exception as error:
                if type(error).__name__ != "KilledWorker":
                    raise SchedulerError(
                        f"The Dask scheduler is gone ({error}). All cases that were complete are kept; start the same "
                        "command again when it is back."
                    ) from error
                yield name, Failure(DIED)
    for name in lost:
        # A process that dies takes the pool with it, and nobody says which call it was: each gets its own process.
        if len(arguments) == 1:
            yield name, Failure(DIED)
        else:
            yield from _results(work, {name: arguments[name]}, 1, None)


DIED = "the process that worked on it died, perhaps for lack of memory"


def _attempt(work: Callable[..., Result], *arguments: Any) -> Result | Failure:
    try:
        return work(*arguments)
    except Exception as error:  # a worker must survive whatever libraries do with damaged files
        return Failure(str(error))


@contextmanager
def _executor(processes: int, scheduler: str | None) -> Iterator[Executor]:
    if scheduler is not None:
        with connected(scheduler) as client:
            # A call on one worker may die with it; another attempt would kill the next worker, too.
            yield client.get_executor(pure=False, retries=0)
        return
    # A forked copy of this process would hang where torch has started threads.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_one_thread) as pool:
        yield pool


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def connected(scheduler: str) -> Any:
    """A client of a running Dask scheduler."""
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "A Dask scheduler needs Dask: pip install 'pennpde[generate]'. Without an address, processes of this "
            "machine do the work.",
            name=error.name,
        ) from error
    try:
        return Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"There is no Dask scheduler at {scheduler!r} ({error}). Start one with `dask scheduler`, or leave the "
            "address out to work on this machine."
        ) from error


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
