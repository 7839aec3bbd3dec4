"""Quantities of a steady flow as functions of its state, which autograd can take apart.

From the fluxes of the scheme, so that what flows in flows out to round-off. Forces are per density and depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.mesh import triangulation
from pennpde.optimisation.flows import Fields


@dataclass(frozen=True)
class PressureDrop:
    """From one patch to another: of the mean pressure, or of the total one, weighted by what flows."""

    upstream: str
    downstream: str
    total: bool = False

    def __call__(self, fields: Fields) -> Tensor:
        mean = _mean_total_pressure if self.total else _mean_pressure
        return (mean(fields, self.upstream) - mean(fields, self.downstream)) * fields.flow.family.units.speed**2


@dataclass(frozen=True)
class MeanPressure:
    """Over a patch."""

    patch: str

    def __call__(self, fields: Fields) -> Tensor:
        scale = fields.flow.family.units.scale("p")
        return _mean_pressure(fields, self.patch) * scale.one + scale.zero


@dataclass(frozen=True)
class FlowRate:
    """Out of the domain through a patch, as volume per time and depth; as a share of what leaves through several."""

    patch: str
    among: tuple[str, ...] = ()

    def __call__(self, fields: Fields) -> Tensor:
        through = _through(fields)

        def of(patch: str) -> Tensor:
            return through[torch.from_numpy(fields.flow.facets(patch))].sum()

        if self.among:
            return of(self.patch) / sum((of(each) for each in self.among), torch.zeros(()))
        units = fields.flow.family.units
        return of(self.patch) * units.speed * units.length


@dataclass(frozen=True)
class Imbalance:
    """Root mean square of how far the shares of some outlets are from equal ones, as a share of these."""

    patches: tuple[str, ...]

    def __call__(self, fields: Fields) -> Tensor:
        shares = torch.stack([FlowRate(each, self.patches)(fields) for each in self.patches]) * len(self.patches)
        return ((shares - 1.0).square().mean() + 1e-24).sqrt()


@dataclass(frozen=True)
class Force:
    """On the wall of a patch along a direction: its pressure and its friction."""

    patch: str
    direction: tuple[float, float]

    def __call__(self, fields: Fields) -> Tensor:
        flow, problem = fields.flow, fields.flow.problem
        assert problem.facets is not None
        facets = flow.facets(self.patch)
        ends = problem.facets[torch.from_numpy(facets)]
        outward = _outward(fields)
        pushed = (outward[facets] * fields.pressure[ends].mean(dim=1)[:, None]).sum(dim=0)
        # A point at the end of the patch shares its friction with the next one.
        lengths = outward.norm(dim=1)
        around = torch.zeros_like(fields.pressure).index_add(
            0, problem.facets.reshape(-1), lengths.repeat_interleave(2)
        )
        share = torch.zeros_like(around).index_add(0, ends.reshape(-1), lengths[facets].repeat_interleave(2)) / around
        rubbed = (fields.residual.momentum * torch.where(around > 0, share, 0.0)).sum(dim=1)
        units = flow.family.units
        along = torch.tensor(self.direction, dtype=torch.float64)
        return ((pushed - rubbed) * along).sum() * units.speed**2 * units.length


@dataclass(frozen=True, eq=False)
class Misfit:
    """Root mean square of the distance of the velocity from measured ones.

    Attributes:
        positions: where it was measured.
        velocities: what was measured.
    """

    positions: Float[np.ndarray, "probes 2"]
    velocities: Float[np.ndarray, "probes 2"]

    def __call__(self, fields: Fields) -> Tensor:
        found = probed(fields, self.positions)
        # Squares with a little something: the root of zero has no derivative.
        return ((found - torch.from_numpy(self.velocities)).square().sum(dim=1).mean() + 1e-24).sqrt()


@dataclass(frozen=True)
class Probe:
    """The pressure, or a component of the velocity, at a place."""

    field: str
    at: tuple[float, float]

    def __call__(self, fields: Fields) -> Tensor:
        values = fields.pressure[None] if self.field == "p" else fields.velocity[["uv".index(self.field)]]
        scale = fields.flow.family.units.scale("p" if self.field == "p" else "u")
        return _at(fields, values, np.array([self.at]))[0, 0] * scale.one + scale.zero


def probed(fields: Fields, positions: Float[np.ndarray, "probes 2"]) -> Float[Tensor, "probes 2"]:
    """The velocity at positions."""
    return _at(fields, fields.velocity, positions).T * fields.flow.family.units.speed


def _at(
    fields: Fields, values: Float[Tensor, "rows points"], positions: Float[np.ndarray, "places 2"]
) -> Float[Tensor, "rows places"]:
    """Values at positions, linear in triangles."""
    cells = fields.flow.grid.cells
    triangles = np.concatenate([cells.triangles, cells.quads[:, :3], cells.quads[:, [0, 2, 3]]])
    weights, _ = triangulation.interpolation(cells.points, triangles, positions / fields.flow.family.units.length)
    entries = weights.tocoo()
    _, places = np.unique(fields.flow.grid.representative, return_inverse=True)
    shares = values[:, torch.from_numpy(places[entries.col])] * torch.from_numpy(entries.data)
    nothing = shares.new_zeros(len(values), len(positions))
    return nothing.index_add(1, torch.from_numpy(entries.row.astype(np.int64)), shares)


def _outward(fields: Fields) -> Float[Tensor, "facets 2"]:
    cells = fields.flow.grid.cells
    along = cells.points[cells.facets[:, 1]] - cells.points[cells.facets[:, 0]]
    return torch.from_numpy(np.stack([along[:, 1], -along[:, 0]], axis=1))


def _mean_pressure(fields: Fields, patch: str) -> Tensor:
    facets = fields.flow.facets(patch)
    assert fields.flow.problem.facets is not None
    lengths = _outward(fields)[facets].norm(dim=1)
    ends = fields.flow.problem.facets[torch.from_numpy(facets)]
    return (lengths * fields.pressure[ends].mean(dim=1)).sum() / lengths.sum()


def _mean_total_pressure(fields: Fields, patch: str) -> Tensor:
    """Simpson's rule on each facet for what is linear between its ends."""
    facets = fields.flow.facets(patch)
    assert fields.flow.problem.facets is not None
    outward = _outward(fields)[facets]
    ends = fields.flow.problem.facets[torch.from_numpy(facets)]
    velocity, pressure = fields.velocity[:, ends].permute(1, 2, 0), fields.pressure[ends]

    def carried(velocity: Tensor, pressure: Tensor) -> tuple[Tensor, Tensor]:
        through = (velocity * outward).sum(dim=1)
        return through, through * (pressure + 0.5 * velocity.square().sum(dim=1))

    start, end = carried(velocity[:, 0], pressure[:, 0]), carried(velocity[:, 1], pressure[:, 1])
    middle = carried(velocity.mean(dim=1), pressure.mean(dim=1))
    through, total = (
        one.sum() + 4.0 * half.sum() + other.sum() for one, half, other in zip(start, middle, end, strict=True)
    )
    return total / through


def _through(fields: Fields) -> Float[Tensor, " facets"]:
    """What leaves through each facet; at outlets what the fluxes between cells leave for it (see `flow.outflow`)."""
    grid, problem = fields.flow.grid, fields.flow.problem
    assert problem.facets is not None
    velocity = torch.from_numpy(grid.facet_velocity)
    outward = _outward(fields)
    means = (velocity[:, 0] + 4.0 * velocity[:, 1] + velocity[:, 2]) / 6.0
    given = (means * outward).sum(dim=1) * torch.from_numpy(grid.facet_held)
    left = -(problem.cells.collected(fields.residual.fluxes) + problem.inflow)
    lengths = outward.norm(dim=1) * torch.from_numpy(grid.facet_open)
    ends = problem.facets
    around = torch.zeros_like(left).index_add(0, ends.reshape(-1), lengths.repeat_interleave(2))
    shares = lengths[:, None] / around[ends].clamp_min(1e-300)
    return given + (left[ends] * shares).sum(dim=1)
