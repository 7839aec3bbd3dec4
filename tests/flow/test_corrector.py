"""The corrector of coarse-grid solutions: where it starts, conditions, equivariance, batches, mass."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from meshes import arrays
from pennpde.case import Case, batch, unbatch
from pennpde.flow.coarse_march import FAST, FINE, STANDARD, conserving, flow_network
from pennpde.flow.corrector import coarse_case, corrector
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import begin
from pennpde.mesh import Mesh
from pennpde.penn import PENN
from pennpde.testing import assert_equivariant
from pennpde.train import Experiment, Settings, run


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


@pytest.mark.parametrize("level", [FAST, STANDARD])
def test_what_is_learned_leaves_fluxes_that_conserve_mass(level):
    """Whatever the network does to velocities: what enters through facets leaves through others."""
    torch.manual_seed(2)
    network = flow_network(width=8, hidden=16, slices=4, iterations=2, level=level).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        found = network.solve(duct(), [0.5])
        plain = flow_network(width=8, hidden=16, slices=4, iterations=2, level=level).eval().solve(duct(), [0.5])
    assert float((found.fields["u"] - plain.fields["u"]).norm()) > 1e-4 * float(plain.fields["u"].norm())
    assert found.outflow is not None
    assert float(found.outflow.sum().abs()) < 1e-10


def test_the_projected_velocity_conserves_mass_in_every_cell():
    case = duct()
    problem = FlowScheme(splits=0).problem(case)
    random = torch.Generator().manual_seed(0)
    velocity = case.dirichlet["u"].apply(0.3 * torch.randn(case.number_of_points, 2, generator=random).double())
    state = conserving(problem, velocity)
    left = (problem.cells.collected(state.fluxes) + problem.inflow)[problem.pressure_free > 0]
    assert float(left.abs().max()) < 1e-10


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
    else:
        assert_close(found, expected, rtol=0, atol=2e-6)  # the corrector computes in single precision


def known(case: Case, time: float) -> Case:
    """With what cells split twice give as the fields that should come out."""
    fields = FlowScheme(splits=2, courant=1.4).solve(case, [time]).fields
    return replace(case, targets=dict(fields), parameters={**case.parameters, "time": torch.tensor(time).double()})


def test_it_learns_from_coarse_solutions_on_both_levels_that_it_corrects():
    network, case = flow_network(width=8, hidden=16, slices=4, iterations=2), known(duct(), 0.5)
    own, split = network.learned(case)
    assert [float(each.parameters["splits"]) for each in (own, split)] == [0.0, 1.0]
    assert own.targets is case.targets
    assert not bool(own.features["change_u"].any())
    assert bool(split.features["change_u"].any())
    (steady,) = network.learned(replace(case, parameters={**case.parameters, "time": torch.tensor(torch.inf)}))
    assert float(steady.parameters["splits"]) == 1.0, "of steady states on own cells nothing is learned"


def test_training_on_own_runs_lowers_the_errors_of_both_levels(tmp_path):
    small = {"width": 8, "hidden": 16, "slices": 4, "iterations": 2}
    settings = Settings(steps=30, batch_size=1, learning_rate=3e-3, warm_up=0, test_every=30.0)
    row = Experiment("own", "plane-flow", "flow", arguments=small, training=settings)
    cases = [known(duct(viscosity=viscosity), 0.5) for viscosity in (0.01, 0.02, 0.04)]
    result = run(row, {"train": cases[::2], "validation": cases[1:2]}, tmp_path, device="cpu", progress=False).result

    def errors(network: PENN) -> list[float]:
        with torch.no_grad():
            return [float((network(each)["u"] - each.targets["u"]).norm()) for each in network.learned(cases[1])]

    for after, before in zip(errors(result.model), errors(flow_network(**small)), strict=True):
        assert after < before


def test_runs_of_which_it_corrects_none_teach_it_nothing(tmp_path):
    case = known(duct(viscosity=0.2), 0.5)
    long = replace(case, mesh=case.mesh.with_points(case.mesh.points * torch.tensor([5.0, 1.0])))
    row = Experiment("own", "plane-flow", "flow", training=Settings(steps=1, batch_size=1))
    with pytest.raises(ValueError, match=r"corrects none of the 1 training cases.*train without --from"):
        run(row, {"train": [long]}, tmp_path, device="cpu", progress=False)


def test_a_level_that_does_not_exist_is_refused():
    network = flow_network()
    with pytest.raises(ValueError, match="no level 'best' of accuracy; it has fast, standard, fine"):
        network.set_level("best")


def test_a_case_without_its_coarse_solution_is_refused():
    with pytest.raises(KeyError, match="coarse_case"):
        corrector()(duct())


@pytest.mark.parametrize("viscosity", [10.0, 1e-5])
def test_reynolds_numbers_far_from_training_are_not_corrected(viscosity):
    case = duct(viscosity=viscosity)
    timed = replace(case, parameters={**case.parameters, "time": torch.tensor(0.05).double()})
    assert not flow_network(width=8, hidden=16, slices=4, iterations=2).learned(timed)
