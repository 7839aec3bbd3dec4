"""Quads split into triangles."""

import numpy as np
import pytest
from torch.testing import assert_close

from meshes import UNIT_SQUARE, box, grid, unit_cube
from pennlab.datasets.split_quads import triangulated
from pennpde.mesh import Mesh
from pennpde.mesh.cells import QUAD, TRIANGLE


def test_the_share_tells_how_many_quads_are_split_along_either_diagonal():
    mesh = Mesh.from_arrays(*grid((40, 40), jitter=0.2))
    assert set(triangulated(mesh).cell_types) == {TRIANGLE}
    assert triangulated(mesh, 0.0).number_of_cells == mesh.number_of_cells
    half = triangulated(mesh, 0.5)
    # Five standard deviations of 1600 throws of a coin.
    assert abs(half.number_of_cells - 1.5 * mesh.number_of_cells) < 100
    assert set(half.cell_types) == {TRIANGLE, QUAD}
    lost = {tuple(pair) for pair in mesh.edges.T.tolist()} - {
        tuple(pair) for pair in triangulated(mesh).edges.T.tolist()
    }
    rising = sum(1 for i, j in lost if (mesh.points[i] - mesh.points[j]).prod() > 0)
    assert abs(rising - len(lost) / 2) < 200


def test_a_larger_share_splits_the_same_quads_and_more_and_another_seed_others():
    mesh = Mesh.from_arrays(*grid((10, 10), jitter=0.2))
    graphs = [{tuple(pair) for pair in triangulated(mesh, share).edges.T.tolist()} for share in (0.2, 0.6, 1.0)]
    assert graphs[0] > graphs[1] > graphs[2]
    assert not np.array_equal(triangulated(mesh, seed=0).edges, triangulated(mesh, seed=1).edges)


@pytest.mark.parametrize("dent", range(4))
def test_a_dented_quad_is_split_along_the_diagonal_that_lies_inside(dent):
    points = UNIT_SQUARE.copy()
    points[dent] += 0.7 * (0.5 - points[dent]) * 2
    mesh = Mesh.from_arrays(points, {"quad": [[0, 1, 2, 3]]})
    for seed in range(8):
        split = triangulated(mesh, seed=seed)
        assert split.number_of_cells == 2
        assert (split.cell_volumes > 0).all()
        # The dent is joined to the corner across.
        assert (dent, (dent + 2) % 4) in {tuple(pair) for pair in split.edges.T.tolist()}


def test_a_quad_with_three_corners_on_a_line_is_split_at_the_middle_one():
    mesh = Mesh.from_arrays([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [0.5, 1.0]], {"quad": [[0, 1, 2, 3]]})
    for seed in range(8):
        assert (1, 3) in {tuple(pair) for pair in triangulated(mesh, seed=seed).edges.T.tolist()}


def test_triangles_and_polygons_stay_where_quads_are_split():
    points = [[0.0, 0], [1, 0], [2, 0], [3, 0], [0, 1], [1, 1], [2, 1], [3, 1], [3.5, 0.5]]
    cells = {"triangle": [[0, 1, 4], [1, 5, 4]], "quad": [[1, 2, 6, 5]], "polygon": [[2, 3, 8, 7, 6]]}
    mesh = Mesh.from_arrays(points, cells, patches={"left": [0, 4]})
    split = triangulated(mesh)
    assert np.diff(split.offsets).tolist() == [3, 3, 3, 3, 5]
    assert_close(split.cell_volumes[[0, 1, 4]], mesh.cell_volumes[[0, 1, 3]], rtol=0, atol=0)


def test_only_plane_meshes_and_shares_are_triangulated():
    with pytest.raises(ValueError, match=r"Mesh\.plane_of"):
        triangulated(unit_cube())
    with pytest.raises(ValueError, match=r"from 0 to 1; got 1\.5"):
        triangulated(box("quad"), 1.5)
