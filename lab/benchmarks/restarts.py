"""What a prediction saves: iterations and seconds of simpleFoam to the same residuals from four starts.

    python lab/benchmarks/restarts.py [--model flow] [--flows 20] [--minutes 20] [--only cavity_2003]

Starts: the fluid at rest (`zero`), `potentialFoam` (`potential`), a run on a mesh with twice the spacing, taken over by
`mapFields` (`coarse`), and the steady state that `penn predict --steady --write-time` writes (`penn`). Flows: those of
the plane-flow test sets that may have a steady state (Re up to 400), of each family that nearest to Re 100, then the
next; the cheapest first. simpleFoam runs once per start, until the initial residuals of U and p are below 1e-6, or 1000
iterations; when they passed 1e-4 is read from its log. Three mixtures of a prediction and the converged state say which
part of a start matters.

Seconds are CPU seconds, so that a busy machine does not spoil them: OpenFOAM's own ExecutionTime, and the process time
of reading, predicting and writing for penn (with imports done). What a start costs is counted: potentialFoam, the
coarse run (to 1e-4) with mapFields, the prediction.

Each flow is kept as soon as it is done, so the script can be stopped and started again. Prints tables, and writes
`lab/benchmarks/results/restarts.json` and the tables of `docs/openfoam.md`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pennlab import running
from pennlab.datasets.plane_flow.dual import Dual, dual_of
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.flows import draw_flow, splits
from pennlab.datasets.plane_flow.foam import Resolution, write_case, write_mesh
from pennlab.datasets.plane_flow.truth import may_be_steady, truth_triangles
from pennlab.paper.machine import machine
from pennlab.paper.tables import write_within
from pennpde import openfoam
from pennpde.checkpoints import load_pretrained
from pennpde.files import write_json
from pennpde.penn import STEADY, Predictor
from pennpde.prediction import predict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "openfoam.md"
OUTPUT = Path(__file__).parent / "results" / "restarts.json"
STARTS = ("zero", "potential", "coarse", "penn")
MIXED = ("penn's U, converged p", "converged U, penn's p", "converged U, p = 0")
"""Starts that say what matters: the last state of a run with a part of it replaced."""
TOLERANCES = (1e-4, 1e-6)
MOST_ITERATIONS = 1000
SPACING = 2.0
"""Of the spacing of the dataset's truth: 20 flows from four starts are then a matter of minutes."""
_PROGRAMS = ("simpleFoam", "potentialFoam", "mapFields")


@dataclass(frozen=True, eq=False)
class Bench:
    """One flow as an OpenFOAM case that runs simpleFoam from any start."""

    folder: Path
    flow: Flow
    dual: Dual
    installation: running.Installation

    @staticmethod
    def made(folder: Path, flow: Flow, spacing: float, tolerance: float, installation: running.Installation) -> Bench:
        resolution = Resolution(spacing)
        dual = dual_of(truth_triangles(flow, resolution))
        folder.mkdir()
        write_mesh(folder, flow, dual)
        write_case(folder, flow, dual, resolution, np.zeros((len(dual.centres), 2)))
        for name in ("controlDict", "fvSchemes", "fvSolution"):
            shutil.copy(folder / "steady" / name, folder / "system" / name)
        control = folder / "system" / "controlDict"
        text = re.sub(r"endTime \S+;", f"endTime {MOST_ITERATIONS};", control.read_text())
        control.write_text(re.sub(r"writeInterval \S+;", f"writeInterval {MOST_ITERATIONS};", text))
        solution = folder / "system" / "fvSolution"
        limits = re.sub(
            r"residualControl\s*\{[^}]*\}",
            f"residualControl {{ p {tolerance:g}; U {tolerance:g}; }}",
            solution.read_text(),
        )
        solution.write_text(limits)
        return Bench(folder, flow, dual, installation)

    @property
    def cells(self) -> int:
        return len(self.dual.centres)

    def run(self, program: str, *arguments: str) -> float:
        """CPU seconds of one of OpenFOAM's programs."""
        running.run(self.folder, program, *arguments, installation=self.installation, timeout=900)
        found = re.findall(r"ExecutionTime = (\S+) s", (self.folder / f"log.{program}").read_text())
        return float(found[-1]) if found else 0.0

    def solved(self) -> dict[str, Any]:
        """Iterations and seconds to each tolerance from what is in the folder 0; None where it was not reached."""
        for frame in openfoam.time_folders(self.folder):
            if float(frame.name) > 0:
                shutil.rmtree(frame)
        try:
            self.run("simpleFoam")
        except running.OpenFOAMError as error:
            return {"failed": str(error).splitlines()[0].replace(str(self.folder), self.flow.name)}
        steps = iterations_of((self.folder / "log.simpleFoam").read_text())
        reached = {}
        for tolerance in TOLERANCES:
            place = next((k for k, (residual, _) in enumerate(steps) if residual <= tolerance), None)
            # The residuals of an iteration are those of the state before it.
            reached[f"{tolerance:.0e}"] = None if place is None else {"iterations": place, "seconds": steps[place][1]}
        return {"reached": reached, "last_residual": steps[-1][0], "iterations": len(steps), "seconds": steps[-1][1]}

    def fields(self) -> tuple[np.ndarray, np.ndarray]:
        last = openfoam.time_folders(self.folder)[-1]
        return tuple(openfoam.read_field(last / name, self.folder).values(self.cells) for name in ("U", "p"))

    def put(self, velocity: np.ndarray | None, pressure: np.ndarray | None) -> None:
        """Write the start."""
        for name, values in (("U", velocity), ("p", pressure)):
            path = self.folder / "0" / name
            old = openfoam.read_field(path, self.folder)
            assert old.dimensions is not None
            given = np.zeros((self.cells, 3) if name == "U" else self.cells) if values is None else values
            openfoam.write_field(path, given, old.dimensions, old.boundary, "0")
        (self.folder / "0" / "phi").unlink(missing_ok=True)


