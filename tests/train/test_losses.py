"""What a training makes small, and what decides which weights are the best, are the same."""

import pytest
import torch

from pennpde.models.ducts import flow_network
from pennpde.penn.predictor import seen_by
from pennpde.train import Settings, fit
from pennpde.train.settings import Course
from pennpde.train.steps import scaled_squared_error, standard_deviations
from small_ducts import duct


def test_a_rise_to_a_hundred_times_the_loss_is_a_divergence():
    settings, course = Settings(check_every=2), Course()
    for _ in range(4):
        course = course.after_steps(settings, [0.01, 0.01])
    assert course.trouble(settings) is None
    assert "rose" in str(course.after_steps(settings, [4.0, 4.0]).trouble(settings))


def test_of_vectors_training_and_validation_have_the_same_error():
    model = flow_network(width=1, iterations=1, pressure_iterations=1).double()
    case = seen_by(model, duct(1)).case
    weights = torch.full((case.number_of_points,), 1 / case.number_of_points).double()
    with torch.no_grad():
        expected = float(scaled_squared_error(standard_deviations([case]))(model, case, weights))
    options = {"steps": 1, "learning_rate": 1e-12, "judge_start": True}
    assert fit(model, [case], [case], **options).best == pytest.approx(expected, rel=1e-6)
