"""What a large mesh costs: checking its cells, its boundary, its graph, normals, volumes; distances to a patch.

Prints a table and writes `lab/benchmarks/results/mesh.json`. Each mesh has a process of its own, so that its peak
memory is
its own; memory counts Python, torch and the given arrays too. Seconds are those of the clock; on a machine that is busy
with other work, processor time is the fairer number, and it is recorded as well.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pennpde.files import write_json
from pennpde.mesh import Mesh
from pennpde.mesh.cells import CELL_TYPES, HEXAHEDRON, Facets

RESULTS = Path(__file__).parent / "results" / "mesh.json"
# The promise: the graph of a brick of 100 x 100 x 100 cells, from arrays, in this many seconds and bytes.
LIMIT_SECONDS, LIMIT_GIGABYTES = 20.0, 4.0
TETRAHEDRA = np.array([[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]])


def grid(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    steps = [np.linspace(0.0, 1.0, count + 1) for count in shape]
    points = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(shape))
    number = np.arange(len(points)).reshape([count + 1 for count in shape])
    ring = [(0, 0), (1, 0), (1, 1), (0, 1)]
    corners = ring if len(shape) == 2 else [(*corner, level) for level in (0, 1) for corner in ring]
    blocks = [number[tuple(slice(low, low + n) for low, n in zip(c, shape, strict=True))] for c in corners]
    return points, np.stack(blocks, axis=-1).reshape(-1, len(corners))


def hexahedra() -> Mesh:
    return Mesh.from_arrays(*grid((100, 100, 100)))


def tetrahedra() -> Mesh:
    points, cubes = grid((55, 55, 55))
    return Mesh.from_arrays(points, cubes[:, TETRAHEDRA].reshape(-1, 4))


def polyhedra() -> Mesh:
    points, cubes = grid((60, 60, 60))
    faces = cubes[:, np.array(CELL_TYPES[HEXAHEDRON].facets)].reshape(-1)
    number = 6 * len(cubes)
    return Mesh.from_arrays(points, Facets(faces, 4 * np.arange(number + 1), np.repeat(np.arange(len(cubes)), 6)))


def quads() -> Mesh:
    return Mesh.from_arrays(*grid((1000, 1000)))


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return round(time.perf_counter() - start, 2), result


def measure(build: Callable[[], Mesh]) -> dict[str, object]:
    start = time.process_time()
    from_arrays, mesh = timed(build)
    assert isinstance(mesh, Mesh)
    edges, _ = timed(lambda: mesh.edges)
    processor = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    normals, _ = timed(lambda: mesh.normals)
    volumes, _ = timed(lambda: mesh.point_volumes)
    return {
        "points": mesh.number_of_points,
        "cells": mesh.number_of_cells,
        "edges": mesh.edges.shape[1],
        "check and boundary": from_arrays,
        "graph": edges,
        "processor time of both": round(processor, 2),
        "peak gigabytes": round(peak / 1e9, 2),
        "normals": normals,
        "volumes": volumes,
    }


def measure_distances() -> dict[str, object]:
    mesh = Mesh.from_arrays(*grid((47, 47, 47)))
    sides = np.abs(mesh.points.numpy() - 0.5).max(axis=1) > 0.5 - 1e-9
    mesh = mesh.with_patches({"sides": sides})
    start = time.process_time()
    seconds, _ = timed(lambda: mesh.distance_to("sides"))
    return {
        "points": mesh.number_of_points,
        "facets": len(mesh.patch("sides").facets),
        "seconds": seconds,
        "processor time": round(time.process_time() - start, 2),
    }


MESHES = {"hexahedra": hexahedra, "tetrahedra": tetrahedra, "polyhedra": polyhedra, "quads": quads}


def main() -> None:
    """Measure every mesh in a process of its own and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*MESHES, "distances"], help="measure this alone and print it as JSON")
    only = parser.parse_args().only
    if only:
        print(json.dumps(measure_distances() if only == "distances" else measure(MESHES[only])))
        return
    rows = {}
    print(
        f"{'':12}{'points':>9}{'cells':>9}{'edges':>10}{'check':>8}{'graph':>8}{'normals':>9}{'volumes':>9}{'peak':>9}"
    )
    for name in MESHES:
        row = rows[name] = run(name)
        sizes = f"{row['points']:9}{row['cells']:9}{row['edges']:10}"
        times = f"{row['check and boundary']:7.2f}s{row['graph']:7.2f}s{row['normals']:8.2f}s{row['volumes']:8.2f}s"
        print(f"{name:12}{sizes}{times}{row['peak gigabytes']:6.2f} GB")
    row = rows["distances"] = run("distances")
    print(f"distances from {row['points']} points to {row['facets']} facets: {row['seconds']:.2f} s")
    brick = rows["hexahedra"]
    seconds = brick["check and boundary"] + brick["graph"]
    print(
        f"a brick of 100 x 100 x 100 cells: {seconds:.1f} s of {LIMIT_SECONDS:.0f} "
        f"({brick['processor time of both']:.1f} s of processor time), "
        f"{brick['peak gigabytes']:.1f} GB of {LIMIT_GIGABYTES:.0f}"
    )
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load when finished": os.getloadavg()[0],
        "limits": {"seconds": LIMIT_SECONDS, "gigabytes": LIMIT_GIGABYTES},
        "rows": rows,
    }
    write_json(RESULTS, record)


def run(name: str) -> dict:
    command = [sys.executable, __file__, "--only", name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
