"""Channel, cavity and backward-facing step on meshes with layers at the walls, of aspect ratios 1 to 1,000.

Cells grow by half from layer to layer. The steady state of each flow is computed on the same quads by the shipped
network (which may split them), by the plain scheme on the cells as they are, and by OpenFOAM's simpleFoam. Errors are

    channel  relative L2 errors of u and p against Poiseuille's flow, in per cent; Re 100, parabolic inlet
    cavity   largest difference of u on the vertical centre line from Ghia, Ghia & Shin 1982; Re 100
    step     difference of the length of reattachment from Erturk 2008 (2.922 step heights), in per cent; Re 100

    python lab/benchmarks/stretched_meshes.py

Prints and writes `lab/benchmarks/results/stretched_meshes.json`. Seconds are those of one core, without start-up.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import pennpde as penn
from pennlab import running
from pennpde.case import Case
from pennpde.flow.scheme import FlowScheme
from pennpde.mesh import Mesh
from pennpde.openfoam.dictionaries import format_dictionary

OUTPUT = Path(__file__).parent / "results" / "stretched_meshes.json"
ASPECT_RATIOS = 1.0, 10.0, 30.0, 100.0, 300.0, 1000.0
GROWTH = 1.5
GHIA = {
    0.0547: -0.03717,
    0.1016: -0.06434,
    0.1719: -0.1015,
    0.2813: -0.15662,
    0.4531: -0.2109,
    0.5: -0.20581,
    0.6172: -0.13641,
    0.7344: 0.00332,
    0.8516: 0.23151,
    0.9531: 0.68717,
}
REATTACHMENT = 2.922


def spacing(start: float, end: float, smallest: float, largest: float, at_both: bool = True) -> np.ndarray:
    """Positions whose spacing grows from both ends, or from the first one only."""
    length = (end - start) * (0.5 if at_both else 1.0)
    widths: list[float] = []
    while (width := smallest * GROWTH ** len(widths)) < largest and sum(widths) + width < length:
        widths.append(width)
    near = np.concatenate([[0.0], np.cumsum(widths)])
    rest = end - start - near[-1] * (2.0 if at_both else 1.0)
    even = near[-1] + np.linspace(0.0, rest, 1 + max(1, round(rest / largest)))
    far = end - start - near[::-1] if at_both else np.array([end - start])
    return start + np.concatenate([near, even[1:-1], far])


@dataclass(frozen=True, eq=False)
class Rectangle:
    """Quads between positions along x and y."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, eq=False)
class Flow:
    """Rectangles that meet at common sides, and what holds on their boundary.

    Attributes:
        rectangles: the first one is where `error` looks.
        viscosity: of the fluid.
        inlet: the velocity there by height; None in a cavity, whose top moves with the velocity 1.
        error: from a function that gives u and p on the first rectangle, at its points or at the centres of its cells.
    """

    rectangles: tuple[Rectangle, ...]
    viscosity: float
    inlet: Callable[[np.ndarray], np.ndarray] | None
    error: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], dict[str, float]]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        x, y = (np.concatenate([getattr(each, axis) for each in self.rectangles]) for axis in "xy")
        return x.min(), x.max(), y.min(), y.max()


def channel(aspect_ratio: float) -> Flow:
    x = np.linspace(0.0, 6.0, 25 if aspect_ratio > 1 else 73)
    y = spacing(0.0, 1.0, (x[1] - x[0]) / aspect_ratio, 1 / 12)

    def error(x: np.ndarray, y: np.ndarray, u: np.ndarray, p: np.ndarray) -> dict[str, float]:
        weights = np.gradient(x)[:, None] * np.gradient(y)
        exact = (0 * x[:, None] + 6 * y * (1 - y), 0 * y + 0.12 * (6 - x[:, None]))
        return {
            name: 100 * float(np.sqrt((weights * (one - other) ** 2).sum() / (weights * other**2).sum()))
            for name, one, other in zip("up", (u, p), exact, strict=True)
        }

    return Flow((Rectangle(x, y),), 0.01, lambda y: 6 * y * (1 - y), error)


