"""Reading many cases in one file, a shard: VTKHDF of type MultiBlockDataSet, a block per case for ParaView and PyVista.

A block `/VTKHDF/CASE` is what `/VTKHDF` is in the file of one case, and `/pennpde/CASE` what `/pennpde` is there (see
`vtkhdf`). Cases often have arrays in common: their mesh, their conditions, their time steps. Such an array, or a
whole group of them, is stored once and appears in all blocks by hard links of HDF5, which readers do not notice.

Generated datasets are packed into shards, which are never changed. One case is read without the others, and its hash is
of the content: it does not depend on the file that holds the case, nor on the compression.
"""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

from pennpde.data.vtkhdf import CaseFile, CaseFileError, assemble, named, whole_array
from pennpde.mesh import Mesh

RESERVED = ("Assembly", "Steps")
"""Names that no case can have: groups of the format itself."""

_DEEPEST = 4  # VTKHDF/CASE/Steps/PointDataOffsets/NAME: more than that is no shard of ours, or a ring of links


class Shard:
    """A shard that is open for reading; arrays that its cases share are read once."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with named(str(path)):
            self.file = h5py.File(path, "r")
        self.objects = Objects()

    @property
    def names(self) -> list[str]:
        """Its cases."""
        own = self.file["pennpde"]
        return list(map(str, own)) if isinstance(own, h5py.Group) else []

    def read(
        self, name: str, expected: str | None = None, meshes: MutableMapping[bytes, Mesh] | None = None
    ) -> CaseFile:
        """One case, without reading the others.

        Args:
            name: of the case.
            expected: the hash of its content; any content will do by default.
            meshes: those read before, as for `vtkhdf.unpack`.
        """
        source = f"case {name!r} of {self.path}"
        with named(source):
            grid_digest, grid = self.objects.read(self.file.id, f"VTKHDF/{name}".encode())
            own_digest, own = self.objects.read(self.file.id, f"pennpde/{name}".encode())
            found = content_hash(grid_digest, own_digest)
            if expected is not None and found != expected:
                raise CaseFileError(f"{source} changed: the hash of its content is {found}, not {expected}.")
            arrays = {f"VTKHDF/{path}": values for path, values in grid.items()}
            arrays |= {f"pennpde/{path}": values for path, values in own.items()}
            return assemble(self.file[f"pennpde/{name}"].attrs["case"], arrays.get, source, meshes)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_shard(path: Path | str) -> bool:
    """Whether a file is a shard."""
    try:
        with h5py.File(path, "r") as file:
            return "pennpde" in file and "VTKHDF/Assembly" in file
    except OSError:
        return False


class Objects:
    """Arrays and groups of one file with their hashes.

    The hash of an array is of its type, shape, values and attributes; that of a group of its attributes, and of the
    names and hashes of what it contains.
    """

    def __init__(self, remember_all: bool = False) -> None:
        self.remember_all = remember_all
        self.remembered: dict[int, tuple[bytes, dict[str, np.ndarray]]] = {}

    def read(self, parent: Any, name: bytes, depth: int = 0) -> tuple[bytes, dict[str, np.ndarray]]:
        """The hash of an array or a group, and by their paths in it all arrays that it contains."""
        about = h5o.get_info(parent, name)
        if about.addr in self.remembered:
            return self.remembered[about.addr]
        if depth > _DEEPEST:
            raise CaseFileError(f"groups are nested deeper than {_DEEPEST}, at {name.decode(errors='replace')!r}")
        item = h5o.open(parent, name)
        digest = hashlib.sha256()
        for attribute in sorted(h5py.h5a.open(item, index=number).name for number in range(about.num_attrs)):
            digest.update(attribute + b"\0" + _bytes(_attribute(item, attribute)))
        if isinstance(item, h5py.h5d.DatasetID):
            values = whole_array(item)
            digest.update(_bytes(values))
            found = digest.digest(), {"": values}
        elif isinstance(item, h5py.h5g.GroupID):
            arrays: dict[str, np.ndarray] = {}
            for child in sorted(item):
                part, below = self.read(item, child, depth + 1)
                digest.update(child + b"\0" + part)
                label = child.decode()
                arrays |= {f"{label}/{path}" if path else label: values for path, values in below.items()}
            found = digest.digest(), arrays
        else:
            raise CaseFileError(f"{name.decode(errors='replace')!r} is neither an array nor a group")
        if self.remember_all or about.rc > 1:
            self.remembered[about.addr] = found
        return found


def _attribute(item: Any, name: bytes) -> np.ndarray:
    attribute = h5py.h5a.open(item, name)
    values = np.empty(attribute.shape, attribute.dtype)
    attribute.read(values)
    return values


def _bytes(values: np.ndarray) -> bytes:
    if values.dtype.hasobject:
        raise CaseFileError("it holds strings of variable length, which no case has")
    return f"{values.dtype.str}{values.shape}".encode() + values.tobytes()


def content_hash(grid: bytes, own: bytes) -> str:
    """Of a case, from the hashes of its two groups."""
    return hashlib.sha256(grid + own).hexdigest()
