"""Tables from records of evaluations, next to the published values."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pennlab import evaluation
from pennlab.paper import budgets
from pennpde.files import write_atomically

Record = Mapping[str, Any]
Times = Mapping[str, "Timed"]
"""By title of a network, how long it takes."""

WHOLE_STEPS = 20_000
"""Of the flow rows; those with fewer are short, and say so in the first column."""
OWN_ROWS = ("w0", "corrected", "shipped", "isogcn")
"""Variants that the paper does not have: its values are not printed beside them."""


class Timed(NamedTuple):
    """Seconds per case, their standard error, and the kind of processor."""

    seconds: float
    error: float
    device: str


@dataclass(frozen=True)
class Column:
    """A column of a table: one error, ours and the paper's."""

    heading: str
    path: tuple[str, str]
    """Where a record's `pooled` has it: what, and of which unknown."""
    paper: str
    """The paper's name of it in `numbers.json`."""
    unit: float = 1e-4


@dataclass(frozen=True)
class Table:
    """What a table of the paper consists of."""

    title: str
    dataset: str
    columns: tuple[Column, ...]
    ablations: bool | None = None
    """Only these, full networks of the same budget and floors; only the others; None: all together."""
    whole_steps: int | None = None
    """What every row is to be trained for at least; None: as its own budget says."""

    def rows(self, records: Iterable[Record], *, second: bool = False) -> list[Record]:
        """What belongs into the table, or to its second test sets, in the paper's order."""
        of_kind = [
            record
            for record in records
            if record.get("dataset", {}).get("kind") == self.dataset and bool(record.get("test_set")) == second
        ]
        others = [record for record in of_kind if not _is_ablation(record)]
        # The paper does not move its ablations.
        ablations = [record for record in of_kind if _is_ablation(record) and not record["transformed"]]
        found = [*others, *ablations]
        if self.ablations:
            had = set(map(_budget, ablations))
            whole = {each.get("paper") for each in others if _row(each) == "penn"}
            full = [each for each in others if each.get("paper") in whole and _budget(each) in had]
            floors = [each for each in others if _row(each).startswith("floor_")]
            found = [*(each for each in full if not each["transformed"]), *ablations, *floors]
        elif self.ablations is False:
            found = others
        places = {name: place for place, name in enumerate(paper_numbers()[self.dataset])}

        def place(record: Record) -> tuple[Any, ...]:
            of_paper = places.get(record.get("paper", ""), len(places))
            longest_first = -sum(record.get("training", {}).get("budget", {}).values())
            return of_paper, title_of(record), longest_first, record["transformed"]

        return sorted(found, key=place)


_FLOW = (
    Column("u (×10⁻⁴)", ("domain", "u"), "u", 1e-4),
    Column("p (×10⁻³)", ("domain", "p"), "p", 1e-3),
    Column("û Dirichlet (×10⁻⁴)", ("dirichlet", "u"), "dirichlet_u", 1e-4),
    Column("p̂ Dirichlet (×10⁻³)", ("dirichlet", "p"), "dirichlet_p", 1e-3),
)


TABLES = (
    Table(
        "Gradient (the paper's Table 1)",
        "gradient",
        (
            Column("∇φ (×10⁻³)", ("domain", "grad"), "grad", 1e-3),
            Column("ĝ Neumann (×10⁻³)", ("neumann", "phi"), "neumann_phi", 1e-3),
        ),
        whole_steps=budgets.ENDS_BY_ITSELF,
    ),
    Table("Incompressible flow (the paper's Tables 2, 4, 5 and 6)", "flow", _FLOW, False, WHOLE_STEPS),
    Table("Incompressible flow, ablations (the paper's Tables 3 and 8)", "flow", _FLOW, True, WHOLE_STEPS),
    Table(
        "Advection-diffusion (the paper's Table 9)",
        "advection-diffusion",
        (
            Column("T (×10⁻⁴)", ("domain", "T"), "T", 1e-4),
            Column("T̂ Dirichlet (×10⁻⁴)", ("dirichlet", "T"), "dirichlet_T", 1e-4),
        ),
    ),
)


SECOND = (
    "The test set overlaps with the training set: `c_x_y` is the mirror image of `c_y_x`, and in advection-diffusion "
    "all cases with the same velocity and diffusivity are multiples of one another. The test sets of this table have "
    "no such overlap. Rows whose weights were not kept are not in it."
)


@cache
def paper_numbers() -> Mapping[str, Any]:
    """The numbers that the paper prints."""
    return json.loads((Path(__file__).parent / "numbers.json").read_text(encoding="utf-8"))


