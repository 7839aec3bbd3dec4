"""The released networks: the authors' outputs from their weights, and the files that these come in."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import heated_plate, rectangle
from scipy.sparse import csr_matrix
from torch import Tensor

from pennpde import checkpoints
from pennpde.case import Case, batch, unbatch
from pennpde.datasets.flow.cases import coarse_mesh, flow_case
from pennpde.mesh import Mesh
from pennpde.models import registry
from pennpde.operators import Operators
from pennpde.paper.released import weights as released
from pennpde.paper.released.flow import VELOCITY_SCALE
from pennpde.paper.released.layers import contract_gradient, gradient_of_vector
from pennpde.paper.released.solver import ReleasedSolver
from pennpde.testing import assert_equivariant

AD_SAMPLES = ("u0.5_d0.5_t0.5", "u0.5_d0.6_t0.6", "u0.6_d0.5_t0.6", "u0.6_d0.6_t0.5")
AD_ROWS = {
    "penn": "PENN",
    "wo_dirichlet_layer": "E",
    "wo_neural_nonlinear_solver": "C",
    "wo_pseudoinverse_decoder_w_dirichlet_layer_after_decoding": "G",
}
FLOW_WEIGHTS = {"penn_n16_rep4": (16, 4), "penn_n8_rep8": (8, 8), "penn_n4_rep4": (4, 4)}
RANDOM_FLOW = {
    "penn_n16_rep8": "PENN",
    "wo_boundary_condition_input": "D",
    "wo_dirichlet_layer": "E",
    "wo_neural_nonlinear_solver": "C",
    "wo_pseudoinverse_decoder": "F",
    "wo_pseudoinverse_decoder_w_dirichlet_layer_after_decoding": "G",
}
KINDS = ("PENN", "A", "B", "C", "D", "E", "F", "G")


@pytest.fixture(scope="module")
def flow_sample(reference: Path) -> released.Sample:
    return released.read_sample(reference / "samples" / "flow_a1_1.00.npz")


@pytest.fixture(scope="module")
def ad_samples(reference: Path) -> dict[str, released.Sample]:
    files = {name: reference / "samples" / f"advection_diffusion_{name}.npz" for name in AD_SAMPLES}
    return {name: released.read_sample(file) for name, file in files.items()}


def expected(reference: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(reference / "expected" / f"{name}.npz") as file:
        return {key: file[key] for key in file.files if "dict_block" not in key}


def relative_error(values: Tensor, truth: np.ndarray) -> float:
    return float(np.abs(values.detach().numpy() - truth).max() / np.abs(truth).max())


def absolute_error(values: Tensor, truth: np.ndarray) -> float:
    return float(np.abs(values.detach().numpy() - truth).max())


# Parity with the authors' code


@pytest.mark.parametrize("weights", FLOW_WEIGHTS)
def test_released_flow_networks_give_the_authors_fields(reference: Path, flow_sample: released.Sample, weights: str):
    truth = expected(reference, f"flow__{weights}__a1_1.00")
    network = released.load(reference / "weights" / f"flow_{weights}.npz")
    assert (network.width, network.iterations, network.kind) == (*FLOW_WEIGHTS[weights], "PENN")
    with torch.inference_mode():
        single = network.forward_scaled(flow_sample.inputs.to(torch.float32))
        double = network.double().forward_scaled(flow_sample.inputs)
        own = network(flow_sample.case)
    for name in ("u", "p"):
        assert relative_error(double[name], truth[f"{name}_scaled_f64"]) < 1e-9
        # The solver amplifies round-off: orders of summation alone move the scaled velocity by 2e-3.
        assert absolute_error(single[name], truth[f"{name}_scaled"]) < 5e-3
        # Operators from points and cells in float64, where the authors stored theirs in float32: found 3.3e-4 (n8).
        physical = truth[f"{name}_scaled_f64"] * (VELOCITY_SCALE if name == "u" else 1.0)
        assert relative_error(own[name], physical) < 1e-3


@pytest.mark.parametrize("row", RANDOM_FLOW)
def test_every_flow_ablation_gives_the_authors_fields(reference: Path, flow_sample: released.Sample, row: str):
    name = f"random_weights__flow__{row}__a1_1.00"
    truth = expected(reference, name)
    network = released.load(reference / "expected" / f"{name}.npz")
    assert (network.kind, network.iterations) == (RANDOM_FLOW[row], 8)
    with torch.inference_mode():
        single = network.forward_scaled(flow_sample.inputs.to(torch.float32))
        double = network.double().forward_scaled(flow_sample.inputs)
    for key in ("u", "p"):
        assert relative_error(double[key], truth[f"{key}_scaled_f64"]) < 1e-9
        # Random weights do not amplify round-off as trained ones do.
        assert absolute_error(single[key], truth[f"{key}_scaled_f64"]) < 1e-4


@pytest.mark.parametrize("sample", AD_SAMPLES)
@pytest.mark.parametrize("row", AD_ROWS)
def test_advection_diffusion_networks_give_the_authors_fields(
    reference: Path, ad_samples: dict[str, released.Sample], row: str, sample: str
):
    truth = expected(reference, f"advection_diffusion__{row}__{sample}")
    network = released.load(reference / "weights" / f"advection_diffusion_{row}.npz")
    assert network.kind == AD_ROWS[row]
    with torch.inference_mode():
        single = network.forward_scaled(ad_samples[sample].inputs.to(torch.float32))["T"]
        double = network.double().forward_scaled(ad_samples[sample].inputs)["T"]
        own = network(ad_samples[sample].case)["T"]
    assert relative_error(double, truth["T_scaled_f64"]) < 1e-9
    assert absolute_error(single, truth["T_scaled"]) < (2e-2 if network.kind == "G" else 5e-3)
    # Found 1.1e-4 (row E); the authors stored their operators in float32.
    assert relative_error(own, truth["T_scaled_f64"]) < 5e-4


@pytest.mark.parametrize("kind", ["neumannisogcn", "isogcn"])
def test_gradient_networks_give_the_authors_gradient(reference: Path, kind: str):
    file = reference / "expected" / "random_weights__grad__tiny_brick.npz"
    network = released.load(file, kind=kind)
    with np.load(file) as stored:
        arrays = {name: stored[name] for name in stored.files}
    inputs = [torch.from_numpy(arrays[name]) for name in ("phi", "neumann", "normal")]
    operators = Operators.from_matrices(
        [csr_matrix(arrays[axis]) for axis in ("Gx", "Gy", "Gz")],
        moment_inverse=torch.from_numpy(arrays["minv_scaled"]),
    )
    truth = arrays[f"{kind}/pred"][..., 0]
    assert relative_error(network.forward_scaled(*inputs, operators), truth) < 1e-9

    # From the mesh: normals, moment matrices and their scale are all computed in double precision on both sides.
    mesh = Mesh.from_arrays(arrays["node"], arrays["elements"]).with_patches({"boundary": lambda x: x[:, 0] < np.inf})
    case = Case(mesh, initial={"phi": arrays["phi"]}, neumann={"phi": {"boundary": arrays["neumann"]}})
    network.operator_scale = float(arrays["sigma"])
    assert relative_error(network(case)["grad"], truth) < 1e-9


def test_stored_operators_differ_from_ours_by_single_precision(reference: Path, flow_sample: released.Sample):
    network = released.load(reference / "weights" / "flow_penn_n4_rep4.npz").double()
    assembled = network.inputs(flow_sample.case).operators
    stored = flow_sample.inputs.operators
    for ours, theirs in zip(assembled.gradient_matrices(), stored.gradient_matrices(), strict=True):
        assert abs(ours - theirs).max() < 1e-6 * abs(theirs).max()
    assert abs(assembled.smoothing.to_scipy() - stored.smoothing.to_scipy()).max() < 1e-7


# What the ablations are


def small_flow_case() -> Case:
    return flow_case(coarse_mesh("a_0.50", cells_per_length=4), "a_0.50")


def made(network_type: type, kind: str, **options) -> torch.nn.Module:
    torch.manual_seed(1)
    return network_type(kind=kind, **options).double()


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
    smoothing = torch.from_numpy(inputs.operators.smoothing.to_scipy().toarray())

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
        linear = values if layer.linear is None else layer.linear(values)
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


def plain_solver(residual, start: dict[str, Tensor], iterations: int, divergence: float) -> dict[str, Tensor]:
    """The authors' loop as they describe it, its first residual evaluated twice."""
    state, before, before_residual = start, start, residual(start)
    for _ in range(iterations):
        current, updated, moved = residual(state), {}, 0.0
        for name, values in state.items():
            change, of_residual = values - before[name], current[name] - before_residual[name]
            step = abs(float((change * of_residual).sum() / ((of_residual**2).sum() + 1e-5)))
            if change.abs().max() <= 1e-8 and of_residual.abs().max() <= 1e-8:
                step = 1.0
            updated[name] = values - step * current[name]
            moved += float((updated[name] - values).norm() / (values.norm() + 1e-5))
        before, before_residual, state = state, current, updated
        if moved < 1e-5 or moved > divergence:
            break
    return state


