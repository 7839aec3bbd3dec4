"""Cells split into smaller ones: they fill the domain, none is turned over, also where a cell is not convex."""

import numpy as np
import pytest

from meshes import box
from pennpde.mesh import Mesh
from pennpde.mesh.splitting import PlaneCells

HEXAGON = np.array([[np.cos(t), np.sin(t)] for t in np.arange(6) * np.pi / 3])
L_SHAPE = np.array([[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]], float)
THIN_L = np.array([[0, 0], [5, 0], [5, 0.3], [0.3, 0.3], [0.3, 4], [0, 4]], float)
FLAT = np.array([[0, 0], [1, 0], [2, 0], [2, 1], [1, 1.5], [0, 1]], float)
"""With a corner in the middle of a straight side, as cells at walls have it."""


def area(corners: np.ndarray) -> np.ndarray:
    x, y = np.moveaxis(corners, -1, 0)
    return 0.5 * (x * np.roll(y, -1, axis=-1) - np.roll(x, -1, axis=-1) * y).sum(axis=-1)


def turns(corners: np.ndarray) -> np.ndarray:
    ahead, back = np.roll(corners, -1, axis=1) - corners, np.roll(corners, 1, axis=1) - corners
    return ahead[..., 0] * back[..., 1] - ahead[..., 1] * back[..., 0]


@pytest.mark.parametrize("polygon", [HEXAGON, L_SHAPE, THIN_L, FLAT], ids=["hexagon", "L", "thin L", "flat"])
@pytest.mark.parametrize("angle", [0.0, 2.0])
def test_parts_of_a_polygon_are_convex_and_fill_it(polygon, angle):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    mesh = Mesh.from_arrays(polygon @ turn.T, [np.arange(len(polygon))])
    cells = PlaneCells.of(mesh)
    for again in (cells, cells.split()):
        parts = [again.points[again.triangles], again.points[again.quads]]
        assert sum(area(each).sum() for each in parts) == pytest.approx(float(area(polygon)))
        for each in parts:
            assert (turns(each) > 0).all()


def test_triangles_and_quads_become_four_each():
    cells = PlaneCells.of(box("mixed_plane", 4))
    finer = cells.split()
    assert len(cells.triangles) > 0
    assert len(cells.quads) > 0
    assert (len(finer.triangles), len(finer.quads)) == (4 * len(cells.triangles), 4 * len(cells.quads))
