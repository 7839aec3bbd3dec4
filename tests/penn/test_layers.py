"""Laws of the trainable parts."""

import pytest
import torch
from torch.testing import assert_close

from motions import random_orthogonal
from pennpde.operators import Operators
from pennpde.penn.decoder import _left_inverse, pseudoinverse
from pennpde.penn.dirichlet import apply_dirichlet
from pennpde.penn.encoder import Encoder
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import Divergence, Gradient, Laplacian, NIsoGCN, dot, invariant, scale_by, squared_norm
from problems import brick, rectangle

ENCODERS = {
    "linear": lambda: Encoder.linear(16),
    "linear with bias": lambda: Encoder((1, 16), bias=True),
    "leaky": lambda: Encoder((1, 8, 16), bias=True),
    "leaky at the end too": lambda: Encoder((1, 8, 16), ("leaky_relu", "leaky_relu"), bias=True),
    "three layers": lambda: Encoder((1, 4, 8, 16)),
}
ROUND_OFF = {torch.float32: 1e-4, torch.float64: 1e-12}
"""A random layer of 8 to 16 channels has a condition number of some ten; three of them multiply."""


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", ROUND_OFF)
@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_the_pseudoinverse_gives_back_what_was_encoded(make, dtype):
    encoder = make().to(dtype)
    for shape in ((50,), (50, 2), (50, 3, 3)):
        values = torch.randn(shape, dtype=dtype)
        assert encoder(values).shape == (*shape, 16)
        assert_close(encoder.decode(encoder(values)), values, atol=ROUND_OFF[dtype], rtol=0)


def test_the_pseudoinverse_is_that_of_moore_and_penrose():
    for weight in (torch.randn(16, 1, dtype=torch.float64), torch.randn(16, 8, dtype=torch.float64)):
        assert_close(pseudoinverse(weight), torch.linalg.pinv(weight))
        assert_close(_left_inverse(weight), torch.linalg.pinv(weight))  # what a GPU takes


def test_encoding_and_decoding_are_differentiable():
    encoder = Encoder((1, 4, 8), bias=True).double()
    values = torch.randn(5, dtype=torch.float64, requires_grad=True)
    state = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encoder, values)
    assert torch.autograd.gradcheck(encoder.decode, state)


def test_a_linear_encoder_commutes_with_derivatives_and_others_say_that_they_do_not():
    assert Encoder.linear(4).is_linear
    assert not Encoder((1, 4), bias=True).is_linear
    assert not Encoder((1, 2, 4)).is_linear
    mesh = rectangle((4, 4))
    operators, encoder, values = Operators.on(mesh), Encoder.linear(4).double(), torch.randn(25, dtype=torch.float64)
    assert_close(operators.grad(encoder(values)), encoder(operators.grad(values)))


def test_an_encoder_that_cannot_be_inverted_is_refused():
    with pytest.raises(ValueError, match="narrows"):
        Encoder((1, 16, 8))
    with pytest.raises(ValueError, match="'tanh' has no inverse"):
        Encoder((1, 4, 8), ("tanh", "identity"))


def test_the_dirichlet_layer_replaces_prescribed_points_whole_and_no_others():
    state, boundary = torch.randn(6, 3, 4), torch.randn(6, 3, 4)
    mask = torch.tensor([True, False, False, True, True, False])
    result = apply_dirichlet(state, boundary, mask)
    assert torch.equal(result[mask], boundary[mask])
    assert torch.equal(result[~mask], state[~mask])


def test_gradients_pass_the_dirichlet_layer_to_both_sides():
    state = torch.randn(4, 2, requires_grad=True)
    boundary = torch.randn(4, 2, requires_grad=True)
    mask = torch.tensor([True, False, True, False])
    apply_dirichlet(state, boundary, mask).sum().backward()
    assert torch.equal(state.grad[:, 0], (~mask).float())
    assert torch.equal(boundary.grad[:, 0], mask.float())


