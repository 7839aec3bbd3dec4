"""Wide spaces: jets into basins, rooms with inlets, cavities with lids."""

from __future__ import annotations

from pennlab.datasets.plane_flow.domain import Domain, Piece
from pennlab.datasets.plane_flow.shapes.drawing import Draw, Point, Shape, chain, channel


def jet(draw: Draw) -> Shape:
    """A jet from a duct into a basin that is open on its far side, wholly or in part."""
    inlet = draw.real("inlet_length", 0.0, 1.5, zero=0.3)
    length = draw.real("length", 4.0, 8.0)
    below, above = draw.real("below", 0.6, 2.2), draw.real("above", 0.6, 2.2)
    narrow = draw.real("narrowing", 0.1, 0.45, zero=0.4)
    end = inlet + length
    height = 1 + below + above
    low, high = -below + narrow * height, 1 + above - narrow * height
    lower = chain([(0, 0), (inlet, 0), (inlet, -below), (end, -below), (end, low)], "wall")
    upper = chain([(end, high), (end, 1 + above), (inlet, 1 + above), (inlet, 1), (0, 1)], "wall")
    return channel(draw, lower, upper)


def ventilated(draw: Draw) -> Shape:
    """A room with an inlet in its left wall and an outlet in another, or two."""
    width, height = draw.real("width", 2.0, 5.0), draw.real("height", 1.8, 4.0)
    bottom = draw.real("inlet_place", 0.0, 1.0, zero=0.2) * (height - 1.0)
    opening = draw.real("outlet_width", 0.6, 1.4)
    side = draw.choice("outlet_side", {"right": 0.5, "top": 0.25, "bottom": 0.25})
    place = draw.real("outlet_place", 0.0, 1.0)
    duct = draw.real("outlet_length", 1.0, 2.5)
    floor = draw.choice("floor", {"wall": 0.75, "moving": 0.25})
    if side == "bottom":
        floor = "wall"
    start = place * ((height if side == "right" else width) - opening)
    if start < 0.05:
        start = 0.0
    inlet: tuple[Point, Point] = ((0.0, bottom + 1.0), (0.0, bottom))
    outer: list[Piece] = []
    if side == "bottom":
        corners = [(0.0, 0.0), (start, 0.0), (start, -duct)]
        outer += [*chain(corners, "wall"), Piece.of([(start, -duct), (start + opening, -duct)], "outlet")]
        outer += chain([(start + opening, -duct), (start + opening, 0.0), (width, 0.0)], "wall")
    else:
        outer += chain([(0.0, 0.0), (width, 0.0)], floor)
    if side == "right":
        outer += chain([(width, 0.0), (width, start), (width + duct, start)], "wall")
        outer.append(Piece.of([(width + duct, start), (width + duct, start + opening)], "outlet"))
        outer += chain([(width + duct, start + opening), (width, start + opening), (width, height)], "wall")
    else:
        outer += chain([(width, 0.0), (width, height)], "wall")
    if side == "top":
        outer += chain([(width, height), (start + opening, height), (start + opening, height + duct)], "wall")
        outer.append(Piece.of([(start + opening, height + duct), (start, height + duct)], "outlet"))
        outer += chain([(start, height + duct), (start, height), (0.0, height)], "wall")
    else:
        outer += chain([(width, height), (0.0, height)], "wall")
    outer += chain([(0.0, height), inlet[0]], "wall")
    outer.append(Piece.of(inlet, "inlet"))
    outer += chain([inlet[1], (0.0, 0.0)], "wall")
    moving = {"moving": (1.0, 0.0)} if floor == "moving" else {}
    return Shape(Domain.of(_joined(outer)), {"inlet": inlet}, ("outlet",), moving=moving)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Straight neighbours of one patch as one piece."""
    made: list[Piece] = []
    for piece in pieces:
        if made and made[-1].patch == piece.patch and len(piece.path) == len(made[-1].path) == 2:
            (ax, ay), (bx, by) = made[-1].path
            cx, cy = piece.path[1]
            if (
                abs((bx - ax) * (cy - by) - (by - ay) * (cx - bx)) < 1e-12
                and (bx - ax) * (cx - bx) + (by - ay) * (cy - by) > 0
            ):
                made[-1] = Piece.of([(ax, ay), (cx, cy)], piece.patch)
                continue
        made.append(piece)
    return made


def cavity(draw: Draw) -> Shape:
    """A closed cavity with a moving lid, of any height, slanted or clipped; its floor may move, too."""
    height, slant = draw.real("height", 0.5, 2.0), draw.real("slant", -0.4, 0.4, zero=0.5)
    taper = draw.real("taper", -0.25, 0.25, zero=0.5)
    clip = draw.real("clip", 0.15, 0.5, zero=0.5)
    floor = draw.choice("floor", {"wall": 0.8, "moving": 0.2})
    left, right = slant * height - taper, 1 + slant * height + taper  # of the floor, below a lid from 0 to 1
    bottom = -height
    if clip and floor == "wall":
        # A rectangle is missing in the lower right corner.
        inner, step = right - clip * (right - left), bottom + clip * height
        share = clip
        side = right + (1.0 - right) * share
        corners = [(left, bottom), (inner, bottom), (inner, step), (side, step), (1.0, 0.0)]
        outer = chain(corners, "wall")
    else:
        outer = [*chain([(left, bottom), (right, bottom)], floor), *chain([(right, bottom), (1.0, 0.0)], "wall")]
    outer += [Piece.of([(1.0, 0.0), (0.0, 0.0)], "lid"), Piece.of([(0.0, 0.0), (left, bottom)], "wall")]
    moving: dict[str, Point] = {"lid": (1.0, 0.0)}
    if floor == "moving":
        moving["moving"] = (1.0, 0.0)
    return Shape(Domain.of(outer), moving=moving, pressure_point=(round(left, 9), round(bottom, 9)))
