"""Measured cases are kept, whatever ends the process."""

from dataclasses import replace

import pytest
import torch

from calibrated import drawn
from pennlab.datasets.advection_diffusion import TIMES
from pennpde.case import Case
from pennpde.data import storage
from pennpde.data.storage import write_manifest
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.flow_physics import flow_clues
from pennpde.operators import Operators
from pennpde.train import calibrate as calibrating
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


def test_times_whose_reference_is_not_mesh_converged_are_left_out(tmp_path):
    case = replace(heated_plate(targets=True), name="plate")
    storage.write(tmp_path, [case], dataset="advection-diffusion", times=TIMES)
    manifest = storage.read_manifest(tmp_path)
    entry = manifest.cases["plate"]
    judged = [True] * (len(TIMES) - 1) + [False]
    cases = {"plate": replace(entry, facts={**entry.facts, "determined": judged})}
    write_manifest(tmp_path, replace(manifest, cases=cases))
    (known,) = calibrating.read_dataset(tmp_path)
    assert list(known.reference) == list(TIMES[:-1])


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
