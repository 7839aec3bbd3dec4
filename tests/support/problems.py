"""Small boundary value problems that several tests share."""

from __future__ import annotations

import numpy as np
import torch

from pennpde.case import Case
from pennpde.case.units import Scale, Units
from pennpde.mesh import Mesh
from pennpde.models.ducts import flow_network

DUCT = """
[patches]
inlet = "x == 0"
outlet = "x == 3"
wall = "rest"
[dirichlet.u]
inlet = [1.0, 0.0]
wall = 0.0
[dirichlet.p]
outlet = 0.0
[neumann.u]
outlet = 0.0
[neumann.p]
inlet = 0.0
wall = 0.0
[parameters]
viscosity = 1e-3
"""
"""Problem file of a duct of the paper's template A."""
PLATE = """
[patches]
hot = "x == 0"
[dirichlet.T]
hot = 353.15
[neumann]
T = 0.0
[initial]
T = 293.15
[parameters]
velocity = [0.6, 0.0]
diffusivity = 0.3
"""
"""Problem file of a plate that is hot on its left side."""


def rectangle(cells: tuple[int, int] = (10, 10), size: tuple[float, float] = (1.0, 1.0)) -> Mesh:
    """Quads on [0, width] x [0, height], with the patches inlet (x = 0), outlet (x = width) and side (the rest)."""
    axes = [np.linspace(0.0, length, count + 1) for length, count in zip(size, cells, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    number = np.arange(len(points)).reshape(cells[0] + 1, cells[1] + 1)
    corners = [number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]]
    return Mesh.from_arrays(points, np.stack([corner.ravel() for corner in corners], axis=1)).with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], size[0]),
            "side": lambda x: np.isclose(x[:, 1], 0.0) | np.isclose(x[:, 1], size[1]),
        }
    )


def brick(cells: tuple[int, int, int] = (3, 4, 5), spacing: float = 0.1) -> Mesh:
    """Cubes, with one patch, boundary."""
    axes = [spacing * np.arange(count + 1) for count in cells]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    number = np.arange(len(points)).reshape([count + 1 for count in cells])
    starts = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
    x, y, z = cells
    corners = [number[a : a + x, b : b + y, c : c + z].ravel() for a, b, c in starts]
    mesh = Mesh.from_arrays(points, np.stack(corners, axis=1))
    return mesh.with_patches({"boundary": mesh.boundary_points})


def heated_plate(
    velocity: tuple[float, float] = (0.6, 0.0),
    diffusivity: float = 0.3,
    inlet: float = 0.7,
    cells: tuple[int, int] = (10, 10),
    targets: bool = False,
) -> Case:
    """Advection and diffusion from a hot inlet into a cold plate, whose other sides let nothing diffuse through."""
    mesh = rectangle(cells)
    x = mesh.points[:, 0]
    times = torch.tensor([0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    # Not the solution, but close enough to train towards.
    front = inlet * torch.exp(-x[:, None] / (0.1 + times * (velocity[0] + diffusivity)))
    return Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": inlet}},
        neumann={"T": 0.0},
        parameters={"velocity": velocity, "diffusivity": diffusivity},
        features={"inlet_distance": x},
        targets={"T": front} if targets else {},
        name=f"u{velocity[0]:.2f}_d{diffusivity:.2f}_t{inlet:.2f}",
    )


def polynomial(cells: tuple[int, int, int] = (5, 6, 7), seed: int = 0, degree: int = 10) -> Case:
    """A separable polynomial on a brick with its normal derivatives, and its gradient as the target."""
    mesh = brick(cells)
    draw = np.random.default_rng(seed)
    x = mesh.points.numpy() - mesh.points.numpy().mean(axis=0)
    coefficients = draw.uniform(-1.0, 1.0, (3, degree))
    degrees = np.arange(1, degree + 1)
    values = sum((coefficients[k] * x[:, k, None] ** degrees).sum(axis=1) for k in range(3))
    gradient = np.stack(
        [(coefficients[k] * degrees * x[:, k, None] ** (degrees - 1)).sum(axis=1) for k in range(3)], axis=1
    )
    largest = np.abs(values).max()
    normal_derivative = (mesh.normals.numpy() * gradient).sum(axis=1) / largest
    return Case(
        mesh,
        initial={"phi": values / largest},
        neumann={"phi": {"boundary": normal_derivative}},
        targets={"grad": gradient / largest},
        name=f"polynomial {seed}",
    )


FLOW = flow_network(width=1, iterations=1, pressure_iterations=1).equation
"""What a flow knows about itself: units, numbers, checks. Its weights do not matter."""


def plate_in_units(case: Case, length: float, speed: float) -> Case:
    """Advection and diffusion as somebody would write it down whose metre is 1 / length and so on."""
    scales = {
        "velocity": Scale(1 / speed),
        "diffusivity": Scale(1 / (length * speed)),
        "inlet_distance": Scale(1 / length),
    }
    return Units.of_speed(1 / length, 1 / speed, scales).dimensionless(case)


def tensors_of(case: Case) -> dict[str, torch.Tensor]:
    found = {"points": case.mesh.points}
    for part in ("initial", "parameters", "features", "targets"):
        found |= {f"{part} {name}": values for name, values in getattr(case, part).items()}
    for name in case.initial:
        found[f"dirichlet {name}"] = case.dirichlet[name].values
        found[f"neumann {name}"] = case.neumann[name].normal_derivative
    return found
