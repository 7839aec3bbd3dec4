"""A dataset on disk: a folder with `manifest.json` and its cases, in one `.vtkhdf` file each or many in a shard.

Readers need not know which of the two they find: generated datasets are packed into shards, others are not.

Each file appears under its name only when it is complete and on the disk, and the manifest lists it only after that. So
whatever happens to a process that writes, a reader finds whole cases or an error that names the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pennpde import __version__
from pennpde.case import Case
from pennpde.case.moments import steady_state
from pennpde.data import shards, vtkhdf
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import read_regular, write_atomically
from pennpde.mesh import Mesh

MANIFEST = "manifest.json"
FORMAT = "pennpde dataset"
FORMAT_VERSION = 2
"""2 has cases in shards. A manifest without them is written as 1, which older versions of pennpde read as well."""
_MOST_OPEN = 8
"""Shards at a time: each remembers the arrays that its cases share."""


class DatasetError(ValueError):
    """A folder is not a dataset, or the dataset is damaged or incomplete."""


# The manifest


@dataclass(frozen=True)
class Entry:
    """Entry of a case in the manifest.

    Attributes:
        file: the name in the folder of the file that holds it: its own file, or a shard.
        sha256: of its own file as it was written first. It stays the same when the case is packed into a shard, and
            so does the hash of the dataset.
        bytes: the size of its own file.
        facts: whatever belongs to it: parameters, numbers of points and cells, the solver and its settings, seconds.
        block: its name in the shard; None for a case in its own file.
        content_sha256: of its content in the shard, see `shards`.
    """

    file: str
    sha256: str
    bytes: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    block: str | None = None
    content_sha256: str | None = None


@dataclass(frozen=True)
class Manifest:
    """What a dataset consists of and how it was made.

    Attributes:
        dataset: its kind, such as "flow".
        settings: all that decides on its content: seeds, meshes, solver, precision.
        splits: by name, the cases that belong to it, whether they are there yet or not.
        cases: those that are there.
        failed: by case that could not be made, the number of attempts, the error and the tail of the log.
        about: who wrote it, and when.
    """

    dataset: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    splits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cases: Mapping[str, Entry] = field(default_factory=dict)
    failed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_frames(self) -> bool:
        """Whether targets are a whole time series from the start on, rather than what networks predict."""
        return bool(self.settings.get("frames"))

    def names(self, split: str | None = None) -> list[str]:
        """The cases of a split that are there, or all of them."""
        if split is None:
            return list(self.cases)
        if split not in self.splits:
            raise KeyError(f"The dataset has no split {split!r}; it has {', '.join(self.splits) or 'none'}.")
        return [name for name in self.splits[split] if name in self.cases]

    @property
    def files(self) -> set[str]:
        """The files that hold the cases."""
        return {entry.file for entry in self.cases.values()}

    def with_case(self, name: str, entry: Entry) -> Manifest:
        failed = {other: facts for other, facts in self.failed.items() if other != name}
        return replace(self, cases={**self.cases, name: entry}, failed=failed)

    def without(self, names: Iterable[str]) -> Manifest:
        """The manifest where these cases are neither there nor failed."""
        gone = set(names)
        kept = {name: entry for name, entry in self.cases.items() if name not in gone}
        return replace(self, cases=kept, failed={name: why for name, why in self.failed.items() if name not in gone})


def read_manifest(folder: Path | str) -> Manifest:
    """The manifest of a dataset."""
    path = Path(folder) / MANIFEST
    try:
        content = json.loads(read_regular(path).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(
            f"{folder} is not a dataset: it has no {MANIFEST}. Make one with `penn generate flow --out {folder}`, or "
            "give the folder that has it."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(
            f"{path} cannot be read: {error}. Restore a good copy, or generate the dataset again."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DatasetError(f"{path} is not the manifest of a dataset: its format is not {FORMAT!r}.")
    version = content.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise DatasetError(
            f"{path} has version {version!r}, but this pennpde reads up to {FORMAT_VERSION}; install a newer pennpde."
        )
    tables = ("settings", "splits", "failed", "about")
    try:
        cases = {name: Entry(**entry) for name, entry in content["cases"].items()}
        manifest = Manifest(content["dataset"], cases=cases, **{part: content[part] for part in tables})
    except (KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path} is not a manifest of version {version}: {error}.") from error
    for part in tables:
        if not isinstance(content[part], dict):
            raise DatasetError(f"{path} is not a manifest of version {version}: {part} is not a table.")
    for split, names in manifest.splits.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DatasetError(f"{path}: split {split!r} is not a list of names of cases.")
    for name, entry in cases.items():
        if not isinstance(entry.file, str) or not isinstance(entry.sha256, str):
            raise DatasetError(f"{path}: case {name!r} has no file and sha256.")
        if {type(entry.block), type(entry.content_sha256)} not in ({str}, {type(None)}):
            raise DatasetError(f"{path}: case {name!r} needs both a block and a content_sha256, or none of them.")
        # A manifest may come from anywhere: it must not reach into other folders.
        if entry.file != Path(entry.file).name or entry.file in ("", ".", ".."):
            raise DatasetError(f"{path}: the file of case {name!r} is {entry.file!r}; it must be in the same folder.")
    return manifest


def write_manifest(folder: Path | str, manifest: Manifest) -> None:
    """Replace the manifest of a dataset, all at once."""
    in_shards = any(entry.block is not None for entry in manifest.cases.values())
    content = {
        "format": FORMAT,
        "version": FORMAT_VERSION if in_shards else 1,
        "dataset": manifest.dataset,
        "about": manifest.about,
        "settings": manifest.settings,
        "splits": {split: list(names) for split, names in manifest.splits.items()},
        "cases": {
            name: {key: value for key, value in asdict(manifest.cases[name]).items() if value is not None}
            for name in sorted(manifest.cases)
        },
        "failed": {name: manifest.failed[name] for name in sorted(manifest.failed)},
    }
    # One line for each case, split and setting: people read a manifest and git compares it.
    blocks = []
    for name, value in content.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, Mapping) and value:
            rows = [f"    {json.dumps(key)}: {json.dumps(item, allow_nan=False)}" for key, item in value.items()]
            text = "{\n" + ",\n".join(rows) + "\n  }"
        blocks.append(f"  {json.dumps(name)}: {text}")
    write_atomically(Path(folder) / MANIFEST, "{\n" + ",\n".join(blocks) + "\n}\n")


def dataset_hash(folder: Path | str) -> str:
    """A hash of all cases of a dataset and of how they are split: the same on every machine."""
    manifest = read_manifest(folder)
    content = {
        "splits": {split: sorted(names) for split, names in manifest.splits.items()},
        "cases": {name: entry.sha256 for name, entry in manifest.cases.items()},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def bytes_on_disk(folder: Path | str, manifest: Manifest) -> int:
    """What the cases of a dataset take on the disk."""
    return sum((Path(folder) / file).stat().st_size for file in manifest.files)


# Reading


class CaseReader:
    """Cases of one dataset, each checked against its hash: some shards stay open, and cases share equal meshes."""

    def __init__(self, folder: Path | str, manifest: Manifest | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(folder) if manifest is None else manifest
        self.opened: OrderedDict[str, shards.Shard] = OrderedDict()
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
        except vtkhdf.CaseFileError as error:
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

    def _shard(self, path: Path) -> shards.Shard:
        if path.name in self.opened:
            self.opened.move_to_end(path.name)
        else:
            self.opened[path.name] = shards.Shard(path)
            if len(self.opened) > _MOST_OPEN:
                self.opened.popitem(last=False)[1].close()
        return self.opened[path.name]

    def __enter__(self) -> CaseReader:
        return self

    def __exit__(self, *_: object) -> None:
        for shard in self.opened.values():
            shard.close()


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


def checked_content(folder: Path | str, name: str, manifest: Manifest | None = None) -> bytes:
    """A case as a file of its own, as `CaseReader.content` gives it."""
    with CaseReader(folder, manifest) as cases:
        return cases.content(name)


def intact(folder: Path | str, names: Iterable[str], manifest: Manifest) -> list[str]:
    """Those of the cases that are there and agree with their hashes."""
    with CaseReader(folder, manifest) as cases:
        return [name for name in names if cases.is_intact(name)]


def _check_complete(folder: Path | str, manifest: Manifest, split: str) -> None:
    missing = [name for name in manifest.splits[split] if name not in manifest.cases]
    failed = [name for name in missing if name in manifest.failed]
    waiting = [name for name in missing if name not in manifest.failed]
    if waiting:
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


# Writing


def write(
    folder: Path | str,
    cases: Iterable[Case],
    splits: Mapping[str, Sequence[str]] | None = None,
    dataset: str = "custom",
    times: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    significant_bits: int = vtkhdf.SINGLE,
) -> None:
    """Write a dataset of cases that are there already, such as your own, one file each.

    Args:
        folder: is made; an older dataset in it is replaced.
        cases: each with its own name.
        splits: by name, the names of their cases; all cases are "train" by default.
        dataset: what kind it is.
        times: of the targets, as for `vtkhdf.pack`.
        settings: how it was made, for the manifest.
        significant_bits: of the fields, as for `vtkhdf.pack`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    older: set[str] = set()
    with suppress(DatasetError):  # there is none, or it is damaged
        older = read_manifest(folder).files
    manifest = _stored(folder, cases, Manifest(dataset, settings or {}), times, significant_bits)
    given = {"train": list(manifest.cases)} if splits is None else splits
    for split, names in given.items():
        if unknown := [name for name in names if name not in manifest.cases]:
            raise ValueError(f"Split {split!r} names {unknown[:5]}, which are none of the cases.")
    write_manifest(folder, replace(manifest, splits=given))
    for file in older - manifest.files:
        (folder / file).unlink(missing_ok=True)


