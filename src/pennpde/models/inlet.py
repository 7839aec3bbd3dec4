"""Quantities from the inlet of a flow: its width and speed as units, and the inflow.

The Navier–Stokes equations do not change when lengths are divided by L, velocities by U, kinematic pressures by U²,
times by L/U and viscosities by U L, nor when a constant is added to the pressure. The flow network was trained with
inlets of width 1 and speed 1 and outlets of pressure 0; any other flow is scaled to these and back, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pennpde.case import Case, Condition, Dirichlet, Remark
from pennpde.case.conditions import TotalPressure
from pennpde.case.units import Scale, Units
from pennpde.machine import remembered
from pennpde.mesh import Mesh, Patch
from pennpde.mesh.boundary import facet_heights, facet_means, facet_profiles
from pennpde.mesh.cells import connected, mean_rows

_LEAK = 1e-9
"""Share of its speed that a wall's velocity may have across itself: rounding errors."""
_SMALLEST_VISCOSITY = float(torch.finfo(torch.float32).tiny)
"""Smaller numbers lose their digits, and then vanish, in the precision of networks."""


def checked_viscosity(case: Case) -> float:
    """The viscosity of a flow; an error where it has none to compute with."""
    viscosity = case.parameters.get("viscosity")
    if viscosity is None:
        raise ValueError(f"A flow needs the parameter viscosity; the case has {sorted(case.parameters)}.")
    if not float(viscosity) > 0:
        raise ValueError(f"The viscosity is {float(viscosity):g}; it must be positive.")
    if float(viscosity) < _SMALLEST_VISCOSITY:
        raise ValueError(f"The viscosity is {float(viscosity):g}, which is too small to compute with; is it in m²/s?")
    return float(viscosity)


def inlet_units(case: Case, length: float | None = None, speed: float | None = None) -> Units:
    """Units of a flow: width and largest speed of its inlet, unless given, and the prescribed pressure as zero.

    The inlet is where the prescribed velocity points into the domain, or, where it does so nowhere, as below the lid
    of a cavity, where a velocity other than zero is prescribed.
    """
    if length is None or speed is None:
        condition = case.dirichlet["u"]
        moving = condition.mask & (condition.values != 0).any(dim=1)
        if not bool(moving.any()):
            cyclic = "" if "u" not in case.periodic else "It is periodic between cyclic patches. "
            raise ValueError(
                "No velocity other than zero is prescribed anywhere, so the flow has no inlet to take its units from. "
                f"{cyclic}Prescribe one, or give a reference length and speed."
            )
        if speed is None:
            speed = float(condition.values[moving].norm(dim=1).amax())
        if length is None:
            length = _inlet_width(case, speed)
    return flow_units(length, speed, pressure_level(case))


def pressure_level(case: Case) -> float:
    """The prescribed pressure that counts as zero; nothing prescribed is zero.

    The middle rather than the mean: it is exact where there is one outlet.
    """
    pressure = prescribed_pressures(case)
    return float(pressure.amin() + pressure.amax()) / 2 if len(pressure) else 0.0


def prescribed_pressures(case: Case) -> Float[Tensor, " some"]:
    """All of them, total ones among them."""
    known = [case.conditions.get(kind.kind, {}).get("p") for kind in (Dirichlet, TotalPressure)]
    found = [each.values[each.mask] for each in known if isinstance(each, Dirichlet | TotalPressure)]
    return torch.cat(found) if found else torch.zeros(0)


def flow_units(length: float, speed: float, pressure_level: float = 0.0) -> Units:
    """Units of a flow with this reference length, speed and pressure."""
    scales = {
        "u": Scale(speed),
        "p": Scale(speed * speed, pressure_level),
        "viscosity": Scale(length * speed),
        "wall_distance": Scale(length),
    }
    return Units.of_speed(length, speed, scales)


def describe_inlet(case: Case) -> dict[str, float]:
    """Characteristic numbers of a flow with an inlet; none if it has no inlet or no viscosity."""
    if float(case.parameters.get("viscosity", 0.0)) <= 0:
        return {}
    try:
        units = inlet_units(case)
    except ValueError:  # no inlet, and so no numbers of one
        return {}
    _, inflow = prescribed_inflow(case)
    return {
        "Reynolds number": units.length * units.speed / float(case.parameters["viscosity"]),
        "inlet width": units.length,
        "inflow over that of an even inlet": inflow / (units.speed * units.length ** (case.space - 1)),
        **describe_boundary(case),
    }