def cavity(aspect_ratio: float) -> Flow:
    x = spacing(0.0, 1.0, 1 / 24 / aspect_ratio, 1 / 24)

    def error(x: np.ndarray, y: np.ndarray, u: np.ndarray, _: np.ndarray) -> dict[str, float]:
        line = [np.interp(0.5, x, row) for row in u.T]
        return {"u": max(abs(float(np.interp(place, y, line)) - value) for place, value in GHIA.items())}

    return Flow((Rectangle(x, x),), 0.01, None, error)


def step(aspect_ratio: float) -> Flow:
    thin = 0.1 / aspect_ratio
    behind, before = spacing(0.0, 12.0, 0.1, 0.2, at_both=False), np.linspace(-2.0, 0.0, 21)
    low, high = spacing(-1.0, 0.0, thin, 0.1), spacing(0.0, 1.0, thin, 0.1)

    def error(x: np.ndarray, y: np.ndarray, u: np.ndarray, _: np.ndarray) -> dict[str, float]:
        near = u[:, 1 if y[0] == -1.0 else 0]  # the first row that moves
        place = int(np.flatnonzero((near[:-1] < 0) & (near[1:] >= 0))[-1])
        found = x[place] - near[place] * (x[place + 1] - x[place]) / (near[place + 1] - near[place])
        return {"reattachment": 100 * (float(found) / REATTACHMENT - 1)}

    rectangles = Rectangle(behind, low), Rectangle(behind, high), Rectangle(before, high)
    return Flow(rectangles, 0.02, lambda y: 6 * y * (1 - y), error)


FLOWS = {"channel": channel, "cavity": cavity, "step": step}


def mesh_of(flow: Flow) -> Mesh:
    points, quads, number = [], [], 0
    for each in flow.rectangles:
        high = len(each.y)
        first = number + (np.arange(len(each.x) - 1)[:, None] * high + np.arange(high - 1)).ravel()
        quads.append(np.stack([first, first + high, first + high + 1, first + 1], axis=1))
        points.append(np.stack(np.meshgrid(each.x, each.y, indexing="ij"), axis=-1).reshape(-1, 2))
        number += len(points[-1])
    merged, first, places = np.unique(np.concatenate(points), axis=0, return_index=True, return_inverse=True)
    # In the order in which they came: the first rectangle's points are the first ones.
    order = np.argsort(first)
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    mesh = Mesh.from_arrays(merged[order], {"quad": rank[places.ravel()][np.concatenate(quads)]})
    left, right, _, top = flow.extent
    at = mesh.points.numpy()
    if flow.inlet is None:
        patches = {"top": at[:, 1] == top}
    else:
        patches = {"inlet": at[:, 0] == left, "outlet": at[:, 0] == right}
    sides = mesh.facets.connectivity.reshape(-1, 2)
    # The ends of an inlet, an outlet or a lid are points of the walls beside them, too.
    open_sides = np.logical_or.reduce([mask[sides].all(axis=1) for mask in patches.values()])
    patches["walls"] = np.isin(np.arange(len(at)), sides[~open_sides])
    patches["corner"] = np.arange(len(at)) == 0
    return mesh.with_patches(patches)


def case_of(flow: Flow) -> Case:
    mesh = mesh_of(flow)
    held: dict[str, dict] = {"u": {"walls": 0.0}, "p": {"corner": 0.0}}
    if flow.inlet is None:
        held["u"] = {"top": (1.0, 0.0), "walls": 0.0}
    else:
        height = mesh.points[:, 1].numpy()
        profile = torch.from_numpy(np.stack([flow.inlet(height), 0 * height], axis=1))
        held = {"u": {"inlet": profile, "walls": 0.0}, "p": {"outlet": 0.0}}
    start = {"u": (0.0, 0.0), "p": 0.0}
    return Case(mesh, initial=start, dirichlet=held, parameters={"viscosity": flow.viscosity})


