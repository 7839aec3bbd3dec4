"""A user's OpenFOAM case as a Case of ours, and predictions back as a time folder.

The shapes of the cells come from VTK's reader, through PyVista; patches, conditions and properties through our own
parser, as that reader does not give them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.mesh import files as mesh_files
from pennpde.network.hooks import FoamName
from pennpde.openfoam.dictionaries import (
    FoamFormatError,
    NonUniform,
    Quoted,
    Uniform,
    format_dictionary,
    number_of,
    read_dictionary,
    shown,
)
from pennpde.openfoam.fields import Dimensions, FoamField, read_field, time_folders, write_field
from pennpde.openfoam.poly_mesh import FacePatch, PolyMesh

_ZERO_GRADIENT = ("zeroGradient", "inletOutlet")
_SYMMETRY = ("slip", "symmetry", "symmetryPlane")
_KNOWN = ("fixedValue", "noSlip", "fixedGradient", *_ZERO_GRADIENT, *_SYMMETRY, "empty")
_CONSTRAINTS = ("empty", "symmetry", "symmetryPlane")
_BETWEEN_PROCESSORS = ("processor", "processorCyclic")


class UnsupportedConditionError(ValueError):
    """A boundary condition, or a patch, that has no counterpart here."""


def read_case(
    folder: Path | str,
    fields: Mapping[str, FoamName],
    parameters: Mapping[str, str] | None = None,
    time: float | None = None,
) -> Case:
    """Read the mesh, the patches, the conditions and the initial fields of an OpenFOAM case.

    A case that is one cell thick between `empty` patches becomes plane. Conditions: `fixedValue` and `noSlip` prescribe
    values; `zeroGradient`, `fixedGradient` and `inletOutlet` (taken as outflow) the normal derivative; `slip` and
    `symmetry` forbid flow across. Where patches meet at a point, resting walls win over inlets. Cases that are
    decomposed for parallel runs are read too.

    Args:
        folder: of the case.
        fields: by unknown, its field in OpenFOAM, as `Equation.foam_fields` has them.
        parameters: by our name, the entry of `constant/transportProperties`, or else a field that is the same
            everywhere, as `Equation.foam_parameters` has them. What the case does not give is left out.
        time: whose folder holds conditions and initial fields; the earliest where left out.

    Returns:
        a case without targets. What a network wants besides is added by `Equation.complete`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; an OpenFOAM case is one, with constant/ and a time such as 0/."
        )
    body = _Body.read(folder)
    plane = any(patch.type == "empty" and patch.count for piece in body.pieces for patch in piece.mesh.patches.values())
    mesh = _plane(body, folder) if plane else body.mesh
    part = mesh.layer if mesh.layer is not None else np.arange(mesh.number_of_points)
    initial: dict[str, Any] = {}
    conditions: dict[str, _Conditions] = {}
    for name, foam_name in ((name, each.name) for name, each in fields.items()):
        reader = _FieldReader(body, foam_name, time)
        everywhere, each = reader.initial(), reader.conditions()
        if plane and everywhere.ndim == 2:
            everywhere = everywhere[:, :2]
            each = each.in_plane(foam_name)
        initial[name] = torch.from_numpy(everywhere[part])
        conditions[name] = each.at(part)
    case = Case(
        mesh,
        initial=initial,
        dirichlet={name: each.dirichlet for name, each in conditions.items()},
        neumann={name: each.neumann for name, each in conditions.items()},
        slip={name: each.slip for name, each in conditions.items() if each.slip},
        parameters=_parameters(folder, parameters or {}, mesh.space),
        name=folder.resolve().name,
    )
    return replace(case, initial={name: case.dirichlet[name].apply(values) for name, values in case.initial.items()})


