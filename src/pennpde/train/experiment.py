"""What to train on what: a row of a TOML file, or what follows from a dataset; and the weights to begin with.

In a file `[common]` applies to all rows, `[rows.NAME]` overrides it; tables are merged key by key. A row with another
network than `[common]` gives all arguments itself::

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
"""

from __future__ import annotations

import logging
import math
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from pennpde import __version__, checkpoints, registry
from pennpde.case import Case
from pennpde.case.moments import FOREVER, number_of_moments
from pennpde.data import storage
from pennpde.data.runs.source import of_unknowns
from pennpde.data.storage import DatasetError, Manifest, content_of, dataset_hash, evenly
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import read_regular, write_json
from pennpde.machine import device_for, device_name, with_threads
from pennpde.penn.predictor import Predictor, check_unknowns, seen_by
from pennpde.train import folder
from pennpde.train.cases import learned, learned_time, seen_cases
from pennpde.train.fitting import TrainingResult, fit, threads_of
from pennpde.train.settings import BUDGETS, Course, Settings
from pennpde.train.steps import Steps, errors_of_start, loss_of
from pennpde.trust import certificate
from pennpde.trust.certificate import behaviour_range

log = logging.getLogger("pennpde.train")

MINUTES = 30.0
"""The budget where none is given."""
_LOOKED_AT = 50
"""Training cases that scales are taken from."""
_ALIKE = 0.02


@dataclass(frozen=True)
class Experiment:
    """What to train on what: a row of an experiment file, or what follows from a dataset."""

    row: str
    dataset: str
    """The kind of dataset, as its manifest says it: "gradient", "advection-diffusion", "flow" or "plane-flow"."""
    network: str
    """The builder, see `models.registry`."""
    title: str = ""
    paper: str = ""
    """The row of the paper's tables to compare with, a key of `numbers.json`."""
    note: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "squared error"
    training: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        loss_of(self.loss)

    @property
    def needs_frames(self) -> bool:
        """Whether it learns from the whole run rather than from its end."""
        return self.loss == "pushforward"

    def build(self) -> nn.Module:
        """The untrained network of the row's seed."""
        with torch.random.fork_rng():
            torch.manual_seed(self.training.seed)
            model = registry.build(self.network, self.arguments)
        if isinstance(model, Predictor) and model.levels:
            model.set_level(model.levels[0])  # where learning acts; others spend their time on cells and steps
        return model


