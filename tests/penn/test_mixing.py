"""Channel mixing: a linear layer, whichever way its gradients are computed."""

import pytest
import torch
from torch.testing import assert_close

from pennpde.penn import mixing
from pennpde.penn.mixing import Linear, mix

double = torch.float64
SHAPES = [(16, 16), (48, 16), (32, 80), (3, 16)]


@pytest.mark.parametrize(("channels", "out"), SHAPES)
def test_mixing_is_a_linear_layer_on_fields_of_any_rank(channels, out):
    torch.manual_seed(0)
    weight, bias = torch.randn(out, channels, dtype=double), torch.randn(out, dtype=double)
    for axes in ((), (2,), (3, 3)):
        values = torch.randn(20, *axes, channels, dtype=double)
        assert_close(mix(values, weight, bias), values @ weight.T + bias)
    layer = Linear(channels, out).double()
    assert_close(layer(values), values @ layer.weight.T + layer.bias)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_operator_has_the_gradients_of_a_linear_layer(has_bias, is_turned):
    """Twice differentiable, too: what a GPU computes by the operator must serve whatever a CPU's plain layer serves."""
    torch.manual_seed(0)
    values = torch.randn(300, 12, dtype=double, requires_grad=True)
    matrix = torch.randn(12, 16, dtype=double) if is_turned else torch.randn(16, 12, dtype=double)
    weight = (matrix.T if is_turned else matrix).requires_grad_()
    bias = torch.randn(16, dtype=double, requires_grad=True) if has_bias else None
    inputs = [each for each in (values, weight, bias) if each is not None]

    def gradients(function, create_graph=False):
        loss = function(values, weight, bias).pow(3).sum()
        return torch.autograd.grad(loss, inputs, create_graph=create_graph)

    for found, expected in zip(gradients(mixing._mix), gradients(torch.nn.functional.linear), strict=True):
        assert_close(found, expected)

    def second(function):
        first = gradients(function, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), inputs)

    for found, expected in zip(second(mixing._mix), second(torch.nn.functional.linear), strict=True):
        assert_close(found, expected)


def test_the_operators_are_registered_as_pytorch_wants_them():
    values, weight, bias = torch.randn(40, 16), torch.randn(8, 16), torch.randn(8)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(mixing._mix, (values.requires_grad_(), weight.requires_grad_(), bias), test_utils=checks)
    arguments = (torch.randn(40, 8), values.detach(), weight.detach())
    torch.library.opcheck(mixing._mixing_gradients, arguments, test_utils=checks)


@pytest.mark.gpu
@pytest.mark.parametrize("points", [1, 127, 29_800, 100_000])
@pytest.mark.parametrize(("channels", "out"), SHAPES)
def test_the_kernel_is_as_exact_as_single_precision(points, channels, out):
    torch.manual_seed(0)
    values = torch.randn(points, channels, device="cuda", requires_grad=True)
    weight = torch.randn(out, channels, device="cuda", requires_grad=True)
    bias = torch.randn(out, device="cuda", requires_grad=True)
    given = torch.randn(points, out, device="cuda")
    found = torch.autograd.grad(mix(values, weight, bias), (values, weight, bias), given)
    exact = [each.detach().double().requires_grad_() for each in (values, weight, bias)]
    expected = torch.autograd.grad(torch.nn.functional.linear(*exact), exact, given.double())
    for one, other in zip(found, expected, strict=True):
        # Rounding of sums over up to 1e5 terms, in blocks: some units in the last place of 6e-8.
        assert float((one - other).norm() / other.norm()) < 1e-6
