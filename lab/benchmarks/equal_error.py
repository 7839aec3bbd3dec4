"""The fair clock: the flow solver and OpenFOAM in one run, each on one core, and the speed-up at equal error.

For each flow with a fine-grid reference (half the spacing of the dataset, `data/plane_flow/finer`) OpenFOAM is run
over cell sizes, Courant numbers and linear solvers; its Pareto curve of error against seconds is the baseline. The
equal-error speed-up of a level is OpenFOAM's seconds at the level's error, on its own curve, over the level's seconds.

    python lab/benchmarks/equal_error.py --measure [--anew] [--processes 8] [--only NAME ...] [--limit N]
    python lab/benchmarks/equal_error.py --measure --only start-up/step ... # of data/trials
    python lab/benchmarks/equal_error.py                # tables and figure from what was measured

Errors are relative L2 errors at the points of the dataset's first mesh of each flow, mean over its snapshots. Seconds
are processor time of one core, for all snapshots together, the shorter of two runs where a run is short.

- Ours: everything after the file is read, first touch of its mesh included: checks, units, assembly, factors,
  potential flow, march, correction, balance, expected error. `bare` is without certificate and expected error. Before
  each run the file is read again and what was kept is forgotten; what is loaded or compiled once in a process was used
  on another flow before.
- OpenFOAM: what the solver itself tells at its end, which begins when it reads mesh and fields; it is started and
  linked by then. It is given its cells and the potential flow to start from, for nothing, and writes only at its end.

Each process has a core of its own. Each flow is written when it is done, so a run can be stopped and given again.
Writes `lab/benchmarks/results/equal_error.json`, the tables of docs/flow.md and `docs/images/equal_error.png`; rows
made by other code or weights are measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

import torch
from flow_results import made_with
from plane_flow_finer import FINER
from plane_flow_openfoam import Setting, errors_of, solved_at_last
from torch import Tensor, nn

import pennpde
from pennlab.charts import chart, round_ticks, save
from pennlab.datasets.plane_flow import finished, flows, trials
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.paper.plane_flow_errors import errors, stacked
from pennlab.paper.tables import markdown_table, write_within
from pennpde.data.storage import read_file
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import write_json
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.flow.dual_cells import _edges
from pennpde.flow.problem import _LAST
from pennpde.flow.scheme import FlowScheme
from pennpde.prediction import stages

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "equal_error.json"
PAGE = ROOT / "docs" / "flow.md"
TRIALS = ROOT / "data" / "trials"
OPENFOAM = (
    *(Setting(spacing, 8.0, loose=True, outer=1) for spacing in (0.65, 0.8, 1.0, 1.25, 1.6, 2.0, 3.0, 4.0, 6.0)),
    *(Setting(spacing, 4.0, loose=True, outer=1) for spacing in (0.65, 0.8, 1.0, 1.25)),
    *(Setting(spacing, 16.0, loose=True, outer=1) for spacing in (1.6, 2.0, 4.0)),
    *(Setting(spacing, step=0.04) for spacing in (2.0, 4.0)),
)
"""pimpleFoam over sizes of cells and lengths of steps, and icoFoam."""
PICTURE = ROOT / "docs" / "images" / "equal_error.png"
WARM_UP = "cavity_2003", "contraction_2001"
"""Of small meshes; the first one is not warmed up by itself."""
ONCE = 1.0
"""Seconds from which a run is not repeated."""
FASTEST = 0.03
"""Seconds below which a curve is not continued: starting a program takes as long."""


def levels() -> dict[str, nn.Module | None]:
    """What is compared with OpenFOAM, from cheap to expensive; None is Richardson's extrapolation."""
    found: dict[str, nn.Module | None] = {
        "plain scheme, own cells, Courant 4": FlowScheme(splits=0, courant=4.0),
        "plain scheme, cells split once, Courant 1.4": FlowScheme(splits=1, courant=1.4),
        "Richardson extrapolation of both, Courant 1.4": None,
    }
    for level in CoarseMarch.levels:
        network = pennpde.load_pretrained("flow")
        network.set_level(level)  # pyright: ignore[reportCallIssue]
        found[f"`flow`, {level}"] = network
    return found


START_UP = tuple(
    f"start-up/{name}"
    for name in ("straight", "step", "half-height", "square", "two-inlets", "bend", "tee", "contraction")
)
"""Flows of `data/trials` at Reynolds number 1000, on cells of a twentieth of the inlet."""


def flow_of(name: str) -> Flow:
    return trials.trial(name.partition("/")[2]).flow if name in START_UP else flows.draw_flow(name, 0)


def read(name: str) -> CaseFile:
    """A flow as if nobody had seen it before."""
    _LAST.clear()
    _edges.cache_clear()
    if name in START_UP:
        return read_file(TRIALS, name.partition("/")[2])
    return next(iter(finished.cases(FINER, flow_of(name)).values()))


Run = Callable[[CaseFile], Mapping[str, Tensor]]


