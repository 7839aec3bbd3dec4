"""Errors on the plane flows without any network, for records and for the table of the page.

    python lab/benchmarks/plane_flow_floors.py data/plane_flow_made

The folder is a dataset of `penn generate plane-flow`. Writes `lab/records/plane_flow/floor_NAME/SPLIT.json`, what `penn
bench lookup` gives without its rows for single cases, and the table of `docs/plane_flow.md`; `--table` writes only the
table, from these records. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pennlab.paper import lookup
from pennlab.paper.tables import within
from pennpde.files import write_json

ROOT = Path(__file__).resolve().parents[2]
PAGE, RECORDS = ROOT / "docs" / "plane_flow.md", ROOT / "lab" / "records" / "plane_flow"
SPLITS = ("test", "test-unseen-families", "test-unseen-reynolds")


def measured(folder: Path) -> None:
    for split in SPLITS:
        for record in lookup.measure(folder, split=split):
            dataset = {key: value for key, value in record["dataset"].items() if key != "folder"}
            kept = {key: value for key, value in record.items() if key != "records"}
            (RECORDS / record["row"]).mkdir(parents=True, exist_ok=True)
            write_json(RECORDS / record["row"] / f"{split}.json", kept | {"dataset": dataset})
            print(split, record["title"], json.dumps(record["times"]["all moments"]), flush=True)


def table() -> str:
    """Relative errors in per cent, means over cases, u / p."""
    floors = lookup.plane_flow_floors
    titles = ("", "test set", "all moments", *floors.TIMES, "steady", floors.UNDETERMINED)
    rows = [f"| {' | '.join(titles)} |", "| --- | --- |" + " ---: |" * (len(titles) - 2)]
    for folder in sorted(RECORDS.glob("floor_*"), reverse=True):
        for split in SPLITS:
            record: dict[str, Any] = json.loads((folder / f"{split}.json").read_text(encoding="utf-8"))
            numbers = [
                " / ".join(f"{100 * group[name]['mean']:.0f}" for name in ("u", "p"))
                if (group := record["times"].get(title))
                else "–"
                for title in titles[2:]
            ]
            rows.append(f"| {record['title']} | `{split}` | {' | '.join(numbers)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "data" / "plane_flow_made")
    parser.add_argument("--table", action="store_true", help="only the table, from the records")
    given = parser.parse_args()
    if not given.table:
        measured(given.folder)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(within(page, table(), "floors", required=True), encoding="utf-8")
    print(table())


if __name__ == "__main__":
    main()
