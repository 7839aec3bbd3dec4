"""A flow with every kind of condition on a small mesh of any cells."""

import numpy as np
import torch
from torch import Tensor

from meshes import box
from pennpde.case import Case
from pennpde.mesh import Mesh


def square(kind: str = "quad", cells_along: int = 4, jitter: float = 0.1, seed: int = 0) -> Mesh:
    """The unit square (or cube) with its sides along x as patches, and the rest as another."""
    mesh = box(kind, cells_along, jitter, seed)
    return mesh.with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], 1.0),
            "wall": lambda x: (np.isclose(x[:, 1:], 0.0) | np.isclose(x[:, 1:], 1.0)).any(axis=1),
        }
    )


def mask_of(mesh: Mesh, *patches: str) -> Tensor:
    mask = torch.zeros(mesh.number_of_points, dtype=torch.bool)
    for patch in patches:
        mask[torch.from_numpy(mesh.patch(patch).points)] = True
    return mask


def flow(mesh: Mesh, viscosity: float = 1e-3, name: str = "") -> Case:
    inflow = (1.0, *[0.0] * (mesh.space - 1))
    return Case(
        mesh,
        initial={"u": torch.sin(mesh.points), "p": mesh.points[:, 0]},
        dirichlet={"u": {"inlet": inflow, "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.25}, "p": {"wall": 0.0, "inlet": -2.0}},
        parameters={"viscosity": viscosity, "gravity": tuple(range(1, mesh.space + 1))},
        features={
            "wall_distance": mesh.distance_to(["wall"]),
            "stretch": mesh.points[:, :, None] * mesh.points[:, None],
        },
        targets={"u": torch.stack([mesh.points, 2 * mesh.points], dim=-1), "p": mesh.points[:, 0]},
        name=name,
    )


def tensors_of(case: Case) -> dict[str, Tensor]:
    """Every tensor that a case holds, by where it is."""
    found = {}
    for part in ("initial", "parameters", "features", "targets"):
        found |= {f"{part}.{name}": values for name, values in getattr(case, part).items()}
    for part in ("dirichlet", "neumann", "slip"):
        for name, condition in getattr(case, part).items():
            values = {key: values for key, values in vars(condition).items() if isinstance(values, Tensor)}
            found |= {f"{part}.{name}.{key}": each for key, each in values.items()}
    return found
