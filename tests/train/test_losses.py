"""Relative errors: every case counts by how many per cent better it becomes."""

import math

import pytest
import torch

from pennpde.case import batch
from pennpde.models.ducts import flow_network
from pennpde.penn.predictor import seen_by
from pennpde.train import Settings, fit
from pennpde.train.losses import RelativeError
from pennpde.train.settings import Course
from small_ducts import duct
from trainings import Constant, constant_case


def relative_error(value: float, *targets: float, cells=((2, 2), (3, 2))) -> tuple[float, float]:
    """Of a constant that should be others, on meshes of different sizes, and its derivative."""
    model = Constant(value)
    cases = [constant_case(target, size) for target, size in zip(targets, cells, strict=False)]
    weights = torch.cat([torch.full((n,), 1 / n / len(cases)) for n in (case.number_of_points for case in cases)])
    loss = RelativeError()(model, batch(cases), weights.double())
    loss.backward()
    assert model.value.grad is not None
    return float(loss.detach()), float(model.value.grad)


def test_the_loss_is_the_geometric_mean_of_relative_errors():
    value, _ = relative_error(1.0, 0.8)
    assert value == pytest.approx(0.25, rel=1e-4)
    value, _ = relative_error(1.0, 0.8, 1.25)
    assert value == pytest.approx(math.sqrt(0.25 * 0.2), rel=1e-4)


def test_its_gradient_is_that_of_the_logarithm():
    _, slope = relative_error(1.0, 0.8)
    assert slope == pytest.approx(1 / (1.0 - 0.8), rel=1e-4)
    _, slope = relative_error(1.0, 0.8, 1.5)
    assert slope == pytest.approx((1 / 0.2 - 1 / 0.5) / 2, rel=1e-4)


@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_units_do_not_matter(scale):
    plain, scaled = relative_error(1.1, 1.0, 3.0), relative_error(1.1 * scale, scale, 3.0 * scale)
    assert scaled[0] == pytest.approx(plain[0], rel=1e-6)
    assert scaled[1] * scale == pytest.approx(plain[1], rel=1e-6)


@pytest.mark.parametrize("target", [1.0, 0.0])
def test_where_nothing_is_left_to_learn_or_to_compare_with_it_stays_finite(target):
    assert relative_error(target, target) == (pytest.approx(RelativeError().smallest), 0.0)
    assert all(map(math.isfinite, relative_error(1.0, 0.0)))


def test_a_rise_to_a_hundred_times_the_error_is_a_divergence():
    settings, course = Settings(check_every=2), Course()
    usual, lost = relative_error(1.01, 1.0)[0], relative_error(5.0, 1.0)[0]
    for _ in range(4):
        course = course.after_steps(settings, [usual, usual])
    assert course.trouble(settings) is None
    assert "rose" in str(course.after_steps(settings, [lost, lost]).trouble(settings))


def test_weights_are_judged_by_the_geometric_mean_over_the_validation_cases():
    targets = (0.8, 1.25, 100.0)
    judges = [constant_case(target) for target in targets]
    options = {"steps": 1, "learning_rate": 1e-12, "judge_start": True}
    result = fit(Constant(1.0), [constant_case(0.9)], judges, loss=RelativeError(), **options)
    expected = math.prod(abs(1.0 - target) / target for target in targets) ** (1 / 3)
    assert result.best == pytest.approx(expected, rel=1e-4)


def test_of_vectors_training_and_validation_have_the_same_error():
    model = flow_network(width=1, iterations=1, pressure_iterations=1).double()
    case = seen_by(model, duct(1)).case
    weights = torch.full((case.number_of_points,), 1 / case.number_of_points).double()
    with torch.no_grad():
        expected = float(RelativeError()(model, case, weights))
    options = {"steps": 1, "learning_rate": 1e-12, "judge_start": True}
    assert fit(model, [case], [case], loss=RelativeError(), **options).best == pytest.approx(expected, rel=1e-6)
