"""Meshes of all kinds for one duct each."""

import importlib
import json

import numpy as np
import pytest
import torch

from paths import ROOT
from pennlab.datasets import recipes
from pennlab.datasets.flow import cases as flow
from pennlab.datasets.flow import varied as varied_meshes
from pennlab.datasets.flow.varied import varied_mesh

pytestmark = pytest.mark.slow  # CI runs them

NAMES = ("a_0.30", "b_0.30_0.70", "b_1.00_1.00", "c_0.00_1.00", "c_0.80_0.30", "c_0.50_0.50", "a_1.00", "c_0.10_0.20")


@pytest.fixture(scope="module")
def meshes():
    return {name: varied_mesh(name) for name in NAMES}


def test_every_mesh_fills_its_duct_and_none_is_larger_than_the_largest_of_the_dataset(meshes):
    for name, mesh in meshes.items():
        like = flow.coarse_mesh(name)
        assert mesh.cell_volumes.sum().item() == pytest.approx(like.cell_volumes.sum().item())
        assert set(mesh.patches) == set(like.patches)
        assert mesh.number_of_points <= varied_meshes.MOST_POINTS


def test_kinds_and_sizes_of_cells_vary(meshes):
    corners = {tuple(np.unique(np.diff(mesh.offsets))) for mesh in meshes.values()}
    assert len(corners) > 1
    finer = [mesh.number_of_points / flow.coarse_mesh(name).number_of_points for name, mesh in meshes.items()]
    assert max(finer) / min(finer) > 1.5


def test_a_mesh_is_repeatable_and_depends_on_the_seed(meshes):
    assert torch.equal(varied_mesh("c_0.50_0.50").points, meshes["c_0.50_0.50"].points)
    other = varied_mesh("c_0.50_0.50", seed=1)
    assert other.number_of_points != meshes["c_0.50_0.50"].number_of_points


def test_the_meshes_are_those_that_the_shipped_network_was_trained_on(meshes, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "lab" / "benchmarks")
    hash_of = importlib.import_module("varied_meshes").hash_of
    committed = json.loads((ROOT / "lab" / "benchmarks" / "results" / "varied_meshes.json").read_text())["meshes"]
    found = {name: hash_of(mesh) for name, mesh in meshes.items() if name in committed}
    assert len(found) >= 5
    assert found == {name: committed[name]["hash"] for name in found}


def test_a_set_on_varied_meshes_says_so_and_is_not_continued_as_another():
    plain, varied = (recipes.FlowRecipe("runs", varied=varied).settings() for varied in (False, True))
    assert plain != varied
    assert varied["kinds_of_mesh"] == list(varied_meshes.KINDS)
    assert "kinds_of_mesh" not in plain
