"""Files that only meshio reads: Abaqus (.inp), MED, Nastran, Medit. Sets of elements or of points become patches."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.mesh.cells import Cells, joined_rows, offsets_of
from pennpde.mesh.contents import Contents, from_elements

# VTK's codes; corners come first in both.
_TYPES = (
    {"vertex": 1, "line": 3, "line3": 21}
    | {"triangle": 5, "triangle6": 22, "quad": 9, "quad8": 23, "quad9": 28}
    | {"tetra": 10, "tetra10": 24, "pyramid": 14, "pyramid13": 27}
    | {"hexahedron": 12, "hexahedron20": 25, "hexahedron27": 29, "wedge": 13, "wedge15": 26, "wedge18": 32}
)


def read(path: Path) -> Contents:
    """What a file says; a ValueError where meshio cannot read it."""
    import meshio

    try:
        # meshio prints what it thinks of a file, and leaves the program where it cannot read it.
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            return _contents(meshio.read(path), path)
    except SystemExit:
        raise ValueError(f"{path} is damaged, or no mesh file that meshio reads.") from None
    except ValueError as error:
        named = str(error).startswith(str(path))
        raise ValueError(str(error) if named else f"{path} is damaged: {error or 'meshio cannot read it'}") from None
    except (OSError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} is damaged, or no mesh file that meshio reads: {error}") from None
    except Exception as error:  # meshio's own errors have no class in common with Python's
        if not type(error).__module__.startswith("meshio"):
            raise
        raise ValueError(f"{path} is damaged, or no mesh file that meshio reads: {error}") from None


def _contents(given: Any, path: Path) -> Contents:
    blocks = [block for block in given.cells if len(block.data)]
    if not blocks:
        raise ValueError(f"{path} has no cells.")
    if unknown := sorted({block.type for block in blocks} - set(_TYPES)):
        raise ValueError(f"{path} has cells of type {', '.join(unknown)}; known are {', '.join(_TYPES)}.")
    types = np.concatenate([np.full(len(block.data), _TYPES[block.type], np.uint8) for block in blocks])
    elements = Cells(*joined_rows([np.asarray(block.data) for block in blocks]), types)
    number = len(given.points)
    masks = {}
    for name, points in (given.point_sets or {}).items():
        mask = np.zeros(number, dtype=bool)
        mask[np.asarray(points, dtype=np.int64)] = True
        # A set of all points is the body and no part of its boundary.
        if mask.any() and not mask.all():
            masks[str(name)] = mask
    groups = _groups(given, [len(block.data) for block in given.cells])
    found = from_elements(np.asarray(given.points, dtype=np.float64), elements, groups, masks)
    fields = {str(name): np.asarray(values) for name, values in given.point_data.items()}
    known = {name: values for name, values in fields.items() if values.dtype.kind == "f" and len(values) == number}
    return replace(found, fields=known)


def _groups(given: Any, sizes: list[int]) -> dict[str, np.ndarray]:
    """The members of each set, among the cells of all blocks one after the other."""
    starts = offsets_of(np.array(sizes))
    found: dict[str, list[np.ndarray]] = {}
    for name, parts in (given.cell_sets or {}).items():
        for start, part in zip(starts, parts, strict=False):
            if part is not None and len(part):
                found.setdefault(str(name), []).append(start + np.asarray(part, dtype=np.int64))
    # MED numbers its families, and says which groups a family belongs to.
    families = getattr(given, "cell_tags", None) or {}
    for start, tags in zip(starts, given.cell_data.get("cell_tags", []), strict=False):
        for tag, names in families.items():
            if (members := np.flatnonzero(np.asarray(tags) == tag)).size:
                for name in names:
                    found.setdefault(str(name), []).append(start + members)
    return {name: np.concatenate(parts) for name, parts in found.items()}
