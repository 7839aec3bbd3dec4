"""Flow rates, losses, places and the whole domain."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pennpde import load_pretrained
from pennpde.penn.equation import OUTFLOW, PRESSED, VISCOUS
from pennpde.prediction import Outcome, predict
from pennpde.quantities import Measured, SolvedFlow, parse
from pennpde.quantities.regions import _negative_share
from steady_flows import duct, plain, square


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return predict(load_pretrained("flow"), duct(square("triangle", 10)), times=[0.2], steady=True, resolution="own")


def value(outcome: Outcome | SolvedFlow, text: str) -> float:
    return float(parse(text).of(outcome).values[-1])


def test_what_enters_leaves_to_round_off(outcome):
    assert value(outcome, "flow rate left") + value(outcome, "flow rate right") == pytest.approx(0.0, abs=1e-12)
    assert value(outcome, "flow rate left") == pytest.approx(-1.0, rel=1e-3)
    assert value(outcome, "residence time") == pytest.approx(-1.0 / value(outcome, "flow rate left"))
    with pytest.raises(ValueError, match="nothing flows through these patches in total"):
        value(outcome, "flow split left right")
    assert value(outcome, "flow split right bottom") == 1.0


def test_a_parabola_is_as_uniform_as_its_formula_says(outcome):
    wanted = 1 - 1 / (3 * math.sqrt(3))
    assert value(outcome, "uniformity left") == pytest.approx(wanted, abs=0.003)
    assert value(outcome, "uniformity right") == pytest.approx(wanted, abs=0.003)
    assert value(outcome, "kinetic energy") == pytest.approx(0.6, rel=0.03)  # ∫ (6 y (1 - y))² / 2


def test_places_and_extremes_are_those_of_the_fields(outcome):
    assert value(outcome, "maximum speed") == pytest.approx(np.linalg.norm(outcome["u"][..., -1], axis=1).max())
    point = outcome.case.mesh.points[37]
    there = float(outcome.last["p"][37])
    assert value(outcome, f"probe p {float(point[0])!r} {float(point[1])!r}") == pytest.approx(there, abs=1e-9)
    with pytest.raises(ValueError, match="outside of the fluid"):
        value(outcome, "probe p 3 3")


def test_one_of_several_times_has_the_values_of_its_time(outcome):
    drop = outcome.quantities(["pressure drop left right"])[0]
    assert len(drop.values) == 2
    assert outcome.at(0).quantities(["pressure drop left right"])[0].values == pytest.approx(drop.values[:1])


def test_the_shear_turns_where_it_is_linear_to_the_digit():
    outcome = predict(plain(), duct(square("quad", 10, 0.0)), steady=True, resolution="own")
    flow = outcome.flow
    assert flow is not None
    viscous = np.zeros((1, len(flow.lengths), 2))
    viscous[0, :, 0] = flow.lengths * (flow.middles[:, 0] - 0.2) * (flow.middles[:, 0] - 0.7)
    made = replace(flow, balance={**flow.balance, VISCOUS: viscous})
    # Between middles of facets the product is a chord: half of h² / 4 times its curvature off, over its slope.
    assert value(made, "separation bottom") == pytest.approx(0.2, abs=0.006)
    assert value(made, "reattachment bottom+left") == pytest.approx(0.7, abs=0.006)
    assert value(made, "recirculation length bottom") == pytest.approx(0.5, abs=0.011)
    with pytest.raises(ValueError, match="attached all along"):
        value(outcome, "reattachment bottom")
    assert value(outcome, "recirculation length bottom") == 0.0
    assert value(outcome, "recirculation area") == pytest.approx(0.0, abs=1e-6)


def test_the_negative_share_of_a_triangle_is_that_of_many_points_in_it():
    generator = np.random.default_rng(3)
    corners = generator.normal(size=(50, 3))
    places = generator.dirichlet(np.ones(3), size=40_000)
    counted = (places @ corners.T < 0).mean(axis=0)
    assert _negative_share(corners) == pytest.approx(counted, abs=0.01)
    assert _negative_share(np.array([[0.0, 0.0, 0.0], [0.0, -1.0, -1.0]])).tolist() == [0.0, 1.0]


def test_a_series_has_a_mean_an_amplitude_and_a_frequency():
    times = np.sort(np.random.default_rng(1).uniform(0.0, 10.0, 400))
    times[[0, -1]] = 0.0, 10.0
    found = Measured("lift", tuple(times), 2.0 + 0.5 * np.sin(2 * np.pi * 0.93 * times), None, None, "", 0.5)
    assert found.mean == pytest.approx(2.0, abs=0.02)
    assert found.amplitude == pytest.approx(0.5, rel=0.01)
    assert found.frequency == pytest.approx(0.93, rel=0.01)
    assert found.strouhal == pytest.approx(0.465, rel=0.01)
    assert Measured("drag", tuple(times), np.full(400, 3.0), None, None, "").frequency is None


def test_a_pressure_level_is_in_pressures_and_not_in_their_drop():
    case = duct(square("triangle", 6))
    outlet = replace(case.dirichlet["p"], values=case.dirichlet["p"].values + 7.0)
    higher = replace(case, conditions={**case.conditions, "dirichlet": {**case.dirichlet, "p": outlet}})
    first, second = (predict(plain(), each, steady=True, resolution="own") for each in (case, higher))
    assert value(second, "pressure drop left right") == pytest.approx(value(first, "pressure drop left right"))
    assert value(second, "mean pressure left") == pytest.approx(value(first, "mean pressure left") + 7.0)
    assert value(second, "pressure force y bottom") == pytest.approx(value(first, "pressure force y bottom") - 7.0)


def test_the_error_is_that_of_the_coarser_solution_times_what_was_learned(outcome):
    for text in ("pressure drop left right", "drag bottom", "flow rate right", "maximum speed"):
        found = outcome.quantities([text])[0]
        assert found.error is not None
        assert found.bound is not None
        assert 0 < found.error <= found.bound
    alone = predict(plain(), duct(square("triangle", 6)), steady=True, resolution="own")
    assert alone.quantities(["drag bottom"])[0].error is None  # no level, no coarser solution


def test_balances_are_those_of_all_facets(outcome):
    flow = outcome.flow
    assert flow is not None
    facets = len(flow.lengths)
    assert flow.balance[OUTFLOW].shape == (2, facets)
    assert flow.balance[VISCOUS].shape == flow.balance[PRESSED].shape == (2, facets, 2)
