"""The manifest of a dataset, `manifest.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pennpde.data import shards, vtkhdf
from pennpde.files import read_regular, write_atomically

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
        content_sha256: of its content in the shard, as `shards.write` gives it.
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
    try:
        cases = {name: Entry(**entry) for name, entry in content["cases"].items()}
        manifest = Manifest(
            content["dataset"], content["settings"], content["splits"], cases, content["failed"], content["about"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path} is not a manifest of version {version}: {error}.") from error
    for part in ("settings", "splits", "failed", "about"):
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
    packed = any(entry.block is not None for entry in manifest.cases.values())
    content = {
        "format": FORMAT,
        "version": FORMAT_VERSION if packed else 1,
        "dataset": manifest.dataset,
        "about": manifest.about,
        "settings": manifest.settings,
        "splits": {split: list(names) for split, names in manifest.splits.items()},
        "cases": {name: _entry_content(manifest.cases[name]) for name in sorted(manifest.cases)},
        "failed": {name: manifest.failed[name] for name in sorted(manifest.failed)},
    }
    write_atomically(Path(folder) / MANIFEST, _laid_out(content) + "\n")


def _entry_content(entry: Entry) -> dict[str, Any]:
    content = asdict(entry)
    if entry.block is None:
        del content["block"], content["content_sha256"]
    return content


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


def file_name(name: str) -> str:
    """A case's own file."""
    if not re.fullmatch(r"[\w.+-]+", name) or name.startswith("."):
        raise ValueError(
            f"A case cannot be called {name!r}: its name is that of a file. Use letters, digits and _ . + -."
        )
    if name in shards.RESERVED:
        raise ValueError(f"A case cannot be called {name!r}: VTKHDF has a group of that name.")
    return name + vtkhdf.SUFFIX
