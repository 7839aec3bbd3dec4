"""The teacher of the general flow network: its own scheme, with each cell split once more."""

from dataclasses import replace

import pytest
import torch

import pennpde as penn
from paths import ROOT, load_script
from pennpde.data import storage, vtkhdf
from pennpde.flow.network import stepping_flow
from small_ducts import duct

TIMES = (0.25, 0.5)


@pytest.fixture(scope="module")
def finer_cells():
    return load_script(ROOT / "lab" / "experiments" / "plane_flow" / "finer_cells.py")


@pytest.fixture
def dataset(tmp_path):
    cases = [_over_time(replace(duct(1), name=name)) for name in ("duct_0001.a", "duct_0001.b")]
    storage.write(tmp_path, cases, dataset="plane-flow", times=TIMES)
    return tmp_path


def _over_time(case):
    return replace(case, targets={name: torch.stack([values, values], dim=-1) for name, values in case.targets.items()})


def _solved(case, splits):
    return penn.predict(stepping_flow(splits=splits, corrected=False), replace(case, targets={}), times=TIMES).fields


def test_it_is_nearer_to_the_flow_than_what_the_network_solves(finer_cells, dataset):
    taught = vtkhdf.unpack(finer_cells.solved(str(dataset), "duct_0001.a"), "duct_0001.a")
    case = taught.case
    assert taught.times == TIMES
    # Meshes of so few points are split twice by the network, so three times here; four times stand for the flow.
    usual, flow = _solved(case, 2), _solved(case, 4)
    for name in ("u", "p"):
        assert case.targets[name].shape == flow[name].shape
        off, before = (float((each[name] - flow[name]).norm()) for each in (case.targets, usual))
        assert off < 0.6 * before


def test_one_mesh_of_each_flow_that_is_small_enough(finer_cells, dataset, monkeypatch):
    manifest = storage.read_manifest(dataset)
    assert list(finer_cells._affordable(dataset, manifest, "train")) == ["duct_0001.a"]
    monkeypatch.setattr(finer_cells, "_MOST_POINTS", 100)
    assert list(finer_cells._affordable(dataset, manifest, "train")) == []
