"""A study of 1,000 designs on one core, and the same study by OpenFOAM alone.

    python lab/benchmarks/studies.py [--designs 1000] [--minutes 60] [--verified 20] [--work FOLDER]

A channel of four widths whose bottom bulges (a control point moves the mesh), with the viscosity and the speed at the
inlet: Sobol samples of three parameters, Reynolds numbers 25 to 1000, the flow two seconds after the start from rest,
on 80 x 20 cells at `fast`. OpenFOAM computes evenly spread designs: pimpleFoam with steps of Courant number 2 on the
same cells (`openfoam`) and on cells half as wide (`halved`). The reference (`reference`) has cells a quarter as wide,
steps of Courant number 0.5 and two outer corrections with one for cells that are not orthogonal: without these the
pressure of single times was off by up to 70 %, on any cells.

Seconds are processor seconds: user and system time of this process, or of OpenFOAM's programs; writing the cases and
measuring their fields is not counted for OpenFOAM. All of a study is counted: the start of Python, the network, the
report. What is done is kept in FOLDER and in `lab/benchmarks/results/studies.json`, and the script goes on where it was
stopped. It writes the table of `docs/studies.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pennlab import running
from pennlab.datasets.plane_flow.foam import PIMPLE, SCHEMES, SOLVERS
from pennlab.paper.tables import write_within
from pennlab.running.block_mesh import Block, block_mesh_dictionary
from pennlab.running.new_cases import NewField, write_case
from pennpde import openfoam
from pennpde.data import workers
from pennpde.prediction import stages
from pennpde.study import Study
from pennpde.study.designs import Design
from pennpde.study.table import Row, read_table
from pennpde.study.verification import flow_of, write_design

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "benchmarks" / "results" / "studies.json"
PAGE = ROOT / "docs" / "studies.md"
TIME = 2.0
QUANTITIES = ["pressure drop inlet outlet", "total pressure drop inlet outlet", "force x bottom"]
VARY = {"bulge": "0:0.4", "viscosity": "0.002:0.02:log", "inlet.u": "0.5:2"}
MORPH = {"bulge": {"at": [[1.3, 0.0], [1.5, 0.0], [1.7, 0.0]], "direction": [0.0, 1.0], "radius": 0.9}}
WAYS = {
    "openfoam": {"solver": "pimpleFoam", "refined": 1, "courant": 2.0},
    "halved": {"solver": "pimpleFoam", "refined": 2, "courant": 2.0},
    "reference": {"solver": "pimpleFoam", "refined": 4, "courant": 0.5},
}


def write_channel(folder: Path, solver: str, refined: int, courant: float) -> Path:
    """The channel, 4 x 1, with cells of 1/20 divided by a number."""
    corners = ((0.0, 0.0), (4.0, 0.0), (4.0, 1.0), (0.0, 1.0))
    sides = dict(
        zip(("bottom", "outlet", "top", "inlet"), zip(corners, (*corners[1:], corners[0]), strict=True), strict=True)
    )
    kinds = {"bottom": "wall", "outlet": "patch", "top": "wall", "inlet": "patch"}
    mesh = block_mesh_dictionary(
        [Block(corners, (80 * refined, 20 * refined))],
        {name: (kinds[name], [side]) for name, side in sides.items()},
        0.1,
    )
    control: dict[str, Any] = {"application": solver, "endTime": TIME, "writeControl": "adjustableRunTime"}
    control |= {
        "writeInterval": TIME,
        "adjustTimeStep": True,
        "maxCo": courant,
        "deltaT": 1e-3 / refined,
        "writePrecision": 12,
    }
    walls = {"bottom": {"type": "noSlip"}, "top": {"type": "noSlip"}, "frontAndBack": {"type": "empty"}}
    flat = {name: {"type": "zeroGradient"} for name in ("inlet", "bottom", "top")} | {"frontAndBack": {"type": "empty"}}
    write_case(
        folder,
        block_mesh=mesh,
        control=control,
        schemes=SCHEMES,
        solution={"solvers": SOLVERS, "PIMPLE": PIMPLE},
        constant={
            "transportProperties": {"transportModel": "Newtonian", "nu": (openfoam.VISCOSITY, 0.01)},
            "turbulenceProperties": {"simulationType": "laminar"},
        },
        fields={
            "U": NewField(
                openfoam.VELOCITY,
                np.zeros(3),
                {
                    "inlet": {"type": "fixedValue", "value": "uniform (1 0 0)"},
                    "outlet": {"type": "zeroGradient"},
                    **walls,
                },
            ),
            "p": NewField(openfoam.PRESSURE, 0.0, {"outlet": {"type": "fixedValue", "value": "uniform 0"}, **flat}),
        },
    )
    running.run(folder, "blockMesh")
    return folder


def study_of(case: Path, designs: int) -> Study:
    return Study(
        case, VARY, QUANTITIES, design="sobol", number=designs, times=TIME, level="fast", length=1.0, morph=MORPH
    )


# The study, in a process of its own


def measure_study(work: Path, designs: int, minutes: float) -> dict[str, Any]:
    """Processor seconds of a fresh process, as far as the study comes in these minutes; it goes on from there."""
    known = len(read_table(work / "study").rows) if (work / "study").is_dir() else 0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([sys.executable, __file__, "--work", work, "--designs", f"{designs}", "--only-study"])
    try:
        process.wait(60 * minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = read_table(work / "study").rows
    done = len(rows) - known
    return {
        "asked": designs,
        "designs": done,
        "seconds": round(seconds, 1),
        "designs_a_minute": round(60 * done / seconds),
        "without_numbers": sum(not row.quantities for row in rows),
    }


def run_study(work: Path, designs: int) -> None:
    import torch

    from pennpde.study.report import write

    torch.set_num_threads(1)
    study = study_of(work / "channel", designs)
    with contextlib.suppress(KeyboardInterrupt):
        study.run(work / "study")
    write(read_table(work / "study"), work / "study", "Channel")


def measure_parts(work: Path) -> dict[str, float]:
    """Where the time of a design goes, in milliseconds of processor time; the march is a part of the network's."""
    study = study_of(work / "channel", 48)
    study.measures  # noqa: B018
    spent: dict[str, float] = {}
    predict = Study.predict

    def watched(self: Study, *given: Any) -> Any:
        begin = time.process_time()
        outcome = predict(self, *given)
        spent["prediction"] = spent.get("prediction", 0.0) + time.process_time() - begin
        for name, seconds in outcome.seconds.items():
            spent[name] = spent.get(name, 0.0) + seconds
        return outcome

    study.predict(study.designs[0].values)  # compiles
    Study.predict = watched  # pyright: ignore[reportAttributeAccessIssue]
    stages.time = SimpleNamespace(perf_counter=time.process_time)
    try:
        begin = time.process_time()
        study.run()
        whole = time.process_time() - begin
    finally:
        Study.predict, stages.time = predict, time
    found = {name: spent[name] for name in ("prepare", "operators", "network", "certificate")}
    found["case, mesh"] = spent["prediction"] - sum(found.values())
    found["quantities, picture"] = whole - spent["prediction"]
    return {name: round(1000 * seconds / 48, 1) for name, seconds in found.items()}


