"""Selections of points: a small language of comparisons on coordinates, never evaluated as Python.

x < 0.001                     one comparison
0.2 <= y <= 0.8               a chain
x == 0 and not (y > 1)        combined; == holds within a millionth of the mesh's size
r > 0.5                       r is the distance from the origin
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import numpy as np

Positions = np.ndarray
Selection = Callable[[Positions], np.ndarray]
"""Maps positions [points, space] to one bool per point."""

_TOKEN = re.compile(r"\s*(?:(<=|>=|==|!=|<|>|\(|\))|([A-Za-z_]\w*)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))")
_NEARNESS = 1e-6
_LONGEST = 10_000
_DEEPEST = 50
_COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse_selection(text: str) -> Selection:
    """Parse a text such as `x == 0 and y < 0.5`; a ValueError shows where it cannot be understood."""
    if len(text) > _LONGEST:
        raise ValueError(f"A selection of {len(text)} characters is too long; {_LONGEST} are allowed.")
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
        parts = [self._all()]
        while self._next() == "or":
            self._take()
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda x: np.logical_or.reduce([part(x) for part in parts])

    def _all(self) -> Selection:
        parts = [self._one()]
        while self._next() == "and":
            self._take()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda x: np.logical_and.reduce([part(x) for part in parts])

    def _one(self) -> Selection:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError(f"A selection nests at most {_DEEPEST} levels deep: {self.text[:60]!r}...")
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
            nearness = _NEARNESS * float(np.ptp(x, axis=0).max()) if len(x) else 0.0
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
