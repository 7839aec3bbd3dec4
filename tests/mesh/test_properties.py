"""Laws of meshes, over random small meshes of every cell type."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group
from torch.testing import assert_close

from meshes import ALL_TYPES, PLANE_TYPES, SOLID_TYPES, arrays, box
from pennlab.datasets.split_quads import triangulated
from pennpde.mesh import Mesh
from pennpde.mesh.cells import QUAD, Facets
from sampling import EXAMPLES

kinds = st.sampled_from(ALL_TYPES)
seeds = st.integers(0, 10_000)
sizes = st.integers(2, 3)
few = settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
EXACT = {"atol": 1e-12, "rtol": 1e-12}


def facet_centres(mesh: Mesh) -> torch.Tensor:
    facets = np.split(mesh.facets.connectivity, mesh.facets.offsets[1:-1])
    return torch.stack([mesh.points[torch.from_numpy(facet)].mean(0) for facet in facets])


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_the_cells_fill_the_box_and_each_facet_looks_out_of_it(kind):
    mesh = box(kind, jitter=0.3)
    assert_close(mesh.cell_volumes.sum(), torch.tensor(1.0).double(), **EXACT)
    assert_close(mesh.point_volumes.sum(), torch.tensor(1.0).double(), **EXACT)
    assert (mesh.cell_volumes > 0).all()
    from_the_middle = facet_centres(mesh) - 0.5
    outward = torch.where(from_the_middle.abs() > 0.5 - 1e-9, from_the_middle.sign(), 0.0)
    assert_close(mesh.facet_normals, outward, **EXACT)


@few
@given(kinds, sizes, seeds)
def test_the_divergence_theorem_holds_for_linear_fields(kind, size, seed):
    mesh = box(kind, size, jitter=0.2, seed=seed)
    areas = mesh.facet_areas
    assert_close(areas.sum(0), torch.zeros(mesh.space).double(), **EXACT)
    flux = (facet_centres(mesh) * areas).sum()
    assert_close(flux, mesh.space * mesh.cell_volumes.sum(), **EXACT)


@few
@given(kinds, sizes, seeds)
def test_two_points_are_neighbours_if_and_only_if_a_cell_holds_both(kind, size, seed):
    mesh = box(kind, size, jitter=0.2, seed=seed)
    cells = np.split(mesh.connectivity, mesh.offsets[1:-1])
    pairs = sorted({pair for cell in cells for pair in itertools.permutations(cell.tolist(), 2)})
    np.testing.assert_array_equal(mesh.edges, np.array(pairs).T)


@few
@given(kinds, sizes, seeds)
def test_a_facet_is_exterior_if_and_only_if_one_cell_has_it(kind, size, seed):
    mesh = box(kind, size, jitter=0.2, seed=seed)
    positions = mesh.points[mesh.boundary_points].numpy()
    assert (np.abs(positions - 0.5).max(axis=1) > 0.5 - 1e-9).all()
    on_the_box = np.flatnonzero(np.abs(mesh.points.numpy() - 0.5).max(axis=1) > 0.5 - 1e-9)
    np.testing.assert_array_equal(mesh.boundary_points, on_the_box)
    assert_close(mesh.facet_areas.norm(dim=1).sum().item(), 4.0 if mesh.space == 2 else 6.0)


@few
@given(kinds, sizes, seeds)
def test_the_order_of_points_does_not_matter(kind, size, seed):
    points, cells = arrays(kind, size, jitter=0.2, seed=seed)
    mesh = Mesh.from_arrays(points, cells)
    order = np.random.default_rng(seed).permutation(len(points))
    place = np.argsort(order)
    shuffled = {name: _renamed(rows, place) for name, rows in cells.items()}
    other = Mesh.from_arrays(points[order], shuffled)
    assert_close(other.normals, mesh.normals[torch.from_numpy(order)], **EXACT)
    assert_close(other.point_volumes, mesh.point_volumes[torch.from_numpy(order)], **EXACT)
    edges = place[mesh.edges]
    np.testing.assert_array_equal(other.edges, edges[:, np.lexsort(edges[::-1])])


def _renamed(rows, place):
    return place[rows] if isinstance(rows, np.ndarray) else [[place[face].tolist() for face in cell] for cell in rows]


@few
@given(kinds, sizes, seeds)
def test_a_moved_mesh_has_the_same_graph_and_volumes_and_moved_normals(kind, size, seed):
    mesh = box(kind, size, jitter=0.2, seed=seed).with_patches(
        {"left": lambda x: x[:, 0] < 1e-9, "around": lambda x: np.abs(x[:, 1] - 0.5) > 0.5 - 1e-9}
    )
    mesh = mesh.with_fields({"position": mesh.points, "square": mesh.points[:, :, None] * mesh.points[:, None]})
    generator = np.random.default_rng(seed)
    rotation = torch.from_numpy(ortho_group(mesh.space, seed=generator).rvs())
    moved = mesh.moved(rotation, torch.from_numpy(generator.normal(size=mesh.space)))
    assert (moved.cell_volumes > 0).all()
    assert_close(moved.cell_volumes, mesh.cell_volumes, **EXACT)
    np.testing.assert_array_equal(moved.edges, mesh.edges)
    assert_close(moved.normals, mesh.normals @ rotation.T, **EXACT)
    assert_close(moved.fields["position"], mesh.points @ rotation.T, **EXACT)
    assert_close(moved.fields["square"], rotation @ mesh.fields["square"] @ rotation.T, **EXACT)
    for name in mesh.patches:
        assert_close(moved.point_normals([name]), mesh.point_normals([name]) @ rotation.T, **EXACT)
        assert_close(moved.distance_to([name]), mesh.distance_to([name]), **EXACT)
    # What the moved mesh says of its cells is what a check from the start would say.
    again = Mesh.from_arrays(moved.points, moved._cells)
    np.testing.assert_array_equal(again.connectivity, moved.connectivity)


@few
@given(st.sampled_from(PLANE_TYPES), sizes, st.floats(0, 1), seeds)
def test_a_triangulated_mesh_has_the_same_boundary_and_fewer_neighbours(kind, size, share, seed):
    mesh = box(kind, size, jitter=0.3, seed=seed).with_patches(
        {"left": lambda x: x[:, 0] < 1e-9, "around": lambda x: np.abs(x[:, 1] - 0.5) > 0.5 - 1e-9}
    )
    mesh = mesh.with_patch_facets({"some": mesh.facets.take(np.array([0, 3]))}).with_fields({"p": mesh.points[:, 0]})
    split = triangulated(mesh, share, seed)
    assert split.points is mesh.points
    assert_close(split.fields["p"], mesh.fields["p"], rtol=0, atol=0)
    # What the split mesh says of its cells is what a check from the start would say.
    again = Mesh.from_arrays(split.points, split._cells)
    np.testing.assert_array_equal(again.connectivity, split.connectivity)
    halved = (mesh.cell_types == QUAD).sum() - (split.cell_types == QUAD).sum()
    assert split.number_of_cells == mesh.number_of_cells + halved
    assert_close(split.cell_volumes.sum(), mesh.cell_volumes.sum(), **EXACT)
    assert (split.cell_volumes > 0).all()
    assert_close(split.normals, mesh.normals, **EXACT)
    for name, patch in mesh.patches.items():
        assert _rows(split.facets.take(split.patch(name).facets)) == _rows(mesh.facets.take(patch.facets))
        np.testing.assert_array_equal(split.patch(name).points, patch.points)
    neighbours, fewer = ({tuple(pair) for pair in one.edges.T.tolist()} for one in (mesh, split))
    assert fewer <= neighbours
    # Each quad that is split loses one diagonal, there and back.
    assert len(neighbours) - len(fewer) == 2 * halved


def _rows(facets: Facets) -> list[tuple[int, ...]]:
    return sorted(map(tuple, facets.connectivity.reshape(-1, 2).tolist()))


@few
@given(sizes, st.floats(0, 1), seeds)
def test_a_mesh_triangulated_and_moved_has_the_graph_of_one_moved_and_triangulated(size, share, seed):
    mesh = box("quad", size, jitter=0.3, seed=seed)
    rotation = torch.from_numpy(ortho_group(2, seed=np.random.default_rng(seed)).rvs())
    shift = torch.tensor([3.0, -2.0]).double()
    one = triangulated(mesh.moved(rotation, shift), share, seed)
    other = triangulated(mesh, share, seed).moved(rotation, shift)
    np.testing.assert_array_equal(one.edges, other.edges)


@few
@given(kinds, kinds, seeds)
def test_a_union_is_its_parts_side_by_side(one, other, seed):
    parts = [
        box(kind, 2, jitter=0.2, seed=seed) for kind in (one, other) if (kind in SOLID_TYPES) == (one in SOLID_TYPES)
    ]
    parts = [part.with_patches({"left": lambda x: x[:, 0] < 1e-9, f"only{i}": [0, 1]}) for i, part in enumerate(parts)]
    union = Mesh.concatenate(parts)
    assert_close(union.points, torch.cat([part.points for part in parts]))
    assert_close(union.normals, torch.cat([part.normals for part in parts]), rtol=0, atol=0)
    assert_close(union.point_normals("left"), torch.cat([part.point_normals("left") for part in parts]), rtol=0, atol=0)
    assert_close(union.cell_volumes, torch.cat([part.cell_volumes for part in parts]), rtol=0, atol=0)
    starts = np.cumsum([0, *[part.number_of_points for part in parts]])
    edges = np.concatenate([part.edges + start for part, start in zip(parts, starts, strict=False)], axis=1)
    np.testing.assert_array_equal(union.edges, edges)
    np.testing.assert_array_equal(union.patch("only0").points, [0, 1])
    assert len(union.patches) == 1 + len(parts)
    assert parts[0].parts == (parts[0],)
    assert Mesh.concatenate([union, parts[0]]).parts == (*parts, parts[0])


@settings(few, max_examples=EXAMPLES // 2)
@given(kinds, seeds, st.sampled_from([".vtu", ".vtk", ".vtkhdf"]))
def test_a_saved_mesh_comes_back_with_its_patches_and_fields(kind, seed, suffix):
    mesh = box(kind, 2, jitter=0.2, seed=seed).with_patches({"left": lambda x: x[:, 0] < 1e-9})
    some = mesh.facets.take(np.array([0, 3]))
    mesh = mesh.with_patch_facets({"some": some, "whole": mesh.facets}).with_fields(
        {
            "pressure": mesh.points[:, 0],
            "velocity": mesh.points.float(),
            "strain": mesh.points[:, :, None] * mesh.points[:, None],
            "history": torch.rand(mesh.number_of_points, 4),
            "number": torch.arange(mesh.number_of_points),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        mesh.save(Path(folder) / f"mesh{suffix}")
        again = Mesh.read(Path(folder) / f"mesh{suffix}")
    assert_close(again.points, mesh.points, rtol=0, atol=0)
    np.testing.assert_array_equal(again.connectivity, mesh.connectivity)
    np.testing.assert_array_equal(again.cell_types, mesh.cell_types)
    assert again.fields.keys() == mesh.fields.keys()
    for name, field in mesh.fields.items():
        assert_close(again.fields[name], field, rtol=0, atol=0)
    assert again.patches.keys() == mesh.patches.keys()
    for name, patch in mesh.patches.items():
        np.testing.assert_array_equal(again.patch(name).points, patch.points)
        np.testing.assert_array_equal(again.patch(name).facets, patch.facets)
