"""Cases as batches: which cases a step sees, and how they go through a network together.

`CaseStack` keeps all cases on the device in one shape, so that drawing a batch is a gather and every step has the same
shapes. A network can work on it if it needs nothing of a case but its fields, conditions, parameters and operators, and
if points without neighbours do not disturb it. Whether that holds is tried out (`disagreement`). `Blocks` suits every
network: cases side by side, as `case.batch` makes them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.case import Case, Condition, batch
from pennpde.case.conditions import Course
from pennpde.mesh import Mesh
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.damping import Damping
from pennpde.operators.sparse import SparseMatrix, UniformMatrix

_WASTE = {"cpu": 1.5, "cuda": 4.0}
"""Points with those that fill up over points without: a GPU gains more from one shape than it loses."""
_TOLERANCE = 2e-2
"""Largest relative difference between a case by itself and in a stack; a solver amplifies round-off to 1e-3."""
_MATRICES = ("gradient", "divergence", "composed_laplacian", "composed_lift")
_AT_POINTS = ("moment_inverse", "neumann_lift")
_SERIES = "series"

Item = TypeVar("Item")


def evenly(items: Sequence[Item], most: int | None) -> list[Item]:
    """At most so many of a list, evenly over all of it; None: all."""
    if most is None or len(items) <= most:
        return list(items)
    return [items[(2 * place + 1) * len(items) // (2 * most)] for place in range(most)]


@dataclass(frozen=True)
class Order:
    """Which cases a step sees: every case once per epoch, each epoch in a different order.

    Depends only on seed and step, so that a resumed training sees the same.
    """

    cases: int
    batch_size: int
    seed: int

    def batches(self, step: int, count: int) -> Int[Tensor, "count batch"]:
        """The batches of `count` steps from `step` on. One may hold the end of an epoch and the start of the next."""
        first, last = step * self.batch_size, (step + count) * self.batch_size
        chosen = [_epoch(self, place // self.cases)[place % self.cases] for place in range(first, last)]
        return torch.tensor(chosen).reshape(count, self.batch_size)


@lru_cache(maxsize=2)
def _epoch(order: Order, number: int) -> list[int]:
    generator = torch.Generator().manual_seed(1_000_003 * order.seed + number)
    return torch.randperm(order.cases, generator=generator).tolist()


@dataclass(frozen=True, eq=False)
class CaseStack:
    """Cases padded to one size. `draw` gathers some of them, by an index tensor that may live on the device.

    Meshes differ in size; a GPU wants the same shapes every step (captured graphs, no synchronisation with the host).
    Every case is filled up to the largest with points that belong to no cell and whose value is prescribed as zero:
    their matrix rows are empty, their weight in the loss is zero, and sums over a case's points, such as those of the
    solver's step size, leave them out (`Case.present`), which networks without a Dirichlet layer need.
    """

    points_per_case: int
    space: int
    tensors: Mapping[tuple[str, ...], Float[Tensor, "cases points *axes"]]
    """Everything over the points, and the parameters, by the path to it."""
    matrices: Mapping[tuple[str, ...], UniformMatrix]
    """By unknown and name, each tensor with a leading axis of cases."""
    weights: Float[Tensor, "cases points"]
    """One over the number of real points; zero at padding points. A weighted sum is a case's mean."""
    patterns: Mapping[tuple[str, str], Condition]
    """By kind and unknown, a condition that lacks only the tensors."""
    laplacian_damping: Damping
    times: tuple[float, ...] = ()
    """At which conditions that change with time are known."""
    neumann_weight: float = NEUMANN_WEIGHT
    """With which the operators were assembled."""

    @classmethod
    def of(
        cls,
        cases: Sequence[Case],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        laplacian_damping: float | Damping = 0.0,
        times: Sequence[float] = (),
    ) -> CaseStack:
        """Stack cases with the same unknowns, parameters and features, their Laplacians composed with this damping.

        Conditions that change with time will be known at these times only, such as a network's `output_times`.
        """
        largest, damping = max(case.number_of_points for case in cases), Damping.of(laplacian_damping)
        tensors: dict[tuple[str, ...], Tensor] = {}

        def put(path: tuple[str, ...], rows: Sequence[Tensor]) -> None:
            whole = torch.stack([row if path[0] == "parameters" else _fill(row, largest) for row in rows])
            tensors[path] = whole.to(device, dtype if whole.is_floating_point() else None)

        for part in ("initial", "parameters", "features", "targets"):
            for name in getattr(cases[0], part):
                put((part, name), [getattr(case, part)[name] for case in cases])
        patterns = {}
        for kind, by_unknown in cases[0].conditions.items():
            for unknown in by_unknown:
                conditions = [case.conditions[kind][unknown].settled() for case in cases]
                known = {flag: all(getattr(each, flag) for each in conditions) for flag in conditions[0].flags()}
                patterns[kind, unknown] = replace(conditions[0], **known)
                for name, rows in _condition_rows(conditions, largest, times).items():
                    put((kind, unknown, name), rows)
        operators = [{name: each.composed(damping) for name, each in case.operators.items()} for case in cases]
        has_robin = any(each[unknown].robin_lift is not None for each in operators for unknown in each)
        matrices = {}
        for unknown in cases[0].initial:
            of_unknown = [each[unknown] for each in operators]
            # Without prescribed derivatives the matrix that spreads them is never asked for.
            of_conditions = [each for (_, name), each in patterns.items() if name == unknown]
            homogeneous = all(getattr(each, "is_homogeneous", True) for each in of_conditions)
            for name in _MATRICES[: -1 if homogeneous else None]:
                matrices[unknown, name] = _uniform(of_unknown, name, largest, dtype, device)
            for name in _AT_POINTS:
                put(("operators", unknown, name), [getattr(each, name) for each in of_unknown])
            if has_robin:
                pairs = [each.robin_lifts() for each in of_unknown]
                put(("operators", unknown, "robin_lift"), [pair[0] for pair in pairs])
                put(("operators", unknown, "divergence_lift"), [pair[1] for pair in pairs])
        sizes = [case.number_of_points for case in cases]
        if any(case.present is not None for case in cases):
            pairs = zip(sizes, (case.present for case in cases), strict=True)
            put(("present",), [torch.ones(n, dtype=torch.bool) if some is None else some for n, some in pairs])
        weights = torch.stack([_fill(torch.full((n,), 1.0 / n, dtype=torch.float64), largest) for n in sizes])
        weights, strength = weights.to(device, dtype), cases[0].neumann_weight
        return cls(largest, cases[0].space, tensors, matrices, weights, patterns, damping, tuple(times), strength)

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        """The chosen cases as one, and the weight of each point in a mean over cases."""
        number = chosen.shape[0]

        def take(path: tuple[str, ...]) -> Tensor:
            picked = self.tensors[path][chosen]
            return picked if path[0] == "parameters" else picked.flatten(0, 1)

        def fields(part: str) -> dict[str, Tensor]:
            return {path[1]: take(path) for path in self.tensors if path[0] == part}

        def condition(kind: str, unknown: str) -> Condition:
            pattern = self.patterns[kind, unknown]
            made: dict[str, Any] = {name: take((kind, unknown, name)) for name in pattern.roles()}
            for name, role in pattern.roles().items():
                if role.is_point:
                    every = torch.arange(number * self.points_per_case, device=chosen.device)
                    made[name] = made[name] + (every - every % self.points_per_case)
            if (series := (kind, unknown, _SERIES)) in self.tensors:
                made["course"] = Course.of_series(self.times, take(series))
            return replace(pattern, **made)

        conditions: dict[str, dict[str, Condition]] = {}
        for kind, unknown in self.patterns:
            conditions.setdefault(kind, {})[unknown] = condition(kind, unknown)

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

        def operators_of(name: str) -> Operators:
            parts: dict[str, Any] = {part: matrix(name, part) for part in _MATRICES}
            at_points = [path[2] for path in self.tensors if path[:2] == ("operators", name)]
            parts |= {part: take(("operators", name, part)) for part in at_points}
            return Operators(**parts, composed_damping=self.laplacian_damping)

        initial, parameters = fields("initial"), fields("parameters")
        if number == 1:
            parameters = {name: values[0] for name, values in parameters.items()}
        present = self.weights[chosen].flatten() > 0
        if ("present",) in self.tensors:
            present = present & take(("present",))
        case = Case(
            mesh=cast(Mesh, NoMesh(number * self.points_per_case, self.space)),
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


@dataclass(frozen=True, eq=False)
class Blocks:
    """Batches of cases as they are."""

    cases: tuple[Case, ...]
    _meshes: dict[tuple[int, ...], Mesh] = field(default_factory=dict, init=False, repr=False)
    """What batches of cases on one mesh have as their mesh, by number of cases: networks keep operators with it."""

    @classmethod
    def of(cls, cases: Sequence[Case], dtype: torch.dtype | None, device: torch.device) -> Blocks:
        return cls(tuple(case.to(dtype, device) for case in cases))

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        cases = [self.cases[number] for number in chosen.tolist()]
        like = next(iter(cases[0].initial.values()))
        sizes = [case.number_of_points for case in cases]
        together = batch(cases)
        if len(cases) > 1 and all(case.mesh is cases[0].mesh for case in cases):
            key = (id(cases[0].mesh), len(cases))
            together = replace(together, mesh=self._meshes.setdefault(key, together.mesh))
        return together, torch.cat([like.new_full((size,), 1 / size / len(cases)) for size in sizes])


def at_once(model: nn.Module, batch_size: int) -> int:
    """How many cases of a batch a network takes together: one where each has its own time, and so its own steps."""
    return 1 if getattr(model, "takes_times", False) else batch_size


def prepared(
    model: nn.Module,
    cases: Sequence[Case],
    dtype: torch.dtype,
    device: torch.device,
    wanted: bool | None,
    tell: Callable[[str], None],
) -> CaseStack | Blocks:
    """The cases stacked where that is wanted, or not forbidden and good; else block by block."""
    reason = None
    sizes = [case.number_of_points for case in cases]
    if wanted is False:
        reason = "stacked is off"
    elif wanted is None and max(sizes) * len(sizes) > _WASTE.get(device.type, 1.5) * sum(sizes):
        reason = f"meshes of {min(sizes)} to {max(sizes)} points would waste too much in one shape"
    else:
        reason = disagreement(model, cases)
        if reason and wanted:
            raise ValueError(f"stacked=True, but the network does not take cases filled up to one shape: {reason}.")
    if reason is None:
        return CaseStack.of(cases, dtype, device, *_asked_for(model))
    tell(f"cases go block by block: {reason}")
    # In another precision every case would be a copy, with operators that the network may not even need.
    return Blocks.of(cases, None if getattr(model, "takes_any_precision", False) else dtype, device)


def disagreement(model: nn.Module, cases: Sequence[Case]) -> str | None:
    """Why a network gives something else for filled-up cases than for cases by themselves; None if it does not.

    Tried on the CPU, whatever the network is to be trained on: it is a matter of its structure.
    """
    ordered = sorted(cases, key=lambda case: case.number_of_points)
    probe = [ordered[-1], ordered[0]]  # the small one last, filled up to the large one
    numbers, device = torch.arange(len(probe)), torch.device("cpu")
    copied = copy.deepcopy(model).to(device).eval()
    dtype = next(copied.parameters()).dtype
    try:
        with torch.no_grad():
            together, _ = Blocks.of(probe, dtype, device).draw(numbers)
            alone = copied(together)
            filled, weights = CaseStack.of(probe, dtype, device, *_asked_for(model)).draw(numbers)
            stacked = copied(filled)
    except Exception as error:  # whatever a user's network raises, block by block may still work
        return f"{type(error).__name__}: {error}".rstrip(".")
    real = weights > 0
    for name in alone:
        values, found = alone[name].detach(), stacked[name].detach()[real]
        if found.shape != values.shape:
            return f"{name!r} has shape {list(found.shape)} instead of {list(values.shape)}"
        both = torch.isfinite(found) & torch.isfinite(values)
        size = values[both].square().sum().sqrt()
        difference = float((found[both] - values[both]).square().sum().sqrt() / size.clamp_min(1e-30))
        if size > 0 and difference > _TOLERANCE:
            return f"{name!r} differs by {difference:.1e} when cases are filled up"
    return None


def _asked_for(model: nn.Module) -> tuple[float | Damping, Sequence[float]]:
    """What a network adds to Laplacians, and when it asks for conditions that change; a user's may say neither."""
    return getattr(model, "laplacian_damping", 0.0), getattr(model, "output_times", ())


def check_cases(cases: Sequence[Case], what: str, like: Case) -> None:
    """Refuse cases that one training cannot hold."""
    for case in cases:
        if not case.targets:
            raise ValueError(f"The {what} case {case.name!r} has no targets; training needs the fields to come out.")
        if case.targets.keys() != like.targets.keys():
            raise ValueError(
                f"The {what} case {case.name!r} has targets {sorted(case.targets)}, others have {sorted(like.targets)}."
            )
