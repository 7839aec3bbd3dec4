"""Fields of a case, cell values and their boundary dictionaries in time folders; of a finished run at the points."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pennpde.files import write_atomically
from pennpde.mesh import Mesh
from pennpde.mesh.interpolation import CellsToPoints
from pennpde.openfoam.dictionaries import (
    Dimensions,
    FoamFormatError,
    NonUniform,
    Quoted,
    Uniform,
    fits,
    format_entry,
    number_of,
    parse_dictionary,
    read_dictionary,
    shown,
)
from pennpde.openfoam.poly_mesh import Body, FacePatch, Piece

VELOCITY = Dimensions((0, 1, -1, 0, 0, 0, 0))
PRESSURE = Dimensions((0, 2, -2, 0, 0, 0, 0))
"""Of the kinematic pressure, which incompressible solvers use."""
VISCOSITY = Dimensions((0, 2, -1, 0, 0, 0, 0))
FLUX = Dimensions((0, 3, -1, 0, 0, 0, 0))
TEMPERATURE = Dimensions((0, 0, 0, 1, 0, 0, 0))
SYMMETRY = ("slip", "symmetry", "symmetryPlane")
CONSTRAINTS = ("empty", "symmetry", "symmetryPlane", "cyclic")
"""Patches of these types have fields of the same type."""


@dataclass(frozen=True, eq=False)
class FoamField:
    """What a file such as `0/U` holds.

    Attributes:
        internal: a number or a vector for all cells, or one for each, [cells] or [cells, components]. For a surface
            field it is over the internal faces.
        boundary: one dictionary for each patch, patch group or regular expression of patches.
    """

    internal: Uniform | NonUniform
    boundary: Mapping[str, Mapping[str, Any]]
    dimensions: Dimensions | None = None

    @property
    def axes(self) -> tuple[int, ...]:
        """The shape of one value."""
        if isinstance(self.internal, Uniform):
            return np.shape(self.internal.value)
        return self.internal.values.shape[1:]

    def values(self, number: int) -> np.ndarray:
        """The internal values, one for each of so many cells or internal faces."""
        if isinstance(self.internal, Uniform):
            value = np.asarray(self.internal.value, float)
            return np.broadcast_to(value, (number, *value.shape)).copy()
        if len(self.internal.values) != number:
            raise FoamFormatError(
                f"A field has {len(self.internal.values)} values, but the mesh {number}; they do not belong together."
            )
        return self.internal.values


def on_faces(given: Any, count: int, axes: tuple[int, ...]) -> np.ndarray | None:
    """The values of an entry, `uniform ...` or `nonuniform List<...>`, on so many faces; None where it has others."""
    if isinstance(given, Uniform) and np.shape(given.value) == axes:
        return np.broadcast_to(np.asarray(given.value, float), (count, *axes))
    if isinstance(given, NonUniform) and given.values.shape == (count, *axes):
        return given.values
    return None


def read_field(path: Path | str, root: Path | str | None = None) -> FoamField:
    """Read the file of a field, text or binary. `root` is the case folder, inside which `#include` is followed."""
    entries = read_dictionary(path, root)
    internal = entries.get("internalField")
    if not isinstance(internal, Uniform | NonUniform):
        found = "nothing" if internal is None else shown(internal)
        raise FoamFormatError(f"{path}: internalField must be 'uniform ...' or 'nonuniform List<...>', found {found}.")
    boundary = entries.get("boundaryField")
    if not isinstance(boundary, Mapping) or not all(isinstance(patch, Mapping) for patch in boundary.values()):
        raise FoamFormatError(f"{path} needs a boundaryField with one dictionary for each patch.")
    dimensions = entries.get("dimensions")
    return FoamField(internal, boundary, dimensions if isinstance(dimensions, Dimensions) else None)


def write_field(
    path: Path | str,
    values: np.ndarray,
    dimensions: Dimensions,
    boundary: Mapping[str, Mapping[str, Any]],
    location: str | None = None,
    kind: str | None = None,
    *,
    binary: bool = True,
) -> None:
    """Write cell values, [cells] or [cells, 3], as a file that OpenFOAM's programs read.

    Args:
        path: TIME/NAME in a case; the file appears when it is complete.
        values: must be finite.
        dimensions: of the field.
        boundary: one dictionary for each patch, as `read_field` gives it or with strings in OpenFOAM's words.
        location: the time, where the folder is not named by it (yet).
        kind: OpenFOAM's class of the field; by default that of cell values, volScalarField or volVectorField.
        binary: or else text, with all digits.
    """
    path, values = Path(path), np.asarray(values, float)
    if not np.isfinite(values).all():
        raise ValueError(f"{path.name} holds values that are not finite; OpenFOAM would stop at once.")
    header = {
        "version": "2.0",
        "format": "binary" if binary else "ascii",
        "arch": '"LSB;label=32;scalar=64"',
        "class": kind or ("volScalarField" if values.ndim == 1 else "volVectorField"),
        "location": f'"{location or path.parent.name}"',
        "object": path.name,
    }
    entries = {"dimensions": dimensions, "internalField": NonUniform(values), "boundaryField": boundary}
    content = b"".join(format_entry(name, value, binary=binary) for name, value in entries.items())
    write_atomically(path, format_entry("FoamFile", header) + content)


def time_folders(folder: Path | str) -> list[Path]:
    """The folders of a case that are named by a time, earliest first."""
    found: list[tuple[float, Path]] = []
    for path in Path(folder).iterdir():
        try:
            time = float(path.name)
        except ValueError:
            continue
        if path.is_dir() and math.isfinite(time):
            found.append((time, path))
    return [path for _, path in sorted(found)]


def control_dictionary(folder: Path | str) -> Mapping[str, Any]:
    """The `system/controlDict` of a case; empty where it is not there.

    Functions in it may be more than our parser takes; all that is asked for here is on lines of their own.
    """
    path = Path(folder) / "system" / "controlDict"
    try:
        return read_dictionary(path, folder)
    except (FoamFormatError, OSError):
        text = path.read_text(errors="replace") if path.is_file() else ""
        return parse_dictionary("".join(re.findall(r"^\s*(\w+\s+[\w.+-]+\s*;)", text, re.MULTILINE)))


def is_same_time(one: float, other: float) -> bool:
    """Whether two times are the same but for the digits that they were written with."""
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)


def start_time(folder: Path | str) -> float:
    """When a case starts: at the `startTime` of its controlDict, where it says so and has such a folder with fields.

    Otherwise at its earliest time: `latestTime` is the end of a run that is finished. 0 where it has no time at all.
    """
    pieces = Path(folder) / "processor0"
    folders = time_folders(folder) or (time_folders(pieces) if pieces.is_dir() else [])
    times = [float(path.name) for path in folders]
    control = control_dictionary(folder)
    given = number_of(control.get("startTime")) if str(control.get("startFrom")) == "startTime" else None
    return next((time for time in times if given is not None and is_same_time(time, given)), [*times, 0.0][0])


def entry_of(field: FoamField, patch: FacePatch, name: str) -> Mapping[str, Any]:
    """A patch's dictionary, in OpenFOAM's order: by its name, a group of it, a regular expression, its type."""
    exact = {key: entry for key, entry in field.boundary.items() if not isinstance(key, Quoted)}
    patterns = [key for key in field.boundary if isinstance(key, Quoted)]
    for key in (patch.name, *reversed(patch.groups)):
        if key in exact:
            return exact[key]
    if patch.type == "empty":  # as in OpenFOAM, no pattern reaches it
        return {"type": "empty"}
    for pattern in reversed(patterns):  # the last one that fits holds
        if fits(pattern, patch.name):
            return field.boundary[pattern]
    if patch.type in CONSTRAINTS:
        return {"type": patch.type}
    raise FoamFormatError(
        f"Patch {patch.name!r} has no condition for {name!r}; only {', '.join(field.boundary)} have one."
    )


def first_field(folder: Path, name: str, time: float | None) -> Path:
    """The file of a field at a time, or at the earliest time that has it."""
    times = time_folders(folder)
    if time is not None:
        times = [each for each in times if is_same_time(float(each.name), time)]
    for each in times:
        if is_there(each / name):
            return each / name
    when = "at any time" if time is None else f"at time {time:g}"
    known = ", ".join(each.name for each in time_folders(folder)) or "none"
    template = " It has 0.orig; copy that to 0 first, as its Allrun does." if (folder / "0.orig").is_dir() else ""
    raise FileNotFoundError(f"{folder} has no field {name!r} {when}; its times are {known}.{template}")


def fields_of(body: Body, name: str, time: float | None) -> list[FoamField]:
    """A field of a case, piece by piece, at a time or at the earliest time that has it."""
    found = [read_field(first_field(piece.folder, name, time), body.folder) for piece in body.pieces]
    if len({field.axes for field in found}) != 1 or found[0].axes not in ((), (3,)):
        raise FoamFormatError(f"Field {name!r} must be a scalar or a vector in all of {body.folder}.")
    return found


def is_there(path: Path) -> bool:
    """Whether a file of a case is there, packed or not."""
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()


# At the points of a finished run, from the values of cells and of the faces of the boundary

_WITHOUT_FACES = ("empty", "cyclic", "processor", "processorCyclic")


@dataclass(frozen=True, eq=False)
class PointValues:
    """From cells and boundary faces to points.

    Attributes:
        body: The mesh in space.
        mesh: The same, or the plane mesh of a case between `empty` patches.
        to_points: From cells and faces to the points of `mesh`.
        faces: The patches whose faces have values, piece by piece, in the order in which they are taken.
    """

    body: Body
    mesh: Mesh
    to_points: CellsToPoints
    faces: tuple[tuple[Piece, FacePatch], ...]

    @staticmethod
    def of(body: Body, mesh: Mesh) -> PointValues:
        """For the mesh of a case, plane or not, as `read_case` gives it."""
        space = mesh.space
        layer = mesh.layer if mesh.layer is not None else np.arange(mesh.number_of_points)
        number = np.full(body.mesh.number_of_points, -1)
        number[layer] = np.arange(len(layer))
        faces = tuple(
            (piece, patch)
            for piece in body.pieces
            for patch in piece.mesh.patches.values()
            if patch.count and patch.type not in _WITHOUT_FACES
        )
        places = [piece.mesh.cell_centres for piece in body.pieces]
        of_point = [body.mesh.connectivity]
        of_place = [np.repeat(np.arange(body.mesh.number_of_cells), np.diff(body.mesh.offsets))]
        count = body.mesh.number_of_cells
        cells = [np.arange(count)]
        for piece, patch in faces:
            places.append(piece.mesh.face_centres[patch.faces])
            of_point.append(piece.points_of(patch))
            of_place.append(np.repeat(count + np.arange(patch.count), np.diff(piece.mesh.face_offsets)[patch.faces]))
            cells.append(piece.cells + piece.mesh.owner[patch.faces])
            count += patch.count
        points, values = number[np.concatenate(of_point)], np.concatenate(of_place)
        wanted = points >= 0
        positions = np.concatenate(places)[:, :space]
        to_points = CellsToPoints.of(mesh, positions, np.concatenate(cells), points[wanted], values[wanted])
        return PointValues(body, mesh, to_points, faces)

    def read(self, name: str, time: float | None) -> Float[np.ndarray, "points *axes"]:
        """A field at a time that was written; a vector of a plane case without its third component."""
        cells, on_faces = self.known(name, time)
        everywhere = np.concatenate([*cells, *on_faces])
        if everywhere.ndim == 2:
            everywhere = everywhere[:, : self.mesh.space]
        return self.to_points(everywhere)

    def fluxes(self, name: str, time: float | None) -> dict[str, float]:
        """By patch, what flows out through its faces with the velocity of this name, as the solver has it there.

        Of a plane case per unit of thickness.
        """
        found: dict[str, float] = {}
        height = np.ptp(self.body.mesh.points.numpy()[:, 2]) if self.mesh.space == 2 else 1.0
        for (piece, patch), velocity in zip(self.faces, self.known(name, time)[1], strict=True):
            through = float((velocity * piece.mesh.face_vectors[patch.faces]).sum()) / height
            found[patch.name] = found.get(patch.name, 0.0) + through
        return found

    def known(self, name: str, time: float | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """A field in the cells of each piece, and on the faces of each patch in `faces`."""
        fields = fields_of(self.body, name, time)
        pieces = {id(piece): place for place, piece in enumerate(self.body.pieces)}
        numbers = [piece.mesh.number_of_cells for piece in self.body.pieces]
        cells = [field.values(number) for field, number in zip(fields, numbers, strict=True)]
        on_faces = []
        for piece, patch in self.faces:
            place = pieces[id(piece)]
            on_faces.append(face_values(piece, patch, entry_of(fields[place], patch, name), cells[place]))
        return cells, on_faces


def face_values(
    piece: Piece, patch: FacePatch, entry: Mapping[str, Any], cells: Float[np.ndarray, "cells *axes"]
) -> Float[np.ndarray, "faces *axes"]:
    """Values on the faces of a patch: those that were written, else what the condition makes of the cells' values."""
    axes, kind = cells.shape[1:], str(entry.get("type"))
    if (values := on_faces(entry.get("value"), patch.count, axes)) is not None:
        return values
    if kind == "noSlip":
        return np.zeros((patch.count, *axes))
    inside = cells[piece.mesh.owner[patch.faces]]
    if kind in SYMMETRY and axes:
        normals = piece.mesh.face_normals[patch.faces]
        return inside - (inside * normals).sum(axis=1, keepdims=True) * normals
    gradient = entry.get("gradient")
    if isinstance(gradient, Uniform) and (slopes := on_faces(gradient, patch.count, axes)) is not None:
        return inside + piece.mesh.distances_to_cells(patch).reshape(-1, *[1] * len(axes)) * slopes
    return inside
