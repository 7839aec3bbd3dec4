"""Straight ducts whose width changes: steps, expansions, contractions, diffusers, offsets, ribs, chambers, waves."""

from __future__ import annotations

import math

import numpy as np

from pennlab.datasets.plane_flow.domain import Piece
from pennlab.datasets.plane_flow.shapes.drawing import Draw, Point, Shape, arc, chain, channel


def step(draw: Draw) -> Shape:
    """A step down, sharp or with a ramp; type A of the paper is one."""
    inlet, height = draw.real("inlet_length", 0.4, 2.5), draw.real("height", 0.2, 1.5)
    ramp, outlet = draw.real("ramp", 0.1, 1.5, zero=0.4), draw.real("outlet_length", 3.0, 9.0)
    end = inlet + ramp + outlet
    lower = chain([(0, 0), (inlet, 0), (inlet + ramp, -height), (end, -height)], "wall")
    return channel(draw, lower, [Piece.of([(end, 1), (0, 1)], "wall")])


def expansion(draw: Draw) -> Shape:
    """A widening to both sides; type C of the paper is one."""
    inlet, outlet = draw.real("inlet_length", 0.4, 2.5), draw.real("outlet_length", 3.0, 8.0)
    low, high = draw.real("lower_height", 0.1, 1.0), draw.real("upper_height", 0.1, 1.0)
    lower_ramp = draw.real("lower_ramp", 0.1, 1.5, zero=0.3)
    upper_ramp = draw.real("upper_ramp", 0.1, 1.5, zero=0.3)
    end = inlet + max(lower_ramp, upper_ramp) + outlet
    lower = chain([(0, 0), (inlet, 0), (inlet + lower_ramp, -low), (end, -low)], "wall")
    upper = chain([(end, 1 + high), (inlet + upper_ramp, 1 + high), (inlet, 1), (0, 1)], "wall")
    return channel(draw, lower, upper)


def contraction(draw: Draw) -> Shape:
    """A narrowing on one side or both, sharp or with a ramp."""
    inlet, outlet = draw.real("inlet_length", 0.8, 3.5), draw.real("outlet_length", 1.5, 5.0)
    width, place = draw.real("width", 0.4, 0.85), draw.real("place", 0.0, 1.0, zero=0.3)
    ramp = draw.real("ramp", 0.2, 1.5, zero=0.4)
    low = (1 - width) * place
    end = inlet + ramp + outlet
    lower = chain([(0, 0), (inlet, 0), (inlet + ramp, low), (end, low)] if low > 0.02 else [(0, 0), (end, 0)], "wall")
    top = low + width if low > 0.02 else width
    upper = chain([(end, top), (inlet + ramp, top), (inlet, 1), (0, 1)] if top < 0.98 else [(end, 1), (0, 1)], "wall")
    return channel(draw, lower, upper)


def diffuser(draw: Draw) -> Shape:
    """Walls that part, or approach each other, along smooth curves."""
    inlet, outlet = draw.real("inlet_length", 0.4, 2.0), draw.real("outlet_length", 2.0, 6.0)
    length = draw.real("length", 1.0, 5.0)
    low, high = draw.real("lower_height", -0.25, 1.0), draw.real("upper_height", -0.25, 1.0, zero=0.35)
    end = inlet + length + outlet
    curve = np.linspace(0.0, 1.0, 60)
    rise = 0.5 - 0.5 * np.cos(np.pi * curve)
    x = inlet + length * curve
    lower = [
        *chain([(0, 0), (inlet, 0)], "wall"),
        Piece.of(np.stack([x, -low * rise], axis=1), "wall"),
        *chain([(inlet + length, -low), (end, -low)], "wall"),
    ]
    if high == 0.0:
        return channel(draw, lower, [Piece.of([(end, 1), (0, 1)], "wall")])
    upper = [
        *chain([(end, 1 + high), (inlet + length, 1 + high)], "wall"),
        Piece.of(np.stack([x, 1 + high * rise], axis=1)[::-1], "wall"),
        *chain([(inlet, 1), (0, 1)], "wall"),
    ]
    return channel(draw, lower, upper)


def offset(draw: Draw) -> Shape:
    """A duct that continues lower down, behind a chamber; type B of the paper is one."""
    inlet, drop = draw.real("inlet_length", 0.4, 2.0), draw.real("drop", 0.4, 1.3)
    chamber = draw.real("chamber", 1.2, 3.5)
    lower_ramp = draw.real("lower_ramp", 0.1, 1.0, zero=0.25)
    upper_ramp = draw.real("upper_ramp", 0.1, 1.0, zero=0.25)
    width, outlet = draw.real("outlet_width", 0.6, 1.2), draw.real("outlet_length", 2.0, 5.0)
    behind = inlet + max(chamber, lower_ramp + upper_ramp + 0.4)
    end = behind + outlet
    lower = chain([(0, 0), (inlet, 0), (inlet + lower_ramp, -drop), (end, -drop)], "wall")
    roof = -drop + width
    roof = min(roof, 0.9)
    upper = chain([(end, roof), (behind, roof), (behind - upper_ramp, 1), (0, 1)], "wall")
    return channel(draw, lower, upper)


