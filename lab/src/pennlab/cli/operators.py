"""`penn operators`: what a condition on the normal derivative is worth to a gradient, past a cylinder."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from torch import Tensor

    from pennpde.mesh import Mesh

EXAMPLES = ["penn operators --out operators", "penn operators --out operators --json"]

_RADIUS = 0.5
_HALF_WIDTH = 2.0


def run(
    output: Output,
    out: Annotated[Path, typer.Option(help="Folder for picture and fields.")] = Path("operators"),
) -> dict[str, Any]:
    """Differentiate on a mesh: the flow past a cylinder from its potential, with a picture.

    The velocity is the gradient of a potential that is known only at the points. If the operator includes the condition
    on the cylinder (no flow through its surface), the gradient satisfies it; otherwise it does not.
    """
    import torch

    from pennpde.operators import Operators
    from pennpde.pictures import DIVERGING, ERROR, Panel, draw

    mesh = _mesh_around_a_cylinder()
    potential, exact = _potential_flow(mesh.points)

    start = time.perf_counter()
    plain = Operators.on(mesh).grad(potential)
    velocity = Operators.on(mesh, neumann=("cylinder",)).grad(potential)
    seconds = time.perf_counter() - start

    surface = torch.as_tensor(mesh.patch("cylinder").points)
    normals = mesh.point_normals(("cylinder",))[surface]

    def largest_flow_through(field: "Tensor") -> float:
        return (field[surface] * normals).sum(dim=-1).abs().max().item()

    error = torch.linalg.vector_norm(velocity - exact, dim=-1)
    record = {
        "points": mesh.number_of_points,
        "seconds": seconds,
        "mean_error": error.mean().item(),
        "flow_through_without_condition": largest_flow_through(plain),
        "flow_through": largest_flow_through(velocity),
        "picture": str(out / "operators.png"),
        "fields": str(out / "operators.vtu"),
    }
    out.mkdir(parents=True, exist_ok=True)
    mesh.with_fields({"potential": potential, "velocity": velocity, "error": error}).save(out / "operators.vtu")
    panels = [
        Panel("potential", mesh, potential, DIVERGING),
        Panel("speed |∇φ|", mesh, velocity.norm(dim=-1), streamlines=velocity),
        Panel("error", mesh, error, ERROR),
    ]
    draw(out / "operators.png", [panels])
    output.say(
        f"Flow past a cylinder: gradient of its potential at {mesh.number_of_points} points in {seconds:.2f} s",
        f"  mean error (inflow speed 1)                         {record['mean_error']:.1e}",
        f"  flow through the cylinder, without its condition    {record['flow_through_without_condition']:.1e}",
        f"  flow through the cylinder, with its condition       {record['flow_through']:.1e}",
        f"Picture: {record['picture']}",
        f"Fields:  {record['fields']} (opens in ParaView)",
    )
    return record


def _mesh_around_a_cylinder(around: int = 128, outward: int = 40) -> "Mesh":
    """Quads between a circle and a square, finer towards the circle."""
    import numpy as np

    from pennpde.mesh import Mesh

    angle = np.linspace(0.0, 2 * np.pi, around, endpoint=False) + np.pi / 4
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    circle = _RADIUS * direction
    square = _HALF_WIDTH * direction / np.abs(direction).max(axis=-1, keepdims=True)
    share = (np.linspace(0.0, 1.0, outward) ** 1.5)[:, None, None]
    points = ((1 - share) * circle + share * square).reshape(-1, 2)
    index = np.arange(around * outward).reshape(outward, around)
    ahead = np.roll(index, -1, axis=1)
    quads = np.stack([index[:-1], index[1:], ahead[1:], ahead[:-1]], axis=-1).reshape(-1, 4)
    mesh = Mesh.from_arrays(points, quads)
    return mesh.with_patches({"cylinder": lambda x: np.isclose(np.linalg.norm(x, axis=-1), _RADIUS)})


def _potential_flow(points: "Tensor") -> tuple["Tensor", "Tensor"]:
    """Potential and velocity of a flow with speed 1 past a cylinder."""
    import torch

    x, y = points.unbind(dim=-1)
    squared_distance, squared_radius = x**2 + y**2, _RADIUS**2
    potential = x * (1 + squared_radius / squared_distance)
    velocity = torch.stack(
        [
            1 - squared_radius * (x**2 - y**2) / squared_distance**2,
            -2 * squared_radius * x * y / squared_distance**2,
        ],
        dim=-1,
    )
    return potential, velocity
