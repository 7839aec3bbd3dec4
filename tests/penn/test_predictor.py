"""Cases as networks see them: the same data in any units are the same to a network."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from pennpde.case.units import Scale, Units
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.ducts import flow_network
from pennpde.penn.predictor import seen_by
from problems import heated_plate, plate_in_units
from small_ducts import duct, flow_in_units

FLOW = flow_network(width=2, iterations=1, pressure_iterations=1)
HEAT = advection_diffusion_network(width=2, iterations=1, hidden=4)


def assert_same_problem(one, other, **tolerances):
    assert_close(one.mesh.points, other.mesh.points, **tolerances)
    for part in ("initial", "parameters", "features", "targets"):
        mine, theirs = getattr(one, part), getattr(other, part)
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert_close(mine[name], theirs[name], **tolerances)
    for name in one.initial:
        assert_close(one.dirichlet[name].values, other.dirichlet[name].values, **tolerances)


@pytest.mark.parametrize(("length", "speed", "pressure"), [(1e-3, 0.2, 0.0), (250.0, 3.0, 7.0)])
def test_a_flow_in_any_units_is_seen_as_the_same(length, speed, pressure):
    given = replace(
        duct(2), targets={**duct(2).targets, "steady_u": duct(3).targets["u"], "steady_p": duct(3).targets["p"]}
    )
    plain, scaled = (seen_by(FLOW, each) for each in (given, flow_in_units(given, length, speed, pressure)))
    # Potential flow and distances are computed before a case is scaled, in other numbers.
    assert_same_problem(plain.case, scaled.case, atol=1e-10, rtol=1e-10)
    assert plain.units is None
    assert scaled.units.length == pytest.approx(length)
    assert scaled.time == pytest.approx(length / speed)
    assert scaled.scale("steady_p") == scaled.scale("p") == pytest.approx(speed**2)


def test_a_case_in_the_networks_units_is_left_as_it_is_to_the_last_bit():
    complete = seen_by(FLOW, duct(1)).case
    seen = seen_by(FLOW, complete)
    assert seen.units is None
    assert seen.case.mesh is complete.mesh
    for part in ("initial", "features", "targets", "parameters"):
        for name, values in getattr(complete, part).items():
            assert torch.equal(getattr(seen.case, part)[name], values)
    plate = heated_plate(cells=(4, 4), targets=True, inlet=0.3)
    assert seen_by(HEAT, plate).case.targets["T"] is plate.targets["T"]


def test_a_transported_temperature_in_any_units_is_seen_as_the_same():
    """Also in degrees above another zero; the network says which length and speed count as one."""
    given = heated_plate(cells=(4, 4), targets=True)
    warm = Units(1.0, 1.0, {"T": Scale(1 / 50, -293 / 50)}).dimensionless(plate_in_units(given, 0.02, 3.0))
    network = advection_diffusion_network(
        width=2, iterations=1, hidden=4, reference_length=0.02, reference_speed=3.0, reference_temperature=50.0
    )
    seen = seen_by(network, warm)
    assert_same_problem(seen_by(HEAT, given).case, seen.case, atol=1e-10, rtol=1e-10)
    assert_close(seen.physical({"T": seen.case.targets["T"]})["T"], warm.targets["T"])


def test_a_network_without_an_equation_sees_every_case_as_it_is():
    case = flow_in_units(duct(0), 1e-3, 0.2)
    assert seen_by(torch.nn.Linear(1, 1), case).case is case


def test_what_is_wrong_with_a_case_is_said_with_its_name():
    still = replace(duct(0), parameters={})
    with pytest.raises(ValueError, match=r"'duct_0': A flow needs the parameter viscosity"):
        seen_by(FLOW, still)
    with pytest.raises(ValueError, match="solves for T, but the unknowns of the case are p, u"):
        seen_by(HEAT, duct(0))
