"""Training in several processes."""

import multiprocessing
import os
import warnings
from pathlib import Path

import pytest
from trainings import TRAIN, VALIDATION, network

from pennpde.training import fit
from pennpde.training.log import read as read_log

OPTIONS = {"learning_rate": 1e-2, "batch_size": 2, "epochs": 4, "test_every": 1, "device": "cpu"}


def train_as(rank: str, port: int, folder: Path) -> None:
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(shared | {"RANK": rank, "LOCAL_RANK": rank})
    fit(network(), TRAIN, VALIDATION, folder=folder, **OPTIONS)


def test_two_processes_have_the_loss_curve_of_one_with_the_same_batches(tmp_path):
    one = fit(network(), TRAIN, VALIDATION, **OPTIONS)
    # Copies of this process, which need not load torch again.
    context, port = multiprocessing.get_context("fork"), 29000 + os.getpid() % 1000
    started = [context.Process(target=train_as, args=(rank, port, tmp_path)) for rank in "01"]
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
    from pennpde.training.processes import Processes

    three = Processes("cpu")
    three.count = 3
    with pytest.raises(ValueError, match="8 cases does not divide into 3 processes"):
        three.share(8)
