"""What users give, and the tensors that it becomes: numbers, vectors, arrays, functions of time, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennpde.case.conditions.course import Course, Table
from pennpde.mesh import Mesh

Value = float | Sequence[float] | Sequence[Sequence[float]] | np.ndarray | Tensor
"""A number, a vector of space, a matrix of space by space, or one of these for each point."""
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

    def field(self, value: Value, where: str) -> Tensor:
        """A value over all points, shaped as the unknown."""
        return field_from(value, self.mesh, where, self.like)

    def number(self, value: Value, where: str) -> Tensor:
        """A number at each point."""
        return field_from(value, self.mesh, where, self.like.new_zeros(self.like.shape[:1]))

    def course(self, value: Varying, where: str) -> Course | Tensor:
        """A value over all points, or its course where it changes with time."""
        if isinstance(value, Table):
            rows = [self.field(each, f"{where} at time {time:g}") for time, each in value.rows]
            return Course.of_table(value.times, rows, value.outside, where)
        if callable(value):
            return Course(lambda time: self.field(value(time), f"{where} at time {time:g}"))
        return self.field(value, where)


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


def field_from(value: Value, mesh: Mesh, where: str, like: Tensor | None = None) -> Tensor:
    """A field over all points from a number, a vector, a matrix or an array, shaped as `like` where that is given."""
    number, space = mesh.number_of_points, mesh.space
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
