"""The potential flow that meets a case's conditions: the velocity field from which a flow starts.

A user's mesh comes without OpenFOAM's initial field, and a network must see the same input in training and in use, so
every flow case gets its initial velocity from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array, diags_array, eye_array, vstack
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg, spsolve
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import facet_means
from pennpde.mesh.cells import (
    HEXAHEDRON,
    POLYGON,
    POLYHEDRON,
    PYRAMID,
    QUAD,
    TETRAHEDRON,
    TRIANGLE,
    WEDGE,
    Cells,
    cell_facets,
    next_in_row,
)
from pennpde.mesh.triangulation import cross

if TYPE_CHECKING:
    from skfem import CellBasis

# A direct solver is exact and quick on what networks are trained on; its memory grows too fast beyond this.
_LARGEST_DIRECT = 60_000
_IMBALANCE = 0.05


def potential_flow(case: Case, velocity: str = "u", pressure: str = "p") -> Float[Tensor, "points space"]:
    """Velocity u = ∇φ with ∇²φ = 0, as much inflow as the case prescribes, and prescribed values where it has them.

    φ has the normal derivative u·n where the velocity is prescribed (zero on walls), is zero where the pressure is
    prescribed, and has no normal derivative elsewhere. Between periodic patches the flow is periodic, and on average
    that of the case's initial velocity. Linear finite elements (bilinear on quads, trilinear on
    hexahedra); the gradient goes to the points by a projection with a lumped mass matrix.
    """
    elements, potential = _potential(case, velocity, pressure)
    gradient = torch.from_numpy(_gradient(elements, potential, case.space)).to(case.initial[velocity])
    for condition in case.conditions_of(velocity):
        gradient = condition.apply(gradient)
    return gradient


def velocity_potential(case: Case, velocity: str = "u", pressure: str = "p") -> Float[Tensor, " points"]:
    """φ itself, which grows along the flow."""
    return torch.from_numpy(_potential(case, velocity, pressure)[1]).to(case.initial[velocity])


def _potential(case: Case, velocity: str, pressure: str) -> tuple[list[_Elements], Float[np.ndarray, " points"]]:
    mesh = case.mesh
    dirichlet = case.dirichlet[velocity]
    elements = _elements(mesh)
    load = _inflow(mesh, dirichlet.mask.cpu().numpy(), dirichlet.values.detach().cpu().double().numpy())
    fixed = case.dirichlet[pressure].mask.cpu().numpy() if pressure in case.dirichlet else np.zeros(len(load), bool)
    stiffness = _stiffness(elements)
    if velocity in case.periodic:
        return elements, _solve_periodic(stiffness, load, fixed, case, velocity)
    return elements, _solve(stiffness, load, fixed)


def _solve_periodic(
    stiffness: csr_array,
    load: Float[np.ndarray, " points"],
    fixed: Bool[np.ndarray, " points"],
    case: Case,
    velocity: str,
) -> Float[np.ndarray, " points"]:
    """φ = U·x + a periodic part, with the mean U of the initial velocity at the points where it is free."""
    representative = case.periodic[velocity].points.cpu().numpy()
    free = case.initial[velocity][~case.dirichlet[velocity].mask].detach().cpu().double()
    mean = free.mean(dim=0).numpy() if len(free) else np.zeros(case.space)
    drift = case.mesh.points.detach().cpu().double().numpy() @ mean
    number = len(load)
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
    centre = np.add.reduceat(positions[facets.connectivity], facets.offsets[:-1]) / sizes[:, None]
    first, second = (positions[points] - centre[facet] for points in (facets.connectivity, following))
    third = (value[facet] * np.cross(first, second)).sum(axis=1) / 6
    load = np.bincount(facets.connectivity, third, minlength=mesh.number_of_points)
    load += np.bincount(following, third, minlength=mesh.number_of_points)
    spread = (np.bincount(facet, third) / sizes)[facet]
    return load + np.bincount(facets.connectivity, spread, minlength=mesh.number_of_points)


def _solve(
    stiffness: csr_array, load: Float[np.ndarray, " points"], fixed: Bool[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
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


# Finite elements


@dataclass(frozen=True, eq=False)
class _Elements:
    """Cells of one kind, as scikit-fem has them.

    Attributes:
        basis: over the points that these cells use, and perhaps centres that the mesh does not have.
        extension: the matrix [points of the basis, points of the mesh]. A centre has the mean of its points, which is
            exact for linear fields.
    """

    basis: CellBasis
    extension: csr_array

    @staticmethod
    def of(code: int, cells: Int64[np.ndarray, "cells size"], extension: csr_array, positions: np.ndarray) -> _Elements:
        import skfem

        meshes, elements = {
            TRIANGLE: (skfem.MeshTri1, skfem.ElementTriP1),
            QUAD: (skfem.MeshQuad1, skfem.ElementQuad1),
            TETRAHEDRON: (skfem.MeshTet1, skfem.ElementTetP1),
            WEDGE: (skfem.MeshWedge1, skfem.ElementWedge1),
            HEXAHEDRON: (skfem.MeshHex1, skfem.ElementHex1),
        }[code]
        used, local = np.unique(cells, return_inverse=True)
        corners = local.reshape(cells.shape)
        if code == HEXAHEDRON:
            corners = corners[:, [6, 5, 2, 7, 1, 4, 3, 0]]  # VTK's numbers of scikit-fem's corners
        extension = extension[used]
        mesh = meshes((extension @ positions).T.copy(), corners.T.copy(), validate=False)
        # scikit-fem 12 integrates over wedges with weights that sum to half of the volume.
        if code == WEDGE:
            basis = skfem.CellBasis(mesh, elements(), quadrature=_WEDGE_QUADRATURE)
        else:
            basis = skfem.CellBasis(mesh, elements(), intorder=2)
        return _Elements(basis, extension)


_TRIANGLE = np.array([[1 / 6, 1 / 6], [2 / 3, 1 / 6], [1 / 6, 2 / 3]])
_LINE = 0.5 + np.array([-0.5, 0.5]) / np.sqrt(3)
_WEDGE_QUADRATURE = (
    np.concatenate([np.column_stack([_TRIANGLE, np.full(3, height)]) for height in _LINE]).T,
    np.full(6, 1 / 12),
)


def _elements(mesh: Mesh) -> list[_Elements]:
    """All cells by kind; polygons cut into triangles, pyramids and polyhedra into tetrahedra around their centres."""
    positions = mesh.points.detach().cpu().double().numpy()
    identity = csr_array(eye_array(len(positions)))
    made = []
    for code in map(int, np.unique(mesh.cell_types)):
        chosen = np.flatnonzero(mesh.cell_types == code)
        if code in (PYRAMID, POLYHEDRON):
            tetrahedra, extension = _cut_around_centres(mesh, chosen)
            made.append(_Elements.of(TETRAHEDRON, tetrahedra, extension, positions))
        elif code == POLYGON:
            pieces = [_cut_polygon(mesh.connectivity[mesh.offsets[c] : mesh.offsets[c + 1]], positions) for c in chosen]
            made.append(_Elements.of(TRIANGLE, np.concatenate(pieces), identity, positions))
        else:
            size = int(mesh.offsets[chosen[0] + 1] - mesh.offsets[chosen[0]])
            cells = mesh.connectivity[mesh.offsets[chosen, None] + np.arange(size)]
            made.append(_Elements.of(code, cells, identity, positions))
    return made


def _stiffness(elements: list[_Elements]) -> csr_array:
    from skfem.models.poisson import laplace

    parts = [each.extension.T @ csr_array(laplace.assemble(each.basis)) @ each.extension for each in elements]
    return csr_array(sum(parts[1:], start=parts[0]))


def _gradient(elements: list[_Elements], potential: Float[np.ndarray, " points"], space: int) -> np.ndarray:
    """∇φ at the points [points, space]: weighted means of the cells around them."""
    import skfem

    @skfem.LinearForm
    def weight(test, _fields):
        return test

    @skfem.LinearForm
    def slope(test, fields):
        return fields["potential"].grad[fields["axis"]] * test

    total, weights = np.zeros((len(potential), space)), np.zeros(len(potential))
    for each in elements:
        field = each.basis.interpolate(each.extension @ potential)
        weights += each.extension.T @ weight.assemble(each.basis)
        for axis in range(space):
            total[:, axis] += each.extension.T @ slope.assemble(each.basis, potential=field, axis=axis)
    return total / np.where(weights > 0, weights, 1.0)[:, None]


def _cut_polygon(corners: Int64[np.ndarray, " size"], positions: np.ndarray) -> Int64[np.ndarray, "triangles 3"]:
    """Triangles of a counter-clockwise polygon, convex or not: ears are cut off one by one, the fullest first."""
    left, triangles = [int(corner) for corner in corners], []
    while len(left) > 3:
        best, quality = 0, -np.inf
        for place in range(len(left)):
            ear = [left[(place + step) % len(left)] for step in (-1, 0, 1)]
            a, b, c = positions[ear][:, None]
            area = cross(b - a, c - a).item()
            others = positions[[point for point in left if point not in ear]]
            inside = [cross(end - start, others - start) >= 0 for start, end in ((a, b), (b, c), (c, a))]
            if area > 0 and np.logical_and.reduce(inside).any():
                continue
            fullness = area / max(((a - b) ** 2).sum(), ((b - c) ** 2).sum(), ((c - a) ** 2).sum())
            if fullness > quality:
                best, quality = place, fullness
        triangles.append([left[(best + step) % len(left)] for step in (-1, 0, 1)])
        del left[best]
    return np.array([*triangles, left])


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
