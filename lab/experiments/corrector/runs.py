"""Runs that `generate.py` made, in one shape, so that a batch of snapshots is a gather on the device.

    python lab/experiments/corrector/runs.py RUNS ASSEMBLED --processes 16

assembles operators and fills all runs up to one number of points: a file `ASSEMBLED/NAME.pt` for every so many runs,
which `read` then only copies to the device. What is assembled is kept, and runs that have come since are added.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pennlab.stacks import CaseStack, UniformMatrix, rows_of_one_length
from pennpde.case import Case
from pennpde.case.conditions import Condition, Dirichlet, Neumann, Slip
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.damping import Damping
from pennpde.operators.graph import PointGraph

LARGEST = 2000
"""Points of a filled run; `generate.py` makes no larger ones."""
VARIANTS = 4
"""Coarse solutions of a run: two on cells as they are, two on cells split once."""
_TOGETHER = 32
_AT_POINTS = ("start", "wall_distance", "cell_size")
_MATRICES = ("gradient", "divergence")


@dataclass(frozen=True, eq=False)
class Runs:
    """All runs on a device.

    Attributes:
        stack: Mesh, conditions and operators of each run, without fields.
        coarse: Of each snapshot velocity and pressure by all variants.
        target: Of each snapshot.
        run: Of each snapshot.
        time: Of each snapshot.
        log_courant: Of each run, by variant.
        has_level: Of each run, one where the level of the pressure counts and zero where it is arbitrary.
    """

    stack: CaseStack
    coarse: Float[Tensor, "snapshots variants points unknowns"]
    target: Float[Tensor, "snapshots points unknowns"]
    run: Int[Tensor, " snapshots"]
    time: Float[Tensor, " snapshots"]
    log_courant: Float[Tensor, "runs variants"]
    has_level: Float[Tensor, " runs"]

    def __len__(self) -> int:
        return len(self.run)

    def draw(
        self, chosen: Int[Tensor, " batch"], variant: Int[Tensor, " batch"]
    ) -> tuple[Case, dict[str, Tensor], Float[Tensor, " batch"]]:
        """Snapshots as one case for the corrector, the targets, and where the level of the pressure counts.

        Args:
            chosen: Numbers of snapshots.
            variant: The coarse solution that is to be corrected.
        """
        run = self.run[chosen]
        case, _ = self.stack.draw(run)
        splits = (variant >= VARIANTS // 2).to(self.time)
        given = self.coarse[chosen, variant]
        change = splits[:, None, None] * (given - self.coarse[chosen, 0])
        given, change, target = (each.flatten(0, 1) for each in (given, change, self.target[chosen]))
        velocity, pressure = given[:, :2], given[:, 2]
        dirichlet = {
            "u": replace(case.dirichlet["u"], values=torch.where(case.dirichlet["u"].mask[:, None], velocity, 0.0)),
            "p": replace(case.dirichlet["p"], values=torch.where(case.dirichlet["p"].mask, pressure, 0.0)),
        }
        case = replace(
            case,
            initial={"u": velocity, "p": pressure},
            features={**case.features, "change_u": change[:, :2], "change_p": change[:, 2]},
            parameters={
                **case.parameters,
                "time": self.time[chosen],
                "splits": splits,
                "log_courant": self.log_courant[run, variant],
            },
            conditions={**case.conditions, "dirichlet": dirichlet},
        )
        return case, {"u": target[:, :2], "p": target[:, 2]}, self.has_level[run]


def relative_errors(
    fields: Mapping[str, Tensor], targets: Mapping[str, Tensor], case: Case, has_level: Float[Tensor, " cases"]
) -> dict[str, Float[Tensor, " cases"]]:
    """By unknown, the squared relative error of each case of a batch."""
    found = {}
    for name, target in targets.items():
        difference = fields[name] - target
        if name == "p":
            mean = case.sum(difference) / case.sum(torch.ones_like(difference))
            difference = difference - case.at_points((1 - has_level) * mean)
        found[name] = case.total(difference.square()) / case.total(target.square()).clamp_min(1e-12)
    return found


def read(folder: Path, device: torch.device | str, limit: int | None = None) -> Runs:
    """What `assemble` made, up to so many of its files."""
    parts = [torch.load(path, weights_only=True, mmap=True) for path in sorted(folder.glob("*.pt"))[:limit]]
    if not parts:
        raise FileNotFoundError(f"{folder} has no assembled runs; make them with runs.py.")
    paths = [key for key in parts[0] if key.count("/")]
    tensors = {
        tuple(path.split("/")): torch.cat([part[path].to(device) for part in parts])
        for path in paths
        if not path.startswith("matrix/")
    }
    matrices = {}
    for unknown in ("u", "p"):
        for name in _MATRICES:
            whole = [
                _joined([part[f"matrix/{unknown}/{name}/{which}"].to(device) for part in parts])
                for which in ("columns", "values", "transposed_columns", "transposed_values")
            ]
            matrices[unknown, name] = UniformMatrix(*whole)
    sizes = torch.cat([part["sizes"] for part in parts]).to(device)
    present = torch.arange(LARGEST, device=device) < sizes[:, None]
    nowhere, none = torch.zeros(0, dtype=torch.bool), torch.zeros(0, 2)
    patterns: dict[tuple[str, str], Condition] = {("slip", "u"): Slip(nowhere, none)}
    for unknown, values in (("u", none), ("p", none[:, 0])):
        patterns["dirichlet", unknown] = Dirichlet(nowhere, values)
        patterns["neumann", unknown] = Neumann(nowhere, none, values, is_homogeneous=True)
    weights = present / sizes[:, None]
    stack = CaseStack(LARGEST, 2, tensors, matrices, weights, patterns, Damping(), neumann_weight=NEUMANN_WEIGHT)
    first = np.cumsum([0, *(len(part["sizes"]) for part in parts)])
    return Runs(
        stack,
        torch.cat([part["coarse"].to(device) for part in parts]),
        torch.cat([part["target"].to(device) for part in parts]),
        torch.cat([part["run"] + int(start) for part, start in zip(parts, first[:-1], strict=True)]).to(device),
        torch.cat([part["time"] for part in parts]).to(device),
        torch.cat([part["log_courant"] for part in parts]).to(device),
        torch.cat([part["has_level"] for part in parts]).to(device),
    )


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Matrices of different row lengths; what is added points where the first entry points, times zero."""
    longest = max(part.shape[2] for part in parts)
    filled = []
    for part in parts:
        more = part[:, :, :1].expand(-1, -1, longest - part.shape[2])
        filled.append(torch.cat([part, torch.zeros_like(more) if part.is_floating_point() else more], dim=2))
    return torch.cat(filled)


