"""Coarse-grid solutions of the plane-flow dataset, which the corrector learns to correct.

    python lab/experiments/corrector/data.py [--splits train validation] [--limit N] [--levels 3]

Every flow of `data/plane_flow/finished` is marched by the plain scheme on both of its meshes, on the cells as they are
(level 0), split once (level 1), and with `--levels 3` split twice, as a better target than the dataset's own fields.
One file per flow in `runs/corrector/data/SPLIT/`: by case and level velocity and pressure at the flow's times, the flow
at the start, and the seconds, all in the network's units. What a file has is kept. Takes 0.7 s of one core per flow,
6 s with level 2.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from pennlab.datasets.plane_flow import finished, flows
from pennpde.case import Case
from pennpde.flow.march import FlowDivergedError
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import begin
from pennpde.penn.predictor import seen_by

ROOT = Path(__file__).resolve().parents[3]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
DATA = ROOT / "runs" / "corrector" / "data"
COURANT = (4.0, 1.4, 1.4)
"""By level, how many cells fluid may cross in a step."""


def coarse(case: Case, times: Sequence[float], level: int) -> dict[str, np.ndarray]:
    """What the plain scheme gives.

    Args:
        case: As the dataset has it.
        times: In the case's units.
        level: How often the cells are split.
    """
    model = FlowScheme(splits=level, courant=COURANT[level])
    seen = seen_by(model, case)
    began = time.process_time()
    with torch.inference_mode():
        fields = model.solve(seen.case, [each / seen.time for each in times]).fields
    seconds = time.process_time() - began
    problem = model.problem(seen.case)
    start = begin(problem).velocity[:, problem.places].T
    # A single time has no axis of its own.
    shape = {"u": (case.number_of_points, 2, -1), "p": (case.number_of_points, -1)}
    found = {name: values.reshape(shape[name]).float().numpy() for name, values in fields.items()}
    return {**found, "start": start.float().numpy(), "seconds": np.array(seconds)}


def write(split: str, name: str, levels: int = 2, meshes: int = 2) -> Path:
    """The file of a flow, with what it lacks of the levels."""
    path = DATA / split / f"{name}.npz"
    made: dict[str, np.ndarray] = {}
    if path.exists():
        with np.load(path) as known:
            made = dict(known)
    before = len(made)
    for case, file in list(finished.cases(ARCHIVES, flows.draw_flow(name, 0)).items())[:meshes]:
        for level in range(levels):
            if f"{case}/{level}/u" in made:
                continue
            try:
                found = coarse(file.case, file.times, level)
            except FlowDivergedError as error:
                print(f"{case}, level {level}: {error}", flush=True)
                continue
            made |= {f"{case}/{level}/{key}": values for key, values in found.items()}
    if len(made) == before:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    with unfinished.open("wb") as stream:
        np.savez_compressed(stream, **made)
    unfinished.replace(path)
    return path


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--splits", nargs="+", default=list(flows.splits()))
    arguments.add_argument("--limit", type=int, help="flows per split")
    arguments.add_argument("--levels", type=int, default=2, choices=(2, 3))
    arguments.add_argument("--meshes", type=int, default=2, help="of each flow")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    there = set(finished.names(ARCHIVES))
    for split in given.splits:
        names = [name for name in flows.splits()[split] if name in there][: given.limit]
        began = time.time()
        for name in names:
            write(split, name, given.levels, given.meshes)
        print(f"{split}: {len(names)} flows in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
