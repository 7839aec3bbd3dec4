"""Cases of different sizes in one shape: nothing but the shape changes."""

import pytest
import torch

from pennlab.stacks import CaseStack
from pennpde.case import Case
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.ducts import flow_network


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    made = []
    for name in ("a_0.50", "b_0.30_0.70", "c_0.20_1.00"):
        case = flow_case(coarse_mesh(name, cells_per_length=4), name)
        targets = {"u": 2 * case.initial["u"], "p": case.mesh.points[:, 0]}
        made.append(flow_case(case.mesh, name, targets))
    return made


def test_a_stacked_batch_gives_what_its_cases_give_alone(cases):
    torch.manual_seed(0)
    network = flow_network(width=4, iterations=2, pressure_iterations=2).double()
    stack = CaseStack.of(cases, torch.float64, laplacian_damping=0.25)
    chosen = [2, 0, 2, 1]
    case, _ = stack.draw(torch.tensor(chosen))
    with torch.no_grad():
        together, alone = network(case), [network(each) for each in cases]
    for place, number in enumerate(chosen):
        begin = place * stack.points_per_case
        points = slice(begin, begin + cases[number].number_of_points)
        for name in ("u", "p"):
            torch.testing.assert_close(together[name][points], alone[number][name], rtol=0, atol=1e-12)
            assert together[name][points.stop : begin + stack.points_per_case].abs().sum() == 0


@pytest.mark.parametrize("solver", ["barzilai_borwein", "explicit"])
def test_fillers_do_not_disturb_a_network_that_has_learned_and_holds_no_condition(cases, solver):
    torch.manual_seed(0)
    network = flow_network(
        width=4, iterations=3, pressure_iterations=3, solver=solver, dirichlet_in_solver="none", decoder="mlp"
    ).double()
    for parameter in network.parameters():  # far from the start, where some layers give zero whatever they are given
        parameter.data += 0.1 * torch.randn_like(parameter)
    stack = CaseStack.of(cases, torch.float64, laplacian_damping=0.25)
    small = min(range(len(cases)), key=lambda number: cases[number].number_of_points)
    case, _ = stack.draw(torch.tensor([small]))
    number = cases[small].number_of_points
    assert number < stack.points_per_case
    with torch.no_grad():
        filled, alone = network(case), network(cases[small])
    assert filled["p"][number:].abs().min() > 0, "a filler that stays zero disturbs nothing anyway"
    for name in ("u", "p"):
        torch.testing.assert_close(filled[name][:number], alone[name], rtol=1e-9, atol=1e-9)


def test_sums_leave_fillers_out(cases):
    stack = CaseStack.of(cases, torch.float64, laplacian_damping=0.25)
    case, _ = stack.draw(torch.tensor([0, 1]))
    ones = torch.ones(case.number_of_points, 2, dtype=torch.float64)
    sizes = [float(cases[number].number_of_points) for number in (0, 1)]
    assert case.sum(ones).tolist() == [[size] * 2 for size in sizes]
    assert case.total(ones).tolist() == [2 * size for size in sizes]


def test_a_weighted_sum_is_the_mean_over_cases_of_their_means(cases):
    stack = CaseStack.of(cases, torch.float64, laplacian_damping=0.25)
    case, weights = stack.draw(torch.tensor([1, 0]))
    expected = (cases[0].targets["p"].mean() + cases[1].targets["p"].mean()) / 2
    torch.testing.assert_close((weights * case.targets["p"]).sum(), expected, rtol=0, atol=1e-12)


def test_products_and_their_derivatives_agree_with_the_sparse_matrices(cases):
    stack = CaseStack.of(cases, torch.float64, laplacian_damping=0.25)
    case, _ = stack.draw(torch.tensor([1]))
    number = cases[1].number_of_points
    assert stack.points_per_case == number  # the largest is not filled up
    field = torch.randn(number, 2, 3, dtype=torch.float64, requires_grad=True)
    for name in ("u", "p"):
        for operator in ("grad", "div", "laplacian"):
            padded = getattr(case.operators[name], operator)(field)
            plain = getattr(cases[1].operators[name].composed(0.25), operator)(field)
            torch.testing.assert_close(padded, plain, rtol=0, atol=1e-9)  # entries of the Laplacian reach 1e3
            weight = torch.randn_like(plain)
            (of_padded,) = torch.autograd.grad((weight * padded).sum(), field)
            (of_plain,) = torch.autograd.grad((weight * plain).sum(), field)
            torch.testing.assert_close(of_padded, of_plain, rtol=0, atol=1e-9)


def test_a_single_case_keeps_its_parameters(cases):
    case, _ = CaseStack.of(cases, torch.float64, laplacian_damping=0.25).draw(torch.tensor([0]))
    assert case.parameter("viscosity", case.initial["u"]).shape == (1, 1)
    torch.testing.assert_close(case.parameters["viscosity"], cases[0].parameters["viscosity"])
