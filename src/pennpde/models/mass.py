"""Balance of mass of a predicted velocity: divergence inside, flux through the boundary, what flows back in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh.boundary import facet_parabolas
from pennpde.models.boundary_profile import BoundaryProfile
from pennpde.models.inlet import facet_velocity
from pennpde.operators import Operators
from pennpde.penn.hooks import Check

_LARGE_IMBALANCE = 0.05
_LARGE_BACKFLOW = 0.1
_DIVERGENCE_AGAINST_TRUTH = 3.0


@dataclass(frozen=True)
class Flux:
    """Volume that crosses the boundary in a unit of time."""

    inward: float
    outward: float
    back: float = 0.0
    """The part of what enters that does so where no velocity is prescribed."""
    unseen: float = 0.0
    """The part that goes through outlets of one facet between points whose velocity is prescribed: it follows from the
    rest, as no point has it."""
    blurred: float = 0.0
    """What facets of outlets beside walls may let through or not, as only one of their ends moves."""

    @property
    def backflow(self) -> float:
        """What enters through outlets, as a share of all that enters."""
        return self.back / self.inward if self.inward > 0 else 0.0

    @property
    def imbalance(self) -> float:
        """What is lost or gained, as a share of the larger of the two."""
        largest = max(self.inward, self.outward)
        return abs(self.outward - self.inward) / largest if largest > 0 else 0.0


def mass_checks(case: Case, velocity: Float[Tensor, "points space"], operators: Operators) -> list[Check]:
    """Divergence and flux of a velocity; next to the truth's own divergence where the case has the truth."""
    divergence = divergence_share(velocity, case, operators)
    truth = case.targets.get("u")
    of_truth = None
    if truth is not None and truth.shape == velocity.shape:
        of_truth = divergence_share(truth.to(velocity), case, operators)
    flux = boundary_flux(velocity, case)
    unseen = f"; {flux.unseen:.4g} of it through outlets that no point resolves" if flux.unseen else ""
    return [
        Check(
            "divergence",
            divergence,
            f"{100 * divergence:.2g} % of a cell's throughput"
            + ("" if of_truth is None else f" (truth: {100 * of_truth:.2g} %)"),
            limit=None if of_truth is None else _DIVERGENCE_AGAINST_TRUTH * of_truth,
            warning="" if not of_truth else f"The divergence is {divergence / of_truth:.1f} times the truth's own.",
            training_name="divergence over a cell's throughput",
        ),
        Check(
            "flux imbalance",
            flux.imbalance,
            f"{100 * flux.imbalance:.2g} % ({flux.inward:.4g} in, {flux.outward:.4g} out)" + unseen,
            limit=_LARGE_IMBALANCE + flux.blurred / (max(flux.inward, flux.outward) or 1.0),
            warning=f"Inflow and outflow differ by {100 * flux.imbalance:.0f} %.",
        ),
        Check(
            "backflow",
            flux.backflow,
            f"{100 * flux.backflow:.2g} % of what enters does so through outlets",
            limit=_LARGE_BACKFLOW,
            warning=f"Fluid flows back through an outlet, {100 * flux.backflow:.0f} % of all that enters. Nothing "
            "prescribes what it brings, so the fields near it and the level of the pressure are uncertain; an outlet "
            "further downstream would help.",
        ),
    ]


def boundary_flux(velocity: Float[Tensor, "points space"], case: Case) -> Flux:
    """Flux of a velocity through the exterior facets of a case."""
    if case.space == 2:
        return _plane_flux(velocity, case)
    mean, prescribed = facet_velocity(velocity, case.mesh, case.dirichlet["u"].mask)
    through = (mean * case.mesh.facet_areas).sum(dim=1)
    # Through periodic patches and slip walls, where no pressure is prescribed either, nothing flows back.
    opened = torch.from_numpy(case.mesh.facets.within(case.dirichlet["p"].mask.cpu().numpy()))
    back = through[(through < 0) & ~prescribed & opened]
    return Flux(float(through[through < 0].abs().sum()), float(through[through > 0].sum()), float(back.abs().sum()))


def _plane_flux(velocity: Float[Tensor, "points 2"], case: Case) -> Flux:
    """Integrals of parabolas along the facets: a mean of the ends would be 15 % off for a profile on a few facets."""
    mesh, held = case.mesh, case.dirichlet["u"].mask.cpu().numpy()
    boundary = BoundaryProfile.of(case.with_conditions(lambda _, each: each.last()))
    values, ends = velocity.detach().cpu().numpy().astype(float), mesh.facets.connectivity.reshape(-1, 2)
    by_patch = _means(facet_parabolas(values, mesh, held))
    opening = np.zeros(len(values), bool)
    opening[ends[boundary.opened]] = True
    along = _means(facet_parabolas(values, mesh, opening, by_patch=False))
    # Where the points have what is prescribed, each facet has what its own patch prescribes.
    prescribed = case.dirichlet["u"].last().values.detach().cpu().numpy()
    near = np.abs(values - prescribed) <= 1e-5 * np.abs(prescribed).max()  # NaN is not
    kept = near.all(axis=1)[ends].all(axis=1)
    means = np.where(boundary.held[:, None], np.where(kept[:, None], boundary.means, by_patch), along)
    through = (means * boundary.outward).sum(axis=1)
    inward, outward = -float(through[through < 0].sum()), float(through[through > 0].sum())
    back = float(np.abs(through[(through < 0) & boundary.opened]).sum())
    unseen = 0.0
    if (boundary.opened & boundary.lost).any():
        # An outlet between two points that rest: what the rest of the boundary leaves for it.
        unseen = inward - outward
        inward, outward = inward + max(-unseen, 0.0), outward + max(unseen, 0.0)
    beside = boundary.opened & (held[ends].sum(axis=1) == 1)
    fastest = np.where(held[ends[:, :1]], values[ends[:, 1]], values[ends[:, 0]])
    blurred = np.abs(((fastest - means) * boundary.outward).sum(axis=1))[beside].sum()
    return Flux(inward, outward, back, abs(unseen), float(blurred))


def _means(parabolas: Float[np.ndarray, "facets 3 2"]) -> Float[np.ndarray, "facets 2"]:
    return (parabolas[:, 0] + 4.0 * parabolas[:, 1] + parabolas[:, 2]) / 6.0


def divergence_share(velocity: Float[Tensor, "points space"], case: Case, operators: Operators) -> float:
    """Root mean square of div u times cell size over the largest speed: the share of a cell's throughput that is lost.

    Weighted by volume; a cell's throughput is its size to the power of space - 1 times the speed.
    """
    volumes = case.mesh.point_volumes
    largest = float(velocity.norm(dim=1).amax())
    if largest == 0:
        return 0.0
    relative = operators.div(velocity) * volumes ** (1 / case.space) / largest
    return float(((volumes * relative.square()).sum() / volumes.sum()).sqrt())
