"""Training in several processes."""

import os
import subprocess
import sys

import pytest
from paths import TESTS
from trainings import TRAIN, VALIDATION, network

from pennpde.training import fit
from pennpde.training.log import read as read_log

SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from pennpde.training import fit
from trainings import TRAIN, VALIDATION, network
fit(network(), TRAIN, VALIDATION, learning_rate=1e-2, batch_size=2, epochs=4, test_every=1, folder={folder!r},
    device="cpu")
"""


def test_two_processes_have_the_loss_curve_of_one_with_the_same_batches(tmp_path):
    one = fit(network(), TRAIN, VALIDATION, learning_rate=1e-2, batch_size=2, epochs=4, test_every=1)
    script = SCRIPT.format(paths=[str(TESTS)], folder=str(tmp_path))
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getpid() % 1000)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
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
