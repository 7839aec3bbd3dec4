"""Experiments: a row of a TOML file is a dataset, a network and a training.

`[common]` applies to all rows, `[rows.NAME]` overrides it; tables are merged key by key. A row with another network
than `[common]` gives all arguments itself::

    [common]
    dataset = "flow"
    network = "flow"
    arguments = { width = 16, iterations = 8 }
    training = { learning_rate = 2e-3, schedule = "cosine", minutes = 10 }

    [rows.penn]
    title = "PENN n = 16, r = 8"

    [rows.n8_r4]
    title = "PENN n = 8, r = 4"
    arguments = { width = 8, iterations = 4 }

Configuration ends here: a row becomes a frozen `Experiment`, and the layers below take plain arguments.

`penn train` is the command for users. On machines that have torch, h5py and safetensors but not the dependencies of
`penn`, the same is `python -m pennpde.experiments FILE --row penn --data data/flow --out runs/flow`.
"""

from __future__ import annotations

import argparse
import logging
import platform
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from pennpde import __version__, checkpoints
from pennpde.case import Case
from pennpde.files import write_json
from pennpde.models import registry
from pennpde.network import Predictor
from pennpde.prediction import ranges
from pennpde.prediction.certificate import behaviour_range
from pennpde.training import Settings, TrainingResult, fit
from pennpde.training.losses import Loss
from pennpde.training.schedule import Course

RECORD = "training.json"
KIND = "training"

LossName = Literal["squared error", "pushforward"]
"""What a row may make small: the scaled squared error of what the network predicts, or MP-PDE's loss on all frames."""


@dataclass(frozen=True)
class Experiment:
    """A row of an experiment file."""

    row: str
    dataset: str
    """The kind of dataset, as its manifest says it: "gradient", "advection-diffusion" or "flow"."""
    network: str
    """The builder, see `models.registry`."""
    title: str = ""
    paper: str = ""
    """The row of the paper's tables to compare with, a key of `numbers.json`."""
    note: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    loss: LossName = "squared error"
    training: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.loss not in get_args(LossName):
            known = " or ".join(map(repr, get_args(LossName)))
            raise ValueError(f"The row {self.row!r} has the loss {self.loss!r}; it may be {known}.")

    @property
    def needs_frames(self) -> bool:
        """Whether it learns from the whole run rather than from its end."""
        return self.loss == "pushforward"

    def build(self) -> nn.Module:
        """The untrained network of the row's seed."""
        with torch.random.fork_rng():
            torch.manual_seed(self.training.seed)
            return registry.build(self.network, self.arguments)


def read(path: str | Path) -> dict[str, Experiment]:
    """All rows of a file, by name, in its order."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}.") from error
    _refuse_unknown(content, {"common", "rows"}, str(path))
    rows = content.get("rows", {})
    if not rows:
        raise ValueError(f"{path} has no rows; a row is a table [rows.NAME].")
    common = content.get("common", {})
    return {name: _experiment(name, common, row, path) for name, row in rows.items()}


def read_row(path: str | Path, row: str) -> Experiment:
    """One row of a file."""
    rows = read(path)
    if row not in rows:
        raise KeyError(f"{path} has no row {row!r}; it has {', '.join(rows)}.")
    return rows[row]


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run came to."""

    result: TrainingResult
    folder: Path
    record: Mapping[str, Any]
    """What `training.json` in the folder says."""


def run(
    experiment: Experiment,
    data: str | Path | Mapping[str, Sequence[Case]],
    out: str | Path,
    *,
    also: str | Path | None = None,
    resume: bool = False,
    pause_after: float | None = None,
    device: torch.device | str | None = None,
    progress: bool = True,
    changes: Mapping[str, Any] | None = None,
) -> Trained:
    """Train a row and keep its best network in a folder, from which it can be loaded at any time of the training.

    Args:
        experiment: The row.
        data: Folder of the dataset, or its cases by split ("train", "validation"). Of a dataset with frames the
            validation cases, and those for training but for the loss "pushforward", take the last.
        out: Where network, state, log and record go.
        also: Folder of a dataset whose training cases are added, such as the same flows on other meshes.
        resume: Continue what the folder holds; where it holds nothing, begin.
        pause_after: Minutes, reading of the data included, after which this call saves its state and returns.
        device: Where to train.
        progress: Whether a progress bar may be shown.
        changes: Settings of the training in place of the row's.
    """
    begun = time.monotonic()
    out = Path(out)
    training = experiment.training.with_changes(dict(changes or {}))
    experiment = replace(experiment, training=training)
    splits, dataset = _cases(experiment, data, also)
    model = experiment.build()
    adapted = getattr(model, "adapted", lambda case: case)
    train, validation = ([adapted(case) for case in splits[split]] for split in ("train", "validation"))
    spanned = ranges.spanned(train, model.equation if isinstance(model, Predictor) else None)
    # Before training, so that a network that takes other unknowns or lacks a feature says so at once.
    with torch.no_grad():
        model(train[0])
    if prepare := getattr(model, "prepare", None):
        for case in (*train, *validation):  # now, as the time of steps and tests is budgeted
            prepare(case)

    told = _Told(experiment, dataset, spanned)

    def keep(best_model: nn.Module, course: Course) -> None:
        checkpoints.save(best_model, out, told.config(course, {"finished": False}))

    if pause_after is not None:
        pause_after = max(0.0, pause_after - (time.monotonic() - begun) / 60)
    result = fit(
        model,
        train,
        validation,
        training,
        folder=out,
        resume=resume,
        pause_after=pause_after,
        device=device,
        loss=_loss(experiment.loss),
        progress=progress,
        on_improvement=keep,
    )
    record = _record(experiment, result, dataset)
    if result.is_main:
        checkpoints.save(result.model, out, told.finished(result, record, validation))
        write_json(out / RECORD, record)
    return Trained(result, out, record)


