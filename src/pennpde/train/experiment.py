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
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from pennpde import checkpoints, registry
from pennpde.case.moments import FOREVER, number_of_moments
from pennpde.data import storage
from pennpde.data.manifest import content_of
from pennpde.data.storage import DatasetError, Manifest
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import read_regular
from pennpde.machine import device_for
from pennpde.penn.predictor import Predictor, check_unknowns
from pennpde.train import losses
from pennpde.train.cases import learned_time
from pennpde.train.settings import BUDGETS, Settings

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
        try:
            losses.named(self.loss)
        except ValueError as error:
            raise ValueError(f"The row {self.row!r}: {error}") from error

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
    _refuse_unknown(common, known, f"{path} [common]")
    _refuse_unknown(row, known, where)
    for part, place in ((common, f"{path} [common]"), (row, where)):
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
        raise ValueError(f"{path}: {error}") from error


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
    ranks, kind = {name: values.ndim - 1 for name, values in case.initial.items()}, None
    if ranks == {"u": 1, "p": 0} and "viscosity" in case.parameters:
        kind = "flow"
    elif ranks == {"T": 0} and {"velocity", "diffusivity"} <= case.parameters.keys():
        kind = "advection-diffusion"
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
