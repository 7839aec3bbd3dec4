"""Reading cases of a dataset one by one, each checked against its hash, from shards and from files of their own."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path
from weakref import WeakValueDictionary

from pennpde.data import shards, vtkhdf
from pennpde.data.manifest import MANIFEST, DatasetError, Entry, Manifest
from pennpde.files import read_regular
from pennpde.mesh import Mesh

_MOST_OPEN = 8
"""Shards at a time: each remembers the arrays that its cases share."""


class CaseReader:
    """Cases of one dataset: some shards stay open, and cases with the same mesh share it."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.opened: OrderedDict[str, shards.Shard] = OrderedDict()
        # Weak: whoever looks at one case after the other must not end up with the meshes of all.
        self.meshes: WeakValueDictionary[bytes, Mesh] = WeakValueDictionary()

    def read(self, name: str) -> vtkhdf.CaseFile:
        """One case, which agrees with its hash in the manifest; no other case is read."""
        entry = self.manifest.cases[name]
        if entry.block is None:
            return vtkhdf.unpack(_own_file(self.folder, entry), str(self.folder / name), self.meshes)
        path = self.folder / entry.file
        if not path.is_file():
            raise DatasetError(f"{path} is missing, but {MANIFEST} lists it for case {name!r}. {_remedy(entry)}")
        try:
            return self._shard(path).read(entry.block, entry.content_sha256, self.meshes)
        except vtkhdf.CaseFileError as error:
            raise DatasetError(f"{path} is damaged: {error} {_remedy(entry)}") from error

    def _shard(self, path: Path) -> shards.Shard:
        if path.name in self.opened:
            self.opened.move_to_end(path.name)
        else:
            self.opened[path.name] = shards.Shard(path)
            if len(self.opened) > _MOST_OPEN:
                self.opened.popitem(last=False)[1].close()
        return self.opened[path.name]

    def content(self, name: str) -> bytes:
        """A case as a file of its own.

        For a case in a shard the file is made again. It has the content of the first one, and the same bytes where HDF5
        and zlib are of the same version.
        """
        if self.manifest.cases[name].block is None:
            return _own_file(self.folder, self.manifest.cases[name])
        found = self.read(name)
        return vtkhdf.pack(found.case, found.times, notes=found.notes)

    def check(self, name: str) -> None:
        """Raise an error unless the case agrees with its hash."""
        entry = self.manifest.cases[name]
        if entry.block is None:
            _own_file(self.folder, entry)
        else:
            self.read(name)

    def __enter__(self) -> CaseReader:
        return self

    def __exit__(self, *_: object) -> None:
        for shard in self.opened.values():
            shard.close()


def _own_file(folder: Path, entry: Entry) -> bytes:
    path = folder / entry.file
    try:
        content = read_regular(path)
    except FileNotFoundError:
        raise DatasetError(
            f"{path} is missing, but {MANIFEST} lists it (sha256 {entry.sha256}). {_remedy(entry)}"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != entry.sha256:
        size = f"it has {len(content)} bytes instead of {entry.bytes}" if len(content) != entry.bytes else "it changed"
        raise DatasetError(
            f"{path} is damaged: {size}; its sha256 is {found}, but {MANIFEST} expects {entry.sha256}. {_remedy(entry)}"
        )
    return content


def _remedy(entry: Entry) -> str:
    return (
        f"Run `penn generate` again with the same options, which makes the case again, or take a good copy of "
        f"{entry.file}."
    )