def whole(model: nn.Module) -> Run:
    return lambda file: pennpde.predict(model, file.case, times=list(file.times)).fields


def bare(model: nn.Module) -> Run:
    """Without certificate and expected error."""

    def run(file: CaseFile) -> Mapping[str, Tensor]:
        asked = stages.request(
            model, file.case, None, length=None, speed=None, resolution="auto", times=list(file.times)
        )
        return stages.bring_back(stages.solve(stages.prepare(asked))).fields

    return run


def richardson(file: CaseFile) -> Mapping[str, Tensor]:
    """From two levels of the plain scheme, whose steps are as much longer as the cells are larger."""
    coarse, fine = (whole(FlowScheme(splits=splits, courant=1.4))(file) for splits in (0, 1))
    return {name: values + (values - coarse[name]) / 3.0 for name, values in fine.items()}


def timed(run: Run, name: str) -> tuple[float, Mapping[str, Tensor]]:
    """The shorter of two runs; long ones are not repeated."""
    found, fields = [], {}
    while len(found) < 2 and sum(found) < ONCE:
        file = read(name)
        began = time.process_time()
        fields = run(file)
        found.append(time.process_time() - began)
    return min(found), fields


def measured(model: nn.Module | None, name: str) -> dict[str, Any]:
    """Error and seconds of a level on a flow; of Richardson's extrapolation without one."""
    seconds, fields = timed(richardson if model is None else whole(model), name)
    row = {"seconds": round(seconds, 4)}
    if model is not None:
        row["bare"] = round(timed(bare(model), name)[0], 4)
    file = read(name)
    rows = errors(_snapshots(file).case, list(file.times), stacked(fields))
    found = {unknown: mean(row[unknown] for row in rows.values()) for unknown in ("u", "p")}
    return row | {unknown: float(f"{each:.4g}") for unknown, each in found.items()}


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


def _clocks(of_flows: Sequence[Mapping[str, Any]], level: str) -> tuple[str, ...]:
    return ("seconds", "bare") if all("bare" in each["levels"][level] for each in of_flows) else ("seconds",)


