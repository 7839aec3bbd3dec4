"""Meshes: what is accepted, what is refused and how, and the numbers of the published samples."""

import os
import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from forks import forked
from meshes import ALL_TYPES, PLANE_TYPES, SOLID_TYPES, arrays, box, grid
from torch.testing import assert_close

from pennpde.mesh import Mesh
from pennpde.mesh.cells import HEXAHEDRON, QUAD, TRIANGLE, WEDGE, Cells, Facets
from pennpde.mesh.distance import _to_triangles, distances, parts_of

UNIT_SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
LEFT = {"left": lambda x: np.isclose(x[:, 0], 0.0)}


def brick(shape=(2, 2, 2)) -> Mesh:
    return Mesh.from_arrays(*grid(shape))


# What the published samples say


@pytest.fixture(scope="module")
def flow(reference):
    return np.load(reference / "samples" / "flow_a1_1.00.npz")


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


# Quads split into triangles


def test_the_share_tells_how_many_quads_are_split_along_either_diagonal():
    mesh = Mesh.from_arrays(*grid((40, 40), jitter=0.2))
    assert set(mesh.triangulated().cell_types) == {TRIANGLE}
    assert mesh.triangulated(0.0).number_of_cells == mesh.number_of_cells
    half = mesh.triangulated(0.5)
    # Five standard deviations of 1600 throws of a coin.
    assert abs(half.number_of_cells - 1.5 * mesh.number_of_cells) < 100
    assert set(half.cell_types) == {TRIANGLE, QUAD}
    lost = {tuple(pair) for pair in mesh.edges.T.tolist()} - {
        tuple(pair) for pair in mesh.triangulated().edges.T.tolist()
    }
    rising = sum(1 for i, j in lost if (mesh.points[i] - mesh.points[j]).prod() > 0)
    assert abs(rising - len(lost) / 2) < 200


def test_a_larger_share_splits_the_same_quads_and_more_and_another_seed_others():
    mesh = Mesh.from_arrays(*grid((10, 10), jitter=0.2))
    graphs = [{tuple(pair) for pair in mesh.triangulated(share).edges.T.tolist()} for share in (0.2, 0.6, 1.0)]
    assert graphs[0] > graphs[1] > graphs[2]
    assert not np.array_equal(mesh.triangulated(seed=0).edges, mesh.triangulated(seed=1).edges)


@pytest.mark.parametrize("dent", range(4))
def test_a_dented_quad_is_split_along_the_diagonal_that_lies_inside(dent):
    points = UNIT_SQUARE.copy()
    points[dent] += 0.7 * (0.5 - points[dent]) * 2
    mesh = Mesh.from_arrays(points, {"quad": [[0, 1, 2, 3]]})
    for seed in range(8):
        split = mesh.triangulated(seed=seed)
        assert split.number_of_cells == 2
        assert (split.cell_volumes > 0).all()
        # The dent is joined to the corner across.
        assert (dent, (dent + 2) % 4) in {tuple(pair) for pair in split.edges.T.tolist()}


def test_a_quad_with_three_corners_on_a_line_is_split_at_the_middle_one():
    mesh = Mesh.from_arrays([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [0.5, 1.0]], {"quad": [[0, 1, 2, 3]]})
    for seed in range(8):
        assert (1, 3) in {tuple(pair) for pair in mesh.triangulated(seed=seed).edges.T.tolist()}


def test_triangles_and_polygons_stay_where_quads_are_split():
    points = [[0.0, 0], [1, 0], [2, 0], [3, 0], [0, 1], [1, 1], [2, 1], [3, 1], [3.5, 0.5]]
    cells = {"triangle": [[0, 1, 4], [1, 5, 4]], "quad": [[1, 2, 6, 5]], "polygon": [[2, 3, 8, 7, 6]]}
    mesh = Mesh.from_arrays(points, cells, patches={"left": [0, 4]})
    split = mesh.triangulated()
    assert np.diff(split.offsets).tolist() == [3, 3, 3, 3, 5]
    assert_close(split.cell_volumes[[0, 1, 4]], mesh.cell_volumes[[0, 1, 3]], rtol=0, atol=0)


