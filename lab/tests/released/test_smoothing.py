"""The smoothing that the authors' flow network applies."""

import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix

from pennlab.datasets.split_quads import triangulated
from pennlab.released.layers import released_smoothing
from problems import brick, rectangle


@pytest.mark.parametrize("kind", ["triangle", "hexahedron"])
def test_smoothing_is_the_normalised_adjacency(kind):
    mesh = brick() if kind == "hexahedron" else triangulated(rectangle())
    edges, number = mesh.edges, mesh.number_of_points
    adjacency = coo_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), (number, number))
    adjacency = adjacency.toarray() + np.eye(number)
    smoothing = released_smoothing(mesh, torch.float64, torch.device("cpu"))
    degree = adjacency.sum(axis=1)
    expected = adjacency / np.sqrt(degree[:, None] * degree[None, :])
    np.testing.assert_allclose(smoothing.to_scipy().toarray(), expected, atol=1e-12)
    # Its largest eigenvalue is one, for the square roots of the degrees: repeated smoothing stays bounded.
    root = torch.from_numpy(np.sqrt(degree))
    torch.testing.assert_close((smoothing @ root[:, None])[:, 0], root)
    assert np.linalg.eigvalsh(expected).max() == pytest.approx(1.0)
