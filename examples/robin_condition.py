"""A plate that loses heat through one side in proportion to its temperature there: a Robin condition.

    python examples/robin_condition.py

Left the plate has T = 1, right it cools: 2 T + 0.5 dT/dn = 0. In between T'' = 0, so that T falls along a straight
line, on which the operators are exact. Explicit steps in time lead there.
"""

import numpy as np

import pennpde as penn

A, B, C = 2.0, 0.5, 0.0


def plate(cells):
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, cells + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(points)).reshape(cells + 1, cells + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    left, right = (lambda x: x[:, 0] == 0), (lambda x: x[:, 0] == 1)
    return penn.Mesh.from_arrays(points, quads, patches={"left": left, "right": right})


def solved(cells=8, steps=4000, time_step=1e-3):
    case = penn.Case(
        plate(cells),
        initial={"T": 1.0},
        dirichlet={"T": {"left": 1.0}},
        robin={"T": {"right": (A, B, C)}},  # A T + B dT/dn = C
        neumann={"T": 0.0},  # wherever there is no other condition
    )
    operators = case.operators["T"].composed(damping=0.25)
    derivative = case.slope("T").normal_derivative  # C/B; what depends on T itself is in the operators
    temperature = case.initial["T"]
    for _ in range(steps):
        temperature = temperature + time_step * operators.laplacian(temperature, derivative)
        temperature = case.dirichlet["T"].apply(temperature)
    return case, temperature


def main():
    case, temperature = solved()
    exact = 1 + (C - A) / (A + B) * case.mesh.points[:, 0]
    error = float((temperature - exact).abs().max())
    print(f"temperature of the cooled side: {temperature[case.robin['T'].mask].mean():.6f}, exact {exact.min():.6f}")
    print(f"largest error: {error:.1e}")
    return error


if __name__ == "__main__":
    main()
