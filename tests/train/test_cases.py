"""Batches of a training: which cases, in which order."""

import torch

from pennpde.train.cases import Order


def test_each_epoch_sees_every_case_once_in_its_own_order():
    order = Order(cases=10, batch_size=4, seed=3)
    seen = order.batches(0, 10).flatten().tolist()
    epochs = [seen[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    # Any stretch of steps, in any order of asking, gives the same batches: what resuming rests on.
    assert torch.equal(Order(10, 4, 3).batches(7, 2), order.batches(0, 10)[7:9])
    assert Order(10, 4, 4).batches(0, 10).flatten().tolist() != seen
