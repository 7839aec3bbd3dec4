"""The examples run, and show what they say."""

import importlib.util
from types import ModuleType

import pytest
from paths import ROOT

EXAMPLES = ROOT / "examples"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_a_normal_derivative_improves_the_gradient_on_a_mesh(tmp_path, capsys):
    errors = load("operators_on_a_mesh").main(tmp_path)
    assert errors["of a linear field"] < 1e-12
    assert errors["with the normal derivative"] < 0.7 * errors["without the normal derivative"]
    assert (tmp_path / "beam.vtu").stat().st_size > 1000
    assert "beam.vtu" in capsys.readouterr().out


def test_your_own_equation_solves_burgers_crudely_and_learns(capsys):
    error = load("your_own_equation").main(steps=10, cases=8)
    told = [float(line.rsplit(maxsplit=1)[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(told) == 3
    nothing, before, after = told
    assert after == pytest.approx(error, abs=1e-3)
    assert before < 0.6 * nothing
    assert after < before


def test_the_walls_of_your_own_equation_are_exact():
    import pennpde as penn
    from pennpde.testing import assert_dirichlet, assert_equivariant

    example = load("your_own_equation")
    network = penn.PENN(example.Burgers(width=4), width=4, time_step=example.TIME)
    assert_dirichlet(network, example.random_case(0))
    assert_equivariant(network.double(), example.random_case(0), motions=1)


def test_a_pretrained_network_heats_a_mesh_of_yours(tmp_path, capsys):
    from pennpde import checkpoints

    network = "advection-diffusion"
    if network not in checkpoints.shipped():
        pytest.skip(f"no network {network} comes with the package yet")
    outcome = load("predict_on_your_mesh").main(tmp_path, network)
    temperature = outcome.fields["T"]
    hot = outcome.case.dirichlet["T"].mask
    assert (temperature[hot] == 0.8).all()
    assert temperature.mean(dim=0).diff().min() > 0  # it warms up
    assert -0.1 < temperature.min() <= temperature.max() < 0.9
    assert "heat.vtu" in capsys.readouterr().out
    assert (tmp_path / "heat.vtu").stat().st_size > 1000


def test_the_example_on_your_mesh_runs_with_any_network_of_its_equation(tmp_path):
    from commands import store

    outcome = load("predict_on_your_mesh").main(tmp_path, store(tmp_path / "network", "advection-diffusion"))
    assert (outcome.fields["T"][outcome.case.dirichlet["T"].mask] == 0.8).all()
    assert outcome.times == (0.25, 0.5, 0.75, 1.0)


def test_a_cooled_plate_reaches_its_analytic_state():
    assert load("robin_condition").main() < 1e-6


def test_a_pressure_drop_drives_a_periodic_channel(capsys):
    assert load("periodic_channel").main() < 0.01
    assert "over the seam: 0.0" in capsys.readouterr().out


def test_an_inlet_that_changes_is_exact_at_every_output_time():
    assert load("time_dependent_inlet").main() == 0.0


def test_your_own_condition_holds():
    assert load("your_own_condition").main() < 1e-12


def test_your_own_condition_is_turned_batched_stacked_and_scaled():
    import torch

    import pennpde as penn
    from pennpde.case.units import Scale, Units
    from pennpde.testing import assert_equivariant
    from pennpde.training.stack import CaseStack

    example = load("your_own_condition")
    torch.manual_seed(0)
    network = penn.PENN(example.Diffusion(width=4), width=4, time_step=0.01).double()
    cases = [example.blown_box(6), example.blown_box(4, 0.5)]
    assert_equivariant(network, cases[0], motions=1)
    alone = [network(case)["u"] for case in cases]
    torch.testing.assert_close(network(penn.batch(cases))["u"], torch.cat(alone), rtol=0, atol=1e-12)
    stack = CaseStack.of(cases, torch.float64)
    stacked = network(stack.batch(torch.tensor([1, 0]))[0])["u"]
    torch.testing.assert_close(stacked[: len(alone[1])], alone[1], rtol=0, atol=1e-12)
    scaled = Units(1.0, 1.0, {"u": Scale(2.0)}).dimensionless(cases[0]).conditions["porous"]["u"]
    torch.testing.assert_close(2 * scaled.through, cases[0].conditions["porous"]["u"].through)
