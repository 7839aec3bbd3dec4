"""The training of an experiment: its best network is kept in a folder, with all that is known about it."""

from __future__ import annotations

import logging
import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pennpde import __version__, checkpoints
from pennpde.case import Case
from pennpde.files import write_json
from pennpde.penn import Predictor
from pennpde.penn.predictor import check_unknowns
from pennpde.train import losses
from pennpde.train import state as states
from pennpde.train.batches import at_once
from pennpde.train.evaluation import with_threads
from pennpde.train.examples import Cases, examples, seen_cases
from pennpde.train.fitting import TrainingResult, fit
from pennpde.train.order import evenly
from pennpde.train.rows import Experiment
from pennpde.train.schedule import Course
from pennpde.train.starts import Start, errors_of_start, freeze
from pennpde.train.threads import threads_for, threads_of_before
from pennpde.trust import ranges
from pennpde.trust.certificate import behaviour_range

RECORD = "training.json"
KIND = "training"
log = logging.getLogger("pennpde.train")


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run came to."""

    result: TrainingResult
    folder: Path
    record: Mapping[str, Any]
    """What `training.json` in the folder says."""


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
        experiment: The row, or what `defaults.for_dataset` makes of a dataset.
        data: Folder of the dataset, or its cases by split ("train", "validation"). Of cases with several times a
            network learns those that it predicts; the loss "pushforward" learns from all.
        out: Where network, state, log and record go.
        also: Folder of a dataset whose training cases are added, such as the same flows on other meshes.
        start: A trained network whose weights to begin with.
        frozen: Patterns of names of parameters that keep their values.
        resume: Continue what the folder holds; where it holds nothing, begin.
        pause_after: Minutes, reading of the data included, after which this call saves its state and returns.
        device: Where to train.
        threads: On a CPU; None: see `fit`.
        progress: Whether a progress bar may be shown.
        changes: Settings of the training in place of the experiment's.
    """
    begun = time.monotonic()
    out = Path(out)
    training = experiment.training.with_changes(dict(changes or {}))
    experiment = replace(experiment, training=training)
    model = experiment.build()
    if start is not None:
        start.fill(model)
    kept = freeze(model, frozen)
    read = examples(experiment, model, data, also)
    check_unknowns(model, read.train[0])
    if threads is None and resume:
        threads = threads_of_before(out)
    if threads is None:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        threads = threads_for(read.train, at_once(model, training.batch_size), place)
    with with_threads(threads):
        train, validation = (
            _affordable(model, seen_cases(model, read.splits[split]), experiment) for split in ("train", "validation")
        )
        facts = {**read.facts, "train": len(train), "validation": len(validation)}
        validation = evenly(validation, training.judges)
        told = _Told(experiment, facts, _spanned(model, train), _origin(start, kept))
        _check_limits(experiment, told.spanned)
        _prepare(model, train, validation)
        if start is not None and training.scales is None:
            known = states.load(out) if resume else None
            scales = known.plain["scales"] if known else errors_of_start(model, validation or train)
            training = replace(training, scales=scales)
            log.info(f"100 % is the error of {start.name} at its start, at most the spread of the fields")
        if not validation:
            judge = "training loss" if start is None else "error on all training cases"
            log.info(f"there are no validation cases: the {judge} decides which weights are the best")
        if pause_after is not None:
            pause_after = max(0.0, pause_after - (time.monotonic() - begun) / 60)

        def keep(best_model: nn.Module, course: Course) -> None:
            checkpoints.save(best_model, out, told.config(course, {"finished": False}))

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
    record = {**_record(experiment, result, facts), "threads": threads, **told.origin}
    if result.is_main:
        checkpoints.save(result.model, out, told.finished(result, record, validation))
        write_json(out / RECORD, record)
    return Trained(result, out, record)


