"""A plane domain: closed loops of pieces, each a path that belongs to a patch; the fluid lies to their left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pennpde.mesh.cells import cross

_DIGITS = 9
"""Positions are rounded, so that another machine's last bit of a sine does not make another mesh."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Part of the boundary between two corners.

    Attributes:
        path: straight for two points, a finely sampled curve for more.
        patch: that it belongs to.
    """

    path: Float[np.ndarray, "path 2"]
    patch: str

    @staticmethod
    def of(path: Sequence[Sequence[float]] | np.ndarray, patch: str) -> Piece:
        return Piece(np.round(np.asarray(path, float), _DIGITS) + 0.0, patch)

    @property
    def length(self) -> float:
        return float(np.sqrt((np.diff(self.path, axis=0) ** 2).sum(axis=1)).sum())


@dataclass(frozen=True, eq=False)
class Domain:
    """The outer loop, counter-clockwise, then holes, clockwise; each piece starts where the one before it ends."""

    loops: tuple[tuple[Piece, ...], ...]

    @staticmethod
    def of(outer: Sequence[Piece], holes: Sequence[Sequence[Piece]] = ()) -> Domain:
        return Domain((tuple(outer), *(tuple(hole) for hole in holes)))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(piece for loop in self.loops for piece in loop)

    @cached_property
    def patches(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(piece.patch for piece in self.pieces))

    @cached_property
    def sides(self) -> Float[np.ndarray, "sides 2 2"]:
        """All straight parts of all paths, in order."""
        return np.concatenate([np.stack([piece.path[:-1], piece.path[1:]], axis=1) for piece in self.pieces])

    @property
    def area(self) -> float:
        return float(cross(self.sides[:, 0], self.sides[:, 1]).sum()) / 2

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest coordinates."""
        return self.sides.min(axis=(0, 1)), self.sides.max(axis=(0, 1))

    def lengths(self) -> Mapping[str, float]:
        """By patch, the length of its pieces."""
        found = dict.fromkeys(self.patches, 0.0)
        for piece in self.pieces:
            found[piece.patch] += piece.length
        return found

    def mirrored(self) -> Domain:
        """The domain upside down."""
        flip = np.array([1.0, -1.0])
        return Domain(tuple(tuple(Piece.of((p.path * flip)[::-1], p.patch) for p in loop[::-1]) for loop in self.loops))
