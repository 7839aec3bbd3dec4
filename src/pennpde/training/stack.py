"""Many cases in one shape on one device, so that drawing a batch is a gather.

Meshes differ in size; a GPU wants the same shapes every step (captured graphs, no synchronisation with the host). Every
case is filled up to the largest with points that belong to no cell and whose value is prescribed as zero: their matrix
rows are empty, their weight in the loss is zero, and sums over a case's points, such as those of the solver's step
size, leave them out (`Case.present`), which networks without a Dirichlet layer need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pennpde.case import Case, Dirichlet, Neumann, Slip
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from pennpde.operators.damping import Damping
from pennpde.operators.sparse import SparseMatrix, UniformMatrix

_MATRICES = ("gradient", "divergence", "smoothing", "composed_laplacian", "composed_lift")
_AT_POINTS = ("moment_inverse", "neumann_lift")
_CONDITIONS: dict[str, tuple[type, tuple[str, ...]]] = {
    "dirichlet": (Dirichlet, ("mask", "values")),
    "neumann": (Neumann, ("mask", "normals", "normal_derivative")),
    "slip": (Slip, ("mask", "normals")),
}


@dataclass(frozen=True, eq=False)
class CaseStack:
    """Cases filled up to one size. `batch` gathers some of them, by an index tensor that may live on the device."""

    points_per_case: int
    space: int
    tensors: Mapping[tuple[str, ...], Float[Tensor, "cases points *axes"]]
    """Everything over the points, and the parameters, by the path to it."""
    matrices: Mapping[tuple[str, ...], UniformMatrix]
    """By unknown and name, each tensor with a leading axis of cases."""
    weights: Float[Tensor, "cases points"]
    """One over the number of real points; zero at the filled-up ones. A weighted sum is a case's mean."""
    homogeneous: frozenset[str]
    """The unknowns whose normal derivatives are zero in all cases."""
    laplacian_damping: Damping
    neumann_weight: float
    """With which the operators were assembled."""

    def __len__(self) -> int:
        return self.weights.shape[0]

    @classmethod
    def of(
        cls,
        cases: Sequence[Case],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        laplacian_damping: float | Damping = 0.0,
    ) -> CaseStack:
        """Stack cases with the same unknowns, parameters and features, their Laplacians composed."""
        largest, damping = max(case.number_of_points for case in cases), Damping.of(laplacian_damping)
        tensors: dict[tuple[str, ...], Tensor] = {}
        for path in _paths(cases[0]):
            rows = [_filled(path, _follow(case, path), largest) for case in cases]
            tensors[path] = torch.stack(rows).to(device, dtype if rows[0].is_floating_point() else None)
        operators = [{name: each.composed(damping) for name, each in case.operators.items()} for case in cases]
        homogeneous = frozenset(
            unknown
            for unknown in cases[0].neumann
            if not any(bool(case.neumann[unknown].normal_derivative.any()) for case in cases)
        )
        matrices = {
            (unknown, name): _uniform([each[unknown] for each in operators], name, largest, dtype, device)
            for unknown in cases[0].initial
            for name in _MATRICES
            if name != "composed_lift" or unknown not in homogeneous
        }
        for unknown in cases[0].initial:
            for name in _AT_POINTS:
                rows = [_fill(getattr(each[unknown], name), largest) for each in operators]
                tensors["operators", unknown, name] = torch.stack(rows).to(device, dtype)
        weights = torch.stack(
            [
                _fill(torch.full((c.number_of_points,), 1.0 / c.number_of_points, dtype=torch.float64), largest)
                for c in cases
            ]
        )
        return cls(
            largest,
            cases[0].space,
            tensors,
            matrices,
            weights.to(device, dtype),
            homogeneous,
            damping,
            cases[0].neumann_weight,
        )

    def batch(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        """The chosen cases as one, and the weight of each point in a mean over cases."""
        number = chosen.shape[0]

        def take(path: tuple[str, ...]) -> Tensor:
            picked = self.tensors[path][chosen]
            return picked if path[0] == "parameters" else picked.flatten(0, 1)

        def fields(part: str) -> dict[str, Tensor]:
            return {path[1]: take(path) for path in self.tensors if path[0] == part}

        def conditions(part: str) -> dict[str, Any]:
            kind, attributes = _CONDITIONS[part]
            names = dict.fromkeys(path[1] for path in self.tensors if path[0] == part)
            return {name: kind(*(take((part, name, a)) for a in attributes)) for name in names}

        def matrix(unknown: str, name: str) -> Any:
            if (unknown, name) not in self.matrices:
                return None
            whole = self.matrices[unknown, name]
            height, width = whole.columns.shape[1], whole.transposed_columns.shape[1]
            case_numbers = torch.arange(number, device=chosen.device, dtype=torch.int32)[:, None, None]
            return UniformMatrix(
                (whole.columns[chosen] + case_numbers * width).flatten(0, 1),
                whole.values[chosen].flatten(0, 1),
                (whole.transposed_columns[chosen] + case_numbers * height).flatten(0, 1),
                whole.transposed_values[chosen].flatten(0, 1),
            )

        initial = fields("initial")
        neumann = {
            name: replace(condition, is_homogeneous=name in self.homogeneous)
            for name, condition in conditions("neumann").items()
        }

        def operators_of(name: str) -> Operators:
            parts: dict[str, Any] = {part: matrix(name, part) for part in _MATRICES}
            parts |= {part: take(("operators", name, part)) for part in _AT_POINTS}
            return Operators(**parts, composed_damping=self.laplacian_damping)

        parameters = fields("parameters")
        if number == 1:
            parameters = {name: values[0] for name, values in parameters.items()}
        case = Case(
            mesh=_unconnected(number * self.points_per_case, self.space),
            initial=initial,
            dirichlet=conditions("dirichlet"),
            neumann=neumann,
            slip=conditions("slip"),
            parameters=parameters,
            features=fields("features"),
            targets=fields("targets"),
            sizes=(self.points_per_case,) * number,
            present=self.weights[chosen].flatten() > 0,
            neumann_weight=self.neumann_weight,
            cached_operators={name: operators_of(name) for name in initial},
        )
        return case, self.weights[chosen].flatten() / number


def _unconnected(points: int, space: int) -> Mesh:
    """A stand-in: a stacked batch carries its operators and needs no mesh any more."""
    nothing = np.zeros(0, dtype=np.int64)
    return Mesh(torch.zeros(points, space), nothing, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8))


