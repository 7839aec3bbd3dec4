"""Flows unlike those of training: drawn by name, judged by finer cells."""

import math

import numpy as np
import pytest
import torch

from pennlab.datasets import unlike_flows
from pennpde.flow.grid import Grid


@pytest.mark.parametrize("kind", unlike_flows.KINDS)
def test_a_name_stands_for_one_sound_flow(kind):
    one, other = (unlike_flows.draw(f"{kind}_03") for _ in range(2))
    assert torch.equal(one.mesh.points, other.mesh.points)
    assert float(one.parameters["viscosity"]) == float(other.parameters["viscosity"])
    assert float(one.mesh.cell_volumes.min()) > 0
    grid = Grid.of(one)
    through = grid.boundary_flux().sum()
    # Flows that a pressure drives are open, though no flux is prescribed.
    assert grid.is_closed == (abs(through) < 1e-12 and kind != "driven")


def test_kinds_come_in_turn():
    first = unlike_flows.names()[: len(unlike_flows.KINDS)]
    assert [unlike_flows.kind_of(name) for name in first] == list(unlike_flows.KINDS)


def test_a_reference_is_kept_and_read_again(tmp_path, monkeypatch):
    name = "few_00"
    fields = {"u": np.zeros((unlike_flows.draw(name).number_of_points, 2, 1)), "p": np.zeros((1, 1))}
    monkeypatch.setattr(unlike_flows, "solve_reference", lambda *_: fields)
    assert unlike_flows.read(tmp_path, name) is not None
    monkeypatch.setattr(unlike_flows, "solve_reference", lambda *_: pytest.fail("it is there"))
    known = unlike_flows.read(tmp_path, name)
    assert known is not None
    assert known.family == "few"
    assert list(known.reference) == [math.inf]


def test_a_flow_without_a_steady_state_is_left_out_for_good(tmp_path, monkeypatch):
    monkeypatch.setattr(unlike_flows, "solve_reference", lambda *_: None)
    assert unlike_flows.read(tmp_path, "few_00") is None
    monkeypatch.setattr(unlike_flows, "solve_reference", lambda *_: pytest.fail("it is known"))
    assert unlike_flows.read(tmp_path, "few_00") is None
