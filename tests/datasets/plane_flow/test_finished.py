"""Flows that come with the repository are taken as they are, without OpenFOAM."""

import json

import pytest
import torch
from commands import penn
from paths import ROOT

from pennpde.datasets import storage
from pennpde.datasets.plane_flow import finished, flows
from pennpde.datasets.plane_flow.recipe import PlaneFlowRecipe

FOLDER = ROOT / "data" / "plane_flow" / "finished"


def test_every_finished_flow_is_one_of_the_dataset():
    known = {name for names in flows.splits().values() for name in names}
    assert set(finished.names(FOLDER)) <= known
    assert len(finished.names(FOLDER)) >= 398


def test_a_finished_flow_has_the_fingerprint_of_the_flow_as_it_is_drawn_now():
    for name in finished.names(FOLDER)[::80]:
        flow = flows.draw_flow(name)
        made = finished.products(FOLDER, flow)
        assert sorted(made) == [f"{name}.a", f"{name}.b"]
        assert all(each.facts["fingerprints"]["flow"] == flow.fingerprint() for each in made.values())


def test_the_command_makes_a_dataset_of_finished_flows_without_a_solver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    name = finished.names(FOLDER)[0]
    result = penn(
        *("generate", "plane-flow", "--out", tmp_path, "--finished", FOLDER, "--workers", "0", "--json"),
        *("--only", f"{name}.a", "--only", f"{name}.b"),
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["made"] == 2
    case = storage.read_file(tmp_path, f"{name}.a").case
    assert case.targets["u"].shape[:2] == case.initial["u"].shape
    assert torch.isfinite(case.targets["p"]).all()


def test_a_finer_truth_is_not_taken_from_the_archives():
    name = finished.names(FOLDER)[0]
    assert PlaneFlowRecipe(finished=str(FOLDER))._is_finished(name)
    assert not PlaneFlowRecipe(spacing=0.5, finished=str(FOLDER))._is_finished(name)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no finished flows"):
        finished.names(tmp_path)
