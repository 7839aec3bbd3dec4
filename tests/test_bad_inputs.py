"""Wrong inputs of every kind, and what the user is told: in words, with an exit code, and without half a file.

A row is what is wrong, how to make it so, and words that the message must have. Exit code 2 is wrong usage, 1 the rest.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from commands import penn
from foam_cases import write_dictionary
from pennpde.mesh import Mesh
from sound_folder import CASE


def text(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))


def settings(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def arguments(path: Path, **values: object) -> None:
    """Other arguments of the network in a configuration."""
    settings(path, arguments=json.loads(path.read_text())["arguments"] | values)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


def weights(folder: Path, change: Callable[[Tensor], Tensor]) -> None:
    tensors = {name: change(tensor) for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS)
    settings(folder / CONFIG, weights_sha256="")


def mesh_with(folder: Path, name: str, value: float) -> None:
    """The mesh with an array that is zero but for one value."""
    import pyvista

    grid = pyvista.read(folder / "duct.vtu")
    assert isinstance(grid, pyvista.UnstructuredGrid)
    grid.point_data[name] = np.zeros(grid.n_points)
    grid.point_data[name][3] = value
    grid.save(folder / "duct.vtu")


def mesh_of(folder: Path, dataset: Callable[[], object], name: str = "duct.vtu") -> None:
    (folder / "duct.vtu").unlink()
    dataset().save(folder / name)  # pyright: ignore[reportAttributeAccessIssue]


def bent_surface():
    import pyvista

    return pyvista.Sphere(theta_resolution=6, phi_resolution=6).cast_to_unstructured_grid()


def cloud():
    import pyvista

    return pyvista.PolyData(np.random.default_rng(0).random((20, 3))).cast_to_unstructured_grid()


def quads(points, cells):
    import pyvista

    return pyvista.UnstructuredGrid({pyvista.CellType.QUAD: np.array(cells)}, np.array(points, float))


def square(change: Callable[[np.ndarray], None] = lambda points: None, cells=((0, 1, 2, 3),)):
    points = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    change(points)
    return quads(points, cells)


def fifo(path: Path) -> None:
    """A pipe that nobody writes to: whoever opens it waits for ever."""
    path.unlink()
    os.mkfifo(path)


def announcing(folder: Path) -> None:
    """A file that is sound but for the number of its points."""
    pattern = re.compile(rb'NumberOfPoints="\d+"')
    path = folder / "duct.vtu"
    assert pattern.search(path.read_bytes())
    path.write_bytes(pattern.sub(b'NumberOfPoints="1000000000000000"', path.read_bytes()))


def crashing(folder: Path) -> None:
    """A cell of so many corners ends the process that reads it, by a segmentation fault in VTK 9.7."""
    path = folder / "duct.vtk"
    path.write_text(
        "# vtk DataFile Version 3.0\nsquare\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS 4 float\n"
        "0 0 0 1 0 0 1 1 0 0 1 0\nCELLS 1 5\n999999 0 1 2 3\nCELL_TYPES 1\n9\n"
    )


def huge_array(path: Path, name: str) -> None:
    """An array of 10^11 rows in a file of HDF5 of some kilobytes."""
    with h5py.File(path, "a") as file:
        kind = file[name].dtype
        shape = file[name].shape
        del file[name]
        file.create_dataset(name, (10**11, *shape[1:]), kind, chunks=(1000, *shape[1:]))


def huge_mesh(folder: Path) -> None:
    Mesh.read(folder / "duct.vtu").save(folder / "duct.vtkhdf")
    huge_array(folder / "duct.vtkhdf", "VTKHDF/Points")


def ducts_that_touch():
    return quads(
        [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 1, 0], [2, 2, 0], [1, 2, 0]], [[0, 1, 2, 3], [2, 4, 5, 6]]
    )


def quadratic_square():
    import pyvista

    points = np.array([[0, 0], [2, 0], [2, 2], [0, 2], [1, 0], [2, 1], [1, 2], [0, 1]], float)
    return pyvista.UnstructuredGrid([8, *range(8)], [23], np.pad(points, ((0, 0), (0, 1))))


def not_a_number(points: np.ndarray) -> None:
    points[2, 1] = np.nan


def plugin(folder: Path, content: str) -> None:
    (folder / "bad.py").write_text(content)


def calibration(folder: Path, **values: object) -> None:
    """An `expected_error.json` with little in it."""
    known = {"format": "pennpde expected error", "format_version": 1}
    weights = json.loads((folder / CONFIG).read_text())["weights_sha256"]
    (folder / EXPECTED).write_text(json.dumps(known | {"weights_sha256": weights} | values))


@dataclass(frozen=True)
class Wrong:
    """An input, what is done to a sound one, the words of the message."""

    what: str
    words: str
    arguments: str
    spoil: Callable[[Path], object] = lambda folder: None
    code: int = 1


PREDICT = "predict duct.vtu --case duct.toml --model own --out out/flow.vtu"
FOAM = "predict channel --model own --out out/flow.vtu"
PLANE, PLANE_FOAM = PREDICT.replace(" --model own", ""), FOAM.replace(" --model own", "")
PLUGIN = PREDICT + " --plugin bad.py"
CONFIG, WEIGHTS, EXPECTED = "own/config.json", "own/model.safetensors", "own/expected_error.json"
NOT_FINITE = {
    "all": {
        "clues": [{"name": "a", "worse": True, "centre": math.nan, "scale": 1, "low": 0, "high": 1}],
        "unknowns": {},
        "cases": [],
    }
}
ENTITIES = "".join(f'<!ENTITY e{place + 1} "{f"&e{place};" * 10}">' for place in range(9))
BOMB = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "a">{ENTITIES}]><VTKFile type="UnstructuredGrid">&e9;</VTKFile>'

TABLE = [
    # Arguments
    Wrong("a subcommand that does not exist", "No such command 'predikt'", "predikt duct.vtu", code=2),
    Wrong("an option that does not exist", "--modle", "predict duct.vtu --modle flow", code=2),
    Wrong("no input", "Missing argument 'CASE'", "predict --model own", code=2),
    Wrong(
        "a mesh without conditions", "give its boundary conditions with --case", "predict duct.vtu --model own", code=2
    ),
    Wrong("conditions for what has its own", "leave out --case", FOAM + " --case duct.toml", code=2),
    Wrong("fields in a format that is none of ours", "must end in one of .vtu", PREDICT + " --out out/a.stl", code=2),
    Wrong("a picture in another format", "must end in one of .png", PREDICT + " --png out/a.gif", code=2),
    Wrong("a page in another format", "must end in one of .html", PREDICT + " --html out/a.pdf", code=2),
    Wrong("a folder in the place of a file", "is a folder", PREDICT, lambda f: (f / "out/flow.vtu").mkdir(), 2),
    Wrong("the input as the output", "is the input", PREDICT + " --out duct.vtu", code=2),
    Wrong("a time folder for a mesh", "only an OpenFOAM case", PREDICT + " --write-time 1", code=2),
    Wrong("a time that is none", "'soon' is not a time", FOAM + " --write-time soon", code=2),
    Wrong("a time before the start", "'-1' is not a time", FOAM + " --write-time=-1", code=2),
    Wrong("a time that leads out of the case", "is not a time", FOAM + " --write-time ../../1", code=2),
    Wrong("a length that is not a number", "should be a valid number", PREDICT + " --length wide", code=2),
    Wrong("a length of zero", "reference length is 0", PREDICT + " --length 0"),
    Wrong("a negative speed", "reference speed is -3", PREDICT + " --speed=-3"),
    Wrong("a speed that is not finite", "reference speed is nan", PREDICT + " --speed nan"),
    Wrong("a dataset of unknown kind", "'flwo'", "generate flwo --out out/data", code=2),
    Wrong(
        "an output below a file",
        "File exists: out/file",
        PREDICT + " --out out/file/flow.vtu",
        lambda f: (f / "out/file").write_text(""),
    ),
    Wrong("the demo's folder is a file", "File exists: duct.toml", "demo --out duct.toml"),
    # Mesh files
    Wrong("no mesh file", "there is no absent.vtu", "predict absent.vtu --case duct.toml --model own"),
    Wrong("an empty mesh file", "duct.vtu", PREDICT, lambda f: (f / "duct.vtu").write_bytes(b"")),
    Wrong("a mesh file cut in two", "duct.vtu", PREDICT, lambda f: truncated(f / "duct.vtu")),
    Wrong("a mesh file of noise", "duct.vtu", PREDICT, lambda f: (f / "duct.vtu").write_bytes(b"\x00\xff" * 500)),
    Wrong("a pipe in the place of a mesh", "duct.vtu is not a regular file", PREDICT, lambda f: fifo(f / "duct.vtu")),
    Wrong("a pipe to describe", "duct.vtu is not a regular file", "info duct.vtu", lambda f: fifo(f / "duct.vtu")),
    Wrong("a pipe as a case file", "duct.toml is not a regular file", PREDICT, lambda f: fifo(f / "duct.toml")),
    Wrong(
        "a pipe in an OpenFOAM case",
        "points is not a regular file",
        FOAM,
        lambda f: fifo(f / "channel/constant/polyMesh/points"),
    ),
    Wrong(
        "a mesh of 10^15 points", "duct.vtu is damaged: it announces 1,000,000,000,000,000 points", PREDICT, announcing
    ),
    Wrong(
        "a mesh that crashes VTK",
        "duct.vtk",  # what VTK finds there depends on its memory: most often a crash, sometimes no cells
        PREDICT.replace("duct.vtu", "duct.vtk"),
        crashing,
    ),
    Wrong(
        "a mesh of 10^11 rows",
        "duct.vtkhdf is damaged: its array 'VTKHDF/Points' announces 100,000,000,000 rows",
        PREDICT.replace("duct.vtu", "duct.vtkhdf"),
        huge_mesh,
    ),
    Wrong(
        "a case of 10^11 rows",
        "an array announces 100,000,000,000 rows",
        "info data/t0.2.vtkhdf",
        lambda f: huge_array(f / "data/t0.2.vtkhdf", "VTKHDF/Points"),
    ),
    Wrong(
        "two ducts that share one point",
        "touch only in points: Point 2 is shared",
        PREDICT,
        lambda f: mesh_of(f, ducts_that_touch),
    ),
    Wrong(
        "cells of second order where nothing is to be repaired",
        "is of second or higher order (VTK's cell type 23)",
        PREDICT + " --no-repair",
        lambda f: mesh_of(f, quadratic_square),
    ),
    Wrong(
        "cells of second order with --strict",
        "is of second or higher order (VTK's cell type 23)",
        PREDICT + " --strict",
        lambda f: mesh_of(f, quadratic_square),
    ),
    Wrong(
        "an empty file of Gmsh",
        "duct.msh is empty: it holds no mesh",
        PREDICT.replace("duct.vtu", "duct.msh"),
        lambda f: (f / "duct.msh").write_bytes(b""),
    ),
    Wrong(
        "noise as a file of Gmsh",
        "duct.msh is not a Gmsh file: it does not begin with $MeshFormat",
        PREDICT.replace("duct.vtu", "duct.msh"),
        lambda f: (f / "duct.msh").write_bytes(b"\x80\x81\xff" * 99),
    ),
    Wrong(
        "a mesh file of noise in VTK's older format",
        "duct.vtk",
        PREDICT.replace("duct.vtu", "duct.vtk"),
        lambda f: (f / "duct.vtk").write_text("# vtk DataFile Version 3.0\nnoise\nASCII\nDATASET NOTHING\n"),
    ),
    Wrong(
        "a mesh file of noise in VTK's newer format",
        "duct.vtkhdf",
        PREDICT.replace("duct.vtu", "duct.vtkhdf"),
        lambda f: (f / "duct.vtkhdf").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\x00" * 100),
    ),
    Wrong(
        "a mesh file of a kind that nobody reads",
        "duct.docx",
        PREDICT.replace("duct.vtu", "duct.docx"),
        lambda f: (f / "duct.docx").write_bytes(b"PK"),
    ),
    Wrong("points without cells", "no cells", PREDICT, lambda f: mesh_of(f, cloud)),
    Wrong("a surface that is not plane", "plane", PREDICT, lambda f: mesh_of(f, bent_surface)),
    Wrong(
        "a cell whose points run the wrong way round twice",
        "cell 0",
        PREDICT,
        lambda f: mesh_of(f, lambda: square(cells=((0, 2, 1, 3),))),
    ),
    Wrong("a point that is nowhere", "not finite", PREDICT, lambda f: mesh_of(f, lambda: square(not_a_number))),
    Wrong(
        "cells that lie on each other", "cell", PREDICT, lambda f: mesh_of(f, lambda: square(cells=((0, 1, 2, 3),) * 3))
    ),
    # Case files
    Wrong("no case file", "there is no case file absent.toml", PREDICT.replace("duct.toml", "absent.toml")),
    Wrong("a folder as case file", "there is no case file own", PREDICT.replace("duct.toml", "own")),
    Wrong("a case file that is no TOML", "not a TOML file", PREDICT, lambda f: text(f / "duct.toml", "[patches]", "[")),
    Wrong("a section misspelt", "'patchs'", PREDICT, lambda f: text(f / "duct.toml", "[patches]", "[patchs]")),
    Wrong(
        "a selection that would be Python",
        "Cannot read",
        PREDICT,
        lambda f: text(f / "duct.toml", "x == 0", "__import__('os').system('true')"),
    ),
    Wrong("a patch without points", "empty", PREDICT, lambda f: text(f / "duct.toml", "x == 0", "x == -1")),
    Wrong(
        "a patch that is not there",
        "no patch 'inlte'",
        PREDICT,
        lambda f: text(f / "duct.toml", "inlet = [", "inlte = ["),
    ),
    Wrong(
        "a velocity in space on a plane", "shape", PREDICT, lambda f: text(f / "duct.toml", "[1.0, 0.0]", "[1, 0, 0]")
    ),
    Wrong("a value that is infinite", "finite number", PREDICT, lambda f: text(f / "duct.toml", "1e-3", "inf")),
    Wrong("no viscosity", "parameter viscosity", PREDICT, lambda f: text(f / "duct.toml", "viscosity", "thickness")),
    Wrong("a negative viscosity", "must be positive", PREDICT, lambda f: text(f / "duct.toml", "1e-3", "-1e-3")),
    Wrong(
        "no prescribed pressure",
        "No pressure",
        PREDICT,
        lambda f: text(f / "duct.toml", "[dirichlet.p]", "[neumann.p]"),
    ),
    Wrong("no inlet", "no inlet", PREDICT, lambda f: text(f / "duct.toml", "[1.0, 0.0]", "[0, 0]")),
    Wrong("no walls", "no walls", PREDICT, lambda f: text(f / "duct.toml", "wall = 0.0", "wall = [1.0, 0.0]")),
    Wrong(
        "unknowns that the network does not solve for",
        "unknowns of the case are c, p, u",
        PREDICT,
        lambda f: (f / "duct.toml").write_text(CASE + "[initial]\nc = 1\n"),
    ),
    Wrong("a viscosity of almost nothing", "too small", PREDICT, lambda f: text(f / "duct.toml", "1e-3", "1e-320")),
    Wrong("a velocity that is infinite", "finite number", PREDICT, lambda f: text(f / "duct.toml", "[1.0,", "[inf,")),
    Wrong("a velocity that is no number", "finite number", PREDICT, lambda f: text(f / "duct.toml", "[1.0,", "[nan,")),
    Wrong(
        "a start that is no number",
        "finite number",
        PREDICT,
        lambda f: (f / "duct.toml").write_text(CASE + "[initial]\nu = [nan, 0.0]\np = 0.0\n"),
    ),
    Wrong(
        "a start from an array with a hole",
        "holds a value that is not finite",
        PREDICT,
        lambda f: (
            mesh_with(f, "start", math.nan),
            (f / "duct.toml").write_text(CASE + '[initial]\np = "start"\nu = [0.0, 0.0]\n'),
        ),
    ),
    Wrong(
        "a case file of two million bytes",
        "too many for a case file",
        PREDICT,
        lambda f: (f / "duct.toml").write_text("#" * 2_000_000),
    ),
    Wrong(
        "a case file nested without end",
        "cannot be read",
        PREDICT,
        lambda f: (f / "duct.toml").write_text("a = " + "[" * 10**5),
    ),
    # Networks
    Wrong("a network that does not exist", "no network 'flwo'", PREDICT.replace("--model own", "--model flwo")),
    Wrong("a folder without network", "holds no network", PREDICT.replace("--model own", "--model channel")),
    Wrong("a configuration cut in two", "config.json is damaged", PREDICT, lambda f: truncated(f / CONFIG)),
    Wrong("a configuration of another program", "another program", PREDICT, lambda f: (f / CONFIG).write_text("{}")),
    Wrong("a newer format", "Install a newer", PREDICT, lambda f: settings(f / CONFIG, format_version=7)),
    Wrong("a network of unknown kind", "'transformer'", PREDICT, lambda f: settings(f / CONFIG, network="transformer")),
    Wrong(
        "arguments that do not fit the weights", "do", PREDICT, lambda f: settings(f / CONFIG, arguments={"width": 8})
    ),
    Wrong("arguments that are no arguments", "config.json", PREDICT, lambda f: settings(f / CONFIG, arguments=[4])),
    Wrong(
        "a training range that is none",
        "training range",
        PREDICT,
        lambda f: settings(f / CONFIG, training_range={"a": 1}),
    ),
    Wrong("weights cut in two", "model.safetensors", PREDICT, lambda f: truncated(f / WEIGHTS)),
    Wrong("no weights", "no model.safetensors", PREDICT, lambda f: (f / WEIGHTS).unlink()),
    Wrong(
        "a pickle in the place of weights",
        "safetensors",
        PREDICT,
        lambda f: (
            (f / WEIGHTS).write_bytes(pickle.dumps({"weight": 1})),
            settings(f / CONFIG, weights_sha256=""),
        ),
    ),
    Wrong(
        "a network for another equation",
        "unknowns of the case are p, u",
        PREDICT.replace("--model own", "--model heat"),
    ),
    Wrong("a network that solves no problem", "needs one", PREDICT.replace("--model own", "--model gradient")),
    Wrong("fewer than no iterations", "iterations", PREDICT, lambda f: arguments(f / CONFIG, iterations=-1)),
    Wrong("a billion iterations", "iterations", PREDICT, lambda f: arguments(f / CONFIG, iterations=10**9)),
    Wrong("half an iteration", "iterations", PREDICT, lambda f: arguments(f / CONFIG, iterations=2.5)),
    Wrong("no channels", "width = 0", PREDICT, lambda f: arguments(f / CONFIG, width=0)),
    Wrong("fewer than no channels", "cannot be made", PREDICT, lambda f: arguments(f / CONFIG, width=-4)),
    Wrong("channels in words", "cannot be made", PREDICT, lambda f: arguments(f / CONFIG, width="wide")),
    Wrong("arguments that nobody knows", "cannot be made", PREDICT, lambda f: arguments(f / CONFIG, depth=3)),
    Wrong("a configuration that is a pipe", "config.json is a pipe", PREDICT, lambda f: fifo(f / CONFIG)),
    Wrong("weights that are a pipe", "model.safetensors is a pipe", PREDICT, lambda f: fifo(f / WEIGHTS)),
    Wrong("a configuration that is a folder", "config.json is a folder", PREDICT, lambda f: foldered(f / CONFIG)),
    Wrong("weights that are a folder", "model.safetensors is a folder", PREDICT, lambda f: foldered(f / WEIGHTS)),
    Wrong(
        "a configuration of eleven million bytes",
        "at most 10,000,000 are read",
        PREDICT,
        lambda f: (f / CONFIG).write_text(" " * 11_000_000),
    ),
    Wrong(
        "a configuration without end", "config.json is damaged", PREDICT, lambda f: (f / CONFIG).write_text("[" * 10**5)
    ),
    Wrong(
        "weights that are whole numbers", "torch.int64 instead of", PREDICT, lambda f: weights(f, lambda w: w.long())
    ),
    Wrong("weights that are no numbers", "not finite", PREDICT, lambda f: weights(f, lambda w: w * math.nan)),
    # OpenFOAM's cases
    Wrong(
        "an empty folder",
        "no constant/polyMesh",
        FOAM,
        lambda f: (shutil.rmtree(f / "channel"), (f / "channel").mkdir()),
    ),
    Wrong("no mesh", "blockMesh", FOAM, lambda f: shutil.rmtree(f / "channel/constant/polyMesh")),
    Wrong("no fields", "no field 'U'", FOAM, lambda f: shutil.rmtree(f / "channel/0")),
    Wrong("no controlDict", "controlDict", FOAM, lambda f: (f / "channel/system/controlDict").unlink()),
    Wrong("faces cut in two", "faces", FOAM, lambda f: truncated(f / "channel/constant/polyMesh/faces")),
    Wrong(
        "points of noise", "points", FOAM, lambda f: (f / "channel/constant/polyMesh/points").write_bytes(b"\xfe" * 99)
    ),
    Wrong(
        "a condition without counterpart",
        "Patch 'left', field 'U': the condition 'turbulentInlet'",
        FOAM,
        lambda f: text(f / "channel/0/U", "left { type fixedValue", "left { type turbulentInlet"),
    ),
    Wrong(
        "a patch without condition",
        "Patch 'top' has no condition for 'U'",
        FOAM,
        lambda f: text(f / "channel/0/U", '".*"', "bottom"),
    ),
    Wrong(
        "a value of the wrong kind", "value", FOAM, lambda f: text(f / "channel/0/U", "uniform (1 0 0)", "uniform 1")
    ),
    Wrong(
        "a field that calls code", "refused", FOAM, lambda f: text(f / "channel/0/p", "uniform 0;\n", '#calc "1+1";\n')
    ),
    Wrong(
        "a file from outside the case",
        "leads out of the case",
        FOAM,
        lambda f: text(f / "channel/0/p", "\ndim", '\n#include "../../duct.toml"\ndim'),
    ),
    Wrong("a field cut in two", "0/p", FOAM, lambda f: truncated(f / "channel/0/p")),
    Wrong(
        "a fluid that is not Newtonian",
        "CrossPowerLaw",
        FOAM,
        lambda f: write_dictionary(f / "channel/constant/transportProperties", {"transportModel": "CrossPowerLaw"}),
    ),
    Wrong(
        "no viscosity in the case",
        "gives no viscosity nu",
        FOAM,
        lambda f: (f / "channel/constant/transportProperties").unlink(),
    ),
    Wrong(
        "no pressure and no reference for it",
        "fvSolution",
        FOAM,
        lambda f: text(f / "channel/0/p", "type fixedValue; value uniform 0", "type zeroGradient"),
    ),
    Wrong(
        "an inlet across the plane",
        "component across the plane",
        FOAM,
        lambda f: text(f / "channel/0/U", "uniform (1 0 0)", "uniform (1 0 2)"),
    ),
    Wrong("a time that is there already", "0 exists already", FOAM + " --write-time 0"),
    Wrong(
        "a decomposed case without whole mesh",
        "reconstructParMesh",
        FOAM + " --write-time 1",
        lambda f: (f / "channel/constant/polyMesh").rename(f / "channel/processor0"),
    ),
    Wrong("a field that is a pipe", "no field 'p'", FOAM, lambda f: fifo(f / "channel/0/p")),
    Wrong(
        "properties that are a pipe",
        "gives no viscosity nu",
        FOAM,
        lambda f: fifo(f / "channel/constant/transportProperties"),
    ),
    Wrong(
        "files that include twelve others, six deep",
        "includes more than 200 others",
        FOAM,
        lambda f: (
            (f / "channel/0/level6").write_text("a 1;"),
            [(f / f"channel/0/level{depth}").write_text(f'#include "level{depth + 1}"\n' * 12) for depth in range(6)],
            text(f / "channel/0/p", "\ndim", '\n#include "level0"\ndim'),
        ),
    ),
    Wrong(
        "macros that double sixty times",
        "macros stand for more than",
        FOAM,
        lambda f: text(
            f / "channel/0/p", "\ndim", "\na0 (1 1);" + "".join(f"a{k + 1} ($a{k} $a{k});" for k in range(60)) + "\ndim"
        ),
    ),
    Wrong(
        "dictionaries a hundred deep",
        "nested more than 64 deep",
        FOAM,
        lambda f: text(f / "channel/0/p", "\ndim", "\na" + "{b" * 100 + "\ndim"),
    ),
    Wrong(
        "a packed field of zeros without end",
        "p.gz unpacks to more than",
        FOAM,
        lambda f: (
            (f / "channel/0/p").unlink(),
            (f / "channel/0/p.gz").write_bytes(gzip.compress(bytes(80_000_000), 1)),
        ),
    ),
    Wrong(
        "a packed field cut in two",
        "cannot be unpacked",
        FOAM,
        lambda f: (
            (f / "channel/0/p.gz").write_bytes(gzip.compress((f / "channel/0/p").read_bytes())[:-9]),
            (f / "channel/0/p").unlink(),
        ),
    ),
    Wrong(
        "a velocity beyond all numbers",
        "not finite",
        FOAM,
        lambda f: text(f / "channel/0/U", "uniform (1 0 0)", "uniform (1e400 0 0)"),
    ),
    Wrong(
        "a start beyond all numbers",
        "not finite",
        FOAM,
        lambda f: text(f / "channel/0/U", "internalField uniform (0 0 0)", "internalField uniform (1e400 0 0)"),
    ),
    Wrong(
        "a fluid of almost no viscosity",
        "too small",
        FOAM,
        lambda f: text(f / "channel/constant/transportProperties", "0.01", "1e-320"),
    ),
    Wrong(
        "a viscosity in words",
        "must be a number",
        FOAM,
        lambda f: text(f / "channel/constant/transportProperties", "0.01", "thick"),
    ),
    Wrong(
        "a case of two fluids",
        "several phases",
        FOAM,
        lambda f: write_dictionary(f / "channel/constant/transportProperties", {"phases": "(water air)"}),
    ),
    Wrong(
        "a turbulent case where warnings are errors",
        "simulationType RAS",
        FOAM + " --strict --force",
        lambda f: write_dictionary(f / "channel/constant/turbulenceProperties", {"simulationType": "RAS"}),
    ),
    Wrong(
        "a body force where warnings are errors",
        "fvOptions adds push (meanVelocityForce)",
        FOAM + " --strict --force",
        lambda f: write_dictionary(f / "channel/system/fvOptions", {"push": {"type": "meanVelocityForce"}}),
    ),
    Wrong(
        "another time where warnings are errors",
        "--write-time 99 is not the predicted time",
        FOAM + " --write-time 99 --strict",
    ),
    # Datasets and experiments
    Wrong("a dataset without manifest", "not a dataset: it has no manifest.json", "info own"),
    Wrong(
        "a manifest cut in two",
        "manifest.json cannot be read",
        "info data",
        lambda f: truncated(f / "data/manifest.json"),
    ),
    Wrong(
        "a manifest of another program",
        "not the manifest",
        "info data",
        lambda f: (f / "data/manifest.json").write_text("[]"),
    ),
    Wrong(
        "a newer dataset",
        "install a newer pennpde",
        "info data",
        lambda f: settings(f / "data/manifest.json", version=9),
    ),
    Wrong(
        "a manifest that reaches elsewhere",
        "must be in the same folder",
        "info data",
        lambda f: text(f / "data/manifest.json", '"t0.2.vtkhdf"', '"../rows.toml"'),
    ),
    Wrong(
        "a case cut in two",
        "t0.2.vtkhdf is damaged",
        "evaluate heat data --split train",
        lambda f: truncated(f / "data/t0.2.vtkhdf"),
    ),
    Wrong(
        "a case that is missing",
        "t0.4.vtkhdf is missing",
        "evaluate heat data",
        lambda f: (f / "data/t0.4.vtkhdf").unlink(),
    ),
    Wrong(
        "a case file that is none", "duct.vtkhdf", "info duct.vtkhdf", lambda f: (f / "duct.vtkhdf").write_bytes(b"no")
    ),
    Wrong("a split that is not there", "no split 'exam'", "evaluate heat data --split exam"),
    Wrong(
        "an experiment that is no TOML",
        "rows.toml",
        "train rows.toml --data data --out out/run",
        lambda f: text(f / "rows.toml", "[common]", "["),
    ),
    Wrong(
        "a setting misspelt",
        "lerning_rate",
        "train rows.toml --data data --out out/run",
        lambda f: text(f / "rows.toml", "steps = 2", "lerning_rate = 2"),
    ),
    Wrong("a row that is not there", "'pen'", "train rows.toml --row pen --data data --out out/run"),
    # Datasets, records and pictures
    Wrong(
        "a manifest that is a pipe", "manifest.json is a pipe", "info data", lambda f: fifo(f / "data/manifest.json")
    ),
    Wrong(
        "a manifest without end",
        "manifest.json cannot be read",
        "info data",
        lambda f: (f / "data/manifest.json").write_text("[" * 10**5),
    ),
    Wrong(
        "a case that is a pipe", "t0.4.vtkhdf is a pipe", "evaluate heat data", lambda f: fifo(f / "data/t0.4.vtkhdf")
    ),
    Wrong(
        "an experiment that is a pipe",
        "rows.toml is a pipe",
        "train rows.toml --data data --out out/run",
        lambda f: fifo(f / "rows.toml"),
    ),
    Wrong("a network on data of another equation", "unknowns", "evaluate own data"),
    Wrong("a device that does not exist", "'gpu'", "evaluate heat data --device gpu", code=2),
    Wrong("a device to train on that does not exist", "'gpu'", "train data --out out/run --device gpu", code=2),
    Wrong("the same data twice", "once more", "train rows.toml --data data --also data --out out/run"),
    Wrong("a case that a dataset does not have", "nothing", "generate gradient --out out/data --only nothing"),
    Wrong("fewer than no workers", "--workers", "generate gradient --out out/data --workers=-1", code=2),
    Wrong("records that are none", "rows.toml", "report rows.toml"),
    Wrong("no records", "absent", "report absent"),
    Wrong("a picture of nothing", "nothing to draw", "info --png out/a.png"),
    Wrong("a picture in an unknown format", "must end in one of .png", "info data --png out/a.xyz", code=2),
    Wrong("a case of a dataset that it lacks", "t9", "info data --case t9"),
    Wrong(
        "rows that are a list",
        "rows is [1, 2], which is no table; a row is a table [rows.NAME]",
        "train rows.toml --data data --out out/run",
        lambda f: (f / "rows.toml").write_text("rows = [1, 2]"),
    ),
    Wrong(
        "a width in words",
        "width = 'wide': it must be a whole number from 1 to 4096",
        "train rows.toml --data data --out out/run",
        lambda f: text(f / "rows.toml", "width = 4", 'width = "wide"'),
    ),
    Wrong(
        "a huge width",
        "width = 1000000000: it must be a whole number from 1 to 4096",
        "train rows.toml --data data --out out/run",
        lambda f: text(f / "rows.toml", "width = 4", "width = 1_000_000_000"),
    ),
    Wrong(
        "a width of zero",
        "width = 0: it must be a whole number",
        "train rows.toml --data data --out out/run",
        lambda f: text(f / "rows.toml", "width = 4", "width = 0"),
    ),
    Wrong(
        "arguments that are no table",
        "arguments is 3, which is no table",
        "train rows.toml --data data --out out/run",
        lambda f: text(f / "rows.toml", "arguments = { width = 4, iterations = 2, hidden = 8 }", "arguments = 3"),
    ),
    Wrong(
        "a dataset without training cases",
        "data has no training cases: a dataset to train on has a split 'train'. Its splits are validation (1 cases)",
        "train data --out out/run",
        lambda f: text(f / "data/manifest.json", '"train": ["t0.2"],', ""),
    ),
    Wrong(
        "a split without cases",
        "data has no training cases",
        "train rows.toml --data data --out out/run",
        lambda f: text(f / "data/manifest.json", '"train": ["t0.2"]', '"train": []'),
    ),
    Wrong(
        "a start of another equation",
        "solves for p, u, but the unknowns of the case are T",
        "train data --from own --out out/run --steps 1",
    ),
    Wrong("a start that is not there", "no network 'flaw'", "train data --from flaw --out out/run"),
    Wrong(
        "a start of another network than the row",
        "is a network 'ducts', but the row 'penn' of rows.toml trains 'advection-diffusion'",
        "train rows.toml --data data --from own --out out/run",
        code=2,
    ),
    Wrong(
        "a start of another size than the row",
        "asks for another network than --from heat: width = 8 (it has 4)",
        "train rows.toml --data data --from heat --out out/run",
        lambda f: text(f / "rows.toml", "width = 4", "width = 8"),
        code=2,
    ),
    Wrong(
        "layers to freeze that are not there",
        "--freeze decoder matches no parameter; the network has",
        "train data --from heat --freeze decoder --out out/run",
    ),
    Wrong(
        "a file without its dataset",
        "give the folder of the dataset with --data",
        "train rows.toml --out out/run",
        code=2,
    ),
    Wrong("a dataset twice", "--data belongs to a TOML file", "train data --data data --out out/run", code=2),
    Wrong("a row of a dataset", "--row chooses a row of a TOML file", "train data --row penn --out out/run", code=2),
    Wrong("a network into the dataset", "is the folder of the dataset", "train data --out data", code=2),
    Wrong(
        "a source that is not there",
        "no dataset and no TOML file nothing.toml",
        "train nothing.toml --data data --out out/run",
        code=2,
    ),
    Wrong("a dataset that is not there", "no dataset and no TOML file nothing", "train nothing --out out/run", code=2),
    Wrong(
        "times without a step",
        "it needs three numbers: first, last and step",
        "collect channel --out out/set --time 0:4",
    ),
    Wrong("times without number", "there are inf times", "collect channel --out out/set --time 0:1e300:1e-300"),
    # Tried later
    Wrong("a time with a sign", "'+1' is not a time", FOAM + " --write-time +1", code=2),
    Wrong("a time in digits of another script", "is not a time", FOAM + " --write-time \u0664", code=2),
    Wrong("a time in hexadecimal digits", "is not a time", FOAM + " --write-time 0x10", code=2),
    Wrong("a time that is infinite", "is not a time", FOAM + " --write-time inf", code=2),
    Wrong("no time at all", "is not after the start", PLANE + " --time nan", code=2),
    Wrong("a time that would take for ever", "at most 10,000 are predicted", PLANE + " --time 1e300"),
    Wrong("times that run backwards", "must have a positive interval", PLANE + " --times 4:1:1", code=2),
    Wrong("times that repeat", "that increase", PLANE + " --times 1,1,2", code=2),
    Wrong("a million times", "has more than 1000 times", PLANE + " --times 1:1000000:1", code=2),
    Wrong("several times in a file for one", "holds one time, but 2 are asked for", PLANE + " --times 1,2", code=2),
    Wrong("an animation of one time", "needs several times", PLANE + " --time 1 --animation out/a.gif", code=2),
    Wrong("a length of zero for any flow", "reference length is 0.0", PLANE + " --length 0"),
    Wrong("a length of another unit", "the mesh is 3.16 across", PLANE + " --length 1e300"),
    Wrong("a speed beyond all numbers", "reference speed is 1e+300", PLANE + " --speed 1e300"),
    Wrong("a speed of almost nothing", "reference speed is 1e-300", PLANE + " --speed 1e-300"),
    Wrong("a pipe as output", "is a pipe or a device", PREDICT, lambda f: os.mkfifo(f / "out/flow.vtu"), 2),
    Wrong(
        "a pipe as picture",
        "is a pipe or a device",
        PREDICT + " --png out/a.png",
        lambda f: os.mkfifo(f / "out/a.png"),
        2,
    ),
    Wrong(
        "a link to nowhere as output",
        "No such file or directory",
        PREDICT,
        lambda f: (f / "out/flow.vtu").symlink_to(f / "nowhere/flow.vtu"),
    ),
    Wrong("a name of 300 letters", "File name too long", PREDICT + f" --out out/{'a' * 300}.vtu"),
    Wrong(
        "a case file of another encoding",
        "is not a TOML file",
        PREDICT,
        lambda f: (f / "duct.toml").write_bytes(CASE.encode("utf-16")),
    ),
    Wrong("a viscosity as text", "give a finite number", PREDICT, lambda f: text(f / "duct.toml", "1e-3", '"1e-3"')),
    Wrong("a viscosity that is a switch", "is True", PREDICT, lambda f: text(f / "duct.toml", "1e-3", "true")),
    Wrong("a viscosity of zero", "must be positive", PLANE, lambda f: text(f / "duct.toml", "1e-3", "0.0")),
    Wrong("a selection of a power", "not finite", PREDICT, lambda f: text(f / "duct.toml", "x == 0", "x == 9**9**9")),
    Wrong(
        "a selection of 200,000 letters",
        "too many; 10000 are allowed",
        PREDICT,
        lambda f: text(f / "duct.toml", "x == 0", " or ".join(["x == 0"] * 20000)),
    ),
    Wrong(
        "a selection that is a number", "write a comparison", PREDICT, lambda f: text(f / "duct.toml", '"x == 0"', "0")
    ),
    Wrong(
        "patches that are a list",
        "it must be a table",
        PREDICT,
        lambda f: (f / "duct.toml").write_text("patches = [1]"),
    ),
    Wrong(
        "a velocity of words",
        "which is no expression because of 'fast'",
        PREDICT,
        lambda f: text(f / "duct.toml", "[1.0, 0.0]", '["fast", "slow"]'),
    ),
    Wrong(
        "a velocity of almost nothing",
        "too small",
        PREDICT,
        lambda f: text(f / "duct.toml", "[1.0, 0.0]", "[1e-320, 0.0]"),
    ),
    Wrong(
        "a turbulence model in the case file",
        "has the sections ['turbulence']",
        PREDICT,
        lambda f: (f / "duct.toml").write_text(CASE + '[turbulence]\nmodel = "kOmega"\n'),
    ),
    Wrong("a plugin that is not there", "There is no plugin nothing.py", PREDICT + " --plugin nothing.py"),
    Wrong("a plugin that fails", "bad.py cannot be loaded: ZeroDivisionError", PLUGIN, lambda f: plugin(f, "1 / 0")),
    Wrong("a plugin that is no Python", "bad.py cannot be loaded: SyntaxError", PLUGIN, lambda f: plugin(f, "def (")),
    Wrong(
        "a plugin that ends the command", "bad.py cannot be loaded", PLUGIN, lambda f: plugin(f, "raise SystemExit(0)")
    ),
    Wrong("a calibration that is a pipe", "expected_error.json is a pipe", PREDICT, lambda f: os.mkfifo(f / EXPECTED)),
    Wrong(
        "a calibration that is a folder", "expected_error.json is a folder", PREDICT, lambda f: (f / EXPECTED).mkdir()
    ),
    Wrong("half a calibration", "expected_error.json is damaged", PREDICT, lambda f: (f / EXPECTED).write_text("{")),
    Wrong(
        "a calibration of other weights",
        "belongs to other weights",
        PREDICT,
        lambda f: calibration(f, weights_sha256="x"),
    ),
    Wrong("a calibration without parts", "is damaged", PREDICT, calibration),
    Wrong("a calibration that holds NaN", "is not finite", PREDICT, lambda f: calibration(f, parts=NOT_FINITE)),
    Wrong("calibrating what predicts nothing", "is no Predictor", "calibrate gradient data"),
    Wrong("calibrating with another equation", "is left out: The network solves for p, u", "calibrate own data"),
    Wrong("calibrating with nothing", "there is no dataset nowhere", "calibrate own nowhere"),
    Wrong("calibrating into a file", "File exists", "calibrate heat data --out duct.toml"),
    Wrong(
        "measured cases in a pipe",
        "is a pipe, not a file",
        "calibrate heat data --cache out/kept",
        lambda f: os.mkfifo(f / "out/kept"),
    ),
    Wrong(
        "a network from a local address",
        "https addresses only",
        PREDICT.replace("--model own", "--model file:///etc/x"),
    ),
    Wrong(
        "a packed network of noise",
        "junk.zip is damaged",
        PREDICT.replace("--model own", "--model junk.zip"),
        lambda f: (f / "junk.zip").write_bytes(b"PK\3\4junk"),
    ),
    Wrong(
        "a case with 0.orig only",
        "It has 0.orig; copy that to 0 first",
        FOAM,
        lambda f: (f / "channel/0").rename(f / "channel/0.orig"),
    ),
    Wrong(
        "two fluids in the older form",
        "several phases, phase1, phase2",
        FOAM,
        lambda f: write_dictionary(
            f / "channel/constant/transportProperties", {"phase1": {"nu": "1e-6"}, "phase2": {"nu": "1e-5"}}
        ),
    ),
    Wrong(
        "a dynamic viscosity where warnings are errors",
        "nu has the dimensions [1 -1 -1 0 0 0 0]",
        FOAM + " --strict",
        lambda f: write_dictionary(f / "channel/constant/transportProperties", {"nu": "[1 -1 -1 0 0 0 0] 0.001"}),
    ),
    Wrong(
        "a table that runs backwards",
        "must increase from row to row",
        FOAM,
        lambda f: text(
            f / "channel/0/U",
            "type fixedValue; value uniform (1 0 0)",
            "type uniformFixedValue; uniformValue table ((1 (1 0 0)) (0 (0 0 0)))",
        ),
    ),
    Wrong(
        "a pattern that never ends",
        "might not terminate",
        FOAM,
        lambda f: text(f / "channel/0/p", '".*"', '"(a+)+$|.*"'),
    ),
    Wrong(
        "more faces than there are",
        "has the faces 17 to 3000000016",
        FOAM,
        lambda f: text(f / "channel/constant/polyMesh/boundary", "nFaces 3;", "nFaces 3000000000;"),
    ),
    Wrong(
        "points that are announced only",
        "is truncated or damaged",
        FOAM,
        lambda f: text(f / "channel/constant/polyMesh/points", "\n40\n", "\n1000000000000000\n"),
    ),
    Wrong(
        "entities that stand for a billion letters",
        "duct.vtu is damaged",
        PREDICT,
        lambda f: (f / "duct.vtu").write_text(BOMB),
    ),
]


@pytest.mark.parametrize("wrong", TABLE, ids=lambda wrong: wrong.what)
def test_a_wrong_input_is_told_in_words_and_leaves_no_file(wrong, sound, tmp_path, monkeypatch):
    folder = shutil.copytree(sound, tmp_path / "here")
    (folder / "out").mkdir()
    wrong.spoil(folder)
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    finished = penn(*wrong.arguments.split())
    assert finished.exit_code == wrong.code, finished.output
    assert wrong.words in " ".join(finished.stderr.replace("│", " ").split())
    assert finished.stdout == ""
    assert "Traceback" not in finished.stderr
    assert "looks like a bug" not in finished.stderr
    assert sorted(folder.rglob("*")) == before


def test_the_table_is_long_enough_and_no_row_is_there_twice():
    assert len(TABLE) >= 210
    assert len({wrong.what for wrong in TABLE}) == len(TABLE)


def test_a_folder_that_is_almost_a_time_is_none(sound, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    Path("channel/1.2.3").mkdir()
    finished = penn(*FOAM.split(), "--write-time", "4")
    assert finished.exit_code == 0, finished.stderr
    assert Path("channel/4/U").is_file()


def test_an_output_that_is_a_link_is_written_through(sound, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    Path("store").mkdir()
    Path("out").mkdir()
    Path("out/flow.vtu").symlink_to(Path("store/flow.vtu").resolve())
    assert penn(*PREDICT.split()).exit_code == 0
    assert Path("out/flow.vtu").is_symlink()
    assert Path("store/flow.vtu").is_file()


def test_all_is_well_where_nothing_is_spoilt(sound, tmp_path, monkeypatch):
    """Otherwise the rows could fail for other reasons than theirs."""
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    for arguments in (PREDICT, FOAM + " --write-time 1", "info data", "evaluate heat data --json"):
        finished = penn(*arguments.split())
        assert finished.exit_code == 0, finished.stderr