def append(
    folder: Path | str,
    cases: Iterable[Case],
    split: str = "train",
    times: Sequence[float] | None = None,
    *,
    significant_bits: int = vtkhdf.SINGLE,
) -> None:
    """Add cases to a split of a dataset; the files that are there stay as they are.

    The dataset must exist: `write(folder, [], ...)` makes one without cases.
    """
    before = read_manifest(folder)
    manifest = _stored(folder, cases, before, times, significant_bits)
    added = [name for name in manifest.cases if name not in before.cases]
    others = [name for name in before.splits.get(split, ()) if name not in added]
    write_manifest(folder, replace(manifest, splits={**before.splits, split: others + added}))


def _stored(
    folder: Path | str, cases: Iterable[Case], manifest: Manifest, times: Sequence[float] | None, significant_bits: int
) -> Manifest:
    """The manifest with further cases, whose files were written."""
    for case in cases:
        if case.name in manifest.cases:
            raise ValueError(f"Two cases are called {case.name!r}; each needs its own name.")
        content = vtkhdf.pack(case, times, significant_bits)
        manifest = manifest.with_case(case.name, store(folder, case.name, content, facts_of(case)))
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
    if name in shards.RESERVED:
        raise ValueError(f"A case cannot be called {name!r}: VTKHDF has a group of that name.")
    return name + vtkhdf.SUFFIX


def facts_of(case: Case) -> dict[str, Any]:
    """The manifest's entry for every case."""
    return {
        "points": case.mesh.number_of_points,
        "cells": case.mesh.number_of_cells,
        "parameters": {name: value.tolist() for name, value in case.parameters.items()},
    }


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder of a dataset; it is released when the process ends, in whatever way."""
    import fcntl

    with (folder / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise DatasetError(
                f"Another process writes into {folder} (number {lock.read().strip() or 'unknown'}); wait for "
                "it or choose another folder."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


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