def write_time(
    folder: Path | str,
    time: float | str,
    mesh: Mesh,
    fields: Mapping[str, Tensor],
    names: Mapping[str, FoamName],
    overwrite: bool = False,
) -> Path:
    """Write fields over the points as cell values in a time folder, from which OpenFOAM's programs can go on.

    Args:
        folder: the case that `mesh` was read from with `read_case`.
        time: the name of the new folder.
        mesh: of the case, plane or not.
        fields: by our names, [points] or [points, space]. A cell gets the mean of its points.
        names: by our name, the field in OpenFOAM, as `Equation.foam_fields` has them.
        overwrite: whether an existing folder of that time may be replaced.

    Returns:
        the folder; it appears when it is complete.
    """
    folder = Path(folder)
    cells = PolyMesh.read(folder).number_of_cells
    if mesh.number_of_cells != cells:
        raise ValueError(f"The mesh has {mesh.number_of_cells} cells, but the case {folder} has {cells}.")
    name = time if isinstance(time, str) else f"{time:.10g}"
    target = folder / name
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} is there already; choose another time, or allow to overwrite it.")
    temporary = folder / f".{name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        for unknown, values in fields.items():
            if unknown not in names:
                raise KeyError(f"Field {unknown!r} has no name in OpenFOAM; named are {sorted(names)}.")
            foam = names[unknown]
            known = read_field(_first_field(folder, foam.name, None), folder)
            dimensions = known.dimensions or Dimensions(foam.dimensions)
            write_field(temporary / foam.name, _cell_means(mesh, unknown, values), dimensions, known.boundary, name)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _cell_means(mesh: Mesh, name: str, values: Tensor) -> Float[np.ndarray, "cells *axes"]:
    at_points = values.detach().cpu().double().numpy()
    if at_points.shape not in ((mesh.number_of_points,), (mesh.number_of_points, mesh.space)):
        raise ValueError(
            f"Field {name!r} has shape {at_points.shape}; the mesh has {mesh.number_of_points} points in {mesh.space}D."
        )
    sizes = np.diff(mesh.offsets)
    means = np.add.reduceat(at_points[mesh.connectivity], mesh.offsets[:-1]) / sizes.reshape(
        -1, *[1] * (at_points.ndim - 1)
    )
    if means.ndim == 2 and mesh.space == 2:
        means = np.concatenate([means, np.zeros((len(means), 1))], axis=1)
    return means


# The mesh


@dataclass(frozen=True, eq=False)
class _Piece:
    """The part of a case that one processor has; all of it where the case is not decomposed.

    Attributes:
        points: the number of each of its points in the whole mesh.
        cells: the number of its first cell in the whole mesh.
    """

    folder: Path
    mesh: PolyMesh
    points: Int64[np.ndarray, " points"]
    cells: int


@dataclass(frozen=True, eq=False)
class _Body:
    """The whole mesh of a case, in space, with its patches."""

    folder: Path
    mesh: Mesh
    pieces: tuple[_Piece, ...]

    @staticmethod
    def read(folder: Path) -> _Body:
        # A decomposed case keeps its undivided mesh as a rule; then its pieces are not needed.
        whole = (folder / "constant" / "polyMesh").is_dir()
        numbered = sorted(
            (int(match[1]), path) for path in folder.iterdir() if (match := re.fullmatch(r"processor(\d+)", path.name))
        )
        if not whole and not numbered:
            raise FileNotFoundError(
                f"{folder} has no constant/polyMesh; make the mesh first, for example with blockMesh."
            )
        parts = [folder] if whole else [path for _, path in numbered]
        meshes = [PolyMesh.read(part) for part in parts]
        positions = np.concatenate([mesh.points for mesh in meshes])
        number, kept = np.arange(len(positions)), np.arange(len(positions))
        if not whole:
            number, kept = _joined(positions)
        cells = _cells(folder, meshes, number, decomposed=not whole)
        starts = np.cumsum([0, *(len(mesh.points) for mesh in meshes)])
        first_cells = np.cumsum([0, *(mesh.number_of_cells for mesh in meshes)])
        pieces = tuple(
            _Piece(part, mesh, number[start : start + len(mesh.points)], int(first))
            for part, mesh, start, first in zip(parts, meshes, starts, first_cells, strict=False)
        )
        facets: dict[str, list[list[int]]] = {}
        for piece in pieces:
            for patch in piece.mesh.patches.values():
                if patch.count and patch.type not in _BETWEEN_PROCESSORS:
                    faces = range(patch.start, patch.start + patch.count)
                    rows = [piece.points[piece.mesh.points_of_face(face)].tolist() for face in faces]
                    facets.setdefault(patch.name, []).extend(rows)
        mesh = Mesh.from_arrays(positions[kept], cells).with_patch_facets(facets)
        return _Body(folder, mesh, pieces)

    @property
    def patches(self) -> dict[str, FacePatch]:
        """All patches that have faces somewhere, but for those between processors."""
        found = [patch for piece in self.pieces for patch in piece.mesh.patches.values()]
        return {patch.name: patch for patch in found if patch.count and patch.type not in _BETWEEN_PROCESSORS}


