"""The authors' outputs from the authors' weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from pennlab.paper.samples import Sample
from pennlab.released import weights as released
from pennlab.released.flow import VELOCITY_SCALE
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from released_networks import AD_SAMPLES

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


def expected(reference: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(reference / "expected" / f"{name}.npz") as file:
        return {key: file[key] for key in file.files if "dict_block" not in key}


def relative_error(values: Tensor, truth: np.ndarray) -> float:
    return float(np.abs(values.detach().numpy() - truth).max() / np.abs(truth).max())


def absolute_error(values: Tensor, truth: np.ndarray) -> float:
    return float(np.abs(values.detach().numpy() - truth).max())


@pytest.mark.parametrize("weights", FLOW_WEIGHTS)
def test_released_flow_networks_give_the_authors_fields(reference: Path, flow_sample: Sample, weights: str):
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


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if kind in ("PENN", "D", "G") else pytest.mark.slow)
        for row, kind in RANDOM_FLOW.items()
    ],
)
def test_every_flow_ablation_gives_the_authors_fields(reference: Path, flow_sample: Sample, row: str):
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


# The default run has every row and every sample once; CI has all pairs of them.
@pytest.mark.parametrize(
    ("row", "sample"),
    [
        pytest.param(row, sample, marks=() if number == place else pytest.mark.slow)
        for number, row in enumerate(AD_ROWS)
        for place, sample in enumerate(AD_SAMPLES)
    ],
)
def test_advection_diffusion_networks_give_the_authors_fields(
    reference: Path, ad_samples: dict[str, Sample], row: str, sample: str
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


def test_stored_operators_differ_from_ours_by_single_precision(reference: Path, flow_sample: Sample):
    network = released.load(reference / "weights" / "flow_penn_n4_rep4.npz").double()
    assembled = network.inputs(flow_sample.case).operators
    stored = flow_sample.inputs.operators
    for ours, theirs in zip(assembled.gradient_matrices(), stored.gradient_matrices(), strict=True):
        assert abs(ours - theirs).max() < 1e-6 * abs(theirs).max()
    smoothings = network.inputs(flow_sample.case).smoothing, flow_sample.inputs.smoothing
    assert abs(smoothings[0].to_scipy() - smoothings[1].to_scipy()).max() < 1e-7
