"""The comparison of networks with OpenFOAM: settings, the sweep, who beats whom, table and figure."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import penn, store
from matplotlib.axes import Axes
from paths import ROOT

from pennpde import openfoam
from pennpde.datasets import storage
from pennpde.datasets.flow import cases as flow
from pennpde.datasets.flow.truth import Profile
from pennpde.paper.openfoam_sweep import settings, sweep
from pennpde.paper.openfoam_sweep.settings import FAMILIES, GROUPS, Planned, Setting, parse
from pennpde.paper.openfoam_sweep.sweep import OtherResultError, TestSet, interleaved
from pennpde.paper.tables import paper_numbers
from pennpde.paper.tradeoff import figure, presentation
from pennpde.paper.tradeoff import measure as tradeoff

NAMES = ("a_0.50", "b_0.30_0.70", "c_0.80_0.30")


def small_case(name: str):
    """A case on a mesh of some 60 points; its truth is a uniform flow."""
    mesh = flow.coarse_mesh(name, cells_per_length=4)
    targets = {"u": torch.ones_like(mesh.points) * 0.5, "p": torch.zeros(mesh.number_of_points, dtype=torch.float64)}
    return flow.flow_case(mesh, name, targets)


def write_dataset(folder: Path, cases=None, **changes) -> Path:
    given = {
        "splits": {"test": list(NAMES)},
        "dataset": "flow",
        "settings": {"solver": {"profile": {"cells": 90, "time_step": 0.005}}},
    }
    storage.write(folder, cases or [small_case(name) for name in NAMES], **(given | changes))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"))


class FakeSolver:
    """Errors and times by rule: what `measure` would return, and a list of what was measured."""

    def __init__(self, rule):
        self.rule = rule
        self.heard = []

    def __call__(self, case, setting):
        self.heard.append((case.name, setting.name))
        error, seconds = self.rule(case, setting)
        common = {"machine": {"cpu": "abacus"}, "load": 0.0, "steps": 1}
        if error is None:
            return {"outcome": "diverged", "reason": "icoFoam diverged", "seconds": {"mesh": 0.1}, **common}
        estimate = {"mse": error, "standard_error": 0.0, "count": case.number_of_points}
        times = {"mesh": 0.1, "potential_flow": 0.2, "solve": seconds, "solve_cpu": seconds}
        return {"outcome": "finished", "errors": {"u": estimate, "p": estimate}, "seconds": times, **common}


def swept(test_set, runs, names, rule=lambda case, setting: (0.01, 1.0)):
    return sweep.sweep(test_set, settings.read(names), runs, measure=FakeSolver(rule), solver="abacus 1")


# Settings


@pytest.mark.parametrize(
    ("text", "setting", "cases"),
    [
        ("gamg-smooth-22.5-0.050", Setting("gamg-smooth", 22.5, time_step=0.05), None),
        ("tuned-lust-45-0.01@10", Setting("tuned-lust", 45, time_step=0.01), 10),
        ("adaptive-15-co0.9", Setting("adaptive", 15, courant=0.9), None),
    ],
)
def test_a_name_tells_family_resolution_and_cases(text, setting, cases):
    assert parse(text) == Planned(setting, cases)
    assert parse(setting.name).setting == setting


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gamg", "names no setting"),
        ("quick-22.5-0.01", "the families are gamg-smooth"),
        ("tuned-22.5", "names no setting"),
        ("tuned-1..2-0.01", "is no number"),
        ("tuned-1-0.01", "1 cells per unit length"),
        ("tuned-22.5-0.03", "do not end at t = 4"),
        ("tuned-22.5-0", "time step of 0"),
        ("tuned-22.5-2", "time step of 2"),
        ("tuned-22.5-0.01@0", "at least 1"),
        ("tuned-22.5-co0.9", "take adaptive-22.5-co0.9"),
        ("adaptive-22.5-co99", "Courant number of 99"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_groups_and_settings_mix_and_the_larger_number_of_cases_holds():
    plan = settings.read(["tuned, gamg-smooth-22.5-0.01@2", "gamg-smooth-22.5-0.01@5,tuned-9-0.05@1"])
    found = {each.setting.name: each.cases for each in plan}
    assert found["gamg-smooth-22.5-0.01"] == 5
    assert found["tuned-9-0.05"] is None
    assert len(plan) == len(GROUPS["tuned"]) + 1
    assert settings.read([]) == settings.read(["default"])


def test_the_paper_s_group_has_every_row_of_its_table():
    found = {sweep._printed(each.setting) is not None for each in settings.read(["paper"])}
    printed = [each for each in settings.read(["paper"]) if sweep._printed(each.setting)]
    assert found == {True, False}  # 90 cells and 0.001 is the paper's truth; smooth for p at 90 cells was not tried
    assert len(printed) == len(paper_numbers()["openfoam"])


def test_every_default_setting_is_written_as_openfoam_reads_it(tmp_path):
    for each in settings.read(["default", "paper"]):
        folder = tmp_path / each.setting.name
        each.setting.write(folder, flow.duct("b_0.30_0.70"))
        control = openfoam.read_dictionary(folder / "system/controlDict")
        solution = openfoam.read_dictionary(folder / "system/fvSolution")
        family = FAMILIES[each.setting.family]
        assert control["application"] == family.program
        assert float(control["writeInterval"]) == float(control["endTime"]) == flow.END_TIME
        assert ("PIMPLE" in solution) == (folder / "constant/turbulenceProperties").exists()
        assert float(solution["solvers"]["p"]["tolerance"]) == family.pressure["tolerance"]


# The sweep


def test_the_first_cases_are_taken_from_all_types():
    names = [f"{kind}_0.{number}0" for kind in "bac" for number in range(1, 5 if kind == "b" else 3)]
    ordered = interleaved(names)
    assert sorted(ordered) == sorted(names)
    assert [name[0] for name in ordered] == list("abcabcbb")
    assert interleaved(reversed(names)) == ordered


def test_a_sweep_pools_over_points_and_tells_the_spread_over_cases(data, tmp_path):
    test_set = TestSet.read(data)
    error = {case.name: 0.01 * (number + 1) for number, case in enumerate(test_set.cases)}
    record = swept(test_set, tmp_path, ["tuned-9-0.05"], lambda case, _: (error[case.name], 2.0))
    (row,) = record["rows"]
    weights = {case.name: case.number_of_points for case in test_set.cases}
    mean = sum(error[name] * weights[name] for name in error) / sum(weights.values())
    assert row["errors"]["u"]["mse"] == pytest.approx(mean)
    assert row["errors"]["total"]["mse"] == pytest.approx(2 * mean)
    assert row["errors"]["total"]["spread"] == pytest.approx(0.02)
    assert row["seconds"]["solve"] == {"mean": 2.0, "spread": 0.0}
    assert record["cases"] == {case.name: test_set.hashes[case.name] for case in test_set.cases}
    assert record["kind"] == "openfoam sweep"
    assert record["threads"] == 1
    assert record["machines"] == [{"cpu": "abacus"}]


def test_a_limited_setting_is_measured_on_the_first_cases_and_says_so(data, tmp_path):
    record = swept(TestSet.read(data), tmp_path, ["tuned-9-0.05@2", "tuned-15-0.04"])
    assert [(row["cases"], row["of"]) for row in record["rows"]] == [(2, 3), (3, 3)]
    assert [each["case"] for each in record["rows"][0]["records"]] == list(record["cases"])[:2]


def test_a_second_start_measures_only_what_is_missing(data, tmp_path):
    test_set = TestSet.read(data)
    first, second = FakeSolver(lambda *_: (0.01, 1.0)), FakeSolver(lambda *_: (0.01, 1.0))

    def interrupted(case, setting):
        if len(first.heard) == 2:
            raise KeyboardInterrupt
        return first(case, setting)

    plan = settings.read(["tuned-9-0.05"])
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(test_set, plan, tmp_path, measure=interrupted, solver="abacus 1")
    assert len(list(tmp_path.glob("*/*"))) == 2
    whole = sweep.sweep(test_set, plan, tmp_path, measure=second, solver="abacus 1")
    assert len(second.heard) == 1
    assert not set(first.heard) & set(second.heard)
    assert sweep.sweep(test_set, plan, tmp_path, measure=second, solver="abacus 1") == whole
    assert len(second.heard) == 1


def test_a_damaged_result_is_measured_again_and_one_of_another_truth_or_solver_refused(data, tmp_path):
    test_set = TestSet.read(data, only=["a_0.50"])
    plan = settings.read(["tuned-9-0.05"])
    solver = FakeSolver(lambda *_: (0.01, 1.0))
    sweep.sweep(test_set, plan, tmp_path, measure=solver, solver="abacus 1")
    (path,) = tmp_path.glob("*/*.json")
    path.write_text(path.read_text()[:-9])
    sweep.sweep(test_set, plan, tmp_path, measure=solver, solver="abacus 1")
    assert len(solver.heard) == 2
    with pytest.raises(OtherResultError, match=r"a_0\.50\.json is a result of another solver"):
        sweep.sweep(test_set, plan, tmp_path, measure=solver, solver="abacus 2")
    other = replace(test_set, hashes={"a_0.50": "0" * 64})
    with pytest.raises(OtherResultError, match="another truth sha256"):
        sweep.sweep(other, plan, tmp_path, measure=solver, solver="abacus 1")


def test_divergence_is_recorded_and_leaves_the_mean_to_the_others(data, tmp_path):
    def rule(case, setting):
        return (None, 0.0) if setting.cells > 10 or case.name.startswith("b") else (0.01, 1.0)

    record = swept(TestSet.read(data), tmp_path, ["tuned-9-0.05", "tuned-15-0.04"], rule)
    some, every = record["rows"]
    assert some["diverged"] == ["b_0.30_0.70"]
    assert some["errors"]["total"]["mse"] == pytest.approx(0.02)
    assert set(every["diverged"]) == set(NAMES)
    assert every["errors"] is every["seconds"] is None
    assert record["runs"] == {"settings": 2, "all": 6, "diverged": 4}
    assert {each["reason"] for each in every["records"]} == {"icoFoam diverged"}


def test_a_record_is_read_back_as_it_was_written(data, tmp_path):
    record = swept(TestSet.read(data), tmp_path / "runs", ["tuned-9-0.05"])
    sweep.write_record(tmp_path / "deep" / "record.json", record)
    assert sweep.read_record(tmp_path / "deep" / "record.json", sweep.KIND, "penn") == json.loads(json.dumps(record))
    with pytest.raises(ValueError, match=r"no record of kind 'speed.*`penn bench tradeoff` makes one"):
        sweep.read_record(tmp_path / "deep" / "record.json", tradeoff.KIND, "penn bench tradeoff")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json is no JSON"):
        sweep.read_record(tmp_path / "broken.json", sweep.KIND, "penn")


def test_only_complete_flow_datasets_without_frames_are_compared_on(tmp_path):
    case = small_case("a_0.50")
    with pytest.raises(ValueError, match="a dataset of 'gradient'"):
        TestSet.read(write_dataset(tmp_path / "other", dataset="gradient"))
    frames = replace(case, targets={name: values[..., None] for name, values in case.targets.items()})
    storage.write(tmp_path / "frames", [frames], {"test": ["a_0.50"]}, "flow", times=[4.0])
    with pytest.raises(ValueError, match="without --frames"):
        TestSet.read(tmp_path / "frames")
    folder = write_dataset(tmp_path / "whole")
    with pytest.raises(KeyError, match=r"no case 'a_0\.77'"):
        TestSet.read(folder, only=["a_0.77"])
    storage.write_manifest(folder, replace(storage.read_manifest(folder), splits={"test": [*NAMES, "a_0.60"]}))
    with pytest.raises(storage.DatasetError, match=r"lacks 1 of its test cases, the first is 'a_0\.60'"):
        TestSet.read(folder)
    assert [case.name for case in TestSet.read(folder, only=["c_0.80_0.30"]).cases] == ["c_0.80_0.30"]
    assert len(TestSet.read(folder, only=NAMES, limit=2).cases) == 2


# Who beats whom


def network_row(errors, seconds, transformed=False, title="Net", model="net"):
    records = [
        {
            "case": case,
            "outcome": "finished",
            "errors": {name: {"mse": error, "standard_error": 0.0, "count": 10} for name in ("u", "p")},
            "seconds": {"solve": seconds, "solve_cpu": seconds, "first_call": seconds},
        }
        for case, error in errors.items()
    ]
    return {
        "model": model,
        "title": title,
        "parameters": 1,
        "transformed": transformed,
        "diverged": [],
        "errors": sweep.summarised_errors([each["errors"] for each in records]),
        "seconds": sweep.over_cases([seconds]),
        "records": records,
    }


def traded(solved, *networks):
    record = {
        "kind": tradeoff.KIND,
        "dataset": {"hash": "0123"},
        "machine": {"cpu": "abacus"},
        "precision": "float32",
        "repeats": 5,
        "cases": solved["cases"],
        "preparation": {name: {"problem": 0.1, "operators": 0.1} for name in solved["cases"]},
        "networks": list(networks),
        "openfoam": solved,
    }
    return json.loads(json.dumps(record))


RULES = {
    "tuned-9-0.05": (0.02, 0.5),
    "tuned-15-0.04": (0.005, 1.0),
    "gamg-smooth-22.5-0.01": (0.004, 9.0),
    "gamg-smooth-22.5-0.05": (None, 0.0),
}


@pytest.fixture(scope="module")
def solved(data, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return swept(TestSet.read(data), runs, list(RULES), lambda _, setting: RULES[setting.name])


def test_a_setting_that_is_faster_and_more_accurate_than_a_network_is_named(solved):
    slow = network_row(dict.fromkeys(NAMES, 0.01), 2.0, title="Slow")
    quick = network_row(dict.fromkeys(NAMES, 0.01), 0.1, title="Quick", model="quick")
    record = traded(solved, slow, quick)
    (lost,) = tradeoff.losses(record)
    assert (lost.loser.name, lost.winner.name) == ("Slow", "tuned-15-0.04")
    assert lost.totals == pytest.approx((0.02, 0.01))
    assert lost.seconds == pytest.approx((2.0, 1.0))
    text = presentation.markdown(record)
    assert "**Slow** loses to OpenFOAM `tuned-15-0.04`: 2 s against 1 s" in text
    row = next(line for line in text.splitlines() if line.startswith("| Slow"))
    assert "`tuned-15-0.04`" in row
    # More accurate, though slower: said as well.
    assert "More accurate than the best network" in text
    assert "`gamg-smooth-22.5-0.01`" in text.partition("## All rows")[0]


def test_many_defeats_of_one_network_are_one_sentence(solved):
    hopeless = network_row(dict.fromkeys(NAMES, 10.0), 100.0, title="Hopeless")
    record = traded(solved, hopeless)
    defeats = tradeoff.losses(record)
    assert len(defeats) > 1
    lines = [line for line in presentation.markdown(record).splitlines() if line.startswith("- **Hopeless**")]
    assert len(lines) == 2, "one without and one with what comes before"
    assert f"loses to OpenFOAM `{defeats[0].winner.name}`" in lines[0]
    assert all(f"`{each.winner.name}`" in lines[0] for each in defeats)
    sentence = presentation._sentence(defeats[0], *defeats[1:] * presentation._NAMED * 2)
    quickest = min(defeats[1:], key=lambda each: each.seconds[1])
    assert f"{(len(defeats) - 1) * presentation._NAMED * 2} others; the quickest, `{quickest.winner.name}`" in sentence


def test_where_no_setting_wins_that_is_said(solved):
    text = presentation.markdown(traded(solved, network_row(dict.fromkeys(NAMES, 0.001), 0.1)))
    assert text.count("no setting of OpenFOAM that was measured is both faster and more accurate") == 2
    assert "No setting of OpenFOAM that was measured is more accurate than Net" in text


def test_preparation_can_decide(solved):
    # 0.9 s against 1 s for the solution alone; with 0.2 + 3 s before against 0.3 s
    row = network_row(dict.fromkeys(NAMES, 0.01), 0.9)
    for each in row["records"]:
        each["seconds"]["first_call"] = 3.9
    record = traded(solved, row)
    assert tradeoff.losses(record) == []
    (lost,) = tradeoff.losses(record, prepared=False)
    assert lost.seconds == pytest.approx((4.1, 1.3))


def test_rows_are_compared_on_the_cases_that_both_have(data, tmp_path):
    # Measured on the first case alone, where the network is good; over all cases the network is worse.
    record = swept(TestSet.read(data), tmp_path, ["tuned-9-0.05@1"], lambda *_: (0.01, 1.0))
    first, *others = record["cases"]
    network = network_row({first: 0.001} | dict.fromkeys(others, 1.0), 2.0)
    assert tradeoff.losses(traded(record, network)) == []
    (lost,) = tradeoff.losses(traded(record, network_row({first: 0.1} | dict.fromkeys(others, 0.0), 2.0)))
    assert lost.cases == 1


def test_a_setting_that_diverged_in_some_cases_is_on_no_front_but_its_wins_are_told(data, tmp_path):
    def rule(case, _):
        return (None, 0.0) if case.name.startswith("a") else (0.001, 0.1)

    record = traded(
        swept(TestSet.read(data), tmp_path, ["tuned-9-0.05"], rule), network_row(dict.fromkeys(NAMES, 0.01), 2.0)
    )
    (lost,) = tradeoff.losses(record)
    assert (lost.cases, lost.diverged) == (2, 1)
    assert "it diverged in 1 others" in presentation.markdown(record)
    assert [each.name for each in tradeoff.front(tradeoff.contenders(record))] == ["Net"]


def test_the_front_holds_those_whom_nobody_beats_the_fastest_first(solved):
    found = tradeoff.contenders(traded(solved, network_row(dict.fromkeys(NAMES, 0.01), 0.1)))
    assert [each.name for each in tradeoff.front(found)] == ["Net", "tuned-15-0.04", "gamg-smooth-22.5-0.01"]


def test_the_table_has_a_row_for_each_and_the_paper_s_numbers(solved):
    row = network_row(dict.fromkeys(NAMES, 0.01), 0.1)
    text = presentation.markdown(traded(solved, row, row | {"transformed": True}))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 2 + len(RULES)
    diverged = next(line for line in lines if "gamg-smooth-22.5-0.05" in line)
    assert diverged.count("diverged") == 4
    assert diverged.endswith("| divergent |  |")
    assert next(line for line in lines if "gamg-smooth-22.5-0.01" in line).endswith("| 60.9 |  |")
    assert "`gamg-smooth-22.5-0.05` in 3 of 3 cases" in text


def test_other_processors_and_busy_ones_are_pointed_out(solved):
    row = network_row(dict.fromkeys(NAMES, 0.01), 0.1)
    assert "**" not in presentation.markdown(traded(solved, row)).partition("## Where")[0]
    other = traded(solved, row) | {"machine": {"cpu": "slide rule"}}
    assert "The times do not compare: OpenFOAM was timed on abacus" in presentation.markdown(other)
    for each in row["records"]:
        each["seconds"]["solve_cpu"] = 0.01
    assert "The machine was busy: The networks took 10 times" in presentation.markdown(traded(solved, row))


def test_rows_on_the_mesh_of_the_truth_are_marked(data, tmp_path):
    record = swept(TestSet.read(data), tmp_path, ["gamg-smooth-90-0.005", "tuned-15-0.04"])
    assert [row["mesh_of_the_truth"] for row in record["rows"]] == [True, False]
    text = presentation.markdown(traded(record, network_row(dict.fromkeys(NAMES, 0.01), 0.1)))
    assert "| OpenFOAM `gamg-smooth-90-0.005` † |" in text


def test_seeds_of_one_row_are_told_apart(solved):
    rows = [network_row(dict.fromkeys(NAMES, 0.01), 0.1, model=f"runs/{seed}") for seed in (0, 1)]
    names = [each.name for each in tradeoff.contenders(traded(solved, *rows)) if each.is_network]
    assert names == ["Net (runs/0)", "Net (runs/1)"]


def test_trainings_of_one_title_are_told_apart_by_their_budget(solved):
    trainings = [{"budget": {"minutes": 6.2}, "cases": 203, "steps": 3000}, {"budget": {"minutes": 20}, "cases": 406}]
    rows = [network_row(dict.fromkeys(NAMES, 0.01), 0.1, model=f"runs/{number}") for number in range(3)]
    rows = [row | {"training": trainings[number > 0]} for number, row in enumerate(rows)]
    record = traded(solved, *rows, rows[0] | {"transformed": True})
    names = [each.name for each in tradeoff.contenders(record) if each.is_network]
    assert names == [
        "Net [6.2 minutes, 203 cases]",
        "Net [20 minutes, 406 cases] (runs/1)",
        "Net [20 minutes, 406 cases] (runs/2)",
        "Net [6.2 minutes, 203 cases]",
    ]
    assert "| 3,000 steps, 203 cases |" in presentation.markdown(record)


@pytest.mark.parametrize(
    ("row", "transformed", "total"),
    [
        ("penn_n16_r8", False, 1.606e-3),
        ("penn_n16_r8", True, 1.606e-3),
        ("mp_pde_n128_tw20", True, 0.477222),
        ("ablation_a", False, None),
    ],
)
def test_the_paper_s_number_of_a_network(row, transformed, total):
    printed = tradeoff._printed(row, transformed)
    assert printed == {"total": None if total is None else [pytest.approx(total)]}


def test_a_network_that_the_paper_has_not_has_no_number_of_it():
    assert tradeoff._printed("", False) is None
    assert tradeoff._printed("ablation_c", True) is None


# Networks on the cases of a sweep


def test_networks_are_measured_as_they_are_and_moved_and_drawn_again_from_the_record(data, solved, tmp_path):
    model = store(tmp_path / "net", "flow")
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
    model, test_set, calls = str(store(tmp_path / "net", "flow")), TestSet.read(data), []
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
    store(tmp_path / "net", "flow", width=3)
    measured(repeats=2)
    assert len(calls) == 2 * len(NAMES), "other weights in the same folder"
    store(tmp_path / "net", "flow", width=3, iterations=4)
    measured(repeats=2)
    assert len(calls) == 2 * len(NAMES), "the same weights, more work"
    measured(repeats=2, runs=None)
    assert len(calls) == 2 * len(NAMES)


def test_a_slow_network_is_called_once_a_case(data, tmp_path, monkeypatch):
    network = tradeoff.load_pretrained(store(tmp_path / "net", "flow"), dtype=torch.float32)
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


def test_the_figure_tells_kinds_of_networks_apart_and_leaves_out_what_blew_up(solved, tmp_path, monkeypatch):
    names = (
        "PENN n = 16, r = 8",
        "PENN n = 4, r = 4",
        "MP-PDE n = 128, TW = 20",
        "(A) without this",
        "(B) without that",
    )
    rows = [network_row(dict.fromkeys(NAMES, 0.001), 0.1) | {"title": name, "model": name} for name in names]
    drawn: dict[str, list[str]] = {}
    real = Axes.scatter

    def scatter(self, x, y, **options):
        drawn.setdefault(str(options.get("label")), []).append(str(options.get("color")))
        assert all(value < 0.05 for value in y)
        return real(self, x, y, **options)

    monkeypatch.setattr(Axes, "scatter", scatter)
    worse = json.loads(json.dumps(solved))
    first = next(row for row in worse["rows"] if any(each["outcome"] == "finished" for each in row["records"]))
    for each in first["records"]:
        for error in each.get("errors", {}).values():
            error["mse"] = 1.0
    figure.draw(traded(worse, *rows), tmp_path / "figure.png")
    assert drawn["PENN"] == [figure._NETWORK_COLOURS[0]]
    assert drawn["MP-PDE"] == [figure._NETWORK_COLOURS[1]]
    assert drawn["PENN without one of its parts"] == [figure._NETWORK_COLOURS[2]]


def test_a_network_without_a_finite_result_is_recorded_as_diverged(data, solved, tmp_path):
    folder = store(tmp_path / "net", "flow")
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


# The command


def test_the_table_of_a_sweep_is_made_anew_from_its_record(solved, tmp_path):
    sweep.write_record(tmp_path / "record.json", solved)
    finished = penn("bench", "openfoam", "--from", tmp_path / "record.json", "--out", tmp_path / "out", "--json")
    assert finished.exit_code == 0, finished.output
    text = (tmp_path / "out" / sweep.TABLE).read_text(encoding="utf-8")
    assert json.loads(finished.stdout)["markdown"] == text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(solved["rows"])
    (printed,) = [row for row in rows if row.startswith("| `gamg-smooth-22.5-0.01`")]
    assert "| 60.9 |" in printed, "the paper's error"
    assert "| 6.08 |" in printed, "the paper's seconds"
    mistaken = penn("bench", "tradeoff", "--from", tmp_path / "record.json", "--out", tmp_path / "out")
    assert mistaken.exit_code == 1
    assert "penn bench tradeoff" in mistaken.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing", "--out", "o"], 2, "nothing"),
        (["openfoam", "--out", "o"], 2, "--data is missing"),
        (["openfoam", "--data", "absent", "--out", "o"], 1, "absent is no dataset"),
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


# OpenFOAM itself


@pytest.fixture(scope="module")
def installation():
    try:
        return openfoam.find_installation()
    except openfoam.InstallationError as error:
        pytest.skip(f"OpenFOAM is not installed: {error}")


@pytest.fixture(scope="module")
def solved_data(installation, tmp_path_factory) -> Path:
    """A dataset whose truth is a run of 8 cells per unit length in steps of 0.05."""
    folder = tmp_path_factory.mktemp("solved")
    flow.solve("a_0.50", Profile(8, 0.05), folder / "run.h5", installation, scratch=folder)
    case = flow.case_from_run(folder / "run.h5", cells_per_length=4)
    truth = {"solver": {"profile": {"cells": 8, "time_step": 0.05}}}
    return write_dataset(folder / "data", [case], splits={"test": ["a_0.50"]}, settings=truth)


@pytest.mark.openfoam
def test_openfoam_is_swept_errors_shrink_with_the_mesh_and_a_second_start_is_free(solved_data, tmp_path):
    # The same solver as the truth's but for tighter tolerances, then a coarser mesh, a step that adapts, and a
    # corrector too few for steps so long.
    names = "gamg-smooth-8-0.05,tuned-4.5-0.1,adaptive-8-co0.5,one-corrector-16-0.1"
    options = ("--data", solved_data, "--out", tmp_path, "--settings", names, "--json")
    finished = penn("bench", "openfoam", *options)
    assert finished.exit_code == 0, finished.output
    record = json.loads(finished.stdout)
    same, coarse, adaptive, hopeless = record["rows"]
    assert same["errors"]["total"]["mse"] < 1e-7  # the tolerances: 1.2e-8 measured
    assert 1e-5 < adaptive["errors"]["total"]["mse"] < coarse["errors"]["total"]["mse"] < 0.1
    assert hopeless["diverged"] == ["a_0.50"]
    assert hopeless["records"][0]["reason"].startswith("icoFoam diverged: ")
    assert "/" not in hopeless["records"][0]["reason"]
    assert same["mesh_of_the_truth"]
    assert same["records"][0]["steps"] == 80
    assert same["records"][0]["cells"] == 5 * 64
    assert coarse["records"][0]["steps"] == 40
    for row in (same, coarse, adaptive):
        assert all(row["seconds"][name]["mean"] > 0 for name in ("solve", "solve_cpu", "mesh", "potential_flow"))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/*.json")}
    assert len(stamps) == 4
    assert json.loads(penn("bench", "openfoam", *options).stdout) == record
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert sweep.read_record(tmp_path / sweep.RECORD, sweep.KIND, "penn bench openfoam")["rows"] == record["rows"]


@pytest.mark.openfoam
def test_a_case_that_is_no_test_case_is_warned_about(solved_data, tmp_path):
    manifest = storage.read_manifest(solved_data)
    copy = tmp_path / "data"
    copy.mkdir()
    for entry in manifest.cases.values():
        (copy / entry.file).write_bytes((solved_data / entry.file).read_bytes())
    storage.write_manifest(copy, replace(manifest, splits={"train": ["a_0.50"], "test": []}))
    options = ("--data", copy, "--out", tmp_path, "--only", "a_0.50", "--settings", "tuned-4.5-0.1")
    finished = penn("bench", "openfoam", *options)
    assert finished.exit_code == 0, finished.output
    assert "a_0.50 is no test case" in finished.stderr
    assert json.loads((tmp_path / sweep.RECORD).read_text())["no_test_cases"] == ["a_0.50"]


def test_the_committed_table_is_that_of_the_committed_record():
    results = ROOT / "benchmarks" / "results"
    record = sweep.read_record(results / "tradeoff.json", tradeoff.KIND, "penn bench tradeoff")
    assert (results / "tradeoff.md").read_text(encoding="utf-8") == presentation.markdown(record)
    solved = sweep.read_record(results / "openfoam_sweep.json", sweep.KIND, "penn bench openfoam")
    assert [row["setting"] for row in solved["rows"]] == [row["setting"] for row in record["openfoam"]["rows"]]
    assert [row["setting"] for row in solved["rows"]] == [each.setting.name for each in settings.read(())]
    assert (results / "openfoam_sweep.md").read_text(encoding="utf-8") == presentation.sweep_markdown(solved)


def test_the_pages_have_the_tables_of_the_committed_measurements(monkeypatch):
    root = ROOT
    monkeypatch.syspath_prepend(root / "benchmarks")

    def record(name: str) -> Any:
        return json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))

    def page(name: str) -> str:
        return (root / "docs" / f"{name}.md").read_text(encoding="utf-8")

    finer, unseen, curves = map(importlib.import_module, ("finer_truth", "unseen_meshes", "learning_curves"))
    assert finer.table(record("finer_truth")) in page("comparison")
    assert unseen.tables(record("unseen_meshes")) in page("results")
    assert unseen.page(record("unseen_meshes")) == page("unseen_meshes")
    for runs in record("learning_curves").values():
        assert curves.table(runs) in page("experiments")