def _rib(kind: str, centre: float, width: float, height: float) -> list[Piece]:
    """An elevation of the lower wall y = 0, from left to right."""
    left, right = centre - width / 2, centre + width / 2
    if kind == "rectangle":
        return chain([(left, 0), (left, height), (right, height), (right, 0)], "wall")
    if kind == "triangle":
        return chain([(left, 0), (centre, height), (right, 0)], "wall")
    if kind == "wedge":
        return chain([(left, 0), (right, height), (right, 0)], "wall")
    # A circular segment through both ends and the top.
    radius = (height**2 + (width / 2) ** 2) / (2 * height)
    start = math.atan2(radius - height, -width / 2)
    return [Piece.of(arc((centre, height - radius), radius, start, math.pi - start), "wall")]


RIBS = {"rectangle": 0.4, "triangle": 0.2, "wedge": 0.2, "hill": 0.2}


def ribs(draw: Draw) -> Shape:
    """A channel with one to four ribs on its walls."""
    number = draw.count("number", 1, 4)
    x = draw.real("inlet_length", 0.8, 2.5)
    lower: list[Piece] = []
    upper: list[Piece] = []
    ends = [0.0, 0.0]
    for place in range(1, number + 1):
        kind = draw.choice(f"kind{place}", RIBS)
        width, height = draw.real(f"width{place}", 0.15, 1.0), draw.real(f"height{place}", 0.15, 0.5)
        if kind == "hill":
            height = min(height, 0.45 * width)
        pieces = _rib(kind, x + width / 2, width, height)
        side = 0 if draw.random.random() < 0.65 else 1
        draw.values[f"side{place}"] = draw.places[f"side{place}"] = float(side)
        if side:
            pieces = [Piece.of(piece.path * [1.0, -1.0] + [0.0, 1.0], "wall") for piece in pieces]
        wall = upper if side else lower
        wall += [*chain([(ends[side], float(side)), (x, float(side))], "wall"), *pieces]
        ends[side] = x + width
        x += width + draw.real(f"gap{place}", 0.4, 1.6)
    end = x + draw.real("outlet_length", 2.0, 4.0)
    lower += chain([(ends[0], 0.0), (end, 0.0)], "wall")
    upper += chain([(ends[1], 1.0), (end, 1.0)], "wall")
    return channel(draw, lower, [Piece.of(piece.path[::-1], "wall") for piece in upper[::-1]])


def chamber(draw: Draw) -> Shape:
    """A channel with pockets in one wall or in both."""
    inlet = draw.real("inlet_length", 0.6, 2.5)
    depth, width = draw.real("depth", 0.3, 1.5), draw.real("width", 0.5, 3.0)
    slope = draw.real("slope", 0.0, 0.4, zero=0.5) * min(width, 1.0)
    other = draw.real("other_depth", 0.3, 1.3, zero=0.5)
    shift = draw.real("shift", -0.3, 1.0)
    outlet = draw.real("outlet_length", 1.5, 4.5)

    def pocket(start: float, depth: float) -> list[Point]:
        return [(start, 0.0), (start + slope, -depth), (start + width - slope, -depth), (start + width, 0.0)]

    second = inlet + max(shift, 0.3 - inlet)
    end = max(inlet, second if other else 0.0) + width + outlet
    lower = chain([(0.0, 0.0), *pocket(inlet, depth), (end, 0.0)], "wall")
    if not other:
        return channel(draw, lower, [Piece.of([(end, 1), (0, 1)], "wall")])
    upper = [(x, 1.0 - y) for x, y in pocket(second, other)]
    return channel(draw, lower, chain([(end, 1.0), *upper[::-1], (0.0, 1.0)], "wall"))


def wavy(draw: Draw) -> Shape:
    """A channel with walls in waves."""
    inlet, waves = draw.real("inlet_length", 0.5, 1.5), draw.count("waves", 1, 4)
    wavelength = draw.real("wavelength", 1.0, 2.5)
    low, high = draw.real("lower_amplitude", 0.05, 0.25), draw.real("upper_amplitude", 0.05, 0.25, zero=0.35)
    shift = draw.real("shift", 0.0, 1.0)
    inward = draw.choice("direction", {"inward": 0.5, "outward": 0.5}) == "inward"
    length = waves * wavelength
    end = inlet + length + 0.8 + draw.real("outlet_length", 1.5, 3.0)
    sign = 1.0 if inward else -1.0
    curve = np.linspace(0.0, 1.0, 40 * waves + 1)
    wave = 1 - np.cos(2 * np.pi * waves * curve)
    lower = [
        *chain([(0, 0), (inlet, 0)], "wall"),
        Piece.of(np.stack([inlet + length * curve, sign * low * wave], axis=1), "wall"),
        *chain([(inlet + length, 0), (end, 0)], "wall"),
    ]
    if high == 0.0:
        return channel(draw, lower, [Piece.of([(end, 1), (0, 1)], "wall")])
    start = inlet + 0.8 * shift
    upper = [
        *chain([(end, 1), (start + length, 1)], "wall"),
        Piece.of(np.stack([start + length * curve, 1 - sign * high * wave], axis=1)[::-1], "wall"),
        *chain([(start, 1), (0, 1)], "wall"),
    ]
    return channel(draw, lower, upper)