def _joined(positions: Float[np.ndarray, "all 3"]) -> tuple[Int64[np.ndarray, " all"], Int64[np.ndarray, " kept"]]:
    """Numbers that points at one place share, and the first point of each number."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    diagonal = np.linalg.norm(positions.max(axis=0) - positions.min(axis=0))
    pairs = KDTree(positions).query_pairs(1e-8 * diagonal, output_type="ndarray")
    ones = np.ones(len(pairs), bool)
    graph = csr_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(len(positions), len(positions)))
    _, number = connected_components(graph, directed=False)
    _, kept, number = np.unique(number, return_index=True, return_inverse=True)
    return number.astype(np.int64), kept


def _cells(folder: Path, meshes: list[PolyMesh], number: np.ndarray, decomposed: bool) -> Any:
    """The cells as PyVista's reader recognises them, over renumbered points."""
    import pyvista
    from vtkmodules.vtkIOParallel import vtkPOpenFOAMReader

    control = folder / "system" / "controlDict"
    if not control.is_file():
        raise FileNotFoundError(f"{control} does not exist; an OpenFOAM case must have it.")
    # The reader below pyvista.POpenFOAMReader: that one looks for an undivided mesh before it can be told that there is
    # none, and complains on the terminal.
    reader = vtkPOpenFOAMReader()
    reader.SetCaseType(vtkPOpenFOAMReader.DECOMPOSED_CASE if decomposed else vtkPOpenFOAMReader.RECONSTRUCTED_CASE)
    cut_polyhedra = getattr(reader, "SetDecomposePolyhedra", None)  # older VTK does it unless told not to
    if cut_polyhedra is not None:
        cut_polyhedra(False)
    reader.CreateCellToPointOff()
    # Damaged files can end the whole process inside VTK, so it is given a copy of what our own parser has understood.
    with TemporaryDirectory(prefix="pennpde") as copy, mesh_files.silence():
        for place, mesh in enumerate(meshes):
            part = Path(copy) / f"processor{place}" if decomposed else Path(copy)
            mesh.write(part)
            (part / "0").mkdir()
        (Path(copy) / "system").mkdir()
        copied = Path(copy) / "system" / "controlDict"
        copied.write_text(format_dictionary("controlDict", {"startTime": 0, "endTime": 0, "deltaT": 1}))
        reader.SetFileName(str(copied))
        reader.UpdateInformation()
        reader.DisableAllCellArrays()
        reader.Update()
    dataset = pyvista.wrap(reader.GetOutput())
    grid = dataset["internalMesh"] if dataset is not None and "internalMesh" in dataset.keys() else None  # noqa: SIM118
    expected = sum(len(mesh.points) for mesh in meshes), sum(mesh.number_of_cells for mesh in meshes)
    if grid is None or (grid.n_points, grid.n_cells) != expected:
        found = "nothing" if grid is None else f"{grid.n_points} points and {grid.n_cells} cells"
        raise FoamFormatError(
            f"{folder}: the mesh has {expected[0]} points and {expected[1]} cells, but PyVista's reader found {found}."
        )
    cells = mesh_files.from_dataset(grid).cells
    if cells.connectivity.min() < 0 or cells.connectivity.max() >= len(number):  # VTK did not know what to make of it
        raise FoamFormatError(f"{folder}: some cells are no closed bodies; are the mesh's files damaged?")
    return replace(
        cells,
        connectivity=number[cells.connectivity],
        polyhedron_faces=None
        if cells.polyhedron_faces is None
        else replace(cells.polyhedron_faces, connectivity=number[cells.polyhedron_faces.connectivity]),
    )


