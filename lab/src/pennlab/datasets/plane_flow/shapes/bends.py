"""Ducts that turn, and ducts that part or join."""

from __future__ import annotations

import math

from pennlab.datasets.plane_flow.domain import Domain, Piece
from pennlab.datasets.plane_flow.shapes.drawing import Draw, Duct, Point, Shape, chain


def bend(draw: Draw) -> Shape:
    """One turn of any angle, round or mitred."""
    before, after = draw.real("before", 0.8, 3.5), draw.real("after", 2.0, 5.0)
    angle = math.radians(draw.real("angle", 20.0, 150.0))
    if draw.choice("kind", {"round": 0.7, "mitred": 0.3}) == "mitred":
        angle = min(angle, math.radians(110.0))
        reach = 0.5 * math.tan(angle / 2)
        return Duct().straight(before + reach).mitre(angle).straight(after + reach).shape()
    return Duct().straight(before).bend(angle, draw.real("inner_radius", 0.08, 1.8)).straight(after).shape()


def s_bend(draw: Draw) -> Shape:
    """Two turns in opposite directions."""
    duct = Duct().straight(draw.real("before", 0.6, 2.0))
    first, second = (math.radians(draw.real(name, 20.0, 95.0)) for name in ("first_angle", "second_angle"))
    duct.bend(first, draw.real("first_radius", 0.1, 1.2)).straight(draw.real("between", 0.1, 1.5))
    return duct.bend(-second, draw.real("second_radius", 0.1, 1.2)).straight(draw.real("after", 2.0, 4.0)).shape()


def u_bend(draw: Draw) -> Shape:
    """A turn by half a circle: only for testing."""
    duct = Duct().straight(draw.real("before", 1.0, 3.0))
    duct.bend(math.pi, draw.real("inner_radius", 0.1, 0.8))
    return duct.straight(draw.real("after", 2.5, 5.0)).shape()


def tee(draw: Draw) -> Shape:
    """A duct with a branch at a right angle: it parts, or two flows join."""
    before, after = draw.real("before", 1.0, 3.0), draw.real("after", 2.0, 5.0)
    width, length = draw.real("branch_width", 0.5, 1.2), draw.real("branch_length", 1.5, 3.5)
    role = draw.choice("branch", {"outlet": 0.55, "inlet": 0.3, "only outlets": 0.15})
    left, right = before, before + width
    if role == "only outlets":
        # The inlet is the foot of the T: the flow meets a wall and parts to both sides.
        left, right, end = after, after + 1.0, 2 * after + 1.0
        head = max(0.6, width)
        outer = [
            *chain([(0, 0), (left, 0), (left, -before)], "wall"),
            Piece.of([(left, -before), (right, -before)], "inlet"),
            *chain([(right, -before), (right, 0), (end, 0)], "wall"),
            Piece.of([(end, 0), (end, head)], "outlet"),
            Piece.of([(end, head), (0, head)], "wall"),
            Piece.of([(0, head), (0, 0)], "outlet2"),
        ]
        return Shape(Domain.of(outer), {"inlet": ((left, -before), (right, -before))}, ("outlet", "outlet2"))
    end = right + after
    branch = "inlet2" if role == "inlet" else "outlet2"
    outer = [
        *chain([(0, 0), (left, 0), (left, -length)], "wall"),
        Piece.of([(left, -length), (right, -length)], branch),
        *chain([(right, -length), (right, 0), (end, 0)], "wall"),
        Piece.of([(end, 0), (end, 1)], "outlet"),
        Piece.of([(end, 1), (0, 1)], "wall"),
        Piece.of([(0, 1), (0, 0)], "inlet"),
    ]
    inlets: dict[str, tuple[Point, Point]] = {"inlet": ((0.0, 1.0), (0.0, 0.0))}
    if role == "inlet":
        return Shape(Domain.of(outer), inlets | {"inlet2": ((left, -length), (right, -length))}, ("outlet",))
    return Shape(Domain.of(outer), inlets, ("outlet", "outlet2"))


