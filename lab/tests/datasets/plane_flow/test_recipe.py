"""How the dataset of plane flows is made: in which order, with which steps, at which moments."""

from dataclasses import replace

import numpy as np
import pytest

from paths import ROOT
from pennlab import running
from pennlab.datasets.plane_flow import cost, finished, flows, recipe, truth
from pennlab.datasets.plane_flow.dual import dual_of
from pennlab.datasets.plane_flow.foam import Resolution, write_case
from pennlab.datasets.plane_flow.recipe import PlaneFlowRecipe, kept_moments
from pennlab.datasets.recipe import HopelessError

ARCHIVES = ROOT / "data" / "plane_flow" / "finished"


@pytest.mark.parametrize(("name", "correctors"), [("round-bodies_0033", 2), ("step_0012", 1), ("cavity_0003", 1)])
def test_flows_around_bodies_have_a_second_outer_corrector(name, correctors):
    flow = flows.draw_flow(name)
    assert Resolution.of(flow).outer_correctors == correctors
    assert Resolution.of(flow, 2.0) == Resolution(2.0, outer_correctors=correctors)


def test_the_files_for_the_solver_say_the_outer_correctors_and_the_courant_number(tmp_path):
    flow = flows.draw_flow("round-bodies_0033")
    resolution = Resolution.of(flow, 4.0).steadier
    dual = dual_of(truth.truth_triangles(flow, resolution))
    write_case(tmp_path, flow, dual, resolution, np.zeros_like(dual.centres))
    assert "nOuterCorrectors 2;" in (tmp_path / "system" / "fvSolution").read_text()
    assert "maxCo 1;" in (tmp_path / "system" / "controlDict").read_text()


def test_the_first_mesh_has_all_moments_and_the_second_the_last_and_another():
    drawn = [flows.draw_flow(f"step_{number:04d}") for number in range(12)]
    for flow in drawn:
        assert kept_moments(flow, "a") == list(range(len(flow.moments)))
        other, last = kept_moments(flow, "b")
        assert 0 <= other < last == len(flow.moments) - 1
    with_four = [kept_moments(flow, "b")[0] for flow in drawn if len(flow.moments) == 4]
    assert set(with_four) == {0, 1, 2}


def test_the_split_of_a_flow_is_told_by_its_number():
    for split, names in flows.splits().items():
        assert {flows.split_of(name) for name in names} == {split}


def test_cheap_flows_come_before_expensive_ones_and_finished_ones_before_all():
    names = [f"{name}.a" for name in ("step_0914", "chamber_0901", "chamber_0902", "tee_0903")]  # in no archive
    costs = [cost.rank(task[0].partition(".")[0]) for task in PlaneFlowRecipe().tasks(names)]
    assert costs == sorted(costs)
    known = finished.names(ARCHIVES)[0]
    assert PlaneFlowRecipe(finished=str(ARCHIVES)).tasks([*names, f"{known}.b", f"{known}.a"])[0] == (
        f"{known}.b",
        f"{known}.a",
    )


def test_a_flow_for_tests_comes_before_one_for_training_that_costs_as_much():
    seconds = cost.expected_seconds(flows.draw_flow("step_2001"))
    assert cost.rank("step_2001") == pytest.approx(seconds / cost.WORTH_IN_TESTS)
    assert cost.rank("step_0014") == cost.expected_seconds(flows.draw_flow("step_0014"))


def test_the_expected_cost_is_about_what_finished_flows_took():
    ratios = []
    for name in finished.names(ARCHIVES)[::20]:
        flow = flows.draw_flow(name)
        facts = finished.products(ARCHIVES, flow)[f"{name}.a"].facts["truth"]
        work = facts["cells"] * facts["steps"] * facts.get("outer_correctors", 1)
        ratios.append(cost.expected_seconds(flow) / work)
    assert np.abs(np.log(ratios / np.median(ratios))).max() < np.log(4)
    cells = [abs(np.log(ratio / np.median(ratios))) < np.log(1.7) for ratio in ratios]
    assert np.mean(cells) > 0.7


# A flow that diverges


@pytest.fixture
def solved(monkeypatch):
    """Resolutions with which the solver was called; those above a Courant number diverge."""
    called = []

    def with_limit(limit):
        def solve(flow, folder, resolution, **_):
            called.append(resolution)
            if resolution.courant > limit:
                raise running.DivergenceError("pimpleFoam diverged at time 4.", "last lines")
            return "truth"

        monkeypatch.setattr(truth, "solve", solve)
        return called

    return with_limit


@pytest.mark.parametrize("tried", [[2.0], [2.0, 1.0], [2.0, 1.0, 0.5]])
def test_a_flow_that_diverges_is_tried_again_with_half_the_courant_number(solved, tried):
    called = solved(tried[-1])
    flow = flows.draw_flow("round-bodies_0033")
    assert PlaneFlowRecipe()._solve(flow, lambda share: None) == "truth"
    assert called == [replace(Resolution.of(flow), courant=courant) for courant in tried]


def test_a_flow_that_diverges_three_times_is_given_up_with_its_log(solved):
    called = solved(0.1)
    with pytest.raises(
        HopelessError, match=r"step_0012 diverges with Courant numbers up to 2, 1, 0\.5: pimple"
    ) as error:
        next(PlaneFlowRecipe().make(["step_0012.a"], lambda share: None))
    assert error.value.log_tail == "last lines"
    assert len(called) == 3


def test_settings_say_what_decides_on_the_truth():
    settings = PlaneFlowRecipe().settings()
    assert settings["solver"]["outer_correctors"] == {"around bodies": 2, "elsewhere": 1}
    assert settings["moments"].keys() == set(recipe.MESHES)
