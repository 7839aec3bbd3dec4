"""The same mesh as Gmsh writes it. Patches are sets of facets."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from pennpde.mesh import Mesh

Row = tuple[int, list[int]]
"""VTK's code of an element, and its points from 0."""

GMSH = {3: 1, 5: 2, 9: 3, 10: 4, 12: 5, 13: 6, 14: 7, 21: 8, 22: 9, 24: 11, 23: 16}

DEADLY = """# vtk DataFile Version 3.0
a cell of so many corners ends the process that reads it, by a segmentation fault in VTK 9.7
ASCII
DATASET UNSTRUCTURED_GRID
POINTS 4 float
0 0 0 1 0 0 1 1 0 0 1 0
CELLS 1 5
999999 0 1 2 3
CELL_TYPES 1
9
"""


def rows_of(mesh: Mesh) -> list[Row]:
    return [
        (int(code), mesh.connectivity[start:end].tolist())
        for code, start, end in zip(mesh.cell_types, mesh.offsets[:-1], mesh.offsets[1:], strict=True)
    ]


def facets_of(mesh: Mesh, name: str) -> list[Row]:
    chosen = mesh.facets.take(mesh.patch(name).facets)
    rows = np.split(chosen.connectivity, chosen.offsets[1:-1])
    return [({2: 3, 3: 5, 4: 9}[len(row)], row.tolist()) for row in rows]


def positions_of(mesh: Mesh) -> np.ndarray:
    return np.pad(mesh.points.numpy(), ((0, 0), (0, 3 - mesh.space)))


def write_gmsh(
    path: Path,
    points: np.ndarray,
    cells: list[Row],
    patches: Mapping[str, list[Row]],
    version: str = "4.1",
    binary: bool = False,
    gaps: bool = False,
) -> None:
    """A .msh file.

    Args:
        path: of the file.
        points: [points, 3].
        cells: of the highest dimension.
        patches: of one dimension less, by name.
        version: 2.2 or 4.1.
        binary: or text.
        gaps: number points 10, 20, 30 and so on.
    """
    dimension = 2 if {code for code, _ in cells} <= {5, 9, 22, 23} else 3
    tags = np.arange(1, len(points) + 1) * (10 if gaps else 1)
    names = "".join(f'{dimension - 1} {at} "{name}"\n' for at, name in enumerate(patches, start=1))
    names += f'{dimension} {len(patches) + 1} "the body"\n'
    blocks: list[tuple[int, int, int, list[list[int]]]] = []  # dimension, group, type, points
    groups = [(dimension - 1, at, rows) for at, rows in enumerate(patches.values(), start=1)]
    for of_dimension, group, rows in [*groups, (dimension, len(patches) + 1, cells)]:
        for code, row in rows:
            numbers = tags[row].tolist()
            if blocks and blocks[-1][:3] == (of_dimension, group, GMSH[code]):
                blocks[-1][3].append(numbers)
            else:
                blocks.append((of_dimension, group, GMSH[code], [numbers]))
    header = f"$MeshFormat\n{version} {int(binary)} 8\n".encode()
    header += np.int32(1).tobytes() + b"\n" if binary else b""
    header += f"$EndMeshFormat\n$PhysicalNames\n{len(patches) + 1}\n{names}$EndPhysicalNames\n".encode()
    write = _gmsh_2 if version == "2.2" else _gmsh_4
    path.write_bytes(header + write(points, tags, blocks, binary, dimension, len(patches)))


def _text(*numbers: object) -> bytes:
    return (" ".join(repr(number) if isinstance(number, float) else str(number) for number in numbers) + "\n").encode()


def _gmsh_2(points, tags, blocks, binary, dimension, number_of_patches) -> bytes:
    nodes = _text(len(points))
    if binary:
        table = np.zeros(len(points), [("tag", "<i4"), ("at", "<f8", 3)])
        table["tag"], table["at"] = tags, points
        nodes += table.tobytes() + b"\n"
    else:
        nodes += b"".join(_text(tag, *at) for tag, at in zip(tags.tolist(), points.tolist(), strict=True))
    elements, number = _text(sum(len(rows) for *_, rows in blocks)), 0
    for _, group, kind, rows in blocks:
        if binary:
            elements += np.array([kind, len(rows), 2], "<i4").tobytes()
        for row in rows:
            number += 1
            if binary:
                elements += np.array([number, group, group, *row], "<i4").tobytes()
            else:
                elements += _text(number, kind, 2, group, group, *row)
    return b"$Nodes\n" + nodes + b"$EndNodes\n$Elements\n" + elements + b"\n$EndElements\n"


def _gmsh_4(points, tags, blocks, binary, dimension, number_of_patches) -> bytes:
    def size(*numbers):
        return np.array(numbers, "<u8").tobytes() if binary else _text(*numbers)

    def integer(*numbers):
        return np.array(numbers, "<i4").tobytes() if binary else _text(*numbers)

    def double(*numbers):
        return np.array(numbers, "<f8").tobytes() if binary else _text(*map(float, numbers))

    counts = [0, 0, 0, 0]
    counts[dimension - 1], counts[dimension] = number_of_patches, 1
    entities = size(*counts)
    for group in range(1, number_of_patches + 2):
        # Negative where a curve runs backwards; the group is the same.
        physical = -group if group == 1 else group
        entities += integer(group) + double(*range(6)) + size(1) + integer(physical) + size(0)
    nodes = size(1, len(points), 1, int(tags.max())) + integer(dimension, number_of_patches + 1, 0) + size(len(points))
    nodes += size(*tags.tolist()) + double(*points.ravel().tolist())
    number = sum(len(rows) for *_, rows in blocks)
    elements = size(len(blocks), number, 1, number)
    count = 0
    for of_dimension, group, kind, rows in blocks:
        elements += integer(of_dimension, group, kind) + size(len(rows))
        for row in rows:
            count += 1
            elements += size(count, *row)
    sections = {"Entities": entities, "Nodes": nodes, "Elements": elements}
    return b"".join(f"${name}\n".encode() + body + f"\n$End{name}\n".encode() for name, body in sections.items())


def _gmsh(version: str, binary: bool, gaps: bool = False) -> Callable[..., None]:
    return lambda *given: write_gmsh(*given, version=version, binary=binary, gaps=gaps)


WRITERS: dict[str, tuple[str, Callable[..., None]]] = {
    "gmsh 2.2 text": (".msh", _gmsh("2.2", False, gaps=True)),
    "gmsh 2.2 binary": (".msh", _gmsh("2.2", True)),
    "gmsh 4.1 text": (".msh", _gmsh("4.1", False)),
    "gmsh 4.1 binary": (".msh", _gmsh("4.1", True, gaps=True)),
}


def write_as(
    kind: str, folder: Path, mesh: Mesh, writers: Mapping[str, tuple[str, Callable[..., None]]] = WRITERS
) -> Path:
    """Write a mesh with its patches in one of the formats."""
    suffix, writer = writers[kind]
    path = folder / f"mesh{suffix}"
    writer(path, positions_of(mesh), rows_of(mesh), {name: facets_of(mesh, name) for name in mesh.patches})
    return path
