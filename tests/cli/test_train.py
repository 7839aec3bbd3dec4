"""`penn train DATASET`: without a file written by hand, from shipped weights, resumable, with a report."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from commands import penn, store
from pennpde import checkpoints
from pennpde.data import storage
from pennpde.prediction import predict
from small_ducts import NAMES, duct, flow_in_units, store_ducts


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Six flows in SI units."""
    return store_ducts(tmp_path_factory.mktemp("ducts") / "data", 1e-3, 0.2)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return store(tmp_path_factory.mktemp("network") / "small")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoints.load(folder).state_dict()


@pytest.mark.slow
def test_a_network_is_trained_from_another_reported_and_predicts(data, small, tmp_path):
    out = tmp_path / "net"
    command = ("train", data, "--from", small, "--out", out, "--device", "cpu", "--rate", "1e-3")
    finished = penn(*command, "--steps", 8, "--freeze", "encoders")
    assert finished.exit_code == 0, finished.stderr
    assert "The budget is used up: 8 steps" in finished.stdout
    assert "test (1 case): nearest training case" in finished.stdout
    for part in ("rate", "left", "validation"):
        assert part in finished.stderr
    record = json.loads((out / "training.json").read_text())
    assert record["from"]["network"] == "small"
    assert record["frozen"]
    assert all(torch.equal(weights(out)[name], weights(small)[name]) for name in record["frozen"])
    report = json.loads((out / "report.json").read_text())
    assert set(report["relative_l2"]) == {"train", "validation", "test"}
    assert set(report["relative_l2"]["test"]) == {"network", "start field", "nearest training case"}
    page = (out / "report.md").read_text()
    for name in ("learning_curve.png", "worst_1.png"):
        assert f"({name})" in page
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert not list(out.glob(".*")), "no parts of files are left"

    case = storage.read(data, "test")[0]
    network = checkpoints.load(out)
    outcome = predict(network, case)
    error = float((outcome.fields["u"] - case.targets["u"]).norm() / case.targets["u"].norm())
    assert error == pytest.approx(report["relative_l2"]["test"]["network"]["u"]["mean"], rel=1e-3)


def test_the_report_is_within_the_minutes_that_are_given(data, small, tmp_path):
    out = tmp_path / "net"
    minutes = 0.05  # of which the report has a fifth: 0.6 s, enough for one case of each split at least
    finished = penn("train", data, "--from", small, "-o", out, "--device", "cpu", "--minutes", minutes, "--json")
    assert finished.exit_code == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert record["settings"]["minutes"] == pytest.approx(0.8 * minutes)
    assert all(number >= 1 for number in record["report"]["cases"].values())


def test_a_report_without_time_measures_one_case_of_each_split(data, small):
    from pennpde.train.report import write_report

    assert set(write_report(small, data, seconds=0.0).cases.values()) == {1}


def test_training_never_ends_worse_than_the_network_it_began_with(data, small, tmp_path):
    """A rate that destroys the network: the weights of the start are kept."""
    out = tmp_path / "net"
    options = ("--from", small, "--device", "cpu", "--steps", 3, "--rate", 1e3, "--no-report")
    finished = penn("train", data, "--out", out, *options)
    assert finished.exit_code == 0, finished.stderr
    assert all(torch.equal(values, weights(small)[name]) for name, values in weights(out).items())
    assert "nothing was better than the weights that it began with: these are kept" in finished.stdout


def test_a_training_that_is_interrupted_says_so_by_its_exit_code(data, small, tmp_path, monkeypatch):
    from pennpde.train.fitting import Journal

    def write(journal, row, written=Journal.write):
        signal.raise_signal(signal.SIGINT)  # ctrl+c, at the first test
        written(journal, row)

    monkeypatch.setattr(Journal, "write", write)
    options = ("--from", small, "--device", "cpu", "--steps", 50, "--no-report")
    finished = penn("train", data, "--out", tmp_path / "net", *options)
    assert finished.exit_code == 128 + signal.SIGINT
    assert "Paused; continue with the same command and --resume" in finished.stdout


