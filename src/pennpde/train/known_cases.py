"""Cases with reference solutions, from which a calibration learns."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pennpde import plugins
from pennpde.data import storage
from pennpde.data.vtkhdf import CaseFile
from pennpde.penn import STEADY
from pennpde.train.calibrate import Known, of_case


@dataclass(frozen=True)
class Reader:
    """What reads the cases of a kind of folder.

    Attributes:
        accepts: Whether a folder is of this kind.
        splits: The names of its splits.
        read: The cases of a split, or of all, of which every so many-th is taken.
    """

    accepts: Callable[[Path], bool]
    splits: Callable[[Path], list[str]]
    read: Callable[[Path, str | None, int], Iterator[Known]]


def register(reader: Reader) -> None:
    """Let calibrations read another kind of folder."""
    _READERS.append(reader)


def reader_of(folder: Path) -> Reader:
    """The reader of a folder; a dataset by default, which says what it misses."""
    if not (folder / storage.MANIFEST).is_file():
        plugins.load_installed()
    return next((reader for reader in _READERS if reader.accepts(folder)), _READERS[0])


def read_dataset(
    folder: Path, split: str | None = None, every: int = 1, without: Container[str] = ()
) -> Iterator[Known]:
    """The cases of a dataset, one by one.

    Args:
        folder: Of the dataset.
        split: Only these; all by default.
        every: Only every so many-th.
        without: Names of cases that are not wanted, such as those that were measured before; they are not read.
    """
    manifest = storage.read_manifest(folder)
    names = [name for name in manifest.names(split) if name in manifest.cases]
    for name in names[::every]:
        if name in without:
            continue
        facts = manifest.cases[name].facts
        yield known(storage.read_file(folder, name, manifest), str(facts.get("family", "")), facts)


def known(file: CaseFile, family: str, facts: Mapping[str, Any]) -> Known:
    """A case with what its facts say about its reference: at which times it is mesh-converged."""
    pairs = [*zip(file.times, facts.get("determined", ()), strict=False), (STEADY, facts.get("steady_determined"))]
    determined = {time: each for time, each in pairs if each is not None}
    return replace(of_case(file.case, file.times, family), determined=determined)


_READERS = [
    Reader(
        accepts=lambda folder: (folder / storage.MANIFEST).is_file(),
        splits=lambda folder: list(storage.read_manifest(folder).splits),
        read=read_dataset,
    )
]
