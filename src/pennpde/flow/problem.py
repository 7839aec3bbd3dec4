"""A flow on dual cells: what the scheme needs of a case, as tensors, computed once per mesh.

As in `DualCells`, points and edges are the last axis of all tensors.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.spatial import KDTree
from torch import Tensor

from pennpde.flow import pressure as poisson
from pennpde.flow.dual_cells import DualCells
from pennpde.flow.grid import Grid, facet_vectors
from pennpde.mesh.space_cells import EDGES, SpaceCells
from pennpde.operators.sparse import SparseMatrix

_OF_ONE = "slip", "slip_too", "places", "facets", "facet_jumps", "facet_fluxes", "total"
"""What cannot be joined as it is, or what batches do not have."""


@dataclass(frozen=True, eq=False)
class Numbering:
    """Points of a grid, neighbours near each other in memory; copies of periodic points are one.

    Splitting cells puts corners first and the middles between them last. Loops over neighbours take up to twice as long
    then.

    Attributes:
        stands: for each cell the point of the grid around which it is.
        places: for each point of the grid its cell.
    """

    stands: Int[np.ndarray, " cells"]
    places: Int[np.ndarray, " points"]

    @staticmethod
    def of(grid: Grid) -> Numbering:
        groups = grid.cells.groups
        if grid.cells.points.shape[1] == 3:
            # The edges of cells in space, of which rows of corners do not tell.
            groups = tuple(each[:, pair] for each in groups for pair in EDGES[each.shape[1]])
        return _numbered(grid.representative.tobytes(), *((each.tobytes(), each.shape) for each in groups))


@lru_cache(maxsize=4)
def _numbered(representative: bytes, *groups: tuple[bytes, tuple[int, int]]) -> Numbering:
    """Kept, because shapes of a study share it."""
    stands, places = np.unique(np.frombuffer(representative, np.int64), return_inverse=True)
    number, cells = len(stands), [np.frombuffer(each, np.int64).reshape(shape) for each, shape in groups]
    pairs = [(each[:, k - 1], each[:, k]) for each in cells for k in range(each.shape[1])]
    one, other = (places[np.concatenate(each)] for each in zip(*pairs, strict=True))
    graph = scipy.sparse.coo_matrix((np.ones(len(one), np.int8), (one, other)), (number, number)).tocsr()
    order = reverse_cuthill_mckee(graph + graph.T, symmetric_mode=True)
    rank = np.empty(number, np.int64)
    rank[order] = np.arange(number)
    return Numbering(stands[order], rank[places])


@dataclass(frozen=True, eq=False)
class Problem:
    """One flow, or those of a batch side by side.

    Attributes:
        cells: dual cells around the points; copies of periodic ones are one.
        pressure_solver: of the pressure's equation.
        viscosity: one per flow.
        free: 1 where the velocity is looked for, 0 where it is prescribed.
        velocity: the prescribed one; elsewhere that of the start.
        slip: unit normals of slip walls, zero elsewhere; None where there are none.
        slip_too: a second direction that is forbidden, at right angles to the first: where slip walls meet in space.
        pressure: the prescribed one; elsewhere that of the start.
        pressure_free: 1 where the pressure is looked for.
        inflow: what leaves each cell through facets on which the velocity is prescribed, negative at inlets.
        facet_shift: by how much the velocity in the middle of an edge along the boundary differs from the mean of its
            ends, next to corners in which patches with different velocities meet.
        open: 1 at points of outlets, but for those through which pressure drives fluid in.
        total: inward normals where `pressure` is the total one, zero elsewhere; None where there is no such point.
        static: 1 at points through which a static pressure drives fluid in; None where there are none.
        wall_distance: from walls at rest.
        jump: what the jumps of a periodic pressure add to its differences along edges and to its gradient; None where
            there are none.
        closed: 1 for flows whose boundary lets nothing but prescribed velocities through.
        places: for each point of the user's mesh its cell.
        jumps: by how much the pressure there is larger than in that cell.
        corner_pressure: points of the user's mesh whose pressure is a mean over points and something added: these
            points, the weights and what is added; None where there are none. Batches have none.
        facets: of the boundary, the cells at both ends, in the order of the user's mesh, each in as many parts as its
            cells are split; None for batches. In space those at its four corners, the last one twice in a triangle.
        facet_fluxes: in space, what leaves through each of them where the velocity is prescribed.
        owner: in space, the facet of the user's mesh that each of them is a part of.
        facet_jumps: by how much the pressure on each is larger than in these cells; None where there are no jumps.
        numbering: how the points of the grid are numbered; None for batches.
    """

    cells: DualCells
    pressure_solver: poisson.Solver
    viscosity: Float[Tensor, " flows"]
    free: Float[Tensor, " points"]
    velocity: Float[Tensor, "space points"]
    slip: Float[Tensor, "space points"] | None
    pressure: Float[Tensor, " points"]
    pressure_free: Float[Tensor, " points"]
    inflow: Float[Tensor, " points"]
    facet_shift: Float[Tensor, "space edges"]
    open: Float[Tensor, " points"]
    wall_distance: Float[Tensor, " points"]
    closed: Float[Tensor, " flows"]
    places: Int[Tensor, " user_points"]
    jumps: Float[Tensor, " user_points"]
    jump: tuple[Float[Tensor, " edges"], Float[Tensor, "space points"]] | None = None
    corner_pressure: tuple[Int[Tensor, " corners"], SparseMatrix, Float[Tensor, " corners"]] | None = None
    facets: Int[Tensor, "facets _"] | None = None
    facet_jumps: Float[Tensor, " facets"] | None = None
    numbering: Numbering | None = None
    total: Float[Tensor, "space points"] | None = None
    slip_too: Float[Tensor, "space points"] | None = None
    facet_fluxes: Float[Tensor, " facets"] | None = None
    owner: Int[Tensor, " facets"] | None = None
    static: Float[Tensor, " points"] | None = None

    @staticmethod
    def of(
        grid: Grid,
        viscosity: float,
        number_of_points: int,
        *,
        way: poisson.Way | None = None,
        device: torch.device | str = "cpu",
        solver: poisson.Solver | None = None,
    ) -> Problem:
        """Assemble a flow, in double precision, on the CPU.

        Args:
            grid: cells and conditions.
            viscosity: in the network's units.
            number_of_points: of the user's mesh.
            way: how the pressure's equation is solved; by default the fastest on the device.
            device: on which the flow will be.
            solver: of the pressure's equation, where one is known already, or none is going to be needed.
        """
        numbering = Numbering.of(grid)
        stands, places = numbering.stands, numbering.places
        periodic = len(stands) < len(places)
        groups, space = grid.cells.groups, grid.cells.points.shape[1]
        key = _key(grid.cells.points, *groups, places, grid.pressure_held, f"{way} {device}")
        known = _LAST.get(key)
        cells = DualCells.of(grid.cells.points, groups, places) if known is None else known[0]
        number = cells.number_of_points

        def merged(values: np.ndarray) -> np.ndarray:
            """Of copies the largest in modulus: a condition at one of them holds at all."""
            if not periodic:
                return values[stands]
            result = np.zeros((number, *values.shape[1:]), values.dtype)
            for place in np.argsort(np.abs(values.reshape(len(values), -1)).max(axis=1), kind="stable"):
                result[places[place]] = values[place]
            return result

        held = np.zeros(number, bool)
        held[places[grid.held]] = True
        pressure_held = np.zeros(number, bool)
        pressure_held[places[grid.pressure_held]] = True
        velocity = merged(np.where(grid.held[:, None], grid.velocity, 0.0))
        velocity = np.where(held[:, None], velocity, grid.velocity[stands])
        if not pressure_held.any():
            pressure_held[places[0]] = True  # the level is nobody's wish: any point may be zero
        inflow = np.bincount(places, grid.boundary_flux(), number)
        walls = held & (velocity == 0).all(axis=1)
        jump = None
        if grid.pressure_jump.any():
            jump = _jump(grid, cells, groups, places)
        pressure = grid.pressure - grid.pressure_jump
        slip, *more = (
            merged(grid.slip[:, first : first + space]) * (1.0 - held)[:, None]
            for first in range(0, grid.slip.shape[1], space)
        )
        in_space = isinstance(grid.cells, SpaceCells)
        if known is None:
            known = cells, solver or poisson.poisson(cells, pressure_held, way=way, device=device)
            if solver is None:
                _keep(key, *known)
        return Problem(
            *known,
            viscosity=torch.tensor([viscosity], dtype=torch.float64),
            free=torch.from_numpy(1.0 - held),
            velocity=_components_first(velocity),
            slip=_components_first(slip) if slip.any() else None,
            pressure=torch.from_numpy(pressure[stands]),
            pressure_free=torch.from_numpy(1.0 - pressure_held),
            inflow=torch.from_numpy(inflow),
            facet_shift=facet_shift(grid, cells, places),
            open=outlets(grid, places, held),
            wall_distance=_distance(grid.cells.points[stands], walls),
            closed=torch.tensor([float(grid.is_closed)], dtype=torch.float64),
            places=torch.from_numpy(places[:number_of_points]),
            jumps=torch.from_numpy(grid.pressure_jump[:number_of_points]),
            jump=jump,
            facets=torch.from_numpy(places[grid.cells.facets]),
            facet_jumps=None if jump is None else torch.from_numpy(grid.pressure_jump[grid.cells.facets].mean(axis=1)),
            numbering=numbering,
            total=_total(grid, places, number),
            static=_static(grid, places, held),
            slip_too=_components_first(more[0]) if in_space and more[0].any() else None,
            facet_fluxes=torch.from_numpy(grid.corner_fluxes().sum(axis=1)) if in_space else None,
            owner=torch.from_numpy(grid.cells.owner) if isinstance(grid.cells, SpaceCells) else None,
        )

    @staticmethod
    def side_by_side(parts: Sequence[Problem]) -> Problem:
        """The flows of a batch. They have no periodic pressure jumps."""
        if len(parts) == 1:
            return parts[0]
        if any(part.goes_alone for part in parts):
            raise ValueError("Flows in space, with a periodic pressure jump, or that a pressure drives, go one by one.")
        starts = np.cumsum([0, *(part.cells.number_of_points for part in parts)])
        joined: dict[str, Any] = {
            each.name: torch.cat([getattr(part, each.name) for part in parts], dim=-1)
            for each in fields(Problem)
            if isinstance(getattr(parts[0], each.name), Tensor) and each.name not in _OF_ONE
        }
        slips = any(part.slip is not None for part in parts)
        normals = [torch.zeros_like(part.velocity) if part.slip is None else part.slip for part in parts]
        places = torch.cat([part.places + int(start) for part, start in zip(parts, starts, strict=False)])
        return Problem(
            DualCells.side_by_side([part.cells for part in parts]),
            poisson.side_by_side([part.pressure_solver for part in parts]),
            slip=torch.cat(normals, dim=-1) if slips else None,
            places=places,
            **joined,
        )

    @property
    def goes_alone(self) -> bool:
        """Whether the flow has what flows of a batch do not have."""
        alone = self.jump is None and self.total is None and self.static is None
        return self.cells.space == 3 or not alone

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Problem:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else None)

        changes: dict[str, object] = {"cells": self.cells.map(move)}
        if not isinstance(self.pressure_solver, poisson.Factorised):  # factors stay on the CPU, in double precision
            changes["pressure_solver"] = self.pressure_solver.map(move)
        if self.jump is not None:
            changes["jump"] = tuple(move(each) for each in self.jump)
        if self.corner_pressure is not None:
            corners, weights, added = self.corner_pressure
            changes["corner_pressure"] = (move(corners), weights.map(move), move(added))
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changes[each.name] = move(value)
        return replace(self, **changes)

    def restrict(self, values: Float[Tensor, "space points"]) -> Float[Tensor, "space points"]:
        """Without what is not free: nothing where the velocity is prescribed, tangential at slip walls."""
        return self.along_slip_walls(values * self.free)

    def along_slip_walls(self, values: Float[Tensor, "space points"]) -> Float[Tensor, "space points"]:
        for normal in (self.slip, self.slip_too):
            values = values if normal is None else values - normal * (normal * values).sum(dim=0)
        return values

    def held_pressure(self, velocity: Float[Tensor, "space points"]) -> Float[Tensor, " points"]:
        """The prescribed pressure, without what of a total one the velocity of entering fluid makes up."""
        if self.total is None:
            return self.pressure
        return self.pressure - 0.5 * (self.total * velocity).sum(dim=0).clamp_min(0.0).square()

    def drawing(self, velocity: Float[Tensor, "space points"], pressure: Tensor, step: float) -> Problem:
        """The problem of a step, its total pressures made static ones by the velocity that is expected at its end.

        Where fluid crosses more than a cell in the step, what changes from point to point would overshoot: of that the
        pressure follows a part.
        """
        assert self.total is not None, "no pressure is a total one"
        drawn = self.total.any(dim=0)
        change = torch.where(drawn, self.held_pressure(velocity) - pressure, 0.0)
        mean = change.sum() / drawn.sum()
        crossed = step * velocity.norm(dim=0) / self.cells.areas ** (1.0 / self.cells.space)
        followed = pressure + mean + (change - mean) / (1.0 + 4.0 * crossed)
        return replace(self, pressure=torch.where(drawn, followed, self.pressure))

    def gradient(self, pressure: Float[Tensor, " points"]) -> Float[Tensor, "space points"]:
        """The gradient of a pressure, with its periodic jumps."""
        slope = self.cells.slope(pressure)
        return slope if self.jump is None else slope + self.jump[1]


_LAST: OrderedDict[bytes, tuple[DualCells, poisson.Solver]] = OrderedDict()
_MOST_KEPT = 30_000
"""Points of all meshes in `_LAST`: some 50 MB."""


def _key(*parts: np.ndarray | str) -> bytes:
    """The same for the same content only."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else f"{part.shape}".encode())
        digest.update(b"" if isinstance(part, str) else np.ascontiguousarray(part).tobytes())
    return digest.digest()


