"""Designs computed one after the other, in several processes, or on a Dask cluster; a broken one is a row."""

from __future__ import annotations

import errno
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.data import workers as pool
from pennpde.data.workers import Failure, Status
from pennpde.prediction import Outcome
from pennpde.study.designs import Design
from pennpde.study.study import TIME, Study
from pennpde.study.table import Journal, Row, Table, journal, read_table
from pennpde.study.thumbnails import thumbnail
from pennpde.trust.expected_error import REFUSED

_TOGETHER = 8
"""Designs that one call of another process computes at most; they share what their mesh has in common."""
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_LONGEST = 500
_KNOWN: dict[str, Study] = {}


def run(
    study: Study,
    folder: Path | None,
    workers: int | None,
    scheduler: str | None,
    keep_fields: str,
    on_progress: Callable[[Status], None] | None,
) -> Table:
    """Compute what is not yet computed; for the arguments see `Study.run`."""
    study.check()
    if keep_fields and folder is None:
        raise ValueError("Fields are kept in the folder of a study; give one.")
    fields = folder / "fields" if folder is not None and keep_fields else None
    kept = nullcontext(Journal(None, {})) if folder is None else journal(folder, study.definition)
    with kept as found:
        if fields is not None:
            fields.mkdir(exist_ok=True)
        heard = on_progress or (lambda _: None)
        left = [design for design in study.designs if design.number not in found.rows]
        heard(_status(study, found.rows))
        for rows in _computed(study, left, workers, scheduler, fields, keep_fields):
            for row in rows:
                found.append(row)
            heard(_status(study, found.rows))
        table = Table(tuple(found.rows[each.number] for each in study.designs))
    return table if folder is None else read_table(folder)


def _status(study: Study, rows: Mapping[int, Row]) -> Status:
    broken = sum(not row.quantities for row in rows.values())
    return Status(len(study.designs), len(rows) - broken, broken)


def _computed(
    study: Study,
    designs: Sequence[Design],
    workers: int | None,
    scheduler: str | None,
    fields: Path | None,
    suffix: str,
) -> Iterator[list[Row]]:
    groups = _groups(study, designs)
    if scheduler is None and workers == 0:
        for group in groups:
            yield evaluate(study, group, fields, suffix)
        return
    size = max(1, min(_TOGETHER, len(groups) // (4 * (workers or pool.processors()))))
    chunks = {f"{place}": groups[place : place + size] for place in range(0, len(groups), size)}
    arguments = {name: (study, chunk, fields, suffix) for name, chunk in chunks.items()}
    for name, result in _each(arguments, workers, scheduler):
        if isinstance(result, Failure) and len(chunks[name]) > 1:  # one design of them kills its process: which?
            apart = {f"{place}": (study, [group], fields, suffix) for place, group in enumerate(chunks[name])}
            for place, one in _each(apart, 1, scheduler):
                yield _rows(one, chunks[name][int(place)])
        else:
            yield _rows(result, chunks[name][0])


def _rows(result: list[Row] | Failure, designs: Sequence[Design]) -> list[Row]:
    return [Row(each.number, each.values, result.error) for each in designs] if isinstance(result, Failure) else result


def _each(
    arguments: Mapping[str, tuple[Any, ...]], workers: int | None, scheduler: str | None
) -> Iterator[tuple[str, list[Row] | Failure]]:
    """By name the rows of several designs, or that their process has died; anything else ends the study."""
    found = (
        pool.each(_evaluate_all, arguments, workers=workers) if scheduler is None else _on_cluster(arguments, scheduler)
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
        futures = {client.submit(_evaluate_all, *given, pure=False): name for name, given in arguments.items()}
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


def _evaluate_all(study: Study, groups: Sequence[Sequence[Design]], fields: Path | None, suffix: str) -> list[Row]:
    """In another process, which keeps the study: its network and its case are read once."""
    if study.token not in _KNOWN:
        _KNOWN.clear()
        _KNOWN[study.token] = study
    return [row for group in groups for row in evaluate(_KNOWN[study.token], group, fields, suffix)]


def evaluate(study: Study, designs: Sequence[Design], fields: Path | None = None, suffix: str = "") -> list[Row]:
    """The rows of designs that differ in time only; what is wrong with a design is its reason."""
    begin = time.perf_counter()
    moments = sorted({design.values[TIME] for design in designs}) if TIME in designs[0].values else None
    try:
        outcome = study.predict(designs[0].values, moments)
        rows = []
        for design in designs:
            own = outcome if moments is None else outcome.at(moments.index(design.values[TIME]))
            rows.append(_measured(study, design, own))
            if fields is not None:
                own.save(fields / f"{design.number:05d}{suffix}")
    except Exception as error:  # whatever is wrong with one design, the others are computed
        if isinstance(error, OSError) and error.errno in _FATAL:
            raise
        reason = " ".join(str(error.args[0] if isinstance(error, KeyError) and error.args else error).split())
        return [Row(each.number, each.values, reason[:_LONGEST] or type(error).__name__) for each in designs]
    seconds = (time.perf_counter() - begin) / len(designs)
    return [Row(**{**vars(row), "seconds": round(seconds, 4)}) for row in rows]


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
