"""Generating a dataset, on this machine or on a cluster, by Dask.

Workers solve and pack; they send the finished bytes back, and only this process writes to the folder of the dataset.
So the workers need no common disk with it, and one lock keeps the folder in order.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import traceback
import uuid
import zlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pennlab.datasets.packing import intact, pack
from pennlab.datasets.recipe import HopelessError, MissingProgramError, OtherRunsError, Product, Recipe, Report
from pennpde.data.storage import MANIFEST, DatasetError, Ledger, Manifest, read_manifest
from pennpde.data.workers import Status, processors
from pennpde.files import locked_folder, remove_leftovers

_LOG_LINES = 40


class GenerationError(RuntimeError):
    """Generation is impossible: no solver, no scheduler, or existing results of other settings."""


@dataclass(frozen=True)
class Summary:
    """Outcome for the requested cases.

    Attributes:
        kept: those that were complete before.
        failed: by name, what went wrong; the manifest has the tail of the log as well.
    """

    folder: Path
    made: tuple[str, ...]
    kept: tuple[str, ...]
    failed: Mapping[str, str]
    seconds: float


def generate(
    recipe: Recipe,
    folder: Path | str,
    *,
    only: Sequence[str] = (),
    splits: Sequence[str] = (),
    limit: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    on_progress: Callable[[Status], None] | None = None,
) -> Summary:
    """Generate a dataset; resumes an interrupted run.

    Each case is a file of its own until all that were asked for are made; then they are packed into shards, unless each
    has its own times. Cases that are complete and agree with their hashes are kept. A case that fails, or whose worker
    dies, is tried again; after three attempts the manifest records it with the tail of its log, and the others go on.

    Args:
        recipe: which dataset.
        folder: where it goes.
        only: names of cases, instead of all.
        splits: only cases of these.
        limit: at most so many cases, from all splits.
        workers: number of processes on this machine; 0 works in this process, without Dask. By default one for each
            processor, or only this process if there is a single case to do.
        scheduler: address of a running Dask scheduler, instead of workers of our own.
        on_progress: is called whenever something is done, from any thread.
    """
    folder, started = Path(folder), time.monotonic()
    wanted = _wanted(recipe, only, splits, limit)
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder, "the writing of a dataset"):
        remove_leftovers(folder)
        ledger = Ledger(folder, _opened(folder, recipe, wanted))
        kept = tuple(intact(folder, wanted, ledger.manifest))
        hopeless = recipe.known_failures()
        missing = [name for name in wanted if name not in set(kept) and name not in hopeless]
        if missing and scheduler is None:
            recipe.check_solver(missing)
        # Without the entries of cases that are about to be made, such as one with a damaged file.
        ledger.manifest = ledger.manifest.without(missing)
        _give_up(ledger, {name: hopeless[name] for name in wanted if name in hopeless})
        watch = _Watch(Status(len(kept) + len(missing), len(kept)), on_progress)
        if missing:
            tasks = recipe.tasks(missing)
            try:
                with _pool(recipe, workers, scheduler, len(tasks), watch) as pool:
                    _run(recipe, tasks, pool, ledger, watch)
            finally:
                # What stopped us is more interesting than that the manifest could not be written either.
                with suppress(OSError):
                    ledger.save()
            ledger.save()
        if recipe.packed:
            pack(folder)
    failed = {name: str(facts["error"]) for name, facts in ledger.manifest.failed.items() if name in set(missing)}
    made = tuple(name for name in missing if name not in failed)
    return Summary(folder, made, kept, failed, time.monotonic() - started)


def _wanted(recipe: Recipe, only: Sequence[str], splits: Sequence[str], limit: int | None) -> list[str]:
    for name in only:
        recipe.check(name)
    if only and not splits:
        return list(dict.fromkeys(only))[:limit]
    known = recipe.splits()
    if unknown := [split for split in splits if split not in known]:
        raise ValueError(f"The dataset {recipe.dataset!r} has no split {unknown[0]!r}; it has {', '.join(known)}.")
    members = _in_turn({split: known[split] for split in splits or known})
    if only:
        chosen = set(members)
        members = [name for name in dict.fromkeys(only) if name in chosen]
    return members[:limit]


def _in_turn(splits: Mapping[str, Sequence[str]]) -> list[str]:
    """All names, one of each split first and then in proportion, so that any number of them makes a small dataset."""
    places = {}
    for names in splits.values():
        # Neighbours in a list are much alike; the checksum of a name is as good as a random number.
        for number, name in enumerate(sorted(names, key=lambda name: zlib.crc32(name.encode()))):
            places[name] = (number > 0, (number + 0.5) / len(names))
    return sorted(places, key=lambda name: places[name])


def _run(recipe: Recipe, tasks: Sequence[tuple[str, ...]], pool: _Pool, ledger: Ledger, watch: _Watch) -> None:
    attempts: Counter[tuple[str, ...]] = Counter()
    last = 0.0
    for task in tasks:
        pool.submit(task)
    for task, outcome in pool.outcomes():
        if isinstance(outcome, Failure):
            if outcome.stops_all:
                raise GenerationError(outcome.error)
            attempts[task] += 1
            if attempts[task] < recipe.most_attempts and not outcome.hopeless:
                pool.submit(task)
                continue
            facts = {"attempts": attempts[task], "error": outcome.error, "log": outcome.log}
            _give_up(ledger, dict.fromkeys(task, facts))
            watch.over(task, failed=True)
        else:
            for product in outcome:
                ledger.add(product.name, product.content, product.facts)
            # All cases of a task that took long are saved: the next one may take as long, and be killed.
            if time.monotonic() - last > 1.0:
                ledger.save()
            last = time.monotonic()
            watch.over(task)


# The folder


def _opened(folder: Path, recipe: Recipe, wanted: Sequence[str]) -> Manifest:
    """The manifest of the folder, with the splits of these cases; that of other settings is refused."""
    settings = json.loads(json.dumps(recipe.settings()))
    known = Manifest(recipe.dataset, settings)
    if (folder / MANIFEST).exists():
        known = read_manifest(folder)
        if known.dataset != recipe.dataset:
            raise DatasetError(f"{folder} holds the dataset {known.dataset!r}; choose another folder.")
        changed = [key for key in settings if known.settings.get(key) != settings[key]]
        if changed:
            words = ", ".join(
                f"other settings of the {key}"
                if isinstance(settings[key], Mapping)
                else f"{key} {known.settings.get(key)!r} instead of {settings[key]!r}"
                for key in changed
            )
            raise DatasetError(f"{folder} was made with {words}; give the same options or choose another folder.")
    requested = {*wanted, *(name for names in known.splits.values() for name in names)}
    splits = {split: [name for name in names if name in requested] for split, names in recipe.splits().items()}
    return replace(known, splits=splits)


def _give_up(ledger: Ledger, failed: Mapping[str, Mapping[str, Any]]) -> None:
    """Record cases that could not be made, or are not tried."""
    ledger.manifest = replace(ledger.manifest, failed={**ledger.manifest.failed, **failed})
    ledger.save()


def failures(manifest: Manifest) -> dict[str, int]:
    """By reason, how many cases could not be made; paths and numbers are left out, so that equal reasons meet."""
    reasons = Counter(
        re.sub(r"(\S*/\S+|\d[\d.e+-]*)", "…", str(each.get("error"))) for each in manifest.failed.values()
    )
    return dict(reasons.most_common())


# The work


@dataclass(frozen=True)
class Failure:
    """An attempt that failed.

    Attributes:
        log: the tail of the solver's log, or of the traceback.
        stops_all: whether every other case would fail in the same way.
        hopeless: whether another attempt would end alike.
    """

    error: str
    log: str = ""
    stops_all: bool = False
    hopeless: bool = False


Outcome = list[Product] | Failure


def attempt(recipe: Recipe, task: tuple[str, ...], report: Report) -> Outcome:
    """Make the cases of a task."""
    try:
        return list(recipe.make(task, report))
    except (MissingProgramError, OtherRunsError) as error:
        return Failure(str(error), stops_all=True)
    except Exception as error:  # a worker must survive whatever a solver does
        log = getattr(error, "log_tail", "") or traceback.format_exc()
        message = f"{type(error).__name__}: {str(error).partition(_LOG_FOLLOWS)[0]}"
        tail = "\n".join(log.splitlines()[-_LOG_LINES:])
        return Failure(message, tail, hopeless=isinstance(error, HopelessError))


_LOG_FOLLOWS = "\nThe end of its log:"


def attempt_on_worker(recipe: Recipe, task: tuple[str, ...], topic: str) -> Outcome:
    """The same on a worker of Dask, which reports progress to the client at most once per second."""
    from distributed import get_worker

    worker, last = get_worker(), time.monotonic()

    def report(share: float) -> None:
        nonlocal last
        if time.monotonic() - last > 1.0:
            last = time.monotonic()
            worker.log_event(topic, {"task": list(task), "share": share})

    return attempt(recipe, task, report)


class _Watch:
    """Adds up the progress and calls the progress callback."""

    def __init__(self, status: Status, on_progress: Callable[[Status], None] | None) -> None:
        self.status, self.on_progress = status, on_progress
        self.shares: dict[tuple[str, ...], float] = {}
        self.tell()

    def under_way(self, task: tuple[str, ...], share: float) -> None:
        self.shares[task] = min(max(share, 0.0), 1.0) * len(task)
        self.tell()

    def over(self, task: tuple[str, ...], failed: bool = False) -> None:
        self.shares.pop(task, None)
        if failed:
            self.status = replace(self.status, failed=self.status.failed + len(task))
        else:
            self.status = replace(self.status, done=self.status.done + len(task))
        self.tell()

    def tell(self) -> None:
        if self.on_progress is not None:
            self.on_progress(replace(self.status, under_way=sum(list(self.shares.values()))))


class _Pool(ABC):
    """Where tasks are worked on. One may be submitted again while outcomes are taken."""

    @abstractmethod
    def submit(self, task: tuple[str, ...]) -> None: ...

    @abstractmethod
    def outcomes(self) -> Iterator[tuple[tuple[str, ...], Outcome]]: ...


class _ThisProcess(_Pool):
    def __init__(self, recipe: Recipe, watch: _Watch) -> None:
        self.recipe, self.watch = recipe, watch
        self.waiting: deque[tuple[str, ...]] = deque()

    def submit(self, task: tuple[str, ...]) -> None:
        self.waiting.append(task)

    def outcomes(self) -> Iterator[tuple[tuple[str, ...], Outcome]]:
        while self.waiting:
            task = self.waiting.popleft()
            yield task, attempt(self.recipe, task, lambda share, task=task: self.watch.under_way(task, share))


class _Dask(_Pool):
    def __init__(self, client: Any, recipe: Recipe, watch: _Watch) -> None:
        from distributed import as_completed

        self.client, self.recipe = client, recipe
        # Others may be using the same scheduler, for the same cases.
        self.topic = f"penn-{uuid.uuid4().hex}"
        self.futures = as_completed([])
        self.tasks: dict[str, tuple[str, ...]] = {}

        def hear(event: tuple[Any, Mapping[str, Any]]) -> None:
            watch.under_way(tuple(event[1]["task"]), event[1]["share"])

        client.subscribe_topic(self.topic, hear)

    def submit(self, task: tuple[str, ...]) -> None:
        key = f"{self.topic}-{task[0]}-{len(self.tasks)}"
        future = self.client.submit(attempt_on_worker, self.recipe, task, self.topic, key=key, pure=False)
        self.tasks[future.key] = task
        self.futures.add(future)

    def outcomes(self) -> Iterator[tuple[tuple[str, ...], Outcome]]:
        from distributed import KilledWorker

        for future in self.futures:
            task = self.tasks[future.key]
            try:
                outcome = future.result()
            except KilledWorker as error:
                outcome = Failure("The worker died while it made this case, perhaps for lack of memory.", str(error))
            except Exception as error:
                if self.client.status != "running":
                    raise GenerationError(
                        f"The Dask scheduler is gone ({error}). All cases that were complete are kept; start the same "
                        "command again when it is back."
                    ) from error
                outcome = Failure(f"{type(error).__name__}: {error}")
            future.release()
            yield task, outcome


@contextmanager
def _pool(
    recipe: Recipe, workers: int | None, scheduler: str | None, tasks: int, watch: _Watch
) -> Iterator[_ThisProcess | _Dask]:
    if scheduler is None and (workers == 0 or (workers is None and tasks == 1)):
        yield _ThisProcess(recipe, watch)
        return
    try:
        import dask.config
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Generating with several workers needs Dask: pip install dask distributed. With workers=0 this process "
            "does all the work, without Dask.",
            name=error.name,
        ) from error
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=20)
        except (OSError, ValueError) as error:
            raise GenerationError(
                f"There is no Dask scheduler at {scheduler!r} ({error}). Start one with `dask scheduler`, or leave the "
                "address out to work on this machine."
            ) from error
        with client:
            yield _Dask(client, recipe, watch)
        return
    number = min(workers or processors(), tasks)
    # A worker that dies takes all of its tasks with it, and Dask suspects every one of them. So it gets one at a time,
    # and we count the deaths, as we count other failures.
    settings = {"distributed.scheduler.worker-saturation": 1.0, "distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,  # a worker must not be ended because its solver's files fill the cache
            dashboard_address=":0",  # any free port: the usual one may be taken
            silence_logs=logging.CRITICAL,
            env={"OMP_NUM_THREADS": "1"},
        ) as cluster,
        _kept_alive(cluster, number),
        Client(cluster) as client,
    ):
        yield _Dask(client, recipe, watch)


@contextmanager
def _kept_alive(cluster: Any, workers: int, patience: float = 120.0) -> Iterator[None]:
    """Restart workers if none is left: Dask gives up on one that dies while it is starting."""
    finished = threading.Event()

    def look() -> None:
        last_seen = time.monotonic()
        while not finished.wait(patience / 20):
            if cluster.scheduler.workers:
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > patience:
                cluster.scale(0)
                cluster.scale(workers)
                last_seen = time.monotonic()

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        finished.set()
