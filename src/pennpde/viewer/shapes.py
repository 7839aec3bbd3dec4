"""Shapes of the page's designs as polygons: lengths are in widths of the inlet.

It loads no torch, so that the page can show an outline while somebody drags a slider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from pennpde.mesh.triangulation import Polygon

INLET, OUTLET, WALL, MOVING, SLIP, BODY = "inlet", "outlet", "wall", "moving", "slip", "body"
Values = Mapping[str, float]
_CURVE = np.radians(6.0)
"""Between two corners of a curve."""


@dataclass(frozen=True)
class Measure:
    """A length or an angle of a shape that a slider sets."""

    name: str
    title: str
    low: float
    high: float
    start: float
    step: float = 0.01


@dataclass(frozen=True)
class Shape:
    """A design: what its sliders are, and what they make."""

    kind: str
    title: str
    measures: tuple[Measure, ...]
    polygons: Callable[[Values], list[Polygon]]
    cells: float = 14.0
    """Across the inlet, for a start."""
    reynolds: float = 1000.0
    duration: float = 4.0
    """In inlet widths over inlet speed."""


def _closed(*pieces: tuple[str, Sequence[Any] | np.ndarray]) -> Polygon:
    """Patches in turn, each from its first corner to the first of the next."""
    corners = np.concatenate([np.asarray(places, float) for _, places in pieces])
    return Polygon(corners, tuple(patch for patch, places in pieces for _ in range(len(places))))


def _arc(centre: tuple[float, float], radius: float, start: float, end: float) -> np.ndarray:
    """Places on a circle, between two angles in degrees; both ends belong to it."""
    first, last = np.radians([start, end])
    angles = np.linspace(first, last, max(2, int(abs(last - first) / _CURVE) + 1))
    return np.stack([centre[0] + radius * np.cos(angles), centre[1] + radius * np.sin(angles)], axis=1)


def _body(places: np.ndarray) -> Polygon:
    return Polygon(places, (WALL,) * len(places))


def _channel(length: float, height: float = 1.0) -> Polygon:
    return _closed((WALL, [(0, 0)]), (OUTLET, [(length, 0)]), (WALL, [(length, height)]), (INLET, [(0, height)]))


def _cylinder(given: Values) -> list[Polygon]:
    radius = given["diameter"] / 2
    return [_channel(4.0), _body(_arc((1.2, given["place"]), radius, 0, 360)[:-1])]


def _aerofoil(given: Values) -> list[Polygon]:
    along = 0.5 * (1 - np.cos(np.linspace(0, np.pi, 12)))
    # The four digits of NACA without camber; the last coefficient closes the trailing edge.
    half = 5 * given["thickness"] * (
        0.2969 * np.sqrt(along) - 0.126 * along - 0.3516 * along**2 + 0.2843 * along**3 - 0.1036 * along**4
    )  # fmt: skip
    upper, lower = np.stack([along, half], axis=1), np.stack([along, -half], axis=1)
    around = 0.6 * (np.concatenate([upper[::-1], lower[1:-1]]) - [0.5, 0.0])
    turn = np.radians(-given["angle"])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return [_channel(3.0), _body(around @ rotation.T + [1.0, 0.5])]


def _cavity(given: Values) -> list[Polygon]:
    height = given["height"]
    return [_closed((WALL, [(0, 0), (1, 0)]), (MOVING, [(1, height)]), (WALL, [(0, height)]))]


def _step(given: Values) -> list[Polygon]:
    ramp = given["first"]
    return [
        _closed(
            (WALL, [(0, 1), (1, 1), (1 + ramp, 0)]), (OUTLET, [(3, 0)]), (WALL, [(3, 2)]), (INLET, [(0, 2)])
        )
    ]  # fmt: skip


def _offset(given: Values) -> list[Polygon]:
    lower, upper = 1 + given["first"], 3 - given["second"]
    below = (WALL, [(0, 1), (1, 1), (lower, 0)])
    return [_closed(below, (OUTLET, [(5, 0)]), (WALL, [(5, 1), (3, 1), (upper, 2)]), (INLET, [(0, 2)]))]


def _expansion(given: Values) -> list[Polygon]:
    lower, upper = 1 + given["first"], 1 + given["second"]
    below = (WALL, [(0, 0.5), (1, 0.5), (lower, 0)])
    return [_closed(below, (OUTLET, [(3, 0)]), (WALL, [(3, 2), (upper, 2), (1, 1.5)]), (INLET, [(0, 1.5)]))]


def _bend(given: Values) -> list[Polygon]:
    """A straight of length one, an arc, a straight of length two."""
    angle, inner = given["angle"], given["radius"]
    centre = (1.0, 1.0 + inner)
    outside = _arc(centre, inner + 1, -90, angle - 90)
    inside = _arc(centre, inner, angle - 90, -90)
    forward = 2 * np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    return [
        _closed(
            (WALL, [(0, 0), *outside]),
            (OUTLET, [outside[-1] + forward]),
            (WALL, [inside[0] + forward, *inside]),
            (INLET, [(0, 1)]),
        )
    ]


def _tee(given: Values) -> list[Polygon]:
    half, length = given["branch"] / 2, given["length"]
    return [
        _closed(
            (WALL, [(0, 0), (1.5 - half, 0)]),
            (OUTLET, [(1.5 - half, -length)]),
            (WALL, [(1.5 + half, -length), (1.5 + half, 0)]),
            (OUTLET, [(3.5, 0)]),
            (WALL, [(3.5, 1)]),
            (INLET, [(0, 1)]),
        )
    ]


def _fork(given: Values) -> list[Polygon]:
    """A channel that parts into two, in the form of a Y."""
    angle, width = np.radians(given["angle"]), given["branch"]
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    root = np.array([1.2, 1.0])
    end = root + 2.0 * along
    inner = end - width * across
    crotch = np.array([inner[0] - (inner[1] - 0.5) / np.tan(angle), 0.5])
    mirrored = [(x, 1 - y) for x, y in (root, end, inner)]
    return [
        _closed(
            (WALL, [(0, 0), mirrored[0]]),
            (OUTLET, [mirrored[1]]),
            (WALL, [mirrored[2], crotch]),
            (OUTLET, [inner]),
            (WALL, [end, root]),
            (INLET, [(0, 1)]),
        )
    ]


def _throat(given: Values) -> list[Polygon]:
    """A channel that narrows and widens again."""
    half, length = (1 - given["throat"]) / 2, given["length"]
    along = np.linspace(0, 1, 25)
    narrowing = half * 0.5 * (1 - np.cos(2 * np.pi * along))
    below = np.stack([0.7 + length * along, narrowing], axis=1)
    above = np.stack([below[::-1, 0], 1 - below[::-1, 1]], axis=1)
    end = 0.7 + length + 1.5
    return [_closed((WALL, [(0, 0), *below]), (OUTLET, [(end, 0)]), (WALL, [(end, 1), *above]), (INLET, [(0, 1)]))]


def _diffuser(given: Values) -> list[Polygon]:
    side, length = (given["outlet"] - 1) / 2, given["length"]
    ends = (0.7 + length, 2.2 + length)
    below = (WALL, [(0, 0), (0.7, 0), (ends[0], -side)])
    above = (WALL, [(ends[1], 1 + side), (ends[0], 1 + side), (0.7, 1)])
    return [_closed(below, (OUTLET, [(ends[1], -side)]), above, (INLET, [(0, 1)]))]


def _ribs(given: Values) -> list[Polygon]:
    height, pitch, wide = given["height"], given["pitch"], 0.15
    places = [0.8 + number * pitch for number in range(3)]
    below = [corner for x in places for corner in ((x, 0), (x, height), (x + wide, height), (x + wide, 0))]
    end = places[-1] + wide + 1.5
    return [_closed((WALL, [(0, 0), *below]), (OUTLET, [(end, 0)]), (WALL, [(end, 1)]), (INLET, [(0, 1)]))]


def _manifold(given: Values) -> list[Polygon]:
    """A channel that ends blind, with outlets on one side."""
    width, number = given["branch"], round(given["number"])
    pieces: list[tuple[str, list[tuple[float, float]]]] = [(WALL, [(0, 0)])]
    for place in range(number):
        left = 0.8 + place * (width + 0.4)
        pieces += [(WALL, [(left, 0)]), (OUTLET, [(left, -0.8)]), (WALL, [(left + width, -0.8), (left + width, 0)])]
    end = 0.8 + number * (width + 0.4)
    return [_closed(*pieces, (WALL, [(end, 0), (end, 1)]), (INLET, [(0, 1)]))]


_RAMPS = (Measure("first", "Lower ramp", 0.0, 1.0, 0.37), Measure("second", "Upper ramp", 0.0, 1.0, 0.37))
_BRANCH = Measure("branch", "Width of a branch", 0.3, 1.0, 0.5)

SHAPES = (
    Shape(
        "cylinder",
        "Cylinder",
        (Measure("diameter", "Diameter", 0.15, 0.5, 0.25), Measure("place", "Height", 0.35, 0.65, 0.45)),
        _cylinder,
        cells=20.0,
        reynolds=600.0,
        duration=8.0,
    ),
    Shape("cavity", "Cavity", (Measure("height", "Height", 0.5, 2.0, 1.0),), _cavity, cells=24.0, duration=8.0),
    Shape("a", "Step", (Measure("first", "Ramp", 0.0, 1.0, 0.37),), _step),
    Shape("b", "Offset duct", _RAMPS, _offset),
    Shape("c", "Expansion", _RAMPS, _expansion),
    Shape(
        "bend",
        "Bend",
        (Measure("angle", "Angle", 20.0, 150.0, 90.0, 1.0), Measure("radius", "Inner radius", 0.2, 1.5, 0.5)),
        _bend,
    ),
    Shape(
        "u_bend",
        "U-bend",
        (Measure("radius", "Inner radius", 0.15, 1.0, 0.3),),
        lambda given: _bend({**given, "angle": 180.0}),
    ),
    Shape("tee", "Tee", (_BRANCH, Measure("length", "Length of the branch", 0.5, 2.5, 1.5)), _tee),
    Shape("fork", "Y", (Measure("angle", "Angle", 15.0, 55.0, 35.0, 1.0), _BRANCH), _fork),
    Shape(
        "nozzle",
        "Nozzle",
        (Measure("throat", "Throat", 0.3, 0.95, 0.5), Measure("length", "Length", 0.5, 3.0, 1.5)),
        _throat,
        reynolds=500.0,
    ),
    Shape(
        "diffuser",
        "Diffuser",
        (Measure("outlet", "Outlet width", 1.1, 3.0, 1.8), Measure("length", "Length", 0.5, 4.0, 2.0)),
        _diffuser,
    ),
    Shape(
        "aerofoil",
        "Aerofoil",
        (
            Measure("angle", "Angle of attack", -15.0, 15.0, 8.0, 0.5),
            Measure("thickness", "Thickness", 0.08, 0.3, 0.15),
        ),
        _aerofoil,
        cells=24.0,
    ),
    Shape(
        "ribs",
        "Ribs",
        (Measure("height", "Height", 0.1, 0.6, 0.3), Measure("pitch", "Distance", 0.4, 1.5, 0.8)),
        _ribs,
        reynolds=500.0,
    ),
    Shape(
        "manifold",
        "Manifold",
        (Measure("number", "Outlets", 2.0, 5.0, 3.0, 1.0), Measure("branch", "Width", 0.3, 0.8, 0.4)),
        _manifold,
    ),
)
BY_KIND = {each.kind: each for each in SHAPES}


def named(polygons: Sequence[Polygon]) -> list[Polygon]:
    """With names that quantities can tell apart: walls of bodies are bodies; several outlets or bodies have numbers.

    `flow_through` knows them by how they begin.
    """
    outlets = 0
    found = []
    several = sum(_runs(polygon.patches) for polygon in polygons) > 1
    for number, polygon in enumerate(polygons):
        body = f"{BODY}_{number}" if len(polygons) > 2 else BODY
        patches = [body if number and each == WALL else each for each in polygon.patches]
        if several and OUTLET in patches:
            # Begun where an outlet begins, so that none is cut in two by the first corner.
            first = next((k for k, each in enumerate(patches) if each == OUTLET and patches[k - 1] != OUTLET), 0)
            for place in [*range(first, len(patches)), *range(first)]:
                if patches[place] == OUTLET:
                    outlets += not patches[place - 1].startswith(OUTLET)
                    patches[place] = f"{OUTLET}_{outlets}"
        found.append(replace(polygon, patches=tuple(patches)))
    return found


def _runs(patches: Sequence[str]) -> int:
    """How many outlets a polygon has: sides that follow each other are one."""
    return sum(now == OUTLET != before for before, now in pairwise([*patches[-1:], *patches]))


def outline_of(kind: str, values: Values) -> list[dict[str, Any]]:
    """Each polygon of a design: its corners, and the roles of its sides."""
    if kind not in BY_KIND:
        raise ValueError(f"There is no design {kind!r}; there are {', '.join(BY_KIND)}.")
    shape = BY_KIND[kind]
    read = {
        each.name: min(each.high, max(each.low, float(values.get(each.name, each.start)))) for each in shape.measures
    }
    return [
        {"corners": np.round(polygon.corners, 4).tolist(), "roles": polygon.patches} for polygon in shape.polygons(read)
    ]
