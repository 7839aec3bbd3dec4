"""Training: what it learns, how it goes on after a break, a fall or a standstill, and what it refuses."""

import json
import logging
import math
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from paths import TESTS
from problems import heated_plate
from torch import nn

from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.testing import assert_dirichlet
from pennpde.training import Settings, fit, fitting, steps
from pennpde.training.batches import Blocks, Stacked
from pennpde.training.log import read as read_log
from pennpde.training.losses import scaled_squared_error
from pennpde.training.optimizers import Soap
from pennpde.training.order import Order
from pennpde.training.schedule import Course, TrainingDivergedError

EIGHT = [heated_plate(diffusivity=0.1 * k, cells=(4, 4), targets=True) for k in range(1, 9)]
TRAIN, VALIDATION = EIGHT[:6], EIGHT[6:]


class PointwiseNetwork(nn.Module):
    """Not one of ours: no solver, no operators, T from the place and the parameters."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4))
        self.double()

    def forward(self, case):
        case = case.to(torch.float64)
        distance = case.features["inlet_distance"]
        inputs = [distance, case.parameter("diffusivity", distance).expand_as(distance), torch.ones_like(distance)]
        return {"T": self.network(torch.stack(inputs, dim=1))}


class Constant(nn.Module):
    """One number everywhere: it can be reasoned about."""

    def __init__(self, start: float = 0.0):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, case):
        return {"T": self.value.expand(case.number_of_points, 4)}


def constant_case(target: float, cells=(2, 2), name: str = ""):
    case = heated_plate(cells=cells, targets=True)
    return replace(case, targets={"T": torch.full_like(case.targets["T"], target)}, name=name)


def network(seed: int = 0, **options) -> PointwiseNetwork:
    torch.manual_seed(seed)
    return PointwiseNetwork(**options)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@torch.no_grad()
def squared_errors(model: nn.Module, cases) -> list[float]:
    return [float((model(case)["T"] - case.targets["T"]).square().mean()) for case in cases]


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


# Learning


@pytest.mark.parametrize("optimizer", ["adam", "soap"])
def test_any_module_that_maps_a_case_to_fields_trains(optimizer):
    options = {"learning_rate": 1e-2, "batch_size": 2, "epochs": 60, "test_every": 5, "optimizer": optimizer}
    result = fit(network(), TRAIN, VALIDATION, **options)
    first, last = result.history[0], result.history[-1]
    assert last["loss"] < 0.05 * first["loss"]
    assert result.best < 0.1 * first["validation"]
    assert (result.ended, result.steps, result.epochs) == ("budget", 180, 60)


def test_a_network_of_ours_trains_and_still_fulfils_the_dirichlet_condition():
    torch.manual_seed(0)
    model = advection_diffusion_network(width=4, iterations=3, hidden=8)
    before = squared_errors(model, TRAIN)
    fit(model, TRAIN, VALIDATION, learning_rate=5e-3, batch_size=3, epochs=10, test_every=5)
    after = squared_errors(model, TRAIN)
    assert sum(after) < 0.7 * sum(before)
    assert_dirichlet(model, TRAIN[0])


def test_the_best_weights_are_left_in_the_network_and_reported_in_physical_units():
    model = network()
    result = fit(model, TRAIN, VALIDATION, learning_rate=3e-2, batch_size=2, epochs=20, test_every=1)
    assert np.mean(squared_errors(model, VALIDATION)) == pytest.approx(result.best_errors["T"], rel=1e-12)
    assert result.best == min(row["validation"] for row in result.history)
    scale = torch.cat([case.targets["T"].flatten() for case in TRAIN]).std(correction=0)
    assert result.best == pytest.approx(result.best_errors["T"] / float(scale) ** 2, rel=1e-12)


def test_without_validation_cases_the_training_loss_decides():
    result = fit(network(), TRAIN, learning_rate=1e-2, batch_size=2, epochs=20, test_every=5)
    assert result.best == min(row["validation"] for row in result.history)
    assert result.best_errors == {}


def test_every_case_counts_the_same_whatever_its_mesh():
    cases = [constant_case(0.0, (2, 2)), constant_case(1.0, (6, 6))]
    for kind in (Stacked, Blocks):
        case, share = kind.of(cases, torch.float64, torch.device("cpu")).draw(torch.tensor([0, 1]))
        loss = scaled_squared_error({"T": 0.5})(Constant(0.25), case, share)
        assert loss.item() == pytest.approx(0.5 * (0.25**2 + 0.75**2) / 0.5**2, rel=1e-6)


def test_stacked_cases_give_the_loss_curve_of_cases_block_by_block():
    cases = [*TRAIN[:3], *(heated_plate(diffusivity=0.1 * k, cells=(5, 4), targets=True) for k in range(4, 7))]
    curves = [
        fit(network(), cases, VALIDATION, batch_size=2, epochs=4, test_every=1, stacked=stacked).history
        for stacked in (True, False)
    ]
    for stacked, block in zip(*curves, strict=True):
        assert stacked["loss"] == pytest.approx(block["loss"], rel=1e-6)  # a stack's weights of points are float32
        assert stacked["validation"] == pytest.approx(block["validation"], rel=1e-6)


def test_a_network_that_needs_the_mesh_gets_it(caplog):
    class Positions(PointwiseNetwork):
        def forward(self, case):
            return {"T": self.network[3](torch.cat([case.mesh.points] * 4, dim=1))}

    with caplog.at_level(logging.INFO, "pennpde"):
        result = fit(Positions(), TRAIN, VALIDATION, epochs=1)
    assert "block by block" in result.description
    assert "mesh.points" in caplog.text
    with pytest.raises(ValueError, match=r"stacked=True.*mesh\.points"):
        fit(Positions(), TRAIN, epochs=1, stacked=True)


def test_each_epoch_sees_every_case_once_in_its_own_order():
    order = Order(cases=10, batch_size=4, seed=3)
    seen = order.batches(0, 10).flatten().tolist()
    epochs = [seen[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    # Any stretch of steps, in any order of asking, gives the same batches: what resuming rests on.
    assert torch.equal(Order(10, 4, 3).batches(7, 2), order.batches(0, 10)[7:9])
    assert Order(10, 4, 4).batches(0, 10).flatten().tolist() != seen


def test_the_same_seed_gives_the_same_bits_and_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(11)
    before = torch.get_rng_state()
    options = {"batch_size": 2, "steps": 7, "deterministic": True}
    models = []
    for _ in range(2):
        model = network(dropout=0.5)
        torch.set_rng_state(before)
        fit(model, TRAIN, VALIDATION, **options)
        assert torch.equal(torch.get_rng_state(), before)
        models.append(weights(model))
    assert_same_bits(*models)


def test_soap_turns_into_the_eigenvectors_of_the_gradients():
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))[0]
    matrix = nn.Parameter(torch.zeros(5, 3, dtype=torch.float64))
    gradient = steps._one_gradient([matrix])
    soap = Soap([matrix], gradient, (0.9, 0.99), memory=0.99)
    for _ in range(400):
        noise = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        gradient.copy_((turn @ (torch.tensor([16.0, 8.0, 4.0, 2.0, 1.0])[:, None] * noise)).flatten())
        soap.step(0.0)
        soap.refresh()
    seen = soap.left_vectors[0].T @ soap.left[0] @ soap.left_vectors[0]
    rest = seen - seen.diagonal().diag()
    assert rest.abs().max() < 1e-2 * seen.diagonal().max()
    torch.testing.assert_close(soap.left_vectors[0].T @ soap.left_vectors[0], torch.eye(5, dtype=torch.float64))
    soap.reset()
    assert torch.equal(soap.left_vectors[0], torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize(("columns", "expected"), [(16, 10), (128, 10), (400, 100)])
def test_soap_turns_the_eigenvectors_of_large_matrices_less_often(columns, expected):
    matrix = torch.nn.Parameter(torch.zeros(8, columns))
    assert Soap([matrix], torch.zeros(8 * columns), (0.9, 0.99)).refresh_every == expected


# Going on


@pytest.mark.parametrize("optimizer", ["adam", "soap"])
def test_a_continued_training_has_the_bits_of_one_without_a_break(optimizer, tmp_path):
    options = {"batch_size": 2, "test_every": 1, "learning_rate": 1e-2, "check_every": 4, "optimizer": optimizer}
    whole = network(dropout=0.3)
    fit(whole, TRAIN, VALIDATION, steps=23, folder=tmp_path / "whole", **options)
    parts = network(dropout=0.3)
    for budget in (5, 12, 23):
        fit(parts, TRAIN, VALIDATION, steps=budget, folder=tmp_path / "parts", resume=True, **options)
        parts = network(seed=budget, dropout=0.3)  # nothing but the folder is carried on
    result = fit(parts, TRAIN, VALIDATION, steps=23, folder=tmp_path / "parts", resume=True, **options)
    assert result.steps == 23
    assert_same_bits(weights(parts), weights(whole))

    def curve(folder):
        return {row["step"]: row["loss"] for row in read_log(tmp_path / folder)}

    assert curve("whole").items() <= curve("parts").items()  # the breaks add their own last tests


def test_a_training_pauses_when_asked_and_goes_on_where_it_stood(tmp_path):
    options = {"batch_size": 2, "check_every": 3, "steps": 10, "learning_rate": 1e-2}
    whole = network()
    fit(whole, TRAIN, VALIDATION, **options)
    parts, ended = network(), []
    while len(ended) < 10:
        result = fit(parts, TRAIN, VALIDATION, folder=tmp_path, resume=True, pause_after=0.0, **options)
        ended.append(result.ended)
        if result.finished:
            break
    # After the first step, which tells how long one takes; then at looks at the losses. The last call has nothing to do
    # but test the last weights.
    assert ended == ["paused"] * 5 + ["budget"]
    assert_same_bits(weights(parts), weights(whole))
    assert result.best_step == 10


def test_a_signal_makes_a_training_save_itself(tmp_path):
    import signal

    def loss(model, case, share, calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) == 7:
            signal.raise_signal(signal.SIGTERM)
        return scaled_squared_error({"T": 1.0})(model, case, share)

    before = signal.getsignal(signal.SIGTERM)
    result = fit(network(), TRAIN, batch_size=2, steps=100, check_every=5, folder=tmp_path, loss=loss)
    assert (result.ended, result.steps) == ("paused", 10)
    assert signal.getsignal(signal.SIGTERM) is before
    assert fit(network(), TRAIN, batch_size=2, steps=12, check_every=5, folder=tmp_path, resume=True).steps == 12


def test_rows_after_the_saved_state_are_dropped_when_a_killed_training_goes_on(tmp_path):
    options = {"batch_size": 2, "test_every": 1, "folder": tmp_path}
    fit(network(), TRAIN, VALIDATION, epochs=4, **options)
    log = tmp_path / "log.csv"
    log.write_text(log.read_text() + "999,333,1.0,0.1,0.5,0.5,0.5,\n")
    fit(network(), TRAIN, VALIDATION, epochs=6, resume=True, **options)
    assert [int(row["step"]) for row in read_log(tmp_path)] == [3, 6, 9, 12, 15, 18]


def test_a_finished_training_stays_finished_until_its_budget_grows(tmp_path):
    model = network()
    first = fit(model, TRAIN, VALIDATION, epochs=4, folder=tmp_path)
    again = network(seed=1)
    second = fit(again, TRAIN, VALIDATION, epochs=4, folder=tmp_path, resume=True)
    assert (second.steps, second.best) == (first.steps, first.best)
    assert_same_bits(weights(again), weights(model))
    assert fit(again, TRAIN, VALIDATION, epochs=5, folder=tmp_path, resume=True).epochs == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 1.0}, "learning_rate was 0.0005 and is 1.0"),
        ({"batch_size": 3}, "batch_size was 2 and is 3"),
        ({"train": EIGHT[1:7]}, "the cases are others"),
        ({"model": Constant()}, "other weights"),
        ({"resume": False}, "stands at step 6"),
    ],
)
def test_a_training_is_continued_with_what_it_began_with_or_not_at_all(tmp_path, changes, words):
    options = {"model": network(), "train": TRAIN, "batch_size": 2, "folder": tmp_path, "epochs": 2, "resume": True}
    fit(**options)
    with pytest.raises(ValueError, match=words):
        fit(**options | changes)


def test_a_damaged_or_foreign_state_is_refused(tmp_path):
    fit(network(), TRAIN, epochs=1, folder=tmp_path)
    path = tmp_path / "state.safetensors"
    whole = path.read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"\x80\x04K\x01.",
        whole.replace(b"pennpde_training", b"another_programs"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"state\.safetensors is not the state of a training"):
            fit(network(), TRAIN, epochs=1, folder=tmp_path, resume=True)
    path.write_bytes(whole.replace(b'\\"format\\": 1', b'\\"format\\": 9'))
    with pytest.raises(ValueError, match="format 9"):
        fit(network(), TRAIN, epochs=1, folder=tmp_path, resume=True)


# Falling and standing still


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
    # Adam's step is the rate as long as the gradient keeps its sign: each stage starts from the best, Adam anew.
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


def test_a_budget_in_minutes_is_kept():
    result = fit(network(), TRAIN, VALIDATION, batch_size=2, minutes=0.01, check_every=1, schedule="cosine")
    assert result.ended == "budget"
    assert 0.6 <= result.seconds < 5.0  # one stretch of steps may pass the end
    assert result.history[-1]["learning_rate"] < 0.1 * 5e-4


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


# Refusing


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lerning_rate": 1e-3}, r"no setting 'lerning_rate'; it has .*learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"schedule": "linear"}, "'linear'"),
        ({"optimizer": "sgd"}, 'optimizer is \'sgd\'; it may be "adam" or "soap"'),
        ({"schedule": "cosine"}, "give epochs, steps or minutes"),
        ({"rate_factor": 1.5}, "rate_factor is 1.5"),
        ({"scales": {"T": 0.0}}, r"scales\['T'\] is 0.0"),
        ({"scales": {"u": 1.0}, "epochs": 1}, r"scales lack \['T'\]"),
        ({"pause_after": 1.0}, "need the folder"),
    ],
)
def test_wrong_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        fit(network(), TRAIN, **settings)


def test_cases_and_networks_that_do_not_fit_are_named():
    class Wrong(Constant):
        def forward(self, case):
            return {"T": super().forward(case)["T"][:, :2]}

    with pytest.raises(ValueError, match="at least one training case"):
        fit(network(), [])
    with pytest.raises(ValueError, match="has no targets"):
        fit(network(), [heated_plate(cells=(2, 2))])
    with pytest.raises(ValueError, match=r"shape \[150, 2\], the target \[150, 4\]"):
        fit(Wrong(), TRAIN, epochs=1)
    with pytest.raises(ValueError, match="no parameter"):
        fit(Constant().requires_grad_(False), TRAIN, epochs=1)


# Several processes, a terminal, a GPU


SCRIPT = """
import sys, json
sys.path[:0] = {paths!r}
import test_training as here
result = here.fit(here.network(), here.TRAIN, here.VALIDATION, learning_rate=1e-2, batch_size=2, epochs=4, test_every=1,
                  folder={folder!r}, device="cpu")
