"""The problem of a case, carried over to a companion of its mesh."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from companions import SPACING
from pennpde.case import Case, Dirichlet
from pennpde.case.companion import companion_mesh, ends_of_conditions, on_companion
from pennpde.models.designs import flow_case
from pennpde.models.ducts import complete_flow
from problems import rectangle


def test_the_problem_of_a_duct_is_that_of_its_companion(pairs):
    mesh, companion = pairs["step"]
    case, expected = on_companion(flow_case(mesh), companion), flow_case(companion)
    for name in ("u", "p"):
        assert torch.equal(case.dirichlet[name].mask, expected.dirichlet[name].mask)
        assert_close(case.dirichlet[name].values, expected.dirichlet[name].values)
        assert torch.equal(case.neumann[name].mask, expected.neumann[name].mask)
        assert_close(case.neumann[name].normals, expected.neumann[name].normals)
    assert case.parameters == expected.parameters
    assert case.targets == {}


def test_what_is_not_given_is_worked_out_on_the_companion(pairs):
    mesh, companion = pairs["step"]
    given = flow_case(mesh)
    bare = replace(given, initial={name: torch.zeros_like(each) for name, each in given.initial.items()}, features={})
    case, expected = complete_flow(on_companion(bare, companion)), flow_case(companion)
    assert_close(case.features["wall_distance"], expected.features["wall_distance"])
    assert_close(case.initial["u"], expected.initial["u"])


def test_conditions_follow_the_boundary_linearly_and_a_corner_keeps_its_own():
    mesh = rectangle((30, 30))
    height = mesh.points[:, 1]
    profile = torch.stack([1 + 2 * height, 0 * height], dim=1)
    case = Case(
        mesh,
        initial={"u": torch.sin(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": profile}, "p": {"outlet": 0.3}},
        neumann={"p": {"inlet": height - 4}},
        slip={"u": ["side"]},
    )
    companion = companion_mesh(mesh, SPACING)
    found = on_companion(case, companion)
    inlet = torch.from_numpy(companion.patch("inlet").points)
    assert sorted(found.dirichlet["u"].mask.nonzero().ravel().tolist()) == inlet.tolist()
    expected = 1 + 2 * companion.points[inlet, 1]
    assert_close(found.dirichlet["u"].values[inlet, 0], expected)
    assert_close(found.neumann["p"].normal_derivative[inlet], companion.points[inlet, 1] - 4)
    assert_close(found.slip["u"].normals, companion.point_normals("side"))
    # A start that is no first guess is interpolated, and has the prescribed values.
    free = ~found.dirichlet["u"].mask
    assert_close(found.initial["u"][free], torch.sin(companion.points)[free], rtol=0, atol=1e-3)
    assert torch.equal(found.initial["u"][~free], found.dirichlet["u"].values[~free])


def test_an_even_inlet_stays_even_up_to_the_corners_of_the_wall():
    """Companion points within the last facet of a coarser mesh, whose corner is the wall's."""
    mesh = rectangle((3, 3))
    case = Case(mesh, initial={"u": [0.0, 0.0]}, dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}})
    found = on_companion(case, companion_mesh(mesh, SPACING)).dirichlet["u"]
    inlet = torch.isclose(found.values.new_tensor(0.0), found.values[:, 0]).logical_not()
    assert int(inlet.sum()) == 9  # of eleven points the two corners are the wall's
    assert_close(found.values[inlet], found.values.new_tensor([[1.0, 0.0]]).expand(9, 2))


def test_a_condition_without_a_patch_ends_where_it_ended():
    mesh = rectangle((30, 30))
    held = (mesh.points[:, 0] == 0) & (mesh.points[:, 1] < 0.501)
    case = Case(mesh, initial={"T": 0.0}, dirichlet={"T": Dirichlet(held, held.double())})
    ends = mesh.points[torch.from_numpy(ends_of_conditions(case))]
    assert_close(ends, torch.tensor([[0.0, 0.0], [0.0, 0.5]], dtype=torch.float64))
    companion = companion_mesh(mesh, 0.13, keep=ends_of_conditions(case))
    found = on_companion(case, companion).dirichlet["T"]
    heights = companion.points[found.mask][:, 1]
    assert float(companion.points[found.mask][:, 0].abs().amax()) == 0
    assert (float(heights.amin()), float(heights.amax())) == (0, pytest.approx(0.5))
    assert_close(found.values, found.mask.double())


def test_a_pressure_that_is_fixed_at_one_point_is_fixed_at_the_nearest():
    mesh = rectangle((30, 30))
    point = int((mesh.points - 0.4).norm(dim=1).argmin())
    held = torch.arange(mesh.number_of_points) == point
    case = Case(mesh, initial={"p": 0.0}, dirichlet={"p": Dirichlet(held, 7.0 * held)})
    companion = companion_mesh(mesh, SPACING)
    found = on_companion(case, companion).dirichlet["p"]
    assert found.mask.nonzero().ravel().tolist() == [int((companion.points - mesh.points[point]).norm(dim=1).argmin())]
    assert float(found.values[found.mask]) == 7.0
