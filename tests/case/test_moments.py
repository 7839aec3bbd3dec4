"""Moments of a case: one by one they are what was stored together."""

from dataclasses import replace

import pytest
import torch

from pennpde.case.moments import FOREVER, at_moment, moments, number_of_moments, unknown_of, without_steady_state
from small_ducts import duct


def with_moments(steady: bool = True):
    first, second = duct(1), duct(2)
    targets = {name: torch.stack([first.targets[name], second.targets[name]], dim=-1) for name in ("u", "p")}
    if steady:
        targets |= {f"steady_{name}": values for name, values in duct(3).targets.items()}
    return replace(first, targets=targets)


def test_every_moment_and_last_the_steady_state():
    case = with_moments()
    found = moments(case, (0.5, 2.0))
    assert [each.time for each in found] == [0.5, 2.0, FOREVER]
    for number, each in enumerate((duct(1), duct(2), duct(3))):
        assert found[number].case.targets.keys() == {"u", "p"}
        assert all(torch.equal(found[number].case.targets[name], values) for name, values in each.targets.items())
    assert found[1].with_parameter.parameters["time"] == 2.0
    assert number_of_moments(case) == 2
    assert number_of_moments(at_moment(case, 0)) is None


def test_times_that_do_not_fit_are_not_known():
    assert [each.time for each in moments(with_moments(steady=False), (1.0,))] == [None, None]
    assert [each.time for each in moments(duct(0), (4.0,))] == [4.0]


def test_a_steady_state_belongs_to_its_unknown_and_other_targets_to_none():
    assert unknown_of("steady_u", ("u", "p")) == unknown_of("u", ("u", "p")) == "u"
    assert unknown_of("steady_T", ("u", "p")) is None
    assert unknown_of("grad", ("u", "p")) is None
    case = replace(with_moments(), targets={**with_moments().targets, "grad": torch.zeros(45, 2)})
    assert without_steady_state(case).targets.keys() == {"u", "p", "grad"}


@pytest.mark.parametrize("number", [0, 1])
def test_a_case_at_a_moment_keeps_all_else(number):
    case = with_moments()
    taken = at_moment(case, number)
    assert taken.mesh is case.mesh
    assert taken.initial is case.initial
