"""Generating datasets: whatever happens on the way, what is complete stays, and what is not is never read."""

import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from fake_recipe import FakeRecipe
from forks import forked, wait_until
from generating import make, names
from pennlab.datasets import generate, recipes
from pennlab.datasets.generate import GenerationError
from pennlab.running import InstallationError
from pennpde.data import storage
from pennpde.data.storage import DatasetError
from pennpde.data.workers import Status
from pennpde.files import locked_folder

# Without faults


def test_a_dataset_has_every_case_of_every_split(recipe, folder):
    summary = make(recipe, folder)
    assert sorted(summary.made) == ["good_0", "good_1", "good_2", "good_3"]
    assert names(folder, "train") == ["good_0", "good_1", "good_2"]
    assert names(folder, "test") == ["good_3"]
    manifest = storage.read_manifest(folder)
    assert manifest.settings == recipe.settings()
    assert manifest.cases["good_1"].facts == {"points": 4, "cells": 1, "parameters": {}}
    assert manifest.about["pennpde"]


def test_a_second_start_makes_nothing_again(recipe, folder):
    make(recipe, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.vtkhdf")}
    summary = make(recipe, folder)
    assert (len(summary.made), len(summary.kept)) == (0, 4)
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("*.vtkhdf")}


def test_a_limit_takes_cases_of_every_split_and_can_be_raised(recipe, folder):
    assert len(make(recipe, folder, limit=2).made) == 2
    assert len(names(folder, "train")) == len(names(folder, "test")) == 1
    summary = make(recipe, folder)
    assert (len(summary.made), len(summary.kept)) == (2, 2)
    assert len(names(folder, "train")) == 3


def test_only_makes_the_cases_that_it_names(recipe, folder):
    assert make(recipe, folder, only=["good_1", "good_7", "good_1"]).made == ("good_1", "good_7")
    assert names(folder) == ["good_1", "good_7"]
    assert names(folder, "train") == ["good_1"]


def test_other_settings_do_not_mix_into_a_folder(recipe, folder):
    make(recipe, folder)
    with pytest.raises(
        DatasetError, match="was made with seed 0 instead of 1; give the same options or choose another"
    ):
        make(replace(recipe, seed=1), folder)
    assert len(names(folder)) == 4


def test_progress_grows_to_the_total(recipe, folder):
    heard = []
    make(recipe, folder, on_progress=heard.append)
    over = [status.done + status.under_way for status in heard]
    assert over == sorted(over)
    assert heard[-1] == Status(4, 4)


# Faults


def test_a_damaged_case_is_made_again_and_no_other(recipe, folder):
    make(recipe, folder)
    before, whole = storage.read_manifest(folder).cases["good_1"], storage.CaseReader(folder).content("good_1")
    with h5py.File(folder / before.file, "r+") as file:
        file["VTKHDF/good_1/PointData/T"][0] = 7.0
    with pytest.raises(DatasetError, match="penn generate"):
        storage.read(folder)
    assert make(recipe, folder).made == ("good_1",)
    assert storage.CaseReader(folder).content("good_1") == whole
    assert storage.read_manifest(folder).cases["good_1"].file == "train_shard_001.vtkhdf"
    assert names(folder) == ["good_0", "good_1", "good_2", "good_3"]


def test_a_lost_shard_is_made_again(recipe, folder):
    make(recipe, folder)
    whole = {path.name: path.read_bytes() for path in folder.glob("*.vtkhdf")}
    (folder / "train_shard_000.vtkhdf").unlink()
    assert sorted(make(recipe, folder).made) == ["good_0", "good_1", "good_2"]
    assert {path.name: path.read_bytes() for path in folder.glob("*.vtkhdf")} == whole


def test_cases_are_packed_in_the_end_and_each_has_its_own_file_before(recipe, folder):
    """The split has a case that stops everything, so the end is not reached."""
    stopped = replace(recipe, test=("uninstalled_3",))
    with pytest.raises(GenerationError):
        make(stopped, folder)
    assert {path.name for path in folder.glob("*.vtkhdf")} <= {f"good_{number}.vtkhdf" for number in range(3)}
    make(stopped, folder, only=["good_0", "good_1", "good_2"])
    assert [path.name for path in folder.glob("*.vtkhdf")] == ["train_shard_000.vtkhdf"]


