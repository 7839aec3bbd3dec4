"""The training of an experiment: its best network is kept in a folder, with all that is known about it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pennpde import __version__, checkpoints
from pennpde.case import Case
from pennpde.data import storage
from pennpde.data.storage import dataset_hash
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import write_json
from pennpde.machine import device_for, device_name, with_threads
from pennpde.penn import Predictor
from pennpde.penn.predictor import check_unknowns, seen_by
from pennpde.train import folder, losses
from pennpde.train.cases import evenly, learned, seen_cases
from pennpde.train.experiment import Experiment, Start, freeze, without_training_cases
from pennpde.train.fitting import TrainingResult, fit, threads_of
from pennpde.train.settings import Course
from pennpde.trust import ranges
from pennpde.trust.certificate import behaviour_range

Cases = Mapping[str, Sequence[Case]]
RECORD = "training.json"
KIND = "training"
log = logging.getLogger("pennpde.train")


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run came to; the record is what `training.json` in the folder says."""

    result: TrainingResult
    folder: Path
    record: Mapping[str, Any]


def run(
    experiment: Experiment,
    data: str | Path | Cases,
    out: str | Path,
    *,
    also: str | Path | None = None,
    start: Start | None = None,
    frozen: Sequence[str] = (),
    resume: bool = False,
    pause_after: float | None = None,
    device: torch.device | str | None = None,
    threads: int | None = None,
    progress: bool = True,
    changes: Mapping[str, Any] | None = None,
) -> Trained:
    """Train an experiment and keep its best network in a folder, from which it can be loaded while training goes on.

    Args:
        experiment: The row, or what `for_dataset` makes of a dataset.
        data: Folder of the dataset, or its cases by split ("train", "validation"). Of cases with several times a
            network learns those that it predicts; the loss "pushforward" learns from all.
        out: Where network, state, log and record go.
        also: Folder of a dataset whose training cases are added, such as the same flows on other meshes.
        start: A trained network whose weights to begin with.
        frozen: Patterns of names of parameters that keep their values.
        resume: Continue what the folder holds; where it holds nothing, begin.
        pause_after: Minutes, reading of the data included, after which this call saves its state and returns.
        device: As for `fit`, like threads and progress.
        threads: On a CPU.
        progress: Whether a progress bar may be shown.
        changes: Settings of the training in place of the experiment's.
    """
    begun, out = time.monotonic(), Path(out)
    training = experiment.training.with_changes(dict(changes or {}))
    experiment = replace(experiment, training=training)
    model = experiment.build()
    if start is not None:
        start.fill(model)
    kept = freeze(model, frozen)
    read = examples(experiment, model, data, also)
    check_unknowns(model, read.train[0])
    place, continued = device_for(device), out if resume else None
    threads = threads or threads_of(model, read.train, training.batch_size, place, continued)
    with with_threads(threads):
        train, validation = (seen_cases(model, cases) for cases in (read.train, read.validation))
        facts = {**read.facts, "train": len(train), "validation": len(validation)}
        validation = evenly(validation, training.judges)
        origin = {} if start is None else {"from": start.to_plain()}
        origin |= {"frozen": kept} if kept else {}
        about = _About(experiment, facts, _spanned(model, train), origin)
        _prepare(model, train, validation)
        if start is not None and training.scales is None:
            known = folder.load(out) if resume else None
            scales = known.plain["scales"] if known else losses.errors_of_start(model, validation or train)
            training = replace(training, scales=scales)
            log.info(f"100 % is the error of {start.name} at its start, at most the spread of the fields")
        if not validation:
            judge = "training loss" if start is None else "error on all training cases"
            log.info(f"there are no validation cases: the {judge} decides which weights are the best")
        if pause_after is not None:
            pause_after = max(0.0, pause_after - (time.monotonic() - begun) / 60)

        def keep(best_model: nn.Module, course: Course) -> None:
            config = about.config(course.best_step, course.best_errors, {"finished": False}, {})
            checkpoints.save(best_model, out, config)

        result = fit(
            model,
            train,
            validation,
            training,
            folder=out,
            resume=resume,
            pause_after=pause_after,
            device=device,
            loss=losses.named(experiment.loss),
            progress=progress,
            on_improvement=keep,
            as_seen=True,
            judge_start=start is not None,
            threads=threads,
        )
    record = {**_record(experiment, result, facts), "threads": threads, **origin}
    checkpoints.save(result.model, out, about.finished(result, record, validation))
    write_json(out / RECORD, record)
    return Trained(result, out, record)


