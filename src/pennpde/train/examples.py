"""The cases of a training: which targets a network learns, and that none of them is what it is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from pennpde.case import Case
from pennpde.case.moments import FOREVER, moments, number_of_moments, without_steady_state
from pennpde.data import storage
from pennpde.data.storage import dataset_hash
from pennpde.data.vtkhdf import CaseFile
from pennpde.penn.physics import Physics
from pennpde.penn.predictor import seen_by
from pennpde.train.rows import Experiment

Cases = Mapping[str, Sequence[Case]]
_SAME_MOMENT = 0.02
"""Relative difference of two times that count as the same."""


@dataclass(frozen=True, eq=False)
class Examples:
    """What a training sees.

    Attributes:
        splits: Cases for "train" and "validation", each with the targets that the network learns.
        facts: Kind, hash and numbers of cases, for the record.
    """

    splits: Mapping[str, list[Case]]
    facts: Mapping[str, Any]

    @property
    def train(self) -> list[Case]:
        return self.splits["train"]

    @property
    def validation(self) -> list[Case]:
        return self.splits["validation"]


def examples(experiment: Experiment, model: nn.Module, data: str | Path | Cases, also: str | Path | None) -> Examples:
    """Read what an experiment trains on.

    Args:
        experiment: What is trained.
        model: The network, which says at which times it predicts.
        data: Folder of the dataset, or its cases by split.
        also: Folder of a dataset whose training cases are added.
    """
    if isinstance(data, Mapping):
        splits = {split: list(data.get(split, ())) for split in ("train", "validation")}
        facts: dict[str, Any] = {"kind": experiment.dataset}
    else:
        splits = {split: _read(experiment, model, data, split) for split in ("train", "validation")}
        facts = {"kind": experiment.dataset, "hash": dataset_hash(data)}
    if not splits["train"]:
        where = "The data" if isinstance(data, Mapping) else str(data)
        raise ValueError(f"{where} has no training cases: a dataset to train on has a split 'train'. {_splits(data)}")
    if also is not None:
        _refuse_leaks(data, also)
        more = _read(experiment, model, also, "train")
        splits["train"] = splits["train"] + more
        facts["also"] = {"hash": dataset_hash(also), "train": len(more)}
    return Examples(splits, facts | {split: len(cases) for split, cases in splits.items()})


def learned(model: nn.Module, file: CaseFile, *, frames: bool = False) -> list[Case]:
    """The case with the targets that a network learns; one case for each moment where it takes any time.

    Args:
        model: A network that does not say at which times it predicts learns all of them.
        file: The case with its times.
        frames: Whether the targets are a run from its start on, of which such a network learns the end.
    """
    case = file.case
    if getattr(model, "takes_times", False):
        found = moments(case, file.times)
        # To march until nothing changes takes many steps, too many to learn from where there are moments.
        return [each.with_parameter for each in found if not each.is_steady or len(found) == 1]
    times = tuple(getattr(model, "output_times", ()))
    if not times and not frames:
        return [without_steady_state(case)]
    if len(times) > 1 and number_of_moments(case) == len(times):
        return [without_steady_state(case)]
    found = moments(case, file.times)
    if not found or (number_of_moments(case) is None and len(found) == 1 and not found[0].is_steady):
        return [case]  # such as a gradient, or one moment: as it is
    return [found[_nearest([each.time for each in found], times, _time_unit(model, case))].case]


def judged(model: nn.Module, file: CaseFile, *, frames: bool = False) -> Case | None:
    """The case with the targets that a network of fixed output times predicts; None where it has no such moment."""
    times = tuple(getattr(model, "output_times", ()))
    found = moments(file.case, file.times)
    takes_times = getattr(model, "takes_times", False)
    if times and not takes_times and len(found) > 1 and number_of_moments(file.case) != len(times):
        unit = _time_unit(model, file.case)
        if _matching([each.time for each in found], times, unit) is None:
            return None
    return learned(model, file, frames=frames)[0]


def known_times(model: nn.Module, files: Sequence[CaseFile]) -> list[float]:
    """All times of the targets, in the network's units."""
    return sorted(
        {
            float(f"{each.time / _time_unit(model, file.case):.3g}")
            for file in files
            for each in moments(file.case, file.times)
            if each.time is not None
        }
    )


