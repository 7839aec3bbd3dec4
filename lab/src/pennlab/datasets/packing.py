"""From files of single cases to shards, so that a dataset is a few files; `pennpde.data.storage` says what they are."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

from pennpde.data.storage import CaseReader, Manifest, file_name, read_manifest, write_manifest
from pennpde.data.vtkhdf import RESERVED, SUFFIX, CaseFileError, Objects, content_hash, is_shard, named
from pennpde.files import write_atomically

SHARD_BYTES = 64_000_000
"""How large shards get: few files, but none too large for git and its hosts."""
_SHARD = "_shard_"


def pack(folder: Path | str, *, shard_bytes: int = SHARD_BYTES, again: bool = False) -> None:
    """Pack the cases that have files of their own into shards, split by split, and remove those files.

    Nothing that readers see changes: neither the cases and their order, nor their hashes and that of the dataset. A
    process that is killed in between leaves a whole dataset, and the next call does the rest.

    Args:
        folder: of the dataset. Nobody else may be writing into it.
        shard_bytes: how large shards get, roughly.
        again: also pack what is in shards already, which joins small shards.
    """
    folder = Path(folder)
    packer = _Packer(folder, read_manifest(folder), shard_bytes)
    with CaseReader(folder, packer.manifest) as cases:
        for split, names in _by_split(packer.manifest).items():
            for name in names:
                if again or packer.manifest.cases[name].block is None:
                    packer.add(split, name, cases.content(name))
            packer.finish(split)
    packer.clean()


def _by_split(manifest: Manifest) -> dict[str, list[str]]:
    """The cases that are there by the first split that has them; those of no split are called "other"."""
    seen: set[str] = set()
    found: dict[str, list[str]] = {}
    for split in manifest.splits:
        found[split] = [name for name in manifest.names(split) if name not in seen]
        seen.update(found[split])
    if rest := [name for name in manifest.cases if name not in seen]:
        found["other"] = found.get("other", []) + rest
    return found


def intact(folder: Path | str, names: Iterable[str], manifest: Manifest) -> list[str]:
    """Those of the cases that are there and agree with their hashes."""
    with CaseReader(folder, manifest) as cases:
        return [name for name in names if _is_intact(cases, name)]


def _is_intact(cases: CaseReader, name: str) -> bool:
    try:
        cases.read(name)
    except (ValueError, KeyError, OSError):
        return False
    return True


class _Packer:
    """Collects cases until they fill a shard. Cases with different times go to different shards."""

    def __init__(self, folder: Path, manifest: Manifest, shard_bytes: int) -> None:
        self.folder, self.manifest, self.shard_bytes = folder, manifest, shard_bytes
        self.waiting: dict[tuple[float, ...], list[tuple[str, bytes]]] = {}

    def add(self, split: str, name: str, content: bytes) -> None:
        steps = steps_of(content)
        batch = self.waiting.setdefault(steps, [])
        if batch and sum(len(other) for _, other in batch) + len(content) > self.shard_bytes:
            self.write(split, batch)
            batch.clear()
        batch.append((name, content))

    def finish(self, split: str) -> None:
        for batch in self.waiting.values():
            if batch:
                self.write(split, batch)
        self.waiting.clear()

    def write(self, split: str, batch: Sequence[tuple[str, bytes]]) -> None:
        content, hashes = write_shard(batch)
        file = self.free_name(split)
        write_atomically(self.folder / file, content)
        entries = {
            name: replace(self.manifest.cases[name], file=file, block=name, content_sha256=hashes[name])
            for name in hashes
        }
        manifest = replace(self.manifest, cases={**self.manifest.cases, **entries})
        # The files are the only copies: what replaces them is read once before they go.
        with CaseReader(self.folder, manifest) as cases:
            for name in hashes:
                cases.read(name)
        write_manifest(self.folder, manifest)
        self.manifest = manifest
        for name in hashes:
            self.remove_own_file(name)

    def free_name(self, split: str) -> str:
        stem = re.sub(r"[^\w.+-]", "_", split)
        taken = self.manifest.files | self.own_files
        number = 0
        while (file := f"{stem}{_SHARD}{number:03d}{SUFFIX}") in taken:
            number += 1
        return file

    @property
    def own_files(self) -> set[str]:
        """The files that cases have or may get."""
        listed = {name for names in self.manifest.splits.values() for name in names}
        return {name + SUFFIX for name in {*self.manifest.cases, *listed}}

    def remove_own_file(self, name: str) -> None:
        if file_name(name) not in self.manifest.files:
            (self.folder / file_name(name)).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what an interrupted call has left behind, and shards whose cases were all packed again."""
        for name, entry in self.manifest.cases.items():
            if entry.block is not None:
                self.remove_own_file(name)
        for path in self.folder.glob(f"*{_SHARD}*{SUFFIX}"):
            if path.name not in self.manifest.files | self.own_files and is_shard(path):
                path.unlink()


# Shards


def write_shard(cases: Iterable[tuple[str, bytes]]) -> tuple[bytes, dict[str, str]]:
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
                objects = Objects(remember_all=True)
                _place(objects, single, "VTKHDF", root, name, known)
                _place(objects, single, "pennpde", own, name, known)
                hashes[name] = content_hash(
                    objects.read(single.id, b"VTKHDF")[0], objects.read(single.id, b"pennpde")[0]
                )
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
    objects: Objects, source: h5py.Group, name: str, target: h5py.Group, new_name: str, known: dict[bytes, str]
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
