"""Triangle meshes of the ducts: they fill the duct, with sound triangles and no structure."""

import numpy as np
import pytest
import torch

from pennlab.datasets.fine_mesh import FineMesh
from pennlab.datasets.flow import cases as flow
from pennlab.datasets.flow import triangles as triangle_meshes
from pennlab.datasets.flow import truth as flow_truth
from pennlab.datasets.flow.triangles import smallest_angles, triangle_mesh
from pennpde.mesh import Mesh
from pennpde.models import designs as ducts

pytestmark = pytest.mark.slow  # CI runs them

NAMES = ("a_0.00", "a_1.00", "b_0.30_0.70", "b_1.00_1.00", "c_0.00_1.00", "c_0.80_0.30")


@pytest.mark.parametrize("name", NAMES)
def test_triangles_fill_the_duct_and_their_patches_its_boundary(name):
    mesh, quads = triangle_mesh(name, 15.0), flow.coarse_mesh(name, cells_per_length=15.0)
    assert np.diff(mesh.offsets).tolist() == [3] * mesh.number_of_cells
    assert mesh.cell_volumes.min() > 0
    assert mesh.cell_volumes.sum().item() == pytest.approx(quads.cell_volumes.sum().item())
    facets = np.concatenate([mesh.patch(patch).facets for patch in quads.patches])
    assert sorted(facets) == list(range(len(mesh.facets)))
    for patch in quads.patches:
        lengths = [each.facet_areas.norm(dim=1)[each.patch(patch).facets].sum().item() for each in (mesh, quads)]
        assert lengths[0] == pytest.approx(lengths[1])


@pytest.mark.parametrize("name", NAMES)
def test_points_are_as_dense_as_in_a_mesh_of_squares(name):
    mesh = triangle_mesh(name, 15.0)
    # A point inside stands for a square of the spacing, one on a side for half of it.
    squares = mesh.number_of_points - len(mesh.boundary_points) / 2
    assert squares == pytest.approx(15.0**2 * mesh.cell_volumes.sum().item(), rel=0.05)
    lengths = mesh.facet_areas.norm(dim=1) * 15.0
    assert 0.9 < lengths.min() < lengths.max() < 1.1


@pytest.mark.parametrize("name", NAMES)
def test_triangles_are_sound_and_have_no_structure(name):
    mesh = triangle_mesh(name, 15.0)
    angles = smallest_angles(mesh)
    assert angles.min() > 20
    assert angles.mean() > 48  # 60 if all were equilateral
    inside = np.setdiff1d(np.arange(mesh.number_of_points), mesh.boundary_points)
    neighbours = np.bincount(np.bincount(mesh.edges[0])[inside], minlength=8) / len(inside)
    assert neighbours[6] < 0.6  # 1 in a lattice
    assert neighbours[5] > 0.15
    assert neighbours[7] > 0.15


def test_the_mesh_is_the_case_s_own_and_repeatable():
    first, again = triangle_mesh("a_0.50", 10.0), triangle_mesh("a_0.50", 10.0)
    assert torch.equal(first.points, again.points)
    np.testing.assert_array_equal(first.connectivity, again.connectivity)
    other = triangle_mesh("a_0.50", 10.0, seed=1)
    assert first.points.shape != other.points.shape or not torch.equal(first.points, other.points)


def test_an_angle_that_is_too_small_is_refused(monkeypatch):
    monkeypatch.setattr(triangle_meshes, "_SMALLEST_ANGLE", 59.0)
    with pytest.raises(ValueError, match=r"smallest angle of .* degrees"):
        triangle_mesh("a_0.50", 10.0)


def test_the_smallest_angle_of_a_triangle_is_found_at_every_corner():
    for corners in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        mesh = Mesh.from_arrays([[0.0, 0.0], [3**0.5, 0.0], [0.0, 1.0]], {"triangle": [corners]})
        assert smallest_angles(mesh) == pytest.approx([30.0])


def test_a_run_gives_a_case_on_any_mesh_of_its_duct():
    name = "c_0.80_0.30"
    points, quads = ducts.duct(name).grid(9.0)
    whole = Mesh.from_arrays(points, quads)
    edges, cells = whole.facets.connectivity.reshape(-1, 2), whole.facets.cells
    on = {patch: ducts.duct(name).on_patch(patch, points[edges].mean(axis=1)) for patch in ducts.duct(name).patches}
    fine = FineMesh(points, quads, {p: edges[m] for p, m in on.items()}, {p: cells[m] for p, m in on.items()})
    x, y = fine.centres.T
    run = flow_truth.Run(
        fine,
        np.array([0.0, 4.0]),
        np.stack([np.stack([x, y], axis=1)] * 2),
        np.stack([0 * x, 2 * x - y]),
        {"name": name},
    )
    case = flow.case_on_mesh(run, triangle_mesh(name, 6.0))
    x, y = case.mesh.points.T
    # Half a fine cell off the boundary, where the prescribed values do not reach.
    inside = (case.features["wall_distance"] > 0.12) & (x > 0.12) & (x < 2.88)
    assert inside.sum() > 50
    torch.testing.assert_close(case.targets["u"][inside], case.mesh.points[inside])
    torch.testing.assert_close(case.targets["p"][inside], (2 * x - y)[inside])
    for unknown in ("u", "p"):
        condition = case.dirichlet[unknown]
        assert torch.equal(case.targets[unknown][condition.mask], condition.values[condition.mask])
    assert case.name == name
