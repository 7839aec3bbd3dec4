"""The general flow network on meshes of other fineness than the dataset's.

Flows of the test set on triangles with a half to eight times as many points per inlet width as the first mesh of
the dataset, on graded triangles, and on split quads, at their first and second moment. The truth is computed by
OpenFOAM with half the spacing of the dataset's, and taken to the points of each mesh: the dataset's own points are too
few to interpolate between. A million points are compared at the dataset's points, with the dataset's truth. Meshes in
the results are not predicted again.

    python lab/benchmarks/general_flow_meshes.py [--finest 8]
    python lab/benchmarks/general_flow_meshes.py --million --device cuda     # one flow on a million points, too

Writes `lab/benchmarks/results/general_flow_meshes.json` and the table of `docs/general_flow_results.md`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pennpde
from pennlab.datasets.plane_flow import finished, flows
from pennlab.datasets.plane_flow.cases import case_on_mesh, case_with_truth
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.datasets.plane_flow.meshes import MeshPlan, network_mesh
from pennlab.datasets.plane_flow.truth import Truth, solve
from pennlab.datasets.split_quads import triangulated
from pennlab.paper.plane_flow_errors import errors, stacked
from pennlab.paper.tables import markdown_table, within
from pennpde.case import Case
from pennpde.checkpoints import config_of
from pennpde.data.vtkhdf import unpack
from pennpde.mesh import Mesh
from pennpde.mesh.triangulation import interpolation

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "general_flow_meshes.json"
PAGE = ROOT / "docs" / "general_flow_results.md"
FLOWS = ("bend_2000", "chamber_2001", "step_2001")
FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)
MILLION_OF = "step_2001"
_OUTSIDE = 0.05


def kinds(points_per_width: float, finest: float) -> dict[str, tuple[MeshPlan, float]]:
    """By name, a plan and the share of its quads that are split."""
    found = {
        f"triangles, {factor:g} ×": (MeshPlan("triangles", factor * points_per_width, 1.0, 0), 0.0)
        for factor in FACTORS
        if factor <= finest
    }
    found["graded, 1 ×"] = (MeshPlan("graded", points_per_width, 0.4, 0), 0.0)
    found["mixed, 1 ×"] = (MeshPlan("mixed", points_per_width, 1.0, 0), 0.0)
    found["quads split at random, 1 ×"] = (MeshPlan("lattice", points_per_width, 1.0, 0), 1.0)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--finest", type=float, default=8.0)
    arguments.add_argument("--million", action="store_true", help=f"only {MILLION_OF} on a million points")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--archives", type=Path, default=ARCHIVES)
    given = arguments.parse_args()
    torch.set_num_threads(1 if given.device == "cpu" else torch.get_num_threads())
    model = pennpde.load_pretrained("flow").to(given.device)
    config = config_of(model)
    assert config is not None
    results: dict[str, Any] = {"weights": config.weights_sha256, "flows": {}}
    if OUTPUT.exists():
        results = _of_weights(json.loads(OUTPUT.read_text()), config.weights_sha256)
    for name in [MILLION_OF] if given.million else FLOWS:
        flow = flows.draw_flow(name, 0)
        product = finished.products(given.archives, flow)[f"{name}.a"]
        file = unpack(product.content, name)
        rows = results["flows"].setdefault(name, {"reynolds": flow.reynolds, "meshes": {}})["meshes"]
        points_per_width = product.facts["mesh"]["points_per_width"]
        plans: dict[str, Any] = {"the dataset's": None} | kinds(points_per_width, given.finest)
        if given.million:
            plans = {"quads, 26 ×": (MeshPlan("lattice", 26.2 * points_per_width, 1.0, 0), 0.0)}
        fine: Truth | None = None
        for label, made in plans.items():
            if label in rows:
                continue
            mesh = file.case.mesh if made is None else network_mesh(flow, made[0])
            if made is not None and made[1]:
                mesh = triangulated(mesh, made[1])
            times = file.times[:2]
            clock = time.process_time if given.device == "cpu" else time.perf_counter
            began = clock()
            case = replace(file.case, targets={}) if made is None else case_on_mesh(flow, mesh)
            outcome = pennpde.predict(model, case, times=times)
            seconds = clock() - began
            if given.million:
                found = {field: _at_dataset(file.case, mesh, outcome.fields[field], field) for field in ("u", "p")}
            else:
                fine = fine or _truth(replace(flow, moments=tuple(times)))
                known = case_with_truth(replace(flow, moments=tuple(times)), mesh, fine, name)
                by_moment = errors(known, times, stacked(outcome.fields)).values()
                found = {field: float(f"{mean(row[field] for row in by_moment):.4g}") for field in ("u", "p")}
            rows[label] = {**found, "points": mesh.number_of_points, "seconds": round(seconds, 2)}
            if given.device != "cpu":
                rows[label]["device"] = torch.cuda.get_device_name()
            OUTPUT.write_text(json.dumps(results, indent=1) + "\n")
            print(name, label, rows[label], flush=True)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(within(page, table(results) + "\n", "meshes", required=True), encoding="utf-8")


def _of_weights(kept: dict[str, Any], weights: str) -> dict[str, Any]:
    """What was measured with these weights, and the million points, whose row says which weights it has."""
    if kept["weights"] == weights:
        return kept
    found: dict[str, Any] = {"weights": weights, "flows": {}}
    for name, flow in kept["flows"].items():
        dear = {label: {"weights": kept["weights"], **row} for label, row in flow["meshes"].items() if "device" in row}
        if dear:
            found["flows"][name] = {**flow, "meshes": dear}
    return found


def _truth(flow: Flow) -> Truth:
    """By OpenFOAM with half the spacing of the dataset's."""
    with tempfile.TemporaryDirectory(prefix=f"penn-{flow.name}-") as scratch:
        return solve(flow, Path(scratch) / "case", Resolution.of(flow, 0.5), steady=False)


def _at_dataset(case: Case, mesh: Mesh, values: Tensor, field: str) -> float:
    """The relative difference from the dataset's truth at the dataset's points, away from walls."""
    truth = case.targets[field][..., :2].double().numpy()
    triangles = triangulated(mesh).connectivity.reshape(-1, 3)
    matrix, _ = interpolation(mesh.points.numpy(), triangles, case.mesh.points.numpy(), _OUTSIDE)
    found = values.double().cpu().numpy()
    there = (matrix @ found.reshape(len(found), -1)).reshape(truth.shape)
    inside = np.setdiff1d(np.arange(case.number_of_points), case.mesh.boundary_points)
    return float(f"{np.linalg.norm((there - truth)[inside]) / np.linalg.norm(truth[inside]):.4g}")


def table(results: Mapping[str, Any]) -> str:
    by_name = {name: results["flows"][name] for name in FLOWS if name in results["flows"]}
    labels = list(dict.fromkeys(label for flow in by_name.values() for label in flow["meshes"]))
    rows = []
    for label in labels:
        row = [label]
        for flow in by_name.values():
            found = flow["meshes"].get(label)
            if found is None:
                row.append("–")
                continue
            about = f"{found['points']:,} points" + (", weights before these" if "weights" in found else "")
            row.append(f"{100 * found['u']:.1f}, {100 * found['p']:.1f} ({about})")
        rows.append(row)
    heads = [f"{name}, Re {flow['reynolds']:.0f}: u, p in %" for name, flow in by_name.items()]
    return markdown_table(("mesh", *heads), rows)


if __name__ == "__main__":
    main()
