"""Triangles fill what polygons enclose, with its patches, whatever the shape."""

import numpy as np
import pytest

from pennpde.mesh.triangulation import Polygon, fill, smallest_angles

SQUARE = Polygon(np.array([[0, 0], [1, 0], [1, 1], [0, 1.0]]), ("below", "right", "above", "left"))


def circle(radius: float, centre=(0.5, 0.5), sides: int = 24) -> Polygon:
    angles = np.linspace(0, 2 * np.pi, sides, endpoint=False)
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return Polygon(radius * places + centre, ("body",) * sides)


@pytest.mark.parametrize("spacing", [0.2, 0.07, 0.03])
def test_the_area_is_filled_and_each_side_is_its_patch(spacing):
    mesh = fill([SQUARE], spacing)
    assert float(mesh.cell_volumes.sum()) == pytest.approx(1.0)
    for name, axis, value in (("below", 1, 0), ("right", 0, 1), ("above", 1, 1), ("left", 0, 0)):
        patch = mesh.patches[name]
        assert np.allclose(mesh.points.numpy()[patch.points, axis], value)
        assert float(mesh.facet_areas[patch.facets].norm(dim=1).sum()) == pytest.approx(1.0)


def test_a_body_is_left_out_and_its_direction_does_not_matter():
    body = circle(0.2)
    turned = Polygon(body.corners[::-1], body.patches)
    for each in (body, turned):
        mesh = fill([SQUARE, each], 0.05)
        assert float(mesh.cell_volumes.sum()) == pytest.approx(1.0 - abs(body.area))
        assert np.linalg.norm(mesh.points.numpy() - 0.5, axis=1).min() > 0.2 * np.cos(np.pi / 24) - 1e-9


def test_a_mesh_has_about_one_point_for_each_square_of_the_spacing_and_no_thin_triangle():
    mesh = fill([SQUARE], 0.05)
    assert mesh.number_of_points == pytest.approx(400, rel=0.2)
    corners = mesh.points.numpy()[mesh.connectivity.reshape(-1, 3)]
    assert smallest_angles(corners).min() > 20


@pytest.mark.parametrize(
    ("polygons", "words"),
    [
        ([Polygon(np.array([[0, 0], [1, 1], [1, 0], [0, 1.0]]), ("wall",) * 4)], "would have"),  # crosses itself
        ([SQUARE, circle(0.2, (1.0, 0.5))], "No triangles fill"),
        ([SQUARE], "choose one that gives"),
    ],
)
def test_what_cannot_be_filled_is_refused_in_words(polygons, words):
    with pytest.raises(ValueError, match=words):
        fill(polygons, 1e-5 if words.startswith("choose") else 0.1)


def test_a_polygon_needs_corners_and_a_patch_for_each_side():
    with pytest.raises(ValueError, match="3 corners and 2 patches"):
        Polygon(np.zeros((3, 2)), ("a", "b"))
    with pytest.raises(ValueError, match="not finite"):
        Polygon(np.array([[0, 0], [1, np.nan], [1, 1]]), ("a", "b", "c"))
