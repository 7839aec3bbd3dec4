"""Which of the given paths are runs, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pennpde.data.runs.files import SERIES, FileSource, is_mesh_file
from pennpde.data.runs.foam import FoamSource, is_foam_case
from pennpde.data.runs.quantities import Quantities
from pennpde.data.runs.source import Source

CASE_FILE = "case.toml"


@dataclass(frozen=True)
class Run:
    """A run that was found.

    Attributes:
        name: of its case in the dataset.
        path: the folder of an OpenFOAM case, or a file.
        problem: the problem file of one that is no OpenFOAM case.
        given: the path as the user gave it.
    """

    name: str
    path: str
    problem: str | None
    given: str

    def open(self, quantities: Quantities | None, repair: bool = True) -> Source:
        if self.problem is None:
            return FoamSource(Path(self.path), quantities)
        return FileSource(Path(self.path), Path(self.problem), quantities, repair)


@dataclass(frozen=True)
class Found:
    """Runs, and by path why the others are none."""

    runs: tuple[Run, ...]
    skipped: dict[str, str]


def find_runs(paths: Sequence[Path | str], problem: Path | str | None = None) -> Found:
    """The runs among these paths: `runs/*` also has notes, logs and scripts, which are skipped.

    Args:
        paths: folders of OpenFOAM cases, files, or folders with a file and its problem file.
        problem: the problem file of all files that have none of their own.
    """
    if problem is not None and not Path(problem).is_file():
        raise FileNotFoundError(f"There is no problem file {problem}.")
    found: dict[Path, tuple[Path, Path | None, str]] = {}
    skipped: dict[str, str] = {}
    for given in paths:
        path = Path(given)
        known = _recognised(path, None if problem is None else Path(problem))
        if isinstance(known, str):
            skipped[str(given)] = known
        else:
            found.setdefault(known[0].resolve(), (*known, str(given)))
    names = _names([path for path, _, _ in found.values()])
    runs = [
        Run(name, str(path.resolve()), None if toml is None else str(toml.resolve()), given)
        for name, (path, toml, given) in zip(names, found.values(), strict=True)
    ]
    return Found(tuple(runs), skipped)


def _recognised(path: Path, problem: Path | None) -> tuple[Path, Path | None] | str:
    """A run and its problem file, or why a path is none."""
    if not path.exists():
        return "there is no such file or folder"
    if path.is_dir():
        return _in_folder(path, problem)
    if not path.is_file():
        return "it is a pipe or a device, not a file"
    if path.suffix == ".foam":
        return (path.parent, None) if is_foam_case(path.parent) else "it marks an OpenFOAM case, but its folder is none"
    if not is_mesh_file(path):
        return "it is no mesh or series that can be read"
    toml = _problem_of(path, problem)
    return (
        f"it has no problem file: {path.stem}.toml or {CASE_FILE} next to it, or --case"
        if toml is None
        else (
            path,
            toml,
        )
    )


def _in_folder(path: Path, problem: Path | None) -> tuple[Path, Path | None] | str:
    if is_foam_case(path):
        return path, None
    files = sorted(each for each in path.iterdir() if each.is_file() and is_mesh_file(each))
    # The files of a series that a .pvd or .series file lists are not runs of their own.
    chosen = [each for each in files if each.name.endswith(SERIES)] or files
    toml = _problem_of(chosen[0], problem) if chosen else None
    if not chosen:
        return "it is no OpenFOAM case (no system/controlDict), and has no mesh file or series"
    if toml is None:
        return f"it is no OpenFOAM case, and its {chosen[0].name} has no problem file ({CASE_FILE})"
    if len(chosen) > 1:
        return f"it has {len(chosen)} mesh files ({chosen[0].name}, {chosen[1].name} ...); give them one by one"
    return chosen[0], toml


def _problem_of(path: Path, problem: Path | None) -> Path | None:
    stem = path.name.partition(".")[0]
    beside = [path.with_name(f"{stem}.toml"), path.with_name(CASE_FILE), *([] if problem is None else [problem])]
    return next((each for each in beside if each.is_file()), None)


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, with as many of the parts before it as tell them apart."""
    resolved = [path.resolve() for path in paths]
    parts = [
        (*each.parent.parts[1:], each.name.partition(".")[0] if each.is_file() else each.name) for each in resolved
    ]
    depth = [1] * len(parts)
    while True:
        names = ["_".join(each[-number:]) for each, number in zip(parts, depth, strict=True)]
        names = [re.sub(r"[^\w.+-]+", "_", name).lstrip(".") or "run" for name in names]
        twice = [place for place, name in enumerate(names) if names.count(name) > 1]
        growing = [place for place in twice if depth[place] < len(parts[place])]
        if not twice:
            return names
        if not growing:  # paths that differ only in characters that a name cannot have
            return [f"{name}_{place}" if place in twice else name for place, name in enumerate(names)]
        for place in growing:
            depth[place] += 1
