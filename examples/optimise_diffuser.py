"""A diffuser of least loss: control points shape the wall between a narrow channel and one twice as wide.

    python examples/optimise_diffuser.py

Half of a symmetrical diffuser, its Reynolds number 200 by the mean speed and the full height of the inlet. Behind a
steep straight wall the flow separates. The ends of the wall stay where they are.
"""

import numpy as np
import torch

import pennpde as penn

WIDE, OPENING, END = 2.0, 1.0, 10.0  # height of the outlet over that of the inlet; length of the slope, and behind it
VISCOSITY = 0.01
PLACES = (0.3, 0.7, 1.2, 2.0, 3.0, 4.0, 5.5)


def height(x):
    return 1.0 + (WIDE - 1.0) * np.clip(x / OPENING, 0.0, 1.0)


MORPH = {
    f"h{place}": {
        "at": [x, float(height(x))],
        "direction": [0, 1],
        "radius": 3.0,
        "fixed": ["inlet", "outlet", "axis", "pipe"],
    }
    for place, x in enumerate(PLACES)
}


def diffuser(across=10):
    along = np.concatenate([np.arange(-1.0, 4.0, 1.0 / across), np.geomspace(4.0, END, 4 * across)])
    x, share = np.meshgrid(along, np.linspace(0, 1, across + 1), indexing="ij")
    points = np.stack([x, share * height(x)], axis=-1).reshape(-1, 2)
    n = np.arange(x.size).reshape(x.shape)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    upper = n[:, -1]
    pipe = upper[(along <= 1e-9) | (along > 8.0)]
    patches = {"inlet": n[0], "outlet": n[-1], "axis": n[:, 0], "pipe": pipe, "wall": upper}
    return penn.Mesh.from_arrays(points, quads, patches=patches)


def case_of(mesh):
    y = mesh.points[:, 1]
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {"inlet": torch.stack([1.5 * (1 - y**2), 0 * y], dim=1), "wall": 0.0, "pipe": 0.0},
            "p": {"outlet": 0.0},
        },
        neumann={"u": {"outlet": 0.0}, "p": 0.0},
        slip={"u": ["axis"]},
        parameters={"viscosity": VISCOSITY},
    )


def main(folder=None, across=10, most=60, level="standard"):
    best = penn.optimise(
        case_of(diffuser(across)),
        vary=dict.fromkeys(MORPH, (-0.8, 0.3)),
        minimise="total pressure drop inlet outlet",
        morph=MORPH,
        level=level,
        most=most,
        watch=lambda step: print(f"{step.trials:3} flows: loss {step.objective:.4f}"),
    )
    print(best)
    print(best.reason)
    if folder is not None:
        best.save(folder)
    return best


if __name__ == "__main__":
    main("diffuser")
