"""A kind of condition of your own: a wall through which a fluid is sucked or blown at a given speed.

    python examples/your_own_condition.py

The normal component of the velocity is prescribed, the tangential ones are free. One class is all it takes: the case is
turned, batched and scaled, and the network's solver fulfils the condition.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

import pennpde as penn
from pennpde.case.conditions.given import Door
from pennpde.case.conditions.protocol import DIFFERENCE, NORMAL, WHERE, Reference


@dataclass(frozen=True, eq=False)
class Porous(penn.Condition):
    """u . n = speed."""

    kind: ClassVar = "porous"

    mask: Tensor = field(metadata=WHERE.tag)  # what each tensor holds decides how it is turned, batched, encoded
    normals: Tensor = field(metadata=NORMAL.tag)
    through: Tensor = field(metadata=DIFFERENCE.tag)  # speed times normal, zero elsewhere

    @classmethod
    def resolve(cls, given: Any, door: Door) -> "Porous":
        if isinstance(given, Porous):
            return given
        normals, speed = door.mesh.point_normals(list(given)), torch.zeros(len(door.like), dtype=door.like.dtype)
        for patch, value in door.by_patch(given).items():
            speed[door.points(patch)] = door.number(value, door.label(patch))[door.points(patch)]
        return cls((normals != 0).any(dim=1), normals, normals * speed[:, None])

    def apply(self, values: Tensor) -> Tensor:
        further = [1] * (values.ndim - self.normals.ndim)  # encoded fields have channels behind the axis of space
        normals = self.normals.reshape(*self.normals.shape, *further).to(values.dtype)
        through = self.through.reshape(*self.through.shape, *[1] * (values.ndim - self.through.ndim))
        return values - normals * (normals * values).sum(dim=1, keepdim=True) + through.to(values.dtype)

    def scaled(self, reference: Reference) -> "Porous":
        return Porous(self.mask, self.normals, self.through / reference.one)


class Diffusion(penn.Equation):
    """du/dt = lap u: enough to see the condition at work."""

    unknowns = {"u": penn.VECTOR}

    def __init__(self, width):
        super().__init__()
        self.laplacian = penn.Laplacian(width)

    def rate(self, state, case):
        return {"u": self.laplacian(state["u"], case.operators["u"])}


def blown_box(cells=8, speed=0.3):
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, cells + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(points)).reshape(cells + 1, cells + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    mesh = penn.Mesh.from_arrays(points, quads).with_patches(
        {"wall": lambda x: x[:, 0] == 0, "porous": lambda x: x[:, 0] == 1}
    )
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.1)},
        dirichlet={"u": {"wall": 0.0}},
        conditions={Porous: {"u": {"porous": -speed}}},  # against the outward normal: blown in
    )


def main():
    torch.manual_seed(0)
    case = blown_box()
    network = penn.PENN(Diffusion(width=8), width=8, time_step=0.01).double()
    with torch.no_grad():
        velocity = network(case)["u"]
    side = torch.from_numpy(case.mesh.patch("porous").points)
    error = float((velocity[side, 0] + 0.3).abs().max())
    along = float(velocity[side, 1].abs().max())
    print(f"velocity through the porous side: error {error:.1e}; along it up to {along:.3f}")
    return error


if __name__ == "__main__":
    main()