def learned_time(model: nn.Module, file: CaseFile) -> float | None:
    """The time of the single target that a network learns, in the network's units; None where there is none."""
    found = moments(file.case, file.times)
    if not found:
        return None
    unit = _time_unit(model, file.case)
    time = found[_nearest([each.time for each in found], tuple(getattr(model, "output_times", ())), unit)].time
    return None if time is None else time / unit


def _nearest(known: Sequence[float | None], wanted: Sequence[float], unit: float) -> int:
    """The moment that a network predicts; where there is none, the last, and the steady state only if it is alone."""
    found = _matching(known, wanted, unit)
    if found is not None:
        return found
    return max((number for number, time in enumerate(known) if time != FOREVER), default=0)


def _matching(known: Sequence[float | None], wanted: Sequence[float], unit: float) -> int | None:
    for number, time in enumerate(known):
        if time is None or not wanted:
            continue
        is_same = time == wanted[-1] if FOREVER in (time, wanted[-1]) else False
        if is_same or abs(time / unit - wanted[-1]) <= _SAME_MOMENT * wanted[-1] < FOREVER:
            return number
    return None


def _time_unit(model: nn.Module, case: Case) -> float:
    equation = getattr(model, "equation", None)
    if not isinstance(equation, Physics):
        return 1.0
    units = equation.training_units(case)
    return 1.0 if units is None else units.time


def _read(experiment: Experiment, model: nn.Module, folder: str | Path, split: str) -> list[Case]:
    manifest = storage.read_manifest(folder)
    if manifest.dataset != experiment.dataset:
        raise ValueError(
            f"The row {experiment.row!r} trains on a dataset {experiment.dataset!r}, but {folder} is one of "
            f"{manifest.dataset!r}."
        )
    if experiment.needs_frames and not manifest.has_frames:
        raise ValueError(
            f"The row {experiment.row!r} learns from all frames of the flow, but {folder} has only the last; "
            "`penn generate flow --frames` makes a dataset with frames."
        )
    if split not in manifest.splits:
        return []
    if experiment.needs_frames and split == "train":
        return storage.read(folder, split)
    return [
        case
        for file in storage.read_files(folder, split)
        for case in learned(model, _in_units(model, file), frames=manifest.has_frames)
    ]


def _in_units(model: nn.Module, file: CaseFile) -> CaseFile:
    """A run of several moments in the network's units: one by one, each moment would get a mesh of its own."""
    if not getattr(model, "takes_times", False):
        return file
    seen = seen_by(model, file.case)
    return replace(file, case=seen.case, times=tuple(time / seen.time for time in file.times))


def _splits(data: str | Path | Cases) -> str:
    if isinstance(data, Mapping):
        return f"It has {', '.join(data) or 'none'}."
    manifest = storage.read_manifest(data)
    numbers = [f"{split} ({len(manifest.names(split))} cases)" for split in manifest.splits]
    return f"Its splits are {', '.join(numbers) or 'none'}."


def _refuse_leaks(data: str | Path | Cases, also: str | Path) -> None:
    """What is added to the training cases must not be what the network is judged by, on whatever mesh."""
    added = storage.read_manifest(also).names("train")
    if isinstance(data, Mapping):
        splits = {split: [case.name for case in cases] for split, cases in data.items()}
    else:
        if dataset_hash(data) == dataset_hash(also):
            raise ValueError(f"--also {also} is the dataset {data} once more; it would only count every case twice.")
        splits = storage.read_manifest(data).splits
    for split in ("test", "validation"):
        if leaked := sorted(set(splits.get(split, ())) & set(added)):
            raise ValueError(
                f"{also} has {len(leaked)} cases of the {split} split of the dataset among its training cases, the "
                f"first is {leaked[0]!r}: errors on them would say nothing. Leave them out."
            )


def seen_cases(model: nn.Module, cases: Sequence[Case]) -> list[Case]:
    """The cases as the network sees them, with operators as it wants them."""
    adapted = getattr(model, "adapted", lambda case: case)
    return [adapted(seen_by(model, case).case) for case in cases]
