"""Many cases in one file, a shard: VTKHDF of type MultiBlockDataSet, one block per case for ParaView and PyVista.

A block `/VTKHDF/CASE` is what `/VTKHDF` is in the file of one case, and `/pennpde/CASE` what `/pennpde` is there (see
`vtkhdf`). Cases often have arrays in common: their mesh, their conditions, their time steps. Such an array, or a
whole group of them, is stored once and appears in all blocks by hard links of HDF5, which readers do not notice.

A shard is written once and never changed, so a dataset that grows gets further shards. One case is read without the
others, and its hash is of the content: it does not depend on the file that holds the case, nor on the compression.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

from pennpde.data.vtkhdf import CaseFile, CaseFileError, assemble, named, whole_array
from pennpde.mesh import Mesh

RESERVED = ("Assembly", "Steps")
"""Names that no case can have: groups of the format itself."""

_DEEPEST = 4  # VTKHDF/CASE/Steps/PointDataOffsets/NAME: more than that is no shard of ours, or a ring of links


def write(cases: Iterable[tuple[str, bytes]]) -> tuple[bytes, dict[str, str]]:
    """The content of a shard, and by case the hash of its content.

    Args:
        cases: names and contents of case files. They must have the same time steps, since a viewer has one clock.
    """
    hashes: dict[str, str] = {}
    # In memory: h5py must not write on its own to the disk, where it could be interrupted.
    with h5py.File("shard", "w", driver="core", backing_store=False, libver=("v110", "v110")) as file:
        # VTK goes through the children of this group and of the assembly in the order in which they were made.
        root = file.create_group("VTKHDF", track_order=True)
        assembly = root.create_group("Assembly", track_order=True)
        own = file.create_group("pennpde")
        known: dict[bytes, str] = {}
        version, steps = (2, 1), None
        for name, content in cases:
            if name in RESERVED or name in hashes:
                raise ValueError(f"A shard cannot hold a case called {name!r}: that name is taken.")
            with named(name), h5py.File(io.BytesIO(content), "r") as single:
                here = _steps(single)
                if steps is None:
                    steps = here
                    _write_steps(root, steps)
                if here != steps:
                    raise CaseFileError(f"Case {name!r} has the time steps {here}, others in its shard have {steps}.")
                version = max(version, tuple(np.asarray(single["VTKHDF"].attrs["Version"]).tolist()))
                objects = _Objects(remember_all=True)
                _place(objects, single, "VTKHDF", root, name, known)
                _place(objects, single, "pennpde", own, name, known)
                hashes[name] = _hash(objects.read(single.id, b"VTKHDF")[0], objects.read(single.id, b"pennpde")[0])
            assembly[name] = h5py.SoftLink(f"/VTKHDF/{name}")
        root.attrs["Version"] = np.array(version)
        root.attrs["Type"] = np.bytes_("MultiBlockDataSet")
        file.flush()
        return file.id.get_file_image(), hashes


def steps_of(content: bytes) -> tuple[float, ...]:
    """The times that a viewer shows of a case file; none for a case without time."""
    with named("The content"), h5py.File(io.BytesIO(content), "r") as single:
        return _steps(single)


def _steps(single: h5py.File) -> tuple[float, ...]:
    values = single.get("VTKHDF/Steps/Values")
    return tuple(np.asarray(values).tolist()) if isinstance(values, h5py.Dataset) else ()


def _write_steps(root: h5py.Group, steps: tuple[float, ...]) -> None:
    """Tell VTK that the file as a whole has time steps.

    VTK 9.6 and 9.7 show the first step at all times unless the root has them as well as the blocks. VTK 9.4 takes every
    child of the root for a block, so this one needs a type and a number of points. It has to come before the blocks:
    the last child is the one that is asked for the values.
    """
    if not steps:
        return
    group = root.create_group("Steps")
    group.attrs["NSteps"] = len(steps)
    group.attrs["Version"] = np.array([2, 0])
    group.attrs["Type"] = np.bytes_("UnstructuredGrid")
    group["Values"] = np.array(steps)
    group["NumberOfPoints"] = np.zeros(1, np.int64)


def _place(
    objects: _Objects, source: h5py.Group, name: str, target: h5py.Group, new_name: str, known: dict[bytes, str]
) -> None:
    """Copy an array or a group with all it contains, or link to the one that is the same."""
    digest, _ = objects.read(source.id, name.encode())
    if digest in known:
        target[new_name] = target.file[known[digest]]
        return
    item = source[name]
    if isinstance(item, h5py.Group):
        group = target.create_group(new_name)
        for attribute, value in item.attrs.items():
            group.attrs[attribute] = value
        for child in map(str, item):
            _place(objects, item, child, group, child, known)
    else:
        h5o.copy(source.id, name.encode(), target.id, new_name.encode())  # as it is packed, chunk by chunk
    known[digest] = f"{target.name}/{new_name}"


class Shard:
    """A shard that is open for reading; arrays that its cases share are read once."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with named(str(path)):
            self.file = h5py.File(path, "r")
        self.objects = _Objects()

    @property
    def names(self) -> list[str]:
        """Its cases."""
        own = self.file["pennpde"]
        return list(map(str, own)) if isinstance(own, h5py.Group) else []

    def read(
        self, name: str, content_hash: str | None = None, meshes: MutableMapping[bytes, Mesh] | None = None
    ) -> CaseFile:
        """One case, without reading the others.

        Args:
            name: of the case.
            content_hash: what `write` gave for it; any content will do by default.
            meshes: those read before, as for `vtkhdf.unpack`.
        """
        source = f"case {name!r} of {self.path}"
        with named(source):
            grid_digest, grid = self.objects.read(self.file.id, f"VTKHDF/{name}".encode())
            own_digest, own = self.objects.read(self.file.id, f"pennpde/{name}".encode())
            found = _hash(grid_digest, own_digest)
            if content_hash is not None and found != content_hash:
                raise CaseFileError(f"{source} changed: the hash of its content is {found}, not {content_hash}.")
            arrays = {f"VTKHDF/{path}": values for path, values in grid.items()}
            arrays |= {f"pennpde/{path}": values for path, values in own.items()}
            return assemble(self.file[f"pennpde/{name}"].attrs["case"], arrays, source, meshes)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Shard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_shard(path: Path | str) -> bool:
    """Whether a file was made by `write`."""
    try:
        with h5py.File(path, "r") as file:
            return "pennpde" in file and "VTKHDF/Assembly" in file
    except OSError:
        return False


class _Objects:
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


def _hash(grid: bytes, own: bytes) -> str:
    return hashlib.sha256(grid + own).hexdigest()
