"""Corners in which the prescribed velocity jumps: a lid or a uniform inlet next to a wall.

The pressure grows like 1/r towards them, so its value in the corner says how fine the cells are, and nothing else. The
mean over half a cell of the user's mesh does not depend on that, and is known. Near the corner viscosity alone acts,
and the flow between two sides that move is that of G. I. Taylor. In polar coordinates, 0 < θ < α between the sides::

    ψ = r f(θ)      f = A cos θ + B sin θ + θ (C cos θ + D sin θ)      u_r = f', u_θ = -f
    p = 2 ν / r (C cos θ + D sin θ)

Both sides' velocities give the four constants. The rest of the pressure is smooth where the fluid is slow, and its
level is that at the points around. Where it is fast, its momentum piles up pressure within ν over its speed, and only
the points within the half cell itself tell the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int64

from pennpde.flow.grid import Grid

_JUMP = 0.05
"""Of velocities, in units of the reference speed."""
_REACH = 2.6
"""Points up to so many cells away give the smooth pressure's level in slow flow."""
_HALF_CELL = 0.55
"""The same in fast flow: half a cell, with the points at its end."""
_RESOLVED = 2.1
"""Never fewer than so many of the cells that are solved: the first points around a corner are the least accurate."""
_VISCOUS = 3.0
"""Viscosity rules within so many ν over the reference speed, which is one in the network's units."""
_SINGULAR = 0.05
"""Sides at about 257° to each other have no such flow: the determinant of their constants is smaller than this."""


@dataclass(frozen=True)
class _Corner:
    """Two sides of the boundary that move differently.

    Attributes:
        point: where they meet.
        position: of it.
        direction: of the side from which angles are counted, through the domain.
        angle: to the other side.
        cosine: the constant C.
        sine: the constant D.
    """

    point: int
    position: Float[np.ndarray, "2"]
    direction: Float[np.ndarray, "2"]
    angle: float
    cosine: float
    sine: float

    def pressure(
        self, positions: Float[np.ndarray, "points 2"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
        """Over the viscosity, and the distances; angles outside the domain count as infinitely far."""
        away = positions - self.position
        distance = np.linalg.norm(away, axis=1)
        angle = np.arctan2(_cross(self.direction, away.T), away @ self.direction) % (2.0 * math.pi)
        outside = (angle > self.angle + 1e-6) & (angle < 2.0 * math.pi - 1e-6)
        strength = self.cosine * np.cos(angle) + self.sine * np.sin(angle)
        return 2.0 * strength / np.maximum(distance, 1e-12), np.where(outside, math.inf, distance)

    def mean(self, radius: float) -> float:
        """Of the pressure over a sector of a disc, over the viscosity."""
        total = self.cosine * math.sin(self.angle) + self.sine * (1.0 - math.cos(self.angle))
        return 4.0 / (self.angle * radius) * total


def corner_pressures(
    coarse: Grid, fine: Grid, viscosity: float
) -> tuple[Int64[np.ndarray, " corners"], scipy.sparse.csr_matrix, Float[np.ndarray, " corners"]]:
    """The corners of a user's cells in which the velocity jumps, weights at the points of finer cells, what is added.

    Args:
        coarse: the user's cells, whose points are the first ones of the finer cells.
        fine: the same cells, split or not.
        viscosity: of the fluid, in units of the reference speed and length.
    """
    corners = _corners(coarse)
    rows, columns, weights, added = [], [], [], np.zeros(len(corners))
    for row, corner in enumerate(corners):
        spacing, solved = _nearest(coarse, corner.point), _nearest(fine, corner.point)
        near, far = max(_HALF_CELL * spacing, _RESOLVED * solved), _REACH * spacing
        pressure, distance = corner.pressure(fine.cells.points)
        around = np.flatnonzero((distance > 0) & (distance < min(max(_VISCOUS * viscosity, near), far)))
        rows.append(np.full(len(around), row))
        columns.append(around)
        weights.append(np.full(len(around), 1.0 / len(around)))
        added[row] = viscosity * (corner.mean(0.5 * spacing) - pressure[around].mean())
    shape = len(corners), len(fine.cells.points)
    empty = np.zeros(0)
    places = (np.concatenate([empty, *rows]).astype(int), np.concatenate([empty, *columns]).astype(int))
    matrix = scipy.sparse.csr_matrix((np.concatenate([empty, *weights]), places), shape=shape)
    return np.array([corner.point for corner in corners], np.int64), matrix, added


def jumps(grid: Grid) -> Int64[np.ndarray, " corners"]:
    """Points at which two facets prescribe different velocities."""
    shape = len(grid.cells.points), 2
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    ends, velocity = grid.cells.facets[grid.facet_held], grid.facet_velocity[grid.facet_held][:, [0, 2]]
    np.minimum.at(low, ends, velocity)
    np.maximum.at(high, ends, velocity)
    return np.flatnonzero(np.linalg.norm(np.where(high > low, high - low, 0.0), axis=1) > _JUMP)


def _corners(grid: Grid) -> list[_Corner]:
    facets, points, velocity = grid.cells.facets, grid.cells.points, grid.facet_velocity
    found = []
    for point in jumps(grid):
        # The domain is to the left of its facets: angles go from the one that begins here to the one that ends here.
        leaving, arriving = (np.flatnonzero(facets[:, end] == point) for end in (0, 1))
        if len(leaving) != 1 or len(arriving) != 1:
            continue
        ahead = _unit(points[facets[leaving[0], 1]] - points[point])
        behind = _unit(points[facets[arriving[0], 0]] - points[point])
        angle = math.atan2(_cross(ahead, behind), float(ahead @ behind)) % (2.0 * math.pi)
        constants = _constants(angle, _polar(velocity[leaving[0], 0], ahead), _polar(velocity[arriving[0], 2], behind))
        if constants is not None:
            found.append(_Corner(int(point), points[point], ahead, angle, *constants))
    return found


def _constants(angle: float, one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float] | None:
    """C and D from the radial and angular velocities of both sides; None where there is no such flow."""
    sine, cosine = math.sin(angle), math.cos(angle)
    matrix = np.array(
        [
            [1.0, 1.0, 0.0],
            [sine, angle * cosine, angle * sine],
            [cosine, cosine - angle * sine, sine + angle * cosine],
        ]
    )
    first = -one[1]
    given = np.array([one[0], -other[1] - first * cosine, other[0] + first * sine])
    if abs(np.linalg.det(matrix)) < _SINGULAR:
        return None
    _, third, fourth = np.linalg.solve(matrix, given)
    return float(third), float(fourth)


def _polar(velocity: Float[np.ndarray, "2"], direction: Float[np.ndarray, "2"]) -> tuple[float, float]:
    return float(velocity @ direction), float(_cross(direction, velocity))


def _cross(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return one[0] * other[1] - one[1] * other[0]


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def _nearest(grid: Grid, point: int) -> float:
    apart = np.linalg.norm(grid.cells.points - grid.cells.points[point], axis=1)
    return float(np.delete(apart, point).min())
