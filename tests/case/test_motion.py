"""Test sets after rigid motions."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pennpde.case import motion as rigid_motion
from pennpde.datasets import advection_diffusion, polynomial
from pennpde.operators import Operators


@pytest.fixture(scope="module")
def cases():
    names = [f"u0.50_d0.20_t{tenths / 10:.2f}" for tenths in range(1, 9)]
    run = advection_diffusion.Run(np.linspace(1, 0, 40).reshape(10, 4), {})
    return [advection_diffusion.case_from_run(run, name, 6, 0.15) for name in names]


@pytest.mark.parametrize("space", [2, 3])
def test_motions_are_orthogonal_and_half_of_them_reflect(space):
    random = np.random.default_rng(0)
    matrices = torch.stack([rigid_motion.random_motion(space, random)[0] for _ in range(400)])
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
        matrix, _ = rigid_motion.random_motion(space, random, reflections)
        assert_close(matrix @ matrix.T, torch.eye(space, dtype=torch.float64))
        assert float(torch.linalg.det(matrix)) == pytest.approx(determinant)


def test_each_case_has_its_own_motion_and_the_same_one_again(cases):
    first, again = rigid_motion.moved(cases), rigid_motion.moved(cases)
    other = rigid_motion.moved(cases, seed=1)
    for one, same, different in zip(first, again, other, strict=True):
        assert torch.equal(one.mesh.points, same.mesh.points)
        assert not torch.equal(one.mesh.points, different.mesh.points)
    turns = torch.stack([rigid_motion.motion_of(case)[0] for case in cases])
    assert len(torch.unique(turns, dim=0)) == len(cases)


def test_distances_scalars_and_volumes_stay_and_vectors_turn(cases):
    for case, moved in zip(cases, rigid_motion.moved(cases), strict=True):
        turn, shift = rigid_motion.motion_of(case)
        assert moved.name == case.name
        assert_close(moved.mesh.points, case.mesh.points @ turn.T + shift)
        assert_close(moved.mesh.cell_volumes, case.mesh.cell_volumes)
        assert_close(moved.mesh.distance_to("inlet"), case.mesh.distance_to("inlet"))
        assert_close(moved.parameters["velocity"], turn @ case.parameters["velocity"])
        assert torch.equal(moved.targets["T"], case.targets["T"])
        assert torch.equal(moved.dirichlet["T"].mask, case.dirichlet["T"].mask)


def test_the_gradient_turns_along_in_space():
    case = polynomial.gradient_case("test_000")
    (moved,) = rigid_motion.moved([case], seed=3)
    turn, _ = rigid_motion.motion_of(case, seed=3)
    assert_close(moved.targets["grad"], case.targets["grad"] @ turn.T)
    gradients = [
        Operators.on(each.mesh, neumann=("boundary",)).grad(
            each.initial["phi"], normal_derivative=each.neumann["phi"].normal_derivative
        )
        for each in (case, moved)
    ]
    assert_close(gradients[1], gradients[0] @ turn.T)
