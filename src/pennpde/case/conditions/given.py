"""What users give, and the tensors that it becomes: numbers, vectors, arrays, profiles, functions of time, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from reprlib import repr as shown
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case.conditions.profile import Place, changes, is_profile, values_at
from pennpde.mesh import Mesh

Value = float | str | Sequence[float | str] | Sequence[Sequence[float]] | Mapping[str, Any] | np.ndarray | Tensor
"""A number, a vector of space, a matrix of space by space, or one of these for each point; or one of `profile`."""


@dataclass(frozen=True)
class Table:
    """Values at some times, linear in between: what a condition may be given as.

    Args:
        rows: Pairs (time, value), times increasing. A value is whatever the condition could be given as.
        outside: Before the first and after the last time either an "error", or the first and last value ("clamp").
    """

    rows: Sequence[tuple[float, Any]]
    outside: Literal["error", "clamp"] = "error"

    def __post_init__(self) -> None:
        if len(self.rows) == 0:
            raise ValueError("A table needs at least one row, (time, value).")
        for row in self.rows:
            if not isinstance(row, Sequence) or len(row) != 2 or not isinstance(row[0], int | float):
                raise ValueError(f"A row of a table is (time, value); got {row!r}.")
        times = self.times
        if not all(np.isfinite(times)) or any(after <= before for before, after in pairwise(times)):
            raise ValueError(f"The times of a table must increase from row to row; got {times}.")
        if self.outside not in ("error", "clamp"):
            raise ValueError(f'What a table gives outside of its times is "error" or "clamp"; got {self.outside!r}.')

    @property
    def times(self) -> list[float]:
        return [float(time) for time, _ in self.rows]


@dataclass(frozen=True, eq=False)
class Course:
    """Values over all points as a function of time, in the precision and on the device of their case."""

    function: Callable[[float], Tensor]
    first: float = 0.0
    """Where it starts: at zero, or where a table that does not hold zero comes nearest to it."""

    def at(self, time: float) -> Float[Tensor, "points *axes"]:
        return self.function(time)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Course:
        return Course(lambda time: change(self.function(time)), self.first)

    def with_unit_of_time(self, unit: float) -> Course:
        """The same course with times counted in a unit."""
        return Course(lambda time: self.function(time * unit), self.first / unit)

    @classmethod
    def joined(cls, parts: Sequence[Course | Tensor]) -> Course:
        """Several courses, or constant values, side by side."""
        return cls(lambda time: torch.cat([part.at(time) if isinstance(part, Course) else part for part in parts]))

    @classmethod
    def of_table(
        cls, times: Sequence[float], values: Sequence[Tensor], outside: Literal["error", "clamp"], where: str
    ) -> Course:
        """Linear between the times of a table; at one of them its value, bit for bit."""

        def at(time: float) -> Tensor:
            if not times[0] <= time <= times[-1]:
                if outside == "error":
                    raise ValueError(
                        f"{where} is asked for at time {time:g}, but its table goes from {times[0]:g} to "
                        f'{times[-1]:g}. Add rows, or let the ends hold beyond: Table(rows, outside="clamp").'
                    )
                return values[0] if time < times[0] else values[-1]
            after = int(np.searchsorted(times, time))
            if times[after] == time:
                return values[after]
            share = (time - times[after - 1]) / (times[after] - times[after - 1])
            return (1 - share) * values[after - 1] + share * values[after]

        return cls(at, first=min(max(0.0, times[0]), times[-1]))

    @classmethod
    def of_series(cls, times: Sequence[float], values: Float[Tensor, "points *axes times"]) -> Course:
        """Known at these times only."""

        def at(time: float) -> Tensor:
            if time not in times:
                raise ValueError(f"The conditions are known at the times {list(times)} only; asked for is {time:g}.")
            return values[..., list(times).index(time)]

        return cls(at, first=times[0])


Varying = Value | Table | Callable[[float], Value]
"""A value, or one that changes with time."""


@dataclass(frozen=True, eq=False)
class Door:
    """Where the condition of one kind and one unknown enters a case: what it needs to know, and what errors say.

    Attributes:
        kind: of the condition.
        name: of the unknown.
        mesh: of the case.
        like: the unknown's initial field, whose shape and precision its conditions have.
        taken: the exterior facets on which the unknown has conditions of other kinds.
    """

    kind: str
    name: str
    mesh: Mesh
    like: Tensor
    taken: Callable[[], np.ndarray]

    def label(self, patch: str | None = None) -> str:
        return f"{self.kind}[{self.name!r}]" + ("" if patch is None else f"[{patch!r}]")

    def by_patch(self, given: Any, example: str = "") -> Mapping[str, Any]:
        if isinstance(given, Mapping):
            return given
        raise ValueError(
            f"{self.label()} is {given!r}; give the values by patch, as {{'inlet': {example or repr(given)}}}."
        )

    def points(self, patch: str) -> Tensor:
        return torch.from_numpy(self.mesh.patch(patch).points)

    def facets(self, patch: str) -> np.ndarray:
        """The facets of a patch, which must have some: without them it has no normals."""
        facets = self.mesh.patch(patch).facets
        if not len(facets):
            raise ValueError(
                f"{self.label()} names the patch {patch!r}, which has points but no whole facet, and so no "
                "normal. Give the patch all points of its facets."
            )
        return facets

    def field(self, value: Value, where: str, place: Place | None = None) -> Tensor:
        """A value over all points, shaped as the unknown."""
        return field_from(value, self.mesh, where, self.like, place)

    def number(self, value: Value, where: str) -> Tensor:
        """A number at each point."""
        return field_from(value, self.mesh, where, self.like.new_zeros(self.like.shape[:1]))

    def course(self, value: Varying, where: str, patch: str | None = None) -> Course | Tensor:
        """A value over all points, or its course where it changes with time; profiles are those along a patch."""
        place = None if patch is None else Place.on(self.mesh, patch)
        if isinstance(value, Table):
            rows = [self.field(each, f"{where} at time {time:g}", place) for time, each in value.rows]
            return Course.of_table(value.times, rows, value.outside, where)
        if callable(value):
            return Course(lambda time: self.field(value(time), f"{where} at time {time:g}", place))
        if is_profile(value) and changes(value):
            return Course(lambda time: field_from(value, self.mesh, where, self.like, place, time))
        return self.field(value, where, place)


def together(parts: Sequence[tuple[Tensor, Course | Tensor]], like: Tensor) -> tuple[Tensor, Course | None]:
    """Values over all points at the start, from those on patches, and their course, if any.

    Args:
        parts: the points of each patch, and what holds there. Where patches share points, the later one counts.
        like: a field of the unknown.
    """

    def at(time: float | None) -> Tensor:
        values = torch.zeros_like(like)
        for points, part in parts:
            now = part.at(part.first if time is None else time) if isinstance(part, Course) else part
            values[points] = now[points]
        return values

    return at(None), Course(at) if any(isinstance(part, Course) for _, part in parts) else None


def finite_tensor(value: Any, mesh: Mesh, where: str) -> Tensor:
    """A finite tensor in the precision of the mesh."""
    try:
        tensor = torch.as_tensor(value, dtype=mesh.points.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where} is {value!r}, which does not make numbers: {error}") from None
    if not torch.isfinite(tensor).all():
        first = tuple((~torch.isfinite(tensor)).nonzero()[0].tolist())
        at = f", at index {list(first)}" if first else ""
        raise ValueError(f"{where} holds a value that is not finite{at}: {float(tensor[first])}.")
    return tensor


def field_from(
    value: Value, mesh: Mesh, where: str, like: Tensor | None = None, place: Place | None = None, time: float = 0.0
) -> Tensor:
    """A field over all points from a number, a vector, a matrix or an array, shaped as `like` where that is given.

    Profiles are zero elsewhere than at their place, which is everywhere where it is left out.
    """
    number, space = mesh.number_of_points, mesh.space
    if is_profile(value):
        place = place or Place.everywhere(mesh)
        known = values_at(value, place, time, where)
        if like is not None and known.ndim != like.ndim:
            kinds = ("a scalar", "a vector", "a tensor")
            raise ValueError(
                f"{where} is {shown(value)}, {kinds[known.ndim - 1]}, but the unknown is {kinds[like.ndim - 1]}."
                + (' Write the velocity as ["...", "..."], or as { inward = "..." }.' if known.ndim == 1 else "")
            )
        value = np.zeros((number, *known.shape[1:]))
        value[place.points] = known
    tensor = finite_tensor(value, mesh, where)
    if tensor.shape[:1] == (number,) and all(size == space for size in tensor.shape[1:]):
        full = tensor
    elif all(size == space for size in tensor.shape):
        # Never an array over the points: a mesh has more points than its space has dimensions.
        full = tensor.expand(number, *tensor.shape)
    else:
        raise ValueError(
            f"{where} has shape {list(tensor.shape)}; it may be a number, a vector of {space}, a matrix of "
            f"{space} by {space}, or one of these for each of the {number} points."
        )
    if like is None or full.shape == like.shape:
        return full.clone()
    if full.ndim == 1:  # one number for all components: zero velocity on a wall is written as 0
        return full.reshape(-1, *[1] * (like.ndim - 1)).expand(like.shape).clone()
    raise ValueError(f"{where} has shape {list(full.shape)}, but the unknown has {list(like.shape)}.")
