"""Evaluation at moments: each is compared with its own truth, in any units."""

import json
import math
from dataclasses import replace

import pytest
import torch

from pennlab.evaluation import evaluate_moments
from pennpde.case.moments import FOREVER
from pennpde.models.ducts import flow_network
from pennpde.penn import Prediction, Predictor
from small_ducts import duct, flow_in_units


class AnyTime(Predictor):
    """Knows the truth of `duct(k)` and says at time t that it is (1 + t / 100) times as large, 5 % off when steady."""

    takes_times = True

    def __init__(self):
        super().__init__()
        self.equation = flow_network(width=1, iterations=1, pressure_iterations=1).equation
        self.double()

    output_times = (1.0,)
    fulfils_dirichlet = False

    def solve(self, case, times=None):
        truth = duct(int(case.name.rpartition("_")[2])).targets
        factors = torch.tensor(
            [1.05 if time == FOREVER else 1 + time / 100 for time in times or (1.0,)], dtype=torch.float64
        )
        fields = {name: values[..., None] * factors for name, values in truth.items()}
        return Prediction({n: v[..., 0] if len(factors) == 1 else v for n, v in fields.items()}, (), {})

    def forward(self, case):
        return self.solve(case).fields


def with_moments(number: int, count: int, steady: bool):
    case = duct(number)
    targets = {name: torch.stack([values] * count, dim=-1) for name, values in case.targets.items()}
    if steady:
        targets |= {f"steady_{name}": values for name, values in case.targets.items()}
    return replace(case, targets=targets)


@pytest.mark.parametrize(("length", "speed"), [(1.0, 1.0), (1e-3, 0.2)])
def test_errors_of_every_moment_and_of_the_steady_state_in_any_units(length, speed):
    unit = length / speed
    cases = [
        (flow_in_units(with_moments(1, 3, True), length, speed), (1.0 * unit, 2.0 * unit, 4.0 * unit)),
        (flow_in_units(with_moments(2, 2, False), length, speed), (3.0 * unit, 5.0 * unit)),
    ]
    found = evaluate_moments(AnyTime(), cases, groups={"duct_1": "short", "duct_2": "long"}, about={"model": "known"})
    first, second = found.records
    for name in ("u", "p"):
        assert first.errors[name] == pytest.approx((0.01, 0.02, 0.04), rel=1e-9)
        assert second.errors[name] == pytest.approx((0.03, 0.05), rel=1e-9)
    assert first.steady == pytest.approx({"u": 0.05, "p": 0.05})
    assert second.steady == {}
    plain = json.loads(json.dumps(found.to_plain(), allow_nan=False))
    summary = plain["relative_l2"]
    assert summary["moments"]["u"]["mean"] == pytest.approx((0.07 / 3 + 0.04) / 2)
    assert summary["by_moment"][0]["p"] == pytest.approx(0.02)
    assert (summary["by_moment"][2]["cases"], summary["steady"]["cases"]) == (1, 1)
    assert plain["groups"]["long"]["moments"]["p"]["worst"] == pytest.approx(0.04)
    assert plain["model"] == "known"


def test_a_single_moment_needs_no_axis():
    found = evaluate_moments(AnyTime(), [(duct(1), (4.0,))])
    assert found.records[0].errors["u"] == pytest.approx((0.04,))


def test_a_prediction_that_is_not_finite_is_counted_and_left_out_of_means():
    broken = duct(1)
    broken = replace(broken, targets={**broken.targets, "u": torch.full_like(broken.targets["u"], math.nan)})
    found = evaluate_moments(AnyTime(), [(broken, (4.0,)), (duct(2), (2.0,))])
    summary = found.summary()
    assert summary["not_finite"] == 1
    assert summary["moments"]["u"] == {"mean": pytest.approx(0.02), "median": None, "worst": None}
    assert json.dumps(found.to_plain(), allow_nan=False)


def test_what_cannot_be_evaluated_is_named():
    with pytest.raises(ValueError, match="only its own times"):
        evaluate_moments(flow_network(width=1, iterations=1, pressure_iterations=1), [(duct(1), (4.0,))])
    with pytest.raises(ValueError, match="at least one case"):
        evaluate_moments(AnyTime(), [])
    with pytest.raises(ValueError, match="'duct_1' has no targets at known times"):
        evaluate_moments(AnyTime(), [(with_moments(1, 2, False), ())])
