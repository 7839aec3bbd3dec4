"""Means over cells and their sides, of fields at the points of split cells."""

import numpy as np
import pytest

from meshes import arrays
from pennpde.mesh import Mesh
from pennpde.mesh.splitting import PlaneCells, SplitMeans


@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize("kind", ["triangle", "quad", "mixed_plane"])
def test_means_are_exact_for_linear_fields_and_nearly_for_squares(kind, splits):
    points, cells = arrays(kind, 4, jitter=0.2)
    mesh = Mesh.from_arrays(points, cells)
    fine = PlaneCells.of(mesh)
    for _ in range(splits):
        fine = fine.split()
    means = SplitMeans.of(mesh, len(fine.points))
    volumes = mesh.cell_volumes.numpy()
    x, y = fine.points.T
    both = means.in_cells(np.stack([x, 2 * y - 1], axis=1))
    middle = np.add.reduceat(mesh.points.numpy()[mesh.connectivity], mesh.offsets[:-1])
    middle /= np.diff(mesh.offsets)[:, None]
    if kind == "triangle":
        np.testing.assert_allclose(both, np.stack([middle[:, 0], 2 * middle[:, 1] - 1], axis=1), atol=1e-12)
    # Over the whole domain, the unit square: integrals of 1, x and x^2.
    tolerance = 1e-9 if kind == "triangle" else 0.02 / 4**splits
    for field, integral in ((np.ones_like(x), 1.0), (x, 0.5), (x**2, 1 / 3)):
        assert (means.in_cells(field) * volumes).sum() == pytest.approx(integral, abs=tolerance)


def test_means_over_sides_are_exact_for_cubes():
    points, cells = arrays("mixed_plane", 3, jitter=0.2)
    mesh = Mesh.from_arrays(points, cells)
    fine = PlaneCells.of(mesh).split()
    means = SplitMeans.of(mesh, len(fine.points))
    one, other = mesh.facets.connectivity.reshape(-1, 2).T
    start, end = points[one, 0], points[other, 0]
    expected = (start + end) * (start**2 + end**2) / 4  # of x^3 along a straight line
    np.testing.assert_allclose(means.on_sides(fine.points[:, 0] ** 3, one, other), expected, atol=1e-12)
