"""Training in any units: the same data give the same network."""

import pytest
import torch

from pennpde.case.units import Scale, Units
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.ducts import flow_network
from pennpde.train import fit
from problems import heated_plate, plate_in_units
from small_ducts import duct, flow_in_units

SETTINGS = {"batch_size": 2, "steps": 3, "learning_rate": 1e-3, "test_every": 1.0, "progress": False}


def trained(model, cases, **changes):
    return fit(model.double(), cases[:2], cases[2:], device="cpu", **SETTINGS, **changes)


def assert_same_network(one, other):
    for (name, mine), (_, theirs) in zip(one.model.state_dict().items(), other.model.state_dict().items(), strict=True):
        # Adam divides by the root of the squared gradient, which amplifies round-off where a gradient is nearly zero.
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize(("length", "speed", "pressure"), [(1e-3, 0.2, 0.0), (40.0, 7.0, 3.0)])
def test_the_same_flows_in_other_units_give_the_same_network_and_errors(length, speed, pressure):
    cases = [duct(number, (5, 3)) for number in range(3)]
    results = []
    for given in (cases, [flow_in_units(case, length, speed, pressure) for case in cases]):
        torch.manual_seed(0)
        results.append(trained(flow_network(width=2, iterations=2, pressure_iterations=1), given))
    plain, scaled = results
    assert_same_network(plain, scaled)
    assert scaled.best_errors == pytest.approx(plain.best_errors, rel=1e-6)
    assert scaled.scales == pytest.approx(plain.scales, rel=1e-8)


def test_the_same_temperatures_in_other_units_give_the_same_network():
    cases = [heated_plate(diffusivity=0.1 * k, cells=(4, 4), targets=True, inlet=0.1 * k) for k in (1, 2, 3)]
    kelvin = Units(1.0, 1.0, {"T": Scale(1 / 50, -293 / 50)})
    given = [kelvin.dimensionless(plate_in_units(case, 0.02, 3.0)) for case in cases]
    references = {"reference_length": 0.02, "reference_speed": 3.0, "reference_temperature": 50.0}
    results = []
    for some, arguments in ((cases, {}), (given, references)):
        torch.manual_seed(0)
        results.append(trained(advection_diffusion_network(width=2, iterations=2, hidden=4, **arguments), some))
    assert_same_network(*results)


def test_cases_that_are_scaled_already_are_not_scaled_again():
    """Lengths and speeds of a temperature are those of the network, whatever the case: twice would be wrong."""
    network = {"width": 2, "iterations": 1, "hidden": 4, "reference_length": 0.02}
    cases = [heated_plate(diffusivity=0.1 * k, cells=(3, 3), targets=True) for k in (1, 2, 3)]
    results = []
    for as_seen in (True, False):
        torch.manual_seed(0)
        model = advection_diffusion_network(**network)
        results.append(
            trained(model, cases if as_seen else [plate_in_units(c, 0.02, 1.0) for c in cases], as_seen=as_seen)
        )
    assert_same_network(*results)
