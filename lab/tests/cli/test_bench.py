"""`penn bench`: tables made again from records, and wrong use."""

import json
from pathlib import Path

import pytest

from commands import penn
from paths import ROOT
from pennlab.paper.openfoam_sweep import sweep
from sweeps import NAMES, network_row, solved_by_rule, traded, write_dataset


def test_the_table_of_a_sweep_is_made_again_from_its_record(tmp_path):
    solved = solved_by_rule(write_dataset(tmp_path / "data"), tmp_path / "runs")
    sweep.write_record(tmp_path / "record.json", solved)
    finished = penn("bench", "openfoam", "--from", tmp_path / "record.json", "--out", tmp_path / "out", "--json")
    assert finished.exit_code == 0, finished.output
    text = (tmp_path / "out" / sweep.TABLE).read_text(encoding="utf-8")
    assert json.loads(finished.stdout)["markdown"] == text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(solved["rows"])
    (printed,) = [row for row in rows if row.startswith("| `gamg-smooth-22.5-0.01`")]
    assert "| 60.9 ± 0.2 |" in printed, "the paper's error"
    assert "| 6.08 ± 0.17 |" in printed, "the paper's seconds"
    mistaken = penn("bench", "tradeoff", "--from", tmp_path / "record.json", "--out", tmp_path / "out")
    assert mistaken.exit_code == 1
    assert "penn bench tradeoff" in mistaken.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing", "--out", "o"], 2, "nothing"),
        (["openfoam", "--out", "o"], 2, "--data is missing"),
        (["openfoam", "--data", "absent", "--out", "o"], 1, "absent is not a dataset"),
        (["openfoam", "--data", "absent", "--out", "o", "--settings", "fast"], 1, "names no setting"),
        (["openfoam", "--data", "d", "--out", "o", "--models", "flow"], 2, "No such option: --models"),
        (["tradeoff", "--data", "d", "--out", "o", "--limit", "3"], 2, "No such option: --limit"),
        (["tradeoff", "--data", "d", "--out", "o"], 2, "needs --models"),
        (["tradeoff", "--data", "d", "--out", "o", "--models", "flow"], 2, "--openfoam is missing"),
        (["tradeoff", "--data", "d", "--out", "o", "--models", "flow", "--openfoam", "absent.json"], 1, "absent.json"),
        (["tradeoff", "--from", "absent.json", "--out", "o"], 1, "absent.json"),
        (["tradeoff", "--from", "r.json", "--out", "o", "--models", "flow"], 2, "--models has no effect with --from"),
        (["openfoam", "--from", "r.json", "--out", "o", "--limit", "3"], 2, "--limit has no effect with --from"),
        (["openfoam", "--from", "absent.json", "--out", "o"], 1, "absent.json"),
    ],
)
def test_wrong_use_of_the_command_is_said(arguments, code, words):
    finished = penn("bench", *arguments)
    assert finished.exit_code == code
    assert words in " ".join(finished.stderr.replace("│", " ").split())
    assert "Traceback" not in finished.output


def errors_of(path: Path) -> dict[str, float]:
    return {each["row"]: each["pooled"]["domain"]["u"]["mse"] for each in json.loads(path.read_text())}


@pytest.mark.slow
def test_floors_without_a_network_come_from_one_command(tmp_path):
    result = penn("bench", "lookup", ROOT / "data" / "flow", "--out", tmp_path / "floors.json", "--json")
    assert result.exit_code == 0, result.output
    found = errors_of(tmp_path / "floors.json")
    assert found == pytest.approx(errors_of(ROOT / "lab" / "benchmarks" / "results" / "lookup_flow.json"), rel=1e-9)
    assert found["floor_quadratic"] < found["floor_nearest"] < found["floor_start"]


def test_the_networks_of_a_record_stand_next_to_a_newer_record_of_openfoam(tmp_path):
    data = write_dataset(tmp_path / "data")
    older = solved_by_rule(data, tmp_path / "runs")
    record = traded(older, network_row(dict.fromkeys(NAMES, 0.01), 0.1))
    newer = json.loads(json.dumps(older)) | {"solver": "abacus 2"}
    sweep.write_record(tmp_path / "tradeoff.json", record)
    sweep.write_record(tmp_path / "newer.json", newer)
    files = ("--from", tmp_path / "tradeoff.json", "--openfoam", tmp_path / "newer.json")
    finished = penn("bench", "tradeoff", *files, "--out", tmp_path / "out", "--json")
    assert finished.exit_code == 0, finished.output
    joined = json.loads((tmp_path / "out" / "tradeoff.json").read_text())
    assert joined["openfoam"]["solver"] == "abacus 2"
    assert joined["networks"] == record["networks"]
    sweep.write_record(tmp_path / "newer.json", newer | {"cases": {"a_0.50": "0" * 64}})
    refused = penn("bench", "tradeoff", *files, "--out", tmp_path / "out")
    assert refused.exit_code == 1
    assert "another truth" in refused.stderr
