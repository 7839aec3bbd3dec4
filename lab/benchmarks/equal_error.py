"""The fair clock: the flow solver and OpenFOAM in one run on one core, and the speed-up at equal error.

For each flow with a fine-grid reference (half the spacing of the dataset, `data/plane_flow/finer`) OpenFOAM is run
over cell sizes, Courant numbers and linear solvers; its Pareto curve of error against seconds is the baseline. The
equal-error speed-up of a level is OpenFOAM's seconds at the level's error, on its own curve, over the level's seconds.

    python lab/benchmarks/equal_error.py --measure [--only NAME ...] [--limit N]
    python lab/benchmarks/equal_error.py                # table from what was measured

Errors are relative L2 errors at the points of the dataset's first mesh of each flow, mean over its snapshots. Seconds
are processor time of one core, for all snapshots together. OpenFOAM: what the solver itself tells at its end, without
making its mesh and writing only at the end. Ours: everything but reading the file, the expected error included. Each
flow is written when it is done, so a run can be stopped and given again. Writes
`lab/benchmarks/results/equal_error.json` and the table of docs/flow.md; rows made by other code or weights are measured
again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

import torch
from flow_results import made_with
from plane_flow_finer import FINER
from plane_flow_openfoam import Setting, errors_of, solved_at_last
from torch import nn

import pennpde
from pennlab.datasets.plane_flow import finished, flows
from pennlab.paper.plane_flow_errors import errors, stacked
from pennlab.paper.tables import markdown_table, write_within
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import write_json
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.flow.scheme import FlowScheme

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "equal_error.json"
PAGE = ROOT / "docs" / "flow.md"
OPENFOAM = (
    *(Setting(spacing, 8.0, loose=True, outer=1) for spacing in (1.0, 1.25, 1.6, 2.0, 3.0, 4.0, 6.0)),
    *(Setting(spacing, 4.0, loose=True, outer=1) for spacing in (0.8, 1.0, 1.25)),
    *(Setting(spacing, 16.0, loose=True, outer=1) for spacing in (1.6, 2.0, 4.0)),
    *(Setting(spacing, step=0.04) for spacing in (2.0, 4.0)),
)
"""pimpleFoam over sizes of cells and lengths of steps, and icoFoam."""
FASTEST = 0.03
"""Seconds below which a curve is not continued: starting a program takes as long."""


def levels() -> dict[str, nn.Module]:
    """What is compared with OpenFOAM, from cheap to expensive."""
    found: dict[str, nn.Module] = {
        "plain scheme, own cells, Courant 4": FlowScheme(splits=0, courant=4.0),
        "plain scheme, cells split once, Courant 1.4": FlowScheme(splits=1, courant=1.4),
    }
    for level in CoarseMarch.levels:
        network = pennpde.load_pretrained("flow")
        network.set_level(level)
        found[f"`flow`, {level}"] = network
    return found


def measured(model: nn.Module, file: CaseFile) -> dict[str, Any]:
    """Error and seconds of a level on a case."""
    case, times = file.case, list(file.times)
    began = time.process_time()
    outcome = pennpde.predict(model, case, times=times)
    seconds = time.process_time() - began
    rows = errors(_snapshots(file).case, times, stacked(outcome.fields))
    found = {name: mean(row[name] for row in rows.values()) for name in ("u", "p")}
    return {"seconds": round(seconds, 3), **{name: float(f"{each:.4g}") for name, each in found.items()}}


def _snapshots(file: CaseFile) -> CaseFile:
    """The case without its steady state, which takes other programs on both sides."""
    targets = {name: values for name, values in file.case.targets.items() if not name.startswith("steady")}
    return replace(file, case=replace(file.case, targets=targets))


def of_openfoam(flow: Any, setting: Setting, file: CaseFile) -> dict[str, Any]:
    found, facts = solved_at_last(flow, setting, steady=False, timed_again=True)
    if found is None:
        return {"failed": facts["failed"]}
    rows = errors_of(flow, found, _snapshots(file))
    mean_of = {name: float(f"{mean(row[name] for row in rows.values()):.4g}") for name in ("u", "p")}
    return {"seconds": facts["execution"], "cells": facts["cells"], **mean_of}


def pareto(rows: Iterable[Mapping[str, float]], unknown: str) -> list[tuple[float, float]]:
    """Seconds and errors of the settings that none beats in both, from fast to accurate."""
    kept: list[tuple[float, float]] = []
    for seconds, error in sorted((row["seconds"], row[unknown]) for row in rows if unknown in row):
        if math.isfinite(error) and (not kept or error < kept[-1][1]):
            kept.append((seconds, error))
    return kept


def seconds_at(curve: Sequence[tuple[float, float]], error: float) -> float:
    """OpenFOAM's seconds at an error, on its curve.

    Between settings by the power law through both; below the least accurate one by that of the whole curve, but never
    below the shortest run that is possible at all. Where no setting is as accurate, those of the most accurate one: a
    lower bound.
    """
    if len(curve) == 1 or error <= curve[-1][1]:
        return curve[-1][0]
    inside = [pair for pair in pairwise(curve) if pair[0][1] >= error >= pair[1][1]]
    (fast, coarse), (slow, fine) = inside[0] if inside else (curve[0], curve[-1])
    power = math.log(slow / fast) / math.log(coarse / fine)
    return max(FASTEST, fast * (coarse / error) ** power)


def speed_up(of_flow: Mapping[str, Any], level: str, unknown: str = "u") -> float | None:
    row, curve = of_flow["levels"].get(level, {}), pareto(of_flow["openfoam"].values(), unknown)
    if not curve or unknown not in row or not math.isfinite(row[unknown]):
        return None
    return seconds_at(curve, row[unknown]) / row["seconds"]


def is_beyond(of_flow: Mapping[str, Any], level: str, unknown: str) -> bool:
    """Whether no setting of OpenFOAM is as accurate as a level."""
    return of_flow["levels"][level][unknown] < min(error for _, error in pareto(of_flow["openfoam"].values(), unknown))


def table(results: Mapping[str, Any]) -> str:
    """By level: errors, seconds, and the equal-error speed-up, geometric mean over flows."""
    of_flows = list(results["flows"].values())
    rows = []
    for level in levels():
        there = [each for each in of_flows if "u" in each["levels"].get(level, {})]
        if not there:
            continue
        cells = [level, str(len(there)), f"{geometric_mean(each['levels'][level]['seconds'] for each in there):.2f}"]
        for unknown in ("u", "p"):
            values = [100 * each["levels"][level][unknown] for each in there]
            cells.append(f"{mean(values):.2f} % ({median(values):.2f} %)")
        for unknown in ("u", "p"):
            found = [each for each in (speed_up(of_flow, level, unknown) for of_flow in there) if each]
            beyond = sum(is_beyond(of_flow, level, unknown) for of_flow in there)
            cells.append((f"{geometric_mean(found):.2f}" if found else "") + (f" ({beyond})" if beyond else ""))
        rows.append(cells)
    head = ("level", "flows", "seconds", "u, mean (median)", "p", "speed-up at equal u", "at equal p")
    return markdown_table(head, rows)


def measure(names: Sequence[str], output: Path) -> None:
    about = made_with("flow")
    kept = json.loads(output.read_text()) if output.exists() else {"flows": {}}
    results: dict[str, Any] = {**about, "flows": kept["flows"]}
    stale = not about.items() <= kept.items()
    models = levels()
    for name in names:
        flow = flows.draw_flow(name, 0)
        file = next(iter(finished.cases(FINER, flow).values()))
        of_flow = results["flows"].setdefault(name, {"openfoam": {}, "levels": {}})
        of_flow |= {"family": flow.family, "reynolds": round(flow.reynolds), "points": file.case.number_of_points}
        if stale:
            of_flow["levels"] = {}
        for setting in OPENFOAM:
            if setting.name not in of_flow["openfoam"]:
                of_flow["openfoam"][setting.name] = of_openfoam(flow, setting, file)
        for level, model in models.items():
            if level not in of_flow["levels"]:
                pennpde.predict(model, file.case, times=[0.01])  # what is loaded or compiled on first use
                of_flow["levels"][level] = measured(model, file)
        write_json(output, results)
        print(name, of_flow["levels"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="what is missing")
    parser.add_argument("--only", nargs="+", help="some of the flows")
    parser.add_argument("--limit", type=int, help="the first so many flows")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.measure:
        measure((given.only or sorted(finished.names(FINER)))[: given.limit], given.output)
    made = table(json.loads(given.output.read_text(encoding="utf-8")))
    print(made)
    if given.output == OUTPUT:
        write_within(PAGE, made, "equal error")


if __name__ == "__main__":
    main()
