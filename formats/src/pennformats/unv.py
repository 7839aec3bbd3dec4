"""Universal files (.unv), which are text: points, cells, and groups as patches.

A file is a sequence of datasets between lines of -1. Of these, nodes (15, 2411), elements (2412, 780) and groups (2467,
2477 and their forerunners) are read; what else there is, units and coordinate systems, is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pennpde.mesh.cells import Cells, offsets_of
from pennpde.mesh.contents import Contents, from_elements

# By the number of the element's type: VTK's code and which of the element's points to take, in VTK's order. Points of
# quadratic elements run around, corner and mid-side by turns; VTK has the corners first.
_LINE, _LINE_3 = (3, (0, 1)), (21, (0, 2, 1))
_TRIANGLE, _TRIANGLE_6 = (5, (0, 1, 2)), (22, (0, 2, 4, 1, 3, 5))
_QUAD, _QUAD_8 = (9, (0, 1, 2, 3)), (23, (0, 2, 4, 6, 1, 3, 5, 7))
_TYPES = {
    **dict.fromkeys((11, 21, 22, 23), _LINE),
    24: _LINE_3,
    **dict.fromkeys((41, 51, 61, 74, 81, 91), _TRIANGLE),
    **dict.fromkeys((42, 52, 62, 72, 82, 92), _TRIANGLE_6),
    **dict.fromkeys((44, 54, 64, 71, 84, 94), _QUAD),
    **dict.fromkeys((45, 55, 65, 75, 85, 95), _QUAD_8),
    111: (10, (0, 1, 2, 3)),
    118: (24, (0, 2, 4, 9, 1, 3, 5, 6, 7, 8)),
    112: (13, tuple(range(6))),
    113: (26, (0, 2, 4, 9, 11, 13, 1, 3, 5, 10, 12, 14, 6, 7, 8)),
    115: (12, tuple(range(8))),
    116: (25, (0, 2, 4, 6, 12, 14, 16, 18, 1, 3, 5, 7, 13, 15, 17, 19, 8, 9, 10, 11)),
    **dict.fromkeys((101, 114), (14, tuple(range(5)))),
}
_BEAMS = (11, 21, 22, 23, 24)
"""Their orientation takes a line of its own."""
_NODES, _ELEMENTS = (15, 2411, 781), (2412, 780)
_GROUPS = {2467: 4, 2477: 4, 2452: 4, 2435: 4, 2432: 2, 2430: 2, 2429: 2, 2417: 2}
"""How many numbers a member of a group takes."""
_OF_NODES, _OF_ELEMENTS = 7, 8


def read(path: Path) -> Contents:
    """What a .unv file says; a ValueError where it is no such file, or damaged."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a universal file: it is not text.") from None
    try:
        return _contents(text)
    except _DamagedError as error:
        raise ValueError(f"{path} is not a universal file, or damaged: {error}") from None


class _DamagedError(ValueError):
    pass


def _contents(text: str) -> Contents:
    labels, positions = np.zeros(0, np.int64), np.zeros((0, 3))
    elements: list[tuple[int, int, list[str]]] = []
    groups: dict[str, list[tuple[int, int]]] = {}
    for number, lines in _datasets(text):
        if number in _NODES:
            labels, positions = _nodes(number, lines)
        elif number in _ELEMENTS:
            elements += _elements(number, lines)
        elif number in _GROUPS:
            for name, members in _groups(lines, _GROUPS[number]):
                groups.setdefault(name, []).extend(members)
    if not len(labels) or not elements:
        missing = "nodes (2411)" if not len(labels) else "elements (2412)"
        raise _DamagedError(f"it has no dataset of {missing}.")
    place_of_point = _places(labels)
    try:
        types = [_TYPES[kind] for _, kind, _ in elements]
        ragged = [
            place_of_point[int(points[place])]
            for (_, _, points), (_, order) in zip(elements, types, strict=True)
            for place in order
        ]
    except KeyError as error:
        raise _DamagedError(f"it names the point or the type of element {error}, which is not known.") from None
    except (IndexError, ValueError):
        raise _DamagedError("an element has fewer points than its type needs.") from None
    cells = Cells(
        np.array(ragged, dtype=np.int64),
        offsets_of(np.array([len(order) for _, order in types])),
        np.array([code for code, _ in types], dtype=np.uint8),
    )
    place_of_element = {label: place for place, (label, _, _) in enumerate(elements)}
    try:
        members = {
            name: np.array([place_of_element[label] for kind, label in listed if kind == _OF_ELEMENTS], dtype=np.int64)
            for name, listed in groups.items()
        }
        by_points = {
            name: [place_of_point[label] for kind, label in listed if kind == _OF_NODES]
            for name, listed in groups.items()
        }
    except KeyError as error:
        raise _DamagedError(f"a group names {error}, which it does not have.") from None
    masks = {}
    for name, points in by_points.items():
        # A group of all points is the body and no part of its boundary.
        if len(members[name]) == 0 and 0 < len(set(points)) < len(positions):
            masks[name] = np.isin(np.arange(len(positions)), points)
    return from_elements(positions, cells, members, masks)


