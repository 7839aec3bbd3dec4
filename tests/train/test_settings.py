"""Settings that cannot be are refused by name; the learning rate over a training: standstill, divergence, budgets."""

import logging
import math
import time
from dataclasses import replace

import pytest
import torch

from pennpde.train import Settings, fit, fitting
from pennpde.train.folder import read_log
from pennpde.train.settings import Course, TrainingDivergedError
from pennpde.train.steps import scaled_squared_error
from trainings import TRAIN, VALIDATION, Constant, constant_case, network, weights


def poisoned_at(*steps, poison):
    """The usual loss, but at some steps something happens to the network first."""
    calls = []

    def loss(model, case, share):
        calls.append(1)
        value = scaled_squared_error({"T": 1.0})(model, case, share)
        return poison(model, value) if len(calls) in steps else value

    return loss


def break_weights(model, value):
    with torch.no_grad():
        model.network[0].weight.fill_(math.nan)
    return value


def test_weights_that_turn_nan_go_back_to_the_best_with_half_the_rate(tmp_path, caplog):
    model = network()
    with caplog.at_level(logging.WARNING, "pennpde"):
        result = fit(
            model,
            TRAIN,
            VALIDATION,
            batch_size=2,
            epochs=20,
            test_every=2,
            check_every=4,
            learning_rate=1e-2,
            folder=tmp_path,
            loss=poisoned_at(20, poison=break_weights),
        )
    assert result.rollbacks == 1
    assert "rollback 1 to step 12: 4 of the last 4 losses are not finite" in caplog.text
    assert all(tensor.isfinite().all() for tensor in weights(model).values())
    rows = read_log(tmp_path)
    fallen = next(number for number, row in enumerate(rows) if "rollback" in row["event"])
    assert "not finite" in rows[fallen]["event"]
    assert {float(row["learning_rate"]) for row in rows[: fallen + 1]} == {1e-2}
    assert {float(row["learning_rate"]) for row in rows[fallen + 1 :]} == {5e-3}
    assert result.best < min(float(row["validation"]) for row in rows[:fallen])


def test_a_single_gradient_that_is_not_finite_changes_nothing(tmp_path):
    model = network()
    loss = poisoned_at(6, poison=lambda _, value: value * math.nan)
    result = fit(model, TRAIN, VALIDATION, batch_size=2, steps=20, check_every=10, folder=tmp_path, loss=loss)
    assert result.rollbacks == 0
    assert all(tensor.isfinite().all() for tensor in weights(model).values())
    assert read_log(tmp_path)[0]["event"] == "1 steps skipped: gradient not finite"


def test_a_loss_that_explodes_goes_back_too():
    def explode(model, value):
        with torch.no_grad():
            model.value.fill_(1e4)
        return value

    cases = [constant_case(0.5)] * 2
    loss = poisoned_at(30, poison=explode)
    result = fit(Constant(), cases, cases, batch_size=1, steps=60, check_every=5, learning_rate=1e-3, loss=loss)
    assert result.rollbacks == 1
    assert abs(result.model.value.item()) < 1


def test_a_training_that_keeps_falling_gives_up_and_says_what_to_do():
    loss = poisoned_at(*range(1, 200), poison=lambda _, value: value * math.nan)
    with pytest.raises(TrainingDivergedError, match=r"3 times already.*learning rate below 0\.0005"):
        fit(network(), TRAIN, VALIDATION, batch_size=2, steps=200, check_every=5, rollbacks=3, loss=loss)


def test_a_standstill_restarts_from_the_best_with_half_the_rate_and_then_stops(tmp_path):
    # The training cases pull the constant up, the validation cases want it at zero: it only gets worse.
    train, validation = [constant_case(1.0)] * 4, [constant_case(0.0)]
    model = Constant()
    result = fit(
        model,
        train,
        validation,
        learning_rate=0.01,
        batch_size=1,
        test_every=1,
        patience=2,
        restarts=2,
        scales={"T": 1.0},
        folder=tmp_path,
    )
    rows = read_log(tmp_path)
    assert (result.ended, result.restarts, result.best_step) == ("early stop", 2, 4)
    assert [float(row["learning_rate"]) for row in rows] == [0.01] * 3 + [0.005] * 2 + [0.0025] * 2
    assert [row["event"] for row in rows if row["event"]] == [
        "restart 1 from step 4",
        "restart 2 from step 4",
        "early stop",
    ]
    # Adam's step is the rate as long as the gradient keeps its sign: each stage starts from the best weights and
    # a fresh Adam.
    best = 4 * 0.01
    reached = [math.sqrt(float(row["validation_T"])) for row in rows]
    assert reached[0] == pytest.approx(best, rel=1e-2)
    assert reached[3] == pytest.approx(best + 4 * 0.005, rel=1e-2)
    assert reached[5] == pytest.approx(best + 4 * 0.0025, rel=1e-2)
    assert model.value.item() == pytest.approx(best, rel=1e-2)


