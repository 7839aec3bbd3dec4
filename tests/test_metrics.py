"""Errors as the paper defines them."""

import pytest
import torch
from torch.testing import assert_close

from pennpde.case import Case
from pennpde.metrics import (
    mean_squared_error,
    neumann_squared_error,
    rank_of,
    relative_l2,
    squared_error,
)
from pennpde.operators import Operators
from problems import heated_plate, polynomial, rectangle
from shapes import unchecked


def test_a_plane_vector_counts_as_one_with_a_third_component_of_zero():
    prediction, target = torch.randn(50, 2, dtype=torch.float64), torch.randn(50, 2, dtype=torch.float64)
    nothing = torch.zeros(50, 1, dtype=torch.float64)
    in_space = (torch.cat([prediction, nothing], 1), torch.cat([target, nothing], 1))
    assert_close(mean_squared_error(prediction, target, rank=1), torch.nn.functional.mse_loss(*in_space))
    assert_close(mean_squared_error(*in_space, rank=1), torch.nn.functional.mse_loss(*in_space))


def test_output_times_are_averaged_and_not_taken_for_components():
    prediction, target = torch.randn(20, 2), torch.randn(20, 2)
    assert_close(mean_squared_error(prediction, target, rank=0), (prediction - target).square().mean())
    several = torch.randn(20, 3, 4)
    assert_close(squared_error(several, torch.zeros_like(several), rank=1), several.square().mean(dim=(1, 2)))


def test_the_error_is_differentiable():
    prediction = torch.randn(20, 3, requires_grad=True)
    mean_squared_error(prediction, torch.zeros(20, 3), rank=1).backward()
    assert_close(prediction.grad, 2 * prediction.detach() / 60)


def test_the_true_gradient_has_no_neumann_error_and_a_flipped_one_has():
    case = polynomial()
    condition, gradient = case.neumann["phi"], case.targets["grad"]
    assert float(neumann_squared_error(gradient, condition).amax()) < 1e-28
    expected = (2 * condition.normal_derivative[condition.mask]).square()
    assert_close(neumann_squared_error(-gradient, condition), expected)


def test_the_normal_derivative_of_a_vector_is_judged_for_each_component():
    mesh = rectangle()
    case = Case(mesh, initial={"u": (0.0, 0.0)}, neumann={"u": {"outlet": (1.0, 0.0)}})
    stretched = torch.stack([mesh.points[:, 0], 3 * mesh.points[:, 0]], dim=1)
    errors = neumann_squared_error(Operators.on(mesh).grad(stretched), case.neumann["u"])
    assert_close(errors, torch.full((11,), 9 / 3, dtype=torch.float64))


def test_the_relative_error_is_free_of_units_and_weighs_by_volume():
    target, prediction = torch.randn(30, 2), torch.randn(30, 2)
    assert_close(relative_l2(10 * prediction, 10 * target), relative_l2(prediction, target))
    first = torch.zeros(30).index_fill(0, torch.tensor([0]), 2.0)
    assert_close(relative_l2(prediction, target, first), (prediction - target)[0].norm() / target[0].norm())
    assert_close(relative_l2(prediction, torch.zeros(30, 2)), prediction.norm())


def test_the_rank_of_a_target_is_that_of_its_unknown():
    assert rank_of("T", heated_plate(targets=True)) == 0
    assert rank_of("grad", polynomial()) == 1


def test_shapes_that_do_not_fit_are_named():
    with unchecked():
        with pytest.raises(ValueError, match=r"\[5, 2\].*\[5, 3\]"):
            squared_error(torch.zeros(5, 2), torch.zeros(5, 3), rank=1)
        with pytest.raises(ValueError, match="axes of space"):
            squared_error(torch.zeros(5), torch.zeros(5), rank=1)
        with pytest.raises(ValueError, match=r"\[5\].*\[4\]"):
            relative_l2(torch.zeros(5), torch.zeros(4))
