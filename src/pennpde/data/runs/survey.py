"""Which paths are runs, what is known of each before its solution is read, and which belong in one dataset."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pennpde.data.manifest import Content
from pennpde.data.runs.files import SERIES, FileSource, is_mesh_file
from pennpde.data.runs.foam import FoamSource, is_foam_case
from pennpde.data.runs.source import Quantities, RunError, Source
from pennpde.data.runs.splitting import Signature
from pennpde.data.runs.targets import Plan, chosen_times

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


def find_runs(paths: Sequence[Path | str], problem: Path | str | None = None) -> tuple[tuple[Run, ...], dict[str, str]]:
    """The runs among these paths, and why the others are none: `runs/*` also has notes, logs and scripts.

    Args:
        paths: folders of OpenFOAM cases, files, or folders with a file and its problem file.
        problem: the problem file of all files that have none of their own.
    """
    if problem is not None and not Path(problem).is_file():
        raise FileNotFoundError(f"There is no problem file {problem}.")
    found: dict[Path, tuple[Path | None, str]] = {}
    skipped: dict[str, str] = {}
    for given in paths:
        try:
            path, toml = _recognised(Path(given), None if problem is None else Path(problem))
            found.setdefault(path.resolve(), (toml, str(given)))
        except RunError as reason:
            skipped[str(given)] = str(reason)
    runs = [
        Run(name, str(path), None if toml is None else str(toml.resolve()), given)
        for name, (path, (toml, given)) in zip(_names(list(found)), found.items(), strict=True)
    ]
    return tuple(runs), skipped


def _recognised(path: Path, problem: Path | None) -> tuple[Path, Path | None]:
    """A run and its problem file; a RunError where a path is none."""
    if not path.exists():
        raise RunError("there is no such file or folder")
    if path.is_dir():
        return _in_folder(path, problem)
    if not path.is_file():
        raise RunError("it is a pipe or a device, not a file")
    if path.suffix == ".foam":
        if not is_foam_case(path.parent):
            raise RunError("it marks an OpenFOAM case, but its folder is none")
        return path.parent, None
    if not is_mesh_file(path):
        raise RunError("it is no mesh or series that can be read")
    toml = _problem_of(path, problem)
    if toml is None:
        raise RunError(f"it has no problem file: {path.stem}.toml or {CASE_FILE} next to it, or --case")
    return path, toml


def _in_folder(path: Path, problem: Path | None) -> tuple[Path, Path | None]:
    if is_foam_case(path):
        return path, None
    files = sorted(each for each in path.iterdir() if each.is_file() and is_mesh_file(each))
    # The files of a series that a .pvd or .series file lists are not runs of their own.
    chosen = [each for each in files if each.name.endswith(SERIES)] or files
    if not chosen:
        raise RunError("it is no OpenFOAM case (no system/controlDict), and has no mesh file or series")
    toml = _problem_of(chosen[0], problem)
    if toml is None:
        raise RunError(f"it is no OpenFOAM case, and its {chosen[0].name} has no problem file ({CASE_FILE})")
    if len(chosen) > 1:
        raise RunError(
            f"it has {len(chosen)} mesh files ({chosen[0].name}, {chosen[1].name} ...); give them one by one"
        )
    return chosen[0], toml


def _problem_of(path: Path, problem: Path | None) -> Path | None:
    stem = path.name.partition(".")[0]
    beside = [path.with_name(f"{stem}.toml"), path.with_name(CASE_FILE), *([] if problem is None else [problem])]
    return next((each for each in beside if each.is_file()), None)


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, with as many of the parts before it as tell them apart."""
    parts = [(*each.parent.parts[1:], each.name.partition(".")[0] if each.is_file() else each.name) for each in paths]
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


# What is known of a run

