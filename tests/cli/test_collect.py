"""`penn collect` as users meet it."""

import json

import pytest

from commands import penn, store
from finished_runs import channel, no_picture
from pennpde.data.runs import collect as collecting

pytestmark = pytest.mark.slow  # with others like it more than some seconds


@pytest.fixture
def runs(tmp_path):
    for place in range(3):
        channel(tmp_path / "runs" / f"run_{place}", viscosity=0.01 * 1.5**place)
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch):
    monkeypatch.setattr(collecting, "draw_all", no_picture)


def test_a_dataset_comes_from_one_command_and_other_commands_read_it(runs, tmp_path):
    made = penn("collect", *sorted(runs.iterdir()), "--out", tmp_path / "set", "--json")
    assert made.exit_code == 0, made.output
    record = json.loads(made.stdout)
    assert record["collected"] == ["run_0", "run_1", "run_2"]
    assert record["splits"]["train"]
    told = penn("info", tmp_path / "set", "--json")
    assert json.loads(told.stdout)["cases"] == 3
    network = store(tmp_path / "network")
    evaluated = penn("evaluate", network, tmp_path / "set", "--json")
    assert evaluated.exit_code == 0, evaluated.output
    assert json.loads(evaluated.stdout)["cases"] == 1


def test_a_broken_run_is_a_warning_and_an_error_only_when_asked_for(runs, tmp_path):
    channel(runs / "wrong", fields=("U",))
    (runs / "notes.txt").write_text("nothing")
    arguments = ["collect", *sorted(runs.iterdir()), "--out", tmp_path / "set"]
    made = penn(*arguments)
    assert made.exit_code == 0
    assert "wrong not collected: time 1 has no field p" in made.stderr
    assert "notes.txt skipped" in made.stderr
    assert "3 runs collected" in made.stdout
    strict = penn(*arguments, "--strict")
    assert strict.exit_code == 1
    assert "1 runs could not be collected" in strict.stderr


def test_nothing_collected_is_an_error_without_a_traceback(tmp_path):
    channel(tmp_path / "run", end=5.0)
    made = penn("collect", tmp_path / "run", "--out", tmp_path / "set")
    assert made.exit_code == 1
    assert "Nothing was collected.\nrun: it is not finished" in made.stderr
    assert "Traceback" not in made.stderr
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--time", "soon", "The time is 'soon'"),
        ("--spacing", "wide", "The spacing is 'wide'"),
        ("--fields", "=U", "The field is '=U'"),
        ("--parameters", "nu", "but no fields"),
        ("--test-share", "0.95", "--test-share"),
        ("--case", "nowhere.toml", "no problem file"),
    ],
)
def test_a_wrong_option_is_said_before_anything_is_read(runs, tmp_path, option, value, message):
    made = penn("collect", runs / "run_0", "--out", tmp_path / "set", option, value)
    assert made.exit_code != 0
    assert message in made.stderr
    assert not (tmp_path / "set").exists()