def _paths(case: Case) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for part in ("initial", "parameters", "features", "targets"):
        paths += [(part, name) for name in getattr(case, part)]
    for part, (_, attributes) in _CONDITIONS.items():
        paths += [(part, name, attribute) for name in getattr(case, part) for attribute in attributes]
    return paths


def _follow(case: Case, path: tuple[str, ...]) -> Tensor:
    found = getattr(case, path[0])[path[1]]
    return getattr(found, path[2]) if len(path) == 3 else found


def _filled(path: tuple[str, ...], values: Tensor, number: int) -> Tensor:
    if path[0] == "parameters":
        return values
    return _fill(values, number, value=float(path[0] == "dirichlet" and path[2] == "mask"))


def _fill(values: Tensor, number: int, value: float = 0.0) -> Tensor:
    extra = values.new_full((number - values.shape[0], *values.shape[1:]), value)
    return torch.cat([values, extra])


def _uniform(
    operators: list[Operators], name: str, points: int, dtype: torch.dtype, device: torch.device | str
) -> UniformMatrix:
    straight: list[SparseMatrix] = [getattr(each, name) for each in operators]
    space = operators[0].space
    height = points * space if name == "gradient" else points
    width = points * space if name == "divergence" else points
    return UniformMatrix(
        *_rows_of_one_length(straight, height, width, dtype, device),
        *_rows_of_one_length([each.transposed for each in straight], width, height, dtype, device),
    )


def _rows_of_one_length(
    matrices: list[SparseMatrix], height: int, width: int, dtype: torch.dtype, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    length = max(int(each.row_starts.diff().max()) for each in matrices)
    # An empty entry points at its own row's place: a valid column near by, multiplied by zero.
    own = torch.arange(height, dtype=torch.int64) * width // height
    columns = own[None, :, None].repeat(len(matrices), 1, length).to(torch.int32)
    values = torch.zeros(len(matrices), height, length, dtype=dtype)
    for number, each in enumerate(matrices):
        counts = each.row_starts.diff().long()
        rows = torch.repeat_interleave(counts)
        places = torch.arange(len(rows)) - each.row_starts[:-1].long()[rows]
        columns[number, rows, places] = each.columns
        values[number, rows, places] = each.values.to(dtype)
    return columns.to(device), values.to(device)
