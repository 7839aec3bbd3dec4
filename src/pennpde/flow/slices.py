"""Learned global coupling in linear time: points exchange through a few slices of the mesh.

Every point belongs to K slices with weights that sum to one. Slices have the means of their points, attend to each
other, and give what they learn back to the points: N K + K^2 instead of N^2. Weights and attention depend on invariants
only, vectors are mixed linearly, so the exchange is equivariant.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Case

_NOTHING = 1e-12
"""Area of a slice to which no point belongs."""


class Slices(nn.Module):
    """Exchange of scalars and vectors between all points of a case; nothing before training.

    w = softmax(z W), means m = w^T (a z) / w^T a with the areas a, m' = softmax(q(m) k(m)^T) v(m), out = w m'.

    Args:
        channels: Of the scalars z.
        vectors: Channels of the vectors.
        number: Of slices.
    """

    def __init__(self, channels: int, vectors: int, number: int):
        super().__init__()
        self.channels, self.number = channels, number
        self.weights = nn.Linear(channels, number)
        self.query, self.key = nn.Linear(channels, channels, bias=False), nn.Linear(channels, channels, bias=False)
        self.value = nn.Linear(channels, channels, bias=False)
        self.vector_value = nn.Linear(vectors, vectors, bias=False)
        for layer in (self.value, self.vector_value):
            nn.init.zeros_(layer.weight)

    def forward(
        self,
        scalars: Float[Tensor, "points channels"],
        vectors: Float[Tensor, "points space vectors"],
        areas: Float[Tensor, " points"],
        case: Case,
    ) -> tuple[Float[Tensor, "points channels"], Float[Tensor, "points space vectors"]]:
        weights = torch.softmax(self.weights(scalars), dim=1)
        number, space, width = vectors.shape
        together = torch.cat([scalars, vectors.reshape(number, -1)], dim=1)
        sizes = list(case.sizes)
        if len(set(sizes)) == 1:
            return self._of_one_size(weights, scalars, vectors, areas, len(sizes))
        parts = zip(weights.split(sizes), together.split(sizes), areas.split(sizes), strict=True)
        # Case by case, so that a batch gives what its cases give one by one.
        means = torch.stack([_means(*part) for part in parts])
        learned = self._exchanged(means, space)
        spread = torch.cat([part @ each for part, each in zip(weights.split(sizes), learned, strict=True)])
        return spread[:, : self.channels], spread[:, self.channels :].reshape(number, space, width)

    def _of_one_size(
        self, weights: Tensor, scalars: Tensor, vectors: Tensor, areas: Tensor, cases: int
    ) -> tuple[Float[Tensor, "points channels"], Float[Tensor, "points space vectors"]]:
        """The same in a few batched products, for cases of as many points: a GPU wants those."""
        number, space, width = vectors.shape
        weights = weights.reshape(cases, number // cases, -1)
        weighted = weights * areas.reshape(cases, -1, 1)
        together = torch.cat([scalars, vectors.reshape(number, -1)], dim=1).reshape(cases, number // cases, -1)
        means = (weighted.transpose(1, 2) @ together) / weighted.sum(dim=1).clamp_min(_NOTHING)[..., None]
        spread = (weights @ self._exchanged(means, space)).reshape(number, -1)
        return spread[:, : self.channels], spread[:, self.channels :].reshape(number, space, width)

    def _exchanged(
        self, means: Float[Tensor, "cases slices channels"], space: int
    ) -> Float[Tensor, "cases slices channels"]:
        """What the slices learn from each other."""
        tokens, token_vectors = means.split([self.channels, means.shape[2] - self.channels], dim=2)
        likeness = self.query(tokens) @ self.key(tokens).transpose(1, 2) / math.sqrt(self.channels)
        token_vectors = self.vector_value(token_vectors.reshape(*means.shape[:2], space, -1)).flatten(2)
        return torch.softmax(likeness, dim=2) @ torch.cat([self.value(tokens), token_vectors], dim=2)


def _means(weights: Tensor, values: Tensor, areas: Tensor) -> Float[Tensor, "slices channels"]:
    weighted = weights * areas[:, None]
    return (weighted.T @ values) / weighted.sum(dim=0).clamp_min(_NOTHING)[:, None]