def test_invariants_do_not_turn():
    rotation = random_orthogonal(2, 0)
    vector = torch.randn(9, 2, 5, dtype=torch.float64)
    assert_close(squared_norm(torch.einsum("ij,pjc->pic", rotation, vector)), squared_norm(vector))
    scalar = torch.randn(9, 5)
    assert invariant(scalar) is scalar
    assert_close(squared_norm(scalar), scalar.square())


def test_scaling_treats_every_channel_by_itself():
    coefficient, tensor = torch.randn(7, 5), torch.randn(7, 3, 3, 5)
    assert_close(scale_by(coefficient, tensor), torch.einsum("pc,pijc->pijc", coefficient, tensor))


def test_the_advection_of_a_rotation_points_to_the_axis():
    mesh = rectangle()
    x, y = mesh.points.T
    rotation = torch.stack([-y, x], dim=1)[..., None]  # one channel
    advection = dot(rotation, Operators.on(mesh).grad(rotation))
    assert_close(advection[..., 0], -mesh.points)
    assert_close(dot(rotation, rotation)[:, 0], x**2 + y**2)


def test_a_layer_with_the_identity_as_mixing_is_the_operator():
    mesh = brick()
    operators = Operators.on(mesh, ("boundary",))
    scalar, vector, tensor = (torch.randn(mesh.number_of_points, *[3] * n, 2, dtype=torch.float64) for n in range(3))
    given = torch.randn(mesh.number_of_points, 2, dtype=torch.float64)

    def exact(layer: NIsoGCN) -> NIsoGCN:
        layer = layer.double()
        with torch.no_grad():
            layer.mixing.copy_(torch.eye(2))
        return layer

    gradient = exact(Gradient(2, coefficient=False))
    assert_close(gradient(scalar, operators, given), operators.grad(scalar, given))
    assert_close(gradient(vector, operators), operators.grad(vector))
    divergence = exact(Divergence(2, coefficient=False))
    assert_close(divergence(vector, operators), operators.div(vector))
    assert_close(divergence(tensor, operators), operators.div(tensor))
    laplacian = exact(Laplacian(2, coefficient=False))
    assert_close(laplacian(scalar, operators, given), operators.div(operators.grad(scalar, given)))


def test_a_layer_starts_near_the_operator():
    mesh = rectangle()
    operators = Operators.on(mesh)
    encoded = torch.exp(mesh.points.sum(dim=1))[:, None].expand(-1, 16).contiguous()
    layer = Laplacian(16, scale=0.5).double()
    start, expected = layer(encoded, operators).detach(), 0.5 * operators.laplacian(encoded)
    assert float((start - expected).norm() / expected.norm()) < 0.5


@pytest.mark.parametrize("make", [Gradient, Divergence, Laplacian])
def test_layers_turn_with_the_mesh(make):
    mesh = brick()
    rotation, translation = random_orthogonal(3, 0, reflection=True), torch.tensor([3.0, -1.0, 2.0])
    layer = make(4).double()
    vector = torch.randn(mesh.number_of_points, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        straight = layer(vector, Operators.on(mesh, ("boundary",)))
        turned = layer(
            torch.einsum("ij,pjc->pic", rotation, vector),
            Operators.on(mesh.moved(rotation, translation), ("boundary",)),
        )
    turn = {2: "pc->pc", 3: "ij,pjc->pic", 4: "ki,lj,pijc->pklc"}[straight.ndim]
    expected = torch.einsum(turn, *[rotation] * (straight.ndim - 2), straight)
    assert float((turned - expected).abs().amax() / expected.abs().amax()) < 1e-10


def test_a_network_with_a_start_begins_as_that_number():
    assert_close(MLP((3, 8, 2), start=1.0, spread=0.0)(torch.randn(9, 3)), torch.ones(9, 2))


def test_as_many_activations_as_layers():
    with pytest.raises(ValueError, match="2 layers"):
        MLP((1, 2, 3), ("tanh",))
