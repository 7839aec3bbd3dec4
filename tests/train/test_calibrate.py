"""Measured cases are kept, whatever ends the process; and moments whose truth is not determined are counted apart."""

from dataclasses import replace

import pytest
import torch

from calibrated import WORSE, drawn
from pennlab.datasets.advection_diffusion import TIMES
from pennpde.case import Case
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.flow_physics import flow_clues
from pennpde.operators import Operators
from pennpde.train import calibrate as calibrating
from pennpde.train.calibrate import DETERMINED, NOT_MEASURED, UNDETERMINED, Measured
from problems import heated_plate, rectangle


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return advection_diffusion_network(width=4, iterations=2, hidden=8).eval()


def plates(*names: str) -> list[calibrating.Known]:
    return [calibrating.of_case(replace(heated_plate(targets=True), name=name), TIMES) for name in names]


def test_a_line_that_was_cut_off_costs_that_case_only(network, tmp_path):
    cache = tmp_path / "kept.jsonl"
    calibrating.measure_all(network, plates("one", "two"), cache)
    cache.write_bytes(cache.read_bytes()[:-20])
    calibrating.measure_all(network, plates("three"), cache)
    assert list(calibrating.kept(network, cache)) == ["one", "three"]


def test_a_case_that_failed_is_tried_again(network, tmp_path):
    cache, heard = tmp_path / "kept.jsonl", []
    wrong = [replace(each, case=replace(each.case, parameters={})) for each in plates("plate")]
    for cases in (wrong, wrong, plates("plate"), plates("plate")):
        calibrating.measure_all(network, cases, cache, on_case=lambda _, outcome: heard.append(type(outcome)))
    assert len(heard) == 3
    assert issubclass(heard[0], Exception)
    assert heard[2] is list


def test_whether_the_truth_is_determined_is_kept(network, tmp_path):
    known = [replace(each, determined={TIMES[-1]: False}) for each in plates("plate")]
    calibrating.measure_all(network, known, tmp_path / "kept.jsonl")
    assert [each.determined for each in calibrating.kept(network, tmp_path / "kept.jsonl")["plate"]] == [False]


def test_moments_whose_truth_is_not_determined_are_counted_apart():
    turns = (True, False, None)
    measured = [
        Measured(each.name, each.family, 1.0, each.errors, each.clues, WORSE, turns[number % 3])
        for number, each in enumerate(drawn(6, 9))
    ]
    found = calibrating.coverage_by_family(measured)
    assert list(found)[-4:] == [DETERMINED, UNDETERMINED, NOT_MEASURED, "all"]
    assert [found[title].cases for title in list(found)[-4:]] == [18, 18, 18, 54]
    # Where nobody has measured it, there is nothing to count apart.
    unknown = calibrating.coverage_by_family([replace(each, determined=None) for each in measured])
    assert list(unknown) == [*sorted({each.family for each in measured}), "all"]


def test_a_truth_that_depends_on_its_mesh_is_judged_but_not_learned_from():
    measured = [Measured(each.name, each.family, 1.0, each.errors, each.clues, WORSE) for each in drawn(12, 10, seed=1)]
    eddies = [
        replace(each, case=f"{each.case} late", errors={"u": 100 * each.errors["u"]}, determined=False)
        for each in measured
    ]
    alone, both = calibrating.fitted(measured), calibrating.fitted([*measured, *eddies])
    assert all(alone.estimate("u", each.clues) == both.estimate("u", each.clues) for each in measured)
    covered = calibrating.coverage_by_family([*measured, *eddies])
    assert covered[NOT_MEASURED].covered["u"] > 0.8
    assert covered[UNDETERMINED].covered["u"] == 0


def test_what_is_graded_good_and_wrong_is_named():
    samples = drawn(6, 9)
    judged = [(each, {"u": (0.01, 0.05)}) for each in samples]
    found = calibrating.coverage(judged)["all"]
    assert set(found.wrong) == {each.name for each in samples if each.errors["u"] > 0.2}
    assert found.good_but_wrong == len(found.wrong) > 0


def test_a_pressure_that_nearly_cancels_has_a_clue():
    mesh = rectangle()
    case = Case(mesh, initial={"u": torch.zeros_like(mesh.points), "p": 0.0}, parameters={"viscosity": 0.01})
    operators, speed = Operators.on(mesh), torch.ones_like(mesh.points)

    def clue(pressure: float) -> float:
        fields = {"u": speed, "p": torch.full_like(mesh.points[:, 0], pressure)}
        return {each.name: each.value for each in flow_clues(case, fields, operators)}["speed squared over pressure"]

    assert clue(0.002) == pytest.approx(clue(2.0) + 3.0)
    assert clue(2.0) == pytest.approx(0.0, abs=1e-6)  # two components of one: a square of two
