"""Coarse-grid solutions with the dataset's own as plain arrays, for training on a machine without the dataset.

    python lab/experiments/corrector/pack.py NAME --splits train [--part 0 3] [--most-points 3000] [--targets mean]

One file `runs/corrector/packed/NAME.npz`: all runs behind each other, with the numbers of points, edges and times of
each. Fields have half precision, which is finer than any of the errors that are learned; what training can compute by
itself from the mesh is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from data import ARCHIVES, DATA, ROOT

from pennlab.datasets.plane_flow import finished, flows
from pennpde.flow.corrector import coarse_case
from pennpde.flow.plane_physics import PlaneFlowPhysics
from pennpde.models.flow_physics import FlowPhysics
from pennpde.penn.predictor import seen_by

PACKED = ROOT / "runs" / "corrector" / "packed"
_KINDS = {"dirichlet", "neumann", "slip"}


class _Network:
    """What `seen_by` asks for: the units of plane flows."""

    equation = PlaneFlowPhysics()


def runs(split: str, part: tuple[int, int], most_points: int, targets: str) -> Iterator[dict[str, Any]]:
    """What training needs of each run; of every so many flows, the part means the one of that number."""
    needed = 2 if targets == "dataset" else 3
    there = set(finished.names(ARCHIVES))
    for place, name in enumerate(name for name in flows.splits()[split] if name in there):
        path = DATA / split / f"{name}.npz"
        if not path.exists() or place % part[1] != part[0]:
            continue
        with np.load(path) as file:
            stored = dict(file)
        for key, file in finished.cases(ARCHIVES, flows.draw_flow(name, 0)).items():
            if file.case.number_of_points > most_points:
                continue
            if any(f"{key}/{level}/u" not in stored for level in range(needed)):
                continue  # a march diverged
            seen = seen_by(_Network(), file.case)
            case = seen.case
            used = {kind for kind, by_unknown in case.conditions.items() if by_unknown}
            if case.changes_with_time or not used <= _KINDS:
                continue
            number, times = case.number_of_points, [each / seen.time for each in file.times]
            levels = [
                np.concatenate(
                    [stored[f"{key}/{level}/u"], stored[f"{key}/{level}/p"][:, None]], axis=1
                )  # points, 3, times
                for level in range(needed)
            ]
            target = np.concatenate([case.targets["u"].numpy(), case.targets["p"].numpy()[:, None]], axis=1)
            if targets != "dataset":
                target = levels[2] if targets == "finest" else 0.5 * (target + levels[2])
            if not all(np.isfinite(each).all() and np.abs(each).max() < 1e3 for each in (*levels, target)):
                continue
            start = stored[f"{key}/0/start"]
            like = coarse_case(case, case.initial["u"], case.initial["p"], torch.from_numpy(start), times[0])
            slip = case.slip["u"].normals.numpy() if "u" in case.slip else np.zeros((number, 2))
            masks = [case.dirichlet[unknown].mask.numpy() for unknown in ("u", "p")]
            first, second = case.mesh.edges
            yield {
                "name": key,
                "viscosity": float(case.parameters["viscosity"]),
                "has_level": "p" not in FlowPhysics().free_levels(case),
                "times": times,
                "points": case.mesh.points.numpy(),
                "edges": np.stack([first, second], axis=1)[first < second],
                "normals_u": case.slope("u").normals.numpy(),
                "normals_p": case.slope("p").normals.numpy(),
                "slip": slip,
                "masks": masks[0] + 2 * masks[1],
                "cell_size": like.features["cell_size"].numpy(),
                "wall_distance": like.features["wall_distance"].numpy(),
                "start": start,
                "coarse": np.moveaxis(levels[0], 2, 0).reshape(-1, 3),
                "change": np.moveaxis(levels[1] - levels[0], 2, 0).reshape(-1, 3),
                "missing": np.moveaxis(target - levels[1], 2, 0).reshape(-1, 3),
            }


def half(values: np.ndarray, bits: int = 10) -> np.ndarray:
    """In half precision, with fewer bits behind the point where that is enough: zeros take no room in a file."""
    plain = values.astype(np.float16)
    if bits == 10:
        return plain
    drop = 10 - bits
    rounded = (plain.view(np.uint16) + np.uint16(1 << (drop - 1))) & np.uint16(0xFFFF << drop & 0xFFFF)
    return rounded.view(np.float16)


def packed(found: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([each[name] for each in found])

    return {
        "names": np.array([each["name"] for each in found]),
        "viscosity": np.array([each["viscosity"] for each in found]),
        "has_level": np.array([each["has_level"] for each in found]),
        "number_of_points": np.array([len(each["points"]) for each in found]),
        "number_of_edges": np.array([len(each["edges"]) for each in found]),
        "number_of_times": np.array([len(each["times"]) for each in found]),
        "times": joined("times"),
        "edges": joined("edges").astype(np.uint16),
        "masks": joined("masks").astype(np.uint8),
        **{name: joined(name).astype(np.float32) for name in ("points", "normals_u", "normals_p", "slip")},
        **{name: half(joined(name)) for name in ("cell_size", "wall_distance", "start", "coarse")},
        "change": half(joined("change"), 7),
        "missing": half(joined("missing"), 6),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("name")
    arguments.add_argument("--splits", nargs="+", default=["train"])
    arguments.add_argument("--part", nargs=2, type=int, default=(0, 1), help="number, and of how many")
    arguments.add_argument("--most-points", type=int, default=3000)
    arguments.add_argument(
        "--targets",
        choices=("dataset", "finest", "mean"),
        default="mean",
        help="finest: the march on cells split twice",
    )
    given = arguments.parse_args()
    found = [run for split in given.splits for run in runs(split, tuple(given.part), given.most_points, given.targets)]
    PACKED.mkdir(parents=True, exist_ok=True)
    path = PACKED / f"{given.name}.npz"
    np.savez_compressed(path, **packed(found))
    print(f"{path}: {len(found)} runs, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