def _affordable(model: nn.Module, cases: Sequence[Case], experiment: Experiment) -> list[Case]:
    """Those cases that are small enough for the experiment."""
    most = experiment.most_points
    if most is None or not cases:
        return list(cases)
    points = [model.points_solved(case) if isinstance(model, Predictor) else case.number_of_points for case in cases]
    kept = [case for case, number in zip(cases, points, strict=True) if number <= most]
    if not kept:
        raise ValueError(
            f"The row {experiment.row!r} leaves no case: most_points is {most}, but the network computes on at least "
            f"{min(points)} points for each of the {len(cases)} cases."
        )
    return kept


def _spanned(model: nn.Module, train: Sequence[Case]) -> ranges.Ranges:
    found = ranges.spanned(train, model.equation if isinstance(model, Predictor) else None)
    # The time of a steady state is no number that a case could be compared with.
    return {name: ends for name, ends in found.items() if all(map(math.isfinite, ends))}


def _check_limits(experiment: Experiment, found: ranges.Ranges) -> None:
    if unknown := [name for name in experiment.limits or () if name not in found]:
        raise ValueError(
            f"The row {experiment.row!r} has the limits {', '.join(map(repr, unknown))}, which its training cases do "
            f"not have; they have {', '.join(found)}."
        )


def _origin(start: Start | None, kept: Sequence[str]) -> dict[str, Any]:
    begun_with = {} if start is None else {"from": start.to_plain()}
    return begun_with | ({"frozen": list(kept)} if kept else {})


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


@dataclass(frozen=True)
class _Told:
    """What the network's configuration says besides its weights."""

    experiment: Experiment
    dataset: Mapping[str, Any]
    spanned: ranges.Ranges
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The network that it began with, and which layers were frozen."""

    def config(self, best: Course, more: Mapping[str, Any]) -> checkpoints.Config:
        experiment, training = self.experiment, self.experiment.training
        return checkpoints.Config(
            network=experiment.network,
            arguments=dict(experiment.arguments),
            row=experiment.row,
            title=experiment.title,
            paper=experiment.paper,
            dataset=self.dataset,
            seed=training.seed,
            training={"settings": asdict(training), "best_step": best.best_step, **self.origin, **more},
            metrics={"validation": dict(best.best_errors)},
            training_range=self._limiting(self.spanned),
        )

    def _limiting(self, found: ranges.Ranges) -> ranges.Ranges:
        limits = self.experiment.limits
        return found if limits is None else {name: found[name] for name in limits if name in found}

    def finished(
        self, result: TrainingResult, record: Mapping[str, Any], validation: Sequence[Case]
    ) -> checkpoints.Config:
        final = Course(best=result.best, best_step=result.best_step, best_errors=result.best_errors)
        about = {
            name: record[name] for name in ("steps", "epochs", "minutes", "device", "how", "restarts", "rollbacks")
        }
        config = replace(self.config(final, {"finished": result.finished, **about}), scales=dict(result.scales))
        if isinstance(result.model, Predictor):
            behaviour = behaviour_range(result.model, validation)
            config = replace(config, training_range=self._limiting({**self.spanned, **behaviour}))
        return config


def _record(experiment: Experiment, result: TrainingResult, dataset: Mapping[str, Any]) -> dict[str, Any]:
    device = next(result.model.parameters()).device
    return {
        "kind": KIND,
        "version": __version__,
        "row": experiment.row,
        "title": experiment.title,
        "paper": experiment.paper,
        "dataset": dict(dataset),
        "network": experiment.network,
        "arguments": dict(experiment.arguments),
        "loss": experiment.loss,
        "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
        "settings": asdict(experiment.training),
        "scales": dict(result.scales),
        "ended": result.ended,
        "steps": result.steps,
        "epochs": result.epochs,
        "minutes": result.seconds / 60,
        "processor_minutes": result.processor_seconds / 60,
        "milliseconds_per_step": result.milliseconds_per_step,
        "restarts": result.restarts,
        "rollbacks": result.rollbacks,
        "best_step": result.best_step,
        "best": result.best,
        "validation": dict(result.best_errors),
        "how": result.description,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
    }