"""


def test_two_processes_have_the_loss_curve_of_one_with_the_same_batches(tmp_path):
    one = fit(network(), TRAIN, VALIDATION, learning_rate=1e-2, batch_size=2, epochs=4, test_every=1)
    script = SCRIPT.format(paths=[str(TESTS)], folder=str(tmp_path))
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getpid() % 1000)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    two = read_log(tmp_path)
    assert len(two) == len(one.history) == 4
    for row, expected in zip(two, one.history, strict=True):
        for column in ("loss", "validation", "validation_T"):
            assert float(row[column]) == pytest.approx(expected[column], rel=1e-8)


def test_a_batch_that_does_not_divide_into_the_processes_is_refused():
    from pennpde.training.processes import Processes

    three = Processes("cpu")
    three.count = 3
    with pytest.raises(ValueError, match="8 cases does not divide into 3 processes"):
        three.share(8)


def test_the_progress_bar_shows_on_a_terminal_and_nowhere_else(capsys, monkeypatch):
    options = {"batch_size": 2, "steps": 4, "check_every": 2}
    fit(network(), TRAIN, **options)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fit(network(), TRAIN, **options)
    shown = capsys.readouterr().err
    assert "loss" in shown
    fit(network(), TRAIN, progress=False, **options)
    assert capsys.readouterr().err == ""


def test_the_state_is_plain_numbers_and_json(tmp_path):
    from safetensors import safe_open

    fit(network(), TRAIN, VALIDATION, epochs=1, folder=tmp_path)
    with safe_open(tmp_path / "state.safetensors", framework="pt") as file:
        state = json.loads(file.metadata()["pennpde_training"])
    assert state["step"] == 1
    assert state["settings"]["learning_rate"] == 5e-4
    assert (tmp_path / "tensorboard").is_dir()


class Replayed:
    """What a captured graph does, without a GPU: the same work again on the same tensors."""

    def __init__(self, work, begin):
        for _ in range(3):
            begin()
            work()
        begin()
        self.replay = work


def test_steps_and_tests_out_of_fixed_tensors_have_the_bits_of_eager_ones(monkeypatch):
    def run(**options):
        torch.manual_seed(0)
        model = advection_diffusion_network(width=4, iterations=3, hidden=8)
        return fit(model, TRAIN, VALIDATION, batch_size=2, epochs=4, test_every=1, check_every=5, **options)

    eager = run()
    monkeypatch.setattr(steps, "can_capture", lambda device: True)
    monkeypatch.setattr(steps, "capture", Replayed)
    captured = run(compiled=False)
    assert captured.description.startswith("captured on cpu")
    for one, other in zip(captured.history, eager.history, strict=True):
        assert {name: one[name] for name in one if name != "seconds"} == {
            name: pytest.approx(other[name], rel=1e-6) for name in other if name != "seconds"
        }
    for name, tensor in captured.model.state_dict().items():
        torch.testing.assert_close(tensor, eager.model.state_dict()[name])


def test_where_capturing_fails_training_goes_on_eagerly_and_says_why(monkeypatch, caplog):
    def refuse(work, begin):
        work()  # whatever it did by then must not show
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(steps, "can_capture", lambda device: True)
    monkeypatch.setattr(steps, "capture", refuse)
    models = [network(), network()]
    with caplog.at_level(logging.INFO, "pennpde"):
        result = fit(models[0], TRAIN, VALIDATION, batch_size=2, steps=5)
    assert result.description.startswith("eager")
    assert "steps could not be captured: RuntimeError: operation not permitted" in caplog.text
    monkeypatch.undo()
    fit(models[1], TRAIN, VALIDATION, batch_size=2, steps=5)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own tracing reads it
def test_methods_that_a_network_names_are_compiled_while_it_trains_and_as_before_afterwards(monkeypatch, caplog):
    compiled, compile_for_real = [], torch.compile

    def compile_eagerly(function, **options):  # no compiler of C++ or CUDA is needed
        compiled.append(options)
        return compile_for_real(function, backend="eager", **options)

    monkeypatch.setattr(steps, "can_capture", lambda device: True)
    monkeypatch.setattr(steps, "capture", Replayed)
    monkeypatch.setattr(torch, "compile", compile_eagerly)
    torch.manual_seed(0)
    model = advection_diffusion_network(width=4, iterations=3, hidden=8)
    with caplog.at_level(logging.INFO, "pennpde"):
        result = fit(model, TRAIN, VALIDATION, batch_size=2, epochs=1)
    assert result.description.startswith("captured, compiled"), caplog.messages
    assert compiled == [{"dynamic": False, "fullgraph": True}]
    assert "iterate" not in vars(model)


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_captured_step_gives_the_loss_curve_of_an_eager_one(compiled):
    def run(captured):
        torch.manual_seed(0)
        model = advection_diffusion_network(width=4, iterations=3, hidden=8)
        options = {"batch_size": 2, "epochs": 4, "test_every": 1, "check_every": 5, "device": "cuda"}
        return fit(model, TRAIN, VALIDATION, captured=captured, compiled=compiled and captured, **options)

    captured, eager = run(True), run(False)
    assert captured.description.startswith("captured, compiled" if compiled else "captured on")
    for one, other in zip(captured.history, eager.history, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)  # float32, amplified by the solver
        assert one["validation"] == pytest.approx(other["validation"], rel=1e-3)
