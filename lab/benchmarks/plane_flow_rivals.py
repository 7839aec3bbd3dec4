"""What the general network is compared with on the test flows: start field, nearest training flow, MeshGraphNet.

    penn generate plane-flow --out data/plane_flow_made --finished data/plane_flow/finished --no-solve --split train
    python lab/experiments/plane_flow/mesh_graph_net.py --out runs/mesh_graph_net --minutes 40
    python lab/benchmarks/plane_flow_rivals.py [--only start|nearest|mesh_graph_net] [--limit N]

Every moment and the steady state of each case, on both meshes. Seconds are processor seconds of one core, with the
preparation of graphs. Cases in `lab/benchmarks/results/plane_flow_rivals.json` are kept; MeshGraphNet's are measured
again where its weights are others. The table is written by `lab/benchmarks/general_flow_test.py --table`, OpenFOAM's
rows come from `lab/benchmarks/plane_flow_openfoam.py`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pennlab.datasets.plane_flow import finished, flows
from pennlab.paper.baselines.plane_mesh_graph_net import STEADY, PlaneGraph, PlaneMeshGraphNet
from pennlab.paper.plane_flow_errors import errors, labels, stacked
from pennlab.paper.plane_flow_floors import Nearest, at_all_times, start
from pennpde import checkpoints
from pennpde.data.vtkhdf import CaseFile

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "plane_flow_rivals.json"
SPLITS = ("test", "test-unseen-families", "test-unseen-reynolds")

Rival = Callable[[CaseFile], dict[str, Tensor]]
"""From a case to u and p, whose last axis has the moments and the steady state."""


def looked_up(look_up: Callable[..., Any]) -> Rival:
    def found(file: CaseFile) -> dict[str, Tensor]:
        fields = [look_up(case) for case in at_all_times([file])]
        return {name: torch.stack([each[name] for each in fields], dim=-1) for name in ("u", "p")}

    return found


def mesh_graph_net(model: PlaneMeshGraphNet) -> Rival:
    def found(file: CaseFile) -> dict[str, Tensor]:
        case = replace(file.case, targets={})
        times = [*file.times, *([STEADY] if labels(file.case, file.times)[-1] == "steady" else [])]
        with torch.inference_mode():
            velocity, pressure = model(PlaneGraph.of(case), times)
        return {"u": velocity, "p": pressure}

    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "plane_flow_made", help="with training flows")
    parser.add_argument("--model", type=Path, default=ROOT / "runs" / "mesh_graph_net")
    parser.add_argument("--only", choices=("start", "nearest", "mesh_graph_net"))
    parser.add_argument("--limit", type=int, help="flows")
    given = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.exists() else {}
    rivals: dict[str, Rival] = {}
    if given.only in (None, "start"):
        rivals["start"] = looked_up(start)
    if given.only in (None, "nearest"):
        rivals["nearest"] = looked_up(Nearest.among(given.data))
    if given.only in (None, "mesh_graph_net"):
        model = checkpoints.load(given.model)
        assert isinstance(model, PlaneMeshGraphNet), f"{given.model} has {type(model).__name__}, not MeshGraphNet"
        config = checkpoints.config_of(model)
        assert config is not None
        if results.get("weights") != config.weights_sha256:
            results |= {"weights": config.weights_sha256, "mesh_graph_net": {}}
        rivals["mesh_graph_net"] = mesh_graph_net(model)
    there = set(finished.names(ARCHIVES))
    chosen = [name for split in SPLITS for name in flows.splits()[split] if name in there][: given.limit]
    for flow in chosen:
        waiting = [rival for rival in rivals if f"{flow}.a" not in results.setdefault(rival, {})]
        if not waiting:
            continue
        for name, file in finished.cases(ARCHIVES, flows.draw_flow(flow, 0)).items():
            for rival in waiting:
                began = time.process_time()
                fields = rivals[rival](file)
                seconds = round(time.process_time() - began, 3)
                rows = errors(file.case, file.times, stacked(fields))
                results[rival][name] = {"seconds": seconds, "errors": rows}
        OUTPUT.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")
        print(flow, *waiting, flush=True)


if __name__ == "__main__":
    main()
