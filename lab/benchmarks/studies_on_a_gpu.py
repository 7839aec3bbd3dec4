"""The study of `studies.py` with its marches on a GPU and all else in processes of that machine.

    python lab/benchmarks/studies_on_a_gpu.py CASE OUT [--designs 20000] [--workers 16] [--device cuda]

CASE is the channel that `studies.py` writes. Its parts are each kept in OUT/studies_on_a_gpu.json when it is done: one
core (`core`), a batch on the device in one process with its numbers beside those of one core (`batch`), the processes
without the device (`processes`), and the whole study on both (`device`), each with the seconds on the clock that
include the start of all processes, the network and the report. `studies.py` puts the record into its table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pennpde.study import Study, report, thumbnails
from pennpde.study.execution import evaluate_all

QUANTITIES = ["pressure drop inlet outlet", "total pressure drop inlet outlet", "force x bottom"]
VARY = {"bulge": "0:0.4", "viscosity": "0.002:0.02:log", "inlet.u": "0.5:2"}
MORPH = {"bulge": {"at": [[1.3, 0.0], [1.5, 0.0], [1.7, 0.0]], "direction": [0.0, 1.0], "radius": 0.9}}
TIME = 2.0

try:
    import matplotlib as _  # noqa: F401
except ModuleNotFoundError:  # on a machine that only computes: its pictures get other colours
    thumbnails._palette = lambda _: bytes(range(3 * thumbnails._SHADES + 3))


def study_of(case: Path, designs: int) -> Study:
    return Study(
        case, VARY, QUANTITIES, design="sobol", number=designs, times=TIME, level="fast", length=1.0, morph=MORPH
    )


def run(case: Path, out: Path, designs: int, workers: int, device: str) -> dict[str, Any]:
    """A whole study in this process and its workers."""
    begin = time.perf_counter()
    table = study_of(case, designs).run(out, workers=workers, device=device)
    computed = time.perf_counter() - begin
    report.write(table, out, "Channel")
    return {
        "designs": designs,
        "workers": workers,
        "device": device,
        "seconds_of_designs": round(computed, 1),
        "without_numbers": sum(not row.quantities for row in table.rows),
    }


def fresh(given: argparse.Namespace, part: str, designs: int, workers: int, device: str) -> dict[str, Any]:
    """The same in a new process: the clock begins before Python does."""
    begin = time.perf_counter()
    words = [sys.executable, __file__, given.case, given.out, "--run", part, "--designs", f"{designs}"]
    subprocess.run([*words, "--workers", f"{workers}", "--device", device], check=True)
    seconds = time.perf_counter() - begin
    found = json.loads((given.out / f"{part}.json").read_text())
    # Whatever the start costs is paid once: what a longer study would reach is the second number.
    later = designs / found["seconds_of_designs"] if workers == 0 else designs / seconds
    return found | {"seconds": round(seconds, 1), "designs_a_minute": round(60 * designs / seconds),
                    "designs_a_minute_without_start_of_python": round(60 * later)}  # fmt: skip


def batch(case: Path, size: int, device: str) -> dict[str, Any]:
    """Batches in one process: where the time goes, and how far the numbers are from those of designs one by one."""
    torch.set_num_threads(1)
    study = study_of(case, 3 * size)
    groups = [[each] for each in study.designs]
    study.measures  # noqa: B018
    evaluate_all(study, groups[:size], device=device)  # compiles
    seconds, rows = [], []
    for place in (size, 2 * size):
        begin = time.perf_counter()
        rows += evaluate_all(study, groups[place : place + size], device=device)
        seconds.append(time.perf_counter() - begin)
    alone = evaluate_all(study, groups[size : size + max(1, size // 8)])
    apart = {}
    for name in QUANTITIES:
        ours, theirs = (
            np.array([row.quantities.get(name, (np.nan,))[0] for row in each], float)
            for each in (rows[: len(alone)], alone)
        )
        apart[name] = float(np.nanmax(np.abs(ours - theirs)) / np.nanmedian(np.abs(theirs)))
    found: dict[str, Any] = {"designs": size, "seconds": [round(each, 2) for each in seconds], "apart": apart}
    found["reasons"] = sorted({row.reason for row in rows if row.reason})[:3]
    return found | {"milliseconds": _parts(study, groups[2 * size :], device)}


def _parts(study: Study, groups: list[Any], device: str) -> dict[str, float]:
    """On the clock, by part of a batch, for each design."""
    from pennpde.flow import scheme
    from pennpde.penn import PENN
    from pennpde.prediction import stages

    spent: dict[str, float] = {}
    places = [(stages, "prepare"), (stages, "judge"), (scheme.FlowScheme, "marched_together"), (PENN, "_corrected")]
    kept = [getattr(*place) for place in places]

    def timed(name: str, work: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            result = work(*args, **options)
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - begin
            return result

        return call

    for (place, name), work in zip(places, kept, strict=True):
        setattr(place, name, timed(name, work))
    try:
        begin = time.perf_counter()
        evaluate_all(study, groups, device=device)
        spent["all"] = time.perf_counter() - begin
    finally:
        for (place, name), work in zip(places, kept, strict=True):
            setattr(place, name, work)
    return {name: round(1000 * seconds / len(groups), 2) for name, seconds in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--designs", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=256, help="Designs of the part that is done in one process.")
    parser.add_argument("--only", help="Parts, separated by commas; by default all.")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        found = run(given.case, given.out / given.run, given.designs, given.workers, given.device)
        (given.out / f"{given.run}.json").write_text(json.dumps(found))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    record = given.out / "studies_on_a_gpu.json"
    known: dict[str, Any] = json.loads(record.read_text()) if record.is_file() else {}
    known["machine"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    parts: dict[str, Any] = {
        "core": lambda: fresh(given, "core", max(4, given.designs // 200), 0, ""),
        "batch": lambda: batch(given.case, given.batch, given.device),
        "device": lambda: fresh(given, "device", given.designs, given.workers, given.device),
        "processes": lambda: fresh(given, "processes", max(8, given.designs // 5), given.workers, ""),
        # More processes than cores: while one waits for the device, another prepares its shapes.
        "device_half_more": lambda: fresh(
            given, "device_half_more", given.designs, given.workers + given.workers // 2, given.device
        ),
        # With a daemon that lets kernels of several processes run at the same time, where the machine has it.
        "device_shared": lambda: fresh(given, "device_shared", given.designs, given.workers, given.device),
    }
    for name, work in parts.items():
        if name not in known and (given.only is None or name in given.only.split(",")):
            try:
                known[name] = work()
            except (RuntimeError, subprocess.SubprocessError) as error:
                print(f"{name}: {error}", flush=True)
                continue
            print(name, json.dumps(known[name]), flush=True)
            record.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
