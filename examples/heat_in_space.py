"""Heat in space: a block that cools through its surface, of hexahedra or of tetrahedra.

    python examples/heat_in_space.py

Meshes, operators, conditions and networks are the same in space as in the plane. From sin(pi x) sin(pi y) sin(pi z)
the temperature falls as exp(-3 pi^2 t); explicit steps with the operators come closer to that rate on a finer mesh. On
the coarse one a small network, trained on eight blocks whose solution is known, is nearer to the truth than they are.
"""

from pathlib import Path

import numpy as np
import pyvista as pv
import torch

import pennpde as penn
from pennpde.metrics import relative_l2

TIME = 0.02


class Heat(penn.Equation):
    """dT/dt = lap T."""

    unknowns = {"T": penn.SCALAR}

    def __init__(self, width):
        super().__init__()
        self.laplacian = penn.Laplacian(width)

    def rate(self, state, case):
        return {"T": self.laplacian(state["T"], case.operators["T"])}


def block(cells, tetrahedra=False):
    grid = pv.ImageData(dimensions=(cells + 1,) * 3, spacing=(1 / cells,) * 3).cast_to_unstructured_grid()
    mesh = penn.Mesh.from_pyvista(grid.triangulate() if tetrahedra else grid)
    return mesh.with_patches({"surface": mesh.boundary_points})


def cooling(mesh, strengths):
    """A sum of modes with their exact solution; strengths [2, 2, 2]: of one and two half-waves along each axis."""
    points = mesh.points.numpy()
    start = end = np.zeros(len(points))
    for place in np.ndindex(2, 2, 2):
        waves = np.array(place) + 1
        mode = strengths[place] * np.prod(np.sin(np.pi * waves * points), axis=1)
        start, end = start + mode, end + np.exp(-((np.pi * waves) ** 2).sum() * TIME) * mode
    return penn.Case(mesh, initial={"T": start}, dirichlet={"T": {"surface": 0.0}}, targets={"T": end})


def explicit(case, steps=100):
    operators, temperature = case.operators["T"].composed(damping=0.25), case.initial["T"]
    for _ in range(steps):
        temperature = case.dirichlet["T"].apply(temperature + TIME / steps * operators.laplacian(temperature))
    return temperature


def main(folder=".", cells=8, steps=60):
    first = np.zeros((2, 2, 2))
    first[0, 0, 0] = 1.0
    rates = {}
    for name, mesh in (
        ("hexahedra", block(cells)),
        ("smaller hexahedra", block(2 * cells)),
        ("tetrahedra", block(cells, tetrahedra=True)),
    ):
        case = cooling(mesh, first)
        left = explicit(case).sum() / case.initial["T"].sum()
        rates[name] = float(-torch.log(left) / TIME / (3 * np.pi**2))
        print(f"{name} ({mesh.number_of_points} points): rate of cooling {rates[name]:.3f} of the exact one")

    torch.manual_seed(0)
    random, mesh = np.random.default_rng(0), block(cells)
    cases = [cooling(mesh, random.normal(size=(2, 2, 2))) for _ in range(12)]
    train, test = cases[:8], cases[8:]
    network = penn.PENN(Heat(width=8), width=8, time_step=TIME)

    def error(solve):
        with torch.no_grad():
            return float(np.mean([relative_l2(solve(case).double(), case.targets["T"]) for case in test]))

    errors = {"explicit steps": error(explicit), "untrained network": error(lambda case: network(case)["T"])}
    penn.fit(network, train, schedule="cosine", learning_rate=1e-2, batch_size=4, steps=steps, device="cpu")
    errors["trained network"] = error(lambda case: network(case)["T"])
    for name, value in errors.items():
        print(f"several modes, {name}: relative error {100 * value:.0f} %")
    with torch.no_grad():
        predicted = network(test[0])
    test[0].mesh.with_fields(predicted).save(Path(folder) / "block.vtu")
    print(f"Written: {Path(folder) / 'block.vtu'}")
    return rates, errors


if __name__ == "__main__":
    main()
