"""Obtuse triangles are replaced by a Delaunay mesh of the same points."""

import math

import numpy as np
import pytest
from scipy.spatial import Delaunay

import pennpde as penn
from pennpde.flow.scheme import FlowScheme
from pennpde.mesh import Mesh
from pennpde.mesh.splitting import flipped


def crossed(columns: int, rows: int, length: float) -> tuple[np.ndarray, np.ndarray]:
    """Long quads, each cut into four triangles around its centre."""
    x, y = np.linspace(0.0, length, columns + 1), np.linspace(0.0, 1.0, rows + 1)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    a = (np.arange(columns)[:, None] * (rows + 1) + np.arange(rows)).ravel()
    b, c, d = a + rows + 1, a + rows + 2, a + 1
    centre = len(points) + np.arange(len(a))
    middles = points[np.stack([a, b, c, d])].mean(axis=0)
    triangles = [np.stack([one, other, centre], axis=1) for one, other in ((a, b), (b, c), (c, d), (d, a))]
    return np.concatenate([points, middles]), np.concatenate(triangles)


def areas(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    a, b, c = points[triangles].transpose(1, 0, 2)
    return 0.5 * ((b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0]))


def test_the_same_domain_is_covered_once():
    points, triangles = crossed(6, 5, 20.0)
    found = flipped(points, triangles[:, ::-1])
    assert len(found) == len(triangles)
    assert (areas(points, found) > 0).all()
    np.testing.assert_allclose(areas(points, found).sum(), 20.0, rtol=1e-12)


def test_nothing_is_left_to_flip_and_the_triangles_are_thicker():
    points = np.random.default_rng(0).random((60, 2))
    sheared = Delaunay(points * [6.0, 1.0]).simplices.astype(np.int64)
    found = flipped(points, sheared)
    assert (found != sheared).any()
    np.testing.assert_array_equal(flipped(points, found), found)

    def thickness(triangles: np.ndarray) -> float:
        sides = points[triangles] - points[np.roll(triangles, 1, axis=1)]
        lengths = np.linalg.norm(sides, axis=2)
        return float(np.mean(areas(points, triangles) / lengths.max(axis=1) ** 2))

    assert thickness(found) > thickness(sheared)


def test_good_triangles_stay_as_they_are():
    points, triangles = crossed(6, 6, 1.0)
    np.testing.assert_array_equal(flipped(points, triangles), triangles)


@pytest.mark.parametrize("rows", [8, 11])
def test_long_quads_cut_crosswise_have_a_steady_flow(rows):
    points, triangles = crossed(24, rows, 20.0)
    mesh = Mesh.from_arrays(points, {"triangle": triangles}).with_patches(
        {"in": "x == 0", "out": "x == 20", "walls": "y == 0 or y == 1"}
    )
    case = penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"in": (1.0, 0.0), "walls": 0.0}, "p": {"out": 0.0}},
        parameters={"viscosity": 0.006},
    )
    outcome = penn.predict(FlowScheme(splits=0), case, times=[math.inf])
    assert outcome.certificate.converged
    assert float(outcome.fields["u"].abs().max()) < 2.0
