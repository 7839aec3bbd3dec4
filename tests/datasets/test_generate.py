"""Generating datasets: whatever happens on the way, what is complete stays, and what is not is never read."""

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import pytest
from fake_recipe import FakeRecipe
from forks import forked, wait_until
from paths import TESTS

from pennpde.datasets import advection_diffusion, generate, recipes, storage
from pennpde.datasets.flow import cases as flow
from pennpde.datasets.generate import GenerationError, Status
from pennpde.datasets.storage import DatasetError
from pennpde.openfoam import InstallationError


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "marks").mkdir()
    return FakeRecipe(str(tmp_path / "marks"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "set"


def make(recipe, folder, **options):
    """Without Dask, which takes seconds to start; it has its own tests below."""
    return generate.generate(recipe, folder, **{"workers": 0, **options})


def names(folder, split=None):
    return sorted(case.name for case in storage.read(folder, split))


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
    before, whole = storage.read_manifest(folder).cases["good_1"], storage.checked_content(folder, "good_1")
    with h5py.File(folder / before.file, "r+") as file:
        file["VTKHDF/good_1/PointData/T"][0] = 7.0
    with pytest.raises(DatasetError, match="penn generate"):
        storage.read(folder)
    assert make(recipe, folder).made == ("good_1",)
    assert storage.checked_content(folder, "good_1") == whole
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
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DatasetError, match="Another `penn generate` writes into"):
            make(recipe, folder)
    make(recipe, folder)


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


# Runs of the solver that are used again


def test_a_damaged_run_is_solved_again_and_a_whole_one_is_not(tmp_path, monkeypatch):
    solved = []

    def solve(velocity, diffusivity, profile, run_file, *_):
        solved.append(Path(run_file).stem)
        _write_exact_run(Path(run_file), velocity, diffusivity, profile)

    monkeypatch.setattr(advection_diffusion, "solve", solve)
    monkeypatch.setattr(advection_diffusion, "find_installation", lambda: None)
    recipe = recipes.AdvectionDiffusionRecipe(str(tmp_path / "runs"), "small")
    cases = ["u0.50_d0.50_t0.10", "u0.50_d0.50_t0.20", "u1.00_d0.50_t0.10"]
    generate.generate(recipe, tmp_path / "first", only=cases, workers=0)
    assert sorted(solved) == ["u0.50_d0.50", "u1.00_d0.50"]
    path = tmp_path / "runs" / "u0.50_d0.50.h5"
    path.write_bytes(path.read_bytes()[:-50])
    generate.generate(recipe, tmp_path / "second", only=cases, workers=0)
    assert sorted(solved) == ["u0.50_d0.50", "u0.50_d0.50", "u1.00_d0.50"]
    for name in cases:
        assert storage.checked_content(tmp_path / "first", name) == storage.checked_content(tmp_path / "second", name)


def test_packed_runs_serve_as_those_in_files_of_their_own(tmp_path, monkeypatch):
    runs, coefficients = tmp_path / "runs", ((0.5, 0.5), (1.0, 0.5))
    for velocity, diffusivity in coefficients:
        path = runs / f"{advection_diffusion.run_name(velocity, diffusivity)}.h5"
        _write_exact_run(path, velocity, diffusivity, advection_diffusion.PROFILES["small"])
    recipe = recipes.AdvectionDiffusionRecipe(str(runs), "small")
    only = ["u0.50_d0.50_t0.10", "u1.00_d0.50_t0.10"]
    generate.generate(recipe, tmp_path / "first", only=only, workers=0)
    advection_diffusion.pack_runs(runs)
    assert [path.name for path in runs.iterdir()] == [advection_diffusion.PACKED_RUNS]
    monkeypatch.setenv("PATH", "")  # no solver
    generate.generate(recipe, tmp_path / "second", only=only, workers=0)
    for name in only:
        assert storage.checked_content(tmp_path / "first", name) == storage.checked_content(tmp_path / "second", name)
    # A later run joins those that are packed.
    _write_exact_run(runs / "u0.10_d0.10.h5", 0.1, 0.1, advection_diffusion.PROFILES["small"])
    advection_diffusion.pack_runs(runs)
    assert all(advection_diffusion.has_run(runs / f"{name}.h5") for name in ("u0.10_d0.10", "u0.50_d0.50"))
    with pytest.raises(FileNotFoundError):
        advection_diffusion.read_run(runs / "u0.90_d0.90.h5")


def test_runs_of_another_profile_are_neither_used_nor_overwritten(tmp_path):
    path = tmp_path / "runs" / "u0.50_d0.50.h5"
    _write_exact_run(path, 0.5, 0.5, advection_diffusion.PROFILES["small"])
    before = path.read_bytes()
    recipe = recipes.AdvectionDiffusionRecipe(str(tmp_path / "runs"), "standard")
    with pytest.raises(GenerationError, match=r"u0.50_d0.50.h5 was computed with .*another folder with --runs"):
        generate.generate(recipe, tmp_path / "set", only=["u0.50_d0.50_t0.10"], workers=0)
    assert path.read_bytes() == before


def _write_exact_run(path, velocity, diffusivity, profile):
    import json

    import numpy as np

    x = (np.arange(profile.cells) + 0.5) / profile.cells
    truth = advection_diffusion.exact_temperature(x, advection_diffusion.TIMES, velocity, diffusivity)
    facts = {
        "name": path.stem,
        "solver": "formula",
        "settings": json.dumps(advection_diffusion.solver_settings(profile)),
        "seconds": 0.0,
    }
    advection_diffusion._write_run(path, advection_diffusion.Run(truth, facts))


# Dask


def test_workers_that_die_and_cases_that_fail_are_tried_again_by_dask(recipe, folder):
    recipe = replace(recipe, train=("good_0", "good_1", "flaky_2", "killsonce_3", "fails_4"))
    summary = generate.generate(recipe, folder, workers=2)
    assert sorted(summary.made) == ["flaky_2", "good_0", "good_1", "good_3", "killsonce_3"]
    assert list(summary.failed) == ["fails_4"]
    assert recipe.attempts("killsonce_3") == 2
    assert recipe.attempts("fails_4") == 3
    with pytest.warns(UserWarning, match="fails_4"):
        assert len(names(folder, "train")) == 4


@pytest.mark.slow
def test_a_case_that_kills_its_worker_three_times_is_given_up(recipe, folder):
    recipe = replace(recipe, train=("good_0", "kills_1"))
    summary = generate.generate(recipe, folder, workers=1)
    assert list(summary.failed) == ["kills_1"]
    assert "worker died" in summary.failed["kills_1"]
    assert recipe.attempts("kills_1") == 3
    assert sorted(summary.made) == ["good_0", "good_3"]


@pytest.mark.slow
def test_workers_of_a_start_that_is_killed_end_by_themselves(recipe, folder):
    slow = replace(recipe, train=tuple(f"good_{number}" for number in range(40)), test=(), pause=1.0)
    statements = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from fake_recipe import FakeRecipe; from pennpde.datasets.generate import generate\n"
        "if __name__ == '__main__':\n"
        "    train = tuple(f'good_{n}' for n in range(40))\n"
        "    generate(FakeRecipe(sys.argv[2], train, (), pause=1.0), sys.argv[3], workers=2)\n"
    )
    script = folder.parent / "start.py"
    script.write_text(statements)
    process = subprocess.Popen([sys.executable, script, TESTS, recipe.marks, folder])
    wait_until(lambda: len(list(folder.glob("*.vtkhdf"))) >= 3, 120)
    process.kill()
    process.wait()
    time.sleep(3.0)
    marks = len(list(Path(recipe.marks).iterdir()))
    time.sleep(3.0)
    assert len(list(Path(recipe.marks).iterdir())) == marks
    there = set(names(folder))
    assert set(make(replace(slow, pause=0.0), folder).kept) == there
    assert len(names(folder, "train")) == 40


