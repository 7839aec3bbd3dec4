"""A dataset on disk: a folder with `manifest.json` and its cases, in one `.vtkhdf` file each or many in a shard.

The manifest says what the dataset holds: cases with their files and hashes, splits, and what networks learn from it.

Each file appears under its name only when it is complete and on the disk, and the manifest lists it only after that. So
whatever happens to a process that writes, a reader finds whole cases or an error that names the file.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any, Literal, TypeVar, get_args
from weakref import WeakValueDictionary

from pennpde import __version__
from pennpde.case import Case
from pennpde.data import vtkhdf
from pennpde.data.vtkhdf import RESERVED, CaseFile, CaseFileError, Shard
from pennpde.files import read_regular, write_atomically
from pennpde.mesh import Mesh

MANIFEST = "manifest.json"
FORMAT = "pennpde dataset"
FORMAT_VERSION = 2
"""2 has cases in shards. A manifest without them is written as 1, which older versions of pennpde read as well."""


class DatasetError(ValueError):
    """A folder is not a dataset, or the dataset is damaged or incomplete."""


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
        content_sha256: of its content in the shard, see `vtkhdf.Shard`.
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
        return replace(self.without([name]), cases={**self.cases, name: entry})

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
    if wrong := _wrong(manifest, {part: content[part] for part in tables}):
        raise DatasetError(f"{path}: {wrong}.")
    return manifest


def _wrong(manifest: Manifest, tables: Mapping[str, Any]) -> str | None:
    """What a manifest says that none of ours says; it may come from anywhere."""
    for part, value in tables.items():
        if not isinstance(value, dict):
            return f"{part} is not a table"
    for split, names in manifest.splits.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return f"split {split!r} is not a list of names of cases"
    for name, entry in manifest.cases.items():
        if not isinstance(entry.file, str) or not isinstance(entry.sha256, str):
            return f"case {name!r} has no file and sha256"
        if {type(entry.block), type(entry.content_sha256)} not in ({str}, {type(None)}):
            return f"case {name!r} needs both a block and a content_sha256, or none of them"
        if entry.file != Path(entry.file).name or entry.file in ("", ".", ".."):
            return f"the file of case {name!r} is {entry.file!r}; it must be in the same folder"
    return None


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


# What networks learn from it


Targets = Literal["one time", "several times", "steady", "several times and steady", "field"]
"""Of the unknowns, see `moments`; "field": of something else, such as the gradient of a given field."""


@dataclass(frozen=True)
class Content:
    """What networks of a dataset are to learn.

    Attributes:
        network: the kind of problem: "flow", "advection-diffusion" or "gradient"; None: another one.
        unknowns: ranks by name, as `Equation.unknowns` has them: 0 for a scalar, 1 for a vector.
        parameters: names of the numbers of the equation.
        targets: their times.
        space: 2 or 3.
    """

    network: str | None
    unknowns: Mapping[str, int]
    parameters: tuple[str, ...]
    targets: Targets
    space: int

    def to_settings(self) -> dict[str, Any]:
        """For `Manifest.settings`."""
        return {"content": {**asdict(self), "parameters": list(self.parameters)}}


_FLOW = {"u": 1, "p": 0}
_GENERATED = {
    "gradient": Content("gradient", {"phi": 0}, (), "field", 3),
    "advection-diffusion": Content("advection-diffusion", {"T": 0}, ("velocity", "diffusivity"), "several times", 2),
    "flow": Content("flow", _FLOW, ("viscosity",), "one time", 2),
    "plane-flow": Content("flow", _FLOW, ("viscosity",), "several times and steady", 2),
}


def content_of(manifest: Manifest) -> Content:
    """What a dataset holds: as its manifest states it, or as is known of the generated datasets."""
    stated = manifest.settings.get("content")
    if stated is None:
        if manifest.dataset not in _GENERATED:
            raise DatasetError(
                f"The manifest does not state what a dataset of the kind {manifest.dataset!r} holds; name the network "
                "and its settings in an experiment file."
            )
        return _GENERATED[manifest.dataset]
    try:
        content = Content(**{**stated, "parameters": tuple(stated["parameters"])})
    except (TypeError, KeyError) as error:
        raise DatasetError(f"The manifest states the content of the dataset as {stated!r}: {error}.") from None
    if content.targets not in get_args(Targets):
        raise DatasetError(f"The manifest says that targets are {content.targets!r}; known are {get_args(Targets)}.")
    return content


# Some of the cases, and facts about all

Item = TypeVar("Item")


_TOLD_ELSEWHERE = {"points", "cells", "parameters", "fingerprints", "source", "state", "flux", "ranges"}
"""What is measured on the cases themselves, and what differs from case to case by its nature."""
_MOST_WORDS = 30


def evenly(items: Sequence[Item], most: int | None) -> list[Item]:
    """At most so many of a list, evenly over all of it; None: all."""
    if most is None or len(items) <= most:
        return list(items)
    return [items[(2 * place + 1) * len(items) // (2 * most)] for place in range(most)]


def summary(manifest: Manifest, split: str | None = None) -> dict[str, Any]:
    """The facts of all cases of a split, or of all: numbers by their quarters, words counted.

    Facts within facts get names such as `mesh.kind`. Words that differ from case to case are only counted.
    """
    gathered: dict[str, list[Any]] = {}
    for name in manifest.names(split):
        for key, value in _flat(manifest.cases[name].facts):
            gathered.setdefault(key, []).extend(value if isinstance(value, list | tuple) else [value])
    return {key: _told(values) for key, values in gathered.items() if values}


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in facts.items():
        if not above and key in _TOLD_ELSEWHERE:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", value


def _told(values: Sequence[Any]) -> dict[str, Any]:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        quarters = quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * list(values)
        names = ("lowest", "a quarter below", "median", "a quarter above", "highest")
        return dict(zip(names, (min(values), *quarters, max(values)), strict=True))
    words = Counter(("yes" if value else "no") if isinstance(value, bool) else str(value) for value in values)
    if len(words) > _MOST_WORDS:
        return {"different": len(words), "of": len(values)}
    return dict(words.most_common())


# Reading

_MOST_OPEN = 8
"""Shards at a time: each remembers the arrays that its cases share."""


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


def read(folder: Path | str, split: str | None = None) -> list[Case]:
    """The cases of a split, or of a dataset, each checked against its hash. Needs only h5py, no VTK."""
    return [file.case for file in read_files(folder, split)]


def read_files(folder: Path | str, split: str | None = None) -> Iterator[CaseFile]:
    """The same one by one, with their times and notes: for sets that do not fit into memory."""
    manifest = read_manifest(folder)
    names = manifest.names(split)
    if split is not None:
        _check_complete(folder, manifest, split)

    def one_by_one() -> Iterator[CaseFile]:
        with CaseReader(folder, manifest) as cases:
            yield from map(cases.read, names)

    return one_by_one()


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