# What it learns from


@dataclass(frozen=True, eq=False)
class Examples:
    """What a training sees: cases with the targets that the network learns; kind and hash of the data."""

    train: list[Case]
    validation: list[Case]
    facts: Mapping[str, Any]


def examples(experiment: Experiment, model: nn.Module, data: str | Path | Cases, also: str | Path | None) -> Examples:
    """Read what an experiment trains on; for `data` and `also` see `run`."""
    facts: dict[str, Any] = {"kind": experiment.dataset}
    if isinstance(data, Mapping):
        train, validation = (list(data.get(split, ())) for split in ("train", "validation"))
        if not train:
            raise ValueError(
                "The data has no training cases: a dataset to train on has a split 'train'. It has "
                f"{', '.join(data) or 'none'}."
            )
    else:
        train, validation = (_read(experiment, model, data, split) for split in ("train", "validation"))
        facts["hash"] = dataset_hash(data)
        if not train:
            raise without_training_cases(data, storage.read_manifest(data))
    if also is not None:
        _refuse_leaks(data, also)
        more = _read(experiment, model, also, "train")
        train, facts["also"] = train + more, {"hash": dataset_hash(also), "train": len(more)}
    return Examples(train, validation, facts)


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


def _prepare(model: nn.Module, train: Sequence[Case], validation: Sequence[Case]) -> None:
    # Before training, so that a network that takes other unknowns or lacks a feature says so at once.
    with torch.no_grad():
        model(train[0])
    cases = (*train, *validation)
    if isinstance(model, Predictor) and not model.can_keep(cases):
        log.info(f"what the network prepares for {len(cases)} cases is too much to be kept: done when a case is used")
    elif prepare := getattr(model, "prepare", None):
        for case in cases:  # now, as the time of steps and tests is budgeted
            prepare(case)


# What is told about it


def _spanned(model: nn.Module, train: Sequence[Case]) -> ranges.Ranges:
    """The range of each number of the training cases."""
    found = ranges.spanned(train, model.equation if isinstance(model, Predictor) else None)
    # The time of a steady state is no number that a case could be compared with.
    return {name: ends for name, ends in found.items() if all(map(math.isfinite, ends))}


@dataclass(frozen=True)
class _About:
    """What the network's configuration says besides its weights."""

    experiment: Experiment
    dataset: Mapping[str, Any]
    spanned: ranges.Ranges
    origin: Mapping[str, Any]
    """The network that it began with, and which layers were frozen."""

    def config(
        self, best_step: int, errors: Mapping[str, float], more: Mapping[str, Any], behaviour: ranges.Ranges
    ) -> checkpoints.Config:
        experiment, found = self.experiment, {**self.spanned, **behaviour}
        return checkpoints.Config(
            network=experiment.network,
            arguments=dict(experiment.arguments),
            row=experiment.row,
            title=experiment.title,
            paper=experiment.paper,
            dataset=self.dataset,
            seed=experiment.training.seed,
            training={"settings": asdict(experiment.training), "best_step": best_step, **self.origin, **more},
            metrics={"validation": dict(errors)},
            training_range=found,
        )

    def finished(
        self, result: TrainingResult, record: Mapping[str, Any], validation: Sequence[Case]
    ) -> checkpoints.Config:
        told = ("steps", "epochs", "minutes", "device", "restarts", "rollbacks")
        more = {"finished": result.finished, **{name: record[name] for name in told}}
        behaviour = behaviour_range(result.model, validation) if isinstance(result.model, Predictor) else {}
        config = self.config(result.best_step, result.best_errors, more, behaviour)
        return replace(config, scales=dict(result.scales))


def _record(experiment: Experiment, result: TrainingResult, dataset: Mapping[str, Any]) -> dict[str, Any]:
    told = ("row", "title", "paper", "network", "loss")
    ended = ("ended", "steps", "epochs", "milliseconds_per_step", "restarts", "rollbacks", "best_step", "best")
    return {
        "kind": KIND,
        "version": __version__,
        **{name: getattr(experiment, name) for name in told},
        "arguments": dict(experiment.arguments),
        "dataset": dict(dataset),
        "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
        "settings": asdict(experiment.training),
        "scales": dict(result.scales),
        **{name: getattr(result, name) for name in ended},
        "minutes": result.seconds / 60,
        "processor_minutes": result.processor_seconds / 60,
        "validation": dict(result.best_errors),
        "device": device_name(next(result.model.parameters()).device),
    }
