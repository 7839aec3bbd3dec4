"""The advection-diffusion network: its size, its linearity, its physics before training."""

import math

import pytest
import torch
from torch.testing import assert_close

from pennpde.case import Case, batch
from pennpde.models.advection_diffusion import advection_diffusion_network, inlet_distance, transport_units
from pennpde.testing import assert_dirichlet, assert_equivariant
from problems import heated_plate, plate_in_units, rectangle, tensors_of


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def diffusion(case: Case) -> torch.Tensor:
    """The exact solution without flow: a series in the sines that vanish at the inlet and are level at the outlet."""
    x, times = case.mesh.points[:, 0:1], torch.tensor([[0.25, 0.5, 0.75, 1.0]], dtype=torch.float64)
    value = torch.ones(len(x), 4, dtype=torch.float64)
    for odd in range(1, 200, 2):
        wave = 0.5 * math.pi * odd
        value -= 2 / wave * torch.sin(wave * x) * torch.exp(-(wave**2) * float(case.parameters["diffusivity"]) * times)
    return value * case.dirichlet["T"].values.max()


def test_the_paper_s_width_takes_fewer_parameters_than_the_paper():
    sizes = {width: sum(p.numel() for p in advection_diffusion_network(width).parameters()) for width in (16, 32, 64)}
    assert sizes == {16: 9680, 32: 16160, 64: 33728}
    assert sizes[64] < 51824


@pytest.mark.slow
def test_moving_the_plate_moves_the_temperature_whatever_the_direction_of_the_flow():
    network = advection_diffusion_network(16).double()
    for velocity in ((0.6, 0.0), (-0.2, 0.7)):
        assert_equivariant(network, heated_plate(velocity))


def test_temperature_is_linear_in_the_boundary_value_far_beyond_any_training_data():
    network = advection_diffusion_network(16).double()
    with torch.no_grad():
        one, many = (network(heated_plate(inlet=value))["T"] for value in (1.0, 1e4))
    assert_close(1e4 * one, many, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("diffusivity", [0.1, 0.4, 1.0])
def test_the_untrained_network_is_a_crude_solver_of_the_equation(diffusivity):
    case = heated_plate((0.0, 0.0), diffusivity, 1.0)
    with torch.no_grad():
        predicted = advection_diffusion_network(32).double()(case)["T"]
    untouched = float(diffusion(case).square().mean())
    assert float((predicted - diffusion(case)).square().mean()) < 0.05 * untouched


def test_heat_goes_with_the_flow_in_the_untrained_network():
    network = advection_diffusion_network(32).double()
    with torch.no_grad():
        with_flow, against = (network(heated_plate((speed, 0.0), 0.1, 1.0))["T"].mean(dim=0) for speed in (0.5, -0.5))
    assert bool((with_flow > 1.2 * against).all())
    assert bool((with_flow.diff() > 0).all())


def test_without_diffusion_the_untrained_network_stays_bounded():
    network = advection_diffusion_network(32).double()
    with torch.no_grad():
        front = network(heated_plate((1.0, 0.0), 0.0, 1.0))["T"]
    assert float(front.min()) > -0.5
    assert float(front.max()) < 1.5


def test_temperature_is_differentiable_by_the_parameters_even_at_rest():
    velocity = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    diffusivity = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    case = heated_plate(cells=(4, 4))
    case = Case(
        case.mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": 1.0}},
        neumann={"T": 0.0},
        parameters={"velocity": velocity, "diffusivity": diffusivity},
    )
    advection_diffusion_network(8, steps=2).double()(case)["T"].sum().backward()
    assert float(velocity.grad[0]) > 0  # flow away from the inlet carries heat in
    assert float(velocity.grad[1].abs()) < 1e-9 * float(velocity.grad[0])  # across, nothing changes in the sum
    assert float(diffusivity.grad) > 0


def test_the_distance_from_the_inlet_is_found_where_the_case_does_not_give_it():
    case = heated_plate(cells=(6, 5))
    bare = Case(
        case.mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": 0.7}},
        neumann={"T": 0.0},
        parameters=case.parameters,
    )
    assert_close(inlet_distance(bare), case.features["inlet_distance"])
    network = advection_diffusion_network(8)
    with torch.no_grad():
        assert_close(network(bare)["T"], network(case)["T"])
    other = Case(
        rectangle((3, 3), (2.0, 1.0)),
        initial={"T": 0.0},
        dirichlet={"T": {"outlet": 0.7}},
        neumann={"T": 0.0},
        parameters=case.parameters,
    )
    assert_close(inlet_distance(batch([bare, other])), torch.cat([inlet_distance(bare), inlet_distance(other)]))
    assert_dirichlet(network, batch([bare, other]))


def test_a_case_without_any_prescribed_temperature_is_refused():
    case = Case(
        rectangle((3, 3)), initial={"T": 0.0}, parameters={"velocity": (0.1, 0.0), "diffusivity": 0.1}, name="bare"
    )
    with pytest.raises(ValueError, match="'bare' prescribes T nowhere"):
        advection_diffusion_network(4)(case)


def test_a_missing_parameter_is_named():
    case = Case(rectangle((3, 3)), initial={"T": 0.0}, dirichlet={"T": {"inlet": 1.0}}, neumann={"T": 0.0})
    with pytest.raises(KeyError, match="velocity"):
        advection_diffusion_network(4)(case)


@pytest.mark.slow
def test_two_minutes_of_training_halve_the_paper_s_error_for_pure_diffusion():
    diffusivities = [0.1 * number for number in range(1, 11)]
    cases = [heated_plate((0.0, 0.0), value, 1.0, cells=(10, 2)) for value in diffusivities]
    case = batch(cases).to(torch.float32)
    target = torch.cat([diffusion(each) for each in cases]).float()
    network = advection_diffusion_network(16)
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 400)
    loss = torch.tensor(0.0)
    for _ in range(400):
        optimiser.zero_grad()
        loss = (network(case)["T"] - target).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.1)
        optimiser.step()
        schedule.step()
    # 0.385 is the mean of the squared boundary values 0.1, 0.2, ... 1.0 of the whole set.
    assert 0.385 * float(loss.detach()) < 0.9e-4


def test_a_temperature_becomes_its_share_of_the_way_from_the_start():
    plate = heated_plate(inlet=0.7)
    warm = Case(
        plate.mesh,
        initial={"T": 293.15},
        dirichlet={"T": {"inlet": 280.0}},
        neumann={"T": 0.0},
        parameters=plate.parameters,
        features=plate.features,
    )
    units = transport_units(warm)
    scaled = units.dimensionless(warm)
    assert_close(scaled.dirichlet["T"].values, plate.dirichlet["T"].values / 0.7, rtol=1e-12, atol=0)
    assert not scaled.initial["T"].any()
    assert_close(
        units.physical({"T": scaled.dirichlet["T"].values})["T"].unique(),
        torch.tensor([280, 293.15], dtype=torch.float64),
    )


def test_a_plate_in_other_lengths_and_times_is_the_same_plate():
    plate, length, speed = heated_plate(inlet=1.0), 0.02, 0.005
    user = plate_in_units(plate, length, speed)
    found = tensors_of(transport_units(user, length, speed).dimensionless(user))
    for name, values in tensors_of(plate).items():
        assert_close(found[name], values, rtol=1e-14, atol=1e-15, msg=name)
