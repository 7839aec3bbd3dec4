"""Meshes: normals, cells, patches, and the numbers of the published samples."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from meshes import LEFT, PLANE_TYPES, arrays, box, grid, unit_cube
from motions import random_orthogonal
from pennpde.mesh import Mesh
from pennpde.mesh.cells import HEXAHEDRON, QUAD, TRIANGLE, WEDGE, Facets
from pennpde.mesh.mesh import turned


@pytest.fixture(scope="module")
def flow(reference):
    return np.load(reference / "samples" / "flow_a1_1.00.npz")


# What the published samples say


def test_normals_and_graph_of_the_flow_sample_are_the_published_ones(flow):
    mesh = Mesh.from_arrays(flow["points"], {"hexahedron": flow["hex"], "wedge": flow["prism"]})
    # The published normals are float32.
    np.testing.assert_allclose(mesh.normals.numpy(), flow["normal"], rtol=0, atol=1e-6)
    published = np.stack([flow["gcn_row"], flow["gcn_col"]])
    published = published[:, published[0] != published[1]]
    np.testing.assert_array_equal(mesh.edges, published[:, np.lexsort(published[::-1])])


@pytest.mark.parametrize("sample", ["u0.5_d0.5_t0.5", "u0.5_d0.6_t0.6", "u0.6_d0.5_t0.6", "u0.6_d0.6_t0.5"])
def test_normals_of_the_advection_diffusion_samples_come_from_their_upright_sides(reference, sample):
    arrays = np.load(reference / "samples" / f"advection_diffusion_{sample}.npz")
    sides = {"sides": lambda x: (np.abs(x[:, :2] - 0.5) > 0.5 - 1e-9).any(axis=1)}
    mesh = Mesh.from_arrays(arrays["points"], arrays["hex"], patches=sides)
    np.testing.assert_allclose(mesh.point_normals(["sides"]).numpy(), arrays["normal"], rtol=0, atol=1e-6)


def test_the_flow_sample_stands_on_a_plane_mesh(flow):
    inlet = np.flatnonzero(np.isclose(flow["points"][:, 0], flow["points"][:, 0].min()))
    mesh = Mesh.from_arrays(
        flow["points"], {"hexahedron": flow["hex"], "wedge": flow["prism"]}, patches={"inlet": inlet}
    ).with_fields({"u": torch.from_numpy(flow["u"][-1])})
    plane = Mesh.plane_of(mesh)
    assert plane.number_of_points == mesh.number_of_points // 2
    assert plane.number_of_cells == mesh.number_of_cells
    thickness = np.ptp(flow["points"][:, 2])
    assert_close(plane.cell_volumes * thickness, mesh.cell_volumes, rtol=1e-6, atol=0)
    assert_close(plane.points, mesh.points[torch.from_numpy(plane.layer), :2], rtol=0, atol=0)
    assert_close(plane.fields["u"], mesh.fields["u"][torch.from_numpy(plane.layer), :2])
    normals = plane.point_normals(["inlet"])[torch.from_numpy(plane.patch("inlet").points)]
    assert_close(normals, torch.tensor([-1.0, 0.0]).double().expand_as(normals), rtol=0, atol=1e-6)


# Normals


def test_normals_at_edges_and_corners_are_means_of_those_of_the_sides():
    mesh = unit_cube()
    at = {tuple(position): normal for position, normal in zip(mesh.points.tolist(), mesh.normals.tolist(), strict=True)}
    np.testing.assert_allclose(at[0.0, 0.5, 0.5], [-1, 0, 0])
    np.testing.assert_allclose(at[0.0, 0.0, 0.5], np.array([-1, -1, 0]) / np.sqrt(2))
    np.testing.assert_allclose(at[1.0, 0.0, 1.0], np.array([1, -1, 1]) / np.sqrt(3))
    np.testing.assert_array_equal(at[0.5, 0.5, 0.5], 0)


def test_the_normal_of_a_reentrant_corner_counts_facets_not_areas():
    points, cubes = grid((2, 2, 1))
    corner_missing = Mesh.from_arrays(points[:16], cubes[:3])  # the cube at large x and y is missing
    middle = np.flatnonzero(np.isclose(points, [0.5, 0.5, 1.0]).all(axis=1))[0]
    expected = np.array([1.0, 1.0, 3.0]) / np.sqrt(11)
    np.testing.assert_allclose(corner_missing.normals[middle], expected, atol=1e-12)


def test_triangles_weigh_a_third_and_quads_a_quarter_in_the_normal_of_a_point():
    wedge = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]])
    mesh = Mesh.from_arrays(wedge, [[0, 1, 2, 3, 4, 5]])
    expected = np.array([-1 / 4, -1 / 4, -1 / 3])
    np.testing.assert_allclose(mesh.normals[0], expected / np.linalg.norm(expected), atol=1e-12)


def test_the_two_sides_of_a_crack_cancel_at_its_tip():
    points, quads = grid((2, 2))
    quads[3, 3] = 9  # the upper cells share point 4, and each has its own point at the upper end of their common edge
    mesh = Mesh.from_arrays(np.concatenate([points, points[5:6]]), quads)
    np.testing.assert_allclose(mesh.normals[5], [1 / np.sqrt(2), 1 / np.sqrt(2)])
    np.testing.assert_allclose(mesh.normals[9], [-1 / np.sqrt(2), 1 / np.sqrt(2)])
    np.testing.assert_array_equal(mesh.normals[4], 0)


def test_where_the_normals_of_all_facets_cancel_there_is_none():
    """A crack along the middle of a square, closed at both ends, with one doubled point."""
    points, quads = grid((4, 2))
    above = np.arange(1, 8, 2)
    middle = 2 * 3 + 1
    cells = quads.copy()
    cells[above] = np.where(quads[above] == middle, len(points), quads[above])
    mesh = Mesh.from_arrays(np.concatenate([points, points[middle : middle + 1]]), cells)
    tips = [middle - 3, middle + 3]
    assert len(mesh.facets) == 12 + 4
    np.testing.assert_array_equal(mesh.normals[tips], 0)
    np.testing.assert_allclose(mesh.normals[[middle, len(points)]], [[0, 1], [0, -1]], atol=1e-12)


def test_normals_of_a_nonconvex_cell_point_out_of_it():
    arrow = np.array([[0.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.5, 1.0]])  # point 3 is drawn in
    mesh = Mesh.from_arrays(arrow, [[0, 1, 2, 3]])
    middles = mesh.points[mesh.facets.connectivity].reshape(-1, 2, 2).mean(1).numpy()
    normals = mesh.facet_normals.numpy()
    for middle, normal in zip(middles, normals, strict=True):
        assert inside_polygon(middle - 1e-6 * normal, arrow)
        assert not inside_polygon(middle + 1e-6 * normal, arrow)


def inside_polygon(position: np.ndarray, polygon: np.ndarray) -> bool:
    start, end = polygon, np.roll(polygon, -1, axis=0)
    crosses = (start[:, 1] > position[1]) != (end[:, 1] > position[1])
    rise = np.where(end[:, 1] == start[:, 1], 1.0, end[:, 1] - start[:, 1])
    at = start[:, 0] + (position[1] - start[:, 1]) / rise * (end[:, 0] - start[:, 0])
    return bool((crosses & (position[0] < at)).sum() % 2)


def test_normals_of_a_nonconvex_polyhedron_point_out_of_it():
    """An L of three cubes as one polyhedron, whose mean point lies at its re-entrant edge."""
    points, cubes = grid((2, 2, 1))
    separate = Mesh.from_arrays(points[:16], cubes[:3])
    generator = np.random.default_rng(0)
    shell = np.split(separate.facets.connectivity, separate.facets.offsets[1:-1])
    faces = [facet[:: generator.choice([-1, 1])].tolist() for facet in shell]
    solid = Mesh.from_arrays(points[:16], {"polyhedron": [faces]})
    assert_close(solid.cell_volumes, torch.tensor([0.75]).double())
    assert_close(solid.normals, separate.normals)


# Cells


@pytest.mark.parametrize("kind", PLANE_TYPES)
def test_plane_cells_are_stored_counter_clockwise_whichever_way_they_are_given(kind):
    points, cells = arrays(kind)
    rings = {"pixel": [0, 2, 1, 3]}
    reversed_cells = {
        name: rows[:, rings[name]]
        if name in rings
        else np.where(np.arange(len(rows))[:, None] % 2, rows, rows[:, ::-1])
        for name, rows in cells.items()
    }
    assert (Mesh.from_arrays(points, reversed_cells).cell_volumes > 0).all()


def test_both_orders_of_a_wedge_in_use_are_read():
    points, cells = arrays("wedge", 1)
    older = cells["wedge"][:, [0, 2, 1, 3, 5, 4]]
    mesh = Mesh.from_arrays(points, older, cell_types="wedge")
    np.testing.assert_array_equal(mesh.connectivity, cells["wedge"].ravel())


def test_types_may_be_left_out_where_points_and_coordinates_tell():
    for kind, code in (("triangle", TRIANGLE), ("quad", QUAD), ("wedge", WEDGE), ("hexahedron", HEXAHEDRON)):
        points, cells = arrays(kind)
        mesh = Mesh.from_arrays(points, cells[kind])
        assert (mesh.cell_types == code).all()


def test_the_three_ways_to_give_cells_agree():
    points, cells = arrays("mixed_plane")
    by_name = Mesh.from_arrays(points, cells)
    sizes = np.concatenate([np.full(len(rows), rows.shape[1]) for rows in cells.values()])
    codes = np.repeat([TRIANGLE, QUAD], [len(rows) for rows in cells.values()])
    connectivity = np.concatenate([rows.ravel() for rows in cells.values()])
    ragged = Mesh.from_arrays(points, (connectivity, np.concatenate([[0], np.cumsum(sizes)])), codes)
    np.testing.assert_array_equal(ragged.connectivity, by_name.connectivity)
    polygons = Mesh.from_arrays(points, {"polygon": [row.tolist() for rows in cells.values() for row in rows]})
    np.testing.assert_array_equal(polygons.connectivity, by_name.connectivity)


def test_faces_of_polyhedra_may_come_as_one_ragged_array():
    points, cells = arrays("polyhedron", 2)
    rows = [face for cell in cells["polyhedron"] for face in cell]
    faces = replace(Facets.of(rows), cells=np.repeat(np.arange(8), 6))
    nested, ragged = Mesh.from_arrays(points, cells), Mesh.from_arrays(points, faces)
    assert_close(ragged.normals, nested.normals, rtol=0, atol=0)


def test_plane_cells_in_space_become_a_plane_mesh_if_z_is_constant():
    points, quads = grid((2, 2))
    lifted = np.concatenate([points, np.full((len(points), 1), 7.0)], axis=1)
    mesh = Mesh.from_arrays(lifted, {"quad": quads})
    assert mesh.space == 2
    assert_close(mesh.points, torch.from_numpy(points))


def test_a_mesh_keeps_its_gradient_with_respect_to_positions():
    points, quads = grid((2, 2))
    positions = torch.from_numpy(points).requires_grad_()
    mesh = Mesh.from_arrays(positions, quads, patches=LEFT)
    mesh.points.square().sum().backward()
    assert_close(positions.grad, 2 * positions.detach())
    assert not mesh.normals.requires_grad


def test_a_mesh_survives_pickling():
    mesh = box("mixed_solid").with_patches(LEFT)
    again = pickle.loads(pickle.dumps(mesh))  # noqa: S301
    assert_close(again.normals, mesh.normals)
    np.testing.assert_array_equal(again.patch("left").facets, mesh.patch("left").facets)


def test_the_printed_mesh_tells_its_sizes_and_patches():
    assert repr(unit_cube().with_patches(LEFT)) == "Mesh(27 points in 3D; 8 hexahedron; patches: left (9))"


# Patches


def test_a_patch_by_test_by_indices_by_mask_and_by_field_are_the_same():
    mesh = unit_cube()
    chosen = torch.isclose(mesh.points[:, 0], torch.tensor(0.0).double())
    mesh = mesh.with_fields({"marked": chosen.double()}).with_patches(
        {
            **LEFT,
            "indices": np.flatnonzero(chosen)[::-1],
            "list": np.flatnonzero(chosen).tolist(),
            "mask": chosen.numpy(),
            "tensor": chosen,
            "field": "marked",
        }
    )
    for patch in mesh.patches.values():
        np.testing.assert_array_equal(patch.points, mesh.patch("left").points)
        np.testing.assert_array_equal(patch.facets, mesh.patch("left").facets)
    assert len(mesh.patch("left").facets) == 4


def test_a_test_on_positions_finds_boundary_points_only():
    mesh = unit_cube().with_patches({"middle": lambda x: np.isclose(x[:, 0], 0.5)})
    assert 13 not in mesh.patch("middle").points
    assert len(mesh.patch("middle").points) == 8


def test_a_point_may_be_in_several_patches():
    mesh = unit_cube().with_patches({**LEFT, "floor": lambda x: np.isclose(x[:, 2], 0.0)})
    assert 0 in mesh.patch("left").points
    assert 0 in mesh.patch("floor").points
    both = mesh.point_normals(["left", "floor"])[0]
    np.testing.assert_allclose(both, np.array([-1, 0, -1]) / np.sqrt(2))


def test_patches_by_facets_tell_sides_apart_that_points_cannot():
    """A mesh one cell thick: all its points are on the floor's or the ceiling's side of every wall."""
    mesh = unit_cube((1, 1, 1))
    by_points = mesh.with_patches({"front_and_back": lambda x: np.isclose(x[:, 2], x[:, 2])})
    assert len(by_points.patch("front_and_back").facets) == 6
    flat = [
        facet
        for facet in np.split(mesh.facets.connectivity, mesh.facets.offsets[1:-1])
        if np.ptp(mesh.points.numpy()[facet, 2]) == 0
    ]
    by_facets = mesh.with_patch_facets({"front_and_back": [np.roll(facet, 1)[::-1].tolist() for facet in flat]})
    assert len(by_facets.patch("front_and_back").facets) == 2
    np.testing.assert_allclose(np.abs(by_facets.point_normals("front_and_back").numpy()), [[0, 0, 1]] * 8)


def test_patches_and_fields_leave_the_mesh_they_are_added_to_alone():
    mesh = unit_cube()
    mesh.with_patches(LEFT).with_fields({"x": mesh.points[:, 0]})
    assert not mesh.patches
    assert not mesh.fields


def test_a_patch_of_points_that_the_mesh_does_not_have_is_refused():
    with pytest.raises(ValueError, match="names point 99; the mesh has points 0 to 19"):
        box("quad").with_patch_facets({"left": [[0, 99]]})


def test_a_tensor_product_turns_as_its_vectors_do():
    rotation = random_orthogonal(3, 1, reflection=True)
    first, second = torch.randn(2, 7, 3, dtype=torch.float64)
    product = torch.einsum("pi,pj->pij", first, second)
    by_hand = torch.einsum("pi,pj->pij", first @ rotation.T, second @ rotation.T)
    assert_close(turned(product, rotation, 2), by_hand)


def test_axes_beyond_the_rank_are_channels_and_stay():
    rotation = random_orthogonal(2, 1)
    vector = torch.randn(5, 2, 4, dtype=torch.float64)
    assert_close(turned(vector, rotation, 1), torch.stack([each @ rotation.T for each in vector.unbind(2)], dim=2))
    assert turned(vector, rotation, 0) is vector
