"""An inlet whose temperature changes: given as a function of time or as a table, exact at every output time.

    python examples/time_dependent_inlet.py

The network (untrained here: the condition holds by construction) gives four output times, and each solve sees the
inlet's temperature at its end.
"""

import math

import numpy as np
import torch

import pennpde as penn
from pennpde.models.advection_diffusion import advection_diffusion_network


def plate(cells):
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, cells + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(points)).reshape(cells + 1, cells + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    return penn.Mesh.from_arrays(points, quads, patches={"inlet": lambda x: x[:, 0] == 0})


def heated(mesh, inlet):
    return penn.Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": inlet}},
        neumann={"T": 0.0},
        parameters={"velocity": (0.6, 0.0), "diffusivity": 0.1},
        features={"inlet_distance": mesh.distance_to("inlet")},
    )


def main(cells=10):
    torch.manual_seed(0)
    network = advection_diffusion_network(width=8, steps=4, time_step=0.25).double()
    mesh = plate(cells)

    def pulse(time):
        return math.sin(math.pi * time)

    ramp = penn.Table([(0.0, 0.0), (0.5, 1.0), (1.0, 0.5)])  # linear in between
    errors = []
    for name, inlet, values in (("function", pulse, pulse), ("table", ramp, lambda t: 2 * t if t < 0.5 else 1.5 - t)):
        case = heated(mesh, inlet)
        with torch.no_grad():
            temperature = network(case)["T"]  # [points, times]
        held = case.dirichlet["T"].mask
        for place, time in enumerate(network.output_times):
            error = float((temperature[held, place] - values(time)).abs().max())
            mean = float(temperature[:, place].mean())
            print(f"{name:8} t = {time:4}: inlet {values(time):.4f}, error {error}, mean temperature {mean:.3f}")
            errors.append(error)
    return max(errors)


if __name__ == "__main__":
    main()
