"""The pressure's equation, solved: by factors of its matrix, by its inverse, or by multigrid on large meshes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int, Int64
from scipy.sparse.linalg import splu
from torch import Tensor

from pennpde.flow.dual_cells import DualCells
from pennpde.flow.grid import Grid
from pennpde.operators.multigrid import Levels

LARGEST_FACTORISED = {2: 60_000, 3: 20_000}
"""By the number of axes, up to so many points a factorised matrix solves faster on one core than multigrid does."""
LARGEST_INVERTED = 16_000
"""Up to so many points the inverse, one product, solves faster on a GPU than multigrid does: 1 GB in single precision,
which a GPU reads in a fraction of a millisecond."""


@dataclass(frozen=True, eq=False)
class Factorised:
    """Factors of a symmetric matrix at the points that are free; other values are zero.

    They are made when they are first needed: a flow that a GPU marches needs none.
    """

    matrices: tuple[scipy.sparse.csc_matrix, ...]
    free: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, matrix: scipy.sparse.csr_matrix, prescribed: Bool[np.ndarray, " points"]) -> Factorised:
        free = np.flatnonzero(~prescribed)
        return cls((scipy.sparse.csc_matrix(matrix[free][:, free]),), (free,), (len(prescribed),))

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # factors cannot be sent to a process

    @cached_property
    def factors(self) -> tuple[Any, ...]:
        # Symmetric and positive definite: no pivoting, and an ordering of the graph itself.
        how: dict[str, Any] = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
        return tuple(splu(each, options={"SymmetricMode": True}, **how) for each in self.matrices)

    @classmethod
    def side_by_side(cls, parts: Sequence[Factorised]) -> Factorised:
        return cls(
            tuple(each for part in parts for each in part.matrices),
            tuple(each for part in parts for each in part.free),
            tuple(each for part in parts for each in part.sizes),
        )

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:  # noqa: ARG002
        found = _Direct.apply(right, self)
        assert isinstance(found, Tensor)
        return found

    @cached_property
    def lower(self) -> tuple[np.ndarray, ...] | None:
        """The lower factor for compiled loops, which solve in half of the time that SciPy takes; None for batches.

        Column by column: starts, rows and values; one over the diagonal; for each row the point that it is.
        """
        if len(self.factors) > 1:
            return None
        factors = next(iter(self.factors))
        if not np.array_equal(factors.perm_r, factors.perm_c):
            return None
        lower = factors.L.tocsc()
        lower.sort_indices()
        (free,) = self.free
        point = np.empty(len(free), np.uint32)
        point[factors.perm_r] = free
        starts, rows = lower.indptr.astype(np.uint32), lower.indices.astype(np.uint32)
        return starts, rows, lower.data, 1.0 / factors.U.diagonal(), point

    def _solved(self, right: Tensor) -> Tensor:
        return torch.from_numpy(self.solved(right.detach().cpu().numpy().astype(float))).to(right)

    def solved(self, values: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        """The solution in NumPy, in double precision."""
        result, start = np.zeros_like(values), 0
        for factors, free, size in zip(self.factors, self.free, self.sizes, strict=True):
            result[start + free] = factors.solve(values[start + free])
            start += size
        return result


class _Direct(torch.autograd.Function):
    """The matrix is symmetric, so the derivative of a solution is a solution."""

    @staticmethod
    def forward(ctx, right, factorised):
        ctx.factorised = factorised
        return factorised._solved(right)

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.factorised._solved(gradient), None


@dataclass(frozen=True, eq=False)
class Inverse:
    """The inverse of a symmetric matrix at the points that are free; other values are zero."""

    inverses: tuple[Float[Tensor, "_ _"], ...]
    free: tuple[Int[Tensor, " _"], ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls, matrix: scipy.sparse.spmatrix, prescribed: Bool[np.ndarray, " points"], device: torch.device | str
    ) -> Inverse:
        free = np.flatnonzero(~prescribed)
        entries = scipy.sparse.coo_matrix(scipy.sparse.csr_matrix(matrix)[free][:, free])
        places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64)).to(device)
        full = torch.zeros(len(free), len(free), dtype=torch.float64, device=device)
        full[places[0], places[1]] = torch.from_numpy(entries.data).to(device)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(full))
        return cls((inverse,), (torch.from_numpy(free).to(device),), (len(prescribed),))

    @classmethod
    def side_by_side(cls, parts: Sequence[Inverse]) -> Inverse:
        sizes = tuple(each for part in parts for each in part.sizes)
        starts = np.concatenate([[0], np.cumsum([sum(part.sizes) for part in parts])])
        return cls(
            tuple(each for part in parts for each in part.inverses),
            tuple(each + int(start) for part, start in zip(parts, starts, strict=False) for each in part.free),
            sizes,
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> Inverse:
        """The same inverses with each of their tensors changed."""
        return Inverse(tuple(map(change, self.inverses)), tuple(map(change, self.free)), self.sizes)

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        result = torch.zeros_like(guess)
        for inverse, free in zip(self.inverses, self.free, strict=True):
            result = result.index_copy(0, free, inverse @ right.index_select(0, free))
        return result


@dataclass(frozen=True, eq=False)
class Multigrid:
    """Conjugate gradients with a multigrid cycle as preconditioner, a fixed number of times."""

    levels: tuple[Levels, ...]
    """Of each mesh."""
    cycles: int

    @classmethod
    def side_by_side(cls, parts: Sequence[Multigrid]) -> Multigrid:
        return cls(tuple(each for part in parts for each in part.levels), max(part.cycles for part in parts))

    def map(self, change: Callable[[Tensor], Tensor]) -> Multigrid:
        """The same levels with each of their tensors changed."""
        return Multigrid(tuple(each.map(change) for each in self.levels), self.cycles)

    def solve(self, right: Float[Tensor, " points"], guess: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        sizes = [each.number_of_points for each in self.levels]
        parts = zip(self.levels, right[:, None].split(sizes), guess[:, None].split(sizes), strict=True)
        return torch.cat([each.solve(*given, cycles=self.cycles)[:, 0] for each, *given in parts])


Solver = Factorised | Inverse | Multigrid
Way = Literal["factors", "inverse", "levels"]
"""How the equation is solved."""


def side_by_side(parts: Sequence[Solver]) -> Solver:
    """A solver for the meshes of a batch."""
    for kind in (Factorised, Inverse, Multigrid):
        same = [part for part in parts if isinstance(part, kind)]
        if len(same) == len(parts):
            return kind.side_by_side(same)  # pyright: ignore[reportArgumentType]
    kinds = ", ".join(sorted({type(part).__name__ for part in parts}))
    raise ValueError(
        f"The pressure's equations of a batch are solved in one way, but these are {kinds}: give all the same `way`."
    )


def stiffness_of(cells: DualCells) -> scipy.sparse.csr_matrix:
    """The stiffness matrix of dual cells."""
    nothing = torch.zeros_like(cells.areas)
    return cells.matrix(nothing, cells.conductances, torch.zeros_like(cells.conductances)).to_scipy()


def usual_way(number_of_points: int, device: torch.device | str, space: int = 2) -> Way:
    """The fastest way for a mesh on a device."""
    if torch.device(device).type == "cpu":
        return "factors" if number_of_points <= LARGEST_FACTORISED[space] else "levels"
    return "inverse" if number_of_points <= LARGEST_INVERTED else "levels"


def poisson(
    cells: DualCells,
    prescribed: Bool[np.ndarray, " points"],
    *,
    cycles: int = 6,
    way: Way | None = None,
    device: torch.device | str = "cpu",
) -> Solver:
    """A solver of the equation stiffness × values = right side, zero where a value is prescribed.

    Args:
        cells: of one mesh, in double precision, on the CPU.
        prescribed: where the pressure is known; at least one point.
        cycles: of multigrid.
        way: how the equation is solved; by default the fastest.
        device: on which it will be; the inverse is computed there.
    """
    matrix = stiffness_of(cells)
    chosen = way or usual_way(cells.number_of_points, device, cells.space)
    if chosen == "factors":
        return Factorised.of(matrix, prescribed)
    if chosen == "inverse":
        return Inverse.of(matrix, prescribed, device)
    return Multigrid((Levels.of(matrix, prescribed),), cycles)


# Corners in which the prescribed velocity jumps: a lid or a uniform inlet next to a wall.
#
# The pressure grows like 1/r towards them, so its value in the corner says how fine the cells are, and nothing else.
# The mean over half a cell of the user's mesh does not depend on that, and is known. Near the corner viscosity alone
# acts, and the flow between two sides that move is that of G. I. Taylor. In polar coordinates, 0 < θ < α between the
# sides::
#
#     ψ = r f(θ)      f = A cos θ + B sin θ + θ (C cos θ + D sin θ)      u_r = f', u_θ = -f
#     p = 2 ν / r (C cos θ + D sin θ)
#
# Both sides' velocities give the four constants. The rest of the pressure is smooth where the fluid is slow, and its
# level is that at the points around. Where it is fast, its momentum piles up pressure within ν over its speed, and only
# the points within the half cell itself tell the level.


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
    ) -> tuple[Float[np.ndarray, " points"], Bool[np.ndarray, " points"]]:
        """Over the viscosity, and which angles lie in the domain."""
        away = positions - self.position
        angle = np.arctan2(_cross(self.direction, away.T), away @ self.direction) % (2.0 * math.pi)
        inside = (angle <= self.angle + 1e-6) | (angle >= 2.0 * math.pi - 1e-6)
        strength = self.cosine * np.cos(angle) + self.sine * np.sin(angle)
        return 2.0 * strength / np.maximum(np.linalg.norm(away, axis=1), 1e-12), inside

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
    corners, coarse_points = _corners(coarse), len(coarse.cells.points)
    rows, columns, weights, added = [], [], [], np.zeros(len(corners))
    for row, corner in enumerate(corners):
        away = np.linalg.norm(fine.cells.points - corner.position, axis=1)
        # The points of the user's cells are the first ones.
        spacing, solved = (float(np.delete(each, corner.point).min()) for each in (away[:coarse_points], away))
        reach = min(max(_VISCOUS * viscosity, _HALF_CELL * spacing, _RESOLVED * solved), _REACH * spacing)
        around = np.flatnonzero((away > 0) & (away < reach))
        pressure, is_inside = corner.pressure(fine.cells.points[around])
        around, pressure = around[is_inside], pressure[is_inside]
        rows.append(np.full(len(around), row))
        columns.append(around)
        weights.append(np.full(len(around), 1.0 / len(around)))
        added[row] = viscosity * (corner.mean(0.5 * spacing) - pressure.mean())
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