def iterations_of(log: str) -> list[tuple[float, float]]:
    """By iteration the largest initial residual of U and p, and the CPU seconds when it ended."""
    found = []
    for block in log.split("\nTime = ")[1:]:
        residuals = re.findall(r"Solving for (?:U[xy]|p), Initial residual = ([^\s,]+)", block)
        seconds = re.search(r"ExecutionTime = (\S+) s", block)
        if residuals and seconds:
            found.append((max(map(float, residuals)), float(seconds[1])))
    return found


# Starts: each writes the folder 0 and returns what it cost


def from_rest(bench: Bench, *_: Any) -> dict[str, Any]:
    bench.put(None, None)
    return {"seconds": 0.0}


def from_potential(bench: Bench, *_: Any) -> dict[str, Any]:
    """potentialFoam; the velocity is rebuilt from its fluxes, for Debian's 1912 writes a wrong one on sheared cells."""
    bench.put(None, None)
    path = bench.folder / "system" / "fvSolution"
    kept = path.read_text()
    solver = {"solver": "GAMG", "smoother": "GaussSeidel", "tolerance": 1e-8, "relTol": 1e-3}
    reference = re.findall(r"pRef\w+ \S+;", kept)
    potential = openfoam.format_dictionary("x", {"Phi": solver}).split("}", 1)[1]
    text = kept.replace("solvers\n{", f"solvers\n{{{potential}", 1)
    loop = f"potentialFlow {{ nNonOrthogonalCorrectors 5; PhiRefCell 0; PhiRefValue 0; {' '.join(reference)} }}\n"
    path.write_text(text + loop)
    try:
        seconds = bench.run("potentialFoam", "-writephi", "-initialiseUBCs")
    finally:
        path.write_text(kept)
    mesh = openfoam.PolyMesh.read(bench.folder)
    stored = openfoam.read_field(bench.folder / "0" / "phi", bench.folder)
    flux = np.zeros(mesh.number_of_faces)
    flux[: len(mesh.neighbour)] = stored.values(len(mesh.neighbour))
    for name, patch in mesh.patches.items():
        value = stored.boundary[name].get("value")
        if patch.type != "empty" and isinstance(value, openfoam.NonUniform):
            flux[patch.faces] = value.values
        elif patch.type != "empty" and isinstance(value, openfoam.Uniform):
            flux[patch.faces] = value.value
    bench.put(mesh.cell_velocity(flux), None)
    return {"seconds": seconds}


def from_coarse(bench: Bench, *_: Any) -> dict[str, Any]:
    bench.put(None, None)
    coarse = Bench.made(bench.folder.with_name("coarse"), bench.flow, 2 * SPACING, TOLERANCES[0], bench.installation)
    run = coarse.solved()
    if "failed" in run:
        return run
    # mapFields wants the times of both cases, and writes into the start of the target.
    last = openfoam.time_folders(coarse.folder)[-1]
    seconds = bench.run("mapFields", "../coarse", "-consistent", "-sourceTime", last.name)
    return {"seconds": run["seconds"] + seconds, "coarse": {"cells": coarse.cells, **run}}


