"""Problems that the general flow network keeps: no more than there is room for, and the same flows come out."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch

from pennpde.case.moments import moments
from pennpde.flow import scheme
from pennpde.flow.scheme import FlowScheme
from small_ducts import duct

POINTS = duct(0).number_of_points


@pytest.fixture
def made(monkeypatch):
    """Names of the cases whose problems were made, in this order."""
    names = []
    make = scheme.FlowScheme._assembled
    monkeypatch.setattr(
        scheme.FlowScheme, "_assembled", lambda self, case, splits: names.append(case.name) or make(self, case, splits)
    )
    return names


def flow_network(problems: int | None = None):
    torch.manual_seed(0)
    model = FlowScheme(splits=0)
    if problems is not None:
        model._kept.most_points = problems * POINTS
    return model


def at(case, time):
    return replace(case, parameters={**case.parameters, "time": torch.tensor(time, dtype=torch.float64)})


def test_problems_do_not_pile_up_and_flows_are_the_same(made):
    cases = [at(duct(number), 0.1) for number in range(5)]
    bounded, free = flow_network(problems=2), flow_network()
    with torch.no_grad():
        for case in cases * 2:
            assert all(torch.equal(mine, free(case)[name]) for name, mine in bounded(case).items())
            assert bounded._kept.number_of_points <= 2 * POINTS
    assert free._kept.number_of_points == 5 * POINTS
    assert len(made) == 10 + 5, "one is made each time, the other once for each case"


def test_those_used_last_are_kept(made):
    model = flow_network(problems=2)
    first, second, third = (duct(number) for number in range(3))
    for case in (first, second, first, third, first, second):
        model.prepare(case)
    assert made == ["duct_0", "duct_1", "duct_2", "duct_1"]


def test_a_problem_that_is_larger_than_the_room_is_kept_all_the_same(made):
    model, case = flow_network(problems=0), duct(0)
    assert model.problem(case) is model.problem(case)
    assert len(made) == 1


def test_moments_of_one_run_share_a_problem_and_other_flows_on_its_mesh_do_not():
    model, case = flow_network(), duct(0)
    several = replace(case, targets={name: torch.stack([each, each], dim=-1) for name, each in case.targets.items()})
    early, late = (each.with_parameter for each in moments(several, (0.5, 1.0)))
    assert model.problem(early) is model.problem(late)
    thick = replace(early, parameters={**early.parameters, "viscosity": torch.tensor(0.1).double()})
    moving = replace(early, initial={**early.initial, "u": early.initial["u"] + 1.0})
    other = replace(duct(1), mesh=early.mesh)
    problems = [model.problem(each) for each in (early, thick, moving, other)]
    assert len({id(each) for each in problems}) == 4


def test_a_case_that_is_gone_takes_its_problem_along():
    model, case = flow_network(), duct(0)
    problem = weakref.ref(model.problem(case))
    del case
    gc.collect()
    assert problem() is None
    assert model._kept.number_of_points == 0


def test_a_network_says_whether_it_can_keep_all_that_it_prepares():
    cases = [duct(number) for number in range(3)]
    assert flow_network(problems=3).can_keep(cases)
    assert not flow_network(problems=2).can_keep(cases)
    same = [at(cases[0], time) for time in (0.1, 0.2, 0.3)]
    assert flow_network(problems=1).can_keep(same), "moments of one run need one problem"
