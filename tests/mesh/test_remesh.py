"""Companions of a mesh: they fill its domain with triangles of the size asked for."""

import numpy as np
import pytest
import torch

from companions import DOMAINS, SPACING, l_shape, square_with_hole, step
from pennlab.datasets.split_quads import triangulated
from pennpde.case.companion import CompanionError, companion_mesh, spacing_of
from pennpde.mesh import Mesh, triangulation
from problems import brick, rectangle


def length(mesh: Mesh, facets: np.ndarray | slice = slice(None)) -> float:
    return float(mesh.facet_areas.norm(dim=1)[facets].sum())


@pytest.mark.parametrize("name", DOMAINS)
def test_a_companion_fills_the_domain_and_its_patches_the_boundary(pairs, name):
    mesh, companion = pairs[name]
    assert np.diff(companion.offsets).tolist() == [3] * companion.number_of_cells
    assert companion.cell_volumes.min() > 0
    # Chords of a circle of radius R lose (h / R)² / 24 of its length, and here more of the small hole than of the rest.
    curved = 0.01 if name == "hole" else 1e-12
    assert float(companion.cell_volumes.sum()) == pytest.approx(float(mesh.cell_volumes.sum()), rel=curved)
    assert length(companion) == pytest.approx(length(mesh), rel=curved)
    assert companion.patches.keys() == mesh.patches.keys()
    for patch in mesh.patches:
        lengths = [length(each, each.patch(patch).facets) for each in (companion, mesh)]
        assert lengths[0] == pytest.approx(lengths[1], rel=curved)


@pytest.mark.parametrize("name", DOMAINS)
def test_corners_and_ends_of_patches_stay_points(pairs, name):
    mesh, companion = pairs[name]
    corners = {
        "step": [(0.0, 1.0), (0.0, 2.0), (3.0, 0.0), (3.0, 2.0)],
        "L": [(0, 0), (1, 0), (1, 0.5), (0.5, 0.5), (0.5, 1), (0, 1)],
        "hole": [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0.5, 0.0)],
    }[name]
    corners = torch.tensor(corners, dtype=torch.float64)
    assert float(torch.cdist(corners, mesh.points).amin(dim=1).amax()) < 1e-12
    assert float(torch.cdist(corners, companion.points).amin(dim=1).amax()) < 1e-12
    for patch in mesh.patches:
        # A point is an end where one of its facets is of the patch and one is not.
        ends = []
        for each in (mesh, companion):
            edges = each.facets.connectivity.reshape(-1, 2)
            held = np.isin(np.arange(len(edges)), each.patch(patch).facets)
            ends.append(each.points[np.intersect1d(edges[held], edges[~held])])
        assert len(ends[0]) == len(ends[1])
        assert len(ends[0]) == 0 or float(torch.cdist(*ends).amin(dim=1).amax()) < 1e-12


@pytest.mark.parametrize("name", DOMAINS)
def test_triangles_are_sound_and_as_large_as_asked_for(pairs, name):
    mesh, companion = pairs[name]
    corners = companion.points.numpy()[companion.connectivity.reshape(-1, 3)]
    angles = triangulation.smallest_angles(corners)
    assert angles.min() > 20
    assert angles.mean() > 45  # 60 if all were equilateral
    squares = companion.number_of_points - len(companion.boundary_points) / 2
    assert squares == pytest.approx(float(mesh.cell_volumes.sum()) / SPACING**2, rel=0.15)
    lengths = companion.facet_areas.norm(dim=1) / SPACING
    assert 0.7 < lengths.min() < lengths.max() < 1.3


def test_the_spacing_of_a_cell_size_gives_it():
    mesh = step()
    companion = companion_mesh(mesh, spacing_of(mesh, 0.12))
    assert float(companion.point_volumes.mean()) ** 0.5 == pytest.approx(0.12, rel=0.03)


def test_a_companion_is_repeatable_and_another_seed_is_another_one():
    mesh = l_shape()
    first, again, other = (companion_mesh(mesh, 0.15, seed) for seed in (0, 0, 1))
    assert torch.equal(first.points, again.points)
    assert first.points.shape != other.points.shape or not torch.equal(first.points, other.points)


def test_a_mesh_of_any_cells_has_a_companion_with_the_points_that_are_to_be_kept():
    mesh = triangulated(rectangle((12, 12)), 0.5)
    kept = mesh.patch("outlet").points[5]
    companion = companion_mesh(mesh, 0.2, keep=[kept])
    assert float(companion.cell_volumes.sum()) == pytest.approx(1.0)
    assert float((companion.points - mesh.points[kept]).norm(dim=1).amin()) < 1e-12


def test_what_is_inside_does_not_depend_on_how_many_are_looked_at_together(monkeypatch):
    mesh = square_with_hole(24, 4)
    sides = mesh.points.numpy()[mesh.facets.connectivity.reshape(-1, 2)]
    targets = np.random.default_rng(0).uniform(-0.6, 0.6, (200, 2))
    together = triangulation.inside(targets, sides)
    # Off the chords of the circle, by less than 0.01.
    clear = np.abs(np.linalg.norm(targets, axis=1) - 0.25) > 0.01
    expected = (np.abs(targets) < 0.5).all(axis=1) & (np.linalg.norm(targets, axis=1) > 0.25)
    np.testing.assert_array_equal(together[clear], expected[clear])
    monkeypatch.setattr(triangulation, "_PAIRS_AT_ONCE", 500)
    np.testing.assert_array_equal(triangulation.inside(targets, sides), together)


def strip(width: float) -> Mesh:
    return rectangle((30, 3), (3.0, width))


def two_squares() -> Mesh:
    return Mesh.concatenate([rectangle((4, 4)), rectangle((4, 4)).moved(torch.eye(2), torch.tensor([3.0, 0.0]))])


# What has no companion


@pytest.mark.parametrize(
    ("make", "spacing", "words"),
    [
        (lambda: strip(0.05), 0.1, r"only 0\.05 wide at \(.*\), thinner than the spacing of 0\.1"),
        (lambda: strip(0.02), 0.1, "thinner than the spacing"),
        (lambda: rectangle((4, 4)), 2.0, "thinner than the spacing of 2 of a companion everywhere"),
        (two_squares, 0.2, "in 2 pieces"),
        (brick, 0.2, "has 3 dimensions"),
        (lambda: rectangle((4, 4)), 0.0, "must be a positive number"),
        (lambda: square_with_hole(24, 4, 0.01), 0.2, "smaller than the spacing"),
    ],
)
def test_what_has_no_companion_is_told_in_words(make, spacing, words):
    with pytest.raises(CompanionError, match=words):
        companion_mesh(make(), spacing)
