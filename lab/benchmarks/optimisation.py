"""Gradients and optimised designs: against differences of whole solves, against OpenFOAM, against what is known.

    python lab/benchmarks/optimisation.py gradients transient designs verify inverse [adjoint] [--write]

Each part adds to `results/optimisation.json`; --write puts the tables into docs/optimisation.md.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pennlab import running
from pennpde import openfoam
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.mesh.splitting import PlaneCells
from pennpde.openfoam import NonUniform, PolyMesh, Uniform
from pennpde.openfoam.poly_mesh import FacePatch
from pennpde.study.optimisation.flows import Family
from pennpde.study.optimisation.goals import parse_measure
from pennpde.study.optimisation.optimise import variants
from pennpde.study.optimisation.trials import Designs
from pennpde.study.variables import Variable

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "optimisation.json"
sys.path.insert(0, str(ROOT / "examples"))

import inlet_from_probes  # noqa: E402
import optimise_diffuser  # noqa: E402
import optimise_manifold  # noqa: E402

THICKNESS = 0.1
"""Of the one layer of cells that a plane flow is for OpenFOAM."""
SPLITS = 2
"""How often the cells of a design are split for OpenFOAM: of 921 points 12,800 cells."""
SCHEMES: dict[str, Any] = {
    "ddtSchemes": {"default": "steadyState"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {
        "default": "none",
        "div(phi,U)": "bounded Gauss linearUpwind grad(U)",
        "div((nuEff*dev2(T(grad(U)))))": "Gauss linear",
    },
    "laplacianSchemes": {"default": "Gauss linear corrected"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "corrected"},
}
SOLUTION: dict[str, Any] = {
    "solvers": {
        "p": {"solver": "GAMG", "smoother": "GaussSeidel", "tolerance": 1e-9, "relTol": 0.05},
        "U": {"solver": "smoothSolver", "smoother": "symGaussSeidel", "tolerance": 1e-10, "relTol": 0.1},
    },
    "SIMPLE": {"nNonOrthogonalCorrectors": 1, "consistent": True, "residualControl": {"p": 1e-6, "U": 1e-7}},
    "relaxationFactors": {"equations": {"U": 0.9, "p": 1.0}, "fields": {"p": 1.0}},
}


def programs_seconds() -> float:
    """Of a processor, of all programs that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


# Gradients


def difference(designs: Designs, position: np.ndarray, place: int, step: float) -> np.ndarray:
    """Central differences of the whole steady solve, from cold to a tight tolerance."""
    ends = [designs.trial(position + sign * step * np.eye(len(position))[place]) for sign in (1.0, -1.0)]
    return (ends[0].numbers - ends[1].numbers) / (2 * step)


def measure_gradients(time_of: float | None = None) -> dict[str, Any]:
    """Of steady flows, or of flows at a time on the user's own cells."""
    found = {}
    level = "standard" if time_of is None else "fast"
    for name, example, mesh, words in (
        (
            "manifold",
            optimise_manifold,
            optimise_manifold.manifold(),
            ["total pressure drop inlet c", "flow split a b c"],
        ),
        (
            "diffuser",
            optimise_diffuser,
            optimise_diffuser.diffuser(),
            ["total pressure drop inlet outlet", "drag wall"],
        ),
    ):
        case = example.case_of(mesh)
        variables = [Variable.of("viscosity", "0.005:0.02"), Variable.of("inlet.u", "0.5:2.5")]
        variables += [Variable.of(each, "-0.4:0.3") for each in example.MORPH]
        case_at = variants(case, [each.name for each in variables], example.MORPH)
        designs = Designs(
            variables, case_at, Family.of(case, level, time_of), [parse_measure(each, case) for each in words]
        )
        values = {"viscosity": 0.01, "inlet.u": 1.5} | {each: 0.02 * (-1) ** n for n, each in enumerate(example.MORPH)}
        position = designs.position(values)
        began = time.process_time()
        trial = designs.trial(position)
        solved = time.process_time()
        slopes = trial.gradients
        seconds = {"solve": solved - began, "gradients": time.process_time() - solved}
        errors = []
        for place in range(len(variables)):
            exact = difference(designs, position, place, 1e-4)
            errors.append(np.abs(slopes[:, place] - exact) / np.abs(exact).max())
        scale = np.linalg.norm(slopes, axis=1)
        apart = [float(max(row)) for row in errors]
        found[name] = {
            "quantities": words,
            "parameters": dict(zip([each.name for each in variables], apart, strict=True)),
            "sizes": scale.tolist(),
            "points": designs.family.flow(case).problem.cells.number_of_points,
            "steps": len(designs.family.steps),
            "seconds": seconds,
        }
        print(name, found[name])
    return found