@pytest.mark.parametrize("divergence", [1e9, 0.5])
def test_the_solver_steps_and_stops_as_described(divergence: float):
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(6, 6, generator=generator, dtype=torch.float64) / 6
    target = torch.randn(10, 6, generator=generator, dtype=torch.float64)

    def residual(state):
        # "still" does not move at all, so its steps fall back to one.
        return {
            "p": state["p"] - target - torch.tanh(state["p"] @ matrix),
            "still": torch.zeros_like(state["still"]),
        }

    start = {"p": 0.1 * target, "still": torch.ones(10, 1, dtype=torch.float64)}
    wanted = plain_solver(residual, start, 7, divergence)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            found = ReleasedSolver(7, divergence)(residual, start, (10,))
        torch.testing.assert_close(dict(found), wanted, rtol=1e-10, atol=1e-12)


def test_one_case_that_stops_early_leaves_the_others_of_its_batch_alone():
    generator = torch.Generator().manual_seed(4)
    target = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    far = torch.cat([torch.ones(4, 1), torch.full((5, 1), 1e6)]).double()

    def residual(state):
        return {"p": (state["p"] - torch.sin(state["p"]) - target) * far[: len(state["p"])]}

    def part(rows: slice):
        return lambda state: {"p": (state["p"] - torch.sin(state["p"]) - target[rows]) * far[rows]}

    together = ReleasedSolver(6, 100.0)(residual, {"p": target}, (4, 5))["p"]
    alone = [ReleasedSolver(6, 100.0)(part(rows), {"p": target[rows]}, ())["p"] for rows in (slice(0, 4), slice(4, 9))]
    torch.testing.assert_close(together, torch.cat(alone))


