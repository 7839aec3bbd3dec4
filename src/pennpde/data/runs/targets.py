"""The case of a run with its solution: which times, checked, on the mesh of the dataset.

The start is the run's own. What a network wants besides, such as distances or a potential flow where the start is at
rest, is its equation's to add (`Physics.complete`), in training as in prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.data.runs.coarsening import Placed, Spacing, mesh_spacing, on_coarser_mesh, on_own_mesh
from pennpde.data.runs.quantities import Quantities
from pennpde.data.runs.source import Source
from pennpde.data.runs.times import RunError, Times
from pennpde.data.times import STEADY

_STILL_CHANGING = 0.01
_LEVEL = 1e4
"""A field whose values are so many times larger than their differences loses these in single precision."""


@dataclass(frozen=True)
class Plan:
    """What is to be made of every run.

    Attributes:
        times: that become targets.
        spacing: of the meshes; None: their own meshes.
        unfinished: whether runs that did not come to their end are taken as well.
        quantities: which fields are whose; None: as each run has them.
        repair: whether meshes in files are repaired, as by `Mesh.read`.
    """

    times: Times
    spacing: Spacing | None = None
    unfinished: bool = False
    quantities: Quantities | None = None
    repair: bool = True


@dataclass(frozen=True, eq=False)
class Collected:
    """A case with targets.

    Attributes:
        moments: of the targets, from the start on; none for a steady state.
        facts: for the manifest.
    """

    case: Case
    moments: tuple[float, ...]
    facts: dict[str, Any]


def chosen_times(source: Source, plan: Plan) -> tuple[float, tuple[float, ...]]:
    """The start of a run, and the times on its clock that become targets."""
    start, known = source.times()
    end = source.end()
    if plan.times.needs_the_end and not end.finished and not plan.unfinished:
        raise RunError(
            f"it is not finished: {end.reason}. Run it to its end, ask for a time that it has (--time), or take it as "
            "it is (--unfinished)"
        )
    if source.counts_iterations() and plan.times.kind != "steady":
        raise RunError("it is a run of a steady solver, whose times are iterations; collect it with --time steady")
    if list(known) == [math.inf]:
        if plan.times.kind == "one":  # the user knows what the file does not say
            return start, plan.times.listed
        if plan.times.kind == "steady":
            return start, (math.inf,)
        raise RunError(
            "it does not say at which time its fields are: give --time steady or --time TIME, store the time as the "
            "field data TimeValue, or list the file in a .pvd file"
        )
    times = plan.times.chosen(known, start)
    source.check(times)
    return start, times


def collect(source: Source, plan: Plan, name: str) -> Collected:
    """The case of a run."""
    start, times = chosen_times(source, plan)
    quantities = source.quantities()
    case = source.problem()
    case = replace(case, name=name)
    if case.changes_with_time:
        if plan.times.kind == "several":
            raise RunError("its conditions change with time; collect one of its times, as with --time latest")
        case = case.at(times[-1] if math.isfinite(times[-1]) else start)
        case = replace(case, parameters={key: value for key, value in case.parameters.items() if key != "time"})
    run_mesh = case.mesh
    fields = [_checked(case, source.fields(time), time) for time in times]
    fluxes = [source.fluxes(time) for time in times]
    if plan.spacing is None:
        placed = on_own_mesh(case, fields, fluxes)
    else:
        units = quantities.units(case) if plan.spacing.is_relative else None
        length = plan.spacing.length(None if units is None else units.length)
        placed = on_coarser_mesh(case, fields, fluxes, length)
    notes = [*source.notes, *run_mesh.notes, *placed.notes]
    made = _with_targets(placed.case, placed, plan.times, [time - start for time in times])
    facts: dict[str, Any] = {
        "format": source.format,
        "run": {"points": run_mesh.number_of_points, "cells": run_mesh.number_of_cells, "start": start},
        "cell_size": mesh_spacing(made.mesh),
        "state": source.state(times),
    }
    if numbers := quantities.describe(made):
        facts["numbers"] = numbers
    if placed.fluxes:
        facts["flux"] = {
            patch: {"run": flux.run, "sampled": flux.sampled, "stored": flux.stored}
            for patch, flux in placed.fluxes.items()
        }
        facts["flux_off"] = max(flux.off for flux in placed.fluxes.values())
    if plan.times.kind == "steady":
        change = _last_change(source, times[-1], start, fields[-1])
        if change is not None:
            facts["last_change"] = change
            if change > _STILL_CHANGING:
                notes.append(f"its last two written times still differ by {100 * change:.1f} %: is it steady?")
    notes += _lost_differences(fields[-1])
    if notes:
        facts["notes"] = notes
    moments = () if plan.times.kind == "steady" else tuple(time - start for time in times)
    return Collected(made, moments, facts)


def _with_targets(case: Case, placed: Placed, times: Times, moments: Sequence[float]) -> Case:
    parameters = dict(case.parameters)
    if times.kind == "steady":
        targets = {STEADY + name: values for name, values in placed.fields[-1].items()}
    elif times.kind == "several":
        names = placed.fields[0]
        targets = {name: torch.stack([each[name] for each in placed.fields], dim=-1) for name in names}
    else:
        targets = dict(placed.fields[-1])
        parameters["time"] = torch.tensor(moments[-1], dtype=torch.float64)
    return replace(case, targets=targets, parameters=parameters)


def _checked(case: Case, fields: dict[str, Tensor], time: float) -> dict[str, Tensor]:
    """Fields that are finite, with the prescribed values at their points."""
    made = {}
    for name, values in fields.items():
        wrong = int((~values.isfinite()).reshape(len(values), -1).any(dim=1).sum())
        if wrong:
            when = f" at time {time:g}" if math.isfinite(time) else ""
            raise RunError(f"{name}{when} is not finite at {wrong} points: the run has diverged")
        made[name] = _mean_over_copies(case, name, values)
    return case.fulfilled(made)


def _mean_over_copies(case: Case, name: str, values: Tensor) -> Tensor:
    """On periodic patches each side knows only its own cells: the mean of both sides is the value in between."""
    if name not in case.periodic:
        return values
    periodic = case.periodic[name]
    group, shift = periodic.points.numpy(), periodic.shift
    level = (values - shift).reshape(len(values), -1).numpy()
    count = np.bincount(group, minlength=len(values))
    means = (
        np.stack([np.bincount(group, column, len(values)) for column in level.T], axis=1)[group] / count[group, None]
    )
    return torch.from_numpy(means).reshape(values.shape) + shift


def _last_change(source: Source, last: float, start: float, fields: dict[str, Tensor]) -> float | None:
    """How much the unknowns have changed since the time before the last; None where there is no such time."""
    before = [time for time in source.times()[1] if start < time < last]
    if not before:
        return None
    try:
        earlier = source.fields(before[-1])
    except (ValueError, OSError):
        return None
    changes = []
    for name, values in fields.items():
        size = float((values - values.mean(dim=0)).norm())
        changes.append(float((values - earlier[name]).norm()) / size if size > 0 else 0.0)
    return max(changes)


def _lost_differences(fields: dict[str, Tensor]) -> list[str]:
    """A note for each field that single precision, in which it is stored, does not do justice to."""
    found = []
    for name, values in fields.items():
        size, span = float(values.abs().max()), float(values.max() - values.min())
        if size > _LEVEL * span > 0:
            found.append(
                f"{name} is about {size:.4g} everywhere and varies only by {span:.2g}, of which single precision keeps "
                "little: subtract its level before"
            )
    return found
