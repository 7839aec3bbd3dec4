"""Distances to patches."""

import numpy as np
import torch
from torch.testing import assert_close

from meshes import ALL_TYPES, LEFT, box, unit_cube
from pennpde.mesh import Mesh
from pennpde.mesh.distance import _to_triangles, distances, parts_of


def test_the_distance_to_a_side_of_the_box_is_the_coordinate_on_every_mesh():
    for kind in ALL_TYPES:
        mesh = box(kind, jitter=0.2).with_patches(LEFT)
        assert_close(mesh.distance_to("left"), mesh.points[:, 0], rtol=0, atol=1e-12)


def test_the_distance_is_exact_between_the_points_of_a_coarse_patch():
    points = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 1.0], [5.0, 1.0], [0.0, 1.0]])
    mesh = Mesh.from_arrays(points, {"polygon": [[0, 1, 2, 3, 4]]}, patches={"floor": [0, 1]})
    assert_close(mesh.distance_to(["floor"]), torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0]).double())


def test_the_distance_to_several_patches_is_the_smallest():
    mesh = unit_cube((4, 4, 4)).with_patches({**LEFT, "right": lambda x: np.isclose(x[:, 0], 1.0)})
    both = mesh.distance_to(["left", "right"])
    assert_close(both, torch.minimum(mesh.points[:, 0], 1 - mesh.points[:, 0]))


def test_the_distance_to_a_patch_without_facets_is_that_to_its_points():
    mesh = unit_cube().with_patches({"middle": [13]})
    assert_close(mesh.distance_to("middle"), (mesh.points - 0.5).norm(dim=1))


def test_the_distance_to_a_nonconvex_quad_does_not_fill_its_dent():
    arrow = np.array([[0.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.5, 1.0]])
    for turn in range(4):
        floor = np.roll(arrow, turn, axis=0)
        points = np.concatenate([np.c_[floor, np.zeros(4)], np.c_[floor, np.ones(4)]])
        mesh = Mesh.from_arrays(points, [[0, 1, 2, 3, 4, 5, 6, 7]], patches={"floor": [0, 1, 2, 3]})
        in_the_dent = np.array([[0.5, 1.0, 0.0]])
        facets = mesh.facets.take(mesh.patch("floor").facets)
        distance = distances(in_the_dent, parts_of(points, facets))
        expected = abs(1.5 * 1.0 - 1.0 * 0.5) / np.hypot(1.5, 1.0)
        np.testing.assert_allclose(distance, expected)


def test_the_tree_finds_the_same_distance_as_trying_every_triangle():
    generator = np.random.default_rng(0)
    triangles = generator.normal(size=(300, 1, 3)) + 0.2 * generator.normal(size=(300, 3, 3))
    queries = 3 * generator.normal(size=(200, 3))
    everything = _to_triangles(np.repeat(queries, 300, axis=0), np.tile(triangles, (200, 1, 1)))
    np.testing.assert_allclose(distances(queries, triangles), everything.reshape(200, 300).min(axis=1), rtol=1e-12)