def _places(labels: np.ndarray) -> dict[int, int]:
    return {label: place for place, label in enumerate(labels.tolist())}


def _datasets(text: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each dataset and its lines."""
    lines = text.splitlines()
    marks = [place for place, line in enumerate(lines) if line.strip() == "-1"]
    if not marks or len(marks) % 2:
        raise _DamagedError("its datasets are not enclosed by lines of -1, each at its begin and at its end.")
    for start, end in zip(marks[::2], marks[1::2], strict=True):
        number = lines[start + 1].split()[:1] if end > start + 1 else []
        if number and number[0].isdigit():
            yield int(number[0]), lines[start + 2 : end]


def _nodes(number: int, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
    # Fortran writes 1.0D+00; dataset 15 has the number and the place of a point in one line.
    if number == 15:
        rows = [line.split() for line in lines]
        labels, places = [row[:1] for row in rows], [row[4:7] for row in rows]
    else:
        labels, places = [line.split()[:1] for line in lines[::2]], [line.split()[:3] for line in lines[1::2]]
    try:
        positions = np.array([[re.sub("[dD]", "e", word) for word in row] for row in places], dtype=np.float64)
        return np.array(labels, dtype=np.int64).reshape(len(labels)), positions.reshape(len(labels), 3)
    except (ValueError, OverflowError):
        raise _DamagedError(f"dataset {number} is not a list of points with three coordinates.") from None


def _elements(number: int, lines: list[str]) -> list[tuple[int, int, list[str]]]:
    """For each element its label, the number of its type, and its points."""
    found, at = [], 0
    while at < len(lines):
        words = lines[at].split()
        if len(words) < 6 or not all(word.lstrip("-").isdigit() for word in words):
            raise _DamagedError(f"{lines[at][:60]!r} is where an element should begin.")
        label, kind, count = int(words[0]), int(words[1]), int(words[-1] if number == 2412 else words[7])
        at += 2 if kind in _BEAMS else 1
        points: list[str] = []
        while len(points) < count and at < len(lines):
            points += lines[at].split()
            at += 1
        if len(points) != count:
            raise _DamagedError(f"element {label} announces {count} points and has {len(points)}.")
        found.append((label, kind, points))
    return found


def _groups(lines: list[str], width: int) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """The name of each group and its members: whether they are nodes or elements, and their labels."""
    at = 0
    while at + 1 < len(lines):
        words, name = lines[at].split(), lines[at + 1].strip()
        if len(words) < 2 or not words[-1].isdigit():
            raise _DamagedError(f"{lines[at][:60]!r} is where a group should begin.")
        count, at = int(words[-1]), at + 2
        numbers: list[str] = []
        while len(numbers) < width * count and at < len(lines):
            numbers += lines[at].split()
            at += 1
        if len(numbers) != width * count:
            raise _DamagedError(f"the group {name!r} announces {count:,} members and has {len(numbers) // width:,}.")
        try:
            yield (
                name,
                [(int(kind), int(label)) for kind, label in zip(numbers[::width], numbers[1::width], strict=True)],
            )
        except ValueError:
            raise _DamagedError(f"the group {name!r} has a member that is not a number.") from None
