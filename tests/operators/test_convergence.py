"""How fast the operators approach the derivatives of a smooth field when the mesh gets finer."""

import numpy as np
import pytest
import torch
from torch import Tensor

from meshes import PLANE_TYPES, bent, walled
from pennpde.mesh import Mesh
from pennpde.operators import Operators


def smooth(x: Tensor) -> Tensor:
    return torch.sin(2 * x[:, 0] + 0.3) * torch.exp(x[:, 1]) + x[:, -1] ** 3


def smooth_gradient(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(smooth(x).sum(), x)[0]


def smooth_hessian(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(smooth(x).sum(), x, create_graph=True)
    return torch.stack([torch.autograd.grad(g.sum(), x, retain_graph=True)[0] for g in gradient.T], dim=1)


def smooth_laplacian(x: Tensor) -> Tensor:
    return -3 * torch.sin(2 * x[:, 0] + 0.3) * torch.exp(x[:, 1]) + 6 * x[:, -1]


def order(errors: list[float], sizes: list[int]) -> float:
    """The slope of the error over the distance between points, in logarithms."""
    return -float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def errors(mesh: Mesh, neumann: bool = False) -> dict[str, Tensor]:
    x = mesh.points
    operators = Operators.on(mesh, ["boundary"] if neumann else None)
    gradient = smooth_gradient(x)
    given = (gradient * mesh.normals).sum(dim=1) if neumann else None
    return {
        "grad": (operators.grad(smooth(x), given) - gradient).norm(dim=1),
        "div": operators.div(gradient) - smooth_laplacian(x),
        "laplacian": operators.laplacian(smooth(x), given) - smooth_laplacian(x),
        "hessian": (operators.hessian(smooth(x), given) - smooth_hessian(x)).flatten(1).norm(dim=1),
    }


def inside(mesh: Mesh) -> Tensor:
    return ((mesh.points > 0.2) & (mesh.points < 0.8)).all(dim=1)


SIZES = {2: [12, 24, 48], 3: [8, 12, 18]}


def sizes_of(kind: str) -> list[int]:
    return SIZES[2] if kind in PLANE_TYPES else SIZES[3]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [lambda mesh: mesh, bent], ids=["regular", "bent"])
@pytest.mark.parametrize("kind", ["quad", "triangle", "hexahedron"])
def test_inside_a_regular_or_smoothly_bent_mesh_all_operators_are_of_second_order(kind, shape):
    sizes = sizes_of(kind)
    found = []
    for size in sizes:
        mesh = shape(walled(kind, size))
        found.append({name: rms(error[inside(mesh)]) for name, error in errors(mesh).items()})
    for name in ("grad", "div", "laplacian", "hessian"):
        assert order([each[name] for each in found], sizes) > 1.7, name


@pytest.mark.parametrize("jitter", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["quad", "tetrahedron"])
def test_up_to_the_boundary_and_on_jittered_meshes_grad_and_div_are_of_first_order(kind, jitter):
    sizes = sizes_of(kind)
    meshes = [walled(kind, size, jitter) for size in sizes]
    plain = [errors(mesh) for mesh in meshes]
    for name in ("grad", "div"):
        assert 0.75 < order([float(each[name].abs().max()) for each in plain], sizes) < 1.4, name
    conditioned = [errors(mesh, neumann=True)["grad"] for mesh in meshes]
    assert 0.75 < order([float(each.max()) for each in conditioned], sizes) < 1.4
    # What the normal derivative is for: the boundary is where the gradient is worst.
    for mesh, without, with_condition in zip(meshes, plain, conditioned, strict=True):
        boundary = mesh.boundary_points
        assert rms(with_condition[boundary]) < 0.8 * rms(without["grad"][boundary])


@pytest.mark.parametrize("neumann", [False, True])
def test_the_laplacian_at_the_boundary_stays_bounded_and_has_no_order(neumann):
    """Its error there is of order one in a strip that thins with the mesh, so the mean square converges with 1/2."""
    sizes = SIZES[2]
    found = [errors(walled("quad", size), neumann)["laplacian"] for size in sizes]
    assert abs(order([float(error.abs().max()) for error in found], sizes)) < 0.15
    assert 0.35 < order([rms(error) for error in found], sizes) < 0.6


def test_the_laplacian_of_a_jittered_mesh_is_wrong_in_proportion_to_the_jitter_at_every_resolution():
    """The fit of a fit: the gradient's first-order error is as rough as the mesh, and is divided by h once more."""
    sizes = SIZES[2]
    found = [rms(errors(mesh)["laplacian"][inside(mesh)]) for mesh in (walled("quad", n, 0.2) for n in sizes)]
    assert abs(order(found, sizes)) < 0.2
    jitters = [0.05, 0.1, 0.2]
    by_jitter = [rms(errors(mesh)["laplacian"][inside(mesh)]) for mesh in (walled("quad", 48, j) for j in jitters)]
    growth = np.polyfit(np.log(jitters), np.log(by_jitter), 1)[0]
    assert 0.8 < growth < 1.2


def averaged(mesh: Mesh, error: Tensor) -> Tensor:
    """The mean against a smooth bump in the middle of the mesh."""
    bump = (1 - (mesh.points - 0.5).square().sum(dim=1) / 0.16).clamp_min(0) ** 3 * mesh.point_volumes
    return (error * bump).sum() / bump.sum()


def test_averaged_over_a_jittered_mesh_the_gradient_is_of_second_order_and_the_laplacian_nearly_unbiased():
    sizes = SIZES[2]
    gradients, laplacians, pointwise = [], [], []
    for size in sizes:
        meshes = [walled("quad", size, 0.2, seed) for seed in range(8)]
        gradient = [
            averaged(m, Operators.on(m).grad(smooth(m.points))[:, 0] - smooth_gradient(m.points)[:, 0]) for m in meshes
        ]
        gradients.append(rms(torch.stack(gradient)))
        every = [errors(m)["laplacian"] for m in meshes]
        laplacians.append(rms(torch.stack([averaged(m, error) for m, error in zip(meshes, every, strict=True)])))
        pointwise.append(rms(every[0][inside(meshes[0])]))
    assert order(gradients, sizes) > 1.7
    # The errors of points nearly cancel, as the noise of h^(d/2) that they are; at this jitter a bias of some 1e-3
    # remains (of the jitter's fourth power: 3e-2 at 0.4).
    assert order(laplacians, sizes) > 0.7
    assert laplacians[-1] < 0.02 * pointwise[-1]
