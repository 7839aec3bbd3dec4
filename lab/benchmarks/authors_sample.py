"""The shipped flow network on the authors' own sample, on its own mesh, compared with the authors' network.

    python lab/benchmarks/authors_sample.py [SAMPLE.npz] [WEIGHTS.npz]

Their sample is one cell thick; ours runs on its plane layer, from our own potential flow. Errors are mean squares in
physical units against their OpenFOAM solution at t = 4, u over three components, as in the paper.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from pennlab.datasets.flow.cases import splits
from pennlab.paper.samples import read_sample
from pennlab.released import weights as released
from pennpde.checkpoints import config_of, load_pretrained
from pennpde.files import write_json
from pennpde.mesh import Mesh
from pennpde.models.designs import flow_case

RESULT = Path(__file__).parent / "results" / "authors_sample.json"


def main() -> None:
    reference = Path(__file__).resolve().parents[1] / "reference"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample", nargs="?", type=Path, default=reference / "samples" / "flow_a1_1.00.npz")
    parser.add_argument("weights", nargs="?", type=Path, default=reference / "weights" / "flow_penn_n16_rep4.npz")
    parser.add_argument("--model", default="ducts")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()

    sample = np.load(arguments.sample)
    mesh = plane_mesh(sample)
    assert mesh.layer is not None
    truth = {"u": sample["u"][-1][mesh.layer, :2], "p": sample["p"][-1][mesh.layer]}
    case = flow_case(mesh, arguments.sample.stem)
    network = load_pretrained(arguments.model)
    with torch.inference_mode():
        ours = network(case)
        theirs = released.load(arguments.weights)(read_sample(arguments.sample).case)
    config = config_of(network)
    shape = arguments.sample.stem.removeprefix("flow_").replace("a1_", "a_")
    record = {
        "sample": arguments.sample.name,
        "points of the plane layer": mesh.number_of_points,
        "shape in our splits": next((s for s, names in splits().items() if shape in names), "none"),
        "ours": errors(ours, truth) | {"parameters": config.parameters if config else None},
        "the authors' network, 4 iterations": errors(
            {name: values[mesh.layer] for name, values in theirs.items()}, truth
        ),
    }
    for name in ("ours", "the authors' network, 4 iterations"):
        print(f"{name:<36} u {record[name]['u']:.3e}   p {record[name]['p']:.3e}")
    write_json(arguments.output, record)


def plane_mesh(sample: np.lib.npyio.NpzFile) -> Mesh:
    """The layer of a stored sample, with the patches that follow from its conditions."""
    cells = {"hexahedron": sample["hex"], "wedge": sample["prism"]}
    solid = Mesh.from_arrays(sample["points"], {name: rows for name, rows in cells.items() if len(rows)})
    prescribed = sample["u_dirichlet_mask"].astype(bool).any(axis=1)
    moving = prescribed & (sample["u_dirichlet_value"][:, 0] > 0)
    outlet = sample["p_dirichlet_mask"].astype(bool).reshape(len(prescribed))
    mesh = Mesh.plane_of(solid)
    layer = mesh.layer
    assert layer is not None
    x = mesh.points.numpy()
    # Corners of the outlet belong only to the outlet in the sample; here they also belong to the wall.
    edge = np.isin(np.arange(len(x)), mesh.boundary_points)
    low, high = x[moving[layer], 1].min(), x[moving[layer], 1].max()
    inlet = np.isclose(x[:, 0], x[:, 0].min()) & (x[:, 1] >= low - 1e-6) & (x[:, 1] <= high + 1e-6)
    out = outlet[layer]
    corner = out & np.isin(x[:, 1], [x[out, 1].min(), x[out, 1].max()])
    still = edge & prescribed[layer] & ~moving[layer]
    rim = inlet & (np.isclose(x[:, 1], low) | np.isclose(x[:, 1], high))
    return mesh.with_patches({"inlet": inlet, "wall": still | corner | rim, "outlet": out})


def errors(fields: dict[str, torch.Tensor], truth: dict[str, np.ndarray]) -> dict[str, float]:
    u = fields["u"].double().numpy()[:, :2] - truth["u"]
    p = fields["p"].double().numpy() - truth["p"]
    return {"u": float((u**2).sum(axis=1).mean() / 3), "p": float((p**2).mean())}


if __name__ == "__main__":
    main()
