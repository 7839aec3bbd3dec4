"""One training step of the flow network (width 16, 8 velocity x 5 pressure iterations): time and peak memory.

A step draws its batch, predicts, takes the loss and its gradient, clips it and applies Adam. The meshes are grids of
the size of the flow dataset's, 2,530 points; what the fields hold does not change the work. Prints a table and writes
`lab/benchmarks/results/training_step_DEVICE.json`. On a GPU most of the time goes into compiling, about a minute.

    python lab/benchmarks/training_step.py [--device cuda] [--out FILE] [--quick]
"""

import argparse
import platform
import resource
from pathlib import Path

import numpy as np
import torch

from pennpde.case import Case
from pennpde.files import write_json
from pennpde.mesh import Mesh
from pennpde.models.ducts import flow_network
from pennpde.train import fit

RESULTS = Path(__file__).parent / "results"
CELLS = (109, 22)
TARGET = 10.0
"""Milliseconds at batch 8 on one H200 that this project asks for."""

ROWS = {
    # device: (batch size, steps, what else)
    "cpu": [(1, 3, {}), (8, 2, {})],
    "cuda": [
        (8, 20, {"captured": False, "compiled": False}),
        (8, 300, {"compiled": False}),
        (8, 300, {}),
        (1, 300, {}),
        (32, 100, {}),
    ],
}
QUICK = {"cpu": ROWS["cpu"][:1], "cuda": ROWS["cuda"][1:3]}


def duct(number: int) -> Case:
    """A straight duct with some flow in it."""
    axes = [np.linspace(0.0, length, count + 1) for length, count in zip((5.0, 1.0), CELLS, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    index = np.arange(len(points)).reshape(CELLS[0] + 1, CELLS[1] + 1)
    corners = [index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]]
    mesh = Mesh.from_arrays(points, np.stack([corner.ravel() for corner in corners], axis=1)).with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], 5.0),
            "wall": lambda x: np.isclose(x[:, 1] * (1 - x[:, 1]), 0.0),
        }
    )
    x, y = mesh.points.T
    wave = torch.sin((1 + 0.1 * number) * x)
    return Case(
        mesh,
        initial={"u": (1.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"wall": 0.0, "inlet": 0.0}},
        parameters={"viscosity": 1e-3},
        features={"wall_distance": torch.minimum(y, 1 - y)},
        targets={"u": torch.stack([y * (1 - y) * (4 + wave), 0 * x], dim=1), "p": (5 - x) * 0.1 + 0.1 * wave},
        name=f"duct {number}",
    )


def measure(cases: list[Case], device: str, batch_size: int, steps: int, options: dict) -> dict:
    """Train for some steps; the first ones, in which memory is taken and kernels are made, do not count."""
    torch.manual_seed(0)
    model = flow_network().to(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    result = fit(
        model,
        cases,
        batch_size=batch_size,
        steps=steps,
        learning_rate=1e-4,
        schedule="constant",
        test_every=1e6,
        device=device,
        **options,
    )
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "batch": batch_size,
        "points": cases[0].number_of_points,
        "how": result.description.partition(" on ")[0],
        "milliseconds": round(result.milliseconds_per_step, 2),
        "milliseconds_per_case": round(result.milliseconds_per_step / batch_size, 3),
        "peak_gib": round(peak / 2**30, 2),
        "loss": result.history[-1]["loss"],
    }


def main() -> None:
    """Measure every row and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="the rows that matter most")
    given = parser.parse_args()
    cases = [duct(number) for number in range(32 if given.device == "cuda" else 8)]
    name = torch.cuda.get_device_name() if given.device == "cuda" else platform.machine()
    print(f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'batch':>6}{'ms a step':>12}{'ms a case':>12}{'peak GiB':>10}   how")
    rows = []
    for batch_size, steps, options in (QUICK if given.quick else ROWS)[given.device]:
        row = measure(cases, given.device, batch_size, steps, options)
        rows.append(row)
        numbers = f"{row['milliseconds']:12.2f}{row['milliseconds_per_case']:12.3f}{row['peak_gib']:10.2f}"
        print(f"{row['batch']:>6}{numbers}   {row['how']}", flush=True)
    record = {
        "device": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "target_milliseconds_at_batch_8": TARGET if given.device == "cuda" else None,
        "rows": rows,
    }
    path = given.out or RESULTS / f"training_step_{given.device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
