"""What the learned part of the general flow network brings: with it and without it, on validation flows.

    python lab/benchmarks/general_flow_learned.py [--flows 60] [--workers 2]

One mesh of each flow, at the middle one of its moments. Flows in the results are not predicted again, unless weights or
solver have changed. Writes `lab/benchmarks/results/general_flow_learned.json` and the table of `docs/general_flow.md`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from flow_results import LEARNED_FLUX, by_flow, made_with
from general_flow_test import ARCHIVES, PAGE

import pennpde
from pennlab.datasets.plane_flow import finished, flows
from pennlab.paper.plane_flow_errors import errors, stacked
from pennlab.paper.tables import markdown_table, write_within
from pennpde.flow.network import SteppingFlow
from pennpde.train.batches import evenly

OUTPUT = Path(__file__).parent / "results" / "general_flow_learned.json"
WITH, WITHOUT = "with", "without"


def measured(name: str) -> dict[str, Any]:
    """Relative errors of a flow with and without what is learned."""
    file = finished.cases(ARCHIVES, flows.draw_flow(name, 0))[f"{name}.a"]
    time = file.times[len(file.times) // 2]
    network = pennpde.load_pretrained(LEARNED_FLUX)
    assert isinstance(network, SteppingFlow)
    found: dict[str, Any] = {"time": time}
    for label in (WITH, WITHOUT):
        network.corrected = label == WITH
        fields = pennpde.predict(network, replace(file.case, targets={}), times=[time]).fields
        series = {each: values[..., None] for each, values in fields.items()}
        place = file.times.index(time)
        case = replace(file.case, targets={each: file.case.targets[each][..., place : place + 1] for each in series})
        found[label] = errors(case, [time], stacked(series))[f"{time:g}"]
    return found


def table(found: Mapping[str, Any]) -> str:
    """Means, medians and geometric means of the ratios, Markdown."""
    rows = []
    for unknown in ("u", "p"):
        pairs = [(each[WITH][unknown], each[WITHOUT][unknown]) for each in found.values()]
        ratio = math.exp(mean(math.log(one / other) for one, other in pairs))
        better = sum(one < other for one, other in pairs)
        row = [f"{100 * summary(each[side] for each in pairs):.2f} %" for summary in (mean, median) for side in (0, 1)]
        rows.append([unknown, *row, f"{ratio:.3f}", f"{better} of {len(pairs)}"])
    heads = (
        "",
        "mean, learned",
        "plain",
        "median, learned",
        "plain",
        "learned over plain, geometric mean",
        "better in",
    )
    return markdown_table(heads, rows)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--flows", type=int, default=60)
    arguments.add_argument("--workers", type=int, default=1)
    given = arguments.parse_args()
    there = set(finished.names(ARCHIVES))
    names = evenly([name for name in flows.splits()["validation"] if name in there], given.flows)
    found = by_flow(OUTPUT, made_with(), measured, names, given.workers)
    print(table(found))
    write_within(PAGE, f"\n{table(found)}\n", "what is learned")


if __name__ == "__main__":
    main()