def _keep(key: bytes, cells: DualCells, solver: poisson.Solver) -> None:
    """The designs of a study share meshes: their cells and factors take as long as a fifth of a fast march."""
    _LAST[key] = cells, solver
    while sum(each.number_of_points for each, _ in _LAST.values()) > _MOST_KEPT:
        _LAST.popitem(last=False)


def _total(grid: Grid, places: np.ndarray, number: int) -> Float[Tensor, "space points"] | None:
    """`Problem.total` of a grid."""
    if not grid.facet_total.any():
        return None
    ends = grid.cells.facets[grid.facet_total]
    if isinstance(grid.cells, SpaceCells):
        inward = np.zeros((number, 3))
        np.add.at(inward, places[ends], -facet_vectors(grid.cells.points, ends)[:, None])
        return torch.nn.functional.normalize(_components_first(inward), dim=0)
    along = grid.cells.points[ends[:, 1]] - grid.cells.points[ends[:, 0]]
    inward = np.zeros((number, 2))
    np.add.at(inward, places[ends], np.stack([-along[:, 1], along[:, 0]], axis=1)[:, None])
    return torch.nn.functional.normalize(_components_first(inward), dim=0)


def _static(grid: Grid, places: np.ndarray, held: Bool[np.ndarray, " points"]) -> Float[Tensor, " points"] | None:
    """`Problem.static` of a grid."""
    drives = np.zeros(len(held), bool)
    drives[places[grid.cells.facets[grid.facet_entrance & ~grid.facet_total].ravel()]] = True
    return torch.from_numpy((drives & ~held).astype(float)) if drives.any() else None