@dataclass(frozen=True, eq=False)
class Start:
    """A trained network whose weights a training begins with: a shipped one, or one in a folder."""

    name: str
    model: nn.Module
    config: checkpoints.Config

    @classmethod
    def of(cls, name: str | Path) -> Start:
        model = checkpoints.load_pretrained(name if isinstance(name, str) else str(name))
        config = checkpoints.config_of(model)
        assert config is not None
        return cls(Path(name).name or str(name), model, config)

    def fill(self, model: nn.Module) -> None:
        """Copy the weights into a network of the same architecture."""
        own, theirs = ({k: tuple(v.shape) for k, v in each.state_dict().items()} for each in (model, self.model))
        if own != theirs:
            different = sorted(name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name))
            raise ValueError(
                f"The weights of {self.name} do not fit the network that is to be trained: {len(different)} tensors "
                f"differ, the first is {different[0]!r}. Leave the experiment's network out: penn train DATASET --from "
                f"{self.name}."
            )
        model.load_state_dict(self.model.state_dict())

    def to_plain(self) -> dict[str, Any]:
        """For the configuration of the network that is trained from it."""
        return {
            "network": self.name,
            "weights_sha256": self.config.weights_sha256,
            "title": self.config.title,
            "cases": self.config.dataset.get("train"),
        }


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keep the parameters whose names match one of the patterns as they are; returns their names.

    Patterns are such as "encoders.*" or "equation.geometry.*"; a name without a star means the whole part.
    """
    names = [name for name, _ in model.named_parameters()]
    frozen: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")}
        if not found:
            parts = sorted({".".join(name.split(".")[:2]) for name in names})
            raise ValueError(f"--freeze {pattern} matches no parameter; the network has {', '.join(parts)}.")
        frozen |= found
    if len(frozen) == len(names):
        raise ValueError(f"--freeze {' '.join(patterns)} leaves nothing to train: it matches all {len(names)} tensors.")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return sorted(frozen)


# Rows of a file


def read(path: str | Path, changes: Mapping[str, Any] | None = None) -> dict[str, Experiment]:
    """All rows of a file, by name, in its order.

    `changes` are settings in place of the rows': a row need not have a budget if one is given here.
    """
    path = Path(path)
    try:
        content = tomllib.loads(read_regular(path).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}.") from error
    _refuse_unknown(content, {"common", "rows"}, str(path))
    rows = _table(content.get("rows", {}), f"{path}: rows", "a row is a table [rows.NAME]")
    if not rows:
        raise ValueError(f"{path} has no rows; a row is a table [rows.NAME].")
    common = _table(content.get("common", {}), f"{path}: common", "write [common]")
    return {name: _experiment(name, common, row, path, changes or {}) for name, row in rows.items()}


def read_row(path: str | Path, row: str, changes: Mapping[str, Any] | None = None) -> Experiment:
    """One row of a file."""
    rows = read(path, changes)
    if row not in rows:
        raise KeyError(f"{path} has no row {row!r}; it has {', '.join(rows)}.")
    return rows[row]


def _experiment(name: str, common: Mapping[str, Any], row: Any, path: Path, changes: Mapping[str, Any]) -> Experiment:
    where = f"{path} [rows.{name}]"
    row = _table(row, f"{path}: rows.{name}", f"write [rows.{name}]")
    known = {each.name for each in fields(Experiment)} - {"row"}
    for part, place in ((common, f"{path} [common]"), (row, where)):
        _refuse_unknown(part, known, place)
        for key in ("arguments", "training"):
            _table(part.get(key, {}), f"{place} {key}", f"write {key} = {{ ... }}")
        for key in ("dataset", "network", "title", "paper", "note"):
            if not isinstance(part.get(key, ""), str):
                raise ValueError(f"{place}: {key} is {part[key]!r}; it must be text in quotes.")
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
        settings = Settings(**{**training, **changes})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where} training: {error}") from error
    try:
        return Experiment(row=name, training=settings, **merged)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _table(value: Any, where: str, remedy: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {value!r}, which is no table; {remedy}.")
    return value


def _refuse_unknown(given: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"{where} sets {', '.join(unknown)}; it knows {', '.join(sorted(known))}.")


# What follows from a dataset


def for_dataset(
    folder: str | Path,
    *,
    start: Start | None = None,
    changes: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
) -> Experiment:
    """What `penn train DATASET` trains on this device.

    A network that it starts from keeps its architecture; `changes` are settings in place of the defaults.
    """
    manifest = storage.read_manifest(folder)
    network = start.config.network if start is not None else network_for(manifest, folder)
    known = _defaults()
    default = known.get(network, known["others"])
    names = manifest.names("train") if "train" in manifest.splits else []
    if not names:
        raise without_training_cases(folder, manifest)
    looked_at = names[:: max(1, len(names) // _LOOKED_AT)]
    files = [storage.read_file(folder, name, manifest) for name in looked_at]
    if start is None and network == "ducts" and files[0].case.space == 2:
        log.info("beginning with random weights; for plane flows --from flow needs fewer runs (docs/own_runs.md)")
    if start is not None:
        check_unknowns(start.model, files[0].case)
    arguments = dict(start.config.arguments if start is not None else default.get("arguments", {}))
    if network == "advection-diffusion":
        arguments |= _transport_arguments(files, arguments, start)
    else:
        arguments |= _moment(network, arguments, files)
    batch_size = min(len(names), default["cases_per_step"][device_for(device).type == "cpu"])
    training = {
        "schedule": "cosine",
        "final_rate": 0.01,
        **default["training"],
        **(default.get("gentle", {}) if start is not None else {}),
        "batch_size": batch_size,
        # A validation takes as long as a few steps: not after every epoch of five cases, at least every 500 cases.
        "test_every": max(1.0, round(50 * batch_size / len(names), 3)),
    }
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    if not given.keys() & set(BUDGETS):
        given["minutes"] = MINUTES
    if "steps" in given:
        training["warm_up"] = min(training.get("warm_up", 0), given["steps"] // 10)
    return Experiment(
        row="dataset",
        dataset=manifest.dataset,
        network=network,
        title=f"{network}, trained on {Path(folder).resolve().name}",
        arguments=arguments,
        training=Settings(**{**training, **given}),
    )


def _defaults() -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parent / "defaults.toml").read_text(encoding="utf-8"))


def network_for(manifest: Manifest, folder: str | Path) -> str:
    """The network that fits a dataset."""
    try:
        content = content_of(manifest)
        kind, space, several = content.network, content.space, content.targets.startswith("several times")
    except DatasetError:
        kind, space, several = _by_unknowns(folder, manifest)
    # The general network takes any times, in the plane; the paper's a single one, in space as well.
    network = "ducts" if kind == "flow" and not (several and space == 2) else kind
    if network is None or network not in registry.names():
        known = ", ".join(name for name in _defaults() if name != "others")
        raise DatasetError(
            f"{folder} is a dataset of the kind {manifest.dataset!r}, for which no network is known; there are "
            f"defaults for {known}. Begin with a network of yours (--from FOLDER), or write an experiment file "
            "(docs/training.md)."
        )
    return network


def _by_unknowns(folder: str | Path, manifest: Manifest) -> tuple[str | None, int, bool]:
    """Of datasets whose manifest does not state their content: the kind of problem, space, and if of several times."""
    if not manifest.cases:
        return None, 0, False
    case = storage.read_file(folder, next(iter(manifest.cases)), manifest).case
    kind = of_unknowns(list(case.initial), list(case.parameters)).network
    return kind, case.space, (number_of_moments(case) or 1) > 1


def without_training_cases(folder: str | Path, manifest: Manifest) -> DatasetError:
    numbers = [f"{split} ({len(manifest.names(split))} cases)" for split in manifest.splits]
    return DatasetError(
        f"{folder} has no training cases: a dataset to train on has a split 'train'. Its splits are "
        f"{', '.join(numbers) or 'none'}."
    )


def _moment(network: str, arguments: Mapping[str, Any], files: Sequence[CaseFile]) -> dict[str, Any]:
    """When the predictions of a network with a single output time will hold: at the time of the targets."""
    model = registry.build(network, arguments)
    own = tuple(getattr(model, "output_times", ()))
    if getattr(model, "takes_times", False) or len(own) != 1 or not hasattr(model, "moment"):
        return {}
    times = [time for time in (learned_time(model, file) for file in files) if time is not None]
    if not times or all(abs(time - own[0]) <= _ALIKE * own[0] for time in times):
        return {}
    if any(time == FOREVER for time in times):
        if not all(time == FOREVER for time in times):
            raise DatasetError(
                "Some training cases have only a steady state, others only moments: one network does not learn both. "
                "Collect them into two datasets."
            )
        return {"moment": "steady"}
    low, high, middle = min(times), max(times), median(times)
    if high - low > _ALIKE * middle:
        log.warning(
            f"the targets are at different times, {low:.3g} to {high:.3g} in units of L/U; the network takes them all "
            f"for t = {middle:.3g}"
        )
    return {"moment": float(f"{middle:.6g}")}


def _transport_arguments(
    files: Sequence[CaseFile], arguments: Mapping[str, Any], start: Start | None
) -> dict[str, Any]:
    """Output times, and the length, speed and temperature that count as one, from the training cases."""
    from pennpde.models.advection_diffusion import transport_units

    first = files[0]
    steps = number_of_moments(first.case) or 1
    times = first.times
    end = times[-1] if len(times) == steps else 1.0
    if steps > 1 and any(abs(time - (k + 1) * end / steps) > 1e-3 * end for k, time in enumerate(times)):
        raise DatasetError(
            f"The targets are at t = {', '.join(f'{time:g}' for time in times)}; this network steps evenly from the "
            "start to the last. Collect evenly spaced times, or only the last."
        )
    if start is not None and (own := arguments.get("steps", 4)) != steps:
        raise ValueError(
            f"{start.name} predicts {own} times, but the targets of {first.case.name!r} have {steps}. Train without "
            f"--from, or collect {own} evenly spaced times."
        )
    length = median(float(file.case.mesh.point_volumes.sum()) ** (1 / file.case.space) for file in files)
    scales = {
        "reference_length": length,
        "reference_speed": length / end,
        "reference_temperature": max(abs(transport_units(file.case).scale("T").one) for file in files),
    }
    # One where it is one but for round-off: then nothing is scaled.
    scales = {name: 1.0 if abs(value - 1.0) < 1e-6 else value for name, value in scales.items()}
    usual = {"steps": 4, "time_step": 0.25}
    found = {"steps": steps, "time_step": 1.0 / steps, **scales}
    return {name: value for name, value in found.items() if arguments.get(name, usual.get(name, 1.0)) != value}


# The training of an experiment: its best network is kept in a folder, with all that is known about it.


Cases = Mapping[str, Sequence[Case]]
RECORD = "training.json"
KIND = "training"


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
    stepper: type[Steps] = Steps,
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
        stepper: What takes the steps.
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
        taught, judges = _taught(model, train), _taught(model, validation)
        if not taught:
            raise ValueError(
                f"{experiment.network} corrects none of the {len(train)} training cases (cells, domain or conditions "
                "are too unlike those that it knows), so there is nothing to learn; train without --from."
            )
        _prepare(model, taught, judges)
        if start is not None and training.scales is None:
            known = folder.load(out) if resume else None
            scales = known.plain["scales"] if known else errors_of_start(model, judges or taught)
            training = replace(training, scales=scales)
            log.info(f"100 % is the error of {start.name} at its start, at most the spread of the fields")
        if not judges:
            judge = "training loss" if start is None else "error on all training cases"
            log.info(f"there are no validation cases: the {judge} decides which weights are the best")
        if pause_after is not None:
            pause_after = max(0.0, pause_after - (time.monotonic() - begun) / 60)

        def keep(best_model: nn.Module, course: Course) -> None:
            config = about.config(course.best_step, course.best_errors, {"finished": False}, {})
            checkpoints.save(best_model, out, config)

        result = fit(
            model,
            taught,
            judges,
            training,
            folder=out,
            resume=resume,
            pause_after=pause_after,
            device=device,
            loss=loss_of(experiment.loss),
            progress=progress,
            on_improvement=keep,
            as_seen=True,
            judge_start=start is not None,
            threads=threads,
            stepper=stepper,
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


def _taught(model: nn.Module, cases: Sequence[Case]) -> list[Case]:
    """What the network learns from these cases, such as what coarse solutions of them miss."""
    if not isinstance(model, Predictor):
        return list(cases)
    if model.levels and cases:
        log.info(f"solving {len(cases)} cases on coarse cells, on each level where the network learns")
    found: list[Case] = []
    for case in cases:
        try:
            found += model.learned(case)
        except ArithmeticError as error:
            log.warning(f"{case.name or 'a case'} is left out: {error}")
    return found


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


def _spanned(model: nn.Module, train: Sequence[Case]) -> certificate.Ranges:
    """The range of each number of the training cases."""
    found = certificate.spanned(train, model.equation if isinstance(model, Predictor) else None)
    # The time of a steady state is no number that a case could be compared with.
    return {name: ends for name, ends in found.items() if all(map(math.isfinite, ends))}


@dataclass(frozen=True)
class _About:
    """What the network's configuration says besides its weights."""

    experiment: Experiment
    dataset: Mapping[str, Any]
    spanned: certificate.Ranges
    origin: Mapping[str, Any]
    """The network that it began with, and which layers were frozen."""

    def config(
        self, best_step: int, errors: Mapping[str, float], more: Mapping[str, Any], behaviour: certificate.Ranges
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