# Designs


def design(name: str) -> dict[str, Any]:
    example = {"manifold": optimise_manifold, "diffuser": optimise_diffuser}[name]
    began = time.process_time()
    best = example.main()
    return best.as_dict() | {"seconds": time.process_time() - began}


# OpenFOAM


def layer(mesh: Mesh, splits: int) -> tuple[PolyMesh, np.ndarray, dict[str, np.ndarray]]:
    """The cells of a plane mesh, split, one layer thick; ends of the faces of each patch."""
    cells = PlaneCells.of(mesh)
    patch_of = np.full(len(cells.facets), "", dtype=object)
    for name, patch in mesh.patches.items():
        free = patch.facets[patch_of[patch.facets] == ""]
        patch_of[free] = name
    for _ in range(splits):
        cells, patch_of = cells.split(), np.repeat(patch_of, 2)
    points, quads = cells.points, cells.quads
    assert not len(cells.triangles)
    starts, ends = quads.ravel(), np.roll(quads, -1, axis=1).ravel()
    cell = np.repeat(np.arange(len(quads)), 4)
    number = len(points)
    keys = np.minimum(starts, ends) * np.int64(number) + np.maximum(starts, ends)
    order = np.argsort(keys, kind="stable")
    same = keys[order][:-1] == keys[order][1:]
    one, other = order[:-1][same], order[1:][same]
    swap = cell[one] > cell[other]
    one, other = np.where(swap, other, one), np.where(swap, one, other)
    rank = np.lexsort((cell[other], cell[one]))
    one, other = one[rank], other[rank]
    facet_key = np.sort(cells.facets, axis=1) @ np.array([number, 1])
    at = order[np.searchsorted(keys[order], facet_key)]
    sides = [np.stack([starts[one], ends[one]], axis=1)]
    owners, patches, of_patch = [cell[one]], {}, {}
    total = len(one)
    for name in dict.fromkeys(patch_of.tolist()):
        own = at[patch_of == name]
        sides.append(np.stack([starts[own], ends[own]], axis=1))
        owners.append(cell[own])
        patches[name] = FacePatch(name, "patch", total, len(own))
        of_patch[name] = sides[-1]
        total += len(own)
    patches["frontAndBack"] = FacePatch("frontAndBack", "empty", total, 2 * len(quads))
    flat = np.concatenate(sides)
    upright = np.concatenate([flat, flat[:, ::-1] + number], axis=1)
    faces = np.concatenate([upright.ravel(), quads[:, ::-1].ravel(), quads.ravel() + number])
    every = np.arange(len(quads))
    offsets = np.arange(len(upright) + 2 * len(quads) + 1) * 4
    body = np.concatenate([np.column_stack([points, np.full(number, z)]) for z in (0.0, THICKNESS)])
    poly = PolyMesh(body, faces, offsets, np.concatenate([*owners, every, every]), cell[other], patches)
    return poly, points, of_patch