def test_the_released_laplacian_of_a_vector_is_the_gradient_of_its_divergence():
    # u = (y^2, 0, 0): the Laplacian of each component is (2, 0, 0), the gradient of the divergence is zero.
    axes = [np.linspace(0, 1, 7)] * 3
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    number = np.arange(343).reshape(7, 7, 7)
    corners = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
    cells = np.stack([number[a : a + 6, b : b + 6, c : c + 6].ravel() for a, b, c in corners], axis=1)
    operators = Operators.on(Mesh.from_arrays(points, cells))
    vector = torch.zeros(3, 343, 1, dtype=torch.float64)
    vector[0, :, 0] = torch.from_numpy(points[:, 1] ** 2)
    released_laplacian = contract_gradient(operators, gradient_of_vector(operators, vector))
    inside = torch.from_numpy(((points > 0.2) & (points < 0.8)).all(axis=1))
    assert released_laplacian[:, inside].abs().max() < 1e-10
    ours = operators.laplacian(vector.transpose(0, 1))
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


def test_trained_networks_turn_with_the_case_in_space(reference: Path, flow_sample: released.Sample):
    network = released.load(reference / "weights" / "flow_penn_n4_rep4.npz").double()
    # Trained weights amplify round-off, by about 1e3 here; found 7e-12.
    assert_equivariant(network, flow_sample.case, motions=1, tolerance=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_advection_diffusion_networks_turn_with_the_case(kind: str):
    network = made(released.ReleasedAdvectionDiffusion, kind, iterations=2)
    assert network.equivariant
    assert_equivariant(network, heated_plate(cells=(6, 6)))


def test_advection_diffusion_finds_the_thin_direction_of_a_turned_slab(ad_samples: dict[str, released.Sample]):
    network = made(released.ReleasedAdvectionDiffusion, "PENN", iterations=2)
    assert_equivariant(network, ad_samples["u0.5_d0.5_t0.5"].case)


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


def test_a_plane_case_gives_what_its_slab_gives(ad_samples: dict[str, released.Sample]):
    slab = ad_samples["u0.6_d0.5_t0.6"].case
    mesh = Mesh.plane_of(slab.mesh)
    assert mesh.layer is not None
    plane = Case(
        mesh.with_patches({"inlet": lambda x: np.isclose(x[:, 0], 0.0)}),
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": float(slab.dirichlet["T"].values.max())}},
        parameters={"velocity": slab.parameters["velocity"][:2], "diffusivity": slab.parameters["diffusivity"]},
        features={"inlet_distance": slab.features["inlet_distance"][mesh.layer]},
    )
    network = made(released.ReleasedAdvectionDiffusion, "PENN", iterations=3)
    torch.testing.assert_close(network(plane)["T"], network(slab)["T"][mesh.layer], rtol=1e-9, atol=1e-11)


def test_a_batch_gives_what_its_cases_give_one_by_one(ad_samples: dict[str, released.Sample]):
    network = made(released.ReleasedAdvectionDiffusion, "PENN", iterations=4)
    cases = [ad_samples[name].case for name in AD_SAMPLES[:3]]
    together = batch(cases)
    for fields, case in zip(unbatch(network(together), together), cases, strict=True):
        torch.testing.assert_close(fields["T"], network(case)["T"], rtol=1e-9, atol=1e-11)


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


# Files


def names_and_tensors(network: torch.nn.Module, prefix: str = "dict_block.") -> dict[str, Tensor]:
    """The network under the authors' names, shared tensors stored again, as in their checkpoints."""
    return {
        prefix + theirs: tensor.detach().clone()
        for name, tensor in network.state_dict().items()
        for theirs in released._released_names(network, name)
    }


def all_networks() -> list[torch.nn.Module]:
    torch.manual_seed(2)
    flows = [released.ReleasedFlow(4, kind, iterations=3) for kind in KINDS]
    plates = [released.ReleasedAdvectionDiffusion(8, kind, iterations=3, hidden=4) for kind in KINDS]
    return [*flows, *plates, released.ReleasedGradient("isogcn"), released.ReleasedGradient("neumannisogcn")]


FOLDERS = {
    "PENN": "penn_n4_rep3",
    "A": "wo_encoded_boundary_rep3",
    "B": "wo_boundary_condition_in_nns_rep3",
    "C": "wo_neural_nonlinear_solver_rep3",
    "D": "wo_boundary_condition_input_rep3",
    "E": "wo_dirichlet_layer_rep3",
    "F": "wo_pseudoinverse_decoder_rep3",
    "G": "wo_pseudoinverse_decoder_w_dirichlet_layer_after_decoding_rep3",
}


@pytest.mark.parametrize("new_format", [True, False])
def test_checkpoints_of_the_authors_are_read_back_whole(tmp_path: Path, new_format: bool):
    for number, network in enumerate(all_networks()):
        folder = tmp_path / str(number) / FOLDERS.get(network.kind, network.kind)
        folder.mkdir(parents=True)
        checkpoint = {
            "epoch": 7,
            "validation_loss": np.float64(0.25),  # the authors' numbers are NumPy's
            "model_state_dict": names_and_tensors(network),
            "optimizer_state_dict": {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 1e-3}]},
        }
        torch.save(checkpoint, folder / "model", _use_new_zipfile_serialization=new_format)
        for path in (folder / "model", folder):
            loaded = released.load(path)
            assert type(loaded) is type(network)
            assert loaded.kind == network.kind
            assert getattr(loaded, "iterations", 3) == 3
            for ours, theirs in zip(loaded.parameters(), network.parameters(), strict=True):
                assert torch.equal(ours, theirs)


