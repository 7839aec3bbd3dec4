"""An equation that pennpde does not know gets units, training range, certificate and OpenFOAM by filling hooks."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import pennpde
from commands import penn
from foam_cases import write_brick, write_conditions
from paths import ROOT, load_script
from pennpde import checkpoints, openfoam
from pennpde.prediction import predict
from pennpde.trust.certificate import spanned

PLUGIN = ROOT / "examples" / "your_own_equation.py"


@pytest.fixture(scope="module")
def example():
    return load_script(PLUGIN)


@pytest.fixture(scope="module")
def cases(example) -> list[pennpde.Case]:
    return [example.random_case(seed) for seed in range(4)]


@pytest.fixture(scope="module")
def folder(example, cases, tmp_path_factory) -> Path:
    torch.manual_seed(0)
    model = example.burgers_network(width=4)
    ranges = spanned(cases, model.equation)
    arguments = {"width": 4}
    return checkpoints.save(
        model, tmp_path_factory.mktemp("burgers"), checkpoints.Config("burgers", arguments, training_range=ranges)
    )


def in_millimetres(case: pennpde.Case) -> pennpde.Case:
    """The same case as somebody would write it down who measures lengths in millimetres."""
    points = 1000 * case.mesh.points.numpy()
    quads = case.mesh.connectivity.reshape(-1, 4)
    walls = {"wall": lambda x: (np.isclose(x, 0) | np.isclose(x, 1000)).any(axis=1)}
    mesh = pennpde.Mesh.from_arrays(points, quads, patches=walls)
    return pennpde.Case(
        mesh,
        initial={"u": 1000 * case.initial["u"]},
        dirichlet={"u": {"wall": 0.0}},
        parameters={"viscosity": 1e6 * float(case.parameters["viscosity"])},
    )


def test_the_unit_of_length_does_not_matter(folder, cases):
    model = checkpoints.load(folder, dtype=torch.float64)
    expected, found = predict(model, cases[0]), predict(model, in_millimetres(cases[0]))
    difference = float((found.fields["u"] / 1000 - expected.fields["u"]).abs().amax())
    assert difference < 1e-10  # round-off, followed through the iterations
    assert found.time == expected.time == 0.25
    assert all(each.inside for each in found.certificate.compared)


def test_the_training_range_and_the_check_are_those_of_the_equation(folder, cases):
    model = checkpoints.load(folder)
    outcome = predict(model, cases[0])
    assert outcome.certificate.check("largest speed").value <= 1.5
    thin = pennpde.Case(
        cases[0].mesh,
        initial=cases[0].initial,
        dirichlet={"u": {"wall": 0.0}},
        parameters={"viscosity": 1e-5},
    )
    warnings = predict(model, thin).certificate.warnings
    assert any(each.startswith("Reynolds number is") for each in warnings)


def test_the_command_predicts_on_a_mesh_file_and_draws(folder, cases, tmp_path):
    cases[0].mesh.save(tmp_path / "box.vtu")
    (tmp_path / "box.toml").write_text(
        "initial = { u = [0.5, 0.0] }\nparameters = { viscosity = 0.02 }\n[dirichlet.u]\nwall = 0.0\n"
    )
    result = penn(
        *("predict", tmp_path / "box.vtu", "--case", tmp_path / "box.toml", "--model", folder, "--plugin", PLUGIN),
        *("--out", tmp_path / "out.vtu", "--png", tmp_path / "out.png", "--json"),
    )
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["certificate"]["dirichlet"] == {"u": 0}
    assert "largest speed" in record["certificate"]["checks"]
    assert set(pennpde.Mesh.read(tmp_path / "out.vtu").fields) >= {"u"}
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_an_openfoam_case_goes_in_and_its_own_unknown_comes_out(folder, tmp_path):
    case = write_brick(tmp_path / "box", shape=(6, 6, 1), types={"back": "empty", "front": "empty"})
    walls = dict.fromkeys(("left", "right", "bottom", "top"), "type fixedValue; value uniform (0 0 0);")
    write_conditions(case, "U", "uniform (0.5 0 0)", {**walls, "back": "type empty;", "front": "type empty;"})
    result = penn("predict", case, "--model", folder, "--plugin", PLUGIN, "--write-time", "0.25", "--json")
    assert result.exit_code == 0, result.output
    written = openfoam.read_field(case / "0.25" / "U")
    assert written.internal.values.shape == (36, 3)
    assert np.abs(written.internal.values).max() > 0.01


def test_without_its_plugin_the_network_is_named_and_the_option_told(folder, tmp_path, monkeypatch):
    from pennpde import registry

    monkeypatch.setattr(registry, "_BUILDERS", {k: v for k, v in registry._BUILDERS.items() if k != "burgers"})
    result = penn("predict", write_brick(tmp_path / "box"), "--model", folder)
    assert result.exit_code == 1
    assert "--plugin" in result.output


def test_a_plugin_that_is_not_there_is_refused(folder, tmp_path):
    result = penn("predict", write_brick(tmp_path / "box"), "--model", folder, "--plugin", tmp_path / "none.py")
    assert result.exit_code == 1
    assert "no plugin" in result.output
