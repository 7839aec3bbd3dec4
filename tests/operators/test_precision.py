"""Operators in other precisions, on a GPU, compiled and exported."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from meshes import walled
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from shapes import unchecked

double = torch.float64


@pytest.mark.parametrize("kind", ["quad", "hexahedron"])
def test_single_precision_is_the_double_one_rounded(kind):
    mesh = walled(kind, jitter=0.2)
    field = torch.sin(mesh.points)
    exact, rounded = Operators.on(mesh, ["left"]), Operators.on(mesh, ["left"], dtype=torch.float32)
    assert rounded.dtype == rounded.moment_inverse.dtype == rounded.neumann_lift.dtype == torch.float32
    assert torch.equal(rounded.gradient.values, exact.to(torch.float32).gradient.values)
    scale = exact.grad(field).abs().max()
    assert (rounded.grad(field.float()) - exact.grad(field)).abs().max() < 1e-5 * scale
    assert exact.to(double) is exact


def test_a_field_of_another_precision_or_size_is_refused_with_the_way_out():
    mesh = walled("quad")
    operators = Operators.on(mesh)
    with unchecked():
        with pytest.raises(ValueError, match=r"float32, the operators .* operators.to\(torch.float32\)"):
            operators.grad(torch.zeros(mesh.number_of_points))
        with pytest.raises(ValueError, match=rf"has {mesh.number_of_points} points .* got shape \[7\]"):
            operators.grad(torch.zeros(7, dtype=double))
        with pytest.raises(ValueError, match=r"shape \[points, 2, ...\]"):
            operators.div(torch.zeros(mesh.number_of_points, 3, dtype=double))
        with pytest.raises(ValueError, match=r"shape \[points, 2, ...\]"):
            operators.div(torch.zeros(mesh.number_of_points, dtype=double))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_under_autocast_half_precision_goes_in_and_single_comes_out(half):
    mesh = walled("quad")
    operators = Operators.on(mesh, ["left"], dtype=torch.float32)
    field = torch.sin(mesh.points).float().requires_grad_()
    with torch.autocast("cpu", dtype=half):
        linear_layer = torch.ones(2, 2) @ torch.ones(2, 2)
        assert linear_layer.dtype == half
        gradient = operators.grad(field.to(half), field.to(half))
        laplacian = operators.laplacian(field)
    assert gradient.dtype == laplacian.dtype == torch.float32
    assert_close(gradient, operators.grad(field.to(half).float(), field.to(half).float()))
    assert torch.autograd.grad(gradient.sum(), field)[0].isfinite().all()
    with (
        unchecked(),
        torch.autocast("cpu", dtype=half),
        pytest.raises(ValueError, match=r"operators are torch.float64"),
    ):
        Operators.on(mesh).grad(field.to(half))


@pytest.mark.slow
def test_operators_compile_whole_with_their_backward():
    meshes = [walled("quad", size, jitter=0.1) for size in (3, 5, 6)]

    def energy(operators: Operators, field: Tensor, given: Tensor) -> Tensor:
        return torch.tanh(operators.laplacian(field, given)).square().sum()

    compiled = torch.compile(energy, fullgraph=True, backend="aot_eager", dynamic=True)

    def check(mesh: Mesh, channels: int) -> None:
        operators = Operators.on(mesh, ["left"])
        field = torch.randn(mesh.number_of_points, channels, dtype=double, requires_grad=True)
        given = torch.ones_like(field)
        expected, found = energy(operators, field, given), compiled(operators, field, given)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found, field), torch.autograd.grad(expected, field))

    check(meshes[0], 3)
    with torch.compiler.set_stance("fail_on_recompile"):
        check(meshes[1], 5)
        check(meshes[2], 7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # inductor's own
def test_operators_compile_to_machine_code():
    mesh = walled("quad", 5, jitter=0.1)
    operators = Operators.on(mesh, ["left"])
    field = torch.randn(mesh.number_of_points, 4, dtype=double, requires_grad=True)
    compiled = torch.compile(lambda x: torch.tanh(operators.laplacian(torch.sin(x))), fullgraph=True)
    expected = torch.tanh(operators.laplacian(torch.sin(field)))
    assert_close(compiled(field), expected)
    assert_close(torch.autograd.grad(compiled(field).sum(), field), torch.autograd.grad(expected.sum(), field))


class Flux(torch.nn.Module):
    """Takes a mesh's matrices as inputs, as a network does that is exported once for all meshes."""

    def forward(self, gradient, divergence, field):
        lift = field.new_zeros(field.shape[0], 2)
        operators = Operators(gradient, divergence, gradient, field.new_zeros(field.shape[0], 2, 2), lift)
        return operators.div(torch.tanh(operators.grad(field)))


