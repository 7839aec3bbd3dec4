"""SU2's native mesh files, which are text: points, cells, and markers as patches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pennpde.mesh.cells import Cells, offsets_of
from pennpde.mesh.contents import Contents, from_elements

# SU2 numbers the types of elements as VTK does. It has none of second order, but Gmsh writes them.
_SIZES = {1: 1, 3: 2, 5: 3, 9: 4, 10: 4, 12: 8, 13: 6, 14: 5}
_SIZES |= {21: 3, 22: 6, 23: 8, 24: 10, 25: 20, 26: 15, 27: 13}
_OURS = ("NDIME", "NZONE", "NELEM", "NPOIN", "NMARK", "MARKER_TAG", "MARKER_ELEMS", "SEND_RECV")
_Row = list[str]


def read(path: Path) -> Contents:
    """What a .su2 file says; a ValueError where it is no such file, or damaged."""
    try:
        return _Parser(path.read_text(encoding="utf-8-sig")).contents()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not an SU2 mesh: it is not text.") from None
    except _DamagedError as error:
        raise ValueError(f"{path} is not an SU2 mesh, or damaged: {error}") from None


class _DamagedError(ValueError):
    pass


class _Parser:
    def __init__(self, text: str):
        self.lines = self._lines(text)
        self.most = text.count("\n") + 1
        """No section has more rows than the file has lines."""

    @staticmethod
    def _lines(text: str) -> Iterator[str]:
        for line in text.splitlines():
            if content := line.partition("%")[0].strip():
                yield content

    def contents(self) -> Contents:
        dimension, points, cells = 0, None, None
        markers: dict[str, list[_Row]] = {}
        key = ""
        for line in self.lines:
            if key not in ("", *_OURS) and "=" not in line:
                continue  # what follows a section of SU2 that says nothing about the mesh, such as FFD boxes
            key, value = self._setting(line)
            if key == "NDIME":
                dimension = self._count(key, value)
                if dimension not in (2, 3):
                    raise _DamagedError(f"NDIME is {dimension}; a mesh has 2 or 3 dimensions.")
            elif key == "NZONE" and self._count(key, value) > 1:
                raise _DamagedError(f"it has {value} zones; save each in a file of its own.")
            elif key == "NELEM":
                cells = self._rows(key, value)
            elif key == "NPOIN":
                points = self._rows(key, value)
            elif key == "MARKER_TAG":
                # The same marker may stand several times, once for each part of a divided mesh.
                markers.setdefault(value, []).extend(self._marker(value))
        if not dimension or points is None or cells is None:
            missing = [key for key, had in (("NDIME", dimension), ("NPOIN", points), ("NELEM", cells)) if not had]
            raise _DamagedError(f"it has no {' and no '.join(missing)}.")
        positions = self._positions(points, dimension)
        elements = cells + [row for rows in markers.values() for row in rows]
        starts = offsets_of(np.array([len(cells), *(len(rows) for rows in markers.values())]))
        groups = {name: np.arange(starts[place], starts[place + 1]) for place, name in enumerate(markers, start=1)}
        return from_elements(positions, self._elements(elements), groups)

    def _marker(self, name: str) -> list[_Row]:
        for line in self.lines:
            key, value = self._setting(line)
            if key == "MARKER_ELEMS":
                return self._rows(key, value)
            if key != "SEND_RECV":
                break
        raise _DamagedError(f"the marker {name!r} is not followed by MARKER_ELEMS.")

    @staticmethod
    def _setting(line: str) -> tuple[str, str]:
        key, sign, value = line.partition("=")
        if not sign:
            raise _DamagedError(f"{line[:60]!r} is where a line such as NPOIN= 4 should be.")
        return key.strip().upper(), value.strip()

    def _count(self, key: str, value: str) -> int:
        first = value.split()[:1]
        if not first or not first[0].isdigit():
            raise _DamagedError(f"{key} is {value[:60]!r}; it must be a number.")
        return int(first[0])

    def _rows(self, key: str, value: str) -> list[_Row]:
        count = self._count(key, value)
        if count > self.most:
            raise _DamagedError(f"{key} announces {count:,} lines; the file has {self.most:,}.")
        rows = []
        for _ in range(count):
            line = next(self.lines, None)
            if line is None or "=" in line:
                raise _DamagedError(f"{key} announces {count:,} lines and {len(rows):,} follow.")
            rows.append(line.split())
        return rows

    @staticmethod
    def _positions(rows: list[_Row], dimension: int) -> np.ndarray:
        try:
            # A number of the point may follow its coordinates, and it says nothing new.
            return np.array([row[:dimension] for row in rows], dtype=np.float64).reshape(len(rows), dimension)
        except ValueError:
            wrong = next((row for row in rows if len(row) < dimension), rows[0])
            raise _DamagedError(f"a point is {' '.join(wrong)[:60]!r}; it needs {dimension} numbers.") from None

    @staticmethod
    def _elements(rows: list[_Row]) -> Cells:
        try:
            types = np.array([row[0] for row in rows], dtype=np.int64)
            sizes = np.array([_SIZES[int(code)] for code in types], dtype=np.int64)
            connectivity = np.array(
                [point for row, size in zip(rows, sizes, strict=True) for point in row[1 : size + 1]], dtype=np.int64
            )
        except KeyError as error:
            raise _DamagedError(f"an element has type {error}; known are {sorted(_SIZES)}.") from None
        except (ValueError, OverflowError):
            raise _DamagedError("an element is not a list of whole numbers.") from None
        if len(connectivity) != sizes.sum():
            raise _DamagedError("an element has fewer points than its type needs.")
        return Cells(connectivity, offsets_of(sizes), types.astype(np.uint8))
