"""Heat that a stream carries across a square plate: the problem of the paper's second experiment."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pennpde.case import Case
from pennpde.mesh import Mesh

POINTS = 11
"""Along each side of the coarse mesh, as the authors have it."""


def coarse_mesh(name: str, points: int = POINTS, jitter: float = 0.0, seed: int = 0) -> Mesh:
    """The plane mesh of quads on which networks see a case, with the patches inlet and side.

    Args:
        name: of the case.
        points: along each side.
        jitter: how far interior points are moved at most, as a share of the cell size.
        seed: of the jitter; each case has its own random numbers.
    """
    if points < 3:
        raise ValueError(f"A mesh of {points} x {points} points has none inside; take at least 3.")
    x, y = np.meshgrid(np.linspace(0, 1, points), np.linspace(0, 1, points))
    positions = np.stack([x.reshape(-1), y.reshape(-1)], axis=1)
    inside = np.all((positions > 0) & (positions < 1), axis=1)
    if jitter:
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        radius = jitter / (points - 1) * np.sqrt(random.random(len(positions)))
        angle = 2 * np.pi * random.random(len(positions))
        moved = positions + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        # Few digits pack into half of the space.
        positions = np.where(inside[:, None], np.round(moved * 2**16) / 2**16, positions)
    first = np.arange(points - 1)[None, :] + points * np.arange(points - 1)[:, None]
    quads = np.stack([first, first + 1, first + points + 1, first + points], axis=-1).reshape(-1, 4)
    inlet = positions[:, 0] == 0
    side = (positions[:, 0] == 1) | (positions[:, 1] == 0) | (positions[:, 1] == 1)
    return Mesh.from_arrays(positions, quads, patches={"inlet": inlet, "side": side})


def advection_diffusion_case(
    mesh: Mesh,
    velocity: float,
    diffusivity: float,
    inlet_temperature: float,
    targets: Mapping[str, Any] | None = None,
    name: str = "",
) -> Case:
    """The problem on a mesh with the patches inlet and side, from a cold start."""
    return Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": inlet_temperature}},
        neumann={"T": {"side": 0.0}},
        parameters={"velocity": (velocity, *[0.0] * (mesh.space - 1)), "diffusivity": diffusivity},
        features={"inlet_distance": mesh.distance_to("inlet")},
        targets=targets or {},
        name=name,
    )


def heated_at_inlet(mesh: Mesh, velocity: Sequence[float], diffusivity: float, inlet_temperature: float) -> Case:
    """The same problem on any mesh with the patch inlet, in a flow of any direction."""
    return Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": inlet_temperature}},
        neumann={"T": 0.0},
        parameters={"velocity": tuple(velocity), "diffusivity": diffusivity},
    )
