"""Training in several processes."""

import multiprocessing
import os
import warnings
from pathlib import Path

import pytest

from pennpde.train import fit
from pennpde.train.folder import read_log
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
