"""The sweep over settings of OpenFOAM: what is measured, kept and refused; and OpenFOAM itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from commands import penn
from pennlab.datasets.flow import cases as flow
from pennlab.datasets.flow.truth import Profile
from pennlab.paper.openfoam_sweep import settings, sweep
from pennlab.paper.openfoam_sweep.sweep import OtherResultError, TestSet, interleaved
from pennlab.paper.tradeoff import measure as tradeoff
from pennlab.paper.tradeoff import presentation
from pennpde.data import storage
from sweeps import NAMES, FakeSolver, small_case, swept, write_dataset

pytestmark = pytest.mark.slow  # with others like it more than some seconds

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


def test_a_run_that_blew_up_is_named_and_left_out_of_the_mean(data, tmp_path):
    record = swept(
        TestSet.read(data), tmp_path, ["tuned-9-0.05"], lambda case, _: (4.0 if case.name[0] == "b" else 0.01, 1.0)
    )
    (row,) = record["rows"]
    assert row["blown_up"] == ["b_0.30_0.70"]
    assert row["diverged"] == []
    assert row["errors"]["total"]["mse"] == pytest.approx(0.02)
    text = presentation.sweep_markdown(record)
    assert "| 3, 1 blew up |" in text
    assert "- `tuned-9-0.05`: b_0.30_0.70 (u 4, p 4)" in text


def test_what_the_paper_ran_and_we_did_not_is_listed_with_its_cost(data, tmp_path):
    names = ["gamg-smooth-22.5-0.01", "gamg-smooth-22.5-0.005@1", "gamg-smooth-22.5-0.05"]
    record = swept(TestSet.read(data), tmp_path, names, lambda *_: (0.01, 2.0))
    text = presentation.sweep_markdown(record)
    never = next(line for line in text.splitlines() if line.startswith("Rows of the paper's table that were never run"))
    assert "`gamg-gamg-22.5-0.05`" in never
    assert not any(f"`{name.partition('@')[0]}`" in never for name in names)
    left = next(line for line in text.splitlines() if line.startswith("Cases that the paper's rows still lack"))
    assert "`gamg-smooth-22.5-0.005` 2 (4 s)" in left, "two cases of two seconds each"
    assert "`gamg-smooth-22.5-0.01`" not in left
    assert "| 1 of 3 |" in text


def test_runs_of_an_earlier_record_are_taken_over_and_not_measured_again(data, tmp_path):
    test_set = TestSet.read(data)
    first = swept(test_set, tmp_path / "first", ["tuned-9-0.05@1", "tuned-15-0.04"])
    solver = FakeSolver(lambda *_: (0.01, 1.0))
    plan = settings.read(["tuned-9-0.05", "tuned-15-0.04"])
    known = json.loads(json.dumps(first))
    whole = sweep.sweep(test_set, plan, tmp_path / "second", measure=solver, solver="abacus 1", known=known)
    assert [setting for _, setting in solver.heard] == ["tuned-9-0.05"] * 2
    assert whole["rows"] == swept(test_set, tmp_path / "third", ["tuned-9-0.05", "tuned-15-0.04"])["rows"]
    assert whole["machines"] == first["machines"]
    for changed, words in (({"solver": "abacus 2"}, "abacus 2"), ({"cases": {"a_0.50": "0" * 64}}, "another truth")):
        with pytest.raises(OtherResultError, match=words):
            sweep.sweep(test_set, plan, tmp_path / "fourth", measure=solver, solver="abacus 1", known=known | changed)


def test_a_record_is_read_back_as_it_was_written(data, tmp_path):
    record = swept(TestSet.read(data), tmp_path / "runs", ["tuned-9-0.05"])
    sweep.write_record(tmp_path / "deep" / "record.json", record)
    assert sweep.read_record(tmp_path / "deep" / "record.json", sweep.KIND, "penn") == json.loads(json.dumps(record))
    with pytest.raises(ValueError, match=r"not a record of kind 'speed.*`penn bench tradeoff` makes one"):
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


@pytest.fixture(scope="module")
def solved_data(installation, tmp_path_factory) -> Path:
    """A dataset whose truth is a run of 8 cells per unit length in steps of 0.05."""
    folder = tmp_path_factory.mktemp("solved")
    flow.solve("a_0.50", Profile(8, 0.05), folder / "run.h5", installation, scratch=folder)
    case = flow.case_from_run(folder / "run.h5", cells_per_length=4)
    truth = {"solver": {"profile": {"cells": 8, "time_step": 0.05}}}
    return write_dataset(folder / "data", [case], splits={"test": ["a_0.50"]}, settings=truth)


# OpenFOAM itself


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
    assert "a_0.50 is not a test case" in finished.stderr
    assert json.loads((tmp_path / sweep.RECORD).read_text())["no_test_cases"] == ["a_0.50"]
