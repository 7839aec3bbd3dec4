"""Threads of a training: no more than a batch is worth, none that would wait for a busy core."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pennpde.machine import chosen_threads, threads_for
from pennpde.train import fit, folder
from trainings import TRAIN, network


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
    assert threads_for(2_000, torch.device("cpu")) == 1
    assert 1 <= threads_for(2_000, torch.device("cuda")) <= 4


def test_a_training_takes_its_threads_keeps_them_and_gives_them_back(tmp_path):
    before = torch.get_num_threads()
    options = {"batch_size": 2, "folder": tmp_path, "progress": False, "device": "cpu"}
    fit(network(), TRAIN, steps=2, threads=3, **options)
    assert folder.load(tmp_path).plain["threads"] == 3
    fit(network(), TRAIN, steps=4, resume=True, **options)
    assert folder.load(tmp_path).plain["threads"] == 3, "another number would change the last bits"
    assert torch.get_num_threads() == before
