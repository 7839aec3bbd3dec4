"""The sparse product behind every differential operator: forward and backward, on CPU and GPU.

A bare CSR tensor neither compiles nor exports (`torch.compile` refuses it as a constant), and its backward builds a
transpose each time. So the product is an operator of its own, `pennpde::sparse_product`, that takes plain index and
value tensors of the matrix *and* of its transpose. Backward is the same operator with the two exchanged, hence
differentiable any number of times.
"""

# ruff: noqa: ARG001  (a product takes its transpose for backward alone, and a fake takes what the real one takes)

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

if TYPE_CHECKING:
    import scipy.sparse

_LARGEST_INDEX = 2**31 - 1


@torch.library.custom_op("pennpde::sparse_product", mutates_args=())
def _sparse_product(
    row_starts: Tensor,
    columns: Tensor,
    values: Tensor,
    transposed_row_starts: Tensor,
    transposed_columns: Tensor,
    transposed_values: Tensor,
    dense: Tensor,
) -> Tensor:
    rows = row_starts.shape[0] - 1
    on_gpu = _triton_product() if dense.device.type == "cuda" else None
    if on_gpu is not None:
        return on_gpu(row_starts, columns, values, dense.contiguous(), rows)
    return multiply(row_starts, columns, values, dense)


@cache
def _hear_out_pytorch() -> None:
    """Let PyTorch say its one sentence per process, that CSR is in beta. CSR times dense, used here, is settled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1))


def multiply(row_starts: Tensor, columns: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    _hear_out_pytorch()
    size = row_starts.shape[0] - 1, dense.shape[0]
    # Checking the invariants of a matrix that never changes would cost more than the product of a small mesh.
    matrix = torch.sparse_csr_tensor(row_starts, columns, values, size, check_invariants=False)
    if dense.shape[1] == 1:
        # Half as dear as a matrix of one column, and to the last bit what `times_rows` gives.
        return torch.mv(matrix, dense[:, 0])[:, None]
    # torch.mm fills a result with zeros and then makes another; one number, expanded, needs no memory. On a large mesh
    # fresh memory takes as long as the product.
    nothing = dense.new_zeros(1, 1).expand(size[0], dense.shape[1])
    return torch.addmm(nothing, matrix, dense.contiguous(), beta=0)


def _is_plain(values: Tensor, dense: Tensor) -> bool:
    """Whether nobody but the caller looks at a product: no derivative, no compiler, no autocast, no GPU.

    Then the operator's own machinery, which loads PyTorch's compiler for more than a second, is not needed.
    """
    wanted = torch.is_grad_enabled() and (values.requires_grad or dense.requires_grad)
    watched = wanted or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return dense.device.type == "cpu" and not watched and type(dense) is Tensor


@_sparse_product.register_fake
def _(row_starts, columns, values, transposed_row_starts, transposed_columns, transposed_values, dense):
    return dense.new_empty((row_starts.shape[0] - 1, dense.shape[1]))


def _save_for_backward(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, gradient):
    row_starts, columns, values, t_row_starts, t_columns, t_values, dense = ctx.saved_tensors
    gradient_of_dense = gradient_of_values = None  # by values: optimisation of flows at a time, through their steps
    if ctx.needs_input_grad[6]:
        gradient_of_dense = _sparse_product(
            t_row_starts, t_columns, t_values, row_starts, columns, values, gradient.contiguous()
        )
    if ctx.needs_input_grad[2]:
        rows = torch.repeat_interleave(row_starts.diff(), output_size=columns.shape[0])
        gradient_of_values = (gradient[rows] * dense[columns]).sum(dim=1)
    # The transpose holds the same numbers, so the product does not depend on it a second time.
    return None, None, gradient_of_values, None, None, None, gradient_of_dense


_sparse_product.register_autograd(_backward, setup_context=_save_for_backward)
for _device in ("cpu", "cuda"):
    # Differences of neighbouring values are what the operators live on: half precision would cancel them away.
    torch.library.register_autocast("pennpde::sparse_product", _device, torch.float32)


@cache
def _triton_product() -> Callable[..., Tensor] | None:
    """The GPU kernel, or None where Triton is absent (then cuSPARSE does the work)."""
    try:
        import triton  # pyright: ignore[reportMissingImports]
        import triton.language as tl  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None

    @triton.jit
    def kernel(row_starts, columns, values, dense, result, rows, channels, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
        begin = tl.load(row_starts + row, mask=row < rows, other=0)
        end = tl.load(row_starts + row + 1, mask=row < rows, other=0)
        inside = (channel < channels)[None, :]
        total = tl.zeros((ROWS, CHANNELS), dtype=values.dtype.element_ty)
        for step in range(tl.max(end - begin)):
            entry = begin + step
            live = entry < end
            column = tl.load(columns + entry, mask=live, other=0)
            weight = tl.load(values + entry, mask=live, other=0.0)
            position = dense + column[:, None].to(tl.int64) * channels + channel[None, :]
            total += weight[:, None] * tl.load(position, mask=live[:, None] & inside, other=0.0)
        target = result + row[:, None].to(tl.int64) * channels + channel[None, :]
        tl.store(target, total, mask=(row < rows)[:, None] & inside)

    def product(row_starts, columns, values, dense, rows):
        channels = dense.shape[1]
        result = dense.new_empty((rows, channels))
        if rows == 0 or channels == 0:
            return result
        block_channels = min(64, triton.next_power_of_2(channels))
        # One program keeps about a thousand sums: enough loads in flight, few enough registers.
        block_rows = max(1, 512 // block_channels)
        grid = (triton.cdiv(rows, block_rows), triton.cdiv(channels, block_channels))
        kernel[grid](  # pyright: ignore[reportIndexIssue]
            row_starts,
            columns,
            values,
            dense,
            result,
            rows,
            channels,
            ROWS=block_rows,
            CHANNELS=block_channels,
        )
        return result

    return product


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A sparse matrix in compressed rows (32-bit indices) that also holds its transpose."""

    row_starts: Int[Tensor, " rows+1"]
    columns: Int[Tensor, " entries"]
    values: Float[Tensor, " entries"]
    transposed_row_starts: Int[Tensor, " columns+1"]
    transposed_columns: Int[Tensor, " entries"]
    transposed_values: Float[Tensor, " entries"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.row_starts.shape[0] - 1, self.transposed_row_starts.shape[0] - 1

    def __matmul__(self, dense: Float[Tensor, "columns channels"]) -> Float[Tensor, "rows channels"]:
        if _is_plain(self.values, dense):
            return multiply(self.row_starts, self.columns, self.values, dense)
        return _sparse_product(
            self.row_starts,
            self.columns,
            self.values,
            self.transposed_row_starts,
            self.transposed_columns,
            self.transposed_values,
            dense,
        )

    def times_rows(self, dense: Float[Tensor, "channels columns"]) -> Float[Tensor, "channels rows"]:
        """The product with each row of a matrix: for few channels, each of them in one piece."""
        if _is_plain(self.values, dense):
            _hear_out_pytorch()
            parts = (self.row_starts, self.columns, self.values)
            matrix = torch.sparse_csr_tensor(*parts, self.shape, check_invariants=False)
            return torch.stack([torch.mv(matrix, row) for row in dense])
        return torch.stack([(self @ row[:, None])[:, 0] for row in dense])

    @property
    def transposed(self) -> SparseMatrix:
        return SparseMatrix(
            self.transposed_row_starts,
            self.transposed_columns,
            self.transposed_values,
            self.row_starts,
            self.columns,
            self.values,
        )

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> SparseMatrix:
        return self.map(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else None))

    def map(self, change: Callable[[Tensor], Tensor]) -> SparseMatrix:
        """The matrix with each of its six tensors changed."""
        return SparseMatrix(*(change(getattr(self, part.name)) for part in fields(self)))

    def scaled(self, factor: float) -> SparseMatrix:
        return replace(self, values=self.values * factor, transposed_values=self.transposed_values * factor)

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        import scipy.sparse

        parts = (self.values, self.columns, self.row_starts)
        return scipy.sparse.csr_matrix(tuple(part.detach().cpu().numpy() for part in parts), shape=self.shape)

    @classmethod
    def from_scipy(cls, matrix: scipy.sparse.sparray | scipy.sparse.spmatrix) -> SparseMatrix:
        """Take over a SciPy matrix, in its own precision."""
        import scipy.sparse

        straight = scipy.sparse.csr_matrix(matrix)
        straight.sort_indices()
        return cls(*_compressed(straight), *_compressed(straight.T.tocsr()))

    @classmethod
    def block_diagonal(cls, matrices: list[SparseMatrix]) -> SparseMatrix:
        """One matrix with the given ones along its diagonal: a batch of meshes as one mesh."""
        straight = _stack([(m.row_starts, m.columns, m.values, m.shape[1]) for m in matrices])
        across = _stack(
            [(m.transposed_row_starts, m.transposed_columns, m.transposed_values, m.shape[0]) for m in matrices]
        )
        return cls(*straight, *across)


