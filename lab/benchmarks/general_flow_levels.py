"""The scheme of the general flow network on coarser and finer cells, without its learned part, by the finer truth.

    python lab/benchmarks/general_flow_levels.py [--workers 2]

Flows of `data/plane_flow/finer` on their first mesh, whose cells are split once less than the network splits them, as
often, and once more, next to the truth of the dataset, and to combinations of these fields. Writes
`lab/benchmarks/results/general_flow_levels.json` and the table of `docs/experiments_general.md`. Takes six minutes of a
core; flows in the results are not solved again, unless the solver has changed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from flow_results import by_flow, code
from torch import Tensor

from pennlab.datasets.plane_flow import finished, flows
from pennlab.levels import solved_at_level
from pennlab.paper.plane_flow_errors import errors, stacked
from pennlab.paper.tables import markdown_table, write_within
from pennpde.case import Case

ROOT = Path(__file__).resolve().parents[2]
FINER, FINISHED = (ROOT / "data" / "plane_flow" / name for name in ("finer", "finished"))
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "general_flow_levels.json"
PAGE = ROOT / "docs" / "experiments_general.md"
LESS, USUAL, MORE = "cells split once less", "as the network splits them", "once more"
DATASET, MEAN = "the dataset's truth", "mean of the last two"
BEYOND = "as the network splits them, plus 0.2 times the difference from once less"

Fields = Mapping[str, Tensor]


def measured(name: str) -> dict[str, Any]:
    """Errors by the finer truth and seconds, by level."""
    flow = flows.draw_flow(name, 0)
    file = finished.cases(FINER, flow)[f"{name}.a"]
    times = list(file.times)
    judged = replace(file.case, targets={unknown: file.case.targets[unknown] for unknown in ("u", "p")})
    known: dict[str, Fields] = {}
    seconds: dict[str, float] = {}
    for label, more in ((LESS, -1), (USUAL, 0), (MORE, 1)):
        began = time.process_time()
        known[label] = solved_at_level(judged, times, more)
        seconds[label] = time.process_time() - began
    stored = finished.cases(FINISHED, flow)[f"{name}.a"]
    places = [stored.times.index(each) for each in times]
    known[DATASET] = {each: stored.case.targets[each][..., places] for each in ("u", "p")}
    known[MEAN] = {each: (known[MORE][each] + known[DATASET][each]) / 2 for each in ("u", "p")}
    known[BEYOND] = {each: 1.2 * known[USUAL][each] - 0.2 * known[LESS][each] for each in ("u", "p")}
    seconds[BEYOND] = seconds[USUAL] + seconds[LESS]
    return {label: {**_means(judged, times, fields), "seconds": seconds.get(label)} for label, fields in known.items()}


def _means(case: Case, times: list[float], fields: Fields) -> dict[str, float]:
    by_moment = errors(case, times, stacked(fields)).values()
    return {each: mean(row[each] for row in by_moment) for each in ("u", "p")}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Means over flows, medians in brackets, Markdown."""
    rows = []
    for label in (LESS, USUAL, MORE, DATASET, MEAN, BEYOND):
        of_flows = [each[label] for each in found.values()]
        shown = []
        for unknown, digits in (("u", 2), ("p", 1)):
            values = [100 * each[unknown] for each in of_flows]
            shown.append(f"{mean(values):.{digits}f} ({median(values):.{digits}f})")
        known = [each["seconds"] for each in of_flows if each["seconds"] is not None]
        rows.append([label, *shown, f"{mean(known):.1f}" if known else ""])
    return markdown_table(["", "u, %", "p, %", "seconds"], rows)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--workers", type=int, default=1)
    given = arguments.parse_args()
    found = by_flow(OUTPUT, {"code": code()}, measured, finished.names(FINER), given.workers)
    write_within(PAGE, f"\n{table(found)}\n", "levels")


if __name__ == "__main__":
    main()
