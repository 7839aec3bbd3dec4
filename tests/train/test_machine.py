"""Training in several processes; and threads: no more than a batch is worth, none that would wait for a busy core."""

import multiprocessing
import os
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pennpde.train import fit, folder
from pennpde.train.folder import read_log
from pennpde.train.machine import chosen_threads, threads_for
from trainings import TRAIN, VALIDATION, network

OPTIONS = {"learning_rate": 1e-2, "batch_size": 2, "epochs": 4, "test_every": 1, "device": "cpu"}


def model(marches: bool):
    made = network()
    made.takes_times = marches  # such a network takes the cases of a batch one by one
    return made


def train_as(rank: str, port: int, folder: Path, marches: bool, batch_size: int) -> None:
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(shared | {"RANK": rank, "LOCAL_RANK": rank})
    fit(model(marches), TRAIN, VALIDATION, folder=folder, **OPTIONS | {"batch_size": batch_size})


@pytest.mark.parametrize(("marches", "batch_size"), [(False, 2), (True, 1)])
def test_two_processes_have_the_loss_curve_of_one_with_the_same_batches(marches, batch_size, tmp_path):
    """Each process takes at least one case of a network that takes them one by one, so a batch of one is of two."""
    one = fit(model(marches), TRAIN, VALIDATION, **OPTIONS)
    # Copies of this process, which need not load torch again.
    context, port = multiprocessing.get_context("fork"), 29000 + (2 * os.getpid() + marches) % 1000
    arguments = (port, tmp_path, marches, batch_size)
    started = [context.Process(target=train_as, args=(rank, *arguments)) for rank in "01"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that other threads are not copied is meant
        for process in started:
            process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0, 0]
    two = read_log(tmp_path)
    assert len(two) == len(one.history) == 4
    for row, expected in zip(two, one.history, strict=True):
        for column in ("loss", "validation", "validation_T"):
            assert float(row[column]) == pytest.approx(expected[column], rel=1e-8)


def test_a_batch_that_does_not_divide_into_the_processes_is_refused():
    from pennpde.train.machine import Processes

    three = Processes("cpu")
    three.count = 3
    with pytest.raises(ValueError, match="8 cases does not divide into 3 processes"):
        three.share(8)


@pytest.mark.parametrize(
    ("points", "cores", "load", "threads"),
    [
        (2_000, 64, 0.0, 1),  # too small a batch
        (20_000, 64, 0.0, 2),
        (20_000, 2, 0.0, 2),
        (20_000, 2, 1.9, 1),  # a busy machine
        (1e6, 16, 6.0, 10),
        (1e6, 16, 90.0, 1),
    ],
)
def test_threads_follow_points_and_idle_cores(points, cores, load, threads):
    assert chosen_threads(points, cores, load) == threads


@given(st.floats(0, 1e9), st.integers(1, 512), st.floats(0, 1e4))
def test_at_least_one_thread_and_at_most_all_cores(points, cores, load):
    assert 1 <= chosen_threads(points, cores, load) <= cores


def test_a_small_batch_gets_one_thread_and_a_gpu_few():
    assert threads_for(TRAIN, 2, torch.device("cpu")) == 1
    assert 1 <= threads_for(TRAIN, 2, torch.device("cuda")) <= 4


def test_a_training_takes_its_threads_keeps_them_and_gives_them_back(tmp_path):
    before = torch.get_num_threads()
    options = {"batch_size": 2, "folder": tmp_path, "progress": False, "device": "cpu"}
    fit(network(), TRAIN, steps=2, threads=3, **options)
    assert folder.load(tmp_path).plain["threads"] == 3
    fit(network(), TRAIN, steps=4, resume=True, **options)
    assert folder.load(tmp_path).plain["threads"] == 3, "another number would change the last bits"
    assert torch.get_num_threads() == before
