"""How large cells are where: fine at walls and in gaps, growing linearly away from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from pennlab.datasets.plane_flow.domain import Domain
from pennpde.mesh.cells import cross
from pennpde.mesh.triangulation import inside

_LEVEL = 1.12
"""Sizes on the boundary are rounded down to powers of this, so that few nearest distances are needed."""
_SAMPLES_AT_ONCE = 2000


@dataclass(frozen=True)
class Sizing:
    """The wanted sizes, in inlet widths.

    Attributes:
        bulk: far from walls.
        by_patch: at patches; `bulk` where a patch is not named.
        growth: of the size per distance from the boundary.
        cells_in_gap: across the narrowest passages, at least.
        at_corners: at corners that jut into the fluid, as a share of the size at their patch.
        at_jumps: where two patches meet, at which the velocity jumps, likewise.
        edges_around: a body in the flow, at least.
        edges_per_turn: along a curve, for a full circle, at least.
        smooth: patches at whose ends it does not: outlets and slip walls.
    """

    bulk: float
    by_patch: Mapping[str, float]
    growth: float = 0.25
    cells_in_gap: float = 14.0
    at_corners: float = 0.7
    at_jumps: float = 1.0
    edges_around: float = 50.0
    edges_per_turn: float = 24.0
    smooth: tuple[str, ...] = ()

    def scaled(self, factor: float) -> Sizing:
        """The same, larger or smaller everywhere; passages have as many cells more or fewer."""
        return Sizing(
            self.bulk * factor,
            {patch: size * factor for patch, size in self.by_patch.items()},
            self.growth,
            self.cells_in_gap / factor,
            self.at_corners,
            self.at_jumps,
            self.edges_around / factor,
            self.edges_per_turn / factor,
            self.smooth,
        )


@dataclass(frozen=True, eq=False)
class SizeField:
    """Sizes on a grid of squares, interpolated between them.

    Attributes:
        low: position of the first node.
        step: of the grid.
        values: at its nodes, x first.
    """

    low: Float[np.ndarray, " 2"]
    step: float
    values: Float[np.ndarray, "x y"]

    @staticmethod
    def of(domain: Domain, sizing: Sizing) -> SizeField:
        positions, wanted = _boundary_sizes(domain, sizing)
        low, high = domain.box
        step = max(0.8 * float(wanted.min()), 0.01)
        low, high = low - step, high + step
        number = np.ceil((high - low) / step).astype(int) + 1
        x, y = (low[axis] + step * np.arange(number[axis]) for axis in range(2))
        nodes = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
        values = np.full(len(nodes), sizing.bulk)
        level = np.floor(np.log(wanted / wanted.min()) / np.log(_LEVEL) + 1e-9).astype(int)
        for each in np.unique(level):
            size = float(wanted.min()) * _LEVEL ** int(each)
            reach = max((sizing.bulk - size) / sizing.growth, 0.0)
            distance = KDTree(positions[level == each]).query(nodes, distance_upper_bound=reach + step)[0]
            values = np.minimum(values, size + sizing.growth * distance)
        return SizeField(low, step, values.reshape(tuple(number)))

    def number_of_points(self, domain: Domain) -> float:
        """How many points a triangulation of these sizes has, about."""
        every = 3
        x, y = (self.low[axis] + self.step * np.arange(0, self.values.shape[axis], every) for axis in range(2))
        nodes = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
        sizes = self.values[::every, ::every].reshape(-1)[inside(nodes, domain.sides)]
        return float((every * self.step) ** 2 * (1.1547 / sizes**2).sum())

    def at(self, points: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, " points"]:
        place = (points - self.low) / self.step
        first = np.clip(np.floor(place).astype(int), 0, np.array(self.values.shape) - 2)
        s, t = np.clip(place - first, 0.0, 1.0).T
        i, j = first.T
        left = self.values[i, j] * (1 - t) + self.values[i, j + 1] * t
        right = self.values[i + 1, j] * (1 - t) + self.values[i + 1, j + 1] * t
        return left * (1 - s) + right * s


def _boundary_sizes(
    domain: Domain, sizing: Sizing
) -> tuple[Float[np.ndarray, "samples 2"], Float[np.ndarray, " samples"]]:
    """Positions along the boundary and the sizes wanted there."""
    finest = min([sizing.bulk, *sizing.by_patch.values()]) * min(sizing.at_corners, sizing.at_jumps, 1.0)
    positions, normals, wanted = [], [], []
    corners, at_corners = [], []
    for number_of_loop, loop in enumerate(domain.loops):
        # Bodies in the flow are followed by enough edges, however small they are.
        around = sum(piece.length for piece in loop) / sizing.edges_around if number_of_loop else np.inf
        for piece, following in zip(loop, (*loop[1:], loop[0]), strict=True):
            size = min(sizing.by_patch.get(piece.patch, sizing.bulk), around)
            tightest = _curvature_sizes(piece.path, sizing.edges_per_turn)
            for place, (start, end) in enumerate(zip(piece.path[:-1], piece.path[1:], strict=True)):
                along = end - start
                length = float(np.sqrt((along**2).sum()))
                number = max(1, int(np.ceil(length / (2 * finest))))
                places = (np.arange(number) + 0.5) / number
                positions.append(start + places[:, None] * along)
                normals.append(np.broadcast_to(np.array([-along[1], along[0]]) / length, (number, 2)))
                wanted.append(np.full(number, min(size, tightest[place])))
            before, after = piece.path[-1] - piece.path[-2], following.path[1] - following.path[0]
            turn = cross(before[None], after[None])[0] / np.sqrt((before**2).sum() * (after**2).sum())
            other = min(sizing.by_patch.get(following.patch, sizing.bulk), around)
            # The boundary turns right where a corner juts into the fluid.
            if turn < -0.3:
                corners.append(piece.path[-1])
                at_corners.append(sizing.at_corners * min(size, other))
            elif piece.patch != following.patch and not {piece.patch, following.patch} & set(sizing.smooth):
                corners.append(piece.path[-1])
                at_corners.append(sizing.at_jumps * min(size, other))
    places, inward = np.concatenate(positions), np.concatenate(normals)
    sizes = np.minimum(np.concatenate(wanted), _gaps(places, inward) / sizing.cells_in_gap)
    sizes = np.maximum(sizes, 0.4 * finest)
    if corners:
        places = np.concatenate([places, np.array(corners)])
        sizes = np.concatenate([sizes, np.array(at_corners)])
    return places, sizes


def _curvature_sizes(path: Float[np.ndarray, "path 2"], edges_per_turn: float) -> Float[np.ndarray, " sides"]:
    """By side of a path, the length of edges that follow its curvature."""
    along = np.diff(path, axis=0)
    length = np.sqrt((along**2).sum(axis=1))
    sizes = np.full(len(along), np.inf)
    if len(along) > 1:
        turn = np.abs(cross(along[:-1], along[1:])) / (length[:-1] * length[1:])
        radius = 0.5 * (length[:-1] + length[1:]) / np.maximum(turn, 1e-9)
        allowed = 2 * np.pi * radius / edges_per_turn
        sizes[:-1] = allowed
        sizes[1:] = np.minimum(sizes[1:], allowed)
    return sizes


def _gaps(
    positions: Float[np.ndarray, "samples 2"], inward: Float[np.ndarray, "samples 2"]
) -> Float[np.ndarray, " samples"]:
    """The width of the fluid in front of each place: of the largest circle that touches it and an opposite place."""
    gaps = np.full(len(positions), np.inf)
    for first in range(0, len(positions), _SAMPLES_AT_ONCE):
        rows = slice(first, first + _SAMPLES_AT_ONCE)
        offset = positions[None] - positions[rows, None]
        ahead = offset[..., 0] * inward[rows, None, 0] + offset[..., 1] * inward[rows, None, 1]
        facing = inward[rows, None, 0] * inward[None, :, 0] + inward[rows, None, 1] * inward[None, :, 1]
        opposite = (facing < -0.5) & (ahead > 1e-6)
        squared = offset[..., 0] ** 2 + offset[..., 1] ** 2
        diameter = np.where(opposite, squared / np.where(opposite, ahead, 1.0), np.inf)
        gaps[rows] = diameter.min(axis=1)
    return gaps
