"""What users give, and the tensors that it becomes: numbers, vectors, arrays, profiles, functions of time, tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from reprlib import repr as shown
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.mesh import Mesh
from pennpde.mesh.formulas import LARGEST, Variables, parse_expression

# Values that change along a patch, and with time: what a condition may be given as besides numbers and arrays.
#
# ::
#
#     "1 - y**2"                                 an expression, see `mesh.formulas`
#     ["6 * y * (1 - y)", 0.0]                   a vector of expressions and numbers
#     { profile = "parabola", mean = 1.0 }       along the inward normal, zero at the ends of the patch
#     { profile = "parabola", flow_rate = 0.5 }  the same by its flux, in the plane per unit of depth
#     { flow_rate = 0.5 }                        the same speed everywhere, along the inward normal
#     { inward = "sin(t) * s" }                  a speed along the inward normal: a number, an expression or a table
#     { table = [[0.0, [0, 0]], [0.5, [1, 0]]], along = "y" }   linear between the rows; along x, y, z or s
#
# `mean` and `flow_rate` are numbers, or expressions of t alone.


_BEYOND = 1e-6
"""How far points may lie beyond a table, as a share of its length."""
_KEYS = ({"profile", "mean"}, {"profile", "flow_rate"}, {"flow_rate"}, {"inward"}, {"table", "along"})


def is_profile(given: Any) -> bool:
    """Whether a value is given in one of these ways."""
    if isinstance(given, Mapping):
        return True
    return isinstance(given, str) or (isinstance(given, list | tuple) and any(isinstance(each, str) for each in given))


def changes(given: Any) -> bool:
    """Whether a value given in one of these ways changes with time."""
    if isinstance(given, str):
        return bool(re.search(r"\bt\b", given))  # what cannot be parsed is named by who wants its values
    if isinstance(given, Mapping):
        return any(changes(given[key]) for key in ("mean", "flow_rate", "inward") if key in given)
    return isinstance(given, list | tuple) and any(changes(each) for each in given)


def is_vector(given: Any) -> bool:
    """Whether a value is a vector, of a flat list or given in one of these ways."""
    if not isinstance(given, Mapping):
        return isinstance(given, list | tuple)
    if "table" in given:
        return any(is_vector(row[1]) for row in given["table"] if _is_row(row))
    return True


@dataclass(frozen=True, eq=False)
class Place:
    """The points at which a value is wanted.

    Attributes:
        points: of the mesh; all others get zero.
        variables: of expressions.
        inward: unit normals; None where there are none, as inside of the mesh.
        flux: of a unit speed along these.
        why_not: why there is no s; empty where there is.
    """

    points: Int64[np.ndarray, " some"]
    variables: Variables
    inward: Float[np.ndarray, "some space"] | None = None
    flux: float = 0.0
    why_not: str = "there is no patch along which it could be measured"

    @staticmethod
    def everywhere(mesh: Mesh) -> Place:
        return Place(np.arange(mesh.number_of_points), _coordinates(mesh, slice(None)))

    @staticmethod
    def on(mesh: Mesh, patch: str) -> Place:
        points, facets = mesh.patch(patch).points, mesh.patch(patch).facets
        variables = _coordinates(mesh, points)
        if not len(facets):
            return Place(points, variables, why_not=f"the patch {patch!r} has no whole facet")
        outward = mesh.normals_of_facets(facets).double().numpy()
        chosen, areas = mesh.facets.take(facets), mesh.facet_areas.double().numpy()[facets]
        of_facet = np.repeat(np.arange(len(facets)), np.diff(chosen.offsets))
        share = areas[of_facet] / np.diff(chosen.offsets)[of_facet][:, None]
        flux = float((share * outward[chosen.connectivity]).sum())
        normals = {f"n{axis}": outward[points, place] for place, axis in enumerate("xyz"[: mesh.space])}
        along, why_not = _along(chosen.connectivity, mesh) if mesh.space == 2 else (None, "the mesh is no plane one")
        if along is not None:
            normals["s"] = along[points]
        return Place(points, {**variables, **normals}, -outward[points], flux, why_not)


def values_at(given: Any, place: Place, time: float, where: str) -> np.ndarray:
    """The values [points] or [points, space] at a time; every mistake is a ValueError that begins with `where`."""
    with np.errstate(all="ignore"):  # what is not finite is found, and named, below
        found = np.asarray(_evaluated(given, place, time, where))
    wrong = np.flatnonzero(~(np.abs(found.reshape(len(found), -1)) <= LARGEST).all(axis=1))
    if len(wrong):
        at = ", ".join(f"{name} = {float(np.asarray(place.variables[name])[wrong[0]]):.6g}" for name in "xyz"
                       if name in place.variables)  # fmt: skip
        raise ValueError(f"{where} is {shown(given)}, which is {found[wrong[0]]} at {at}, t = {time:g}.")
    return found


def _evaluated(given: Any, place: Place, time: float, where: str) -> np.ndarray:
    number = len(place.points)
    if isinstance(given, str):
        try:
            value = parse_expression(given)({**place.variables, "t": time})
        except ValueError as error:
            raise ValueError(f"{where} is {shown(given)}, {error}") from None
        except KeyError as error:
            raise ValueError(
                f"{where} is {shown(given)}, which asks for {error.args[0]}, but {_missing(error, place)}."
            ) from None
        return np.broadcast_to(np.asarray(value, float), (number,))
    if isinstance(given, Mapping):
        return _of_keys(given, place, time, where)
    if isinstance(given, list | tuple):
        parts = [_evaluated(each, place, time, where) for each in given]
        if any(part.ndim > 1 for part in parts):
            raise ValueError(f"{where} is {shown(given)}; components of a vector are numbers or expressions.")
        return np.stack(parts, axis=1) if parts else np.zeros((number, 0))
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(f"{where} is {shown(given)}; give a number or an expression.")
    return np.full(number, float(given) if abs(given) <= LARGEST else np.inf)


def _missing(error: KeyError, place: Place) -> str:
    name = error.args[0]
    if name == "s" or place.inward is None:
        return place.why_not
    return "the mesh is a plane one"


def _of_keys(given: Mapping[str, Any], place: Place, time: float, where: str) -> np.ndarray:
    keys = set(given) - {"outside"} if "table" in given else set(given)
    if keys not in _KEYS:
        known = " or ".join("{ " + ", ".join(sorted(each, reverse=True)) + " }" for each in _KEYS)
        raise ValueError(
            f"{where} has the keys {sorted(given)}; known are {known}; or write {{ table = [[time, value], ...] }}."
        )
    if "table" in given:
        return _interpolated(given, place, where)
    if place.inward is None:
        raise ValueError(f"{where} asks for the inward normal, but {place.why_not}.")
    if "inward" in given:
        speed = _evaluated(given["inward"], place, time, f"{where}, inward")
        if speed.ndim > 1:
            raise ValueError(f"{where} has inward = {shown(given['inward'])}; it is a speed, not a vector.")
        return speed[:, None] * place.inward
    if given.get("profile", "parabola") != "parabola":
        raise ValueError(f'{where} has the profile {shown(given["profile"])}; known is "parabola".')
    key = "mean" if "mean" in given else "flow_rate"
    clock = Place(np.zeros(1, np.int64), {}, why_not="it may depend on t only")
    amount = _evaluated(given[key], clock, time, f"{where}, {key}")
    if amount.shape != (1,):
        raise ValueError(f"{where} has {key} = {shown(given[key])}; give a number or an expression of t.")
    speed = float(amount[0]) / (1.0 if key == "mean" else place.flux)
    if "profile" not in given:
        return speed * place.inward
    if "s" not in place.variables:
        raise ValueError(f"{where} is a parabola, but {place.why_not}.")
    s = np.asarray(place.variables["s"])
    return (6.0 * speed * s * (1.0 - s))[:, None] * place.inward


def _interpolated(given: Mapping[str, Any], place: Place, where: str) -> np.ndarray:
    along, rows, outside = given["along"], given["table"], given.get("outside", "error")
    if along not in ("x", "y", "z", "s") or outside not in ("error", "clamp"):
        raise ValueError(f'{where}: along is "x", "y", "z" or "s", and outside "error" or "clamp"; got {shown(given)}.')
    if along not in place.variables:
        raise ValueError(f"{where} has a table along {along}, but {_missing(KeyError(along), place)}.")
    if not isinstance(rows, Sequence) or not rows or not all(_is_row(row) for row in rows):
        raise ValueError(f"{where} has the table {shown(rows)}; its rows are [{along}, value].")
    try:
        positions = np.array([float(row[0]) for row in rows])
        values = np.array([np.asarray(row[1], float) for row in rows])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{where} has the table {shown(rows)}; each row is [{along}, value], all values alike."
        ) from None
    if not (np.diff(positions) > 0).all() or not np.isfinite(positions).all() or values.ndim > 2:
        raise ValueError(
            f"{where}: the positions of a table increase from row to row; got {shown(positions.tolist())}."
        )
    wanted = np.asarray(place.variables[along])
    allowed = _BEYOND * max(np.ptp(positions), np.ptp(wanted))
    beyond = (wanted < positions[0] - allowed) | (wanted > positions[-1] + allowed)
    if outside == "error" and beyond.any():
        raise ValueError(
            f"{where} has a table from {along} = {positions[0]:g} to {positions[-1]:g}, but its points go from "
            f'{wanted.min():g} to {wanted.max():g}. Add rows, or let the ends hold beyond: outside = "clamp".'
        )
    columns = [np.interp(wanted, positions, column) for column in values.reshape(len(values), -1).T]
    return columns[0] if values.ndim == 1 else np.stack(columns, axis=1)


def _is_row(row: Any) -> bool:
    return isinstance(row, list | tuple) and len(row) == 2


# Positions along a patch


def _coordinates(mesh: Mesh, points: np.ndarray | slice) -> dict[str, np.ndarray]:
    return dict(zip("xyz", mesh.points.double().numpy()[points].T, strict=False))


def _along(connectivity: np.ndarray, mesh: Mesh) -> tuple[np.ndarray | None, str]:
    """The share of the length behind each point of the facets of a patch, part by part; None where a part is closed."""
    positions = mesh.points.double().numpy()
    following = dict(connectivity.reshape(-1, 2).tolist())
    starts = following.keys() - set(following.values())
    share, seen = np.zeros(mesh.number_of_points), 0
    for start in starts:
        chain = [start]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        seen += len(chain) - 1
        lengths = np.linalg.norm(np.diff(positions[np.array(chain)], axis=0), axis=1).cumsum()
        share[np.array(chain[1:])] = lengths / lengths[-1]
    if seen < len(following):
        return None, "the patch goes all around, so that it has no ends"
    return share, ""


Value = (
    float
    | str
    | Sequence[float | str | None]
    | Sequence[Sequence[float | None]]
    | Mapping[str, Any]
    | np.ndarray
    | Tensor
)
"""A number, a vector of space, a matrix of space by space, or one of these for each point; or one of `profile`. As a
prescribed value a vector or matrix may have None for a component that is free."""


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
            if not _is_row(row) or isinstance(row[0], bool) or not isinstance(row[0], int | float):
                raise ValueError(f"A row of a table is a time, which is a number, and a value; got {shown(row)}.")
        times = [time for time, _ in self.rows]
        if not all(abs(time) <= LARGEST for time in times) or any(after <= before for before, after in pairwise(times)):
            raise ValueError(f"The times of a table must increase from row to row; got {shown(times)}.")
        if self.outside not in ("error", "clamp"):
            raise ValueError(f'What a table gives outside of its times is "error" or "clamp"; got {self.outside!r}.')

    @property
    def times(self) -> list[float]:
        return [float(time) for time, _ in self.rows]


FREE = "free"
"""In place of a component that is not prescribed; None means the same."""


def is_partial(given: Any) -> bool:
    """Whether a value prescribes single components only."""
    if isinstance(given, Table):
        return any(is_partial(value) for _, value in given.rows)
    return isinstance(given, list | tuple) and any(_is_free(each) or is_partial(each) for each in given)


def filled(given: Any) -> Any:
    """The value with zeros as components that it leaves free."""
    if isinstance(given, Table):
        return replace(given, rows=[(time, filled(value)) for time, value in given.rows])
    if isinstance(given, list | tuple):
        return [0.0 if _is_free(each) else filled(each) for each in given]
    return given


def prescribed(given: Any) -> Any:
    """By component, whether a value prescribes it; in a table all rows are alike."""
    if isinstance(given, Table):
        first, *others = (prescribed(value) for _, value in given.rows)
        if any(other != first for other in others):
            raise ValueError("A table prescribes the same components at all times.")
        return first
    return [prescribed(each) for each in given] if isinstance(given, list | tuple) else not _is_free(given)


def _is_free(given: Any) -> bool:
    return given is None or (isinstance(given, str) and given == FREE)


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


def together(
    parts: Sequence[tuple[Tensor, Course | Tensor]], like: Tensor, components: Sequence[Tensor] = ()
) -> tuple[Tensor, Course | None]:
    """Values over all points at the start, from those on patches, and their course, if any.

    Args:
        parts: the points of each patch, and what holds there. Where patches share points, the later one counts.
        like: a field of the unknown.
        components: those that each part prescribes; by default all.
    """

    def at(time: float | None) -> Tensor:
        values = torch.zeros_like(like)
        for (points, part), own in zip(parts, components or [torch.tensor(True)] * len(parts), strict=True):
            now = part.at(part.first if time is None else time) if isinstance(part, Course) else part
            values[points] = torch.where(own, now[points], values[points])
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
