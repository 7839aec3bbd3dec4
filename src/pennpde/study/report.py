"""The files of a study for people: the table, and a page that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from pennpde.files import plain, write_atomically
from pennpde.study.table import Row, Table

WEB = Path(__file__).parent / "web"
_MOST_PICTURES = 2000
"""Some kilobytes each."""


def write(table: Table, folder: Path, title: str) -> tuple[list[Path], str]:
    """Write table.csv, table.parquet and report.html; what could not be written is said in words."""
    written = [folder / "table.csv"]
    table.save(written[0])
    missing = ""
    try:
        table.save(folder / "table.parquet")
        written.append(folder / "table.parquet")
    except ModuleNotFoundError as error:
        missing = str(error)
    written.append(folder / "report.html")
    write_atomically(written[-1], page_of(table, title))
    return written, missing


def page_of(table: Table, title: str) -> str:
    """One HTML text: a table to sort, parallel coordinates, responses with error bands, small pictures."""
    page = Template((WEB / "report.html").read_text(encoding="utf-8"))
    broken = sum(not row.quantities for row in table.rows)
    subtitle = f"{len(table.rows)} designs" + (f", {broken} without numbers" if broken else "")
    # "</" inside a script would end it.
    record = json.dumps(plain(_record(table)), separators=(",", ":")).replace("</", "<\\/")
    script = (WEB / "report.js").read_text(encoding="utf-8")
    return page.substitute(title=html.escape(title), subtitle=subtitle, record=record, script=script)


def _record(table: Table) -> Mapping[str, Any]:
    titles = [title for name in table.names for title, _ in table.places(name)]
    columns = {
        name: [_short(each) for each in column]
        for name, column in table.columns.items()
        if name in titles or any(each not in (None, "") for each in column)
    }
    return {
        "columns": columns,
        "variables": list(dict.fromkeys(name for row in table.rows for name in row.values)),
        "quantities": titles,
        "pictures": [row.picture for row in table.rows[:_MOST_PICTURES]],
        "grades": [_grade(row) for row in table.rows],
    }


def _short(value: Any) -> Any:
    """Seven digits are more than a page can show."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _grade(row: Row) -> str:
    return row.grade if row.quantities else "none"
