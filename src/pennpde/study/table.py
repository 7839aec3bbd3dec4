"""The rows of a study: kept in a file that only grows, and written as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import IO, Any

from pennpde.files import locked_folder, plain, replacing, write_atomically, write_json
from pennpde.penn import STEADY

ROWS, VERIFIED, STUDY = "rows.jsonl", "verified.jsonl", "study.json"
_SYNC = 2.0
"""Seconds after which rows are flushed to the disk: each time costs some milliseconds."""
_SHOWN = 20
"""Rows of a table in a notebook."""
Numbers = Mapping[str, Sequence[float | None]]
"""By quantity, a number for each time, or one for all."""


@dataclass(frozen=True)
class Row:
    """One design.

    Attributes:
        design: Its number.
        values: By variable.
        reason: Why there are no numbers, or not all; empty: there are.
        times: When, infinity for the steady state.
        quantities: Measured.
        errors: Expected, absolute, of these.
        expected: Expected relative error by unknown.
        grade: Of the prediction.
        level: Of accuracy.
        seconds: It took.
        picture: A small PNG file in base64.
    """

    design: int
    values: Mapping[str, float]
    reason: str = ""
    times: Sequence[float] = ()
    quantities: Numbers = field(default_factory=dict)
    errors: Numbers = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    grade: str = ""
    level: str = ""
    seconds: float = 0.0
    picture: str = ""

    @property
    def line(self) -> str:
        """As one line of JSON."""
        entries = asdict(self)
        entries["times"] = ["steady" if each == STEADY else each for each in self.times]
        return json.dumps(plain(entries), allow_nan=False)

    @staticmethod
    def of(line: str | bytes) -> Row:
        entries = json.loads(line)
        entries["times"] = tuple(STEADY if each == "steady" else each for each in entries["times"])
        for name in ("quantities", "errors"):
            entries[name] = {quantity: tuple(values) for quantity, values in entries[name].items()}
        return Row(**entries)


@dataclass(frozen=True)
class Verified:
    """What a solver found for a design.

    Attributes:
        design: Its number.
        solver: Its program.
        quantities: Measured on its fields.
        seconds: It took.
        reason: Why there are no numbers; empty: there are.
        folder: Of its case.
    """

    design: int
    solver: str
    quantities: Numbers = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""
    folder: str = ""


@dataclass(frozen=True)
class Table:
    """All rows of a study, in the order of the designs.

    Attributes:
        rows: That are computed.
        verified: By number of the design, what a solver found.
    """

    rows: tuple[Row, ...]
    verified: Mapping[int, Verified] = field(default_factory=dict)

    def __repr__(self) -> str:
        broken = sum(not row.quantities for row in self.rows)
        return f"Table({len(self.rows)} designs, {broken} without numbers; {', '.join(self.columns)})"

    def __getitem__(self, name: str) -> list[Any]:
        columns = self.columns
        if name not in columns:
            raise KeyError(f"There is no column {name!r}; the table has {', '.join(columns)}.")
        return columns[name]

    def __len__(self) -> int:
        return len(self.rows)

    def to_pandas(self) -> Any:
        """The columns as a DataFrame of pandas, where that is installed."""
        from pandas import DataFrame  # pyright: ignore[reportMissingImports]

        return DataFrame(self.columns).set_index("design")

    def _repr_html_(self) -> str:
        """The first rows, for a notebook; the report has all of them."""
        columns = {name: each for name, each in self.columns.items() if any(value not in (None, "") for value in each)}
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        lines = zip(*([_shown(value) for value in each[:_SHOWN]] for each in columns.values()), strict=True)
        body = "".join(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in line)}</tr>" for line in lines)
        more = f"<p>{len(self) - _SHOWN} more designs</p>" if len(self) > _SHOWN else ""
        return f"<table><tr>{head}</tr>{body}</table>{more}"

    @property
    def names(self) -> list[str]:
        """The quantities."""
        return list(dict.fromkeys(name for row in self.rows for name in row.quantities))

    @property
    def columns(self) -> dict[str, list[Any]]:
        """By title, a value for each row; None where there is none."""
        first: dict[str, list[Any]] = {"design": [row.design for row in self.rows]}
        for name in dict.fromkeys(name for row in self.rows for name in row.values):
            first[name] = [row.values.get(name) for row in self.rows]
        for name in self.names:
            for title, place in self.places(name):
                first[title] = [_number(row.quantities.get(name), place) for row in self.rows]
                first[f"{title} error"] = [_number(row.errors.get(name), place) for row in self.rows]
                if self.verified:
                    theirs = [self._verified(row.design, name, place) for row in self.rows]
                    first[f"{title} solver"] = theirs
                    first[f"{title} actual error"] = [
                        None if one is None or other is None else one - other
                        for one, other in zip(first[title], theirs, strict=True)
                    ]
        for name in dict.fromkeys(name for row in self.rows for name in row.expected):
            first[f"expected error {name} (%)"] = [_percent(row.expected.get(name)) for row in self.rows]
        if self.verified:
            checked = [self.verified.get(row.design) for row in self.rows]
            first["solver"] = [each and each.solver for each in checked]
            first["solver seconds"] = [each and each.seconds for each in checked]
            first["solver reason"] = [each.reason if each else "" for each in checked]
        rest = ("grade", "level", "seconds", "reason")
        return first | {name: [getattr(row, name) for row in self.rows] for name in rest}

    def places(self, name: str) -> list[tuple[str, int]]:
        """The titles of the columns of a quantity, and the places of their numbers: one for each time."""
        longest = max((row for row in self.rows), key=lambda row: len(row.quantities.get(name, ())))
        count = len(longest.quantities.get(name, ()))
        if count <= 1:
            return [(name, 0)]
        moments = ["steady" if each == STEADY else f"{each:g}" for each in longest.times]
        return [(f"{name} at {moment}", place) for place, moment in enumerate(moments[:count])]

    def _verified(self, design: int, name: str, place: int) -> float | None:
        found = self.verified.get(design)
        return None if found is None else _number(found.quantities.get(name), place)

    def best(self, quantity: str = "", number: int = 1, *, largest: bool = False) -> list[Row]:
        """The designs with the smallest (or largest) last number of a quantity; by default of the first one."""
        name = self._name(quantity)
        rows = [row for row in self.rows if _number(row.quantities.get(name), -1) is not None]
        return sorted(rows, key=lambda row: (-1 if largest else 1) * (_number(row.quantities[name], -1) or 0.0))[
            :number
        ]

    def uncertain(self, quantity: str = "", number: int = 1) -> list[Row]:
        """The designs with the largest expected error of a quantity, or of the fields where it has none."""
        name = self._name(quantity)

        def doubt(row: Row) -> float:
            known = _number(row.errors.get(name), -1)
            return max(row.expected.values(), default=0.0) if known is None else known

        return sorted((row for row in self.rows if row.quantities), key=doubt, reverse=True)[:number]

    def _name(self, quantity: str) -> str:
        if quantity and quantity not in self.names:
            raise KeyError(f"The study has no quantity {quantity!r}; it has {', '.join(self.names) or 'none'}.")
        if not self.names:
            raise ValueError("No design of the study has numbers; the column reason says why.")
        return quantity or self.names[0]

    def save(self, path: Path | str) -> None:
        """Write it as .csv, or as .parquet where pyarrow is installed."""
        path = Path(path)
        columns = self.columns
        if path.suffix == ".parquet":
            try:
                from pyarrow import parquet, table
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(
                    "A .parquet file needs pyarrow: pip install 'pennpde[study]'. The .csv file has the same table.",
                    name=error.name,
                ) from error
            with replacing(path) as temporary:
                parquet.write_table(table(columns), temporary)
            return
        if path.suffix != ".csv":
            raise ValueError(f"{path.name} must end in .csv or .parquet.")
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(map(_cell, column) for column in columns.values()), strict=True))
        write_atomically(path, text.getvalue())


def _number(numbers: Sequence[float | None] | None, place: int) -> float | None:
    if not numbers or (place >= len(numbers) and len(numbers) > 1):
        return None
    return numbers[place if len(numbers) > 1 else 0]


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _cell(value: Any) -> Any:
    return "" if value is None else repr(value) if isinstance(value, float) else value


# The folder of a study


class Journal:
    """The rows that are computed, in a file that only grows: whatever ends the process, all but the last are kept."""

    def __init__(self, stream: IO[bytes] | None, rows: dict[int, Row]) -> None:
        self.rows, self._stream, self._synced = rows, stream, time.monotonic()

    def append(self, row: Row) -> None:
        if self._stream is not None:
            self._written(self._stream, row)
        self.rows[row.design] = row

    def _written(self, stream: IO[bytes], row: Row) -> None:
        stream.write(row.line.encode() + b"\n")
        stream.flush()
        if time.monotonic() - self._synced > _SYNC:
            os.fsync(stream.fileno())
            self._synced = time.monotonic()


@contextmanager
def journal(folder: Path, definition: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal of a study in its folder, which it alone may use; another study there is an error."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder, "a study"):
        _check_same(folder, definition)
        path = folder / ROWS
        with path.open("ab") as stream:
            rows = {row.design: row for row in map(Row.of, _whole_lines(path))}
            try:
                yield Journal(stream, rows)
                stream.flush()
                os.fsync(stream.fileno())
            except OSError as error:
                if error.filename is not None or not error.strerror:
                    raise
                raise OSError(
                    error.errno,
                    f"{error.strerror}: {path}. The rows of {len(rows)} designs are kept; make room, then start the "
                    "same command again",
                ) from error


def _check_same(folder: Path, definition: Mapping[str, Any]) -> None:
    known = folder / STUDY
    if not known.exists():
        write_json(known, definition)
        return
    before = json.loads(known.read_bytes())
    now = json.loads(json.dumps(plain(definition)))
    if differing := sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)):
        raise ValueError(
            f"{folder} has another study: {', '.join(differing)} differ. Choose another --out, or remove it."
        )


def _whole_lines(path: Path) -> list[bytes]:
    """The complete lines of a file; the part of one whose writer was stopped is cut off."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    return whole.splitlines()


def read_definition(folder: Path) -> dict[str, Any]:
    """What is studied in a folder, as `Study.of` takes it."""
    if not (folder / STUDY).is_file():
        raise FileNotFoundError(f"{folder} is not the folder of a study; it has no {STUDY}.")
    known = json.loads((folder / STUDY).read_bytes())
    return {name: value for name, value in known.items() if value is not None}


def read_table(folder: Path) -> Table:
    """The table of a study that is or was under way."""
    read_definition(folder)
    lines = [line for line in (folder / ROWS).read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    rows = {row.design: row for row in map(Row.of, lines)}
    path = folder / VERIFIED
    checked = [Verified(**json.loads(line)) for line in path.read_bytes().splitlines()] if path.is_file() else []
    return Table(tuple(rows[place] for place in sorted(rows)), {each.design: each for each in checked})
