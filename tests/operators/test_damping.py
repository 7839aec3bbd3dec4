"""The Laplacian that damps what the composed one lets grow."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from meshes import walled
from pennlab.datasets.split_quads import triangulated
from pennpde.operators import Operators
from pennpde.operators.damping import Damping

double = torch.float64


@pytest.mark.parametrize("kind", ["quad", "triangle", "tetrahedron"])
@pytest.mark.parametrize("damping", [0.25, 1.0])
def test_the_damped_laplacian_vanishes_on_linear_fields_up_to_the_boundary(kind, damping):
    mesh = walled(kind, 5, jitter=0.2)
    patches = list(mesh.patches)
    operators = Operators.on(mesh, patches).composed(damping)
    slope = torch.arange(1.0, 1 + mesh.space, dtype=double)
    laplacian = operators.laplacian(mesh.points @ slope, mesh.point_normals(patches) @ slope)
    assert_close(laplacian, torch.zeros_like(laplacian), rtol=0, atol=1e-9)  # entries reach 1e3


def test_damping_makes_every_mode_decay_that_div_of_grad_lets_grow():
    mesh = walled("quad", 8, jitter=0.2).with_patches({"others": lambda x: (x[:, 0] > 1 - 1e-9) | (x[:, 1] % 1 == 0)})
    free = np.setdiff1d(np.arange(mesh.number_of_points), mesh.patch("left").points)
    operators = Operators.on(mesh, ["others"])

    def fastest(damping: float) -> float:
        matrix = operators.composed(damping).composed_laplacian.to_scipy().toarray()
        return float(np.linalg.eigvals(matrix[np.ix_(free, free)]).real.max())

    assert fastest(0.0) > 0.1
    # One side held, the others insulated: the slowest mode of the unit square decays with (pi / 2)^2. The boundary
    # is of first order, so on eight cells that is roughly so.
    assert -1.5 * (np.pi / 2) ** 2 < fastest(0.25) < -0.5 * (np.pi / 2) ** 2


def test_no_point_of_a_bad_mesh_feeds_its_own_value():
    """Sheared and split along random diagonals: some points have so few neighbours that plain damping is too weak."""
    grid = walled("quad", 10, jitter=0.2).with_patches({"others": lambda x: (x[:, 0] > 1 - 1e-9) | (x[:, 1] % 1 == 0)})
    mesh = triangulated(replace(grid, points=grid.points + 1.2 * grid.points[:, 1:] * torch.tensor([1.0, 0.0])), 1.0, 0)
    free = np.setdiff1d(np.arange(mesh.number_of_points), mesh.patch("left").points)
    operators = Operators.on(mesh, ["others"])
    plain, damped = (operators.composed(damping).composed_laplacian.to_scipy() for damping in (0.0, 0.25))
    assert plain.diagonal().max() > 0
    assert damped.diagonal().max() < 0
    assert np.linalg.eigvals(damped.toarray()[np.ix_(free, free)]).real.max() < -1.0
    more = operators.composed(Damping(0.25, smallest_decay=0.4)).composed_laplacian.to_scipy()
    assert (more.diagonal() <= damped.diagonal()).all()
    # Where div(grad) takes less than 0.1 of the roughness, the two together take 0.25 + 0.1 of it, or 0.25 + 0.4.
    assert more.diagonal().max() == pytest.approx(0.65 / 0.35 * damped.diagonal().max())
    assert operators.composed(Damping(0.25, smallest_decay=0.4)) is not operators.composed(0.25)


def test_operators_that_were_composed_for_a_prediction_serve_a_training():
    mesh = walled("quad", 4)
    operators = Operators.on(mesh)
    with torch.inference_mode():
        operators.composed(0.25)
    field = torch.randn(mesh.number_of_points, dtype=double, requires_grad=True)
    operators.composed(0.25).laplacian(field).square().sum().backward()
    assert field.grad is not None


def test_each_mesh_is_composed_once_whatever_batches_and_precisions_it_goes_through(monkeypatch):
    composed, multiply = [], Operators._multiplied_out
    monkeypatch.setattr(
        Operators, "_multiplied_out", lambda self, damping: composed.append(damping) or multiply(self, damping)
    )
    parts = [Operators.on(walled("quad", cells, jitter=0.2), ["left"]) for cells in (3, 4)]
    fields = [torch.randn(each.number_of_points, 2, dtype=double) for each in parts]
    alone = torch.cat([each.composed(0.25).laplacian(field) for each, field in zip(parts, fields, strict=True)])
    for _ in range(2):
        together = Operators.block_diagonal(parts).composed(0.25)
        assert_close(together.laplacian(torch.cat(fields)), alone, rtol=0, atol=1e-12 * float(alone.abs().max()))
    single = [each.to(torch.float32) for each in parts]
    found = Operators.block_diagonal(single).composed(0.25).laplacian(torch.cat(fields).float())
    assert_close(found.double(), alone, rtol=0, atol=1e-5 * float(alone.abs().max()))
    assert composed == [Damping(0.25)] * 2


def test_the_damped_laplacian_still_converges():
    """Inside a regular mesh, where div of grad is of second order, the damping takes none of it away."""
    errors = []
    for cells in (8, 16, 32):
        mesh = walled("quad", cells)
        x, y = mesh.points.T
        field = torch.sin(2 * x) * torch.exp(y)
        inside = ((mesh.points - 0.5).abs() < 0.3).all(dim=1)
        laplacian = Operators.on(mesh).composed(0.25).laplacian(field)
        errors.append(float((laplacian + 3 * field)[inside].abs().max()))
    assert errors[0] / errors[1] > 3.5
    assert errors[1] / errors[2] > 3.5
