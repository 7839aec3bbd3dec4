"""A solved flow in the user's units, on the mesh on which it was computed: what all quantities are taken from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.models.inlet import BoundaryProfile
from pennpde.penn.equation import DISSIPATION, OUTFLOW, PRESSED, VISCOUS

_GAUSS, _WEIGHTS = (each / scale for each, scale in zip(np.polynomial.legendre.leggauss(4), (1.0, 2.0), strict=True))
_MOVING = 1e-3
"""Share of the largest flux below which what enters is rounding, as at walls that move along themselves."""


@dataclass(frozen=True, eq=False)
class SolvedFlow:
    """Fields and the balance of the scheme at several times.

    Attributes:
        case: On the mesh on which it was computed.
        times: Since the start.
        fields: Times come first.
        balance: Likewise, see `pennpde.penn.equation.BALANCE`; empty for networks that have none.
        length: The reference length.
        speed: The reference speed.
        level: Of accuracy.
        coarser: The same flow on coarser cells, or before its correction; None where there is none.
    """

    case: Case
    times: tuple[float, ...]
    fields: Mapping[str, Float[np.ndarray, "times points *axes"]]
    balance: Mapping[str, Float[np.ndarray, "times *axes"]]
    length: float = 1.0
    speed: float = 1.0
    level: str = ""
    coarser: SolvedFlow | None = None

    @staticmethod
    def is_of(case: Case, fields: Mapping[str, Tensor]) -> bool:
        """Whether fields are those of a plane flow."""
        return case.space == 2 and {"u", "p"} <= fields.keys()

    @staticmethod
    def of(
        case: Case,
        times: Sequence[float],
        fields: Mapping[str, Tensor],
        units: Units | None,
        level: str = "",
        coarser: SolvedFlow | None = None,
    ) -> SolvedFlow:
        """From fields and balance in the network's units, several times as a trailing axis.

        Args:
            case: In the user's units.
            times: Likewise.
            fields: Of the network, its balance among them.
            units: Of the user; None: those of the network.
            level: Of accuracy.
            coarser: See the class.
        """
        length, speed = (1.0, 1.0) if units is None else (units.length, units.speed)
        known = {name: _times_first(each, len(times)) for name, each in fields.items()}
        own = {name: each for name, each in known.items() if name in case.initial}
        if units is not None:
            own = {name: each * units.scale(name).one + units.scale(name).zero for name, each in own.items()}
        force, level_of_pressure = speed**2 * length, 0.0 if units is None else units.scale("p").zero
        ones = {OUTFLOW: speed * length, VISCOUS: force, PRESSED: force, DISSIPATION: speed**3 * length}
        balance = {name: known[name] * one for name, one in ones.items() if name in known}
        if balance:
            balance[PRESSED] = balance[PRESSED] + level_of_pressure * _array(case.mesh.facet_areas)
        return SolvedFlow(
            case=case,
            times=tuple(times),
            fields=own,
            balance=balance,
            length=length,
            speed=speed,
            level=level,
            coarser=coarser,
        )

    def at(self, places: Sequence[int]) -> SolvedFlow:
        """The flow at some of its times."""
        chosen = list(places)
        return replace(
            self,
            times=tuple(self.times[place] for place in chosen),
            fields={name: each[chosen] for name, each in self.fields.items()},
            balance={name: each[chosen] for name, each in self.balance.items()},
            coarser=None if self.coarser is None else self.coarser.at(chosen),
        )

    # The boundary

    def facets(self, patch: str) -> Int64[np.ndarray, " patch_facets"]:
        """The facets of a patch, or of several that are joined by +."""
        mesh = self.case.mesh
        names = [patch] if patch in mesh.patches else patch.split("+")
        return np.unique(np.concatenate([mesh.patch(name).facets for name in names]))

    def balanced(self, name: str) -> np.ndarray:
        if name not in self.balance:
            raise ValueError(
                f"This network has no balance of its own, and so no {name} of a patch; it gives only probes, extremes "
                'and what is taken from the fields alone. Predict with "flow".'
            )
        return self.balance[name]

    @cached_property
    def outward(self) -> Float[np.ndarray, "facets 2"]:
        """Outward normals times length."""
        return _array(self.case.mesh.facet_areas)

    @cached_property
    def lengths(self) -> Float[np.ndarray, " facets"]:
        return np.linalg.norm(self.outward, axis=1)

    @cached_property
    def ends(self) -> Int64[np.ndarray, "facets 2"]:
        return self.case.mesh.facets.connectivity.reshape(-1, 2)

    @cached_property
    def points(self) -> Float[np.ndarray, "points 2"]:
        return _array(self.case.mesh.points)

    @cached_property
    def middles(self) -> Float[np.ndarray, "facets 2"]:
        return self.points[self.ends].mean(axis=1)

    @cached_property
    def outflow(self) -> Float[np.ndarray, "times facets"]:
        return self.balanced(OUTFLOW)

    @cached_property
    def pressure(self) -> Float[np.ndarray, "times facets"]:
        """Its mean over each facet."""
        return (self.balanced(PRESSED) * self.outward).sum(axis=2) / self.lengths**2

    def force(self, facets: Int64[np.ndarray, " chosen"], part: str = "") -> Float[np.ndarray, "times chosen 2"]:
        """The force of the fluid on facets: of its pressure, its viscosity, or both."""
        names = {"pressure": (PRESSED,), "viscous": (VISCOUS,)}.get(part, (PRESSED, VISCOUS))
        return np.sum([self.balanced(name)[:, facets] for name in names], axis=0)

    def profile(self, facets: Int64[np.ndarray, " chosen"]) -> tuple[np.ndarray, np.ndarray]:
        """Velocities at four places of each facet [times, facets, 4, 2], and their weights.

        A parabola along the facet, as prescribed or through the points of the outlet; together they have the flow rate
        of the fluxes.
        """
        start, middle, end = self._parabolas[:, facets].transpose(2, 0, 1, 3)[:, :, :, None]
        s = (_GAUSS / 2 + 0.5)[:, None]
        velocity = (2 * s - 1) * (s - 1) * start + 4 * s * (1 - s) * middle + s * (2 * s - 1) * end
        normal = self.outward[facets] / self.lengths[facets][:, None]
        through = np.einsum("tfga,fa->tfg", velocity, normal)
        shares = self.lengths[facets][:, None] * _WEIGHTS
        missing = self.outflow[:, facets].sum(axis=1) - (through * shares).sum(axis=(1, 2))
        moved = (np.abs(through) * shares).sum(axis=(1, 2))
        change = np.abs(through) * (missing / np.where(moved > 0, moved, 1.0))[:, None, None]
        return velocity + change[..., None] * normal[:, None], _WEIGHTS

    @cached_property
    def _parabolas(self) -> Float[np.ndarray, "times facets 3 2"]:
        """The velocity at start, middle and end of each facet."""
        from pennpde.mesh.boundary import facet_parabolas

        found = []
        for place, values in enumerate(self.fields["u"]):
            boundary = self._boundary(place)
            opening = np.zeros(len(values), bool)
            opening[self.ends[boundary.opened]] = True
            along = facet_parabolas(values, self.case.mesh, opening, by_patch=False)
            found.append(np.where(boundary.held[:, None, None], boundary.velocity, along))
        return np.stack(found)

    def _boundary(self, place: int) -> BoundaryProfile:
        time = self.times[place]
        moves = self.case.changes_with_time and math.isfinite(time)
        return BoundaryProfile.of(self.case.at(time) if moves else self.case)

    @cached_property
    def direction(self) -> Float[np.ndarray, "2"]:
        """Of the flow: in which it enters, else that of the moving walls, else the x axis."""
        boundary = self._boundary(-1)
        through = (
            np.where(boundary.opened, self.balance[OUTFLOW][-1], boundary.fluxes) if self.balance else boundary.fluxes
        )
        entering = np.clip(-through, 0.0, None)
        entering[entering < _MOVING * self.speed * self.lengths] = 0.0
        prescribed = entering * boundary.held
        if prescribed.any():
            mean = (prescribed[:, None] * boundary.means).sum(axis=0)
        elif entering.any():  # at right angles, as far as anyone knows
            mean = -((entering / self.lengths)[:, None] * self.outward).sum(axis=0)
        else:
            mean = ((self.lengths * boundary.held)[:, None] * boundary.means).sum(axis=0)
        size = float(np.linalg.norm(mean))
        return mean / size if size > _MOVING * self.speed * self.lengths.min() else np.array([1.0, 0.0])


def _times_first(values: Tensor, times: int) -> np.ndarray:
    array = _array(values)
    return np.moveaxis(array, -1, 0) if times > 1 else array[None]


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()
