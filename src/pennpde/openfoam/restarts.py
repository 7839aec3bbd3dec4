"""Predictions as time folders from which OpenFOAM's solvers go on: cell values, boundary values and face fluxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from pennpde.files import replacing_folder
from pennpde.mesh import Mesh
from pennpde.mesh.cells import mean_rows
from pennpde.mesh.splitting import SplitMeans
from pennpde.openfoam.cases import uniform_forces
from pennpde.openfoam.conditions import RESTING
from pennpde.openfoam.dictionaries import FoamFormatError, NonUniform
from pennpde.openfoam.fields import (
    CONSTRAINTS,
    FLUX,
    SYMMETRY,
    Dimensions,
    FoamField,
    control_dictionary,
    entry_of,
    first_field,
    on_faces,
    read_field,
    start_time,
    write_field,
)
from pennpde.openfoam.poly_mesh import PolyMesh
from pennpde.operators import Operators
from pennpde.operators.multigrid import Levels
from pennpde.penn.equation import FoamName
from pennpde.penn.predictor import Finer

# Fluxes through the faces of an OpenFOAM mesh that leave nothing in any cell: what its solvers call `phi`.
#
# A flux that is nearly right is corrected by the gradient of a potential ψ, as in a projection method: with
# coefficients c = |S| / d of the faces, φ = φ* - c (ψ_neighbour - ψ_owner), and Σ φ = 0 in every cell. Whatever the
# coefficients, the sum is zero; with these the correction is the smallest one.


_CYCLES = 12
_ROUNDS = 6
_CLOSED = ("empty", "wedge", *SYMMETRY, *RESTING)


@dataclass(frozen=True, eq=False)
class Openings:
    """What is known of the flux through the boundary.

    Attributes:
        flux: out of the mesh where it is prescribed, zero elsewhere; over all faces.
        free: faces through which any flux may go, such as those of an outlet.
        pairs: faces of cyclic patches with their partners, each pair once.
    """

    flux: Float[np.ndarray, " faces"]
    free: Bool[np.ndarray, " faces"]
    pairs: Int64[np.ndarray, "pairs 2"]


def openings(
    mesh: PolyMesh, conditions: Mapping[str, Mapping[str, Any]], face_velocity: Float[np.ndarray, "faces 3"]
) -> Openings:
    """Which fluxes through the boundary are prescribed, from the conditions of the velocity.

    Args:
        mesh: of the case.
        conditions: by patch, the dictionary of its condition.
        face_velocity: the velocity on the faces, for conditions whose value changes with time.
    """
    flux = np.zeros(mesh.number_of_faces)
    free = np.zeros(mesh.number_of_faces, bool)
    pairs: list[np.ndarray] = []
    for patch in mesh.patches.values():
        if not patch.count:
            continue
        condition = conditions[patch.name]
        kind = str(condition.get("type"))
        if kind == "cyclic":
            partner = mesh.patches[str(patch.neighbour)]
            if patch.start < partner.start:
                ours, theirs = (np.arange(each.start, each.start + each.count) for each in (patch, partner))
                pairs.append(np.stack([ours, theirs], axis=1))
        elif kind == "fixedValue":
            given = on_faces(condition.get("value"), patch.count, (3,))
            values = face_velocity[patch.faces] if given is None else given
            flux[patch.faces] = (mesh.face_vectors[patch.faces] * values).sum(axis=1)
        elif kind == "uniformFixedValue":  # next to a wall some faces have less than the one value; the median has not
            flux[patch.faces] = mesh.face_vectors[patch.faces] @ np.median(face_velocity[patch.faces], axis=0)
        elif kind not in _CLOSED:
            free[patch.faces] = True
    return Openings(flux, free, np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64))


@dataclass(frozen=True, eq=False)
class Projection:
    """Makes fluxes on a mesh divergence-free; set up once per mesh and set of free faces."""

    mesh: PolyMesh
    differences: csr_array
    """ψ of the cells to what is subtracted from the flux of each face."""
    levels: Levels

    @staticmethod
    def on(mesh: PolyMesh, known: Openings) -> Projection:
        internal = len(mesh.neighbour)
        size = np.linalg.norm(mesh.face_vectors, axis=1)
        along = ((mesh.face_centres - mesh.cell_centres[mesh.owner]) * mesh.face_normals).sum(axis=1)
        beyond = mesh.cell_centres[mesh.neighbour] - mesh.face_centres[:internal]
        distance = along.copy()
        distance[:internal] += (beyond * mesh.face_normals[:internal]).sum(axis=1)
        for one, other in (known.pairs.T, known.pairs.T[::-1]):
            distance[one] = along[one] + along[other]
        # On twisted cells a centre can lie behind its own face.
        typical = np.abs(distance[: max(internal, 1)]).mean()
        coefficient = size / np.maximum(distance, 1e-3 * typical)
        first, second = known.pairs.T
        coefficient[second] = coefficient[first]
        # Of each face: its coefficient times (ψ in front - ψ behind); in front of an outlet ψ is zero.
        front = np.full(mesh.number_of_faces, -1)
        front[:internal], front[first], front[second] = mesh.neighbour, mesh.owner[second], mesh.owner[first]
        inner = np.flatnonzero(front >= 0)
        used = np.flatnonzero((front >= 0) | known.free)
        values = np.concatenate([coefficient[inner], -coefficient[used]])
        places = np.concatenate([inner, used]), np.concatenate([front[inner], mesh.owner[used]])
        differences = csr_array(coo_array((values, places), shape=(mesh.number_of_faces, mesh.number_of_cells)))
        matrix = csr_array(-(mesh.outward @ differences))
        return Projection(mesh, differences, Levels.of(matrix))

    def __call__(self, flux: Float[np.ndarray, " faces"], known: Openings) -> Float[np.ndarray, " faces"]:
        """The flux next to a given one that leaves nothing in any cell and is as prescribed on the boundary.

        Where every flux through the boundary is prescribed and they do not add up to zero, what cannot go away is
        spread over all cells.

        Args:
            flux: nearly divergence-free.
            known: with the same free faces and pairs.
        """
        internal = len(self.mesh.neighbour)
        found = np.where(known.free, flux, known.flux)
        found[:internal] = flux[:internal]
        first, second = known.pairs.T
        found[first] = 0.5 * (flux[first] - flux[second])
        found[second] = -found[first]
        for _ in range(_ROUNDS):
            rest = self.mesh.outward @ found
            if not known.free.any():
                rest = rest - rest.mean()
            if np.abs(rest).max(initial=0.0) <= 1e-14 * np.abs(found).max(initial=0.0):
                break
            right = torch.from_numpy(-rest[:, None])
            potential = self.levels.solve(right, cycles=_CYCLES)[:, 0].numpy()
            found = found - self.differences @ potential
        return found


_PRESCRIBED = ("fixedValue", "fixedGradient", "uniformFixedGradient")
"""Types whose entries say all; the `value` of others is what the field had there at its own time."""
_CONSTRAINTS = (*CONSTRAINTS, "wedge")
Corners = tuple[Int64[np.ndarray, " entries"], Int64[np.ndarray, " starts"]]
"""The points of each cell or face, one row after the other, and where each starts."""


def write_time(
    folder: Path | str,
    time: float | str,
    mesh: Mesh,
    fields: Mapping[str, Tensor],
    names: Mapping[str, FoamName],
    overwrite: bool = False,
) -> Path:
    """Write fields over the points into a time folder, from which OpenFOAM's programs can go on; see `TimeWriter`.

    Args:
        folder: the case that `mesh` was read from with `read_case`.
        time: the name of the new folder.
        mesh: of the case, plane or not.
        fields: by our names, [points] or [points, space].
        names: by our name, the field in OpenFOAM, as `Equation.foam_fields` has them.
        overwrite: whether an existing folder of that time may be replaced.

    Returns:
        the folder; it appears when it is complete.
    """
    return TimeWriter.of(folder, mesh).write(time, fields, names, overwrite)


@dataclass(frozen=True, eq=False)
class TimeWriter:
    """Writes time folders of one case; what depends only on its mesh is computed once.

    - A cell gets the value at its centre, from the values and gradients at its points: exact for linear fields, and on
      regular cells for cubic ones. The mean of the points would be off by the curvature.
    - A velocity (`FoamName.has_flux`) also gets its flux `phi` through the faces, which leaves nothing in any cell, and
      is itself corrected by what the projection of the flux changed.
    - Conditions are those of the case. Where they do not prescribe a value, such as at an outlet, it is that of the
      cell.
    """

    folder: Path
    mesh: Mesh
    cells: PolyMesh
    projections: dict[bytes, Projection] = field(default_factory=dict, repr=False)
    """By the faces through which any flux may go, which are the same at all times as a rule."""
    split_means: dict[int, SplitMeans] = field(default_factory=dict, repr=False)
    """By the number of points of the split cells."""

    @staticmethod
    def of(folder: Path | str, mesh: Mesh) -> TimeWriter:
        """For a case, and the mesh that `read_case` gave for it."""
        cells = PolyMesh.read(folder)
        if mesh.number_of_cells != cells.number_of_cells:
            raise ValueError(
                f"The mesh has {mesh.number_of_cells} cells, but the case {folder} has {cells.number_of_cells}."
            )
        return TimeWriter(Path(folder), mesh, cells)

    def write(
        self,
        time: float | str,
        fields: Mapping[str, Tensor],
        names: Mapping[str, FoamName],
        overwrite: bool = False,
        finer: Finer | None = None,
    ) -> Path:
        """Write one time; `write_time` explains the arguments.

        Args:
            time: As there.
            fields: As there.
            names: As there.
            overwrite: As there.
            finer: The solution on split cells that the fields come from: cells and faces then have its means, and of
                what the fields differ from it the values at their centres.
        """
        name = time if isinstance(time, str) else f"{time:.10g}"
        target = self.folder / name
        if target.exists() and not overwrite:
            raise FileExistsError(f"{target} is there already; choose another time, or allow to overwrite it.")
        with replacing_folder(target) as temporary:
            for unknown, values in fields.items():
                if unknown not in names:
                    raise KeyError(f"Field {unknown!r} has no name in OpenFOAM; named are {sorted(names)}.")
                self._write_field(temporary, name, unknown, values, names[unknown], finer)
        return target

    def _write_field(
        self, folder: Path, time: str, unknown: str, values: Tensor, foam: FoamName, finer: Finer | None
    ) -> None:
        known = read_field(self._conditions_of(foam.name), self.folder)
        binary = str(control_dictionary(self.folder).get("writeFormat")) == "binary"
        at_points = values.detach().cpu().double()
        if at_points.shape not in ((self.mesh.number_of_points,), (self.mesh.number_of_points, self.mesh.space)):
            raise ValueError(
                f"Field {unknown!r} has shape {tuple(at_points.shape)}; the mesh has {self.mesh.number_of_points} "
                f"points in {self.mesh.space}D."
            )
        in_cells, on_faces = self._in_cells_and_on_faces(at_points)
        if finer is not None and unknown in finer.split and self.mesh.space == 2:
            own, split = (each[unknown].detach().cpu().double() for each in (finer.own, finer.split))
            cells, faces = self._details(own, split.numpy())
            in_cells, on_faces = in_cells + cells, on_faces + faces
        if foam.has_reference and any(patch.type == "cyclic" for patch in self.cells.patches.values()):
            # Predicted is the pressure that includes a uniform force, see `cases`; OpenFOAM adds the force itself.
            force = sum(uniform_forces(self.folder).values(), np.zeros(3))
            in_cells = in_cells + (self.cells.cell_centres - self.cells.cell_centres.mean(axis=0)) @ force
        if foam.has_flux:
            conditions = {
                patch.name: entry_of(known, patch, foam.name) for patch in self.cells.patches.values() if patch.count
            }
            flux, in_cells = self._projected(conditions, on_faces, in_cells)
            patches = {patch.name: self._flux_on(patch.name, flux) for patch in self.cells.patches.values()}
            internal = flux[: len(self.cells.neighbour)]
            write_field(folder / "phi", internal, FLUX, patches, time, "surfaceScalarField", binary=binary)
        dimensions = known.dimensions or Dimensions(foam.dimensions)
        boundary = self._boundary(known, foam.name, in_cells)
        write_field(folder / foam.name, in_cells, dimensions, boundary, time, binary=binary)

    def _conditions_of(self, name: str) -> Path:
        """The file with the conditions of a field: that of the start, or the earliest."""
        try:
            return first_field(self.folder, name, start_time(self.folder))
        except FileNotFoundError:
            return first_field(self.folder, name, None)

    def _projected(
        self, conditions: Mapping[str, Mapping[str, Any]], on_faces: np.ndarray, in_cells: np.ndarray
    ) -> tuple[Float[np.ndarray, " faces"], Float[np.ndarray, "cells 3"]]:
        """The flux without divergence, and the velocity in the cells that goes with it."""
        known = openings(self.cells, conditions, on_faces)
        given = (self.cells.face_vectors * on_faces).sum(axis=1)
        given[self.cells.faces_of_type("empty")] = 0.0
        flux = self._projection(known)(given, known)
        return flux, in_cells + self.cells.cell_velocity(flux - given)

    def _projection(self, known: Openings) -> Projection:
        key = known.free.tobytes()
        if key not in self.projections:
            self.projections[key] = Projection.on(self.cells, known)
        return self.projections[key]

    def _flux_on(self, patch: str, flux: np.ndarray) -> dict[str, Any]:
        own = self.cells.patches[patch]
        if own.type == "empty" or not own.count:
            return {"type": "empty" if own.type == "empty" else "calculated", "value": "uniform 0"}
        kind = own.type if own.type in _CONSTRAINTS else "calculated"
        return {"type": kind, "value": NonUniform(flux[own.faces])}

    def _boundary(self, known: FoamField, name: str, in_cells: np.ndarray) -> dict[str, Any]:
        """The conditions of the case, with the values of the cells where they do not prescribe any."""
        boundary = {key: dict(entry) for key, entry in known.boundary.items()}
        for patch in self.cells.patches.values():
            try:
                entry = dict(entry_of(known, patch, name))
            except FoamFormatError:
                continue
            if patch.count and "value" in entry and str(entry.get("type")) not in (*_PRESCRIBED, *_CONSTRAINTS):
                boundary[patch.name] = entry | {"value": NonUniform(in_cells[self.cells.owner[patch.faces]])}
        return boundary

    # Points of cells and faces

    @cached_property
    def operators(self) -> Operators:
        return Operators.on(self.mesh)

    def _in_cells_and_on_faces(self, values: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """At the centres of cells and faces, from the values at the points."""
        with torch.no_grad():
            slopes = self.operators.grad(values).numpy()
        corners = self.mesh.connectivity, self.mesh.offsets
        return (
            self._sampled(values.numpy(), slopes, corners, self.cells.cell_centres),
            self._sampled(values.numpy(), slopes, self.face_corners, self.cells.face_centres),
        )

    def _details(self, own: Tensor, split: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the means of a solution on split cells add to what cells and faces have from its values at the points.

        Nothing next to points at which it has other values than the split cells, as pressures in corners are.
        """
        in_cells, on_faces = self._in_cells_and_on_faces(own)
        means, ends = self._means(len(split)), self._ends_of_faces
        cells, faces = self._in_space(means.in_cells(split)) - in_cells, np.zeros_like(on_faces)
        along = ends[:, 0] != ends[:, 1]
        faces[along] = self._in_space(means.on_sides(split, *ends[along].T)) - on_faces[along]
        apart = np.abs(own.numpy() - split[: len(own)]).reshape(len(own), -1).max(axis=1)
        other = apart > 1e-6 * np.ptp(split)
        cells[np.logical_or.reduceat(other[self.mesh.connectivity], self.mesh.offsets[:-1])] = 0.0
        faces[other[ends].any(axis=1)] = 0.0
        return cells, faces

    def _means(self, number: int) -> SplitMeans:
        """From so many points of split cells to cells and faces."""
        if number not in self.split_means:
            self.split_means[number] = SplitMeans.of(self.mesh, number)
        return self.split_means[number]

    def _in_space(self, values: np.ndarray) -> np.ndarray:
        return np.pad(values, ((0, 0), (0, 3 - self.mesh.space))) if values.ndim == 2 else values

    @cached_property
    def _ends_of_faces(self) -> Int64[np.ndarray, "faces 2"]:
        """The two points of the plane mesh on each face; the same one twice for faces of its front and back."""
        points, offsets = self.face_corners
        low, high = (each.reduceat(points, offsets[:-1]) for each in (np.minimum, np.maximum))
        flat = np.zeros(len(low), bool)
        flat[self.cells.faces_of_type("empty")] = True
        return np.stack([low, np.where(flat, low, high)], axis=1)

    @cached_property
    def face_corners(self) -> Corners:
        """The points of the mesh on each face of the case; in a plane mesh both ends of an edge, twice."""
        points = self.cells.face_points
        if self.mesh.space == 2:
            from scipy.spatial import KDTree

            distance, point = map(np.asarray, KDTree(self.mesh.points.numpy()).query(self.cells.points[:, :2]))
            if distance.max(initial=0.0) > 1e-6 * np.ptp(self.cells.points, axis=0).max():
                raise ValueError(f"The mesh has other points than the case {self.folder}; read it with read_case.")
            points = point[points]
        return points.astype(np.int64), self.cells.face_offsets

    def _sampled(
        self,
        values: Float[np.ndarray, "points *axes"],
        slopes: Float[np.ndarray, "points space *axes"],
        corners: Corners,
        centres: Float[np.ndarray, "rows 3"],
    ) -> Float[np.ndarray, "rows *three"]:
        """Values at the centres of cells or faces; vectors of a plane case with a third component, as OpenFOAM wants.

        With d from a corner to the centre, the mean of the corners errs by dᵀHd/2, and that of the values continued
        along the corners' gradients by as much the other way: their mean errs by neither.
        """
        points, offsets = corners
        rows = np.repeat(np.arange(len(centres)), np.diff(offsets))
        away = centres[rows, : self.mesh.space] - self.mesh.points.numpy()[points]
        both = 0.5 * (slopes[points] + mean_rows(slopes[points], offsets)[rows])
        found = mean_rows(values[points] + np.einsum("es,es...->e...", away, both), offsets)
        return self._in_space(found)
