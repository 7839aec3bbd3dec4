"""The potential flow that meets a case's conditions: the velocity field from which a flow starts.

A user's mesh comes without OpenFOAM's initial field, and a network must see the same input in training and in use, so
every flow case gets its initial velocity from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg, spsolve
from torch import Tensor

from pennpde.conditions import Case
from pennpde.mesh import Mesh
from pennpde.mesh_topology import HEXAHEDRON, POLYGON, POLYHEDRON, PYRAMID, QUAD, TETRAHEDRON, TRIANGLE, WEDGE

if TYPE_CHECKING:
    from skfem import CellBasis

# A direct solver is exact and quick on what networks are trained on; its memory grows too fast beyond this.
_LARGEST_DIRECT = 60_000
_IMBALANCE = 0.05


def potential_flow(case: Case, velocity: str = "u", pressure: str = "p") -> Float[Tensor, "points space"]:
    """Velocity u = ∇φ with ∇²φ = 0, as much inflow as the case prescribes, and prescribed values where it has them.

    φ has the normal derivative u·n where the velocity is prescribed (zero on walls), is zero where the pressure is
    prescribed, and has no normal derivative elsewhere. Linear finite elements (bilinear on quads, trilinear on
    hexahedra); the gradient goes to the points by a projection with a lumped mass matrix.
    """
    mesh = case.mesh
    dirichlet = case.dirichlet[velocity]
    bases = list(_bases(mesh))
    number = mesh.number_of_points
    load = _inflow(mesh, dirichlet.mask.cpu().numpy(), dirichlet.values.detach().cpu().double().numpy())
    fixed = case.dirichlet[pressure].mask.cpu().numpy() if pressure in case.dirichlet else np.zeros(number, bool)
    potential = _solve(_stiffness(bases, number), load, fixed)
    gradient = torch.from_numpy(_gradient(bases, potential, mesh.space)).to(case.initial[velocity])
    if velocity in case.slip:
        gradient = case.slip[velocity].apply(gradient)
    return dirichlet.apply(gradient)


def _inflow(
    mesh: Mesh, mask: Bool[np.ndarray, " points"], values: Float[np.ndarray, "points space"]
) -> Float[np.ndarray, " points"]:
    """∫ N u·n over the facets on which the velocity is prescribed."""
    facets = mesh.facets
    sizes = np.diff(facets.offsets)
    facet = np.repeat(np.arange(len(sizes)), sizes)
    # A corner between inlet and wall has the wall's velocity, zero. The inlet's last facet must not lose half of its
    # flux to it, so a facet takes the mean of those of its points that are in the fewest patches.
    patches = np.zeros(mesh.number_of_points, np.int64)
    for patch in mesh.patches.values():
        patches[patch.points] += 1
    membership = patches[facets.connectivity]
    fewest = np.minimum.reduceat(membership, facets.offsets[:-1])
    counts = membership == fewest[facet]
    value = np.stack(
        [np.bincount(facet, np.where(counts, values[facets.connectivity, axis], 0.0)) for axis in range(mesh.space)],
        axis=1,
    )
    value /= np.bincount(facet, counts)[:, None]
    inside = np.logical_and.reduceat(mask[facets.connectivity], facets.offsets[:-1])
    flux = np.where(inside, (value * mesh.facet_areas.numpy()).sum(axis=1), 0.0)
    return np.bincount(facets.connectivity, (flux / sizes)[facet], minlength=mesh.number_of_points)


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
                f"No potential flow: the prescribed velocity takes {net:.6g} more out of the domain than into it, and no "
                "pressure is prescribed where the rest could pass. Prescribe the pressure at an outlet."
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


# Finite elements: one scikit-fem basis for each kind of cell, over the points that it has


def _bases(mesh: Mesh) -> Iterator[tuple[Int64[np.ndarray, " some"], CellBasis]]:
    """For each kind of element: the points that its cells use, and the basis over them."""
    import skfem

    kinds = {
        TRIANGLE: (skfem.MeshTri1, skfem.ElementTriP1),
        QUAD: (skfem.MeshQuad1, skfem.ElementQuad1),
        TETRAHEDRON: (skfem.MeshTet1, skfem.ElementTetP1),
        WEDGE: (skfem.MeshWedge1, skfem.ElementWedge1),
        HEXAHEDRON: (skfem.MeshHex1, skfem.ElementHex1),
    }
    positions = mesh.points.detach().cpu().double().numpy()
    for code, cells in _simple_cells(mesh, positions).items():
        make, element = kinds[code]
        used, local = np.unique(cells, return_inverse=True)
        corners = local.reshape(cells.shape)[:, _ORDER.get(code, np.arange(cells.shape[1]))]
        part = make(np.ascontiguousarray(positions[used].T), np.ascontiguousarray(corners.T), validate=False)
        yield used, skfem.CellBasis(part, element(), intorder=2)


# Where scikit-fem's reference cell has its corners, in VTK's numbers.
_ORDER = {HEXAHEDRON: np.array([6, 5, 2, 7, 1, 4, 3, 0])}


def _stiffness(bases: list[tuple[np.ndarray, CellBasis]], number: int) -> csr_array:
    from skfem.models.poisson import laplace

    total = csr_array((number, number))
    for used, basis in bases:
        part = laplace.assemble(basis).tocoo()
        total = total + csr_array((part.data, (used[part.row], used[part.col])), shape=(number, number))
    return total


def _gradient(
    bases: list[tuple[np.ndarray, CellBasis]], potential: Float[np.ndarray, " points"], space: int
) -> Float[np.ndarray, "points space"]:
    import skfem

    @skfem.LinearForm
    def weight(test, _fields):
        return test

    @skfem.LinearForm
    def slope(test, fields):
        return fields["potential"].grad[fields["axis"]] * test

    total, weights = np.zeros((len(potential), space)), np.zeros(len(potential))
    for used, basis in bases:
        field = basis.interpolate(potential[used])
        weights[used] += weight.assemble(basis)
        for axis in range(space):
            total[used, axis] += slope.assemble(basis, potential=field, axis=axis)
    return total / np.where(weights > 0, weights, 1.0)[:, None]


def _simple_cells(
    mesh: Mesh, positions: Float[np.ndarray, "points space"]
) -> dict[int, Int64[np.ndarray, "cells size"]]:
    """The cells by kind; polygons cut into triangles, pyramids and polyhedra into tetrahedra."""
    found: dict[int, list[np.ndarray]] = {}
    sizes = np.diff(mesh.offsets)
    for code in np.unique(mesh.cell_types):
        chosen = np.flatnonzero(mesh.cell_types == code)
        if code == POLYGON:
            pieces = [_cut_polygon(mesh.connectivity[mesh.offsets[c] : mesh.offsets[c + 1]], positions) for c in chosen]
            found.setdefault(TRIANGLE, []).append(np.concatenate(pieces))
        elif code == POLYHEDRON:
            found.setdefault(TETRAHEDRON, []).append(_cut_polyhedra(mesh, chosen, positions))
        else:
            cells = mesh.connectivity[mesh.offsets[chosen, None] + np.arange(int(sizes[chosen[0]]))]
            if code == PYRAMID:
                # The diagonal through the base's lowest point, so that two pyramids on one base agree.
                lowest = cells[:, :4].argmin(axis=1) % 2
                base = np.where(lowest[:, None, None] == 0, [[0, 1, 2], [0, 2, 3]], [[1, 2, 3], [1, 3, 0]])
                halves = np.take_along_axis(cells[:, None], base, axis=2)
                tops = np.broadcast_to(cells[:, None, 4:], (len(cells), 2, 1))
                found.setdefault(TETRAHEDRON, []).append(np.concatenate([halves, tops], axis=2).reshape(-1, 4))
            else:
                found.setdefault(int(code), []).append(cells)
    return {code: np.concatenate(parts) for code, parts in found.items()}


def _cut_polygon(corners: Int64[np.ndarray, " size"], positions: np.ndarray) -> Int64[np.ndarray, "triangles 3"]:
    """Triangles of a counter-clockwise polygon, convex or not: ears are cut off one by one, the fullest first."""
    left, triangles = list(corners), []
    while len(left) > 3:
        best, quality = 0, -np.inf
        for place in range(len(left)):
            a, b, c = (positions[left[place + step - len(left)]] for step in (-1, 0, 1))
            area = _turn(a, b, c)
            others = [
                positions[p] for p in left if p not in (left[place - 1], left[place], left[place + 1 - len(left)])
            ]
            if area > 0 and any(min(_turn(a, b, p), _turn(b, c, p), _turn(c, a, p)) >= 0 for p in others):
                continue
            longest = max(((a - b) ** 2).sum(), ((b - c) ** 2).sum(), ((c - a) ** 2).sum())
            if area / longest > quality:
                best, quality = place, area / longest
        triangles.append((left[best - 1], left[best], left[best + 1 - len(left)]))
        del left[best]
    return np.array([*triangles, left])


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def _cut_polyhedra(mesh: Mesh, chosen: np.ndarray, positions: np.ndarray) -> Int64[np.ndarray, "tetrahedra 4"]:
    """Tetrahedra from the lowest point of each (convex) cell to its faces, each cut from its own lowest point."""
    faces = mesh.polyhedron_faces
    assert faces is not None
    of_cell: dict[int, list[np.ndarray]] = {int(cell): [] for cell in chosen}
    for face, cell in enumerate(faces.cells):
        if int(cell) in of_cell:
            of_cell[int(cell)].append(faces.connectivity[faces.offsets[face] : faces.offsets[face + 1]])
    tetrahedra = []
    for polygons in of_cell.values():
        apex = min(int(polygon.min()) for polygon in polygons)
        for polygon in polygons:
            if apex in polygon:
                continue
            turned = np.roll(polygon, -int(polygon.argmin()))
            tetrahedra += [(apex, turned[0], turned[i], turned[i + 1]) for i in range(1, len(turned) - 1)]
    cells = np.array(tetrahedra, np.int64).reshape(-1, 4)
    edges = positions[cells[:, 1:]] - positions[cells[:, :1]]
    # Four points of a face that lie in the apex's own plane span nothing.
    volumes = np.abs(np.linalg.det(edges))
    return cells[volumes > 1e-12 * volumes.max(initial=0.0)]
