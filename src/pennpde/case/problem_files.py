"""A boundary value problem as a TOML file that accompanies a mesh file.

[patches]                                    # in order; several may share points
inlet = "x == 0"                             # comparisons, see `pennpde.mesh.formulas`
outlet = { box = [[4.99, -1], [5.01, 3]] }   # two corners
top = { half_space = { point = [0, 2], normal = [0, 1] } }   # on and behind the plane, seen along the normal
hot = { array = "marker", equals = 3 }       # an array of the mesh file
wall = "rest"                                # what no other patch has

[dirichlet.u]                                # by unknown and patch; later patches win at shared points
inlet = [1.0, 0.0]                           # or a profile (`pennpde.case.conditions.given`): ["y * (2 - y)", 0.0],
wall = 0.0                                   # { profile = "parabola", mean = 1.0 }; an array of the mesh file by name
top = [0.0, "free"]                          # one component alone

[neumann]
u = 0.0                                      # a number: wherever u has no other condition
[neumann.p]
inlet = 0.0

[slip]
u = ["symmetry"]

[stress_free]
u = ["outlet"]                               # [grad u + (grad u)^T] n = 0

[initial]
u = [0.0, 0.0]                               # numbers, vectors, matrices, expressions, or an array of the mesh file
p = 0.0

[parameters]
viscosity = 1e-3

[dirichlet.T]                                # changes with time: rows of time and value, linear in between;
hot = { table = [[0.0, 0.0], [0.5, 1.0]], outside = "clamp" }   # outside of them an error unless clamped

[total_pressure.p]                           # of fluid at rest outside, from where it is drawn in
inlet = 1.0

[robin.T]                                    # a T + b dT/dn = c
top = { a = 2.0, b = 1.0, c = 3.0 }

[periodic.T]                                 # pairs of patches, "outlet" or with what T is larger by there
inlet = { across = "outlet", jump = -1.0 }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from reprlib import repr as shown  # short, however large the value is
from typing import Any

import numpy as np

from pennpde.case import Across, Case, Table
from pennpde.case.conditions import KINDS
from pennpde.case.conditions.given import is_partial, is_profile, is_vector
from pennpde.files import read_regular
from pennpde.mesh import Mesh
from pennpde.mesh.formulas import parse_expression
from pennpde.registry import did_you_mean

_CONDITIONS = tuple(sorted(kind.kind for kind in KINDS))
_SECTIONS = ("patches", *_CONDITIONS, "initial", "parameters")
_MOST_BYTES = 1_000_000
_LARGEST, _SMALLEST = 1e100, 1e-100
"""Sizes of numbers: squares of larger ones overflow, of smaller ones vanish, and TOML integers are unbounded."""


def read_problem(path: Path | str, mesh: Mesh) -> Case:
    """The case that a TOML file describes on a mesh. Every mistake is a ValueError that names the file and the key."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is {'a folder' if path.is_dir() else 'not a regular file'}; give a TOML file.")
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes: too many for a case file. Is it the mesh?")
    try:
        given = tomllib.loads(read_regular(path).decode("utf-8-sig"))  # editors on Windows begin with a mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}.") from None
    except (RecursionError, ValueError) as error:  # nested without end, or a number of thousands of digits
        raise ValueError(f"{path} cannot be read: {error}.") from None
    return problem_from(_with_tables(given, path.parent, str(path)), mesh, where=str(path))


def problem_from(given: Mapping[str, Any], mesh: Mesh, where: str = "the problem") -> Case:
    """The case from the sections of such a file."""
    if unknown := sorted(given.keys() - set(_SECTIONS)):
        raise ValueError(
            f"{where} has the sections {unknown}; it knows {list(_SECTIONS)}.{did_you_mean(unknown[0], _SECTIONS)}"
        )
    sections = {name: given.get(name, {}) for name in _SECTIONS}
    for name, section in sections.items():
        if not isinstance(section, Mapping):
            raise ValueError(f"[{name}] of {where} is {shown(section)}; it must be a table.")
    mesh = _with_patches(mesh, sections["patches"], where)
    mesh, sections["dirichlet"] = _with_streams(mesh, sections["dirichlet"], where)
    unknowns = [name for kind in ("initial", *_CONDITIONS) for name in sections[kind]]
    if not unknowns:
        raise ValueError(f"{where} names no unknown: give [initial], [dirichlet.NAME] or [neumann.NAME].")
    initial = {
        name: _value(sections["initial"].get(name, _rest(name, sections, mesh)), mesh, f"[initial] {name} of {where}")
        for name in dict.fromkeys(unknowns)
    }
    conditions: Any = {
        kind: {name: _condition(kind, name, sections, mesh, where) for name in sections[kind]} for kind in _CONDITIONS
    }
    try:
        return Case(
            mesh,
            initial=initial,
            conditions=conditions,
            parameters={
                name: _number_or_vector(value, f"[parameters] {name} of {where}")
                for name, value in sections["parameters"].items()
            },
            name=Path(where).stem,
        )
    except (ValueError, KeyError) as error:
        raise ValueError(f"{where}: {error.args[0]}") from None


