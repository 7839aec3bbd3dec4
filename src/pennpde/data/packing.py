"""From files of single cases to shards, so that a dataset is a few files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pennpde.data import shards, vtkhdf
from pennpde.data.case_reader import CaseReader
from pennpde.data.manifest import Manifest, file_name, read_manifest, write_manifest
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


class _Packer:
    """Collects cases until they fill a shard. Cases with different times go to different shards."""

    def __init__(self, folder: Path, manifest: Manifest, shard_bytes: int) -> None:
        self.folder, self.manifest, self.shard_bytes = folder, manifest, shard_bytes
        self.waiting: dict[tuple[float, ...], list[tuple[str, bytes]]] = {}

    def add(self, split: str, name: str, content: bytes) -> None:
        steps = shards.steps_of(content)
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
        content, hashes = shards.write(batch)
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
                cases.check(name)
        write_manifest(self.folder, manifest)
        self.manifest = manifest
        for name in hashes:
            self.remove_own_file(name)

    def free_name(self, split: str) -> str:
        stem = re.sub(r"[^\w.+-]", "_", split)
        taken = self.manifest.files | self.own_files
        number = 0
        while (file := f"{stem}{_SHARD}{number:03d}{vtkhdf.SUFFIX}") in taken:
            number += 1
        return file

    @property
    def own_files(self) -> set[str]:
        """The files that cases have or may get."""
        listed = {name for names in self.manifest.splits.values() for name in names}
        return {name + vtkhdf.SUFFIX for name in {*self.manifest.cases, *listed}}

    def remove_own_file(self, name: str) -> None:
        if file_name(name) not in self.manifest.files:
            (self.folder / file_name(name)).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what an interrupted call has left behind, and shards whose cases were all packed again."""
        for name, entry in self.manifest.cases.items():
            if entry.block is not None:
                self.remove_own_file(name)
        for path in self.folder.glob(f"*{_SHARD}*{vtkhdf.SUFFIX}"):
            if path.name not in self.manifest.files | self.own_files and shards.is_shard(path):
                path.unlink()