def by_network(flow: Flow, model: penn.Predictor) -> dict[str, float]:
    case = case_of(flow)
    began = time.process_time()
    found = penn.predict(model, case, times=[penn.STEADY])
    seconds = time.process_time() - began
    first = flow.rectangles[0]
    shape = len(first.x), len(first.y)
    u, p = (values.double().numpy()[: shape[0] * shape[1]] for values in (found.fields["u"][:, 0], found.fields["p"]))
    return {**flow.error(first.x, first.y, u.reshape(shape), p.reshape(shape)), "seconds": round(seconds, 2)}


def by_openfoam(flow: Flow, installation: running.Installation) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_foam(folder, flow)
        running.run(folder, "blockMesh", installation=installation)
        began = time.perf_counter()
        running.run(folder, "simpleFoam", installation=installation, largest_courant=np.inf)
        seconds = time.perf_counter() - began
        last = max((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
        first = flow.rectangles[0]
        shape = len(first.y) - 1, len(first.x) - 1
        number = shape[0] * shape[1]
        u = _values(last / "U").reshape(-1, 3)[:number, 0].reshape(shape).T
        p = _values(last / "p")[:number].reshape(shape).T
        x, y = ((each[1:] + each[:-1]) / 2 for each in (first.x, first.y))
        return {**flow.error(x, y, u, p), "seconds": round(seconds, 2), "iterations": int(last.name)}


def _values(path: Path) -> np.ndarray:
    text = path.read_text()
    body = text[text.index("internalField") :]
    body = body[body.index("\n(") + 2 : body.index("\n)")]
    return np.array(body.replace("(", " ").replace(")", " ").split(), float)


def _write_foam(folder: Path, flow: Flow) -> None:
    left, right, _, top = flow.extent
    vertices: dict[tuple[float, float], int] = {}
    blocks, sides = [], {"inlet": [], "outlet": [], "top": []}
    for each in flow.rectangles:
        (west, east), (south, north) = ((line[0], line[-1]) for line in (each.x, each.y))
        corners = [
            vertices.setdefault(c, len(vertices)) for c in ((west, south), (east, south), (east, north), (west, north))
        ]
        grading = [" ".join(f"({width:.17g} 1 1)" for width in np.diff(line)) for line in (each.x, each.y)]
        blocks.append((corners, len(each.x) - 1, len(each.y) - 1, grading))
        for patch, ends, found in (
            ("inlet", (0, 3), west == left), ("outlet", (1, 2), east == right), ("top", (2, 3), north == top),
        ):  # fmt: skip
            if found and (patch == "top") == (flow.inlet is None):
                sides[patch].append([corners[end] for end in ends])
    above = len(vertices)
    rows = [f"({x:.17g} {y:.17g} {z})" for z in (0, 1) for x, y in vertices]
    hexes = [
        f"hex ({' '.join(map(str, c + [v + above for v in c]))}) ({n} {m} 1) simpleGrading (({gx}) ({gy}) 1)"
        for c, n, m, (gx, gy) in blocks
    ]
    ends = [
        f"{patch} {{ type patch; faces ({' '.join(f'({a} {b} {b + above} {a + above})' for a, b in pairs)}); }}"
        for patch, pairs in sides.items()
        if pairs
    ]
    flat = [f"({' '.join(str(v + shift) for v in c)})" for c, *_ in blocks for shift in (0, above)]
    ends.append(f"frontAndBack {{ type empty; faces ({' '.join(flat)}); }}")
    lists = {"vertices": rows, "blocks": hexes, "edges": [], "boundary": ends, "mergePatchPairs": []}
    entries = {name: "(\n" + "\n".join(each) + "\n)" for name, each in lists.items()}
    default = "{ name walls; type wall; }"
    u: dict[str, str] = {"walls": "{ type noSlip; }", "frontAndBack": "{ type empty; }"}
    p = {"walls": "{ type zeroGradient; }", "frontAndBack": "{ type empty; }"}
    if flow.inlet is None:
        u["top"], p["top"] = "{ type fixedValue; value uniform (1 0 0); }", "{ type zeroGradient; }"
    else:
        height = flow.rectangles[-1].y
        middles = flow.inlet((height[1:] + height[:-1]) / 2)
        values = " ".join(f"({speed:.12g} 0 0)" for speed in middles)
        u["inlet"] = f"{{ type fixedValue; value nonuniform List<vector> {len(middles)} ({values}); }}"
        u["outlet"], p["inlet"] = "{ type zeroGradient; }", "{ type zeroGradient; }"
        p["outlet"] = "{ type fixedValue; value uniform 0; }"

    def joined(conditions: dict[str, str]) -> str:
        return "{" + " ".join(f"{patch} {condition}" for patch, condition in conditions.items()) + "}"

    files = {
        "system/blockMeshDict": {"convertToMeters": "1", **entries, "defaultPatch": default},
        "system/controlDict": {
            "application": "simpleFoam", "startFrom": "startTime", "startTime": "0", "stopAt": "endTime",
            "endTime": "3000", "deltaT": "1", "writeControl": "timeStep", "writeInterval": "3000",
            "writePrecision": "12",
        },
        "system/fvSchemes": {
            "ddtSchemes": "{ default steadyState; }",
            "gradSchemes": "{ default Gauss linear; }",
            "divSchemes": "{ default none; div(phi,U) bounded Gauss linear; "
            "div((nuEff*dev2(T(grad(U))))) Gauss linear; }",
            "laplacianSchemes": "{ default Gauss linear corrected; }",
            "interpolationSchemes": "{ default linear; }",
            "snGradSchemes": "{ default corrected; }",
        },
        "system/fvSolution": {
            "solvers": "{ p { solver PCG; preconditioner DIC; tolerance 1e-10; relTol 0.01; } "
            "U { solver PBiCGStab; preconditioner DILU; tolerance 1e-10; relTol 0.01; } }",
            "SIMPLE": "{ consistent yes; pRefCell 0; pRefValue 0; residualControl { p 1e-5; U 1e-6; } }",
            "relaxationFactors": "{ equations { U 0.9; } }",
        },
        "constant/transportProperties": {"transportModel": "Newtonian", "nu": f"{flow.viscosity:g}"},
        "constant/turbulenceProperties": {"simulationType": "laminar"},
    }  # fmt: skip
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(format_dictionary(Path(path).name, content))
    (folder / "0").mkdir()
    for name, kind, dimensions, start, conditions in (
        ("U", "volVectorField", "[0 1 -1 0 0 0 0]", "uniform (0 0 0)", u),
        ("p", "volScalarField", "[0 2 -2 0 0 0 0]", "uniform 0", p),
    ):
        head = f"FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}"
        body = f"dimensions {dimensions}; internalField {start}; boundaryField {joined(conditions)}"
        (folder / "0" / name).write_text(f"{head}\n{body}\n")


def main() -> None:
    torch.set_num_threads(1)
    installation = running.find_installation(("blockMesh", "simpleFoam"))
    ways: dict[str, Callable[[Flow], dict[str, float]]] = {
        "flow": lambda flow: by_network(flow, penn.load_pretrained("flow")),
        "plain scheme, cells not split": lambda flow: by_network(flow, FlowScheme(splits=0)),
        "simpleFoam": lambda flow: by_openfoam(flow, installation),
    }
    rows = []
    for name, make in FLOWS.items():
        for aspect_ratio in ASPECT_RATIOS:
            flow = make(aspect_ratio)
            cells = sum((len(each.x) - 1) * (len(each.y) - 1) for each in flow.rectangles)
            for way, solve in ways.items():
                try:
                    found: dict[str, float | str] = {**solve(flow)}
                except (ArithmeticError, running.OpenFOAMError) as error:
                    found = {"failed": str(error).partition("\n")[0]}
                rows.append({"flow": name, "aspect_ratio": aspect_ratio, "cells": cells, "by": way, **found})
                print(json.dumps(rows[-1]), flush=True)
    about = {"growth": GROWTH, "penn": penn.__version__, "openfoam": installation.version}
    OUTPUT.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
