"""Channels with bodies in them."""

from __future__ import annotations

import math

import numpy as np

from pennlab.datasets.plane_flow.domain import Piece
from pennlab.datasets.plane_flow.shapes.drawing import (
    ARC_STEP,
    Draw,
    Point,
    Shape,
    chain,
    channel,
    closed,
    rounded_polygon,
)

_LEAST_GAP = 0.16


def _places(draw: Draw, sizes: list[float], start: float) -> tuple[list[Point], float]:
    """Centres of bodies one behind the other, or side by side if there is room, and where the last one ends."""
    found: list[Point] = []
    x = start
    for number, size in enumerate(sizes, 1):
        radius = size / 2
        x += radius
        room = max(0.0, 1.0 - 2 * radius - 2 * _LEAST_GAP)
        y = radius + _LEAST_GAP + room * draw.real(f"height{number}", 0.0, 1.0)
        found.append((round(x, 6), round(y, 6)))
        x += radius + draw.real(f"gap{number}", 0.2, 1.5)
    return found, x


def _channel_around(draw: Draw, holes: list[list[Piece]], end: float, **roles: object) -> Shape:
    lower, upper = chain([(0.0, 0.0), (end, 0.0)], "wall"), chain([(end, 1.0), (0.0, 1.0)], "wall")
    return channel(draw, lower, upper, holes, **roles)


def round_bodies(draw: Draw) -> Shape:
    """One to four circles and ellipses; a single circle may turn."""
    number = draw.count("number", 1, 4)
    sizes = [draw.real(f"size{place}", 0.16, 0.5) for place in range(1, number + 1)]
    centres, behind = _places(draw, sizes, draw.real("inlet_length", 0.6, 2.0))
    holes, circles = [], []
    for place, (centre, size) in enumerate(zip(centres, sizes, strict=True), 1):
        ratio = draw.real(f"flatness{place}", 0.4, 0.9, zero=0.5) or 1.0
        tilt = math.radians(draw.real(f"tilt{place}", 0.0, 180.0))
        angle = np.linspace(0.0, -2 * np.pi, math.ceil(2 * np.pi / ARC_STEP), endpoint=False)
        across, along = 0.5 * size * ratio * np.sin(angle), 0.5 * size * np.cos(angle)
        path = np.stack(
            [
                centre[0] + along * math.cos(tilt) - across * math.sin(tilt),
                centre[1] + along * math.sin(tilt) + across * math.cos(tilt),
            ],
            axis=1,
        )
        holes.append(closed(path))
        circles.append(ratio == 1.0)
    end = behind + draw.real("outlet_length", 2.0, 4.5)
    turning = {"obstacle": (centres[0], sizes[0] / 2)} if number == 1 and circles[0] else {}
    return _channel_around(draw, holes, end, turning=turning)


def blunt_bodies(draw: Draw) -> Shape:
    """One to four rectangles and polygons at any angle, sharp or rounded."""
    number = draw.count("number", 1, 4)
    sizes = [draw.real(f"size{place}", 0.2, 0.5) for place in range(1, number + 1)]
    centres, behind = _places(draw, sizes, draw.real("inlet_length", 0.6, 2.0))
    holes = []
    for place, (centre, size) in enumerate(zip(centres, sizes, strict=True), 1):
        kind = draw.choice(f"kind{place}", {"rectangle": 0.5, "triangle": 0.2, "polygon": 0.3})
        tilt = math.radians(draw.real(f"tilt{place}", 0.0, 180.0))
        rounding = draw.real(f"rounding{place}", 0.1, 0.35, zero=0.5)
        # All corners lie on the circle that the places were chosen for.
        if kind == "rectangle":
            half = math.radians(draw.real(f"aspect{place}", 15.0, 45.0))
            angles = np.array([half, -half, half - np.pi, -half - np.pi])
        else:
            corners = 3 if kind == "triangle" else 5 + int(draw.random.integers(0, 3))
            angles = -2 * np.pi * np.arange(corners) / corners
        angles = angles + tilt
        body = np.stack([centre[0] + 0.5 * size * np.cos(angles), centre[1] + 0.5 * size * np.sin(angles)], axis=1)
        shortest = float(np.sqrt(((body - np.roll(body, 1, axis=0)) ** 2).sum(axis=1)).min())
        holes.append(rounded_polygon(body, rounding * shortest * (0.6 if kind == "triangle" else 1.0)))
    return _channel_around(draw, holes, behind + draw.real("outlet_length", 2.0, 4.5))


def aerofoil(draw: Draw) -> Shape:
    """A cambered aerofoil at an angle of attack: only for testing."""
    chord, thickness = draw.real("chord", 0.45, 0.9), draw.real("thickness", 0.10, 0.22)
    camber, attack = draw.real("camber", 0.0, 0.06, zero=0.3), math.radians(draw.real("attack", -15.0, 15.0))
    x = 0.5 - 0.5 * np.cos(np.linspace(0.0, np.pi, 81))
    half = (
        5 * thickness * (0.2969 * np.sqrt(x) - 0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4)
    )  # NACA, closed at the trailing edge
    place = 0.4
    line = np.where(
        x < place,
        camber / place**2 * (2 * place * x - x**2),
        camber / (1 - place) ** 2 * (1 - 2 * place + 2 * place * x - x**2),
    )
    upper, lower = np.stack([x, line + half], axis=1), np.stack([x, line - half], axis=1)
    # Clockwise: from the trailing edge below to the nose, and back above.
    path = np.concatenate([lower[::-1], upper[1:]]) - [0.5, 0.0]
    cosine, sine = math.cos(-attack), math.sin(-attack)
    turned = chord * np.stack(
        [path[:, 0] * cosine - path[:, 1] * sine, path[:, 0] * sine + path[:, 1] * cosine], axis=1
    )
    nose = draw.real("inlet_length", 0.8, 2.0)
    height = draw.real("height", 0.42, 0.58)
    body = turned + np.array([nose + chord / 2, height])
    body[-1] = body[0]
    return _channel_around(draw, [[Piece.of(body, "obstacle")]], nose + chord + draw.real("outlet_length", 2.5, 4.5))
