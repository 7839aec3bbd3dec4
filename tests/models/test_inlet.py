"""The inlet of a flow: its width and speed are the units, and in any units the flow is the same."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from meshes import box
from pennlab.datasets.flow.cases import extruded
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.inlet import facet_velocity, flow_units, inlet_profile, inlet_units, prescribed_inflow
from problems import rectangle, tensors_of


@pytest.fixture(scope="module")
def duct() -> Case:
    case = flow_case(coarse_mesh("b_0.30_0.70", cells_per_length=4))
    generator = torch.Generator().manual_seed(0)
    targets = {
        name: torch.randn(values.shape, generator=generator, dtype=torch.float64)
        for name, values in case.initial.items()
    }
    return replace(case, targets=targets)


def channel(velocity, mesh: Mesh | None = None, **conditions) -> Case:
    """A channel along x whose inlet has this velocity."""
    mesh = mesh or rectangle((6, 4), (3.0, 1.0))
    return Case(
        mesh,
        initial={"u": [0.0] * mesh.space, "p": 0.0},
        dirichlet={"u": {"inlet": velocity, **conditions}, "p": {"outlet": 0.0}},
        parameters={"viscosity": 0.01},
    )


def in_units(case: Case, length: float, speed: float) -> Case:
    """A dimensionless flow as somebody would write it down whose metre is 1 / length and so on."""
    return flow_units(1 / length, 1 / speed).dimensionless(case)


@pytest.mark.parametrize(("length", "speed"), [(0.0254, 44.2), (1e-6, 1e-3), (3e4, 7.0)])
def test_a_flow_in_any_units_is_one_dimensionless_flow(duct, length, speed):
    user = in_units(duct, length, speed)
    units = inlet_units(user)
    assert units.length == pytest.approx(length, rel=1e-14)
    assert units.speed == pytest.approx(speed, rel=1e-14)
    found, expected = tensors_of(units.dimensionless(user)), tensors_of(duct)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert_close(found[name], values, rtol=1e-14, atol=1e-14, msg=name)  # round-off of two products


def test_units_that_are_powers_of_two_change_no_bit(duct):
    user = in_units(duct, 2.0**-7, 2.0**5)
    found = tensors_of(inlet_units(user).dimensionless(user))
    for name, values in tensors_of(duct).items():
        assert torch.equal(found[name], values), name


def test_the_reynolds_number_does_not_depend_on_units(duct):
    for length, speed in ((1.0, 1.0), (0.01, 3.0)):
        user = in_units(duct, length, speed)
        units = inlet_units(user)
        assert units.length * units.speed / float(user.parameters["viscosity"]) == pytest.approx(1000, rel=1e-13)


def test_a_constant_added_to_the_pressure_is_taken_off():
    case = Case(
        rectangle((6, 4), (3.0, 1.0)),
        initial={"u": [0.0, 0.0], "p": 101325.1},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 101325.1}},
        parameters={"viscosity": 0.01},
    )
    scaled = inlet_units(case).dimensionless(case)
    assert not scaled.dirichlet["p"].values.any()
    assert not scaled.initial["p"].any()


def test_the_inlet_keeps_its_width_where_the_wall_takes_its_corners():
    case = channel((2.0, 0.0), side=0.0)
    units = inlet_units(case)
    assert (units.length, units.speed) == (1.0, 2.0)
    assert prescribed_inflow(case) == (1.0, 2.0)


def test_a_prescribed_outflow_is_no_inlet():
    assert inlet_units(channel((2.0, 0.0), outlet=(2.0, 0.0))).length == 1.0


def test_the_lid_of_a_cavity_gives_its_units():
    mesh = rectangle((4, 4), (0.1, 0.1)).with_patches({"lid": lambda x: np.isclose(x[:, 1], 0.1)})
    walls = {"inlet": 0.0, "outlet": 0.0, "side": 0.0, "lid": (3.0, 0.0)}
    case = Case(mesh, initial={"u": [0.0, 0.0], "p": 0.0}, dirichlet={"u": walls}, parameters={"viscosity": 1.0})
    units = inlet_units(case)
    assert units.length == pytest.approx(0.1)
    assert units.speed == 3.0
    assert prescribed_inflow(case) == (0.0, 0.0)


def test_an_inlet_in_space_is_as_wide_as_the_square_of_its_size():
    mesh = box("hexahedron", 3).with_patches({"inlet": lambda x: x[:, 0] == 0, "outlet": lambda x: x[:, 0] == 1})
    assert inlet_units(channel((1.0, 0.0, 0.0), mesh)).length == pytest.approx(1.0)


def test_turning_a_case_leaves_its_units(duct):
    angle = torch.tensor(0.7, dtype=torch.float64)
    rotation = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    before, after = inlet_units(duct), inlet_units(duct.moved(rotation, torch.tensor([3.0, -1.0])))
    assert after.length == pytest.approx(before.length, rel=1e-13)
    assert after.speed == pytest.approx(before.speed, rel=1e-13)


def test_facets_that_are_free_take_the_mean_of_all_their_points():
    mesh = rectangle((2, 2))
    velocity = torch.stack([mesh.points[:, 1], torch.zeros(9, dtype=torch.float64)], dim=1)
    free, none = facet_velocity(velocity, mesh, torch.zeros(9, dtype=torch.bool))
    held, every = facet_velocity(velocity, mesh, torch.ones(9, dtype=torch.bool))
    assert not none.any()
    assert every.all()
    lowest = (mesh.facet_normals[:, 0].abs() > 0.5) & (free[:, 0] < 0.5)
    assert_close(free[lowest, 0], torch.full((2,), 0.25, dtype=torch.float64))
    assert_close(held[lowest, 0], torch.full((2,), 0.5, dtype=torch.float64))


def test_one_length_alone_may_be_given(duct):
    units = inlet_units(duct, length=0.5)
    assert (units.length, units.speed) == (0.5, 1.0)
    assert inlet_units(duct, speed=3.0).speed == 3.0


def test_a_flow_without_inlet_has_no_units():
    with pytest.raises(ValueError, match="no inlet"):
        inlet_units(channel((0.0, 0.0)))
    lone = rectangle((6, 4)).with_patches({"inlet": [2]})
    with pytest.raises(ValueError, match="single points"):
        inlet_units(channel((1.0, 0.0), lone))


def test_a_duct_one_cell_thick_has_the_inlet_of_its_sides():
    thick = flow_case(extruded(coarse_mesh("a_0.50", cells_per_length=4), 0.05))
    assert inlet_units(thick).length == pytest.approx(0.05**0.5)


@pytest.mark.parametrize("degrees", [0.0, 10.0, -15.0])
def test_the_direction_of_an_inlet_is_its_angle_to_the_inward_normal(degrees):
    slope = np.tan(np.radians(degrees))
    found = inlet_profile(channel([2.0, 2.0 * slope]))
    assert found["inlet angle in degrees"] == pytest.approx(abs(degrees), abs=1e-3)
    assert found["inlet peak over mean"] == pytest.approx(1.0)


def test_a_parabolic_inlet_has_a_peak_and_no_angle():
    mesh = rectangle((6, 40), (3.0, 1.0))
    y = mesh.points[:, 1]
    found = inlet_profile(channel(torch.stack([6 * y * (1 - y), 0 * y], dim=1), mesh))
    assert found["inlet angle in degrees"] == 0
    assert found["inlet peak over mean"] == pytest.approx(1.5, rel=0.01)
