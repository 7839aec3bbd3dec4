"""The families of shapes: every outline is sound, every patch has a condition, and what flows in can flow out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennlab.datasets.plane_flow import flows
from pennlab.datasets.plane_flow.conditions import PROFILES, Inlet, Outlet, Prescribed, Slip, Wall
from pennlab.datasets.plane_flow.domain import Domain, Piece
from pennlab.datasets.plane_flow.shapes import FAMILIES, TRAINED, UNSEEN
from pennlab.datasets.plane_flow.shapes.soundness import LEAST_GAP, LONGEST, crossings, unsound
from sampling import EXAMPLES

NUMBERS = (0, 1, 5)
TURNING = "round-bodies_0033"
"""A flow around a circle that turns."""


@pytest.fixture(params=FAMILIES, scope="module")
def drawn(request):
    return [flows.draw_flow(flows.flow_name(request.param, number)) for number in NUMBERS]


def flux(path, velocity):
    """What a velocity, given at positions, carries into the domain through a path with the fluid to its left."""
    # Curves are polygons here: at the middle of a chord the tangent of the curve is exact.
    fine = path if len(path) > 2 else np.stack([np.linspace(a, b, 2001) for a, b in zip(*path, strict=True)], axis=1)
    along, middle = np.diff(fine, axis=0), 0.5 * (fine[1:] + fine[:-1])
    there = velocity(middle)
    return float((there[:, 1] * along[:, 0] - there[:, 0] * along[:, 1]).sum())


def test_there_are_at_least_twelve_families_and_three_of_them_are_not_trained_on():
    assert len(TRAINED) >= 12
    assert len(UNSEEN) == 3
    assert not TRAINED.keys() & UNSEEN.keys()


@pytest.mark.slow
def test_outlines_are_closed_do_not_cross_themselves_and_run_around_the_fluid(drawn):
    for flow in drawn:
        assert unsound(flow.domain) == ""
        assert crossings(flow.domain.sides) == 0
        assert flow.domain.area > 0
        for hole in flow.domain.loops[1:]:
            assert Domain((hole,)).area < 0
        # Closed loops: the sides of each add up to nothing.
        for loop in flow.domain.loops:
            sides = Domain((loop,)).sides
            assert np.abs((sides[:, 1] - sides[:, 0]).sum(axis=0)).max() < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_and_any_seed_give_a_sound_flow(family):
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
    @given(number=st.integers(0, 9999), seed=st.integers(0, 2**31))
    def holds(number, seed):
        flow = flows.draw_flow(flows.flow_name(family, number), seed)
        assert crossings(flow.domain.sides) == 0
        for loop in flow.domain.loops:
            # Pieces follow each other, so that patches cover the boundary without gap or overlap.
            for piece, following in zip(loop, (*loop[1:], loop[0]), strict=True):
                assert np.abs(piece.path[-1] - following.path[0]).max() < 1e-9
        assert {piece.patch for piece in flow.domain.pieces} == set(flow.conditions)
        entering = sum(
            flux(piece.path, condition.velocity)
            for piece in flow.domain.pieces
            if isinstance(condition := flow.conditions[piece.patch], Prescribed)
        )
        assert entering == pytest.approx(flow.inflow(), rel=1e-4, abs=1e-6)
        assert bool(flow.outlets) == (flow.inflow() > 0)

    holds()


def test_sizes_are_those_of_the_dataset(drawn):
    for flow in drawn:
        length, height = flows.box_of(flow.domain)
        assert min(length, height) >= 0.5
        assert max(length, height) <= LONGEST


def test_every_patch_of_the_outline_has_a_condition_and_no_other_has(drawn):
    for flow in drawn:
        assert set(flow.conditions) == set(flow.domain.patches)
        lengths = flow.domain.lengths()
        perimeter = sum(piece.length for piece in flow.domain.pieces)
        assert sum(lengths[name] for name in flow.conditions) == pytest.approx(perimeter)
        assert min(lengths.values()) > 0.04


def test_fluid_enters_through_inlets_only_and_as_much_as_their_speed_says(drawn):
    for flow in drawn:
        for name, condition in flow.conditions.items():
            if not isinstance(condition, Prescribed):
                continue
            entering = sum(flux(p.path, condition.velocity) for p in flow.domain.pieces if p.patch == name)
            if isinstance(condition, Wall):
                # Walls move along themselves; circles are polygons, so their chords let through a little.
                assert abs(entering) < 1e-6
            else:
                assert isinstance(condition, Inlet)
                assert entering == pytest.approx(condition.speed * flow.domain.lengths()[name], rel=1e-4)


def test_what_enters_can_leave_and_closed_domains_have_a_place_of_zero_pressure(drawn):
    for flow in drawn:
        assert bool(flow.inlets) == bool(flow.outlets)
        assert (flow.inflow() > 0) == bool(flow.inlets)
        assert (flow.pressure_point is None) == bool(flow.outlets)
        if flow.pressure_point is not None:
            corners = np.array([piece.path[0] for piece in flow.domain.pieces])
            assert np.abs(corners - flow.pressure_point).max(axis=1).min() < 1e-8


def test_the_first_inlet_is_one_wide_and_has_the_mean_speed_one(drawn):
    for flow in drawn:
        if flow.inlets:
            assert flow.domain.lengths()["inlet"] == pytest.approx(1.0)
            assert flow.conditions["inlet"].speed == 1.0


def test_the_conditions_are_of_all_kinds():
    names = [flows.flow_name(family, number) for number in range(8) for family in ("step", "ribs", "cavity")]
    names += ["step_0012", TURNING]
    conditions = [each for name in names for each in flows.draw_flow(name).conditions.values()]
    assert {each.profile for each in conditions if isinstance(each, Inlet)} == set(PROFILES)
    assert {type(each) for each in conditions} == {Inlet, Outlet, Slip, Wall}
    assert {each.symmetry for each in conditions if isinstance(each, Slip)} == {True, False}
    assert any(isinstance(each, Wall) and each.motion != (0.0, 0.0) for each in conditions)
    assert any(isinstance(each, Wall) and each.turning for each in conditions)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_the_mean_one(profile):
    shape = {"tilted": (0.3,), "jet": (0.4, 0.3, 0.1), "tabulated": (0.5, 1.5, 0.7, 1.1, 0.9)}.get(profile, ())
    place = (np.arange(20000) + 0.5) / 20000
    inlet = Inlet((0.0, 1.0), (0.0, 0.0), 1.0, profile, shape)
    assert inlet.normal_speed(place).mean() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("corners", "wrong"),
    [
        ([(0, 0), (3, 0), (3, 1), (1, 1), (1, -0.5), (0.5, -0.5), (0.5, 1), (0, 1)], "crosses"),
        ([(0, 0), (0, 1), (2, 1), (2, 0)], "clockwise"),
        ([(0, 0), (2, 0), (2, 0.5 * LEAST_GAP), (0, 0.5 * LEAST_GAP)], "gap"),
        ([(0, 0), (2 * LONGEST, 0), (2 * LONGEST, 1), (0, 1)], "long"),
        ([(0, 0), (2, 0), (2, 1), (0, 1)], ""),
    ],
)
def test_an_outline_that_cannot_be_meshed_is_refused_and_named(corners, wrong):
    pieces = [Piece.of([a, b], "wall") for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)]
    found = unsound(Domain.of(pieces))
    assert wrong in found
    assert bool(found) == bool(wrong)
