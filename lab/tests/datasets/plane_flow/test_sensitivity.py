"""A moment is determined if the flow is the same with larger cells; datasets carry what the archives say."""

import json
from dataclasses import replace

import pytest

from generating import make
from paths import ROOT
from pennlab.datasets.plane_flow import finished, flows, sensitivity
from pennlab.datasets.plane_flow.recipe import PlaneFlowRecipe
from pennpde.case.moments import FOREVER
from pennpde.data import storage

FOLDER = ROOT / "data" / "plane_flow" / "finished"
NAME = "cavity_2002"  # has a steady state
TIMES = flows.draw_flow(NAME).moments


def archives(folder, **entry):
    """The archives, with what is said about one flow."""
    folder.mkdir()
    for part in FOLDER.glob("part_*.tar"):
        (folder / part.name).symlink_to(part)
    (folder / sensitivity.FILE).write_text(json.dumps({"flows": {NAME: entry}}))
    return folder


@pytest.fixture
def measured(tmp_path):
    """The last moment is not determined, and with larger cells there is no steady state."""
    u = [0.01] * (len(TIMES) - 1) + [0.05]
    return archives(tmp_path / "archives", times=TIMES, u=u, p=[1.0] * len(TIMES), steady_u=None, steady_p=None)


def test_a_moment_is_determined_if_the_velocity_agrees_within_four_per_cent(measured):
    assert [sensitivity.determined(measured, NAME, time) for time in TIMES] == [True] * (len(TIMES) - 1) + [False]
    assert sensitivity.determined(measured, f"{NAME}.b", TIMES[0]) is True
    assert sensitivity.determined(measured, NAME, FOREVER) is False


def test_what_was_not_measured_or_failed_is_not_known(measured, tmp_path):
    assert sensitivity.determined(measured, "step_0000", 1.0) is None
    assert sensitivity.determined(measured, NAME, 7.9) is None
    assert sensitivity.determined(tmp_path / "nowhere", NAME, 1.0) is None
    failed = archives(tmp_path / "failed", error="It diverges.")
    assert sensitivity.determined(failed, NAME, TIMES[0]) is None
    never_steady = archives(tmp_path / "unsteady", times=TIMES, u=[0.0] * len(TIMES), p=[0.0] * len(TIMES))
    assert sensitivity.determined(never_steady, NAME, FOREVER) is None


def test_a_dataset_of_the_archives_says_the_same(measured, tmp_path):
    names = [f"{NAME}.a", f"{NAME}.b"]
    make(PlaneFlowRecipe(finished=str(measured), may_solve=False), tmp_path / "set", only=names)
    for name in names:
        for time in (*storage.read_file(tmp_path / "set", name).times, FOREVER):
            known = sensitivity.determined(measured, name, time)
            assert known is not None
            assert sensitivity.determined(tmp_path / "set", name, time) == known
    assert sensitivity.determined(tmp_path / "set", NAME, TIMES[-1]) is False
    # Archives keep what was computed, not what is concluded from it.
    finished.add(tmp_path / "set", tmp_path / "again")
    for product in finished.products(tmp_path / "again", flows.draw_flow(NAME)).values():
        assert not {"determined", "steady_determined"} & product.facts.keys()


def test_differences_are_relative_and_those_of_the_truth_from_itself_are_zero():
    file = finished.cases(FOLDER, flows.draw_flow(NAME))[f"{NAME}.a"]
    targets = {name: 1.1 * values for name, values in file.case.targets.items() if not name.startswith("steady")}
    other = replace(file, case=replace(file.case, targets=targets))
    assert set(sensitivity.differences(file, file)["u"]) == {0.0}
    found = sensitivity.differences(file, other)
    assert found["times"] == list(file.times)
    assert found["u"] == pytest.approx([0.1] * len(file.times), abs=1e-5)
    assert found["steady_u"] is None  # the truth has one, the other has not
    with pytest.raises(ValueError, match="has the moments"):
        sensitivity.differences(file, replace(other, times=file.times[1:]))


def test_the_committed_differences_are_of_flows_at_their_moments():
    known = json.loads((FOLDER / sensitivity.FILE).read_text())
    assert (known["spacing"], known["limit"]) == (sensitivity.SPACING, sensitivity.LIMIT)
    for name, entry in known["flows"].items():
        if "error" not in entry:
            assert entry["times"] == pytest.approx(list(flows.draw_flow(name).moments))
            assert min(entry["u"]) > 0
