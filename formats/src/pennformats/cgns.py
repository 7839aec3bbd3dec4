"""CGNS files of unstructured zones, in HDF5: points, cells, boundary conditions as patches, fields at points.

VTK reads them as blocks without the faces of the boundary. A node of CGNS is an HDF5 group with a label that says what
it is; its numbers are the dataset " data" in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.mesh.cells import Cells, offsets_of, take_rows
from pennpde.mesh.contents import Contents, from_elements
from pennpde.mesh.files import check_hdf5

# By CGNS's number of the type: VTK's code and the number of points; corners come first in both.
_TYPES = (
    {2: (1, 1)}
    | {3: (3, 2), 4: (21, 3), 24: (35, 4)}
    | {5: (5, 3), 6: (22, 6), 25: (69, 9), 26: (69, 10)}
    | {7: (9, 4), 8: (23, 8), 9: (28, 9), 27: (70, 12), 28: (70, 16)}
    | {10: (10, 4), 11: (24, 10), 29: (71, 16), 30: (71, 20)}
    | {12: (14, 5), 21: (27, 13), 13: (74, 14)}
    | {14: (13, 6), 15: (26, 15), 16: (32, 18)}
    | {17: (12, 8), 18: (25, 20), 19: (29, 27)}
)
_MIXED, _POLYGONS, _POLYHEDRA = 20, 22, 23
_DATA = " data"
_AXES = "XYZ"


def read(path: Path) -> Contents:
    """What a .cgns file says; a ValueError where it is no such file, damaged, or of another kind."""
    import h5py

    try:
        with h5py.File(path) as file:
            check_hdf5(file, path)
            zones = [_Zone.read(zone) for base in _children(file, "CGNSBase_t") for zone in _children(base, "Zone_t")]
            if not zones:
                raise _OtherKindError("it has no zones.")
            return _joined(zones)
    except _OtherKindError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    except OSError as error:
        with path.open("rb") as stream:
            if b"ADF" in stream.read(40):
                raise ValueError(f"{path} is a CGNS file of the old kind (ADF): convert it with adf2hdf.") from None
        raise ValueError(f"{path} is damaged, or not a CGNS file: {error}") from None
    except (KeyError, IndexError, TypeError, RuntimeError, MemoryError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


class _OtherKindError(ValueError):
    pass


@dataclass(frozen=True)
class _Zone:
    points: np.ndarray
    elements: Cells
    numbers: np.ndarray
    """CGNS's number of each element, from 1."""
    groups: dict[str, np.ndarray]
    patch_points: dict[str, np.ndarray]
    fields: dict[str, np.ndarray]

    @staticmethod
    def read(zone: Any) -> _Zone:
        name = zone.name.rsplit("/", 1)[-1]
        kinds = [_text(kind) for kind in _children(zone, "ZoneType_t")]
        if kinds != ["Unstructured"]:
            raise _OtherKindError(
                f"its zone {name!r} is not of type Unstructured. Save it as unstructured, or as .vtu."
            )
        points = _positions(zone)
        sections = sorted(map(_Section.read, _children(zone, "Elements_t")), key=lambda section: section.first)
        if not sections:
            raise _OtherKindError(f"its zone {name!r} has no elements.")
        elements = Cells(
            np.concatenate([section.connectivity for section in sections]),
            offsets_of(np.concatenate([section.sizes for section in sections])),
            np.concatenate([section.types for section in sections]),
        )
        numbers = np.concatenate([section.first + np.arange(len(section.types)) for section in sections])
        groups, patch_points = {}, {}
        for condition in (each for bag in _children(zone, "ZoneBC_t") for each in _children(bag, "BC_t")):
            label = condition.name.rsplit("/", 1)[-1]
            members, of_points = _members(condition)
            if of_points:
                patch_points[label] = np.isin(np.arange(1, len(points) + 1), members)
            else:
                groups[label] = np.flatnonzero(np.isin(numbers, members))
        if not groups and not patch_points:
            # Without boundary conditions, sections have names that say what they are.
            starts = offsets_of(np.array([len(section.types) for section in sections]))
            groups = {
                section.name: np.arange(starts[place], starts[place + 1]) for place, section in enumerate(sections)
            }
        return _Zone(points, elements, numbers, groups, patch_points, _fields(zone, len(points)))


@dataclass(frozen=True)
class _Section:
    """Elements that stand together in the file."""

    name: str
    first: int
    connectivity: np.ndarray
    sizes: np.ndarray
    types: np.ndarray

    @staticmethod
    def read(section: Any) -> _Section:
        name = section.name.rsplit("/", 1)[-1]
        kind = int(np.ravel(section[_DATA][()])[0])
        first, last = (int(number) for number in np.ravel(section["ElementRange"][_DATA][()]))
        values = np.ravel(section["ElementConnectivity"][_DATA][()]).astype(np.int64)
        if kind in (_POLYGONS, _POLYHEDRA):
            raise _OtherKindError(f"its section {name!r} lists polygons or polyhedra by their faces. Save it as .vtu.")
        if kind == _MIXED:
            kinds, places, sizes = _mixed(values, last - first + 1, name)
            rows = take_rows(values, np.append(places, len(values)), np.arange(len(places)))[0]
            # The type stands before the points of each element.
            starts = offsets_of(sizes + 1)[:-1]
            rows = np.delete(rows[: (sizes + 1).sum()], starts)
            return _Section(name, first, rows - 1, sizes, kinds)
        code, size = _type(kind, name)
        if len(values) != size * (last - first + 1):
            raise _OtherKindError(f"its section {name!r} announces {last - first + 1} elements and has others.")
        number = len(values) // size
        return _Section(name, first, values - 1, np.full(number, size), np.full(number, code, np.uint8))