@remembered  # asked for by the outcome, its certificate and each time
def describe_boundary(case: Case) -> Mapping[str, float]:
    """What tells flows of one Reynolds number apart: direction and profile of the inlet, moving walls, holes, outlets.

    Args:
        case: In units of the inlet's width and speed.
    """
    if case.space != 2:
        return inlet_profile(case)
    ends = case.mesh.facets.connectivity.reshape(-1, 2)
    areas = case.mesh.facet_areas
    held = case.dirichlet["u"].mask.cpu().numpy()
    open_facets = case.dirichlet["p"].mask.cpu().numpy()[ends].all(axis=1) & ~held[ends].all(axis=1)
    velocity, prescribed = facet_velocity(case.dirichlet["u"].values, case.mesh, case.dirichlet["u"].mask)
    through = (velocity * areas).sum(dim=1)
    sizes, speeds = areas.norm(dim=1), velocity.norm(dim=1)
    sliding = prescribed & (through.abs() <= _LEAK * sizes * speeds)
    inward = prescribed & (through < -_LEAK * sizes * speeds)
    numbers = {
        "speed of moving walls": float(speeds[sliding].amax()) if bool(sliding.any()) else 0.0,
        "holes": float(holes(case.mesh)),
        "outlets": float(_components(ends[open_facets])),
    }
    if bool(inward.any()) and open_facets.any():
        into, out = -areas[inward].sum(dim=0), areas[torch.from_numpy(open_facets)].sum(dim=0)
        cosine = float((into * out).sum() / (into.norm() * out.norm()).clamp(min=1e-30))
        # Rounded: of parallel directions the cosine is not one to the last bit.
        numbers["angle from inlet to outlet in degrees"] = round(
            math.degrees(math.acos(max(-1.0, min(1.0, cosine)))), 1
        )
    return numbers | inlet_profile(case)


def holes(mesh: Mesh) -> int:
    """Parts of the boundary of a plane mesh besides the outer one."""
    return _components(mesh.facets.connectivity.reshape(-1, 2)) - 1


def _components(ends: Int64[np.ndarray, "facets 2"]) -> int:
    """Connected parts of a set of facets."""
    return _joined(ends.tobytes()) if len(ends) else 0


@lru_cache(maxsize=8)  # shapes of a study share it
def _joined(ends: bytes) -> int:
    points, places = np.unique(np.frombuffer(ends, np.int64), return_inverse=True)
    return connected(places.reshape(-1, 2).T, len(points))[0]


def inlet_profile(case: Case) -> dict[str, float]:
    """How the inflow is directed and distributed: a slanted or peaked inlet is another flow at the same mean speed."""
    through, sizes, velocity = _inward(case)
    flux = float(through.sum())
    if not flux > 0:
        return {}
    normal = through / sizes
    along = (velocity.square().sum(dim=1) - normal.square()).clamp(min=0).sqrt()
    # Of the mean velocity: in a profile that is zero at its ends, single facets have no direction worth the name.
    # Rounded, because a velocity in single precision has an angle of its own.
    slope = float((sizes * along).sum() / (sizes * normal).sum())
    return {
        "inlet angle in degrees": round(math.degrees(math.atan(slope)), 3),
        "inlet peak over mean": float(normal.amax() * sizes.sum()) / flux,
    }


def facet_velocity(
    velocity: Float[Tensor, "points space"], mesh: Mesh, prescribed: Bool[Tensor, " points"]
) -> tuple[Float[Tensor, "facets space"], Bool[Tensor, " facets"]]:
    """The velocity of each exterior facet, and whether all of its points are prescribed.

    Where an inlet meets a wall, `mesh.boundary` says whose velocity counts.
    """
    means, inside = facet_means(velocity.numpy(), mesh, prescribed.numpy())
    return torch.from_numpy(means), torch.from_numpy(inside)


def prescribed_inflow(case: Case) -> tuple[float, float]:
    """Size of the inlet and flux through it: the facets on which the prescribed velocity points inwards."""
    through, sizes, _ = _inward(case)
    return float(sizes.sum()), float(through.sum())


