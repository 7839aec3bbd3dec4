"""Where the cases of a study come from: a case, a mesh with its conditions, a function, Gmsh, an OpenFOAM template.

Whatever the shape of a design changes is made here; parameters and values of the boundary are changed afterwards.
"""

from __future__ import annotations

import inspect
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.case import Case
from pennpde.case.problem_files import problem_from, read_problem
from pennpde.mesh import Mesh, reader_process
from pennpde.openfoam import cases as foam
from pennpde.openfoam.fields import start_time, time_folders
from pennpde.openfoam.poly_mesh import Body, plane_of
from pennpde.penn import Physics
from pennpde.study.morphing import Handle, displacement, morphed, morphed_case
from pennpde.study.programs import run_program

PLACEHOLDER = re.compile(rb"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_LARGEST = 2_000_000
"""Bytes of a file that may hold placeholders; larger ones are meshes and fields."""
_RUNS_CODE = re.compile(rb"#\s*(calc|codeStream)\b|\bcodedFixedValue\b")
Shape = Mapping[str, float]


class Source(ABC):
    """A case for every shape."""

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The numbers that its shape depends on."""

    @abstractmethod
    def case(self, shape: Shape) -> Case:
        """The case with this shape."""

    def files(self) -> list[Path]:
        """That its cases are made of, besides the one that is named."""
        return []

    def write(self, shape: Shape, folder: Path) -> None:  # noqa: ARG002
        """Write it as an OpenFOAM case, with its mesh."""
        raise ValueError("Only designs that are OpenFOAM cases can be verified; this study starts from something else.")


@dataclass(frozen=True, eq=False)
class Meshed(Source):
    """A mesh with conditions by the names of its patches, as a problem file has them.

    Attributes:
        make: The mesh, or a whole case, from the numbers that it depends on.
        own: The names of these numbers.
        problem: The conditions, or the file that has them; None where `make` returns cases.
        handles: Control points that move the mesh.
    """

    make: Callable[..., Mesh | Case]
    own: frozenset[str]
    problem: Mapping[str, Any] | Path | None
    handles: Mapping[str, Handle] = field(default_factory=dict)

    @staticmethod
    def by(
        function: Callable[..., Mesh | Case],
        problem: Mapping[str, Any] | Path | None = None,
        handles: Mapping[str, Handle] | None = None,
    ) -> Meshed:
        """From a function whose arguments are the numbers of the shape."""
        taken = [each.name for each in inspect.signature(function).parameters.values() if each.kind in (1, 3)]
        return Meshed(function, frozenset(taken), problem, handles or {})

    @property
    def names(self) -> frozenset[str]:
        return self.own | self.handles.keys()

    def case(self, shape: Shape) -> Case:
        made = self.make(**{name: value for name, value in shape.items() if name in self.own})
        if isinstance(made, Case):
            return morphed_case(made, self.handles, shape)
        if not isinstance(made, Mesh) or self.problem is None:
            raise ValueError(
                f"The shape is a {type(made).__name__}; a function returns a case, or a mesh where the study is given "
                "the conditions (problem=...)."
            )
        mesh = morphed(made, self.handles, shape)
        if isinstance(self.problem, Path):
            return read_problem(self.problem, mesh)
        return problem_from(self.problem, mesh, "the problem of the study")


def read_mesh(path: Path) -> Mesh:
    """The mesh of a file, read in a process that a damaged file may crash."""
    return Mesh.from_contents(reader_process.shared().read(path))


def gmsh_constants(path: Path) -> frozenset[str]:
    """The numbers of `DefineConstant` in a .geo file, which are those of its shape."""
    text = path.read_text(encoding="utf-8", errors="replace")
    inside = " ".join(re.findall(r"DefineConstant\s*\[(.*?)\]\s*;", text, re.DOTALL))
    return frozenset(re.findall(r"([A-Za-z_]\w*)\s*=", re.sub(r"\{[^{}]*\}", "", inside)))


def gmsh_mesh(path: Path, **numbers: float) -> Mesh:
    """The mesh that the program `gmsh` makes of a .geo file with these constants."""
    if shutil.which("gmsh") is None:
        raise FileNotFoundError(
            f"{path} needs the program gmsh, which is not on the PATH; install it from https://gmsh.info, or give "
            "meshes by a Python function."
        )
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "shape.msh"
        values = [word for name, value in numbers.items() for word in ("-setnumber", name, f"{value!r}")]
        words = ["gmsh", str(path.resolve()), "-2", *values, "-format", "msh41", "-o", str(made)]
        run_program(words, Path(folder), "gmsh")
        return read_mesh(made)


@dataclass(frozen=True, eq=False)
class FoamFolder(Source):
    """An OpenFOAM case; placeholders `{{name}}` in its files are numbers of the shape.

    Attributes:
        folder: Of the case or template, in which nothing is written.
        equation: Whose unknowns are read.
        mesher: What makes the mesh of a template: "blockMesh", or a script of the folder that the user names.
        handles: Control points that move the mesh.
    """

    folder: Path
    equation: Physics
    mesher: str | None = None
    handles: Mapping[str, Handle] = field(default_factory=dict)

    @cached_property
    def templates(self) -> Mapping[Path, frozenset[str]]:
        """The files with placeholders, and the names in them."""
        found = {}
        for path in self.files():
            if path.stat().st_size <= _LARGEST and (names := PLACEHOLDER.findall(path.read_bytes())):
                found[path.relative_to(self.folder)] = frozenset(name.decode() for name in names)
        return found

    def files(self) -> list[Path]:
        """What a case is before it has run."""
        return self._found

    @cached_property
    def _found(self) -> list[Path]:
        start = f"{start_time(self.folder):g}"
        runs = {path.name for path in time_folders(self.folder) if f"{float(path.name):g}" != start}
        left_out = re.compile(r"processors?\d*|postProcessing|VTK|log(\..*)?|.*\.foam|verified")
        kept = [each for each in self.folder.iterdir() if each.name not in runs and not left_out.fullmatch(each.name)]
        inside = (path for each in kept for path in ([each] if each.is_file() else sorted(each.rglob("*"))))
        return [path for path in inside if path.is_file()]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for names in self.templates.values() for name in names) | self.handles.keys()

    def case(self, shape: Shape) -> Case:
        return morphed_case(self._made(shape) if self.templates or self.mesher else self._own, self.handles, shape)

    @cached_property
    def _own(self) -> Case:
        return foam.read_problem(self.folder, self.equation)

    def _made(self, shape: Shape) -> Case:
        with tempfile.TemporaryDirectory() as folder:
            self._write_template(shape, Path(folder))
            return replace(foam.read_problem(folder, self.equation), name=self.folder.resolve().name)

    def write(self, shape: Shape, folder: Path) -> None:
        self._write_template(shape, folder)
        if any(shape.get(name) for name in self.handles):
            body = Body.read(folder)
            plane = plane_of(body, folder) if body.is_plane else body.mesh
            (whole,) = body.pieces  # a decomposed case keeps none of its processors' folders here
            moves = {name: value for name, value in shape.items() if name in self.handles}
            moved, across = np.split(whole.mesh.points, [plane.space], axis=1)
            moved = moved + displacement(plane, self.handles, moves)(moved)
            write_points(folder, np.hstack([moved, across]))

    def _write_template(self, shape: Shape, folder: Path) -> None:
        """The files of the case with numbers in the place of placeholders, and its mesh."""
        if missing := sorted(self.names - shape.keys() - self.handles.keys()):
            raise ValueError(f"{self.folder} has the placeholder {{{{{missing[0]}}}}}, but the study does not vary it.")
        for path in self.files():
            target = folder / path.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.relative_to(self.folder) in self.templates:
                text = PLACEHOLDER.sub(lambda match: f"{shape[match[1].decode()]:.12g}".encode(), path.read_bytes())
                target.write_bytes(text)
                shutil.copymode(path, target)
            else:
                shutil.copy2(path, target)
        self._make_mesh(folder)

    def _make_mesh(self, folder: Path) -> None:
        described = Path("system/blockMeshDict")
        if self.mesher is None and (folder / "constant/polyMesh/points").is_file() and described not in self.templates:
            return
        if self.mesher in (None, "blockMesh"):
            words = ["blockMesh"]
            if self.mesher is None and any(_RUNS_CODE.search(path.read_bytes()) for path in folder.glob("system/*")):
                raise ValueError(
                    f"{self.folder} has entries that OpenFOAM compiles and runs (#calc, #codeStream); name the mesher "
                    "to allow that: --mesher blockMesh."
                )
        else:
            script = (folder / str(self.mesher)).resolve()
            if not script.is_file() or not script.is_relative_to(folder.resolve()):
                raise FileNotFoundError(f"{self.folder} has no script {self.mesher} that makes its mesh.")
            words = [str(script)]
        run_program(words, folder, str(self.mesher or "blockMesh"))


def write_points(folder: Path, points: np.ndarray) -> None:
    """Replace the positions of the points in `constant/polyMesh`."""
    from pennpde.openfoam.dictionaries import format_dictionary, format_values

    target = folder / "constant" / "polyMesh" / "points"
    target.with_name("points.gz").unlink(missing_ok=True)
    listed = format_values(points, binary=False).partition(b"\n")[2]
    target.write_bytes(format_dictionary("points", {}, "vectorField").encode() + listed + b"\n")
