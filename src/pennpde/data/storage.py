"""A dataset on disk: a folder with `manifest.json` and its cases, in one `.vtkhdf` file each or many in a shard.

A shard is a VTKHDF file of type MultiBlockDataSet, a block per case for ParaView and PyVista: `/VTKHDF/CASE` is what
`/VTKHDF` is in the file of one case, and `/pennpde/CASE` what `/pennpde` is there (see `vtkhdf`). Arrays that cases
have in common are stored once and appear in all blocks by hard links of HDF5, which readers do not notice.

Each file appears under its name only when it is complete and on the disk, and the manifest lists it only after that. So
whatever happens to a process that writes, a reader finds whole cases or an error that names the file.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import h5py
import numpy as np
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

from pennpde import __version__
from pennpde.case import Case
from pennpde.case.moments import steady_state
from pennpde.data import vtkhdf
from pennpde.data.manifest import (
    MANIFEST,
    DatasetError,
    Entry,
    Manifest,
    dataset_hash,
    read_manifest,
    write_manifest,
)
from pennpde.data.vtkhdf import CaseFile, CaseFileError
from pennpde.files import read_regular, write_atomically
from pennpde.mesh import Mesh

__all__ = [
    "MANIFEST",
    "CaseReader",
    "DatasetError",
    "Entry",
    "Ledger",
    "Manifest",
    "Shard",
    "append",
    "bytes_on_disk",
    "dataset_hash",
    "facts_of",
    "file_name",
    "is_shard",
    "read",
    "read_file",
    "read_files",
    "read_manifest",
    "store",
    "write",
    "write_manifest",
]

RESERVED = ("Assembly", "Steps")
"""Names that no case can have: groups of the format of shards itself."""
_DEEPEST = 4  # VTKHDF/CASE/Steps/PointDataOffsets/NAME: more than that is no shard of ours, or a ring of links
_MOST_OPEN = 8
"""Shards at a time: each remembers the arrays that its cases share."""


# Shards


class Shard:
    """A shard that is open for reading; arrays that its cases share are read once."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with vtkhdf.named(str(path)):
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
        with vtkhdf.named(source):
            grid_digest, grid = self.objects.read(self.file.id, f"VTKHDF/{name}".encode())
            own_digest, own = self.objects.read(self.file.id, f"pennpde/{name}".encode())
            found = content_hash(grid_digest, own_digest)
            if expected is not None and found != expected:
                raise CaseFileError(f"{source} changed: the hash of its content is {found}, not {expected}.")
            arrays = {f"VTKHDF/{path}": values for path, values in grid.items()}
            arrays |= {f"pennpde/{path}": values for path, values in own.items()}
            return vtkhdf.assemble(self.file[f"pennpde/{name}"].attrs["case"], arrays.get, source, meshes)

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


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
    names and hashes of what it contains. Neither depends on the file that holds them, nor on the compression.
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
            values = vtkhdf.whole_array(item)
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


# Reading


