"""Derivatives of a field on any PyVista mesh, without a network.

    python examples/operators_on_a_mesh.py

The gradient is exact for linear fields. On the boundary, where neighbours lie on one side only, a known normal
derivative replaces the missing ones: this is the difference between NIsoGCN and IsoGCN.
"""

from pathlib import Path

import torch
from pyvista import examples

import pennpde as penn


def main(folder="."):
    mesh = penn.Mesh.from_pyvista(examples.load_hexbeam())
    mesh = mesh.with_patches({"surface": mesh.boundary_points})
    x, y, z = mesh.points.T
    field = x**2 - y * z
    exact = torch.stack([2 * x, -z, -y], dim=1)

    plain = penn.Operators.on(mesh)
    informed = penn.Operators.on(mesh, neumann=["surface"])
    normal_derivative = (mesh.normals * exact).sum(dim=1)  # known from a boundary condition
    slope = informed.grad(field, normal_derivative)  # [points, 3]
    curvature = informed.laplacian(field, normal_derivative)  # [points]

    errors = {
        "of a linear field": plain.grad(x - 2 * y) - torch.tensor([1.0, -2.0, 0.0]),
        "without the normal derivative": plain.grad(field) - exact,
        "with the normal derivative": slope - exact,
    }
    errors = {name: float(error.square().mean().sqrt()) for name, error in errors.items()}
    print(mesh)
    for name, error in errors.items():
        print(f"root mean square error of the gradient {name}: {error:.2g}")
    written = Path(folder) / "beam.vtu"
    mesh.with_fields({"field": field, "slope": slope, "curvature": curvature}).save(written)
    print(f"Fields are in {written}; open them with ParaView.")
    return errors


if __name__ == "__main__":
    main()
