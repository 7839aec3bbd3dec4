"""The released networks: what each ablation is, their symmetry, plane cases, batches, gradients."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pennlab.released import weights as released
from pennlab.released.layers import gradient_of_divergence
from pennpde.case import Case, batch, unbatch
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.operators import Operators
from pennpde.testing import assert_equivariant
from problems import heated_plate, rectangle
from released_networks import KINDS, made, plain_solver

pytestmark = pytest.mark.slow  # CI runs them; the laboratory compares with the authors in the default run


def small_flow_case() -> Case:
    return flow_case(coarse_mesh("a_0.50", cells_per_length=4), "a_0.50")


# What the ablations are


@pytest.mark.parametrize("kind", KINDS)
def test_dirichlet_values_hold_in_the_rows_that_promise_them(kind: str):
    case = small_flow_case()
    fields = made(released.ReleasedFlow, kind, iterations=2)(case)
    promised = kind in {"PENN", "A", "B", "C", "G"}
    for name in ("u", "p"):
        condition = case.dirichlet[name]
        error = (fields[name] - condition.apply(fields[name])).detach().abs().max()
        assert bool(error < 1e-12) == promised


def test_row_a_of_the_flow_is_what_its_description_says():
    # The one row of the flow without reference arrays: compared with a forward written down from its description.
    case = small_flow_case()
    network = made(released.ReleasedFlow, "A", iterations=3)
    inputs = network.inputs(case)
    with torch.no_grad():
        fields = network.forward_scaled(inputs)
        plain = plain_row_a(network, inputs)
    for name, values in plain.items():
        torch.testing.assert_close(fields[name], values, rtol=1e-9, atol=1e-11)


def plain_row_a(network: released.ReleasedFlow, inputs: released.Inputs) -> dict[str, Tensor]:
    """Row A with points first throughout, dense matrices, nothing shared. It relies on the solver, tested below."""
    matrices = torch.stack([torch.from_numpy(m.toarray()) for m in inputs.operators.gradient_matrices()])
    smoothing = torch.from_numpy(inputs.smoothing.to_scipy().toarray())

    def raised(values):
        return torch.einsum("kij,j...->ik...", matrices, values)

    def contracted(values):  # over the last axis of space, the one before the channels
        return torch.einsum("cij,j...cf->i...f", matrices, values)

    def isogcn(layer, values, *steps):
        axes = tuple(range(1, values.ndim - 1))
        coefficient = layer.coefficient((values**2).sum(dim=axes) if axes else values)
        for step in steps:
            values = step(values)
        return coefficient.reshape(len(coefficient), *[1] * (values.ndim - 2), -1) * layer.mixing(values)

    def gated(layer, values):
        linear = layer.linear(values)
        return layer.gate((values**2).sum(dim=1))[:, None] * linear

    geometry = network.geometry_encoder(inputs.geometry)
    geometry_gradient = isogcn(network.geometry_gradient, geometry, raised)
    u_given, p_given = inputs.prescribed["u"], inputs.prescribed["p"]

    def operator(state):
        encoded = network.velocity_encoder(u_given.apply(state["u"])[..., None]) * geometry[:, None]
        velocity = gated(network.velocity, torch.cat([encoded, geometry_gradient], dim=-1))
        laplacian = isogcn(network.laplacian, velocity, raised, contracted)
        jacobian = isogcn(network.jacobian, velocity, raised)
        forces = laplacian + torch.einsum("ikcf,icf->ikf", jacobian, velocity)
        source = isogcn(network.divergence, velocity + gated(network.intermediate, forces), contracted)
        first, second = network.source.network.linears
        source = second(smoothing @ torch.tanh(first(smoothing @ source)))

        def poisson(inner):
            encoded = network.pressure_encoder(p_given.apply(inner["p"])[:, None])
            mixed = network.pressure(torch.cat([encoded, geometry], dim=-1))
            change = network.pressure_decoder(source + isogcn(network.poisson, mixed, raised, contracted))[:, 0]
            return {"p": inner["p"] - state["p"] - change}

        pressure = p_given.apply(plain_solver(poisson, {"p": state["p"]}, 5, 100.0)["p"])
        forces = forces + isogcn(network.pressure_gradient, pressure[:, None], raised)
        smoothed = torch.einsum("ij,jkf->ikf", smoothing, forces)
        return {"u": network.smoothing.network.linears[0](smoothed)[..., 0], "p": pressure}

    start = dict(inputs.initial)

    def residual(state):
        change = operator(state)
        return {name: state[name] - start[name] - change[name] for name in state}

    state = plain_solver(residual, start, network.iterations, 1e9)
    return {"u": u_given.apply(state["u"]), "p": p_given.apply(state["p"])}


def test_the_released_laplacian_of_a_vector_is_the_gradient_of_its_divergence():
    # u = (y^2, 0, 0): the Laplacian of each component is (2, 0, 0), the gradient of the divergence is zero.
    axes = [np.linspace(0, 1, 7)] * 3
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    number = np.arange(343).reshape(7, 7, 7)
    corners = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
    cells = np.stack([number[a : a + 6, b : b + 6, c : c + 6].ravel() for a, b, c in corners], axis=1)
    operators = Operators.on(Mesh.from_arrays(points, cells))
    vector = torch.zeros(343, 3, 1, dtype=torch.float64)
    vector[:, 0, 0] = torch.from_numpy(points[:, 1] ** 2)
    released_laplacian = gradient_of_divergence(operators, operators.grad(vector))
    inside = torch.from_numpy(((points > 0.2) & (points < 0.8)).all(axis=1))
    assert released_laplacian[inside].abs().max() < 1e-10
    ours = operators.laplacian(vector)
    torch.testing.assert_close(ours[inside, 0, 0], torch.full_like(ours[inside, 0, 0], 2.0))


# Symmetry


@pytest.mark.parametrize("kind", KINDS)
def test_flow_networks_turn_with_the_case_unless_they_say_not(kind: str):
    plane = small_flow_case()
    network = made(released.ReleasedFlow, kind, iterations=2)
    assert network.equivariant == (kind in {"PENN", "C", "D"})
    if network.equivariant:
        assert_equivariant(network, plane)
    else:
        with pytest.raises(AssertionError, match="Not equivariant"):
            assert_equivariant(network, plane, tolerance=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_advection_diffusion_networks_turn_with_the_case(kind: str):
    network = made(released.ReleasedAdvectionDiffusion, kind, iterations=2)
    assert network.equivariant
    assert_equivariant(network, heated_plate(cells=(6, 6)))


@pytest.mark.parametrize("kind", ["neumannisogcn", "isogcn"])
def test_gradient_networks_do_not_turn_with_the_case(kind: str):
    mesh = rectangle((5, 5))
    mesh = mesh.with_patches({"boundary": mesh.boundary_points})
    slope = torch.tensor([0.5, -1.0], dtype=torch.float64)
    case = Case(mesh, initial={"phi": mesh.points @ slope}, neumann={"phi": {"boundary": mesh.normals @ slope}})
    torch.manual_seed(0)
    network = released.ReleasedGradient(kind).double()
    assert not network.equivariant
    with pytest.raises(AssertionError, match="Not equivariant"):
        assert_equivariant(network, case, tolerance=1e-4)


# Cases of any dimension, batches, training


def test_a_batch_of_plane_flow_cases_gives_what_they_give_one_by_one():
    network = made(released.ReleasedFlow, "PENN", iterations=2)
    cases = [flow_case(coarse_mesh(name, cells_per_length=4), name) for name in ("a_0.50", "c_0.20_1.00")]
    together = batch(cases)
    for fields, case in zip(unbatch(network(together), together), cases, strict=True):
        single = network(case)
        torch.testing.assert_close(fields, single, rtol=1e-9, atol=1e-11)
        assert fields["u"].shape == (case.number_of_points, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inference_gives_what_training_sees(dtype: torch.dtype):
    network = made(released.ReleasedFlow, "PENN", iterations=2).to(dtype)
    case = small_flow_case()
    trained = network(case)
    with torch.inference_mode():
        fast = network(case)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    for name, values in trained.items():
        torch.testing.assert_close(fast[name], values.detach(), rtol=tolerance, atol=tolerance)


def test_training_goes_on_where_a_prediction_assembled_the_operators():
    network, case = made(released.ReleasedAdvectionDiffusion, "PENN", iterations=2), heated_plate(cells=(5, 5))
    with torch.inference_mode():
        network(case)
    network(case)["T"].sum().backward()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network_type", [released.ReleasedFlow, released.ReleasedAdvectionDiffusion])
def test_gradients_reach_every_weight_and_are_finite(network_type: type, kind: str):
    network = made(network_type, kind, iterations=2)
    fields = network(small_flow_case() if network_type is released.ReleasedFlow else heated_plate(cells=(6, 6)))
    sum((values**2).sum() for values in fields.values()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_a_case_without_the_feature_that_the_network_sees_is_told_so():
    case = small_flow_case()
    bare = Case(case.mesh, initial={"u": (1.0, 0.0), "p": 0.0})
    with pytest.raises(KeyError, match=r"wall_distance.*distance_to"):
        released.ReleasedFlow()(bare)
    mesh = rectangle((3, 3))
    with pytest.raises(KeyError, match="inlet_distance"):
        released.ReleasedAdvectionDiffusion()(Case(mesh, initial={"T": 0.0}))
