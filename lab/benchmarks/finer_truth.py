"""Whether the comparison with OpenFOAM stands against a truth that is finer than the dataset's own.

    python lab/benchmarks/finer_truth.py [--cases 6] [--runs FOLDER] [--only-solve NAME]

The networks were trained on the dataset's reference, 90 cells per unit length, including its discretisation error. So
two test cases of each type are solved with 135 cells, half of the time step, second order in time and tight tolerances,
and everybody is judged by both: the truth itself, the network, and the settings of OpenFOAM that come closest. It takes
five to eight minutes a case; `--runs` keeps what was solved, one file for each case and setting.

Prints and writes `lab/benchmarks/results/finer_truth.json`, and the table of `docs/comparison.md` between its marks.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pennlab.paper.openfoam_sweep.settings import Setting, parse
from pennlab.paper.openfoam_sweep.sweep import TestSet, errors_of, measure, summarised_errors
from pennlab.paper.tables import markdown_table, write_within
from pennpde.case import Case
from pennpde.checkpoints import load_pretrained
from pennpde.files import replacing, write_json

ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).parent / "results" / "finer_truth.json"
PAGE = ROOT / "docs" / "comparison.md"
FINER = parse("tight-135-0.0025").setting
SETTINGS = ("careful-30-0.02", "careful-45-0.02", "careful-60-0.01", "careful-lust-60-0.01")
TRUTH, NETWORK = "the dataset's truth", "the network `ducts`"


def main() -> None:
    """Solve, compare, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "flow")
    parser.add_argument("--cases", type=int, default=6, help="types of ducts in turn")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "finer_truth")
    parser.add_argument("--only-solve", metavar="NAME", help="solve the finer truth of only this case, and end")
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    cases = TestSet.read(given.data, limit=given.cases).cases
    if given.only_solve:
        by_name = {case.name: case for case in cases}
        if given.only_solve not in by_name:
            parser.error(f"{given.only_solve} is none of the cases {', '.join(by_name)}.")
        solution(by_name[given.only_solve], FINER, given.runs)
        return
    network = load_pretrained("ducts")
    fields: dict[str, list[Mapping[str, Tensor]]] = {TRUTH: [case.targets for case in cases]}
    with torch.no_grad():
        fields[NETWORK] = [_double(network(replace(case).to(torch.float32))) for case in cases]
    for name in SETTINGS:
        fields[name] = [solution(case, parse(name).setting, given.runs) for case in cases]
    finer = [replace(case, targets=solution(case, FINER, given.runs)) for case in cases]
    record = {
        "errors": "mean squares in physical units over all points of the cases, u over three components",
        "cases": [case.name for case in cases],
        "finer truth": FINER.name,
        "against the dataset's truth": {name: _summary(found, cases) for name, found in fields.items()},
        "against the finer truth": {name: _summary(found, finer) for name, found in fields.items()},
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(given.output, record)
    print(table(record))
    if given.output == RESULT:
        write_within(PAGE, table(record) + "\n", "finer truth")


def solution(case: Case, setting: Setting, runs: Path) -> dict[str, Tensor]:
    """What OpenFOAM has at the points of a case at the end; solved where it is not kept."""
    path = runs / f"{case.name}_{setting.name}.safetensors"
    if not path.exists():
        print(f"solving {case.name} with {setting.name}", flush=True)
        found: dict[str, Tensor] = {}
        result = measure(case, setting, keep=found.update)
        if result["outcome"] != "finished":
            raise SystemExit(f"{case.name} with {setting.name}: {result['reason']}.")
        runs.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            save_file({name: values.contiguous() for name, values in found.items()}, unfinished)
    return load_file(path)


def _double(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.double() for name, values in fields.items()}


def _summary(found: list[Mapping[str, Tensor]], cases: list[Case] | tuple[Case, ...]) -> dict[str, Any]:
    errors = [errors_of(fields, case) for fields, case in zip(found, cases, strict=True)]
    totals = {case.name: each["u"]["mse"] + each["p"]["mse"] for case, each in zip(cases, errors, strict=True)}
    pooled = summarised_errors(errors)
    return {name: pooled[name]["mse"] for name in ("u", "p", "total")} | {"by case": totals}


def table(record: Mapping[str, Any]) -> str:
    """Both judgements side by side, Markdown."""
    headings = ["", "u + p against the dataset's truth", f"against `{record['finer truth']}`"]
    rows = []
    for name, own in record["against the dataset's truth"].items():
        # The record keeps the former name of the network.
        shown = name if name in (TRUTH, NETWORK) else f"OpenFOAM `{name}`"
        rows.append([shown, *(f"{each['total']:.2e}" for each in (own, record["against the finer truth"][name]))])
    return markdown_table(headings, rows)


if __name__ == "__main__":
    main()