def assemble(task: tuple[Sequence[Path], Path]) -> None:
    """Assemble some runs into one file."""
    paths, out = task
    parts = []
    for path in paths:
        with np.load(path) as file:
            parts.append(dict(file))
    made = [_assembled(part) for part in parts]
    whole: dict[str, Tensor] = {"/".join(key): torch.stack([tensors[key] for tensors, _ in made]) for key in made[0][0]}
    for unknown in ("u", "p"):
        for name in _MATRICES:
            straight = [matrices[unknown][name] for _, matrices in made]
            height, width = (2 * LARGEST, LARGEST) if name == "gradient" else (LARGEST, 2 * LARGEST)
            found = (
                *rows_of_one_length(straight, height, width, torch.float32, "cpu"),
                *rows_of_one_length([each.transposed for each in straight], width, height, torch.float32, "cpu"),
            )
            names = ("columns", "values", "transposed_columns", "transposed_values")
            whole |= {f"matrix/{unknown}/{name}/{which}": each for which, each in zip(names, found, strict=True)}
    times = [torch.from_numpy(part["times"]).float() for part in parts]
    whole["sizes"] = torch.tensor([len(part["points"]) for part in parts])
    whole["run"] = torch.repeat_interleave(torch.tensor([len(each) for each in times]))
    whole["time"] = torch.cat(times)
    whole["log_courant"] = torch.from_numpy(np.stack([part["courants"] for part in parts])).log().float()
    whole["has_level"] = torch.tensor([float(part["has_level"]) for part in parts])
    coarse = [torch.from_numpy(part["coarse"]).transpose(0, 1) for part in parts]  # times, variants, points, 3
    whole["coarse"] = torch.cat([_filled(each.movedim(2, 0), LARGEST).movedim(0, 2) for each in coarse])
    targets = [torch.from_numpy(part["target"]).movedim(1, 0) for part in parts]
    whole["target"] = torch.cat([_filled(each, LARGEST).movedim(0, 1) for each in targets])
    unfinished = out.with_suffix(".new")
    torch.save({key: each.contiguous() for key, each in whole.items()}, unfinished)
    unfinished.replace(out)


