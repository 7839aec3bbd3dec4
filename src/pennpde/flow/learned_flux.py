"""What is learned: the exchange between neighbouring cells that the mesh does not resolve.

Six numbers a1 to a6 between -1 and 1 for each edge, given by a small network of invariants of the edge, change

    the stress         (nu k_ij b1 + |F_ij| b2 / 2) (u_j - u_i) + UPWIND |F_ij| a3 / 2 (u_j - u_i - r_ij . grad u)
    advection          F_ij a4 / 8 r_ij . (grad u_i - grad u_j)
    bent fluxes        times 1 + a5
    fluxes' memory     times 2^a6, the mean over the edges of each point

with b1 = a1 / 2 and b2 = a2 / 4; below zero they take at most a quarter of the viscosity each. All are zero before
training. What one cell loses its neighbour gains, every edge keeps a positive viscosity, and all of it vanishes on fine
meshes with the differences that it is made of. Invariants have no unit and do not change when the mesh is turned,
mirrored or shifted.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.flow.problem import Problem
from pennpde.flow.step import UPWIND, Exchange, Neighbours
from pennpde.penn.mlp import MLP

INVARIANTS = 11


class ExchangeNetwork(nn.Module):
    """The exchange along an edge, from its invariants."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.coefficients = MLP((INVARIANTS, width, width, 6), start=0.0, spread=0.0)

    def forward(self, problem: Problem, neighbours: Neighbours, step: Float[Tensor, " flows"]) -> Exchange:
        bent = self._bent(invariants(problem, neighbours, step))
        by_viscosity = torch.where(bent[0] > 0, 0.5 * bent[0], 0.25 * bent[0])
        by_roughness = UPWIND * bent[2]
        cells = problem.cells
        viscous = cells.at_edges(problem.viscosity) * cells.conductances.clamp_min(0.0)
        size = 0.5 * neighbours.fluxes.abs()
        # Advection may also take viscosity away, but never more than a quarter: every edge keeps a positive one.
        taken = torch.minimum(0.05 * size, 0.25 * viscous)
        by_flux = torch.where(bent[1] > 0, 0.25 * size, taken) * bent[1]
        return Exchange(
            conductance=viscous * by_viscosity + by_flux,
            roughness=size * by_roughness,
            arch=bent[3],
            bend=1.0 + bent[4],
            memory=torch.exp2(_mean_at_points(problem, bent[5])),
        )

    def _bent(self, values: Float[Tensor, "invariants edges"]) -> Float[Tensor, "6 edges"]:
        """The coefficients between -1 and 1. Each layer is followed by a hyperbolic tangent."""
        # tanh x is 2 σ(2x) - 1, and σ is four times faster on a CPU. The next layer doubles and subtracts.
        scale, shift = 1.0, 0.0
        for layer in self.coefficients.layers:
            weight = 2.0 * layer.weight
            bias = 2.0 * layer.bias + shift * weight.sum(dim=1)
            values = torch.addmm(bias[:, None], scale * weight, values).sigmoid_()
            scale, shift = 2.0, -1.0
        return 2.0 * values - 1.0


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
    typical = cells.at_edges(_mean_over_edges(problem, own)) + 1e-12
    speed = own + 1e-4 * typical
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
            # Some edges neither conduct nor let anything through: their share must not be one of rounding errors.
            size / (size + viscous + 1e-3 * typical.sqrt() * length),
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


def _mean_at_points(problem: Problem, values: Float[Tensor, " edges"]) -> Float[Tensor, " points"]:
    """Of the edges of each point.

    The pressure's differences along the edges of a point and its gradients there cancel where it is smooth. In cells
    that are long and thin they do so only if all edges weigh them nearly alike.
    """
    cells = problem.cells
    return cells.gathered(values) / cells.gathered(torch.ones_like(values))


def _mean_over_edges(problem: Problem, values: Float[Tensor, " edges"]) -> Float[Tensor, " flows"]:
    cells = problem.cells
    if cells.edge_owner is None:
        return values.mean().reshape(1)
    sums = values.new_zeros(cells.number_of_meshes).index_add(0, cells.edge_owner, values)
    counts = values.new_zeros(cells.number_of_meshes).index_add(0, cells.edge_owner, torch.ones_like(values))
    return sums / counts