def _with_patches(mesh: Mesh, patches: Mapping[str, Any], where: str) -> Mesh:
    """The mesh with the patches that the file describes: those of the rest come last, whatever the order."""
    for name, given in sorted(patches.items(), key=lambda each: each[1] == "rest"):
        label = f"[patches] {name} of {where}"
        if not isinstance(given, str | Mapping):
            raise ValueError(
                f'{label} is {shown(given)}; write a comparison such as "x == 0", a box, a half_space, an array, or '
                '"rest".'
            )
        try:
            mesh = mesh.with_patches({name: given})
        except (ValueError, KeyError) as error:
            raise ValueError(f"{label}: {error.args[0]}") from None
    return mesh


def _with_streams(mesh: Mesh, given: Mapping[str, Any], where: str) -> tuple[Mesh, Mapping[str, Any]]:
    """Free streams, { freestream = [1.0, 0.2] }, prescribed where they enter; all else on these patches elsewhere."""
    streams: dict[str, Any] = {}
    made = {name: dict(each) if isinstance(each, Mapping) else each for name, each in given.items()}
    for name, each in made.items():
        for patch in [key for key in each if _is_stream(each[key])] if isinstance(each, dict) else []:
            label = f"[dirichlet.{name}] {patch} of {where}"
            streams[patch] = each.pop(patch)["freestream"]
            if not isinstance(streams[patch], list) or len(streams[patch]) != mesh.space:
                raise ValueError(f"{label} has the free stream {shown(streams[patch])}; give a velocity.")
            each[f"{patch} inflow"] = _number_or_vector(streams[patch], label)
    if not streams:
        return mesh, given
    for each in made.values():
        for patch in [key for key in each if key in streams] if isinstance(each, dict) else []:
            each[f"{patch} outflow"] = each.pop(patch)
    try:
        return mesh.with_streams({patch: np.array(along, float) for patch, along in streams.items()}), made
    except KeyError as error:
        raise ValueError(f"{where}: {error.args[0]}") from None


def _is_stream(given: Any) -> bool:
    return isinstance(given, Mapping) and given.keys() == {"freestream"}


def _number_or_vector(given: Any, label: str) -> float | list[float]:
    items = given if isinstance(given, list) else [given]
    for item in items:
        number = isinstance(item, int | float) and not isinstance(item, bool)
        if not number or not -_LARGEST <= item <= _LARGEST:
            raise ValueError(f"{label} is {shown(given)}; give a finite number or a list of them.")
        if item and abs(item) < _SMALLEST:
            raise ValueError(
                f"{label} is {shown(given)}, which is too small to compute with; give 0 or a larger number."
            )
    return [float(item) for item in items] if isinstance(given, list) else float(given)


def _value(given: Any, mesh: Mesh, label: str) -> Any:
    """A number, a vector, a matrix as a list of its rows, an array of the mesh file by its name, or a profile."""
    if _is_array(given, mesh):
        return mesh.fields[given].double()[..., : mesh.space] if mesh.fields[given].ndim > 1 else mesh.fields[given]
    if isinstance(given, str):
        try:
            parse_expression(given)
        except ValueError as error:
            arrays = sorted(mesh.fields)
            raise ValueError(
                f"{label} is {shown(given)}; the mesh file has {arrays}.{did_you_mean(given, arrays)} As an expression "
                f"it is one {error}"
            ) from None
    return given if is_profile(given) or is_partial(given) else _numbers(given, label)


def _numbers(given: Any, label: str) -> float | list[float] | list[list[float]]:
    """A number, a vector, or a matrix as a list of its rows."""
    if not _is_matrix(given):
        return _number_or_vector(given, label)
    rows = [_number_or_vector(row, label) for row in given]
    if any(not isinstance(row, list) or len(row) != len(rows) for row in rows):
        raise ValueError(f"{label} is {shown(given)}; a matrix has as many rows as columns: [[1, 0], [0, 1]].")
    return [row for row in rows if isinstance(row, list)]


def _condition(kind: str, name: str, sections: Mapping[str, Any], mesh: Mesh, where: str) -> Any:
    """The entries of a section for one unknown, in the form that `Case` accepts."""
    given = sections[kind][name]
    if kind in ("slip", "stress_free"):
        return _names(given, f"[{kind}] {name} of {where}")
    if isinstance(given, Mapping):
        read = {"robin": _robin, "periodic": _across}.get(kind, _varying)
        return {patch: read(value, mesh, f"[{kind}.{name}] {patch} of {where}") for patch, value in given.items()}
    if kind == "neumann":
        return _numbers(given, f"[neumann] {name} of {where}")
    raise ValueError(f"[{kind}] {name} of {where} is {shown(given)}; give the values by patch: [{kind}.{name}].")