def _plane(body: _Body, folder: Path) -> Mesh:
    try:
        mesh = Mesh.plane_of(body.mesh)
    except ValueError as error:
        raise UnsupportedConditionError(
            f"{folder} has `empty` patches, so it should be one cell thick in z. {error}"
        ) from error
    for patch in body.patches.values():
        if patch.type != "empty" and patch.name not in mesh.patches:
            raise UnsupportedConditionError(
                f"Patch {patch.name!r} is a flat side of the plane case {folder}, but of type {patch.type!r}; both "
                "sides must be empty."
            )
    return mesh


# Conditions


@dataclass(frozen=True, eq=False)
class _Conditions:
    """Conditions of one unknown by patch, the values over all points of the mesh in space."""

    dirichlet: Mapping[str, np.ndarray]
    neumann: Mapping[str, np.ndarray]
    slip: tuple[str, ...]
    walls: list[str]

    def in_plane(self, foam_name: str) -> _Conditions:
        for kind in (self.dirichlet, self.neumann):
            for patch, values in kind.items():
                if np.abs(values[:, 2]).max() > 1e-12 * max(1.0, np.abs(values).max()):
                    raise UnsupportedConditionError(
                        f"Patch {patch!r}, field {foam_name!r}: the value has a component across the plane of the case."
                    )
        return self._with(lambda values: values[:, :2])

    def at(self, part: Int64[np.ndarray, " points"]) -> _Conditions:
        return self._with(lambda values: values[part])

    def _with(self, change: Any) -> _Conditions:
        dirichlet = {patch: change(values) for patch, values in self.dirichlet.items()}
        return replace(
            self, dirichlet=dirichlet, neumann={patch: change(values) for patch, values in self.neumann.items()}
        )