def test_only_plane_meshes_and_shares_are_triangulated():
    with pytest.raises(ValueError, match=r"Mesh\.plane_of"):
        brick().triangulated()
    with pytest.raises(ValueError, match=r"from 0 to 1; got 1\.5"):
        box("quad").triangulated(1.5)


# Normals


def test_normals_at_edges_and_corners_are_means_of_those_of_the_sides():
    mesh = brick()
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
    points, quads = grid((2, 1))
    quads[1, 3] = 6  # the cells share point 2, and each has its own point at the upper end of their common edge
    mesh = Mesh.from_arrays(np.concatenate([points, points[3:4]]), quads)
    np.testing.assert_allclose(mesh.normals[3], [1 / np.sqrt(2), 1 / np.sqrt(2)])
    np.testing.assert_allclose(mesh.normals[6], [-1 / np.sqrt(2), 1 / np.sqrt(2)])
    np.testing.assert_allclose(mesh.normals[2], [0, -1], atol=1e-12)


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
    assert repr(brick().with_patches(LEFT)) == "Mesh(27 points in 3D; 8 hexahedron; patches: left (9))"


# Patches


def test_a_patch_by_test_by_indices_by_mask_and_by_field_are_the_same():
    mesh = brick()
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
    mesh = brick().with_patches({"middle": lambda x: np.isclose(x[:, 0], 0.5)})
    assert 13 not in mesh.patch("middle").points
    assert len(mesh.patch("middle").points) == 8


def test_a_point_may_be_in_several_patches():
    mesh = brick().with_patches({**LEFT, "floor": lambda x: np.isclose(x[:, 2], 0.0)})
    assert 0 in mesh.patch("left").points
    assert 0 in mesh.patch("floor").points
    both = mesh.point_normals(["left", "floor"])[0]
    np.testing.assert_allclose(both, np.array([-1, 0, -1]) / np.sqrt(2))


def test_patches_by_facets_tell_sides_apart_that_points_cannot():
    """A mesh one cell thick: all its points are on the floor's or the ceiling's side of every wall."""
    mesh = brick((1, 1, 1))
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
    mesh = brick()
    mesh.with_patches(LEFT).with_fields({"x": mesh.points[:, 0]})
    assert not mesh.patches
    assert not mesh.fields


# Distance


def test_the_distance_to_a_side_of_the_box_is_the_coordinate_on_every_mesh():
    for kind in ALL_TYPES:
        mesh = box(kind, jitter=0.2).with_patches(LEFT)
        assert_close(mesh.distance_to("left"), mesh.points[:, 0], rtol=0, atol=1e-12)


def test_the_distance_is_exact_between_the_points_of_a_coarse_patch():
    points = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 1.0], [5.0, 1.0], [0.0, 1.0]])
    mesh = Mesh.from_arrays(points, {"polygon": [[0, 1, 2, 3, 4]]}, patches={"floor": [0, 1]})
    assert_close(mesh.distance_to(["floor"]), torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0]).double())


def test_the_distance_to_several_patches_is_the_smallest():
    mesh = brick((4, 4, 4)).with_patches({**LEFT, "right": lambda x: np.isclose(x[:, 0], 1.0)})
    both = mesh.distance_to(["left", "right"])
    assert_close(both, torch.minimum(mesh.points[:, 0], 1 - mesh.points[:, 0]))


def test_the_distance_to_a_patch_without_facets_is_that_to_its_points():
    mesh = brick().with_patches({"middle": [13]})
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


# The plane of a thin mesh


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
        "polyhedron": {"polyhedron": [cube[np.array(SIDES)].tolist() for cube in cubes]},
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


SIDES = ((0, 4, 7, 3), (1, 2, 6, 5), (0, 1, 5, 4), (3, 7, 6, 2), (0, 3, 2, 1), (4, 5, 6, 7))


def test_a_mesh_of_two_layers_has_no_plane():
    with pytest.raises(ValueError, match=r"not one cell thick in z: it spans z = 0 to 1, 9 of its points lie between"):
        Mesh.plane_of(brick())
    with pytest.raises(ValueError, match="plane already"):
        Mesh.plane_of(box("quad"))


