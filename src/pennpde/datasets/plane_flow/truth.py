"""The truth of a flow by OpenFOAM: on the dual of a smooth triangulation, pimpleFoam for moments, simpleFoam for steady
states."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pennpde import openfoam
from pennpde.datasets.plane_flow.conditions import Inlet, Outlet, Prescribed, Slip, Wall
from pennpde.datasets.plane_flow.dual import Dual, dual_of, renumbered
from pennpde.datasets.plane_flow.flow import Flow
from pennpde.datasets.plane_flow.sizes import SizeField, Sizing
from pennpde.datasets.plane_flow.start import at_points, gradients, potential_velocity
from pennpde.datasets.plane_flow.triangles import Triangles, triangulated
from pennpde.openfoam import NonUniform, Uniform

INTERVAL = 0.125
"""Moments are multiples of this: the solver's steps meet them."""

SCHEMES: dict[str, Any] = {
    "ddtSchemes": {"default": "backward"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {
        "default": "none",
        "div(phi,U)": "Gauss LUST grad(U)",
        "div((nuEff*dev2(T(grad(U)))))": "Gauss linear",
    },
    "laplacianSchemes": {"default": "Gauss linear corrected"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "corrected"},
}
_PRESSURE = {"solver": "GAMG", "smoother": "GaussSeidel"}
_VELOCITY = {"solver": "smoothSolver", "smoother": "symGaussSeidel"}
SOLVERS: dict[str, Any] = {
    "p": {**_PRESSURE, "tolerance": 1e-6, "relTol": 0.05},
    "pFinal": {**_PRESSURE, "tolerance": 1e-6, "relTol": 0.005},
    "U": {**_VELOCITY, "tolerance": 1e-6, "relTol": 0.01},
    "UFinal": {**_VELOCITY, "tolerance": 1e-6, "relTol": 0.01},
}
PIMPLE: dict[str, Any] = {
    "momentumPredictor": True,
    "nOuterCorrectors": 1,
    "nCorrectors": 2,
    "nNonOrthogonalCorrectors": 0,
}
STEADY_SCHEMES: dict[str, Any] = {
    **SCHEMES,
    "ddtSchemes": {"default": "steadyState"},
    "divSchemes": {**SCHEMES["divSchemes"], "div(phi,U)": "bounded Gauss linearUpwind grad(U)"},
}
STEADY_SOLVERS: dict[str, Any] = {
    "p": {**_PRESSURE, "tolerance": 1e-8, "relTol": 0.05},
    "U": {**_VELOCITY, "tolerance": 1e-8, "relTol": 0.1},
}
SIMPLE: dict[str, Any] = {"nNonOrthogonalCorrectors": 0, "consistent": True, "residualControl": {"p": 1e-4, "U": 1e-6}}
STEADY_ITERATIONS = 600
LARGEST_STEADY_REYNOLDS, LARGEST_STEADY_BODY_REYNOLDS = 400.0, 80.0
LARGEST_COURANT = 2.0
MOST_CELLS = 26_000
"""Wide domains at high Reynolds numbers get larger cells, rather than minutes of computing."""


@dataclass(frozen=True)
class Resolution:
    """How finely a flow is computed.

    Attributes:
        spacing: factor of all sizes of cells.
        courant: largest Courant number.
    """

    spacing: float = 1.0
    courant: float = LARGEST_COURANT

    @property
    def iterations(self) -> int:
        """At most so many for a steady state: finer meshes need more."""
        return round(STEADY_ITERATIONS / self.spacing)

    @property
    def halved(self) -> Resolution:
        """Half the spacing; at the same Courant number the time step is half as long, too."""
        return Resolution(0.5 * self.spacing, self.courant)


def sizing(flow: Flow, resolution: Resolution) -> Sizing:
    """Sizes by the Reynolds number: layers at walls and behind edges are as thin as its root."""
    scale = flow.reynolds / 300.0
    wall = float(np.clip(0.0203 * scale**-0.6, 0.0063, 0.0245))
    # Wide domains have large and slow eddies: they need not be as fine everywhere. Small ones cost little.
    wide = float(np.clip((flow.domain.area / 10.0) ** 0.25, 0.5, 1.3))
    wall *= min(wide, 1.0)
    bulk = wide * float(np.clip(0.0336 * scale**-0.29, 0.019, 0.042))
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
        facts: seconds, cells, steps, the largest Courant number, iterations and the reason where there is no steady
            state.
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
    installation: openfoam.Installation | None = None,
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
    resolution = resolution or Resolution()
    installation = installation or openfoam.find_installation(("pimpleFoam", "simpleFoam"))
    began = time.monotonic()
    mesh = truth_triangles(flow, resolution)
    dual = dual_of(mesh)
    meshed = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write_mesh(folder, flow, dual)
    velocity = potential_velocity(flow, mesh)
    _write_case(folder, flow, dual, resolution, velocity)
    end = flow.moments[-1]
    steps = 0

    def hear(progress: openfoam.Progress) -> None:
        nonlocal steps
        steps += 1
        if on_progress is not None:
            on_progress(0.8 * progress.time / end)

    progress = openfoam.run(
        folder, "pimpleFoam", installation=installation, on_progress=hear, timeout=timeout, largest_courant=1e3
    )
    solved = time.monotonic()
    points = _PointValues.of(flow, mesh, dual)
    fields = [_read(folder / f"{moment:g}", flow, points) for moment in flow.moments]
    facts: dict[str, Any] = {
        "cells": len(mesh.points),
        "steps": steps,
        "largest_courant": round(progress.largest_courant, 3),
        "seconds_meshing": round(meshed - began, 2),
        "seconds_moments": round(solved - meshed, 2),
    }
    steady_velocity = steady_pressure = None
    if steady if steady is not None else may_be_steady(flow):
        outcome = _steady(folder, flow, points, resolution.iterations, installation, timeout)
        facts |= outcome.facts
        steady_velocity, steady_pressure = outcome.velocity, outcome.pressure
        facts["seconds_steady"] = round(time.monotonic() - solved, 2)
    return Truth(
        mesh,
        np.stack([u for u, _ in fields], axis=-1),
        np.stack([p for _, p in fields], axis=-1),
        steady_velocity,
        steady_pressure,
        facts,
    )


# OpenFOAM's files


def _write_mesh(folder: Path, flow: Flow, dual: Dual) -> None:
    dual.mesh.write(folder)
    kinds = {name: "wall" if isinstance(each, Wall) else "patch" for name, each in flow.conditions.items()}
    rows = [
        f"{name} {{ type {kinds.get(name, patch.type)}; nFaces {patch.count}; startFace {patch.start}; }}"
        for name, patch in dual.mesh.patches.items()
    ]
    header = openfoam.format_dictionary("boundary", {}, "polyBoundaryMesh")
    boundary = folder / "constant" / "polyMesh" / "boundary"
    boundary.write_text("\n".join([header, str(len(rows)), "(", *rows, ")", ""]))


def boundary_velocity(flow: Flow, dual: Dual, name: str) -> Float[np.ndarray, "faces 3"]:
    """The prescribed velocity on the faces of a patch; an inlet's flux is exact."""
    condition = flow.conditions[name]
    assert isinstance(condition, Prescribed)
    values = condition.velocity(dual.face_centres[name])
    if isinstance(condition, Inlet):
        lengths = dual.face_lengths[name]
        along = np.subtract(condition.end, condition.start)
        inward = np.array([-along[1], along[0]]) / np.sqrt((along**2).sum())
        flux = (lengths * (values[:, 0] * inward[0] + values[:, 1] * inward[1])).sum()
        values = values * (condition.speed * lengths.sum() / flux)
    return np.column_stack([values, np.zeros(len(values))])


def _conditions(flow: Flow, dual: Dual) -> tuple[dict[str, Any], dict[str, Any]]:
    velocity: dict[str, Any] = {"frontAndBack": {"type": "empty"}}
    pressure: dict[str, Any] = {"frontAndBack": {"type": "empty"}}
    for name, condition in flow.conditions.items():
        pressure[name] = {"type": "zeroGradient"}
        if isinstance(condition, Prescribed):
            if condition.at_rest:
                velocity[name] = {"type": "noSlip"}
            else:
                velocity[name] = {"type": "fixedValue", "value": NonUniform(boundary_velocity(flow, dual, name))}
        elif isinstance(condition, Slip):
            velocity[name] = {"type": "slip"}
        elif isinstance(condition, Outlet):
            velocity[name] = {"type": "zeroGradient"}
            pressure[name] = {"type": "fixedValue", "value": Uniform(0.0)}
    return velocity, pressure


def _write_case(
    folder: Path, flow: Flow, dual: Dual, resolution: Resolution, velocity: Float[np.ndarray, "points 2"]
) -> None:
    speed = max(1.0, float(np.sqrt((velocity**2).sum(axis=1)).max()))
    finest = float(np.sqrt(dual.areas.min()))
    control = {
        "application": "pimpleFoam",
        "startFrom": "startTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": flow.moments[-1],
        "deltaT": round(0.1 * resolution.courant * finest / speed, 6),
        "adjustTimeStep": True,
        "maxCo": resolution.courant,
        "maxDeltaT": 0.05 * resolution.spacing,
        "writeControl": "adjustableRunTime",
        "writeInterval": INTERVAL,
        "writeFormat": "binary",
        "timePrecision": 8,
        "runTimeModifiable": False,
    }
    for_steady = {
        **control,
        "application": "simpleFoam",
        "endTime": resolution.iterations,
        "deltaT": 1,
        "adjustTimeStep": False,
        "writeControl": "timeStep",
        "writeInterval": resolution.iterations,
    }
    reference = {}
    if flow.pressure_point is not None:
        nearest = int(((dual.centres - np.array(flow.pressure_point)) ** 2).sum(axis=1).argmin())
        reference = {"pRefCell": nearest, "pRefValue": 0}
    relaxation = {"relaxationFactors": {"equations": {"U": 0.9, "p": 1.0}, "fields": {"p": 1.0}}}
    text = openfoam.format_dictionary
    files = {
        "system/controlDict": text("controlDict", control),
        "system/fvSchemes": text("fvSchemes", SCHEMES),
        "system/fvSolution": text("fvSolution", {"solvers": SOLVERS, "PIMPLE": {**PIMPLE, **reference}}),
        "steady/controlDict": text("controlDict", for_steady),
        "steady/fvSchemes": text("fvSchemes", STEADY_SCHEMES),
        "steady/fvSolution": text(
            "fvSolution", {"solvers": STEADY_SOLVERS, "SIMPLE": {**SIMPLE, **reference}, **relaxation}
        ),
        "constant/transportProperties": text(
            "transportProperties", {"transportModel": "Newtonian", "nu": (openfoam.VISCOSITY, flow.viscosity)}
        ),
        "constant/turbulenceProperties": text("turbulenceProperties", {"simulationType": "laminar"}),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "0").mkdir()
    for_velocity, for_pressure = _conditions(flow, dual)
    start = np.column_stack([velocity, np.zeros(len(velocity))])
    openfoam.write_field(folder / "0" / "U", start, openfoam.VELOCITY, for_velocity)
    openfoam.write_field(folder / "0" / "p", np.zeros(len(start)), openfoam.PRESSURE, for_pressure)


# Values at the points


@dataclass(frozen=True, eq=False)
class _PointValues:
    """Cell values, which belong to centroids, as values at the points of the triangulation.

    At interior points the two nearly coincide; cells of the boundary have their centroid a third of a cell inside.
    """

    mesh: Triangles
    offset: Float[np.ndarray, "points 2"]
    slopes: Float[np.ndarray, "triangles 3 2"]
    areas: Float[np.ndarray, " triangles"]
    velocity: Float[np.ndarray, "points 2"]
    velocity_known: np.ndarray
    pressure_known: np.ndarray

    @staticmethod
    def of(flow: Flow, mesh: Triangles, dual: Dual) -> _PointValues:
        slopes, areas = gradients(mesh)
        known, zero = np.zeros(len(mesh.points), bool), np.zeros(len(mesh.points), bool)
        values = np.zeros_like(mesh.points)
        for name, condition in flow.prescribed.items():
            of_patch = np.unique(mesh.edges[mesh.patches[name]])
            values[of_patch], known[of_patch] = condition.velocity(mesh.points[of_patch]), True
        for name in flow.outlets:
            zero[np.unique(mesh.edges[mesh.patches[name]])] = True
        return _PointValues(mesh, mesh.points - dual.centres, slopes, areas, values, known, zero)

    def of_cells(
        self, cells: Float[np.ndarray, " cells"], known: np.ndarray, prescribed: np.ndarray | float
    ) -> Float[np.ndarray, " points"]:
        found = np.where(known, prescribed, cells)
        for _ in range(2):
            slope = np.einsum("tia,ti->ta", self.slopes, found[self.mesh.triangles])
            gradient = at_points(self.mesh, slope, self.areas)
            found = np.where(known, prescribed, cells + (gradient * self.offset).sum(axis=1))
        return found


def _read(
    frame: Path, flow: Flow, points: _PointValues
) -> tuple[Float[np.ndarray, "points 2"], Float[np.ndarray, " points"]]:
    cells = len(points.mesh.points)
    u = openfoam.read_field(frame / "U").values(cells)
    p = openfoam.read_field(frame / "p").values(cells)
    if not (np.isfinite(u).all() and np.isfinite(p).all()) or np.abs(u).max() > 50:
        raise openfoam.DivergenceError(f"The fields at {frame.name} of {flow.name} reach |U| = {np.abs(u).max():.3g}.")
    velocity = np.stack(
        [points.of_cells(u[:, axis], points.velocity_known, points.velocity[:, axis]) for axis in range(2)], axis=1
    )
    pressure = points.of_cells(p, points.pressure_known, 0.0)
    if flow.pressure_point is not None:
        nearest = int(((points.mesh.points - np.array(flow.pressure_point)) ** 2).sum(axis=1).argmin())
        pressure = pressure - pressure[nearest]
    return velocity, pressure


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
    points: _PointValues,
    most: int,
    installation: openfoam.Installation,
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
        progress = openfoam.run(folder, "simpleFoam", installation=installation, timeout=timeout)
    except openfoam.OpenFOAMError as error:
        return _Steady({"steady": False, "why_not_steady": str(error).splitlines()[0]})
    frames = openfoam.time_folders(folder)
    iterations = int(float(frames[-1].name))
    facts: dict[str, Any] = {"steady_iterations": iterations, "steady_residuals": dict(progress.residuals)}
    if iterations >= most:
        return _Steady({**facts, "steady": False, "why_not_steady": f"not converged after {iterations} iterations"})
    velocity, pressure = _read(frames[-1], flow, points)
    return _Steady({**facts, "steady": True}, velocity, pressure)
