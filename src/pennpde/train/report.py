"""The report of a training: errors by split next to baselines, learning curve, worst cases.

The baselines can be had without a network: the field at the start, and the nearest training case.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import KDTree
from torch import Tensor, nn

from pennpde import checkpoints
from pennpde.case import Case
from pennpde.data import storage
from pennpde.data.storage import evenly
from pennpde.files import write_atomically, write_json
from pennpde.metrics import relative_l2
from pennpde.penn.predictor import seen_by
from pennpde.pictures import save_figure
from pennpde.train.cases import learned, seen_cases
from pennpde.train.folder import read_log

PAGE, RECORD, CURVE = "report.md", "report.json", "learning_curve.png"
NETWORK, START, NEAREST = "network", "start field", "nearest training case"
_MOST = 100
"""Cases of a split that are measured, evenly chosen; the test cases are all measured."""
_PICTURED = 3
_BOUNDARY_POINTS = 100
"""Of which the shapes of two cases are compared."""
_OF_SHAPE = 5.0
"""Boundaries that lie apart by 2 % of the domain's size count as much as parameters that differ by 10 %."""

Model = Callable[[Case], Mapping[str, Tensor]]
Errors = Mapping[str, float]
"""By unknown."""
Watch = Callable[[Sequence[Any], str], Iterable[Any]]
Kept = tuple[Case, Mapping[str, Tensor]]
"""A case and what was predicted for it."""


@dataclass(frozen=True)
class Report:
    """What a trained network comes to.

    Attributes:
        folder: That it was written to.
        title: Of the network.
        errors: By split, predictor and unknown, mean and largest relative L2 error over the cases.
        cases: By split, how many cases were measured.
        worst: Names of the cases with the largest errors, with the file names of their pictures.
        judged: The split that the worst cases are of.
    """

    folder: Path
    title: str
    errors: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
    cases: Mapping[str, int]
    worst: Mapping[str, str]
    judged: str

    @property
    def path(self) -> Path:
        return self.folder / PAGE

    def to_plain(self) -> dict[str, Any]:
        return {
            "kind": "report",
            "title": self.title,
            "cases": dict(self.cases),
            "relative_l2": self.errors,
            "worst": dict(self.worst),
            "worst_of": self.judged,
        }

    def lines(self) -> list[str]:
        """The errors as a Markdown table."""
        rows = []
        for split, by_predictor in self.errors.items():
            cases = f"{split} ({self.cases[split]} case{'s' * (self.cases[split] != 1)})"
            for predictor, by_unknown in by_predictor.items():
                rows = rows or [
                    ["relative L2 error, mean (largest) over cases", *by_unknown],
                    ["---"] * (1 + len(by_unknown)),
                ]
                numbers = [f"{each['mean']:.2%} ({each['worst']:.2%})" for each in by_unknown.values()]
                rows.append([f"{cases}: {predictor}", *numbers])
        return [f"| {' | '.join(row)} |" for row in rows]

    def markdown(self) -> str:
        parts = [
            f"# {self.title}",
            "\n".join(self.lines()),
            "The start field and the nearest training case need no network. A network that is not clearly better than "
            "both has learned little.",
            "## Learning curve",
            f"![Learning curve]({CURVE})",
        ]
        if self.worst:
            pictures = [f"![{name}]({file})" for name, file in self.worst.items()]
            parts += [f"## Largest errors of split {self.judged}", "\n\n".join(pictures)]
        return "\n\n".join(parts) + "\n"