# Files and PyVista


def test_structured_grids_of_pyvista_are_read():
    import pyvista

    image = pyvista.ImageData(dimensions=(3, 4, 5)).cast_to_unstructured_grid()
    mesh = Mesh.from_pyvista(pyvista.ImageData(dimensions=(3, 4, 5)))
    assert mesh.number_of_points == image.n_points
    assert_close(mesh.cell_volumes.sum().item(), 24.0)
    plane = Mesh.from_pyvista(pyvista.ImageData(dimensions=(3, 4, 1)))
    assert plane.space == 2
    assert_close(plane.cell_volumes.sum().item(), 6.0)


def test_surfaces_and_lines_beside_the_cells_of_a_body_are_left_out():
    import pyvista

    points, cubes = grid((1, 1, 1))
    cells = np.concatenate([[4], cubes[0, :4], [2], cubes[0, :2], [8], cubes[0]])
    mesh = Mesh.from_pyvista(pyvista.UnstructuredGrid(cells, [9, 3, 12], points))
    assert mesh.number_of_cells == 1


def test_vectors_of_a_plane_mesh_have_three_components_in_pyvista_alone():
    import pyvista

    mesh = box("quad").with_fields({"u": torch.rand(20, 2)})
    dataset = mesh.to_pyvista()
    assert dataset["u"].shape == (20, 3)
    assert (dataset.points[:, 2] == 0).all()
    del dataset.field_data["axes:u"]  # as any other program would write it
    assert_close(Mesh.from_pyvista(dataset).fields["u"], mesh.fields["u"])
    assert isinstance(dataset, pyvista.UnstructuredGrid)


def test_patches_that_were_cut_away_from_a_file_are_gone():
    mesh = brick().with_patches({**LEFT, "right": lambda x: np.isclose(x[:, 0], 1.0)})
    mesh = mesh.with_patch_facets({"piece": mesh.facets.take(mesh.patch("left").facets[:1])})
    dataset = mesh.to_pyvista()
    kept = np.flatnonzero(dataset.cell_centers().points[:, 0] > 0.5)
    rest = Mesh.from_pyvista(dataset.extract_cells(kept))
    assert list(rest.patches) == ["right"]


def test_surface_files_of_pyvista_are_plane_meshes(tmp_path):
    import pyvista

    pyvista.Plane(i_resolution=3, j_resolution=2).save(tmp_path / "plane.vtp")
    mesh = Mesh.read(tmp_path / "plane.vtp")
    assert mesh.space == 2
    assert_close(mesh.cell_volumes.sum().item(), 1.0)


GMSH = """$MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
3
1 1 "inlet"
1 2 "wall"
2 3 "fluid"
$EndPhysicalNames
$Nodes
4
1 0 0 0
2 1 0 0
3 1 1 0
4 0 1 0
$EndNodes
$Elements
6
1 1 2 1 1 4 1
2 1 2 2 2 1 2
3 1 2 2 2 2 3
4 1 2 2 2 3 4
5 2 2 3 1 1 2 3
6 2 2 3 1 1 3 4
$EndElements
"""


def test_the_named_boundaries_of_a_gmsh_file_become_patches(tmp_path, capsys):
    (tmp_path / "square.msh").write_text(GMSH)
    mesh = Mesh.read(tmp_path / "square.msh")
    assert mesh.number_of_cells == 2
    np.testing.assert_array_equal(mesh.patch("inlet").points, [0, 3])
    assert len(mesh.patch("wall").facets) == 3
    assert not mesh.fields
    assert capsys.readouterr().out == ""


def test_a_surface_that_a_gmsh_file_names_inside_the_body_is_no_patch(tmp_path):
    inner = GMSH.replace("3\n1 1", '4\n1 4 "diagonal"\n1 1').replace(
        "6\n1 1 2 1 1 4 1", "7\n7 1 2 4 4 1 3\n1 1 2 1 1 4 1"
    )
    (tmp_path / "square.msh").write_text(inner)
    assert set(Mesh.read(tmp_path / "square.msh").patches) == {"inlet", "wall"}


