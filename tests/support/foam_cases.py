"""OpenFOAM cases written without OpenFOAM: bricks of hexahedra, in text or binary."""

from pathlib import Path
from typing import Any

import numpy as np

from pennpde.case import Case
from pennpde.models.ducts import Flow
from pennpde.openfoam import format_dictionary, read_case

SIDES = {"left": (0, 0), "right": (0, 1), "bottom": (1, 0), "top": (1, 1), "back": (2, 0), "front": (2, 1)}
WALLS = dict.fromkeys(SIDES, "type zeroGradient;")
RESTING = dict.fromkeys(SIDES, "type noSlip;")


def write_brick(
    folder: Path,
    shape: tuple[int, int, int] = (3, 2, 2),
    binary: bool = False,
    shear: float = 0.0,
    types: dict[str, str] | None = None,
    groups: dict[str, str] | None = None,
    height: float = 1.0,
) -> Path:
    """A case with the mesh of a brick, its six sides as patches, and the files that readers insist on.

    Args:
        folder: to be made.
        shape: cells along each axis.
        binary: the format of the lists.
        shear: by how much x grows with y.
        types: OpenFOAM's type of some patches, `patch` otherwise.
        groups: a group that some patches are in.
        height: extent in z.
    """
    number = np.arange(np.prod(np.array(shape) + 1)).reshape(np.array(shape)[::-1] + 1).transpose(2, 1, 0)
    places = np.argwhere(np.ones(np.array(shape) + 1))
    points = np.zeros((number.size, 3))
    points[number[tuple(places.T)]] = places / np.array(shape) * [1.0, 1.0, height]
    points[:, 0] += shear * points[:, 1]
    cell = np.arange(np.prod(shape)).reshape(np.array(shape)[::-1]).transpose(2, 1, 0)
    inner: list[tuple[int, int, list[int]]] = []
    outer: dict[str, list[tuple[int, list[int]]]] = {name: [] for name in SIDES}
    for place in np.ndindex(*shape):
        for name, (axis, end) in SIDES.items():
            face = _face(number, place, axis, end)
            beyond = list(place)
            beyond[axis] += 1 if end else -1
            if not 0 <= beyond[axis] < shape[axis]:
                outer[name].append((int(cell[place]), face))
            elif end:
                inner.append((int(cell[place]), int(cell[tuple(beyond)]), face))
    inner.sort(key=lambda row: row[:2])
    faces = [face for _, _, face in inner] + [face for rows in outer.values() for _, face in rows]
    owner = [first for first, _, _ in inner] + [first for rows in outer.values() for first, _ in rows]
    mesh = folder / "constant" / "polyMesh"
    mesh.mkdir(parents=True)
    _write_list(mesh / "points", "vectorField", "List<vector>", points, binary)
    _write_list(mesh / "owner", "labelList", "List<label>", np.array(owner), binary)
    _write_list(mesh / "neighbour", "labelList", "List<label>", np.array([second for _, second, _ in inner]), binary)
    _write_faces(mesh / "faces", faces, binary)
    start, rows = len(inner), []
    for name, given in outer.items():
        group = f"inGroups 1({groups[name]}); " if groups and name in groups else ""
        kind = (types or {}).get(name, "patch")
        rows.append(f"{name} {{ type {kind}; {group}nFaces {len(given)}; startFace {start}; }}")
        start += len(given)
    (mesh / "boundary").write_text(
        _header("boundary", "polyBoundaryMesh", False) + f"{len(rows)}\n(\n" + "\n".join(rows) + "\n)\n"
    )
    write_dictionary(folder / "system" / "controlDict", {"application": "icoFoam", "startTime": 0, "deltaT": 1})
    write_dictionary(folder / "constant" / "transportProperties", {"nu": "[0 2 -1 0 0 0 0] 0.01"})
    return folder


def write_dictionary(path: Path, entries: dict[str, Any], kind: str = "dictionary") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_dictionary(path.name, entries, kind))