_OTHER_UNITS = 100.0
"""Runs whose size differs from the others' by more than this factor are in other units."""


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of a run.

    Attributes:
        content: what its dataset would hold.
        patches: their names, sorted.
        units: by unknown, powers of kg, m, s ...; empty where the run does not say.
        size: the diagonal of its box.
        state: a hash of its files.
    """

    content: Content
    patches: tuple[str, ...]
    units: Mapping[str, tuple[int, ...]]
    size: float
    state: str
    signature: Signature


def survey(run: Run, plan: Plan, known: str | None = None) -> Survey | None:
    """Open a run: times, fields, units, problem; whatever is wrong is an error.

    Args:
        run: is not read in full.
        plan: what is to be made of it.
        known: the hash of its files when it was collected before. None is returned where they have not changed.
    """
    source = run.open(plan.quantities, plan.repair)
    _, times = chosen_times(source, plan)
    if (state := source.state(times)) == known:
        return None
    quantities, units = source.quantities(), source.units()
    case = source.problem()
    takes = set(quantities.parameters) <= case.parameters.keys()
    parameters = [*case.parameters, *(["time"] if plan.times.kind in ("one", "latest") else [])]
    content = Content(
        quantities.network if takes else None,
        {name: values.ndim - 1 for name, values in case.initial.items()},
        tuple(sorted(parameters)),
        plan.times.targets,
        case.space,
    )
    return Survey(
        content,
        tuple(sorted(case.mesh.patches)),
        units,
        float(np.linalg.norm(np.ptp(case.mesh.points.numpy(), axis=0))),
        state,
        Signature.of(case, quantities),
    )


@dataclass(frozen=True)
class Family:
    """What all runs of a dataset have in common, as it is in the manifest.

    Attributes:
        patches: None where runs may have different ones.
        size: the median of the runs' diagonals; None where they may have different units.
    """

    content: Content
    units: Mapping[str, tuple[int, ...]]
    patches: tuple[str, ...] | None
    size: float | None

    @staticmethod
    def of(surveys: Sequence[Survey], mixed: bool) -> Family:
        """That of most of the runs; of the first ones where they are equally many."""
        space = _most([each.content.space for each in surveys])
        alike = [each for each in surveys if each.content.space == space]
        kind = _most([_kind(each.content) for each in alike])
        alike = [each for each in alike if _kind(each.content) == kind]
        content, units = alike[0].content, _most([each.units for each in alike])
        alike = [each for each in alike if each.units == units]
        patches = None if mixed else _most([each.patches for each in alike])
        return Family(content, units, patches, None if mixed else median(each.size for each in alike))

    def refusal(self, survey: Survey) -> str | None:
        """Why a run does not belong to the others; None if it does."""
        content, units = survey.content, survey.units
        if content.space != self.content.space:
            return (
                f"it has {content.space} dimensions, the others have {self.content.space}; collect runs of different "
                "dimensions separately"
            )
        if _kind(content) != _kind(self.content):
            return (
                f"its unknowns are {', '.join(content.unknowns)} with the parameters {', '.join(content.parameters)}, "
                f"the others have {', '.join(self.content.unknowns)} with {', '.join(self.content.parameters)}"
            )
        if units != self.units:
            name = next(name for name in {**units, **self.units} if units.get(name) != self.units.get(name))
            return (
                f"{name} has the units {_words(units.get(name))}, that of the others {_words(self.units.get(name))}; "
                "bring all runs to the same units"
            )
        if self.size is not None and not 1 / _OTHER_UNITS < survey.size / self.size < _OTHER_UNITS:
            return (
                f"it is {survey.size:.3g} large, the others are {self.size:.3g}: it seems to be in other units of "
                "length. Bring all runs to the same units, or allow this with --mixed"
            )
        if self.patches is not None and survey.patches != self.patches:
            return (
                f"its patches are {', '.join(survey.patches)}, those of the others are {', '.join(self.patches)}; "
                "allow this with --mixed, or collect them separately"
            )
        return None

    def to_settings(self) -> dict[str, Any]:
        return {
            **self.content.to_settings(),
            "units": {name: list(powers) for name, powers in self.units.items()},
            "patches": None if self.patches is None else list(self.patches),
            "size": self.size,
        }


def _most(values: Sequence[Any]) -> Any:
    """The commonest; of those the first."""
    return max(values, key=values.count)


def _kind(content: Content) -> tuple[Any, ...]:
    return content.network, dict(content.unknowns), content.parameters


def _words(powers: Sequence[int] | None) -> str:
    if powers is None:
        return "not given"
    names = ("kg", "m", "s", "K", "mol", "A", "cd")
    parts = [name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=False) if power]
    return " ".join(parts) or "none (dimensionless)"
