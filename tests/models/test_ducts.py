"""The flow network: its size, its symmetry, its conditions, its physics before training."""

import pytest
import torch

from pennpde.case import Case, batch, unbatch
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.ducts import Flow, flow_network
from pennpde.penn import PENN
from pennpde.penn.solver import BarzilaiBorwein
from pennpde.testing import assert_dirichlet, assert_equivariant

ABLATIONS = {
    "A": {"decoder": "mlp", "dirichlet_in_solver": "physical", "dirichlet_after_decoding": True},
    "B": {"decoder": "mlp", "dirichlet_in_solver": "none", "dirichlet_after_decoding": True},
    "C": {"solver": "explicit"},
    "D": {"dirichlet_in_solver": "none"},
    "E": {"decoder": "mlp", "dirichlet_in_solver": "none", "boundary_features": True},
    "F": {"decoder": "mlp"},
    "G": {"decoder": "mlp", "dirichlet_after_decoding": True},
    "corrected": {"decoder": "corrected"},
}


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [flow_case(coarse_mesh(name, cells_per_length=5), name) for name in ("a_0.50", "b_0.30_0.70", "c_0.20_1.00")]


@pytest.fixture
def network() -> PENN:
    torch.manual_seed(0)
    return flow_network(iterations=3, pressure_iterations=2)


def test_sixteen_channels_stay_below_fifteen_thousand_parameters():
    counts = {width: sum(p.numel() for p in flow_network(width).parameters()) for width in (4, 8, 16)}
    assert counts == {4: 688, 8: 2592, 16: 10048}
    # Iterations share their weights.
    assert sum(p.numel() for p in flow_network(16, iterations=4).parameters()) == counts[16]
    assert sum(p.numel() for p in flow_network(16, decoder="corrected").parameters()) == 10881


def test_moving_the_duct_moves_the_flow(cases, network):
    assert_equivariant(network.double(), cases[1], tolerance=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("row", ABLATIONS)
def test_ablations_keep_equivariance_and_take_a_training_step(cases, row):
    torch.manual_seed(0)
    model = flow_network(width=4, iterations=2, pressure_iterations=2, **ABLATIONS[row])
    fields = model(cases[0])
    loss = sum((fields[name] - cases[0].targets.get(name, 0.5)).square().mean() for name in fields)
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(g).all() for g in gradients)
    assert_equivariant(model.double(), cases[0], tolerance=1e-10, motions=1)


@pytest.mark.parametrize("row", [None, "A", "B", "C", "G", "corrected"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_prescribed_values_come_out_bit_for_bit(cases, row, dtype):
    torch.manual_seed(0)
    model = flow_network(width=4, iterations=2, pressure_iterations=2, **ABLATIONS.get(row or "", {}))
    assert_dirichlet(model.to(dtype), cases[2])


@pytest.mark.parametrize("row", ["D", "E", "F"])
def test_ablations_without_guarantee_are_not_corrected(cases, row):
    torch.manual_seed(0)
    model = flow_network(width=4, iterations=2, pressure_iterations=2, **ABLATIONS[row])
    with pytest.raises(AssertionError, match="misses"):
        assert_dirichlet(model, cases[2])


def test_a_batch_gives_what_its_cases_give_one_by_one(cases, network):
    network = network.double()
    with torch.no_grad():
        together = unbatch(network(batch(cases)), batch(cases))
        alone = [network(case) for case in cases]
    for joint, single in zip(together, alone, strict=True):
        for name in ("u", "p"):
            torch.testing.assert_close(joint[name], single[name], rtol=0, atol=1e-12)


def test_a_fluid_at_rest_stays_at_rest(cases, network):
    mesh = cases[0].mesh
    rest = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": 0.0, "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "wall": 0.0}},
        parameters={"viscosity": 1e-3},
        features={"wall_distance": mesh.distance_to(["wall"])},
    )
    # The correction and the force would push a fluid at rest along the gradient of the wall distance; switch them off.
    with torch.no_grad():
        network.equation.correction.weight.zero_()
        network.equation.local_pressure.linears[-1].weight.zero_()
    fields = network(rest)
    assert fields["u"].abs().max() == 0
    assert fields["p"].abs().max() == 0


def test_one_untrained_iteration_is_a_fractional_step(cases):
    """Identity mixings and coefficients of one: an explicit fractional step, computed here with the operators alone."""
    case = cases[1]
    torch.manual_seed(0)
    equation = Flow(1, BarzilaiBorwein(iterations=1), diffusion_start=1.0)
    model = PENN(equation, 1, BarzilaiBorwein(iterations=1), time_step=4.0).double()
    with torch.no_grad():
        for mixing in ("advection", "diffusion", "source", "poisson", "pressure_gradient"):
            getattr(equation, mixing).fill_(1.0)
        for gate, value in (
            ("coefficients", 1.0),
            ("correction_gate", 0.0),
            ("force_gate", 0.0),
            ("local_pressure", 0.0),
        ):
            last = getattr(equation, gate).linears[-1]
            last.weight.zero_()
            last.bias.fill_(value)
        model.encoders["u"].network.linears[0].weight.fill_(1.0)
        model.encoders["p"].network.linears[0].weight.fill_(1.0)
        predicted = model(case)

    u, of_u, of_p = case.dirichlet["u"].apply(case.initial["u"]), case.operators["u"], case.operators["p"]
    step, viscosity = 0.03 * 4.0, 1e-3
    jacobian = of_u.grad(u)
    rate = viscosity * of_u.composed(equation.laplacian_damping).laplacian(u) - (u[:, :, None] * jacobian).sum(dim=1)
    source = jacobian.diagonal(dim1=1, dim2=2).sum(dim=1) / step + of_u.div(rate)
    p = case.dirichlet["p"].apply(0.2 * 0.15**2 * -source)
    advanced = case.dirichlet["u"].apply(case.initial["u"] + step * (rate - of_p.grad(p)))
    torch.testing.assert_close(predicted["p"], p, rtol=0, atol=1e-12)
    torch.testing.assert_close(predicted["u"], advanced, rtol=0, atol=1e-12)


def test_a_prescribed_slope_of_pressure_reaches_the_prediction(cases, network):
    case = cases[0]
    pushed = Case(
        case.mesh,
        initial=case.initial,
        dirichlet={"u": case.dirichlet["u"], "p": case.dirichlet["p"]},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": -1.0, "wall": 0.0}},
        parameters=case.parameters,
        features=case.features,
    )
    with torch.no_grad():
        assert (network(pushed)["p"] - network(case)["p"]).abs().max() > 1e-6


def test_a_case_without_wall_distance_is_refused(cases, network):
    case = cases[0]
    bare = Case(case.mesh, initial=case.initial, parameters=case.parameters)
    with pytest.raises(KeyError, match="wall_distance"):
        network(bare)


def test_explicit_steps_need_shorter_ones_of_the_pressure_to_begin_with():
    case = flow_case(coarse_mesh("a_1.00"), "a_1.00")

    def fastest(pressure_step: float) -> float:
        torch.manual_seed(0)
        network = flow_network(solver="explicit", pressure_step=pressure_step).double()
        with torch.no_grad():
            return float(network(case)["u"].nan_to_num(nan=torch.inf).abs().amax())

    assert fastest(0.05) < 4, "row C: of the size of the inlet speed"
    assert fastest(0.2) > 1e3, "with the solver's own they overflow"