def _filled(values: Tensor, number: int) -> Tensor:
    return torch.cat([values, values.new_zeros((number - values.shape[0], *values.shape[1:]))])


def _assembled(part: Mapping[str, Any]) -> tuple[dict[tuple[str, ...], Tensor], dict[str, Any]]:
    """Tensors of a run, filled up, and the matrices of its operators."""
    number = len(part["points"])
    points = torch.from_numpy(part["points"]).double()
    pairs = part["edges"].astype(np.int64)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    graph = PointGraph.of(both.T, number, 2)
    held = {"u": part["masks"] & 1, "p": part["masks"] >> 1 & 1}
    slip = torch.from_numpy(part["slip"])
    tensors: dict[tuple[str, ...], Tensor] = {
        ("parameters", "viscosity"): torch.tensor(float(part["viscosity"]), dtype=torch.float32),
        **{("features", name): torch.from_numpy(part[name]).float() for name in _AT_POINTS},
        ("initial", "u"): torch.zeros(number, 2),
        ("initial", "p"): torch.zeros(number),
        ("slip", "u", "normals"): slip,
        ("slip", "u", "mask"): (slip != 0).any(dim=1),
    }  # fmt: skip
    matrices: dict[str, Any] = {}
    for unknown, axes in (("u", (2,)), ("p", ())):
        normals = torch.from_numpy(part[f"normals_{unknown}"])
        operators = Operators.from_normals(points, graph, normals.double(), dtype=torch.float32)
        matrices[unknown] = {name: getattr(operators, name) for name in _MATRICES}
        tensors |= {
            ("operators", unknown, "moment_inverse"): operators.moment_inverse.float(),
            ("operators", unknown, "neumann_lift"): operators.neumann_lift.float(),
            ("dirichlet", unknown, "mask"): torch.from_numpy(held[unknown].astype(bool)),
            ("dirichlet", unknown, "values"): torch.zeros(number, *axes),
            ("neumann", unknown, "mask"): (normals != 0).any(dim=1),
            ("neumann", unknown, "normals"): normals,
            ("neumann", unknown, "normal_derivative"): torch.zeros(number, *axes),
        }
    filled = {path: each if path[0] == "parameters" else _filled(each, LARGEST) for path, each in tensors.items()}
    # Points that only fill up belong to no cell, and their values are prescribed.
    for unknown in ("u", "p"):
        filled["dirichlet", unknown, "mask"][number:] = True
    filled["features", "cell_size"][number:] = 1e-6  # no area
    filled["features", "wall_distance"][number:] = 1e-6
    return filled, matrices


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("runs", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--processes", type=int, default=1)
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    listed = given.out / "assembled.txt"
    done = set(listed.read_text().split()) if listed.exists() else set()
    paths = [path for path in sorted(given.runs.glob("*.npz")) if path.name not in done and path.stat().st_size > 1000]
    # Families take turns, so that every file has some of each.
    paths.sort(key=lambda path: path.stem[::-1])
    groups = [paths[start : start + _TOGETHER] for start in range(0, len(paths), _TOGETHER)]
    tasks = [(group, given.out / f"{group[0].stem}.pt") for group in groups]
    with get_context("spawn").Pool(given.processes, torch.set_num_threads, (1,)) as pool:
        for (group, _), _ in zip(tasks, pool.imap(assemble, tasks), strict=True):
            with listed.open("a") as stream:
                stream.writelines(f"{path.name}\n" for path in group)
    print(f"{len(paths)} runs assembled, {len(done)} were there", flush=True)


if __name__ == "__main__":
    main()
