"""The cheapest level of accuracy whose expected error is small enough is taken."""

import pytest

from any_time import AnyTime
from calibrated import made_up
from flow_problems import flow, square
from pennpde.prediction import predict

ERRORS = {"low": 0.1, "middle": 0.02, "high": 0.004}


class Levelled(AnyTime):
    """Three levels with known errors; the lowest may diverge."""

    levels = tuple(ERRORS)

    def __init__(self, diverges: bool = False) -> None:
        super().__init__()
        self.chosen, self.diverges, self.used = "high", diverges, []
        calibrations = {name: made_up(error) for name, error in ERRORS.items()}
        object.__setattr__(self, "checkpoint_calibrations", calibrations)

    @property
    def level(self) -> str:
        return self.chosen

    def set_level(self, level: str) -> None:
        self._check_level(level)
        self.chosen = level

    def solve(self, case, times=None):
        self.used.append(self.chosen)
        if self.diverges and self.chosen == "low":
            raise ArithmeticError("diverged")
        return super().solve(case, times)


@pytest.mark.parametrize(
    ("accuracy", "used"),
    [
        (30, ["low"]),
        (5, ["low", "middle"]),
        (1, ["low", "middle", "high"]),
        (0.01, ["low", "middle", "high"]),  # the best there is, although it is not good enough
    ],
)
def test_levels_are_tried_until_one_is_accurate_enough(accuracy, used):
    network = Levelled()
    outcome = predict(network, flow(square("quad", 6)), times=[4.0], resolution="own", accuracy=accuracy)
    assert network.used == used
    assert outcome.expected.errors["u"].expected == pytest.approx(ERRORS[used[-1]], rel=0.2)
    assert network.level == "high", "the network is left as it was"


def test_a_level_that_diverges_is_passed_over():
    network = Levelled(diverges=True)
    predict(network, flow(square("quad", 6)), times=[4.0], resolution="own", accuracy=50)
    assert network.used == ["low", "middle"]


def test_an_accuracy_that_is_no_share_of_hundred_is_refused():
    with pytest.raises(ValueError, match=r"accuracy is 0; it is in per cent"):
        predict(Levelled(), flow(square("quad", 6)), times=[4.0], accuracy=0)
