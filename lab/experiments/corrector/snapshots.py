"""Coarse-grid solutions with the dataset's own solutions, as the corrector sees them; made by `data.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from data import ARCHIVES, DATA
from torch import Tensor

from pennlab.datasets.plane_flow import finished, flows
from pennpde.case import Case
from pennpde.flow.corrector import coarse_case
from pennpde.flow.plane_physics import PlaneFlowPhysics
from pennpde.models.flow_physics import FlowPhysics
from pennpde.penn.predictor import seen_by


class _Units(torch.nn.Module):
    """What `seen_by` asks for: the units of plane flows."""

    equation = PlaneFlowPhysics()


@dataclass(frozen=True, eq=False)
class Run:
    """A flow on one of its meshes, at all of its times.

    Attributes:
        case: At the first time; others share its mesh and operators.
        fields: By unknown, the coarse-grid solution, with a trailing axis of times.
        targets: By unknown, the dataset's solution.
        times: In the network's units.
        seconds: Of the coarse march, on one core.
    """

    case: Case
    fields: dict[str, Tensor]
    targets: dict[str, Tensor]
    times: tuple[float, ...]
    seconds: float

    def at(self, place: int) -> Case:
        """The snapshot of a number."""
        time = self.case.parameters["time"].new_tensor(self.times[place])
        return replace(
            self.case,
            initial={name: values[..., place] for name, values in self.fields.items()},
            targets={name: values[..., place] for name, values in self.targets.items()},
            parameters={**self.case.parameters, "time": time},
        )


def read(split: str, name: str, dtype: torch.dtype = torch.float32, most_points: int | None = None) -> dict[str, Run]:
    """The runs of a flow by case, those on larger meshes left out."""
    found = {}
    with np.load(DATA / split / f"{name}.npz") as file:
        stored = {key: torch.from_numpy(values) for key, values in file.items()}
    for key, known in finished.cases(ARCHIVES, flows.draw_flow(name, 0)).items():
        if most_points is not None and known.case.number_of_points > most_points:
            continue
        seen = seen_by(_Units(), known.case)
        times = tuple(each / seen.time for each in known.times)
        fields = {unknown: stored[f"{key}/{unknown}"].to(dtype) for unknown in ("u", "p")}
        first = {unknown: values[..., 0] for unknown, values in fields.items()}
        case = coarse_case(seen.case, first["u"], first["p"], stored[f"{key}/start"], times[0])
        case = replace(case, targets={}, name=key).to(dtype)
        targets = {unknown: seen.case.targets[unknown].to(dtype) for unknown in ("u", "p")}
        found[key] = Run(case, fields, targets, times, float(stored[f"{key}/seconds"]))
    return found


def relative_errors(fields: dict[str, Tensor], batch: Case, levels: Tensor) -> dict[str, Tensor]:
    """By unknown, the squared relative error of each case of a batch.

    Args:
        fields: What was found.
        batch: With its targets.
        levels: By case, one where the pressure's level counts and zero where it is arbitrary.
    """
    found = {}
    for name, values in fields.items():
        target = batch.targets[name]
        difference = values - target
        if name == "p":
            mean = batch.sum(difference) / batch.sum(torch.ones_like(difference))
            difference = difference - batch.at_points((1 - levels) * mean)
        found[name] = batch.total(difference.square()) / batch.total(target.square())
    return found


def has_level(case: Case) -> bool:
    """Whether the pressure's level is prescribed, not only at one point."""
    return "p" not in FlowPhysics().free_levels(case)
