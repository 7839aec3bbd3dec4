"""Meshes of plane flows: they fill the domain, patches cover their boundary, and cells are well shaped."""

import numpy as np
import pytest

from pennlab.datasets.plane_flow import flows, meshes
from pennlab.datasets.plane_flow.cases import case_on_mesh
from pennlab.datasets.plane_flow.dual import dual_of, renumbered
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.datasets.plane_flow.meshes import KINDS, MeshPlan
from pennlab.datasets.plane_flow.shapes import FAMILIES
from pennlab.datasets.plane_flow.start import potential_velocity
from pennlab.datasets.plane_flow.truth import truth_triangles
from pennpde.mesh.cells import cross
from pennpde.mesh.triangulation import smallest_angles

COARSE = Resolution(3.0)


def corners_of(mesh, size):
    cells = meshes.cells_of(mesh).get({3: "triangle", 4: "quad"}[size])
    return mesh.points.numpy()[cells] if cells is not None else np.zeros((0, size, 2))


def areas(corners):
    return 0.5 * sum(
        cross(corners[:, place], corners[:, (place + 1) % corners.shape[1]]) for place in range(corners.shape[1])
    )


def check_network_mesh(flow, mesh):
    triangles, quads = corners_of(mesh, 3), corners_of(mesh, 4)
    # The area of the polygon that the boundary points make, which curves only just exceed or fall short of.
    total = float(areas(triangles).sum() + areas(quads).sum())
    assert total == pytest.approx(flow.domain.area, rel=0.02)
    assert areas(triangles).min(initial=1.0) > 0
    assert areas(quads).min(initial=1.0) > 0
    if len(triangles):
        assert smallest_angles(triangles).min() > 8.0
    for place in range(4 if len(quads) else 0):
        before, after = quads[:, place - 1] - quads[:, place], quads[:, (place + 1) % 4] - quads[:, place]
        sine = cross(after, before) / np.sqrt((before**2).sum(axis=1) * (after**2).sum(axis=1))
        assert sine.min() > 0.3
    # Patches: every edge of the boundary is in one of them, and in no other.
    assert set(mesh.patches) == set(flow.conditions)
    found = np.concatenate([patch.facets for patch in mesh.patches.values()])
    assert sorted(found.tolist()) == list(range(len(mesh.facets)))


@pytest.mark.parametrize(
    ("name", "kind"), [*(("cavity_0003", kind) for kind in KINDS), ("round-bodies_0033", "lattice")]
)
def test_meshes_of_every_kind_fill_the_domain_with_good_cells(name, kind):
    flow = flows.draw_flow(name)
    check_network_mesh(flow, meshes.network_mesh(flow, MeshPlan(kind, 13.0, 0.5, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_meshes_of_every_family_fill_the_domain_with_good_cells(family):
    for number in range(4):
        flow = flows.draw_flow(flows.flow_name(family, number))
        for plan in meshes.mesh_plans(flow):
            check_network_mesh(flow, meshes.network_mesh(flow, plan))


def test_the_two_meshes_of_a_flow_differ_in_kind_and_are_of_the_promised_fineness():
    low, high = meshes.POINTS_PER_WIDTH
    kinds = set()
    for number in range(20):
        one, other = meshes.mesh_plans(flows.draw_flow(flows.flow_name("bend", number)))
        assert one.kind != other.kind
        assert all(low <= plan.points_per_width <= high for plan in (one, other))
        kinds |= {one.kind, other.kind}
    assert kinds == set(KINDS)


# The truth's cells


@pytest.mark.parametrize("name", ["cavity_0003", "round-bodies_0033", "y-junction_0001"])
def test_cells_of_the_truth_fill_the_domain_are_closed_and_know_their_patches(name):
    flow = flows.draw_flow(name)
    triangles = truth_triangles(flow, COARSE)
    assert smallest_angles(triangles.points[triangles.triangles]).min() > 20.0
    dual = dual_of(triangles)
    assert dual.areas.min() > 0
    outline = cross(*triangles.points[triangles.edges.T]).sum() / 2
    assert dual.areas.sum() == pytest.approx(outline)
    # The faces of a cell, as vectors that point outward, add up to nothing.
    mesh, sides = dual.mesh, dual.mesh.patches["frontAndBack"].start
    first, last = (mesh.points[mesh.face_points[mesh.face_offsets[:sides] + place], :2] for place in (0, 1))
    inner = len(mesh.neighbour)
    for axis in range(2):
        vector = (last - first)[:, axis]
        total = np.bincount(mesh.owner[:sides], vector, len(dual.areas))
        total -= np.bincount(mesh.neighbour, vector[:inner], len(dual.areas))
        assert np.abs(total).max() < 1e-9
    lengths = flow.domain.lengths()
    for patch, found in dual.face_lengths.items():
        assert found.sum() == pytest.approx(lengths[patch], rel=0.01)


def test_renumbering_keeps_the_triangles():
    triangles = truth_triangles(flows.draw_flow("cavity_0003"), COARSE)
    again = renumbered(triangles)
    mine, theirs = (np.sort(areas(each.points[each.triangles])) for each in (triangles, again))
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.slow
def test_the_start_of_the_truth_carries_the_inflow_through_every_outlet():
    flow = flows.draw_flow("tee_0000")
    triangles = truth_triangles(flow, COARSE)
    velocity = potential_velocity(flow, triangles)
    leaving = 0.0
    for name in flow.outlets:
        edges = triangles.edges[triangles.patches[name]]
        along = triangles.points[edges[:, 1]] - triangles.points[edges[:, 0]]
        middle = velocity[edges].mean(axis=1)
        leaving += float((middle[:, 0] * along[:, 1] - middle[:, 1] * along[:, 0]).sum())
    assert leaving == pytest.approx(flow.inflow(), rel=0.03)  # linear elements: gradients are of first order


def test_where_patches_meet_walls_at_rest_hold():
    flow = flows.draw_flow("cavity_0003")
    mesh = meshes.network_mesh(flow, MeshPlan("triangles", 12.0, 0.5, 1))
    case = case_on_mesh(flow, mesh)
    corners = np.intersect1d(mesh.patch("lid").points, mesh.patch("wall").points)
    assert len(corners) == 2
    assert case.dirichlet["u"].values[corners].abs().max() == 0
    inside_lid = np.setdiff1d(mesh.patch("lid").points, corners)
    assert (case.dirichlet["u"].values[inside_lid, 0] == 1).all()
    assert case.dirichlet["p"].mask.sum() == 1