def moving_tee(draw: Draw) -> Shape:
    """A T whose straight wall moves: only for testing."""
    before, after = draw.real("before", 1.0, 3.0), draw.real("after", 2.5, 5.0)
    width, length = draw.real("branch_width", 0.5, 1.2), draw.real("branch_length", 1.5, 3.0)
    left, right, end = before, before + width, before + width + after
    branch = draw.choice("branch", {"outlet2": 0.6, "inlet2": 0.4})
    outer = [
        *chain([(0, 0), (left, 0), (left, -length)], "wall"),
        Piece.of([(left, -length), (right, -length)], branch),
        *chain([(right, -length), (right, 0), (end, 0)], "wall"),
        Piece.of([(end, 0), (end, 1)], "outlet"),
        Piece.of([(end, 1), (0, 1)], "moving"),
        Piece.of([(0, 1), (0, 0)], "inlet"),
    ]
    inlets: dict[str, tuple[Point, Point]] = {"inlet": ((0.0, 1.0), (0.0, 0.0))}
    outlets = ("outlet", "outlet2")
    if branch == "inlet2":
        inlets, outlets = inlets | {"inlet2": ((left, -length), (right, -length))}, ("outlet",)
    return Shape(Domain.of(outer), inlets, outlets, moving={"moving": (1.0, 0.0)})


def y_junction(draw: Draw) -> Shape:
    """A stem that parts into two arms, or two arms that join in a stem."""
    up, down = (math.radians(draw.real(name, 20.0, 75.0)) for name in ("upper_angle", "lower_angle"))
    upper, lower = draw.real("upper_width", 0.5, 1.0), draw.real("lower_width", 0.5, 1.0)
    length, stem = draw.real("arm_length", 1.8, 3.5), draw.real("stem", 0.8, 3.0)
    joins = draw.choice("direction", {"parts": 0.6, "joins": 0.4}) == "joins"
    if joins:
        stem += 1.5
        upper = 1.0
    # The arms start at the two corners of the stem; their inner walls meet at the crotch.
    one, two = (math.cos(up), math.sin(up)), (math.cos(down), -math.sin(down))
    left_of_one, right_of_two = (-one[1], one[0]), (two[1], -two[0])
    top, bottom = (stem, 0.5), (stem, -0.5)
    inner_top = (top[0] - upper * left_of_one[0], top[1] - upper * left_of_one[1])
    inner_bottom = (bottom[0] - lower * right_of_two[0], bottom[1] - lower * right_of_two[1])
    crotch = _crossing(inner_top, one, inner_bottom, two)
    reach_one = max(length, _along(crotch, inner_top, one) + 0.8)
    reach_two = max(length, _along(crotch, inner_bottom, two) + 0.8)
    far = [_moved(top, one, reach_one), _moved(inner_top, one, reach_one)]
    near = [_moved(inner_bottom, two, reach_two), _moved(bottom, two, reach_two)]
    first, second, foot = ("inlet", "inlet2", "outlet") if joins else ("outlet", "outlet2", "inlet")
    outer = [
        *chain([(0, -0.5), bottom, near[1]], "wall"),
        Piece.of([near[1], near[0]], second),
        *chain([near[0], crotch, far[1]], "wall"),
        Piece.of([far[1], far[0]], first),
        *chain([far[0], top, (0, 0.5)], "wall"),
        Piece.of([(0, 0.5), (0, -0.5)], foot),
    ]
    if joins:
        return Shape(Domain.of(outer), {"inlet": (far[1], far[0]), "inlet2": (near[1], near[0])}, ("outlet",))
    return Shape(Domain.of(outer), {"inlet": ((0.0, 0.5), (0.0, -0.5))}, ("outlet", "outlet2"))


def _moved(point: Point, direction: Point, length: float) -> Point:
    return (point[0] + length * direction[0], point[1] + length * direction[1])


def _along(point: Point, origin: Point, direction: Point) -> float:
    return (point[0] - origin[0]) * direction[0] + (point[1] - origin[1]) * direction[1]


def _crossing(a: Point, along_a: Point, b: Point, along_b: Point) -> Point:
    """Where two lines cross."""
    scale = along_a[0] * along_b[1] - along_a[1] * along_b[0]
    length = ((b[0] - a[0]) * along_b[1] - (b[1] - a[1]) * along_b[0]) / scale
    return _moved(a, along_a, length)
