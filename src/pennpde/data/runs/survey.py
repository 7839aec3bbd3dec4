"""Which paths are runs, what is known of each before its solution is read, and which belong in one dataset."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from pennpde.case import Case
from pennpde.data.runs.files import SERIES, FileSource, is_mesh_file
from pennpde.data.runs.foam import FoamSource, is_foam_case
from pennpde.data.runs.source import Quantities, RunError, Source
from pennpde.data.runs.targets import Plan, chosen_times
from pennpde.data.storage import Content
from pennpde.mesh.cells import mean_rows

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
        if is_foam_case(path):
            return path, None
        files = sorted(each for each in path.iterdir() if each.is_file() and is_mesh_file(each))
        # The files of a series that a .pvd or .series file lists are not runs of their own.
        files = [each for each in files if each.name.endswith(SERIES)] or files
        if not files:
            raise RunError("it is no OpenFOAM case (no system/controlDict), and has no mesh file or series")
        if len(files) > 1:
            names = f"{files[0].name}, {files[1].name} ..."
            raise RunError(f"it is no OpenFOAM case and has {len(files)} mesh files ({names}); give them one by one")
        path = files[0]
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


# Training, validation and test; a run has no near twin in another split.
#
# The networks are equivariant, so a run that is another one turned, mirrored or, for a flow, scaled is the same run.


SPLITS = ("train", "validation", "test")
_FULL_ENOUGH = 0.7
"""Share of the wanted number of cases with which a split is accepted rather than its twins be parted."""


@dataclass(frozen=True)
class Shares:
    """Of all runs, how many are held out."""

    validation: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.validation < 1 and 0 <= self.test < 1 and self.validation + self.test < 1):
            raise ValueError(
                f"The shares of validation and test are {self.validation:g} and {self.test:g}; both must be 0 or more, "
                "and together less than 1."
            )

    def numbers(self, cases: int) -> tuple[int, int]:
        """How many cases go into validation and test: at least one each where there are three or more."""
        test, validation = round(self.test * cases), round(self.validation * cases)
        if cases >= 2 and self.test > 0:
            test = max(1, test)
        if cases >= 3 and self.validation > 0:
            validation = max(1, validation)
        return validation, test


@dataclass(frozen=True)
class Division:
    """Which runs are in which split.

    Attributes:
        nearest: the smallest distance between runs of different splits; below 1 they are near twins. None: one split.
        groups: how many groups of near twins there are among the runs.
        closest: the names of these two runs.
    """

    splits: Mapping[str, Sequence[str]]
    nearest: float | None
    groups: int
    closest: tuple[str, ...] = ()


def divide(signatures: Mapping[str, Signature], shares: Shares, known: Mapping[str, str] | None = None) -> Division:
    """Split runs.

    Groups are cut at the largest distance up to 1 at which validation and test can be filled. A family in which every
    run has a neighbour nearer than that is one chain of near twins; it has to be cut somewhere, and the report says so.

    Args:
        signatures: by name of the run.
        shares: how many are held out, and the seed.
        known: by name, the split of runs that have been divided before; it is kept.
    """
    known = dict(known or {})
    names = list(signatures)
    apart = distances([signatures[name] for name in names])
    validation, test = shares.numbers(len(names))
    wanted: dict[str, int] = {"validation": validation, "test": test}
    levels = [1.0, *sorted({float(each) for each in apart[apart < 1.0]} - {0.0}, reverse=True)]
    best: dict[str, str] = {}
    groups: list[list[int]] = []
    for level in levels:
        groups = _groups(apart, level)
        best = _assigned(groups, names, known, wanted, shares.seed)
        count = Counter(best.values())
        if all(count[split] >= _FULL_ENOUGH * number for split, number in wanted.items()):
            break
    parted = [
        (float(apart[one, other]), one, other)
        for one, other in combinations(range(len(names)), 2)
        if best[names[one]] != best[names[other]]
    ]
    nearest, *closest = min(parted, default=(None,))
    splits = {split: [name for name in names if best[name] == split] for split in SPLITS}
    return Division(splits, nearest, len(groups), tuple(names[place] for place in closest))


def distances(signatures: Sequence[Signature]) -> Float[np.ndarray, "runs runs"]:
    """Between all runs."""
    found = np.zeros((len(signatures), len(signatures)))
    for one, other in combinations(range(len(signatures)), 2):
        found[one, other] = found[other, one] = distance(signatures[one], signatures[other])
    return found


def _groups(apart: np.ndarray, level: float) -> list[list[int]]:
    """Runs that are linked by distances below a level."""
    number, of_run = connected_components(csr_array((apart < level).astype(np.int8)), directed=False)
    return [np.flatnonzero(of_run == group).tolist() for group in range(number)]


def _assigned(
    groups: Sequence[Sequence[int]],
    names: Sequence[str],
    known: Mapping[str, str],
    wanted: Mapping[str, int],
    seed: int,
) -> dict[str, str]:
    left = {split: number - sum(each == split for each in known.values()) for split, number in wanted.items()}
    found = dict(known)
    order = np.random.default_rng(seed).permutation(len(groups))
    # Large groups last: they fill the training set, and small ones leave no gap in the others.
    for group in sorted((groups[place] for place in order), key=lambda group: len(group) > 1):
        members: list[str] = [names[int(place)] for place in group]
        new = [name for name in members if name not in known]
        before = Counter(known[name] for name in members if name in known)
        if before:
            split = before.most_common(1)[0][0]
        else:
            split = next((each for each in ("test", "validation") if 0 < len(new) <= left[each]), "train")
        if split in left:
            left[split] -= len(new)
        found.update(dict.fromkeys(new, split))
    return found


# How far runs are from each other

SHAPE_SCALE, PARAMETER_SCALE, VALUE_SCALE = 0.03, 0.15, 0.1
"""Boundaries that differ by this mean distance (in reference lengths), parameters by this factor, or prescribed values
by this share, make different runs."""
_SAMPLES = 600
_LENGTH_OF_BOX = 0.1
"""The reference length of runs without an inlet, as a share of the diagonal."""
_FURTHEST = 4.0
"""Distances beyond this are not worked out."""


@dataclass(frozen=True, eq=False)
class Signature:
    """What tells runs apart, in reference units.

    Attributes:
        boundary: places all over it, around their middle.
        values: what is prescribed there: of a scalar its value, of a vector its normal and its tangential part.
        unknowns: the unknown that each column belongs to.
        parameters: by name, its logarithm, or of a vector its length's.
        axes: main axes of the boundary, as rows.
    """

    boundary: Float[np.ndarray, "samples space"]
    values: Float[np.ndarray, "samples columns"]
    unknowns: tuple[str, ...]
    parameters: dict[str, float]
    axes: Float[np.ndarray, "space space"]

    @staticmethod
    def of(case: Case, quantities: Quantities) -> Signature:
        """Of a case in its own units."""
        units = quantities.units(case)
        diagonal = float(np.linalg.norm(np.ptp(case.mesh.points.numpy(), axis=0)))
        length = _LENGTH_OF_BOX * diagonal
        if units is not None:
            case, length = units.dimensionless(case), 1.0
        places, facets = _sampled(case)
        columns = [(name, each) for name in sorted(case.initial) for each in _prescribed(case, name, facets)]
        around = places - places.mean(axis=0)
        _, axes = np.linalg.eigh(around.T @ around)
        parameters = {name: _logarithm(value.numpy()) for name, value in sorted(case.parameters.items())}
        return Signature(
            around / length,
            np.stack([each for _, each in columns], axis=1),
            tuple(name for name, _ in columns),
            parameters,
            axes.T,
        )

    @property
    def extent(self) -> Float[np.ndarray, " space"]:
        """Along the main axes."""
        return np.ptp(self.boundary @ self.axes.T, axis=0)

    def turned(self, rotation: Float[np.ndarray, "space space"]) -> Signature:
        return replace(self, boundary=self.boundary @ rotation.T)


def distance(one: Signature, other: Signature) -> float:
    """Below 1 for near twins: the largest of the differences of parameters, shape and conditions, in their scales."""
    if one.parameters.keys() != other.parameters.keys() or one.unknowns != other.unknowns:
        return _FURTHEST
    apart = max(
        (abs(value - other.parameters[name]) / PARAMETER_SCALE for name, value in one.parameters.items()), default=0.0
    )
    # Main axes keep their lengths under rotation; half of the difference is there at least.
    sizes = float(np.abs(one.extent - other.extent).max()) / SHAPE_SCALE / 8
    if max(apart, sizes) >= _FURTHEST:
        return _FURTHEST
    if one.boundary.shape == other.boundary.shape and np.array_equal(one.boundary, other.boundary):
        return min(_FURTHEST, max(apart, _change(one, other, np.arange(len(one.boundary)))))
    return min(_FURTHEST, max(apart, min(_apart(one, turned) for turned in _ways(one, other))))


def _ways(one: Signature, other: Signature) -> list[Signature]:
    """The other one as it is, and turned and mirrored so that the main axes agree."""
    space = len(one.axes)
    flips = [np.diag(signs) for signs in product((1.0, -1.0), repeat=space)]
    return [other, *(other.turned(one.axes.T @ flip @ other.axes) for flip in flips)]


def _apart(one: Signature, other: Signature) -> float:
    to_other, there = KDTree(other.boundary).query(one.boundary)
    back = KDTree(one.boundary).query(other.boundary)[0]
    shape = 0.5 * (float(to_other.mean()) + float(back.mean())) / SHAPE_SCALE
    return max(shape, _change(one, other, np.asarray(there)))


def _change(one: Signature, other: Signature, there: np.ndarray) -> float:
    largest = 0.0
    for name in dict.fromkeys(one.unknowns):
        columns = [place for place, unknown in enumerate(one.unknowns) if unknown == name]
        mine, theirs = one.values[:, columns], other.values[:, columns]
        size = max(float(np.abs(mine).max()), float(np.abs(theirs).max()))
        # Over the places where something is prescribed at all: an inlet is a small part of the boundary.
        held = max(1, int((np.abs(mine) > 0).any(axis=1).sum()))
        if size > 0:
            largest = max(largest, float(np.abs(mine - theirs[there]).sum()) / held / size)
    return largest / VALUE_SCALE


def _sampled(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Places spread evenly over the boundary, and the facet that each is on."""
    mesh = case.mesh
    facets, positions = mesh.facets, mesh.points.numpy()
    ends = np.concatenate([[0.0], np.cumsum(mesh.facet_areas.norm(dim=1).numpy())])
    places = (np.arange(_SAMPLES) + 0.5) / _SAMPLES * ends[-1]
    chosen = np.clip(np.searchsorted(ends, places) - 1, 0, len(facets) - 1)
    if mesh.space == 2:
        edges = facets.connectivity.reshape(-1, 2)[chosen]
        share = ((places - ends[chosen]) / (ends[chosen + 1] - ends[chosen]))[:, None]
        return (1 - share) * positions[edges[:, 0]] + share * positions[edges[:, 1]], chosen
    return mean_rows(positions[facets.connectivity], facets.offsets)[chosen], chosen


def _prescribed(case: Case, name: str, facets: np.ndarray) -> list[np.ndarray]:
    condition = case.dirichlet[name]
    held = case.mesh.facets.within(condition.mask.numpy())[facets]
    flat = condition.values.numpy().reshape(len(condition.values), -1)
    means = mean_rows(flat[case.mesh.facets.connectivity], case.mesh.facets.offsets)
    values = np.where(held[:, None], means[facets], 0.0)
    if condition.values.ndim == 1:
        return [values[:, 0]]
    if condition.values.ndim > 2:
        return [np.linalg.norm(values, axis=1)]
    normals = case.mesh.facet_normals.numpy()[facets]
    across = (values * normals).sum(axis=1)
    return [across, np.linalg.norm(values - across[:, None] * normals, axis=1)]


def _logarithm(value: np.ndarray) -> float:
    size = float(np.linalg.norm(value))
    return float(np.log(size)) if size > 0 else -99.0
