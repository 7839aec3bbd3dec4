"""A flow case as the stepping scheme sees it: cells, conditions and start in NumPy, split as often as wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int64

from pennpde.case import Case, Robin
from pennpde.case.conditions import Components, StressFree, TotalPressure
from pennpde.mesh.space_cells import SpaceCells, quartered
from pennpde.mesh.splitting import PlaneCells, flipped
from pennpde.models.inlet import BoundaryProfile
from pennpde.operators.elements import corner_normals

_ACROSS = 0.05
"""Share of a second direction at which a slip wall in space counts as two that meet: they turn by 25 degrees."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells with what is prescribed at their points and boundary facets.

    Attributes:
        cells: of the plane or of space, and boundary facets.
        held: where the velocity is prescribed.
        velocity: the prescribed one where it is, else that of the start.
        pressure_held: where the pressure is prescribed.
        pressure: the prescribed one where it is, else that of the start.
        slip: unit normals of slip walls, and along entrances, which fluid crosses at right angles; zero elsewhere. In
            space there may be a second direction, at right angles to the first: where slip walls meet.
        representative: for each point the copy that stands for it.
        pressure_jump: by how much the pressure is larger than at that copy.
        facet_held: facets on which the velocity is prescribed.
        facet_slips: facets of slip walls.
        facet_open: facets on which the pressure is prescribed and the velocity is not.
        facet_entrance: those of these through which pressure drives fluid in.
        facet_total: those on which the total pressure is prescribed, which `pressure` is there.
        facet_velocity: the velocity at start, middle and end of each facet on which it is prescribed, as its own patch
            has it: a parabola along the facet. In space that at its corners.
        facet_heights: in space, that in the middle of each side of a facet above the mean of its ends.
    """

    cells: PlaneCells | SpaceCells
    held: Bool[np.ndarray, " points"]
    velocity: Float[np.ndarray, "points space"]
    pressure_held: Bool[np.ndarray, " points"]
    pressure: Float[np.ndarray, " points"]
    slip: Float[np.ndarray, "points directions"]
    representative: Int64[np.ndarray, " points"]
    pressure_jump: Float[np.ndarray, " points"]
    facet_held: Bool[np.ndarray, " facets"]
    facet_slips: Bool[np.ndarray, " facets"]
    facet_open: Bool[np.ndarray, " facets"]
    facet_entrance: Bool[np.ndarray, " facets"]
    facet_total: Bool[np.ndarray, " facets"]
    facet_velocity: Float[np.ndarray, "facets places space"]
    facet_heights: Float[np.ndarray, "facets 4 space"] | None = None

    @staticmethod
    def of(case: Case) -> Grid:
        """The grid of a case, at the time for which its conditions hold."""
        _refuse(case)
        mesh = case.mesh
        velocity, pressure = case.dirichlet["u"], case.dirichlet["p"]
        held, pressure_held = velocity.mask.cpu().numpy(), pressure.mask.cpu().numpy()
        start = case.dirichlet["u"].apply(case.initial["u"]).detach().cpu().numpy().astype(float)
        level = case.dirichlet["p"].apply(case.initial["p"]).detach().cpu().numpy().astype(float)
        total = case.conditions.get(TotalPressure.kind, {}).get("p")
        if isinstance(total, TotalPressure):
            drawn = total.mask.cpu().numpy() & ~pressure_held
            pressure_held = pressure_held | drawn
            level = np.where(drawn, total.values.detach().cpu().numpy(), level)
        slip = np.zeros_like(start)
        if "u" in case.slip:
            slip = case.slip["u"].normals.cpu().numpy().astype(float)
        number = mesh.number_of_points
        representative, jump = np.arange(number), np.zeros(number)
        if "u" in case.periodic:
            representative = case.periodic["u"].points.cpu().numpy()
        if "p" in case.periodic:
            jump = case.periodic["p"].shift.cpu().numpy().astype(float)
        boundary = BoundaryProfile.of(case)
        if mesh.space == 3:
            return _in_space(case, boundary, held, start, pressure_held, level, representative, jump)
        ends = mesh.facets.connectivity.reshape(-1, 2)
        across = np.zeros_like(start)
        tangents = _turned(boundary.outward / np.linalg.norm(boundary.outward, axis=1, keepdims=True))
        np.add.at(across, ends[boundary.entrances], 0.5 * tangents[boundary.entrances, None])
        slip = np.where(slip.any(axis=1, keepdims=True), slip, _directions(across))
        cells = PlaneCells.of(mesh)
        if len(cells.triangles):
            cells = replace(cells, triangles=flipped(cells.points, cells.triangles))
        centres = len(cells.points) - number
        grid = Grid(
            cells=PlaneCells(cells.points[:number], cells.triangles[:0], cells.quads[:0], ends),
            held=held,
            velocity=start,
            pressure_held=pressure_held,
            pressure=level,
            slip=np.where(held[:, None], 0.0, slip),
            representative=representative,
            pressure_jump=jump,
            facet_held=boundary.held,
            facet_slips=boundary.slips,
            facet_open=boundary.opened,
            facet_entrance=boundary.entrances,
            facet_total=boundary.total,
            facet_velocity=boundary.velocity,
        )
        return grid._with_centres(cells) if centres else replace(grid, cells=cells)

    def _with_centres(self, cells: PlaneCells) -> Grid:
        """With the centres of polygons, at which nothing is prescribed."""
        number, total = len(self.cells.points), len(cells.points)

        def longer(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values, np.zeros((total - number, *values.shape[1:]), values.dtype)])

        velocity, pressure = self._start_on(cells)
        return replace(
            self,
            cells=cells,
            held=longer(self.held),
            velocity=velocity,
            pressure_held=longer(self.pressure_held),
            pressure=pressure,
            slip=longer(self.slip),
            representative=np.concatenate([self.representative, np.arange(number, total)]),
            pressure_jump=longer(self.pressure_jump),
        )

    def split(self) -> Grid:
        """Each cell into four, in space into eight; conditions are continued along their facets."""
        if isinstance(self.cells, SpaceCells):
            return self._onto_in_space(self.cells.split())
        return self._onto(self.cells.split())

    def _onto_in_space(self, finer: SpaceCells) -> Grid:
        """What facets of both sides of an edge prescribe holds there; a velocity between two patches is the mean."""
        assert isinstance(self.cells, SpaceCells), "cells in the plane"
        assert self.facet_heights is not None, "facets in the plane have parabolas"
        if (self.representative != np.arange(len(self.representative))).any():
            raise ValueError(
                "Periodic patches in space are solved on the cells as they are: ask for the level fast (--fast)."
            )
        facet_velocity, facet_heights = quartered(self.facet_velocity, self.facet_heights, self.cells.facets)
        number, total = len(self.cells.points), len(finer.points)

        def on_facets(chosen: np.ndarray, known: np.ndarray) -> np.ndarray:
            result = np.concatenate([known, np.zeros(total - number, bool)])
            result[finer.facets[np.repeat(chosen, 4)]] = True
            return result

        held, velocity = on_facets(self.facet_held, self.held), finer.parents @ self.velocity
        if not self.velocity[~self.held].any():
            velocity[number:][~held[number:]] = 0.0
        parts = np.repeat(self.facet_held, 4)
        given, known = _agreed(finer.facets[parts], facet_velocity[parts], total)
        velocity[number:] = np.where(known[number:, None], given[number:], velocity[number:])
        made = replace(
            self,
            cells=finer,
            held=held,
            velocity=velocity,
            pressure_held=on_facets(self.facet_open, self.pressure_held),
            pressure=finer.parents @ self.pressure,
            slip=np.zeros((total, 6)),
            representative=np.arange(total),
            pressure_jump=np.zeros(total),
            facet_velocity=facet_velocity,
            facet_heights=facet_heights,
            **{name: np.repeat(getattr(self, name), 4) for name in _OF_FACETS},
        )
        return made._with_directions()

    def _with_directions(self) -> Grid:
        """In space, with the directions across slip walls, and those along entrances.

        The normals of all facets around a point, as a matrix, have one direction on a wall, two at an edge, and three
        in a corner, where the fluid rests.
        """
        ends, number = self.cells.facets, len(self.cells.points)
        normals = facet_vectors(self.cells.points, ends)
        sizes = np.linalg.norm(normals, axis=1)
        across = np.einsum("fa,fb->fab", normals, normals) / np.maximum(sizes, 1e-300)[:, None, None]
        along = np.eye(3) * sizes[:, None, None] - across
        matrices = np.zeros((number, 3, 3))
        for facets, given in ((self.facet_slips, across), (self.facet_entrance, along)):
            for place in range(4):
                np.add.at(matrices, ends[facets, place], given[facets])
        sizes, directions = np.linalg.eigh(matrices)
        counted = np.logical_and(sizes > _ACROSS * sizes[:, -1:], sizes[:, -1:] > 0) & ~self.held[:, None]
        rests = np.all(counted, axis=1)
        slip = np.concatenate([directions[:, :, -1] * counted[:, 2:], directions[:, :, -2] * counted[:, 1:2]], axis=1)
        velocity = np.where(rests[:, None], 0.0, self.velocity)
        return replace(self, slip=np.where(rests[:, None], 0.0, slip), held=self.held | rests, velocity=velocity)

    def _onto(self, finer: PlaneCells) -> Grid:
        number, total = len(self.cells.points), len(finer.points)
        ends = self.cells.facets
        middle = finer.facets[0::2, 1]

        def spread(values: np.ndarray) -> np.ndarray:
            result = np.zeros((total, *values.shape[1:]), values.dtype)
            result[:number] = values
            return result

        held, pressure_held = spread(self.held), spread(self.pressure_held)
        held[middle] = self.facet_held
        # A point pinned in a corner has no neighbour on an open facet.
        pressure_held[middle] = self.facet_open
        velocity, pressure = self._start_on(finer)
        if not self.velocity[~self.held].any():
            # At rest, so is what lies between a lid or an inlet and the first points inside.
            velocity[number:] = 0.0
        velocity[middle[self.facet_held]] = self.facet_velocity[self.facet_held, 1]
        pressure[middle[self.facet_open]] = self.pressure[ends[self.facet_open]].mean(axis=1)
        slip = spread(self.slip)
        along = self.cells.points[ends[:, 1]] - self.cells.points[ends[:, 0]]
        normals = np.stack([along[:, 1], -along[:, 0]], axis=1) / np.linalg.norm(along, axis=1)[:, None]
        slip[middle[self.facet_slips]] = normals[self.facet_slips]
        slip[middle[self.facet_entrance]] = _turned(normals)[self.facet_entrance]
        start, half, end = self.facet_velocity.transpose(1, 0, 2)
        quarters = (3 * start + 6 * half - end) / 8, (3 * end + 6 * half - start) / 8
        profile = np.stack([start, quarters[0], half, half, quarters[1], end], axis=1)
        representative, jump = self._periodic_on(total, middle)
        return replace(
            self,
            cells=finer,
            held=held,
            velocity=velocity,
            pressure_held=pressure_held,
            pressure=pressure,
            slip=slip,
            representative=representative,
            pressure_jump=jump,
            facet_held=np.repeat(self.facet_held, 2),
            facet_slips=np.repeat(self.facet_slips, 2),
            facet_open=np.repeat(self.facet_open, 2),
            facet_entrance=np.repeat(self.facet_entrance, 2),
            facet_total=np.repeat(self.facet_total, 2),
            facet_velocity=profile.reshape(-1, 3, 2),
        )

    def _start_on(self, finer: PlaneCells) -> tuple[np.ndarray, np.ndarray]:
        """Start velocity and pressure with means at the new points, from the old points around them."""
        number = len(self.cells.points)
        both = np.concatenate([self.velocity, self.pressure[:, None]], axis=1)
        sums, counts = np.zeros((len(finer.points), 3)), np.zeros(len(finer.points))
        for cells in (finer.triangles, finer.quads):
            for one in range(cells.shape[1]):
                for other in range(cells.shape[1]):
                    old = (cells[:, one] < number) & (cells[:, other] >= number)
                    np.add.at(sums, cells[old, other], both[cells[old, one]])
                    np.add.at(counts, cells[old, other], 1.0)
        means = sums / np.maximum(counts, 1.0)[:, None]
        # Middles inside a triangle touch its corners only through small triangles; each has its two ends there.
        means[:number] = both
        return means[:, :2].copy(), means[:, 2].copy()

    def _periodic_on(self, total: int, middle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        number = len(self.representative)
        representative, jump = np.arange(total), np.zeros(total)
        representative[:number], jump[:number] = self.representative, self.pressure_jump
        ends = self.cells.facets
        partners = np.sort(self.representative[ends], axis=1)
        copied = (self.representative[ends] != ends).any(axis=1)
        keys = partners[:, 0] * np.int64(number) + partners[:, 1]
        if copied.any():
            first: dict[int, int] = {}
            for place in np.argsort(copied, kind="stable"):
                first.setdefault(int(keys[place]), int(middle[place]))
            for place in np.flatnonzero(copied):
                representative[middle[place]] = first[int(keys[place])]
                jump[middle[place]] = self.pressure_jump[ends[place]].mean()
        return representative, jump

    @property
    def is_closed(self) -> bool:
        """Whether nothing but prescribed velocities crosses the boundary: then the pressure's level is free."""
        return not self.facet_open.any()

    def boundary_flux(self) -> Float[np.ndarray, " points"]:
        """What leaves each point's cell through facets on which the velocity is prescribed."""
        ends = self.cells.facets
        if isinstance(self.cells, SpaceCells):
            return np.bincount(ends.ravel(), self.corner_fluxes().ravel(), len(self.cells.points))
        along = self.cells.points[ends[:, 1]] - self.cells.points[ends[:, 0]]
        outward = np.stack([along[:, 1], -along[:, 0]], axis=1) * self.facet_held[:, None]
        through = np.einsum("fea,fa->fe", self.facet_velocity, outward)
        # Of the whole parabola: inside, too, fluxes know that velocities are curved between the points.
        start, end = through[:, 0] / 6.0 + through[:, 1] / 3.0, through[:, 2] / 6.0 + through[:, 1] / 3.0
        return np.bincount(ends.ravel(), np.stack([start, end], axis=1).ravel(), len(self.cells.points))

    def corner_fluxes(self) -> Float[np.ndarray, "facets 4"]:
        """In space, what leaves the cell of each corner of each facet on which the velocity is prescribed."""
        assert self.facet_heights is not None, "facets of the plane are edges"
        ends, velocity = self.cells.facets, self.facet_velocity + self.facet_heights.sum(axis=1, keepdims=True) / 3.0
        positions, triangles = self.cells.points[ends], ends[:, 2] == ends[:, 3]
        found = np.einsum("fca,fca->fc", corner_normals(positions), velocity)
        whole = 3.0 * corner_normals(positions[triangles, :3])[:, 0]
        own = velocity[triangles, :3]
        found[triangles, :3] = np.einsum("fa,fca->fc", whole, own + own.sum(axis=1, keepdims=True)) / 12.0
        found[triangles, 3] = 0.0
        return found * self.facet_held[:, None]


