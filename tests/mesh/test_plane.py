"""The plane of a mesh that is one cell thick."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from meshes import HEXAHEDRON_FACES, box, grid, unit_cube
from pennpde.mesh import Mesh


@pytest.mark.parametrize("kind", ["hexahedron", "wedge", "polyhedron"])
def test_a_mesh_one_cell_thick_and_its_plane_have_the_same_upright_normals(kind):
    points, quads = grid((3, 2), jitter=0.2)
    number = len(points)
    solid = np.concatenate(
        [np.c_[points, np.full(number, 0.1)], np.c_[points, np.zeros(number)]]
    )  # the upper side first
    cubes = np.concatenate([quads + number, quads], axis=1)
    cells = {
        "hexahedron": {"hexahedron": cubes},
        "wedge": {"wedge": np.concatenate([cubes[:, [0, 1, 2, 4, 5, 6]], cubes[:, [0, 2, 3, 4, 6, 7]]])},
        "polyhedron": {"polyhedron": [cube[HEXAHEDRON_FACES].tolist() for cube in cubes]},
    }[kind]
    rim = (np.abs(points - 0.5) > 0.5 - 1e-9).any(axis=1)
    mesh = Mesh.from_arrays(
        solid,
        cells,
        patches={
            "rim": np.tile(rim, 2),
            "flat": np.arange(number),
            "left": lambda x: np.isclose(x[:, 0], 0.0),
        },
    ).with_fields({"u": torch.from_numpy(solid), "p": torch.arange(2 * number)})
    plane = Mesh.plane_of(mesh)
    np.testing.assert_array_equal(plane.layer, number + np.arange(number))
    assert_close(plane.points, torch.from_numpy(points))
    assert plane.number_of_cells == mesh.number_of_cells
    assert_close(plane.cell_volumes * 0.1, mesh.cell_volumes)
    assert list(plane.patches) == ["rim", "left"]
    for name in plane.patches:
        upright = mesh.patch(name).facets[mesh.facet_normals[mesh.patch(name).facets, 2].abs() < 0.5]
        expected = mesh.normals_of_facets(upright)[number:, :2]
        assert_close(plane.point_normals([name]), expected)
    assert_close(plane.fields["u"], plane.points)
    assert_close(plane.fields["p"], number + torch.arange(number))


def test_a_mesh_of_two_layers_has_no_plane():
    with pytest.raises(ValueError, match=r"not one cell thick in z: it spans z = 0 to 1, 9 of its points lie between"):
        Mesh.plane_of(unit_cube())
    with pytest.raises(ValueError, match="plane already"):
        Mesh.plane_of(box("quad"))
