"""The second meshes of the training flows, made again and compared with committed hashes. No OpenFOAM is needed.

python lab/benchmarks/varied_meshes.py                   # one hash for each mesh, one for all; says whether they agree
python lab/benchmarks/varied_meshes.py --out meshes      # also writes each mesh as a .vtu file
python lab/benchmarks/varied_meshes.py --write           # replaces the committed hashes

These are the meshes of `penn generate flow --varied`, which adds OpenFOAM's fields to them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pennlab.datasets.flow.varied import varied_mesh
from pennpde.data import storage
from pennpde.files import write_json
from pennpde.mesh import Mesh

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "lab" / "benchmarks" / "results" / "varied_meshes.json"
DECIMALS = 9
"""Of coordinates: their last bits depend on the machine."""


def hash_of(mesh: Mesh) -> str:
    """Of points, cells and patches; a mesh whose points have another order has another hash."""
    # Adding zero turns -0.0 into 0.0.
    points = np.round(mesh.points.numpy().astype(np.float64), DECIMALS) + 0.0
    found = hashlib.sha256(points.tobytes())
    for numbers in (mesh.connectivity, mesh.offsets):
        found.update(np.asarray(numbers, np.int64).tobytes())
    for name in sorted(mesh.patches):
        found.update(name.encode() + np.sort(np.asarray(mesh.patches[name].points, np.int64)).tobytes())
    return found.hexdigest()[:16]


def measure(names: Iterable[str], out: Path | None = None) -> dict[str, Any]:
    """Number of points and hash of each mesh, and the hash of all hashes."""
    meshes = {}
    for name in names:
        mesh = varied_mesh(name)
        meshes[name] = {"points": mesh.number_of_points, "hash": hash_of(mesh)}
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            mesh.save(out / f"{name}.vtu")
    whole = hashlib.sha256(json.dumps(meshes, sort_keys=True).encode()).hexdigest()[:16]
    return {"seed": 0, "hash": whole, "meshes": meshes}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the meshes")
    parser.add_argument("--write", action="store_true", help="replace the committed hashes")
    given = parser.parse_args(arguments)
    found = measure(storage.read_manifest(ROOT / "data" / "flow").names("train"), given.out)
    if given.write:
        write_json(RECORD, found, indent=1)
    committed = json.loads(RECORD.read_text(encoding="utf-8"))
    others = [name for name, facts in found["meshes"].items() if facts != committed["meshes"].get(name)]
    print(
        f"{len(found['meshes'])} meshes, hash {found['hash']}; {len(others)} differ from the committed ones.", *others
    )
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
