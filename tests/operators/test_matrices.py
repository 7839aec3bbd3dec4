"""The matrices of the operators: what they hold, in batches and from elsewhere."""

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.testing import assert_close

from meshes import walled
from pennpde.mesh import Mesh
from pennpde.operators import Operators

# Precision, devices, tracing

double = torch.float64


def test_matrices_share_their_index_tensors_also_after_conversion_and_in_batches():
    operators = Operators.on(walled("quad"))
    for each in (operators, operators.to(torch.float32), Operators.block_diagonal([operators, operators])):
        assert each.gradient.columns is each.divergence.transposed_columns
        assert each.gradient.transposed_columns is each.divergence.columns


# Batches


@pytest.mark.parametrize("dtype", [torch.float32, double])
@pytest.mark.parametrize("kinds", [("quad", "triangle", "polygon"), ("hexahedron", "tetrahedron", "wedge")])
def test_meshes_side_by_side_give_what_they_give_one_by_one_bit_for_bit(kinds, dtype):
    meshes = [walled(kind, 2 + number, jitter=0.2) for number, kind in enumerate(kinds)]
    separate = [Operators.on(mesh, ["left"], dtype=dtype) for mesh in meshes]
    together = Operators.block_diagonal(separate)
    fields = [torch.randn(mesh.number_of_points, mesh.space, 3, dtype=dtype) for mesh in meshes]
    for method in ("grad", "div", "laplacian", "hessian"):
        expected = [getattr(operators, method)(field) for operators, field in zip(separate, fields, strict=True)]
        assert torch.equal(getattr(together, method)(torch.cat(fields)), torch.cat(expected))
    assembled = Operators.on(Mesh.concatenate(meshes), ["left"], dtype=dtype)
    assert torch.equal(assembled.grad(torch.cat(fields)), together.grad(torch.cat(fields)))
    assert Operators.block_diagonal(separate[:1]) is separate[0]


# The matrices themselves


def test_gradient_matrices_are_the_gradient_axis_by_axis():
    mesh = walled("tetrahedron", jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, dtype=double)
    found = np.stack([matrix @ field.numpy() for matrix in operators.gradient_matrices()], axis=1)
    assert_close(torch.from_numpy(found), operators.grad(field), rtol=0, atol=1e-13)
    for matrix in operators.gradient_matrices():
        assert abs(matrix.sum(axis=1)).max() < 1e-13  # a constant has no gradient
        assert matrix.has_sorted_indices


def test_stored_transposes_are_transposes():
    operators = Operators.on(walled("mixed_solid", jitter=0.2), ["left"])
    for matrix in (operators.gradient, operators.divergence):
        assert abs(matrix.transposed.to_scipy() - matrix.to_scipy().T).max() == 0


def test_the_divergence_is_the_sum_of_the_gradient_matrices():
    mesh = walled("wedge", jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, 3, dtype=double)
    expected = sum(matrix @ field[:, axis].numpy() for axis, matrix in enumerate(operators.gradient_matrices()))
    assert_close(operators.div(field).numpy(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["quad", "tetrahedron"])
def test_the_composed_laplacian_is_div_of_grad_with_fewer_entries(kind):
    mesh = walled(kind, 5, jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    composed = operators.composed()
    field = torch.randn(mesh.number_of_points, 2, dtype=double, requires_grad=True)
    expected = operators.div(operators.grad(field))
    assert torch.equal(operators.laplacian(field), expected)
    scale = float(expected.detach().abs().max())
    assert_close(composed.laplacian(field), expected, rtol=0, atol=1e-13 * scale)
    back = [torch.autograd.grad(each.laplacian(field).square().sum(), field)[0] for each in (operators, composed)]
    assert_close(*back, rtol=1e-11, atol=1e-11 * float(back[0].abs().max()))
    given = torch.ones_like(field)
    assert_close(composed.laplacian(field, given), operators.laplacian(field, given), rtol=0, atol=1e-13 * scale)
    assert composed.composed() is composed
    assert composed.composed_laplacian.values.numel() < 2 * operators.gradient.values.numel()
    for changed in (composed.scaled(0.5), Operators.block_diagonal([composed, composed]).scaled(0.5)):
        twice = torch.cat([field] * (changed.number_of_points // mesh.number_of_points))
        assert_close(changed.laplacian(twice), changed.div(changed.grad(twice)), rtol=0, atol=1e-13 * scale)
    assert Operators.block_diagonal([composed, operators]).composed_laplacian is None
    assert composed.to(torch.float32).composed_laplacian.values.dtype == torch.float32
    with pytest.raises(ValueError, match=r"composed with a damping of 0 .*, asked for is 0\.25"):
        composed.composed(damping=0.25)


def test_scaled_operators_have_another_unit_of_length():
    mesh = walled("quad", jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    field, given = torch.randn(2, mesh.number_of_points, dtype=double)
    half = operators.scaled(0.5)
    assert torch.equal(half.grad(field, given), 0.5 * operators.grad(field, given))
    assert torch.equal(half.laplacian(field, given), 0.25 * operators.laplacian(field, given))


def test_matrices_from_elsewhere_become_the_same_operators():
    mesh = walled("mixed_plane", 4, jitter=0.2)
    operators = Operators.on(mesh, ["left"])
    again = Operators.from_matrices(
        operators.gradient_matrices(),
        moment_inverse=operators.moment_inverse,
        neumann_lift=operators.neumann_lift,
    )
    field, given = torch.randn(2, mesh.number_of_points, 2, 3, dtype=double)
    for method in ("grad", "div", "laplacian"):
        arguments = (field,) if method == "div" else (field, given)
        assert torch.equal(getattr(again, method)(*arguments), getattr(operators, method)(*arguments))


def test_matrices_from_elsewhere_need_not_be_symmetric_in_pattern_nor_of_one_precision():
    generator = np.random.default_rng(0)
    matrices = [
        scipy.sparse.random_array((9, 9), density=0.2, rng=generator).astype(np.float32).tocsr() for _ in range(2)
    ]
    operators = Operators.from_matrices(matrices, moment_inverse=torch.zeros(9, 2, 2, dtype=double))
    field = torch.randn(9, 4)
    expected = np.stack([matrix @ field.numpy() for matrix in matrices], axis=1)
    assert_close(operators.grad(field).numpy(), expected)
    assert operators.moment_inverse.dtype == operators.gradient.values.dtype == torch.float32
    field = torch.randn(9, 2, requires_grad=True)
    (back,) = torch.autograd.grad(operators.grad(field), field, torch.ones(9, 2, 2))
    assert_close(back.numpy()[:, 0], sum(matrix.T @ np.ones(9, dtype=np.float32) for matrix in matrices))
