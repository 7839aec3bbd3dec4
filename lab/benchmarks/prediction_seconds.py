"""Seconds of a whole prediction at 3,000 points: fast, standard, the default accuracy, and the steady state.

    python lab/benchmarks/prediction_seconds.py [--measure]

A duct of triangles at Reynolds number 300, to t = 4, in a running process that has predicted a smaller one; processor
seconds of one core, expected error included. Writes `lab/benchmarks/results/prediction_seconds.json` and a table of
docs/flow.md.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from general_flow_speed import duct

import pennpde
from pennlab.paper.tables import markdown_table, write_within
from pennpde.files import write_json
from pennpde.flow.coarse_march import FAST, STANDARD

PAGE = Path(__file__).resolve().parents[2] / "docs" / "flow.md"
OUTPUT = Path(__file__).parent / "results" / "prediction_seconds.json"
POINTS, REYNOLDS = 3_000, 300.0
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "fast": (FAST, {"times": [4.0]}),
    "standard": (STANDARD, {"times": [4.0]}),
    "expected error of u below 2 %, the default": (FAST, {"times": [4.0], "accuracy": 2.0}),
    "steady, fast": (FAST, {"steady": True}),
    "steady, standard": (STANDARD, {"steady": True}),
}


def measure() -> None:
    network, rows = pennpde.load_pretrained("flow"), {}
    for name, (level, asked) in ASKED.items():
        network.set_level(level)  # pyright: ignore[reportCallIssue]
        cases = [
            replace(each, parameters={"viscosity": torch.tensor(1.0 / REYNOLDS, dtype=torch.float64)})
            for each in (duct(400), duct(POINTS))
        ]
        pennpde.predict(network, cases[0], **asked)  # what is loaded or compiled on its first use
        began = time.process_time()
        outcome = pennpde.predict(network, cases[1], **asked)
        seconds = round(time.process_time() - began, 3)
        rows[name] = {"points": cases[1].number_of_points, "level": outcome.level, "seconds": seconds}
        write_json(OUTPUT, rows)
        print(name, json.dumps(rows[name]), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if "--measure" in sys.argv[1:]:
        measure()
    rows = json.loads(OUTPUT.read_text(encoding="utf-8"))
    cells = [[name, f"{row['points']:,}", row["level"], f"{row['seconds']:.2f} s"] for name, row in rows.items()]
    write_within(PAGE, markdown_table(("asked", "points", "answered on", "seconds"), cells), "prediction seconds")


if __name__ == "__main__":
    main()