def test_operators_export_with_free_numbers_of_points_edges_and_channels():
    class FromTensors(torch.nn.Module):
        def forward(self, tensors, field):
            from pennpde.operators.sparse import SparseMatrix

            tall_starts, tall_columns, wide_starts, wide_columns, straight, across, wide, tall = tensors
            gradient = SparseMatrix(tall_starts, tall_columns, straight, wide_starts, wide_columns, across)
            divergence = SparseMatrix(wide_starts, wide_columns, wide, tall_starts, tall_columns, tall)
            return Flux()(gradient, divergence, field)

    def tensors(operators: Operators) -> list[Tensor]:
        gradient, divergence = operators.gradient, operators.divergence
        return [
            gradient.row_starts,
            gradient.columns,
            gradient.transposed_row_starts,
            gradient.transposed_columns,
            gradient.values,
            gradient.transposed_values,
            divergence.values,
            divergence.transposed_values,
        ]

    mesh, other = walled("quad", 3, jitter=0.1), walled("triangle", 5, jitter=0.1)
    operators = Operators.on(mesh)
    free = torch.export.Dim.DYNAMIC
    exported = torch.export.export(
        FromTensors(),
        (tensors(operators), torch.randn(mesh.number_of_points, 3, dtype=double)),
        dynamic_shapes=([{0: free}] * 8, {0: free, 1: free}),
    )
    operators = Operators.on(other)
    field = torch.randn(other.number_of_points, 5, dtype=double)
    found = exported.module()(tensors(operators), field)
    assert_close(found, operators.div(torch.tanh(operators.grad(field))))


def test_operators_export_as_constants_of_a_network(tmp_path):
    mesh = walled("quad", 3)

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.operators = Operators.on(mesh, ["left"], dtype=torch.float32)

        def forward(self, field):
            return self.operators.grad(torch.sin(field))

    field = torch.randn(mesh.number_of_points, 4)
    free = torch.export.Dim.DYNAMIC
    exported = torch.export.export(Network(), (field,), dynamic_shapes=({1: free},))
    torch.export.save(exported, tmp_path / "network.pt2")
    read = torch.export.load(tmp_path / "network.pt2").module()
    more = torch.randn(mesh.number_of_points, 9)
    assert_close(read(more), Network()(more))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, double])
@pytest.mark.parametrize("kind", ["quad", "tetrahedron", "hexahedron"])
def test_the_gpu_computes_what_the_cpu_computes(kind, dtype):
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    mesh = walled(kind, 5, jitter=0.2)
    here = Operators.on(mesh, ["left"], dtype=dtype)
    there = Operators.on(mesh, ["left"], dtype=dtype, device="cuda")
    for channels in (1, 5, 16, 70):
        field = torch.randn(mesh.number_of_points, mesh.space, channels, dtype=dtype)
        on_device = field.cuda().requires_grad_()
        field.requires_grad_()
        for method in ("grad", "div", "laplacian", "hessian"):
            expected, found = getattr(here, method)(field), getattr(there, method)(on_device)
            tolerance = {torch.float32: 1e-5, double: 1e-13}[dtype] * float(expected.detach().abs().max())
            assert_close(found.cpu(), expected, rtol=0, atol=tolerance)
            cotangent = torch.randn_like(expected)
            (back,) = torch.autograd.grad(expected, field, cotangent)
            (back_there,) = torch.autograd.grad(found, on_device, cotangent.cuda())
            assert_close(back_there.cpu(), back, rtol=0, atol=2 * tolerance * float(cotangent.abs().max()))