def read_records(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Records of `penn evaluate --json`, from files or from all JSON files of folders."""
    return [record for _, record in read_files(paths)]


def read_files(paths: Iterable[str | Path]) -> list[tuple[Path, dict[str, Any]]]:
    """The same, each with its file."""
    found = []
    for path in map(Path, paths):
        files = sorted(path.glob("**/*.json")) if path.is_dir() else [path]
        for file in files:
            try:
                record = json.loads(file.read_text(encoding="utf-8"))
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise ValueError(f"{file} is no JSON: {error}.") from error
            if isinstance(record, dict) and record.get("kind") == evaluation.KIND:
                found.append((file, record))
            elif not path.is_dir():
                raise ValueError(
                    f"{file} is not a record of an evaluation; `penn evaluate MODEL DATA --json` makes one."
                )
    if not found:
        raise ValueError(
            "There is no record of an evaluation; `penn evaluate MODEL DATA --json > record.json` makes one."
        )
    return found


def markdown(records: Sequence[Record], times: Times | None = None) -> str:
    """All tables that the records fill.

    Args:
        records: Of evaluations.
        times: Seconds of flow networks that were measured together, in place of those of the records.
    """
    parts = []
    for table in TABLES:
        rows = table.rows(records)
        if not rows or (table.ablations and not any(map(_is_ablation, rows))):
            continue
        parts += [f"## {table.title}", _legend(table, rows), _comparison(table, rows)]
        if not table.ablations and any(record["types"] for record in rows):
            parts += ["### By type of shape", _by_type(table, [record for record in rows if not record["transformed"]])]
        second = table.rows(records, second=True)
        if second and (not table.ablations or any(map(_is_ablation, second))):
            parts += ["### Second test sets", SECOND, _second(table, second)]
        parts += ["### Size and time", *_sizes(table, rows, (times or {}) if table.dataset == "flow" else {})]
    if not parts:
        kinds = sorted({str(record.get("dataset", {}).get("kind")) for record in records})
        known = dict.fromkeys(table.dataset for table in TABLES)
        raise ValueError(f"The paper has tables of {', '.join(known)}; the records are of {', '.join(kinds)}.")
    return "\n\n".join(parts) + "\n"


def within(page: str, made: str, name: str = "tables", *, required: bool = False) -> str:
    """The page with the text between its marks of this name replaced; without marks, only the text, if allowed."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if opening not in page and closing not in page and not required:
        return made
    before, mark, rest = page.partition(opening)
    _, end, after = rest.partition(closing)
    if not (mark and end):
        missing = closing if mark else opening.strip()
        raise ValueError(
            f"The page lacks the mark {missing!r}: without it nobody knows what to replace. Put it back in its place."
        )
    return f"{before}{mark}\n{made}\n{end}{after}"


def write_within(path: Path, made: str, name: str = "tables") -> None:
    """Replace what stands between the marks of this name in a file."""
    write_atomically(path, within(path.read_text(encoding="utf-8"), made, name, required=True))


def _legend(table: Table, records: Sequence[Record]) -> str:
    cases = sorted({record["cases"] for record in records})
    hashes = sorted({record["dataset"]["hash"] for record in records if record["dataset"].get("hash")})
    data = f"; dataset {', '.join(hashes)}" if hashes else ""
    text = (
        f"Mean squared error on {' or '.join(map(str, cases))} test cases{data}. A single run: ± the standard error of "
        "the mean over points, as in the paper. Several seeds: their mean ± their standard deviation."
    )
    if any(budgets.is_short([record.get("training", {})], table.whole_steps) for record in records):
        text += (
            " *Short*: trained for fewer steps than it was to have; such a row says what little training brings, and "
            "does not compare with the others."
        )
    return text


def _comparison(table: Table, records: Sequence[Record]) -> str:
    headings = ["Method", "Trans."]
    for column in table.columns:
        headings += [column.heading, "paper"]
    rows = []
    for (title, transformed), same in _rows(records, table.whole_steps).items():
        cells = [_seeds(title, same), "yes" if transformed else "no"]
        for column in table.columns:
            cells += [_ours(same, column), _papers(table.dataset, _papers_row(same[0]), column, transformed)]
        rows.append(cells)
    return markdown_table(headings, rows)


def _second(table: Table, records: Sequence[Record]) -> str:
    columns = [column for column in table.columns if column.path[0] == "domain"]
    headings = ["Method", "test set", "cases", *(column.heading for column in columns)]
    rows = []
    for kind in sorted({record["test_set"] for record in records}):
        of_kind = [record for record in records if record["test_set"] == kind and not record["transformed"]]
        for (title, _), same in _rows(of_kind, table.whole_steps).items():
            cells = [_seeds(title, same), kind, str(same[0]["cases"])]
            rows.append([*cells, *(_ours(same, column) for column in columns)])
    return markdown_table(headings, rows)


def _by_type(table: Table, records: Sequence[Record]) -> str:
    columns = [column for column in table.columns if column.path[0] == "domain"]
    types = sorted({name for record in records for name in record["types"]})
    headings = ["Method", *(f"{column.heading} {name}" for column in columns for name in types)]
    rows = []
    for (title, _), same in _rows(records, table.whole_steps).items():
        cells = [_seeds(title, same)]
        for column in columns:
            for name in types:
                values = [_value(record["types"].get(name, {}), column) for record in same]
                cells.append(_shown(values, column.unit))
        rows.append(cells)
    return markdown_table(headings, rows)


def _sizes(table: Table, records: Sequence[Record], times: Times) -> list[str]:
    headings = ["Method", "Parameters", "paper", "s per case", "paper, total time", "on", "threads", "precision"]
    headings += ["trained for"]
    rows, apart = [], False
    unmoved = [record for record in records if not record["transformed"]]
    for (title, _), same in _rows(unmoved, table.whole_steps).items():
        record, printed = same[0], paper_numbers()[table.dataset].get(_papers_row(same[0]), {})
        measured = times.get(title_of(record))
        apart = apart or (bool(times) and measured is None)
        timed = measured or _own_time(same)
        rows.append(
            [
                title,
                f"{record['parameters']:,}" if record["parameters"] else "",
                f"{printed['parameters']:,}" if "parameters" in printed else "",
                _time(timed.seconds, timed.error) + (" ‡" if times and measured is None else ""),
                _time(*printed["seconds"]) if printed.get("seconds") else "",
                timed.device,
                str(record["threads"]),
                record["precision"],
                budgets.taken([each.get("training", {}) for each in same]),
            ]
        )
    text = "± is the standard error of the mean over cases."
    if times:
        text = "Processor seconds of one forward call, those of [the comparison with OpenFOAM](comparison.md). " + text
    if apart:
        text += " ‡ measured apart, on a machine that others used as well: an upper bound."
    return [text, markdown_table(headings, rows)]


def _own_time(records: Sequence[Record]) -> Timed:
    """Of the seed that was measured fastest: the others were disturbed more."""
    fastest = min(records, key=lambda record: record["seconds"]["mean"])
    return Timed(fastest["seconds"]["mean"], fastest["seconds"].get("standard_error", 0.0), fastest["device"])


def _time(seconds: float, error: float) -> str:
    return f"{seconds:.3g} ± {error:.2g}"


def _budget(record: Record) -> str:
    return budgets.allowed(record.get("training", {}))


def _row(record: Record) -> str:
    return str(record.get("row", ""))


def _is_ablation(record: Record) -> bool:
    return str(record.get("paper", "")).startswith("ablation")


def _papers_row(record: Record) -> str:
    """The row of the paper whose values stand beside a record; none beside a variant of ours."""
    return "" if _row(record) in OWN_ROWS else str(record.get("paper", ""))


def title_of(record: Record) -> str:
    """What a record calls its network."""
    return str(record.get("title") or record.get("row") or record.get("model") or "unnamed")


def _rows(records: Sequence[Record], whole_steps: int | None) -> dict[tuple[str, bool], list[Record]]:
    """Records by title and whether moved: seeds of one training. One that had another budget has a row of its own."""
    titles = budgets.told_apart([(title_of(record), record.get("training", {})) for record in records])
    found: dict[tuple[str, bool], list[Record]] = {}
    for title, record in zip(titles, records, strict=True):
        found.setdefault((title, record["transformed"]), []).append(record)
    return {
        (budgets.marked(title, [each.get("training", {}) for each in same], whole_steps), moved): same
        for (title, moved), same in found.items()
    }


def _seeds(title: str, records: Sequence[Record]) -> str:
    return title if len(records) == 1 else f"{title} ({len(records)} seeds)"


def _value(pooled: Mapping[str, Any], column: Column) -> tuple[float, float] | None:
    found = pooled.get(column.path[0], {}).get(column.path[1])
    return (found["mse"], found["standard_error"]) if found else None


def _ours(records: Sequence[Record], column: Column) -> str:
    return _shown([_value(record["pooled"], column) for record in records], column.unit)


def _shown(values: Sequence[tuple[float, float] | None], unit: float) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    if len(known) == 1:
        mean, deviation = known[0]
    else:
        means = [mean for mean, _ in known]
        mean, deviation = statistics.mean(means), statistics.stdev(means)
    return f"{_digits(mean / unit)} ± {_digits(deviation / unit)}"


def _papers(kind: str, row: str, column: Column, transformed: bool) -> str:
    printed = paper_numbers()[kind].get(row)
    if printed is None:
        return ""
    if transformed:
        printed = printed.get("transformed", {})
    if column.paper not in printed:
        return ""
    pair = printed[column.paper]
    return "divergent" if pair is None else f"{_digits(pair[0] / column.unit)} ± {_digits(pair[1] / column.unit)}"


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    if 1 <= abs(value) < 1e5:
        return f"{value:.2f}"
    return f"{value:.2g}" if 1e-4 <= abs(value) < 1 else f"{value:.1e}"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Headings, a rule, and the rows."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
