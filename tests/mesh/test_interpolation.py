"""Fields go to a companion mesh and back; values of cells go to the points."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from companions import DOMAINS, SPACING
from finished_runs import square
from pennpde.case.companion import back
from pennpde.mesh import Mesh
from pennpde.mesh.interpolation import CellsToPoints, cell_centres, interpolation


@pytest.mark.parametrize("name", DOMAINS)
def test_linear_fields_go_there_and_back_exactly(pairs, name):
    mesh, companion = pairs[name]
    slope = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    there = torch.from_numpy(interpolation(mesh, companion.points.numpy()) @ mesh.points.numpy())
    found = back({"linear": there @ slope}, companion, mesh)["linear"]
    error = (found - mesh.points @ slope).abs().amax(dim=1)
    if name == "hole":
        # Points beyond the chords of the circle, at most h² / 8R away, have the values of the chords.
        near = mesh.points.norm(dim=1) < 0.26
        assert float(error[near].amax()) < 4 * SPACING**2 / (8 * 0.25) * 1.5
        error = error[~near]
    assert float(error.amax()) < 1e-12


def test_values_never_leave_the_span_of_the_field(pairs):
    mesh, companion = pairs["hole"]
    wave = torch.sin(20 * companion.points)
    found = back({"wave": wave}, companion, mesh)["wave"]
    assert float(found.amax()) <= float(wave.amax())
    assert float(found.amin()) >= float(wave.amin())


def test_axes_of_times_go_back_with_their_fields(pairs):
    mesh, companion = pairs["L"]
    series = companion.points[:, :1] * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert_close(back({"T": series}, companion, mesh)["T"], mesh.points[:, :1] * series.new_tensor([1.0, 2.0, 3.0]))


def sheared() -> Mesh:
    mesh = square(5)
    x, y = mesh.points.numpy().T
    return Mesh.from_arrays(np.stack([x**1.3 + 0.3 * y, y + 0.1 * x * y], axis=1), mesh.connectivity.reshape(-1, 4))


def tetrahedra() -> Mesh:
    from scipy.spatial import Delaunay

    points = np.random.default_rng(3).random((60, 3))
    corners = Delaunay(points).simplices
    sides = points[corners[:, 1:]] - points[corners[:, :1]]
    turned = np.linalg.det(sides) < 0
    corners[turned] = corners[turned][:, [0, 2, 1, 3]]
    return Mesh.from_arrays(points, {"tetra": corners})


def places(mesh: Mesh) -> np.ndarray:
    """Where values are known: centres of cells, then middles of facets."""
    facets = mesh.facets
    middles = np.add.reduceat(mesh.points.numpy()[facets.connectivity], facets.offsets[:-1]) / facets.sizes[:, None]
    return np.concatenate([cell_centres(mesh), middles])


MESHES = {"quads": sheared, "triangles": lambda: square(4, triangles=True), "tetrahedra": tetrahedra}


@pytest.mark.parametrize("name", MESHES)
def test_a_linear_field_is_exact_at_all_points_and_on_the_boundary(name):
    mesh = MESHES[name]()
    slope = np.array([2.0, -1.5, 0.7])[: mesh.space]
    found = CellsToPoints.on(mesh)(places(mesh) @ slope + 3.0)
    np.testing.assert_allclose(found, mesh.points.numpy() @ slope + 3.0, rtol=0, atol=1e-9)


def test_what_is_the_same_everywhere_stays_so_to_the_last_bit():
    mesh = sheared()
    known = np.full((mesh.number_of_cells + len(mesh.facets), 2), 0.1)
    assert (CellsToPoints.on(mesh)(known) == 0.1).all()


def test_the_centre_of_a_plane_cell_is_that_of_its_area():
    mesh = Mesh.from_arrays([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0], [2.0, 2.0], [0.0, 2.0]], [[0, 1, 2, 3, 4]])
    whole, cut = 6.0 * np.array([1.5, 1.0]), 0.5 * np.array([8 / 3, 5 / 3])  # a rectangle without one corner
    np.testing.assert_allclose(cell_centres(mesh)[0], (whole - cut) / 5.5)


@pytest.mark.parametrize(("triangles", "order", "gain"), [(False, 2.7, 10.0), (True, 1.8, 3.0)])
def test_smooth_fields_converge_and_are_better_than_by_a_linear_fit(triangles, order, gain):
    """On squares nearly with the fourth order inside; the boundary has one-sided neighbours."""

    def error(cells: int) -> tuple[float, float]:
        mesh = square(cells, triangles)
        to_points = CellsToPoints.on(mesh)

        def field(x: np.ndarray) -> np.ndarray:
            return np.sin(2 * x[:, 0]) * np.cos(3 * x[:, 1])

        known, truth = field(places(mesh)), field(mesh.points.numpy())
        found, linear = to_points(known), to_points.linear @ known
        return float(np.sqrt(((found - truth) ** 2).mean())), float(np.sqrt(((linear - truth) ** 2).mean()))

    (coarse, _), (fine, linear) = error(8), error(16)
    assert np.log2(coarse / fine) > order
    assert linear / fine > gain
