"""`flow` and its plain scheme on the ducts of the paper's kind, with OpenFOAM's and the other networks' errors beside.

    python lab/benchmarks/general_flow_paper.py [--finer b_0.50_0.00 ...] [--runs FOLDER] [--plain] [--table]

Nothing in `flow` was trained on these flows. Errors are those of the paper: mean squares, u over three components. In
some cases an eddy leaves a sharp corner, and how far it got by t = 4 depends on the cells; for those that are named
with `--finer` OpenFOAM computes a fine-grid reference with 135 instead of 90 cells, half of the time step, second order
in time and tight tolerances (8 minutes or more each, kept in `--runs`); the dataset's reference is compared with it.

Writes `lab/benchmarks/results/general_flow_paper.json` and the table of docs/general_flow_results.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from finer_truth import FINER, solution

from pennlab.paper.openfoam_sweep.sweep import TestSet, errors_of, summarised_errors
from pennlab.paper.tables import markdown_table, write_within
from pennpde.checkpoints import load_pretrained
from pennpde.files import write_json
from pennpde.flow.scheme import FlowScheme
from pennpde.prediction import predict
from pennpde.train.report import start

ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).parent / "results" / "general_flow_paper.json"
PAGE = ROOT / "docs" / "general_flow_results.md"
TRADEOFF = RESULT.with_name("tradeoff.json")
TRAINED = ROOT / "lab" / "records" / "flow" / "shipped" / "0.json"
PLAIN = "the plain scheme"
OPENFOAM = "careful-60-0.01"
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


def measured_plain(cases: TestSet) -> dict[str, Any]:
    """The same scheme without the learned flux correction."""
    scheme = FlowScheme()
    found, by_case = [], {}
    for case in cases.cases:
        fields = {name: values.double() for name, values in predict(scheme, case, times=[4.0]).last.items()}
        found.append(errors_of(fields, case))
        by_case[case.name] = {name: found[-1][name]["mse"] for name in ("u", "p")}
        print(case.name, by_case[case.name], flush=True)
    return {PLAIN: _pooled(found), f"{PLAIN}, by case": by_case}


def _pooled(errors: list[dict[str, dict[str, Any]]]) -> dict[str, float]:
    pooled = summarised_errors(errors)
    return {name: pooled[name]["mse"] for name in ("u", "p")}


def table(record: Mapping[str, Any]) -> str:
    """`flow`, its plain scheme, OpenFOAM and `ducts` on all cases; then the cases by size of their error; Markdown."""
    by_case = record["by case"]
    near = {name: each for name, each in by_case.items() if each["u"] <= GOAL["u"]}
    far = {name: each for name, each in by_case.items() if name not in near}
    solved = json.loads(TRADEOFF.read_text(encoding="utf-8"))["openfoam"]["rows"]
    openfoam = next(row["errors"] for row in solved if row["setting"] == OPENFOAM)
    trained = json.loads(TRAINED.read_text(encoding="utf-8"))["pooled"]["domain"]
    shown = {
        f"`flow`, all {len(by_case)} cases": record["flow"],
        "`flow` without its learned correction (`FlowScheme()`)": record[PLAIN],
        f"OpenFOAM, `{OPENFOAM}`": {name: openfoam[name]["mse"] for name in GOAL},
        "`ducts`, a PENN trained on such ducts": {name: trained[name]["mse"] for name in GOAL},
        "start field": record["start field"],
    }
    for label, some in ((f"{len(near)} cases with u below 1e-4", near), (f"the other {len(far)}", far)):
        if some:
            shown[f"`flow`, {label}"] = {one: mean(each[one] for each in some.values()) for one in GOAL}
    for name, each in record["by the finer truth"].items():
        shown[f"`{name}`: `flow` against the fine-grid reference"] = each["flow"]
        shown[f"`{name}`: the dataset's reference against the fine-grid reference"] = each["the dataset's truth"]
        shown[f"`{name}`: `flow` against the dataset's reference"] = by_case[name]
    return markdown_table(
        ["", "u", "p"], [[label, *(f"{each[one]:.2e}" for one in GOAL)] for label, each in shown.items()]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "flow")
    parser.add_argument("--finer", nargs="*", default=[], metavar="NAME", help="cases to compute more finely")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "finer_truth")
    parser.add_argument("--plain", action="store_true", help="only measure the scheme without its learned correction")
    parser.add_argument("--table", action="store_true", help="only write the table again")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.table:
        cases = TestSet.read(given.data)
        known = json.loads(RESULT.read_text(encoding="utf-8")) if given.plain else {}
        record = known or measured(cases, given.finer, given.runs)
        write_json(RESULT, {**record, **measured_plain(cases)})
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    print(table(record))
    write_within(PAGE, table(record) + "\n", "paper's flows")


if __name__ == "__main__":
    main()