def apart(results: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Test flows with a fine-grid reference, and start-up flows."""
    kept = results["flows"]
    start_up = {name: row for name, row in kept.items() if name in START_UP}
    return {name: row for name, row in kept.items() if name not in start_up}, start_up


def table(measured_flows: Mapping[str, Any]) -> str:
    """By level: errors, seconds, and the equal-error speed-up, geometric mean over flows."""
    of_flows = list(measured_flows.values())
    rows = []
    for level in levels():
        there = [each for each in of_flows if "u" in each["levels"].get(level, {})]
        if not there:
            continue
        seconds = [geometric_mean(each["levels"][level][which] for each in there) for which in _clocks(there, level)]
        cells = [level, str(len(there)), " / ".join(f"{each:.3f}" for each in seconds)]
        for unknown in ("u", "p"):
            values = [100 * each["levels"][level][unknown] for each in there]
            cells.append(f"{mean(values):.2f} % ({median(values):.2f} %)")
        for unknown in ("u", "p"):
            found = [each for each in (speed_up(of_flow, level, unknown) for of_flow in there) if each]
            beyond = sum(is_beyond(of_flow, level, unknown) for of_flow in there)
            cells.append((f"{geometric_mean(found):.2f}" if found else "") + (f" ({beyond})" if beyond else ""))
        rows.append(cells)
    head = ("level", "flows", "seconds / bare", "u, mean (median)", "p", "speed-up at equal u", "at equal p")
    return markdown_table(head, rows)


def by_flow(measured_flows: Mapping[str, Any]) -> str:
    """Speed-up at equal u of each level, flow by flow."""
    named = [level for level in levels() if level.startswith("`")]
    rows = []
    for of_flow in sorted(measured_flows.values(), key=lambda each: (each["family"], each["reynolds"])):
        cells = [of_flow["family"], f"{of_flow['reynolds']:,}", f"{of_flow['points']:,}"]
        for level in named:
            row = of_flow["levels"].get(level, {})
            ratio = speed_up(of_flow, level) if "u" in row else None
            cells += [f"{row['seconds']:.2f} s, {100 * row['u']:.2f} %", f"{ratio:.1f}"] if ratio else ["", ""]
        rows.append(cells)
    head = ("family", "Reynolds number", "points", *(part for level in named for part in (level, "speed-up")))
    return markdown_table(head, rows)


def draw(measured_flows: Mapping[str, Any]) -> None:
    """Error against seconds: geometric means over the flows that all have."""
    of_flows = list(measured_flows.values())
    figure, (axes,) = chart(1, 2, 8.6, 3.4)
    for each, unknown in zip(axes, ("u", "p"), strict=True):

        def middle(rows: Sequence[Mapping[str, Any]], unknown: str = unknown) -> tuple[float, float]:
            kept = [row for row in rows if math.isfinite(row[unknown]) and row[unknown] > 0]
            return geometric_mean(row["seconds"] for row in kept), 100 * geometric_mean(row[unknown] for row in kept)

        settings: dict[str, list[Mapping[str, Any]]] = {}
        for of_flow in of_flows:
            for name, row in of_flow["openfoam"].items():
                if unknown in row:
                    settings.setdefault(name, []).append(row)
        complete = [middle(rows) for rows in settings.values() if len(rows) == len(of_flows)]
        each.loglog(*zip(*sorted(complete), strict=True), "kx", markersize=5, label="OpenFOAM, each setting")
        front = [pair for pair in complete if not any(a < pair[0] and b < pair[1] for a, b in complete)]
        each.loglog(*zip(*sorted(front), strict=True), "k-", linewidth=1)
        groups = {
            "plain scheme": [name for name in levels() if name.startswith("plain")],
            "Richardson extrapolation": [name for name in levels() if name.startswith("Richardson")],
            "flow": [name for name in levels() if name.startswith("`")],
        }
        for (label, names), style in zip(groups.items(), ("s--", "^", "o-"), strict=True):
            rows = [
                [of_flow["levels"][name] for of_flow in of_flows if "u" in of_flow["levels"].get(name, {})]
                for name in names
            ]
            points = [middle(row) for row in rows if row]
            if points:
                each.loglog(*zip(*points, strict=True), style, markersize=5, label=label)
        each.set(xlabel="seconds of one core", ylabel=f"error of {unknown}, %")
        for which in "xy":
            round_ticks(each, which)
        each.legend()
    save(figure, PICTURE, colours=64)


def of_flow(name: str, known: Mapping[str, Any], stale: bool) -> dict[str, Any]:
    """All of a flow; what is known is kept, levels of other code or weights are not."""
    torch.set_num_threads(1)
    flow, file = flow_of(name), read(name)
    found: dict[str, Any] = {"openfoam": dict(known.get("openfoam", {})), "levels": dict(known.get("levels", {}))}
    found |= {"family": flow.family, "reynolds": round(flow.reynolds), "points": file.case.number_of_points}
    if stale:
        found["levels"] = {}
    for setting in OPENFOAM:
        if setting.name not in found["openfoam"]:
            found["openfoam"][setting.name] = of_openfoam(flow, setting, file)
    other = WARM_UP[name == WARM_UP[0]]
    for level, model in levels().items():
        if level not in found["levels"]:
            run = richardson if model is None else whole(model)
            run(replace(read(other), times=read(other).times[:1]))  # what is loaded or compiled on its first use
            found["levels"][level] = measured(model, name)
    return found


def _own_core(cores: Any) -> None:
    core = cores.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def measure(names: Sequence[str], output: Path, processes: int, anew: bool) -> None:
    about = made_with("flow")
    kept = json.loads(output.read_text()) if output.exists() and not anew else {"flows": {}}
    results: dict[str, Any] = {**about, "processes": processes, "flows": kept["flows"]}
    stale = not about.items() <= kept.items()
    manager = multiprocessing.Manager()
    cores = manager.Queue()
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(processes))
    # Neighbouring numbers may be threads of one core: as far apart as possible.
    for place in range(processes):
        cores.put(available[place * len(available) // processes])
    # Those that take longest first.
    ordered = sorted(names, key=lambda name: -read(name).case.number_of_points)
    tasks = {name: (name, results["flows"].get(name, {}), stale) for name in ordered}
    with ProcessPoolExecutor(processes, initializer=_own_core, initargs=(cores,)) as pool:
        waiting = {pool.submit(of_flow, *arguments): name for name, arguments in tasks.items()}
        for done in as_completed(waiting):
            name = waiting[done]
            results["flows"][name] = done.result()
            write_json(output, results)
            print(name, results["flows"][name]["levels"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="what is missing")
    parser.add_argument("--warm-up", action="store_true", help="only compile what is compiled on its first use")
    parser.add_argument("--anew", action="store_true", help="OpenFOAM, too, on another machine")
    parser.add_argument("--processes", type=int, default=1, help="each with a core of its own")
    parser.add_argument("--only", nargs="+", help="some of the flows")
    parser.add_argument("--limit", type=int, help="the first so many flows")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.warm_up:
        for run in [richardson if model is None else whole(model) for model in levels().values()]:
            run(replace(read(WARM_UP[0]), times=read(WARM_UP[0]).times[:1]))
        return
    if given.measure:
        names = given.only or sorted(finished.names(FINER))
        measure(names[: given.limit], given.output, given.processes, given.anew)
    results, start_up = apart(json.loads(given.output.read_text(encoding="utf-8")))
    made = table(results)
    print(made, table(start_up), sep="\n")
    if given.output == OUTPUT:
        write_within(PAGE, made, "equal error")
        write_within(PAGE, by_flow(results), "equal error by flow")
        write_within(PAGE, table(start_up), "equal error of start-up flows")
        draw(results)


if __name__ == "__main__":
    main()