# OpenFOAM


def solve(work: Path, way: str, values: Mapping[str, float]) -> dict[str, Any]:
    """A design by OpenFOAM: its numbers and the processor seconds of its program."""
    settings: Mapping[str, Any] = WAYS[way]
    case = work / f"channel_{way}"
    if not case.is_dir():
        write_channel(case, **settings)
    study = study_of(case, 1)
    with tempfile.TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        write_design(study, values, folder)
        if way == "reference":
            _careful(folder)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        running.run(folder, settings["solver"], timeout=3600)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        flow = flow_of(folder, study.network.equation, (TIME,))
        numbers = {each.name: float(each.of(flow).values[-1]) for each in study.measures}
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    outer = {"outer_corrections": 2} if way == "reference" else {}
    return {"seconds": round(seconds, 2), "quantities": numbers, **outer}


def _careful(folder: Path) -> None:
    path = folder / "system" / "fvSolution"
    text = re.sub(r"nOuterCorrectors\s+\d+", "nOuterCorrectors 2", path.read_text())
    path.write_text(re.sub(r"nNonOrthogonalCorrectors\s+\d+", "nNonOrthogonalCorrectors 1", text))


def summary(known: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Errors against the reference where it was computed, and the factor between the seconds of both studies."""
    by_design = {row.design: row for row in rows}
    solved = {int(name): found for name, found in known["solved"].items() if "reference" in found}
    solved = {place: found for place, found in solved.items() if place in by_design}
    careful = sum(each["reference"].get("outer_corrections", 1) > 1 for each in solved.values())
    result: dict[str, Any] = {"verified": len(solved), "careful": careful, "errors": {}, "expected_error_u": None}
    for name in QUANTITIES:
        true = {place: found["reference"]["quantities"][name] for place, found in solved.items()}
        size = float(np.median(np.abs(list(true.values()))))
        ours = {place: by_design[place].quantities[name][-1] for place in true}
        steps = [[abs(found[way]["quantities"][name]) for way in WAYS] for found in solved.values() if len(found) == 3]
        grown = np.diff(steps, axis=1) / np.array(steps)[:, -1:]
        numbers = {"study": ours} | {
            way: {place: found[way]["quantities"][name] for place, found in solved.items() if way in found}
            for way in ("openfoam", "halved")
        }
        result["errors"][name] = {"size": size, "growth": np.median(grown, axis=0).round(4).tolist()} | {
            way: _errors([abs(float(value or 0.0) - true[place]) / size for place, value in of_way.items()])
            for way, of_way in numbers.items()
        }
    expected = [row.expected["u"] for row in rows if "u" in row.expected]
    result["expected_error_u"] = round(float(np.median(expected)), 4)
    one = known["study"]["seconds"] / known["study"]["designs"]
    result["seconds_a_design"] = {"study": round(one, 3)}
    result["factor"] = {}
    for way in WAYS:
        seconds = float(np.mean([found[way]["seconds"] for found in known["solved"].values() if way in found]))
        result["seconds_a_design"][way] = round(seconds, 2)
        result["factor"][way] = round(seconds / one, 1)
    return result


def _errors(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(float(np.median(values)), 4), "largest": round(float(np.max(values)), 4)}


def table(known: Mapping[str, Any]) -> str:
    found = known["summary"]
    names = {
        "study": "`penn study`, fast",
        "openfoam": "`pimpleFoam`, the same cells",
        "halved": "`pimpleFoam`, cells half as wide",
    }
    lines = [
        "| | seconds a design | designs a minute | pressure drop | total pressure drop | force on the bottom |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for way, title in names.items():
        seconds = found["seconds_a_design"][way]
        errors = [found["errors"][name][way] for name in QUANTITIES]
        cells = [f"{100 * each['median']:.1f} ({100 * each['largest']:.0f}) %" for each in errors]
        lines.append(f"| {title} | {seconds:.2f} | {60 / seconds:.0f} | {' | '.join(cells)} |")
    study, parts = known["study"], known["milliseconds"]
    lines += [
        "",
        f"Measured on {study['designs']} of {study['asked']:,} designs; seconds of OpenFOAM on "
        f"{sum('halved' in each for each in known['solved'].values())}, errors on {found['verified']} of them, "
        f"{found['careful']} of whose references have two outer corrections, the others one. "
        f"Against `pimpleFoam` on the same cells, the study takes 1/{found['factor']['openfoam']:.1f} of the time; "
        f"on cells half as wide 1/{found['factor']['halved']:.0f}, on those of the reference "
        f"1/{found['factor']['reference']:.0f}. "
        + _growth(found["errors"]["force x bottom"]["growth"])
        + "Milliseconds of a design: "
        + ", ".join(f"{name} {each:.0f}" for name, each in parts.items())
        + ".",
    ]
    return "\n".join([*lines, *_on_a_gpu()]) + "\n"


def _growth(steps: Sequence[float]) -> str:
    one, other = (f"{100 * each:.1f} %" for each in steps)
    return (
        f"The force on the bottom of OpenFOAM grows by {one} when cells are half as wide, and by {other} once more "
        "(medians): where the inlet's velocity jumps at the wall, friction has no limit. "
    )


def _on_a_gpu() -> list[str]:
    """What `studies_on_a_gpu.py` measured."""
    path = RESULTS.with_name("studies_on_a_gpu.json")
    if not path.is_file():
        return []
    known = json.loads(path.read_text())
    batch, core = known["batch"], known["core"]
    spent = batch["milliseconds"]
    on_it = spent["march_together"] + spent["_corrected"]
    text = (
        f"On a machine with an {known['machine']}, whose cores others used at the same time: one core "
        f"{core['designs_a_minute_without_start_of_python']} designs a minute, one core with the GPU "
        f"{60_000 / spent['all']:,.0f}. Of {spent['all']:.0f} ms of a design marches and corrections take {on_it:.0f}, "
        "meshes and certificates on the core the rest. Numbers differ from those of designs one by one by at most "
        f"{max(batch['apart'].values()):.1%} of their median."
    )
    whole = known.get("device")
    if whole is None:
        return ["", text + " The whole study on all of its cores has not been measured."]
    return ["", text + f" All of it, {whole['workers']} processes: {whole['designs_a_minute']:,} a minute."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--designs", type=int, default=1000)
    parser.add_argument("--verified", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="At most, of the study.")
    parser.add_argument("--solving", type=float, default=600.0, help="Minutes, at most, after which no solver starts.")
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "studies")
    parser.add_argument("--references", type=int, default=0, help="Compute only these, in so many processes.")
    parser.add_argument("--only-study", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tables", action="store_true", help="Write only the table of the page.")
    given = parser.parse_args()
    if given.only_study:
        run_study(given.work, given.designs)
        return
    given.work.mkdir(parents=True, exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"solved": {}}
    if not given.tables:
        if not (given.work / "channel").is_dir():
            write_channel(given.work / "channel", **WAYS["openfoam"])
        designs = study_of(given.work / "channel", given.designs).designs
        chosen = [designs[place] for place in np.linspace(0, len(designs) - 1, given.verified).astype(int)]
        if given.references:
            compute_references(
                given.work, [each for each in chosen if _is_missing(known, each)], given.references, known
            )
            return
        end = time.monotonic() + 60 * given.solving
        for way in WAYS:
            for design in chosen:
                found = known["solved"].setdefault(f"{design.number}", {})
                if way not in found:
                    if time.monotonic() > end:
                        continue
                    found[way] = solve(given.work, way, design.values)
                    print(design.number, way, found[way], flush=True)
                    _save(known)
        if "study" not in known:
            known["study"] = measure_study(given.work, given.designs, given.minutes)
        if "milliseconds" not in known:
            known["milliseconds"] = measure_parts(given.work)
        known["summary"] = summary(known, read_table(given.work / "study").rows)
        _save(known)
    print(json.dumps({name: each for name, each in known.items() if name != "solved"}, indent=2))
    print(table(known))
    write_within(PAGE, table(known), "study")


def _is_missing(known: Mapping[str, Any], design: Design) -> bool:
    return "reference" not in known["solved"].get(f"{design.number}", {})


def compute_references(work: Path, designs: Sequence[Design], processes: int, known: dict[str, Any]) -> None:
    """On a machine with many cores: the references take most of the time by far."""
    if not (work / "channel_reference").is_dir():
        write_channel(work / "channel_reference", **WAYS["reference"])
    arguments = {f"{each.number}": (work, "reference", each.values) for each in designs}
    for name, found in workers.each(solve, arguments, workers=processes):
        print(name, found, flush=True)
        if isinstance(found, Mapping):
            known["solved"].setdefault(name, {})["reference"] = found
            _save(known)


def _save(known: Mapping[str, Any]) -> None:
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