def test_any_wrapping_of_the_names_will_do(tmp_path: Path):
    network = released.ReleasedFlow(4)
    for prefix, wrap in (("module.dict_block.", lambda d: d), ("dict_block.", lambda d: {"state": {"model": d}})):
        torch.save(wrap(names_and_tensors(network, prefix)), tmp_path / "weights.pth")
        assert torch.equal(next(released.load(tmp_path / "weights.pth").parameters()), next(network.parameters()))


def save_arrays(path: Path, tensors: dict[str, Tensor]) -> Path:
    np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    return path


def test_names_decide_what_tensors_leave_open(tmp_path: Path):
    trained = {k: v for k, v in names_and_tensors(released.ReleasedFlow(4)).items() if "reference_block" not in k}
    plain = {k: v for k, v in names_and_tensors(released.ReleasedFlow(4, "F")).items() if "reference_block" not in k}
    file = save_arrays(tmp_path / "weights.npz", trained)
    assert released.load(file).kind == "PENN"
    assert released.load(file).iterations == 8
    assert released.load(file, iterations=5, kind="C").kind == "C"
    assert released.load(file, iterations=5, kind="C").iterations == 5
    assert released.load(save_arrays(tmp_path / "flow_wo_neural_nonlinear_solver.npz", trained)).kind == "C"
    assert released.load(save_arrays(tmp_path / "flow_penn_n4_rep12.npz", trained)).iterations == 12
    with pytest.raises(ValueError, match="may be any of the rows B, F, G"):
        released.load(save_arrays(tmp_path / "weights.npz", plain))
    with pytest.raises(ValueError, match=r"row 'G' according to the call.*PENN or C or D"):
        released.load(save_arrays(tmp_path / "other.npz", trained), kind="G")
    with pytest.raises(ValueError, match="row 'E' according to its name"):
        released.load(save_arrays(tmp_path / "wo_dirichlet_layer.npz", trained))


