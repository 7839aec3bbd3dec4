"""Linear finite elements: what they are exact on, what they conserve."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from elements import Elements
from meshes import arrays
from pennpde.mesh import Mesh

PLANE = ("triangle", "quad", "mixed_plane")


def mesh_of(kind: str, cells_along: int = 6) -> Mesh:
    points, cells = arrays(kind, cells_along, jitter=0.2)
    return Mesh.from_arrays(points, cells)


@pytest.mark.parametrize("kind", PLANE)
def test_dual_cells_fill_the_square(kind):
    assert_allclose(Elements.of(mesh_of(kind)).masses.sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("kind", PLANE)
def test_the_gradient_of_a_linear_field_is_exact(kind):
    mesh = mesh_of(kind)
    elements = Elements.of(mesh)
    field = mesh.points.numpy() @ np.array([2.0, -3.0])
    for matrix, slope in zip(elements.gradient, (2.0, -3.0), strict=True):
        assert_allclose(matrix @ field / elements.masses, slope, rtol=1e-10)


@pytest.mark.parametrize("kind", PLANE)
def test_the_energy_of_a_linear_field_is_its_squared_slope(kind):
    mesh = mesh_of(kind)
    field = mesh.points.numpy() @ np.array([2.0, -3.0])
    stiffness = Elements.of(mesh).stiffness
    assert_allclose(field @ (stiffness @ field), 13.0, rtol=1e-10)
    assert_allclose(stiffness @ np.ones(len(field)), 0.0, atol=1e-12)
    assert abs(stiffness - stiffness.T).max() < 1e-12


@pytest.mark.parametrize("kind", PLANE)
def test_what_flows_in_the_interior_is_conserved(kind):
    """G + Gᵀ lives on the boundary only: between interior points what leaves one dual cell enters the other."""
    mesh = mesh_of(kind)
    inside = np.setdiff1d(np.arange(mesh.number_of_points), mesh.boundary_points)
    for matrix in Elements.of(mesh).gradient:
        assert abs((matrix + matrix.T)[inside]).max() < 1e-12


@pytest.mark.parametrize("kind", PLANE)
def test_a_projection_amplifies_no_velocity(kind):
    """Removing the gradient part never makes a velocity larger, which is what lets steps be composed."""
    mesh = mesh_of(kind)
    elements = Elements.of(mesh)
    number, edge = mesh.number_of_points, np.zeros(mesh.number_of_points, bool)
    edge[mesh.boundary_points] = True
    free = np.flatnonzero(~edge)
    pressure = np.zeros((number, number))
    pressure[1:, 1:] = np.linalg.inv(elements.stiffness.toarray()[1:, 1:])
    root = np.sqrt(elements.masses[free])
    gradients = [matrix.toarray()[free] / root[:, None] for matrix in elements.gradient]
    divergences = [matrix.toarray()[:, free] / root for matrix in elements.gradient]
    removed = np.block([[one @ pressure @ other for other in divergences] for one in gradients])
    eigenvalues = np.linalg.eigvalsh(np.eye(2 * len(free)) + 0.5 * (removed + removed.T))
    assert eigenvalues.max() < 1.0 + 1e-9
    assert eigenvalues.min() > -1e-9


def test_a_turned_mesh_has_the_same_stiffness():
    mesh = mesh_of("mixed_plane")
    cosine, sine = np.cos(0.7), np.sin(0.7)
    turn = torch.tensor([[cosine, -sine], [sine, cosine]], dtype=torch.float64)
    points, cells = arrays("mixed_plane", 6, jitter=0.2)
    turned = Mesh.from_arrays(torch.from_numpy(points) @ turn.T, cells)
    assert abs(Elements.of(mesh).stiffness - Elements.of(turned).stiffness).max() < 1e-12


def test_other_cells_are_named():
    with pytest.raises(ValueError, match="triangles and quads"):
        Elements.of(Mesh.from_arrays(*arrays("tetrahedron")))


def long_and_thin(aspect_ratio: float, slant: float = 0.0) -> Mesh:
    points, cells = arrays("quad", 4, jitter=0.05)
    return Mesh.from_arrays(points @ np.array([[1.0, 0.0], [slant, 1.0]]) * [1.0, 1.0 / aspect_ratio], cells)


@pytest.mark.parametrize("aspect_ratio", [4.0, 30.0, 1000.0])
def test_long_thin_quads_are_exact_on_linear_fields_too(aspect_ratio):
    mesh = long_and_thin(aspect_ratio, slant=0.3)
    elements = Elements.of(mesh)
    field = mesh.points.numpy() @ np.array([2.0, -3.0])
    assert_allclose(elements.masses.sum(), 1.0 / aspect_ratio, rtol=1e-12)
    for matrix, slope in zip(elements.gradient, (2.0, -3.0), strict=True):
        # Relative to the slope of a field that changes as much from one point to the next.
        assert_allclose(matrix @ field / elements.masses, slope, rtol=1e-12 * aspect_ratio)
    assert_allclose(field @ (elements.stiffness @ field), 13.0 / aspect_ratio, rtol=1e-9)


def test_no_side_of_a_long_rectangle_conducts_backwards():
    points, cells = arrays("quad", 4, jitter=0.0)
    for aspect_ratio in (6.0, 30.0, 1000.0):
        stiffness = Elements.of(Mesh.from_arrays(points * [1.0, 1.0 / aspect_ratio], cells)).stiffness.tocoo()
        beside = stiffness.data[stiffness.row != stiffness.col]
        assert beside.max() < 1e-12 * aspect_ratio


def test_ordinary_quads_are_integrated_at_gauss_points_alone():
    """Up to an aspect ratio of 3 the matrix is that of bilinear elements: 2/3 of a square's own entry."""
    elements = Elements.of(Mesh.from_arrays([[0, 0], [3, 0], [3, 1], [0, 1]], [[0, 1, 2, 3]]))
    assert_allclose(elements.stiffness.diagonal(), (3.0 + 1.0 / 3.0) / 3.0, rtol=1e-12)


def test_a_thin_quad_with_a_corner_that_is_hardly_convex_keeps_positive_dual_cells():
    elements = Elements.of(Mesh.from_arrays([[0, 0], [10, 0], [10, 1], [0.2, 0.02]], [[0, 1, 2, 3]]))
    assert elements.masses.min() > 0.0
