"""PENN: exact conditions in every precision, physics by hand, symmetry, batches, ablations."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pennpde.case import Case, batch, unbatch
from pennpde.mesh import Mesh
from pennpde.models.advection_diffusion import AdvectionDiffusion, advection_diffusion_network
from pennpde.penn import PENN, VECTOR, EncodedCase, Equation
from pennpde.penn.encoder import Encoder
from pennpde.penn.nisogcn import Gradient, Laplacian, dot
from pennpde.penn.solver import BarzilaiBorwein, ExplicitSteps, State
from pennpde.testing import assert_dirichlet, assert_equivariant
from problems import brick, heated_plate, rectangle
from shapes import unchecked

ABLATIONS = {
    "PENN": {},
    "A": {"decoder": "mlp", "dirichlet_in_solver": "physical", "dirichlet_after_decoding": True},
    "B": {"decoder": "mlp", "dirichlet_in_solver": "none", "dirichlet_after_decoding": True},
    "C": {"solver": "explicit"},
    "D": {"dirichlet_in_solver": "none"},
    "E": {"decoder": "mlp", "dirichlet_in_solver": "none", "boundary_features": True},
    "F": {"decoder": "mlp"},
    "G": {"decoder": "mlp", "dirichlet_after_decoding": True},
    "corrected": {"decoder": "corrected"},
}
EXACT = ("PENN", "A", "B", "C", "G", "corrected")


class Burgers(Equation):
    """A vector unknown, for what a scalar cannot show."""

    unknowns = {"u": VECTOR}  # noqa: RUF012

    def __init__(self, width: int):
        super().__init__()
        self.gradient, self.laplacian = Gradient(width), Laplacian(width)

    def rate(self, state: State, case: EncodedCase) -> State:
        u, operators = state["u"], case.operators["u"]
        diffusion = case.parameter("viscosity", u) * self.laplacian(u, operators)
        return {"u": diffusion - dot(u, self.gradient(u, operators))}


def stream(mesh: Mesh | None = None) -> Case:
    mesh = mesh or rectangle((5, 4))
    patch = next(iter(mesh.patches))
    velocity = torch.randn(mesh.points.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Case(
        mesh,
        initial={"u": 0.3 * velocity},
        dirichlet={"u": {patch: 0.5 * velocity.flip(0)}},
        neumann={"u": 0.0},
        parameters={"viscosity": 0.05},
    )


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def network() -> PENN:
    return advection_diffusion_network(width=8, iterations=4, hidden=16)


# Dirichlet conditions


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", EXACT)
def test_prescribed_values_come_out_bit_for_bit(row, dtype):
    model = advection_diffusion_network(width=8, iterations=3, steps=2, hidden=8, **ABLATIONS[row]).to(dtype)
    assert_dirichlet(model, heated_plate(inlet=0.7))


@pytest.mark.parametrize("row", sorted(ABLATIONS.keys() - set(EXACT)))
def test_ablations_without_guarantee_are_not_corrected(row):
    model = advection_diffusion_network(width=8, iterations=3, steps=2, hidden=8, **ABLATIONS[row])
    assert not model.fulfils_dirichlet
    with pytest.raises(AssertionError, match="misses"):
        assert_dirichlet(model, heated_plate(inlet=0.7))


def test_they_hold_for_vectors_and_in_half_precision(network):
    model = PENN(Burgers(8), 8, BarzilaiBorwein(4), time_step=0.05)
    assert_dirichlet(model, stream())
    for each, case in ((model, stream()), (network, heated_plate(inlet=0.7))):
        with torch.autocast("cpu", torch.bfloat16):
            fields = each(case)
            assert_dirichlet(each, case)
        # Not rounded to the eight bits of the computation.
        assert all(values.dtype == torch.float32 for values in fields.values())


def test_numbers_beyond_those_of_half_precision_are_an_error_and_not_nan(network):
    case = heated_plate(inlet=1e6)
    with torch.autocast("cpu", torch.float16), pytest.raises(FloatingPointError, match="Use bfloat16"):
        network.eval()(case)
    assert all(values.isfinite().all() for values in network(case).values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"width": 0}, "width is 0"),
        ({"width": 2.5}, "width is 2.5"),
        ({"width": True}, "width is True"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 10**9}, "steps is 1000000000"),
    ],
)
def test_sizes_that_no_network_can_have_are_refused(arguments, words):
    with unchecked(), pytest.raises(ValueError, match=rf"{words}; it must be a whole number from 1"):
        PENN(AdvectionDiffusion(4, 4), **({"width": 4} | arguments))


@pytest.mark.parametrize("solver", [BarzilaiBorwein, ExplicitSteps])
@pytest.mark.parametrize("number", [-1, 2.5, True, 10**9, "8"])
def test_iterations_that_would_never_end_are_refused(solver, number):
    with unchecked(), pytest.raises(ValueError, match=r"iterations is .*; it must be a whole number from 0 to 10000"):
        solver(number)


def compiled_as_predicted(case: Case, backend: str) -> None:
    network = advection_diffusion_network(width=4, iterations=2, steps=1, hidden=4)
    compiled = torch.compile(network, backend=backend)
    assert_dirichlet(compiled, case)
    with torch.no_grad():
        assert_close(compiled(case)["T"], network(case)["T"], atol=1e-5, rtol=0)


@pytest.mark.slow  # operators/test_precision.py and test_sparse.py compile the parts in the default run
def test_they_hold_in_a_compiled_network_which_predicts_the_same():
    compiled_as_predicted(heated_plate(inlet=0.7).to(torch.float32), "aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, when it loads its compiler
def test_they_hold_in_a_network_compiled_to_machine_code_that_assembles_its_own_operators():
    compiled_as_predicted(heated_plate(inlet=0.7), "inductor")


@pytest.mark.parametrize(
    ("dtype", "autocast", "bound"),
    [(torch.float64, False, 1e-15), (torch.float32, False, 5e-7), (torch.float32, True, 1e-2)],
)
@pytest.mark.parametrize("make", [Encoder.linear, lambda width: Encoder((1, 4, width), bias=True)])
def test_what_the_decoder_alone_leaves_is_round_off(dtype, autocast, bound, make):
    encoders = {"T": make(8)}
    model = PENN(AdvectionDiffusion(8, 8), 8, BarzilaiBorwein(4), steps=2, time_step=0.25, encoders=encoders).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), torch.no_grad():
        prediction = model.solve(heated_plate(inlet=0.7))
    share = 10 if not encoders["T"].is_linear else 1  # two layers, of a condition number of some
    assert float(prediction.round_off["T"]) <= share * bound
    assert_dirichlet(lambda case: prediction.fields, heated_plate(inlet=0.7))


@pytest.mark.parametrize("make", [AdvectionDiffusion, lambda width, _: Burgers(width)], ids=["scalar", "vector"])
def test_a_corrected_decoder_begins_as_the_pseudoinverse_and_learns_to_see_more_where_nothing_is_prescribed(make):
    case = heated_plate(inlet=0.7) if make is AdvectionDiffusion else stream()
    name = next(iter(case.initial))
    plain = PENN(make(4, 4), 4, BarzilaiBorwein(3), time_step=0.25).double()
    corrected = PENN(make(4, 4), 4, BarzilaiBorwein(3), time_step=0.25, decoder="corrected").double()
    corrected.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        assert torch.equal(corrected(case)[name], plain(case)[name])
        for parameter in corrected.decoders.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        found = corrected.solve(case)
    free = ~case.dirichlet[name].mask
    assert (found.fields[name] - plain(case)[name])[free].abs().amax() > 1e-3
    assert float(found.round_off[name].detach()) <= 1e-14, "the structure holds the condition, not a last correction"
    assert_dirichlet(corrected, case)
    assert_equivariant(corrected, case)


def test_gradients_reach_the_boundary_encoder_without_nan(network):
    case = heated_plate(targets=True)  # T is zero at the start: only the boundary value brings the encoder in
    loss = (network(case)["T"] - case.targets["T"]).square().mean()
    loss.backward()
    gradient = network.encoders["T"].network.layers[0].weight.grad
    assert float(gradient.abs().amin()) > 0
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


# Physics by hand


def gradient_by_hand(mesh: Mesh, normals: np.ndarray, weight: float = 10.0) -> np.ndarray:
    """Equations 14 and 15 point by point, as [space, points, points]."""
    points, neighbours = mesh.points.numpy(), mesh.edges
    matrices = np.zeros((mesh.space, len(points), len(points)))
    for i, x in enumerate(points):
        around = neighbours[1][neighbours[0] == i]
        r = points[around] - x
        squares = (r**2).sum(axis=1)
        moment = (r / squares[:, None]).T @ r + weight * np.outer(normals[i], normals[i])
        slopes = np.linalg.solve(moment, (r / squares[:, None]).T)
        matrices[:, i, around] = slopes
        matrices[:, i, i] = -slopes.sum(axis=1)
    return matrices


def physical(width: int, iterations: int, tolerance: float | None = None) -> PENN:
    """The advection-diffusion network with its weights set to the equation itself."""
    equation = AdvectionDiffusion(width, 4, upwind=0.0, laplacian_damping=0.0)
    with torch.no_grad():
        for mixing in (equation.advection, equation.diffusion):
            mixing.copy_(torch.eye(width))
        equation.coefficients.layers[-1].weight.zero_()
    return PENN(equation, width, BarzilaiBorwein(iterations, tolerance), time_step=0.25).double()


def implicit_euler_residual(case: Case):
    """The parts of h - h0 - dt (D lap h - c . grad h), from NumPy alone: rate matrix, free points, h0."""
    gx, gy = gradient_by_hand(case.mesh, case.mesh.point_normals(["outlet", "side"]).numpy())
    diffusivity = float(case.parameters["diffusivity"])
    velocity = case.parameters["velocity"].numpy()
    rate = diffusivity * (gx @ gx + gy @ gy) - velocity[0] * gx - velocity[1] * gy
    free = ~case.dirichlet["T"].mask.numpy()
    start = np.where(free, case.initial["T"].numpy(), case.dirichlet["T"].values.numpy())
    return rate, free, start


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_with_physical_weights_each_iteration_is_a_residual_step_of_implicit_euler(iterations):
    case = heated_plate(velocity=(0.6, 0.2), diffusivity=0.03, cells=(5, 4))
    rate, free, start = implicit_euler_residual(case)
    state, previous, previous_residual = start, None, None
    for _ in range(iterations):
        residual = np.where(free, state - start - 0.25 * rate @ state, 0.0)
        size = 1.0
        if previous is not None:
            change, difference = state - previous, residual - previous_residual
            size = abs(change @ difference / (difference @ difference))
        state, previous, previous_residual = state - size * residual, state, residual
    predicted = physical(width=3, iterations=iterations)(case)["T"].detach()
    assert_close(predicted, torch.from_numpy(state), atol=1e-12, rtol=0)


def test_with_physical_weights_the_converged_network_is_implicit_euler():
    case = heated_plate(velocity=(0.6, 0.2), diffusivity=0.03, cells=(5, 4))
    rate, free, start = implicit_euler_residual(case)
    system = np.eye(len(start)) - 0.25 * np.where(free[:, None], rate, 0.0)
    expected = torch.from_numpy(np.linalg.solve(system, start))
    model = physical(width=3, iterations=300, tolerance=1e-12)
    with torch.no_grad():
        prediction = model.solve(case)
    assert bool(prediction.solutions[0].converged)
    assert_close(prediction.fields["T"], expected, atol=1e-10, rtol=0)


def test_a_prescribed_normal_derivative_keeps_a_linear_field_in_place():
    mesh = rectangle((5, 4))
    ramp = 0.3 + 0.5 * mesh.points[:, 0]
    case = Case(
        mesh,
        initial={"T": ramp},
        dirichlet={"T": {"inlet": 0.3}},
        neumann={"T": 0.5 * mesh.point_normals(["outlet", "side"])[:, 0]},
        parameters={"velocity": (0.0, 0.0), "diffusivity": 0.4},
        features={"inlet_distance": mesh.points[:, 0]},
    )
    with torch.no_grad():
        assert_close(physical(width=3, iterations=6)(case)["T"], ramp, atol=1e-12, rtol=0)


def test_several_steps_feed_the_encoded_state_back():
    case = heated_plate()
    model = physical(width=4, iterations=5)
    model.steps = 3
    with torch.no_grad():
        series = model(case)["T"]
        model.steps = 1
        # With the identity as mixing all channels agree, so decoding between steps loses nothing.
        for number in range(3):
            case = Case(
                case.mesh,
                initial={"T": series[:, number - 1] if number else 0.0},
                dirichlet={"T": {"inlet": 0.7}},
                neumann={"T": 0.0},
                parameters=case.parameters,
                features=case.features,
            )
            assert_close(series[:, number], model(case)["T"], atol=1e-12, rtol=0)


# Symmetry and batches


@pytest.mark.parametrize("row", ABLATIONS)
def test_every_row_turns_with_its_mesh(row):
    model = advection_diffusion_network(width=6, iterations=3, steps=2, hidden=8, **ABLATIONS[row]).double()
    assert_equivariant(model, heated_plate(velocity=(0.5, 0.3), cells=(5, 4)), motions=1)


@pytest.mark.parametrize("switches", [{}, ABLATIONS["A"], ABLATIONS["E"]])
@pytest.mark.parametrize("mesh", [rectangle((5, 4)), brick((2, 3, 2))], ids=["plane", "space"])
def test_vector_unknowns_turn_with_their_mesh(mesh, switches):
    model = PENN(Burgers(6), 6, BarzilaiBorwein(3), time_step=0.02, **switches).double()
    assert_equivariant(model, stream(mesh), motions=1)


def test_a_batch_gives_what_its_cases_give_one_by_one(network):
    cases = [
        heated_plate((0.1, 0.0), 0.9, 0.2, cells=(4, 5)),
        heated_plate((1.0, 0.0), 0.0, 1.0, cells=(6, 3)),
        heated_plate((0.3, 0.2), 0.5, 0.5, cells=(4, 5)),
    ]
    network = network.double()
    with torch.no_grad():
        together = unbatch(network(batch(cases)), batch(cases))
        for joint, case in zip(together, cases, strict=True):
            assert_close(joint["T"], network(case)["T"], atol=1e-12, rtol=0)


def test_cases_of_any_precision_are_taken(network):
    case = heated_plate()
    with torch.no_grad():
        assert_close(network(case)["T"], network(case.to(torch.float32))["T"])


# Ablations


@pytest.mark.slow
@pytest.mark.parametrize("row", ABLATIONS)
def test_a_training_step_of_every_row_lowers_its_loss(row):
    model = advection_diffusion_network(width=8, iterations=4, hidden=16, **ABLATIONS[row])
    case = batch([heated_plate((0.2, 0.0), 0.1, 0.8, targets=True), heated_plate((0.7, 0.0), 0.05, 0.4, targets=True)])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def loss() -> torch.Tensor:
        return (model(case)["T"] - case.targets["T"]).square().mean()

    before = loss()
    before.backward()
    optimiser.step()
    with torch.no_grad():
        assert float(loss()) < float(before)


def test_boundary_features_ask_for_a_plain_decoder():
    with pytest.raises(ValueError, match='decoder="mlp"'):
        PENN(Burgers(4), 4, boundary_features=True)


def test_boundary_values_reach_a_network_without_dirichlet_layer_as_features():
    model = advection_diffusion_network(width=8, iterations=3, hidden=8, **ABLATIONS["E"])
    with torch.no_grad():
        cold, hot = (model(heated_plate(inlet=value))["T"] for value in (0.1, 1.0))
    assert float((cold - hot).abs().amax()) > 1e-3


# How it ended


def test_divergence_is_reported_and_not_raised():
    model = PENN(Burgers(4), 4, ExplicitSteps(40), time_step=1e3)
    with torch.no_grad():
        prediction = model.solve(stream())
    (solution,) = prediction.solutions
    assert bool(solution.diverged)


def test_the_history_of_every_step_comes_with_a_prediction(network):
    prediction = network.solve(heated_plate())
    assert [solution.residuals.shape for solution in prediction.solutions] == [(4, 1)] * 4
    assert torch.equal(prediction.fields["T"], network(heated_plate())["T"])


def test_a_derivative_does_not_pass_a_nonlinear_encoder():
    model = PENN(AdvectionDiffusion(8, 8), 8, encoders={"T": Encoder((1, 4, 8))})
    mesh = rectangle((4, 4))
    case = Case(mesh, initial={"T": 0.0}, dirichlet={"T": {"inlet": 1.0}}, neumann={"T": 0.5})
    with pytest.raises(ValueError, match="not linear"):
        model(case)


def test_a_network_sets_the_strength_of_neumann_conditions_that_it_was_trained_with():
    case = heated_plate(cells=(5, 4))
    torch.manual_seed(0)
    model = advection_diffusion_network(width=4, iterations=2, steps=1, neumann_weight=0.0)
    adapted = model.adapted(case)
    assert adapted.neumann_weight == 0.0
    assert model.adapted(adapted) is adapted
    assert not bool(adapted.operators["T"].neumann_lift.any())
    assert bool(case.operators["T"].neumann_lift.any())
    assert_close(model(case)["T"], model(adapted)["T"], rtol=0, atol=0)
    torch.manual_seed(0)
    usual = advection_diffusion_network(width=4, iterations=2, steps=1)
    assert usual.adapted(case) is case
    assert not torch.allclose(usual(case)["T"], model(case)["T"])
    with pytest.raises(ValueError, match="same neumann_weight"):
        batch([case, adapted])


def test_encoders_are_chosen_by_name():
    model = PENN(Burgers(4), 4, encoders={"u": "linear"})
    assert model.encoders["u"].is_linear
    assert not PENN(AdvectionDiffusion(8), 8, encoders={"T": "mlp"}).encoders["T"].is_linear
    with pytest.raises(ValueError, match="'wide'; it may be"):
        PENN(Burgers(4), 4, encoders={"u": "wide"})
    with pytest.raises(ValueError, match=r"names \['p'\]"):
        PENN(Burgers(4), 4, encoders={"p": "mlp"})
