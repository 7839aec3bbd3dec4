"""Runs in files that PyVista or meshio reads, single ones and series, with the problem file that belongs to them.

The problem file gives patches, conditions and parameters, as for `penn predict`; the files give the mesh and the
fields, at points or in cells.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case, Dirichlet
from pennpde.case.problem_files import read_problem
from pennpde.data.runs.source import OTHER_NAMES, Quantities, RunError, Source, of_unknowns, with_patches
from pennpde.files import check_stored
from pennpde.mesh import Mesh, reader_process
from pennpde.mesh.boundary import facet_means
from pennpde.mesh.contents import Contents
from pennpde.mesh.files import suffixes_with_reader
from pennpde.mesh.interpolation import CellsToPoints

SERIES = (".pvd", ".series")
_OF_PYVISTA = (".vtu", ".vtk", ".vtkhdf", ".hdf", ".vts", ".vtr", ".vti", ".vtp", ".vtm", ".h5m")
_OF_PYVISTA += (".pvtu", ".pvts", ".pvtr", ".pvti", ".pvtp")  # in pieces
_MOST_BYTES = 10_000_000
"""Of a file that lists others."""
_CLOSE = 1e-6


def is_mesh_file(path: Path) -> bool:
    return path.name.endswith(SERIES) or path.suffix in (*_OF_PYVISTA, *suffixes_with_reader())


@dataclass(frozen=True, eq=False)
class Frame:
    """The files of one time, which is infinite where none of them says which time it is."""

    time: float
    files: tuple[Path, ...]
    step: int | None = None


class FileSource(Source):
    """Files of one run."""

    def __init__(self, path: Path, problem: Path, wanted: Quantities | None, repair: bool = True) -> None:
        super().__init__(wanted)
        self.path, self.problem_file, self.repair = path, problem, repair

    @property
    def format(self) -> str:
        kind = "".join(self.path.suffixes[-2:]) if self.path.suffix == ".series" else self.path.suffix
        return f"{kind} ({len(self._frames)} times)" if len(self._frames) > 1 else kind

    # Times

    @cached_property
    def _frames(self) -> list[Frame]:
        if self.path.suffix == ".pvd":
            frames = _from_pvd(self.path)
        elif self.path.suffix == ".series":
            frames = _from_series(self.path)
        elif self.path.suffix in (".vtkhdf", ".hdf") and (values := _steps(self.path)):
            frames = [Frame(time, (self.path,), step) for step, time in enumerate(values)]
        else:
            frames = [Frame(math.inf if self._only.time is None else self._only.time, (self.path,))]
        for frame in frames:
            for file in frame.files:
                if not file.is_file():
                    raise RunError(f"{self.path.name} lists {file.name}, which does not exist")
        return sorted(frames, key=lambda frame: frame.time)

    def times(self) -> tuple[float, Sequence[float]]:
        return 0.0, [frame.time for frame in self._frames]

    # The mesh and its fields

    @cached_property
    def _only(self) -> Contents:
        """What a file of one time says."""
        return _contents(Frame(math.inf, (self.path,)))

    @cached_property
    def _given(self) -> _Given:
        """Mesh and fields of the first time."""
        frame = self._frames[0]
        return self._of(self._only if frame.files == (self.path,) and frame.step is None else _contents(frame))

    def _of(self, contents: Contents) -> _Given:
        return _Given.of(Mesh.from_contents(contents, self.repair), contents.cell_fields)

    def _at(self, time: float) -> _Given:
        frame = min(self._frames, key=lambda frame: abs(frame.time - time))
        if frame is self._frames[0]:
            return self._given
        given, first = self._of(_contents(frame)), self._given.mesh
        size = float(np.ptp(first.points.numpy(), axis=0).max())
        if given.mesh.points.shape != first.points.shape or not torch.allclose(
            given.mesh.points, first.points, rtol=0, atol=1e-6 * size
        ):
            raise RunError(f"its mesh at time {time:g} is another one than at its first time; meshes must not move")
        return given

    def quantities(self) -> Quantities:
        problem = self._problem
        found = of_unknowns(list(problem.initial), list(problem.parameters))
        if self.wanted is None:
            return found
        if self.wanted.fields.keys() != problem.initial.keys():
            raise RunError(
                f"its problem file has the unknowns {', '.join(problem.initial)}, but {', '.join(self.wanted.fields)} "
                "were asked for"
            )
        return replace(found, fields=self.wanted.fields)

    def check(self, times: Sequence[float]) -> None:
        for time in times:
            given = self._at(time)
            for name in self._problem.initial:
                given.name_of(name, self._names(name))

    def _names(self, unknown: str) -> tuple[str, ...]:
        wanted = () if self.wanted is None else (self.wanted.fields[unknown].name,)
        return (*wanted, *OTHER_NAMES.get(unknown, (unknown,)))

    @cached_property
    def _problem(self) -> Case:
        return read_problem(self.problem_file, self._given.mesh)

    def problem(self) -> Case:
        case = with_patches(self._problem)
        stated = tomllib.loads(self.problem_file.read_text(encoding="utf-8")).get("initial", {})
        first, last = self._frames[0].time, self._frames[-1].time
        if abs(first) <= _CLOSE * max(1.0, abs(last) if math.isfinite(last) else 0.0):
            start = {
                name: self._given.field(name, self._names(name), case)
                for name in case.initial
                if name not in stated and self._given.find(self._names(name)) is not None
            }
            case = replace(case, initial=case.fulfilled({**case.initial, **start}))
        return case

    def fields(self, time: float) -> dict[str, Tensor]:
        given = self._at(time)
        return {name: given.field(name, self._names(name), self._problem) for name in self._problem.initial}

    def files(self, times: Sequence[float]) -> list[Path]:  # noqa: ARG002
        return [self.path, self.problem_file, *(file for frame in self._frames for file in frame.files)]


@dataclass(frozen=True, eq=False)
class _Given:
    """A mesh with fields at its points and in its cells."""

    mesh: Mesh
    cells: Mapping[str, np.ndarray]

    @staticmethod
    def of(mesh: Mesh, cells: Mapping[str, np.ndarray]) -> _Given:
        if mesh.space == 3:
            with suppress(ValueError):  # OpenFOAM's plane cases are one cell thick, also when they were converted
                mesh = Mesh.plane_of(mesh)
        return _Given(mesh, cells)

    def find(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name in self.mesh.fields or name in self.cells), None)

    def name_of(self, unknown: str, names: Sequence[str]) -> str:
        found = self.find(names)
        if found is None:
            known = sorted({*self.mesh.fields, *self.cells})
            raise RunError(
                f"it has no field {unknown}; it has {', '.join(known) or 'none'}. Say which it is with --fields "
                f"{unknown}=NAME"
            )
        return found

    def field(self, unknown: str, names: Sequence[str], case: Case) -> Tensor:
        name, like = self.name_of(unknown, names), case.initial[unknown]
        if name in self.mesh.fields:
            values = self.mesh.fields[name].double()
        else:
            of_cells = np.asarray(self.cells[name], float)
            if of_cells.ndim == 2 and like.ndim == 2:
                of_cells = of_cells[:, : case.space]
            everywhere = np.concatenate([of_cells, self._on_facets(of_cells, case.dirichlet[unknown])])
            values = torch.from_numpy(CellsToPoints.on(self.mesh)(everywhere))
        if values.ndim == 2 and like.ndim == 2 and values.shape[1] >= case.space:
            values = values[:, : case.space]
        if values.shape != like.shape:
            raise RunError(
                f"its field {name} has shape {list(values.shape[1:])} at a point, but {unknown} of the problem file "
                f"has {list(like.shape[1:])}"
            )
        return values

    def _on_facets(self, of_cells: np.ndarray, prescribed: Dirichlet) -> np.ndarray:
        """Prescribed values; elsewhere that of the cell, which is right where the normal derivative is zero."""
        known = prescribed.values.numpy().reshape(self.mesh.number_of_points, -1)
        means, held = facet_means(known, self.mesh, prescribed.mask.numpy())
        inside = of_cells[self.mesh.facets.cells]
        shape = (-1, *of_cells.shape[1:])
        return np.where(held.reshape(-1, *[1] * (of_cells.ndim - 1)), means.reshape(shape), inside)


def _contents(frame: Frame) -> Contents:
    """What the files of a frame say. They are read in a process of their own: a damaged one must not end the others."""
    reader = reader_process.shared()
    first = frame.files[0]
    try:
        own_reader = first.suffix in suffixes_with_reader()
        contents = reader.read(first) if own_reader else reader.read_parts(frame.files, frame.step)
    except (ValueError, OSError) as error:
        reason = str(error).rstrip(".")
        for file in frame.files:
            reason = reason.replace(str(file), file.name)
        raise RunError(reason) from None
    if len(contents.cells) == 0:
        raise RunError(f"{first.name} has no cells")
    return contents


def _steps(path: Path) -> list[float]:
    """The times of a VTKHDF file that has several."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            values = file.get("VTKHDF/Steps/Values")
            if not isinstance(values, h5py.Dataset):
                return []
            check_stored(values.id, f"{path.name} is damaged: its list of times")
            return values[:].tolist()
    except OSError as error:
        raise RunError(f"{path.name} is damaged, or no VTKHDF file: {error}") from error


