"""Input of `blockMesh`: plane domains made of four-sided blocks, one cell thick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pennpde.openfoam.dictionaries import format_dictionary

Corner = tuple[float, float]
Side = tuple[Corner, Corner]


@dataclass(frozen=True)
class Block:
    """A quadrilateral of the plane.

    Attributes:
        corners: counter-clockwise.
        cells: along the side from the first to the second corner, and along that from the second to the third.
    """

    corners: tuple[Corner, Corner, Corner, Corner]
    cells: tuple[int, int]


def block_mesh_dictionary(
    blocks: Sequence[Block], patches: Mapping[str, tuple[str, Sequence[Side]]], thickness: float
) -> str:
    """The `blockMeshDict` of a plane domain between z = 0 and z = thickness; its front and back are `empty`.

    Args:
        blocks: they meet at common sides, with the same number of cells.
        patches: by name, OpenFOAM's type of the patch and its sides, each a pair of corners of a block.
        thickness: of the one layer of cells.
    """
    vertices: dict[Corner, int] = {}
    for block in blocks:
        for corner in block.corners:
            vertices.setdefault(_rounded(corner), len(vertices))
    above = len(vertices)
    hexahedra, front_and_back = [], []
    for block in blocks:
        lower = [vertices[_rounded(corner)] for corner in block.corners]
        upper = [vertex + above for vertex in lower]
        hexahedra.append(f"hex {_row(lower + upper)} ({block.cells[0]} {block.cells[1]} 1) simpleGrading (1 1 1)")
        front_and_back += [_row(lower[::-1]), _row(upper)]
    boundary = []
    for name, (kind, sides) in patches.items():
        faces = []
        for side in sides:
            try:
                start, end = (vertices[_rounded(corner)] for corner in side)
            except KeyError:
                raise ValueError(f"Patch {name!r} has the side {side}, which is not a side of a block.") from None
            faces.append(_row([start, end, end + above, start + above]))
        boundary.append(f"{name} {{ type {kind}; faces ({' '.join(faces)}); }}")
    boundary.append(f"frontAndBack {{ type empty; faces ({' '.join(front_and_back)}); }}")
    positions = [f"({x:.17g} {y:.17g} {z:.17g})" for z in (0.0, thickness) for x, y in vertices]
    lists = {"vertices": positions, "blocks": hexahedra, "edges": [], "boundary": boundary, "mergePatchPairs": []}
    text = {name: "\n(\n" + "".join(f"    {row}\n" for row in rows) + ")" for name, rows in lists.items()}
    return format_dictionary("blockMeshDict", {"convertToMeters": 1, **text})


def _rounded(corner: Corner) -> Corner:
    return (round(corner[0], 12), round(corner[1], 12))


def _row(numbers: Sequence[int]) -> str:
    return "(" + " ".join(map(str, numbers)) + ")"
