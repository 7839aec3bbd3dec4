"""The case of a run with its solution: which times, checked, on the run's own mesh or on a coarser one.

The start is the run's own. What a network wants besides, such as distances or a potential flow where the start is at
rest, is its equation's to add (`Physics.complete`), in training as in prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case, Dirichlet
from pennpde.case.companion import CompanionError, back, companion_mesh, ends_of_conditions, on_companion
from pennpde.case.moments import STEADY_PREFIX
from pennpde.data.runs.source import Quantities, RunError, Source, Times
from pennpde.models.inlet import facet_velocity

_STILL_CHANGING = 0.01
_LEVEL = 1e4
"""A field whose values are so many times larger than their differences loses these in single precision."""


@dataclass(frozen=True)
class Spacing:
    """The size of cells, as a length or in reference lengths of each run, such as the width of its inlet."""

    value: float
    is_relative: bool
    text: str

    @staticmethod
    def parse(text: str) -> Spacing:
        """A length in the units of the runs, or a multiple of the reference length as `0.1L`."""
        relative = text.strip().endswith("L")
        try:
            value = float(text.strip().removesuffix("L"))
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"The spacing is {text!r}; give a positive length in the units of the runs, or a multiple of each "
                "run's inlet width, such as 0.1L."
            )
        return Spacing(value, relative, text.strip())

    def length(self, reference: float | None) -> float:
        if not self.is_relative:
            return self.value
        if reference is None:
            raise RunError(f"it has no inlet width to take --spacing {self.text} of; give a length")
        return self.value * reference


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


def chosen_times(source: Source, plan: Plan) -> tuple[float, tuple[float, ...]]:
    """The start of a run, and the times on its clock that become targets."""
    start, known = source.times()
    reason = source.unfinished()
    if plan.times.needs_the_end and reason is not None and not plan.unfinished:
        raise RunError(
            f"it is not finished: {reason}. Run it to its end, ask for a time that it has (--time), or take it as "
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


def collect(source: Source, plan: Plan, name: str) -> tuple[Case, tuple[float, ...], dict[str, Any]]:
    """The case of a run with targets, their times from the start on (none of a steady state), and facts about it."""
    start, times = chosen_times(source, plan)
    quantities = source.quantities()
    case = replace(source.problem(), name=name)
    if case.changes_with_time:
        if plan.times.kind == "several":
            raise RunError("its conditions change with time; collect one of its times, as with --time latest")
        case = case.at(times[-1] if math.isfinite(times[-1]) else start)
        case = replace(case, parameters={key: value for key, value in case.parameters.items() if key != "time"})
    run_mesh = case.mesh
    fields = [_finite(case, source.fields(time), time) for time in times]
    fluxes = [source.fluxes(time) for time in times]
    if plan.spacing is None:
        placed = on_own_mesh(case, fields, fluxes)
    else:
        units = quantities.units(case) if plan.spacing.is_relative else None
        length = plan.spacing.length(None if units is None else units.length)
        placed = on_coarser_mesh(case, fields, fluxes, length)
    notes = [*source.notes, *run_mesh.notes, *placed.notes]
    moments = tuple(time - start for time in times)
    made = _with_targets(placed, plan.times, moments)
    facts: dict[str, Any] = {
        "format": source.format,
        "run": {"points": run_mesh.number_of_points, "cells": run_mesh.number_of_cells, "start": start},
        "cell_size": float((made.mesh.cell_volumes.sum() / made.mesh.number_of_cells) ** (1 / made.space)),
        "state": source.state(times),
    }
    if numbers := quantities.describe(made):
        facts["numbers"] = numbers
    if placed.fluxes:
        facts["flux"] = placed.fluxes
        facts["flux_off"] = max(
            abs(flux["stored"] - flux["run"]) / abs(flux["run"]) if flux["run"] else 0.0
            for flux in placed.fluxes.values()
        )
    if plan.times.kind == "steady":
        change = _last_change(source, times[-1], start, fields[-1])
        if change is not None:
            facts["last_change"] = change
            if change > _STILL_CHANGING:
                notes.append(f"its last two written times still differ by {100 * change:.1f} %: is it steady?")
    notes += _lost_differences(fields[-1])
    if notes:
        facts["notes"] = notes
    return made, () if plan.times.kind == "steady" else moments, facts


def _with_targets(placed: Placed, times: Times, moments: Sequence[float]) -> Case:
    parameters = dict(placed.case.parameters)
    if times.kind == "steady":
        targets = {STEADY_PREFIX + name: values for name, values in placed.fields[-1].items()}
    elif times.kind == "several":
        names = placed.fields[0]
        targets = {name: torch.stack([each[name] for each in placed.fields], dim=-1) for name in names}
    else:
        targets = dict(placed.fields[-1])
        parameters["time"] = torch.tensor(moments[-1], dtype=torch.float64)
    return replace(placed.case, targets=targets, parameters=parameters)


def _finite(case: Case, fields: dict[str, Tensor], time: float) -> dict[str, Tensor]:
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


# On a coarser mesh
#
# Values at the points of a coarse mesh, taken as they are, lose some flux: a parabola over eight edges one and a half
# per cent. Where more than half a per cent is lost, the normal velocity on the patch is scaled to the run's own flux.

VELOCITY = "u"
_CORRECTED, _MOST = 0.005, 0.1
_CARRIES = 0.02
"""Share of the throughput that a patch must carry for its own flux to be compared."""
_AS_FINE = 0.9


@dataclass(frozen=True, eq=False)
class Placed:
    """A case with its fields by time, on the mesh of the dataset.

    Attributes:
        fields: one mapping of unknowns for each time.
        fluxes: by patch, what flows out through it at the last time: "run", as the solver has it on its faces;
            "sampled", from the values at the points of the dataset's mesh; "stored", the same after the correction.
        notes: for the report.
    """

    case: Case
    fields: list[dict[str, Tensor]]
    fluxes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def on_own_mesh(case: Case, fields: list[dict[str, Tensor]], fluxes: list[dict[str, float]]) -> Placed:
    """The run as it is; fluxes are compared and nothing is changed."""
    if VELOCITY not in case.initial or not fields:
        return Placed(case, fields)
    sampled = patch_fluxes(case, fields[-1][VELOCITY])
    return Placed(case, fields, _told_fluxes(_carrying(fluxes[-1] or sampled), sampled, sampled))


def on_coarser_mesh(
    case: Case, fields: list[dict[str, Tensor]], fluxes: list[dict[str, float]], spacing: float
) -> Placed:
    """The run on triangles of this spacing, or on its own mesh where that is no finer.

    Args:
        case: without targets and features.
        fields: the unknowns by time.
        fluxes: the solver's own by time and patch; empty: those of the fields.
        spacing: in the units of the run.
    """
    mesh = case.mesh
    if mesh.space != 2:
        raise RunError("--spacing needs plane meshes; this one is in space")
    if float(mesh.cell_volumes.sum()) / spacing**2 > _AS_FINE * mesh.number_of_points:
        placed = on_own_mesh(case, fields, fluxes)
        return replace(placed, notes=(f"its mesh is no finer than the spacing {spacing:g}; it keeps it",))
    try:
        companion = companion_mesh(mesh, spacing, keep=ends_of_conditions(case))
    except CompanionError as error:
        raise RunError(str(error).rstrip(".")) from error
    coarse = on_companion(case, companion)
    moved = [coarse.fulfilled(back(at_time, mesh, companion)) for at_time in fields]
    if VELOCITY not in case.initial or not fields:
        return Placed(coarse, moved)
    known = [each or patch_fluxes(case, at_time[VELOCITY]) for each, at_time in zip(fluxes, fields, strict=True)]
    sampled = patch_fluxes(coarse, moved[-1][VELOCITY])
    coarse = _with_inflow(coarse, _carrying(known[-1]))
    moved = [coarse.fulfilled(at_time) for at_time in moved]
    corrected = [
        {**at_time, VELOCITY: _with_outflow(coarse, at_time[VELOCITY], _carrying(each))}
        for at_time, each in zip(moved, known, strict=True)
    ]
    stored = patch_fluxes(coarse, corrected[-1][VELOCITY])
    return Placed(coarse, corrected, _told_fluxes(_carrying(known[-1]), sampled, stored))


def _told_fluxes(
    run: Mapping[str, float], sampled: Mapping[str, float], stored: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    return {name: {"run": flux, "sampled": sampled[name], "stored": stored[name]} for name, flux in run.items()}


def patch_fluxes(case: Case, velocity: Float[Tensor, "points space"]) -> dict[str, float]:
    """By patch, the flux out of the domain from values at the points."""
    mean, _ = facet_velocity(velocity, case.mesh, case.dirichlet[VELOCITY].mask)
    through = (mean * case.mesh.facet_areas).sum(dim=1).numpy()
    return {name: float(through[patch.facets].sum()) for name, patch in case.mesh.patches.items()}


def _carrying(fluxes: Mapping[str, float]) -> dict[str, float]:
    """Those of the patches that carry a part of the throughput worth comparing."""
    throughput = max((abs(flux) for flux in fluxes.values()), default=0.0)
    return {name: flux for name, flux in fluxes.items() if abs(flux) > _CARRIES * throughput}


def _with_inflow(case: Case, wanted: Mapping[str, float]) -> Case:
    """The case with prescribed velocities that carry the wanted flux."""
    condition = case.dirichlet[VELOCITY]
    now = patch_fluxes(case, condition.values)
    values = condition.values.clone()
    for name, flux in wanted.items():
        facets, mask = case.mesh.patch(name), condition.mask.numpy()
        whole = case.mesh.facets.within(mask)[facets.facets].all()
        if not whole or not now[name]:
            continue
        factor = _correction(name, flux / now[name])
        if factor is not None:
            points = torch.from_numpy(facets.points)
            # A corner that rests stays at rest, whatever the factor.
            values[points] = values[points] * factor
    changed = Dirichlet(condition.mask, values)
    case = replace(case, conditions={**case.conditions, "dirichlet": {**case.dirichlet, VELOCITY: changed}})
    return replace(case, initial=case.fulfilled(case.initial))


def _with_outflow(
    case: Case, velocity: Float[Tensor, "points space"], wanted: Mapping[str, float]
) -> Float[Tensor, "points space"]:
    """The velocity with a normal part on free patches that carries the wanted flux."""
    free = ~case.dirichlet[VELOCITY].mask
    for name, flux in wanted.items():
        patch = case.mesh.patch(name)
        normals = case.mesh.point_normals(name).to(velocity)
        across = (velocity * normals).sum(dim=1).abs()
        mine = torch.zeros_like(free)
        mine[torch.from_numpy(patch.points)] = True
        change = torch.where((mine & free)[:, None], across[:, None] * normals, 0.0)
        now, step = patch_fluxes(case, velocity)[name], patch_fluxes(case, change)[name]
        # More of the normal part, in proportion to it: where nothing flows back, the profile keeps its shape.
        if step > 0 and now and _correction(name, flux / now) is not None:
            velocity = velocity + (flux - now) / step * change
    return velocity


def _correction(name: str, factor: float) -> float | None:
    """The factor of a correction; None where it is too small to matter; an error where it is too large to be one."""
    if abs(factor - 1.0) <= _CORRECTED:
        return None
    if not abs(factor - 1.0) <= _MOST:
        raise RunError(
            f"at this spacing the flux through {name!r} is off by {100 * abs(1 / factor - 1):.0f} %; choose a finer "
            "--spacing"
        )
    return factor
