"""Channel, plate, cavity, step and bend on meshes with layers at the walls, of aspect ratios 1 to 1,000.

Cells grow by half from layer to layer. The steady state of each flow is computed on the same quads by the shipped
network on its levels `standard` and `fast` (which may split them), by the plain scheme on the cells as they are, and by
OpenFOAM's simpleFoam, whose values are judged in the centres of its cells. Errors are

    channel  relative L2 errors of u and p against Poiseuille's flow, in per cent; Re 100, parabolic inlet
    plate    relative L2 error of u against Blasius' layer from Re 10,000 to 20,000, and of the drag of that stretch, in
             per cent; Blasius' velocities at the inlet and above
    cavity   largest difference of u on the vertical centre line from Ghia, Ghia & Shin 1982; Re 100
    step     difference of the length of reattachment from Erturk 2008 (2.922 step heights), in per cent; Re 100
    bend     relative L2 errors of u and p against Dean's flow between radii 1 and 2, in the first two thirds of half a
             turn (near the outlet it is another flow), in per cent; Re 100

    python lab/benchmarks/stretched_meshes.py [FLOW ...] [--by WAY]

Prints and writes `lab/benchmarks/results/stretched_meshes.json` and the table of docs/trust.md; with names only these
flows are measured again, with a way only by this one. Seconds are those of one core, without start-up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.integrate import solve_ivp

import pennpde as penn
from pennlab import running
from pennlab.paper.tables import markdown_table, write_within
from pennlab.running import plane_flows
from pennpde.case import Case
from pennpde.flow.scheme import FlowScheme
from pennpde.mesh import Mesh

OUTPUT = Path(__file__).parent / "results" / "stretched_meshes.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "trust.md"
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
        inlet: the velocity there by height, along x or both components; None in a cavity, whose top moves with the
            velocity 1.
        error: from u (or the speed along the bend) and p at the points of the first rectangle.
        top: velocity there by position; None for a wall.
        outlet: pressure there by height.
        moved: where points go.
    """

    rectangles: tuple[Rectangle, ...]
    viscosity: float
    inlet: Callable[[np.ndarray], np.ndarray] | None
    error: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], dict[str, float]]
    top: Callable[[np.ndarray, float], np.ndarray] | None = None
    outlet: Callable[[np.ndarray], np.ndarray] | None = None
    moved: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def extent(self) -> tuple[float, float, float, float]:
        x, y = (np.concatenate([getattr(each, axis) for each in self.rectangles]) for axis in "xy")
        return x.min(), x.max(), y.min(), y.max()


