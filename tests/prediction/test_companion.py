"""Predictions on a companion: when one is made, and what the user's mesh gets."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pennlab.datasets.split_quads import triangulated
from pennpde.case import Case
from pennpde.case.companion import CompanionError, back
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.ducts import flow_network
from pennpde.penn import PENN
from pennpde.prediction import predict
from pennpde.trust.certificate import describe, spanned
from problems import brick, heated_plate, rectangle


@pytest.fixture(scope="module")
def network() -> PENN:
    torch.manual_seed(0)
    return flow_network(width=4, iterations=3, pressure_iterations=2).double().eval()


@pytest.fixture(scope="module")
def ranges() -> dict[str, tuple[float, float]]:
    """Of a network that was trained on quads and triangles of six cells a unit length."""
    mesh = coarse_mesh("a_0.40", cells_per_length=6)
    return spanned([flow_case(mesh), flow_case(triangulated(mesh))])


def user_case(cells_per_length: float) -> Case:
    mesh = coarse_mesh("a_0.40", cells_per_length=cells_per_length)
    return Case(
        mesh,
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (0.1, 0.0), "wall": 0.0}, "p": {"outlet": 0.3}},
        neumann={"u": {"outlet": 0.0}, "p": 0.0},
        parameters={"viscosity": 1e-4},
    )


@pytest.mark.slow
def test_a_finer_mesh_gets_what_the_network_finds_at_its_own_spacing(network, ranges):
    fine, own = user_case(12.0), user_case(6.0)
    outcome, expected = predict(network, fine, ranges, resolution="network"), predict(network, own, ranges)
    assert outcome.companion is not None
    assert outcome.companion.number_of_points == pytest.approx(own.number_of_points, rel=0.1)
    there = back(outcome.fields, triangulated(fine.mesh), own.mesh)
    # Two meshes of one spacing differ by their discretisation, with six cells a unit length by this much of the inflow.
    # (The pressure of an untrained network is mostly that of corners, where meshes differ most.)
    assert float((there["u"] - expected.fields["u"]).square().mean().sqrt()) < 0.03 * 0.1
    # And it is nothing but what the network finds on the companion, at the points of the user.
    found = predict(network, outcome.companion, ranges, resolution="own").fields
    for name, values in back(found, outcome.companion.mesh, fine.mesh).items():
        assert_close(outcome.fields[name], fine.dirichlet[name].apply(values), rtol=0, atol=1e-10)


def test_prescribed_values_are_exact_on_the_mesh_of_the_user(network, ranges):
    outcome = predict(network, user_case(12.0), ranges, resolution="network")
    for name, condition in outcome.case.dirichlet.items():
        assert torch.equal(outcome.fields[name][condition.mask], condition.values[condition.mask])
    assert outcome.certificate.dirichlet == {"u": 0, "p": 0}
    assert outcome.case.number_of_points == len(outcome.fields["p"])
    assert "0.1 in" in outcome.certificate.check("flux imbalance").text
    assert outcome.seconds.keys() == {"prepare", "operators", "network", "certificate", "companion"}


def test_a_slip_wall_of_the_user_lets_nothing_through(network, ranges):
    case = user_case(9.0)
    case = Case(
        case.mesh.with_patches({"lid": lambda x: np.isclose(x[:, 1], 2.0)}),
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0)}, "p": {"outlet": 0.0}},
        slip={"u": ["lid"]},
        parameters={"viscosity": 1e-3},
        features={"wall_distance": case.mesh.distance_to("wall")},
    )
    outcome = predict(network, case, ranges, resolution="network")
    lid = torch.from_numpy(case.mesh.patch("lid").points)
    free = lid[~case.dirichlet["u"].mask[lid]]
    assert float(outcome.fields["u"][free, 1].abs().amax()) < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells_per_length", "companion"), [(5.0, True), (5.8, False), (6.2, False), (7.5, True), (12.0, True)]
)
def test_a_mesh_finer_or_coarser_than_those_of_training_gets_a_companion(network, ranges, cells_per_length, companion):
    case = user_case(cells_per_length)
    outcome = predict(network, case, ranges)
    assert (outcome.companion is not None) == companion
    size = {each.name: each for each in outcome.certificate.compared}["mean cell size"]
    assert size.inside
    if companion:
        assert outcome.companion is not None
        assert size.value == pytest.approx(describe(outcome.companion)["mean cell size"])
        assert outcome.certificate.notes == (
            f"Predicted on a companion mesh of {outcome.companion.mesh.number_of_cells} triangles of the network's "
            f"cell size, interpolated to your {case.number_of_points} points.",
        )
        assert any("note: Predicted on a companion" in line for line in outcome.certificate.lines())
        assert outcome.certificate.as_dict()["notes"] == list(outcome.certificate.notes)
    else:
        assert outcome.certificate.notes == ()


def test_a_graded_mesh_gets_a_companion(network, ranges):
    graded = user_case(6.0)
    # As many cells, but towards the outlet twice as long and at the inlet hardly any length at all.
    x, y = graded.mesh.points.T
    graded = replace(graded, mesh=replace(graded.mesh, points=torch.stack([x**3 / 9, y], dim=1)))
    mean = describe(graded)["mean cell size"] / describe(user_case(6.0))["mean cell size"]
    assert mean == pytest.approx(1.0, abs=0.15)
    assert predict(network, graded, ranges).companion is not None


def test_a_network_that_has_seen_no_triangles_or_does_not_tell_stays_with_the_mesh_of_the_user(network, ranges):
    fine = user_case(12.0)
    quads_alone = ranges | {"typical number of neighbours": (8.0, 8.0)}
    untold = {name: ends for name, ends in ranges.items() if name != "typical number of neighbours"}
    for known in (quads_alone, untold, None):
        outcome = predict(network, fine, known)
        assert outcome.companion is None
        assert outcome.certificate.notes == ()
    assert predict(network, fine, ranges, resolution="own").companion is None
    assert predict(network, fine, quads_alone, resolution="network").companion is not None


def test_a_network_of_coarse_cells_stays_with_the_mesh_of_a_narrow_domain_and_says_why(network, ranges):
    narrow = Case(
        rectangle((60, 6), (3.0, 0.1)),
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}},
        parameters={"viscosity": 1e-3},
    )
    outcome = predict(network, narrow, ranges, length=1.0)
    assert outcome.companion is None
    assert "thinner than the spacing" in outcome.certificate.notes[0]
    with pytest.raises(CompanionError, match="thinner than the spacing"):
        predict(network, narrow, ranges, length=1.0, resolution="network")


def test_a_companion_of_very_many_points_is_not_made_unasked(network, ranges):
    outcome = predict(network, user_case(6.0), ranges | {"mean cell size": (1e-3, 2e-3)})
    assert outcome.companion is None
    assert "ask for them with the resolution" in outcome.certificate.notes[0]


def test_the_network_s_resolution_is_refused_where_there_is_none(network, ranges):
    with pytest.raises(ValueError, match="does not record the cell sizes"):
        predict(network, user_case(6.0), resolution="network")
    with pytest.raises(ValueError, match="The resolution is 'fine'; it may be 'auto', 'own', 'network'"):
        predict(network, user_case(6.0), ranges, resolution="fine")  # type: ignore[arg-type]
    solid = brick((3, 3, 3), 1 / 3).with_patches({"low": lambda x: np.isclose(x[:, 0], 0.0)})
    space = Case(solid, initial={"u": [0.0, 0.0, 0.0], "p": 0.0}, dirichlet={"u": {"low": (1.0, 0.0, 0.0)}})
    with pytest.raises(ValueError, match="only two-dimensional cases can be remeshed"):
        predict(network, space, ranges, resolution="network")


def test_a_series_on_a_plate_goes_back_with_all_of_its_times():
    from pennpde.models.advection_diffusion import advection_diffusion_network

    torch.manual_seed(1)
    heat = advection_diffusion_network(width=4, iterations=2, hidden=8).double().eval()
    coarse = heated_plate(cells=(8, 8))
    outcome = predict(heat, replace(heated_plate(cells=(20, 20)), features={}), spanned([coarse]), resolution="network")
    assert outcome.fields["T"].shape == (441, 4)
    assert outcome.certificate.dirichlet == {"T": 0}
    assert outcome.companion is not None
    assert outcome.companion.features.keys() == {"inlet_distance"}