def solved_by_openfoam(case: Case, inlet: Any, splits: int) -> dict[str, Any]:
    """Flow rates and mean total pressures of the patches by simpleFoam, from its own fluxes."""
    poly, points, of_patch = layer(case.mesh, splits)
    slips = {"axis"} & of_patch.keys()
    outlets = [
        name
        for name in of_patch
        if bool(case.dirichlet["p"].mask[torch.from_numpy(case.mesh.patch(name).points)].all())
    ]
    velocity: dict[str, Any] = {"frontAndBack": {"type": "empty"}}
    pressure: dict[str, Any] = {"frontAndBack": {"type": "empty"}}
    for name, ends in of_patch.items():
        pressure[name] = {"type": "zeroGradient"}
        velocity[name] = {"type": "noSlip"}
        if name == "inlet":
            start, end = points[ends[:, 0], 1], points[ends[:, 1], 1]
            means = (inlet(start) + 4 * inlet(0.5 * (start + end)) + inlet(end)) / 6
            velocity[name] = {"type": "fixedValue", "value": NonUniform(np.column_stack([means, 0 * means, 0 * means]))}
        elif name in outlets:
            velocity[name] = {"type": "zeroGradient"}
            pressure[name] = {"type": "fixedValue", "value": Uniform(0.0)}
        elif name in slips:
            velocity[name] = {"type": "symmetryPlane"}
            pressure[name] = {"type": "symmetryPlane"}
    control = {
        "application": "simpleFoam",
        "startFrom": "startTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": 4000,
        "deltaT": 1,
        "writeControl": "timeStep",
        "writeInterval": 4000,
        "writeFormat": "binary",
        "runTimeModifiable": False,
    }
    text = openfoam.format_dictionary
    viscosity = float(case.parameters["viscosity"])
    began = programs_seconds()
    with tempfile.TemporaryDirectory(prefix="penn-design-") as scratch:
        folder = Path(scratch)
        running.write_mesh(folder, poly)
        kinds = {"frontAndBack": "empty"} | dict.fromkeys(slips, "symmetryPlane")
        rows = [
            f"{name} {{ type {kinds.get(name, 'patch')}; nFaces {each.count}; startFace {each.start}; }}"
            for name, each in poly.patches.items()
        ]
        header = text("boundary", {}, "polyBoundaryMesh")
        (folder / "constant/polyMesh/boundary").write_text("\n".join([header, str(len(rows)), "(", *rows, ")", ""]))
        for name, content in {
            "system/controlDict": text("controlDict", control),
            "system/fvSchemes": text("fvSchemes", SCHEMES),
            "system/fvSolution": text("fvSolution", SOLUTION),
            "constant/transportProperties": text(
                "transportProperties", {"transportModel": "Newtonian", "nu": (openfoam.VISCOSITY, viscosity)}
            ),
            "constant/turbulenceProperties": text("turbulenceProperties", {"simulationType": "laminar"}),
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        (folder / "0").mkdir()
        openfoam.write_field(folder / "0/U", np.zeros((poly.number_of_cells, 3)), openfoam.VELOCITY, velocity)
        openfoam.write_field(folder / "0/p", np.zeros(poly.number_of_cells), openfoam.PRESSURE, pressure)
        iterations = 0

        def hear(_: running.Progress) -> None:
            nonlocal iterations
            iterations += 1

        running.run(folder, "simpleFoam", on_progress=hear, timeout=1500)
        last = max((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
        u = openfoam.read_field(last / "U").values(poly.number_of_cells)[:, :2]
        p = openfoam.read_field(last / "p").values(poly.number_of_cells)
    rates, totals = {}, {}
    for name in ("inlet", *outlets):
        ends = of_patch[name]
        along = points[ends[:, 1]] - points[ends[:, 0]]
        outward = np.stack([along[:, 1], -along[:, 0]], axis=1)
        cells = poly.owner[poly.patches[name].faces]
        if name == "inlet":
            start, end = points[ends[:, 0], 1], points[ends[:, 1], 1]
            speed = (inlet(start) + 4 * inlet(0.5 * (start + end)) + inlet(end)) / 6
            through, square, level = speed * outward[:, 0], speed**2, p[cells]
        else:
            through, square, level = (u[cells] * outward).sum(axis=1), (u[cells] ** 2).sum(axis=1), 0.0
        rates[name] = float(through.sum())
        lengths = np.linalg.norm(along, axis=1)
        totals[name] = float((lengths * level).sum() / lengths.sum() + 0.5 * (through * square).sum() / through.sum())
    return {
        "cells": poly.number_of_cells, "iterations": iterations, "seconds": programs_seconds() - began, "rates": rates,
        "total pressures": totals,
    }  # fmt: skip


def verify(name: str, record: dict[str, Any], splits: int) -> dict[str, Any]:
    """The first and the best design by simpleFoam."""
    example = {"manifold": optimise_manifold, "diffuser": optimise_diffuser}[name]
    if name == "manifold":
        base, inlet = example.case_of(example.manifold()), lambda y: 6 * y * (1 - y)
    else:
        base, inlet = example.case_of(example.diffuser()), lambda y: 1.5 * (1 - y**2)
    case_at = variants(base, example.MORPH, example.MORPH)
    found = {}
    for which in ("start", "values"):
        flow = solved_by_openfoam(case_at(record[which]), inlet, splits)
        rates = {each: value for each, value in flow["rates"].items() if each != "inlet"}
        if name == "manifold":
            shares = np.array(list(rates.values())) / sum(rates.values()) * len(rates)
            flow["objective"] = float(np.sqrt(((shares - 1) ** 2).mean()))
        else:
            flow["objective"] = flow["total pressures"]["inlet"] - flow["total pressures"]["outlet"]
        print(name, which, flow)
        found[which] = flow
    found["gain"] = found["start"]["objective"] - found["values"]["objective"]
    return found


def inverse() -> dict[str, Any]:
    began = time.process_time()
    found = inlet_from_probes.main()
    record = found["found"].as_dict() | {"seconds": time.process_time() - began}
    return {
        "error": found["error"],
        "true": inlet_from_probes.TRUE,
        **{name: record[name] for name in ("values", "flows", "seconds", "reason")},
    }


# OpenFOAM's adjoint

TUTORIAL = "incompressible/adjointOptimisationFoam"
COARSER = 2
"""Of the tutorial's 200 by 120 cells every second line is kept: the adjoint takes minutes then."""
BUMPS = 8
"""Control points on each of the two walls."""


def bend(points: np.ndarray) -> Mesh:
    """The tutorial's S-bend, from its points: 121 lines across, two sides, 201 lines along."""
    kept = points.reshape(121, 2, 201, 3)[::COARSER, 0, ::COARSER, :2]
    n = np.arange(kept[..., 0].size).reshape(kept.shape[:2])
    quads = np.stack([n[:-1, :-1], n[:-1, 1:], n[1:, 1:], n[1:, :-1]], axis=-1).reshape(-1, 4)
    curved = abs(kept[0, :, 0]) < 0.9759
    patches = {"Inlet": n[:, 0], "Outlet": n[:, -1], "lower": n[0][curved], "upper": n[-1][curved], "sideWall": "rest"}
    return Mesh.from_arrays(kept.reshape(-1, 2), quads, patches=patches)


def adjoint() -> dict[str, Any]:
    """Derivatives of the loss of total pressure by control points on both walls, by OpenFOAM's adjoint and by ours."""
    tutorials = Path(os.environ.get("FOAM_TUTORIALS", "/usr/share/doc/openfoam-examples/examples")) / TUTORIAL
    unpacked = {path: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
                for path in (tutorials / "sensitivityMaps/sbend/laminar").rglob("*") if path.is_file()}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="penn-bend-") as scratch:
        folder = Path(scratch)
        for path, content in unpacked.items():
            target = folder / path.relative_to(tutorials / "sensitivityMaps/sbend/laminar")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_suffix("" if target.suffix == ".gz" else target.suffix).write_bytes(content)
        for path in (tutorials / "resources/meshes/sbend/polyMesh").iterdir():
            target = folder / "constant/polyMesh" / path.name.removesuffix(".gz")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        mesh = bend(PolyMesh.read(folder).points)
        poly, _, _ = layer(mesh, 0)
        shutil.rmtree(folder / "constant/polyMesh")
        running.write_mesh(folder, poly)
        kinds = {"Inlet": "patch", "Outlet": "patch", "frontAndBack": "empty"}
        rows = [
            f"{'frontBack' if name == 'frontAndBack' else name} "
            f"{{ type {kinds.get(name, 'wall')}; nFaces {each.count}; startFace {each.start}; }}"
            for name, each in poly.patches.items()
        ]
        header = openfoam.format_dictionary("boundary", {}, "polyBoundaryMesh")
        (folder / "constant/polyMesh/boundary").write_text("\n".join([header, str(len(rows)), "(", *rows, ")", ""]))
        wanted = folder / "system/optimisationDict"
        words = wanted.read_text()
        assert "surfacePoints;" in words
        wanted.write_text(words.replace("surfacePoints;", "surfacePoints;\n        includeSurfaceArea true;"))
        began = programs_seconds()
        running.run(folder, "adjointOptimisationFoam", timeout=1500)
        seconds = programs_seconds() - began
        last = max((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
        name = next(path for path in last.iterdir() if path.name.startswith("pointSensNormal"))
        content = gzip.decompress(name.read_bytes()) if name.suffix == ".gz" else name.read_bytes()
        sensitivity = point_values(content.decode(), mesh.number_of_points)
    return compared(mesh, sensitivity, seconds)


def point_values(text: str, number: int) -> np.ndarray:
    """The values of OpenFOAM's point field at the points of the plane, both sides together."""
    field = re.search(r"internalField\s+nonuniform List<scalar>\s*\d+\s*\(([^()]*)\)", text)
    assert field is not None
    return np.array(field[1].split(), float).reshape(2, number).sum(axis=0)


def compared(mesh: Mesh, sensitivity: np.ndarray, seconds: float) -> dict[str, Any]:
    walls = [name for name in ("lower", "upper") for _ in range(BUMPS)]
    morph = {}
    for place, wall in enumerate(walls):
        own = mesh.points.numpy()[mesh.patch(wall).points]
        own = own[np.argsort(own[:, 0])]
        at = own[round((place % BUMPS + 1) / (BUMPS + 1) * (len(own) - 1))]
        morph[f"{wall} {place % BUMPS}"] = {"at": at.tolist(), "direction": [0, 1], "radius": 0.3,
                                            "fixed": ["Inlet", "Outlet", "sideWall"]}  # fmt: skip
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {"Inlet": (0.039473, 0.0), "sideWall": 0.0, "lower": 0.0, "upper": 0.0},
            "p": {"Outlet": 0.0},
        },
        neumann={"u": {"Outlet": 0.0}, "p": 0.0},
        parameters={"viscosity": 1.5e-5},
    )
    variables = [Variable.of(name, "-0.02:0.02") for name in morph]
    case_at = variants(case, list(morph), morph)
    designs = Designs(
        variables, case_at, Family.of(case, "fast"), [parse_measure("total pressure drop Inlet Outlet", case)]
    )
    trial = designs.trial(designs.position(dict.fromkeys(morph, 0.0)))
    ours = trial.gradients[0] / 0.04
    points, normals, theirs = mesh.points.numpy(), mesh.normals.numpy(), []
    for name in morph:
        moved = case_at(dict.fromkeys(morph, 0.0) | {name: 1e-3}).mesh.points.numpy() - points
        theirs.append(float((sensitivity * (normals * moved).sum(axis=1)).sum() / 1e-3))
    # Its objective is a power: the loss times the flow rate, of a layer as thick as `layer` makes it.
    theirs = np.array(theirs) / (0.039473 * float(np.ptp(points[mesh.patch("Inlet").points, 1])) * THICKNESS)
    cosine = float(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs))
    found = {
        "cells": mesh.number_of_cells,
        "cosine": cosine,
        "lengths": float(np.linalg.norm(ours) / np.linalg.norm(theirs)),
        "ours": ours.tolist(),
        "OpenFOAM": theirs.tolist(),
        "seconds": seconds,
    }
    print(found)
    return found


# The page

PAGE = ROOT / "docs" / "optimisation.md"


def tables(known: dict[str, Any]) -> dict[str, str]:
    """The parts of the page between its marks."""
    head = "| flow, its quantities | parameters | largest relative difference | CPU seconds: solve, all gradients |"
    rows = [head, "| --- | --- | ---: | ---: |"]
    transient = {f"{name} at t = 1, {each['steps']} steps": each for name, each in known.get("transient", {}).items()}
    for name, each in (known["gradients"] | transient).items():
        worst = {
            kind: max(value for key, value in each["parameters"].items() if (key in ("viscosity", "inlet.u")) == fixed)
            for kind, fixed in (("viscosity and inlet speed", True), ("control points", False))
        }
        for kind, value in worst.items():
            seconds = f"{each['seconds']['solve']:.2f}, {each['seconds']['gradients']:.2f}" if kind[0] == "v" else ""
            number = len(each["parameters"]) - 2 if kind[0] == "c" else 2
            title = f"{name} ({each['points']:,} points): {', '.join(each['quantities'])}" if kind[0] == "v" else ""
            rows.append(f"| {title} | {number}: {kind} | {value:.0e} | {seconds} |")
    found = {"gradients": "\n".join(rows)}
    rows = ["| design | | start | best | gain | flows, CPU seconds |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for name, each in known["designs"].items():
        words = each["objective"]
        first, last = each["before"][words]["value"], each["after"][words]["value"]
        gain = f"{each['gain']:.4f} ± {each['expected_error_of_gain']:.4f}"
        rows.append(
            f"| {name}: {words} | predicted | {first:.4f} | {last:.4f} | {gain} "
            f"| {each['flows']}, {each['seconds']:.0f} |"
        )
        for key, flow in known.get("openfoam", {}).items():
            if key.startswith(name):
                one, other = flow["start"], flow["values"]
                rows.append(
                    f"| | simpleFoam, {one['cells']:,} cells | {one['objective']:.4f} | {other['objective']:.4f} "
                    f"| {flow['gain']:.4f} | 2, {one['seconds'] + other['seconds']:.0f} |"
                )
    found["designs"] = "\n".join(rows)
    inverse, lines = known["inverse"], []
    lines.append(
        f"The inverse problem of `examples/inlet_from_probes.py`, velocities at five probes rounded to a hundredth: "
        f"the profile is found with an error of {inverse['error']:.1%} (relative L2) in {inverse['flows']} flows."
    )
    if "adjoint" in known:
        each = known["adjoint"]
        lines.append(
            f"OpenFOAM's adjoint (`adjointOptimisationFoam`, the S-bend of its tutorials on {each['cells']:,} cells, "
            f"loss of total pressure, {len(each['ours'])} control points on both walls): the cosine of its gradient "
            f"and ours is {each['cosine']:.4f}, and ours is {each['lengths']:.2f} times as long."
        )
    found["others"] = "\n\n".join(lines)
    return found


def write_page(known: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables(known).items():
        head, rest = text.split(f"<!-- {name} -->\n", 1)
        text = f"{head}<!-- {name} -->\n{table}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    torch.set_num_threads(1)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def keep(part: str, name: str | None, value: Any) -> None:
        if name is None:
            known[part] = value
        else:
            known.setdefault(part, {})[name] = value
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")

    parts = [each for each in sys.argv[1:] if not each.startswith("--")]
    if "gradients" in parts:
        keep("gradients", None, measure_gradients())
    if "transient" in parts:
        keep("transient", None, measure_gradients(1.0))
    if "designs" in parts:
        for name in ("manifold", "diffuser"):
            keep("designs", name, design(name))
    if "inverse" in parts:
        keep("inverse", None, inverse())
    if "adjoint" in parts:
        keep("adjoint", None, adjoint())
    if "verify" in parts:
        for name in ("manifold", "diffuser"):
            keep("openfoam", f"{name}, cells split {SPLITS} times", verify(name, known["designs"][name], SPLITS))
    if "--write" in sys.argv:
        write_page(known)


if __name__ == "__main__":
    main()