def write_report(
    folder: str | Path, data: str | Path, *, watch: Watch | None = None, seconds: float = math.inf
) -> Report:
    """Measure the network of a folder on the dataset that it was trained on.

    Writes report.md, report.json and pictures next to it.

    Args:
        folder: Of the network.
        data: Of the dataset.
        watch: Wraps cases, for progress bars.
        seconds: After which no further case is measured; of each split one is.
    """
    from pennpde.pictures import draw_case

    begin, folder = time.monotonic(), Path(folder)
    model = checkpoints.load(folder)
    config = checkpoints.config_of(model)
    assert config is not None
    manifest = storage.read_manifest(data)
    splits = {
        split: [
            case
            for file in storage.read_files(data, split)
            for case in learned(model, file, frames=manifest.has_frames)
        ]
        for split in ("train", "validation", "test")
        if manifest.splits.get(split) and manifest.names(split)
    }
    train = seen_cases(model, splits.get("train", []))
    judged = next(split for split in ("test", "validation", "train") if split in splits)
    errors: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    measured: dict[str, int] = {}
    kept: list[Kept] = []
    worst_first: list[int] = []
    for number, (split, cases) in enumerate(splits.items(), 1):
        some = cases if split == "test" else evenly(cases, _MOST)
        if math.isfinite(seconds):  # what there is time for is a fair sample
            some = random.Random(0).sample(some, len(some))
        shown = some if watch is None else watch(some, f"measuring {split}")
        until = begin + seconds * number / len(splits)
        by_case = _relative_errors(model, _until(shown, until), kept if split == judged else None)
        some = some[: len(by_case)]
        measured[split] = len(some)
        errors[split] = {NETWORK: _summary(by_case)}
        if split == judged:
            largest = [_worst_if_nan(max(each.values())) for each in by_case]
            worst_first = sorted(range(len(largest)), key=lambda number: (largest[number], number), reverse=True)
        for name, baseline in _baselines(train, split).items():
            errors[split][name] = _summary(_relative_errors(baseline, seen_cases(model, some)))
    _draw_curve(folder)
    worst = {}
    for number in worst_first:
        case, fields = kept[number]
        if case.name not in worst and len(worst) < _PICTURED:  # a case has several moments
            worst[case.name] = f"worst_{len(worst) + 1}.png"
            draw_case(case, fields, folder / worst[case.name])
    report = Report(folder, config.title or folder.name, errors, measured, worst, judged)
    write_json(folder / RECORD, report.to_plain())
    write_atomically(report.path, report.markdown())
    return report


def _until(cases: Iterable[Any], deadline: float) -> Iterable[Any]:
    """The first case, and those after it that there is time for."""
    for case in cases:
        yield case
        if time.monotonic() > deadline:
            return


@torch.no_grad()
def _relative_errors(model: Model, cases: Iterable[Case], kept: list[Kept] | None = None) -> list[Errors]:
    """Of a network or baseline, case by case, in the network's units; of each case it keeps the fields."""
    dtype = next((each.dtype for each in model.parameters()), None) if isinstance(model, nn.Module) else torch.float64
    found = []
    for case in cases:
        seen = seen_by(model, replace(case))  # a copy: the operators of all cases would fill the memory
        prepared = getattr(model, "adapted", lambda case: case)(seen.case).to(dtype)
        fields = {name: values.double() for name, values in model(prepared).items()}
        targets = seen.case.targets
        found.append({name: float(relative_l2(fields[name], target.double())) for name, target in targets.items()})
        if kept is not None:
            kept.append((case, seen.physical(fields)))
    return found


def _worst_if_nan(error: float) -> float:
    """What is not a number is the largest error."""
    return math.inf if math.isnan(error) else error


def _summary(errors: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {"mean": mean(each[name] for each in errors), "worst": max(_worst_if_nan(each[name]) for each in errors)}
        for name in errors[0]
    }


