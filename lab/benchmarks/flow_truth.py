"""How good the truth of the flow set is: against the authors' sample, and its start against our potential flow.

    python lab/benchmarks/flow_truth.py [--runs FOLDER] [--pictures docs/images]

Prints and writes `lab/benchmarks/results/flow_truth.json`. The authors' sample is in
`lab/reference`. Run files of the standard profile are taken from the folder (`penn generate flow --runs FOLDER` keeps
them there); a case that it does not have is solved with OpenFOAM, in one to two minutes. With `--pictures` it only
draws, from the dataset, one picture for each type of duct: the coarse mesh, its potential flow, and the reference
at t = 4.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.interpolate import LinearNDInterpolator

from pennlab.charts import with_palette
from pennlab.datasets.flow import cases as flow
from pennlab.datasets.flow.truth import Run
from pennpde import pictures
from pennpde.case import Case
from pennpde.data import storage
from pennpde.files import write_json
from pennpde.pictures import DIVERGING, Panel

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "lab" / "reference"
RESULT = Path(__file__).parent / "results" / "flow_truth.json"
SAMPLED = "a_1.00"
CASES = (SAMPLED, "b_0.30_0.70", "c_0.80_0.30")
LIMITS = {"u": 1.5e-4, "p": 1.5e-4}
FINER = 4


def main() -> None:
    """Compare, draw and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=ROOT / "data" / "flow" / "runs")
    parser.add_argument("--sample", type=Path, default=REFERENCE / "samples" / "flow_a1_1.00.npz")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()

    if arguments.pictures:
        for name in CASES:
            draw(storage.read_file(ROOT / "data" / "flow", name).case, arguments.pictures / f"flow_{name[0]}.png")
        return
    runs = {name: run_of(name, arguments.runs) for name in CASES}
    record = {
        "errors": "mean squares in physical units, u over three components as in the paper",
        "against the authors' sample at t = 4": against_authors(runs[SAMPLED], arguments.sample),
        "our potential flow at inner points of the coarse mesh": {
            name: potential_flows(run) for name, run in runs.items()
        },
        "runs": {name: facts_of(run) for name, run in runs.items()},
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(arguments.output, record)


def run_of(name: str, folder: Path) -> Run:
    """A run that is there, or a new one."""
    kept = folder / f"{name}.h5"
    if kept.exists():
        return flow.read_run(kept)
    print(f"{kept} is not there; solving {name}.")
    with tempfile.TemporaryDirectory() as made:
        flow.solve(name, flow.PROFILES["standard"], Path(made) / "run.h5")
        return flow.read_run(Path(made) / "run.h5")


def against_authors(run: Run, path: Path) -> dict:
    """Mean squared differences at the authors' points, which prescribe their own values at theirs."""
    sample = np.load(path)
    u, p = flow.fields_at(run, sample["points"][:, :2])
    u = np.concatenate([u[..., -1], np.zeros((len(u), 1))], axis=1)
    prescribed = sample["u_dirichlet_mask"]
    u[prescribed] = sample["u_dirichlet_value"][prescribed]
    found = {
        "u": float(np.mean((u - sample["u"][-1]) ** 2)),
        "p": float(np.mean((p[:, -1] - sample["p"][-1]) ** 2)),
    }
    for name, value in found.items():
        print(f"{run.facts['name']} against {path.name}: {name} {value:.2e}, limit {LIMITS[name]:.1e}")
    return {
        "sample": path.name,
        "case": run.facts["name"],
        "points": len(u),
        "mse": found,
        "limits": LIMITS,
        "within limits": all(found[name] <= LIMITS[name] for name in LIMITS),
    }


def potential_flows(run: Run) -> dict:
    """Ours on the coarse mesh against OpenFOAM's on the fine one, and against ours on a mesh as fine."""
    name = str(run.facts["name"])
    case, fine = (
        flow.flow_case(flow.coarse_mesh(name)),
        flow.flow_case(flow.coarse_mesh(name, cells_per_length=FINER * flow.CELLS_PER_LENGTH, jitter=0.0)),
    )
    points = case.mesh.points.numpy()
    inside = np.setdiff1d(np.arange(len(points)), case.mesh.boundary_points)
    ours = case.initial["u"].numpy()[inside]
    foam = flow.fields_at(run, points[inside])[0][..., 0]
    finer = LinearNDInterpolator(fine.mesh.points.numpy(), fine.initial["u"].numpy())(points[inside])
    near = distance_to_blocks(name, points[inside]) < 1.0 / flow.PROFILES["standard"].cells
    found = {
        "coarse to OpenFOAM": mean_square(ours - foam),
        "coarse to OpenFOAM, without the points at interfaces": mean_square((ours - foam)[~near]),
        f"coarse to ours {FINER} times finer": mean_square(ours - finer),
        f"ours {FINER} times finer to OpenFOAM": mean_square(finer - foam),
    }
    print(f"{name}, potential flow: " + ", ".join(f"{what} {value:.1e}" for what, value in found.items()))
    return {"points": len(inside), "points at interfaces": int(near.sum()), "mse": found}


def distance_to_blocks(name: str, points: np.ndarray) -> np.ndarray:
    """To the sides of the blocks that OpenFOAM's mesh is made of; at inner points these are interfaces."""
    nearest = np.full(len(points), np.inf)
    for region in flow.duct(name).regions:
        corners = np.array(region.corners, float)
        for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            along = end - start
            share = np.clip((points - start) @ along / (along @ along), 0.0, 1.0)
            nearest = np.minimum(nearest, np.linalg.norm(points - start - share[:, None] * along, axis=1))
    return nearest


def mean_square(difference: np.ndarray) -> float:
    """Of a velocity, over three components."""
    return float((difference**2).sum(axis=1).mean() / 3)


def facts_of(run: Run) -> dict:
    """What the run file says about itself."""
    return {
        "solver": str(run.facts["solver"]),
        "cells": len(run.mesh.quads),
        "seconds": round(float(run.facts["seconds"]), 1),
        "largest Courant number": round(float(run.facts["largest_courant"]), 3),
        "settings": json.loads(run.facts["settings"]),
    }


def draw(case: Case, path: Path) -> None:
    """The coarse mesh, where the flow starts, and where it is at t = 4."""
    velocity, pressure = (case.targets[name].reshape(case.initial[name].shape) for name in "up")
    start, end = case.initial["u"].norm(dim=1), velocity.norm(dim=1)
    fastest = float(torch.quantile(end, 0.999))
    speed = "|u| / inlet speed"
    mesh = case.mesh
    number = f"{mesh.number_of_points} points, {mesh.number_of_cells} quads"
    rows = [
        [
            Panel(f"mesh: {number}", mesh, None),
            Panel("start: potential flow", mesh, start, limits=(0.0, fastest), scale=speed, through=velocity),
        ],
        [
            Panel("speed at t = 4", mesh, end, "viridis", (0.0, fastest), False, velocity, speed, velocity),
            Panel(
                "pressure at t = 4", mesh, pressure, DIVERGING, scale="p / (density · inlet speed²)", through=velocity
            ),
        ],
    ]
    pictures.draw(path, rows, title=case.name)
    path.write_bytes(with_palette(path.read_bytes()))


if __name__ == "__main__":
    main()