def _from_pvd(path: Path) -> list[Frame]:
    def parse(text: str) -> list[tuple[float, str]]:
        if "<!ENTITY" in text:
            raise ValueError("it defines entities")
        rows = ElementTree.fromstring(text).iter("DataSet")
        return [(float(row.attrib["timestep"]), row.attrib["file"]) for row in rows]

    return _listed(path, parse)


def _from_series(path: Path) -> list[Frame]:
    return _listed(path, lambda text: [(float(row["time"]), row["name"]) for row in json.loads(text)["files"]])


def _listed(path: Path, parse: Callable[[str], list[tuple[float, str]]]) -> list[Frame]:
    if path.stat().st_size > _MOST_BYTES:
        raise RunError(f"{path.name} has {path.stat().st_size:,} bytes: too many for a list of files")
    try:
        rows = parse(path.read_text(encoding="utf-8"))
    except (ElementTree.ParseError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path.name} is no list of files and times: {error}") from None
    by_time: dict[float, list[Path]] = {}
    for time, name in rows:
        if not math.isfinite(time):
            raise RunError(f"{path.name} lists {name} at the time {time:g}, which is none")
        by_time.setdefault(time, []).append(path.parent / name)
    if not by_time:
        raise RunError(f"{path.name} lists no files")
    return [Frame(time, tuple(files)) for time, files in by_time.items()]
