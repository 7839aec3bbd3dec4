"""The potential flow that meets a case's conditions: the velocity field from which a flow starts.

A user's mesh comes without OpenFOAM's initial field, and a network must see the same input in training and in use, so
every flow case gets its initial velocity from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import coo_array, csr_array, diags_array, eye_array, vstack
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg, spsolve
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import facet_means
from pennpde.mesh.cells import TETRAHEDRON, Cells, cell_facets, mean_rows, next_in_row
from pennpde.mesh.splitting import PlaneCells
from pennpde.operators.elements import local_matrices

# A direct solver is exact and quick on what networks are trained on; its memory grows too fast beyond this.
_LARGEST_DIRECT = 60_000
_IMBALANCE = 0.05
_BLOCK = 16_384
"""So many cells are assembled at a time."""


def potential_flow(case: Case) -> Float[Tensor, "points space"]:
    """Velocity u = ∇φ with ∇²φ = 0, as much inflow as the case prescribes, and prescribed values where it has them.

    φ has the normal derivative u·n where the velocity is prescribed (zero on walls), is zero where the pressure is
    prescribed, and has no normal derivative elsewhere. Between periodic patches the flow is periodic, and on average
    that of the case's initial velocity. Linear finite elements (bilinear on quads; other cells of space are cut into
    tetrahedra); the gradient goes to the points by a projection with a lumped mass matrix.
    """
    elements, potential = velocity_potential(case)
    gradient = torch.from_numpy(elements.gradient(potential)[: case.number_of_points]).to(case.initial["u"])
    for condition in case.conditions_of("u"):
        gradient = condition.apply(gradient)
    return gradient


def velocity_potential(case: Case) -> tuple[_Elements, Float[np.ndarray, " unknowns"]]:
    """φ, which grows along the flow, first at the points of the mesh; and the elements that it belongs to."""
    condition, elements = case.dirichlet["u"], _Elements.of(case.mesh)
    load, fixed = np.zeros(elements.number), np.zeros(elements.number, bool)
    values = condition.values.detach().cpu().double().numpy()
    load[: len(values)] = _inflow(case.mesh, condition.mask.cpu().numpy(), values)
    if "p" in case.dirichlet:
        fixed[: len(values)] = case.dirichlet["p"].mask.cpu().numpy()
    if "u" in case.periodic:
        return elements, _solve_periodic(elements, load, fixed, case)
    return elements, _solve(elements.stiffness(), load, fixed)


def _solve_periodic(
    elements: _Elements,
    load: Float[np.ndarray, " unknowns"],
    fixed: Bool[np.ndarray, " unknowns"],
    case: Case,
) -> Float[np.ndarray, " unknowns"]:
    """φ = U·x + a periodic part, with the mean U of the initial velocity at the points where it is free."""
    number, stiffness = elements.number, elements.stiffness()
    representative = np.arange(number)
    representative[: case.number_of_points] = case.periodic["u"].points.cpu().numpy()
    free = case.initial["u"][~case.dirichlet["u"].mask].detach().cpu().double()
    mean = free.mean(dim=0).numpy() if len(free) else np.zeros(case.space)
    drift = elements.positions[:number] @ mean
    joining = csr_array((np.ones(number), (np.arange(number), representative)), shape=(number, number))
    alone = np.setdiff1d(np.arange(number), representative)
    # Copies have an identity row; their representatives carry the contributions of all copies.
    joined = csr_array(joining.T @ stiffness @ joining) + csr_array(
        (np.ones(len(alone)), (alone, alone)), shape=(number, number)
    )
    held = np.zeros(number, bool)
    held[representative[fixed]] = True
    held[alone] = True
    balance = load - stiffness @ drift
    right = joining.T @ balance
    right[np.abs(right) < 1e-12 * np.abs(balance).max()] = 0.0  # a uniform flow leaves nothing but rounding
    potential = _solve(csr_array(joined), right, held)
    return potential[representative] + drift


def _inflow(
    mesh: Mesh, mask: Bool[np.ndarray, " points"], values: Float[np.ndarray, "points space"]
) -> Float[np.ndarray, " points"]:
    """∫ N u·n over the facets on which the velocity is prescribed.

    The inlet's last facet must not lose half of its flux to a corner that has the wall's velocity: see `mesh.boundary`.
    """
    facets = mesh.facets
    sizes = np.diff(facets.offsets)
    facet = np.repeat(np.arange(len(sizes)), sizes)
    value, inside = facet_means(values, mesh, mask)
    value[~inside] = 0.0
    if mesh.space == 2:
        share = (value * mesh.facet_areas.numpy()).sum(axis=1)[facet] / 2
        return np.bincount(facets.connectivity, share, minlength=mesh.number_of_points)
    # A facet in space is a fan of triangles around the mean of its points, whose share goes to all of them equally.
    positions = mesh.points.detach().cpu().double().numpy()
    following = next_in_row(facets.connectivity, facets.offsets)
    centre = mean_rows(positions[facets.connectivity], facets.offsets)
    first, second = (positions[points] - centre[facet] for points in (facets.connectivity, following))
    third = (value[facet] * np.cross(first, second)).sum(axis=1) / 6
    load = np.bincount(facets.connectivity, third, minlength=mesh.number_of_points)
    load += np.bincount(following, third, minlength=mesh.number_of_points)
    spread = (np.bincount(facet, third) / sizes)[facet]
    return load + np.bincount(facets.connectivity, spread, minlength=mesh.number_of_points)


def _solve(
    stiffness: csr_array, load: Float[np.ndarray, " unknowns"], fixed: Bool[np.ndarray, " unknowns"]
) -> Float[np.ndarray, " unknowns"]:
    load, fixed = load.copy(), fixed.copy()
    _, part = connected_components(stiffness, directed=False)
    for closed in np.setdiff1d(part, part[fixed]):
        # Where no pressure is prescribed, φ is known up to a constant, and what flows in must flow out.
        inside = part == closed
        gross, net = np.abs(load[inside]).sum(), load[inside].sum()
        if abs(net) > _IMBALANCE * gross:
            raise ValueError(
                f"No potential flow: the prescribed velocity takes {net:.6g} more out of the domain than into it, and "
                "no pressure is prescribed where the rest could pass. Prescribe the pressure at an outlet."
            )
        if gross > 0:
            load[inside] -= np.abs(load[inside]) * (net / gross)
        fixed[np.flatnonzero(inside)[0]] = True
    free = np.flatnonzero(~fixed)
    potential = np.zeros(len(load))
    if len(free) == 0 or not load.any():
        return potential
    matrix = stiffness[free][:, free]
    if len(free) <= _LARGEST_DIRECT:
        potential[free] = np.asarray(spsolve(matrix.tocsc(), load[free]))
    else:
        diagonal = matrix.diagonal()
        scaling = csr_array((1.0 / diagonal, np.arange(len(free)), np.arange(len(free) + 1)))
        potential[free], missed = cg(matrix, load[free], rtol=1e-8, maxiter=20_000, M=scaling)
        if missed:
            raise ValueError(f"The potential flow on {len(free)} points did not converge; are there degenerate cells?")
    return potential


@dataclass(frozen=True, eq=False)
class _Elements:
    """The cells of a mesh as linear elements.

    Attributes:
        positions: of the points of the mesh, then of centres that it does not have.
        cells: by number of corners.
        extension: the matrix [positions, unknowns]. The centre of a polygon is an unknown; one in space has the mean of
            its points, which is exact for linear fields.
        number: of the unknowns, first those at the points of the mesh.
    """

    positions: Float[np.ndarray, "positions space"]
    cells: tuple[Int64[np.ndarray, "..."], ...]
    extension: csr_array
    number: int

    @staticmethod
    def of(mesh: Mesh) -> _Elements:
        """Triangles and quads; in space tetrahedra."""
        if mesh.space == 2:
            plane = PlaneCells.of(mesh)
            number = len(plane.points)
            return _Elements(plane.points, (plane.triangles, plane.quads), csr_array(eye_array(number)), number)
        positions = mesh.points.detach().cpu().double().numpy()
        whole = mesh.cell_types == TETRAHEDRON
        kept = mesh.connectivity[mesh.offsets[np.flatnonzero(whole), None] + np.arange(4)]
        pieces, extension = _cut_around_centres(mesh, np.flatnonzero(~whole))
        return _Elements(extension @ positions, (np.concatenate([kept, pieces]),), extension, len(positions))

    def stiffness(self) -> csr_array:
        number = len(self.positions)
        total = csr_array((number, number))
        for cells, _, stiffness, _ in self._blocks():
            size = cells.shape[1]
            places = np.repeat(cells, size, axis=1).ravel(), np.tile(cells, size).ravel()
            total = total + csr_array(coo_array((stiffness.ravel(), places), shape=total.shape))
        return csr_array(self.extension.T @ total @ self.extension)

    def gradient(self, potential: Float[np.ndarray, " unknowns"]) -> Float[np.ndarray, "unknowns space"]:
        """∇φ at the unknowns: weighted means of the cells around them."""
        field = self.extension @ potential
        sums = np.zeros((len(field), self.positions.shape[1] + 1))
        for cells, masses, _, gradient in self._blocks():
            slopes = np.einsum("cija,cj->cia", gradient, field[cells])
            for place, values in enumerate((*np.moveaxis(slopes, 2, 0), masses)):
                sums[:, place] += np.bincount(cells.ravel(), values.ravel(), minlength=len(field))
        *totals, weights = (self.extension.T @ sums).T
        return np.stack(totals, axis=1) / np.where(weights > 0, weights, 1.0)[:, None]

    def _blocks(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Cells with their masses, stiffness and gradient, bilinear as those of which networks have learned."""
        for cells in self.cells:
            for first in range(0, len(cells), _BLOCK):
                block = cells[first : first + _BLOCK]
                yield block, *local_matrices(self.positions[block], thin=False)