class _FieldReader:
    """One field of a case, over all pieces."""

    def __init__(self, body: _Body, name: str, time: float | None) -> None:
        self.body, self.name = body, name
        self.fields = [read_field(_first_field(piece.folder, name, time), body.folder) for piece in body.pieces]
        shapes = {np.shape(field.internal.value) for field in self.fields if isinstance(field.internal, Uniform)}
        shapes |= {f.internal.values.shape[1:] for f in self.fields if isinstance(f.internal, NonUniform)}
        if len(shapes) != 1 or (shape := shapes.pop()) not in ((), (3,)):
            raise FoamFormatError(f"Field {name!r} must be a scalar or a vector in all of {body.folder}.")
        self.axes = shape

    def initial(self) -> Float[np.ndarray, "points *axes"]:
        """Point values: of each point the mean of its cells."""
        mesh = self.body.mesh
        values = np.concatenate(
            [
                field.values(piece.mesh.number_of_cells)
                for field, piece in zip(self.fields, self.body.pieces, strict=True)
            ]
        )
        cell = np.repeat(np.arange(mesh.number_of_cells), np.diff(mesh.offsets))
        return _means(mesh.connectivity, values[cell], np.ones(len(cell)), mesh.number_of_points)

    def conditions(self) -> _Conditions:
        dirichlet: dict[str, np.ndarray] = {}
        neumann: dict[str, np.ndarray] = {}
        slip: list[str] = []
        for patch in self.body.patches.values():
            kind = self._type(patch)
            if kind == "empty" or patch.type == "empty":
                if kind != patch.type:
                    raise self._unsupported(patch, kind, f"on a patch of type {patch.type!r} ")
            elif kind == "fixedValue":
                dirichlet[patch.name] = self._values(patch, "value")
            elif kind == "noSlip":
                if not self.axes:
                    raise self._unsupported(patch, kind, "of a scalar ")
                dirichlet[patch.name] = self._constant(0.0)
            elif kind == "fixedGradient":
                neumann[patch.name] = self._values(patch, "gradient")
            elif kind in _SYMMETRY and self.axes:
                slip.append(patch.name)
            else:
                neumann[patch.name] = self._constant(0.0)
        # Later patches win where they meet, so that a corner of an inlet rests as the wall does.
        resting = [name for name, values in dirichlet.items() if not values[self.body.mesh.patch(name).points].any()]
        ordered = {name: dirichlet[name] for name in [n for n in dirichlet if n not in resting] + resting}
        return _Conditions(ordered, neumann, tuple(slip), resting if self.axes else [])

    def _type(self, patch: FacePatch) -> str:
        kinds = {str(entry.get("type")) for entry in self._entries(patch)}
        if len(kinds) != 1:
            raise FoamFormatError(f"Patch {patch.name!r}, field {self.name!r}: processors disagree, {sorted(kinds)}.")
        kind = kinds.pop()
        if kind not in _KNOWN:
            raise self._unsupported(patch, kind, "")
        return kind

    def _unsupported(self, patch: FacePatch, kind: str, where: str) -> UnsupportedConditionError:
        return UnsupportedConditionError(
            f"Patch {patch.name!r}, field {self.name!r}: the condition {kind!r} {where}has no counterpart here. "
            f"Known are {', '.join(_KNOWN)}."
        )

    def _entries(self, patch: FacePatch) -> Iterator[Mapping[str, Any]]:
        for field, piece in zip(self.fields, self.body.pieces, strict=True):
            if piece.mesh.patches.get(patch.name, patch).count:
                yield _entry_of(field, patch, self.name)

    def _constant(self, value: float) -> np.ndarray:
        return np.full((self.body.mesh.number_of_points, *self.axes), value)

    def _values(self, patch: FacePatch, key: str) -> Float[np.ndarray, "points *axes"]:
        """Point values on a patch: of each point the mean of its faces, weighted by area; zero elsewhere."""
        points, values, weights = [], [], []
        for field, piece in zip(self.fields, self.body.pieces, strict=True):
            own = piece.mesh.patches.get(patch.name)
            if own is None or own.count == 0:
                continue
            given = _entry_of(field, patch, self.name).get(key)
            faces = self._face_values(own, key, given)
            area = np.linalg.norm(piece.mesh.face_vectors[own.faces], axis=1)
            sizes = np.diff(piece.mesh.face_offsets)[own.faces]
            low, high = piece.mesh.face_offsets[own.start], piece.mesh.face_offsets[own.start + own.count]
            points.append(piece.points[piece.mesh.face_points[low:high]])
            values.append(np.repeat(faces, sizes, axis=0))
            weights.append(np.repeat(area, sizes))
        number = self.body.mesh.number_of_points
        return _means(np.concatenate(points), np.concatenate(values), np.concatenate(weights), number)

    def _face_values(self, patch: FacePatch, key: str, given: Any) -> Float[np.ndarray, "faces *axes"]:
        what = f"Patch {patch.name!r}, field {self.name!r}: {key}"
        if isinstance(given, Uniform):
            value = np.asarray(given.value, float)
            if value.shape != self.axes:
                raise FoamFormatError(f"{what} is {shown(given.value)}, but the field has shape {self.axes}.")
            return np.broadcast_to(value, (patch.count, *self.axes))
        if isinstance(given, NonUniform):
            if given.values.shape != (patch.count, *self.axes):
                raise FoamFormatError(f"{what} has shape {given.values.shape}, but the patch has {patch.count} faces.")
            return given.values
        raise FoamFormatError(f"{what} must be 'uniform ...' or 'nonuniform List<...>', found {shown(given)}.")


def _means(index: np.ndarray, values: np.ndarray, weights: np.ndarray, number: int) -> np.ndarray:
    total = np.bincount(index, weights, number)[:, None]
    flat = values.reshape(len(values), -1)
    # Deviations from one of the values: where all are the same, so is their mean, to the last bit.
    origin = flat[:1]
    sums = np.stack([np.bincount(index, weights * column, number) for column in (flat - origin).T], axis=1)
    means = np.where(total > 0, origin + sums / np.where(total > 0, total, 1.0), 0.0)
    return means.reshape(number, *values.shape[1:])


