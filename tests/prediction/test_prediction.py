"""From a user's case to fields: in any units, turned any way, prescribed values bit for bit."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from motions import random_orthogonal
from pennpde.case import Case, batch
from pennpde.models.advection_diffusion import advection_diffusion_network, complete_transport
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.ducts import complete_flow, flow_network
from pennpde.models.inlet import flow_units
from pennpde.penn import PENN, SCALAR, Equation
from pennpde.prediction import predict
from pennpde.trust.certificate import spanned
from problems import FLOW, heated_plate, plate_in_units, rectangle


@pytest.fixture(scope="module")
def network() -> PENN:
    torch.manual_seed(0)
    return flow_network(width=4, iterations=3, pressure_iterations=2).eval()


@pytest.fixture(scope="module")
def precise(network) -> PENN:
    torch.manual_seed(0)
    return flow_network(width=4, iterations=3, pressure_iterations=2).double().eval()


@pytest.fixture(scope="module")
def duct() -> Case:
    return flow_case(coarse_mesh("a_0.40", cells_per_length=4))


@pytest.fixture(scope="module")
def heat() -> PENN:
    torch.manual_seed(1)
    return advection_diffusion_network(width=4, iterations=2, hidden=8).double().eval()


def bare(duct: Case, speed: float = 1.0, pressure: float = 0.0, initial=(0.0, 0.0)) -> Case:
    """What a user gives: no wall distance, no potential flow."""
    return Case(
        duct.mesh,
        initial={"u": list(initial), "p": 0.0},
        dirichlet={"u": {"inlet": (speed, 0.0), "wall": 0.0}, "p": {"outlet": pressure}},
        neumann={"u": {"outlet": 0.0}, "p": {"wall": 0.0, "inlet": 0.0}},
        parameters={"viscosity": 1e-3 * speed},
    )


def test_what_the_user_did_not_give_is_worked_out_as_for_training(duct):
    case = complete_flow(bare(duct))
    assert_close(case.features["wall_distance"], duct.features["wall_distance"])
    assert_close(case.initial["u"], duct.initial["u"])


@pytest.mark.parametrize("initial", [(0.0, 0.0), (0.3, -0.1)])
def test_a_uniform_start_is_a_first_guess_and_no_flow(duct, initial):
    start = bare(duct, initial=initial)
    # OpenFOAM's cases come with the prescribed values in place.
    start = replace(start, initial={**start.initial, "u": start.dirichlet["u"].apply(start.initial["u"])})
    assert_close(complete_flow(start).initial["u"], duct.initial["u"])


def test_a_flow_to_start_from_is_kept(duct):
    velocity = torch.sin(duct.mesh.points)
    start = replace(bare(duct), initial={"u": velocity, "p": duct.initial["p"]})
    assert torch.equal(complete_flow(start).initial["u"], velocity)


@pytest.mark.parametrize(("length", "speed"), [(0.0254, 44.2), (1e-3, 1e-2)])
def test_a_prediction_does_not_depend_on_the_units_of_the_user(duct, precise, length, speed):
    expected = predict(precise, bare(duct), spanned([duct], FLOW))
    user = flow_units(1 / length, 1 / speed).dimensionless(bare(duct))
    found = predict(precise, user, spanned([duct], FLOW))
    # Round-off of the inputs, followed through the iterations.
    assert_close(found.fields["u"] / speed, expected.fields["u"], rtol=0, atol=1e-10)
    assert_close(found.fields["p"] / speed**2, expected.fields["p"], rtol=0, atol=1e-10)
    assert found.time == pytest.approx(expected.time * length / speed)
    assert found.certificate.warnings == expected.certificate.warnings
    assert all(each.inside for each in found.certificate.compared)
    assert found.certificate.check("divergence").value == pytest.approx(
        expected.certificate.check("divergence").value, rel=1e-7
    )
    imbalance = expected.certificate.check("flux imbalance").value
    assert found.certificate.check("flux imbalance").value == pytest.approx(imbalance, abs=1e-9)
    assert found.certificate.neumann_of_cell == pytest.approx(expected.certificate.neumann_of_cell, rel=1e-7)


def test_units_that_are_powers_of_two_change_no_bit(duct, network):
    expected = predict(network, bare(duct)).fields
    user = flow_units(2.0**6, 2.0**-3).dimensionless(bare(duct))
    found = predict(network, user).fields
    assert torch.equal(found["u"], expected["u"] * 2.0**3)
    assert torch.equal(found["p"], expected["p"] * 2.0**6)


def test_the_level_of_the_pressure_is_carried_through(duct, precise):
    low, high = (predict(precise, bare(duct, pressure=level)).fields for level in (0.0, 1000.0))
    assert_close(high["u"], low["u"], rtol=0, atol=1e-12)
    assert_close(high["p"] - 1000, low["p"], rtol=0, atol=1e-10)


def test_a_turned_case_gives_turned_fields(duct, precise):
    rotation = random_orthogonal(2, seed=3)
    shift = torch.tensor([2.0, -5.0], dtype=torch.float64)
    still, moved = predict(precise, bare(duct)), predict(precise, bare(duct).moved(rotation, shift))
    assert_close(moved.fields["u"], still.fields["u"] @ rotation.T, rtol=0, atol=1e-10)
    assert_close(moved.fields["p"], still.fields["p"], rtol=0, atol=1e-10)
    assert moved.certificate.check("divergence").value == pytest.approx(
        still.certificate.check("divergence").value, rel=1e-6
    )


@pytest.mark.parametrize(("speed", "pressure"), [(1.0, 0.0), (0.1, 101325.7), (1 / 3, 0.1), (1e-7, 0.0), (1e-7, 0.1)])
def test_prescribed_values_come_out_bit_for_bit_in_the_units_of_the_user(duct, network, speed, pressure):
    outcome = predict(network, bare(duct, speed, pressure))
    for name, condition in outcome.case.dirichlet.items():
        assert outcome.fields[name].dtype == condition.values.dtype == torch.float64
        assert torch.equal(outcome.fields[name][condition.mask], condition.values[condition.mask])
    assert outcome.certificate.dirichlet == {"u": 0, "p": 0}


def test_a_network_without_the_guarantee_is_not_corrected_but_reported(duct):
    torch.manual_seed(0)
    plain = flow_network(width=4, iterations=2, pressure_iterations=2, decoder="mlp").eval()
    outcome = predict(plain, bare(duct))
    assert outcome.certificate.dirichlet["u"] > 0
    assert any("does not enforce them" in warning for warning in outcome.certificate.warnings)


def test_a_prediction_gives_what_the_network_gives_on_a_training_case(duct, precise):
    outcome = predict(precise, duct)
    expected = precise(duct)
    for name, values in expected.items():
        assert_close(outcome.fields[name], values, rtol=0, atol=1e-11)
    assert outcome.time == 4.0
    assert outcome.times == (4.0,)
    assert outcome.seconds.keys() == {"prepare", "operators", "network", "certificate"}
    assert not outcome.fields["u"].requires_grad
    outcome.fields["u"].requires_grad_()  # an ordinary tensor, not one of inference mode


def test_fields_travel_with_the_mesh(duct, network, tmp_path):
    from pennpde.mesh import Mesh

    outcome = predict(network, bare(duct))
    outcome.mesh.save(tmp_path / "flow.vtu")
    fields = Mesh.read(tmp_path / "flow.vtu").fields
    assert torch.equal(fields["u"], outcome.fields["u"])
    assert torch.equal(fields["p"], outcome.fields["p"])


# Temperatures


def plate(level: float = 0.0, inlet: float = 1.0) -> Case:
    case = heated_plate(cells=(6, 6))
    return Case(
        case.mesh,
        initial={"T": level},
        dirichlet={"T": {"inlet": inlet}},
        neumann={"T": 0.0},
        parameters=case.parameters,
    )


def test_the_distance_from_prescribed_temperatures_is_worked_out():
    assert_close(
        complete_transport(plate()).features["inlet_distance"], heated_plate(cells=(6, 6)).features["inlet_distance"]
    )


@pytest.mark.parametrize(("level", "inlet"), [(293.15, 353.15), (20.0, -5.0), (0.0, 0.3)])
def test_a_temperature_may_have_any_level_and_scale(heat, level, inlet):
    unit = predict(heat, plate()).fields["T"]
    found = predict(heat, plate(level, inlet)).fields["T"]
    assert_close((found - level) / (inlet - level), unit, rtol=0, atol=1e-9)


def test_a_plate_may_be_given_in_any_lengths_and_times(heat):
    expected = predict(heat, plate())
    length, speed = 0.02, 0.005
    small = plate_in_units(plate(), length, speed)
    found = predict(heat, small, length=length, speed=speed)
    assert_close(found.fields["T"], expected.fields["T"], rtol=0, atol=1e-10)
    assert found.times == pytest.approx([time * length / speed for time in (0.25, 0.5, 0.75, 1.0)])


def test_a_series_is_saved_time_by_time(heat, tmp_path):
    outcome = predict(heat, plate())
    fields = outcome.mesh.fields
    assert sorted(fields) == ["T", "T_1", "T_2", "T_3", "T_4"]
    assert torch.equal(fields["T"], outcome.fields["T"][:, 3])
    assert torch.equal(fields["T_2"], outcome.fields["T"][:, 1])


# What cannot be predicted


def without(case: Case, part: str, name: str) -> Case:
    return replace(case, **{part: {key: value for key, value in getattr(case, part).items() if key != name}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda case: without(case, "parameters", "viscosity"), "needs the parameter viscosity"),
        (lambda case: replace(case, parameters={"viscosity": torch.tensor(0.0)}), "must be positive"),
        (lambda case: without(case, "initial", "p"), "solves for p, u, but the unknowns of the case are u"),
        (lambda case: batch([complete_flow(case), complete_flow(case)]), "batch of 2 cases"),
    ],
)
def test_a_flow_that_lacks_something_is_refused_in_words(duct, network, change, words):
    with pytest.raises(ValueError, match=words):
        predict(network, change(bare(duct)))


def flow(**conditions) -> Case:
    given = {"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}}
    return Case(
        rectangle((6, 4), (3.0, 1.0)),
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet=given | conditions,
        parameters={"viscosity": 1e-3},
    )


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (lambda: flow(p={}), "No pressure is prescribed"),
        (lambda: flow(u={"inlet": (1.0, 0.0)}), "no walls: nowhere"),
        (lambda: flow(u={"inlet": 0.0, "side": 0.0}), "no inlet"),
        (heated_plate, "unknowns of the case are T"),
    ],
)
def test_a_flow_without_its_conditions_is_refused_in_words(network, case, words):
    with pytest.raises(ValueError, match=words):
        predict(network, case())


def test_walls_of_single_points_are_none(network):
    mesh = rectangle((6, 4), (3.0, 1.0)).with_patches({"side": np.array([14])})
    case = Case(
        mesh,
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}},
        parameters={"viscosity": 1e-3},
    )
    with pytest.raises(ValueError, match="single points"):
        predict(network, case)


def test_a_velocity_that_is_a_scalar_is_refused(network):
    scalar = Case(rectangle((3, 3)), initial={"u": 0.0, "p": 0.0}, parameters={"viscosity": 1e-3})
    with pytest.raises(ValueError, match="u is a scalar in the case, but a vector for the network"):
        predict(network, scalar)


def test_a_plate_without_prescribed_temperature_is_refused(heat):
    free = Case(rectangle((3, 3)), initial={"T": 0.0}, parameters={"velocity": (1.0, 0.0), "diffusivity": 0.1})
    with pytest.raises(ValueError, match="prescribes T nowhere"):
        predict(heat, free)


# Equations that are not ours


class Decay(Equation):
    """dT/dt = -T²: neither another level nor another scale of T leaves it as it is."""

    unknowns: ClassVar = {"T": SCALAR}

    def rate(self, state, case):
        return {"T": -state["T"].square()}


def test_the_case_of_another_equation_is_taken_as_it_is():
    torch.manual_seed(0)
    network = PENN(Decay(), width=4, time_step=0.5).double()
    case = Case(rectangle((3, 3)), initial={"T": 2.0}, dirichlet={"T": {"inlet": 300.0}})
    outcome = predict(network, case)
    assert outcome.units is None
    assert outcome.case is case
    assert outcome.time == 0.5
    assert_close(outcome.fields["T"], network(case)["T"].detach(), rtol=0, atol=0)
    with pytest.raises(ValueError, match="Decay does not say how it depends on units"):
        predict(network, case, length=2.0)
