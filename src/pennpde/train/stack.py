"""Many cases in one shape on one device, so that drawing a batch is a gather.

Meshes differ in size; a GPU wants the same shapes every step (captured graphs, no synchronisation with the host). Every
case is filled up to the largest with points that belong to no cell and whose value is prescribed as zero: their matrix
rows are empty, their weight in the loss is zero, and sums over a case's points, such as those of the solver's step
size, leave them out (`Case.present`), which networks without a Dirichlet layer need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pennpde.case import Case, Condition
from pennpde.case.conditions import Course
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.damping import Damping
from pennpde.operators.sparse import SparseMatrix, UniformMatrix

_MATRICES = ("gradient", "divergence", "composed_laplacian", "composed_lift")
_AT_POINTS = ("moment_inverse", "neumann_lift")

_SERIES = "series"


@dataclass(frozen=True, eq=False)
class Pattern:
    """A condition but for its tensors: what is known of all cases of a stack."""

    kind: type[Condition]
    flags: Mapping[str, bool]

    @classmethod
    def of(cls, conditions: Sequence[Condition]) -> Pattern:
        kind = type(conditions[0])
        return cls(kind, {name: all(getattr(each, name) for each in conditions) for name in kind.flags()})


@dataclass(frozen=True, eq=False)
class CaseStack:
    """Cases padded to one size. `batch` gathers some of them, by an index tensor that may live on the device."""

    points_per_case: int
    space: int
    tensors: Mapping[tuple[str, ...], Float[Tensor, "cases points *axes"]]
    """Everything over the points, and the parameters, by the path to it."""
    matrices: Mapping[tuple[str, ...], UniformMatrix]
    """By unknown and name, each tensor with a leading axis of cases."""
    weights: Float[Tensor, "cases points"]
    """One over the number of real points; zero at padding points. A weighted sum is a case's mean."""
    patterns: Mapping[tuple[str, str], Pattern]
    """By kind and unknown, how a condition is put together from the tensors."""
    laplacian_damping: Damping
    times: tuple[float, ...] = ()
    """At which conditions that change with time are known."""
    neumann_weight: float = NEUMANN_WEIGHT
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
        times: Sequence[float] = (),
    ) -> CaseStack:
        """Stack cases with the same unknowns, parameters and features, their Laplacians composed.

        Args:
            cases: to be stacked.
            dtype: of the stack.
            device: where it goes.
            laplacian_damping: of the composed Laplacians.
            times: output times of the network, at which conditions that change with time will be asked for.
        """
        largest, damping = max(case.number_of_points for case in cases), Damping.of(laplacian_damping)
        tensors: dict[tuple[str, ...], Tensor] = {}
        for path in _paths(cases[0]):
            rows = [_filled(path[0], getattr(case, path[0])[path[1]], largest) for case in cases]
            tensors[path] = torch.stack(rows).to(device, dtype if rows[0].is_floating_point() else None)
        patterns = {}
        for kind, by_unknown in cases[0].conditions.items():
            for unknown in by_unknown:
                conditions = [case.conditions[kind][unknown].settled() for case in cases]
                patterns[kind, unknown] = Pattern.of(conditions)
                for name, rows in _condition_rows(conditions, largest, times).items():
                    stacked = torch.stack(rows)
                    tensors[kind, unknown, name] = stacked.to(device, dtype if stacked.is_floating_point() else None)
        operators = [{name: each.composed(damping) for name, each in case.operators.items()} for case in cases]
        # Without prescribed derivatives the matrix that spreads them is never asked for.
        homogeneous = {unknown for unknown in cases[0].initial if _is_homogeneous(patterns, unknown)}
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
        if any(each[unknown].robin_lift is not None for each in operators for unknown in each):
            for unknown in cases[0].initial:
                pairs = [each[unknown].robin_lifts() for each in operators]
                for place, name in enumerate(("robin_lift", "divergence_lift")):
                    rows = [_fill(pair[place], largest) for pair in pairs]
                    tensors["operators", unknown, name] = torch.stack(rows).to(device, dtype)
        if any(case.present is not None for case in cases):
            present = [_present(case) for case in cases]
            tensors["present",] = torch.stack([_fill(each, largest) for each in present]).to(device)
        weights = torch.stack(
            [
                _fill(torch.full((c.number_of_points,), 1.0 / c.number_of_points, dtype=torch.float64), largest)
                for c in cases
            ]
        )
        weights, strength = weights.to(device, dtype), cases[0].neumann_weight
        return cls(largest, cases[0].space, tensors, matrices, weights, patterns, damping, tuple(times), strength)

    def batch(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        """The chosen cases as one, and the weight of each point in a mean over cases."""
        number = chosen.shape[0]

        def take(path: tuple[str, ...]) -> Tensor:
            picked = self.tensors[path][chosen]
            return picked if path[0] == "parameters" else picked.flatten(0, 1)

        def fields(part: str) -> dict[str, Tensor]:
            return {path[1]: take(path) for path in self.tensors if path[0] == part}

        def condition(kind: str, unknown: str) -> Condition:
            pattern = self.patterns[kind, unknown]
            made = {name: take((kind, unknown, name)) for name in pattern.kind.roles()}
            for name, role in pattern.kind.roles().items():
                if role.is_point:
                    every = torch.arange(number * self.points_per_case, device=chosen.device)
                    made[name] = made[name] + (every - every % self.points_per_case)
            series = (kind, unknown, _SERIES)
            course = Course.of_series(self.times, take(series)) if series in self.tensors else None
            return pattern.kind(**made, **pattern.flags, **({} if course is None else {"course": course}))

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
        conditions: dict[str, dict[str, Condition]] = {}
        for kind, unknown in self.patterns:
            conditions.setdefault(kind, {})[unknown] = condition(kind, unknown)

        def operators_of(name: str) -> Operators:
            parts: dict[str, Any] = {part: matrix(name, part) for part in _MATRICES}
            at_points = [path[2] for path in self.tensors if path[:2] == ("operators", name)]
            parts |= {part: take(("operators", name, part)) for part in at_points}
            return Operators(**parts, composed_damping=self.laplacian_damping)

        parameters = fields("parameters")
        if number == 1:
            parameters = {name: values[0] for name, values in parameters.items()}
        present = self.weights[chosen].flatten() > 0
        if ("present",) in self.tensors:
            present = present & take(("present",))
        mesh: Any = NoMesh(number * self.points_per_case, self.space)
        case = Case(
            mesh=mesh,
            initial=initial,
            conditions=conditions,
            parameters=parameters,
            features=fields("features"),
            targets=fields("targets"),
            sizes=(self.points_per_case,) * number,
            present=present,
            neumann_weight=self.neumann_weight,
            cached_operators={name: operators_of(name) for name in initial},
        )
        return case, self.weights[chosen].flatten() / number


class NoMesh:
    """Stands where a stacked batch has no mesh, so that a network which needs one fails instead of seeing zeros."""

    def __init__(self, number_of_points: int, space: int):
        self.number_of_points, self.number_of_cells, self.space = number_of_points, 0, space

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"it asks for mesh.{name}, which cases filled up to one shape do not have")


