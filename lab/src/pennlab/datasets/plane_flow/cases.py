"""A flow on a mesh as a Case: conditions, start, and the truth at its moments and in its steady state."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from scipy.sparse import csr_array, lil_array
from scipy.spatial import KDTree
from torch import Tensor

from pennlab.datasets.plane_flow.conditions import Wall
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.start import point_areas
from pennlab.datasets.plane_flow.truth import Truth
from pennpde.case import Case, Dirichlet
from pennpde.mesh import Mesh
from pennpde.mesh.triangulation import interpolation
from pennpde.models.potential_flow import potential_flow

STEADY_VELOCITY, STEADY_PRESSURE = "steady_u", "steady_p"
VELOCITY_STEP, PRESSURE_STEP = 2.0**-11, 2.0**-11
"""Fields are rounded to multiples of these, in bulk speeds and their squares: half a thousandth, below the truth's own
error, and what packs well."""
_OUTSIDE = 1e-3
_JUMP = 0.05


def case_on_mesh(flow: Flow, mesh: Mesh) -> Case:
    """The problem without its solution. Where patches meet, walls at rest win, then moving walls, then inlets."""
    positions = mesh.points.numpy()
    velocity = {name: torch.from_numpy(each.velocity(positions)) for name, each in flow.prescribed.items()}
    given: dict[str, Any] = {"outlets": dict.fromkeys(flow.outlets, 0.0)}
    free = [name for name in flow.conditions if name not in flow.outlets]
    pressure: Any = given["outlets"]
    if flow.pressure_point is not None:
        nearest = int(((positions - np.array(flow.pressure_point)) ** 2).sum(axis=1).argmin())
        mask = torch.zeros(len(positions), dtype=torch.bool)
        mask[nearest] = True
        pressure = Dirichlet(mask, torch.zeros(len(positions), dtype=torch.float64))
    walls = [name for name, each in flow.conditions.items() if isinstance(each, Wall)]
    case = Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": velocity, "p": pressure},
        neumann={"u": dict.fromkeys(flow.outlets, 0.0), "p": dict.fromkeys(free, 0.0)},
        slip={"u": flow.slips} if flow.slips else {},
        parameters={"viscosity": flow.viscosity},
        features={"wall_distance": mesh.distance_to(walls)},
        name=flow.name,
    )
    start = (
        potential_flow(case)
        if flow.start == "potential" and flow.inlets
        else case.dirichlet["u"].apply(case.initial["u"])
    )
    return replace(case, initial={**case.initial, "u": start})


def case_with_truth(flow: Flow, mesh: Mesh, truth: Truth, name: str, moments: Sequence[int] | None = None) -> Case:
    """The problem and its solution: targets u and p; `steady_u`, `steady_p` where there are.

    Args:
        flow: the problem.
        mesh: for a network.
        truth: the solution.
        name: of the case.
        moments: numbers of those that are wanted; all of the flow's by default.
    """
    case = case_on_mesh(flow, mesh)
    matrix = _interpolation(flow, mesh, truth)
    wanted = list(range(len(flow.moments)) if moments is None else moments)
    targets = _at(matrix, truth.velocity[..., wanted], truth.pressure[..., wanted], case)
    if truth.steady_velocity is not None and truth.steady_pressure is not None:
        steady = _at(matrix, truth.steady_velocity, truth.steady_pressure, case)
        targets |= {STEADY_VELOCITY: steady["u"], STEADY_PRESSURE: steady["p"]}
    return replace(case, targets=targets, name=name)


def _interpolation(flow: Flow, mesh: Mesh, truth: Truth) -> csr_array:
    """The matrix from the truth's points to those of a mesh: linear, but a mean where the velocity jumps.

    Between a lid and a wall, or a uniform inlet and a wall, the pressure grows like 1/r: its value in the corner itself
    says how fine the truth's mesh was, and nothing else. The mean over half a cell of the network's mesh does not.
    """
    positions = mesh.points.numpy()
    matrix, _ = interpolation(truth.mesh.points, truth.mesh.triangles, positions, _OUTSIDE)
    corners = jumps(flow, mesh)
    if not len(corners):
        return matrix
    areas, tree = point_areas(truth.mesh), KDTree(truth.mesh.points)
    rows = lil_array(matrix)
    for corner in corners:
        radius = 0.5 * float(KDTree(positions).query(positions[corner], k=2)[0][1])
        near = tree.query_ball_point(positions[corner], radius)
        if len(near) > 2:
            rows[[corner]] = csr_array(
                (areas[near] / areas[near].sum(), (np.zeros(len(near), int), near)), shape=(1, len(truth.mesh.points))
            )
    return csr_array(rows)


def jumps(flow: Flow, mesh: Mesh) -> Int64[np.ndarray, " corners"]:
    """Points in which two patches prescribe different velocities."""
    positions = mesh.points.numpy()
    low, high = np.full(positions.shape, np.inf), np.full(positions.shape, -np.inf)
    for name, condition in flow.prescribed.items():
        of_patch = mesh.patch(name).points
        velocity = condition.velocity(positions[of_patch])
        low[of_patch], high[of_patch] = np.minimum(low[of_patch], velocity), np.maximum(high[of_patch], velocity)
    return np.flatnonzero((high - low).max(axis=1) > _JUMP)


def _at(matrix: Any, velocity: np.ndarray, pressure: np.ndarray, case: Case) -> dict[str, Tensor]:
    found = {}
    for name, values, step in (("u", velocity, VELOCITY_STEP), ("p", pressure, PRESSURE_STEP)):
        there = (matrix @ values.reshape(len(values), -1)).reshape(-1, *values.shape[1:])
        if name == "p" and not case.mesh.patches.keys() & {"outlet", "outlet2"}:
            there = there - there[case.dirichlet["p"].mask.numpy()]
        rounded = torch.from_numpy(np.round(there / step) * step)
        found[name] = case.dirichlet[name].apply(rounded)
    return found


# Hashes


def mesh_fingerprint(mesh: Mesh) -> str:
    """A hash of points, cells and patches that is the same on any machine."""
    digest = hashlib.sha256()
    digest.update(np.floor(mesh.points.numpy() * 1e6 + 0.5).astype("<i8").tobytes())
    for part in (mesh.connectivity, mesh.offsets, *(mesh.patches[name].facets for name in sorted(mesh.patches))):
        digest.update(np.asarray(part).astype("<i8").tobytes())
    return digest.hexdigest()
