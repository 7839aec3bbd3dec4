"""A network for your own equation: Burgers in the plane, du/dt = -(u . grad) u + nu lap u, with u = 0 all around.

    python examples/your_own_equation.py [FOLDER]

It makes its own data on a fine grid, trains for about a minute on one core, prints the error on cases that it has not
seen and stores the network. The walls are exact from the first step of training on, and the network turns with the
mesh. `rate` is all that a network needs; what the class says below it serves prediction: units, training range,
certificate, pictures, OpenFOAM. Then, on a mesh or an OpenFOAM case of yours:

    penn predict box.vtu --case box.toml --model FOLDER --plugin examples/your_own_equation.py
"""

import sys
from pathlib import Path

import numpy as np
import torch

import pennpde as penn
from pennpde import registry
from pennpde.case.units import Scale, Units
from pennpde.metrics import relative_l2
from pennpde.penn.equation import Check, FoamName, Look
from pennpde.trust.certificate import spanned

COARSE, FINE, TIME = 12, 60, 0.25


class Burgers(penn.Equation):
    unknowns = {"u": penn.VECTOR}
    foam_fields = {"u": FoamName("U", (0, 1, -1, 0, 0, 0, 0))}
    foam_parameters = {"viscosity": "nu"}
    looks = {"u": Look("speed |u|")}
    headline = ("Reynolds number",)

    def __init__(self, width: int):
        super().__init__()
        self.gradient, self.laplacian = penn.Gradient(width), penn.Laplacian(width)

    def rate(self, state, case):
        u, operators = state["u"], case.operators["u"]
        diffusion = case.parameter("viscosity", u) * self.laplacian(u, operators)
        return {"u": diffusion - penn.dot(u, self.gradient(u, operators))}

    def units(self, case, length=None, speed=None):
        """The network knows a box of size one; lengths may be given in any unit, and so may times with a speed."""
        length = length or float(case.mesh.cell_volumes.sum()) ** (1 / case.space)
        time = length / speed if speed else 1.0
        return Units(length, time, {"u": Scale(length / time), "viscosity": Scale(length**2 / time)})

    def describe(self, case):
        """What decides about a case; `penn predict` warns outside of the range that it had in training."""
        speed = float(case.initial["u"].norm(dim=1).amax())
        return {"Reynolds number": speed / float(case.parameters["viscosity"])}

    def checks(self, case, fields, operators):
        """Advection and diffusion never make anything faster than it was at the start, or than its boundary."""
        before = max(float(each.norm(dim=1).amax()) for each in (case.initial["u"], case.dirichlet["u"].values))
        after = float(fields["u"].norm(dim=1).amax())
        ratio = after / before if before > 0 else 1.0
        text = f"{100 * ratio:.0f} % of that at the start"
        return [Check("largest speed", ratio, text, 1.02, "The flow got faster, which Burgers' equation forbids.")]


def burgers_network(width: int = 16, iterations: int = 8) -> penn.PENN:
    return penn.PENN(Burgers(width), width, solver=penn.BarzilaiBorwein(iterations), time_step=TIME)


registry.register("burgers", burgers_network)  # so that it can be stored, and loaded by name


def random_case(seed):
    """Two eddies in a box on the coarse mesh, with what a fine finite-difference solution makes of them as target."""
    random = np.random.default_rng(seed)
    viscosity = random.uniform(0.01, 0.03)
    x, y = np.meshgrid(*[np.linspace(0, 1, FINE + 1)] * 2, indexing="ij")
    start = np.zeros((FINE + 1, FINE + 1, 2))
    for _ in range(2):
        (along, across), strength = random.integers(1, 3, 2), 0.5 * random.normal(size=2)
        start += (np.sin(along * np.pi * x) * np.sin(across * np.pi * y))[..., None] * strength
    every = FINE // COARSE
    return penn.Case(
        box(COARSE),
        initial={"u": start[::every, ::every].reshape(-1, 2)},
        dirichlet={"u": {"wall": 0.0}},
        parameters={"viscosity": viscosity},
        targets={"u": solve(start, viscosity)[::every, ::every].reshape(-1, 2)},
    )


def solve(u, viscosity, steps=500):
    """Explicit finite differences."""
    h = 1 / FINE
    for _ in range(steps):
        centre, east, west = u[1:-1, 1:-1], u[2:, 1:-1], u[:-2, 1:-1]
        north, south = u[1:-1, 2:], u[1:-1, :-2]
        advection = centre[..., :1] * (east - west) / (2 * h) + centre[..., 1:] * (north - south) / (2 * h)
        diffusion = viscosity * (east + west + north + south - 4 * centre) / h**2
        u = u.copy()
        u[1:-1, 1:-1] += TIME / steps * (diffusion - advection)
    return u


def box(cells):
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, cells + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(points)).reshape(cells + 1, cells + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    return penn.Mesh.from_arrays(points, quads, patches={"wall": lambda x: ((x == 0) | (x == 1)).any(axis=1)})


def main(folder: Path | None = None, steps: int = 800, cases: int = 48) -> float:
    torch.manual_seed(0)
    train, test = [random_case(seed) for seed in range(cases)], [random_case(10_000 + seed) for seed in range(8)]
    model = burgers_network()

    def error(predict) -> float:
        with torch.no_grad():
            return float(np.mean([relative_l2(predict(case)["u"].double(), case.targets["u"]) for case in test]))

    print(f"nothing moves:     relative error {error(lambda case: case.initial):.3f}")
    print(f"before training:   relative error {error(model):.3f}")
    penn.fit(model, train, schedule="cosine", learning_rate=5e-3, batch_size=8, steps=steps, device="cpu")
    print(f"after {steps} steps:   relative error {error(model):.3f}")
    if folder is not None:
        ranges = spanned(train, model.equation)
        penn.save(model, folder, penn.Config("burgers", title="Burgers in a box", training_range=ranges))
        print(f"stored in {folder}")
    return error(model)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
