"""A dataset on disk: a folder with `manifest.json` and one `.vtkhdf` file a case.

Each file appears under its name only when it is complete and on the disk, and the manifest lists it only after that. So
whatever happens to a process that writes, a reader finds whole cases or an error that names the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pennpde.case import Case
from pennpde.datasets import vtkhdf as case_files
from pennpde.mesh import Mesh

MANIFEST = "manifest.json"
FORMAT = "pennpde dataset"
FORMAT_VERSION = 1
_PART = ".part"


class DatasetError(ValueError):
    """A folder is no dataset, or one that is damaged or incomplete."""


@dataclass(frozen=True)
class Entry:
    """What the manifest says about a case.

    Attributes:
        file: its name in the folder.
        sha256: of the whole file.
        bytes: its size.
        facts: whatever belongs to it: parameters, numbers of points and cells, the solver and its settings, seconds.
    """

    file: str
    sha256: str
    bytes: int
    facts: Mapping[str, Any] = field(default_factory=dict)


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
        """Whether targets hold a whole run from its start on, rather than what networks predict."""
        return bool(self.settings.get("frames"))

    def names(self, split: str | None = None) -> list[str]:
        """The cases of a split that are there, or all of them."""
        if split is None:
            return list(self.cases)
        if split not in self.splits:
            raise KeyError(f"The dataset has no split {split!r}; it has {', '.join(self.splits) or 'none'}.")
        return [name for name in self.splits[split] if name in self.cases]

    def with_case(self, name: str, entry: Entry) -> Manifest:
        failed = {other: facts for other, facts in self.failed.items() if other != name}
        return replace(self, cases={**self.cases, name: entry}, failed=failed)


def read(folder: Path | str, split: str | None = None, *, frames: bool = True) -> list[Case]:
    """The cases of a dataset, each checked against its hash. Needs h5py alone, no VTK.

    Args:
        folder: of the dataset.
        split: such as "train"; all cases by default.
        frames: whether the targets of a dataset that `penn generate flow --frames` made keep all times of the run.
            Otherwise they are at the last of them alone, which is what networks predict.
    """
    cases = (case_file.case for case_file in read_files(folder, split))
    if frames or not read_manifest(folder).has_frames:
        return list(cases)
    return [_at_the_end(case) for case in cases]


def _at_the_end(case: Case) -> Case:
    return replace(case, targets={name: frames[..., -1].clone() for name, frames in case.targets.items()})


def read_files(folder: Path | str, split: str | None = None) -> Iterator[case_files.CaseFile]:
    """The same one by one, with their times and notes: for sets that do not fit into memory."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    names = manifest.names(split)
    if split is not None:
        _check_complete(folder, manifest, split)
    meshes: dict[bytes, Mesh] = {}
    return (case_files.unpack(checked_content(folder, name, manifest), str(folder / name), meshes) for name in names)


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


def checked_content(folder: Path | str, name: str, manifest: Manifest) -> bytes:
    """The bytes of a case's file, which agree with the hash in the manifest."""
    entry = manifest.cases[name]
    path = Path(folder) / entry.file
    again = (
        f"Run `penn generate` again with the same options, which makes it anew, or take a good copy of {entry.file}."
    )
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing, but {MANIFEST} lists it (sha256 {entry.sha256}). {again}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != entry.sha256:
        size = f"it has {len(content)} bytes instead of {entry.bytes}" if len(content) != entry.bytes else "it changed"
        raise DatasetError(
            f"{path} is damaged: {size}; its sha256 is {found}, but {MANIFEST} expects {entry.sha256}. {again}"
        )
    return content


def is_intact(folder: Path | str, name: str, manifest: Manifest) -> bool:
    """Whether a case is there and agrees with its hash."""
    try:
        checked_content(folder, name, manifest)
    except (DatasetError, KeyError, OSError):
        return False
    return True


