"""SOAP: Adam in the eigenvectors of the gradients."""

import pytest
import torch
from torch import nn

from pennpde.train import steps
from pennpde.train.steps import Soap


def test_soap_turns_into_the_eigenvectors_of_the_gradients():
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))[0]
    matrix = nn.Parameter(torch.zeros(5, 3, dtype=torch.float64))
    gradient = steps._one_gradient([matrix])
    soap = Soap([matrix], gradient, (0.9, 0.99), memory=0.99)
    for _ in range(400):
        noise = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        gradient.copy_((turn @ (torch.tensor([16.0, 8.0, 4.0, 2.0, 1.0])[:, None] * noise)).flatten())
        soap.step(0.0)
        soap.refresh()
    seen = soap.left_vectors[0].T @ soap.left[0] @ soap.left_vectors[0]
    rest = seen - seen.diagonal().diag()
    assert rest.abs().max() < 1e-2 * seen.diagonal().max()
    torch.testing.assert_close(soap.left_vectors[0].T @ soap.left_vectors[0], torch.eye(5, dtype=torch.float64))
    soap.reset()
    assert torch.equal(soap.left_vectors[0], torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize(("columns", "expected"), [(16, 10), (128, 10), (400, 100)])
def test_soap_turns_the_eigenvectors_of_large_matrices_less_often(columns, expected):
    matrix = torch.nn.Parameter(torch.zeros(8, columns))
    assert Soap([matrix], torch.zeros(8 * columns), (0.9, 0.99)).refresh_every == expected
