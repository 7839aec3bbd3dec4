"""Fluxes through the faces of an OpenFOAM mesh that leave nothing in any cell: what its solvers call `phi`.

A flux that is nearly right is corrected by the gradient of a potential ψ, as in a projection method: with
coefficients c = |S| / d of the faces, φ = φ* - c (ψ_neighbour - ψ_owner), and Σ φ = 0 in every cell. Whatever the
coefficients, the sum is zero; with these the correction is the smallest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import coo_array, csr_array

from pennpde.openfoam.conditions import RESTING, SYMMETRY
from pennpde.openfoam.fields import on_faces
from pennpde.openfoam.poly_mesh import PolyMesh
from pennpde.operators.multigrid import Levels

_CYCLES = 12
_ROUNDS = 6
_CLOSED = ("empty", "wedge", *SYMMETRY, *RESTING)
_UNIFORM = ("uniformFixedValue",)


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
        elif kind == "fixedValue" or kind in _UNIFORM:
            values = on_faces(condition.get("value"), patch.count, (3,)) if kind == "fixedValue" else None
            if values is None:
                values = _evened(face_velocity[patch.faces]) if kind in _UNIFORM else face_velocity[patch.faces]
            flux[patch.faces] = (mesh.face_vectors[patch.faces] * values).sum(axis=1)
        elif kind not in _CLOSED:
            free[patch.faces] = True
    return Openings(flux, free, np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64))


def _evened(values: Float[np.ndarray, "faces 3"]) -> Float[np.ndarray, "faces 3"]:
    """The one value of all faces. Next to a wall some of them are lower; the median is not."""
    return np.broadcast_to(np.median(values, axis=0), values.shape)


@dataclass(frozen=True, eq=False)
class Projection:
    """Makes fluxes on a mesh divergence-free; set up once per mesh and set of free faces."""

    mesh: PolyMesh
    free: Bool[np.ndarray, " faces"]
    pairs: Int64[np.ndarray, "pairs 2"]
    differences: csr_array
    """ψ of the cells to what is subtracted from the flux of each face."""
    levels: Levels

    @staticmethod
    def on(mesh: PolyMesh, known: Openings) -> Projection:
        internal, cells = len(mesh.neighbour), mesh.number_of_cells
        size = np.linalg.norm(mesh.face_vectors, axis=1)
        normals = mesh.face_vectors / np.where(size > 0, size, 1.0)[:, None]
        along = ((mesh.face_centres - mesh.cell_centres[mesh.owner]) * normals).sum(axis=1)
        beyond = mesh.cell_centres[mesh.neighbour] - mesh.face_centres[:internal]
        distance = along.copy()
        distance[:internal] += (beyond * normals[:internal]).sum(axis=1)
        for one, other in (known.pairs.T, known.pairs.T[::-1]):
            distance[one] = along[one] + along[other]
        # On twisted cells a centre can lie behind its own face.
        typical = np.abs(distance[: max(internal, 1)]).mean()
        coefficient = size / np.maximum(distance, 1e-3 * typical)
        inner = np.arange(internal)
        open_faces = np.flatnonzero(known.free)
        first, second = known.pairs.T
        coefficient[second] = coefficient[first]
        # Of each face: its coefficient times (ψ in front - ψ behind); in front of an outlet ψ is zero.
        rows = [inner, inner, open_faces, first, first, second, second]
        columns = [
            mesh.neighbour,
            mesh.owner[:internal],
            mesh.owner[open_faces],
            mesh.owner[second],
            mesh.owner[first],
            mesh.owner[first],
            mesh.owner[second],
        ]
        signs = [1.0, -1.0, -1.0, 1.0, -1.0, 1.0, -1.0]
        values = [sign * coefficient[row] for sign, row in zip(signs, rows, strict=True)]
        differences = csr_array(
            coo_array(
                (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
                shape=(mesh.number_of_faces, cells),
            )
        )
        matrix = csr_array(-(mesh.outward @ differences))
        return Projection(mesh, known.free, known.pairs, differences, Levels.of(matrix))

    def __call__(
        self, flux: Float[np.ndarray, " faces"], prescribed: Float[np.ndarray, " faces"]
    ) -> Float[np.ndarray, " faces"]:
        """The flux next to a given one that leaves nothing in any cell and is as prescribed on the boundary.

        Where every flux through the boundary is prescribed and they do not add up to zero, what cannot go away is
        spread over all cells.

        Args:
            flux: nearly divergence-free.
            prescribed: see `Openings.flux`.
        """
        internal = len(self.mesh.neighbour)
        found = np.where(self.free, flux, prescribed)
        found[:internal] = flux[:internal]
        first, second = self.pairs.T
        found[first] = 0.5 * (flux[first] - flux[second])
        found[second] = -found[first]
        for _ in range(_ROUNDS):
            rest = self.mesh.outward @ found
            if not self.free.any():
                rest = rest - rest.mean()
            if np.abs(rest).max(initial=0.0) <= 1e-14 * np.abs(found).max(initial=0.0):
                break
            right = torch.from_numpy(-rest[:, None])
            potential = self.levels.solve(right, cycles=_CYCLES)[:, 0].numpy()
            found = found - self.differences @ potential
        return found
