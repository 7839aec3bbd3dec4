"""The network and OpenFOAM judged by a finer truth: half the spacing and half the time step of the dataset's.

The dataset's truth is OpenFOAM's own, and it is off by as much as the network is. So the test set cannot tell which
of the two is closer to the flow, and an OpenFOAM with nearly the truth's cells looks better than it is. Here two test
flows of each family, one near Reynolds number 150 and one near 800 where that is affordable, are computed with half the
spacing, and everything else is measured by that: the dataset's truth, OpenFOAM with several settings, the network, all
in processor seconds of one core.

    python lab/benchmarks/plane_flow_finer.py --solve [--workers 2] [--only NAME ...]   # needs OpenFOAM
    python lab/benchmarks/plane_flow_finer.py --pack                    # what was solved, as data/plane_flow/finer
    python lab/benchmarks/plane_flow_finer.py --measure [--workers 2]   # rivals and network
    python lab/benchmarks/plane_flow_finer.py                           # only the table of docs/general_flow_results.md

Each flow is a file of its own, so all three can be stopped and given again. Writes
`lab/benchmarks/results/plane_flow_finer.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from flow_results import as_they_come, made_with
from general_flow_test import measured
from plane_flow_openfoam import SETTINGS, Setting, errors_of, has_steady, solved_at_last, with_truth

import pennpde
from pennlab.datasets.plane_flow import finished, flows, sensitivity, truth
from pennlab.datasets.plane_flow.cost import expected_seconds
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.paper.plane_flow_errors import errors, truth_at
from pennlab.paper.plane_flow_table import SPLITS
from pennlab.paper.tables import markdown_table, write_within
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import write_atomically, write_json
from pennpde.flow.scheme import FlowScheme

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
FINER = ROOT / "data" / "plane_flow" / "finer"
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "plane_flow_finer.json"
PAGE = ROOT / "docs" / "general_flow_results.md"
REYNOLDS = (150.0, 800.0)
AFFORDABLE = 450.0
"""Seconds of one core, for the finer truth of a flow."""
OURS, PLAIN = "`flow`", "`flow` without its learned part"
DATASET = "OpenFOAM, 1, Courant 2 (the dataset's truth)"
COMPARED = (
    Setting(1.0),
    SETTINGS["1.25, Courant 4, loose"],
    SETTINGS["1.6, Courant 4, loose"],
    SETTINGS["2, Courant 4, loose"],
)


def compared_flows(archives: Path) -> list[str]:
    """Of each family two test flows that are affordable: nearest to a moderate and to a high Reynolds number."""
    by_family: dict[str, list[Flow]] = {}
    there = set(finished.names(archives))
    for split in SPLITS:
        for name in flows.splits()[split]:
            flow = flows.draw_flow(name, 0)
            if name in there and 8 * expected_seconds(flow) < AFFORDABLE:
                by_family.setdefault(flow.family, []).append(flow)
    found = []
    for members in by_family.values():
        for wanted in REYNOLDS:
            nearest = min(members, key=lambda flow: abs(math.log(flow.reynolds / wanted)))
            found.append(nearest.name)
    return list(dict.fromkeys(found))


# The finer truth


def finer(name: str, archives: Path, folder: Path) -> str:
    """Solve a flow with half the spacing, and keep it on the dataset's meshes."""
    flow = flows.draw_flow(name, 0)
    files, facts = finished.cases(archives, flow), finished.facts(archives, flow)
    with tempfile.TemporaryDirectory(prefix=f"penn-{name}-") as scratch:
        found = truth.solve(flow, Path(scratch) / "case", Resolution.of(flow, 0.5), steady=has_steady(files))
    made = {case: with_truth(flow, file, found) for case, file in files.items()}
    known = {
        case: {
            **facts[case],
            "truth": {key: each for key, each in found.facts.items() if not key.startswith("seconds")},
        }
        for case in made
    }
    write_atomically(folder / f"{name}.tar.xz", finished.packed_flow(name, made, known))
    return name


# What is judged by it


def judged(name: str, kind: str, archives: Path, folder: Path) -> dict[str, Any]:
    """Errors of one rival on both meshes of a flow, and seconds."""
    flow = flows.draw_flow(name, 0)
    files = finished.cases(folder, flow)
    if kind in (OURS, PLAIN):
        model = pennpde.load_pretrained("flow") if kind == OURS else FlowScheme(splits=1, courant=2.0)
        pennpde.predict(model, next(iter(files.values())).case, times=[0.01])  # what is loaded on first use
        rows = {case: measured(model, file.case, file.times) for case, file in files.items()}
        seconds = mean(row["seconds"] for row in rows.values())
        return {"seconds": round(seconds, 2), "errors": {case: row["errors"] for case, row in rows.items()}}
    if kind == DATASET:
        stored = finished.cases(archives, flow)
        found = {case: _difference(stored[case], file) for case, file in files.items()}
        return {"errors": found, **_of_openfoam(flow, COMPARED[0], files, with_errors=False)}
    setting = next(each for each in COMPARED if kind == f"OpenFOAM, {each.name}")
    return _of_openfoam(flow, setting, files)


