"""The gradient network."""

import pytest
import torch
from torch.testing import assert_close

from pennpde.case import Case, batch, unbatch
from pennpde.metrics import mean_squared_error, neumann_squared_error
from pennpde.models.gradient import CorrectedGradient, gradient_network
from pennpde.testing import assert_equivariant
from problems import brick, polynomial


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def case() -> Case:
    return polynomial((10, 11, 12), seed=1)


def error(gradient: torch.Tensor, case: Case) -> float:
    return float(mean_squared_error(gradient.detach(), case.targets["grad"].to(gradient.dtype), rank=1))


def test_it_is_small():
    assert sum(p.numel() for p in gradient_network().parameters()) == 68


def test_the_rows_of_the_paper_are_named():
    with pytest.raises(ValueError, match="gradient-of-table-1"):
        gradient_network("nisogcn")


def test_it_turns_with_its_mesh():
    assert_equivariant(gradient_network().double(), polynomial(), motions=1)


def test_ours_fulfils_the_neumann_condition_to_round_off_before_and_after_training(case):
    network = gradient_network().double()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(3):
        gradient = network(case)["grad"]
        assert float(neumann_squared_error(gradient.detach(), case.neumann["phi"]).amax()) < 1e-24
        optimiser.zero_grad()
        mean_squared_error(gradient, case.targets["grad"], rank=1).backward()
        optimiser.step()


def with_strength(rounds: int, strength: float) -> CorrectedGradient:
    network = CorrectedGradient(rounds).double()
    with torch.no_grad():
        network.strength.layers[-1].weight.zero_()
        network.strength.layers[-1].bias.fill_(strength)
    return network


def test_the_trapezoidal_rule_is_exact_on_quadratic_fields():
    mesh = brick((4, 5, 3))
    x = mesh.points - mesh.points.mean(dim=0)
    form = torch.randn(3, 3, dtype=torch.float64)
    gradient = x @ (form + form.T)
    normal_derivative = (mesh.normals * gradient).sum(dim=1)
    case = Case(mesh, initial={"phi": ((x @ form) * x).sum(dim=1)}, neumann={"phi": {"boundary": normal_derivative}})
    with torch.no_grad():
        errors = [float((with_strength(rounds, 0.5)(case)["grad"] - gradient).abs().amax()) for rounds in (1, 40, 160)]
    assert errors[0] > 1e-2
    assert errors[1] < 0.1 * errors[0]
    assert errors[2] < 1e-3 * errors[0]


def test_a_batch_gives_what_its_cases_give_one_by_one():
    cases = [polynomial((4, 5, 6), seed=1), polynomial((6, 4, 4), seed=2)]
    network = gradient_network().double()
    with torch.no_grad():
        together = unbatch(network(batch(cases)), batch(cases))
        for joint, case in zip(together, cases, strict=True):
            assert_close(joint["grad"], network(case)["grad"], atol=1e-11, rtol=0)


def test_a_training_step_lowers_the_loss(case):
    network = gradient_network()
    target = case.targets["grad"].float()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    before = mean_squared_error(network(case)["grad"], target, rank=1)
    before.backward()
    optimiser.step()
    assert float(mean_squared_error(network(case)["grad"], target, rank=1).detach()) < float(before.detach())
