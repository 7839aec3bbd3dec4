"""Plane domains with corners and holes, each with its companion mesh."""

import numpy as np
import torch

from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh
from problems import rectangle

SPACING = 0.1


def lattice(keep, cells: int = 40, width: float = 1.0) -> Mesh:
    """Those squares of a lattice whose middles pass a test."""
    mesh = rectangle((cells, cells), (width, width))
    quads = mesh.connectivity.reshape(-1, 4)
    quads = quads[keep(mesh.points.numpy()[quads].mean(axis=1))]
    used, numbers = np.unique(quads, return_inverse=True)
    return Mesh.from_arrays(mesh.points[torch.from_numpy(used)], numbers.reshape(-1, 4))


def l_shape() -> Mesh:
    mesh = lattice(lambda x: ~((x[:, 0] > 0.5) & (x[:, 1] > 0.5)))
    return mesh.with_patches({"left": lambda x: np.isclose(x[:, 0], 0.0), "low": lambda x: np.isclose(x[:, 1], 0.0)})


def square_with_hole(around: int = 96, across: int = 16, radius: float = 0.25) -> Mesh:
    """Quads in rings between a circle and a square of width 1; the circle is the patch hole."""
    angles = 2 * np.pi * np.arange(around) / around
    circle = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    square = 0.5 * circle / np.abs(circle).max(axis=1, keepdims=True)
    shares = np.linspace(0.0, 1.0, across + 1)[:, None, None]
    points = ((1 - shares) * circle + shares * square).reshape(-1, 2)
    number = np.arange(len(points)).reshape(across + 1, around)
    inner, outer = number[:-1], number[1:]
    corners = [inner, outer, np.roll(outer, -1, axis=1), np.roll(inner, -1, axis=1)]
    mesh = Mesh.from_arrays(points, np.stack([corner.ravel() for corner in corners], axis=1))
    # The upper half of the right side: a patch that ends where there is no corner.
    window = np.flatnonzero(np.isclose(points[:, 0], 0.5) & (points[:, 1] > -1e-9))
    return mesh.with_patches({"hole": number[0], "window": window})


def step() -> Mesh:
    return coarse_mesh("a_0.40", cells_per_length=20)


DOMAINS = {"step": step, "L": l_shape, "hole": square_with_hole}