def _varying(given: Any, mesh: Mesh, label: str) -> Any:
    """A value, or a table of times and values."""
    if not isinstance(given, Mapping) or not given.keys() <= {"table", "outside"}:
        return _value(given, mesh, label)
    if not isinstance(given.get("table"), list):
        raise ValueError(f'{label} is {shown(given)}; write {{ table = [[time, value], ...], outside = "clamp" }}.')
    try:
        table = Table(given["table"], given.get("outside", "error"))
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    return replace(table, rows=[(time, _value(row, mesh, f"{label} at time {time:g}")) for time, row in table.rows])


def _with_tables(given: Any, folder: Path, where: str) -> Any:
    """The content of a file with the rows of the tables that it names, { csv = "inlet.csv", along = "y" }."""
    if not isinstance(given, dict):
        return given
    if "csv" not in given:
        return {key: _with_tables(value, folder, where) for key, value in given.items()}
    name = given["csv"]
    if not isinstance(name, str) or Path(name).name != name:
        raise ValueError(f"{where} has csv = {shown(name)}; give the name of a file in the same folder.")
    return {key: value for key, value in given.items() if key != "csv"} | {"table": _csv(folder / name)}


def _csv(path: Path) -> list[list[Any]]:
    """Rows [position, value] of a table in text, with or without a line of names; several columns make vectors."""
    try:
        lines = read_regular(path, _MOST_BYTES).decode("utf-8-sig").splitlines()
        named = bool(lines) and any(letter.isalpha() for letter in lines[0].replace("e", "").replace("E", ""))
        numbers = [line for line in lines[int(named) :] if line.strip()]
        rows = np.loadtxt(numbers, delimiter="," if "," in numbers[0] else None, ndmin=2)
    except (OSError, ValueError, IndexError) as error:
        raise ValueError(f"{path} cannot be read as a table of numbers: {error}.") from None
    if rows.shape[1] < 2:
        raise ValueError(f"{path} has rows of {rows.shape[1]} numbers; a row is a position and one value or several.")
    values = rows[:, 1:]
    return [[row[0], values[at, 0].item() if values.shape[1] == 1 else values[at].tolist()]
            for at, row in enumerate(rows.tolist())]  # fmt: skip


def _robin(given: Any, mesh: Mesh, label: str) -> Any:
    if not isinstance(given, Mapping) or given.keys() != {"a", "b", "c"}:
        raise ValueError(f"{label} is {shown(given)}; a f + b df/dn = c is written as {{ a = 1.0, b = 1.0, c = 0.0 }}.")
    return {key: _varying(value, mesh, f"{label}, {key}") for key, value in given.items()}


def _across(given: Any, mesh: Mesh, label: str) -> Any:  # noqa: ARG001
    if isinstance(given, str):
        return given
    known = isinstance(given, Mapping) and "across" in given and not given.keys() - {"across", "jump"}
    if not known or not isinstance(given["across"], str):
        raise ValueError(f'{label} is {shown(given)}; give the opposite patch, or {{ across = "patch", jump = 1.0 }}.')
    return Across(given["across"], _numbers(given.get("jump", 0.0), f"{label}, jump"))


def _names(given: Any, label: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"{label} is {shown(given)}; give a list of patches.")
    return given


def _rest(name: str, sections: Mapping[str, Any], mesh: Mesh) -> Any:
    """An unknown without initial field starts at zero; its conditions decide whether it is a vector or a matrix."""
    conditions = sections["dirichlet"].get(name, {})
    values = [each for value in conditions.values() for each in _rows(value)] if isinstance(conditions, Mapping) else []
    axes = max((mesh.fields[value].ndim - 1 for value in values if _is_array(value, mesh)), default=0)
    if axes == 2 or any(_is_matrix(value) for value in values):
        return [[0.0] * mesh.space] * mesh.space
    vector = axes == 1 or name in sections["slip"] or any(is_vector(value) for value in values)
    return [0.0] * mesh.space if vector else 0.0


def _is_array(value: Any, mesh: Mesh) -> bool:
    """Whether a value is the name of an array of the mesh file."""
    return isinstance(value, str) and value in mesh.fields


def _rows(value: Any) -> list[Any]:
    """The values of a condition: one, or those of a table."""
    if isinstance(value, Mapping) and isinstance(value.get("table"), list) and "along" not in value:
        return [row[1] for row in value["table"] if isinstance(row, list) and len(row) == 2]
    return [value]


def _is_matrix(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(row, list) for row in value)
