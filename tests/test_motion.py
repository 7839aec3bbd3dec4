"""Cases and test sets after rigid motions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from flow_problems import flow, mask_of, square, tensors_of
from motions import random_orthogonal
from pennlab import motions as motions_of_sets
from pennlab.datasets import advection_diffusion, polynomial
from pennpde.case import Slip, batch
from pennpde.mesh.mesh import turned
from pennpde.operators import Operators
from pennpde.testing import random_motion

double = torch.float64


@pytest.fixture(scope="module")
def cases():
    names = [f"u0.50_d0.20_t{tenths / 10:.2f}" for tenths in range(1, 9)]
    run = advection_diffusion.Run(np.linspace(1, 0, 40).reshape(10, 4), {})
    return [advection_diffusion.case_from_run(run, name, 6, 0.15) for name in names]


@pytest.mark.parametrize("space", [2, 3])
def test_motions_are_orthogonal_and_half_of_them_reflect(space):
    random = np.random.default_rng(0)
    matrices = torch.stack([random_motion(space, random)[0] for _ in range(400)])
    unit = torch.eye(space, dtype=torch.float64).expand_as(matrices)
    assert_close(matrices @ matrices.mT, unit)
    determinants = torch.linalg.det(matrices)
    assert 160 < (determinants > 0).sum() < 240  # four standard deviations
    # Uniform over the group: each entry has mean zero and mean square 1 / space.
    assert_close(matrices.mean(dim=0), torch.zeros_like(unit[0]), rtol=0, atol=0.15)
    assert_close(matrices.square().mean(dim=0), torch.full_like(unit[0], 1 / space), rtol=0, atol=0.1)


@pytest.mark.parametrize("space", [2, 3])
@pytest.mark.parametrize(("reflections", "determinant"), [(False, 1.0), ("always", -1.0)])
def test_all_are_rotations_or_all_reflect_where_that_is_asked_for(space, reflections, determinant):
    random = np.random.default_rng(0)
    for _ in range(20):
        matrix, _ = random_motion(space, random, reflections)
        assert_close(matrix @ matrix.T, torch.eye(space, dtype=torch.float64))
        assert float(torch.linalg.det(matrix)) == pytest.approx(determinant)


def test_each_case_has_its_own_motion_and_the_same_one_again(cases):
    first, again = motions_of_sets.moved(cases), motions_of_sets.moved(cases)
    other = motions_of_sets.moved(cases, seed=1)
    for one, same, different in zip(first, again, other, strict=True):
        assert torch.equal(one.mesh.points, same.mesh.points)
        assert not torch.equal(one.mesh.points, different.mesh.points)
    turns = torch.stack([motions_of_sets.motion_of(case)[0] for case in cases])
    assert len(torch.unique(turns, dim=0)) == len(cases)


def test_distances_scalars_and_volumes_stay_and_vectors_turn(cases):
    for case, moved in zip(cases, motions_of_sets.moved(cases), strict=True):
        turn, shift = motions_of_sets.motion_of(case)
        assert moved.name == case.name
        assert_close(moved.mesh.points, case.mesh.points @ turn.T + shift)
        assert_close(moved.mesh.cell_volumes, case.mesh.cell_volumes)
        assert_close(moved.mesh.distance_to("inlet"), case.mesh.distance_to("inlet"))
        assert_close(moved.parameters["velocity"], turn @ case.parameters["velocity"])
        assert torch.equal(moved.targets["T"], case.targets["T"])
        assert torch.equal(moved.dirichlet["T"].mask, case.dirichlet["T"].mask)


def test_the_gradient_turns_along_in_space():
    case = polynomial.gradient_case("test_000")
    (moved,) = motions_of_sets.moved([case], seed=3)
    turn, _ = motions_of_sets.motion_of(case, seed=3)
    assert_close(moved.targets["grad"], case.targets["grad"] @ turn.T)
    gradients = [
        Operators.on(each.mesh, neumann=("boundary",)).grad(
            each.initial["phi"], normal_derivative=each.neumann["phi"].normal_derivative
        )
        for each in (case, moved)
    ]
    assert_close(gradients[1], gradients[0] @ turn.T)


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("kind", ["quad", "triangle", "hexahedron", "tetrahedron"])
def test_a_case_moves_as_a_rigid_body(kind, reflection):
    mesh = square(kind, 3)
    case = replace(flow(mesh), slip={"u": Slip(mask_of(mesh, "wall"), mesh.point_normals(["wall"]))})
    motion = random_orthogonal(mesh.space, seed=5, reflection=reflection)
    shift = torch.linspace(-1, 2, mesh.space, dtype=double)
    moved = case.moved(motion, shift)
    assert_close(moved.mesh.points, mesh.points @ motion.T + shift)
    ranks = {
        "initial.u": 1,
        "dirichlet.u.values": 1,
        "neumann.u.normals": 1,
        "neumann.p.normals": 1,
        "neumann.u.normal_derivative": 1,
        "slip.u.normals": 1,
        "features.stretch": 2,
        "targets.u": 1,  # and an axis of two times, which stays
    }
    for name, values in tensors_of(case).items():
        found = tensors_of(moved)[name]
        if name == "parameters.gravity":
            assert_close(found, motion @ values)
        elif values.dtype == torch.bool or values.ndim == 0:
            assert torch.equal(found, values)
        else:
            assert_close(found, turned(values, motion, ranks.get(name, 0)), rtol=0, atol=1e-13)
    assert_close(moved.neumann["u"].normals, moved.mesh.point_normals(["outlet"]), rtol=0, atol=1e-13)
    assert (moved.mesh.cell_volumes > 0).all()


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("kind", ["triangle", "hexahedron"])
def test_the_operators_of_a_moved_case_are_the_moved_operators(kind, reflection):
    case = flow(square(kind, 3))
    motion = random_orthogonal(case.space, seed=6, reflection=reflection)
    moved = case.moved(motion, torch.ones(case.space, dtype=double))
    for name, rank in (("u", 1), ("p", 0)):
        given = case.neumann[name].normal_derivative
        expected = turned(case.operators[name].grad(case.initial[name], given), motion, rank + 1)
        found = moved.operators[name].grad(moved.initial[name], moved.neumann[name].normal_derivative)
        assert (found - expected).norm() <= 1e-12 * expected.norm()


def test_a_motion_and_its_inverse_leave_the_case_as_it_was():
    case = flow(square("tetrahedron", 2))
    motion = random_orthogonal(3, seed=7, reflection=True)
    shift = torch.tensor([1.0, 2.0, 3.0], dtype=double)
    back = case.moved(motion, shift).moved(motion.T, -motion.T @ shift)
    for name, values in tensors_of(case).items():
        assert_close(tensors_of(back)[name], values, rtol=0, atol=1e-13)
    assert_close(back.mesh.points, case.mesh.points, rtol=0, atol=1e-13)


def test_a_batch_moves_as_its_cases_do():
    cases = [flow(square("quad", 3)), flow(square("triangle", 2))]
    motion, shift = random_orthogonal(2, seed=8), torch.tensor([0.3, -0.2], dtype=double)
    together, separate = batch(cases).moved(motion, shift), batch([case.moved(motion, shift) for case in cases])
    for name, values in tensors_of(separate).items():
        assert_close(tensors_of(together)[name], values, rtol=0, atol=1e-14)


def test_a_motion_that_is_not_rigid_is_refused():
    with pytest.raises(ValueError, match="orthogonal 2 x 2 matrix"):
        flow(square()).moved(torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=double), torch.zeros(2, dtype=double))
