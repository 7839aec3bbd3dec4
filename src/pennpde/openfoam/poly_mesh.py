"""The mesh as OpenFOAM stores it: faces, and the cells on both sides of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array

from pennpde.mesh import Mesh
from pennpde.mesh.cells import Facets, facet_areas, joined, mean_rows, next_in_row, reversed_rows, sum_rows
from pennpde.mesh.checks import joined_cells, solids
from pennpde.mesh.contents import coincident, first_of_joined
from pennpde.openfoam.dictionaries import FoamFormatError, Parser


@dataclass(frozen=True)
class FacePatch:
    """A named run of consecutive faces of the boundary.

    Attributes:
        type: OpenFOAM's, such as patch, wall or empty.
        groups: further names by which fields may give its condition.
        neighbour: the other patch of a cyclic pair.
        transform: how a cyclic patch leads to it, where the mesh says so.
    """

    name: str
    type: str
    start: int
    count: int
    groups: tuple[str, ...] = ()
    neighbour: str | None = None
    transform: str | None = None

    @property
    def faces(self) -> slice:
        return slice(self.start, self.start + self.count)


@dataclass(frozen=True, eq=False)
class PolyMesh:
    """Points, faces, and the cells on both sides of each face.

    Attributes:
        face_points: the points of all faces, one face after the other; the normal points from owner to neighbour.
        face_offsets: where each face starts in `face_points`, and the end.
        owner: the cell behind each face.
        neighbour: the cell in front of each internal face; these are the first ones.
    """

    points: Float[np.ndarray, "points 3"]
    face_points: Int64[np.ndarray, " entries"]
    face_offsets: Int64[np.ndarray, " faces+1"]
    owner: Int64[np.ndarray, " faces"]
    neighbour: Int64[np.ndarray, " internal_faces"]
    patches: Mapping[str, FacePatch]

    @staticmethod
    def read(case: Path | str) -> PolyMesh:
        """Read `constant/polyMesh` of a case (or of a processor folder of it), text or binary, packed or not."""
        folder = Path(case) / "constant" / "polyMesh"
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} does not exist; make the mesh first, for example with blockMesh.")
        points = Parser.behind_header(folder / "points").values("vector")
        owner = Parser.behind_header(folder / "owner").values("label")
        neighbour = Parser.behind_header(folder / "neighbour").values("label")
        face_points, face_offsets = _read_faces(folder / "faces")
        mesh = PolyMesh(points, face_points, face_offsets, owner, neighbour, _read_boundary(folder / "boundary"))
        mesh._check(folder)
        return mesh

    def _check(self, folder: Path) -> None:
        faces, internal = self.number_of_faces, len(self.neighbour)
        if len(self.owner) != faces or internal > faces:
            raise FoamFormatError(
                f"{folder}: {faces} faces, {len(self.owner)} owners and {internal} neighbours do not belong together."
            )
        if not np.isfinite(self.points).all():
            raise FoamFormatError(f"{folder / 'points'} holds positions that are not finite.")
        if faces == 0 or self.face_points.min() < 0 or self.face_points.max() >= len(self.points):
            raise FoamFormatError(f"{folder / 'faces'} names points that {folder / 'points'} does not have.")
        lowest = min(self.owner.min(), self.neighbour.min(initial=0))
        if lowest < 0 or self.number_of_cells > faces:  # every cell has at least four faces, each face two cells
            raise FoamFormatError(f"{folder}: owner and neighbour name cells {lowest} to {self.number_of_cells - 1}.")
        for patch in self.patches.values():
            if patch.count < 0 or patch.start < internal or patch.start + patch.count > faces:
                raise FoamFormatError(
                    f"{folder / 'boundary'}: patch {patch.name!r} has the faces {patch.start} to "
                    f"{patch.start + patch.count - 1}, but those of the boundary are {internal} to {faces - 1}."
                )
        self._check_closed(folder)

    def _check_closed(self, folder: Path) -> None:
        """Refuse cells whose faces leave a gap: whatever is made of them later would be nonsense."""
        around = np.bincount(np.concatenate([self.owner, self.neighbour]), minlength=self.number_of_cells)
        surface = abs(self.outward) @ np.linalg.norm(self.face_vectors, axis=1)
        gaps = np.linalg.norm(self.outward @ self.face_vectors, axis=1)
        # Points are shared, so that nothing but rounding is left, however few digits they were written with.
        open_cells = np.flatnonzero((around < 4) | (gaps > 1e-6 * surface))
        if len(open_cells):
            raise FoamFormatError(
                f"{folder}: the faces of {len(open_cells)} cells do not close them, the first is cell {open_cells[0]}. "
                "The files are damaged or do not belong together; generate the mesh again."
            )

    @cached_property
    def number_of_cells(self) -> int:
        return int(max(self.owner.max(initial=-1), self.neighbour.max(initial=-1))) + 1

    @property
    def number_of_faces(self) -> int:
        return len(self.face_offsets) - 1

    @cached_property
    def faces(self) -> Facets:
        """The faces, as facets of the cells behind them."""
        return Facets(self.face_points, self.face_offsets, self.owner)

    @cached_property
    def outward(self) -> csr_array:
        """The matrix [cells, faces] that sums what goes through faces over each cell, outward."""
        internal, faces = len(self.neighbour), self.number_of_faces
        rows = np.concatenate([self.owner, self.neighbour])
        columns = np.concatenate([np.arange(faces), np.arange(internal)])
        signs = np.concatenate([np.ones(faces), -np.ones(internal)])
        return csr_array((signs, (rows, columns)), shape=(self.number_of_cells, faces))

    @property
    def sides(self) -> Facets:
        """All faces of all cells, as seen from outside, sorted by cell."""
        faces = self.faces.take(self.outward.indices)
        cells = np.repeat(np.arange(self.number_of_cells), np.diff(self.outward.indptr))
        turned = reversed_rows(faces.connectivity, faces.offsets, self.outward.data < 0)
        return Facets(turned, faces.offsets, cells)

    @cached_property
    def face_vectors(self) -> Float[np.ndarray, "faces 3"]:
        """The normal of each face, from owner to neighbour, as long as the face is large."""
        return facet_areas(self.points, self.faces)

    @cached_property
    def face_normals(self) -> Float[np.ndarray, "faces 3"]:
        """The same of length one; zero of faces without area."""
        size = np.linalg.norm(self.face_vectors, axis=1, keepdims=True)
        return self.face_vectors / np.where(size > 0, size, 1.0)

    @cached_property
    def face_centres(self) -> Float[np.ndarray, "faces 3"]:
        """The centre of area of each face, cut into triangles around the mean of its points."""
        offsets = self.face_offsets
        face = np.repeat(np.arange(self.number_of_faces), np.diff(offsets))
        corners = self.points[self.face_points]
        following, middle = next_in_row(corners, offsets), mean_rows(corners, offsets)
        vectors = np.cross(corners - middle[face], following - middle[face])
        areas = (vectors * sum_rows(vectors, offsets)[face]).sum(axis=1)
        sums = sum_rows(areas[:, None] * (corners + following + middle[face]) / 3, offsets)
        total = sum_rows(areas, offsets)[:, None]
        return np.where(total > 0, sums / np.where(total > 0, total, 1.0), middle)

    @cached_property
    def cell_centres(self) -> Float[np.ndarray, "cells 3"]:
        """The centre of volume of each cell, cut into pyramids over its faces, as OpenFOAM does it."""
        cells = np.concatenate([self.owner, self.neighbour])
        faces = np.concatenate([np.arange(self.number_of_faces), np.arange(len(self.neighbour))])
        outward = np.where(np.arange(len(cells)) < self.number_of_faces, 1.0, -1.0)
        number = np.bincount(cells, minlength=self.number_of_cells)

        def summed(values: np.ndarray) -> np.ndarray:
            return np.stack([np.bincount(cells, each, self.number_of_cells) for each in values.T], axis=1)

        middle = summed(self.face_centres[faces]) / number[:, None]
        volumes = outward * (self.face_vectors[faces] * (self.face_centres[faces] - middle[cells])).sum(axis=1) / 3
        centres = 0.75 * self.face_centres[faces] + 0.25 * middle[cells]
        return summed(volumes[:, None] * centres) / summed(volumes[:, None])

    def distances_to_cells(self, patch: FacePatch) -> Float[np.ndarray, " faces"]:
        """From the faces of a patch to the centres of their cells, along the normal."""
        away = self.face_centres[patch.faces] - self.cell_centres[self.owner[patch.faces]]
        return (away * self.face_normals[patch.faces]).sum(axis=1)

    def faces_of_type(self, kind: str) -> Bool[np.ndarray, " faces"]:
        """True on the faces of all patches of this type."""
        chosen = np.zeros(self.number_of_faces, bool)
        for patch in self.patches.values():
            chosen[patch.faces] |= patch.type == kind
        return chosen

    def cell_velocity(self, flux: Float[np.ndarray, " faces"]) -> Float[np.ndarray, "cells 3"]:
        """The cell velocity that fits the face fluxes: U = [Σ S Sᵀ/|S|]⁻¹ Σ S φ/|S|, without `empty` faces.

        Debian's `potentialFoam` 1912 writes right fluxes, but a wrong velocity (|U| of 100 and more) on sheared cells.
        """
        vectors, around = self.face_vectors, abs(self.outward)
        size = np.linalg.norm(vectors, axis=1)
        used = ~self.faces_of_type("empty") & (size > 0)
        weight = np.where(used, 1.0 / np.where(size > 0, size, 1.0), 0.0)
        right = around @ ((weight * flux)[:, None] * vectors)
        products = weight[:, None, None] * vectors[:, :, None] * vectors[:, None]
        matrix = (around @ products.reshape(-1, 9)).reshape(-1, 3, 3)
        # Without the empty faces the matrix of a plane case is singular across the plane; its pseudoinverse gives
        # zero there.
        return np.einsum("cij,cj->ci", np.linalg.pinv(matrix, rcond=1e-10, hermitian=True), right)


def _read_faces(path: Path) -> tuple[np.ndarray, np.ndarray]:
    parser = Parser.behind_header(path)
    if parser.layout.binary:
        offsets, points = parser.values("label"), parser.values("label")
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(points) or np.any(np.diff(offsets) < 3):
            raise FoamFormatError(f"{path}: the offsets of the binary face list do not fit its {len(points)} points.")
        return points, offsets
    count = parser.count("faces")
    parser.expect("(")
    end = parser.content.rfind(b")")
    if end < parser.position or count > len(parser.content):
        raise parser.error(f"the list of {count} faces is not closed with ')'; the file is truncated or damaged.")
    numbers = parser.numbers(parser.content[parser.position : end], "label").astype(np.int64)
    starts = np.zeros(count + 1, np.int64)
    for face in range(count):
        size = int(numbers[starts[face]]) if starts[face] < len(numbers) else 0
        if size < 3:
            raise parser.error(f"face {face} of {count} has {size} points; the file is truncated or damaged.")
        starts[face + 1] = starts[face] + size + 1
    if starts[-1] != len(numbers):
        raise parser.error(f"the list of {count} faces holds {len(numbers)} numbers instead of {starts[-1]}.")
    points = np.delete(numbers, starts[:-1])
    return points, starts - np.arange(count + 1)


def _read_boundary(path: Path) -> dict[str, FacePatch]:
    parser = Parser.behind_header(path)
    count = parser.count("patches")
    parser.expect("(")
    patches: dict[str, FacePatch] = {}
    for _ in range(count):
        name = parser.token()
        if not isinstance(name, str):
            raise parser.error(f"{count} patches are announced, but only {len(patches)} found.")
        parser.expect("{")
        entries = parser.dictionary([], top=False)
        kind, start, number = entries.get("type"), entries.get("startFace"), entries.get("nFaces")
        if not (isinstance(kind, str) and isinstance(start, int) and isinstance(number, int)):
            raise parser.error(f"patch {name!r} needs type, nFaces and startFace; it has {', '.join(entries)}.")
        pair = (str(entries[key]) if key in entries else None for key in ("neighbourPatch", "transform"))
        patches[name] = FacePatch(name, kind, start, number, _words(entries.get("inGroups")), *pair)
    parser.expect(")")
    return patches


def _words(value: Any) -> tuple[str, ...]:
    """The names in `inGroups 1(wall)`, `inGroups (a b)`, `inGroups List<word> 1(wall)`, `inGroups wall`."""
    items = value if isinstance(value, tuple) else (value,)
    return tuple(
        str(word) for item in items for word in (item if isinstance(item, list) else [item]) if isinstance(word, str)
    )


# The whole mesh of an OpenFOAM case, also from the pieces of one that is decomposed.


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

    def part_of(self, patch: FacePatch) -> FacePatch | None:
        """Those of the faces of a patch that it has; None: it has none."""
        own = self.mesh.patches.get(patch.name)
        return own if own is not None and own.count else None

    def points_of(self, patch: FacePatch) -> Int64[np.ndarray, " entries"]:
        """The points of the faces of its patch, one face after the other, by their numbers in the whole mesh."""
        low, high = self.mesh.face_offsets[patch.start], self.mesh.face_offsets[patch.start + patch.count]
        return self.points[self.mesh.face_points[low:high]]


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
    patches = [patch for mesh in meshes for patch in mesh.patches.values()]
    if cut := [patch.name for patch in patches if patch.type == "processorCyclic" and patch.count]:
        raise UnsupportedConditionError(
            f"{folder} is decomposed, and {cut[0]!r} cuts a cyclic pair between processors. Reconstruct the mesh "
            "first, with reconstructParMesh -constant."
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
