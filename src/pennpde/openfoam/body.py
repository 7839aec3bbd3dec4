"""The whole mesh of an OpenFOAM case, also from the pieces of one that is decomposed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from pennpde.mesh import Mesh
from pennpde.mesh.cells import Facets, joined
from pennpde.mesh.checks import joined_cells, solids
from pennpde.mesh.contents import coincident, first_of_joined
from pennpde.openfoam.poly_mesh import FacePatch, PolyMesh

BETWEEN_PROCESSORS = ("processor", "processorCyclic")


class UnsupportedConditionError(ValueError):
    """A boundary condition, or a patch, that has no counterpart here."""


@dataclass(frozen=True, eq=False)
class Piece:
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
class Body:
    """The whole mesh of a case, in space, with its patches."""

    folder: Path
    mesh: Mesh
    pieces: tuple[Piece, ...]

    @staticmethod
    def read(folder: Path, *, in_pieces: bool = False) -> Body:
        """Read the mesh of a case.

        Args:
            folder: Of the case.
            in_pieces: Whether the pieces of a decomposed case are put together although it has its undivided mesh.
                Fields that only the pieces have need that.
        """
        # A decomposed case keeps its undivided mesh as a rule; then its pieces are not needed.
        numbered = pieces_of(folder)
        whole = (folder / "constant" / "polyMesh").is_dir() and not (in_pieces and numbered)
        if not whole and not numbered:
            raise FileNotFoundError(
                f"{folder} has no constant/polyMesh; make the mesh first, for example with blockMesh."
            )
        control = folder / "system" / "controlDict"
        if not control.is_file():
            raise FileNotFoundError(f"{control} does not exist; an OpenFOAM case must have it.")
        parts = [folder] if whole else numbered
        meshes = [PolyMesh.read(part) for part in parts]
        _refuse_cut_pairs(folder, meshes)
        positions = np.concatenate([mesh.points for mesh in meshes])
        number, kept = np.arange(len(positions)), np.arange(len(positions))
        if not whole:
            pairs = coincident(positions, share=1e-8)
            kept, number = np.unique(first_of_joined(pairs[:, 0], pairs[:, 1], len(positions)), return_inverse=True)
        starts = np.cumsum([0, *(len(mesh.points) for mesh in meshes)])
        first_cells = np.cumsum([0, *(mesh.number_of_cells for mesh in meshes)])
        pieces = tuple(
            Piece(part, mesh, number[start : start + len(mesh.points)], int(first))
            for part, mesh, start, first in zip(parts, meshes, starts, first_cells, strict=False)
        )
        cells = joined_cells([solids(piece.mesh.sides).renumbered(piece.points) for piece in pieces])
        facets: dict[str, list[Facets]] = {}
        for piece in pieces:
            for patch in piece.mesh.patches.values():
                if patch.count and patch.type not in BETWEEN_PROCESSORS:
                    faces = piece.mesh.faces.take(np.arange(patch.start, patch.start + patch.count))
                    faces = replace(faces, connectivity=piece.points[faces.connectivity])
                    facets.setdefault(patch.name, []).append(faces)
        patches = {name: joined(parts) for name, parts in facets.items()}
        mesh = Mesh.from_arrays(positions[kept], cells).with_patch_facets(patches)
        return Body(folder, mesh, pieces)

    @property
    def is_plane(self) -> bool:
        """Whether it is one cell thick between `empty` patches."""
        return any(each.type == "empty" and each.count for part in self.pieces for each in part.mesh.patches.values())

    @property
    def patches(self) -> dict[str, FacePatch]:
        """All patches that have faces somewhere, but for those between processors."""
        found = [patch for piece in self.pieces for patch in piece.mesh.patches.values()]
        return {patch.name: patch for patch in found if patch.count and patch.type not in BETWEEN_PROCESSORS}


def pieces_of(folder: Path) -> list[Path]:
    """The folders of the processors of a decomposed case, in their order; none where it is not decomposed."""
    numbered = [
        (int(match[1]), path) for path in folder.iterdir() if (match := re.fullmatch(r"processor(\d+)", path.name))
    ]
    return [path for _, path in sorted(numbered)]


def _refuse_cut_pairs(folder: Path, meshes: list[PolyMesh]) -> None:
    for mesh in meshes:
        for patch in mesh.patches.values():
            if patch.type == "processorCyclic" and patch.count:
                raise UnsupportedConditionError(
                    f"{folder} is decomposed, and {patch.name!r} cuts a cyclic pair between processors. Reconstruct "
                    "the mesh first, with reconstructParMesh -constant."
                )


def plane_of(body: Body, folder: Path) -> Mesh:
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
