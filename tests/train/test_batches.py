"""Batches of a training: which cases, in which order, stacked or side by side."""

import logging

import pytest
import torch

from pennpde.train import fit
from pennpde.train.batches import Order
from problems import heated_plate
from trainings import (
    TRAIN,
    VALIDATION,
    PointwiseNetwork,
    network,
)


def test_stacked_cases_give_the_loss_curve_of_cases_block_by_block():
    cases = [*TRAIN[:3], *(heated_plate(diffusivity=0.1 * k, cells=(5, 4), targets=True) for k in range(4, 7))]
    curves = [
        fit(network(), cases, VALIDATION, batch_size=2, epochs=4, test_every=1, stacked=stacked).history
        for stacked in (True, False)
    ]
    for stacked, block in zip(*curves, strict=True):
        assert stacked["loss"] == pytest.approx(block["loss"], rel=1e-6)  # a stack's weights of points are float32
        assert stacked["validation"] == pytest.approx(block["validation"], rel=1e-6)


def test_a_network_that_needs_the_mesh_gets_it(caplog):
    class Positions(PointwiseNetwork):
        def forward(self, case):
            return {"T": self.network[3](torch.cat([case.mesh.points] * 4, dim=1))}

    with caplog.at_level(logging.INFO, "pennpde"):
        result = fit(Positions(), TRAIN, VALIDATION, epochs=1)
    assert "block by block" in result.description
    assert "mesh.points" in caplog.text
    with pytest.raises(ValueError, match=r"stacked=True.*mesh\.points"):
        fit(Positions(), TRAIN, epochs=1, stacked=True)


def test_each_epoch_sees_every_case_once_in_its_own_order():
    order = Order(cases=10, batch_size=4, seed=3)
    seen = order.batches(0, 10).flatten().tolist()
    epochs = [seen[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    # Any stretch of steps, in any order of asking, gives the same batches: what resuming rests on.
    assert torch.equal(Order(10, 4, 3).batches(7, 2), order.batches(0, 10)[7:9])
    assert Order(10, 4, 4).batches(0, 10).flatten().tolist() != seen
