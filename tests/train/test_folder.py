"""A training that was interrupted goes on where it stood, or says why not; and what it shows on a terminal."""

import json
import sys

import pytest

from pennpde.files import locked_folder
from pennpde.train import fit
from pennpde.train.folder import read_log
from pennpde.train.steps import scaled_squared_error
from trainings import (
    EIGHT,
    TRAIN,
    VALIDATION,
    Constant,
    assert_same_bits,
    network,
    weights,
)

# Going on


@pytest.mark.slow
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
    options = {"batch_size": 2, "check_every": 5, "folder": tmp_path, "loss": loss}
    result = fit(network(), TRAIN, steps=100, **options)
    assert (result.ended, result.steps, result.signal) == ("paused", 10, signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    assert fit(network(), TRAIN, steps=12, resume=True, **options).steps == 12


def test_two_trainings_do_not_write_into_one_folder(tmp_path):
    with locked_folder(tmp_path, "another training"), pytest.raises(ValueError, match="another training is going on"):
        fit(network(), TRAIN, steps=2, batch_size=2, folder=tmp_path)
    assert fit(network(), TRAIN, steps=2, batch_size=2, folder=tmp_path, resume=True).steps == 2


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


def absolute(model, case, weights):
    return (weights[:, None] * (model(case)["T"] - case.targets["T"]).abs()).sum()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 1.0}, "learning_rate was 0.0005 and is 1.0"),
        ({"batch_size": 3}, "batch_size was 2 and is 3"),
        ({"train": EIGHT[1:7]}, "the cases are others"),
        ({"model": Constant()}, "other weights"),
        ({"loss": absolute}, "the loss was the scaled squared error and is absolute"),
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


# Several processes, a terminal, a GPU


def test_the_state_is_plain_numbers_and_json(tmp_path):
    from safetensors import safe_open

    fit(network(), TRAIN, VALIDATION, epochs=1, folder=tmp_path)
    with safe_open(tmp_path / "state.safetensors", framework="pt") as file:
        state = json.loads(file.metadata()["pennpde_training"])
    assert state["step"] == 1
    assert state["settings"]["learning_rate"] == 5e-4


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
