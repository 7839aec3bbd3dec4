"""Cases of different meshes in one shape on the device, for training whose steps a GPU captures as a graph.

The laboratory trains the learned part of `flow` so (`lab/experiments/corrector`): a batch is a gather by an index
tensor, every step has the same shapes, and nothing waits for the host.
"""

# ruff: noqa: ARG001, ARG005  (a product takes its transpose for backward alone, and a fake takes what the real one takes)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pennpde.case import Case, Condition, Dirichlet
from pennpde.case.conditions import Course
from pennpde.mesh import Mesh
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.damping import Damping
from pennpde.operators.sparse import SparseMatrix, multiply

_MATRICES = ("gradient", "divergence", "composed_laplacian", "composed_lift")
_AT_POINTS = ("moment_inverse", "neumann_lift")
_SERIES = "series"


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
            for name in ("robin_lift", "stress_normals"):
                if any(getattr(each, name) is not None for each in of_unknown):
                    put(("operators", unknown, name), [each.or_zero(name) for each in of_unknown])
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
                made["course"] = _series(self.times, take(series))
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


def _filled(condition: Condition, number: int) -> dict[str, Tensor]:
    """Its tensors, with points added up to a number: prescribed as zero, or free, where there is nothing to hold."""
    made = {}
    for name, role in condition.roles().items():
        values: Tensor = getattr(condition, name)
        held = isinstance(condition, Dirichlet) and name == "mask"
        extra = values.new_full((number - values.shape[0], *values.shape[1:]), held)
        if role.is_point:
            extra = torch.arange(values.shape[0], number, dtype=values.dtype)
        made[name] = torch.cat([values, extra])
    return made


def _series(times: Sequence[float], values: Float[Tensor, "points *axes times"]) -> Course:
    """Values that are known at these times only."""

    def at(time: float) -> Tensor:
        if time not in times:
            raise ValueError(f"The conditions are known at the times {list(times)} only; asked for is {time:g}.")
        return values[..., list(times).index(time)]

    return Course(at, first=times[0])


def _condition_rows(conditions: Sequence[Condition], number: int, times: Sequence[float]) -> dict[str, list[Tensor]]:
    """By name, a tensor of the condition of each case, filled up; and, if it changes, its series over the times."""
    filled = [_filled(each, number) for each in conditions]
    rows = {name: [each[name] for each in filled] for name in filled[0]}
    if any(each.course is not None for each in conditions):
        if not times:
            raise ValueError(
                f"The {conditions[0].kind} conditions change with time, but the network does not say when it wants to "
                "know them: give it `output_times`, or the case a parameter time."
            )
        varying = conditions[0].varying
        assert varying is not None
        at_times = [[_filled(each.at(time), number)[varying] for time in times] for each in conditions]
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
        *rows_of_one_length(straight, height, width, dtype, device),
        *rows_of_one_length([each.transposed for each in straight], width, height, dtype, device),
    )


def rows_of_one_length(
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


@torch.library.custom_op("pennlab::uniform_product", mutates_args=())
def _uniform_product(
    columns: Tensor, values: Tensor, transposed_columns: Tensor, transposed_values: Tensor, dense: Tensor
) -> Tensor:
    on_gpu = _triton_uniform_product() if dense.device.type == "cuda" else None
    if on_gpu is not None:
        return on_gpu(columns, values, dense.contiguous())
    rows, length = columns.shape
    starts = torch.arange(0, rows * length + 1, length, dtype=columns.dtype, device=columns.device)
    return multiply(starts, columns.reshape(-1), values.reshape(-1), dense)


@_uniform_product.register_fake
def _(columns, values, transposed_columns, transposed_values, dense):
    return dense.new_empty((columns.shape[0], dense.shape[1]))


def _backward_uniform(ctx, gradient):
    columns, values, transposed_columns, transposed_values = ctx.saved_tensors
    gradient_of_dense = None
    if ctx.needs_input_grad[4]:
        gradient_of_dense = _uniform_product(
            transposed_columns, transposed_values, columns, values, gradient.contiguous()
        )
    return None, None, None, None, gradient_of_dense


_uniform_product.register_autograd(
    _backward_uniform, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:4])
)
for _device in ("cpu", "cuda"):
    torch.library.register_autocast("pennlab::uniform_product", _device, torch.float32)


@cache
def _triton_uniform_product() -> Callable[..., Tensor] | None:
    """The GPU kernel for rows of one length, unrolled over their entries; None where Triton is absent."""
    try:
        import triton  # pyright: ignore[reportMissingImports]
        import triton.language as tl  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None

    @triton.jit
    def kernel(
        columns,
        values,
        dense,
        result,
        rows,
        channels,
        LENGTH: tl.constexpr,
        ROWS: tl.constexpr,
        CHANNELS: tl.constexpr,
    ):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
        live = row < rows
        inside = live[:, None] & (channel < channels)[None, :]
        total = tl.zeros((ROWS, CHANNELS), dtype=values.dtype.element_ty)
        for entry in tl.static_range(LENGTH):
            column = tl.load(columns + row * LENGTH + entry, mask=live, other=0)
            weight = tl.load(values + row * LENGTH + entry, mask=live, other=0.0)
            position = dense + column[:, None].to(tl.int64) * channels + channel[None, :]
            total += weight[:, None] * tl.load(position, mask=inside, other=0.0)
        tl.store(result + row[:, None].to(tl.int64) * channels + channel[None, :], total, mask=inside)

    def product(columns, values, dense):
        rows, length = columns.shape
        channels = dense.shape[1]
        result = dense.new_empty((rows, channels))
        block_channels = min(32, triton.next_power_of_2(channels))
        block_rows = max(1, 512 // block_channels)
        grid = (triton.cdiv(rows, block_rows), triton.cdiv(channels, block_channels))
        kernel[grid](  # pyright: ignore[reportIndexIssue]
            columns, values, dense, result, rows, channels, LENGTH=length, ROWS=block_rows, CHANNELS=block_channels
        )
        return result

    return product


@dataclass(frozen=True, eq=False)
class UniformMatrix:
    """A sparse matrix whose rows all have the same number of entries, short rows filled with zeros.

    What batches of many meshes are made of: every mesh has index tensors of one shape, so a batch is a gather, without
    a look at its numbers.
    """

    columns: Int[Tensor, "rows length"]
    values: Float[Tensor, "rows length"]
    transposed_columns: Int[Tensor, "columns transposed_length"]
    transposed_values: Float[Tensor, "columns transposed_length"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.columns.shape[0], self.transposed_columns.shape[0]

    def __matmul__(self, dense: Float[Tensor, "columns channels"]) -> Float[Tensor, "rows channels"]:
        return _uniform_product(self.columns, self.values, self.transposed_columns, self.transposed_values, dense)
