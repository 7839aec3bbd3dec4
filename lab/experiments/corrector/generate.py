"""Flows that the corrector learns from: marches of the plain scheme on coarse cells, and on cells split twice.

    python lab/experiments/corrector/generate.py OUT --split train --numbers 0 400 --minutes 9 --processes 16

Shapes, conditions and meshes are drawn as those of the plane-flow dataset are (`pennlab.datasets.plane_flow`), the
numbers 0 to 999 of each family for training, those from 1000 on for validation; OpenFOAM is not needed. Each flow is
marched on one of its two meshes, to its own times and three more: on the cells as they are with Courant number 4 and a
larger one, on cells split once with a small and a large one, and on cells split twice, which is the target. One file
per flow, `OUT/NAME.npz`, in the network's units; what is there is kept, so a call can be stopped and given again.
Takes 3 s of one core per flow.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runs import LARGEST

from pennlab.datasets.plane_flow import cases, flows, meshes
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.shapes import TRAINED
from pennlab.datasets.plane_flow.triangles import MeshingError
from pennpde.case import Case
from pennpde.flow.corrector import coarse_case
from pennpde.flow.march import FlowDivergedError
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import begin
from pennpde.models.flow_physics import FlowPhysics, PlaneFlowPhysics
from pennpde.penn.predictor import seen_by

FINEST_COURANT = 1.4
_KINDS = {"dirichlet", "neumann", "slip"}
_MORE_TIMES = 3


class _Network:
    """What `seen_by` asks for: the units of plane flows."""

    equation = PlaneFlowPhysics()


def drawn(flow: Flow, place: int, random: np.random.Generator) -> tuple[Case, list[float]] | None:
    """A flow on one of its meshes in the network's units, and its times; None where it is too large or unusual."""
    plan = meshes.mesh_plans(flow)[place]
    mesh = meshes.network_mesh(flow, plan)
    if mesh.number_of_points > LARGEST:
        coarser = 0.95 * plan.points_per_width * (LARGEST / mesh.number_of_points) ** 0.5
        mesh = meshes.network_mesh(flow, replace(plan, points_per_width=coarser))
    if mesh.number_of_points > LARGEST:
        return None
    seen = seen_by(_Network(), cases.case_on_mesh(flow, mesh))
    case = seen.case
    if case.changes_with_time or not {kind for kind, by_unknown in case.conditions.items() if by_unknown} <= _KINDS:
        return None
    last = flow.moments[-1]
    more = np.exp(random.uniform(np.log(0.15), np.log(last), _MORE_TIMES))
    times = sorted({*flow.moments, *(round(float(each), 2) for each in more)})
    return case, [each / seen.time for each in times]


def marched(scheme: FlowScheme, case: Case, times: list[float], courant: float) -> np.ndarray:
    """Velocity and pressure at each time."""
    scheme.courant = courant
    with torch.inference_mode():
        fields = scheme.solve(case, times).fields
    number = case.number_of_points
    both = torch.cat([fields["u"].reshape(number, 2, -1), fields["p"].reshape(number, 1, -1)], dim=1)
    found = both.permute(2, 0, 1).float().numpy()
    if not (np.isfinite(found).all() and np.abs(found).max() < 1e3):
        raise FlowDivergedError("The fields are not finite, or huge.", torch.zeros(2, 1))
    return found


def run(name: str) -> dict[str, Any] | None:
    """All that training needs of a flow."""
    flow = flows.draw_flow(name)
    number = flows.parse_name(name)[1]
    random = np.random.default_rng([number, *name.encode()])
    found = drawn(flow, number % 2, random)
    if found is None:
        return None
    case, times = found
    courants = (
        *(4.0, float(random.uniform(5.0, 10.0))),
        *(float(np.exp(random.uniform(*np.log(each)))) for each in ((1.4, 2.5), (2.5, 6.0))),
    )
    own, split = FlowScheme(splits=0), FlowScheme(splits=1)
    fields = [
        marched(scheme, case, times, each) for scheme, each in zip((own, own, split, split), courants, strict=True)
    ]
    target = marched(FlowScheme(splits=2), case, times, FINEST_COURANT)
    problem = own.problem(case)
    start = begin(problem).velocity[:, problem.places].T
    like = coarse_case(case, case.initial["u"], case.initial["p"], start, times[0])
    first, second = case.mesh.edges
    slip = case.slip["u"].normals.numpy() if "u" in case.slip else np.zeros((case.number_of_points, 2))
    masks = [case.dirichlet[unknown].mask.numpy() for unknown in ("u", "p")]
    single = {
        "points": case.mesh.points,
        "normals_u": case.slope("u").normals,
        "normals_p": case.slope("p").normals,
        "cell_size": like.features["cell_size"],
        "wall_distance": like.features["wall_distance"],
        "start": start,
    }
    return {
        **{key: each.numpy().astype(np.float32) for key, each in single.items()},
        "viscosity": float(case.parameters["viscosity"]),
        "has_level": "p" not in FlowPhysics().free_levels(case),
        "times": np.array(times),
        "edges": np.stack([first, second], axis=1)[first < second].astype(np.uint16),
        "slip": slip.astype(np.float32),
        "masks": (masks[0] + 2 * masks[1]).astype(np.uint8),
        "courants": np.array(courants),
        "coarse": np.stack(fields),
        "target": target,
    }


def write(task: tuple[Path, str, float]) -> str:
    """The file of a flow; an empty one where there is nothing to learn from."""
    folder, name, until = task
    path = folder / f"{name}.npz"
    if path.exists() or time.time() > until:
        return ""
    try:
        made = run(name)
    except (FlowDivergedError, MeshingError, ValueError) as error:
        print(f"{name}: {error}"[:200], flush=True)
        made = None
    unfinished = path.with_suffix(f".{os.getpid()}")
    with unfinished.open("wb") as stream:
        np.savez(stream, **(made or {}))
    unfinished.replace(path)
    return name


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--split", choices=("train", "validation"), default="train")
    arguments.add_argument(
        "--numbers", nargs=2, type=int, default=(0, 60), help="of each family, the last one excluded"
    )
    arguments.add_argument("--minutes", type=float, default=1e6)
    arguments.add_argument("--processes", type=int, default=1)
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    until, first = time.time() + 60.0 * given.minutes, 0 if given.split == "train" else 1000
    names = [flows.flow_name(family, first + number) for number in range(*given.numbers) for family in TRAINED]
    with get_context("spawn").Pool(given.processes, torch.set_num_threads, (1,)) as pool:
        tasks = [(given.out, name, until) for name in names]
        made = [name for name in pool.imap_unordered(write, tasks) if name]
    print(f"{len(made)} flows", flush=True)


if __name__ == "__main__":
    main()
