"""Which cells give the most accurate truth: prisms, duals of triangles, or squares, at equal numbers of cells.

One flow over a step (Re 300, moment 2) is computed by pimpleFoam with the settings of the dataset on about 3,200 cells
of each kind and of one size, and compared with 51,000 squares and with 51,000 duals. Cells of one size everywhere
compare kinds of cells only; squares fit this step, but few of the dataset's shapes.

    python lab/benchmarks/plane_flow_cells.py

Prints and writes `lab/benchmarks/results/plane_flow_cells.json`. Takes some minutes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from pennlab import running
from pennlab.datasets.plane_flow.conditions import Inlet, Outlet, Wall
from pennlab.datasets.plane_flow.domain import Domain, Piece
from pennlab.datasets.plane_flow.dual import THICKNESS, Dual, dual_of, renumbered
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.foam import Resolution, write_case, write_mesh
from pennlab.datasets.plane_flow.shapes.drawing import chain
from pennlab.datasets.plane_flow.start import potential_velocity
from pennlab.datasets.plane_flow.triangles import Triangles, triangulated
from pennpde import openfoam
from pennpde.mesh.cells import cross
from pennpde.mesh.triangulation import inside
from pennpde.openfoam import FacePatch, PolyMesh

OUTPUT = Path(__file__).parent / "results" / "plane_flow_cells.json"
ACROSS, FINER = 24, 4
"""Squares across the inlet; how many times more across it in the references."""
MOMENT, HEIGHT, INLET, END = 2.0, 0.5, 1.0, 4.0
EQUAL_STEPS = Resolution(spacing=0.1)
"""Steps of at most 0.005, which is shorter than a Courant number of 2 asks for: only the cells differ."""
AWAY = 0.05
"""Places nearer to the boundary are left out: cell values there are not values at places."""


def step() -> Flow:
    outer = [
        *chain([(0.0, 0.0), (INLET, 0.0), (INLET, -HEIGHT), (END, -HEIGHT)], "wall"),
        Piece.of([(END, -HEIGHT), (END, 1.0)], "outlet"),
        *chain([(END, 1.0), (0.0, 1.0)], "wall"),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    conditions = {"wall": Wall(), "outlet": Outlet(), "inlet": Inlet((0.0, 1.0), (0.0, 0.0), 1.0, "parabolic")}
    return Flow("cells", "step", Domain.of(outer), conditions, 300.0, (MOMENT,))


@dataclass(frozen=True, eq=False)
class Layer:
    """Cells for OpenFOAM, and the velocity in them at the start."""

    dual: Dual
    start: np.ndarray


def duals(flow: Flow, size: float) -> Layer:
    mesh = renumbered(_triangles(flow, size))
    return Layer(dual_of(mesh), potential_velocity(flow, mesh))


def prisms(flow: Flow, size: float) -> Layer:
    mesh = _triangles(flow, size)
    velocity = potential_velocity(flow, mesh)
    names = {tuple(edge): name for name, chosen in mesh.patches.items() for edge in mesh.edges[chosen].tolist()}
    return Layer(layer_of(mesh.points, mesh.triangles, names), velocity[mesh.triangles].mean(axis=1))


def squares(flow: Flow, size: float) -> Layer:
    x, y = np.arange(0.0, END + size / 2, size), np.arange(-HEIGHT, 1.0 + size / 2, size)
    number = np.arange(len(x) * len(y)).reshape(len(x), len(y))
    cells = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1).reshape(-1, 4)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    cells = cells[inside(points[cells].mean(axis=1), flow.domain.sides)]
    used = np.unique(cells)
    points, cells = points[used], np.searchsorted(used, cells)
    pairs = {tuple(pair) for i in range(4) for pair in cells[:, [i, (i + 1) % 4]].tolist()}
    edges = np.array([pair for pair in pairs if pair[::-1] not in pairs])
    middle = points[edges].mean(axis=1)[:, 0]
    place = np.where(np.abs(middle) < 1e-9, "inlet", np.where(np.abs(middle - END) < 1e-9, "outlet", "wall"))
    names = {tuple(edge): str(name) for edge, name in zip(edges.tolist(), place, strict=True)}
    halves = np.concatenate([cells[:, [0, 1, 2]], cells[:, [0, 2, 3]]])
    split = Triangles(points, halves, edges, {name: place == name for name in flow.conditions})
    start = potential_velocity(flow, split)
    return Layer(layer_of(points, cells, names), start[cells].mean(axis=1))


def _triangles(flow: Flow, size: float) -> Triangles:
    return triangulated(flow.domain, lambda points: np.full(len(points), size), size, size)


def layer_of(points: np.ndarray, cells: np.ndarray, names: Mapping[tuple[int, ...], str]) -> Dual:
    """Polygons with equally many corners as one layer of cells; `names` has the patch of each edge of the boundary."""
    corners, above = cells.shape[1], len(points)
    half = np.concatenate([cells[:, [i, (i + 1) % corners]] for i in range(corners)])
    owner_of = {tuple(edge): cell for edge, cell in zip(half.tolist(), list(range(len(cells))) * corners, strict=True)}
    inner = sorted(
        (owner_of[edge], owner_of[edge[::-1]], *edge)
        for edge in owner_of
        if edge[::-1] in owner_of and owner_of[edge] < owner_of[edge[::-1]]
    )
    faces: list[Sequence[int]] = [edge[2:] for edge in inner]
    owners = [edge[0] for edge in inner]
    patches, centres, lengths, of_points = {}, {}, {}, {}
    for name in dict.fromkeys(names.values()):
        edges = [edge for edge, patch in names.items() if patch == name]
        patches[name] = FacePatch(name, "patch", len(faces), len(edges))
        faces += edges
        owners += [owner_of[edge] for edge in edges]
        ends = points[np.array(edges)]
        centres[name], of_points[name] = ends.mean(axis=1), np.array([owner_of[edge] for edge in edges])
        lengths[name] = np.sqrt(((ends[:, 1] - ends[:, 0]) ** 2).sum(axis=1))
    patches["frontAndBack"] = FacePatch("frontAndBack", "empty", len(faces), 2 * len(cells))
    sides = np.array(faces)
    upright = np.concatenate([sides, sides[:, ::-1] + above], axis=1)
    entries = np.concatenate([upright.ravel(), cells[:, ::-1].ravel(), cells.ravel() + above])
    sizes = np.concatenate([np.full(len(upright), 4), np.full(2 * len(cells), corners)])
    body = np.concatenate([np.column_stack([points, np.full(above, z)]) for z in (0.0, THICKNESS)])
    all_cells = np.arange(len(cells))
    mesh = PolyMesh(
        body,
        entries,
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([np.array(owners), all_cells, all_cells]),
        np.array([edge[1] for edge in inner]),
        patches,
    )
    polygon = points[cells]
    area = 0.5 * sum(cross(polygon[:, i], polygon[:, (i + 1) % corners]) for i in range(corners))
    return Dual(mesh, polygon.mean(axis=1), np.asarray(area), centres, of_points, lengths)


def solution(flow: Flow, layer: Layer) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Velocity and pressure of the cells at the moment, and what it took."""
    with tempfile.TemporaryDirectory(prefix="penn-cells-") as scratch:
        folder = Path(scratch)
        write_mesh(folder, flow, layer.dual)
        write_case(folder, flow, layer.dual, EQUAL_STEPS, layer.start)
        steps = 0

        def hear(_: running.Progress) -> None:
            nonlocal steps
            steps += 1

        running.run(folder, "pimpleFoam", on_progress=hear, largest_courant=1e3)
        frame = folder / f"{MOMENT:g}"
        cells = len(layer.dual.areas)
        u, p = (openfoam.read_field(frame / name).values(cells) for name in ("U", "p"))
    return u[:, :2], p, {"cells": cells, "steps": steps}


