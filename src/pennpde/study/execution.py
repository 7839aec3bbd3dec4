"""Designs computed one after the other, in several processes, or on a Dask cluster; a broken one is a row."""

from __future__ import annotations

import errno
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.data import workers as pool
from pennpde.data.workers import Failure, Status
from pennpde.machine import check_device
from pennpde.penn.predictor import attempted
from pennpde.prediction import Outcome
from pennpde.study.designs import Design
from pennpde.study.study import TIME, Study
from pennpde.study.table import Journal, Row, Table, journal, read_table
from pennpde.study.thumbnails import thumbnail
from pennpde.trust.expected_error import REFUSED

_TOGETHER, _ON_A_DEVICE = 8, 256
"""Designs that one call of another process computes at most, which share what their mesh has in common; and those that
are marched side by side."""
Work = partial[list[Row]]
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_LONGEST = 500
_KNOWN: dict[str, Study] = {}


def run(
    study: Study,
    folder: Path | None,
    workers: int | None,
    scheduler: str | None,
    keep_fields: str,
    device: str,
    on_progress: Callable[[Status], None] | None,
) -> Table:
    """Compute what is not yet computed; for the arguments see `Study.run`."""
    study.check()
    if keep_fields and folder is None:
        raise ValueError("Fields are kept in the folder of a study; give one.")
    if device and study.accuracy is not None:
        raise ValueError("With an accuracy each design takes its own level: give a level to use a device.")
    if device and scheduler is None:  # that of a cluster is on its machines
        check_device(device)
    fields = folder / "fields" if folder is not None and keep_fields else None
    kept = nullcontext(Journal(None, {})) if folder is None else journal(folder, study.definition)
    with kept as found:
        if fields is not None:
            fields.mkdir(exist_ok=True)
        heard = on_progress or (lambda _: None)
        left = [design for design in study.designs if design.number not in found.rows]
        heard(_status(study, found.rows))
        work = partial(evaluate_all, study, fields=fields, suffix=keep_fields, device=device)
        for rows in _computed(study, left, workers, scheduler, work):
            for row in rows:
                found.append(row)
            heard(_status(study, found.rows))
        table = Table(tuple(found.rows[each.number] for each in study.designs))
    return table if folder is None else read_table(folder)


def _status(study: Study, rows: Mapping[int, Row]) -> Status:
    broken = sum(not row.quantities for row in rows.values())
    return Status(len(study.designs), len(rows) - broken, broken)


def _computed(
    study: Study, designs: Sequence[Design], workers: int | None, scheduler: str | None, work: Work
) -> Iterator[list[Row]]:
    groups = _groups(study, designs)
    together = _ON_A_DEVICE if work.keywords["device"] else _TOGETHER
    if scheduler is None and workers == 0:
        size = together if work.keywords["device"] else 1
        for place in range(0, len(groups), size):
            yield work(groups[place : place + size])
        return
    size = max(1, min(together, len(groups) // (4 * (workers or pool.processors()))))
    chunks = {f"{place}": groups[place : place + size] for place in range(0, len(groups), size)}
    lost: list[list[Design]] = []
    for name, result in _each(work, chunks, workers, scheduler):
        if isinstance(result, Failure) and (scheduler is not None or len(chunks[name]) > 1):
            lost += chunks[name]  # one of them kills its process; on a cluster it takes along what waits beside it
        else:
            yield _rows(result, chunks[name][0])
    for group in lost:  # alone, so that each answers for itself
        for _, result in _each(work, {"0": [group]}, 1, scheduler):
            yield _rows(result, group)


def _rows(result: list[Row] | Failure, designs: Sequence[Design]) -> list[Row]:
    return [Row(each.number, each.values, result.error) for each in designs] if isinstance(result, Failure) else result


def _each(
    work: Work, chunks: Mapping[str, list[list[Design]]], workers: int | None, scheduler: str | None
) -> Iterator[tuple[str, list[Row] | Failure]]:
    """By name the rows of several designs, or that their process has died; anything else ends the study."""
    arguments = {name: (work, chunk) for name, chunk in chunks.items()}
    found = (
        pool.each(_in_process, arguments, workers=workers) if scheduler is None else _on_cluster(arguments, scheduler)
    )
    for name, result in found:
        if isinstance(result, Failure) and result.error != pool.DIED:
            raise OSError(result.error)
        yield name, result


def _on_cluster(arguments: Mapping[str, tuple[Any, ...]], scheduler: str) -> Iterator[tuple[str, list[Row] | Failure]]:
    try:
        from distributed import Client, as_completed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "A Dask scheduler needs Dask: pip install 'pennpde[study]'. Without an address, processes of this machine "
            "do the work.",
            name=error.name,
        ) from error
    try:
        client = Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"There is no Dask scheduler at {scheduler!r} ({error}). Start one with `dask scheduler`, or leave the "
            "address out to work on this machine."
        ) from error
    with client:
        futures = {client.submit(_in_process, *given, pure=False): name for name, given in arguments.items()}
        for future in as_completed(futures):
            name = futures.pop(future)  # results are kept on the cluster as long as their futures are
            try:
                result = future.result()
            except (Exception, CancelledError) as error:
                if type(error).__name__ == "KilledWorker":
                    result = Failure(pool.DIED)
                elif isinstance(error, OSError) and error.errno in _FATAL:
                    raise
                else:
                    raise ConnectionError(
                        f"The Dask scheduler is gone ({error}). The rows that were complete are kept; start the same "
                        "command again when it is back."
                    ) from error
            yield name, result


