"""Numbers drawn for a flow, and parts from which outlines are put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from pennlab.datasets.plane_flow.domain import Domain, Piece

Point = tuple[float, float]
ARC_STEP = math.radians(3.0)


class Draw:
    """Random numbers with names, which are the parameters of a flow.

    Attributes:
        values: what was drawn.
        places: the same, each from 0 to 1 within its range: flows of one family are compared by them.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.values: dict[str, float] = {}
        self.places: dict[str, float] = {}

    def real(self, name: str, low: float, high: float, zero: float = 0.0) -> float:
        """Uniform from low to high; with the probability `zero` it is zero instead."""
        place = float(self.random.random())
        if zero and self.random.random() < zero:
            self.values[name], self.places[name] = 0.0, 0.0
            return 0.0
        value = round(low + (high - low) * place, 4)
        self.values[name], self.places[name] = value, place
        return value

    def choice(self, name: str, weights: Mapping[str, float]) -> str:
        """One of several words."""
        total, place = sum(weights.values()), float(self.random.random())
        names = list(weights)
        chosen, passed = names[-1], 0.0
        for option in names:
            passed += weights[option] / total
            if place < passed:
                chosen = option
                break
        number = names.index(chosen)
        self.values[name], self.places[name] = float(number), number / max(1, len(names) - 1)
        return chosen

    def count(self, name: str, low: int, high: int) -> int:
        number = int(self.random.integers(low, high + 1))
        self.values[name], self.places[name] = float(number), (number - low) / max(1, high - low)
        return number


@dataclass(frozen=True, eq=False)
class Shape:
    """A drawn outline and the roles of its patches.

    Attributes:
        inlets: by patch, its two ends; the fluid lies to the left of the way between them.
        outlets: patches with fixed pressure.
        moving: by patch, the direction in which the wall may move.
        slip: patches without friction; by name whether it is a symmetry plane.
        turning: by patch, the centre and the radius of a circle that may turn.
        pressure_point: where a closed domain has pressure zero.
    """

    domain: Domain
    inlets: Mapping[str, tuple[Point, Point]] = field(default_factory=dict)
    outlets: tuple[str, ...] = ()
    moving: Mapping[str, Point] = field(default_factory=dict)
    slip: Mapping[str, bool] = field(default_factory=dict)
    turning: Mapping[str, tuple[Point, float]] = field(default_factory=dict)
    pressure_point: Point | None = None


def chain(points: Sequence[Point], patch: str) -> list[Piece]:
    """Straight pieces from point to point, without those of no length."""
    return [Piece.of([a, b], patch) for a, b in pairwise(points) if math.hypot(b[0] - a[0], b[1] - a[1]) > 1e-6]


def arc(centre: Point, radius: float, start: float, end: float) -> Float[np.ndarray, "path 2"]:
    """A path along a circle, by the angles of its ends."""
    angles = np.linspace(start, end, max(3, math.ceil(abs(end - start) / ARC_STEP) + 1))
    return np.stack([centre[0] + radius * np.cos(angles), centre[1] + radius * np.sin(angles)], axis=1)


TOPS = {"wall": 0.7, "slip": 0.1, "symmetry": 0.08, "moving": 0.12}


def channel(
    draw: Draw, lower: Sequence[Piece], upper: Sequence[Piece], holes: Sequence[Sequence[Piece]] = (), **roles: object
) -> Shape:
    """A duct from an inlet on its left to an outlet on its right, both upright.

    Args:
        draw: chooses what kind of wall a straight upper wall is.
        lower: the pieces of the lower wall, from left to right.
        upper: those of the upper wall, from right to left.
        holes: of obstacles.
        roles: further entries of the Shape.
    """
    kind = "wall"
    if len(upper) == 1 and len(upper[0].path) == 2:
        kind = draw.choice("top", TOPS)
        upper = [Piece(upper[0].path, kind)]
    bottom_left, top_left = _point(lower[0].path[0]), _point(upper[-1].path[-1])
    bottom_right, top_right = _point(lower[-1].path[-1]), _point(upper[0].path[0])
    outer = [*lower, Piece.of([bottom_right, top_right], "outlet"), *upper, Piece.of([top_left, bottom_left], "inlet")]
    return Shape(
        Domain.of(outer, holes),
        {"inlet": (top_left, bottom_left)},
        ("outlet",),
        moving={"moving": (1.0, 0.0)} if kind == "moving" else {},
        slip={kind: kind == "symmetry"} if kind in ("slip", "symmetry") else {},
        **roles,  # pyright: ignore[reportArgumentType]
    )


def _point(position: np.ndarray) -> Point:
    return (float(position[0]), float(position[1]))


