"""Gmsh's .msh files, formats 2.2 and 4.1, text and binary: points, cells, fields, and physical groups as patches.

Not read by meshio, which loses groups: it takes one group of an entity that has several, none whose number is negative
(a curve that runs backwards), and mixes them up where a part of the mesh has no group.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pennpde.mesh.cells import Cells, joined_rows
from pennpde.mesh.contents import Contents, dimensions_of, from_elements

# By Gmsh's number of the type: VTK's code and the number of points. Corners come first in both; where VTK has no such
# cell, the code of its Lagrange cells stands for it.
_TYPES = (
    {15: (1, 1)}
    | {1: (3, 2), 8: (21, 3), 26: (35, 4), 27: (68, 5), 28: (68, 6)}
    | {2: (5, 3), 9: (22, 6), 20: (69, 9), 21: (69, 10), 22: (69, 12), 23: (69, 15), 24: (69, 15), 25: (69, 21)}
    | {3: (9, 4), 16: (23, 8), 10: (28, 9), 36: (70, 16), 37: (70, 25), 38: (70, 36)}
    | {4: (10, 4), 11: (24, 10), 29: (71, 20), 30: (71, 35), 31: (71, 56)}
    | {5: (12, 8), 17: (25, 20), 12: (29, 27), 92: (72, 64), 93: (72, 125)}
    | {6: (13, 6), 18: (26, 15), 13: (32, 18), 90: (73, 40), 91: (73, 75)}
    | {7: (14, 5), 19: (27, 13), 14: (74, 14), 118: (74, 30), 119: (74, 55)}
)
_VERSIONS = (b"2", b"2.0", b"2.1", b"2.2", b"4.1")
_NAME = re.compile(rb'\s*(\d+)\s+(-?\d+)\s+"((?:[^"\\]|\\.)*)"')


def read(path: Path) -> Contents:
    """What a .msh file says; a ValueError where it is no such file, or damaged."""
    content = path.read_bytes()
    if not content.strip():
        raise ValueError(f"{path} is empty: it holds no mesh.")
    content = content.removeprefix(b"\xef\xbb\xbf")
    if content.lstrip().startswith(b"("):
        raise ValueError(f"{path} is a mesh of Fluent, not of Gmsh: convert it to .vtu or .cgns, or to OpenFOAM.")
    start = content.find(b"$MeshFormat")
    if start < 0 or start > 100_000:
        raise ValueError(f"{path} is not a Gmsh file: it does not begin with $MeshFormat.")
    if (version := re.match(rb"\$MeshFormat\s+(\d[\d.]*)", content[start:])) and version[1] not in _VERSIONS:
        raise ValueError(
            f"{path} is of Gmsh's format {version[1].decode()}; 2.2 and 4.1 are read. In Gmsh, set "
            "Mesh.MshFileVersion = 4.1 and save again."
        )
    try:
        return _parsed(content)
    except _DamagedError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    except (IndexError, OverflowError) as error:
        raise ValueError(f"{path} is damaged: its numbers do not fit together ({error}).") from None


class _DamagedError(ValueError):
    pass


@dataclass
class _Numbers:
    """The numbers of a section, one after the other, whether they are text or binary."""

    section: str
    text: np.ndarray | None
    binary: bytes
    size_type: np.dtype
    position: int = 0

    def integers(self, count: int) -> np.ndarray:
        return self._take(count, np.dtype("<i4"))

    def sizes(self, count: int) -> np.ndarray:
        return self._take(count, self.size_type)

    def doubles(self, count: int) -> np.ndarray:
        return self._take(count, np.dtype("<f8"))

    def size(self) -> int:
        return int(self.sizes(1)[0])

    def _take(self, count: int, kind: np.dtype) -> np.ndarray:
        length = count * (kind.itemsize if self.text is None else 1)
        left = len(self.binary if self.text is None else self.text) - self.position
        # The count is the file's; nothing is allocated before it is known to be true.
        if not 0 <= length <= left:
            raise _DamagedError(f"its section ${self.section} announces {count:,} numbers where it has fewer.")
        start, self.position = self.position, self.position + length
        if self.text is None:
            return np.frombuffer(self.binary, kind, count, start)
        found = self.text[start : self.position]
        return found if kind.kind == "f" else found.astype(np.int64)


def _parsed(content: bytes) -> Contents:
    header = _section(content, "MeshFormat") or b""
    words = header.split(maxsplit=3)
    if len(words) < 3 or words[1] not in (b"0", b"1"):
        raise _DamagedError(f"its format is {header[:40]!r}.")
    version, binary = words[0].decode("ascii", "replace"), words[1] == b"1"
    if binary and header[header.index(b"\n") + 1 :][:4] == b"\x00\x00\x00\x01":
        raise _DamagedError("it was written on a machine of the other byte order; save it as text.")
    major = version.partition(".")[0]
    size_type = np.dtype("<u4" if words[2] == b"4" else "<u8")

    def numbers(name: str) -> _Numbers | None:
        section = _section(content, name)
        if section is None:
            return None
        return _Numbers(name, None if binary else _from_text(section, name), section, size_type)

    names = _physical_names(_section(content, "PhysicalNames") or b"")
    if major == "2":
        tags, points = _nodes_2(content, binary)
        elements = _elements_2(content, binary)
    else:
        nodes, listed = numbers("Nodes"), numbers("Elements")
        if nodes is None or listed is None:
            raise _DamagedError("it has no section $Nodes or no section $Elements.")
        groups = _entities(numbers("Entities"), partitioned=False) | _entities(
            numbers("PartitionedEntities"), partitioned=True
        )
        tags, points = _nodes_4(nodes)
        elements = _elements_4(listed, groups)
    return replace(_contents(points, tags, elements, names), fields=_fields(content, binary, tags))


def _section(content: bytes, name: str) -> bytes | None:
    match = re.search(rf"^\${name}[ \t]*\r?\n".encode(), content, re.MULTILINE)
    if match is None:
        return None
    end = content.find(f"$End{name}".encode(), match.end())
    if end < 0:
        raise _DamagedError(f"its section ${name} has no end; the file is not complete.")
    return content[match.end() : end]


def _from_text(section: bytes, name: str) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(section.decode("latin-1"), dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            raise _DamagedError(f"its section ${name} holds something that is not a number.") from None


def _physical_names(section: bytes) -> dict[tuple[int, int], str]:
    found = {}
    for line in section.splitlines()[1:]:
        if match := _NAME.match(line):
            found[int(match[1]), abs(int(match[2]))] = match[3].decode("utf-8", "replace").replace('\\"', '"')
    return found


# Format 2.2


def _announced(content: bytes, name: str) -> tuple[int, bytes]:
    """The number in the first line of a section, and what follows."""
    section = _section(content, name)
    if section is None:
        raise _DamagedError(f"it has no section ${name}.")
    first, _, rest = section.lstrip().partition(b"\n")
    if not first.strip().isdigit():
        raise _DamagedError(f"its section ${name} does not begin with a number but with {first[:40]!r}.")
    return int(first), rest


def _nodes_2(content: bytes, binary: bool) -> tuple[np.ndarray, np.ndarray]:
    count, rest = _announced(content, "Nodes")
    if binary:
        kind = np.dtype([("tag", "<i4"), ("at", "<f8", 3)])
        if count * kind.itemsize > len(rest):
            raise _DamagedError(f"it announces {count:,} points and has fewer.")
        table = np.frombuffer(rest, kind, count)
        return table["tag"].astype(np.int64), table["at"].copy()
    table = _from_text(rest, "Nodes")
    if len(table) != 4 * count:
        raise _DamagedError(f"it announces {count:,} points and has {len(table) // 4:,}.")
    table = table.reshape(count, 4)
    return table[:, 0].astype(np.int64), table[:, 1:].copy()


@dataclass(frozen=True)
class _Block:
    """Elements of one type that follow each other.

    Attributes:
        kind: Gmsh's number of the type.
        rows: the numbers of their points.
        groups: for each element the numbers of its physical groups, 0 for none.
    """

    kind: int
    rows: np.ndarray
    groups: np.ndarray

    @property
    def code(self) -> int:
        return _TYPES[self.kind][0]


def _elements_2(content: bytes, binary: bool) -> list[_Block]:
    count, rest = _announced(content, "Elements")
    numbers = np.frombuffer(rest[: len(rest) // 4 * 4], "<i4") if binary else _from_text(rest, "Elements")
    numbers = numbers.astype(np.int64)
    blocks = []
    at = found = 0
    while found < count:
        if at + 3 > len(numbers):
            raise _DamagedError(f"it announces {count:,} elements and has {found:,}.")
        if binary:
            kind, together, tags = (int(number) for number in numbers[at : at + 3])
            at += 3
        else:
            kind, tags, together = int(numbers[at + 1]), int(numbers[at + 2]), 0
        points = _number_of_points(kind)
        length = points + tags + (1 if binary else 3)
        if tags < 0 or (binary and not 0 < together <= (len(numbers) - at) // length):
            raise _DamagedError(f"it announces {count:,} elements and has fewer.")
        if not binary:
            together = _run(numbers, at, length, count - found)
        table = numbers[at : at + together * length].reshape(together, length)
        first_tag = length - points - tags  # the group; what follows is no concern of ours
        blocks.append(_Block(kind, table[:, length - points :], table[:, first_tag : first_tag + min(tags, 1)]))
        at, found = at + together * length, found + together
    return blocks


def _run(numbers: np.ndarray, at: int, length: int, most: int) -> int:
    """How many elements of the same type and number of tags follow each other; looks ahead by twice as many."""
    together, ahead = 0, 1
    most = min(most, (len(numbers) - at) // length)
    if most == 0:
        raise _DamagedError("its section $Elements ends within an element.")
    while together < most:
        ahead = min(ahead, most - together)
        rows = numbers[at + together * length :][: ahead * length].reshape(ahead, length)
        same = (rows[:, 1:3] == numbers[at + 1 : at + 3]).all(axis=1)
        if not same.all():
            return together + int(np.argmin(same))
        together, ahead = together + ahead, 2 * ahead
    return together


def _number_of_points(kind: int) -> int:
    if kind not in _TYPES:
        raise _DamagedError(f"it has elements of Gmsh's type {kind}, which is not known; known are {sorted(_TYPES)}.")
    return _TYPES[kind][1]


# Format 4.1


def _entities(numbers: _Numbers | None, partitioned: bool) -> dict[tuple[int, int], np.ndarray]:
    """The numbers of the physical groups of each entity, by its dimension and its own number."""
    groups: dict[tuple[int, int], np.ndarray] = {}
    if numbers is None:
        return groups
    if partitioned:
        numbers.size()
        numbers.integers(2 * numbers.size())  # ghosts
    for dimension, count in enumerate(numbers.sizes(4).tolist()):
        for _ in range(count):
            tag = int(numbers.integers(1)[0])
            if partitioned:
                numbers.integers(2)
                numbers.integers(numbers.size())
            numbers.doubles(6 if dimension else 3)
            groups[dimension, tag] = numbers.integers(numbers.size()).astype(np.int64)
            if dimension:
                numbers.integers(numbers.size())
    return groups


def _nodes_4(numbers: _Numbers) -> tuple[np.ndarray, np.ndarray]:
    blocks, count, _, _ = numbers.sizes(4).tolist()
    tags, points = [np.zeros(0, np.int64)], [np.zeros((0, 3))]
    for _ in range(blocks):
        dimension, _, parametric = numbers.integers(3).tolist()
        size = numbers.size()
        tags.append(numbers.sizes(size).astype(np.int64))
        width = 3 + (dimension if parametric else 0)
        points.append(numbers.doubles(width * size).reshape(size, width)[:, :3])
    if sum(map(len, tags)) != count:
        raise _DamagedError(f"it announces {count:,} points and has {sum(map(len, tags)):,}.")
    return np.concatenate(tags), np.concatenate(points)


def _elements_4(numbers: _Numbers, groups: Mapping[tuple[int, int], np.ndarray]) -> list[_Block]:
    number_of_blocks, count, _, _ = numbers.sizes(4).tolist()
    blocks = []
    for _ in range(number_of_blocks):
        dimension, tag, kind = numbers.integers(3).tolist()
        size, points = numbers.size(), _number_of_points(kind)
        table = numbers.sizes(size * (1 + points)).astype(np.int64).reshape(size, 1 + points)
        of_entity = groups.get((dimension, tag), np.zeros(0, np.int64))
        blocks.append(_Block(kind, table[:, 1:], np.tile(of_entity, (size, 1))))
    found = sum(len(block.rows) for block in blocks)
    if found != count:
        raise _DamagedError(f"it announces {count:,} elements and has {found:,}.")
    return blocks


# Both


def _dimension(block: _Block) -> int:
    return int(dimensions_of(np.array([block.code]))[0])


def _contents(
    points: np.ndarray, tags: np.ndarray, blocks: list[_Block], names: Mapping[tuple[int, int], str]
) -> Contents:
    if not blocks:
        raise _DamagedError("it has no elements. In Gmsh, generate the mesh before you save it.")
    types = np.concatenate([np.full(len(block.rows), block.code, np.uint8) for block in blocks])
    elements = Cells(*joined_rows([_indices(block.rows, tags) for block in blocks]), types)
    members: dict[str, list[np.ndarray]] = {}
    first = 0
    # A zero stands for no group, or for a group of this number, as other programs write it: then it has a name, or the
    # mesh has other groups of its dimension.
    grouped = {dimension for dimension, number in names if number == 0}
    grouped |= {_dimension(block) for block in blocks if block.groups.any()}
    for block in blocks:
        dimension = _dimension(block)
        for number in np.setdiff1d(np.abs(block.groups), [] if dimension in grouped else 0).tolist():
            name = names.get((dimension, number), f"group {number}")
            members.setdefault(name, []).append(first + np.flatnonzero((np.abs(block.groups) == number).any(axis=1)))
        first += len(block.rows)
    return from_elements(points, elements, {name: np.concatenate(parts) for name, parts in members.items()})


def _fields(content: bytes, binary: bool, tags: np.ndarray) -> dict[str, np.ndarray]:
    """Fields at points, by name.

    Of several times the last in the file counts. A field that some points lack is left out: a mesh has its fields
    everywhere.
    """
    found = {}
    for match in re.finditer(rb"^\$NodeData[ \t]*\r?\n", content, re.MULTILINE):
        name, components, count, start = _field_header(content, match.end())
        if binary:
            kind = np.dtype([("tag", "<i4"), ("values", "<f8", components)])
            if count * kind.itemsize > len(content) - start:
                raise _DamagedError(f"its field {name!r} announces {count:,} points and has fewer.")
            table = np.frombuffer(content, kind, count, start)
            numbers, values = table["tag"].astype(np.int64), table["values"].reshape(count, components)
        else:
            end = content.find(b"$EndNodeData", start)
            rows = _from_text(content[start : max(end, start)], "NodeData")
            if len(rows) != count * (1 + components):
                raise _DamagedError(f"its field {name!r} announces {count:,} points and has another number.")
            rows = rows.reshape(count, 1 + components)
            numbers, values = rows[:, 0].astype(np.int64), rows[:, 1:]
        at_points = np.full((len(tags), components), np.nan)
        at_points[_indices(numbers, tags)] = values
        if np.isin(tags, numbers).all():
            found[name] = at_points[:, 0] if components == 1 else at_points
    return found


def _field_header(content: bytes, start: int) -> tuple[str, int, int, int]:
    """Name, components, number of points of a field, and where its rows begin: lines of text, also in binary files."""
    at, groups = start, []

    def line() -> bytes:
        nonlocal at
        end = content.find(b"\n", at)
        if end < 0:
            raise _DamagedError("its section $NodeData has no end; the file is not complete.")
        found, at = content[at:end].strip(), end + 1
        return found

    for _ in range(3):  # texts, real numbers, whole numbers, each after how many there are
        announced = line()
        if not announced.isdigit() or int(announced) > 100:
            raise _DamagedError(f"its section $NodeData announces {announced[:40]!r} entries.")
        groups.append([line() for _ in range(int(announced))])
    texts, _, wholes = groups
    if len(wholes) < 3 or not all(each.isdigit() for each in wholes[:3]) or not 0 < int(wholes[1]) <= 9:
        raise _DamagedError("its section $NodeData does not say how many components and points it has.")
    name = texts[0].strip(b'"').decode("utf-8", "replace") if texts else "field"
    return name, int(wholes[1]), int(wholes[2]), at


def _indices(block: np.ndarray, tags: np.ndarray) -> np.ndarray:
    """The places of points in the list, from their numbers, which may have gaps and any order."""
    order = np.argsort(tags, kind="stable")
    place = np.searchsorted(tags, block, sorter=order)
    if len(tags) == 0 or (place == len(tags)).any() or (tags[order[place]] != block).any():
        raise _DamagedError("its elements name points that it does not have.")
    return order[place]
