"""Points chosen in words: comparisons, a box, a half-space, an array of the mesh.

::

    inlet = "x == 0"                             comparisons, see `parse_selection`
    outlet = { box = [[4.99, -1], [5.01, 3]] }   two corners
    top = { half_space = { point = [0, 2], normal = [0, 1] } }   on and behind the plane, seen along the normal
    hot = { array = "marker", equals = 3 }       an array of the mesh file
    wall = "rest"                                what no other patch has; `Mesh.with_patches` knows that word
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
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

_TOKEN = re.compile(r"\s*(?:(<=|>=|==|!=|<|>|\(|\))|([A-Za-z_]\w*)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))")
_NEARNESS = 1e-6
_LONGEST_SELECTION = 10_000
_DEEPEST_SELECTION = 50
_COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
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
    """Parse comparisons on coordinates, never evaluated as Python; a ValueError shows where it cannot be understood.

    ::

        x < 0.001                     one comparison
        0.2 <= y <= 0.8               a chain
        x == 0 and not (y > 1)        combined; == holds within a millionth of the mesh's size
        r > 0.5                       r is the distance from the origin
    """
    if len(text) > _LONGEST_SELECTION:
        raise ValueError(f"A selection of {len(text)} characters is too long; {_LONGEST_SELECTION} are allowed.")
    return _Parser(text).parse()


class _Parser:
    """Recursive descent: or < and < not < comparison."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = self._tokens()
        self.position = 0
        self.depth = 0

    def parse(self) -> Selection:
        selection = self._any()
        if self.position < len(self.tokens):
            raise self._error(f"unexpected {self.tokens[self.position][0]!r}")
        return selection

    def _tokens(self) -> list[tuple[str, int]]:
        found, position = [], 0
        text = self.text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                position += len(text[position:]) - len(text[position:].lstrip())
                raise ValueError(
                    f"Cannot read {text[position : position + 12]!r} at character {position + 1} of the selection "
                    f"{self.text!r}. Write comparisons such as 'x < 0.5', joined by and, or, not."
                )
            found.append((match.group().strip(), match.end()))
            position = match.end()
        return found

    def _error(self, problem: str) -> ValueError:
        place = self.tokens[self.position][1] if self.position < len(self.tokens) else len(self.text)
        return ValueError(
            f"The selection {self.text!r} has {problem} at character {place}. Write comparisons such as 'x < 0.5' or "
            "'0 <= y <= 1', joined by and, or, not, with parentheses."
        )

    def _next(self) -> str | None:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else None

    def _take(self) -> str:
        token = self._next()
        if token is None:
            raise self._error("an unfinished comparison")
        self.position += 1
        return token

    def _any(self) -> Selection:
        return self._joined("or", self._all, np.logical_or)

    def _all(self) -> Selection:
        return self._joined("and", self._one, np.logical_and)

    def _joined(self, word: str, part: Callable[[], Selection], join: np.ufunc) -> Selection:
        parts = [part()]
        while self._next() == word:
            self._take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else lambda x: join.reduce([each(x) for each in parts])

    def _one(self) -> Selection:
        self.depth += 1
        if self.depth > _DEEPEST_SELECTION:
            raise ValueError(f"A selection nests at most {_DEEPEST_SELECTION} levels deep: {self.text[:60]!r}...")
        try:
            if self._next() == "not":
                self._take()
                inside = self._one()
                return lambda x: ~inside(x)
            if self._next() == "(":
                self._take()
                inside = self._any()
                if self._next() != ")":
                    raise self._error("a missing ')'")
                self._take()
                return inside
            return self._comparison()
        finally:
            self.depth -= 1

    def _comparison(self) -> Selection:
        terms, comparisons = [self._term()], []
        while self._next() in (*_COMPARISONS, "==", "!="):
            comparisons.append(self._take())
            terms.append(self._term())
        if not comparisons:
            raise self._error("no comparison")

        def holds(x: Positions) -> np.ndarray:
            nearness = _nearness(x)
            result = np.ones(len(x), dtype=bool)
            for left, sign, right in zip(terms[:-1], comparisons, terms[1:], strict=True):
                a, b = left(x), right(x)
                near = np.abs(a - b) <= nearness
                result &= near if sign == "==" else ~near if sign == "!=" else _COMPARISONS[sign](a, b)
            return result

        return holds

    def _term(self) -> Callable[[Positions], np.ndarray]:
        token = self._take()
        if token in ("x", "y", "z"):
            axis = "xyz".index(token)

            def coordinate(x: Positions) -> np.ndarray:
                if axis >= x.shape[1]:
                    raise ValueError(
                        f"The selection {self.text!r} asks for z, but the mesh is a plane one: use x and y."
                    )
                return x[:, axis]

            return coordinate
        if token == "r":
            return lambda x: np.linalg.norm(x, axis=1)
        try:
            number = float(token)
        except ValueError:
            self.position -= 1
            raise self._error(f"{token!r} where a coordinate (x, y, z, r) or a number should be") from None
        if not np.isfinite(number):
            self.position -= 1
            raise self._error(f"the number {token}, which is too large,")
        return lambda x: np.full(len(x), number)
