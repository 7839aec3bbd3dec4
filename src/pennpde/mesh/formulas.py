"""Formulas of the position: numbers, and points chosen by comparisons of them. They are never run as Python.

::

    6 * y * (1 - y) * min(t / 0.1, 1)            a number, for those who have such a variable, see `parse_expression`
    inlet = "x == 0"                             comparisons, see `parse_selection`
    outlet = { box = [[4.99, -1], [5.01, 3]] }   two corners
    top = { half_space = { point = [0, 2], normal = [0, 1] } }   on and behind the plane, seen along the normal
    hot = { array = "marker", equals = 3 }       an array of the mesh file
    wall = "rest"                                what no other patch has; `Mesh.with_patches` knows that word
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from reprlib import repr as shown  # short, however large the value is
from typing import Any

import numpy as np
from torch import Tensor

Positions = np.ndarray
Variables = Mapping[str, np.ndarray | float]
"""By name, at some points."""
Expression = Callable[[Variables], np.ndarray]
Selection = Callable[[Positions], np.ndarray]
"""Maps positions [points, space] to one bool per point."""

LARGEST = 1e100
"""Squares of larger numbers overflow."""
_LONGEST, _DEEPEST = 10_000, 50
_NEARNESS = 1e-6
_KINDS = ("box", "half_space", "array")
_ALLOWED = {"box": {"box"}, "half_space": {"half_space"}, "array": {"array", "equals"}}
_SIGNS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_ONE: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in ("sin", "cos", "exp", "sqrt", "tanh", "abs")}
_TWO: dict[str, Callable[..., Any]] = {"min": np.minimum, "max": np.maximum}
_NAMES = ("x", "y", "z", "t", "s", "nx", "ny", "nz")
_PLACES = ("x", "y", "z", "r")
_COMPARISONS: dict[type[ast.cmpop], Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    ast.Lt: lambda a, b, _: a < b,
    ast.LtE: lambda a, b, _: a <= b,
    ast.Gt: lambda a, b, _: a > b,
    ast.GtE: lambda a, b, _: a >= b,
    ast.Eq: lambda a, b, nearness: np.abs(a - b) <= nearness,
    ast.NotEq: lambda a, b, nearness: np.abs(a - b) > nearness,
}


def parse_expression(text: str) -> Expression:
    """A formula for a number; a ValueError, the second half of a sentence, shows what cannot be understood.

    It knows positions x, y, z, the time t, the outward normal nx, ny, nz, and s, the share of the length of the patch
    that lies behind the point, with the domain to the left.

    ::

        6 * y * (1 - y) * min(t / 0.1, 1)
        1 + 0.1 * sin(2 * pi * t)
    """
    return _closure(_tree(text), text, _NAMES)


def parse_selection(text: str) -> Selection:
    """Comparisons of formulas; a ValueError shows what is not understood.

    ::

        x < 0.001                     one comparison
        0.2 <= y <= 0.8               a chain
        x == 0 and not (y > 1)        combined; == holds within a millionth of the mesh's size
        x**2 + y**2 < 1               of formulas
        r > 0.5                       r is the distance from the origin
    """
    line = " ".join(text.split())
    try:
        chosen = _selection(_tree(line), line)
    except ValueError as error:
        raise ValueError(
            f"Cannot read the selection {shown(line)}, {error} Write comparisons such as 'x < 0.5' or '0 <= y <= 1', "
            "joined by and, or, not, with parentheses."
        ) from None

    def at(positions: Positions) -> np.ndarray:
        places: dict[str, np.ndarray | float] = dict(zip("xyz", positions.T, strict=False))
        try:
            with np.errstate(all="ignore"):  # what is not finite is refused
                return chosen({**places, "r": np.linalg.norm(positions, axis=1)}, _nearness(positions))
        except KeyError as error:
            raise ValueError(
                f"The selection {shown(line)} asks for {error.args[0]}, but the mesh is a plane one: use x and y."
            ) from None

    return at


def _selection(node: ast.expr, text: str) -> Callable[[Variables, float], np.ndarray]:
    match node:
        case ast.BoolOp():
            parts = [_selection(each, text) for each in node.values]
            join = np.logical_or if isinstance(node.op, ast.Or) else np.logical_and
            return lambda variables, near: join.reduce([each(variables, near) for each in parts])
        case ast.UnaryOp(op=ast.Not()):
            inside = _selection(node.operand, text)
            return lambda variables, near: ~inside(variables, near)
        case ast.Compare() if all(type(sign) in _COMPARISONS for sign in node.ops):
            terms = [_closure(each, text, _PLACES) for each in (node.left, *node.comparators)]
            signs = [_COMPARISONS[type(sign)] for sign in node.ops]

            def holds(variables: Variables, near: float) -> np.ndarray:
                values = np.broadcast_arrays(variables["x"], *(term(variables) for term in terms))[1:]
                if not np.isfinite(values).all():
                    raise ValueError(f"The selection {shown(text)} compares numbers that are not finite.")
                return np.logical_and.reduce(
                    [sign(a, b, near) for sign, (a, b) in zip(signs, pairwise(values), strict=True)]
                )

            return holds
    raise ValueError(f"because {shown(ast.get_source_segment(text, node))} is no comparison.")


def _tree(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise ValueError(f"whose {len(text)} characters are too many; {_LONGEST} are allowed.")
    text = text.strip()
    try:
        tree = ast.parse(text, mode="eval").body
        if _depth(tree) <= _DEEPEST:
            return tree
    except (RecursionError, MemoryError):
        pass
    except SyntaxError as error:
        place = max(0, (error.offset or 1) - 1)
        found = f"{text[place : place + 12]!r} at character {place + 1}"
        raise ValueError(f"which is no expression because of {found}; known are {_known(_NAMES)}.") from None
    except ValueError as error:  # what Python's own parser says of bytes that it cannot take
        raise ValueError(f"which is no expression ({error}).") from None
    raise ValueError(f"which nests more than {_DEEPEST} levels deep.")


def _depth(tree: ast.AST) -> int:
    deepest, level = 0, [tree]
    while level:
        deepest, level = deepest + 1, [child for each in level for child in ast.iter_child_nodes(each)]
    return deepest


def _closure(tree: ast.expr, text: str, names: Collection[str]) -> Expression:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float) and not isinstance(tree.value, bool):
        number = np.asarray(float(tree.value) if abs(tree.value) <= LARGEST else np.inf)
        return lambda _: number
    if isinstance(tree, ast.Name) and tree.id == "pi":
        return lambda _: np.asarray(np.pi)
    if isinstance(tree, ast.Name) and tree.id in names:
        name = tree.id
        return lambda variables: np.asarray(variables[name], float)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _SIGNS:
        sign, left, right = _SIGNS[type(tree.op)], _closure(tree.left, text, names), _closure(tree.right, text, names)
        return lambda variables: sign(left(variables), right(variables))
    if isinstance(tree, ast.UnaryOp) and type(tree.op) in _SIGNS:
        sign, inner = _SIGNS[type(tree.op)], _closure(tree.operand, text, names)
        return lambda variables: sign(inner(variables))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.keywords:
        parts = [_closure(each, text, names) for each in tree.args]
        function = {1: _ONE, 2: _TWO}.get(len(parts), {}).get(tree.func.id)
        if function is not None:
            return lambda variables: function(*(part(variables) for part in parts))
    hint = " (a power is written **)" if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitXor) else ""
    part = ast.get_source_segment(text.strip(), tree) or text
    raise ValueError(f"which is no expression because of {shown(part)}{hint}; known are {_known(names)}.")


def _known(names: Collection[str]) -> str:
    return f"numbers, {', '.join(names)}, pi, + - * / **, parentheses, {', '.join((*_ONE, *_TWO))}"


# Points chosen by tables


def points_chosen(given: Mapping[str, Any], name: str, space: int, fields: Mapping[str, Tensor]) -> Any:
    """A test on positions, or a bool for each point, from one of the tables above.

    Args:
        given: The table.
        name: Of the patch.
        space: The number of coordinates.
        fields: The arrays of the mesh.
    """
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) != 1 or given.keys() - _ALLOWED[kinds[0]]:
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
    if vector.shape != (space,) or not (np.abs(vector) <= LARGEST).all():
        raise ValueError(
            f"The {label} is {shown(given)}; the mesh has {space} dimensions, so give {space} numbers, finite ones."
        )
    return vector


def _nearness(x: Positions) -> float:
    """Tolerance for a point on a line or plane: a millionth of the mesh size."""
    return _NEARNESS * float(np.ptp(x, axis=0).max()) if len(x) else 0.0
