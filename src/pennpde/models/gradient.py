"""The gradient of a scalar from its values and its normal derivative on the boundary: better than Table 1 of the paper.

The networks of the table itself are in the laboratory (`pennlab.paper.gradient`).
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Case, Neumann
from pennpde.operators import Operators
from pennpde.penn.mlp import MLP


def gradient_network(row: Literal["corrected"] = "corrected", **options) -> nn.Module:
    """NIsoGCN with the Neumann condition fulfilled exactly and a learned correction: 68 parameters."""
    if row != "corrected":
        raise ValueError(f'row is {row!r}; it may be "corrected". Rows of the paper are "gradient-of-table-1".')
    return CorrectedGradient(**options)


class CorrectedGradient(nn.Module):
    """NIsoGCN with the Neumann condition fulfilled exactly and a learned second-order correction.

    NIsoGCN takes f_j - f_i for r_ij . g_i, which is of first order where neighbours lie on one side only, on edges and
    corners above all. The trapezoidal rule r_ij . (g_i + g_j)/2 is of second order; it asks for the neighbours'
    gradients, so it is applied in rounds, g <- G f - c Q(g), with

        Q(g)_i = M_i^-1 sum_j r_ij r_ij . (g_j - g_i) / |r_ij|^2

    c = 1/2 is the trapezoidal rule. Inside a regular mesh c = 1/3 gives the compact scheme of fourth order, where few
    rounds must do a larger c speeds them up: a small network finds c at each point, in each round, from invariants of
    the point's moment matrix.

    After each round the gradient is moved along M^-1 n until n . g is what the condition says.

    Args:
        rounds: How often the correction is applied.
        hidden: Width of the network for c.
    """

    def __init__(self, rounds: int = 4, hidden: int = 8):
        super().__init__()
        self.strength = MLP((3, hidden, rounds), start=0.5)

    def forward(self, case: Case) -> dict[str, Tensor]:
        parameter = next(self.parameters())
        case = case.to(parameter.dtype, parameter.device)
        condition, operators = case.neumann["phi"], case.operators["phi"]
        positions = _positions(case).to(parameter)
        strengths = self.strength(_stencil(condition, operators))
        plain = operators.grad(case.initial["phi"], condition.normal_derivative)
        slope = _fulfilled(plain, condition, operators)
        for strength in strengths.unbind(dim=1):
            correction = _unevenness(slope, positions, condition, operators)
            slope = _fulfilled(plain - strength[:, None] * correction, condition, operators)
        return {"grad": slope}


def _fulfilled(
    gradient: Float[Tensor, "points space"], condition: Neumann, operators: Operators
) -> Float[Tensor, "points space"]:
    """The limit of an infinite weight of the Neumann condition, which then holds.

    A fit with another weight differs by a multiple of M^-1 n (Sherman and Morrison).
    """
    share = (condition.normals * operators.neumann_lift).sum(dim=1)
    share = torch.where(condition.mask, share, torch.ones_like(share))
    missing = condition.normal_derivative - (condition.normals * gradient).sum(dim=1)
    return gradient + operators.neumann_lift * (missing / share)[:, None]


def _unevenness(
    gradient: Float[Tensor, "points space"],
    positions: Float[Tensor, "points space"],
    condition: Neumann,
    operators: Operators,
) -> Float[Tensor, "points space"]:
    """Q of `CorrectedGradient`, from gradients only: G(x . g) - x . G(g) leaves M^-1 sum r r . g_j / |r|^2."""
    product = operators.grad((positions * gradient).sum(dim=1))
    neighbours = product - (operators.grad(gradient) * positions[:, None]).sum(dim=2)
    own = gradient - operators.neumann_lift * (condition.normals * gradient).sum(dim=1, keepdim=True)
    return neighbours - own


def _stencil(condition: Neumann, operators: Operators) -> Float[Tensor, "points 3"]:
    """Invariants that distinguish interior, faces, edges and corners, and kinds of meshes."""
    inverse = operators.moment_inverse
    share = (condition.normals * operators.neumann_lift).sum(dim=1)
    trace = inverse.diagonal(dim1=1, dim2=2).sum(dim=1)
    return torch.stack([share, trace, inverse.square().sum(dim=(1, 2)).sqrt()], dim=1)


def _positions(case: Case) -> Float[Tensor, "points space"]:
    """Positions about each case's middle: the correction does not depend on the origin, its round-off does."""
    if "position" in case.features:
        return case.features["position"]
    if not case.mesh.number_of_cells:
        raise KeyError(
            'A stack of cases carries no mesh. Give its cases the positions as a feature: features={"position": '
            "mesh.points - mesh.points.mean(dim=0)}."
        )
    points = case.mesh.points
    parts = [part - part.mean(dim=0) for part in points.split(case.sizes)]
    return torch.cat(parts)
