"""Pieces of the boundary to point at."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pennpde.mesh import Mesh
from pennpde.mesh.boundary import edges_of
from pennpde.models.designs import coarse_mesh
from pennpde.viewer.uploads import segments, with_roles
from pennpde.viewer.views import MOST_SEGMENTS
from problems import brick, rectangle


def ring(sides: int, cells_across: int = 2) -> Mesh:
    """Between two circles of so many sides."""
    angles = 2 * np.pi * np.arange(sides) / sides
    radii = np.linspace(1.0, 2.0, cells_across + 1)
    points = np.concatenate([r * np.stack([np.cos(angles), np.sin(angles)], axis=1) for r in radii])
    around = np.arange(sides)
    quads = [
        np.stack([around, around + sides, (around + 1) % sides + sides, (around + 1) % sides], axis=1) + level * sides
        for level in range(cells_across)
    ]
    return Mesh.from_arrays(points, np.concatenate(quads))


@pytest.mark.parametrize("name", ["a_0.37", "b_0.20_0.80", "c_0.55_0.10"])
def test_every_facet_is_in_one_segment_and_lengths_add_up(name):
    mesh = coarse_mesh(name, cells_per_length=5)
    pieces = segments(mesh)
    assert sorted(np.concatenate([piece.facets for piece in pieces])) == list(range(len(mesh.facets)))
    whole = float(mesh.facet_areas.norm(dim=1).sum())
    assert sum(piece.length for piece in pieces) == pytest.approx(whole)


def test_a_rectangle_has_four_sides_which_are_named_by_where_they_lie():
    mesh = replace(rectangle((6, 4), (3.0, 1.0)), patches={})
    assert [(piece.place, piece.length) for piece in segments(mesh)] == [
        ("x = 0, y from 0 to 1", pytest.approx(1.0)),
        ("y = 0, x from 0 to 3", pytest.approx(3.0)),
        ("y = 1, x from 0 to 3", pytest.approx(3.0)),
        ("x = 3, y from 0 to 1", pytest.approx(1.0)),
    ]


def test_the_boundary_is_split_at_corners_of_more_than_thirty_degrees():
    assert len(segments(ring(16))) == 2  # it turns by 22.5 degrees at a point
    assert len(segments(ring(8))) == 16  # by 45
    assert segments(ring(16))[0].place == "closed, around (0, 0)"


def test_segments_end_where_patches_do_and_take_their_roles_from_names():
    mesh = replace(rectangle((6, 4), (3.0, 1.0)), patches={}).with_patches(
        {
            "Inflow_left": lambda x: np.isclose(x[:, 0], 0.0),
            "lower OUTLET": lambda x: np.isclose(x[:, 1], 0.0) & (x[:, 0] > 1.4),
        }
    )
    found = [(piece.place, piece.role) for piece in segments(mesh)]
    assert ("x = 0, y from 0 to 1", "inlet") in found
    assert ("y = 0, x from 1.5 to 3", "outlet") in found
    assert ("y = 0, x from 0 to 1.5", "wall") in found


def test_segments_do_not_depend_on_where_the_mesh_lies():
    mesh = replace(coarse_mesh("c_0.50_0.20", cells_per_length=5), patches={})
    angle = torch.tensor(0.7, dtype=torch.float64)
    rotation = torch.stack(
        [torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])],
    )
    turned = mesh.moved(rotation, torch.tensor([3.0, -1.0], dtype=torch.float64))
    partition = {frozenset(piece.facets.tolist()) for piece in segments(mesh)}
    assert {frozenset(piece.facets.tolist()) for piece in segments(turned)} == partition


def test_roles_become_patches_of_whole_facets():
    mesh = replace(coarse_mesh("a_0.37", cells_per_length=5), patches={})
    pieces = segments(mesh)
    roles = ["inlet" if "x = 0" in each.place else "outlet" if "x = 3" in each.place else "wall" for each in pieces]
    named = with_roles(mesh, pieces, roles)  # pyright: ignore[reportArgumentType]
    expected = coarse_mesh("a_0.37", cells_per_length=5)
    for patch in ("inlet", "outlet", "wall"):
        assert set(named.patch(patch).facets) == set(expected.patch(patch).facets)


def test_a_ragged_boundary_is_refused_with_words():
    mesh = ring(8 * MOST_SEGMENTS)
    shaken = mesh.points * (1 + 0.004 * torch.arange(mesh.number_of_points).remainder(2))[:, None]
    with pytest.raises(ValueError, match="too many to choose from"):
        segments(replace(mesh, points=shaken))


def test_a_body_has_no_edges():
    with pytest.raises(ValueError, match="3 dimensions"):
        edges_of(brick())