@pytest.mark.slow
def test_a_training_that_is_killed_continues_to_the_same_bits(data, small, tmp_path):
    """By kill -9 at any time, also before the first test."""
    arguments = ["train", str(data), "--from", str(small), "--steps", "60", "--device", "cpu", "--no-report"]

    def command(out: str) -> list[str]:
        return [sys.executable, "-m", "pennpde", *arguments, "--out", str(tmp_path / out)]

    subprocess.run(command("whole"), check=True, capture_output=True, timeout=300)
    for _ in range(3):
        process = subprocess.Popen([*command("cut"), "--resume"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        state = tmp_path / "cut" / "state.safetensors"
        before = state.stat().st_mtime if state.exists() else 0.0
        while process.poll() is None and (not state.exists() or state.stat().st_mtime == before):
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([*command("cut"), "--resume"], check=True, capture_output=True, timeout=300)
    assert all(torch.equal(each, weights(tmp_path / "whole")[name]) for name, each in weights(tmp_path / "cut").items())


def test_a_paused_training_refuses_to_go_on_with_other_layers(data, small, tmp_path):
    out = tmp_path / "net"
    command = ("train", data, "--from", small, "--out", out, "--device", "cpu", "--steps", 4, "--no-report")
    assert penn(*command, "--pause-after", 0, "--freeze", "encoders").exit_code == 0
    refused = penn(*command, "--resume")
    assert refused.exit_code == 1
    assert "other layers are frozen" in refused.stderr
    assert penn(*command, "--resume", "--freeze", "encoders").exit_code == 0
    assert json.loads((out / "training.json").read_text())["ended"] == "budget"


def test_a_budget_on_the_command_line_replaces_one_that_the_row_lacks(data, tmp_path):
    rows = tmp_path / "rows.toml"
    rows.write_text(
        '[rows.penn]\ndataset = "flow"\nnetwork = "ducts"\n'
        "arguments = { width = 2, iterations = 1, pressure_iterations = 1 }\n"
        'training = { schedule = "cosine", batch_size = 2 }\n'
    )
    command = ("train", rows, "--data", data, "--out", tmp_path / "net", "--device", "cpu")
    refused = penn(*command)
    assert "give epochs, steps or minutes" in refused.stderr
    finished = penn(*command, "--steps", 1, "--json")
    assert finished.exit_code == 0, finished.stderr
    assert json.loads(finished.stdout)["steps"] == 1
    assert not (tmp_path / "net" / "report.md").exists(), "rows of a file have no report unless it is asked for"


@pytest.fixture(scope="module")
def series(tmp_path_factory) -> Path:
    """Two flows with two moments each, one of them with a steady state."""
    folder = tmp_path_factory.mktemp("series") / "data"
    cases = []
    for number in (0, 1):
        targets = {name: torch.stack([values, values], dim=-1) for name, values in duct(number).targets.items()}
        steady = {f"steady_{name}": values for name, values in duct(2).targets.items()} if number else {}
        cases.append(flow_in_units(replace(duct(number), targets=targets | steady), 1e-3, 0.2))
    storage.write(folder, cases, {"train": NAMES[:1], "test": NAMES[:2]}, "plane-flow", times=[0.002, 0.02])
    return folder


@pytest.mark.slow
def test_a_network_for_any_time_is_evaluated_at_every_moment(series, tmp_path):
    finished = penn("evaluate", "flow", series, "--json", "--pictures", tmp_path / "pictures")
    assert finished.exit_code == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert record["kind"] == "evaluation at moments"
    assert [len(each["u"]) for each in record["records"]] == [2, 2]
    assert record["relative_l2"]["steady"]["cases"] == 1
    assert len(list((tmp_path / "pictures").glob("*.png"))) >= 2
    shown = penn("evaluate", "flow", series, "--limit", 1)
    assert "moment 2   (1 cases)" in shown.stdout


def test_a_network_of_one_time_is_evaluated_where_it_has_a_target(series, small):
    finished = penn("evaluate", small, series, "--json")  # 0.02 s are 4 L/U
    assert finished.exit_code == 0, finished.stderr
    assert json.loads(finished.stdout)["kind"] == "evaluation"
    assert json.loads(finished.stdout)["cases"] == 2


def test_moments_and_steady_states_are_counted_by_info(series):
    record = json.loads(penn("info", series, "--json").stdout)
    assert record["moments_per_case"] == [2, 2]
    assert record["times"] == [0.002, 0.02]
    assert record["steady_states"] == 1


@pytest.mark.slow
def test_a_network_for_any_time_is_trained_on_all_moments(series, tmp_path):
    out = tmp_path / "net"
    finished = penn("train", series, "--from", "flow", "--out", out, "--steps", 2, "--device", "cpu")
    assert finished.exit_code == 0, finished.stderr
    record = json.loads((out / "training.json").read_text())
    assert record["network"] == "flow"
    assert record["dataset"]["train"] == 2, "one flow with two moments"
    assert any(
        not torch.equal(each, weights(out)[name])
        for name, each in checkpoints.load_pretrained("flow").state_dict().items()
    )
