"""A run on a coarser mesh: conditions and fields there, with the same flux through inlets and outlets.

Values at the points of a coarse mesh, taken as they are, lose some flux: a parabola over eight edges one and a half per
cent. Where more than half a per cent is lost, the normal velocity on the patch is scaled to the run's own flux.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case, Dirichlet
from pennpde.case.companion import ends_of_conditions, on_companion
from pennpde.data.runs.times import RunError
from pennpde.mesh import Mesh
from pennpde.mesh.interpolation import interpolation
from pennpde.mesh.remesh import CompanionError, companion_mesh
from pennpde.models.inlet import facet_velocity

VELOCITY = "u"
_CORRECTED, _MOST = 0.005, 0.1
_CARRIES = 0.02
"""Share of the throughput that a patch must carry for its own flux to be compared."""
_AS_FINE = 0.9


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
class Flux:
    """What flows out through a patch.

    Attributes:
        run: as the solver has it on its faces.
        sampled: from the values at the points of the dataset's mesh, taken as they are.
        stored: the same after the correction.
    """

    run: float
    sampled: float
    stored: float

    @property
    def off(self) -> float:
        """By what share the flux of the dataset differs from the run's."""
        return abs(self.stored - self.run) / abs(self.run) if self.run else 0.0


@dataclass(frozen=True, eq=False)
class Placed:
    """A case with its fields by time, on the mesh of the dataset.

    Attributes:
        fields: one mapping of unknowns for each time.
        fluxes: by patch, at the last time.
        notes: for the report.
    """

    case: Case
    fields: list[dict[str, Tensor]]
    fluxes: Mapping[str, Flux] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def on_own_mesh(case: Case, fields: list[dict[str, Tensor]], fluxes: list[dict[str, float]]) -> Placed:
    """The run as it is; fluxes are compared and nothing is changed."""
    if VELOCITY not in case.initial or not fields:
        return Placed(case, fields)
    sampled = patch_fluxes(case, fields[-1][VELOCITY])
    known = _carrying(fluxes[-1] or sampled)
    return Placed(case, fields, {name: Flux(run, sampled[name], sampled[name]) for name, run in known.items()})


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
    matrix = interpolation(mesh, companion.points.numpy())
    moved = [
        coarse.fulfilled({name: _applied(matrix, values) for name, values in at_time.items()}) for at_time in fields
    ]
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
    found = {name: Flux(run, sampled[name], stored[name]) for name, run in _carrying(known[-1]).items()}
    return Placed(coarse, corrected, found)


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
        factor = _checked(name, flux / now[name])
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
        if step > 0 and now and _checked(name, flux / now) is not None:
            velocity = velocity + (flux - now) / step * change
    return velocity


def _checked(name: str, factor: float) -> float | None:
    """The factor of a correction; None where it is too small to matter; an error where it is too large to be one."""
    if abs(factor - 1.0) <= _CORRECTED:
        return None
    if not abs(factor - 1.0) <= _MOST:
        raise RunError(
            f"at this spacing the flux through {name!r} is off by {100 * abs(1 / factor - 1):.0f} %; choose a finer "
            "--spacing"
        )
    return factor


def _applied(matrix, values: Tensor) -> Tensor:
    flat = values.double().numpy().reshape(len(values), -1)
    return torch.from_numpy(np.asarray(matrix @ flat).reshape(-1, *values.shape[1:]))


def mesh_spacing(mesh: Mesh) -> float:
    """The mean size of a mesh's cells, for the report."""
    return float((mesh.cell_volumes.sum() / mesh.number_of_cells) ** (1 / mesh.space))
