"""Flows in a square of few cells: a duct and a cavity."""

from __future__ import annotations

import numpy as np
import torch

from meshes import arrays
from pennpde.case import Case
from pennpde.mesh import Mesh


def square(kind: str = "mixed_plane", cells_along: int = 8, jitter: float = 0.15) -> Mesh:
    points, cells = arrays(kind, cells_along, jitter=jitter)
    return Mesh.from_arrays(points, cells).with_patches(
        {
            "left": lambda x: np.isclose(x[:, 0], 0.0),
            "right": lambda x: np.isclose(x[:, 0], 1.0),
            "bottom": lambda x: np.isclose(x[:, 1], 0.0),
            "top": lambda x: np.isclose(x[:, 1], 1.0),
        }
    )


def duct(mesh: Mesh, viscosity: float = 0.05, profile: str = "parabolic", **changes) -> Case:
    y = mesh.points[:, 1]
    inlet = torch.stack([6 * y * (1 - y) if profile == "parabolic" else torch.ones_like(y), 0 * y], dim=1)
    given = {
        "initial": {"u": (0.0, 0.0), "p": 0.0},
        "dirichlet": {"u": {"left": inlet, "bottom": 0.0, "top": 0.0}, "p": {"right": 0.0}},
        "neumann": {"u": {"right": 0.0}, "p": {"left": 0.0, "bottom": 0.0, "top": 0.0}},
        "parameters": {"viscosity": viscosity},
    }
    return Case(mesh, **(given | changes))


def cavity(mesh: Mesh, viscosity: float = 0.02) -> Case:
    corner = np.zeros(mesh.number_of_points, bool)
    corner[int(mesh.points.square().sum(dim=1).argmin())] = True
    return Case(
        mesh.with_patches({"corner": corner}),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"top": (1.0, 0.0), "left": 0.0, "right": 0.0, "bottom": 0.0}, "p": {"corner": 0.0}},
        parameters={"viscosity": viscosity},
    )
