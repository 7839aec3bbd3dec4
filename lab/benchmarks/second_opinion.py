"""What the second opinion of the general flow network says about its error, by the finer truth.

    python lab/benchmarks/second_opinion.py [--workers 2]

Flows of `data/plane_flow/finer` on their first mesh. At each moment: the error, how far the second opinion is from the
prediction, and how well the map of where to distrust it agrees with the true error, point by point (rank correlation),
with the second opinion and without. Writes `lab/benchmarks/results/second_opinion.json` and the table of
`docs/trust_results.md`.
Takes four minutes of a core; flows in the results are not predicted again, unless network or solver have changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from flow_results import by_flow, made_with
from scipy.stats import spearmanr

import pennpde
from pennlab.datasets.plane_flow import finished, flows
from pennlab.paper.plane_flow_errors import UNKNOWNS, relative, truth_at
from pennlab.paper.tables import markdown_table, write_within
from pennpde.models.flow_physics import FlowPhysics
from pennpde.prediction import Outcome, predict
from pennpde.trust.calibration import COARSER_SOLUTION
from pennpde.trust.evidence import without_levels
from pennpde.trust.expected_error import Uncalibrated

ROOT = Path(__file__).resolve().parents[2]
FINER = ROOT / "data" / "plane_flow" / "finer"
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "second_opinion.json"
PAGE = ROOT / "docs" / "trust_results.md"
ERROR, APART, MAP, MAP_WITHOUT = "error", "apart", "map", "map without"


def measured(name: str) -> list[dict[str, Any]]:
    """By moment and unknown: the error, how far apart both opinions are, and how good the maps are."""
    file = finished.cases(FINER, flows.draw_flow(name, 0))[f"{name}.a"]
    problem = replace(file.case, targets={})
    asked, alone = (_predicted(problem, file.times, measuring) for measuring in (True, False))
    free = FlowPhysics().free_levels(problem)
    rows = []
    for place, time in enumerate(file.times):
        row: dict[str, Any] = {"time": time}
        exact = {unknown: truth_at(file.case, unknown, place) for unknown in UNKNOWNS}
        found, exact = (without_levels(each, free, problem) for each in (asked.at(place).fields, exact))
        evidence = asked.evidence[place]
        for unknown, truth in exact.items():
            error = (found[unknown] - truth).reshape(len(truth), -1).norm(dim=1)
            row[unknown] = {
                ERROR: round(relative(found[unknown], truth), 6),
                APART: round(10 ** evidence.numbers[COARSER_SOLUTION + unknown], 6),
                MAP: _agreement(error, evidence.local[unknown]),
                MAP_WITHOUT: _agreement(error, alone.evidence[place].local[unknown]),
            }
        rows.append(row)
    return rows


def _agreement(first: Any, second: Any) -> float:
    """Spearman's rank correlation."""
    return round(float(np.asarray(spearmanr(first, second))[0]), 4)


def _predicted(case: pennpde.Case, times: tuple[float, ...], measuring: bool) -> Outcome:
    network = pennpde.load_pretrained("flow")
    object.__setattr__(network, "checkpoint_calibrations", {"": Uncalibrated(measuring=measuring)})
    return predict(network, case, times=times)


def table(found: Mapping[str, list[Mapping[str, Any]]]) -> str:
    """By unknown, how well errors are ranked, and how well the maps agree with them; Markdown."""
    rows = []
    for unknown in UNKNOWNS:
        moments = [row[unknown] for of_flow in found.values() for row in of_flow]
        errors, apart = ([each[key] for each in moments] for key in (ERROR, APART))
        ratios = [one / other for one, other in zip(errors, apart, strict=True)]
        rows.append(
            [
                unknown,
                str(len(moments)),
                f"{_agreement(errors, apart):.2f}",
                f"{median(ratios):.2f}",
                *(f"{median(each[key] for each in moments):.2f}" for key in (MAP, MAP_WITHOUT)),
            ]
        )
    titles = [
        "",
        "moments",
        "rank correlation of error and difference",
        "error over difference, median",
        "rank correlation of map and error, median",
        "map without a second opinion",
    ]
    return markdown_table(titles, rows)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--workers", type=int, default=1)
    given = arguments.parse_args()
    found = by_flow(OUTPUT, made_with(), measured, finished.names(FINER), given.workers)
    write_within(PAGE, f"\n{table(found)}\n", "second opinion")


if __name__ == "__main__":
    main()
