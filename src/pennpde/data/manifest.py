"""What a dataset holds, as its manifest says: cases with their files and hashes, splits, and what networks learn."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from typing import Any, Literal, get_args

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
        content_sha256: of its content in the shard, see `storage.Shard`.
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


# Facts of the cases

_TOLD_ELSEWHERE = {"points", "cells", "parameters", "fingerprints", "source", "state", "flux", "ranges"}
"""What is measured on the cases themselves, and what differs from case to case by its nature."""
_MOST_WORDS = 30


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


# Related cases
#
# Some cases are one problem in another guise, so that a network trained on one has seen the other. In type C of the
# flow dataset `c_0.20_0.70` is the mirror image of `c_0.70_0.20`, and the networks are equivariant under reflections.
# In advection-diffusion the field is proportional to the prescribed temperature, so cases with the same velocity and
# diffusivity are multiples of one another: all test cases of the lattice are multiples of a training case.


def problem(dataset: str, name: str) -> str:
    """What a case has in common with its relatives and with no other case."""
    parts = name.split("_")
    if dataset == "flow" and parts[0] == "c":
        return "_".join(["c", *sorted(parts[1:])])
    if dataset == "advection-diffusion":
        return "_".join(parts[:2])  # without the temperature
    return name


def unrelated_names(manifest: Manifest, split: str, seen: Sequence[str] = ("train", "validation")) -> list[str]:
    """The cases of a split that have no relative in the splits that a training sees."""
    known = {problem(manifest.dataset, name) for other in seen for name in manifest.splits.get(other, ())}
    return [name for name in manifest.names(split) if problem(manifest.dataset, name) not in known]


def second_test_set(manifest: Manifest, *, unrelated: bool = False) -> str:
    """What a record calls cases other than those of the paper's test set; empty for these."""
    if manifest.settings.get("off_lattice"):
        return "parameters off the lattice"
    return "without relatives in training" if unrelated else ""