def _groups(study: Study, designs: Sequence[Design]) -> list[list[Design]]:
    """Designs that differ in time only, which share a march; those of one shape follow each other."""
    names = study.origin.names
    groups: dict[tuple, list[Design]] = {}
    for design in designs:
        shape = tuple(sorted(design.part(names).items()))
        others = tuple(sorted((name, value) for name, value in design.values.items() if name != TIME))
        groups.setdefault((shape, others), []).append(design)
    first: dict[tuple, int] = {}
    for place, (shape, _) in enumerate(groups):
        first.setdefault(shape, place)
    return [groups[key] for key in sorted(groups, key=lambda key: first[key[0]])]


def _in_process(work: Work, groups: Sequence[Sequence[Design]]) -> list[Row]:
    """In another process, which keeps the study: its network and its case are read once."""
    study = work.args[0]
    if study.token not in _KNOWN:
        _KNOWN.clear()
        _KNOWN[study.token] = study
    return evaluate_all(_KNOWN[study.token], groups, **work.keywords)


def evaluate_all(
    study: Study,
    groups: Sequence[Sequence[Design]],
    fields: Path | None = None,
    suffix: str = "",
    device: str = "",
) -> list[Row]:
    """The rows of designs, those of a group differing in time only; what is wrong with a design is its reason."""
    moments = [sorted({each.values[TIME] for each in group}) if TIME in group[0].values else None for group in groups]
    asked = [(group[0].values, each) for group, each in zip(groups, moments, strict=True)]
    begin = time.perf_counter()
    if device:
        outcomes = study.predict_together(asked, device)
    else:  # one after the other, so that no more than one is kept
        outcomes = (attempted(study.predict, *each) for each in asked)
    rows: list[Row] = []
    for group, when, outcome in zip(groups, moments, outcomes, strict=True):
        made = attempted(_rows_of, study, group, when, outcome, fields, suffix)
        rows += _broken(group, made) if isinstance(made, Exception) else made
    seconds = (time.perf_counter() - begin) / max(len(rows), 1)
    return [replace(row, seconds=round(seconds, 4)) for row in rows]


def _rows_of(
    study: Study,
    group: Sequence[Design],
    moments: Sequence[float] | None,
    outcome: Outcome | Exception,
    fields: Path | None,
    suffix: str,
) -> list[Row]:
    if isinstance(outcome, Exception):
        raise outcome
    rows = []
    for design in group:
        own = outcome if moments is None else outcome.at(moments.index(design.values[TIME]))
        rows.append(_measured(study, design, own))
        if fields is not None:
            own.save(fields / f"{design.number:05d}{suffix}")
    return rows


def _broken(group: Sequence[Design], error: Exception) -> list[Row]:
    """Whatever is wrong with one design, the others are computed; a disk that is full is wrong with all."""
    if isinstance(error, OSError) and error.errno in _FATAL:
        raise error
    reason = " ".join(str(error.args[0] if isinstance(error, KeyError) and error.args else error).split())
    return [Row(each.number, each.values, reason[:_LONGEST] or type(error).__name__) for each in group]


def _measured(study: Study, design: Design, outcome: Outcome) -> Row:
    expected = {name: each.expected for name, each in outcome.expected.errors.items()}
    common: dict[str, Any] = {
        "expected": expected,
        "grade": outcome.expected.grade,
        "level": outcome.level,
        "picture": thumbnail(outcome),
    }
    if not all(values.isfinite().all() for values in outcome.fields.values()):
        return Row(design.number, design.values, "the predicted values are not finite", grade=outcome.expected.grade)
    reason = ""
    if not study.force:
        outcome, refused = outcome.usable()
        if outcome.expected.grade == REFUSED:
            return Row(design.number, design.values, f"refused: {' '.join(outcome.expected.warnings)}", **common)
        reason = (
            f"left out, expected error above 50 %: t = {', '.join(f'{each:g}' for each in refused)}" if refused else ""
        )
    numbers, errors = {}, {}
    for quantity in study.measures:
        try:
            found = quantity.of(outcome)
        except (ValueError, LookupError, ArithmeticError) as error:
            reason = "; ".join(filter(None, [reason, f"{quantity.name}: {error.args[0] if error.args else error}"]))
            continue
        numbers[quantity.name] = _listed(found.values)
        errors[quantity.name] = _listed(found.error)
    return Row(design.number, design.values, reason[:_LONGEST], outcome.times, numbers, errors, **common)


def _listed(values: Any) -> tuple[float | None, ...]:
    """Numbers for JSON, one for each time or one for all."""
    if values is None:
        return (None,)
    array = np.atleast_1d(np.asarray(values, dtype=float))
    return tuple(float(each) if np.isfinite(each) else None for each in array)
