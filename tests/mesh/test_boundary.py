"""Prescribed profiles along the boundary: what counts where patches meet, and what lies between points."""

import numpy as np
import pytest

from pennpde.mesh import Mesh
from pennpde.mesh.boundary import facet_ends, facet_parabolas


def duct(rows: int, grading: float = 1.0) -> Mesh:
    x, y = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, rows) ** grading, indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    corners = [number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]]
    return Mesh.from_arrays(
        np.stack([x.ravel(), y.ravel()], axis=1), np.stack(corners, axis=-1).reshape(-1, 4)
    ).with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "wall": lambda x: np.isclose(x[:, 1], 0.0) | np.isclose(x[:, 1], 1.0),
        }
    )


def prescribed(mesh: Mesh, profile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of an inlet between walls at rest, where they are prescribed, and which facets are the inlet's."""
    points = mesh.points.numpy()
    held = np.zeros(len(points), bool)
    for name in ("inlet", "wall"):
        held[mesh.patch(name).points] = True
    values = np.zeros((len(points), 2))
    inlet = np.setdiff1d(mesh.patch("inlet").points, mesh.patch("wall").points)
    values[inlet, 0] = profile(points[inlet, 1])
    ends = mesh.facets.connectivity.reshape(-1, 2)
    return values, held, np.isclose(points[ends, 0], 0.0).all(axis=1)


@pytest.mark.parametrize(("rows", "grading"), [(5, 1.0), (5, 0.8), (9, 1.3), (20, 1.0)])
def test_a_parabola_is_met_between_points_on_the_coarsest_mesh(rows, grading):
    mesh = duct(rows, grading)
    values, held, inlet = prescribed(mesh, lambda y: 6 * y * (1 - y))
    found = facet_parabolas(values, mesh, held)
    y = mesh.points.numpy()[mesh.facets.connectivity.reshape(-1, 2)][:, :, 1]
    places = np.stack([y[:, 0], y.mean(axis=1), y[:, 1]], axis=1)[inlet]
    assert np.allclose(found[inlet, :, 0], 6 * places * (1 - places), atol=1e-12)
    assert not found[~inlet].any()
    # Its flux is exact, by Simpson's rule.
    sizes = np.abs(y[inlet, 1] - y[inlet, 0])
    assert (sizes * (found[inlet, :, 0] @ np.array([1, 4, 1]) / 6)).sum() == pytest.approx(1.0)


def test_an_even_inlet_stays_even_up_to_the_wall():
    mesh = duct(7)
    values, held, inlet = prescribed(mesh, np.ones_like)
    assert (facet_ends(values, mesh, held)[inlet, :, 0] == 1).all()
    assert (facet_parabolas(values, mesh, held)[inlet, :, 0] == 1).all()


def test_facets_of_a_turning_circle_move_along_themselves():
    """Nothing flows through a polygon whose corners move along the circle."""
    angles = np.linspace(0, 2 * np.pi, 13)[:-1]
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.concatenate([ring, 2.0 * ring])
    number = np.arange(12)
    quads = np.stack([number, number + 12, (number + 1) % 12 + 12, (number + 1) % 12], axis=1)
    mesh = Mesh.from_arrays(points, quads).with_patches({"body": lambda x: np.linalg.norm(x, axis=1) < 1.1})
    values = np.stack([-points[:, 1], points[:, 0]], axis=1)
    held = np.arange(24) < 12
    found = facet_parabolas(values, mesh, held)
    ends = mesh.facets.connectivity.reshape(-1, 2)
    inner = held[ends].all(axis=1)
    normals = points[ends].mean(axis=1)[inner]
    through = np.einsum("fpa,fa,p->f", found[inner], normals, np.array([1, 4, 1]) / 6)
    assert np.allclose(through, 0.0, atol=1e-12)
    # The parabola comes back to the speed of the corners, which the mean of two of them lacks.
    assert np.allclose(np.linalg.norm(found[inner, 1], axis=1), 1.0, atol=2e-3)
    assert np.linalg.norm(facet_ends(values, mesh, held)[inner].mean(axis=1), axis=1).max() < 0.97
