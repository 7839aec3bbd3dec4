"""Runs that `pack.py` made, on one device and in one shape, so that a batch of snapshots is a gather."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

_RAGGED = {
    "number_of_points": (
        *("points", "normals_u", "normals_p", "slip", "masks", "cell_size", "wall_distance", "start"),
    ),
    "number_of_edges": ("edges",),
    "number_of_times": ("times",),
}
_FIELDS = ("coarse", "change", "missing")
_AT_POINTS = ("start", "wall_distance", "cell_size")


@dataclass(frozen=True, eq=False)
class Runs:
    """All runs on a device.

    Attributes:
        stack: Mesh, conditions and operators of each run, without fields.
        fields: By name, of each snapshot: `coarse`, `change` by splitting cells once, and `missing` then.
        run: Of each snapshot.
        time: Of each snapshot.
        has_level: Of each run, one where the level of the pressure counts and zero where it is arbitrary.
        families: Of each run.
    """

    stack: CaseStack
    fields: Mapping[str, Float[Tensor, "snapshots points unknowns"]]
    run: Int[Tensor, " snapshots"]
    time: Float[Tensor, " snapshots"]
    has_level: Float[Tensor, " runs"]
    families: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.run)

    def draw(
        self, chosen: Int[Tensor, " batch"], splits: Float[Tensor, " batch"]
    ) -> tuple[Case, dict[str, Tensor], Float[Tensor, " batch"]]:
        """Snapshots as one case for the corrector, the targets, and where the level of the pressure counts.

        Args:
            chosen: Numbers of snapshots.
            splits: Of the cells of the coarse solution that is to be corrected, 0 or 1.
        """
        run = self.run[chosen]
        case, _ = self.stack.draw(run)
        split = splits[:, None, None]
        coarse, change, missing = (self.fields[name][chosen].float() for name in _FIELDS)
        given = coarse + split * change
        change, target = (split * change).flatten(0, 1), (coarse + change + missing).flatten(0, 1)
        flat = given.flatten(0, 1)
        velocity, pressure = flat[:, :2], flat[:, 2]
        dirichlet = {
            "u": replace(case.dirichlet["u"], values=torch.where(case.dirichlet["u"].mask[:, None], velocity, 0.0)),
            "p": replace(case.dirichlet["p"], values=torch.where(case.dirichlet["p"].mask, pressure, 0.0)),
        }
        case = replace(
            case,
            initial={"u": velocity, "p": pressure},
            features={**case.features, "change_u": change[:, :2], "change_p": change[:, 2]},
            parameters={**case.parameters, "time": self.time[chosen], "splits": splits},
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


def read(paths: Sequence[Path], device: torch.device | str, limit: int | None = None) -> Runs:
    """Read packed files; the operators are assembled here."""
    parts = [part for path in paths for part in _parts(path)][:limit]
    largest = max(len(part["points"]) for part in parts)
    made = [_assembled(part, largest) for part in parts]
    tensors = {path: torch.stack([each[0][path] for each in made]).to(device) for path in made[0][0]}
    matrices = {}
    for unknown in ("u", "p"):
        for name in ("gradient", "divergence"):
            straight = [each[1][unknown][name] for each in made]
            height = 2 * largest if name == "gradient" else largest
            width = largest if name == "gradient" else 2 * largest
            matrices[unknown, name] = UniformMatrix(
                *rows_of_one_length(straight, height, width, torch.float32, device),
                *rows_of_one_length([each.transposed for each in straight], width, height, torch.float32, device),
            )
    weights = torch.stack(
        [torch.cat([torch.full((len(part["points"]),), 1.0 / len(part["points"])),
                    torch.zeros(largest - len(part["points"]))]) for part in parts]
    ).to(device)  # fmt: skip
    nowhere, none = torch.zeros(0, dtype=torch.bool), torch.zeros(0, 2)
    patterns: dict[tuple[str, str], Condition] = {("slip", "u"): Slip(nowhere, none)}
    for unknown, values in (("u", none), ("p", none[:, 0])):
        patterns["dirichlet", unknown] = Dirichlet(nowhere, values)
        patterns["neumann", unknown] = Neumann(nowhere, none, values, is_homogeneous=True)
    stack = CaseStack(largest, 2, tensors, matrices, weights, patterns, Damping(), neumann_weight=NEUMANN_WEIGHT)
    fields = {name: [] for name in _FIELDS}
    run, time = [], []
    for number, part in enumerate(parts):
        for place, at in enumerate(part["times"]):
            run.append(number)
            time.append(float(at))
            for name in _FIELDS:
                fields[name].append(_filled(torch.from_numpy(part[name][place]), largest))
    return Runs(
        stack,
        {name: torch.stack(each).to(device) for name, each in fields.items()},
        torch.tensor(run, device=device),
        torch.tensor(time, device=device, dtype=torch.float32),
        torch.tensor([float(part["has_level"]) for part in parts], device=device),
        tuple(str(part["name"]).rsplit("_", 1)[0] for part in parts),
    )


def _parts(path: Path) -> list[dict[str, Any]]:
    """The file cut into runs."""
    with np.load(path) as file:
        whole = dict(file)
    cut: dict[str, list[np.ndarray]] = {}
    for count, names in _RAGGED.items():
        ends = np.cumsum(whole[count])[:-1]
        cut |= {name: np.split(whole[name], ends) for name in names}
    rows = whole["number_of_points"] * whole["number_of_times"]
    cut |= {name: np.split(whole[name], np.cumsum(rows)[:-1]) for name in _FIELDS}
    parts = []
    for number, name in enumerate(whole["names"]):
        part: dict[str, Any] = {each: values[number] for each, values in cut.items()}
        shape = (int(whole["number_of_times"][number]), int(whole["number_of_points"][number]), 3)
        part |= {each: part[each].reshape(shape) for each in _FIELDS}
        parts.append({**part, "name": name, **{each: whole[each][number] for each in ("viscosity", "has_level")}})
    return parts


def _filled(values: Tensor, number: int) -> Tensor:
    return torch.cat([values, values.new_zeros((number - values.shape[0], *values.shape[1:]))])


def _assembled(part: Mapping[str, Any], largest: int) -> tuple[dict[tuple[str, ...], Tensor], dict[str, Any]]:
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
        ("parameters", "viscosity"): torch.tensor(part["viscosity"], dtype=torch.float32),
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
        matrices[unknown] = {name: getattr(operators, name) for name in ("gradient", "divergence")}
        tensors |= {
            ("operators", unknown, "moment_inverse"): operators.moment_inverse.float(),
            ("operators", unknown, "neumann_lift"): operators.neumann_lift.float(),
            ("dirichlet", unknown, "mask"): torch.from_numpy(held[unknown].astype(bool)),
            ("dirichlet", unknown, "values"): torch.zeros(number, *axes),
            ("neumann", unknown, "mask"): (normals != 0).any(dim=1),
            ("neumann", unknown, "normals"): normals,
            ("neumann", unknown, "normal_derivative"): torch.zeros(number, *axes),
        }
    filled = {path: each if path[0] == "parameters" else _filled(each, largest) for path, each in tensors.items()}
    # Points that only fill up belong to no cell, and their values are prescribed.
    for unknown in ("u", "p"):
        filled["dirichlet", unknown, "mask"][number:] = True
    filled["features", "cell_size"][number:] = 1e-6  # no area
    filled["features", "wall_distance"][number:] = 1e-6
    return filled, matrices
