"""What is mended in meshes of other programs: the mesh that was meant, and a note for each change."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from meshes import UNIT_SQUARE, arrays, box, grid
from pennpde.mesh import Mesh
from pennpde.mesh.cells import CELL_TYPES
from pennpde.mesh.checks import NotConnectedError

# VTK's quadratic types: the edges of each cell whose middle is a point, in VTK's order.
EDGES = {
    "triangle": (22, [(0, 1), (1, 2), (2, 0)]),
    "quad": (23, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "tetrahedron": (24, [(0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3)]),
    "hexahedron": (
        25,
        [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7)],
    ),
    "wedge": (26, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)]),
    "pyramid": (27, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4), (2, 4), (3, 4)]),
}


def quadratic(kind: str):
    """A box of quadratic cells as a PyVista grid, with a field and a patch; and the linear mesh that was meant."""
    import pyvista

    points, cells = arrays(kind, 2)
    rows = np.asarray(cells[kind])
    code, edges = EDGES[kind]
    pairs = np.sort(rows[:, np.array(edges)].reshape(-1, 2), axis=1)
    distinct, place = np.unique(pairs, axis=0, return_inverse=True)
    middle = len(points) + place.reshape(len(rows), -1)
    every = np.concatenate([points, points[distinct].mean(axis=1)])
    every = np.pad(every, ((0, 0), (0, 3 - every.shape[1])))
    table = np.concatenate([rows, middle], axis=1)
    grid = pyvista.UnstructuredGrid(
        np.insert(table, 0, table.shape[1], axis=1).ravel(), np.full(len(rows), code), every
    )
    grid["height"] = every[:, 1]
    grid["patch:left"] = np.isclose(every[:, 0], 0.0).astype(np.uint8)
    return grid, Mesh.from_arrays(points, rows, kind), len(distinct)


@pytest.mark.parametrize("kind", EDGES)
def test_quadratic_cells_become_the_linear_cells_of_their_corners(kind):
    dataset, meant, middles = quadratic(kind)
    mesh = Mesh.from_pyvista(dataset, repair=True)
    assert_close(mesh.points, meant.points)
    np.testing.assert_array_equal(mesh.connectivity, meant.connectivity)
    assert_close(mesh.fields["height"], mesh.points[:, 1])
    np.testing.assert_array_equal(mesh.patch("left").points, np.flatnonzero(meant.points[:, 0] == 0))
    (note,) = mesh.notes
    assert note.startswith(f"brought to first order: {meant.number_of_cells} cells of second or higher order")
    assert f"{middles} points between corners left out" in note
    with pytest.raises(ValueError, match=r"VTK's cell type .* repair=True"):
        Mesh.from_pyvista(dataset)


def test_points_of_no_cell_are_left_out_with_their_fields(tmp_path):
    import pyvista

    mesh = box("quad", 2)
    dataset = mesh.with_fields({"number": torch.arange(mesh.number_of_points)}).to_pyvista()
    extra = pyvista.UnstructuredGrid(
        np.insert(mesh.connectivity.reshape(-1, 4) + 1, 0, 4, axis=1).ravel(),
        mesh.cell_types,
        np.concatenate([[[9.0, 9.0, 0.0]], dataset.points]),
    )
    extra["number"] = np.arange(-1, mesh.number_of_points)
    extra.save(tmp_path / "extra.vtu")
    repaired = Mesh.read(tmp_path / "extra.vtu")
    np.testing.assert_array_equal(repaired.points, mesh.points)
    np.testing.assert_array_equal(repaired.fields["number"], np.arange(mesh.number_of_points))
    assert repaired.notes == ("left out: 1 point of no cell",)
    with pytest.raises(ValueError, match="Point 0 is in no cell"):
        Mesh.read(tmp_path / "extra.vtu", repair=False)


@pytest.mark.parametrize(
    "kind", ["triangle", "quad", "pixel", "polygon", "tetrahedron", "voxel", "wedge", "polyhedron"]
)
def test_cells_with_points_of_their_own_are_glued(kind, tmp_path):
    """A soup: every cell brings its points along, as some converters write it."""
    mesh = box(kind, 2).with_patches({"left": lambda x: np.isclose(x[:, 0], 0.0)})
    dataset = mesh.with_fields({"height": mesh.points[:, 1]}).to_pyvista()
    parts = [dataset.extract_cells(cell) for cell in range(dataset.n_cells)]
    soup = parts[0].merge(parts[1:], merge_points=False)
    assert soup.n_points > mesh.number_of_points
    repaired = Mesh.from_pyvista(soup, repair=True)
    assert repaired.number_of_points == mesh.number_of_points
    assert len(repaired.facets) == len(mesh.facets)
    assert len(repaired.patch("left").facets) == len(mesh.patch("left").facets)
    assert_close(repaired.cell_volumes.sum(), mesh.cell_volumes.sum())
    assert_close(repaired.fields["height"], repaired.points[:, 1])
    merged = soup.n_points - mesh.number_of_points
    assert repaired.notes[0].startswith(f"merged: {merged} points with others at the same place")
    with pytest.raises(NotConnectedError):
        Mesh.from_pyvista(soup)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-6, 1.0, 1e6]), shift=st.sampled_from([0.0, 100.0]))
def test_two_halves_that_differ_by_rounding_are_one_mesh(seed, scale, shift):
    points, quads = grid((4, 3), jitter=0.2, seed=seed)
    points = scale * (points + shift)
    left = points[quads].mean(axis=1)[:, 0] < scale * (shift + 0.5)
    rounding = 1 + 1e-15 * np.random.default_rng(seed).uniform(-1, 1, points.shape)
    cells = np.concatenate([quads[left], quads[~left] + len(points)])
    import pyvista

    every = np.pad(np.concatenate([points, points * rounding]), ((0, 0), (0, 1)))
    dataset = pyvista.UnstructuredGrid(np.insert(cells, 0, 4, axis=1).ravel(), np.full(len(cells), 9), every)
    mesh = Mesh.from_pyvista(dataset, repair=True)
    assert (mesh.number_of_points, len(mesh.facets)) == (20, 14)
    unused, merged = mesh.notes
    assert unused == "left out: 16 points of no cell"
    assert merged.startswith("merged: 4 points")


def test_a_slit_is_kept_and_told():
    """Two points at one place within a mesh that hangs together are the two sides of a wall."""
    import pyvista

    points, quads = grid((4, 2))
    upper = np.arange(1, 8, 2)
    quads[upper] = np.where(quads[upper] == 7, len(points), quads[upper])
    every = np.pad(np.concatenate([points, points[7:8]]), ((0, 0), (0, 1)))
    dataset = pyvista.UnstructuredGrid(np.insert(quads, 0, 4, axis=1).ravel(), np.full(8, 9), every)
    mesh = Mesh.from_pyvista(dataset, repair=True)
    assert len(mesh.facets) == 12 + 4
    (note,) = mesh.notes
    assert note.startswith("kept apart: 2 points at the place of another; the mesh has a slit there")


def test_two_ducts_that_share_one_point_are_refused_and_the_point_is_named():
    points, quads = grid((1, 1))
    both = np.concatenate([points, points[1:] + 1.0])
    with pytest.raises(ValueError, match=r"2 parts that touch only in points: Point 3 is shared, .*at \[1\.0, 1\.0\]"):
        Mesh.from_arrays(both, np.concatenate([quads, np.where(quads == 0, 3, quads + 3)]))


def test_two_bodies_that_share_an_edge_are_refused():
    points, cubes = grid((1, 1, 1))
    other = points + np.array([1.0, 1.0, 0.0])
    every, place = np.unique(np.concatenate([points, other]), axis=0, return_inverse=True)
    cells = place[np.concatenate([cubes, cubes + 8])]
    with pytest.raises(ValueError, match=r"touch only in points: Points .* are shared, .* no whole face is"):
        Mesh.from_arrays(every, cells)


def test_notes_stay_with_the_mesh(tmp_path):
    dataset, _, _ = quadratic("hexahedron")
    mesh = Mesh.from_pyvista(dataset, repair=True).with_patches({"top": lambda x: x[:, 2] > 0.99})
    assert len(mesh.notes) == 1
    mesh.save(tmp_path / "mesh.vtu")
    assert Mesh.read(tmp_path / "mesh.vtu").notes == ()  # what was repaired needs no repair


def test_the_table_of_higher_order_names_known_types():
    from pennpde.mesh.cells import HIGHER_ORDER

    assert set(HIGHER_ORDER.values()) <= set(CELL_TYPES)
    assert not set(HIGHER_ORDER) & set(CELL_TYPES)


def test_wrong_cells_are_still_refused_where_repair_is_asked_for():
    import pyvista

    dataset = pyvista.UnstructuredGrid([4, 0, 1, 2, 9], [9], np.pad(UNIT_SQUARE, ((0, 0), (0, 1))))
    with pytest.raises(ValueError, match="names point 9"):
        Mesh.from_pyvista(dataset, repair=True)
