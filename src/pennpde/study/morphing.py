"""Meshes of another shape with the same cells: control points move, and the points around them follow smoothly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import lstsq

from pennpde.case import Case
from pennpde.machine import remembered
from pennpde.mesh import Mesh

_MOST_FIXED = 400
"""Points of fixed patches that become control points; between them the displacement is almost nothing."""
_LEAST = 0.1
"""Of the sine of a corner's angle, or half of what it was before where that is less."""


class MorphError(ValueError):
    """A shape whose cells would be inverted or nearly flat."""


@dataclass(frozen=True)
class Handle:
    """Control points that move together, by a variable of the study, along one direction.

    Attributes:
        at: Their positions, [points][space].
        direction: By which they move where the variable is one.
        radius: Beyond this distance from all of them nothing moves; None: half of the mesh's extent.
        fixed: Patches that stay where they are.
    """

    at: tuple[tuple[float, ...], ...]
    direction: tuple[float, ...]
    radius: float | None = None
    fixed: tuple[str, ...] = ()

    @staticmethod
    def of(name: str, given: Any) -> Handle:
        """From a table of a study file: `at`, `direction`, `radius`, `fixed`."""
        if isinstance(given, Handle):
            return given
        wrong = ValueError(
            f"[morph.{name}] is {given!r}; give at = [x, y] or a list of such points, direction = [x, y], and where "
            'you like a radius above zero and fixed = ["PATCH", ...].'
        )
        if not isinstance(given, Mapping) or given.keys() - {"at", "direction", "radius", "fixed"}:
            raise wrong
        try:
            at, direction = np.atleast_2d(np.array(given["at"], float)), np.array(given["direction"], float)
            radius = None if given.get("radius") is None else float(given["radius"])
        except (KeyError, TypeError, ValueError):
            raise wrong from None
        sound = at.ndim == 2 and direction.shape == at.shape[1:] and direction.any()
        if not sound or not (radius is None or radius > 0) or isinstance(given.get("fixed"), str):
            raise wrong
        positions = tuple(tuple(each) for each in at.tolist())
        return Handle(positions, tuple(direction.tolist()), radius, tuple(given.get("fixed", ())))


def morphed(mesh: Mesh, handles: Mapping[str, Handle], values: Mapping[str, float]) -> Mesh:
    """The mesh with its control points moved by these values; cells, patches and their names stay."""
    moved = {name: value for name, value in values.items() if name in handles and value}
    if not moved:
        return mesh
    points = mesh.points.detach().numpy()
    changed = mesh.with_points(torch.from_numpy(points + displacement(mesh, handles, moved)(points)))
    check_cells(mesh, changed)
    return changed


def morphed_case(case: Case, handles: Mapping[str, Handle], values: Mapping[str, float]) -> Case:
    """The case on its mesh with control points moved: points, cells and patches keep what is known there."""
    mesh = morphed(case.mesh, handles, values)
    if mesh is case.mesh:
        return case

    def turned(_: str, each: Any) -> Any:
        within = np.flatnonzero(mesh.facets.within(each.mask.cpu().numpy())) if hasattr(each, "normals") else None
        return each if within is None else replace(each, normals=mesh.normals_of_facets(within))

    return case.with_conditions(turned, mesh=mesh, cached_operators=None)


class Displacement:
    """Radial basis functions (Wendland's of second order) around control points."""

    def __init__(self, centres: np.ndarray, moves: np.ndarray, radius: float) -> None:
        self.centres, self.radius = centres, radius
        found = lstsq(self._basis(centres), moves)
        assert found is not None
        self.weights = found[0]

    def _basis(self, points: Float[np.ndarray, "points space"]) -> Float[np.ndarray, "points centres"]:
        away = np.linalg.norm(points[:, None] - self.centres, axis=-1) / self.radius
        return np.maximum(1.0 - away, 0.0) ** 4 * (4.0 * away + 1.0)

    def __call__(self, points: Float[np.ndarray, "points space"]) -> Float[np.ndarray, "points space"]:
        """By how much points move."""
        return self._basis(points) @ self.weights


def displacement(mesh: Mesh, handles: Mapping[str, Handle], values: Mapping[str, float]) -> Displacement:
    """The smooth displacement in which control points move by the values and fixed patches stay."""
    points = mesh.points.detach().numpy()
    chosen = {name: handles[name] for name in values}
    if wrong := [name for name, each in chosen.items() if len(each.direction) != mesh.space]:
        raise MorphError(f"[morph.{wrong[0]}] has positions of {len(chosen[wrong[0]].direction)} numbers; the mesh has "
                         f"{mesh.space} coordinates.")  # fmt: skip
    at = [np.array(each.at) for each in chosen.values()]
    moves = [np.tile(values[name] * np.array(each.direction), (len(each.at), 1)) for name, each in chosen.items()]
    # Handles that do not move now hold their points.
    for name in handles.keys() - values.keys():
        at.append(np.array(handles[name].at))
        moves.append(np.zeros_like(at[-1]))
    patches = dict.fromkeys(patch for each in handles.values() for patch in each.fixed)
    held = np.unique(np.concatenate([np.zeros(0, np.int64), *(mesh.patch(patch).points for patch in patches)]))
    at.append(points[held[:: max(1, -(-len(held) // _MOST_FIXED))]])
    moves.append(np.zeros_like(at[-1]))
    radii = [each.radius for each in handles.values() if each.radius is not None]
    radius = max(radii) if radii else 0.5 * float(np.ptp(points, axis=0).max())
    centres, kept = np.unique(np.concatenate(at), axis=0, return_index=True)
    return Displacement(centres, np.concatenate(moves)[kept], radius)


def check_cells(before: Mesh, after: Mesh) -> None:
    """Refuse inverted cells, and in the plane corners that have become nearly flat."""
    volumes = after.cell_volumes.numpy()
    worst = int(volumes.argmin())
    where = after.points.numpy()[after.connectivity[after.offsets[worst]]]
    if volumes[worst] <= 0:
        raise MorphError(f"{int((volumes <= 0).sum())} cells are inverted, the first near {_shown(where)}.")
    if after.space == 2:
        sines, least = _sines(after), np.minimum(_LEAST, 0.5 * _sines(before))
        flat = np.flatnonzero(sines < least)
        if len(flat):
            where = after.points.numpy()[after.connectivity[flat[0]]]
            raise MorphError(
                f"{len(flat)} corners of cells have become flat or inverted, the first at {_shown(where)}."
            )


@remembered  # of the mesh before, which all shapes come from
def _sines(mesh: Mesh) -> Float[np.ndarray, " corners"]:
    """The sine of the angle at each corner of each plane cell; negative where it is inverted."""
    rows, offsets = np.arange(len(mesh.connectivity)), mesh.offsets
    after, before = rows + 1, rows - 1
    after[offsets[1:] - 1], before[offsets[:-1]] = offsets[:-1], offsets[1:] - 1
    corners = mesh.points.detach().numpy()[mesh.connectivity]
    on, back = corners[after] - corners, corners[before] - corners
    lengths = np.linalg.norm(on, axis=1) * np.linalg.norm(back, axis=1)
    return (on[:, 0] * back[:, 1] - on[:, 1] * back[:, 0]) / np.maximum(lengths, np.finfo(float).tiny)


def _shown(position: Sequence[float] | np.ndarray) -> str:
    return f"({', '.join(f'{float(each):.4g}' for each in position)})"