def _agreed(
    facets: Int64[np.ndarray, "facets 4"], values: Float[np.ndarray, "facets 4 3"], number: int
) -> tuple[Float[np.ndarray, "points 3"], Bool[np.ndarray, " points"]]:
    """What facets have at their corners, and where all of them have the same."""
    total, count = np.zeros((number, 3)), np.zeros(number)
    np.add.at(total, facets, values)
    np.add.at(count, facets, 1.0)
    mean = total / np.maximum(count, 1.0)[:, None]
    apart = np.zeros(number)
    np.maximum.at(apart, facets, np.abs(values - mean[facets]).max(axis=2))
    return mean, (count > 0) & (apart <= 1e-6 * np.abs(values).max(initial=0.0))


_OF_FACETS = "facet_held", "facet_slips", "facet_open", "facet_entrance", "facet_total"


def _in_space(
    case: Case,
    boundary: BoundaryProfile,
    held: np.ndarray,
    velocity: np.ndarray,
    pressure_held: np.ndarray,
    pressure: np.ndarray,
    representative: np.ndarray,
    jump: np.ndarray,
) -> Grid:
    cells = SpaceCells.of(case.mesh)
    owner, more = cells.owner, np.zeros(len(cells.points) - case.number_of_points)
    sizes = case.mesh.facets.sizes[owner]
    columns = np.stack([np.zeros_like(sizes), np.ones_like(sizes), np.full_like(sizes, 2), sizes - 1], axis=1)
    corners = boundary.velocity[owner[:, None], np.minimum(columns, boundary.velocity.shape[1] - 1)]
    on_parts = {"facet_held": boundary.held, "facet_slips": boundary.slips, "facet_open": boundary.opened}
    on_parts |= {"facet_entrance": boundary.entrances, "facet_total": boundary.total}
    parts = {name: each[owner] for name, each in on_parts.items()}
    held, pressure_held = (np.concatenate([each, more > 0]) for each in (held, pressure_held))
    held[cells.facets[parts["facet_held"]]] = True
    pressure_held[cells.facets[parts["facet_open"]]] = True
    return Grid(
        cells=cells,
        held=held,
        velocity=cells.parents @ velocity,
        pressure_held=pressure_held,
        pressure=cells.parents @ pressure,
        slip=np.zeros((len(cells.points), 6)),
        representative=np.concatenate([representative, np.arange(len(representative), len(cells.points))]),
        pressure_jump=np.concatenate([jump, more]),
        # Facets of more corners have a mean.
        facet_velocity=np.where((sizes > 4)[:, None, None], boundary.means[owner][:, None], corners),
        facet_heights=np.zeros((len(owner), 4, 3)) if boundary.heights is None else boundary.heights[owner],
        **parts,
    )._with_directions()


