"""The operators against the matrices that the released code stored, from points and cells alone."""

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.testing import assert_close

from pennlab.released.layers import released_smoothing
from pennpde.mesh import Mesh, Patch
from pennpde.operators import Operators

ADVECTION_DIFFUSION = ("u0.5_d0.5_t0.5", "u0.5_d0.6_t0.6", "u0.6_d0.5_t0.6", "u0.6_d0.6_t0.5")
SAMPLES = ("flow_a1_1.00", *(f"advection_diffusion_{name}" for name in ADVECTION_DIFFUSION))


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request, reference):
    with np.load(reference / "samples" / f"{request.param}.npz") as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def mesh(sample) -> Mesh:
    """The sample's mesh; its Neumann boundary is all of the flow's, and all but the two z faces of the other's."""
    cells = {name: sample[key] for name, key in (("hexahedron", "hex"), ("wedge", "prism")) if key in sample}
    mesh = Mesh.from_arrays(sample["points"], cells)
    chosen = np.arange(len(mesh.facets))
    if "prism" not in sample:
        chosen = chosen[mesh.facet_normals[:, 2].abs() < 0.5]
    points = np.unique(mesh.facets.take(chosen).connectivity)
    return Mesh(
        mesh.points,
        mesh.connectivity,
        mesh.offsets,
        mesh.cell_types,
        patches={"neumann": Patch(points, chosen)},
    )


@pytest.fixture(scope="module")
def operators(mesh) -> Operators:
    return Operators.on(mesh, ["neumann"])


def stored_matrix(sample: dict, name: str) -> scipy.sparse.csr_matrix:
    number = len(sample["points"])
    entries = sample[f"{name}_value"].astype(float), (sample[f"{name}_row"], sample[f"{name}_col"])
    return scipy.sparse.csr_matrix(entries, shape=(number, number))


def test_normals(sample, mesh):
    assert_close(mesh.point_normals(["neumann"]), torch.from_numpy(sample["normal"]).double(), rtol=0, atol=1e-6)


def test_gradient_matrices(sample, operators):
    for axis, ours in zip("xyz", operators.gradient_matrices(), strict=True):
        theirs = stored_matrix(sample, f"grad_{axis}")
        assert abs(ours - theirs).max() <= 1e-5  # they stored float32, up to 1e2 large
        # They drop what is exactly zero; all that they keep we have.
        assert theirs.nnz <= ours.nnz


def test_moment_inverses(sample, operators):
    """They are not stored as such: G_ij |r|^2 = M^-1 r for all neighbours gives them back."""
    points, inverse = sample["points"], operators.moment_inverse.numpy()
    matrices = [stored_matrix(sample, f"grad_{axis}").tolil() for axis in "xyz"]
    for point in range(0, len(points), 97):
        neighbours = np.unique(np.concatenate([matrix.rows[point] for matrix in matrices]))
        neighbours = neighbours[neighbours != point]
        offsets = points[neighbours] - points[point]
        weights = np.stack([matrix[point, neighbours].toarray().ravel() for matrix in matrices], axis=1)
        images = weights * (offsets**2).sum(axis=1, keepdims=True)
        recovered = np.linalg.lstsq(offsets, images, rcond=None)[0].T
        # Neighbours that lie in a thin layer tell little across it, hence in float32 not better than this.
        assert np.abs(recovered - inverse[point]).max() <= 2e-5 * np.abs(inverse[point]).max()


def test_normalised_adjacency(sample, mesh):
    ours = released_smoothing(mesh, torch.float64, torch.device("cpu")).to_scipy()
    theirs = stored_matrix(sample, "gcn")
    assert ours.nnz == theirs.nnz
    assert abs(ours - theirs).max() <= 1e-7


def test_the_scale_of_the_stored_operators_is_a_root_mean_square_of_diagonals(sample, operators):
    """Their unit of length: all first derivatives divided by one number, taken over a whole dataset."""
    sigma = 6.53346373815793 if "prism" in sample else 99.9117394321183
    for axis, ours in zip("xyz", operators.scaled(1 / sigma).gradient_matrices(), strict=True):
        assert abs(ours - stored_matrix(sample, f"scaled_grad_{axis}")).max() <= 2e-6


def test_stored_matrices_serve_as_operators(sample, operators):
    stored = Operators.from_matrices([stored_matrix(sample, f"grad_{axis}") for axis in "xyz"])
    field = torch.sin(torch.from_numpy(sample["points"]))
    for method in ("grad", "div"):
        expected = getattr(operators, method)(field)
        scale = float(expected.abs().max())
        assert_close(getattr(stored, method)(field), expected, rtol=0, atol=1e-5 * scale)


def test_a_brick_with_stored_moment_inverses_in_double_precision(reference):
    with np.load(reference / "expected" / "random_weights__grad__tiny_brick.npz") as stored:
        brick = dict(stored)
    mesh = Mesh.from_arrays(brick["node"], {"hexahedron": brick["elements"].astype(np.int64)})
    mesh = mesh.with_patches({"boundary": lambda x: np.ones(len(x), dtype=bool)})
    operators = Operators.on(mesh, "boundary").scaled(1 / float(brick["sigma"]))
    assert_close(mesh.normals.numpy(), brick["normal"], rtol=0, atol=1e-14)
    assert_close(operators.moment_inverse.numpy(), brick["minv_scaled"], rtol=0, atol=1e-14)
    for axis, ours in zip("xyz", operators.gradient_matrices(), strict=True):
        assert_close(ours.toarray(), brick[f"G{axis}"], rtol=0, atol=1e-13)
