"""Fluid that pressure drives in: static and total pressures at inlets, against formulas and against each other."""

import math

import numpy as np
import pytest
import torch

import pennpde as penn
from pennpde.case import Case
from pennpde.case.conditions import TotalPressure
from pennpde.case.problem_files import problem_from
from pennpde.flow.scheme import FlowScheme
from pennpde.models.inlet import BoundaryProfile
from problems import rectangle

LONG = 3.0
MESH = rectangle((24, 8), (LONG, 1.0))


def channel(
    pressure: float = 0.0, total: float | None = None, slip: bool = True, viscosity: float = 0.02, outlet: float = 0.0
) -> Case:
    return Case(
        MESH,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {} if slip else {"side": 0.0},
            "p": {"outlet": outlet} | ({} if total is not None else {"inlet": pressure}),
        },
        neumann={"u": {"inlet": 0.0, "outlet": 0.0}},
        slip={"u": "side"} if slip else {},
        conditions={} if total is None else {TotalPressure: {"p": {"inlet": total}}},
        parameters={"viscosity": viscosity},
    )


@pytest.mark.parametrize("splits", [0, 1])
def test_a_total_pressure_accelerates_an_inviscid_column_as_its_formula_says(splits):
    # L du/dt = p0 - u^2/2: u = sqrt(2 p0) tanh(t sqrt(2 p0) / 2 L), and its steady state is Bernoulli's.
    times = [1.0, 4.0, 8.0]
    outcome = penn.predict(FlowScheme(splits=splits), channel(total=0.5), times=times, steady=True)
    found = outcome.fields["u"][:, 0].mean(dim=0)
    expected = [math.tanh(time / (2 * LONG)) for time in times]
    np.testing.assert_allclose(found[:-1].numpy(), expected, rtol=3e-3)
    assert float(found[-1]) == pytest.approx(1.0, rel=1e-6)
    inlet = MESH.patch("inlet").points
    total = outcome.fields["p"] + 0.5 * outcome.fields["u"].square().sum(dim=1)
    assert torch.allclose(total[inlet, -1], torch.tensor(0.5).to(total), atol=1e-6)


def test_a_pressure_that_fluid_leaves_against_is_not_reduced_by_its_speed():
    case = channel(total=0.0, outlet=3.6, slip=False, viscosity=0.1)
    outcome = penn.predict(FlowScheme(splits=0), case, times=4.0)
    assert float(outcome.fields["u"][:, 0].mean()) < -0.3
    assert outcome.fields["p"][MESH.patch("inlet").points].abs().max() < 1e-6


# A per cent of the dynamic pressure, lost at the ends, is a sixth of a pressure drop at Reynolds number 500.
@pytest.mark.parametrize(("viscosity", "largest"), [(0.1, 0.02), (0.01, 0.04), (0.002, 0.2)])
def test_a_static_pressure_drives_the_flow_of_poiseuille(viscosity, largest):
    case = channel(pressure=12 * LONG * viscosity, slip=False, viscosity=viscosity)
    y = MESH.points[:, 1].numpy()
    poiseuille = 6 * y * (1 - y)
    errors = []
    for splits in (0, 1):
        outcome = penn.predict(FlowScheme(splits=splits), case, steady=True)
        found = outcome.fields["u"][:, 0].numpy()
        errors.append(np.sqrt(np.square(found - poiseuille).sum() / np.square(poiseuille).sum()))
    assert errors[1] < largest
    assert errors[1] < 0.6 * errors[0]


def test_a_static_pressure_without_a_steady_state_is_named():
    # A step: behind it the pressure rises with the square of the speed, friction grows with the speed alone.
    mesh = rectangle((30, 12), (10.0, 2.0))
    mesh = mesh.with_patches({"inlet": "x == 0 and y >= 1", "side": "x > 0 and x < 10 or x == 0 and y <= 1"})
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"side": 0.0}, "p": {"inlet": 1.0, "outlet": 0.0}},
        parameters={"viscosity": 0.02},
    )
    with pytest.raises(ArithmeticError, match="Prescribe the total pressure"):
        penn.predict(FlowScheme(splits=0), case, steady=True)


def test_what_pressure_drives_in_is_no_backflow():
    outcome = penn.predict(FlowScheme(splits=0), channel(total=0.5, slip=False), times=2.0)
    assert not any("flows back" in warning for warning in outcome.certificate.warnings)


def test_openings_at_one_pressure_and_outlets_behind_an_inlet_are_no_entrances():
    assert not BoundaryProfile.of(channel(pressure=0.0)).entrances.any()
    inlet = {"u": {"inlet": (1.0, 0.0)}, "p": {"outlet": 0.2, "side": 0.0}}
    case = Case(MESH, initial={"u": (0.0, 0.0), "p": 0.0}, dirichlet=inlet, parameters={"viscosity": 0.1})
    assert not BoundaryProfile.of(case).entrances.any()
    assert BoundaryProfile.of(channel(pressure=1000.36, outlet=1000.0)).entrances.sum() == 8


def test_pressures_have_a_level_that_does_not_matter():
    low, high = (
        penn.predict(FlowScheme(splits=0), channel(total=0.5 + level, outlet=level, slip=False), times=2.0)
        for level in (0.0, 100.0)
    )
    assert torch.allclose(low.fields["u"], high.fields["u"], atol=1e-5)
    assert torch.allclose(low.fields["p"], high.fields["p"] - 100.0, atol=1e-4)


def test_networks_that_do_not_know_total_pressures_refuse_them():
    with pytest.raises(ValueError, match="Take the network flow"):
        penn.predict("ducts", channel(total=0.5, slip=False))


def test_a_total_pressure_is_one_of_a_scalar_on_whole_facets():
    with pytest.raises(ValueError, match="total pressure of a vector"):
        Case(MESH, initial={"u": (0.0, 0.0)}, conditions={TotalPressure: {"u": {"inlet": 1.0}}})


def test_a_free_stream_is_prescribed_where_it_enters_and_leaves_elsewhere():
    given = {
        "dirichlet": {"u": {"far": {"freestream": [1.0, 0.5]}}, "p": {"far": 0.0}},
        "patches": {"far": {"half_space": {"point": [-9.0, 0.0], "normal": [1.0, 0.0]}}},
        "parameters": {"viscosity": 0.01},
    }
    bare = rectangle((24, 8), (LONG, 1.0))
    case = problem_from(given, bare)
    x, y = bare.points.T.numpy()
    np.testing.assert_array_equal(case.dirichlet["u"].mask.numpy(), (x == 0) | (y == 0))
    np.testing.assert_array_equal(case.dirichlet["p"].mask.numpy(), (x == LONG) | (y == 1))
    outcome = penn.predict(FlowScheme(splits=0), case, steady=True)
    assert torch.allclose(outcome.fields["u"], torch.tensor([1.0, 0.5]).double(), atol=1e-3)
