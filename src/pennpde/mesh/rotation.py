"""Rotations and reflections of scalar, vector and tensor fields."""

from __future__ import annotations

from jaxtyping import Float, Shaped
from torch import Tensor


def turned(
    values: Shaped[Tensor, "points *axes"], rotation: Float[Tensor, "space space"], rank: int
) -> Shaped[Tensor, "points *axes"]:
    """A field after an orthogonal map: its first `rank` axes behind the points are axes of space, others stay."""
    for axis in range(1, rank + 1):
        values = (values.movedim(axis, -1) @ rotation.T.to(values)).movedim(-1, axis)
    return values
