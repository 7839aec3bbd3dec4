"""Linear elasticity: finite elements of the right order, a network that obeys single components and turns."""

import numpy as np
import torch

from pennlab.elasticity import INTERVALS, Plate, case_of, energy, network, points_of, solved, stiffness, triangles_of
from pennpde.testing import assert_equivariant

PLATE = Plate(0.4, 0.3, 0.3)


def test_rigid_motions_have_no_energy_and_a_uniform_strain_the_one_of_the_formula():
    points, triangles = points_of(PLATE, 6), triangles_of(6)
    matrix = stiffness(points, triangles, 0.3)
    turned = np.stack([-points[:, 1], points[:, 0]], axis=1)
    for motion in (np.ones_like(points), turned):
        assert abs(matrix @ motion.ravel()).max() < 1e-12
    (x, y), (s, t) = ((points[triangles][:, k] - points[triangles][:, 0]).T for k in (1, 2))
    area = 0.5 * abs(x * t - y * s).sum()
    pulled = np.stack([-0.3 * points[:, 0], points[:, 1]], axis=1).ravel()  # uniaxial stress: energy 1/2 E per area
    assert np.isclose(0.5 * pulled @ (matrix @ pulled), 0.5 * area, rtol=1e-12)


def test_elements_converge_with_the_square_of_their_size():
    coarse, middle, fine = (
        solved(PLATE, number).reshape(number + 1, number + 1, 2)[:: number // 8, :: number // 8]
        for number in (8, 16, 32)
    )
    ratio = np.linalg.norm(middle - coarse) / np.linalg.norm(fine - middle)
    assert 2.5 < ratio < 5


def test_the_network_holds_single_components_and_turns_with_the_plate():
    torch.manual_seed(0)
    model = network(width=4, iterations=3).double()
    for parameter in model.parameters():  # away from the start, which gives the start field
        parameter.data += 0.02 * torch.randn_like(parameter)
    case = case_of(PLATE, reference=False)
    with torch.no_grad():
        u = model(case)["u"]
    points = case.mesh.points
    assert (u[points[:, 0] == 0, 0] == 0).all()
    assert (u[points[:, 1] == 0, 1] == 0).all()
    assert (u[points[:, 1] == 1, 1] == 1).all()
    assert u[points[:, 1] == 1, 0].std() > 0
    assert_equivariant(model, case)


def test_the_solution_on_the_same_cells_has_the_least_energy():
    case = case_of(PLATE, reference=False)
    least = torch.from_numpy(solved(PLATE, INTERVALS))
    generator = torch.Generator().manual_seed(0)
    of_least = energy(lambda _: {"u": least}, case, torch.ones(1))
    for _ in range(3):
        shift = 1e-2 * torch.randn(least.shape, generator=generator, dtype=torch.float64)
        other = case.fulfilled({"u": least + shift})["u"]
        assert energy(lambda _, other=other: {"u": other}, case, torch.ones(1)) > of_least
