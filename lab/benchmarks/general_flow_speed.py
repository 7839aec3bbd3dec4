"""The general flow network: seconds and memory against the number of points.

A duct of triangles, three times as long as wide, each size in a process of its own: making the case, preparing it
(dual cells, conditions, solver of the pressure), one time step, and the most memory that the process ever had. Up to
10,000 points also a whole prediction to t = 4, as `penn.predict` makes it, certificate included, on cells split as it
splits them. Sizes in the results are not measured again; delete the file to start over.

    python lab/benchmarks/general_flow_speed.py [--largest 1e6] [--threads 1] [--device cpu]

Writes `lab/benchmarks/results/general_flow_speed.json` and `docs/images/general_flow_speed.png`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pennpde as penn
from pennlab.charts import chart, save
from pennpde.flow.captured_steps import CapturedSteps
from pennpde.flow.krylov import Effort
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import advance, begin
from pennpde.machine import wait_for

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "general_flow_speed.json"
PICTURE = ROOT / "docs" / "images" / "general_flow_speed.png"
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 4_000_000)
WHOLE = 10_000
"""Up to so many points a whole prediction is made."""
STEPS = 3


def duct(points: int) -> penn.Case:
    """About so many points in triangles; an even inlet, walls and an outlet."""
    across = round((points / 3) ** 0.5)
    x, y = np.meshgrid(np.linspace(0, 3, 3 * across + 1), np.linspace(0, 1, across + 1), indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    a, b, c, d = (each.ravel() for each in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    triangles = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    mesh = penn.Mesh.from_arrays(np.stack([x.ravel(), y.ravel()], axis=1), triangles).with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], 3.0),
            "wall": lambda x: np.isclose(x[:, 1], 0.0) | np.isclose(x[:, 1], 1.0),
        }
    )
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "wall": 0.0}},
        parameters={"viscosity": 0.01},
    )


def measured(points: int, device: str) -> dict[str, Any]:
    """Processor seconds of each part; on a GPU, or on several processors, those of the clock."""
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    model = FlowScheme(splits=0).to(device)
    began = clock()
    case = duct(points)
    made = clock()
    problem = model.problem(case)
    prepared = clock()
    found: dict[str, Any] = {"points": case.number_of_points, "case": made - began, "preparation": prepared - made}
    with torch.no_grad():
        state = begin(problem)
        length = torch.full_like(problem.viscosity, 2.0 / case.number_of_points**0.5)
        state = advance(problem, state, length, passes=2)
        take, effort = advance if device == "cpu" else CapturedSteps(), Effort(3e-5)
        for _ in range(0 if device == "cpu" else STEPS):  # the first ones are captured
            state = take(problem, state, length, effort=effort)
        wait_for(torch.device(device))
        began = clock()
        for _ in range(STEPS):
            state = take(problem, state, length, effort=effort)
        wait_for(torch.device(device))
        found["step"] = (clock() - began) / STEPS
    if points <= WHOLE:
        model.splits = "auto"
        penn.predict(model, duct(200), times=[0.1])  # what is loaded on first use does not count
        began = clock()
        penn.predict(model, duct(points), times=[4.0])
        found["to_4"] = clock() - began
        found["splits"] = model.number_of_splits(case)
    found["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if device != "cpu":
        found["device_gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
    return {name: value if isinstance(value, int) else float(f"{value:.3g}") for name, value in found.items()}


def draw(results: Mapping[str, Mapping[str, Any]]) -> None:
    figure, ((left, right),) = chart(1, 2, 8.6, 3.4)
    for (setting, rows), style in zip(results.items(), ("o-", "s--", "^:"), strict=False):
        sizes = sorted(rows.values(), key=lambda row: row["points"])
        parts = (("preparation", "preparation"), ("step", "one step"), ("to_4", "all, to t = 4"))
        for colour, (name, label) in enumerate(parts):
            chosen = [row for row in sizes if name in row]
            places, seconds = [row["points"] for row in chosen], [row[name] for row in chosen]
            left.loglog(places, seconds, style, color=f"C{colour}", markersize=4, label=f"{label}, {setting}")
        for colour, name in enumerate(("gigabytes", "device_gigabytes"), 3):
            chosen = [row for row in sizes if name in row]
            if chosen:
                places, sums = [row["points"] for row in chosen], [row[name] for row in chosen]
                label = setting if name == "gigabytes" else "on the GPU"
                right.loglog(places, sums, style, color=f"C{colour}", markersize=4, label=label)
    left.set(xlabel="points of the mesh", ylabel="seconds")
    right.set(xlabel="points of the mesh", ylabel="largest memory, GB")
    right.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
    right.yaxis.set_minor_formatter("")
    for axes in (left, right):
        axes.legend(fontsize=7)
    save(figure, PICTURE, colours=64)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--largest", type=float, default=1e6)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    if given.one:
        print(json.dumps(measured(given.one, given.device)))
        return
    setting = f"{given.device}, {given.threads} thread{'s' * (given.threads > 1)}"
    results = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    rows = results.setdefault(setting, {})
    for size in SIZES:
        if size > given.largest or str(size) in rows:
            continue
        options = ["--one", str(size), "--threads", str(given.threads), "--device", given.device]
        done = subprocess.run([sys.executable, __file__, *options], check=True, capture_output=True, text=True)
        rows[str(size)] = json.loads(done.stdout.splitlines()[-1])
        OUTPUT.write_text(json.dumps(results, indent=1) + "\n")
        print(setting, size, done.stdout.strip(), flush=True)
    draw(results)


if __name__ == "__main__":
    main()
