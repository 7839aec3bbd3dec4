"""Ends without viscous stress, [grad u + (grad u)^T] n = 0, known by the operators."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from flow_problems import square
from pennpde.case import Case, batch
from pennpde.case.conditions import StressFree
from pennpde.operators import Operators
from problems import brick


def box(space: int) -> Case:
    """A jittered square or a brick whose right side has no stress."""
    mesh = square("triangle", 5) if space == 2 else brick((4, 3, 3))
    end = float(mesh.points[:, 0].max())
    mesh = mesh.with_patches({"end": lambda x: abs(x[:, 0] - end) < 1e-9})
    return Case(mesh, initial={"u": [0.0] * space}, conditions={StressFree: {"u": "end"}})


def free_of_stress(space: int) -> Tensor:
    """Slopes A of u_i = A_ij x_j with (A + A^T) n = 0 for n along the first axis, of any rotation and shear else."""
    generator = torch.Generator().manual_seed(1)
    slopes = torch.randn(space, space, generator=generator, dtype=torch.float64)
    slopes[0, 0] = 0.0
    slopes[1:, 0] = -slopes[0, 1:]
    return slopes


@pytest.mark.parametrize("space", [2, 3])
def test_linear_fields_without_stress_are_exact_up_to_the_boundary(space):
    case = box(space)
    slopes = free_of_stress(space)
    assert float(slopes[0, 1:].abs().max()) > 0.1, "a field without such slopes would be exact anyway"
    u = case.mesh.points @ slopes.T
    operators = case.operators["u"]
    expected = slopes.T.expand(len(u), space, space)
    assert_close(operators.grad(u), expected, atol=1e-11, rtol=0)
    # With the normal derivative zero instead, which is what a Neumann outlet has, it is wrong there.
    plain = Case(case.mesh, initial={"u": [0.0] * space}, neumann={"u": {"end": 0.0}}).operators["u"]
    assert float((plain.grad(u) - expected).abs().max()) > 0.1
    composed = operators.composed()
    assert_close(composed.laplacian(u), operators.laplacian(u), atol=1e-10, rtol=0)


def test_channels_are_free_of_each_other_and_batches_of_their_cases():
    case = box(2)
    operators = case.operators["u"]
    u = torch.randn(case.number_of_points, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    together = operators.grad(u)
    for channel in range(3):
        assert_close(together[..., channel], operators.grad(u[..., channel]))
    two = Operators.block_diagonal([operators, operators])
    assert_close(two.grad(torch.cat([u, u])), torch.cat([together, together]))
    assert batch([case, case]).operators["u"].stress_normals is not None


def test_the_gradient_turns_with_the_field():
    case = box(2)
    angle = torch.tensor(0.7, dtype=torch.float64)
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    u = torch.randn(case.number_of_points, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    there = case.moved(turn, torch.tensor([0.3, -0.2], dtype=torch.float64)).operators["u"].grad(u @ turn.T)
    assert_close(there, torch.einsum("ij,pjk,lk->pil", turn, case.operators["u"].grad(u), turn))