def test_copies_of_a_shared_tensor_must_agree(tmp_path: Path):
    tensors = names_and_tensors(released.ReleasedFlow(4))
    tensors["dict_block.DECODER.reference_block.linears.0.weight"] += 1
    with pytest.raises(ValueError, match=r"weights.npz.*DECODER.reference_block.linears.0.weight differs from IN_U"):
        released.load(save_arrays(tmp_path / "weights.npz", tensors))


def test_missing_unknown_and_broken_tensors_are_named(tmp_path: Path):
    tensors = names_and_tensors(released.ReleasedFlow(4))
    group = "dict_block.GROUP1.group.dict_block."
    del tensors[group + "GCN.subchains.0.0.weight"]
    tensors[group + "ISO_GCN_JACOBIAN.subchains.0.0.weight"] = torch.zeros(4, 5)
    tensors[group + "U_MLP.linears.0.bias"][1] = torch.nan
    tensors[group + "SURPRISE.weight"] = torch.zeros(2)
    with pytest.raises(ValueError, match="does not fit ReleasedFlow") as refusal:
        released.load(save_arrays(tmp_path / "broken.npz", tensors))
    for part in (
        "broken.npz",
        "GCN.subchains.0.0.weight is missing",
        "ISO_GCN_JACOBIAN.subchains.0.0.weight is [4, 5], not [4, 4]",
        "U_MLP.linears.0.bias is not finite",
        "SURPRISE.weight is unknown",
    ):
        assert part in str(refusal.value)