def _entry_of(field: FoamField, patch: FacePatch, name: str) -> Mapping[str, Any]:
    """A patch's dictionary, in OpenFOAM's order: by its name, a group of it, a regular expression, its type."""
    exact = {key: entry for key, entry in field.boundary.items() if not isinstance(key, Quoted)}
    patterns = [key for key in field.boundary if isinstance(key, Quoted)]
    for key in (patch.name, *reversed(patch.groups)):
        if key in exact:
            return exact[key]
    if patch.type == "empty":  # as in OpenFOAM, no pattern reaches it
        return {"type": "empty"}
    for pattern in reversed(patterns):  # the last one that fits holds
        if _fits(pattern, patch.name):
            return field.boundary[pattern]
    if patch.type in _CONSTRAINTS:
        return {"type": patch.type}
    raise FoamFormatError(
        f"Patch {patch.name!r} has no condition for {name!r}; only {', '.join(field.boundary)} have one."
    )


def _fits(pattern: str, name: str) -> bool:
    # A repeated group that repeats inside, such as (a+)+, takes for ever on names that almost fit.
    if len(pattern) > 200 or re.search(r"\([^()]*[*+{][^()]*\)[*+{]", pattern) or pattern.count("(") > 10:
        raise FoamFormatError(f"The pattern {shown(pattern)} of patch names is refused: it might never end.")
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise FoamFormatError(f"The pattern {shown(pattern)} of patch names cannot be read: {error}.") from None


def _first_field(folder: Path, name: str, time: float | None) -> Path:
    """The file of a field at a time, or at the earliest time that has it."""
    times = time_folders(folder)
    if time is not None:
        times = [each for each in times if np.isclose(float(each.name), time, rtol=1e-6, atol=1e-12)]
    for each in times:
        if _is_field(each / name):
            return each / name
    when = "at any time" if time is None else f"at time {time:g}"
    known = ", ".join(each.name for each in time_folders(folder)) or "none"
    raise FileNotFoundError(f"{folder} has no field {name!r} {when}; its times are {known}.")


def _parameters(folder: Path, wanted: Mapping[str, str], space: int) -> dict[str, Any]:
    """Those of the wanted parameters that the case gives: as an entry of its properties, or as a uniform field."""
    properties = _properties(folder, wanted.values())
    found: dict[str, Any] = {}
    for ours, theirs in wanted.items():
        if theirs in properties:
            found[ours] = properties[theirs]
            continue
        written = [time / theirs for time in time_folders(folder) if _is_field(time / theirs)]
        if written:
            internal = read_field(written[0], folder).internal
            if not isinstance(internal, Uniform):
                raise UnsupportedConditionError(
                    f"{written[0]} is not the same everywhere, so it cannot be the parameter {ours!r} of the equation."
                )
            value = np.asarray(internal.value, float)
            found[ours] = value if value.ndim == 0 else value[:space]
    return found


def _properties(folder: Path, wanted: Iterable[str]) -> dict[str, float]:
    """Those of the wanted entries that `transportProperties` has."""
    for name in ("transportProperties", "physicalProperties"):
        path = folder / "constant" / name
        if path.is_file():
            break
    else:
        return {}
    entries = read_dictionary(path, folder)
    model = entries.get("transportModel", entries.get("viscosityModel", "Newtonian"))
    if str(model) not in ("Newtonian", "constant"):
        raise UnsupportedConditionError(f"{path}: the fluid is {shown(model)}; only Newtonian fluids are known here.")
    found = {}
    for entry in wanted:
        if entry in entries:
            value = number_of(entries[entry])
            if value is None:
                raise FoamFormatError(f"{path}: {entry} must be a number, found {shown(entries[entry])}.")
            found[entry] = value
    return found


def _is_field(path: Path) -> bool:
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()
