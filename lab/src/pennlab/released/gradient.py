"""The two networks of the authors' gradient experiment."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Case
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.penn.mlp import MLP


class ReleasedGradient(nn.Module):
    """Predicts the gradient of a scalar from its values and its normal derivatives on the boundary.

    Args:
        kind: "neumannisogcn" adds M^-1 times the encoded normal derivative to the gradient. "isogcn" only sees it as an
            input. It is called the original IsoGCN, but its matrices hold w n n^T all the same: the paper's baseline is
            not IsoGCN as published.
        operator_scale: sigma of the data that the weights were trained on.
        width: Feature channels.
        hidden: Channels after the first layer of the encoder.
    """

    equivariant = False
    """The decoder has a bias, which it adds to every component of a vector."""

    def __init__(
        self,
        kind: Literal["neumannisogcn", "isogcn"] = "neumannisogcn",
        operator_scale: float = 1.0,
        *,
        width: int = 16,
        hidden: int = 8,
    ):
        super().__init__()
        self.kind, self.operator_scale = kind, operator_scale
        neumann = kind == "neumannisogcn"
        activations = ("leaky_relu", "leaky_relu", "identity")
        self.encoder = MLP((1 if neumann else 2, hidden, width, width), activations, bias=False)
        if neumann:
            self.neumann_encoder = MLP((1, width), bias=False)
        # One matrix for the gradient and for the Neumann term.
        self.mixing = nn.Linear(width, width, bias=False)
        self.decoder = MLP((width if neumann else width + 1, 1))

    def released_blocks(self) -> dict[str, tuple[str, ...]]:
        """By our name of a part, the authors' names of its block: the one that is trained, then its copies."""
        blocks = {"encoder": ("IN_MLP",), "mixing": ("ISOGCN_1.subchains.0.0",), "decoder": ("DECODER",)}
        if self.kind == "isogcn":
            return blocks
        return blocks | {
            "mixing": ("ISOGCN_1.subchains.0.0", "ISOGCN_1.neumann_linear"),
            "neumann_encoder": ("IN_NEUMANN",),
        }

    def forward(self, case: Case) -> dict[str, Tensor]:
        """The gradient [points, space] of "phi", from a case that prescribes its normal derivative on the boundary."""
        like = next(self.parameters())
        neumann = case.neumann["phi"]
        gradient = self.forward_scaled(
            case.initial["phi"].to(like),
            neumann.normal_derivative.to(like),
            neumann.normals.to(like),
            case.operators["phi"].scaled(1 / self.operator_scale).to(like.dtype, like.device),
        )
        return {"grad": gradient}

    def forward_scaled(
        self,
        values: Float[Tensor, " points"],
        normal_derivative: Float[Tensor, " points"],
        normals: Float[Tensor, "points space"],
        operators: Operators,
    ) -> Float[Tensor, "points space"]:
        """The same from operators that are scaled already."""
        if self.kind == "neumannisogcn":
            gradient = self.mixing(operators.grad(self.encoder(values[:, None])))
            # w is only inside M: its factor on the normal derivative is left to the encoder's weights.
            directed = self.mixing(self.neumann_encoder((normals * normal_derivative[:, None])[..., None]))
            lifted = (operators.moment_inverse[..., None] * directed[:, None]).sum(dim=2)
            return self.decoder(gradient + lifted)[..., 0]
        encoded = self.encoder(torch.stack([values, normal_derivative], dim=1))
        gradient = self.mixing(operators.grad(encoded))
        weighted_normals = NEUMANN_WEIGHT * normals[..., None]
        return self.decoder(torch.cat([weighted_normals, gradient], dim=-1))[..., 0]
