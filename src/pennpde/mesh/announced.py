"""Counts that a file announces, compared with its size before anything is allocated for them.

Libraries trust such counts. A wrong one takes all memory, or ends the program.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import h5py

_MOST_PACKED = 1100
"""How many bytes one byte can stand for: deflate reaches 1032, and points of a mesh never come near it."""
_ALWAYS_FINE = 1_000_000
_HEAD = 1_000_000
_ANNOUNCED = re.compile(rb'NumberOf(Points|Cells|Verts|Lines|Strips|Polys|Tuples)\s*=\s*"\s*(\d{1,40})')
_LEGACY = re.compile(rb"^[ \t]*(POINTS|CELLS|CELL_TYPES|POLYGONS|POINT_DATA|CELL_DATA)[ \t]+(\d{1,40})", re.MULTILINE)


def check_announced(path: Path) -> None:
    """Refuse a file of VTK that announces more than it can hold."""
    suffix, size = path.suffix.lower(), path.stat().st_size
    if suffix in (".vtkhdf", ".hdf"):
        _check_vtkhdf(path)
    elif suffix == ".vtk":
        for match in _LEGACY.finditer(path.read_bytes()):
            _check(path, match[1].decode().lower(), int(match[2]), size)
    elif suffix.startswith(".vt"):
        with path.open("rb") as stream:
            for match in _ANNOUNCED.finditer(stream.read(_HEAD)):
                _check(path, match[1].decode().lower(), int(match[2]), _MOST_PACKED * size)


def _check(path: Path, what: str, count: int, most: int) -> None:
    if count > max(most, _ALWAYS_FINE):
        raise ValueError(f"{path} is damaged: it announces {count:,} {what} and has {path.stat().st_size:,} bytes.")


def _check_vtkhdf(path: Path) -> None:
    import h5py

    try:
        with h5py.File(path) as file:
            check_hdf5(file, path)
    except (OSError, RuntimeError):
        return  # not HDF5, or damaged: VTK says what is wrong


def check_hdf5(file: h5py.File | h5py.Group, path: Path | str) -> None:
    """Refuse a file of HDF5 that has an array of more values than its bytes can hold."""
    import h5py

    def check(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            check_stored(item.id, f"{path} is damaged: its array {name!r}")

    file.visititems(check)


def check_stored(dataset: h5py.h5d.DatasetID, label: str) -> None:
    """Refuse an array of HDF5 that has more values than its bytes can hold.

    Args:
        dataset: the array.
        label: begins the message, as the subject of a sentence.
    """
    size, stored = math.prod(dataset.shape) * dataset.dtype.itemsize, dataset.get_storage_size()
    if size > max(_MOST_PACKED * stored, _ALWAYS_FINE):
        rows = dataset.shape[0] if dataset.shape else 1
        raise ValueError(f"{label} announces {rows:,} rows, {size:,} bytes, and stores {stored:,} bytes.")
