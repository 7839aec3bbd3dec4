"""The paper's network on the plane-flow test sets, beside `flow`: trained on its ducts, it does not transfer.

    python lab/benchmarks/paper_on_plane_flows.py [--flows 8]

The network of the paper's equations (`flow-as-written`, weights of its row) and `ducts`, each evaluated where it
predicts: four inlet widths over the inlet speed after the start, against the nearest snapshot of the flow. Beside them
`flow` at `fast` and the start field, on the same snapshots. Errors are relative, as on the page of results of `flow`.
Writes `lab/benchmarks/results/paper_on_plane_flows.json` and the table in docs/results.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import pennlab.plugin  # noqa: F401  (its networks are registered)
from pennlab.datasets.plane_flow import finished, flows
from pennlab.paper.plane_flow_errors import relative
from pennlab.paper.plane_flow_table import SPLITS
from pennlab.paper.tables import markdown_table, write_within
from pennpde.case import Case
from pennpde.checkpoints import load_pretrained
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import write_json
from pennpde.models.flow_physics import FlowPhysics
from pennpde.models.inlet import inlet_units
from pennpde.prediction import predict
from pennpde.train.report import start

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
WRITTEN = ROOT / "lab" / "records" / "flow" / "paper" / "0"
RESULT = Path(__file__).parent / "results" / "paper_on_plane_flows.json"
PAGE = ROOT / "docs" / "results.md"
TIME = 4.0
"""Of the paper's networks, in inlet widths over the inlet speed."""
TITLES = {
    "start": "start field (potential flow)",
    "paper": "PENN as the paper writes it, trained on the ducts",
    "ducts": "`ducts`, our variant, trained on the ducts",
    "flow": "`flow`, `fast`",
}

Fields = Mapping[str, Tensor]
Rival = Callable[[Case, float], Fields]


def rivals() -> dict[str, Rival]:
    written, ducts, flow = load_pretrained(str(WRITTEN)), load_pretrained("ducts"), load_pretrained("flow")
    return {
        "start": lambda case, _: start(case),
        "paper": lambda case, _: predict(written, case).last,
        "ducts": lambda case, _: predict(ducts, case).last,
        "flow": lambda case, time: predict(flow, case, times=[time]).last,
    }


def snapshot(file: CaseFile) -> tuple[Case, float, float]:
    """The case with the snapshot nearest to the time of the paper's networks, its time, and that in their unit."""
    unit = inlet_units(file.case).time
    place = min(range(len(file.times)), key=lambda number: abs(file.times[number] - TIME * unit))
    case = file.case
    targets = {name: case.targets[name][..., place] for name in ("u", "p")}
    time = file.times[place]
    return replace(case, targets=targets), time, time / unit


def errors(fields: Fields, case: Case) -> dict[str, float]:
    free = FlowPhysics().free_levels(case)
    found = {}
    for name in ("u", "p"):
        values, truth = fields[name].double(), case.targets[name].double()
        if name in free:
            values = values - (values - truth).mean()
        found[name] = relative(values, truth)
    return found


def measured(number: int) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    every, there = rivals(), set(finished.names(ARCHIVES))
    for split in SPLITS:
        names = [name for name in flows.splits()[split] if name in there]
        for flow in names[:: max(1, len(names) // number)][:number]:
            file = finished.cases(ARCHIVES, flows.draw_flow(flow, 0)).get(f"{flow}.a")
            if flow in known.setdefault(split, {}) or file is None:
                continue
            row: dict[str, Any] = {}
            try:
                case, time, units = snapshot(file)
                row["time"] = units
                for name, rival in every.items():
                    with torch.no_grad():
                        row[name] = errors(rival(case, time), case)
            except ValueError as error:  # a cavity has no inlet, a wall that slips is not for these networks
                row["refused"] = str(error).partition(".")[0]
            known[split][flow] = row
            write_json(RESULT, known)
            print(split, flow, row, flush=True)
    return known


def table(result: Mapping[str, Any]) -> str:
    rows = []
    for name, title in TITLES.items():
        cells = [title]
        for split in SPLITS:
            done = [row[name] for row in result[split].values() if "refused" not in row]
            cells.append(" / ".join(f"{100 * median(each[unknown] for each in done):.3g}" for unknown in ("u", "p")))
        rows.append(cells)
    counts = [sum("refused" not in row for row in result[split].values()) for split in SPLITS]
    refused = sum("refused" in row for split in SPLITS for row in result[split].values())
    headings = ["network", *(f"{title} ({count})" for title, count in zip(SPLITS.values(), counts, strict=True))]
    text = f"Median relative errors of u / p in %, in brackets the number of flows; {refused} flows were refused."
    return f"{text}\n\n{markdown_table(headings, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--flows", type=int, default=8, help="of each split, evenly over it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    result = measured(given.flows)
    write_within(PAGE, "\n" + table(result) + "\n", "plane flows")
    print(table(result))


if __name__ == "__main__":
    main()
