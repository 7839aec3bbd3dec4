"""Finished simulations without a solver: flow between two walls and a scalar, as OpenFOAM cases and as VTK files."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from foam_cases import write_brick, write_dictionary
from pennlab.datasets.split_quads import triangulated
from pennpde import openfoam
from pennpde.mesh import Mesh
from pennpde.openfoam import Dimensions, NonUniform, PolyMesh, Uniform

SPEED = 0.5
NO_PICTURE = b"no picture, but the end of one: IEND\xaeB`\x82"
"""What is written where pictures would take longer than all the rest."""
EMPTY = {"front": {"type": "empty"}, "back": {"type": "empty"}}
PROBLEM = """
[patches]
inlet = "x == 0"
outlet = "x == 1"
wall = "rest"

[dirichlet.u]
inlet = [0.5, 0.0]
wall = 0.0

[dirichlet.p]
outlet = 0.0

[neumann]
u = 0.0
p = 0.0

[parameters]
viscosity = 0.01
"""


def velocity(places: np.ndarray, time: float = 1.0) -> np.ndarray:
    """Growing with time, linear in space."""
    return time * np.stack([0.3 + 0.2 * places[:, 0] - 0.1 * places[:, 1], 0.05 - 0.2 * places[:, 1]], axis=1)


def pressure(places: np.ndarray, time: float = 1.0) -> np.ndarray:
    return time * (1.0 - places[:, 0] + 0.5 * places[:, 1])


def channel(
    folder: Path,
    shape: tuple[int, int, int] = (5, 4, 1),
    times: Sequence[float] = (0.5, 1.0),
    end: float | None = None,
    viscosity: float = 0.01,
    speed: float = SPEED,
    scale: float = 1.0,
    plane: bool = True,
    shear: float = 0.0,
    pressure_units: tuple[int, ...] = (0, 2, -2, 0, 0, 0, 0),
    binary: bool = False,
    packed: bool = False,
    fields: Sequence[str] = ("U", "p"),
    patches: dict[str, str] | None = None,
    known: bool = False,
) -> Path:
    """An OpenFOAM case with results: U and p are linear in space.

    `known`: also on all faces, where otherwise walls rest and the inlet has its speed.
    """
    types = {"front": "empty", "back": "empty"} if plane else {}
    write_brick(folder, shape, binary, shear, types)
    if scale != 1.0:
        _scale(folder, scale)
    if patches:
        boundary = folder / "constant" / "polyMesh" / "boundary"
        text = boundary.read_text()
        for old, new in patches.items():
            text = text.replace(f"{old} {{", f"{new} {{")
        boundary.write_text(text)
    write_dictionary(
        folder / "system" / "controlDict",
        {"application": "icoFoam", "startTime": 0, "deltaT": 0.1, "endTime": max(times) if end is None else end},
    )
    nu = {"nu": (openfoam.VISCOSITY, viscosity)}
    write_dictionary(folder / "constant" / "transportProperties", nu)
    mesh = PolyMesh.read(folder)
    for time in (0.0, *times):
        conditions = _conditions(mesh, time, speed, plane, known)
        inside = mesh.cell_centres / scale
        values = {
            "U": np.concatenate([velocity(inside, time), np.zeros((len(inside), 1))], axis=1),
            "p": pressure(inside, time),
        }
        dimensions = {"U": openfoam.VELOCITY, "p": Dimensions(pressure_units)}
        (folder / f"{time:g}").mkdir(exist_ok=True)
        for name in fields if time else ("U", "p"):
            path = folder / f"{time:g}" / name
            if binary:
                openfoam.write_field(path, values[name], dimensions[name], conditions[name])
            else:
                entries = {
                    "dimensions": dimensions[name],
                    "internalField": NonUniform(values[name]) if time else Uniform(0.0 * values[name][0]),
                    "boundaryField": conditions[name],
                }
                kind = "volVectorField" if name == "U" else "volScalarField"
                write_dictionary(path, entries, kind)
    if packed:
        pack_files(folder)
    return folder


def pack_files(folder: Path) -> None:
    """Compress mesh and fields, as `writeCompression on` does."""
    mesh = [path for path in folder.glob("constant/polyMesh/*") if path.name != "boundary"]
    for path in [*mesh, *folder.glob("[0-9]*/*"), *folder.glob("processor*/[0-9]*/*")]:
        if path.is_file() and path.suffix != ".gz":
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()


def _scale(folder: Path, scale: float) -> None:
    mesh = PolyMesh.read(folder)
    path = folder / "constant" / "polyMesh" / "points"
    header = path.read_bytes().split(b"\n", 1)[0]
    rows = "\n".join(f"({x:.17g} {y:.17g} {z:.17g})" for x, y, z in mesh.points * scale)
    path.write_bytes(header + f"\n{len(mesh.points)}\n(\n{rows}\n)\n".encode())


def _conditions(mesh: PolyMesh, time: float, speed: float, plane: bool, known: bool) -> dict[str, dict]:
    def of(name: str, function: Callable[[np.ndarray, float], np.ndarray]) -> NonUniform:
        centres = mesh.face_centres[mesh.patches[name].faces]
        values = function(centres, time)
        return NonUniform(values if values.ndim == 1 else np.concatenate([values, 0.0 * values[:, :1]], axis=1))

    resting = {"type": "noSlip"}
    free = {"type": "zeroGradient"}
    inflow = {"type": "fixedValue", "value": Uniform(np.array([speed, 0.0, 0.0]))}
    names = list(mesh.patches)
    left, right = names[0], names[1]
    others = [name for name in names[2:] if not (plane and name in EMPTY)]
    outflow = {"type": "inletOutlet", "inletValue": Uniform(np.zeros(3)), "value": of(right, velocity)}
    level = {"type": "fixedValue", "value": Uniform(0.0)}
    empty = EMPTY if plane else {}
    if known:
        given = {"U": velocity, "p": pressure}
        sides = [left, right, *others]
        return {
            field: {side: {"type": "fixedValue", "value": of(side, function)} for side in sides} | empty
            for field, function in given.items()
        }
    return {
        "U": {left: inflow, right: outflow if time else free, **dict.fromkeys(others, resting), **empty},
        "p": {left: free, right: level, **dict.fromkeys(others, free), **empty},
    }


def square(cells: int = 6, triangles: bool = False) -> Mesh:
    """The unit square."""
    line = np.linspace(0.0, 1.0, cells + 1)
    points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    first = (np.arange(cells)[:, None] * (cells + 1) + np.arange(cells)).ravel()
    quads = np.stack([first, first + cells + 1, first + cells + 2, first + 1], axis=1)
    mesh = Mesh.from_arrays(points, quads)
    return triangulated(mesh) if triangles else mesh


def grid_at(mesh: Mesh, time: float, in_cells: bool = False):
    """A PyVista grid with u and p at a time, at points or in cells."""
    from pennpde.mesh.interpolation import cell_centres

    grid = mesh.to_pyvista()
    places = cell_centres(mesh) if in_cells else mesh.points.numpy()
    data = grid.cell_data if in_cells else grid.point_data
    data["U"] = np.concatenate([velocity(places, time), np.zeros((len(places), 1))], axis=1)
    data["p"] = pressure(places, time)
    return grid


def no_picture(path: Path, *_: object, **__: object) -> None:
    """In place of `draw_all`, which takes longer than all the rest: a picture of one point."""
    import base64

    point = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
    path.write_bytes(base64.b64decode(point))
