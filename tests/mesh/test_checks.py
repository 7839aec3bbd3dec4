"""Meshes, patches and fields that cannot be, refused by name."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from meshes import HEXAHEDRON_FACES, LEFT, PLANE_TYPES, SOLID_TYPES, UNIT_SQUARE, box, grid, unit_cube
from pennpde.mesh import Mesh
from pennpde.mesh.cells import CELL_TYPES, HEXAHEDRON, POLYHEDRON, QUAD, Cells, Facets, cell_facets, signed_volumes
from pennpde.mesh.checks import solids

CUBE = grid((1, 1, 1))
INVERTED = CUBE[1][:, [4, 5, 6, 7, 0, 1, 2, 3]]
TWO_SQUARES = np.concatenate([UNIT_SQUARE, UNIT_SQUARE + 5.0])
THREE_TRIANGLES = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("points", "cells", "says"),
    [
        (UNIT_SQUARE, np.zeros((0, 4), dtype=int), "The mesh has no cells"),
        (UNIT_SQUARE, {}, "The mesh has no cells"),
        (np.zeros((4, 4)), [[0, 1, 2, 3]], r"Points have shape \(4, 4\)"),
        ([[0, 0], [1, 0], [np.nan, 1]], [[0, 1, 2]], r"Point 2 is not finite: point 2 is at \[nan, 1.0\]"),
        ([[0, 0], [1, 0], [0, 1e200]], [[0, 1, 2]], "Point 2 is too far away.*where volumes overflow"),
        ([[0, 0], [1, np.inf], [np.nan, 1]], [[0, 1, 2]], r"Points 1, 2 \(2 in all\) are not finite"),
        ([*UNIT_SQUARE, [2, 2], [3, 3]], [[0, 1, 2, 3]], r"Points 4, 5 \(2 in all\) are in no cell"),
        (UNIT_SQUARE, [[0, 1, 2, 7]], "Cell 0 names point 7; the mesh has points 0 to 3"),
        (UNIT_SQUARE, [[0, 1, 2], [0, 2, -1]], "Cell 1 names point -1"),
        (UNIT_SQUARE, [[0.0, 1.0, 2.0]], "Cells are float64"),
        (UNIT_SQUARE, [[0, 1, 2], [0, 2, 2]], "Cell 1 is degenerate: two points of cell 1"),
        ([[0, 0], [1, 0], [1, 0], [0, 1]], [[0, 1, 2, 3]], "Cell 0 is degenerate: two points of cell 0"),
        (
            [[0, 0], [1, 1], [2, 2]],
            [[0, 1, 2]],
            "Cell 0 is degenerate: cell 0 .triangle of points .0, 1, 2.. has area 0",
        ),
        (CUBE[0] * [1, 1, 1e-16], CUBE[1], "Cell 0 is degenerate"),
        (CUBE[0], INVERTED, "Cell 0 is inverted: cell 0 .hexahedron of points .* has volume -1"),
        (CUBE[0], [[0, 1, 2, 3, 4, 5, 6]], "No cell in space has 7 points"),
        (CUBE[0], {"hexagon": [[0, 1]]}, "Unknown cell type 'hexagon'. Known are triangle, "),
        (CUBE[0], {"wedge": CUBE[1]}, "Cell 0 is a wedge of 8 points; it must have 6"),
        (UNIT_SQUARE, {"tetrahedron": [[0, 1, 2, 3]]}, "tetrahedron cells need 3 coordinates; the points have 2"),
        (CUBE[0], {"hexahedron": CUBE[1], "quad": CUBE[1][:, :4]}, "mixes plane cells with cells in space"),
        (
            CUBE[0],
            {"polyhedron": [CUBE[1][0][HEXAHEDRON_FACES[:5]].tolist()]},
            "Polyhedron 0 is not closed: its edge from",
        ),
        (
            TWO_SQUARES,
            [[0, 1, 2, 3], [4, 5, 6, 7]],
            "falls into 2 parts that share no point: point 4 cannot be reached",
        ),
        (UNIT_SQUARE, [[0, 1, 2], [0, 2, 3], [0, 1, 3]], "Cells . and . lie on the same side of the facet they share"),
        (UNIT_SQUARE, [[0, 1, 2], [0, 2, 3], [0, 1, 2], [2, 1, 0]], "Cells 0, 2 and 3 share one facet"),
        (THREE_TRIANGLES, [[0, 1, 2], [1, 2, 3]], "so they overlap"),
    ],
)
def test_a_mesh_that_cannot_be_is_refused_by_name(points, cells, says):
    cells = np.array(cells) if isinstance(cells, list) else cells
    with pytest.raises(ValueError, match=says):
        Mesh.from_arrays(np.array(points), cells)


def test_ragged_cells_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not determine the cell types"):
        Mesh.from_arrays(UNIT_SQUARE, (np.arange(4), np.array([0, 4])))
    with pytest.raises(ValueError, match="offsets of the cells run from 0 to 5"):
        Mesh.from_arrays(UNIT_SQUARE, (np.arange(4), np.array([0, 5])), QUAD)
    with pytest.raises(ValueError, match="2 cell types for 1 cells"):
        Mesh.from_arrays(UNIT_SQUARE, Cells(np.arange(4), np.array([0, 4]), np.array([9, 9], dtype=np.uint8)))
    with pytest.raises(ValueError, match="Polyhedra need their faces"):
        Mesh.from_arrays(CUBE[0], (CUBE[1][0], np.array([0, 8])), 42)


def test_a_plane_mesh_that_is_tilted_is_told_from_a_curved_surface():
    points, quads = grid((2, 2))
    with pytest.raises(ValueError, match="tilted plane with normal"):
        Mesh.from_arrays(np.c_[points, points[:, 0]], {"quad": quads})
    with pytest.raises(ValueError, match="curved surface"):
        Mesh.from_arrays(np.c_[points, points[:, 0] ** 2], {"quad": quads})


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (
            lambda x: x[:, 0] > 3,
            ValueError,
            r"Patch 'hot' is empty: its test holds at no boundary point. The mesh spans \[0.0",
        ),
        ([], ValueError, "Patch 'hot' is empty: it was given no points"),
        (np.zeros(27, dtype=bool), ValueError, "Patch 'hot' is empty"),
        (lambda x: x[:, 0], ValueError, "The test of patch 'hot' returned float64"),
        (lambda x: True, ValueError, r"returned bool of shape \(\)"),
        ([0, 27], ValueError, "Patch 'hot' names point 27; the mesh has points 0 to 26"),
        ([-1], ValueError, "Patch 'hot' names point -1"),
        (np.zeros(5, dtype=bool), ValueError, r"Patch 'hot' is given as bool of shape \(5,\)"),
        (np.zeros(27), ValueError, "Patch 'hot' is given as float64"),
        ("marked", KeyError, "from the field 'marked', which the mesh does not have. Its fields: none"),
    ],
)
def test_a_patch_that_cannot_be_is_refused_by_name(given, error, says):
    with pytest.raises(error, match=says):
        unit_cube().with_patches({"hot": given})


def test_an_unknown_patch_names_those_that_exist():
    mesh = unit_cube().with_patches(LEFT)
    for call in (mesh.patch, mesh.point_normals, mesh.distance_to):
        with pytest.raises(KeyError, match=r"no patch 'wall'\. Its patches: left"):
            call("wall")
    with pytest.raises(ValueError, match="to no patch at all; name some of left"):
        mesh.distance_to([])


def test_facets_that_are_not_on_the_boundary_are_refused():
    with pytest.raises(
        ValueError, match=r"Patch 'wall' names 1 facets that the boundary does not have, .* \[0, 1, 2, 3\]"
    ):
        unit_cube().with_patch_facets({"wall": [[0, 1, 2, 3]]})
    with pytest.raises(ValueError, match="Patch 'wall' is empty"):
        unit_cube().with_patch_facets({"wall": []})
    with pytest.raises(ValueError, match="names point 3735558"):
        unit_cube().with_patch_facets({"wall": [[0, 1, 2, 3_735_558]]})


def test_a_field_of_another_length_and_a_motion_that_is_none_are_refused():
    with pytest.raises(ValueError, match=r"Field 'T' has shape \(3,\); its first axis must be the mesh's 27 points"):
        unit_cube().with_fields({"T": torch.zeros(3)})
    with pytest.raises(ValueError, match="takes an orthogonal 3 x 3 matrix"):
        unit_cube().moved(2 * torch.eye(3), torch.zeros(3))
    with pytest.raises(ValueError, match="cannot be concatenated"):
        Mesh.concatenate([unit_cube(), box("quad")])
    with pytest.raises(ValueError, match="no meshes"):
        Mesh.concatenate([])


def test_every_type_has_its_place_in_the_tests():
    tested = {name for name in (*PLANE_TYPES, *SOLID_TYPES) if not name.startswith("mixed")}
    assert tested == {cell_type.name for cell_type in CELL_TYPES.values()}


@pytest.mark.parametrize("kind", ["tetrahedron", "pyramid", "wedge", "hexahedron"])
def test_cells_are_recognised_from_their_faces(kind):
    mesh = box(kind, jitter=0.2)
    found = solids(cell_facets(mesh._cells))
    np.testing.assert_array_equal(found.types, mesh.cell_types)
    np.testing.assert_allclose(signed_volumes(mesh.points.numpy(), found), mesh.cell_volumes, rtol=1e-12)
    for cell, start in enumerate(mesh.offsets[:-1]):
        ours, theirs = (each[start : mesh.offsets[cell + 1]] for each in (found.connectivity, mesh.connectivity))
        assert set(ours) == set(theirs)


def test_a_cell_with_faces_of_no_other_type_stays_a_polyhedron():
    """A prism over a pentagon next to a cube that shares none of its faces."""
    turns = 2 * np.pi * np.arange(5) / 5
    floor = [*range(5)]
    prism = [floor[::-1], [5 + i for i in floor], *([i, (i + 1) % 5, 5 + (i + 1) % 5, 5 + i] for i in floor)]
    cube = [[10 + i for i in row] for row in CELL_TYPES[HEXAHEDRON].facets]
    faces = replace(Facets.of([*prism, *cube]), cells=np.repeat([0, 1], [7, 6]))
    found = solids(faces)
    assert found.types.tolist() == [POLYHEDRON, HEXAHEDRON]
    assert found.connectivity[:10].tolist() == [*range(10)]
    corners = np.array([(x, y, z) for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))])
    ring = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    points = np.concatenate([np.c_[ring, np.zeros(5)], np.c_[ring, np.ones(5)], corners])
    np.testing.assert_allclose(signed_volumes(points, found), [2.5 * np.sin(2 * np.pi / 5), 1.0])
