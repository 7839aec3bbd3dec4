"""The truth of a flow, by OpenFOAM on duals of triangles: pimpleFoam for moments, simpleFoam for steady states."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pennlab import running
from pennlab.datasets.plane_flow.conditions import Wall
from pennlab.datasets.plane_flow.dual import dual_of, renumbered
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.foam import Resolution, write_case, write_mesh
from pennlab.datasets.plane_flow.point_values import PointValues, read_frame
from pennlab.datasets.plane_flow.sizes import SizeField, Sizing
from pennlab.datasets.plane_flow.start import potential_velocity
from pennlab.datasets.plane_flow.triangles import Triangles, triangulated
from pennpde import openfoam

LARGEST_STEADY_REYNOLDS, LARGEST_STEADY_BODY_REYNOLDS = 400.0, 80.0
MOST_CELLS = 26_000
"""Wide domains at high Reynolds numbers get larger cells, rather than minutes of computing."""


def wanted_sizes(flow: Flow) -> tuple[float, float]:
    """Of cells in the bulk and at walls, by the Reynolds number: layers are as thin as its root."""
    scale = flow.reynolds / 300.0
    wall = float(np.clip(0.0203 * scale**-0.6, 0.0063, 0.0245))
    # Wide domains have large and slow eddies: they need not be as fine everywhere. Small ones cost little.
    wide = float(np.clip((flow.domain.area / 10.0) ** 0.25, 0.5, 1.3))
    wall *= min(wide, 1.0)
    bulk = wide * float(np.clip(0.0336 * scale**-0.29, 0.019, 0.042))
    return bulk, wall


def sizing(flow: Flow, resolution: Resolution) -> Sizing:
    """Sizes of the cells: finer at walls, in gaps and around bodies; larger in a domain that would have too many."""
    bulk, wall = wanted_sizes(flow)
    by_patch = {name: wall for name, each in flow.conditions.items() if isinstance(each, Wall)}
    smooth = (*flow.outlets, *flow.slips)
    wanted = Sizing(
        bulk,
        by_patch,
        cells_in_gap=22.0,
        at_jumps=0.6,
        edges_around=70.0,
        edges_per_turn=34.0,
        smooth=smooth,
    )
    expected = SizeField.of(flow.domain, wanted).number_of_points(flow.domain)
    return wanted.scaled(resolution.spacing * max(1.0, float(np.sqrt(expected / MOST_CELLS))))


def truth_triangles(flow: Flow, resolution: Resolution) -> Triangles:
    """The triangulation whose points are the centres of the cells."""
    wanted = sizing(flow, resolution)
    size = SizeField.of(flow.domain, wanted)
    return renumbered(triangulated(flow.domain, size.at, wanted.bulk, float(size.values.min())))


@dataclass(frozen=True, eq=False)
class Truth:
    """A computed flow.

    Attributes:
        mesh: its points carry the fields.
        velocity: at the moments, [points, 2, moments].
        pressure: at the moments, [points, moments].
        steady_velocity: [points, 2], where there is a steady state.
        steady_pressure: likewise, [points].
        facts: seconds of one core, cells, steps, the largest Courant number, iterations and the reason where there is
            no steady state.
    """

    mesh: Triangles
    velocity: Float[np.ndarray, "points 2 moments"]
    pressure: Float[np.ndarray, "points moments"]
    steady_velocity: Float[np.ndarray, "points 2"] | None = None
    steady_pressure: Float[np.ndarray, " points"] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def solve(
    flow: Flow,
    folder: Path,
    resolution: Resolution | None = None,
    *,
    steady: bool | None = None,
    installation: running.Installation | None = None,
    on_progress: Callable[[float], None] | None = None,
    timeout: float | None = None,
) -> Truth:
    """Compute a flow at its moments, and its steady state where it has one.

    Args:
        flow: what to compute.
        folder: for OpenFOAM's files; is emptied first.
        resolution: the dataset's by default.
        steady: whether to look for a steady state; by default up to Re 400.
        installation: saves looking for OpenFOAM again.
        on_progress: hears the share that is done.
        timeout: seconds for each run of a solver.
    """
    resolution = resolution or Resolution.of(flow)
    installation = installation or running.find_installation(("pimpleFoam", "simpleFoam"))
    began = _core_seconds()
    mesh = truth_triangles(flow, resolution)
    dual = dual_of(mesh)
    meshed = _core_seconds()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_mesh(folder, flow, dual)
    velocity = potential_velocity(flow, mesh)
    write_case(folder, flow, dual, resolution, velocity)
    end = flow.moments[-1]
    steps = 0

    def hear(progress: running.Progress) -> None:
        nonlocal steps
        steps += 1
        if on_progress is not None:
            on_progress(0.8 * progress.time / end)

    progress = running.run(
        folder, "pimpleFoam", installation=installation, on_progress=hear, timeout=timeout, largest_courant=1e3
    )
    solved = _core_seconds()
    points = PointValues.of(flow, mesh, dual)
    fields = [read_frame(folder / f"{moment:g}", flow, points) for moment in flow.moments]
    facts: dict[str, Any] = {
        "cells": len(mesh.points),
        "steps": steps,
        "courant": resolution.courant,
        "outer_correctors": resolution.outer_correctors,
        "largest_courant": round(progress.largest_courant, 3),
        "seconds_meshing": round(meshed - began, 2),
        "seconds_moments": round(solved - meshed, 2),
    }
    steady_velocity = steady_pressure = None
    if steady if steady is not None else may_be_steady(flow):
        outcome = _steady(folder, flow, points, resolution.iterations, installation, timeout)
        facts |= outcome.facts
        steady_velocity, steady_pressure = outcome.velocity, outcome.pressure
        facts["seconds_steady"] = round(_core_seconds() - solved, 2)
    return Truth(
        mesh,
        np.stack([u for u, _ in fields], axis=-1),
        np.stack([p for _, p in fields], axis=-1),
        steady_velocity,
        steady_pressure,
        facts,
    )


def _core_seconds() -> float:
    """Of this process and the programs that it ran: the clock would tell how busy the machine is."""
    return sum(os.times()[:4])


# Steady states


def may_be_steady(flow: Flow) -> bool:
    """Whether a steady state is looked for: up to Re 400, behind bodies up to Re 80 with their height.

    Beyond that eddies are shed, or may be: an iteration can converge to a state to which no flow ever settles.
    """
    heights = [np.ptp(np.concatenate([piece.path for piece in hole])[:, 1]) for hole in flow.domain.loops[1:]]
    at_body = flow.reynolds * float(max(heights, default=0.0))
    return flow.reynolds <= LARGEST_STEADY_REYNOLDS and at_body <= LARGEST_STEADY_BODY_REYNOLDS


@dataclass(frozen=True, eq=False)
class _Steady:
    facts: Mapping[str, Any]
    velocity: Float[np.ndarray, "points 2"] | None = None
    pressure: Float[np.ndarray, " points"] | None = None


def _steady(
    folder: Path,
    flow: Flow,
    points: PointValues,
    most: int,
    installation: running.Installation,
    timeout: float | None,
) -> _Steady:
    """Iterate from the last moment to a state that no longer changes, or say why there is none."""
    for name in ("controlDict", "fvSchemes", "fvSolution"):
        shutil.copy(folder / "steady" / name, folder / "system" / name)
    last = folder / f"{flow.moments[-1]:g}"
    kept = folder / "last"
    last.rename(kept)
    for frame in openfoam.time_folders(folder):
        shutil.rmtree(frame)
    (folder / "0").mkdir()
    for name in ("U", "p"):
        shutil.copy(kept / name, folder / "0" / name)
    try:
        progress = running.run(folder, "simpleFoam", installation=installation, timeout=timeout)
    except running.OpenFOAMError as error:
        return _Steady({"steady": False, "why_not_steady": str(error).splitlines()[0]})
    frames = openfoam.time_folders(folder)
    iterations = int(float(frames[-1].name))
    facts: dict[str, Any] = {"steady_iterations": iterations, "steady_residuals": dict(progress.residuals)}
    if iterations >= most:
        return _Steady({**facts, "steady": False, "why_not_steady": f"not converged after {iterations} iterations"})
    velocity, pressure = read_frame(frames[-1], flow, points)
    return _Steady({**facts, "steady": True}, velocity, pressure)
