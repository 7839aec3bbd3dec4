"""Generating datasets with Dask's workers, which may die."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from forks import wait_until
from generating import make, names
from pennlab.datasets import generate
from pennlab.datasets.generate import GenerationError

LAB_SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.slow
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
        "from fake_recipe import FakeRecipe; from pennlab.datasets.generate import generate\n"
        "if __name__ == '__main__':\n"
        "    train = tuple(f'good_{n}' for n in range(40))\n"
        "    generate(FakeRecipe(sys.argv[2], train, (), pause=1.0), sys.argv[3], workers=2)\n"
    )
    script = folder.parent / "start.py"
    script.write_text(statements)
    process = subprocess.Popen([sys.executable, script, LAB_SUPPORT, recipe.marks, folder])
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


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_running_scheduler_does_the_work_and_repeats_what_fails(recipe, folder, processes):
    from distributed import LocalCluster

    recipe = replace(recipe, train=("good_0", "flaky_1", "fails_2"))
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=processes, dashboard_address=":0") as cluster:
        summary = generate.generate(recipe, folder, scheduler=cluster.scheduler_address)
    assert sorted(summary.made) == ["flaky_1", "good_0", "good_3"]
    assert list(summary.failed) == ["fails_2"]
    assert (recipe.attempts("flaky_1"), recipe.attempts("fails_2")) == (3, 3)


def test_a_scheduler_that_is_not_there_is_named(recipe, folder, monkeypatch):
    from distributed import Client

    def refuse(*_, **__):
        raise OSError("Timed out trying to connect to tcp://nowhere:1")

    monkeypatch.setattr(Client, "__init__", refuse)
    with pytest.raises(GenerationError, match=r"no Dask scheduler at 'tcp://nowhere:1'.*leave the address out"):
        generate.generate(recipe, folder, scheduler="tcp://nowhere:1")


def test_dask_missing_is_said_with_what_to_install(recipe, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install dask distributed\. With workers=0"):
        generate.generate(recipe, folder, workers=1)