def _jump(
    grid: Grid, cells: DualCells, groups: Sequence[np.ndarray], places: np.ndarray
) -> tuple[Float[Tensor, " edges"], Float[Tensor, "space points"]]:
    whole = DualCells.of(grid.cells.points, groups)
    rise = torch.from_numpy(grid.pressure_jump)
    number = cells.number_of_points
    slope = torch.zeros(cells.space, number, dtype=torch.float64).index_add(
        1, torch.from_numpy(places), whole.areas * whole.slope(rise)
    )
    ends = np.stack([places[whole.first.numpy()], places[whole.second.numpy()]])
    keys = cells.first.numpy() * np.int64(number) + cells.second.numpy()
    where = np.searchsorted(keys, ends.min(axis=0) * np.int64(number) + ends.max(axis=0))
    along = np.zeros(len(keys))
    along[where] = np.where(ends[0] < ends[1], 1.0, -1.0) * whole.difference(rise).numpy()
    return torch.from_numpy(along), slope / cells.areas


def outlets(grid: Grid, places: np.ndarray, held: Bool[np.ndarray, " points"]) -> Float[Tensor, " points"]:
    """`Problem.open` of a grid, whose points have places among the cells."""
    opened = np.zeros(len(held), bool)
    opened[places[grid.cells.facets[grid.facet_open & ~grid.facet_entrance].ravel()]] = True
    opened[places[grid.cells.facets[grid.facet_entrance].ravel()]] = False
    return torch.from_numpy((opened & ~held).astype(float))


