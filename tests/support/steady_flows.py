"""Small flows that have steady states, on meshes of any cells."""

import torch

import pennpde as penn
from meshes import arrays
from pennpde.flow.scheme import FlowScheme
from pennpde.mesh import Mesh


def square(kind: str, cells_along: int, jitter: float = 0.1) -> Mesh:
    points, cells = arrays(kind, cells_along, jitter=jitter)
    sides = {"left": (0, 0.0), "right": (0, 1.0), "bottom": (1, 0.0), "top": (1, 1.0)}
    return Mesh.from_arrays(points, cells).with_patches(
        {name: lambda x, axis=axis, at=at: abs(x[:, axis] - at) < 1e-9 for name, (axis, at) in sides.items()}
    )


def duct(mesh: Mesh, viscosity: float = 0.05) -> penn.Case:
    y = mesh.points[:, 1]
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {"left": torch.stack([6 * y * (1 - y), 0 * y], dim=1), "bottom": 0.0, "top": 0.0},
            "p": {"right": 0.0},
        },
        neumann={"u": {"right": 0.0}, "p": {"left": 0.0, "bottom": 0.0, "top": 0.0}},
        parameters={"viscosity": viscosity},
    )


def cavity(mesh: Mesh, viscosity: float = 0.01) -> penn.Case:
    corner = (mesh.points.square().sum(dim=1) < 1e-12).numpy()
    return penn.Case(
        mesh.with_patches({"corner": corner}),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"top": (1.0, 0.0), "left": 0.0, "right": 0.0, "bottom": 0.0}, "p": {"corner": 0.0}},
        parameters={"viscosity": viscosity},
    )


def slip_duct(mesh: Mesh, viscosity: float = 0.02) -> penn.Case:
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"left": (1.0, 0.0), "bottom": 0.0}, "p": {"right": 0.0}},
        neumann={"u": {"right": 0.0}, "p": {"left": 0.0, "bottom": 0.0, "top": 0.0}},
        slip={"u": ["top"]},
        parameters={"viscosity": viscosity},
    )


def driven(mesh: Mesh, viscosity: float = 0.02) -> penn.Case:
    """By a static pressure, between walls."""
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"bottom": 0.0, "top": 0.0}, "p": {"left": 12 * viscosity, "right": 0.0}},
        parameters={"viscosity": viscosity},
    )


def plain() -> FlowScheme:
    return FlowScheme(splits=0)
