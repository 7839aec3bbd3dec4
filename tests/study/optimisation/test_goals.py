"""Goals in words: the quantities of predictions, with the same values and, where there is one, a gradient."""

import math

import numpy as np
import pytest

import pennpde as penn
from pennpde.quantities import parse
from pennpde.study.optimisation.adjoint import value_of
from pennpde.study.optimisation.flows import Family
from pennpde.study.optimisation.goals import Predicted, parse_limits, parse_measure
from pennpde.study.optimisation.measures import FlowRate, Imbalance
from steady_flows import duct, square

CASE = duct(square("triangle", 6, jitter=0.0), viscosity=0.05)


@pytest.mark.parametrize(
    "text",
    [
        "pressure drop left right",
        "total pressure drop left right",
        "pressure drop left right density 1.2",
        "mean pressure left",
        "loss coefficient left right speed 2",
        "flow rate right",
        "flow split right top+right left",
        "drag top",
        "lift top",
        "drag top along 0 1",
        "force x bottom",
        "drag coefficient top+bottom speed 2 length 0.5",
        "probe u 0.4 0.5",
        "probe p 0.4 0.5",
    ],
)
def test_a_goal_is_the_quantity_of_a_prediction(text):
    model = penn.load_pretrained("flow")
    model.set_level("fine")  # nothing is learned there: the same cells, the same scheme
    outcome = penn.predict(model, CASE, steady=True)
    measure = parse_measure(text, CASE)
    assert not isinstance(measure, Predicted)
    found = value_of(Family.of(CASE, "fine").flow(CASE).solved(), measure)
    # Profiles across outlets are taken apart in other ways.
    assert found == pytest.approx(parse(text).of(outcome).values[-1], rel=5e-3, abs=1e-6)


def test_a_quantity_without_gradient_is_predicted():
    measure = parse_measure("uniformity right", CASE)
    assert isinstance(measure, Predicted)
    assert value_of(Family.of(CASE).flow(CASE).solved(), measure) == pytest.approx(1 - 1 / (3 * math.sqrt(3)), rel=0.02)


def test_limits_are_said_in_words():
    ((_, measure, limit),) = parse_limits("flow rate right < 1.5", CASE)
    assert measure == FlowRate("right")
    assert (limit.low, limit.high) == (-math.inf, 1.5)
    ((_, _, limit),) = parse_limits("flow split right top between 20 and 30 %", CASE)
    assert (limit.low, limit.high) == pytest.approx((0.2, 0.3))
    both = parse_limits("flow split right top within 5 %", CASE)
    assert [each for _, each, _ in both] == [FlowRate("right", ("right", "top")), FlowRate("top", ("right", "top"))]
    assert (both[0][2].low, both[0][2].high) == pytest.approx((0.475, 0.525))
    assert both[0][2].missed(0.5) == 0.0
    assert both[0][2].missed(0.6) > 0.1


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("flow rate nowhere < 1", "nowhere"),
        ("flow rate right", "no constraint"),
        ("flow rate right < x", "no constraint"),
    ],
)
def test_a_wrong_limit_says_what_is_right(text, match):
    with pytest.raises(ValueError, match=match):
        parse_limits(text, CASE)


def test_outlets_that_share_equally_have_no_imbalance():
    assert parse_measure("flow imbalance right top", CASE) == Imbalance(("right", "top"))


def test_measured_velocities_come_from_a_file(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text("x, y, u, v\n0.5, 0.5, 1.4, 0\n\n0.2, 0.5, 1.5, 0.1\n")
    measure = parse_measure(f"misfit {path}", CASE)
    np.testing.assert_array_equal(measure.velocities, [[1.4, 0], [1.5, 0.1]])
    path.write_text("x,y,u\n1,2,3\n")
    with pytest.raises(ValueError, match="x,y,u,v"):
        parse_measure(f"misfit {path}", CASE)
