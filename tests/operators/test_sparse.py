"""The sparse product: against SciPy, its derivatives, and under everything that traces it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.testing import assert_close

from pennpde.operators.sparse import SparseMatrix, _sparse_product, _stack, index_tensor


@pytest.fixture(autouse=True)
def _same_numbers_each_time():
    torch.manual_seed(0)


def random_matrix(rows=7, columns=5, seed=0, dtype=np.float64) -> scipy.sparse.csr_matrix:
    generator = np.random.default_rng(seed)
    matrix = scipy.sparse.random_array((rows, columns), density=0.4, rng=generator, data_sampler=generator.normal)
    return scipy.sparse.csr_matrix(matrix, dtype=dtype)


def parts(matrix: SparseMatrix) -> tuple[torch.Tensor, ...]:
    return (
        matrix.row_starts,
        matrix.columns,
        matrix.values,
        matrix.transposed_row_starts,
        matrix.transposed_columns,
        matrix.transposed_values,
    )


def with_values(matrix: SparseMatrix, values: torch.Tensor) -> SparseMatrix:
    """The matrix with other entries, and the same ones in its transpose: as gradients reach what a flow is made of."""
    places = scipy.sparse.csr_matrix(
        (np.arange(len(values)) + 1, matrix.columns.numpy(), matrix.row_starts.numpy()), shape=matrix.shape
    )
    order = torch.from_numpy(places.T.tocsr().data - 1)
    return SparseMatrix(
        matrix.row_starts,
        matrix.columns,
        values,
        matrix.transposed_row_starts,
        matrix.transposed_columns,
        values[order],
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [0, 1, 3, 16, 33])
def test_the_product_is_scipys(dtype, channels):
    ours, theirs = SparseMatrix.from_scipy(random_matrix(dtype=dtype)), random_matrix(dtype=dtype)
    dense = np.random.default_rng(1).normal(size=(5, channels)).astype(dtype)
    assert_close((ours @ torch.from_numpy(dense)).numpy(), theirs @ dense)
    across = np.random.default_rng(2).normal(size=(7, channels)).astype(dtype)
    assert_close((ours.transposed @ torch.from_numpy(across)).numpy(), theirs.T @ across)


def test_a_matrix_survives_the_way_through_scipy():
    matrix = random_matrix()
    back = SparseMatrix.from_scipy(matrix).to_scipy()
    assert back.shape == matrix.shape
    assert abs(back - matrix).max() == 0


def test_rows_without_entries_give_zero():
    matrix = scipy.sparse.csr_matrix(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]))
    result = SparseMatrix.from_scipy(matrix) @ torch.ones(2, 1, dtype=torch.float64)
    assert result[:, 0].tolist() == [0.0, 2.0, 0.0]
    empty = SparseMatrix.from_scipy(scipy.sparse.csr_matrix((3, 2)))
    assert torch.equal(empty @ torch.ones(2, 4, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64))


def test_strided_and_expanded_fields_are_taken_as_they_are():
    matrix, dense = SparseMatrix.from_scipy(random_matrix()), torch.randn(5, 6, dtype=torch.float64)
    assert_close(matrix @ dense[:, ::2], matrix @ dense[:, ::2].contiguous(), rtol=0, atol=0)
    assert_close(matrix @ dense.T.contiguous().T, matrix @ dense, rtol=0, atol=0)
    column = dense[:, :1].expand(5, 6)
    assert_close(matrix @ column, matrix @ column.contiguous(), rtol=0, atol=0)


def test_backward_is_the_adjoint():
    matrix = SparseMatrix.from_scipy(random_matrix())
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(7, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(matrix @ x, x, y)
    assert_close((gradient * x).sum(), ((matrix @ x) * y).sum())
    assert_close(gradient.detach().numpy(), random_matrix().T @ y.numpy())


def test_first_and_second_derivatives_by_the_field():
    matrix = SparseMatrix.from_scipy(random_matrix())
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda field: matrix @ field, x)
    assert torch.autograd.gradgradcheck(lambda field: torch.tanh(matrix @ torch.sin(field)), x)


def test_first_and_second_derivatives_by_the_entries():
    matrix = SparseMatrix.from_scipy(random_matrix())
    values = matrix.values.clone().requires_grad_()
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)

    def product(values, x):
        return with_values(matrix, values) @ torch.sin(x)

    assert torch.autograd.gradcheck(product, (values, x))
    assert torch.autograd.gradgradcheck(product, (values, x))


@pytest.mark.slow
@pytest.mark.parametrize("entries_too", [False, True])
def test_the_operator_is_registered_as_pytorch_asks(entries_too):
    matrix = SparseMatrix.from_scipy(random_matrix())
    if entries_too:
        matrix = replace(matrix, values=matrix.values.clone().requires_grad_())
    dense = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(_sparse_product, (*parts(matrix), dense))
    torch.library.opcheck(_sparse_product, (*parts(matrix), torch.randn(3, 5, dtype=torch.float64).T))


def norm_of_product(*arguments):
    return torch.tanh(_sparse_product(*arguments)).square().sum()


@pytest.mark.slow
def test_it_compiles_whole_forward_and_backward_and_for_other_sizes():
    # aot_eager traces all that inductor would, with the backward, but needs no C++ compiler.
    compiled = torch.compile(norm_of_product, fullgraph=True, backend="aot_eager", dynamic=True)

    def check(rows, columns, channels):
        matrix = SparseMatrix.from_scipy(random_matrix(rows, columns))
        x = torch.randn(columns, channels, dtype=torch.float64, requires_grad=True)
        expected = norm_of_product(*parts(matrix), x)
        found = compiled(*parts(matrix), x)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found, x), torch.autograd.grad(expected, x))

    check(7, 5, 3)
    with torch.compiler.set_stance("fail_on_recompile"):
        check(20, 11, 6)
        check(9, 30, 17)


class Product(torch.nn.Module):
    def forward(self, row_starts, columns, values, transposed_row_starts, transposed_columns, transposed_values, dense):
        matrix = SparseMatrix(row_starts, columns, values, transposed_row_starts, transposed_columns, transposed_values)
        return torch.relu(matrix @ dense)


def test_it_exports_with_free_numbers_of_points_edges_and_channels():
    matrix = SparseMatrix.from_scipy(random_matrix())
    dense = torch.randn(5, 3, dtype=torch.float64)
    free = torch.export.Dim.DYNAMIC
    shapes = [{0: free}] * 6 + [{0: free, 1: free}]
    exported = torch.export.export(Product(), (*parts(matrix), dense), dynamic_shapes=tuple(shapes))
    assert "pennpde.sparse_product" in exported.graph_module.code
    other = SparseMatrix.from_scipy(random_matrix(13, 31, seed=5))
    field = torch.randn(31, 8, dtype=torch.float64)
    assert_close(exported.module()(*parts(other), field), torch.relu(other @ field))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_single_precision(half):
    matrix = SparseMatrix.from_scipy(random_matrix(dtype=np.float32))
    dense = torch.randn(5, 3)
    with torch.autocast("cpu", dtype=half):
        result = matrix @ dense.to(half)
        again = matrix @ dense
    assert result.dtype == again.dtype == torch.float32
    assert_close(again, matrix @ dense, rtol=0, atol=0)
    assert_close(result, matrix @ dense.to(half).float(), rtol=0, atol=0)


def test_a_block_diagonal_matrix_acts_block_by_block_bit_for_bit():
    matrices = [SparseMatrix.from_scipy(random_matrix(rows, rows + 2, seed=rows)) for rows in (4, 6, 5)]
    fields = [torch.randn(matrix.shape[1], 3, dtype=torch.float64) for matrix in matrices]
    together = SparseMatrix.block_diagonal(matrices)
    separate = torch.cat([matrix @ field for matrix, field in zip(matrices, fields, strict=True)])
    assert together.shape == (15, 21)
    assert torch.equal(together @ torch.cat(fields), separate)
    expected = scipy.sparse.block_diag([matrix.to_scipy() for matrix in matrices])
    assert abs(together.to_scipy() - expected).max() == 0
    assert abs(together.transposed.to_scipy() - expected.T).max() == 0


def test_scaling_scales_the_transpose_too():
    matrix = SparseMatrix.from_scipy(random_matrix()).scaled(-2.5)
    assert_close(matrix.to_scipy().toarray(), -2.5 * random_matrix().toarray())
    assert_close(matrix.transposed.to_scipy().toarray(), -2.5 * random_matrix().T.toarray())


def test_another_precision_changes_values_and_leaves_indices():
    matrix = SparseMatrix.from_scipy(random_matrix()).to(torch.float32)
    assert matrix.values.dtype == matrix.transposed_values.dtype == torch.float32
    assert matrix.columns.dtype == matrix.row_starts.dtype == torch.int32


def test_what_32_bits_do_not_hold_is_refused():
    with pytest.raises(ValueError, match=r"index 2,147,483,648 passes what 32 bits hold"):
        index_tensor(np.array([0, 2**31]))
    huge = torch.empty(1).expand(2**30)  # no memory: one number, strided zero
    part = (torch.zeros(2, dtype=torch.int32), huge, huge, 1)
    with pytest.raises(ValueError, match="Take fewer cases"):
        _stack([part, part, part])
