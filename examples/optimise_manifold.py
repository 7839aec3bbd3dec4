"""A manifold whose three outlets share the flow equally: control points shape the upper wall of its header.

    python examples/optimise_manifold.py

As the header is, a quarter of the flow leaves through the first outlet and nearly two fifths through the last one: the
flow slows down along the header, so its pressure rises. Five control points move the wall above it.
"""

import numpy as np
import torch

import pennpde as penn

OUTLETS = {"a": 1.5, "b": 4.0, "c": 6.5}
LENGTH, HEIGHT, DEPTH, WIDTH = 8.0, 1.0, 2.0, 0.75
VISCOSITY = 0.01  # the Reynolds number of the inlet is 100
FIXED = ["inlet", "wall", *OUTLETS]
MORPH = {
    f"h{place}": {"at": [x, HEIGHT], "direction": [0, 1], "radius": 2.5, "fixed": FIXED}
    for place, x in enumerate((1.5, 3.0, 4.5, 6.0, 8.0))
}


def manifold(size=0.125):
    x, y = np.arange(0, LENGTH + size / 2, size), np.arange(-DEPTH, HEIGHT + size / 2, size)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    n = np.arange(points[..., 0].size).reshape(points.shape[:2])
    middle = points[:-1, :-1] + size / 2
    inside = middle[..., 1] > 0
    for place in OUTLETS.values():
        inside |= abs(middle[..., 0] - place) < WIDTH / 2
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1)[inside]
    used, cells = np.unique(quads, return_inverse=True)
    mesh = penn.Mesh.from_arrays(points.reshape(-1, 2)[used], cells.reshape(quads.shape))
    ends = {
        name: lambda at, place=place: (at[:, 1] == -DEPTH) & (abs(at[:, 0] - place) < WIDTH)
        for name, place in OUTLETS.items()
    }
    mesh = mesh.with_patches({"inlet": "x == 0", **ends, "above": lambda at: at[:, 1] == HEIGHT})
    return mesh.with_patches({"end": lambda at: at[:, 0] == LENGTH, "wall": "rest"})


def case_of(mesh):
    y = mesh.points[:, 1]
    parabola = torch.stack([6 * y * (1 - y), 0 * y], dim=1)
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": parabola, "above": 0.0, "end": 0.0, "wall": 0.0}, "p": dict.fromkeys(OUTLETS, 0.0)},
        neumann={"u": dict.fromkeys(OUTLETS, 0.0), "p": 0.0},
        parameters={"viscosity": VISCOSITY},
    )


def main(folder=None, size=0.125, most=60, level="standard"):
    best = penn.optimise(
        case_of(manifold(size)),
        vary=dict.fromkeys(MORPH, (-0.5, 0.3)),
        minimise="flow imbalance a b c",
        morph=MORPH,
        level=level,
        most=most,
        watch=lambda step: print(f"{step.trials:3} flows: imbalance {step.objective**0.5:.4f}"),
    )
    print(best)
    print(best.reason)
    if folder is not None:
        best.save(folder)
    return best


if __name__ == "__main__":
    main("manifold")
