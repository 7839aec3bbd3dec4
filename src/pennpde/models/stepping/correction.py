"""What is learned: the exchange of momentum between neighbouring cells that the mesh does not resolve.

    stress_ij = (nu k_ij a1 + |F_ij| a2 / 2) (u_j - u_i) + |F_ij| a3 / 2 (u_j - u_i - r_ij . grad u)

with a1 between -1/4 and 1/2, a2 up to 1/4, and below zero at most a quarter of the viscosity, a3 between -UPWIND and
UPWIND, given by a small network of invariants of the edge. It is zero before training. What one cell loses its
neighbour gains, every edge keeps a positive viscosity, and all of it vanishes on fine meshes with the differences that
it is made of. Invariants have no unit and do not change when the mesh is turned, mirrored or shifted.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.models.stepping.problem import Problem
from pennpde.models.stepping.scheme import UPWIND, Neighbours, Stress
from pennpde.network.layers import MLP

INVARIANTS = 11


class StressNetwork(nn.Module):
    """Coefficients of the additional stress from invariants of an edge."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.coefficients = MLP((INVARIANTS, width, width, 3), start=0.0, spread=0.0)

    def forward(self, problem: Problem, neighbours: Neighbours, step: Float[Tensor, " flows"]) -> Stress:
        bent = self._bent(invariants(problem, neighbours, step))
        by_viscosity = torch.where(bent[0] > 0, 0.5 * bent[0], 0.25 * bent[0])
        by_roughness = UPWIND * bent[2]
        cells = problem.cells
        viscous = cells.at_edges(problem.viscosity) * cells.conductances.clamp_min(0.0)
        size = 0.5 * neighbours.fluxes.abs()
        # Advection may also take viscosity away, but never more than a quarter: every edge keeps a positive one.
        taken = torch.minimum(0.05 * size, 0.25 * viscous)
        by_flux = torch.where(bent[1] > 0, 0.25 * size, taken) * bent[1]
        return Stress(viscous * by_viscosity + by_flux, size * by_roughness)

    def _bent(self, values: Float[Tensor, "invariants edges"]) -> Float[Tensor, "3 edges"]:
        """The coefficients between -1 and 1. Each layer is followed by a hyperbolic tangent."""
        for layer in self.coefficients.layers:
            # 2 σ(2x) - 1 is tanh x, four times faster on a CPU.
            values = 2.0 * torch.sigmoid(torch.addmm(2.0 * layer.bias[:, None], 2.0 * layer.weight, values)) - 1.0
        return values


def invariants(
    problem: Problem, neighbours: Neighbours, step: Float[Tensor, " flows"]
) -> Float[Tensor, "invariants edges"]:
    """Numbers without unit that describe the flow around an edge."""
    cells = problem.cells
    length_squared = cells.offsets.square().sum(dim=0)
    length = length_squared.sqrt()
    mean, difference = neighbours.velocity, neighbours.difference
    own = mean.square().sum(dim=0)
    # Of the whole flow, over edges: cheaper than over areas, and as good to tell fast from slow.
    speed = own + 1e-4 * cells.at_edges(_mean_over_edges(problem, own)) + 1e-12
    rough = difference - 0.5 * (neighbours.explained[0] + neighbours.explained[1])
    viscosity = cells.at_edges(problem.viscosity)
    time_step = cells.at_edges(step)
    near = cells.mean(problem.wall_distance) / length
    viscous = viscosity * cells.conductances.abs()
    size = neighbours.fluxes.abs()
    jumps = difference.square().sum(dim=0)
    fast = speed.sqrt()
    return torch.stack(
        [
            torch.exp(-near),
            torch.exp(-near / 3.0),
            1.0 - cells.mean(problem.free),
            size / (size + viscous + 1e-12),
            0.3 * torch.log(viscosity * time_step / length_squared + 1e-4),
            0.3 * torch.log(time_step * fast / length + 1e-3),
            (mean * cells.offsets).sum(dim=0).square() / (speed * length_squared),
            torch.tanh(jumps / speed),
            torch.tanh(rough.square().sum(dim=0) / (jumps + 1e-4 * speed)),
            torch.tanh(neighbours.turning / speed),
            0.3 * torch.log(fast * length / viscosity + 1e-2),
        ],
        dim=0,
    )


def _mean_over_edges(problem: Problem, values: Float[Tensor, " edges"]) -> Float[Tensor, " flows"]:
    cells = problem.cells
    if cells.edge_owner is None:
        return values.mean().reshape(1)
    sums = values.new_zeros(cells.number_of_meshes).index_add(0, cells.edge_owner, values)
    counts = values.new_zeros(cells.number_of_meshes).index_add(0, cells.edge_owner, torch.ones_like(values))
    return sums / counts
