"""Rows of TOML files: a dataset, a network and a training each.

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
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pennpde import registry
from pennpde.files import read_regular
from pennpde.train import losses
from pennpde.train.settings import Settings


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
    most_points: int | None = None
    """Cases for which the network computes on more points are left out, for steps of seconds rather than minutes."""
    limits: Sequence[str] | None = None
    """Numbers of a case that must be as in training, or the user is warned; None: all. A network that solves its
    equation on any mesh is not limited to the meshes it has learned from."""
    training: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        try:
            losses.named(self.loss)
        except ValueError as error:
            raise ValueError(f"The row {self.row!r}: {error}") from error
        most = self.most_points
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise ValueError(f"The row {self.row!r} has most_points = {most!r}; it must be a positive whole number.")
        limits = self.limits
        if limits is not None and (isinstance(limits, str) or not all(isinstance(each, str) for each in limits)):
            raise ValueError(f"The row {self.row!r} has limits = {limits!r}; it must be a list of names.")

    @property
    def needs_frames(self) -> bool:
        """Whether it learns from the whole run rather than from its end."""
        return self.loss == "pushforward"

    def build(self) -> nn.Module:
        """The untrained network of the row's seed."""
        with torch.random.fork_rng():
            torch.manual_seed(self.training.seed)
            return registry.build(self.network, self.arguments)


def read(path: str | Path, changes: Mapping[str, Any] | None = None) -> dict[str, Experiment]:
    """All rows of a file, by name, in its order.

    Args:
        path: Of the file.
        changes: Settings of the training in place of the rows': a row need not have a budget if one is given here.
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
