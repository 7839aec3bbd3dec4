"""Pictures of several networks side by side: which take part, and that they are drawn."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from commands import penn
from paths import ROOT
from pennlab.paper import figures
from pennlab.paper.tables import read_files
from pennpde.data import storage

FLOW = ROOT / "lab" / "records" / "flow"


class Off:
    """Predicts the truth plus an amount; its fields turn with the case."""

    def __init__(self, amount: float):
        self.amount = amount

    def __call__(self, case):
        return {name: values * (1 + self.amount) for name, values in case.targets.items()}


def test_weights_next_to_a_record_are_found_and_networks_without_are_named():
    files = read_files([FLOW / "penn", FLOW / "floor_start"])
    networks, missing = figures.networks_of(files)
    seeds = len([each for each in (FLOW / "penn").iterdir() if each.is_dir()])
    assert [each.row for each in networks] == ["penn"] * seeds, "once, though there are records of moved cases as well"
    assert missing == ["Start field"]


def test_weights_that_come_later_are_picked_up(tmp_path):
    record = json.loads((FLOW / "C" / "0.json").read_text()) | {"model": "runs/elsewhere"}
    (tmp_path / "0.json").write_text(json.dumps(record))
    assert figures.networks_of(read_files([tmp_path]))[1] == [record["title"]]
    (tmp_path / "0").symlink_to(FLOW / "C" / "0")
    networks, missing = figures.networks_of(read_files([tmp_path / "0.json"]))
    assert [each.title for each in networks] == [record["title"]]
    assert not missing


def test_another_network_under_the_record_s_name_is_not_taken_for_it(tmp_path):
    record = json.loads((FLOW / "C" / "0.json").read_text()) | {"model": str(FLOW / "A" / "0")}
    (tmp_path / "0.json").write_text(json.dumps(record))
    assert figures.networks_of(read_files([tmp_path]))[1] == [record["title"]]


def test_short_rows_say_so_above_their_column(tmp_path):
    record = json.loads((FLOW / "C" / "0.json").read_text())
    record["training"]["steps"] = 2000
    (tmp_path / "0.json").write_text(json.dumps(record | {"model": str(FLOW / "C" / "0")}))
    (drawn,), _ = figures.networks_of(read_files([tmp_path]))
    assert drawn.title.endswith("(short: 2,000 of 20,000 steps)")


def test_a_row_of_truth_and_predictions_has_a_row_of_errors_below(monkeypatch, tmp_path):
    case = storage.read_file(ROOT / "data" / "flow", "a_0.50").case
    shown = []
    monkeypatch.setattr(figures, "draw", lambda path, rows, **_: shown.extend(rows))
    networks = [figures.Drawn(f"off by {each}", "off", Off(each)) for each in (0.1, 0.01)]
    figures.draw_comparison(case, networks, tmp_path / "picture.png", motion=True)
    assert len(shown) == 2 * 2 * 2, "u and p, as they are and moved, fields and errors"
    assert all(len(row) == 3 for row in shown)
    truth, first, second = (panel.values for panel in shown[0])
    assert torch.allclose(first, 1.1 * truth)
    assert torch.allclose(second, 1.01 * truth)
    _, large, small = (panel.values for panel in shown[1])
    inside = truth > 1e-3
    assert torch.allclose((large - small)[inside], torch.ones_like(truth)[inside]), "a factor of ten is one decade"
    limits = {panel.limits for panel in shown[1][1:]}
    assert len(limits) == 1, "colours mean the same along a row"
    # A motion changes neither lengths nor pressures.
    assert torch.allclose(shown[4][1].values, first)


@pytest.mark.slow
def test_the_command_draws_one_picture_of_all_networks(tmp_path):
    finished = penn("report", FLOW / "penn" / "0.json", FLOW / "C" / "0.json", FLOW / "G" / "0.json",
                    "--data", ROOT / "data" / "flow", "--case", "a_0.50", "--pictures", tmp_path, "--json")  # fmt: skip
    assert finished.exit_code == 0, finished.output
    (path,) = map(Path, json.loads(finished.stdout)["written"])
    with Image.open(path) as picture:
        assert picture.width > 600
    if not (FLOW / "G" / "0" / "model.safetensors").exists():
        assert "left out, because their weights are not here: (G)" in finished.stderr
