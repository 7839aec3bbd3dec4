"""Flow through the ducts of the paper's third experiment, on coarse plane meshes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from pennpde.case import Case
from pennpde.designs.ducts import duct
from pennpde.mesh import Mesh
from pennpde.models.potential_flow import potential_flow

INLET_VELOCITY = (1.0, 0.0)

VISCOSITY = 1e-3

CELLS_PER_LENGTH = 22.5

JITTER = 0.15


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