def _relative(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> float:
    return 100 * float(np.sqrt((weights * (one - other) ** 2).sum() / (weights * other**2).sum()))


def channel(aspect_ratio: float) -> Flow:
    x = np.linspace(0.0, 6.0, 25 if aspect_ratio > 1 else 73)
    y = spacing(0.0, 1.0, (x[1] - x[0]) / aspect_ratio, 1 / 12)

    def error(x: np.ndarray, y: np.ndarray, u: np.ndarray, p: np.ndarray) -> dict[str, float]:
        weights = np.gradient(x)[:, None] * np.gradient(y)
        exact = (0 * x[:, None] + 6 * y * (1 - y), 0 * y + 0.12 * (6 - x[:, None]))
        return {name: _relative(one, other, weights) for name, one, other in zip("up", (u, p), exact, strict=True)}

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
        ahead, beyond = y[1:3] - y[0]
        near = beyond**2 * u[:, 1] - ahead**2 * u[:, 2]  # the shear at the wall, by a parabola
        place = int(near.argmin()) + int(np.flatnonzero(near[near.argmin() :] >= 0)[0]) - 1
        found = x[place] - near[place] * (x[place + 1] - x[place]) / (near[place + 1] - near[place])
        return {"reattachment": 100 * (float(found) / REATTACHMENT - 1)}

    rectangles = Rectangle(behind, low), Rectangle(behind, high), Rectangle(before, high)
    return Flow(rectangles, 0.02, lambda y: 6 * y * (1 - y), error)


def blasius(viscosity: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Both velocities of the boundary layer that begins at x = 0."""
    found = solve_ivp(
        lambda _, f: [f[1], f[2], -0.5 * f[0] * f[2]], (0.0, 40.0), [0.0, 0.0, 0.332057336215],
        rtol=1e-10, atol=1e-12, dense_output=True,
    )  # fmt: skip
    height = np.minimum(y / np.sqrt(viscosity * x), 40.0)
    stream, speed, _ = found.sol(height.ravel()).reshape(3, *height.shape)
    return np.stack([speed, 0.5 * np.sqrt(viscosity / x) * (height * speed - stream)], axis=-1)


def plate(aspect_ratio: float) -> Flow:
    viscosity, height = 1e-4, 0.3
    x, thin = np.linspace(1.0, 2.0, 26), 0.04 / aspect_ratio
    y = spacing(0.0, height, min(thin, 0.01), 0.01 if aspect_ratio == 1 else 0.012, at_both=False)

    def error(x: np.ndarray, y: np.ndarray, u: np.ndarray, _: np.ndarray) -> dict[str, float]:
        weights = np.gradient(x)[:, None] * np.gradient(y)
        exact = blasius(viscosity, *np.meshgrid(x, y, indexing="ij"))[..., 0]
        ahead, beyond = y[1:3] - y[0]
        shear = (beyond**2 * u[:, 1] - ahead**2 * u[:, 2]) / (ahead * beyond * (beyond - ahead))
        true = 0.332057336215 / np.sqrt(viscosity * x)
        inside = slice(2, -2)
        drag = np.trapezoid(shear[inside], x[inside]) / np.trapezoid(true[inside], x[inside])
        return {"u": _relative(u, exact, weights), "drag": 100 * abs(float(drag) - 1)}

    return Flow(
        (Rectangle(x, y),),
        viscosity,
        lambda y: blasius(viscosity, np.ones_like(y), y),
        error,
        top=lambda x, y: blasius(viscosity, x, np.full_like(x, y)),
    )


def bend(aspect_ratio: float) -> Flow:
    """Around half a turn with inner radius 1: x is the angle, y the distance from the outer wall."""
    angles = np.linspace(0.0, np.pi, 49 if aspect_ratio > 1 else 73)
    y = spacing(0.0, 1.0, 1.5 * angles[1] / aspect_ratio, 1 / 12)
    # r ln r + a r + b / r vanishes at both walls.
    a, b = np.linalg.solve([[1.0, 1.0], [2.0, 0.5]], [0.0, -2.0 * np.log(2.0)])
    line = np.linspace(1.0, 2.0, 2001)

    def shape(r: np.ndarray) -> np.ndarray:
        return r * np.log(r) + a * r + b / r

    flux = np.trapezoid(shape(line), line)
    slopes = shape(line) ** 2 / flux**2 / line
    piled = np.concatenate([[0.0], np.cumsum(0.5 * (slopes[1:] + slopes[:-1]) * np.diff(line))])
    viscosity = 0.01

    def error(x: np.ndarray, y: np.ndarray, u: np.ndarray, p: np.ndarray) -> dict[str, float]:
        radii = 2.0 - y
        part = slice(0, 2 * len(x) // 3)
        weights = (np.gradient(x)[:, None] * np.gradient(y) * radii)[part]
        true = np.interp(radii, line, piled) + 2 * viscosity / flux * (x[:, None] - x[-1])
        away = [each[part] - (weights * each[part]).sum() / weights.sum() for each in (p, true)]
        speed = 0 * x[:, None] + shape(radii) / flux
        return {"u": _relative(u[part], speed[part], weights), "p": _relative(away[0], away[1], weights)}

    return Flow(
        (Rectangle(angles, y),),
        viscosity,
        lambda y: shape(2.0 - y) / flux,
        error,
        outlet=lambda y: np.interp(2.0 - y, line, piled),
        moved=lambda at: np.stack([(2 - at[:, 1]) * np.sin(at[:, 0]), 2 - (2 - at[:, 1]) * np.cos(at[:, 0])], axis=1),
    )


FLOWS = {"channel": channel, "plate": plate, "cavity": cavity, "step": step, "bend": bend}


def mesh_of(flow: Flow) -> tuple[Mesh, np.ndarray]:
    """The mesh, and where its points were before they moved."""
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
    at = merged[order]
    mesh = Mesh.from_arrays(
        at if flow.moved is None else flow.moved(at), {"quad": rank[places.ravel()][np.concatenate(quads)]}
    )
    left, right, _, top = flow.extent
    if flow.inlet is None:
        patches = {"top": at[:, 1] == top}
    else:
        patches = {"inlet": at[:, 0] == left, "outlet": at[:, 0] == right}
        if flow.top is not None:
            patches["top"] = at[:, 1] == top
    sides = mesh.facets.connectivity.reshape(-1, 2)
    # The ends of an inlet, an outlet or a lid are points of the walls beside them, too.
    open_sides = np.logical_or.reduce([mask[sides].all(axis=1) for mask in patches.values()])
    patches["walls"] = np.isin(np.arange(len(at)), sides[~open_sides])
    patches["corner"] = np.arange(len(at)) == 0
    return mesh.with_patches(patches), at


def case_of(flow: Flow) -> Case:
    mesh, at = mesh_of(flow)
    held: dict[str, dict] = {"u": {"top": (1.0, 0.0), "walls": 0.0}, "p": {"corner": 0.0}}
    if flow.inlet is not None:
        speeds = flow.inlet(at[:, 1])
        profile = speeds if speeds.ndim == 2 else np.stack([speeds, 0 * speeds], axis=1)
        held = {"u": {"inlet": torch.from_numpy(profile)}, "p": {"outlet": 0.0}}
        if flow.top is not None:
            held["u"]["top"] = torch.from_numpy(flow.top(at[:, 0], float(at[:, 1].max())))
        held["u"]["walls"] = 0.0
        if flow.outlet is not None:
            held["p"]["outlet"] = torch.from_numpy(flow.outlet(at[:, 1]))
    start = {"u": (0.0, 0.0), "p": 0.0}
    return Case(mesh, initial=start, dirichlet=held, parameters={"viscosity": flow.viscosity})


def errors_of(flow: Flow, velocity: np.ndarray, pressure: np.ndarray) -> dict[str, float]:
    """Of fields at the points of the case."""
    first = flow.rectangles[0]
    shape = len(first.x), len(first.y)
    number = shape[0] * shape[1]
    u = velocity[:number, 0].reshape(shape)
    if flow.moved is not None:  # around the bend
        angle = first.x[:, None]
        u = np.cos(angle) * u + np.sin(angle) * velocity[:number, 1].reshape(shape)
    return flow.error(first.x, first.y, u, pressure[:number].reshape(shape))


def by_network(flow: Flow, model: penn.Predictor) -> dict[str, float | bool | str]:
    case = case_of(flow)
    began = time.process_time()
    found = penn.predict(model, case, times=[penn.STEADY])
    seconds = time.process_time() - began
    u, p = (found.fields[name].double().numpy().reshape(case.number_of_points, -1) for name in ("u", "p"))
    return {
        **errors_of(flow, u, p[:, 0]),
        "seconds": round(seconds, 2),
        "converged": found.certificate.converged,
        "grade": found.expected.grade,
    }


def by_openfoam(flow: Flow, installation: running.Installation) -> dict[str, float]:
    found = plane_flows.solve(case_of(flow), installation=installation)
    first = flow.rectangles[0]
    x, y = ((line[1:] + line[:-1]) / 2 for line in (first.x, first.y))
    shape = len(x), len(y)
    number = shape[0] * shape[1]
    velocity, pressure = found.velocity[:number].reshape(*shape, 2), found.pressure[:number].reshape(shape)
    u = velocity[..., 0]
    if flow.moved is not None:
        u = np.cos(x)[:, None] * u + np.sin(x)[:, None] * velocity[..., 1]
    # Where shear is measured, the wall is the row before.
    if flow.top is not None or len(flow.rectangles) > 1:
        y, u, pressure = np.append(first.y[0], y), np.pad(u, ((0, 0), (1, 0))), np.pad(pressure, ((0, 0), (1, 0)))
    errors = flow.error(x, y, u, pressure)
    return {**errors, "seconds": round(found.seconds, 2), "iterations": found.iterations}


def table(rows: list[dict]) -> str:
    """By flow and way, the errors at each aspect ratio."""
    lines = []
    for name in FLOWS:
        for way in sorted({row["by"] for row in rows}):
            mine = {row["aspect_ratio"]: row for row in rows if row["flow"] == name and row["by"] == way}
            told = []
            for ratio in ASPECT_RATIOS:
                row = mine.get(ratio, {})
                kinds = [key for key in ("u", "p", "drag", "reattachment") if key in row]
                told.append(", ".join(f"{row[key]:.2g}" for key in kinds) or str(row.get("failed", "")))
            seconds = [row["seconds"] for row in mine.values() if "seconds" in row]
            lines.append([name, way, *told, f"{min(seconds, default=0):.1f}–{max(seconds, default=0):.1f}"])
    return markdown_table(("flow", "by", *(f"{ratio:.0f}" for ratio in ASPECT_RATIOS), "seconds"), lines)


def main() -> None:
    torch.set_num_threads(1)
    installation = running.find_installation(("simpleFoam",))

    def on(level: str) -> Callable[[Flow], dict]:
        model = penn.load_pretrained("flow")
        assert isinstance(model, penn.Predictor)
        model.set_level(level)
        return lambda flow: by_network(flow, model)

    ways: dict[str, Callable[[Flow], dict]] = {
        "`flow`": on("standard"),
        "`flow`, fast": on("fast"),
        "plain scheme, cells not split": lambda flow: by_network(flow, FlowScheme(splits=0)),
        "simpleFoam": lambda flow: by_openfoam(flow, installation),
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("flows", nargs="*")
    parser.add_argument("--by", choices=list(ways))
    given = parser.parse_args()
    wanted = given.flows or list(FLOWS)
    chosen = [given.by] if given.by else list(ways)
    rows = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.exists() else []
    rows = [row for row in rows if not (row["flow"] in wanted and row["by"] in chosen)]
    for name in wanted:
        for aspect_ratio in ASPECT_RATIOS:
            flow = FLOWS[name](aspect_ratio)
            cells = sum((len(each.x) - 1) * (len(each.y) - 1) for each in flow.rectangles)
            for way in chosen:
                try:
                    found: dict = {**ways[way](flow)}
                except (ArithmeticError, running.OpenFOAMError) as error:
                    found = {"failed": str(error).partition("\n")[0]}
                rows.append({"flow": name, "aspect_ratio": aspect_ratio, "cells": cells, "by": way, **found})
                print(json.dumps(rows[-1]), flush=True)
        about = {"growth": GROWTH, "penn": penn.__version__, "openfoam": installation.version}
        OUTPUT.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    made = table(rows)
    print(made)
    write_within(PAGE, made, "stretched meshes")


if __name__ == "__main__":
    main()
