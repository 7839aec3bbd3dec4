"""Units: the same problem in other units is the same problem."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from pennpde.case import Case
from pennpde.case.units import Scale, Units
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.inlet import flow_units
from problems import rectangle


@pytest.fixture(scope="module")
def duct() -> Case:
    case = flow_case(coarse_mesh("b_0.30_0.70", cells_per_length=4))
    generator = torch.Generator().manual_seed(0)
    targets = {
        name: torch.randn(values.shape, generator=generator, dtype=torch.float64)
        for name, values in case.initial.items()
    }
    return replace(case, targets=targets)


def test_fields_come_back_in_the_units_they_were_taken_from(duct):
    units = flow_units(0.3, 12.0, 1e5)
    back = units.physical(units.dimensionless(duct).targets)
    assert_close(back["u"], duct.targets["u"], rtol=1e-14, atol=0)
    assert_close(back["p"], duct.targets["p"], rtol=0, atol=1e-10)  # 16 digits next to 1e5


def test_time_is_that_in_which_the_inlet_speed_crosses_the_inlet_width():
    assert Units.of_speed(0.5, 2.0, {}).time == 0.25


def test_a_value_that_is_not_prescribed_stays_zero_beside_a_level():
    channel = Case(rectangle((6, 4), (3.0, 1.0)), initial={"u": [0.0, 0.0], "p": 0.0}, dirichlet={"p": {"outlet": 0.0}})
    scaled = flow_units(1.0, 1.0, 5.0).dimensionless(channel)
    free = ~scaled.dirichlet["p"].mask
    assert free.any()
    assert not scaled.dirichlet["p"].values[free].any()


@pytest.mark.parametrize(("length", "speed"), [(0.0, 1.0), (-1.0, 1.0), (1.0, float("nan")), (float("inf"), 1.0)])
def test_a_unit_that_is_no_positive_number_is_refused(length, speed):
    with pytest.raises(ValueError, match="positive number"):
        Units.of_speed(length, speed, {})


def test_what_does_not_depend_on_lengths_is_kept(duct):
    edges = duct.mesh.edges
    assert Units(2.0).dimensionless(duct).mesh.edges is edges


def test_a_name_without_a_scale_stays_as_it_is(duct):
    scaled = Units(1.0, 1.0, {"u": Scale(2.0)}).dimensionless(duct)
    assert torch.equal(scaled.targets["u"], duct.targets["u"] / 2)
    assert torch.equal(scaled.targets["p"], duct.targets["p"])
    assert torch.equal(scaled.parameters["viscosity"], duct.parameters["viscosity"])