def facet_vectors(
    points: Float[np.ndarray, "points 3"], facets: Int64[np.ndarray, "facets 4"]
) -> Float[np.ndarray, "facets 3"]:
    """Normals of facets in space as long as the facets are large."""
    a, b, c, d = points[facets].transpose(1, 0, 2)
    return 0.5 * np.cross(c - a, d - b)


def _turned(normals: Float[np.ndarray, "rows 2"]) -> Float[np.ndarray, "rows 2"]:
    return np.stack([-normals[:, 1], normals[:, 0]], axis=1)


def _directions(vectors: Float[np.ndarray, "rows 2"]) -> Float[np.ndarray, "rows 2"]:
    """Unit vectors, zero where there is none."""
    sizes = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(sizes > 0, vectors / np.where(sizes > 0, sizes, 1.0), 0.0)


def _refuse(case: Case) -> None:
    for name in ("u", "p"):
        if name in case.conditions.get(Robin.kind, {}) and bool(case.conditions[Robin.kind][name].mask.any()):
            raise ValueError(f"{name} has a Robin condition (mixed in OpenFOAM), which this network does not know.")
        for kind in (Components.kind, StressFree.kind):
            if name in case.conditions.get(kind, {}):
                raise ValueError(f"{name} has a condition of the kind {kind}, which this network does not know.")
        slope = case.neumann.get(name)
        if slope is not None and not slope.is_homogeneous and bool(slope.normal_derivative.any()):
            raise ValueError(
                f"A normal derivative of {name} other than zero is prescribed; this network takes only zero."
            )