class Payload:
    def __reduce__(self):
        return (Path.touch, (Path("pwned"),))


def test_foreign_and_corrupt_files_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noise.npz").write_bytes(b"\x00\x01 no archive at all")
    (tmp_path / "empty").write_bytes(b"")
    torch.save({"model": {"layer.weight": torch.ones(2)}}, tmp_path / "other.pt")
    torch.save({"model_state_dict": Payload()}, tmp_path / "evil.pth")
    np.savez(tmp_path / "objects.npz", a=np.array([Payload()], dtype=object))
    whole = save_arrays(tmp_path / "cut.npz", names_and_tensors(released.ReleasedFlow(4)))
    whole.write_bytes(whole.read_bytes()[:3000])
    with zipfile.ZipFile(tmp_path / "text.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    np.savez(tmp_path / "near.npz", **{"dict_block.ELSE.weight": np.ones(3)})
    names = ("noise.npz", "empty", "other.pt", "evil.pth", "objects.npz", "cut.npz", "text.zip", "near.npz")
    for name in names:
        with pytest.raises(ValueError, match=name):
            released.load(tmp_path / name)
    assert not (tmp_path / "pwned").exists()
    with pytest.raises(FileNotFoundError, match=r"absent.npz"):
        released.load(tmp_path / "absent.npz")
    for name in ("noise.npz", "near.npz"):
        with pytest.raises(ValueError, match=name):
            released.read_sample(tmp_path / name)


def test_a_file_of_several_networks_asks_which(reference: Path):
    file = reference / "expected" / "random_weights__grad__tiny_brick.npz"
    with pytest.raises(ValueError, match=r"2 networks.*kind="):
        released.load(file)


def test_a_sample_is_a_case_with_its_targets(flow_sample: released.Sample, ad_samples: dict[str, released.Sample]):
    case = flow_sample.case
    assert (flow_sample.name, flow_sample.problem) == ("flow_a1_1.00", "flow")
    assert case.number_of_points == 4648
    assert case.targets["u"].shape == (4648, 3)
    assert float(case.initial["p"].abs().max()) == 0.0
    # Inlet and wall together are the points with a prescribed velocity; the outlet has its pressure prescribed.
    sizes = {name: len(patch.points) for name, patch in case.mesh.patches.items()}
    assert sizes == {"inlet": 46, "wall": 266, "outlet": 92}
    assert int(case.dirichlet["u"].mask.sum()) == 312
    plate_case = ad_samples["u0.5_d0.6_t0.6"].case
    assert plate_case.targets["T"].shape == (242, 4)
    assert plate_case.parameters["velocity"].tolist() == pytest.approx([0.5, 0.0, 0.0])
    assert float(plate_case.parameters["diffusivity"]) == pytest.approx(0.6)


def test_released_weights_say_which_row_of_the_paper_they_are(reference: Path):
    flow = released.load(reference / "weights" / "flow_penn_n16_rep4.npz")
    config = checkpoints.config_of(flow)
    assert config is not None
    assert (config.network, config.row, config.paper) == ("released-flow", "authors_n16_r4", "penn_n16_r4")
    rebuilt = registry.build(config.network, config.arguments)
    rebuilt.load_state_dict(flow.state_dict())
    heat = released.load(reference / "weights" / "advection_diffusion_wo_neural_nonlinear_solver.npz")
    config = checkpoints.config_of(heat)
    assert config is not None
    assert (config.row, config.paper) == ("authors_C", "ablation_c")
