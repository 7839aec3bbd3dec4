"""The corrector of coarse-grid solutions: where it starts, conditions, equivariance, batches, mass."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from meshes import arrays
from pennpde.case import Case, batch, unbatch
from pennpde.flow.coarse_march import FAST, FINE, STANDARD, at_rest, conserving, flow_network
from pennpde.flow.corrector import coarse_case, corrector
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import begin
from pennpde.mesh import Mesh
from pennpde.penn import PENN
from pennpde.testing import assert_equivariant


def duct(cells_along: int = 8, viscosity: float = 0.02) -> Case:
    points, cells = arrays("mixed_plane", cells_along, jitter=0.15)
    mesh = Mesh.from_arrays(points, cells).with_patches(
        {
            "left": lambda x: np.isclose(x[:, 0], 0.0),
            "right": lambda x: np.isclose(x[:, 0], 1.0),
            "walls": lambda x: np.isclose(x[:, 1], 0.0) | np.isclose(x[:, 1], 1.0),
        }
    )
    y = mesh.points[:, 1]
    return Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"left": torch.stack([6 * y * (1 - y), 0 * y], dim=1), "walls": 0.0}, "p": {"right": 0.0}},
        neumann={"u": {"right": 0.0}, "p": {"left": 0.0, "walls": 0.0}},
        parameters={"viscosity": viscosity},
    )


def coarse(case: Case, time: float = 0.5) -> Case:
    march = FlowScheme(splits=0, courant=4.0)
    fields = march.solve(case, [time]).fields
    problem = march.problem(case)
    return coarse_case(case, fields["u"], fields["p"], begin(problem).velocity[:, problem.places].T, time)


def trained(**arguments) -> PENN:
    """A network that changes something: laws must hold whatever is learned."""
    torch.manual_seed(1)
    network = corrector(width=8, hidden=16, slices=4, iterations=3, **arguments).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def test_it_is_a_physics_embedded_network_of_fewer_than_300_000_numbers():
    network = corrector(width=24, iterations=8, hidden=96, slices=32)
    assert isinstance(network, PENN)
    assert sum(parameter.numel() for parameter in network.parameters()) < 300_000


def test_before_training_the_coarse_solution_comes_out():
    case = coarse(duct())
    found = corrector().double()(case)
    for name, values in found.items():
        assert_close(values, case.initial[name], rtol=0, atol=1e-14)  # round-off of the pseudoinverse


def test_moving_the_case_moves_the_correction():
    case = coarse(duct())
    network = trained()
    assert not torch.allclose(network(case)["u"], case.initial["u"], atol=1e-4)
    assert_equivariant(network, case)


def test_prescribed_values_come_out_bit_for_bit():
    case = coarse(duct())
    found = trained()(case)
    for name, values in found.items():
        mask = case.dirichlet[name].mask
        assert torch.equal(values[mask], case.dirichlet[name].values[mask])


@pytest.mark.parametrize("solver", ["barzilai-borwein", "explicit"])
def test_a_batch_gives_what_its_cases_give_one_by_one(solver):
    cases = [coarse(duct(8, 0.02)), coarse(duct(6, 0.1), 2.0), coarse(duct(5))]
    network = trained(solver=solver)
    together = batch(cases)
    for fields, case in zip(unbatch(network(together), together), cases, strict=True):
        for name, values in network(case).items():
            assert_close(fields[name], values, rtol=0, atol=1e-12)


def test_slices_carry_a_change_at_the_outlet_to_the_inlet_in_one_iteration():
    torch.manual_seed(0)
    case = coarse(duct(10))
    near_inlet = (case.mesh.points[:, 0] < 0.3) & ~case.dirichlet["u"].mask
    bump = torch.where(case.mesh.points[:, :1] > 0.8, 0.1, 0.0)
    changed = replace(case, initial={**case.initial, "u": case.dirichlet["u"].apply(case.initial["u"] + bump)})
    reached = {}
    for slices in (0, 4):
        network = corrector(width=8, hidden=16, slices=slices, iterations=1).double()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        corrections = [network(each)["u"].detach() - each.initial["u"] for each in (case, changed)]
        reached[slices] = float((corrections[1] - corrections[0])[near_inlet].abs().max())
    assert reached[0] < 1e-12
    assert reached[4] > 1e-8


def test_the_projected_velocity_conserves_mass_in_every_cell():
    case = duct()
    problem = FlowScheme(splits=0).problem(case)
    random = torch.Generator().manual_seed(0)
    velocity = case.dirichlet["u"].apply(0.3 * torch.randn(case.number_of_points, 2, generator=random).double())
    state = conserving(problem, velocity)
    left = (problem.cells.collected(state.fluxes) + problem.inflow)[problem.pressure_free > 0]
    assert float(left.abs().max()) < 1e-10


def test_a_projected_correction_brings_no_mass_and_moves_no_boundary():
    case = duct()
    problem = at_rest(FlowScheme(splits=0).problem(case))
    random = torch.Generator().manual_seed(0)
    held = case.dirichlet["u"].mask
    correction = torch.randn(case.number_of_points, 2, generator=random).double().masked_fill(held[:, None], 0.0)
    state = conserving(problem, correction)
    left = problem.cells.collected(state.fluxes)[problem.pressure_free > 0]
    assert float(left.abs().max()) < 1e-10
    assert not bool(state.velocity[:, problem.places].T[held].any())


@pytest.mark.parametrize(("level", "splits"), [(FAST, 0), (STANDARD, 1), (FINE, 2)])
def test_the_untrained_network_is_its_march_on_every_level(level, splits):
    case = duct()
    network = flow_network(width=8, hidden=16, slices=4, iterations=2, level=level).eval()
    assert isinstance(network, PENN)
    courant = {FAST: 4.0, STANDARD: 2.0, FINE: 1.4}[level]
    found = network.solve(case, [0.5, 1.0]).fields
    with torch.no_grad():  # in compiled steps, as the network marches
        expected = FlowScheme(splits=splits, courant=courant).solve(case, [0.5, 1.0]).fields
    if level == FINE:
        assert_close(found, expected, rtol=0, atol=1e-12)
    elif level == STANDARD:
        assert_close(found, expected, rtol=0, atol=2e-6)  # the corrector computes in single precision
    else:
        assert_close(found["p"], expected["p"], rtol=0, atol=2e-6)
        # A velocity at points is not divergence-free to round-off: the projection changes it by the error of cells.
        assert_close(found["u"], expected["u"], rtol=0, atol=2e-2)


def test_a_level_that_does_not_exist_is_refused():
    network = flow_network()
    with pytest.raises(ValueError, match="no level 'best' of accuracy; it has fast, standard, fine"):
        network.set_level("best")


def test_a_case_without_its_coarse_solution_is_refused():
    with pytest.raises(KeyError, match="coarse_case"):
        corrector()(duct())