def _difference(stored: CaseFile, file: CaseFile) -> dict[str, dict[str, float]]:
    return errors(file.case, file.times, lambda name, place: truth_at(stored.case, name, place))


def _of_openfoam(
    flow: Flow, setting: Setting, files: Mapping[str, CaseFile], *, with_errors: bool = True
) -> dict[str, Any]:
    found, facts = solved_at_last(flow, setting, steady=has_steady(files))
    if found is None:
        return facts
    result = {"seconds": facts["programs"], "cells": facts["cells"]}
    return result | (
        {"errors": {case: errors_of(flow, found, file) for case, file in files.items()}} if with_errors else {}
    )


def kinds() -> list[str]:
    return [OURS, PLAIN, DATASET, *(f"OpenFOAM, {each.name}" for each in COMPARED[1:])]


# The page


def table(results: Mapping[str, Any]) -> str:
    """Mean over cases of the mean over moments, at determined moments and at all, over flows that all rivals have."""
    whole = [name for name, of_flow in results["flows"].items() if all("errors" in of_flow.get(k, {}) for k in kinds())]
    rows = []
    for kind in kinds():
        cells = [kind, f"{mean(results['flows'][name][kind]['seconds'] for name in whole):.1f}"]
        for keep in (_determined, _any):
            for unknown in ("u", "p"):
                values = _by_case(results["flows"], whole, kind, unknown, keep)
                cells.append(f"{100 * mean(values):.2f} % ({100 * float(np.median(values)):.2f} %)")
        rows.append(cells)
    rows.sort(key=lambda row: -float(row[1]))
    head = ("", "seconds", "u, determined", "p, determined", "u, all", "p, all")
    return f"{len(whole)} flows, mean (median):\n\n" + markdown_table(head, rows)


def _determined(name: str, label: str) -> bool:
    # A steady state is one by what it is.
    return label == "steady" or bool(sensitivity.determined(ARCHIVES, name, float(label)))


def _any(_name: str, _label: str) -> bool:
    return True


def _by_case(
    of_flows: Mapping[str, Any], names: Sequence[str], kind: str, unknown: str, keep: Callable[[str, str], bool]
) -> list[float]:
    found = []
    for name in names:
        for rows in of_flows[name][kind]["errors"].values():
            values = [row[unknown] for label, row in rows.items() if keep(name, label)]
            if values:
                found.append(mean(values))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--solve", action="store_true", help="compute the finer truth that is missing")
    parser.add_argument("--pack", action="store_true", help="put what was solved into data/plane_flow/finer")
    parser.add_argument("--measure", action="store_true", help="measure rivals and network where that is missing")
    parser.add_argument("--only", nargs="+", help="some of the flows")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--archives", type=Path, default=ARCHIVES)
    parser.add_argument("--finer", type=Path, default=FINER)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "finer", help="one file a flow")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    names = given.only or compared_flows(given.archives)
    if given.solve:
        solve_all(names, given)
    if given.pack:
        given.finer.mkdir(parents=True, exist_ok=True)
        solved_flows = {
            path.name.removesuffix(".tar.xz"): path.read_bytes() for path in sorted(given.work.glob("*.xz"))
        }
        finished.write_part(given.finer / "part_000.tar", solved_flows)
    if given.measure:
        measure_all(names, given)
    if not (given.solve or given.pack) and given.output == OUTPUT:
        write_within(PAGE, f"\n{table(json.loads(OUTPUT.read_text()))}\n", "finer truth")


def solve_all(names: Sequence[str], given: argparse.Namespace) -> None:
    given.work.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not (given.work / f"{name}.tar.xz").exists()]
    # The longest first: none is left over at the end that the others wait for.
    missing.sort(key=lambda name: -expected_seconds(flows.draw_flow(name, 0)))
    with ProcessPoolExecutor(given.workers) as pool:
        waiting = {pool.submit(finer, name, given.archives, given.work): name for name in missing}
        for done in as_completed(waiting):
            error = done.exception()
            print(waiting[done], "solved" if error is None else f"failed: {str(error).splitlines()[0]}", flush=True)


def measure_all(names: Sequence[str], given: argparse.Namespace) -> None:
    about = made_with()
    kept = json.loads(given.output.read_text()) if given.output.exists() else {"flows": {}}
    results: dict[str, Any] = {**about, "flows": kept["flows"]}
    if not about.items() <= kept.items():
        for of_flow in results["flows"].values():
            for ours in (OURS, PLAIN):
                of_flow.pop(ours, None)
    there = set(finished.names(given.finer))
    tasks = {
        (name, kind): (name, kind, given.archives, given.finer)
        for name in names
        for kind in kinds()
        if name in there and kind not in results["flows"].get(name, {})
    }
    for (name, kind), found in as_they_come(judged, tasks, given.workers):
        results["flows"].setdefault(name, {})[kind] = found
        write_json(given.output, {**results, "flows": dict(sorted(results["flows"].items()))})
        print(name, kind, found.get("seconds"), flush=True)


if __name__ == "__main__":
    main()
