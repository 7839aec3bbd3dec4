"""A dataset on disk: a folder with `manifest.json` and its cases, in a few shards or in one `.vtkhdf` file per case.

While a dataset is being made, each case is a file of its own; `pack` then puts the cases of a split together into
shards. Readers need not know which of the two they find.

Each file appears under its name only when it is complete and on the disk, and the manifest lists it only after that. So
whatever happens to a process that writes, a reader finds whole cases or an error that names the file.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pennpde.case import Case
from pennpde.data import vtkhdf
from pennpde.data.case_reader import CaseReader
from pennpde.data.content import states_content
from pennpde.data.manifest import MANIFEST, DatasetError, Entry, Manifest, file_name, read_manifest, write_manifest
from pennpde.data.packing import SHARD_BYTES, pack
from pennpde.data.times import at_moment, steady_state
from pennpde.data.times import moments as moments_of
from pennpde.files import write_atomically

__all__ = [
    "MANIFEST",
    "SHARD_BYTES",
    "DatasetError",
    "Entry",
    "Manifest",
    "append",
    "bytes_on_disk",
    "checked_content",
    "facts_of",
    "file_name",
    "intact",
    "pack",
    "read",
    "read_file",
    "read_files",
    "read_manifest",
    "store",
    "write",
    "write_manifest",
]


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
        return [case_file.case for case_file in files]
    manifest = read_manifest(folder)
    return [_as_predicted(case_file, manifest) for case_file in files]


def _as_predicted(file: vtkhdf.CaseFile, manifest: Manifest) -> Case:
    moments = moments_of(file)
    if not moments:
        return steady_state(file) or file.case
    if not manifest.has_frames:
        return file.case
    last = at_moment(file, len(moments) - 1)
    # All generated flows end at the same time, which their networks know: no parameter.
    parameters = last.parameters if states_content(manifest) else file.case.parameters
    targets = {name: values.clone() for name, values in last.targets.items()}
    return replace(last, targets=targets, parameters=parameters)


def read_files(folder: Path | str, split: str | None = None) -> Iterator[vtkhdf.CaseFile]:
    """The same one by one, with their times and notes: for sets that do not fit into memory."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    names = manifest.names(split)
    if split is not None:
        _check_complete(folder, manifest, split)
    return _one_by_one(folder, manifest, names)


def _one_by_one(folder: Path, manifest: Manifest, names: Iterable[str]) -> Iterator[vtkhdf.CaseFile]:
    with CaseReader(folder, manifest) as cases:
        for name in names:
            yield cases.read(name)


def read_file(folder: Path | str, name: str, manifest: Manifest | None = None) -> vtkhdf.CaseFile:
    """One case of a dataset, with its times and notes; no other case is read.

    Args:
        folder: of the dataset.
        name: of the case.
        manifest: of the dataset, where it was read before.
    """
    manifest = read_manifest(folder) if manifest is None else manifest
    with CaseReader(Path(folder), manifest) as cases:
        return cases.read(_known(name, folder, manifest))


def _check_complete(folder: Path, manifest: Manifest, split: str) -> None:
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


def dataset_hash(folder: Path | str) -> str:
    """A hash of all cases of a dataset and of how they are split: the same on every machine."""
    manifest = read_manifest(folder)
    content = {
        "splits": {split: sorted(names) for split, names in manifest.splits.items()},
        "cases": {name: entry.sha256 for name, entry in manifest.cases.items()},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def checked_content(folder: Path | str, name: str, manifest: Manifest | None = None) -> bytes:
    """A case as a file of its own, as `CaseReader.content` gives it."""
    manifest = read_manifest(folder) if manifest is None else manifest
    with CaseReader(Path(folder), manifest) as cases:
        return cases.content(_known(name, folder, manifest))


def intact(folder: Path | str, names: Iterable[str], manifest: Manifest) -> list[str]:
    """Those of the cases that are there and agree with their hashes."""
    found = []
    with CaseReader(Path(folder), manifest) as cases:
        for name in names:
            try:
                cases.check(name)
            except (ValueError, KeyError, OSError):
                continue
            found.append(name)
    return found


def _known(name: str, folder: Path | str, manifest: Manifest) -> str:
    if name not in manifest.cases:
        some = list(manifest.cases)[:5]
        raise DatasetError(f"{folder} has no case {name!r}; it has {', '.join(some) or 'none'}{' ...' * bool(some)}.")
    return name


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
    *,
    significant_bits: int = vtkhdf.SINGLE,
    packed: bool = True,
) -> None:
    """Write a dataset of cases that are there already, such as your own.

    Args:
        folder: is made; an older dataset in it is replaced.
        cases: each with its own name.
        splits: by name, the names of their cases; all cases are "train" by default.
        dataset: what kind it is.
        times: of the targets, as for `vtkhdf.pack`.
        settings: how it was made, for the manifest.
        significant_bits: of the fields, as for `vtkhdf.pack`.
        packed: whether cases are packed into shards; otherwise each keeps its own file.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = _stored(folder, cases, Manifest(dataset, settings or {}), times, significant_bits)
    given = {"train": list(manifest.cases)} if splits is None else splits
    for split, names in given.items():
        if unknown := [name for name in names if name not in manifest.cases]:
            raise ValueError(f"Split {split!r} names {unknown[:5]}, which are none of the cases.")
    write_manifest(folder, replace(manifest, splits=given))
    if packed:
        pack(folder)


def append(
    folder: Path | str,
    cases: Iterable[Case],
    split: str = "train",
    times: Sequence[float] | None = None,
    *,
    significant_bits: int = vtkhdf.SINGLE,
) -> None:
    """Add cases to a split of a dataset, as a further shard; the shards that are there stay as they are.

    The dataset must exist: `write(folder, [], ...)` makes one without cases.
    """
    folder = Path(folder)
    before = read_manifest(folder)
    manifest = _stored(folder, cases, before, times, significant_bits)
    added = [name for name in manifest.cases if name not in before.cases]
    others = [name for name in before.splits.get(split, ()) if name not in added]
    write_manifest(folder, replace(manifest, splits={**before.splits, split: others + added}))
    pack(folder)


def _stored(
    folder: Path, cases: Iterable[Case], manifest: Manifest, times: Sequence[float] | None, significant_bits: int
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


def facts_of(case: Case) -> dict[str, Any]:
    """The manifest's entry for every case."""
    return {
        "points": case.mesh.number_of_points,
        "cells": case.mesh.number_of_cells,
        "parameters": {name: value.tolist() for name, value in case.parameters.items()},
    }
