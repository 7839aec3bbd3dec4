"""A trained network goes to somebody else: packed into one file, checked by its hash, loaded from there.

    pip install ./sharing                              # in a clone of the repository
    python examples/share_a_network.py [FOLDER OF A NETWORK]

The file holds weights, configuration, training range, a model card with errors, pictures and the licence. Nothing in it
is code. Put it on any web server; `load_pretrained` and `penn predict --model` take its https address.
"""

import sys
import zipfile
from pathlib import Path

import numpy as np
import torch

import pennpde as penn
from pennsharing import pack


def main(network="advection-diffusion", folder="."):
    packed = pack(network, Path(folder) / "heat.zip", licence="Apache-2.0", about="Heat in a stream, in a square.")
    print(f"{packed.path}: {sum(packed.files.values()):,} bytes in {len(packed.files)} files")
    print(f"address after an upload: https://example.org/heat.zip#sha256={packed.sha256}")
    with zipfile.ZipFile(packed.path) as archive:
        print("\n".join(archive.read("README.md").decode().splitlines()[6:10]))

    axis = np.linspace(0.0, 1.0, 12)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    cells = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1).reshape(-1, 4)
    mesh = penn.Mesh.from_arrays(np.stack([x.ravel(), y.ravel()], axis=1), cells)
    case = penn.Case(
        mesh.with_patches({"hot": lambda at: np.isclose(at[:, 0], 0.0)}),
        initial={"T": 0.0},
        dirichlet={"T": {"hot": 0.8}},
        neumann={"T": 0.0},
        parameters={"velocity": (0.6, 0.0), "diffusivity": 0.3},
    )
    with torch.no_grad():
        mine, theirs = (penn.load_pretrained(name)(case)["T"] for name in (network, packed.path))
    difference = (mine - theirs).abs().max().item()
    print(f"largest difference between the network and its packed copy: {difference:g}")
    return packed, difference


if __name__ == "__main__":
    main(*sys.argv[1:2])
