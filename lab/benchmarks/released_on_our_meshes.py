"""Why the authors' flow weights fail on our meshes: their inputs and ours exchanged one by one, then meshes varied.

    python lab/benchmarks/released_on_our_meshes.py [SAMPLE.npz] [WEIGHTS.npz ...]

Errors are mean squares in physical units at t = 4, u over three components, as in the paper. Three parts:

inputs   on the mesh of the authors' sample (a = 1): start, wall distance and prescribed values are ours, then
         one after the other theirs
shapes   our own meshes of type A, from no ramp to the longest: its block of cells is sheared and narrows to half a cell
spacing  a lattice for a = 0 whose first line of points comes closer and closer to the walls
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from authors_sample import plane_mesh
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from pennlab.paper.samples import read_sample
from pennlab.released import weights as released
from pennpde.case import Case, Dirichlet
from pennpde.data import storage
from pennpde.mesh import Mesh
from pennpde.models.designs import duct, flow_case

RESULT = Path(__file__).parent / "results" / "released_on_our_meshes.json"
FIRST_LINES = (0.0444, 0.03, 0.0222, 0.015)


def main() -> None:
    reference = Path(__file__).resolve().parents[1] / "reference"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample", nargs="?", type=Path, default=reference / "samples" / "flow_a1_1.00.npz")
    parser.add_argument("weights", nargs="*", type=Path, default=sorted((reference / "weights").glob("flow_*.npz")))
    parser.add_argument("--data", type=Path, default=Path("data/flow"))
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()

    networks = {path.stem: released.load(path).double() for path in arguments.weights}
    parts = {
        "inputs": on_their_mesh(arguments.sample),
        "shapes": {case.name: case for case in storage.read(arguments.data) if case.name.startswith("a_")},
        "spacing": on_lattices(next(c for c in storage.read(arguments.data, "validation") if c.name == "a_0.00")),
    }
    record = {
        part: {
            label: {name: errors(network, case) for name, network in networks.items()} for label, case in some.items()
        }
        for part, some in parts.items()
    }
    meshes = {"authors' sample": parts["inputs"]["our inputs"].mesh}
    meshes |= {name: case.mesh for name, case in parts["shapes"].items()}
    record["shortest edge"] = {name: shortest_edge(mesh) for name, mesh in meshes.items()}
    for part, rows in record.items():
        print(part)
        for label, row in rows.items():
            print(f"  {label:<40}", row)
    arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def on_their_mesh(path: Path) -> dict[str, Case]:
    """The sample's plane layer with our inputs, then with the authors' in their place."""
    sample, stored = read_sample(path).case, np.load(path)
    mesh = plane_mesh(stored)
    layer = mesh.layer
    assert layer is not None
    truth = {"u": sample.targets["u"][layer][:, :2], "p": sample.targets["p"][layer]}
    ours = flow_case(mesh, path.stem, truth).to(torch.float64)
    with_start = replace(ours, initial={"u": sample.initial["u"][layer][:, :2], "p": ours.initial["p"]})
    with_distance = replace(with_start, features={"wall_distance": sample.features["wall_distance"][layer]})
    velocity, pressure = sample.dirichlet["u"], sample.dirichlet["p"]
    theirs = {
        "u": Dirichlet(velocity.mask[layer], velocity.values[layer][:, :2]),
        "p": Dirichlet(pressure.mask[layer], pressure.values[layer]),
    }
    return {
        "our inputs": ours,
        "their start": with_start,
        "their start and wall distance": with_distance,
        "all inputs theirs": replace(with_distance, dirichlet=theirs),
    }


def on_lattices(case: Case) -> dict[str, Case]:
    """The step without ramp on rectangles whose first line stands at a given distance from walls, inlet and outlet."""
    found = {}
    for first in FIRST_LINES:
        mesh = lattice(first)
        truth = {name: _interpolated(case, values, mesh) for name, values in case.targets.items()}
        found[f"first line at {first:g}"] = flow_case(mesh, case.name, truth).to(torch.float64)
    return found


def lattice(first: float, cells_per_length: float = 22.5) -> Mesh:
    def lines(*ends: int) -> np.ndarray:
        parts = []
        for low, high in pairwise(ends):
            number = round((high - low - 2 * first) * cells_per_length)
            parts += [[low], np.linspace(low + first, high - first, number + 1)]
        return np.concatenate([*parts, [ends[-1]]])

    x, y = lines(0, 1, 3), lines(0, 1, 2)
    number = np.arange(len(x) * len(y)).reshape(len(x), len(y))
    quads = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1)
    middle = (x[:-1, None] + x[1:, None]) / 2, (y[None, :-1] + y[None, 1:]) / 2
    quads = quads[(middle[0] > 1) | (middle[1] > 1)]
    used, quads = np.unique(quads, return_inverse=True)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)[used]
    shape = duct("a_0.00")
    patches = {name: np.flatnonzero(shape.on_patch(name, points)) for name in shape.patches}
    return Mesh.from_arrays(points, quads.reshape(-1, 4), patches=patches)


def _interpolated(case: Case, values: torch.Tensor, mesh: Mesh) -> np.ndarray:
    known, wanted = case.mesh.points.numpy(), mesh.points.numpy()
    found = LinearNDInterpolator(known, values.numpy())(wanted)
    outside = np.isnan(found)
    found[outside] = NearestNDInterpolator(known, values.numpy())(wanted)[outside]
    return found


def shortest_edge(mesh: Mesh) -> float:
    start, end = mesh.points[mesh.edges[0]], mesh.points[mesh.edges[1]]
    return round(float((start - end).norm(dim=1).min()), 4)


def errors(network: torch.nn.Module, case: Case) -> dict[str, float]:
    case = case.to(torch.float64)
    with torch.no_grad():
        fields = network(case)
    u = (fields["u"] - case.targets["u"]).square().sum(dim=1).mean() / 3
    p = (fields["p"] - case.targets["p"]).square().mean()
    return {"u": float(f"{u:.3g}"), "p": float(f"{p:.3g}")}


if __name__ == "__main__":
    main()