def write_conditions(folder: Path, name: str, internal: str, boundary: dict[str, str], extra: str = "") -> None:
    """A field file whose patches are given as the text between braces."""
    kind = "volVectorField" if "(" in internal else "volScalarField"
    patches = "\n".join(f"{patch} {{ {text} }}" for patch, text in boundary.items())
    text = f"{extra}\ndimensions [0 0 0 0 0 0 0];\ninternalField {internal};\nboundaryField\n{{\n{patches}\n}}\n"
    (folder / "0").mkdir(exist_ok=True)
    (folder / "0" / name).write_text(_header(name, kind, False) + text)


def flow_case(tmp_path: Path, velocity: dict[str, str], pressure: dict[str, str] | None = None, **options) -> Path:
    """A brick of fluid at rest between walls, but for what is given of some patches."""
    folder = write_brick(tmp_path / "case", **options)
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | velocity)
    write_conditions(folder, "p", "uniform 0", WALLS | (pressure or {}))
    return folder


def write_plane_channel(folder: Path, shape: tuple[int, int, int] = (4, 3, 1)) -> Path:
    """Flow from left to right between two walls, one cell thick."""
    write_brick(folder, shape, types={"front": "empty", "back": "empty"})
    inlet, outlet = {"left": "type fixedValue; value uniform (1 0 0);"}, {"right": "type fixedValue; value uniform 0;"}
    empty = {"front": "type empty;", "back": "type empty;"}
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | inlet | {"right": "type zeroGradient;"} | empty)
    write_conditions(folder, "p", "uniform 0", WALLS | outlet | empty)
    return folder


def _face(number: np.ndarray, place: tuple[int, ...], axis: int, end: int) -> list[int]:
    """The points of one side of a cell, its normal pointing out of the cell."""
    first, second = (axis + 1) % 3, (axis + 2) % 3
    face = []
    for step in ((0, 0), (1, 0), (1, 1), (0, 1)):
        corner = list(place)
        corner[axis] += end
        corner[first] += step[0]
        corner[second] += step[1]
        face.append(int(number[tuple(corner)]))
    return face if end else face[::-1]


def _header(name: str, kind: str, binary: bool) -> str:
    layout = 'format binary; arch "LSB;label=32;scalar=64";' if binary else "format ascii;"
    return f"FoamFile {{ version 2.0; {layout} class {kind}; object {name}; }}\n"


def _write_list(path: Path, kind: str, _type: str, values: np.ndarray, binary: bool) -> None:
    header = _header(path.name, kind, binary).encode() + f"\n{len(values)}\n(".encode()
    if binary:
        stored = "<i4" if values.dtype.kind == "i" else "<f8"
        path.write_bytes(header + values.astype(stored).tobytes() + b")\n")
    else:
        rows = [str(row) if np.ndim(row) == 0 else "(" + " ".join(f"{x:.17g}" for x in row) + ")" for row in values]
        path.write_bytes(header + "\n".join(rows).encode() + b"\n)\n// the end\n")


def _write_faces(path: Path, faces: list[list[int]], binary: bool) -> None:
    if binary:
        offsets = np.cumsum([0, *map(len, faces)])
        blocks = [offsets.astype("<i4"), np.concatenate(faces).astype("<i4")]
        body = b"".join(f"\n{len(block)}\n(".encode() + block.tobytes() + b")\n" for block in blocks)
        path.write_bytes(_header("faces", "faceCompactList", True).encode() + body)
    else:
        rows = "\n".join(f"{len(face)}({' '.join(map(str, face))})" for face in faces)
        path.write_text(_header("faces", "faceList", False) + f"\n{len(faces)}\n(\n{rows}\n)\n")


def read_flow(folder: Path, time: float | None = None) -> Case:
    """Velocity, pressure and viscosity of an OpenFOAM case."""
    return read_case(folder, Flow.foam_fields, Flow.foam_parameters, time)