def _mixed(values: np.ndarray, count: int, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """VTK's codes, the places where elements begin, and their numbers of points."""
    kinds, places, sizes, at = [], [], [], 0
    entries = values.tolist()
    while at < len(entries):
        code, size = _type(entries[at], name)
        kinds.append(code)
        places.append(at)
        sizes.append(size)
        at += 1 + size
    if at != len(entries) or len(kinds) != count:
        raise _OtherKindError(f"its section {name!r} announces {count} elements and has {len(kinds)}.")
    return np.array(kinds, np.uint8), np.array(places, np.int64), np.array(sizes, np.int64)


def _type(kind: int, name: str) -> tuple[int, int]:
    if kind not in _TYPES:
        raise _OtherKindError(f"its section {name!r} has elements of CGNS's type {kind}; known are {sorted(_TYPES)}.")
    return _TYPES[kind]


def _joined(zones: list[_Zone]) -> Contents:
    """One mesh of all zones; where they touch, their points coincide, which the repair of meshes takes care of."""
    starts = offsets_of(np.array([len(zone.points) for zone in zones]))
    firsts = offsets_of(np.array([len(zone.elements) for zone in zones]))
    elements = Cells(
        np.concatenate([zone.elements.connectivity + start for zone, start in zip(zones, starts, strict=False)]),
        offsets_of(np.concatenate([zone.elements.sizes for zone in zones])),
        np.concatenate([zone.elements.types for zone in zones]),
    )
    groups: dict[str, list[np.ndarray]] = {}
    masks: dict[str, np.ndarray] = {}
    for zone, start, first in zip(zones, starts, firsts, strict=False):
        for name, members in zone.groups.items():
            groups.setdefault(name, []).append(first + members)
        for name, mask in zone.patch_points.items():
            masks.setdefault(name, np.zeros(starts[-1], bool))[start : start + len(mask)] |= mask
    shared = [name for name in zones[0].fields if all(name in zone.fields for zone in zones)]
    found = from_elements(
        np.concatenate([zone.points for zone in zones]),
        elements,
        {name: np.concatenate(parts) for name, parts in groups.items()},
        masks,
    )
    fields = {name: np.concatenate([zone.fields[name] for zone in zones]) for name in shared}
    return Contents(found.points, found.cells, fields, found.patch_points, {}, found.chosen_facets)


def _positions(zone: Any) -> np.ndarray:
    for coordinates in _children(zone, "GridCoordinates_t"):
        columns = [
            np.ravel(coordinates[f"Coordinate{axis}"][_DATA][()]).astype(np.float64)
            for axis in _AXES
            if f"Coordinate{axis}" in coordinates
        ]
        if len(columns) < 2 or len({len(column) for column in columns}) > 1:
            break
        return np.stack(columns, axis=1)
    raise _OtherKindError("it has no coordinates X and Y of one length; others are not read.")


def _fields(zone: Any, number_of_points: int) -> dict[str, np.ndarray]:
    """What a zone stores at its points; components X, Y and Z become vectors."""
    found: dict[str, np.ndarray] = {}
    for solution in _children(zone, "FlowSolution_t"):
        where = [_text(location) for location in _children(solution, "GridLocation_t")] or ["Vertex"]
        if where == ["Vertex"]:
            for array in _children(solution, "DataArray_t"):
                values = np.ravel(array[_DATA][()])
                if len(values) == number_of_points and values.dtype.kind in "iuf":
                    found[array.name.rsplit("/", 1)[-1]] = values
    for name in [name.removesuffix("X") for name in found if name.endswith("X")]:
        parts = [name + axis for axis in _AXES if name + axis in found]
        if name and len(parts) >= 2 and name not in found:
            found[name] = np.stack([found.pop(part) for part in parts], axis=1)
    return found


def _members(condition: Any) -> tuple[np.ndarray, bool]:
    """The numbers of the elements or of the points of a boundary condition, and whether they are points."""
    where = [_text(location) for location in _children(condition, "GridLocation_t")] or ["Vertex"]
    for name in ("PointList", "PointRange", "ElementList", "ElementRange"):
        if name in condition:
            numbers = np.ravel(condition[name][_DATA][()]).astype(np.int64)
            if name.endswith("Range"):
                numbers = np.arange(numbers[0], min(numbers[-1], numbers[0] + 2**31) + 1)
            return numbers, where == ["Vertex"] and name.startswith("Point")
    return np.zeros(0, np.int64), False


def _children(group: Any, label: str) -> Iterator[Any]:
    """The nodes of this label, in the order of their names. Links are not followed: they lead into other files."""
    import h5py

    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            child = group[name]
            found = child.attrs.get("label", b"") if isinstance(child, h5py.Group) else b""
            if (found.decode() if isinstance(found, bytes) else str(found)).strip("\0 ") == label:
                yield child


def _text(node: Any) -> str:
    return bytes(np.ravel(node[_DATA][()]).astype(np.uint8)).decode("ascii", "replace").strip("\0 ")
