"""The experiment that follows from a dataset: network, scales and settings, without a file written by hand."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pennpde import registry
from pennpde.case import Case
from pennpde.case.moments import FOREVER, number_of_moments
from pennpde.data import storage
from pennpde.data.content import content_of
from pennpde.data.storage import DatasetError, Manifest
from pennpde.data.vtkhdf import CaseFile
from pennpde.models.advection_diffusion import transport_units
from pennpde.penn.inputs import check_unknowns
from pennpde.train.examples import learned_time
from pennpde.train.rows import Experiment
from pennpde.train.settings import BUDGETS, Settings
from pennpde.train.starts import Start

log = logging.getLogger("pennpde.train")

ROW = "dataset"
MINUTES = 30.0
"""The budget where none is given."""
_LOOKED_AT = 50
"""Training cases that scales are taken from."""
_ALIKE = 0.02


@dataclass(frozen=True)
class Default:
    """What is known to train a network well.

    Attributes:
        arguments: Of the network.
        training: Settings but for the budget; `scales` follow from the training cases.
        gentle: What changes where it begins with trained weights.
        cases_per_step: On a GPU and on a CPU, where smaller batches learn more in the same time.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    gentle: Mapping[str, Any] = field(default_factory=dict)
    cases_per_step: tuple[int, int] = (8, 2)


_COSINE = {"schedule": "cosine", "final_rate": 0.01}
DEFAULTS: Mapping[str, Default] = {
    "ducts": Default(
        {"width": 16, "iterations": 8, "pressure_iterations": 5, "decoder": "corrected", "smallest_decay": 0.2},
        {**_COSINE, "optimizer": "soap", "learning_rate": 3e-3, "warm_up": 100, "clip": 1.0},
        {"learning_rate": 1e-3, "warm_up": 50},
    ),
    "advection-diffusion": Default(
        {"width": 32, "iterations": 8},
        {**_COSINE, "learning_rate": 6e-3, "warm_up": 50, "clip": 0.1},
        {"learning_rate": 2e-3},
        (16, 4),
    ),
    "flow": Default(
        {},
        {**_COSINE, "learning_rate": 1e-3, "warm_up": 20, "clip": 1.0},
        {"learning_rate": 3e-4},
        (1, 1),
    ),
    "gradient": Default({"row": "corrected"}, {**_COSINE, "learning_rate": 1e-3}, {}, (1, 1)),
}
_ANY = Default(
    {},
    {**_COSINE, "optimizer": "soap", "learning_rate": 1e-3, "warm_up": 50, "clip": 1.0},
    {"learning_rate": 3e-4},
)


def for_dataset(
    folder: str | Path,
    *,
    start: Start | None = None,
    changes: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
) -> Experiment:
    """What `penn train DATASET` trains.

    Args:
        folder: Of the dataset.
        start: The network that it begins with; its architecture is kept.
        changes: Settings in place of the defaults, such as a budget.
        device: Where it will be trained.
    """
    manifest = storage.read_manifest(folder)
    network = start.config.network if start is not None else network_for(manifest, folder)
    default = DEFAULTS.get(network, _ANY)
    files = _some_training_cases(folder, manifest)
    if start is None and network == "ducts" and files[0].case.space == 2:
        log.info("beginning with random weights; for plane flows --from flow needs fewer runs (docs/own_runs.md)")
    if start is not None:
        check_unknowns(start.model, files[0].case)
    arguments = dict(start.config.arguments if start is not None else default.arguments)
    if network == "advection-diffusion":
        arguments |= _transport_arguments(files, arguments, start)
    else:
        arguments |= _moment(network, arguments, files)
    number = len(manifest.names("train"))
    training = {**default.training, **(default.gentle if start is not None else {})}
    training |= _batches(default, number, device)
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    if not given.keys() & set(BUDGETS):
        given["minutes"] = MINUTES
    if "steps" in given:
        training["warm_up"] = min(training.get("warm_up", 0), given["steps"] // 10)
    return Experiment(
        row=ROW,
        dataset=manifest.dataset,
        network=network,
        title=f"{network}, trained on {Path(folder).resolve().name}",
        arguments=arguments,
        training=Settings(**{**training, **given}),
    )


def network_for(manifest: Manifest, folder: str | Path) -> str:
    """The network that fits a dataset."""
    try:
        content = content_of(manifest)
        network = content.network
        if network == "flow":
            network = _flow_network(content.space, several=content.targets.startswith("several times"))
    except DatasetError:
        network = _by_unknowns(folder, manifest)
    if network is None or network not in registry.names():
        raise DatasetError(
            f"{folder} is a dataset of the kind {manifest.dataset!r}, for which no network is known; there are "
            f"defaults for {', '.join(DEFAULTS)}. Begin with a network of yours (--from FOLDER), or write an "
            "experiment file (docs/training.md)."
        )
    return network


def _by_unknowns(folder: str | Path, manifest: Manifest) -> str | None:
    """For datasets whose manifest does not state their content, such as those that `storage.write` writes."""
    if not manifest.cases:
        return None
    case = storage.read_file(folder, next(iter(manifest.cases)), manifest).case
    ranks = {name: values.ndim - 1 for name, values in case.initial.items()}
    if ranks == {"u": 1, "p": 0} and "viscosity" in case.parameters:
        return _flow_network(case.space, several=(number_of_moments(case) or 1) > 1)
    if ranks == {"T": 0} and {"velocity", "diffusivity"} <= case.parameters.keys():
        return "advection-diffusion"
    return None


def _flow_network(space: int, *, several: bool) -> str:
    """The general network takes any times, in the plane; the paper's a single one, in space as well."""
    return "flow" if several and space == 2 else "ducts"


def _some_training_cases(folder: str | Path, manifest: Manifest) -> list[CaseFile]:
    names = manifest.names("train") if "train" in manifest.splits else []
    if not names:
        numbers = [f"{split} ({len(manifest.names(split))} cases)" for split in manifest.splits]
        raise DatasetError(
            f"{folder} has no training cases: a dataset to train on has a split 'train'. Its splits are "
            f"{', '.join(numbers) or 'none'}."
        )
    chosen = names[:: max(1, len(names) // _LOOKED_AT)]
    return [storage.read_file(folder, name, manifest) for name in chosen]


def _batches(default: Default, cases: int, device: torch.device | str | None) -> dict[str, Any]:
    on_gpu = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type != "cpu"
    size = min(cases, default.cases_per_step[0 if on_gpu else 1])
    # A validation takes as long as a few steps: not after every epoch of five cases, and at least each five hundred.
    return {"batch_size": size, "test_every": max(1.0, round(50 * size / cases, 3))}


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
    temperature = max(_temperature(file.case) for file in files)
    found = {
        "steps": steps,
        "time_step": 1.0 / steps,
        "reference_length": _round(length),
        "reference_speed": _round(length / end),
        "reference_temperature": _round(temperature),
    }
    known = {"steps": 4, "time_step": 0.25}
    return {name: value for name, value in found.items() if arguments.get(name, known.get(name, 1.0)) != value}


def _temperature(case: Case) -> float:
    return abs(transport_units(case).scale("T").one)


def _round(value: float) -> float:
    """One where it is one but for round-off: then nothing is scaled."""
    return 1.0 if abs(value - 1.0) < 1e-6 else value
