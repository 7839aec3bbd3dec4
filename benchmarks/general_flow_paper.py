"""The general flow network on the paper's own test cases, and whether their truth decides at 1e-4.

    python benchmarks/general_flow_paper.py [--finer b_0.50_0.00 ...] [--runs FOLDER] [--table]

The network `flow` was never trained on these flows. Errors are those of the paper: mean squares, u over three
components. In some cases an eddy leaves a sharp corner, and how far it got by t = 4 depends on the cells; for those
that are named with `--finer` OpenFOAM computes a truth with 135 instead of 90 cells, half of the step, second order in
time and tight tolerances (8 minutes or more each, kept in `--runs`), and the dataset's truth is judged by it as well.

Writes `benchmarks/results/general_flow_paper.json` and the table of docs/general_flow.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from finer_truth import FINER, solution

from pennpde.checkpoints import load_pretrained
from pennpde.evaluation.floors import start
from pennpde.files import write_json
from pennpde.paper.openfoam_sweep.sweep import TestSet, errors_of, summarised_errors
from pennpde.paper.tables import markdown_table, write_within
from pennpde.prediction import predict

ROOT = Path(__file__).resolve().parents[1]
RESULT = Path(__file__).parent / "results" / "general_flow_paper.json"
PAGE = ROOT / "docs" / "general_flow.md"
GOAL = {"u": 1e-4, "p": 3e-4}


def measured(cases: TestSet, finer: list[str], runs: Path) -> dict[str, Any]:
    network = load_pretrained("flow")
    found, floor, by_case, by_finer = [], [], {}, {}
    for case in cases.cases:
        fields = {name: values.double() for name, values in predict(network, case, times=[4.0]).last.items()}
        errors = errors_of(fields, case)
        found.append(errors)
        floor.append(errors_of({name: start(case)[name].double() for name in ("u", "p")}, case))
        by_case[case.name] = {name: errors[name]["mse"] for name in ("u", "p")}
        if case.name in finer:
            truth = replace(case, targets=solution(case, FINER, runs))
            by_finer[case.name] = {
                label: {name: one["mse"] for name, one in errors_of(each, truth).items()}
                for label, each in (("flow", fields), ("the dataset's truth", case.targets))
            }
        print(case.name, by_case[case.name], flush=True)
    return {
        "errors": "mean squares in physical units, u over three components",
        "flow": _pooled(found),
        "start field": _pooled(floor),
        "finer truth": FINER.name,
        "by case": by_case,
        "by the finer truth": by_finer,
    }


def _pooled(errors: list[dict[str, dict[str, Any]]]) -> dict[str, float]:
    pooled = summarised_errors(errors)
    return {name: pooled[name]["mse"] for name in ("u", "p")}


def table(record: Mapping[str, Any]) -> str:
    """All cases, those with little error, the others, and what a finer truth says of them; Markdown."""
    by_case = record["by case"]
    near = {name: each for name, each in by_case.items() if each["u"] <= GOAL["u"]}
    far = {name: each for name, each in by_case.items() if name not in near}
    rows = [[f"all {len(by_case)}", *(f"{record['flow'][name]:.2e}" for name in GOAL)]]
    for label, some in ((f"the {len(near)} with u below 1e-4", near), (f"the other {len(far)}", far)):
        if some:
            rows.append([label, *(f"{sum(each[name] for each in some.values()) / len(some):.2e}" for name in GOAL)])
    rows.append(["start field", *(f"{record['start field'][name]:.2e}" for name in GOAL)])
    for name, each in record["by the finer truth"].items():
        shown = {f"{label}, by the finer truth": value for label, value in each.items()}
        shown["flow, by the dataset's truth"] = by_case[name]
        rows += [[f"`{name}`: {label}", *(f"{value[one]:.2e}" for one in GOAL)] for label, value in shown.items()]
    return markdown_table(["cases", "u", "p"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "flow")
    parser.add_argument("--finer", nargs="*", default=[], metavar="NAME", help="cases to compute more finely")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "finer_truth")
    parser.add_argument("--table", action="store_true", help="only write the table again")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.table:
        write_json(RESULT, measured(TestSet.read(given.data), given.finer, given.runs))
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    print(table(record))
    write_within(PAGE, table(record) + "\n", "paper's flows")


if __name__ == "__main__":
    main()
