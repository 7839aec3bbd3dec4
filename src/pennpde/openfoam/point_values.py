"""Fields of a finished run at the points of its mesh, from the values of cells and of the faces of the boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from pennpde.mesh import Mesh
from pennpde.mesh.interpolation import CellsToPoints
from pennpde.openfoam.conditions import SYMMETRY, FieldReader, entry_of
from pennpde.openfoam.dictionaries import Uniform
from pennpde.openfoam.fields import on_faces
from pennpde.openfoam.poly_mesh import Body, FacePatch, Piece

_WITHOUT_FACES = ("empty", "cyclic", "processor", "processorCyclic")


@dataclass(frozen=True, eq=False)
class PointValues:
    """From cells and boundary faces to points.

    Attributes:
        body: The mesh in space.
        mesh: The same, or the plane mesh of a case between `empty` patches.
        to_points: From cells and faces to the points of `mesh`.
        faces: The patches whose faces have values, piece by piece, in the order in which they are taken.
    """

    body: Body
    mesh: Mesh
    to_points: CellsToPoints
    faces: tuple[tuple[Piece, FacePatch], ...]

    @staticmethod
    def of(body: Body, mesh: Mesh) -> PointValues:
        """For the mesh of a case, plane or not, as `read_case` gives it."""
        space = mesh.space
        layer = mesh.layer if mesh.layer is not None else np.arange(mesh.number_of_points)
        number = np.full(body.mesh.number_of_points, -1)
        number[layer] = np.arange(len(layer))
        faces = tuple(
            (piece, patch)
            for piece in body.pieces
            for patch in piece.mesh.patches.values()
            if patch.count and patch.type not in _WITHOUT_FACES
        )
        places = [piece.mesh.cell_centres for piece in body.pieces]
        of_point = [body.mesh.connectivity]
        of_place = [np.repeat(np.arange(body.mesh.number_of_cells), np.diff(body.mesh.offsets))]
        count = body.mesh.number_of_cells
        cells = [np.arange(count)]
        for piece, patch in faces:
            low, high = piece.mesh.face_offsets[patch.start], piece.mesh.face_offsets[patch.start + patch.count]
            places.append(piece.mesh.face_centres[patch.faces])
            of_point.append(piece.points[piece.mesh.face_points[low:high]])
            of_place.append(np.repeat(count + np.arange(patch.count), np.diff(piece.mesh.face_offsets)[patch.faces]))
            cells.append(piece.cells + piece.mesh.owner[patch.faces])
            count += patch.count
        points, values = number[np.concatenate(of_point)], np.concatenate(of_place)
        wanted = points >= 0
        positions = np.concatenate(places)[:, :space]
        to_points = CellsToPoints.of(mesh, positions, np.concatenate(cells), points[wanted], values[wanted])
        return PointValues(body, mesh, to_points, faces)

    def read(self, name: str, time: float | None) -> Float[np.ndarray, "points *axes"]:
        """A field at a time that was written; a vector of a plane case without its third component."""
        cells, on_faces = self.known(name, time)
        everywhere = np.concatenate([*cells, *on_faces])
        if everywhere.ndim == 2:
            everywhere = everywhere[:, : self.mesh.space]
        return self.to_points(everywhere)

    def fluxes(self, name: str, time: float | None) -> dict[str, float]:
        """By patch, what flows out through its faces with the velocity of this name, as the solver has it there.

        Of a plane case per unit of thickness.
        """
        found: dict[str, float] = {}
        height = np.ptp(self.body.mesh.points.numpy()[:, 2]) if self.mesh.space == 2 else 1.0
        for (piece, patch), velocity in zip(self.faces, self.known(name, time)[1], strict=True):
            through = float((velocity * piece.mesh.face_vectors[patch.faces]).sum()) / height
            found[patch.name] = found.get(patch.name, 0.0) + through
        return found

    def known(self, name: str, time: float | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """A field in the cells of each piece, and on the faces of each patch in `faces`."""
        fields = FieldReader(self.body, name, time).fields
        pieces = {id(piece): place for place, piece in enumerate(self.body.pieces)}
        numbers = [piece.mesh.number_of_cells for piece in self.body.pieces]
        cells = [field.values(number) for field, number in zip(fields, numbers, strict=True)]
        on_faces = []
        for piece, patch in self.faces:
            place = pieces[id(piece)]
            on_faces.append(face_values(piece, patch, entry_of(fields[place], patch, name), cells[place]))
        return cells, on_faces


def face_values(
    piece: Piece, patch: FacePatch, entry: Mapping[str, Any], cells: Float[np.ndarray, "cells *axes"]
) -> Float[np.ndarray, "faces *axes"]:
    """Values on the faces of a patch: those that were written, else what the condition makes of the cells' values."""
    axes, kind = cells.shape[1:], str(entry.get("type"))
    if (values := on_faces(entry.get("value"), patch.count, axes)) is not None:
        return values
    if kind == "noSlip":
        return np.zeros((patch.count, *axes))
    inside = cells[piece.mesh.owner[patch.faces]]
    if kind in SYMMETRY and axes:
        vectors = piece.mesh.face_vectors[patch.faces]
        normals = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return inside - (inside * normals).sum(axis=1, keepdims=True) * normals
    gradient = entry.get("gradient")
    if isinstance(gradient, Uniform) and (slopes := on_faces(gradient, patch.count, axes)) is not None:
        return inside + piece.mesh.distances_to_cells(patch).reshape(-1, *[1] * len(axes)) * slopes
    return inside