def places(flow: Flow) -> np.ndarray:
    """Where solutions are compared: a lattice that fits no mesh, away from the boundary."""
    x, y = np.meshgrid(np.arange(0.003, END, 0.0171), np.arange(-HEIGHT + 0.004, 1.0, 0.0173), indexing="ij")
    found = np.stack([x, y], axis=-1).reshape(-1, 2)
    found = found[inside(found, flow.domain.sides)]
    start, end = flow.domain.sides[:, 0], flow.domain.sides[:, 1]
    along = end - start
    share = np.clip(((found[:, None] - start) * along).sum(axis=-1) / (along**2).sum(axis=-1), 0.0, 1.0)
    distance = np.sqrt(((start + share[..., None] * along - found[:, None]) ** 2).sum(axis=-1)).min(axis=1)
    return found[distance > AWAY]


def main() -> None:
    flow = step()
    size = 1.0 / ACROSS
    # A point of equilateral triangles has the area √3/2 h², a triangle half of it.
    of_duals, of_prisms = size * (2 / 3**0.5) ** 0.5, size * (4 / 3**0.5) ** 0.5
    runs = {
        "squares": lambda: squares(flow, size),
        "duals": lambda: duals(flow, of_duals),
        "prisms": lambda: prisms(flow, of_prisms),
        "fine squares": lambda: squares(flow, size / FINER),
        "fine duals": lambda: duals(flow, of_duals / FINER),
    }
    at = places(flow)
    values, facts = {}, {}
    for name, make in runs.items():
        layer = make()
        u, p, facts[name] = solution(flow, layer)
        centres = layer.dual.centres
        values[name] = [LinearNDInterpolator(centres, field)(at) for field in (u, p)]
        print(name, facts[name], flush=True)
    results: dict[str, Any] = {"reynolds": flow.reynolds, "moment": MOMENT, "places": len(at), "runs": facts}
    for reference in ("fine squares", "fine duals"):
        results[f"against {reference}"] = {
            name: {
                field: round(float(np.sqrt(((mine - its) ** 2).sum() / (its**2).sum())), 5)
                for field, mine, its in zip("up", values[name], values[reference], strict=True)
            }
            for name in runs
            if name != reference
        }
    OUTPUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