def test_a_dataset_of_single_files_is_packed_by_the_next_start(recipe, folder, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(generate, "pack", lambda _: None)
        make(recipe, folder)
    assert len(list(folder.glob("good_*.vtkhdf"))) == 4
    assert len(make(recipe, folder).kept) == 4
    assert len(list(folder.glob("*.vtkhdf"))) == 2


def test_a_case_that_fails_three_times_is_recorded_and_stops_no_other(recipe, folder):
    recipe = replace(recipe, train=("good_0", "fails_1", "flaky_2", "good_3"))
    summary = make(recipe, folder)
    assert summary.failed == {"fails_1": "OpenFOAMError: fakeFoam failed."}
    assert (recipe.attempts("fails_1"), recipe.attempts("flaky_2"), recipe.attempts("good_0")) == (3, 3, 1)
    recorded = storage.read_manifest(folder).failed["fails_1"]
    assert recorded["attempts"] == 3
    assert recorded["log"].endswith("last line of the log")
    with pytest.warns(UserWarning, match="fails_1"):
        assert names(folder, "train") == ["flaky_2", "good_0", "good_3"]


def test_a_case_that_would_always_fail_is_tried_once(recipe, folder):
    recipe = replace(recipe, train=("hopeless_0", "good_1"))
    summary = make(recipe, folder)
    assert list(summary.failed) == ["hopeless_0"]
    assert recipe.attempts("hopeless_0") == 1
    assert storage.read_manifest(folder).failed["hopeless_0"]["log"] == "end of the log"


def test_a_case_that_is_known_to_fail_is_recorded_but_not_tried(recipe, folder):
    recipe = replace(recipe, train=("known_0", "good_1"))
    summary = make(recipe, folder)
    assert (summary.failed, set(summary.made)) == ({}, {"good_1", "good_3"})
    assert recipe.attempts("known_0") == 0
    assert storage.read_manifest(folder).failed["known_0"] == {"error": "known"}


def test_splits_can_be_chosen_and_the_others_made_later(recipe, folder):
    assert make(recipe, folder, splits=["test"]).made == ("good_3",)
    assert make(recipe, folder, splits=["test"], only=["good_0"]).made == ()
    with pytest.raises(ValueError, match="no split 'trian'; it has train, test"):
        make(recipe, folder, splits=["trian"])
    assert len(make(recipe, folder).made) == len(recipe.train)


def test_a_recipe_may_leave_every_case_in_its_own_file(recipe, folder, monkeypatch):
    monkeypatch.setattr(FakeRecipe, "packed", False)
    make(recipe, folder)
    assert storage.read_manifest(folder).files == {f"good_{number}.vtkhdf" for number in range(4)}


def test_a_case_that_failed_is_tried_again_by_the_next_start(recipe, folder):
    recipe = replace(recipe, train=("flaky_0",), test=())
    (Path(recipe.marks) / "fails_0").touch()
    first = make(replace(recipe, train=("fails_0",)), folder)
    assert list(first.failed) == ["fails_0"]
    second = make(recipe, folder, only=["flaky_0"])
    assert second.made == ("flaky_0",)
    assert list(storage.read_manifest(folder).failed) == ["fails_0"]


def test_a_missing_solver_stops_everything_at_once(recipe, folder):
    recipe = replace(recipe, train=("good_0",), test=("uninstalled_1", "good_2"))
    with pytest.raises(GenerationError, match=r"fakeFoam is not on the PATH\. Install it"):
        make(recipe, folder)
    assert recipe.attempts("uninstalled_1") == 1


def test_openfoam_missing_is_said_before_anything_starts(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for recipe in (
        recipes.FlowRecipe(str(tmp_path / "runs")),
        recipes.AdvectionDiffusionRecipe(str(tmp_path / "runs")),
    ):
        with pytest.raises(InstallationError, match=r"blockMesh.* is not on the PATH. Install it with"):
            generate.generate(recipe, folder / recipe.dataset, limit=1)
        assert not list((folder / recipe.dataset).glob("*.vtkhdf"))


@pytest.mark.parametrize(
    ("recipe", "name", "words"),
    [
        (recipes.FlowRecipe("runs"), "a_1.30", "design parameter 1.3 is outside of its range from 0 to 1"),
        (recipes.FlowRecipe("runs"), "d_0.30", "names no flow case; names look like 'a_0.30'"),
        (recipes.AdvectionDiffusionRecipe("runs"), "u1.50_d0.10_t0.10", "velocity 1.5 is outside of its range"),
        (recipes.AdvectionDiffusionRecipe("runs"), "u0.00_d0.00_t0.10", "nothing happens"),
        (recipes.AdvectionDiffusionRecipe("runs"), "a_0.30", "names look like 'u0.50_d0.10_t0.80'"),
        (recipes.GradientRecipe(), "tset_001", "names look like 'train_007'"),
    ],
)
def test_a_parameter_out_of_range_is_refused_before_anything_is_made(recipe, name, words, folder):
    with pytest.raises(ValueError, match=words):
        generate.generate(recipe, folder, only=[name])
    assert not folder.exists()


def test_two_starts_do_not_write_into_one_folder(recipe, folder):
    folder.mkdir()
    with (
        locked_folder(folder, "the writing of a dataset"),
        pytest.raises(ValueError, match="the writing of a dataset is going on"),
    ):
        make(recipe, folder)
    make(recipe, folder)


@pytest.mark.slow
def test_a_start_that_is_killed_loses_nothing_complete(recipe, folder):
    slow = replace(recipe, train=tuple(f"good_{number}" for number in range(20)), test=(), pause=0.05)
    with forked(lambda: make(slow, folder)) as process:
        wait_until(lambda: len(list(folder.glob("*.vtkhdf"))) >= 3)
        os.kill(process, signal.SIGKILL)
    there = set(names(folder))  # whatever the manifest lists is whole
    files = {path.stem for path in folder.glob("*.vtkhdf")}
    assert there <= files
    with pytest.raises(DatasetError, match="cases of split 'train' are still to be made"):
        storage.read(folder, "train")
    summary = make(replace(slow, pause=0.0), folder)
    assert set(summary.kept) == there
    assert len(names(folder, "train")) == 20
    assert not list(folder.glob(".*.part"))


def test_a_start_that_is_killed_in_the_middle_of_writing_loses_nothing_complete(recipe, folder):
    def die_in_the_third_file():
        fsync = os.fsync

        def fsync_or_die(descriptor):
            if len(list(folder.glob("*.vtkhdf"))) == 2 and list(folder.glob(".good*.part")):
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(descriptor)

        os.fsync = fsync_or_die
        make(recipe, folder)

    with forked(die_in_the_third_file) as process:
        assert os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == signal.SIGKILL
    assert len(list(folder.glob(".good*.part"))) == 1
    assert set(names(folder)) <= {path.stem for path in folder.glob("*.vtkhdf")}
    make(recipe, folder)
    assert len(names(folder)) == 4
    assert not list(folder.glob(".*.part"))


def test_all_cases_of_a_long_task_are_in_the_manifest_before_the_next_begins(recipe, folder, monkeypatch):
    monkeypatch.setattr(FakeRecipe, "tasks", lambda self, names: [tuple(names[:2]), tuple(names[2:])])
    seen = []

    def outcomes(pool):
        for _ in range(2):
            if (folder / storage.MANIFEST).exists():
                seen.append(len(storage.read_manifest(folder).cases))
            task = pool.waiting.popleft()
            yield task, generate.attempt(recipe, task, lambda share: None)

    monkeypatch.setattr(generate._ThisProcess, "outcomes", outcomes)
    make(recipe, folder)
    assert seen == [0, 2]


def test_a_full_disk_stops_with_a_message_and_keeps_what_is_complete(recipe, folder, capfd):
    # The large case does not fit into what a file of this process may hold.
    recipe = replace(recipe, train=("good_0", "good_1"), test=("large_2",))
    make(recipe, folder, only=["good_0"])

    def on_a_small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        make(recipe, folder, only=["good_1", "large_2"])

    with forked(on_a_small_disk) as process:
        assert os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == 1
    said = capfd.readouterr().err
    assert "large_2.vtkhdf" in said
    assert "What was complete before is kept; make room" in said
    assert names(folder) == ["good_0", "good_1"]
    assert not list(folder.glob(".*.part"))
    assert make(recipe, folder).made == ("large_2",)
    assert names(folder) == ["good_0", "good_1", "large_2"]


def test_failures_with_other_numbers_and_paths_have_the_same_reason():
    failed = {
        "a": {"error": "x in /scratch/a_12/case diverged at 0.25"},
        "b": {"error": "x in /other/b diverged at 3.5e-2"},
        "c": {"error": "killed"},
    }
    assert generate.failures(storage.Manifest("custom", failed=failed)) == {"x in … diverged at …": 2, "killed": 1}
