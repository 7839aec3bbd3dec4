"""Gradients through the last steps of a march are those of a march that begins there."""

import pytest
import torch
from torch import nn

from pennpde.machine import can_capture
from pennpde.train import fit
from pennpde.train.steps import USUAL_LAST_STEPS, LastSteps
from trainings import TRAIN, Constant, constant_case


class Growth(nn.Module):
    """One step: times a number."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.1, dtype=torch.float64))

    def forward(self, value):
        return self.factor * value


class March(nn.Module):
    called_each_step = "growth"

    def __init__(self, steps: int):
        super().__init__()
        self.growth, self.steps = Growth(), steps

    def forward(self, case=None):
        value = torch.ones((), dtype=torch.float64)
        for _ in range(self.steps):
            value = self.growth(value)
        return value if case is None else {"T": value.expand(case.number_of_points, 4)}


def slope(march: March, through: LastSteps) -> float:
    march.zero_grad()
    outcome = through("case", march)
    assert float(outcome.detach()) == pytest.approx(1.1**march.steps)
    outcome.backward()
    assert march.growth.factor.grad is not None
    return float(march.growth.factor.grad)


@pytest.mark.parametrize(("steps", "number"), [(10, 3), (10, 1), (10, 10), (10, 32)])
def test_earlier_steps_are_taken_as_they_are(steps, number):
    march = March(steps)
    last = min(steps, number)
    assert slope(march, LastSteps(march.growth, number)) == pytest.approx(last * 1.1 ** (steps - 1))


def test_a_march_that_takes_more_or_fewer_steps_than_before_still_has_a_gradient():
    march = March(20)
    through = LastSteps(march.growth, 4)
    assert slope(march, through) == pytest.approx(4 * 1.1**19)
    march.steps = 22
    assert slope(march, through) == pytest.approx(6 * 1.1**21), "two more than known"
    assert slope(march, through) == pytest.approx(4 * 1.1**21), "known by now"
    march.steps = 5
    assert slope(march, through) == pytest.approx(4 * 1.1**4), "marched twice: the end came before the gradient"


class Timed(nn.Module):
    """A march to a time in steps of given lengths, as networks that take times have them."""

    def __init__(self, lengths):
        super().__init__()
        self.growth, self.lengths, self.marches = Growth(), lengths, 0
        self.growth.forward = lambda value, _: self.growth.factor * value

    def forward(self):
        self.marches += 1
        value = torch.ones((), dtype=torch.float64)
        for length in self.lengths:
            value = self.growth(value, torch.tensor([length]))
        return value


@pytest.mark.parametrize(("number", "last"), [(3, 3), (1, 1), (50, 20)])
def test_where_the_end_is_known_one_march_is_enough(number, last):
    march = Timed([0.1] * 20)
    outcome = LastSteps(march.growth, number)("case", march, end=2.0)
    outcome.backward()
    assert float(march.growth.factor.grad) == pytest.approx(last * 1.1**19)
    assert march.marches == 1


def test_a_march_that_is_lost_before_its_end_still_has_a_gradient():
    march = Timed([0.1] * 5)
    LastSteps(march.growth, 2)("case", march, end=2.0).backward()
    assert float(march.growth.factor.grad) == pytest.approx(2 * 1.1**4)


def test_gradients_are_switched_back_whatever_happens():
    march = March(3)
    through = LastSteps(march.growth, 2)

    def broken():
        march()
        raise RuntimeError("no step further")

    with torch.no_grad():
        through("case", march)
        assert not torch.is_grad_enabled()
    with pytest.raises(RuntimeError, match="no step further"):
        through("case", broken)
    assert torch.is_grad_enabled()
    assert not march.growth._forward_pre_hooks


def test_training_goes_through_as_many_steps_as_its_settings_say():
    assert LastSteps.of(Constant(), None) is None, "no march"
    usual = LastSteps.of(March(3), None)
    assert usual is not None
    assert usual.number == USUAL_LAST_STEPS

    def first_update(**settings):
        march = March(12)
        case = constant_case(0.0)
        # Plain gradients, so that their size shows: Adam's first step would not depend on it.
        seen = []
        march.growth.factor.register_hook(lambda gradient: seen.append(float(gradient)))
        fit(march, [case], settings=None, steps=1, scales={"T": 1.0}, clip=None, **settings)
        return sum(seen)

    through_all = first_update()
    assert first_update(last_steps=3) == pytest.approx(through_all / 4)
    with pytest.raises(ValueError, match="last_steps is 0"):
        fit(March(3), TRAIN, steps=1, last_steps=0)


@pytest.mark.parametrize("validation", [[], [constant_case(1.0)]], ids=["no validation", "validation"])
def test_a_training_from_trained_weights_never_ends_worse_than_it_began(validation):
    model = Constant(1.0)  # the best there is
    cases = [constant_case(value) for value in (0.9, 1.1)]
    result = fit(model, cases, validation, steps=20, batch_size=1, learning_rate=0.5, judge_start=True)
    assert result.best_step == 0
    assert float(model.value.detach()) == 1.0


class OneByOne(Constant):
    takes_times = True

    def forward(self, case):
        assert len(case.sizes) == 1, "each case has its own time, and so its own steps"
        return super().forward(case)


def test_cases_with_times_of_their_own_go_one_by_one_and_count_as_a_batch():
    cases = [constant_case(value) for value in (0.5, 1.0, 4.0, 2.0)]
    alone, together = OneByOne(1.0), Constant(1.0)
    for model in (alone, together):
        fit(model, cases, cases[:3], steps=6, batch_size=2, learning_rate=0.1, test_every=1)
    assert float(alone.value.detach()) != 1.0
    assert float(alone.value.detach()) == pytest.approx(float(together.value.detach()), rel=1e-6)


def test_a_march_that_is_counted_is_not_captured():
    """A replayed step calls nothing, so it cannot be counted, and what it writes over has no gradient."""
    seen = []
    march = March(3)

    def work():
        seen.append(can_capture(torch.device("cuda")))
        return march()

    LastSteps(march.growth, 2)("march", work)
    assert seen
    assert not any(seen)
    assert can_capture(torch.device("cuda")), "afterwards as before"
