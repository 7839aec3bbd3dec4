"""Limits of time and iterations: what was reached is kept, and nothing more is computed."""

import math

import pytest
import torch

import pennpde as penn
from pennpde.flow import march as marching
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.flow.scheme import FlowScheme
from pennpde.progress import OutOfTimeError, limited, limits
from steady_flows import cavity, duct, square


class Clock:
    """Limits that are over after so many questions."""

    def __init__(self, questions: float) -> None:
        self.left, self.iterations, self.residual = questions, None, None

    @property
    def is_over(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_limits_hold_within_their_context_only():
    assert not limits().is_over
    with limited(seconds=0.0, iterations=3):
        assert limits().is_over
        assert limits().iterations == 3
        with limited():
            assert not limits().is_over
    assert limits().iterations is None


def test_a_march_that_is_stopped_hands_out_the_times_that_it_reached(monkeypatch):
    case, model = duct(square("quad", 6)), FlowScheme(splits=0)
    whole = model.solve(case, [0.1, 5.0])
    steps = 0
    take = marching.limits

    def counted():
        nonlocal steps
        steps += 1
        return take()

    monkeypatch.setattr(marching, "limits", counted)
    model.solve(case, [0.1])
    clock = Clock(steps + 2)
    monkeypatch.setattr(marching, "limits", lambda: clock)
    with pytest.raises(OutOfTimeError) as caught:
        model.solve(case, [0.1, 5.0])
    assert caught.value.times == (0.1,)
    assert torch.equal(caught.value.result.fields["u"], whole.fields["u"][..., 0])


def test_a_prediction_that_is_stopped_has_the_times_that_were_reached_and_says_so(monkeypatch):
    case, model = duct(square("quad", 6)), penn.load_pretrained("flow")
    clock = Clock(12)
    monkeypatch.setattr(marching, "limits", lambda: clock if limits().until < math.inf else limits())
    with limited(seconds=1e6):
        outcome = penn.predict(model, case, times=[0.01, 500.0])
    assert outcome.times == (0.01,)
    assert "not reached: t = 500" in outcome.stopped
    assert outcome.certificate.warnings[0] == outcome.stopped


@pytest.mark.parametrize("network", ["flow", "scheme"])
def test_what_was_reached_before_the_end_is_not_marched_again(monkeypatch, network):
    case = duct(square("quad", 6))
    model = penn.load_pretrained("flow") if network == "flow" else FlowScheme(splits=1)
    clock, marches, marched = Clock(12), [], FlowScheme._marched
    monkeypatch.setattr(marching, "limits", lambda: clock if limits().until < math.inf else limits())

    def counted(self, case, wanted, problem, splits, length):
        marches.append(splits)
        return marched(self, case, wanted, problem, splits, length)

    monkeypatch.setattr(FlowScheme, "_marched", counted)
    with limited(seconds=1e6):
        outcome = penn.predict(model, case, times=[0.01, 500.0])
    assert outcome.times == (0.01,)
    assert marches.count(1) == 1


def test_without_a_time_that_was_reached_there_is_nothing():
    with limited(seconds=0.0), pytest.raises(OutOfTimeError, match="t = 0"):
        penn.predict(FlowScheme(splits=0), duct(square("quad", 6)), times=1.0)


def test_levels_that_are_done_are_kept(monkeypatch):
    case, model = duct(square("quad", 6)), penn.load_pretrained("flow")
    solve = CoarseMarch.solve

    def only_fast(self, case, times):
        if self.level != "fast":
            raise OutOfTimeError("over")
        return solve(self, case, times)

    monkeypatch.setattr(CoarseMarch, "solve", only_fast)
    outcome = penn.predict(model, case, times=1.0, accuracy=0.001)
    assert outcome.level == "fast"
    assert "before the level standard was done" in outcome.stopped


def test_a_steady_state_takes_no_more_iterations_than_allowed_and_is_poor_then():
    case = cavity(square("quad", 12))
    with limited(iterations=3):
        outcome = penn.predict(FlowScheme(splits=0), case, steady=True)
    assert not outcome.certificate.converged
    assert outcome.expected.grade in ("poor", "refused", "unknown")
    with limited(residual=1e-3):
        loose = penn.predict(FlowScheme(splits=0), case, steady=True)
    assert loose.certificate.converged
    exact = penn.predict(FlowScheme(splits=0), case, steady=True)
    assert 0 < float((loose.fields["u"] - exact.fields["u"]).abs().max()) < 0.1
    assert math.isfinite(float(loose.fields["u"].sum()))
