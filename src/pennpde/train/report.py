"""The report of a training: errors by split next to what can be had without a network, learning curve, worst cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from torch import Tensor, nn

from pennpde import checkpoints
from pennpde.case import Case
from pennpde.data import storage
from pennpde.files import write_atomically, write_json
from pennpde.pictures import save_figure
from pennpde.train import log as journal
from pennpde.train.baselines import NearestCase, start
from pennpde.train.evaluation import Model, evaluate
from pennpde.train.examples import learned, seen_cases
from pennpde.train.order import evenly

PAGE, RECORD, CURVE = "report.md", "report.json", "learning_curve.png"
NETWORK, START, NEAREST = "network", "start field", "nearest training case"
_MOST = 100
"""Cases of a split that are measured, evenly chosen; the test cases are all measured."""
_PICTURED = 3

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
        """The table for a terminal."""
        rows = [["relative L2 error", *self._columns()], *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

    def markdown(self) -> str:
        columns = self._columns()
        table = [
            f"| relative L2 error, mean (largest) over cases | {' | '.join(columns)} |",
            f"| --- |{' --- |' * len(columns)}",
            *(f"| {' | '.join(row)} |" for row in self._rows()),
        ]
        pictures = [f"![{name}]({file})" for name, file in self.worst.items()]
        parts = [
            f"# {self.title}",
            "\n".join(table),
            "The start field and the nearest training case need no network. A network that is not clearly better than "
            "both has learned little.",
            "## Learning curve",
            f"![Learning curve]({CURVE})",
        ]
        if pictures:
            parts += [f"## Largest errors of split {self.judged}", "\n\n".join(pictures)]
        return "\n\n".join(parts) + "\n"

    def _columns(self) -> list[str]:
        first = next(iter(self.errors.values()))
        return list(next(iter(first.values())))

    def _rows(self) -> list[list[str]]:
        rows = []
        for split, by_predictor in self.errors.items():
            for predictor, by_unknown in by_predictor.items():
                numbers = [f"{each['mean']:.2%} ({each['worst']:.2%})" for each in by_unknown.values()]
                cases = self.cases[split]
                rows.append([f"{split} ({cases} case{'s' * (cases != 1)}): {predictor}", *numbers])
        return rows


def write_report(folder: str | Path, data: str | Path, *, watch: Watch | None = None) -> Report:
    """Measure the network of a folder on a dataset, and write report.md, report.json and pictures next to it.

    Args:
        folder: Of the trained network.
        data: Folder of the dataset that it was trained on.
        watch: Wraps cases, for progress bars.
    """
    folder = Path(folder)
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
    errors: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    measured: dict[str, int] = {}
    kept: list[Kept] = []
    judged = next(split for split in ("test", "validation", "train") if split in splits)
    ranked: list[tuple[float, int]] = []
    for split, cases in splits.items():
        some = cases if split == "test" else evenly(cases, _MOST)
        measured[split] = len(some)
        found, by_case = _measured(model, some, split, watch, kept if split == judged else None)
        errors[split] = {NETWORK: found}
        if split == judged:
            ranked = sorted(by_case, reverse=True)
        for name, floor in _floors(train, split).items():
            errors[split][name] = _of_floor(floor, seen_cases(model, some))
    _draw_curve(folder)
    worst = {}
    for _, number in ranked:
        case, fields = kept[number]
        if case.name not in worst and len(worst) < _PICTURED:  # a case has several moments
            worst[case.name] = f"worst_{len(worst) + 1}.png"
            _draw_case(case, fields, folder / worst[case.name])
    report = Report(folder, config.title or folder.name, errors, measured, worst, judged)
    write_json(folder / RECORD, report.to_plain())
    write_atomically(report.path, report.markdown())
    return report


def _measured(
    model: nn.Module,
    cases: Sequence[Case],
    split: str,
    watch: Watch | None,
    kept: list[Kept] | None,
) -> tuple[dict[str, dict[str, float]], list[tuple[float, int]]]:
    def keep(case: Case, fields: Mapping[str, Tensor]) -> None:
        if kept is not None:
            kept.append((case, fields))

    progress = (lambda them: watch(them, f"measuring {split}")) if watch is not None else None
    found = evaluate(model, cases, threads=None, watch=progress, keep=keep)
    by_case = [(_ordered(max(record.relative.values())), number) for number, record in enumerate(found.records)]
    return _summary([record.relative for record in found.records]), by_case


def _of_floor(floor: Model, cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    return _summary([record.relative for record in evaluate(floor, cases, threads=None).records])


def _floors(train: Sequence[Case], split: str) -> dict[str, Model]:
    unknown = all(name in case.initial for case in train for name in case.targets)
    if not train or not unknown:
        return {}
    # A training case is its own nearest one: leave out the floor that would look it up.
    nearest: dict[str, Model] = {} if split == "train" else {NEAREST: NearestCase(train)}
    return {START: start, **nearest}


def _summary(errors: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {"mean": mean(each[name] for each in errors), "worst": max(_ordered(each[name]) for each in errors)}
        for name in errors[0]
    }


def _ordered(error: float) -> float:
    """What is not a number is the largest error."""
    return math.inf if math.isnan(error) else error


def _draw_curve(folder: Path) -> None:
    """Loss and validation error against steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = journal.read(folder)
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


def _draw_case(case: Case, fields: Mapping[str, Tensor], path: Path) -> None:
    from pennpde.pictures import draw_case

    draw_case(case, fields, path)
