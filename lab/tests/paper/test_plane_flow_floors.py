"""Floors of the plane flows: the start, and the nearest training flow carried over."""

import json
from dataclasses import replace

import pytest
import torch

from commands import penn
from generating import make
from paths import ROOT
from pennlab.datasets.plane_flow import finished, flows
from pennlab.datasets.plane_flow.recipe import PlaneFlowRecipe
from pennlab.paper import plane_flow_floors as floors
from pennpde.data import storage

ARCHIVES = ROOT / "data" / "plane_flow" / "finished"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Few of the finished flows: two for training, one for tests."""
    folder = tmp_path_factory.mktemp("floors") / "plane_flow"
    # All of these have a steady state.
    known = [name for name in finished.names(ARCHIVES) if name.startswith(("chamber", "cavity"))]
    slow = [name for name in known if flows.draw_flow(name).reynolds < 60]
    train = [name for name in slow if flows.split_of(name) == "train"]
    names = [train[0], train[-1], next(name for name in slow if flows.split_of(name) == "test")]
    recipe = PlaneFlowRecipe(finished=str(ARCHIVES), may_solve=False)
    make(recipe, folder, only=[f"{name}.{mesh}" for name in names for mesh in "ab"])
    return folder


def test_a_training_flow_finds_itself_on_either_mesh_and_at_its_own_moments(dataset):
    nearest = floors.Nearest.among(dataset)
    for file in storage.read_files(dataset, "train"):
        for case in floors.at_all_times([file]):
            found = nearest(case)
            if file.case.name.endswith(".a"):
                for name, target in case.targets.items():
                    torch.testing.assert_close(found[name], target.to(found[name]), atol=2e-3, rtol=0)
            else:
                error = (found["u"] - case.targets["u"]).norm() / case.targets["u"].norm()
                assert error < 0.1  # between meshes it is interpolated


def test_a_flow_between_two_moments_is_their_mean_and_stays_after_the_last(dataset):
    file = next(iter(storage.read_files(dataset, "test")))
    first, second = file.times[:2]
    between = floors.targets_at(file, 0.5 * (first + second))
    torch.testing.assert_close(between["u"], file.case.targets["u"][..., :2].mean(dim=-1))
    after = floors.targets_at(file, 100.0)
    torch.testing.assert_close(after["p"], file.case.targets["p"][..., -1])
    torch.testing.assert_close(floors.targets_at(file, 0.0)["u"], file.case.initial["u"])


def test_a_mirror_image_is_turned_back(dataset):
    nearest = floors.Nearest.among(dataset)
    name = next(iter(nearest.train))
    mine = nearest._signature(name)
    upside_down = replace(mine.mirrored(), origin=mine.origin * torch.tensor([1.0, -1.0]).numpy())
    nearest._signatures["step_9999"] = upside_down
    nearest._chosen["step_9999", False] = name
    file = storage.read_file(dataset, f"{name}.a")
    case = floors.at_all_times([file])[0]
    flip = torch.tensor([1.0, -1.0], dtype=torch.float64)
    mirrored = replace(case, mesh=case.mesh.with_points(case.mesh.points * flip), name="step_9999.a")
    free = ~case.dirichlet["u"].mask
    torch.testing.assert_close(
        nearest(mirrored)["u"][free], (case.targets["u"] * flip)[free].to(case.initial["u"]), atol=2e-3, rtol=0
    )


def test_the_command_measures_every_moment_and_the_steady_states(dataset, tmp_path):
    result = penn("bench", "lookup", dataset, "--out", tmp_path / "floors.json")
    assert result.exit_code == 0, result.output
    start, nearest = json.loads((tmp_path / "floors.json").read_text())
    assert [start["row"], nearest["row"]] == ["floor_start", "floor_nearest"]
    files = list(storage.read_files(dataset, "test"))
    for record in (start, nearest):
        moments = sum(len(file.times) for file in files)
        assert record["times"]["all moments"]["cases"] == moments
        assert record["cases"] == len(files)
        assert record["times"]["steady"]["cases"] == record["relative_l2"]["steady"]["cases"] == len(files)
        assert set(record["groups"]) == {flows.parse_name(floors.flow_of(file.case.name))[0] for file in files}
        assert set(record["times"]) <= {*floors.TIMES, "all moments", "steady"}
    # The start is a good guess early, and a bad one late.
    times = start["times"]
    assert times["0 < t ≤ 1"]["u"]["mean"] < times["5 < t ≤ 8"]["u"]["mean"]
    assert "steady" in result.stdout


def test_moments_that_are_not_determined_are_measured_apart(dataset):
    files = list(storage.read_files(dataset, "test"))
    last = {file.case.name: file.times[-1] for file in files}
    record = floors.measure(floors.start, files, {}, lambda name, time: time != last[name])
    assert record["times"][floors.UNDETERMINED]["cases"] == len(files)
    assert record["times"]["all moments"]["cases"] == sum(len(file.times) - 1 for file in files)
    assert record["not_known_whether_determined"] == 0
    record = floors.measure(floors.start, files, {}, lambda name, time: None)
    assert floors.UNDETERMINED not in record["times"]
    assert record["not_known_whether_determined"] == sum(len(file.times) + 1 for file in files)


def test_a_set_without_training_flows_is_refused(tmp_path):
    storage.write(tmp_path, [], dataset="plane-flow", splits={"train": []}, settings={"seed": 0})
    with pytest.raises(ValueError, match="no training flows"):
        floors.Nearest.among(tmp_path)
