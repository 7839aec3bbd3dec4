"""The list of trainings that are not whole."""

import importlib
import json
import shlex

import pytest

from paths import ROOT
from pennpde.train import read_row


@pytest.fixture
def short_rows(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "lab" / "benchmarks")
    return importlib.import_module("short_rows")


def copy_of_experiments(folder):
    for name in ("flow.toml", "flow_baselines.toml", "advection_diffusion.toml"):
        (folder / "lab" / "experiments").mkdir(parents=True, exist_ok=True)
        (folder / "lab" / "experiments" / name).write_text((ROOT / "lab" / "experiments" / name).read_text())
    return folder


def test_without_records_all_rows_and_seeds_are_short(short_rows, tmp_path):
    found = short_rows.missing(copy_of_experiments(tmp_path))
    names = [(each.row, each.seed) for each in found if each.records == "flow"]
    assert len(names) == len(set(names))
    assert {seed for row, seed in names if row == "penn"} == {0, 1, 2}
    assert [seed for row, seed in names if row == "n4_r4"] == [0]
    assert {row for row, _ in names} >= {"paper", "released", "mp_pde_20_64", "mesh_graph_net"}
    assert "shipped" not in {row for row, _ in names}
    assert all(each.had == 0 for each in found)


def test_a_whole_row_is_no_longer_listed_and_one_that_lacks_a_step_is(short_rows, tmp_path):
    folder = copy_of_experiments(tmp_path)
    records = folder / "lab" / "records" / "flow" / "n4_r4"
    records.mkdir(parents=True)
    for steps, listed in ((19_999, True), (20_000, False)):
        (records / "0.json").write_text(json.dumps({"training": {"steps": steps}}))
        assert ("n4_r4" in {each.row for each in short_rows.missing(folder)}) == listed


def test_rows_of_the_authors_protocol_are_listed_until_they_have_the_steps_of_their_own(short_rows, tmp_path):
    folder = copy_of_experiments(tmp_path)
    wanted = {each.row: each.wanted for each in short_rows.missing(folder) if each.records == "flow"}
    assert wanted["penn"] == wanted["mp_pde_20_64"] == wanted["mp_pde_2_64"] == 20_000
    assert wanted["paper"] == wanted["released"] == 160_000
    records = folder / "lab" / "records" / "flow" / "paper"
    records.mkdir(parents=True)
    for steps, listed in ((93_700, True), (160_000, False)):
        (records / "0.json").write_text(json.dumps({"training": {"steps": steps}}))
        rows = [each.row for each in short_rows.missing(folder) if each.records == "flow"]
        assert ("paper" in rows) == listed
        assert "released" in rows


def test_rows_of_advection_diffusion_are_listed_until_their_weights_are_kept(short_rows, tmp_path):
    folder = copy_of_experiments(tmp_path)

    def listed():
        rows = [each for each in short_rows.missing(folder) if each.records == "advection_diffusion"]
        return {(each.row, each.seed): each.wanted for each in rows}

    assert listed()["A", 0] == listed()["G", 2] == 12_000
    assert listed()["released", 0] == 19_200
    records = folder / "lab" / "records" / "advection_diffusion" / "A"
    (records / "0").mkdir(parents=True)
    (records / "0.json").write_text(json.dumps({"training": {"steps": 12_000}}))
    assert ("A", 0) in listed()
    (records / "0" / "model.safetensors").touch()
    assert ("A", 0) not in listed()


def test_commands_name_rows_that_exist_and_keep_weights_where_records_look_for_them(short_rows):
    for each in short_rows.missing():
        train = shlex.split(next(line for line in each.commands if line.startswith("penn train")))
        assert read_row(ROOT / train[2], train[4]).row == each.row
        assert "--resume" in train
        kept = f"lab/records/{each.records}/{each.row}/{each.seed}"
        assert any(line.startswith("cp ") and line.endswith(kept) for line in each.commands)
        assert any(f"> {kept}.{name}.json" in line for name in ("unrelated", "off_lattice") for line in each.commands)
        if each.paused:
            assert any(each.paused in line for line in each.commands)


def test_every_paused_training_is_continued_by_a_command(short_rows):
    text = short_rows.script(short_rows.missing())
    assert all(path.name in text for path in (ROOT / "lab" / "experiments" / "paused").glob("*.tar.xz"))


def test_the_list_says_how_many_steps_are_there(short_rows, tmp_path):
    lines = short_rows.listed(short_rows.missing(copy_of_experiments(tmp_path))).splitlines()
    (line,) = [line for line in lines if line.startswith("flow  ") and " n4_r4 " in line]
    assert line.split()[2:] == ["0", "0", "of", "20,000"]
    (line,) = [line for line in lines if line.startswith("flow  ") and " paper " in line]
    assert line.split()[2:] == ["0", "0", "of", "160,000"]
