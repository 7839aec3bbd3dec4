"""Flows in space by the plain scheme: square duct, cubic cavity at Reynolds number 100, both against icoFoam.

python lab/benchmarks/space_flow.py            # writes the table of docs/general_flow.md from the record
python lab/benchmarks/space_flow.py --measure  # measures what the record does not have yet, one line at a time

duct     developed flow: a duct twice as long as wide, the exact profile at its inlet, Reynolds number 50. Reference:
         the exact series. Errors are those of the velocity over all points (of icoFoam: cells), relative L2, and of the
         pressure gradient over the second half.
cavity   centre lines of the cubic cavity. Reference: icoFoam's steady state on 16³ and 32³ cells, extrapolated
         (second order). Errors are differences to it along both centre lines, root mean square over the lid's speed.

Both programs get the same cells, and go to the steady state. Seconds are those of the processor, without reading files.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import pennpde as penn
from pennlab.paper.tables import markdown_table, write_within
from pennlab.running.new_cases import NewField, workplace, write_case
from pennpde.openfoam.dictionaries import Dimensions, NonUniform, Uniform, format_dictionary
from pennpde.openfoam.fields import read_field
from pennpde.openfoam.poly_mesh import PolyMesh
from pennpde.penn import PENN

RESULTS = Path(__file__).parent / "results" / "space_flow.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "general_flow.md"
DUCT, CAVITY = (6, 8, 12), (8, 12, 16)
"""Cells across."""
FINE = 16, 32
LENGTH, VISCOSITY = 2, {"duct": 0.02, "cavity": 0.01}
SHAPES = "hexahedra", "prisms", "tetrahedra"
_OF_U = Dimensions((0, 1, -1, 0, 0, 0, 0))
_SCHEMES = {
    "ddtSchemes": {"default": "Euler"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {"default": "none", "div(phi,U)": "Gauss linear"},
    "laplacianSchemes": {"default": "Gauss linear corrected"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "corrected"},
}
_SOLUTION = {
    "solvers": {
        "p": {"solver": "PCG", "preconditioner": "DIC", "tolerance": 1e-6, "relTol": 0.05},
        "pFinal": {"solver": "PCG", "preconditioner": "DIC", "tolerance": 1e-6, "relTol": 0},
        "U": {"solver": "smoothSolver", "smoother": "symGaussSeidel", "tolerance": 1e-7, "relTol": 0},
    },
    "PISO": {"nCorrectors": 2, "nNonOrthogonalCorrectors": 0, "pRefCell": 0, "pRefValue": 0},
}


def profile(y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float]:
    """Developed velocity in the unit square with mean one, and -dp/dx over the viscosity."""
    found, flow = np.zeros_like(y), 0.0
    for m in range(1, 120, 2):
        for n in range(1, 120, 2):
            size = 16.0 / (math.pi**4 * m * n * (m * m + n * n))
            found += size * np.sin(m * math.pi * y) * np.sin(n * math.pi * z)
            flow += size * 4.0 / (math.pi**2 * m * n)
    return found / flow, 1.0 / flow


def case_of(kind: str, across: int, shape: str) -> penn.Case:
    size = (LENGTH if kind == "duct" else 1, 1, 1)
    number = tuple(side * across for side in size)
    points, cells, name = box(number, size, shape)
    mesh = penn.Mesh.from_arrays(points, cells, name)

    def is_at(axis: int, place: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: np.isclose(x[:, axis], place)

    def is_wall(x: np.ndarray) -> np.ndarray:
        sides = [is_at(1, 0), is_at(1, 1), is_at(2, 0)]
        sides += [is_at(0, 0), is_at(0, 1)] if kind == "cavity" else [is_at(2, 1)]
        return np.any([side(x) for side in sides], axis=0)

    if kind == "cavity":
        mesh = mesh.with_patches({"lid": is_at(2, 1), "wall": is_wall})
        return penn.Case(
            mesh,
            initial={"u": (0.0, 0.0, 0.0), "p": 0.0},
            dirichlet={"u": {"lid": (1.0, 0.0, 0.0), "wall": 0.0}},
            neumann={"p": {"wall": 0.0, "lid": 0.0}},
            parameters={"viscosity": VISCOSITY[kind]},
        )
    mesh = mesh.with_patches({"inlet": is_at(0, 0), "outlet": is_at(0, size[0]), "wall": is_wall})
    x, walls = points.T, is_wall(points)
    inflow = np.stack([profile(x[1], x[2])[0], *np.zeros((2, len(points)))], axis=1)
    inflow[walls] = 0.0
    return penn.Case(
        mesh, initial={"u": (0.0, 0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": torch.from_numpy(inflow), "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "wall": 0.0}}, parameters={"viscosity": VISCOSITY[kind]},
    )  # fmt: skip


def box(number: tuple[int, ...], size: tuple[int, ...], shape: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Points and cells of a box; hexahedra, cut into two prisms or six tetrahedra each."""
    axes = [np.linspace(0, length, count + 1) for length, count in zip(size, number, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    place = np.arange(points[..., 0].size).reshape(points.shape[:3])
    corner = {
        (i, j, k): place[i : i + number[0], j : j + number[1], k : k + number[2]].ravel()
        for i in (0, 1)
        for j in (0, 1)
        for k in (0, 1)
    }
    ring = ((0, 0), (1, 0), (1, 1), (0, 1))
    cells = np.stack([corner[i, j, k] for k in (0, 1) for i, j in ring], axis=1)
    rows = {
        "hexahedra": ((0, 1, 2, 3, 4, 5, 6, 7),),
        "prisms": ((0, 1, 2, 4, 5, 6), (0, 2, 3, 4, 6, 7)),
        "tetrahedra": ((0, 1, 2, 6), (0, 2, 3, 6), (0, 3, 7, 6), (0, 7, 4, 6), (0, 4, 5, 6), (0, 5, 1, 6)),
    }[shape]
    names = {"hexahedra": "hexahedron", "prisms": "wedge", "tetrahedra": "tetrahedron"}
    return points.reshape(-1, 3), np.concatenate([cells[:, row] for row in rows]), names[shape]


def ours(kind: str, across: int, shape: str) -> dict:
    case, model = case_of(kind, across, shape), penn.load_pretrained("flow")
    assert isinstance(model, PENN)
    model.set_level("fast")
    with torch.no_grad():
        began = time.process_time()
        outcome = penn.predict(model, case, steady=True)
        seconds = time.process_time() - began
    points, velocity = case.mesh.points.numpy(), outcome.fields["u"].numpy()
    found = errors(kind, points, velocity, outcome.fields["p"].numpy(), case.mesh.point_volumes.numpy())
    return {"points": case.number_of_points, "seconds": seconds, "converged": outcome.certificate.converged, **found}


def errors(kind: str, points: np.ndarray, velocity: np.ndarray, pressure: np.ndarray, volumes: np.ndarray) -> dict:
    """Of a duct; of a cavity the velocities along both centre lines."""
    if kind == "cavity":
        return {"lines": {name: np.column_stack(each).tolist() for name, each in lines(points, velocity).items()}}
    exact, drop = profile(points[:, 1], points[:, 2])
    wrong = velocity - np.stack([exact, *np.zeros((2, len(exact)))], axis=1)
    late = points[:, 0] > 0.5 * LENGTH
    slope = np.polyfit(points[late, 0], pressure[late], 1, w=np.sqrt(volumes[late]))[0]
    return {
        "u": math.sqrt((volumes * (wrong**2).sum(axis=1)).sum() / (volumes * exact**2).sum()),
        "pressure gradient": abs(-slope / (VISCOSITY[kind] * drop) - 1.0),
    }


def lines(points: np.ndarray, velocity: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """U along z and w along x, through the centre: the mean of the points nearest to it."""
    found = {}
    for name, along, component in (("u", 2, 0), ("w", 0, 2)):
        others = [axis for axis in range(3) if axis != along]
        away = np.abs(points[:, others] - 0.5).max(axis=1)
        near = away < away.min() + 1e-6
        places, back = np.unique(points[near, along].round(9), return_inverse=True)
        found[name] = places, np.bincount(back, velocity[near, component]) / np.bincount(back)
    return found


def icofoam(kind: str, across: int) -> dict:
    """The steady state, marched at a Courant number of about 0.8 until the fluid has gone through several times."""
    size, end, step = (LENGTH, 6.0, 0.4 / across) if kind == "duct" else (1, 20.0, 0.8 / across)
    steps = math.ceil(end / step)
    resting, free, zero = {"type": "noSlip"}, {"type": "zeroGradient"}, "uniform 0"
    pressure = {"inlet": free, "outlet": {"type": "fixedValue", "value": zero}, "wall": free}
    velocity: dict = {"inlet": {"type": "fixedValue", "value": "uniform (0 0 0)"}, "outlet": free, "wall": resting}
    if kind == "cavity":
        velocity = {"lid": {"type": "fixedValue", "value": "uniform (1 0 0)"}, "wall": resting}
        pressure = dict.fromkeys(velocity, free)
    with workplace(("blockMesh", "icoFoam")) as place:
        write_case(
            place.folder,
            block_mesh=block_mesh(kind, size, across),
            control={"application": "icoFoam", "endTime": steps * step, "deltaT": step, "writeInterval": steps},
            schemes=_SCHEMES, solution=_SOLUTION,
            constant={"transportProperties": {"nu": VISCOSITY[kind]}},
            fields={
                "U": NewField(_OF_U, np.zeros(3), velocity),
                "p": NewField(Dimensions((0, 2, -2, 0, 0, 0, 0)), 0.0, pressure),
            },
        )  # fmt: skip
        place.run("blockMesh")
        mesh = PolyMesh.read(place.folder)
        if kind == "duct":
            centres = mesh.face_centres[mesh.patches["inlet"].faces]
            values = np.stack([profile(centres[:, 1], centres[:, 2])[0], *np.zeros((2, len(centres)))], axis=1)
            velocity["inlet"] = {"type": "fixedValue", "value": NonUniform(values)}
            entries = {"dimensions": _OF_U, "internalField": Uniform(np.zeros(3)), "boundaryField": velocity}
            (place.folder / "0" / "U").write_text(format_dictionary("U", entries, "volVectorField"))
        place.run("icoFoam")
        log = (place.folder / "log.icoFoam").read_text()
        times = [each for each in place.folder.iterdir() if re.fullmatch(r"[0-9.]+", each.name)]
        last = max(times, key=lambda each: float(each.name))
        found = [read_field(last / name, place.folder).values(mesh.number_of_cells) for name in ("U", "p")]
        return {
            "cells": mesh.number_of_cells,
            "seconds": float(re.findall(r"ExecutionTime = (\S+) s", log)[-1]),
            **errors(kind, mesh.cell_centres, found[0], found[1], np.ones(mesh.number_of_cells)),
        }


def block_mesh(kind: str, length: int, across: int) -> str:
    corners = " ".join(f"({x} {y} {z})" for z in (0, 1) for x, y in ((0, 0), (length, 0), (length, 1), (0, 1)))
    sides = {
        "start": "(0 4 7 3)",
        "end": "(1 2 6 5)",
        "south": "(0 1 5 4)",
        "north": "(3 7 6 2)",
        "low": "(0 3 2 1)",
        "top": "(4 5 6 7)",
    }
    named = {"inlet": ["start"], "outlet": ["end"], "wall": ["south", "north", "low", "top"]}
    if kind == "cavity":
        named = {"lid": ["top"], "wall": ["start", "end", "south", "north", "low"]}
    patches = " ".join(
        f"{name} {{ type {'wall' if name == 'wall' else 'patch'}; faces ({' '.join(sides[each] for each in faces)}); }}"
        for name, faces in named.items()
    )
    return (
        "FoamFile { version 2.0; format ascii; class dictionary; object blockMeshDict; }\n"
        f"convertToMeters 1;\nvertices ({corners});\n"
        f"blocks (hex (0 1 2 3 4 5 6 7) ({length * across} {across} {across}) simpleGrading (1 1 1));\n"
        f"edges ();\nboundary ({patches});\nmergePatchPairs ();\n"
    )


def measure() -> None:
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wanted = [(kind, "icoFoam", n) for kind, sizes in (("duct", DUCT), ("cavity", CAVITY)) for n in sizes]
    wanted += [
        (kind, shape, n) for kind, sizes in (("duct", DUCT), ("cavity", CAVITY)) for shape in SHAPES for n in sizes
    ]
    wanted += [("cavity", "icoFoam", n) for n in FINE]
    for kind, program, across in wanted:
        name = f"{kind} {program} {across}"
        if name in record:
            continue
        if program != "icoFoam":
            ours(kind, 4, program)  # compiles
        record[name] = icofoam(kind, across) if program == "icoFoam" else ours(kind, across, program)
        print(name, {key: each for key, each in record[name].items() if key != "lines"}, flush=True)
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def reference(record: dict) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Both centre lines, extrapolated from both fine meshes to the places of the coarser."""
    found = {}
    for name in ("u", "w"):
        coarse, fine = (np.array(record[f"cavity icoFoam {n}"]["lines"][name]).T for n in FINE)
        places = coarse[0]
        there = interpolated(fine, places)
        found[name] = places, there + (there - coarse[1]) / 3.0
    return found


def interpolated(line: np.ndarray, places: np.ndarray) -> np.ndarray:
    from scipy.interpolate import CubicSpline

    return CubicSpline(line[0], line[1])(places)


def table() -> str:
    record = json.loads(RESULTS.read_text())
    truth = reference(record) if all(f"cavity icoFoam {n}" in record for n in FINE) else None
    rows = []
    for name, each in record.items():
        kind, program, across = name.split()
        if kind == "duct":
            told = f"{100 * each['u']:.2f} %", f"{100 * each['pressure gradient']:.2f} %"
        elif truth is None or (program == "icoFoam" and int(across) in FINE):
            continue  # the reference is made of them
        else:
            apart = [
                interpolated(np.array(each["lines"][line]).T, places) - values
                for line, (places, values) in truth.items()
            ]
            told = f"{100 * math.sqrt(np.mean(np.concatenate(apart) ** 2)):.2f} %", ""
        size = f"{each.get('points', each.get('cells')):,}"
        rows.append((kind, program, across, size, f"{each['seconds']:.2f}", *told))
    headings = "flow", "cells", "across", "points or cells", "seconds", "error of u", "of the pressure gradient"
    return markdown_table(headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    if parser.parse_args().measure:
        measure()
    print(table())
    write_within(PAGE, table(), "flows in space")


if __name__ == "__main__":
    main()