def _paths(case: Case) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for part in ("initial", "parameters", "features", "targets"):
        paths += [(part, name) for name in getattr(case, part)]
    return paths


def _filled(part: str, values: Tensor, number: int) -> Tensor:
    return values if part == "parameters" else _fill(values, number)


def _fill(values: Tensor, number: int) -> Tensor:
    return torch.cat([values, values.new_zeros((number - values.shape[0], *values.shape[1:]))])


def _condition_rows(conditions: Sequence[Condition], number: int, times: Sequence[float]) -> dict[str, list[Tensor]]:
    """By name, a tensor of the condition of each case, filled up; and, if it changes, its series over the times."""
    filled = [each.filled(number) for each in conditions]
    rows = {name: [each[name] for each in filled] for name in filled[0]}
    if any(each.course is not None for each in conditions):
        if not times:
            raise ValueError(
                f"The {conditions[0].kind} conditions change with time, but the network does not say when it wants to "
                "know them: give it `output_times`, or the case a parameter time."
            )
        varying = conditions[0].varying
        assert varying is not None
        at_times = [[each.at(time).filled(number)[varying] for time in times] for each in conditions]
        rows[_SERIES] = [torch.stack(each, dim=-1) for each in at_times]
    return rows


def _is_homogeneous(patterns: Mapping[tuple[str, str], Pattern], unknown: str) -> bool:
    of_unknown = [each for (_, name), each in patterns.items() if name == unknown]
    return all(each.flags.get("is_homogeneous", True) for each in of_unknown)


def _present(case: Case) -> Tensor:
    return torch.ones(case.number_of_points, dtype=torch.bool) if case.present is None else case.present


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
