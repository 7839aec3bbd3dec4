"""What a written time folder is worth to OpenFOAM: errors of its cells and the first residuals of simpleFoam.

    python lab/benchmarks/first_residuals.py [--flows 8]

Flows of the plane-flow test sets that may be steady (as in `restarts.py`), their steady state predicted with
`penn.predict` and written twice: from the values at the points of the mesh alone (`points`), and with means over cells
and faces of the solution on split cells (`split`), which is what `penn predict --write-time` does. Errors are relative
to the state that simpleFoam converges to on the same cells (1e-6) from there. Residuals are the initial ones of its
first iteration, the largest of Ux, Uy and p; of a fluid at rest all are 1.

`lid` in the JSON is the cavity of `small_conditions.py` at t = 1: errors of the cells against the means of icoFoam on
cells a quarter as large, beside those of icoFoam on the same cells.

Prints and writes `lab/benchmarks/results/first_residuals.json` and the table of `docs/openfoam.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import restarts
import small_conditions
import torch

import pennpde as penn
from pennlab import running
from pennlab.datasets.plane_flow.flows import draw_flow
from pennlab.paper.tables import write_within
from pennpde import openfoam
from pennpde.files import write_json
from pennpde.penn import STEADY

OUTPUT = Path(__file__).parent / "results" / "first_residuals.json"
WAYS = ("points", "split")


def measured(name: str, network: penn.Predictor, installation: running.Installation) -> dict[str, Any]:
    flow = draw_flow(name)
    with tempfile.TemporaryDirectory() as scratch:
        bench = restarts.Bench.made(
            Path(scratch) / "case", flow, restarts.SPACING, restarts.TOLERANCES[-1], installation
        )
        bench.put(None, None)
        case = openfoam.read_problem(bench.folder, network.equation)
        outcome = penn.predict(network, case, times=[STEADY])
        row: dict[str, Any] = {"flow": name, "reynolds": flow.reynolds, "cells": bench.cells, "level": outcome.level}
        assert outcome.finer is not None, "the level splits no cells"
        written: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for way in WAYS:
            writer = openfoam.TimeWriter.of(bench.folder, outcome.case.mesh)
            finer = outcome.finer if way == "split" else None
            writer.write("0", outcome.last, network.equation.foam_fields, overwrite=True, finer=finer)
            velocity, pressure = (
                openfoam.read_field(bench.folder / "0" / each, bench.folder).values(bench.cells) for each in ("U", "p")
            )
            written[way] = velocity, pressure
            solved = bench.solved()
            log = (bench.folder / "log.simpleFoam").read_text().split("\nTime = ")[1]
            found = re.findall(r"Solving for (Ux|Uy|p), Initial residual = ([^\s,]+)", log)
            row[way] = {"residuals": {key: float(value) for key, value in reversed(found)}}
            row[way]["iterations"] = (
                solved["reached"][f"{restarts.TOLERANCES[-1]:.0e}"] if "reached" in solved else None
            )
        truth = bench.fields()
        areas = bench.dual.areas
        for way, (velocity, pressure) in written.items():
            of_p = [(each - (each * areas).sum() / areas.sum())[:, None] for each in (pressure, truth[1])]
            row[way]["errors"] = {
                "u": restarts.relative_error(velocity, truth[0], areas),
                "p": restarts.relative_error(of_p[0], of_p[1], areas),
            }
        return row


def lid(network: penn.Predictor, installation: running.Installation) -> dict[str, Any]:
    """By way of writing, errors of U and p in the cells of a cavity."""
    square, number = small_conditions.CASES["whole lid"], small_conditions.CELLS
    with tempfile.TemporaryDirectory() as scratch:
        found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for way, finer in (("means", 4), ("icoFoam", 1)):
            folder, steps = Path(scratch) / way, math.ceil(square.time * square.fastest * number * finer / 0.4)
            folder.mkdir()
            small_conditions.write_square(folder, square, finer, write_interval=steps, step=square.time / steps)
            running.run(folder, "icoFoam", installation=installation)
            last = max(openfoam.time_folders(folder), key=lambda each: float(each.name))
            found[way] = _means_of(folder, last, number, finer)
        case = openfoam.read_problem(folder, network.equation)
        outcome = penn.predict(network, case, times=[square.time])
        writer = openfoam.TimeWriter.of(folder, outcome.case.mesh)
        for way in WAYS:
            finer_solution = outcome.finer if way == "split" else None
            written = writer.write("9", outcome.last, network.equation.foam_fields, True, finer_solution)
            found[way] = _means_of(folder, written, number, 1)
        truth, areas = found.pop("means"), np.ones(number**2)
        return {
            way: {name: restarts.relative_error(each[place], truth[place], areas) for place, name in enumerate("up")}
            for way, each in found.items()
        }


def _means_of(folder: Path, time: Path, number: int, finer: int) -> tuple[np.ndarray, np.ndarray]:
    """U, and p without its mean, as means over squares of so many cells along both axes."""
    cells = (number * finer) ** 2
    blocks = [
        openfoam.read_field(time / name, folder).values(cells).reshape(number, finer, number, finer, -1)
        for name in ("U", "p")
    ]
    velocity, pressure = (each.mean(axis=(1, 3)).reshape(number**2, -1) for each in blocks)
    return velocity, pressure - pressure.mean()


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| flow | Re | cells | u, p off: points | split | first residual: points | split "
        "| iterations: points | split |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [f"{row['flow']} | {row['reynolds']:g} | {row['cells']:,}"]
        cells += [" , ".join(f"{100 * row[way]['errors'][each]:.2g} %" for each in ("u", "p")) for way in WAYS]
        cells += [f"{max(row[way]['residuals'].values()):.1e}" for way in WAYS]
        cells += ["–" if row[way]["iterations"] is None else str(row[way]["iterations"]["iterations"]) for way in WAYS]
        lines.append("| " + " | ".join(cells).replace(" , ", ", ") + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flows", type=int, default=8)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    installation = running.find_installation(("simpleFoam", "icoFoam"))
    network = penn.load_pretrained("flow")
    assert isinstance(network, penn.Predictor)
    rows = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.exists() else []
    for name in restarts.candidates(chosen.flows):
        if name not in {row["flow"] for row in rows}:
            rows.append(measured(name, network, installation))
            print(json.dumps(rows[-1]), flush=True)
            write_json(OUTPUT, {"penn": penn.__version__, "openfoam": installation.version, "rows": rows})
    about = {"penn": penn.__version__, "openfoam": installation.version}
    write_json(OUTPUT, {**about, "lid": lid(network, installation), "rows": rows})
    write_within(restarts.PAGE, "\n".join(table(rows)), "first residuals")


if __name__ == "__main__":
    main()
