"""The general flow network on the test flows of the plane-flow dataset that are finished.

Every moment and the steady state of each case, on both meshes, next to the start field as a prediction. Cases in
the results are not predicted again; delete the file to start over. Seconds are processor seconds of one core.

    python benchmarks/general_flow_test.py [--limit N] [--model flow]

Writes `benchmarks/results/general_flow_test.json` and the table of `docs/general_flow.md`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pennpde
from pennpde.case import Case
from pennpde.checkpoints import config_of
from pennpde.datasets.plane_flow import finished, flows
from pennpde.datasets.plane_flow.cases import STEADY_PRESSURE, STEADY_VELOCITY
from pennpde.datasets.vtkhdf import unpack
from pennpde.paper.tables import markdown_table, within

ROOT = Path(__file__).resolve().parent.parent
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
OUTPUT = ROOT / "benchmarks" / "results" / "general_flow_test.json"
PAGE = ROOT / "docs" / "general_flow.md"
SPLITS = ("test", "test-unseen-families", "test-unseen-reynolds")
NAMES = {
    "test": "trained families",
    "test-unseen-families": "unseen families",
    "test-unseen-reynolds": "unseen Reynolds numbers",
}


def measured(model: torch.nn.Module, case: Case, times: Sequence[float]) -> dict[str, Any]:
    """Relative errors at each time; the steady state is called so."""
    asked = [*times, *([pennpde.STEADY] if STEADY_VELOCITY in case.targets else [])]
    began = time.process_time()
    outcome = pennpde.predict(model, replace(case, targets={}), times=asked)
    seconds = time.process_time() - began
    # Prescribed at one point only, the level of the pressure is arbitrary. In some cavities that point is a corner in
    # which moving walls meet, where the pressure itself has a pole and depends on the mesh.
    closed = int(case.dirichlet["p"].mask.sum()) == 1
    rows = {}
    for place, when in enumerate(asked):
        steady = when == pennpde.STEADY
        row = {}
        for name, target in (("u", STEADY_VELOCITY), ("p", STEADY_PRESSURE)):
            truth = case.targets[target] if steady else case.targets[name][..., place]
            found = outcome.fields[name][..., place] if len(asked) > 1 else outcome.fields[name]
            if name == "p" and closed:
                found = found - (found - truth).mean()
            row[name] = _relative(found, truth)
            row[f"start_{name}"] = _relative(case.initial[name], truth)
        rows["steady" if steady else f"{when:g}"] = row
    return {"errors": rows, "seconds": round(seconds, 2), "points": case.number_of_points}


def _relative(found: torch.Tensor, truth: torch.Tensor) -> float:
    share = (found.double() - truth.double()).square().sum() / truth.double().square().sum()
    return float(f"{float(share) ** 0.5:.4g}")


def table(results: Mapping[str, Any]) -> str:
    """Errors by split and time, next to those of the start field."""
    rows = []
    for split in SPLITS:
        cases = {name: each for name, each in results["cases"].items() if each["split"] == split}
        if not cases:
            continue
        for label, low, high in (
            ("all", 0.0, np.inf),
            ("t ≤ 1", 0.0, 1.0),
            ("1 < t ≤ 4.5", 1.0, 4.5),
            ("t > 4.5", 4.5, np.inf),
            ("steady", None, None),
        ):
            chosen = {
                name: [
                    row
                    for when, row in each["errors"].items()
                    if label == "all"
                    or (when == "steady" if low is None else when != "steady" and low < float(when) <= high)
                ]
                for name, each in cases.items()
            }
            chosen = {name: each for name, each in chosen.items() if each}
            if not chosen:
                continue
            means = {
                key: np.array([np.mean([row[key] for row in each]) for each in chosen.values()])
                for key in ("u", "p", "start_u", "start_p")
            }
            cell = {key: f"{100 * np.mean(each):.1f} ({100 * np.median(each):.1f})" for key, each in means.items()}
            rows.append([NAMES[split], label, str(len(chosen)), cell["u"], cell["p"], cell["start_u"], cell["start_p"]])
    head = ("flows", "time", "cases", "u, %", "p, %", "start field: u, %", "p, %")
    return markdown_table(head, rows)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--limit", type=int)
    arguments.add_argument("--model", default="flow")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    model = pennpde.load_pretrained(given.model)
    config = config_of(model)
    assert config is not None
    results: dict[str, Any] = {"weights": config.weights_sha256, "cases": {}}
    if OUTPUT.exists():
        kept = json.loads(OUTPUT.read_text())
        results = kept if kept["weights"] == config.weights_sha256 else results
    there = set(finished.names(ARCHIVES))
    chosen = [(split, name) for split in SPLITS for name in flows.splits()[split] if name in there]
    # By turns from each split, so that an interrupted run has some of all.
    order = {name: [other for split_, other in chosen if split_ == split].index(name) for split, name in chosen}
    chosen.sort(key=lambda each: order[each[1]])
    for split, name in chosen[: given.limit]:
        for case_name, product in finished.products(ARCHIVES, flows.draw_flow(name, 0)).items():
            if case_name in results["cases"]:
                continue
            file = unpack(product.content, case_name)
            found = measured(model, file.case, file.times)
            facts = {"split": split, "reynolds": product.facts["reynolds"], "mesh": product.facts["mesh"]["kind"]}
            results["cases"][case_name] = {**facts, **found}
            OUTPUT.write_text(json.dumps(results, indent=0) + "\n")
            print(case_name, json.dumps(found), flush=True)
    print(table(results))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(within(page, table(results) + "\n", "test set", required=True), encoding="utf-8")


if __name__ == "__main__":
    main()
