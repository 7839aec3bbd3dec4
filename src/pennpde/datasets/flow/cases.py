"""Incompressible flow through ducts: the cases of the paper's third experiment, on coarse plane meshes.

Generation has two stages: `solve` runs OpenFOAM on a fine mesh (about a minute) and writes a run file; `case_from_run`
makes the Case of a coarse mesh from it in a moment.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from pennpde.case import Case
from pennpde.datasets.flow.ducts import Duct, all_names, case_name, duct, parse_name
from pennpde.datasets.flow.truth import (
    END_TIME,
    INLET_VELOCITY,
    PROFILES,
    TIMES,
    VISCOSITY,
    Run,
    is_complete,
    read_run,
    solve,
)
from pennpde.datasets.profile import Profile
from pennpde.mesh import Mesh
from pennpde.models.potential_flow import potential_flow

__all__ = [
    "CELLS_PER_LENGTH",
    "END_TIME",
    "JITTER",
    "PROFILES",
    "TIMES",
    "Duct",
    "Profile",
    "Run",
    "all_names",
    "case_from_run",
    "case_name",
    "case_on_mesh",
    "coarse_mesh",
    "duct",
    "extruded",
    "fields_at",
    "flow_case",
    "flow_through",
    "is_complete",
    "parse_name",
    "read_run",
    "solve",
    "splits",
    "splits_off_lattice",
    "with_potential_flow",
]

CELLS_PER_LENGTH = 22.5
JITTER = 0.15
THICKNESS = 0.05
SPLIT_SIZES = {"a": (7, 2, 2), "b": (93, 14, 14), "c": (103, 9, 9)}
"""Training, validation and test cases of each type, as in the paper: 203, 25 and 25 in all."""


OFF_LATTICE = {
    "a": ((0.25,), (0.75,)),
    "b": ((0.15, 0.95), (0.25, 0.55), (0.55, 0.25), (0.75, 0.85), (0.85, 0.05)),
    "c": ((0.15, 0.95), (0.25, 0.65), (0.45, 0.05), (0.55, 0.75), (0.85, 0.35)),
}
"""Design parameters of a second test set, half-way between those of the lattice. No case is a mirror image of another
one, which eight of the nine test cases of type C are of a training case."""


def splits_off_lattice() -> dict[str, list[str]]:
    """The second test set."""
    return {"test": [case_name(kind, values) for kind, some in OFF_LATTICE.items() for values in some]}


def splits(seed: int = 0) -> dict[str, list[str]]:
    """The 253 cases, split into train, validation and test within each type."""
    random = np.random.default_rng([seed, zlib.crc32(b"splits")])
    dealt: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for kind, sizes in SPLIT_SIZES.items():
        names = [name for name in all_names() if name.startswith(kind)]
        order = [names[place] for place in random.permutation(len(names))]
        for split, size in zip(dealt, sizes, strict=True):
            dealt[split] += sorted(order[:size])
            order = order[size:]
    return dealt


def coarse_mesh(name: str, seed: int = 0, cells_per_length: float = CELLS_PER_LENGTH, jitter: float = JITTER) -> Mesh:
    """The plane mesh of quads on which networks see a case, with the patches inlet, wall and outlet.

    Grid lines stand at rounded multiples of the cell size, so 1, 2 and 3 unit lengths get 23 (or 22), 45 and 68 cells.

    Args:
        name: of the case.
        seed: of the jitter; each case has its own random numbers.
        cells_per_length: may be fractional.
        jitter: how far interior points are moved at most, as a share of their shortest edge, so that no network sees
            a lattice.
    """
    shape = duct(name)
    points, quads = shape.grid(cells_per_length)
    patches = {patch: np.flatnonzero(shape.on_patch(patch, points)) for patch in shape.patches}
    if jitter:
        boundary = np.zeros(len(points), bool)
        boundary[np.concatenate(list(patches.values()))] = True
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        radius = jitter * _shortest_edge(points, quads) * np.sqrt(random.random(len(points)))
        angle = 2 * np.pi * random.random(len(points))
        shift = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        # To a millionth of a unit length: the digits below would be noise that takes a fifth of a stored case.
        moved = np.round((points + shift) * 2.0**20) / 2.0**20
        points = np.where(boundary[:, None], points, moved)
    return Mesh.from_arrays(points, quads, patches=patches)


def _shortest_edge(points: Float[np.ndarray, "points 2"], quads: Int64[np.ndarray, "cells 4"]) -> np.ndarray:
    shortest = np.full(len(points), np.inf)
    for first, second in ((0, 1), (1, 2), (2, 3), (3, 0)):
        ends = quads[:, [first, second]]
        length = np.linalg.norm(points[ends[:, 1]] - points[ends[:, 0]], axis=1)
        np.minimum.at(shortest, ends, length[:, None])
    return shortest


def flow_case(
    mesh: Mesh, name: str = "", targets: Mapping[str, Any] | None = None, viscosity: float = VISCOSITY
) -> Case:
    """The flow problem on a mesh with the patches inlet, wall and outlet, started from its potential flow.

    Where the wall meets the inlet or the outlet, the velocity is the wall's: zero.
    """
    inlet = (*INLET_VELOCITY, *[0.0] * (mesh.space - 2))
    sides = {"frontAndBack": 0.0} if "frontAndBack" in mesh.patches else {}
    start = Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": inlet, "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0, **sides}, "p": {"wall": 0.0, "inlet": 0.0, **sides}},
        parameters={"viscosity": viscosity},
        features={"wall_distance": mesh.distance_to("wall")},
        targets=targets or {},
        name=name,
    )
    return with_potential_flow(start)


def with_potential_flow(case: Case) -> Case:
    """The case, started from the potential flow of its conditions and from zero pressure."""
    return replace(case, initial={**case.initial, "u": potential_flow(case), "p": torch.zeros_like(case.initial["p"])})


def case_from_run(
    run_file: Path | str,
    seed: int = 0,
    cells_per_length: float = CELLS_PER_LENGTH,
    jitter: float = JITTER,
    frames: bool = False,
    thick: bool = False,
) -> Case:
    """The case of a run file on its coarse mesh, with the truth interpolated linearly to the points.

    Args:
        run_file: written by `solve`.
        seed: of the jitter.
        cells_per_length: of the coarse mesh.
        jitter: as for `coarse_mesh`.
        frames: whether the targets hold all 41 times, u [points, 2, 41] and p [points, 41], instead of only t = 4.
        thick: whether the mesh is to be one cell thick in space, as the released networks want it.
    """
    run = read_run(run_file, frames)
    mesh = coarse_mesh(str(run.facts["name"]), seed, cells_per_length, jitter)
    return case_on_mesh(run, mesh, frames, thick)


def case_on_mesh(run: Run, mesh: Mesh, frames: bool = False, thick: bool = False) -> Case:
    """The case of a run on any plane mesh of its duct with the patches inlet, wall and outlet.

    Args:
        run: from `read_run`.
        mesh: may have any cells; its points lie in the duct.
        frames: whether the targets hold all times of the run, as for `case_from_run`, instead of the last.
        thick: as for `case_from_run`.
    """
    u, p = fields_at(run, mesh.points.numpy())
    u[mesh.patch("inlet").points] = np.array(INLET_VELOCITY)[:, None]
    u[mesh.patch("wall").points] = 0.0
    p[mesh.patch("outlet").points] = 0.0
    if not frames:
        u, p = u[..., -1], p[..., -1]
    if thick:
        mesh = extruded(mesh)
        u, p = u.repeat(2, axis=0), p.repeat(2, axis=0)
        u = np.concatenate([u, np.zeros_like(u[:, :1])], axis=1)
    return flow_case(mesh, str(run.facts["name"]), {"u": torch.from_numpy(u), "p": torch.from_numpy(p)})


def fields_at(
    run: Run, points: Float[np.ndarray, "points 2"]
) -> tuple[Float[np.ndarray, "points 2 times"], Float[np.ndarray, "points times"]]:
    """Velocity and pressure of a run at points of its domain, at all of its times."""
    matrix = run.mesh.interpolation(points)
    velocity = run.mesh.samples(
        np.moveaxis(run.velocity, 0, 2), {"inlet": np.array(INLET_VELOCITY)[:, None], "wall": 0}
    )
    pressure = run.mesh.samples(np.moveaxis(run.pressure, 0, 1), {"outlet": 0.0})
    u = (matrix @ velocity.reshape(len(velocity), -1)).reshape(len(points), 2, -1)
    return u, matrix @ pressure


def extruded(mesh: Mesh, thickness: float = THICKNESS) -> Mesh:
    """A plane mesh one cell thick, as OpenFOAM has plane cases: its two flat sides are the patch `frontAndBack`."""
    return mesh.extruded(thickness, sides="frontAndBack")


def flow_through(mesh: Mesh, speed: float, viscosity: float) -> Case:
    """The flow through a mesh with the patches inlet, wall and outlet, entering at right angles to the inlet."""
    for name, value in (("inlet speed", speed), ("viscosity", viscosity)):
        if not value > 0:
            raise ValueError(f"The {name} is {value:g}; it must be larger than zero.")
    entering = -speed * mesh.point_normals("inlet")
    return Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": entering, "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"wall": 0.0, "inlet": 0.0}},
        parameters={"viscosity": viscosity},
    )
