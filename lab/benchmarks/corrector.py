"""`flow` on flows it has not seen, on its two learned levels, next to the coarse march and the plain scheme.

    python lab/benchmarks/corrector.py --floors                 # the plain scheme: half an hour of one core
    python lab/benchmarks/corrector.py --levels                 # the network

Every time of both meshes of the flows for validation and tests. Errors are relative, over points, by the dataset's
solution; seconds are processor seconds of one core for all times of a case, everything included but reading the file.
Writes `lab/benchmarks/results/corrector.json`; flows whose floors are there are not marched again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from flow_results import made_with
from torch import Tensor

import pennpde
from pennlab.datasets.plane_flow import finished, flows
from pennlab.paper.plane_flow_errors import errors, stacked
from pennpde.case import Case
from pennpde.files import write_json
from pennpde.flow.scheme import FlowScheme
from pennpde.penn.predictor import seen_by

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "corrector.json"
SPLITS = ("validation", "test-unseen-families", "test-unseen-reynolds")
FLOORS = {
    "coarse march": {"splits": 0, "courant": 4.0},
    "cells as they are, Courant 1.4": {"splits": 0, "courant": 1.4},
    "cells split once, Courant 4": {"splits": 1, "courant": 4.0},
    "cells split once, Courant 1.4": {"splits": 1, "courant": 1.4},
}
LEVELS = {"`flow`, fast": "fast", "`flow`, standard": "standard"}

Solve = Callable[[Case, Sequence[float]], Mapping[str, Tensor]]


def measured(model: torch.nn.Module, solve: Solve, case: Case, times: Sequence[float]) -> dict[str, Any]:
    """By time the relative errors of u and p, and the seconds of all times."""
    began = time.process_time()
    seen = seen_by(model, replace(case, targets={}))
    with torch.inference_mode():
        fields = solve(seen.case, [each / seen.time for each in times])
    seconds = time.process_time() - began
    physical = seen.physical(fields)
    series = {name: each if len(times) > 1 else each[..., None] for name, each in physical.items()}
    judged = replace(case, targets={name: case.targets[name] for name in ("u", "p")})
    return {"errors": errors(judged, times, stacked(series)), "seconds": round(seconds, 3)}


def floors_of(case: Case, times: Sequence[float], known: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """The plain scheme on a case; what is known is kept."""
    found = dict(known)
    for label in wanted:
        if label not in found:
            model = FlowScheme(**FLOORS[label])
            found[label] = measured(model, lambda case, at, model=model: model.solve(case, at).fields, case, times)
    return found


def summary(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By split and way: mean and median errors in per cent, the share of snapshots better than the march, seconds."""
    found: dict[str, Any] = {}
    for split in SPLITS:
        rows = [each for each in cases.values() if each["split"] == split]
        found[split] = {}
        for label in (*FLOORS, *LEVELS):
            there = [row for row in rows if label in row]
            if there:
                found[split][label] = {"cases": len(there), **_numbers(there, label)}
    return found


def _numbers(rows: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in ("u", "p"):
        pairs = [
            (row[label]["errors"][at][name], row["coarse march"]["errors"][at][name])
            for row in rows
            for at in row[label]["errors"]
        ]
        values = [after for after, _ in pairs]
        made[name] = {
            "mean": round(100 * mean(values), 3),
            "median": round(100 * median(values), 3),
            "better": round(mean(after < before for after, before in pairs), 4),
        }
    seconds = [row[label]["seconds"] for row in rows]
    return {**made, "seconds": {"mean": round(mean(seconds), 3), "median": round(median(seconds), 3)}}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--floors", nargs="*", choices=list(FLOORS), help="which; without a name all")
    arguments.add_argument("--levels", action="store_true", help="measure the network")
    arguments.add_argument("--limit", type=int, help="flows per split")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.exists() else {"cases": {}}
    cases: dict[str, dict[str, Any]] = kept["cases"]
    network = pennpde.load_pretrained("flow") if given.levels else None
    if network is not None:
        kept["weights"] = made_with("flow")["weights"]
        kept["parameters"] = sum(parameter.numel() for parameter in network.parameters())
    wanted = ["coarse march"] if given.floors is None else given.floors or list(FLOORS)
    there = set(finished.names(ARCHIVES))
    for split in SPLITS:
        for name in [name for name in flows.splits()[split] if name in there][: given.limit]:
            for key, file in finished.cases(ARCHIVES, flows.draw_flow(name, 0)).items():
                row = {"split": split, "points": file.case.number_of_points}
                known = {label: each for label, each in cases.get(key, {}).items() if label in FLOORS}
                row |= floors_of(file.case, file.times, known, wanted)
                for label, level in LEVELS.items() if network is not None else ():
                    network.set_level(level)
                    row[label] = measured(
                        network, lambda case, at, model=network: model.solve(case, at).fields, file.case, file.times
                    )
                cases[key] = row
        kept["summary"] = summary(cases)
        write_json(OUTPUT, {key: kept[key] for key in sorted(kept)}, indent=None)
        print(json.dumps(kept["summary"].get(split), indent=1), flush=True)


if __name__ == "__main__":
    main()
