"""`penn demo`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from torch import Tensor

    from pennpde.mesh import Mesh

EXAMPLES = ["penn demo", "penn demo --out /tmp/demo --json", "penn demo --operators"]

_RADIUS = 0.5
_HALF_WIDTH = 2.0
# A ramp between those of the training set (0, 0.1, ... 1), on a mesh finer than the 22.5 cells of training.
_STEP, _CELLS_PER_LENGTH, _SEED = "a_0.37", 24.5, 37


def run(
    output: Output,
    out: Annotated[Path, typer.Option(help="Folder for picture, fields and page.")] = Path("demo"),
    operators: Annotated[
        bool, typer.Option("--operators", help="Show the differential operators only, without a network.")
    ] = False,
) -> dict[str, Any]:
    """Predict the flow over a step that is absent from the training set: fields, picture, page, certificate.

    Uses the shipped network. Makes the mesh, computes the potential flow at the start, predicts, and measures mass
    balance and boundary conditions.
    """
    from pennpde.checkpoints import shipped

    if operators or "flow" not in shipped():
        return _operators(output, out)
    return _flow(output, out)


def _flow(output: Output, out: Path) -> dict[str, Any]:
    from pennpde.checkpoints import load_pretrained
    from pennpde.cli.predict import tell, use_threads_for, write_files
    from pennpde.models.designs import coarse_mesh, flow_case
    from pennpde.penn import Predictor
    from pennpde.prediction import predict

    network = load_pretrained("flow")
    assert isinstance(network, Predictor)
    start = time.perf_counter()
    case = flow_case(coarse_mesh(_STEP, _SEED, _CELLS_PER_LENGTH), _STEP)
    use_threads_for(case)
    outcome = predict(network, case)
    seconds = time.perf_counter() - start
    title, looks = "Flow over a step, predicted", network.equation.looks
    written = write_files(outcome, looks, title, out / "flow.vtu", out / "flow.png", out / "flow.html")
    output.say(
        f"Flow over a step with a ramp of 0.37 inlet widths, {case.number_of_points} points, at time "
        f"{outcome.time:g}: {outcome.seconds['network']:.2f} s for the network, {seconds:.2f} s with mesh, potential "
        "flow and certificate",
        *outcome.expected.lines(),
        *outcome.certificate.lines(warnings=False),
        f"Fields:  {written[0]} (opens in ParaView)",
        f"Picture: {written[1]}",
        f"Page:    {written[2]} (open it in a browser: zoom, probe, change the field)",
    )
    tell(output, outcome.certificate)
    return {
        "points": case.number_of_points,
        "seconds": seconds,
        "network_seconds": outcome.seconds["network"],
        "expected": outcome.expected.as_dict(),
        "certificate": outcome.certificate.as_dict(),
        "fields": written[0],
        "picture": written[1],
        "page": written[2],
    }


def _operators(output: Output, out: Path) -> dict[str, Any]:
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
