"""Slip walls and planes of symmetry: nothing flows across them, and along them the flow is free.

    python examples/slip_walls.py

A viscous fluid enters a channel that lies at 30 degrees to the axes, for the condition needs no axis. Between slip
walls it goes through like a plug, with the velocity of the inlet everywhere; walls that it sticks to slow it down.
"""

import numpy as np
import torch

import pennpde as penn

ALONG = np.array([np.cos(np.pi / 6), np.sin(np.pi / 6)])
ACROSS = np.array([-ALONG[1], ALONG[0]])
VISCOSITY = 0.5


class ViscousFlow(penn.Equation):
    """du/dt = nu lap u: what is needed to see walls at work."""

    unknowns = {"u": penn.VECTOR}

    def __init__(self, width):
        super().__init__()
        self.laplacian = penn.Laplacian(width)

    def rate(self, state, case):
        return {"u": case.parameter("viscosity", state["u"]) * self.laplacian(state["u"], case.operators["u"])}


def channel(slips, along=12, across=6):
    x, y = np.linspace(0, 1, along + 1), np.linspace(0, 0.5, across + 1)
    straight = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    n = np.arange(len(straight)).reshape(along + 1, across + 1)
    quads = np.stack([n[:-1, :-1], n[1:, :-1], n[1:, 1:], n[:-1, 1:]], axis=-1).reshape(-1, 4)
    patches = {"inlet": n[0], "outlet": n[-1], "walls": np.concatenate([n[:, 0], n[:, -1]])}
    mesh = penn.Mesh.from_arrays(straight @ np.stack([ALONG, ACROSS]), quads, patches=patches)
    inlet, sticking = {"inlet": ALONG}, {"walls": 0.0}
    return penn.Case(
        mesh,
        initial={"u": 0.5 * ACROSS},  # against the walls at first
        dirichlet={"u": inlet if slips else inlet | sticking},
        slip={"u": "walls"} if slips else {},
        neumann={"u": {"outlet": 0.0, "walls": 0.0} if slips else {"outlet": 0.0}},  # along slip walls: no shear
        parameters={"viscosity": VISCOSITY},
    )


def solved(case, steps=2500, time_step=8e-3):
    operators = case.operators["u"].composed(damping=0.25)
    velocity = case.initial["u"]
    for _ in range(steps):
        velocity = velocity + time_step * VISCOSITY * operators.laplacian(velocity)
        for condition in case.conditions_of("u"):
            velocity = condition.apply(velocity)
    return velocity


def main():
    slipping, sticking = channel(slips=True), channel(slips=False)
    error = float((solved(slipping) - torch.from_numpy(ALONG)).norm(dim=1).max())
    outlet = torch.from_numpy(sticking.mesh.patch("outlet").points)
    slowed = float(solved(sticking)[outlet].norm(dim=1).max())
    print(f"slip walls: the velocity differs from that of a plug by {error:.1e}")
    print(f"sticking walls: at most {100 * slowed:.1f} % of the speed reach the outlet")

    torch.manual_seed(0)
    network = penn.PENN(ViscousFlow(width=8), width=8, time_step=0.02).double()
    with torch.no_grad():
        velocity = network(slipping)["u"]  # untrained: the condition holds by construction
    slip = slipping.slip["u"]
    across = float((velocity * slip.normals).sum(dim=1).abs().max())
    along = float(velocity[slip.mask].norm(dim=1).max())
    print(f"a network: {across:.0e} across the slip walls, up to {along:.3f} along them")
    return {"error": error, "slowed": slowed, "across": across, "along": along}


if __name__ == "__main__":
    main()
