"""The truth of the plane flows compared with what others published: cavity, backward-facing step, cylinder.

Each flow is computed as those of the dataset are: same sizes of cells, same schemes, same rule for a steady state. The
tables of Ghia and Erturk and the COMSOL solution are looked for in the folder `references` next to $PENN_REFERENCE, or
next to the repository. A flow that is in the results is not computed again; delete the file to start over.

    python lab/benchmarks/plane_flow_references.py [cavity-100 step-400 ...]

Prints and writes `lab/benchmarks/results/plane_flow_references.json`, and the table of `docs/plane_flow.md`.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from pennlab.datasets.plane_flow.conditions import Inlet, Outlet, Wall
from pennlab.datasets.plane_flow.domain import Domain, Piece
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.datasets.plane_flow.shapes.drawing import ARC_STEP, chain, closed
from pennlab.datasets.plane_flow.start import gradients
from pennlab.datasets.plane_flow.truth import Truth, solve
from pennlab.paper.tables import markdown_table, within
from pennpde.mesh.triangulation import interpolation

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "plane_flow.md"
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "plane_flow_references.json"
REFERENCES = (
    Path(os.environ.get("PENN_REFERENCE", ROOT.parent / "shared" / "reference")).resolve().parent / "references"
)
SETTLED = 40.0
"""A late moment, in lid lengths over lid speed: the dataset has no steady states of the cavity at Re 1000."""
STEADY_ITERATIONS = 3000
"""More than the dataset allows: a comparison should not end because of a limit on computing time."""


def cavity(reynolds: float) -> Flow:
    """The square cavity; its lid is at y = 0."""
    outer = [
        *chain([(0.0, -1.0), (1.0, -1.0), (1.0, 0.0)], "wall"),
        Piece.of([(1.0, 0.0), (0.0, 0.0)], "lid"),
        Piece.of([(0.0, 0.0), (0.0, -1.0)], "wall"),
    ]
    conditions = {"wall": Wall(), "lid": Wall((1.0, 0.0))}
    # At Re 1000 the dataset has no steady states: the moment is late enough to be one.
    moments = (SETTLED if reynolds > 400 else 8.0,)
    name = f"cavity-{reynolds:g}"
    return Flow(name, "cavity", Domain.of(outer), conditions, reynolds, moments, pressure_point=(0.0, -1.0))


def step(reynolds: float) -> Flow:
    """A step as high as the inlet is wide; Erturk's Reynolds number has twice the inlet width."""
    inlet, end = 2.5, 15.5
    outer = [
        *chain([(0.0, 0.0), (inlet, 0.0), (inlet, -1.0), (end, -1.0)], "wall"),
        Piece.of([(end, -1.0), (end, 1.0)], "outlet"),
        Piece.of([(end, 1.0), (0.0, 1.0)], "wall"),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    conditions = {"wall": Wall(), "outlet": Outlet(), "inlet": Inlet((0.0, 1.0), (0.0, 0.0), 1.0, "parabolic")}
    return Flow(f"step-{reynolds:g}", "step", Domain.of(outer), conditions, reynolds / 2, (8.0,))


def comsol_step() -> Flow:
    """A duct of height 1 that widens upward to 2 at x = 2 and ends at x = 4; viscosity 0.01, largest inflow 1."""
    outer = [
        *chain([(0.0, 0.0), (4.0, 0.0)], "wall"),
        Piece.of([(4.0, 0.0), (4.0, 2.0)], "outlet"),
        *chain([(4.0, 2.0), (2.0, 2.0), (2.0, 1.0), (0.0, 1.0)], "wall"),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    # The speed of an inlet is its mean, two thirds of the largest.
    inlet = Inlet((0.0, 1.0), (0.0, 0.0), 2.0 / 3.0, "parabolic")
    return Flow(
        "comsol-step", "step", Domain.of(outer), {"wall": Wall(), "outlet": Outlet(), "inlet": inlet}, 100.0, (8.0,)
    )


CHANNEL_HEIGHT, MEAN_SPEED, DIAMETER = 0.41, 0.2, 0.1
"""Of the DFG benchmark 2D-1, in metres and seconds; its viscosity is 1e-3."""


def cylinder() -> Flow:
    """DFG 2D-1 in heights of the channel and mean speeds."""
    length = 2.2 / CHANNEL_HEIGHT
    centre, radius = 0.2 / CHANNEL_HEIGHT, 0.5 * DIAMETER / CHANNEL_HEIGHT
    outer = [
        *chain([(0.0, 0.0), (length, 0.0)], "wall"),
        Piece.of([(length, 0.0), (length, 1.0)], "outlet"),
        *chain([(length, 1.0), (0.0, 1.0)], "wall"),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    angle = np.linspace(0.0, -2 * np.pi, int(np.ceil(2 * np.pi / ARC_STEP)), endpoint=False)
    hole = closed(centre + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    conditions = {
        "wall": Wall(),
        "outlet": Outlet(),
        "inlet": Inlet((0.0, 1.0), (0.0, 0.0), 1.0, "parabolic"),
        "obstacle": Wall(),
    }
    reynolds = MEAN_SPEED * CHANNEL_HEIGHT / 1e-3
    return Flow("cylinder", "round-bodies", Domain.of(outer, [hole]), conditions, reynolds, (8.0,))


# What is compared


def at(truth: Truth, values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return interpolation(truth.mesh.points, truth.mesh.triangles, positions, 1e-3)[0] @ values


def table(name: str) -> dict[str, np.ndarray]:
    path = REFERENCES / name
    if not path.exists():
        raise SystemExit(f"{path} is missing; put the published values there or set $PENN_REFERENCE to its neighbour.")
    with path.open() as lines:
        rows = list(csv.DictReader(lines))
    return {key: np.array([float(row[key]) for row in rows if row[key]]) for key in rows[0]}


EXTREMES = {
    100: {"u_lowest": -0.21404, "v_highest": 0.17957, "v_lowest": -0.25380},
    1000: {"u_lowest": -0.38857, "v_highest": 0.37694, "v_lowest": -0.52708},
}
"""On the centre lines of the cavity, to more digits than Ghia's grids give: Re 100 by Marchi, Suero & Araki (2009),
Re 1000 by Botella & Peyret (1998)."""


def centre_lines(truth: Truth, velocity: np.ndarray, reynolds: int) -> dict[str, Any]:
    """The largest deviations from Ghia, Ghia & Shin (1982), in lid speeds, and the extremes on the centre lines."""
    published = table("cavity_ghia_1982_re100_re1000.csv")

    def upright(y: np.ndarray) -> np.ndarray:
        return at(truth, velocity[:, 0], np.stack([np.full_like(y, 0.5), y - 1.0], axis=1))

    def level(x: np.ndarray) -> np.ndarray:
        return at(truth, velocity[:, 1], np.stack([x, np.full_like(x, -0.5)], axis=1))

    fine = np.linspace(0.0, 1.0, 1001)
    u, v = upright(fine), level(fine)
    found = {"u_lowest": float(u.min()), "v_highest": float(v.max()), "v_lowest": float(v.min())}
    return {
        "u_largest_deviation": float(np.abs(upright(published["y"]) - published[f"u_re{reynolds}"]).max()),
        "v_largest_deviation": float(np.abs(level(published["x"]) - published[f"v_re{reynolds}"]).max()),
        "extremes": {
            name: {"found": found[name], "published": value, "relative_difference": found[name] / value - 1}
            for name, value in EXTREMES[reynolds].items()
        },
    }


def judge_cavity(flow: Flow, truth: Truth) -> dict[str, Any]:
    reynolds = round(flow.reynolds)
    found: dict[str, Any] = {"last_moment": centre_lines(truth, truth.velocity[..., -1], reynolds)}
    if truth.steady_velocity is not None:
        found["steady"] = centre_lines(truth, truth.steady_velocity, reynolds)
    return found


def judge_step(flow: Flow, truth: Truth) -> dict[str, Any]:
    """Where the shear at the lower wall changes its sign, in step heights."""
    velocity = _steady(truth)
    x = np.linspace(2.55, 15.0, 4000)
    near = 0.004
    u, further = (
        at(truth, velocity[:, 0], np.stack([x, np.full_like(x, -1.0 + height)], axis=1)) for height in (near, 2 * near)
    )
    shear = 4 * u - further
    turns = np.flatnonzero((shear[:-1] < 0) & (shear[1:] >= 0))
    last = turns[-1]
    place = x[last] - shear[last] * (x[last + 1] - x[last]) / (shear[last + 1] - shear[last])
    published = table("step_reattachment_erturk_2008.csv")
    expected = dict(zip(published["reynolds"], published["reattachment"], strict=True))[2 * flow.reynolds]
    found = float(place - 2.5)
    return {"reattachment": found, "published": float(expected), "relative_difference": found / float(expected) - 1}


def judge_comsol(_: Flow, truth: Truth) -> dict[str, Any]:
    """Relative differences over the points of the COMSOL solution.

    The eddy behind the step reaches the outlet, where the two treat what flows back in differently. That changes the
    level of the pressure upstream, so its differences are given with and without a constant.
    """
    published = table("comsol_ns_0_obstacle.csv")
    positions = np.stack([published["x"], published["y"]], axis=1)
    expected_u, expected_p = np.stack([published[name] for name in "uv"], axis=1), published["p"]
    u = at(truth, _steady(truth), positions)
    assert truth.steady_pressure is not None
    p = at(truth, truth.steady_pressure, positions)

    def relative(difference: np.ndarray, expected: np.ndarray) -> float:
        return float(np.sqrt((difference**2).sum() / (expected**2).sum()))

    found: dict[str, Any] = {}
    for name, end in (("everywhere", 4.0), ("x_below_3", 3.0), ("x_below_2", 2.0)):
        chosen = positions[:, 0] <= end
        apart = (p - expected_p)[chosen]
        found[name] = {
            "u": relative((u - expected_u)[chosen], expected_u[chosen]),
            "p": relative(apart, expected_p[chosen]),
            "p_without_level": relative(apart - apart.mean(), expected_p[chosen] - expected_p[chosen].mean()),
            "level": float(apart.mean()),
        }
    return found


def judge_cylinder(flow: Flow, truth: Truth) -> dict[str, Any]:
    velocity, pressure = _steady(truth), truth.steady_pressure
    assert pressure is not None
    drag, lift = force(flow, truth, velocity, pressure) * 2 / (DIAMETER / CHANNEL_HEIGHT)
    ends = np.array([[0.15, 0.2], [0.25, 0.2]]) / CHANNEL_HEIGHT
    front, back = at(truth, pressure, ends) * MEAN_SPEED**2
    found = {"drag": float(drag), "lift": float(lift), "pressure_difference": float(front - back)}
    published = {"drag": 5.5795, "lift": 0.010619, "pressure_difference": 0.117520}
    differences = {name: found[name] / value - 1 for name, value in published.items()}
    return {"found": found, "published": published, "relative_difference": differences}


def force(flow: Flow, truth: Truth, velocity: np.ndarray, pressure: np.ndarray, reach: float = 0.2) -> np.ndarray:
    """The force on the body: the momentum equation tested with a function that is 1 on it and 0 further away.

    An integral over the fluid is more accurate than one of the shear on the surface, which would be of first order.
    """
    mesh = truth.mesh
    slopes, areas = gradients(mesh)
    on_body = np.unique(mesh.edges[mesh.patches["obstacle"]])
    distance = KDTree(mesh.points[on_body]).query(mesh.points)[0]
    test = np.clip(1.0 - distance / reach, 0.0, None)
    test[on_body] = 1.0
    of_test = np.einsum("tia,ti->ta", slopes, test[mesh.triangles])
    of_velocity = np.einsum("tia,tic->tac", slopes, velocity[mesh.triangles])  # ∂u_c/∂x_a
    mean_velocity, mean_test = velocity[mesh.triangles].mean(axis=1), test[mesh.triangles].mean(axis=1)
    convection = np.einsum("ta,tac->tc", mean_velocity, of_velocity) * mean_test[:, None]
    friction = flow.viscosity * np.einsum("ta,tac->tc", of_test, of_velocity)
    push = pressure[mesh.triangles].mean(axis=1)[:, None] * of_test
    return -((convection + friction - push) * areas[:, None]).sum(axis=0)


def _steady(truth: Truth) -> np.ndarray:
    if truth.steady_velocity is None:
        raise SystemExit(f"No steady state was found: {truth.facts.get('why_not_steady')}.")
    return truth.steady_velocity


TASKS: Mapping[str, tuple[Callable[[], Flow], Callable[[Flow, Truth], dict[str, Any]]]] = {
    "cavity-100": (lambda: cavity(100.0), judge_cavity),
    "step-100": (lambda: step(100.0), judge_step),
    "comsol-step": (comsol_step, judge_comsol),
    "cylinder": (cylinder, judge_cylinder),
    "step-400": (lambda: step(400.0), judge_step),
    "cylinder-half-spacing": (cylinder, judge_cylinder),
    "cavity-1000": (lambda: cavity(1000.0), judge_cavity),
}


def page_table(results: Mapping[str, Any]) -> str:
    """All comparisons that are there, in Markdown."""
    rows: list[list[str]] = []

    def add(flow: str, quantity: str, ours: float, theirs: float, source: str) -> None:
        difference = f"{100 * (ours / theirs - 1):+.2f} %"
        rows.append([flow, quantity, f"{ours:.5g}", f"{theirs:.5g}", difference, source])

    names = {"u_lowest": "lowest u on x = 1/2", "v_highest": "highest v on y = 1/2", "v_lowest": "lowest v on y = 1/2"}
    for reynolds, state, source in ((100, "steady", "Marchi 2009"), (1000, "last_moment", "Botella & Peyret 1998")):
        found = results.get(f"cavity-{reynolds}", {}).get(state)
        if found is None:
            continue
        flow = f"cavity, Re {reynolds}, {'steady state' if state == 'steady' else f't = {SETTLED:g}'}"
        for key, extreme in found["extremes"].items():
            add(flow, names[key], extreme["found"], extreme["published"], source)
        deviations = f"{found['u_largest_deviation']:.4f} in u, {found['v_largest_deviation']:.4f} in v"
        rows.append([flow, "largest deviation on the centre lines", deviations, "0", "–", "Ghia 1982"])
    for reynolds in (100, 400):
        if found := results.get(f"step-{reynolds}"):
            add(
                f"step, Re {reynolds}",
                "reattachment, step heights",
                found["reattachment"],
                found["published"],
                "Erturk 2008",
            )
    for name, flow in (("cylinder", "DFG 2D-1"), ("cylinder-half-spacing", "DFG 2D-1, half the spacing")):
        if found := results.get(name):
            for key, value in found["found"].items():
                add(flow, key.replace("_", " "), value, found["published"][key], "Schäfer & Turek 1996")
    if found := results.get("comsol-step"):
        for key, where in (("x_below_2", "before the step"), ("x_below_3", "x < 3"), ("everywhere", "everywhere")):
            share = found[key]
            text = f"u {100 * share['u']:.2f} %, p without its level {100 * share['p_without_level']:.1f} %"
            rows.append(["step of PINNacle", f"relative L2 difference {where}", text, "0", "–", "COMSOL"])
    return markdown_table(("flow", "quantity", "here", "published", "difference", "source"), rows)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    chosen = sys.argv[1:] or list(TASKS)
    results = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    for name in chosen:
        if name not in TASKS:
            raise SystemExit(f"There is no comparison {name!r}; there are {', '.join(TASKS)}.")
        if name not in results:
            draw, judge = TASKS[name]
            flow = draw()
            with tempfile.TemporaryDirectory(prefix=f"penn-{name}-") as scratch:
                spacing = 0.5 if name.endswith("half-spacing") else 1.0
                resolution = Resolution(spacing, steady_iterations=STEADY_ITERATIONS)
                truth = solve(flow, Path(scratch) / "case", resolution, steady=True)
            facts = {key: value for key, value in truth.facts.items() if not key.startswith("seconds")}
            results[name] = _rounded({**judge(flow, truth), "reynolds": flow.reynolds, "solver": facts})
            OUTPUT.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name]))
    print(page_table(results))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(within(page, page_table(results) + "\n", "references", required=True), encoding="utf-8")


if __name__ == "__main__":
    main()