def index_tensor(indices: np.ndarray | Tensor) -> Int[Tensor, "..."]:
    """32-bit indices: they halve the memory traffic of the product against 64 bits."""
    tensor = torch.as_tensor(indices)
    if tensor.numel() > _LARGEST_INDEX or (tensor.numel() and int(tensor.max()) > _LARGEST_INDEX):
        raise ValueError(
            f"An operator with index {int(tensor.max()):,} passes what 32 bits hold ({_LARGEST_INDEX:,}). "
            "Split the mesh into parts and treat them one by one."
        )
    return tensor.to(torch.int32)


def _compressed(matrix: scipy.sparse.csr_matrix) -> tuple[Tensor, Tensor, Tensor]:
    return index_tensor(matrix.indptr), index_tensor(matrix.indices), torch.as_tensor(matrix.data)


def _stack(parts: list[tuple[Tensor, Tensor, Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    largest = max(sum(columns.shape[0] for _, columns, _, _ in parts), sum(width for *_, width in parts))
    if largest > _LARGEST_INDEX:
        raise ValueError(
            f"A batch with {largest:,} matrix entries passes what 32-bit indices hold ({_LARGEST_INDEX:,}). "
            "Take fewer cases at a time."
        )
    starts, columns, entries, width = [parts[0][0][:1]], [], 0, 0
    for row_starts, part_columns, _, part_width in parts:
        starts.append(row_starts[1:] + entries)
        columns.append(part_columns + width)
        entries += part_columns.shape[0]
        width += part_width
    return torch.cat(starts), torch.cat(columns), torch.cat([values for _, _, values, _ in parts])
