# %% [markdown]
# # An equation of your own
#
# A network for an equation of your own needs one function: its rate of change, written with learned operators. Here
# it is heat that decays, dT/dt = D ∇²T - k T, in plates of any shape. Prescribed temperatures hold exactly whatever the
# weights are, and the network turns with the mesh.

# %%
import numpy as np
import torch

import pennpde as penn


class DecayingHeat(penn.Equation):
    unknowns = {"T": penn.SCALAR}

    def __init__(self, width: int):
        super().__init__()
        self.laplacian = penn.Laplacian(width)

    def rate(self, state, case):
        heat, operators = state["T"], case.operators["T"]
        diffusivity, k = (case.parameter(name, heat) for name in ("diffusivity", "k"))
        return {"T": diffusivity * self.laplacian(heat, operators) - k * heat}


# %% [markdown]
# Cases with known solutions to learn from: in a square that is cold all around, products of sines decay by
# exp(-(D π² (a² + b²) + k) t).


# %%
def box(cells: int) -> penn.Mesh:
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, cells + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(points)).reshape(cells + 1, cells + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    return penn.Mesh.from_arrays(points, quads, patches={"wall": lambda x: ((x == 0) | (x == 1)).any(axis=1)})


def known(seed: int, cells: int = 10) -> penn.Case:
    random, mesh, time = np.random.default_rng(seed), box(cells), 0.25
    diffusivity, k = random.uniform(0.05, 0.2), random.uniform(0.0, 2.0)
    start, end = 0.0, 0.0
    for a, b in ((1, 1), (1, 2), (2, 1)):
        mode = random.normal() * torch.sin(a * np.pi * mesh.points[:, 0]) * torch.sin(b * np.pi * mesh.points[:, 1])
        start = start + mode
        end = end + mode * np.exp(-(diffusivity * np.pi**2 * (a**2 + b**2) + k) * time)
    parameters = {"diffusivity": diffusivity, "k": k}
    return penn.Case(mesh, {"T": start}, {"T": {"wall": 0.0}}, parameters=parameters, targets={"T": end})


train, test = [known(seed) for seed in range(24)], [known(1000 + seed) for seed in range(6)]

# %% [markdown]
# The network, and its error before and after some seconds of training on one core:

# %%
torch.manual_seed(0)
network = penn.PENN(DecayingHeat(8), width=8, solver=penn.BarzilaiBorwein(4), time_step=0.25)


def error() -> float:
    with torch.no_grad():
        each = [(network(case)["T"] - case.targets["T"]).norm() / case.targets["T"].norm() for case in test]
    return float(sum(each) / len(each))


before = error()
result = penn.fit(network, train, schedule="cosine", learning_rate=1e-2, batch_size=4, steps=300, device="cpu")
print(f"relative error on cases that it has not seen: {before:.1%} before, {error():.1%} after {result.steps} steps")

# %% [markdown]
# It is equivariant and holds the conditions, which can be tested in one line each; a finer mesh is no other network:

# %%
from pennpde.testing import assert_dirichlet, assert_equivariant

case = known(2000, cells=16)
assert_equivariant(network.double(), case)
assert_dirichlet(network, case)
outcome = penn.predict(network, case)
print(f"largest value on the walls: {np.abs(outcome['T'][case.mesh.boundary_points]).max():g}")
outcome.plot("T")
