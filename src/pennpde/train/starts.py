"""Where a training begins: with random weights, or with those of a trained network, some of them frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pennpde import checkpoints
from pennpde.case import Case
from pennpde.train.losses import standard_deviations

_JUDGES = 20
"""So many cases tell how wrong a network is at the start."""


@dataclass(frozen=True, eq=False)
class Start:
    """A trained network whose weights a training begins with.

    Attributes:
        name: Of a shipped network, or the folder of one.
        model: The network.
        config: How it was made.
    """

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


def errors_of_start(model: nn.Module, cases: Sequence[Case]) -> dict[str, float]:
    """Root mean square errors of a trained network, as scales of its loss.

    Divided by them, each unknown counts by how much better it becomes. Divided by the standard deviations of the
    fields, the unknown with the largest relative error, usually a pressure, would be all that training sees. A start
    that is of no use says nothing: scales are never larger than the standard deviations.
    """
    chosen = cases[:: max(1, len(cases) // _JUDGES)]
    deviations = standard_deviations(chosen)
    sums = dict.fromkeys(deviations, 0.0)
    with torch.no_grad():
        for case in chosen:
            fields = model(case)
            for name, target in case.targets.items():
                sums[name] += float((fields[name] - target).double().square().mean())
    found = {name: (total / len(chosen)) ** 0.5 for name, total in sums.items()}
    return {name: found[name] if 0 < found[name] < deviation else deviation for name, deviation in deviations.items()}


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keep the parameters whose names match one of the patterns as they are; returns their names.

    Args:
        model: The network.
        patterns: Such as "encoders.*" or "equation.geometry.*"; a name without a star means the whole part.
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
