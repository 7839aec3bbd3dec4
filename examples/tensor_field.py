"""A tensor as unknown: a symmetric stress that diffuses between two sides, each held at a matrix.

    python examples/tensor_field.py

Operators and networks take unknowns of any rank. The steady state is linear between the two matrices, on which the
operators are exact. A network for the same equation holds the matrices bit for bit, turns with the mesh (both axes of
the tensor), and keeps a symmetric tensor symmetric.
"""

import numpy as np
import torch

import pennpde as penn
from pennpde.testing import assert_dirichlet, assert_equivariant

PULLED, SHEARED = ((2.0, 0.0), (0.0, 0.0)), ((0.0, 1.0), (1.0, 0.0))


class StressDiffusion(penn.Equation):
    """ds/dt = lap s, component by component."""

    unknowns = {"s": penn.TENSOR}

    def __init__(self, width):
        super().__init__()
        self.laplacian = penn.Laplacian(width)

    def rate(self, state, case):
        return {"s": self.laplacian(state["s"], case.operators["s"], case.normal_derivative("s"))}


def plate(cells):
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, cells + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(points)).reshape(cells + 1, cells + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    return penn.Case(
        penn.Mesh.from_arrays(points, quads, patches={"left": n[0], "right": n[-1]}),
        initial={"s": ((0.0, 0.0), (0.0, 0.0))},
        dirichlet={"s": {"left": PULLED, "right": SHEARED}},
        neumann={"s": 0.0},
    )


def solved(cells=8, steps=3000, time_step=1e-3):
    case = plate(cells)
    operators, stress = case.operators["s"].composed(damping=0.25), case.initial["s"]
    for _ in range(steps):
        stress = case.dirichlet["s"].apply(stress + time_step * operators.laplacian(stress))
    return case, stress


def main():
    case, stress = solved()
    x = case.mesh.points[:, 0, None, None]
    error = float((stress - ((1 - x) * torch.tensor(PULLED) + x * torch.tensor(SHEARED))).abs().max())
    force = case.operators["s"].div(stress)  # [points, 2]: the divergence contracts the first axis
    print(f"steady state: largest error {error:.1e}; divergence {[round(v, 3) for v in force.mean(dim=0).tolist()]}")

    torch.manual_seed(0)
    network = penn.PENN(StressDiffusion(width=8), width=8, time_step=0.02).double()
    assert_dirichlet(network, case)
    deviation = assert_equivariant(network, case)["s"]
    with torch.no_grad():
        predicted = network(case)["s"]
    skew = float((predicted - predicted.transpose(1, 2)).abs().max())
    print(f"a network: prescribed matrices exact; turned mesh {deviation:.0e}; asymmetry {skew:.0e}")
    return {"error": error, "force": force, "deviation": deviation, "skew": skew}


if __name__ == "__main__":
    main()