def _inward(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Inflow, size and velocity of the facets through which the prescribed velocity enters."""
    condition = case.dirichlet["u"]
    velocity, prescribed = facet_velocity(condition.values, case.mesh, condition.mask)
    through = (velocity * case.mesh.facet_areas).sum(dim=1)
    sizes = case.mesh.facet_areas.norm(dim=1)
    # A wall that moves along itself has a flux of rounding errors.
    inward = prescribed & (through < -_LEAK * sizes * velocity.norm(dim=1))
    return through[inward].abs(), sizes[inward], velocity[inward]


def _inlet_width(case: Case, speed: float) -> float:
    size, flow = prescribed_inflow(case)
    if flow <= 1e-6 * size * speed:
        condition = case.dirichlet["u"]
        velocity, prescribed = facet_velocity(condition.values, case.mesh, condition.mask)
        size = float(case.mesh.facet_areas.norm(dim=1)[prescribed & (velocity != 0).any(dim=1)].sum())
    if size <= 0:
        raise ValueError(
            "The velocity is prescribed at single points, on no whole facet of the boundary, so the flow has no inlet "
            "to take its length from. Give a reference length, or the patch all points of its facets."
        )
    return size ** (1 / (case.space - 1))


# The velocity that the boundary of a flow prescribes on each facet, and the flux through it: in the plane a parabola
# along the facet, in space what its own patch has at its corners.


_LOST = 0.1
"""Share of a patch's largest velocity by which the values at the points may miss what a facet prescribes. A developed
profile on four facets misses 0.05; a jet of one facet between walls misses all of it."""
_ALIGNED = 0.5
"""Cosine between the normal of a facet and that of the slip wall that it may be a part of."""
_INWARD = 0.01
"""Share of the largest prescribed velocity with which a wall has to move inwards beside an outlet to be told."""
_LATER = tuple(10.0 ** (0.5 * power) for power in range(-8, 9))
"""Times at which conditions that change are looked at in advance."""
_IMBALANCE = 0.01
"""Share of all prescribed fluxes that may be missing in a domain without outlet: it is spread over the cells."""


@dataclass(frozen=True, eq=False)
class BoundaryProfile:
    """What is prescribed on the exterior facets of a flow.

    Attributes:
        held: facets on which the velocity is prescribed.
        opened: facets on which the pressure is prescribed and the velocity is not.
        entrances: those of these through which pressure drives fluid in: theirs is higher than that of others by more
            than the fastest prescribed velocity makes up for.
        total: those of these on which the total pressure is prescribed.
        slips: facets of slip walls.
        velocity: at start, middle and end of each facet on which it is prescribed; in space at its corners, and after
            them the mean, up to the number of corners of the largest facet.
        lost: facets whose condition the points of the mesh cannot hold: the values there come from the facet's own
            patch, and cells have to be split to resolve them.
        outward: outward normals times length, in space times area.
        heights: in space, by how much the velocity in the middle of each side of a facet is above the mean of its ends,
            see `facet_heights`; None for nothing, and in the plane.
    """

    held: Bool[np.ndarray, " facets"]
    opened: Bool[np.ndarray, " facets"]
    entrances: Bool[np.ndarray, " facets"]
    total: Bool[np.ndarray, " facets"]
    slips: Bool[np.ndarray, " facets"]
    velocity: Float[np.ndarray, "facets places space"]
    lost: Bool[np.ndarray, " facets"]
    outward: Float[np.ndarray, "facets space"]
    heights: Float[np.ndarray, "facets 4 space"] | None = None

    @staticmethod
    def of(case: Case) -> BoundaryProfile:
        """At the time for which the conditions of the case hold; kept, because every stage of a prediction asks."""
        condition = case.dirichlet["u"]
        others = (each for by_unknown in case.conditions.values() for each in by_unknown.values())
        rest = case.mesh, *(each for each in others if each is not condition)
        known = _KNOWN.get(condition)
        if known is None or [*map(id, known[0])] != [*map(id, rest)]:
            known = _KNOWN[condition] = rest, BoundaryProfile._made(case)
        return known[1]

    @staticmethod
    def _made(case: Case) -> BoundaryProfile:
        mesh, condition, pressure = case.mesh, case.dirichlet["u"], case.dirichlet["p"]
        facets = mesh.facets
        points, pressed = condition.mask.cpu().numpy(), facets.within(pressure.mask.cpu().numpy())
        slips = np.zeros(len(facets), bool)
        if "u" in case.slip:
            slips = facets.within((case.slip["u"].normals.cpu().numpy() != 0).any(axis=1))
        held = facets.within(points)
        known, known_pressure = condition.on_facets, pressure.on_facets
        if slips.any() and mesh.space == 3:
            slips = _across(slips, case)
        if known is not None and known_pressure is not None:
            # A facet of no patch that lies between two walls is a part of them.
            held = known.held | (held & ~known_pressure.held & ~slips)
            # Where the pressure has a level at a single point, no facet prescribes it.
            pressed = known_pressure.held if known_pressure.held.any() else pressed
        velocity = facet_profiles(condition.values.detach().cpu().numpy().astype(float), mesh, points)
        lost: np.ndarray = ~held & facets.within(points) & (mesh.space == 2)
        heights = None
        if known is not None and mesh.space == 3:
            velocity = known.ends
            heights = facet_heights(velocity, mesh, np.where(known.is_mean, -1, known.patch))
        elif known is not None:
            velocity, replaced = _matched(velocity, known.ends, known.patch, known.is_mean)
            lost |= replaced
        outward = mesh.facet_areas.detach().cpu().numpy().astype(float)
        opened = ~held & ~slips & pressed
        level = mean_rows(pressure.values.detach().cpu().numpy().astype(float)[facets.connectivity], facets.offsets)
        if known_pressure is not None:
            level = np.where(known_pressure.held, known_pressure.ends.mean(axis=1), level)
        fastest = float(np.abs(velocity[held]).max(initial=0.0))
        total = facets.within(total_pressures(case).cpu().numpy()) & ~held & ~slips
        opened |= total
        entrances = total | (opened & _drives(level, opened & ~total, 0.5 * fastest**2))
        return BoundaryProfile(
            held=held,
            opened=opened,
            entrances=entrances,
            total=total,
            slips=~held & slips,
            velocity=velocity,
            lost=lost,
            outward=outward,
            heights=heights,
        )

    @staticmethod
    def loses(case: Case) -> bool:
        """Whether the points cannot hold a condition of some facet, now or later."""
        return any(bool(BoundaryProfile.of(each).lost.any()) for each in (case, *later(case)))

    @property
    def means(self) -> Float[np.ndarray, "facets space"]:
        """The mean velocity of each facet on which it is prescribed."""
        if self.outward.shape[1] == 3:
            mean = self.velocity.mean(axis=1)
            return mean if self.heights is None else mean + self.heights.sum(axis=1) / 3.0
        start, middle, end = self.velocity.transpose(1, 0, 2)
        return (start + 4.0 * middle + end) / 6.0

    @property
    def fluxes(self) -> Float[np.ndarray, " facets"]:
        """Out of the domain through each facet on which the velocity is prescribed; zero on others."""
        return np.where(self.held, (self.means * self.outward).sum(axis=1), 0.0)

    def refuse_contradiction(self, patches: Mapping[str, Patch]) -> None:
        """Raise where no outlet lets through what the prescribed velocities do not balance.

        Args:
            patches: those of the mesh, which the error names.
        """
        if self.opened.any():
            return
        fluxes = self.fluxes
        inward, outward = -float(fluxes[fluxes < 0].sum()), float(fluxes[fluxes > 0].sum())
        # A wall that moves along itself has a flux of rounding errors.
        moved = float(np.abs(self.means[self.held]).max(initial=0.0) * np.linalg.norm(self.outward, axis=1).sum())
        if abs(outward - inward) > _IMBALANCE * (inward + outward) and inward + outward > 1e-6 * moved:
            raise ValueError(
                f"The prescribed velocities contradict continuity: {inward:.6g} flows in and {outward:.6g} flows out "
                f"(velocity times length{self._by_patch(patches)}), and there is no outlet for the difference. "
                "Prescribe the pressure on an outlet and leave its velocity free (in OpenFOAM: fixedValue for p, "
                "zeroGradient for U), or make both fluxes equal."
            )

    def _by_patch(self, patches: Mapping[str, Patch]) -> str:
        """The flux out of the domain through each patch that has one, for an error."""
        fluxes = {name: float(self.fluxes[patch.facets].sum()) for name, patch in patches.items()}
        largest = max(map(abs, fluxes.values()), default=0.0)
        told = [f"{name} {flux:+.6g}" for name, flux in fluxes.items() if abs(flux) > 1e-6 * largest]
        return f"; outward through {', '.join(told)}" if told else ""

    def remarks(self, case: Case) -> list[Remark]:
        """What the conditions leave open: what enters at an outlet next to a wall that moves in, or by its pressure."""
        return [*self._about_entrances(), *(self._about_walls(case) if case.space == 2 else [])]

    def _about_entrances(self) -> list[Remark]:
        if not (self.entrances & ~self.total).any():
            return []
        text = (
            "A static pressure drives fluid in, which only friction limits: where the pressure rises behind the inlet "
            "the flow may diverge. With a total pressure (totalPressure in OpenFOAM, [total_pressure.p] in a problem "
            "file) it does not."
        )
        return [Remark(text, severe=False)]

    def _about_walls(self, case: Case) -> list[Remark]:
        ends = case.mesh.facets.connectivity.reshape(-1, 2)
        corner = np.zeros((case.number_of_points, 2))
        corner[ends[self.held]] = self.velocity[self.held][:, [0, 2]]
        sizes = np.linalg.norm(self.outward, axis=1)
        through = np.einsum("fea,fa->fe", corner[ends], self.outward / sizes[:, None]).min(axis=1)
        fastest = float(np.linalg.norm(self.means[self.held], axis=1).max(initial=0.0))
        entering = self.opened & (through < -_INWARD * fastest)
        if not entering.any():
            return []
        place = case.mesh.points[torch.from_numpy(ends[entering][0])].mean(dim=0).tolist()
        return [
            Remark(
                f"Next to the outlet at {[round(each, 6) for each in place]} a wall moves into the domain and drags "
                "fluid in through the outlet. Nothing prescribes what it brings, and no finer mesh shows what that "
                "changes; an outlet further away from the moving wall would help."
            )
        ]


def _across(slips: Bool[np.ndarray, " facets"], case: Case) -> Bool[np.ndarray, " facets"]:
    """Those facets of slip walls in space: all points of others may be at slip walls, too, as in thin slabs."""
    facets = case.mesh.facets
    across = case.slip["u"].normals.cpu().numpy()[facets.connectivity]
    normals = np.repeat(case.mesh.facet_areas.numpy(), facets.sizes, axis=0)
    along = np.abs((across * normals).sum(axis=1)) / np.linalg.norm(normals, axis=1)
    found = slips & (np.maximum.reduceat(along, facets.offsets[:-1]) > _ALIGNED)
    for by_patch in (case.dirichlet["u"].on_facets, case.dirichlet["p"].on_facets):
        found &= True if by_patch is None else ~by_patch.held
    return found


def total_pressures(case: Case) -> Bool[torch.Tensor, " points"]:
    """Where the total pressure is prescribed."""
    known = case.conditions.get(TotalPressure.kind, {}).get("p")
    return torch.zeros_like(case.dirichlet["p"].mask) if known is None else known.mask


def _drives(
    level: Float[np.ndarray, " facets"], opened: Bool[np.ndarray, " facets"], least: float
) -> Bool[np.ndarray, " facets"]:
    """Which facets have one of the higher pressures of all outlets, that differ by more than the least."""
    if not opened.any():
        return opened
    low, high = float(level[opened].min()), float(level[opened].max())
    least = max(least, 1e-6 * (abs(low) + abs(high)))
    return (level > 0.5 * (low + high)) & (high - low > least)


def later(case: Case) -> Iterator[Case]:
    """A case whose conditions change, at some times after its start, as far as they are known."""
    for time in _LATER if case.changes_with_time else ():
        try:
            yield case.at(time)
        except ValueError:  # a table that ends before
            return


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


_KNOWN: WeakKeyDictionary[Condition, tuple[tuple[object, ...], BoundaryProfile]] = WeakKeyDictionary()
"""By the condition of the velocity, with what else it was made of."""
