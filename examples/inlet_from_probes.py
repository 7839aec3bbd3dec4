"""An inverse problem: the velocity profile of an inlet from five probes further down the channel.

    python examples/inlet_from_probes.py

Flow over a step. The profile is a sum of four waves that are zero at the walls; their sizes are looked for, with which
the computed velocities at the probes are as close as possible to the measured ones. Here these are computed, too, on
finer cells, and rounded to a hundredth of the speed.
"""

import numpy as np
import torch

import pennpde as penn
from pennpde.study.optimisation.measures import Misfit, probed

PROBES = np.array([[0.7, 0.25], [0.7, 0.75], [1.2, 0.2], [1.6, 0.5], [2.4, 0.0]])
TRUE = {"wave1": 1.2, "wave2": 0.25, "wave3": 0.1, "wave4": -0.05}
VISCOSITY = 0.02


def step(size=0.1):
    x, y = np.arange(0, 4 + size / 2, size), np.arange(-0.5, 1 + size / 2, size)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    n = np.arange(points[..., 0].size).reshape(points.shape[:2])
    middle = points[:-1, :-1] + size / 2
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1)
    quads = quads[(middle[..., 1] > 0) | (middle[..., 0] > 1)]
    used, cells = np.unique(quads, return_inverse=True)
    mesh = penn.Mesh.from_arrays(points.reshape(-1, 2)[used], cells.reshape(quads.shape))
    ends = {"inlet": lambda at: at[:, 0] < 1e-9, "outlet": lambda at: at[:, 0] > 4 - 1e-9, "wall": "rest"}
    return mesh.with_patches(ends)


def profile(y, waves):
    return np.sum([size * np.sin((place + 1) * np.pi * y) for place, size in enumerate(waves)], axis=0)


def family(mesh):
    """The function from the sizes of the waves to the case."""

    def case_at(wave1, wave2, wave3, wave4):
        speed = profile(mesh.points[:, 1].numpy(), [wave1, wave2, wave3, wave4])
        return penn.Case(
            mesh,
            initial={"u": (0.0, 0.0), "p": 0.0},
            dirichlet={"u": {"inlet": np.stack([speed, 0 * speed], axis=1), "wall": 0.0}, "p": {"outlet": 0.0}},
            neumann={"u": {"outlet": 0.0}, "p": 0.0},
            parameters={"viscosity": torch.tensor(VISCOSITY, dtype=torch.float64)},
        )

    return case_at


def measured(size):
    from pennpde.study.optimisation.flows import Family

    case = family(step(size))(**TRUE)
    answer = Family.of(case).flow(case).solved()
    return np.round(probed(answer.flow.at(answer.unknowns), PROBES).numpy(), 2)


def main(size=0.1, level="standard"):
    found = penn.optimise(
        family(step(size)),
        vary={"wave1": (0.5, 2.0), "wave2": (-0.5, 0.5), "wave3": (-0.5, 0.5), "wave4": (-0.5, 0.5)},
        minimise=Misfit(PROBES, measured(size / 2)),
        start={"wave1": 1.0, "wave2": 0.0, "wave3": 0.0, "wave4": 0.0},
        level=level,
    )
    print(found)
    print(found.reason)
    y = np.linspace(0, 1, 101)
    true = profile(y, TRUE.values())
    error = float(np.sqrt(((profile(y, found.values.values()) - true) ** 2).mean() / (true**2).mean()))
    print(", ".join(f"{name} {value:.3f} ({TRUE[name]:g})" for name, value in found.values.items()))
    print(f"The profile is off by {error:.1%} of its size.")
    return {"found": found, "error": error}


if __name__ == "__main__":
    main()