def _draw_curve(folder: Path) -> None:
    """Loss and validation error against steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = read_log(folder)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for column, label in (("loss", "training loss"), ("validation", "validation error")):
        points = [(int(row["step"]), float(row[column])) for row in rows if row.get(column)]
        points = [(step, value) for step, value in points if math.isfinite(value) and value > 0]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 30 else "")
    axes.set(xlabel="step", ylabel="error, in units of the loss")
    if axes.lines:
        axes.set_yscale("log")
        axes.legend()
    axes.grid(alpha=0.3)
    save_figure(figure, folder / CURVE, dots_per_inch=120)


# Baselines


def _baselines(train: Sequence[Case], split: str) -> dict[str, Model]:
    if not train or any(name not in case.initial for case in train for name in case.targets):
        return {}
    # A training case is its own nearest one: leave out the baseline that would look it up.
    nearest: dict[str, Model] = {} if split == "train" else {NEAREST: NearestCase(train)}
    return {START: start, **nearest}


def start(case: Case) -> dict[str, Tensor]:
    """The fields at the start with the prescribed values in place, at every output time."""
    found = {}
    for name, target in case.targets.items():
        values = case.dirichlet[name].apply(case.initial[name])
        found[name] = values[..., None].expand_as(target) if target.ndim > values.ndim else values
    return found


@dataclass(frozen=True, eq=False)
class NearestCase:
    """The training case that is most alike, its fields carried over to the points of the case that is wanted.

    Alike are cases whose boundaries lie close to each other and whose parameters and prescribed values are about the
    same. Both are taken from their lower left corners on.

    Attributes:
        train: The cases to look among, as the network sees them.
    """

    train: Sequence[Case]

    def __call__(self, case: Case) -> dict[str, Tensor]:
        others = [place for place, each in enumerate(self.train) if each.name != case.name] or [0]
        outline, numbers = _outline(case), _numbers(case)
        distances = [
            _OF_SHAPE * _shape_distance(outline, self._known[place][0]) + _difference(numbers, self._known[place][1])
            for place in others
        ]
        known = self.train[others[int(np.argmin(distances))]]
        corners = known.space + 1
        distances, nearest = KDTree(_from_corner(known)).query(_from_corner(case), k=corners)
        weights = 1 / np.maximum(distances, 1e-12)
        weights = torch.from_numpy(weights / weights.sum(axis=1, keepdims=True))
        found = {}
        for name in case.targets:
            values = known.targets[name].double()[torch.from_numpy(nearest)]
            carried = (weights.reshape(*weights.shape, *[1] * (values.ndim - 2)) * values).sum(dim=1)
            found[name] = (
                case.dirichlet[name].apply(carried.to(case.initial[name])) if name in case.initial else carried
            )
        return found

    @cached_property
    def _known(self) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
        return [(_outline(each), _numbers(each)) for each in self.train]


def _from_corner(case: Case) -> Float[np.ndarray, "points space"]:
    points = case.mesh.points.double().numpy()
    return points - points.min(axis=0)


def _outline(case: Case) -> Float[np.ndarray, "some space"]:
    boundary = np.asarray(case.mesh.boundary_points)
    return _from_corner(case)[boundary[:: max(1, len(boundary) // _BOUNDARY_POINTS)]]


def _shape_distance(one: np.ndarray, other: np.ndarray) -> float:
    """How far the boundaries lie apart on average, over the size of the domain."""
    if one.shape[1] != other.shape[1]:
        return np.inf
    size = max(float(np.ptp(one, axis=0).max()), float(np.ptp(other, axis=0).max()), 1e-300)
    apart = KDTree(one).query(other)[0].mean() + KDTree(other).query(one)[0].mean()
    return float(apart) / 2 / size


def _numbers(case: Case) -> dict[str, np.ndarray]:
    numbers = {name: value.double().reshape(-1).numpy() for name, value in case.parameters.items()}
    for name, condition in case.dirichlet.items():
        numbers[f"prescribed {name}"] = np.array([float(condition.values.abs().max())])
    return numbers


def _difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The relative difference of all numbers, summed up."""
    total = 0.0
    for name in one.keys() & other.keys():
        for mine, theirs in zip(one[name], other[name], strict=False):
            largest = max(abs(mine), abs(theirs))
            if mine != theirs:
                total += abs(mine - theirs) / largest if np.isfinite(largest) else 1.0
    return total