def from_penn(bench: Bench, network: Predictor) -> dict[str, Any]:
    bench.put(None, None)
    begin = time.process_time()
    case = openfoam.read_problem(bench.folder, network.equation)
    outcome = predict(network, case, times=[STEADY] if network.takes_times else None)
    if not all(bool(values.isfinite().all()) for values in outcome.last.values()):
        return {"failed": "the prediction is not finite"}
    inferred = time.process_time()
    written = openfoam.write_time(
        bench.folder, "0", outcome.case.mesh, outcome.last, network.equation.foam_fields, overwrite=True
    )
    assert written == bench.folder / "0"
    end = time.process_time()
    return {"seconds": end - begin, "seconds_writing": end - inferred, "warnings": list(outcome.certificate.warnings)}


def measured(flow: Flow, network: Predictor, installation: running.Installation, spacing: float) -> dict[str, Any]:
    """All starts of one flow."""
    ways: Mapping[str, Callable[..., dict[str, Any]]] = {
        "zero": from_rest,
        "potential": from_potential,
        "coarse": from_coarse,
        "penn": from_penn,
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penn-restart-") as scratch:
        bench = Bench.made(Path(scratch) / "case", flow, spacing, TOLERANCES[1], installation)
        starts: dict[str, np.ndarray] = {}
        solution, pressure_of_penn = None, np.zeros(bench.cells)
        for name, prepare in ways.items():
            if name == "potential" and not flow.inlets:
                results[name] = {"failed": "there is no potential flow in a closed domain"}
                continue
            try:
                cost = prepare(bench, network)
            except (running.OpenFOAMError, ValueError) as error:
                cost = {"failed": str(error).splitlines()[0].replace(scratch, "")}
            if "failed" in cost:
                results[name] = cost
                continue
            starts[name] = openfoam.read_field(bench.folder / "0" / "U", bench.folder).values(bench.cells)
            pressure_of_penn = openfoam.read_field(bench.folder / "0" / "p", bench.folder).values(bench.cells)
            results[name] = {"before": cost, **bench.solved()}
            if solution is None and results[name].get("reached", {}).get(f"{TOLERANCES[1]:.0e}"):
                solution = bench.fields()
        if solution is not None:
            for name, start in starts.items():
                results[name]["error_of_u"] = relative_error(start, solution[0], bench.dual.areas)
            if "penn" in starts:
                predicted = (starts["penn"], pressure_of_penn)
                results["penn"]["error_of_p"] = relative_error(
                    *((each - each.mean())[:, None] for each in (predicted[1], solution[1])), bench.dual.areas
                )
                for name, velocity, pressure in (
                    ("penn's U, converged p", predicted[0], solution[1]),
                    ("converged U, penn's p", solution[0], predicted[1]),
                    ("converged U, p = 0", solution[0], None),
                ):
                    bench.put(velocity, pressure)
                    results[name] = {"before": {"seconds": 0.0}, **bench.solved()}
    return {
        "family": flow.family,
        "reynolds": flow.reynolds,
        "cells": bench.cells,
        "starts": results,
    }


def relative_error(found: np.ndarray, truth: np.ndarray, areas: np.ndarray) -> float:
    """In L2 over the domain."""
    off, whole = (((each**2).sum(axis=1) * areas).sum() for each in (found - truth, truth))
    return float(np.sqrt(off / whole))


# Which flows


def candidates(number: int) -> list[str]:
    """Test flows that may be steady: of each family in turn that nearest to Re 100, then all of them by their cost."""
    names = [name for split, members in splits().items() if split.startswith("test") for name in members]
    flows = [flow for name in names if may_be_steady(flow := draw_flow(name))]
    # The number of cells, about: layers are as thin as the root of the Reynolds number.
    cost = {flow.name: flow.domain.area * flow.reynolds**0.5 for flow in flows}
    by_family: dict[str, list[str]] = {}
    for flow in sorted(flows, key=lambda flow: abs(np.log(flow.reynolds / 100.0))):
        by_family.setdefault(flow.family, []).append(flow.name)
    chosen: list[str] = []
    while len(chosen) < number and any(by_family.values()):
        for members in by_family.values():
            if members and len(chosen) < number:
                chosen.append(members.pop(0))
    return sorted(chosen, key=lambda name: cost[name])


# Tables


def total(result: Mapping[str, Any], start: str, tolerance: float) -> tuple[int, float] | None:
    """Iterations, and seconds with what the start cost; None where the tolerance was not reached."""
    found = result["starts"].get(start, {})
    reached = found.get("reached", {}).get(f"{tolerance:.0e}")
    return None if reached is None else (reached["iterations"], reached["seconds"] + found["before"]["seconds"])


def tables(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [
        "| flow | Re | cells | error of u before | " + " | ".join(f"{name}" for name in STARTS) + " |",
        "| --- | --- | --- | --- | " + " | ".join("---" for _ in STARTS) + " |",
    ]
    for name, result in results.items():
        cells = []
        for start in STARTS:
            both = [total(result, start, tolerance) for tolerance in TOLERANCES]
            cells.append(" / ".join("–" if each is None else f"{each[0]}" for each in both))
        error = result["starts"].get("penn", {}).get("error_of_u")
        shown = "–" if error is None else f"{100 * error:.1f} %"
        lines.append(f"| {name} | {result['reynolds']:g} | {result['cells']:,} | {shown} | {' | '.join(cells)} |")
    return lines


def sums(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Over the flows that converge from every start that exists for them."""
    lines = [
        "| start | to 1e-4: flows | iterations | seconds | to 1e-6: flows | iterations | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for start in (*STARTS, *MIXED):
        cells = []
        for tolerance in TOLERANCES:
            pairs = [(total(result, start, tolerance), total(result, "zero", tolerance)) for result in results.values()]
            usable = [(ours, zero) for ours, zero in pairs if ours is not None and zero is not None]
            if not usable:
                cells += ["0", "–", "–"]
                continue
            iterations, seconds = (
                (sum(ours[k] for ours, _ in usable), sum(zero[k] for _, zero in usable)) for k in (0, 1)
            )
            cells += [
                str(len(usable)),
                f"{iterations[0]:,} ({iterations[0] / iterations[1]:.2f} of zero)",
                f"{seconds[0]:.0f} ({seconds[0] / seconds[1]:.2f} of zero)",
            ]
        lines.append(f"| {start} | {' | '.join(cells)} |")
    return lines


def losses(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where penn is not faster than another start, in seconds."""
    lines = []
    for tolerance in TOLERANCES:
        for other in STARTS[:-1]:
            lost = []
            number = 0
            for name, result in results.items():
                ours, theirs = total(result, "penn", tolerance), total(result, other, tolerance)
                if theirs is not None:
                    number += 1
                    if ours is None or ours[1] >= theirs[1]:
                        lost.append(name)
            lines.append(
                f"- to {tolerance:.0e}, penn takes longer than {other} on {len(lost)} of {number} flows"
                + (f": {', '.join(lost)}" if lost else "")
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="flow")
    parser.add_argument("--flows", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=20.0, help="start no further flow after so long")
    parser.add_argument("--only", nargs="*", help="names of flows")
    parser.add_argument("--spacing", type=float, default=SPACING)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = load_pretrained(options.model)
    assert isinstance(network, Predictor)
    installation = running.find_installation(_PROGRAMS)
    known = json.loads(options.out.read_text()) if options.out.is_file() else {}
    settings = {"model": options.model, "spacing": options.spacing, "most_iterations": MOST_ITERATIONS}
    results = known.get("flows", {}) if known.get("settings") == settings else {}
    end = time.monotonic() + 60 * options.minutes
    for name in options.only or candidates(options.flows):
        if name in results or time.monotonic() > end:
            continue
        results[name] = measured(draw_flow(name), network, installation, options.spacing)
        print("\n".join(tables({name: results[name]})[2:]), flush=True)
        write_json(options.out, {"settings": settings, "machine": machine(), "flows": results})
    results = dict(sorted(results.items(), key=lambda item: item[1]["cells"]))
    for part in (tables(results), sums(results), losses(results)):
        print("\n".join(["", *part]))
    if options.out == OUTPUT and results:
        for mark, lines in (
            ("restarts", sums(results)),
            ("restart losses", losses(results)),
            ("restart flows", tables(results)),
        ):
            write_within(PAGE, "\n".join(lines), mark)


if __name__ == "__main__":
    main()
