"""OpenFOAM on the plane flows, tuned for as many seconds as the general network takes.

The dataset's own way (cells around the points of graded triangles, pimpleFoam for moments, simpleFoam for the steady
state), with larger cells, longer steps and looser solvers. Settings are compared on validation flows; the one that is
given runs on the test flows. Fields are interpolated to the points of the network's meshes as the truth is.

    python lab/benchmarks/plane_flow_openfoam.py --tune [--limit 10]           # all settings, validation flows
    python lab/benchmarks/plane_flow_openfoam.py --setting "2, Courant 4, loose"     # one setting, test flows

Seconds are user and system time of one core: `programs` of pimpleFoam and simpleFoam, which is what is compared;
`around` of making cells, writing and reading files in Python, which a user pays once and a network does not need. Flows
that are in `lab/benchmarks/results/plane_flow_openfoam.json`, or `..._tuning.json` for validation flows, are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pennlab import running
from pennlab.datasets.plane_flow import finished, flows
from pennlab.datasets.plane_flow.cases import case_with_truth
from pennlab.datasets.plane_flow.dual import dual_of
from pennlab.datasets.plane_flow.flow import INTERVAL, Flow
from pennlab.datasets.plane_flow.foam import PIMPLE, SOLVERS, Resolution, write_case, write_mesh
from pennlab.datasets.plane_flow.point_values import PointValues, read_frame
from pennlab.datasets.plane_flow.start import potential_velocity
from pennlab.datasets.plane_flow.truth import Truth, truth_triangles
from pennlab.paper.plane_flow_errors import errors, truth_at
from pennlab.paper.plane_flow_table import settings
from pennpde import openfoam
from pennpde.data.vtkhdf import CaseFile

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
TUNING, OUTPUT = (ROOT / "lab" / "benchmarks" / "results" / f"plane_flow_openfoam{end}.json" for end in ("_tuning", ""))
TEST = ("test", "test-unseen-families", "test-unseen-reynolds")
LOOSE: dict[str, Any] = {
    "p": {**SOLVERS["p"], "tolerance": 1e-4, "relTol": 0.1},
    "pFinal": {**SOLVERS["pFinal"], "tolerance": 1e-4, "relTol": 0.05},
    "U": {**SOLVERS["U"], "tolerance": 1e-4, "relTol": 0.1},
    "UFinal": {**SOLVERS["UFinal"], "tolerance": 1e-4, "relTol": 0.1},
}


@dataclass(frozen=True)
class Setting:
    """How OpenFOAM computes.

    Attributes:
        spacing: of cells, in those of the truth.
        courant: the largest Courant number.
        loose: whether linear systems are solved to a tenth rather than to a hundredth.
        outer: correctors; None: as in the dataset, two around bodies.
        step: of icoFoam, whose steps are all equally long; None: pimpleFoam.
    """

    spacing: float
    courant: float = 2.0
    loose: bool = False
    outer: int | None = None
    step: float | None = None

    @property
    def program(self) -> str:
        return "pimpleFoam" if self.step is None else "icoFoam"

    @property
    def name(self) -> str:
        if self.step is not None:
            return f"icoFoam, {self.spacing:g}, steps of {self.step:g}"
        parts = [f"{self.spacing:g}", f"Courant {self.courant:g}"]
        parts += ["loose"] * self.loose
        parts += [] if self.outer is None else [f"{self.outer} outer"]
        return ", ".join(parts)

    def resolution(self, flow: Flow) -> Resolution:
        outer = self.outer or Resolution.of(flow).outer_correctors
        return Resolution(
            self.spacing, self.courant, steady_iterations=300 * math.ceil(self.spacing), outer_correctors=outer
        )


SETTINGS = {
    each.name: each
    for each in (
        Setting(2.0),
        Setting(2.0, 4.0, loose=True),
        Setting(3.0, 4.0, loose=True),
        Setting(2.0, 8.0, loose=True),
        Setting(1.6, 4.0, loose=True),
        Setting(1.25, 4.0, loose=True),
        Setting(4.0, 4.0, loose=True),
        Setting(3.0, 2.0, loose=True),
    )
}


def solved(flow: Flow, setting: Setting, *, steady: bool, timed_again: bool = False) -> tuple[Truth, dict[str, Any]]:
    """The flow, and what it took. A steady state that does not converge is taken as it is.

    With `timed_again` the program runs a second time and writes only at its end: "execution" is then without the files
    in between, of which OpenFOAM writes one at every common divisor of the times that are wanted.
    """
    began, of_programs = time.process_time(), _children()
    resolution = setting.resolution(flow)
    mesh = truth_triangles(flow, resolution)
    dual = dual_of(mesh)
    with tempfile.TemporaryDirectory(prefix="penn-tuned-") as scratch:
        folder = Path(scratch)
        write_mesh(folder, flow, dual)
        write_case(folder, flow, dual, resolution, potential_velocity(flow, mesh))
        _tune(folder, flow, setting, resolution)
        points = PointValues.of(flow, mesh, dual)
        steps = 0

        def hear(_: running.Progress) -> None:
            nonlocal steps
            steps += 1

        running.run(folder, setting.program, on_progress=hear, largest_courant=1e3, timeout=600)
        moments = [read_frame(folder / f"{moment:g}", flow, points) for moment in flow.moments]
        for_moments, settled = _children() - of_programs, None
        if timed_again:
            _write_only_at_the_end(folder, flow.moments[-1])
            running.run(folder, setting.program, largest_courant=1e3, timeout=600)
        own = _execution_time(folder, setting.program)
        if steady:
            settled = _settled(folder, flow, points)
    truth = Truth(
        mesh,
        np.stack([u for u, _ in moments], axis=-1),
        np.stack([p for _, p in moments], axis=-1),
        *(settled or (None, None)),
    )
    programs = _children() - of_programs
    facts = {"cells": len(mesh.points), "steps": steps, "programs": round(programs, 3), "execution": own}
    return truth, facts | {"moments": round(for_moments, 3), "around": round(time.process_time() - began, 2)}


def _write_only_at_the_end(folder: Path, end: float) -> None:
    path = folder / "system" / "controlDict"
    control = openfoam.read_dictionary(path)
    path.write_text(
        openfoam.format_dictionary("controlDict", {**control, "writeControl": "runTime", "writeInterval": end})
    )


def _execution_time(folder: Path, program: str) -> float:
    """Seconds of the processor, as the program itself tells at its end: no search for it, no other child."""
    found = re.findall(r"^ExecutionTime = ([\d.]+) s", (folder / f"log.{program}").read_text(), flags=re.MULTILINE)
    return float(found[-1])


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tune(folder: Path, flow: Flow, setting: Setting, resolution: Resolution) -> None:
    """Looser solvers, and no more files than moments need: the truth has one every eighth of a time unit."""
    control = folder / "system" / "controlDict"
    every = reduce(math.gcd, (round(moment / INTERVAL) for moment in flow.moments)) * INTERVAL
    text = control.read_text()
    assert f"writeInterval {INTERVAL}" in text, text
    control.write_text(text.replace(f"writeInterval {INTERVAL}", f"writeInterval {every}"))
    if setting.step is not None:
        _for_icofoam(folder, flow, setting.step, every)
    elif setting.loose:
        solution = folder / "system" / "fvSolution"
        reference = {}
        if flow.pressure_point is not None:
            kept = openfoam.read_dictionary(solution)["PIMPLE"]
            reference = {name: kept[name] for name in ("pRefCell", "pRefValue")}
        pimple = {**PIMPLE, "nOuterCorrectors": resolution.outer_correctors, **reference}
        solution.write_text(openfoam.format_dictionary("fvSolution", {"solvers": LOOSE, "PIMPLE": pimple}))


def _for_icofoam(folder: Path, flow: Flow, step: float, every: float) -> None:
    """Equal steps, which the snapshots are multiples of, and the linear solvers that are fastest on small meshes."""
    control = openfoam.read_dictionary(folder / "system" / "controlDict")
    steps = math.ceil(every / step - 1e-9)
    equal = {"application": "icoFoam", "adjustTimeStep": False, "deltaT": every / steps}
    equal |= {"writeControl": "timeStep", "writeInterval": steps}
    (folder / "system" / "controlDict").write_text(openfoam.format_dictionary("controlDict", {**control, **equal}))
    pressure = {"solver": "PCG", "preconditioner": "DIC", "tolerance": 1e-4, "relTol": 0.05}
    solvers = {"p": pressure, "pFinal": {**pressure, "relTol": 0.02}, "U": LOOSE["U"]}
    solution = folder / "system" / "fvSolution"
    kept = openfoam.read_dictionary(solution)["PIMPLE"]
    reference = {} if flow.pressure_point is None else {name: kept[name] for name in ("pRefCell", "pRefValue")}
    piso = {"nCorrectors": 2, "nNonOrthogonalCorrectors": 0, **reference}
    solution.write_text(openfoam.format_dictionary("fvSolution", {"solvers": solvers, "PISO": piso}))


def _settled(folder: Path, flow: Flow, points: PointValues) -> tuple[np.ndarray, np.ndarray]:
    """SIMPLE from the last moment on."""
    kept = folder / "last"
    (folder / f"{flow.moments[-1]:g}").rename(kept)
    for name in ("controlDict", "fvSchemes", "fvSolution"):
        shutil.copy(folder / "steady" / name, folder / "system" / name)
    for frame in openfoam.time_folders(folder):
        shutil.rmtree(frame)
    shutil.copytree(kept, folder / "0")
    running.run(folder, "simpleFoam", timeout=600)
    return read_frame(openfoam.time_folders(folder)[-1], flow, points)


def solved_at_last(
    flow: Flow, setting: Setting, *, steady: bool, timed_again: bool = False
) -> tuple[Truth | None, dict[str, Any]]:
    """The flow, and what it took. A run that diverges is repeated with half the Courant number, and paid."""
    before = _children()
    try:
        return solved(flow, setting, steady=steady, timed_again=timed_again)
    except running.OpenFOAMError:
        failed = _children() - before
    half = replace(setting, courant=setting.courant / 2, step=setting.step and setting.step / 2)
    try:
        truth, facts = solved(flow, half, steady=steady, timed_again=timed_again)
    except running.OpenFOAMError as error:
        return None, {"failed": str(error).splitlines()[0].split(": ", 1)[-1]}
    return truth, facts | {"programs": round(facts["programs"] + failed, 3), "repeated": True}


def measured(name: str, setting: Setting) -> dict[str, Any]:
    """Errors on both meshes of a flow."""
    flow = flows.draw_flow(name, 0)
    files = finished.cases(ARCHIVES, flow)
    truth, facts = solved_at_last(flow, setting, steady=has_steady(files))
    if truth is None:
        return facts
    return {**facts, "errors": {case: errors_of(flow, truth, file) for case, file in files.items()}}


def has_steady(files: Mapping[str, CaseFile]) -> bool:
    """Whether the truth of a flow has a steady state."""
    return any("steady_u" in file.case.targets for file in files.values())


def with_truth(flow: Flow, file: CaseFile, truth: Truth) -> CaseFile:
    """A case of the dataset with another truth, at its own points and moments."""
    numbers = [int(np.argmin(np.abs(np.array(flow.moments) - moment))) for moment in file.times]
    return replace(file, case=case_with_truth(flow, file.case.mesh, truth, file.case.name, numbers))


def errors_of(flow: Flow, truth: Truth, file: CaseFile) -> dict[str, dict[str, float]]:
    """By moment, on the mesh of a case and by its truth."""
    mine = with_truth(flow, file, truth).case
    return errors(file.case, file.times, lambda name, place: truth_at(mine, name, place))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--tune", action="store_true", help="all settings, or the one that is named, on validation flows"
    )
    parser.add_argument("--setting", choices=list(SETTINGS))
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    output = TUNING if given.tune else OUTPUT
    results: dict[str, Any] = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    there = set(finished.names(ARCHIVES))
    if given.tune:
        names = [name for name in flows.splits()["validation"] if name in there][: given.limit or 10]
    else:
        names = [name for split in TEST for name in flows.splits()[split] if name in there][: given.limit]
    for setting in [SETTINGS[given.setting]] if given.setting else list(SETTINGS.values()):
        rows = results.setdefault(setting.name, {})
        for name in names:
            if name in rows:
                continue
            rows[name] = measured(name, setting)
            output.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")
        print(setting.name, sum("errors" in rows[name] for name in names), "of", len(names), "solved", flush=True)
    print(settings({name: rows for name, rows in results.items() if set(names) <= rows.keys()}))


if __name__ == "__main__":
    main()