class Duct:
    """The two walls of a duct that is laid piece by piece along its centreline, all of one width.

    It starts at the origin, where its inlet spans y from -width/2 to width/2, in the direction of x.
    """

    def __init__(self, width: float = 1.0) -> None:
        self.half = 0.5 * width
        self.position, self.angle = (0.0, 0.0), 0.0
        self.left: list[np.ndarray] = []
        self.right: list[np.ndarray] = []
        self._left_end, self._right_end = self._sides()

    def _sides(self) -> tuple[Point, Point]:
        x, y = self.position
        across = (-math.sin(self.angle) * self.half, math.cos(self.angle) * self.half)
        return (x + across[0], y + across[1]), (x - across[0], y - across[1])

    def _reach(self, left: Point, right: Point) -> None:
        self.left.append(np.array([self._left_end, left]))
        self.right.append(np.array([self._right_end, right]))
        self._left_end, self._right_end = left, right

    def straight(self, length: float) -> Duct:
        x, y = self.position
        self.position = (x + length * math.cos(self.angle), y + length * math.sin(self.angle))
        self._reach(*self._sides())
        return self

    def bend(self, angle: float, inner_radius: float) -> Duct:
        """A turn to the left (positive) or to the right, around a centre to that side."""
        turn = math.copysign(1.0, angle)
        radius = inner_radius + self.half
        x, y = self.position
        to_centre = self.angle + turn * math.pi / 2
        centre = (x + radius * math.cos(to_centre), y + radius * math.sin(to_centre))
        start = to_centre + math.pi
        for side, sign in ((self.left, -turn), (self.right, turn)):
            side.append(arc(centre, radius + sign * self.half, start, start + angle))
        self.angle += angle
        end = start + angle
        self.position = (centre[0] + radius * math.cos(end), centre[1] + radius * math.sin(end))
        self._left_end, self._right_end = self._sides()
        return self

    def mitre(self, angle: float) -> Duct:
        """A sharp turn of the centreline at the end of the last straight part."""
        shift = self.half * math.tan(angle / 2)
        along = (math.cos(self.angle), math.sin(self.angle))
        left, right = self._sides()
        # The inner wall turns earlier, the outer one later.
        left = (left[0] - shift * along[0], left[1] - shift * along[1])
        right = (right[0] + shift * along[0], right[1] + shift * along[1])
        self.left[-1] = np.array([self.left[-1][0], left])
        self.right[-1] = np.array([self.right[-1][0], right])
        self._left_end, self._right_end = left, right
        self.angle += angle
        return self

    def shape(self) -> Shape:
        """The duct with its inlet at the start and its outlet at the end."""
        half = self.half
        outer = [
            *(Piece.of(path, "wall") for path in self.right),
            Piece.of([self._right_end, self._left_end], "outlet"),
            *(Piece.of(path[::-1], "wall") for path in self.left[::-1]),
            Piece.of([(0.0, half), (0.0, -half)], "inlet"),
        ]
        return Shape(Domain.of(outer), {"inlet": ((0.0, half), (0.0, -half))}, ("outlet",))


def closed(path: Float[np.ndarray, "path 2"], patch: str = "obstacle") -> list[Piece]:
    """A smooth obstacle as a hole: the path runs clockwise and ends where it starts."""
    return [Piece.of(np.concatenate([path, path[:1]]), patch)]


def rounded_polygon(corners: Float[np.ndarray, "corners 2"], radius: float) -> list[Piece]:
    """A convex polygon, given clockwise, with its corners rounded: pieces of a hole."""
    if radius <= 0:
        return [
            Piece.of([corner, following], "obstacle")
            for corner, following in zip(corners, np.roll(corners, -1, axis=0), strict=True)
        ]
    number = len(corners)
    arcs = []
    for place in range(number):
        before, here, after = corners[place - 1], corners[place], corners[(place + 1) % number]
        one, two = (before - here) / math.dist(before, here), (after - here) / math.dist(after, here)
        cosine = float(np.clip((one * two).sum(), -1.0, 1.0))
        half = 0.5 * math.acos(cosine)
        reach = radius / math.tan(half)
        middle = one + two
        centre = here + middle / math.hypot(*middle) * radius / math.sin(half)
        start, end = here + reach * one - centre, here + reach * two - centre
        first, last = math.atan2(start[1], start[0]), math.atan2(end[1], end[0])
        while last > first:
            last -= 2 * math.pi
        arcs.append(arc((float(centre[0]), float(centre[1])), radius, first, last))
    pieces = []
    for place, path in enumerate(arcs):
        pieces.append(Piece.of(path, "obstacle"))
        pieces.append(Piece.of([path[-1], arcs[(place + 1) % number][0]], "obstacle"))
    return [piece for piece in pieces if piece.length > 1e-6]
