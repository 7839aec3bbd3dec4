"""Quantities of a steady flow as functions of its state, which autograd can take apart.

From the fluxes of the scheme, so that what flows in flows out to round-off. Forces are per density and depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.flow.balance import taken_up
from pennpde.mesh.interpolation import interpolation
from pennpde.study.optimisation.flows import Fields

_PLACES, _WEIGHTS = (each / 2 for each in np.polynomial.legendre.leggauss(4))
_PLACES = _PLACES + 0.5
_PARABOLA = np.stack(
    [(2 * _PLACES - 1) * (_PLACES - 1), 4 * _PLACES * (1 - _PLACES), _PLACES * (2 * _PLACES - 1)], axis=1
)
"""Values at the places of a quadrature, from those at start, middle and end of a facet."""


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
        facets = torch.from_numpy(flow.facets(self.patch))
        pressed = _outward(fields)[facets] * fields.pressure[problem.facets[facets]].mean(dim=1)[:, None]
        total = (pressed - _reactions(fields)[facets]).sum(dim=0)
        return (total * total.new_tensor(self.direction)).sum() * flow.family.units.speed**2 * flow.family.units.length


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
    """Values at positions, linear between the points of the user's mesh, as those of a prediction."""
    flow = fields.flow
    entries = interpolation(flow.case.mesh, positions).tocoo()
    shares = values[:, flow.problem.places[torch.from_numpy(entries.col)]] * torch.from_numpy(entries.data)
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
    """The mean pressure, and what the flow carries of u²/2; velocities along the patch have its flow rate."""
    grid, facets = fields.flow.grid, fields.flow.facets(patch)
    assert fields.flow.problem.facets is not None
    outward = _outward(fields)[facets]
    corners = fields.velocity[:, fields.flow.problem.facets[torch.from_numpy(facets)]].permute(1, 2, 0)
    straight = torch.stack([corners[:, 0], corners.mean(dim=1), corners[:, 1]], dim=1)
    held = torch.from_numpy(grid.facet_held[facets])[:, None, None]
    curve = torch.where(held, torch.from_numpy(grid.facet_velocity[facets]), straight)
    velocity = torch.einsum("gk,fka->fga", torch.from_numpy(_PARABOLA), curve)
    normal, weights = outward / outward.norm(dim=1)[:, None], torch.from_numpy(_WEIGHTS)
    across = (velocity * normal[:, None]).sum(dim=2)
    shares = outward.norm(dim=1)[:, None] * weights
    rate = _through(fields)[facets].sum()
    change = across.abs() * (rate - (across * shares).sum()) / (across.abs() * shares).sum()
    velocity = velocity + change[..., None] * normal[:, None]
    carried = 0.5 * (velocity.square().sum(dim=2) * (across + change) * shares).sum()
    return _mean_pressure(fields, patch) + carried / rate


def _reactions(fields: Fields) -> Float[Tensor, "facets 2"]:
    """What the boundary takes up by friction through each facet, see `flow.balance`."""
    grid, problem, outward = fields.flow.grid, fields.flow.problem, _outward(fields)
    takes = torch.from_numpy(grid.facet_held | grid.facet_slips)
    found = taken_up(problem, fields.velocity, fields.residual.momentum, outward, takes)
    # Stress is more than the normal derivative where the boundary turns, by (∇u)ᵀ n.
    change = torch.from_numpy(grid.facet_velocity[:, 2] - grid.facet_velocity[:, 0]) * takes[:, None]
    normal = outward / outward.norm(dim=1)[:, None]
    tangent = torch.stack([-normal[:, 1], normal[:, 0]], dim=1)
    across, along = ((each * change).sum(dim=1)[:, None] for each in (normal, tangent))
    return found + problem.viscosity * (tangent * across - normal * along)


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