def _cut_around_centres(mesh: Mesh, chosen: np.ndarray) -> tuple[Int64[np.ndarray, "tetrahedra 4"], csr_array]:
    """Tetrahedra from each cell's centre to its facets, these cut around their own centres.

    A cut from corner to corner would favour one diagonal of each quad, and not match the trilinear cells next to it.
    """
    every = cell_facets(Cells(mesh.connectivity, mesh.offsets, mesh.cell_types, mesh.polyhedron_faces))
    facets = every.take(np.flatnonzero(np.isin(every.cells, chosen)))
    number, cells = mesh.number_of_points, len(chosen)
    cell = np.searchsorted(chosen, facets.cells)
    facet = np.repeat(np.arange(len(facets)), facets.sizes)
    following = next_in_row(facets.connectivity, facets.offsets)
    tetrahedra = np.stack([number + cell[facet], number + cells + facet, facets.connectivity, following], axis=1)
    of_cell = csr_array((np.ones(len(facet)), (cell[facet], facets.connectivity)), shape=(cells, number))
    of_cell.sum_duplicates()
    of_cell.data[:] = 1.0
    of_facet = csr_array((np.ones(len(facet)), (facet, facets.connectivity)), shape=(len(facets), number))
    means = [csr_array(diags_array(1.0 / each.sum(axis=1)) @ each) for each in (of_cell, of_facet)]
    return tetrahedra, csr_array(vstack([eye_array(number, format="csr"), *means], format="csr"))
