"""Points chosen in words: comparisons, a box, a half-space, an array of the mesh.

::

    inlet = "x == 0"                             comparisons, see `parse_selection`
    outlet = { box = [[4.99, -1], [5.01, 3]] }   two corners
    top = { half_space = { point = [0, 2], normal = [0, 1] } }   on and behind the plane, seen along the normal
    hot = { array = "marker", equals = 3 }       an array of the mesh file
    wall = "rest"                                what no other patch has; `Mesh.with_patches` knows that word
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from itertools import pairwise
from reprlib import repr as shown  # short, however large the value is
from typing import Any

import numpy as np
from torch import Tensor

_KINDS = ("box", "half_space", "array")
_KNOWN = {"box": {"box"}, "half_space": {"half_space"}, "array": {"array", "equals"}}
_LARGEST = 1e100
"""Squares of larger numbers overflow."""

Positions = np.ndarray
Selection = Callable[[Positions], np.ndarray]
"""Maps positions [points, space] to one bool per point."""

_NEARNESS = 1e-6
_LONGEST_SELECTION = 10_000
_DEEPEST_SELECTION = 50
_COMPARISONS: dict[type[ast.cmpop], Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    ast.Lt: lambda a, b, _: a < b,
    ast.LtE: lambda a, b, _: a <= b,
    ast.Gt: lambda a, b, _: a > b,
    ast.GtE: lambda a, b, _: a >= b,
    ast.Eq: lambda a, b, nearness: np.abs(a - b) <= nearness,
    ast.NotEq: lambda a, b, nearness: np.abs(a - b) > nearness,
}


def points_chosen(given: Mapping[str, Any], name: str, space: int, fields: Mapping[str, Tensor]) -> Any:
    """A test on positions, or a bool for each point, from one of the tables above.

    Args:
        given: The table.
        name: Of the patch.
        space: The number of coordinates.
        fields: The arrays of the mesh.
    """
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) != 1 or given.keys() - _KNOWN[kinds[0]]:
        raise ValueError(
            f"Patch {name!r} has the keys {sorted(given)}; it needs exactly one of {list(_KINDS)} "
            "(and `equals` together with `array`)."
        )
    if kinds[0] == "array":
        return _equal(given["array"], given.get("equals"), name, fields)
    if kinds[0] == "box":
        corners = given["box"]
        if not hasattr(corners, "__len__") or isinstance(corners, str) or len(corners) != 2:
            raise ValueError(f"Patch {name!r} has the box {shown(corners)}; give two corners, as [[0, 0], [1, 1]].")
        both = np.stack([_vector(corner, space, f"corner of patch {name!r}") for corner in corners])
        low, high = both.min(axis=0), both.max(axis=0)
        return lambda x: ((x >= low - _nearness(x)) & (x <= high + _nearness(x))).all(axis=1)
    plane = given["half_space"]
    if not isinstance(plane, Mapping) or plane.keys() != {"point", "normal"}:
        raise ValueError(f"Patch {name!r} has half_space {shown(plane)}; it needs `point` and `normal`.")
    point, normal = (_vector(plane[part], space, f"{part} of patch {name!r}") for part in ("point", "normal"))
    steepest = np.abs(normal).max()
    if steepest == 0:
        raise ValueError(f"Patch {name!r} has a normal of length zero.")
    normal = normal / steepest  # so that its length neither overflows nor vanishes
    normal /= np.linalg.norm(normal)
    return lambda x: (x - point) @ normal >= -_nearness(x)


def _equal(array: Any, wanted: Any, name: str, fields: Mapping[str, Tensor]) -> np.ndarray:
    if not isinstance(array, str) or array not in fields:
        raise ValueError(f"Patch {name!r} asks for the array {shown(array)}; the mesh file has {sorted(fields)}.")
    values = fields[array].reshape(len(fields[array]), -1)[:, 0].numpy()
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int | float)):
        raise ValueError(f"Patch {name!r} equals {shown(wanted)}; give a number.")
    return values != 0 if wanted is None else np.isclose(values, wanted)


def _vector(given: Any, space: int, label: str) -> np.ndarray:
    try:
        vector = np.asarray(given, dtype=float)
    except (TypeError, ValueError, OverflowError):
        vector = np.full(0, np.nan)
    if vector.shape != (space,) or not (np.abs(vector) <= _LARGEST).all():
        raise ValueError(
            f"The {label} is {shown(given)}; the mesh has {space} dimensions, so give {space} numbers, finite ones."
        )
    return vector


def _nearness(x: Positions) -> float:
    """Tolerance for a point on a line or plane: a millionth of the mesh size."""
    return _NEARNESS * float(np.ptp(x, axis=0).max()) if len(x) else 0.0


def parse_selection(text: str) -> Selection:
    """Parse comparisons on coordinates, which are never run as Python; a ValueError shows what is not understood.

    ::

        x < 0.001                     one comparison
        0.2 <= y <= 0.8               a chain
        x == 0 and not (y > 1)        combined; == holds within a millionth of the mesh's size
        r > 0.5                       r is the distance from the origin
    """
    if len(text) > _LONGEST_SELECTION:
        raise ValueError(f"A selection of {len(text)} characters is too long; {_LONGEST_SELECTION} are allowed.")
    line = " ".join(text.split())
    try:
        return _selection(ast.parse(line, mode="eval").body, line, 0)
    except SyntaxError as error:
        place = max(0, (error.offset or 1) - 1)
        raise _not_understood(line, f"{line[place : place + 12]!r} at character {place + 1}") from None
    except (ValueError, MemoryError, RecursionError) as error:  # what Python's own parser says of bytes it cannot take
        if isinstance(error, ValueError) and "selection" in str(error):
            raise
        raise _not_understood(line, f"it ({error})") from None


def _not_understood(text: str, what: str) -> ValueError:
    return ValueError(
        f"Cannot read {what} in the selection {shown(text)}. Write comparisons such as 'x < 0.5' or '0 <= y <= 1' of "
        "x, y, z, r and numbers, joined by and, or, not, with parentheses."
    )


def _selection(node: ast.expr, text: str, depth: int) -> Selection:
    if depth > _DEEPEST_SELECTION:
        raise ValueError(f"A selection nests at most {_DEEPEST_SELECTION} levels deep: {shown(text)}.")
    match node:
        case ast.BoolOp():
            parts = [_selection(each, text, depth + 1) for each in node.values]
            join = np.logical_or if isinstance(node.op, ast.Or) else np.logical_and
            return lambda x: join.reduce([each(x) for each in parts])
        case ast.UnaryOp(op=ast.Not()):
            inside = _selection(node.operand, text, depth + 1)
            return lambda x: ~inside(x)
        case ast.Compare() if all(type(sign) in _COMPARISONS for sign in node.ops):
            terms = [_term(each, text) for each in (node.left, *node.comparators)]
            signs = [_COMPARISONS[type(sign)] for sign in node.ops]

            def holds(x: Positions) -> np.ndarray:
                values, nearness = [term(x) for term in terms], _nearness(x)
                return np.logical_and.reduce(
                    [sign(a, b, nearness) for sign, (a, b) in zip(signs, pairwise(values), strict=True)]
                )

            return holds
        case _:
            raise _not_understood(text, f"{ast.get_source_segment(text, node)!r}, which is no comparison,")


def _term(node: ast.expr, text: str) -> Callable[[Positions], np.ndarray]:
    match node:
        case ast.Name(id="r"):
            return lambda x: np.linalg.norm(x, axis=1)
        case ast.Name(id="x" | "y" | "z"):
            axis = "xyz".index(node.id)

            def coordinate(x: Positions) -> np.ndarray:
                if axis >= x.shape[1]:
                    raise ValueError(
                        f"The selection {shown(text)} asks for z, but the mesh is a plane one: use x and y."
                    )
                return x[:, axis]

            return coordinate
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=given)):
            number, sign = given, -1.0
        case ast.UnaryOp(op=ast.UAdd(), operand=ast.Constant(value=given)) | ast.Constant(value=given):
            number, sign = given, 1.0
        case _:
            number, sign = None, 1.0
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= _LARGEST:
        problem = f"{ast.get_source_segment(text, node)!r} where a coordinate (x, y, z, r) or a number should be"
        raise _not_understood(text, problem)
    value = sign * float(number)
    return lambda x: np.full(len(x), value)
