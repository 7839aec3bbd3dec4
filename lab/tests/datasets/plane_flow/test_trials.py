"""Trials: one change at a time on the step of `penn demo`, with their truth."""

from pathlib import Path

import numpy as np
import pytest

from pennlab.datasets.plane_flow import cases, meshes, trials
from pennlab.datasets.plane_flow.shapes.soundness import unsound
from pennpde.data import storage
from pennpde.models.designs import duct

FOLDER = Path(__file__).parents[4] / "data" / "trials"


@pytest.mark.parametrize("name", trials.NAMES)
def test_every_trial_has_a_sound_shape_whose_inflow_is_prescribed(name):
    flow = trials.trial(name).flow
    assert unsound(flow.domain) == ""
    assert flow.name == name
    assert flow.conditions.keys() == set(flow.domain.patches)
    for each in flow.inlets:
        assert each.startswith("inlet")


def test_the_first_trial_is_the_step_of_the_demo():
    sides = trials.trial("step").flow.domain.sides + np.array([0.0, 1.0])  # its step lies at y = 0, the demo's at 1
    corners = {tuple(np.round(corner, 6)) for corner in sides.reshape(-1, 2)}
    patches = duct("a_0.37").patches
    demo = {tuple(map(float, corner)) for each in patches.values() for side in each for corner in side}
    assert corners <= {(round(x, 6), round(y, 6)) for x, y in demo}


def test_only_one_thing_is_changed():
    step = trials.trial("step").flow
    for name in ("viscosity-half", "viscosity-double", "viscosity-tenfold", "viscosity-fiftyfold"):
        flow = trials.trial(name).flow
        assert flow.reynolds != step.reynolds
        np.testing.assert_array_equal(flow.domain.sides, step.domain.sides)
    for name in ("parabolic", "tilted-10", "tilted-15", "jet"):
        flow = trials.trial(name).flow
        assert flow.reynolds == step.reynolds
        assert flow.inflow() == pytest.approx(step.inflow())


def test_an_unknown_trial_is_named():
    with pytest.raises(ValueError, match="'elbow' names no trial; there are step,"):
        trials.trial("elbow")


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the truth of the trials is not here")
def test_the_stored_truth_belongs_to_the_trials_of_today():
    manifest = storage.read_manifest(FOLDER)
    assert set(manifest.cases) <= set(trials.NAMES)
    for name in ("step", "tilted-10"):
        tried = trials.trial(name)
        file = storage.read_file(FOLDER, name, manifest)
        today = cases.case_on_mesh(tried.flow, meshes.network_mesh(tried.flow, tried.plan))
        assert file.times == tried.flow.moments
        assert float((file.case.mesh.points - today.mesh.points).abs().max()) < 1e-6
        assert float((file.case.dirichlet["u"].values - today.dirichlet["u"].values).abs().max()) < 1e-6
        assert 0.2 < float(file.case.targets["u"].square().mean()) < 1.0
