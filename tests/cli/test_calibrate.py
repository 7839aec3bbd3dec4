"""`penn calibrate`: from cases with truth to predictions with an expected error."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import penn, store
from pennpde import checkpoints
from pennpde.checkpoints import EXPECTED_ERROR
from pennpde.cli.calibrate import CACHE
from pennpde.data import storage
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.penn import STEADY
from pennpde.prediction import predict
from pennpde.train import calibrate as calibrating
from pennpde.trust import expected_error

NAMES = [f"{kind}_{first:.2f}_{second:.2f}" for kind in "bc" for first in (0.1, 0.5, 0.9) for second in (0.2, 0.8)]
NAMES += [f"a_{ramp:.2f}" for ramp in (0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.9)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """A network, a dataset, and what its cases were measured to be: wrong by 20 % in shapes of type C, else by 2 %."""
    folder = tmp_path_factory.mktemp("calibrate")
    model = checkpoints.load(store(folder / "network"))
    cases = [flow_case(coarse_mesh(name, cells_per_length=3), name) for name in NAMES]
    cases = [replace(case, targets=dict(case.initial)) for case in cases]
    splits = {"train": NAMES[:1], "validation": NAMES[1:]}
    storage.write(folder / "data", cases, splits, "flow", times=[4.0])
    outcome = predict(model, cases[0], resolution="own")
    clues = outcome.evidence[0].clues
    random = np.random.default_rng(0)
    for name in NAMES:
        errors = {each: (0.2 if name[0] == "c" else 0.02) * random.uniform(0.8, 1.2) for each in ("u", "p")}
        values = {each.name: each.value + 0.05 * random.standard_normal() for each in clues}
        row = calibrating.Measured(name, name[0], 4.0, errors, values, {each.name: each.worse for each in clues})
        calibrating._add(folder / CACHE, calibrating.weights_of(model), "auto", name, [row])
    return folder


def calibrated(folder: Path, *options: object):
    return penn("calibrate", folder / "network", folder / "data", "--cache", folder / CACHE, *options)


def test_a_calibrated_network_predicts_with_an_expected_error(workplace, tmp_path):
    finished = calibrated(workplace, "--split", "train", "--split", "validation", "--out", tmp_path, "--json")
    assert finished.exit_code == 0, finished.output
    record = json.loads(finished.stdout)
    assert record["predictions"] == len(NAMES)
    assert set(record["families"]) >= {"c", "all"}
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).write_bytes((workplace / "network" / name).read_bytes())
    model = checkpoints.load(tmp_path)
    case = flow_case(coarse_mesh("a_0.40", cells_per_length=3))
    assert predict(model, case, resolution="own").expected.grade in ("good", "fair", "poor", "refused")


def test_a_network_that_was_trained_further_is_calibrated_again(workplace, tmp_path):
    """Its expected errors are of other weights, which predictions refuse; not those that calibrate."""
    folder = shutil.copytree(workplace / "network", tmp_path / "network")
    known = {"format": expected_error.FORMAT, "format_version": 1, "weights_sha256": "0" * 64, "parts": {}}
    (folder / EXPECTED_ERROR).write_text(json.dumps(known))
    model = checkpoints.load(folder)
    case = storage.read(workplace / "data", "validation")[0]
    with pytest.raises(checkpoints.CheckpointError, match=r"belongs to other weights.* Run penn calibrate again"):
        predict(model, case)
    heard = []
    calibrating.measure_all(model, [calibrating.of_case(case, [4.0])], on_case=lambda _, outcome: heard.append(outcome))
    assert [each.case for each in heard[0]] == [case.name]
    with pytest.raises(checkpoints.CheckpointError, match="belongs to other weights"):
        predict(model, case)


def test_too_few_cases_are_refused(workplace, tmp_path):
    finished = calibrated(workplace, "--out", tmp_path, "--every", 2)
    assert finished.exit_code == 1
    assert "needs at least 20" in finished.stderr
    assert not (tmp_path / EXPECTED_ERROR).exists()


def test_training_cases_are_left_out_unless_asked_for(workplace, tmp_path):
    finished = calibrated(workplace, "--out", tmp_path)
    assert finished.exit_code == 1
    assert f"There are {len(NAMES) - 1} cases" in finished.stderr


def test_an_interrupted_calibration_goes_on_where_it_was(workplace, tmp_path, monkeypatch):
    model = checkpoints.load(workplace / "network")
    cases = [calibrating.of_case(case, [4.0]) for case in storage.read(workplace / "data")]
    cache = tmp_path / CACHE
    calibrating.measure_all(model, cases[:3], cache)
    with cache.open("a") as stream:
        stream.write('{"weights": "cut off in the mid')  # as a killed process leaves it
    measured = []
    monkeypatch.setattr(calibrating, "measure", lambda _, known, *__: measured.append(known.case.name) or [])
    found = calibrating.measure_all(model, cases[:5], cache)
    assert measured == [each.case.name for each in cases[3:5]]
    assert [each.case for each in found] == [each.case.name for each in cases[:3]]


def test_what_was_measured_with_other_weights_is_not_used(workplace, tmp_path):
    cases = [calibrating.of_case(case, [4.0]) for case in storage.read(workplace / "data")[:2]]
    cache = tmp_path / CACHE
    calibrating.measure_all(checkpoints.load(workplace / "network"), cases, cache)
    other = checkpoints.load(store(tmp_path / "other", width=6))
    heard = []
    calibrating.measure_all(other, cases, cache, on_case=lambda known, _: heard.append(known.case.name))
    assert len(heard) == 2


def test_a_case_at_another_time_is_no_truth_for_a_network_with_its_own(workplace):
    case = storage.read(workplace / "data")[0]
    model = checkpoints.load(workplace / "network")
    assert calibrating.measure(model, calibrating.of_case(case, [2.0])) == []
    assert len(calibrating.measure(model, calibrating.of_case(case, [4.0]))) == 1


def test_steady_states_are_truth_for_networks_of_any_time(workplace):
    from any_time import AnyTime

    case = storage.read(workplace / "data")[0]
    steady = {f"steady_{name}": values for name, values in case.targets.items()}
    known = calibrating.of_case(replace(case, targets={**case.targets, **steady}), [4.0])
    assert sorted(known.reference) == [4.0, STEADY]
    assert [each.time for each in calibrating.measure(AnyTime(), known, "own")] == [4.0, STEADY]
    only = calibrating.of_case(replace(case, targets=steady), [])
    assert list(only.reference) == [STEADY]


def test_one_family_is_divided_into_parts(workplace):
    rows = [calibrating.Measured(name, "runs", 4.0, {"u": 0.1}, {"time": 0.8}, {"time": False}) for name in NAMES]
    measured = calibrating.usable(rows)
    assert len({each.family for each in measured}) == 10


def test_a_dataset_that_is_not_there_is_named(workplace):
    finished = penn("calibrate", workplace / "network", workplace / "nowhere")
    assert finished.exit_code == 1
    assert "there is no dataset" in finished.stderr
    assert not (workplace / "network" / EXPECTED_ERROR).exists()