class CaseReader:
    """Cases of one dataset, each checked against its hash: some shards stay open, and cases share equal meshes."""

    def __init__(self, folder: Path | str, manifest: Manifest | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(folder) if manifest is None else manifest
        self.opened: OrderedDict[str, Shard] = OrderedDict()
        # Weak: whoever looks at one case after the other must not end up with the meshes of all.
        self.meshes: WeakValueDictionary[bytes, Mesh] = WeakValueDictionary()

    def read(self, name: str) -> CaseFile:
        """One case, which agrees with its hash in the manifest; no other case is read."""
        entry = self._entry(name)
        if entry.block is None:
            return vtkhdf.unpack(self._own_file(entry), str(self.folder / name), self.meshes)
        path = self.folder / entry.file
        if not path.is_file():
            raise DatasetError(f"{path} is missing, but {MANIFEST} lists it for case {name!r}. {_remedy(entry)}")
        try:
            return self._shard(path).read(entry.block, entry.content_sha256, self.meshes)
        except CaseFileError as error:
            raise DatasetError(f"{path} is damaged: {error} {_remedy(entry)}") from error

    def content(self, name: str) -> bytes:
        """A case as a file of its own.

        For a case in a shard the file is made again. It has the content of the first one, and the same bytes where HDF5
        and zlib are of the same version.
        """
        if (entry := self._entry(name)).block is None:
            return self._own_file(entry)
        found = self.read(name)
        return vtkhdf.pack(found.case, found.times, notes=found.notes)

    def is_intact(self, name: str) -> bool:
        """Whether a case is there and agrees with its hash."""
        try:
            if (entry := self._entry(name)).block is None:
                self._own_file(entry)
            else:
                self.read(name)
        except (ValueError, KeyError, OSError):
            return False
        return True

    def _entry(self, name: str) -> Entry:
        if name not in self.manifest.cases:
            some = list(self.manifest.cases)[:5]
            known = f"{', '.join(some) or 'none'}{' ...' * bool(some)}"
            raise DatasetError(f"{self.folder} has no case {name!r}; it has {known}.")
        return self.manifest.cases[name]

    def _own_file(self, entry: Entry) -> bytes:
        path = self.folder / entry.file
        try:
            content = read_regular(path)
        except FileNotFoundError:
            raise DatasetError(
                f"{path} is missing, but {MANIFEST} lists it (sha256 {entry.sha256}). {_remedy(entry)}"
            ) from None
        found = hashlib.sha256(content).hexdigest()
        if found != entry.sha256:
            sizes = f"it has {len(content)} bytes instead of {entry.bytes}"
            raise DatasetError(
                f"{path} is damaged: {sizes if len(content) != entry.bytes else 'it changed'}; its sha256 is {found}, "
                f"but {MANIFEST} expects {entry.sha256}. {_remedy(entry)}"
            )
        return content

    def _shard(self, path: Path) -> Shard:
        if path.name in self.opened:
            self.opened.move_to_end(path.name)
        else:
            self.opened[path.name] = Shard(path)
            if len(self.opened) > _MOST_OPEN:
                self.opened.popitem(last=False)[1].file.close()
        return self.opened[path.name]

    def __enter__(self) -> CaseReader:
        return self

    def __exit__(self, *_: object) -> None:
        for shard in self.opened.values():
            shard.file.close()


def _remedy(entry: Entry) -> str:
    return (
        f"Run `penn generate` again with the same options, which makes the case again, or take a good copy of "
        f"{entry.file}."
    )


def read(folder: Path | str, split: str | None = None, *, frames: bool = True) -> list[Case]:
    """The cases of a dataset, each checked against its hash. Needs only h5py, no VTK.

    Args:
        folder: of the dataset.
        split: such as "train"; all cases by default.
        frames: whether targets stay as they are stored. Otherwise those of a dataset with frames (`penn generate flow
            --frames`, or runs collected at several times) are at the last time only, and a steady state that is the
            only target becomes that of the unknowns: what networks predict.
    """
    files = read_files(folder, split)
    if frames:
        return [file.case for file in files]
    manifest = read_manifest(folder)
    return [_as_predicted(file, manifest) for file in files]


def _as_predicted(file: CaseFile, manifest: Manifest) -> Case:
    if not file.moments:
        return steady_state(file.case) or file.case
    if not manifest.has_frames:
        return file.case
    last = file.at_moment(len(file.moments) - 1)
    # All generated flows end at the same time, which their networks know: no parameter.
    parameters = last.parameters if "content" in manifest.settings else file.case.parameters
    targets = {name: values.clone() for name, values in last.targets.items()}
    return replace(last, targets=targets, parameters=parameters)


def read_files(folder: Path | str, split: str | None = None) -> Iterator[CaseFile]:
    """The same one by one, with their times and notes: for sets that do not fit into memory."""
    manifest = read_manifest(folder)
    names = manifest.names(split)
    if split is not None:
        _check_complete(folder, manifest, split)
    return _one_by_one(CaseReader(folder, manifest), names)


def _one_by_one(reader: CaseReader, names: Iterable[str]) -> Iterator[CaseFile]:
    with reader:
        yield from map(reader.read, names)


def read_file(folder: Path | str, name: str, manifest: Manifest | None = None) -> CaseFile:
    """One case of a dataset, with its times and notes; no other case is read.

    Args:
        folder: of the dataset.
        name: of the case.
        manifest: of the dataset, where it was read before.
    """
    with CaseReader(folder, manifest) as cases:
        return cases.read(name)


def _check_complete(folder: Path | str, manifest: Manifest, split: str) -> None:
    missing = [name for name in manifest.splits[split] if name not in manifest.cases]
    failed = [name for name in missing if name in manifest.failed]
    if waiting := [name for name in missing if name not in manifest.failed]:
        raise DatasetError(
            f"{folder} is not complete: {len(waiting)} of the {len(manifest.splits[split])} cases of split {split!r} "
            f"are still to be made, the first is {waiting[0]!r}. Start `penn generate` again with the same options; it "
            "makes what is missing."
        )
    if failed:
        warnings.warn(
            f"{len(failed)} cases of split {split!r} in {folder} could not be generated and are left out: "
            f"{', '.join(failed[:5])}{' ...' if len(failed) > 5 else ''}; {MANIFEST} says why.",
            stacklevel=4,
        )


def bytes_on_disk(folder: Path | str, manifest: Manifest) -> int:
    """What the cases of a dataset take on the disk."""
    return sum((Path(folder) / file).stat().st_size for file in manifest.files)


# Writing


def write(
    folder: Path | str,
    cases: Iterable[Case],
    splits: Mapping[str, Sequence[str]] | None = None,
    dataset: str = "custom",
    times: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a dataset of cases that are there already, such as your own, one file each.

    Args:
        folder: is made; an older dataset in it is replaced.
        cases: each with its own name.
        splits: by name, the names of their cases; all cases are "train" by default.
        dataset: what kind it is.
        times: of the targets, as for `vtkhdf.pack`.
        settings: how it was made, for the manifest.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    older: set[str] = set()
    with suppress(DatasetError):  # there is none, or it is damaged
        older = read_manifest(folder).files
    manifest = _stored(folder, cases, Manifest(dataset, settings or {}), times)
    given = {"train": list(manifest.cases)} if splits is None else splits
    for split, names in given.items():
        if unknown := [name for name in names if name not in manifest.cases]:
            raise ValueError(f"Split {split!r} names {unknown[:5]}, which are none of the cases.")
    write_manifest(folder, replace(manifest, splits=given))
    for file in older - manifest.files:
        (folder / file).unlink(missing_ok=True)


def append(
    folder: Path | str, cases: Iterable[Case], split: str = "train", times: Sequence[float] | None = None
) -> None:
    """Add cases to a split of a dataset; the files that are there stay as they are.

    The dataset must exist: `write(folder, [], ...)` makes one without cases.
    """
    before = read_manifest(folder)
    manifest = _stored(folder, cases, before, times)
    added = [name for name in manifest.cases if name not in before.cases]
    others = [name for name in before.splits.get(split, ()) if name not in added]
    write_manifest(folder, replace(manifest, splits={**before.splits, split: others + added}))


def _stored(folder: Path | str, cases: Iterable[Case], manifest: Manifest, times: Sequence[float] | None) -> Manifest:
    """The manifest with further cases, whose files were written."""
    for case in cases:
        if case.name in manifest.cases:
            raise ValueError(f"Two cases are called {case.name!r}; each needs its own name.")
        entry = store(folder, case.name, vtkhdf.pack(case, times), facts_of(case))
        manifest = manifest.with_case(case.name, entry)
    return manifest


def store(folder: Path | str, name: str, content: bytes, facts: Mapping[str, Any]) -> Entry:
    """Write the file of a case; the entry is for the manifest."""
    file = file_name(name)
    write_atomically(Path(folder) / file, content)
    return Entry(file, hashlib.sha256(content).hexdigest(), len(content), facts)


def file_name(name: str) -> str:
    """A case's own file."""
    if not re.fullmatch(r"[\w.+-]+", name) or name.startswith("."):
        raise ValueError(
            f"A case cannot be called {name!r}: its name is that of a file. Use letters, digits and _ . + -."
        )
    if name in RESERVED:
        raise ValueError(f"A case cannot be called {name!r}: VTKHDF has a group of that name.")
    return name + vtkhdf.SUFFIX


def facts_of(case: Case) -> dict[str, Any]:
    """The manifest's entry for every case."""
    return {
        "points": case.mesh.number_of_points,
        "cells": case.mesh.number_of_cells,
        "parameters": {name: value.tolist() for name, value in case.parameters.items()},
    }


class Ledger:
    """The manifest of a dataset that is being made. It is written often, so that a crash loses little work."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.saved = 0.0

    def add(self, name: str, content: bytes, facts: Mapping[str, Any]) -> None:
        """Write a case's file and list it; the list is on the disk a second later at most, if more cases follow."""
        self.manifest = self.manifest.with_case(name, store(self.folder, name, content, facts))
        if time.monotonic() - self.saved > 1.0:
            self.save()

    def save(self) -> None:
        about = {**self.manifest.about, "pennpde": __version__}
        about["written"] = datetime.now(UTC).isoformat(timespec="seconds")
        write_manifest(self.folder, replace(self.manifest, about=about))
        self.saved = time.monotonic()
