"""The velocity that the boundary of a plane flow prescribes: a parabola along each facet, and the flux through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from pennpde.case import Case
from pennpde.mesh.boundary import facet_parabolas

_LOST = 0.1
"""Share of a patch's largest velocity by which the values at the points may miss what a facet prescribes. A developed
profile on four facets misses 0.05; a jet of one facet between walls misses all of it."""
_IMBALANCE = 0.01
"""Share of all prescribed fluxes that may be missing in a domain without outlet: it is spread over the cells."""


@dataclass(frozen=True, eq=False)
class BoundaryProfile:
    """What is prescribed on the exterior facets of a plane flow.

    Attributes:
        held: facets on which the velocity is prescribed.
        opened: facets on which the pressure is prescribed and the velocity is not.
        slips: facets of slip walls.
        velocity: at start, middle and end of each facet on which it is prescribed.
        lost: facets whose condition the points of the mesh cannot hold: the values there come from the facet's own
            patch, and cells have to be split to resolve them.
        outward: outward normals times length.
    """

    held: Bool[np.ndarray, " facets"]
    opened: Bool[np.ndarray, " facets"]
    slips: Bool[np.ndarray, " facets"]
    velocity: Float[np.ndarray, "facets 3 2"]
    lost: Bool[np.ndarray, " facets"]
    outward: Float[np.ndarray, "facets 2"]

    @staticmethod
    def of(case: Case) -> BoundaryProfile:
        """At the time for which the conditions of the case hold."""
        mesh, condition, pressure = case.mesh, case.dirichlet["u"], case.dirichlet["p"]
        ends = mesh.facets.connectivity.reshape(-1, 2)
        points, pressed = condition.mask.cpu().numpy(), pressure.mask.cpu().numpy()[ends].all(axis=1)
        slips = np.zeros(len(ends), bool)
        if "u" in case.slip:
            slips = (case.slip["u"].normals.cpu().numpy() != 0).any(axis=1)[ends].all(axis=1)
        held = np.all(points[ends], axis=1)
        known, known_pressure = condition.on_facets, pressure.on_facets
        if known is not None and known_pressure is not None:
            # A facet of no patch that lies between two walls is a part of them.
            held = known.held | (held & ~known_pressure.held & ~slips)
            # Where the pressure has a level at a single point, no facet prescribes it.
            pressed = known_pressure.held if known_pressure.held.any() else pressed
        velocity = facet_parabolas(condition.values.detach().cpu().numpy().astype(float), mesh, points)
        lost: np.ndarray = ~held & points[ends].all(axis=1)
        if known is not None:
            velocity, replaced = _matched(velocity, known.ends, known.patch, known.is_mean)
            lost |= replaced
        outward = mesh.facet_areas.detach().cpu().numpy().astype(float)
        return BoundaryProfile(held, ~held & ~slips & pressed, ~held & slips, velocity, lost, outward)

    @property
    def means(self) -> Float[np.ndarray, "facets 2"]:
        """The mean velocity of each facet on which it is prescribed."""
        start, middle, end = self.velocity.transpose(1, 0, 2)
        return (start + 4.0 * middle + end) / 6.0

    @property
    def fluxes(self) -> Float[np.ndarray, " facets"]:
        """Out of the domain through each facet on which the velocity is prescribed; zero on others."""
        return np.where(self.held, (self.means * self.outward).sum(axis=1), 0.0)

    def refuse_contradiction(self) -> None:
        """Raise where no outlet lets through what the prescribed velocities do not balance."""
        if self.opened.any():
            return
        fluxes = self.fluxes
        inward, outward = -float(fluxes[fluxes < 0].sum()), float(fluxes[fluxes > 0].sum())
        # A wall that moves along itself has a flux of rounding errors.
        moved = float(np.abs(self.means[self.held]).max(initial=0.0) * np.linalg.norm(self.outward, axis=1).sum())
        if abs(outward - inward) > _IMBALANCE * (inward + outward) and inward + outward > 1e-6 * moved:
            raise ValueError(
                f"The prescribed velocities contradict continuity: {inward:.6g} flows in and {outward:.6g} flows out "
                "(velocity times length), and there is no outlet for the difference. Prescribe the pressure on an "
                "outlet and leave its velocity free (in OpenFOAM: fixedValue for p, zeroGradient for U), or make both "
                "fluxes equal."
            )


def _matched(
    velocity: Float[np.ndarray, "facets 3 2"],
    own: Float[np.ndarray, "facets 2 2"],
    patch: np.ndarray,
    is_mean: Bool[np.ndarray, " facets"],
) -> tuple[Float[np.ndarray, "facets 3 2"], Bool[np.ndarray, " facets"]]:
    """Parabolas that agree with what each facet's own patch prescribes, and the facets whose points said otherwise."""
    largest = np.zeros(patch.max(initial=-1) + 2)
    np.maximum.at(largest, patch, np.linalg.norm(own, axis=2).max(axis=1))
    allowed = _LOST * largest[patch]
    held = patch >= 0
    mean = own.mean(axis=1)
    missing = mean - (velocity[:, 0] + 4.0 * velocity[:, 1] + velocity[:, 2]) / 6.0
    at_ends = np.linalg.norm(velocity[:, [0, 2]] - own, axis=2).max(axis=1)
    apart = np.where(is_mean, np.linalg.norm(missing, axis=1), at_ends)
    # At rest on its own patch and moved by that of a neighbour is lost, too.
    lost = held & (apart > np.maximum(allowed, 1e-9 * largest.max(initial=0.0)))
    result = np.where(lost[:, None, None], np.stack([own[:, 0], mean, own[:, 1]], axis=1), velocity)
    # A smooth profile keeps its shape, and gets the mean that OpenFOAM's face has.
    smooth = held & is_mean & ~lost & (np.linalg.norm(missing, axis=1) > 1e-9 * largest.max(initial=0.0))
    result[smooth, 1] += 1.5 * missing[smooth]
    return result, lost
