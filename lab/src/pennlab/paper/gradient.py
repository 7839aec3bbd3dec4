"""The gradient of a scalar from its values and its normal derivative on the boundary: Table 1 of the paper.

Three rows after the paper, on one encoder (1 -> 8 -> 16 -> 16) and one channel mixing:

* `nisogcn`: the moment matrices know the normals, the normal derivative enters with the same mixing (680 parameters);
* `isogcn`: the genuine one, without normals in the moment matrices; the normal derivative is an input (673);
* `isogcn_of_table_1`: the baseline that the paper's table shows, with normals in the moment matrices although no normal
  derivative meets them there. That operator pulls normal derivatives to zero, which makes it far worse than IsoGCN.

The authors' networks have one parameter more, a bias on the output. A constant vector does not turn with the mesh, so
we leave it out.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Case, Neumann
from pennpde.operators import Operators
from pennpde.penn.mlp import LEAKY_SLOPE, MLP

Row = Literal["nisogcn", "isogcn", "isogcn_of_table_1"]


class GradientNetwork(nn.Module):
    """A network of the paper's Table 1: {"grad": [points, space]} for a case with the unknown "phi"."""

    def __init__(self, row: Row, width: int = 16):
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
