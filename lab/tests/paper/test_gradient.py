"""The gradient networks of Table 1."""

import pytest
import torch
from torch.testing import assert_close

from pennlab.paper.gradient import GradientNetwork, reweighted
from pennpde.case import Case, batch, unbatch
from pennpde.metrics import mean_squared_error
from pennpde.models.gradient import gradient_network
from pennpde.operators import Operators
from pennpde.testing import assert_equivariant
from problems import polynomial

ROWS = ("nisogcn", "isogcn", "isogcn_of_table_1")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def case() -> Case:
    return polynomial((10, 11, 12), seed=1)


def error(gradient: torch.Tensor, case: Case) -> float:
    return float(mean_squared_error(gradient.detach(), case.targets["grad"].to(gradient.dtype), rank=1))


def test_the_sizes_are_those_of_the_paper_less_the_bias_that_breaks_equivariance():
    sizes = {row: sum(p.numel() for p in GradientNetwork(row).parameters()) for row in ROWS}
    assert sizes == {"nisogcn": 681 - 1, "isogcn": 674 - 1, "isogcn_of_table_1": 674 - 1}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_turns_with_its_mesh(row):
    assert_equivariant(GradientNetwork(row).double(), polynomial(), motions=1)


def test_untrained_networks_are_the_operators_that_they_are_made_of(case):
    values, condition, own = case.initial["phi"], case.neumann["phi"], case.operators["phi"]
    expected = {
        "nisogcn": own.grad(values, condition.normal_derivative),
        "isogcn": Operators.on(case.mesh).grad(values),
        "isogcn_of_table_1": own.grad(values),
    }
    for row, gradient in expected.items():
        assert_close(GradientNetwork(row).double()(case)["grad"], gradient, atol=1e-5, rtol=0)


def test_another_weight_of_the_condition_needs_no_other_matrix(case):
    values, condition, own = case.initial["phi"], case.neumann["phi"], case.operators["phi"]
    plain = own.grad(values, condition.normal_derivative)
    for ratio in (0.0, 0.3, 7.0):
        other = Operators.on(case.mesh, ("boundary",), neumann_weight=10.0 * ratio)
        expected = other.grad(values, condition.normal_derivative)
        assert_close(reweighted(plain, condition.normal_derivative, condition, own, ratio), expected)


def test_without_normals_and_with_but_unanswered_the_baselines_are_as_bad_as_measured(case):
    """The order of the table's rows: the paper's baseline is far worse than IsoGCN itself."""
    found = {row: error(GradientNetwork(row)(case)["grad"], case) for row in ROWS}
    found["corrected"] = error(gradient_network()(case)["grad"], case)
    assert found["corrected"] < found["nisogcn"] < found["isogcn"] < found["isogcn_of_table_1"]
    assert found["corrected"] < 0.2 * found["nisogcn"]


def test_a_batch_gives_what_its_cases_give_one_by_one():
    cases = [polynomial((4, 5, 6), seed=1), polynomial((6, 4, 4), seed=2)]
    for row in ROWS:
        network = GradientNetwork(row).double()
        with torch.no_grad():
            together = unbatch(network(batch(cases)), batch(cases))
            for joint, case in zip(together, cases, strict=True):
                assert_close(joint["grad"], network(case)["grad"], atol=1e-11, rtol=0)


@pytest.mark.parametrize("row", ROWS)
def test_a_training_step_lowers_the_loss(row, case):
    network = GradientNetwork(row)
    target = case.targets["grad"].float()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    before = mean_squared_error(network(case)["grad"], target, rank=1)
    before.backward()
    optimiser.step()
    assert float(mean_squared_error(network(case)["grad"], target, rank=1).detach()) < float(before.detach())