def test_a_gmsh_file_without_meshio_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "square.msh").write_text(GMSH)
    monkeypatch.setitem(sys.modules, "meshio", None)
    with pytest.raises(ImportError, match="pip install meshio"):
        Mesh.read(tmp_path / "square.msh")


def test_the_mesh_module_imports_without_vtk():
    code = (
        "import sys, pennpde.mesh; sys.exit(any(m in sys.modules for m in ('pyvista', 'vtk', 'vtkmodules', 'meshio')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".vtkhdf"])
def test_a_disk_that_fills_while_a_mesh_is_saved_raises_and_leaves_the_old_file(tmp_path, suffix):
    # In a copy of this process: VTK and HDF5 complain on the terminal, and some versions end the program.
    path = tmp_path / f"mesh{suffix}"
    mesh = brick((20, 20, 20))
    mesh.save(path)
    before = path.read_bytes()

    def save_on_a_full_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2))
        with pytest.raises(OSError, match=rf"mesh\{suffix}"):
            mesh.save(path)

    with forked(save_on_a_full_disk) as process:
        assert os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == 0
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Cannot save a mesh as 'mesh.stl': choose one of .vtu, .vtk, .vtkhdf"):
        brick().save(tmp_path / "mesh.stl")
    with pytest.raises(FileNotFoundError, match="There is no mesh file"):
        Mesh.read(tmp_path / "missing.vtu")


def test_datasets_that_are_no_mesh_are_refused():
    import pyvista

    with pytest.raises(ValueError, match=r"2 blocks \(Block-00, Block-01\); choose one"):
        Mesh.from_pyvista(pyvista.MultiBlock([pyvista.Cube(), pyvista.Cube()]))
    with pytest.raises(ValueError, match="no cells"):
        Mesh.from_pyvista(pyvista.PolyData(np.zeros((3, 3))))
    with pytest.raises(ValueError, match="curved surface"):
        Mesh.from_pyvista(pyvista.Sphere())
    with pytest.raises(ValueError, match="VTK's cell type 24"):
        Mesh.from_pyvista(pyvista.examples.cells.QuadraticTetrahedron())


# What is refused

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
            {"polyhedron": [CUBE[1][0][np.array(SIDES[:5])].tolist()]},
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
    with pytest.raises(ValueError, match="do not tell the cell types"):
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
        brick().with_patches({"hot": given})


def test_an_unknown_patch_names_those_that_exist():
    mesh = brick().with_patches(LEFT)
    for call in (mesh.patch, mesh.point_normals, mesh.distance_to):
        with pytest.raises(KeyError, match=r"no patch 'wall'\. Its patches: left"):
            call("wall")
    with pytest.raises(ValueError, match="to no patch at all; name some of left"):
        mesh.distance_to([])


def test_facets_that_are_not_on_the_boundary_are_refused():
    with pytest.raises(
        ValueError, match=r"Patch 'wall' names 1 facets that the boundary does not have, .* \[0, 1, 2, 3\]"
    ):
        brick().with_patch_facets({"wall": [[0, 1, 2, 3]]})
    with pytest.raises(ValueError, match="Patch 'wall' is empty"):
        brick().with_patch_facets({"wall": []})


def test_a_field_of_another_length_and_a_motion_that_is_none_are_refused():
    with pytest.raises(ValueError, match=r"Field 'T' has shape \(3,\); its first axis must be the mesh's 27 points"):
        brick().with_fields({"T": torch.zeros(3)})
    with pytest.raises(ValueError, match="takes an orthogonal 3 x 3 matrix"):
        brick().moved(2 * torch.eye(3), torch.zeros(3))
    with pytest.raises(ValueError, match="cannot be concatenated"):
        Mesh.concatenate([brick(), box("quad")])
    with pytest.raises(ValueError, match="no meshes"):
        Mesh.concatenate([])


def test_every_type_has_its_place_in_the_tests():
    from pennpde.mesh.cells import CELL_TYPES

    tested = {name for name in (*PLANE_TYPES, *SOLID_TYPES) if not name.startswith("mixed")}
    assert tested == {cell_type.name for cell_type in CELL_TYPES.values()}
