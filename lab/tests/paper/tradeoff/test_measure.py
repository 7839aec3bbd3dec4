"""Networks measured on the cases of a sweep."""

import json
from dataclasses import replace

import pytest
import torch

from commands import penn, store
from pennlab.paper.openfoam_sweep import sweep
from pennlab.paper.openfoam_sweep.sweep import TestSet
from pennlab.paper.tradeoff import figure, presentation
from pennlab.paper.tradeoff import measure as tradeoff
from sweeps import NAMES, network_row, small_case, traded, write_dataset

pytestmark = pytest.mark.slow  # with others like it more than some seconds


def test_networks_are_measured_as_they_are_and_moved_and_drawn_again_from_the_record(data, solved, tmp_path):
    model = store(tmp_path / "net", "ducts")
    sweep.write_record(tmp_path / "sweep.json", solved)
    options = ("--data", data, "--models", model, "--openfoam", tmp_path / "sweep.json", "--repeats", 2)
    finished = penn("bench", "tradeoff", *options, "--out", tmp_path / "out", "--json")
    assert finished.exit_code == 0, finished.output
    record = sweep.read_record(tmp_path / "out" / "tradeoff.json", tradeoff.KIND, "penn bench tradeoff")
    plain, moved = record["networks"]
    assert (plain["transformed"], moved["transformed"]) == (False, True)
    assert {each["case"] for each in plain["records"]} == set(NAMES)
    # A network that respects space errs the same wherever a case lies; float32 and shifts of 10 leave 1e-4 of it.
    assert moved["errors"]["total"]["mse"] == pytest.approx(plain["errors"]["total"]["mse"], rel=1e-2)
    assert all(each["seconds"]["solve"] > 0 for each in plain["records"])
    assert all(value > 0 for each in record["preparation"].values() for value in each.values())
    assert record["threads"] == 1
    assert record["precision"] == "float32"
    found = json.loads(finished.stdout)
    again = penn(
        "bench", "tradeoff", "--from", tmp_path / "out" / "tradeoff.json", "--out", tmp_path / "again", "--json"
    )
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["markdown"] == found["markdown"]
    assert (tmp_path / "again" / "tradeoff.md").read_text() == (tmp_path / "out" / "tradeoff.md").read_text()
    assert (tmp_path / "again" / "tradeoff.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_measured_is_kept_for_a_second_start(data, solved, tmp_path, monkeypatch):
    model, test_set, calls = str(store(tmp_path / "net", "ducts")), TestSet.read(data), []
    real = tradeoff._timed
    monkeypatch.setattr(tradeoff, "_timed", lambda *given: calls.append(given[1].name) or real(*given))

    def measured(**changes):
        calls.clear()
        options = {"models": [model], "repeats": 1, "runs": tmp_path / "runs"} | changes
        return tradeoff.compare(test_set, openfoam=solved, **options)["networks"]

    first = measured()
    assert len(calls) == 2 * len(NAMES)
    files = sorted((tmp_path / "runs").iterdir())
    assert [each.name.endswith("_moved.json") for each in files] == [False, True]
    assert measured() == first
    assert calls == []
    files[1].write_text(files[1].read_text()[:50])  # damaged: measured once more
    measured()
    assert len(calls) == len(NAMES)
    measured(repeats=2)
    assert len(calls) == 2 * len(NAMES), "measured in another way"
    store(tmp_path / "net", "ducts", width=3)
    measured(repeats=2)
    assert len(calls) == 2 * len(NAMES), "other weights in the same folder"
    store(tmp_path / "net", "ducts", width=3, iterations=4)
    measured(repeats=2)
    assert len(calls) == 2 * len(NAMES), "the same weights, more work"
    measured(repeats=2, runs=None)
    assert len(calls) == 2 * len(NAMES)


def test_networks_of_an_earlier_record_stay_unless_one_of_their_title_is_measured(data, solved, tmp_path):
    model = str(store(tmp_path / "net", "ducts"))
    others = [network_row(dict.fromkeys(NAMES, 0.5), 0.1, title=title, model=title) for title in ("Other", model)]
    known = traded(solved, *others)
    newer = solved | {"solver": "abacus 2"}
    found = tradeoff.compare(TestSet.read(data), [model], newer, repeats=1, known=known)
    assert [(row["title"], row["transformed"]) for row in found["networks"]] == [
        (model, False),
        (model, True),
        ("Other", False),
    ]
    assert found["networks"][0]["errors"]["u"]["mse"] != 0.5
    assert found["networks"][0]["machine"] == tradeoff.machine()
    assert found["networks"][2] == others[0]
    assert found["openfoam"]["solver"] == "abacus 2"
    assert found["preparation"] == known["preparation"]


def test_of_a_network_with_new_weights_the_shorter_times_count(solved):
    slow, quick = (network_row(dict.fromkeys(NAMES, error), seconds) for error, seconds in ((0.1, 9.0), (0.5, 2.0)))
    (row,) = tradeoff._with_networks(traded(solved, quick), [slow])["networks"]
    assert [each["seconds"]["solve_cpu"] for each in row["records"]] == [2.0] * len(NAMES)
    assert row["seconds"]["mean"] == 2.0
    assert row["errors"] == slow["errors"]
    (row,) = tradeoff._with_networks(traded(solved, quick), [slow | {"parameters": 2}])["networks"]
    assert row["seconds"] == slow["seconds"], "another network of the same title"


def test_a_slow_network_is_called_once_a_case(data, tmp_path, monkeypatch):
    network = tradeoff.load_pretrained(store(tmp_path / "net", "ducts"), dtype=torch.float32)
    case, calls = TestSet.read(data).cases[0], []
    network.register_forward_hook(lambda *_: calls.append(1))
    for limit, wanted in ((60.0, 4), (0.0, 1)):
        calls.clear()
        monkeypatch.setattr(tradeoff, "LONG", limit)
        with torch.no_grad():
            found = tradeoff._timed(network, case, 3)
        assert len(calls) == wanted
        assert found["seconds"]["solve"] > 0
    assert found["seconds"]["solve"] == found["seconds"]["first_call"]


def test_a_network_without_a_finite_result_is_recorded_as_diverged(data, solved, tmp_path):
    folder = store(tmp_path / "net", "ducts")
    network = tradeoff.load_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(float("nan"))
    test_set = TestSet.read(data)
    with torch.no_grad():
        records = [tradeoff._timed(network, case, 1) for case in test_set.cases]
    row = tradeoff._row("net", network, False, records)
    assert (row["errors"], len(row["diverged"])) == (None, 3)
    record = traded(solved, row)
    assert "net in 3 of 3 cases: its fields are not finite" in presentation.markdown(record)
    figure.draw(record, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_a_sweep_of_another_truth_is_refused(solved, tmp_path):
    other = write_dataset(
        tmp_path / "other",
        [
            replace(small_case(name), name=name).moved(
                torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
            )
            for name in NAMES
        ],
    )
    with pytest.raises(ValueError, match="another truth than the dataset has"):
        tradeoff.compare(TestSet.read(other), ["flow"], solved)