@dataclass(frozen=True)
class _Told:
    """What the network's configuration says besides its weights."""

    experiment: Experiment
    dataset: Mapping[str, Any]
    spanned: ranges.Ranges

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
            training={"settings": asdict(training), "best_step": best.best_step, **more},
            metrics={"validation": dict(best.best_errors)},
            training_range=self.spanned,
        )

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
            config = replace(config, training_range={**self.spanned, **behaviour})
        return config


def _experiment(name: str, common: Mapping[str, Any], row: Mapping[str, Any], path: Path) -> Experiment:
    where = f"{path} [rows.{name}]"
    known = {each.name for each in fields(Experiment)} - {"row"}
    _refuse_unknown(common, known, f"{path} [common]")
    _refuse_unknown(row, known, where)
    merged = dict(common)
    if row.get("network", common.get("network")) != common.get("network"):
        merged.pop("arguments", None)  # they belong to the other network
    for key, value in row.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, Mapping) else value
    if missing := [key for key in ("dataset", "network") if key not in merged]:
        raise ValueError(f"{where} lacks {' and '.join(missing)}; give it there or under [common].")
    training = merged.pop("training", {})
    _refuse_unknown(training, {each.name for each in fields(Settings)}, f"{where} training")
    try:
        settings = Settings(**training)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where} training: {error}") from error
    try:
        return Experiment(row=name, training=settings, **merged)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _loss(name: LossName) -> Loss | None:
    if name == "squared error":
        return None  # the one that `fit` takes by itself
    from pennpde.paper.baselines.mp_pde import pushforward

    return pushforward


def _refuse_unknown(given: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"{where} sets {', '.join(unknown)}; it knows {', '.join(sorted(known))}.")


def _cases(
    experiment: Experiment, data: str | Path | Mapping[str, Sequence[Case]], also: str | Path | None
) -> tuple[dict[str, list[Case]], dict[str, Any]]:
    if isinstance(data, Mapping):
        splits = {split: list(data.get(split, ())) for split in ("train", "validation")}
        facts: dict[str, Any] = {"kind": experiment.dataset}
    else:
        splits = {split: _read(experiment, data, split) for split in ("train", "validation")}
        facts = {"kind": experiment.dataset, "hash": dataset_hash(data)}
    if also is not None:
        _refuse_leaks(data, also)
        more = _read(experiment, also, "train")
        splits["train"] = splits["train"] + more
        facts["also"] = {"hash": dataset_hash(also), "train": len(more)}
    return splits, facts | {split: len(cases) for split, cases in splits.items()}


def _refuse_leaks(data: str | Path | Mapping[str, Sequence[Case]], also: str | Path) -> None:
    """What is added to the training cases must not be what the network is judged by, on whatever mesh."""
    from pennpde.datasets import storage

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


def _read(experiment: Experiment, folder: str | Path, split: str) -> list[Case]:
    from pennpde.datasets import storage

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
    return storage.read(folder, split, frames=experiment.needs_frames and split == "train")


def dataset_hash(folder: str | Path) -> str:
    """See `storage.dataset_hash`."""
    from pennpde.datasets import storage

    return storage.dataset_hash(folder)


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
        "milliseconds_per_step": result.milliseconds_per_step,
        "restarts": result.restarts,
        "rollbacks": result.rollbacks,
        "best_step": result.best_step,
        "best": result.best,
        "validation": dict(result.best_errors),
        "how": result.description,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
    }


def _main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pennpde.experiments", description="Train a row of an experiment.")
    parser.add_argument("file", help="TOML file of an experiment")
    parser.add_argument("--row", default="penn")
    parser.add_argument("--data", required=True, help="folder of the dataset")
    parser.add_argument("--also", help="folder of a dataset whose training cases are added")
    parser.add_argument("--out", required=True, help="folder for network, state and log")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--pause-after", type=float, metavar="MINUTES")
    parser.add_argument("--device")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, in TOML")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run(
        read_row(given.file, given.row),
        given.data,
        given.out,
        also=given.also,
        resume=given.resume,
        pause_after=given.pause_after,
        device=given.device,
        changes=tomllib.loads("\n".join(given.set)),
    )


if __name__ == "__main__":
    _main()