def test_the_papers_protocol_waits_for_three_tests_and_other_schedules_do_not_stop():
    course, verdict = Course().after_test(Settings(), 10, 1.0, {})
    verdicts = [verdict]
    for step in range(20, 60, 10):
        course, verdict = course.after_test(Settings(), step, 2.0, {})
        verdicts.append(verdict)
    assert verdicts == ["improved", "no improvement", "no improvement", "restart", "no improvement"]
    constant = Settings(schedule="constant")
    course = Course(best=1.0, tests_without_improvement=99)
    assert course.after_test(constant, 10, 2.0, {})[1] == "no improvement"
    assert course.after_test(replace(constant, patience=3), 10, 2.0, {})[1] == "stop"
    assert course.after_test(constant, 10, math.nan, {})[1] == "no improvement"


def test_cosine_falls_over_the_budget_and_warm_up_rises_into_it():
    settings = Settings(learning_rate=1.0, schedule="cosine", steps=100, final_rate=0.1, warm_up=10)
    rates = [Course().rate(settings, step, step / 100) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] > 0.97
    assert rates[50] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)


@pytest.mark.slow
def test_a_budget_in_minutes_is_kept():
    # Three seconds: on a busy machine a single step may take a tenth of one.
    result = fit(network(), TRAIN, VALIDATION, batch_size=2, minutes=0.05, check_every=1, schedule="cosine")
    assert result.ended == "budget"
    assert 3.0 <= result.seconds < 8.0  # one stretch of steps may pass the end
    assert result.history[-1]["learning_rate"] < 0.1 * 5e-4


@pytest.mark.slow
def test_slow_steps_let_neither_budget_nor_pause_wait_for_the_next_look_at_the_losses(monkeypatch, tmp_path):
    monkeypatch.setattr(fitting, "_LONGEST_STRETCH", 0.1)
    slow = network()
    slow.register_forward_pre_hook(lambda *_: time.sleep(0.02))
    settings = {"batch_size": 2, "test_every": 1000.0, "check_every": 1000}
    result = fit(slow, TRAIN, VALIDATION, minutes=0.01, **settings)
    assert result.ended == "budget"
    assert result.steps <= 0.6 / 0.02 + 10
    result = fit(slow, TRAIN, VALIDATION, steps=1000, pause_after=0.01, folder=tmp_path, **settings)
    assert result.ended == "paused"
    assert result.steps <= 0.6 / 0.02 + 10


def test_the_length_of_stretches_does_not_change_a_training(monkeypatch):
    results = []
    for longest in (1e-9, 1e9):
        monkeypatch.setattr(fitting, "_LONGEST_STRETCH", longest)
        results.append(fit(network(), TRAIN, VALIDATION, batch_size=2, steps=24, check_every=7, learning_rate=1.0))
    assert results[0].rollbacks == results[1].rollbacks
    assert results[0].best_errors == results[1].best_errors
    one, other = (result.model.state_dict() for result in results)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lerning_rate": 1e-3}, r"no setting 'lerning_rate'; it has .*learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"schedule": "linear"}, "'linear'"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; it may be one of adam, soap"),
        ({"schedule": "cosine"}, "give epochs, steps or minutes"),
        ({"rate_factor": 1.5}, "rate_factor is 1.5"),
        ({"judges": 0}, "judges is 0"),
        ({"judges": 2.5}, "judges is 2.5"),
        ({"scales": {"T": 0.0}}, r"scales\['T'\] is 0.0"),
        ({"scales": {"u": 1.0}, "epochs": 1}, r"scales lack \['T'\]"),
        ({"pause_after": 1.0}, "need the folder"),
    ],
)
def test_wrong_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        fit(network(), TRAIN, **settings)