@pytest.mark.slow
def test_workers_start_anew_where_none_is_left():
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        wait_until(lambda: len(cluster.scheduler.workers) == 1)
        with generate._kept_alive(cluster, 1, patience=2.0):
            (nanny,) = cluster.workers.values()
            nanny.close_gracefully()  # so that it does what it does when a worker dies while starting: nothing
            os.kill(nanny.pid, signal.SIGKILL)
            wait_until(lambda: not cluster.scheduler.workers)
            wait_until(lambda: len(cluster.scheduler.workers) == 1)


@pytest.mark.slow
def test_a_running_scheduler_does_the_work(recipe, folder):
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        summary = generate.generate(recipe, folder, scheduler=cluster.scheduler_address)
    assert len(summary.made) == 4


def test_a_scheduler_that_is_not_there_is_named(recipe, folder, monkeypatch):
    from distributed import Client

    def refuse(*_, **__):
        raise OSError("Timed out trying to connect to tcp://nowhere:1")

    monkeypatch.setattr(Client, "__init__", refuse)
    with pytest.raises(GenerationError, match=r"no Dask scheduler at 'tcp://nowhere:1'.*leave the address out"):
        generate.generate(recipe, folder, scheduler="tcp://nowhere:1")


def test_dask_missing_is_said_with_what_to_install(recipe, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pennpde\[generate\]'. With workers=0"):
        generate.generate(recipe, folder, workers=1)


# OpenFOAM itself


@pytest.fixture
def openfoam_here():
    if shutil.which("scalarTransportFoam") is None:
        pytest.skip("needs OpenFOAM")


@pytest.mark.openfoam
def test_a_start_that_is_killed_while_the_solver_runs_leaves_no_run_and_is_repeated(openfoam_here, tmp_path, folder):
    recipe = recipes.AdvectionDiffusionRecipe(str(tmp_path / "runs"), "standard")
    case = "u0.50_d0.50_t0.10"
    run_file = tmp_path / "runs" / "u0.50_d0.50.h5"
    scratch = recipes._scratch_folder(run_file)

    def is_solving():
        logs = list(scratch.glob("*/log.scalarTransportFoam"))
        return bool(logs) and b"Time = 0.05" in logs[0].read_bytes()

    with forked(lambda: make(recipe, folder, only=[case])) as process:
        wait_until(is_solving)
        os.kill(process, signal.SIGKILL)
    assert not run_file.exists()
    assert not list(folder.glob("*.vtkhdf"))
    assert scratch.exists()
    assert make(recipe, folder, only=[case]).made == (case,)
    assert names(folder) == [case]
    assert not scratch.exists()


@pytest.mark.openfoam
@pytest.mark.slow
def test_a_flow_case_comes_out_of_the_whole_pipeline(openfoam_here, tmp_path, folder):
    recipe = recipes.FlowRecipe(str(tmp_path / "runs"), "small")
    heard = []
    assert make(recipe, folder, only=["a_0.50"], on_progress=heard.append).made == ("a_0.50",)
    assert any(0 < status.under_way < 1 for status in heard)
    (case,) = storage.read(folder)
    assert case.targets["u"].shape == (case.number_of_points, 2)
    frames = replace(recipe, frames=True)
    generate.generate(frames, tmp_path / "frames", only=["a_0.50"], workers=0)
    (file,) = storage.read_files(tmp_path / "frames")
    assert file.times == tuple(round(float(time), 6) for time in flow.TIMES)
    assert file.case.targets["u"].shape == (case.number_of_points, 2, 41)
    # 11 significant bits against 16
    assert (file.case.targets["u"][..., -1] - case.targets["u"]).abs().max() < 2e-3