def write(
    folder: Path | str,
    cases: Iterable[Case],
    splits: Mapping[str, Sequence[str]] | None = None,
    dataset: str = "custom",
    times: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a dataset of cases that are there already, such as your own.

    Args:
        folder: is made; an older dataset in it is replaced.
        cases: each with its own name.
        splits: by name, the names of their cases; all cases are "train" by default.
        dataset: what kind it is.
        times: of the targets, as for `case_files.pack`.
        settings: how it was made, for the manifest.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(dataset, settings or {})
    for case in cases:
        if case.name in manifest.cases:
            raise ValueError(f"Two cases are called {case.name!r}; each needs its own name.")
        manifest = manifest.with_case(case.name, store(folder, case.name, case_files.pack(case, times), facts_of(case)))
    given = {"train": list(manifest.cases)} if splits is None else splits
    for split, names in given.items():
        if unknown := [name for name in names if name not in manifest.cases]:
            raise ValueError(f"Split {split!r} names {unknown[:5]}, which are none of the cases.")
    write_manifest(folder, replace(manifest, splits=given))


def store(folder: Path | str, name: str, content: bytes, facts: Mapping[str, Any]) -> Entry:
    """Write the file of a case; the entry is for the manifest."""
    file = file_name(name)
    write_atomically(Path(folder) / file, content)
    return Entry(file, hashlib.sha256(content).hexdigest(), len(content), facts)


def facts_of(case: Case) -> dict[str, Any]:
    """What the manifest tells about every case."""
    return {
        "points": case.mesh.number_of_points,
        "cells": case.mesh.number_of_cells,
        "parameters": {name: value.tolist() for name, value in case.parameters.items()},
    }


def file_name(name: str) -> str:
    """The file of a case."""
    if not re.fullmatch(r"[\w.+-]+", name) or name.startswith("."):
        raise ValueError(
            f"A case cannot be called {name!r}: its name is that of a file. Letters, digits, _ . + - will do."
        )
    return name + case_files.SUFFIX


# The manifest


def read_manifest(folder: Path | str) -> Manifest:
    """The manifest of a dataset."""
    path = Path(folder) / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(
            f"{folder} is no dataset: it has no {MANIFEST}. Make one with `penn generate flow --out {folder}`, or give "
            "the folder that has it."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{path} cannot be read: {error}. Take a good copy, or generate the dataset anew."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DatasetError(f"{path} is no manifest of a dataset: it does not say that its format is {FORMAT!r}.")
    version = content.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise DatasetError(
            f"{path} has version {version!r}, but this pennpde reads up to {FORMAT_VERSION}; install a newer pennpde."
        )
    try:
        cases = {name: Entry(**entry) for name, entry in content["cases"].items()}
        manifest = Manifest(
            content["dataset"], content["settings"], content["splits"], cases, content["failed"], content["about"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path} is no manifest of version {version}: {error}.") from error
    for part in ("settings", "splits", "failed", "about"):
        if not isinstance(content[part], dict):
            raise DatasetError(f"{path} is no manifest of version {version}: {part} is no table.")
    for split, names in manifest.splits.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DatasetError(f"{path}: split {split!r} is no list of the names of cases.")
    for name, entry in cases.items():
        if not isinstance(entry.file, str) or not isinstance(entry.sha256, str):
            raise DatasetError(f"{path}: case {name!r} has no file and sha256.")
        # A manifest may come from anywhere: it must not reach into other folders.
        if entry.file != Path(entry.file).name or entry.file in ("", ".", ".."):
            raise DatasetError(f"{path}: the file of case {name!r} is {entry.file!r}; it must be in the same folder.")
    return manifest


def write_manifest(folder: Path | str, manifest: Manifest) -> None:
    """Replace the manifest of a dataset, all at once."""
    content = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "dataset": manifest.dataset,
        "about": manifest.about,
        "settings": manifest.settings,
        "splits": {split: list(names) for split, names in manifest.splits.items()},
        "cases": {name: asdict(manifest.cases[name]) for name in sorted(manifest.cases)},
        "failed": {name: manifest.failed[name] for name in sorted(manifest.failed)},
    }
    write_atomically(Path(folder) / MANIFEST, (_laid_out(content) + "\n").encode())


def _laid_out(content: Mapping[str, Any]) -> str:
    """JSON with one line for each case, split and setting: a manifest that people read and git compares."""
    blocks = []
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            rows = [f"    {json.dumps(key)}: {json.dumps(item, allow_nan=False)}" for key, item in value.items()]
            text = "{\n" + ",\n".join(rows) + "\n  }"
        else:
            text = json.dumps(value, allow_nan=False)
        blocks.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(blocks) + "\n}"


# Files


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that under its name there is, at all times, all of it or what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_PART}")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror}: {path} ({len(content)} bytes) could not be written. What was complete before is kept; "
            "make room or mend the folder, then start again.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    if os.name != "posix":
        return
    # Only then does the new name outlive a power cut.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path | str) -> None:
    """Remove the parts of files whose writer was killed. Nobody else may be writing into the folder."""
    for path in Path(folder).glob(f".*{_PART}"):
        path.unlink(missing_ok=True)
