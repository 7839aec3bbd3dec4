"""The gradient of a scalar from its values and its normal derivative on the boundary: Table 1 of the paper.

Three rows after the paper, on one encoder (1 -> 8 -> 16 -> 16) and one channel mixing:

* `nisogcn`: the moment matrices know the normals, the normal derivative enters with the same mixing (680 parameters);
* `isogcn`: the genuine one, without normals in the moment matrices; the normal derivative is an input (673);
* `isogcn_of_table_1`: the baseline that the paper's table shows, with normals in the moment matrices although no normal
  derivative meets them there. That operator pulls normal derivatives to zero, which makes it far worse than IsoGCN.

The authors' networks have one parameter more, a bias on the output. A constant vector does not turn with the mesh, so
we leave it out.

The fourth row, `corrected`, is ours: the same operator in the limit w -> infinity, which fulfils the Neumann condition
exactly, and a few rounds of a second-order correction with learned strength. It has 68 parameters.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Case, Neumann
from pennpde.operators import Operators
from pennpde.penn.mlp import LEAKY_SLOPE, MLP

Row = Literal["nisogcn", "isogcn", "isogcn_of_table_1", "corrected"]


def gradient_network(row: Row = "corrected", **options) -> nn.Module:
    """The network of a row of Table 1, or ours."""
    return CorrectedGradient(**options) if row == "corrected" else GradientNetwork(row, **options)


class GradientNetwork(nn.Module):
    """A network of the paper's Table 1: {"grad": [points, space]} for a case with the unknown "phi"."""

    def __init__(self, row: Literal["nisogcn", "isogcn", "isogcn_of_table_1"], width: int = 16):
        super().__init__()
        self.row = row
        self.encoder = MLP((1 if row == "nisogcn" else 2, 8, width, width), _ACTIVATIONS, bias=False)
        _start_linear(self.encoder)
        self.mixing = nn.Parameter(torch.eye(width) + 0.1 / width**0.5 * torch.randn(width, width))
        if row == "nisogcn":
            self.neumann_encoder = nn.Linear(1, width, bias=False)
            self.output = nn.Linear(width, 1, bias=False)
        else:
            self.output = nn.Linear(width + 1, 1, bias=False)
        self._start_as_the_operator(width)

    def forward(self, case: Case) -> dict[str, Tensor]:
        parameter = self.mixing
        case = case.to(parameter.dtype, parameter.device)
        values, condition, operators = case.initial["phi"][:, None], case.neumann["phi"], case.operators["phi"]
        prescribed = condition.normal_derivative[:, None]
        if self.row == "nisogcn":
            encoded = self.encoder(values)
            slope = operators.grad(encoded, self.neumann_encoder(prescribed)) @ self.mixing
            return {"grad": self.output(slope)[..., 0]}
        slope = operators.grad(self.encoder(torch.cat([values, prescribed], dim=1)))
        if self.row == "isogcn":
            slope = reweighted(slope, None, condition, operators, ratio=0.0)
        # As the authors: the normals go into the output as one more channel.
        terms = torch.cat([condition.normals[:, :, None], slope @ self.mixing], dim=-1)
        return {"grad": self.output(terms)[..., 0]}

    def _start_as_the_operator(self, width: int) -> None:
        """Scale the output so that the untrained network is the differential operator itself."""
        with torch.no_grad():
            self.encoder.layers[0].weight[:, 1:] = 0.0  # the normal derivative as an input: training finds its use
            probe = torch.zeros(2, self.encoder.layers[0].in_features)
            probe[1, 0] = 1.0
            code = self.encoder(probe)[1] @ self.mixing
            self.output.weight.zero_()
            self.output.weight[0, -width:] = code / code.square().sum()
            if self.row == "nisogcn":
                self.neumann_encoder.weight.copy_(self.encoder(probe)[1][:, None])


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


def reweighted(
    gradient: Float[Tensor, "points space *channels"],
    normal_derivative: Float[Tensor, "points *channels"] | None,
    condition: Neumann,
    operators: Operators,
    ratio: float | Tensor,
) -> Float[Tensor, "points space *channels"]:
    """The gradient with another weight of the Neumann condition, `ratio` times that of the operators.

    The fit with weight w' differs from that with w by a multiple of M^-1 n (Sherman and Morrison), so no matrix has to
    be assembled again. Ratio 0 is IsoGCN; towards infinity n . gradient becomes the normal derivative.
    """
    axes = [1] * (gradient.ndim - 2)
    normals = condition.normals.reshape(*condition.normals.shape, *axes)
    lift = operators.neumann_lift.reshape(*operators.neumann_lift.shape, *axes)
    missing = -(normals * gradient).sum(dim=1)
    if normal_derivative is not None:
        missing = missing + normal_derivative
    share = (normals * lift).sum(dim=1)
    change = (ratio - 1.0) / (1.0 + (ratio - 1.0) * share)
    return gradient + lift * (change * missing)[:, None]


def _fulfilled(
    gradient: Float[Tensor, "points space"], condition: Neumann, operators: Operators
) -> Float[Tensor, "points space"]:
    """The limit of `reweighted` for an infinite weight: the Neumann condition holds."""
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


_ACTIVATIONS = ("leaky_relu", "leaky_relu", "identity")


def _start_linear(encoder: MLP) -> None:
    """Let an MLP of LeakyReLU start as a linear map: channels in pairs of opposite sign, whose kinks cancel."""
    last = len(encoder.layers) - 1
    with torch.no_grad():
        for number, linear in enumerate(encoder.layers):
            weight = torch.randn_like(linear.weight)
            if number > 0:  # x = (s(x) - s(-x)) / (1 + slope)
                weight = weight[:, ::2].repeat_interleave(2, dim=1) / ((1 + LEAKY_SLOPE) * weight.shape[1] ** 0.5)
                weight[:, 1::2] *= -1.0
            if number < last:
                weight[1::2] = -weight[::2]
            linear.weight.copy_(weight)
