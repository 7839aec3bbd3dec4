"""Both searches find what is known, keep limits, and survive designs that have no flow."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from pennpde.study.optimisation.evolution import evolve
from pennpde.study.optimisation.flows import NoSteadyStateError, UnsoundShapeError
from pennpde.study.optimisation.search import Limit, descend


@dataclass
class Formula:
    """Designs whose quantities are formulas."""

    rows: list
    slopes: list
    broken: object = lambda _: False
    errors: object = lambda at: np.zeros(3)
    tried: list = field(default_factory=list)

    def values(self, position):
        return dict(enumerate(position.tolist()))

    def trial(self, position, near=None):
        self.tried.append(position)
        if self.broken(position):
            raise UnsoundShapeError("cells are inverted")
        return FormulaTrial(self, position)


@dataclass
class FormulaTrial:
    designs: Formula
    position: np.ndarray

    @property
    def numbers(self):
        return np.array([each(*self.position) for each in self.designs.rows])

    @property
    def gradients(self):
        return np.array([each(*self.position) for each in self.designs.slopes])

    @property
    def errors(self):
        return self.designs.errors(self.position)


def bowl(x, y):
    return 1 + (x - 0.7) ** 2 + 10 * (y - 0.4 - 0.5 * (x - 0.7)) ** 2


def bowl_slope(x, y):
    across = 20 * (y - 0.4 - 0.5 * (x - 0.7))
    return [2 * (x - 0.7) - 0.5 * across, across]


def line(x, y):
    return x + y


LIMIT = Limit(-np.inf, 0.9)
"""Of x + y, which is 1.1 at the bottom of the bowl."""


@pytest.mark.parametrize("search", [descend, evolve])
def test_the_bottom_is_found(search):
    found = search(Formula([bowl], [bowl_slope]), np.array([0.1, 0.9]), most=400)
    np.testing.assert_allclose(found.best.position, [0.7, 0.4], atol=0.02)
    assert found.steps[0].trials == 1
    numbers = [step.objective for step in found.steps]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("search", [descend, evolve])
def test_a_limit_is_kept_and_used_up(search):
    found = search(Formula([bowl, line], [bowl_slope, lambda *_: [1, 1]]), np.array([0.1, 0.9]), [LIMIT], most=400)
    assert found.best.numbers[1] == pytest.approx(0.9, abs=2e-3)
    # On x + y = 0.9 the bowl's value is (x - 0.7)² + 10 (0.85 - 1.5 x)², whose bottom is at x = 13.45 / 23.5.
    assert found.best.position[0] == pytest.approx(13.45 / 23.5, abs=0.02)


def test_a_limit_that_costs_much_is_kept_all_the_same():
    steep = Formula([lambda x, y: 1 - 90 * x + y, line], [lambda *_: [-90, 1], lambda *_: [1, 1]])
    found = descend(steep, np.array([0.1, 0.1]), [LIMIT])
    np.testing.assert_allclose(found.best.position, [0.9, 0.0], atol=2e-3)


@pytest.mark.parametrize("search", [descend, evolve])
def test_designs_without_a_flow_are_gone_around(search):
    designs = Formula([bowl], [bowl_slope], broken=lambda at: at[0] > 0.5)
    found = search(designs, np.array([0.1, 0.9]), most=400)
    assert found.broken > 0
    assert found.best.position[0] == pytest.approx(0.5, abs=0.01)


def test_gradients_take_few_flows():
    found = descend(Formula([bowl], [bowl_slope]), np.array([0.1, 0.9]))
    assert found.trials <= 15
    assert "gain" in found.reason


def test_the_search_ends_where_the_error_hides_the_gain():
    designs = Formula([bowl], [bowl_slope], errors=lambda at: np.array([0.05 * np.sin(40 * at[0])]))
    found = descend(designs, np.array([0.1, 0.9]))
    assert "expected error" in found.reason
    assert found.trials < descend(Formula([bowl], [bowl_slope]), np.array([0.1, 0.9])).trials


@pytest.mark.parametrize("search", [descend, evolve])
def test_no_more_flows_are_solved_than_allowed(search):
    designs = Formula([bowl], [bowl_slope])
    found = search(designs, np.array([0.1, 0.9]), most=3)
    assert found.trials == 3 == len(designs.tried)
    assert found.reason.startswith("3 flows")


@pytest.mark.parametrize("search", [descend, evolve])
def test_a_first_design_without_a_flow_says_why(search):
    designs = Formula([bowl], [bowl_slope], broken=lambda _: True)
    with pytest.raises((UnsoundShapeError, NoSteadyStateError), match="inverted"):
        search(designs, np.array([0.1, 0.9]))