def facet_shift(grid: Grid, cells: DualCells, places: np.ndarray) -> Float[Tensor, "space edges"]:
    """`Problem.facet_shift` of a grid, whose points have places among the cells."""
    if isinstance(grid.cells, SpaceCells):
        return torch.zeros_like(cells.faces)  # only in the plane is a facet an edge
    ends = places[grid.cells.facets]
    middle = grid.facet_velocity[:, [0, 2]].mean(axis=1)
    mean = grid.velocity[grid.cells.facets].mean(axis=1)
    shift = np.where(grid.facet_held[:, None], middle - mean, 0.0)
    number = np.int64(cells.number_of_points)
    keys = cells.first.cpu().numpy() * number + cells.second.cpu().numpy()
    wanted = ends.min(axis=1) * number + ends.max(axis=1)
    result = np.zeros((2, len(keys)))
    places_of = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = keys[places_of] == wanted
    result[:, places_of[known]] = shift[known].T
    return torch.from_numpy(result)


def _components_first(values: Float[np.ndarray, "points space"]) -> Float[Tensor, "space points"]:
    return torch.from_numpy(np.ascontiguousarray(values.T))


def _distance(
    positions: Float[np.ndarray, "points space"], walls: Bool[np.ndarray, " points"]
) -> Float[Tensor, " points"]:
    """The distance to the nearest point of a wall: near enough to tell layers from the rest."""
    if not walls.any():
        return torch.full((len(positions),), float(np.ptp(positions, axis=0).max()), dtype=torch.float64)
    tree = KDTree(positions[walls])
    return torch.from_numpy(np.asarray(tree.query(positions, workers=torch.get_num_threads())[0]))
