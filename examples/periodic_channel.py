"""Flow through a channel that repeats itself, driven by a pressure drop: periodic patches with a jump.

    python examples/periodic_channel.py

What leaves the piece of channel on the right comes in on the left; the pressure is lower by 1 after each period. The
steady flow between the walls is Poiseuille's parabola, nu u'' = dp/dx.
"""

import numpy as np
import torch

import pennpde as penn

LENGTH, DROP, VISCOSITY = 2.0, 1.0, 0.05


def piece_of_channel(length, along, across):
    x, y = np.linspace(0, length, along + 1), np.linspace(0, 1, across + 1)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(points)).reshape(along + 1, across + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    return penn.Mesh.from_arrays(points, quads).with_patches(
        {
            "left": lambda x: x[:, 0] == 0,
            "right": lambda x: x[:, 0] == length,
            "wall": lambda x: (x[:, 1] == 0) | (x[:, 1] == 1),
        }
    )


def solved(steps=4000, time_step=5e-3):
    case = penn.Case(
        piece_of_channel(LENGTH, 4, 16),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"wall": 0.0}},
        neumann={"p": 0.0},
        periodic={"u": {"left": "right"}, "p": {"left": penn.Across("right", jump=-DROP)}},
    )
    # A pressure with this jump and no other source is linear, and the operators are exact on it, over the seam as well.
    pressure = case.periodic["p"].apply(-DROP / LENGTH * case.mesh.points[:, 0])
    slope = case.operators["p"].grad(pressure)
    operators, velocity = case.operators["u"].composed(damping=0.25), case.initial["u"]
    for _ in range(steps):
        velocity = velocity + time_step * (VISCOSITY * operators.laplacian(velocity) - slope)
        velocity = case.dirichlet["u"].apply(case.periodic["u"].apply(velocity))
    return case, velocity


def main():
    case, velocity = solved()
    y = case.mesh.points[:, 1]
    exact = DROP / LENGTH / (2 * VISCOSITY) * y * (1 - y)
    error = float((velocity[:, 0] - exact).abs().max() / exact.max())
    seam = [torch.from_numpy(case.mesh.patch(name).points) for name in ("left", "right")]
    print(f"largest velocity: {velocity[:, 0].max():.4f}, exact {exact.max():.4f}; error {100 * error:.2f} %")
    print(f"difference over the seam: {float((velocity[seam[0]] - velocity[seam[1]]).abs().max())}")
    return error


if __name__ == "__main__":
    main()
