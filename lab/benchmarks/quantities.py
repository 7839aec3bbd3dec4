"""Quantities compared with published values and exact ones: drag, lift, losses, reattachment, vortex shedding.

    python lab/benchmarks/quantities.py [--workers=4] ["dfg-2d-1 fine" ...]

Each flow is predicted on a mesh as a user would make it. What is in the results is not predicted again; delete an entry
to start over. Prints and writes `lab/benchmarks/results/quantities.json`, and the table of docs/quantities.md.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from plane_flow_references import CHANNEL_HEIGHT, DIAMETER, cylinder, step, table

import pennpde
from pennlab.datasets.plane_flow.cases import case_on_mesh
from pennlab.datasets.plane_flow.meshes import MeshPlan, network_mesh
from pennlab.paper.tables import markdown_table, write_within
from pennpde.case import Case
from pennpde.data import workers
from pennpde.flow import coarse_march
from pennpde.mesh import Mesh
from pennpde.penn import Predictor
from pennpde.prediction import Outcome
from pennpde.quantities import parse
from pennpde.quantities.calibration import factors_of

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "quantities.json"
PAGE = ROOT / "docs" / "quantities.md"
LENGTH = DIAMETER / CHANNEL_HEIGHT
"""Diameter of the DFG benchmark's cylinder in heights of the channel, the unit of its mesh."""


def main() -> None:
    results = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    asked = [each for each in sys.argv[1:] if not each.startswith("--workers=")]
    processes = [int(each.partition("=")[2]) for each in sys.argv[1:] if each.startswith("--workers=")]
    if unknown := [each for each in asked if each not in TASKS]:
        raise SystemExit(f"There is no comparison {unknown[0]!r}; there are {', '.join(TASKS)}.")
    left = {name: (name,) for name in asked or TASKS if name not in results}
    for name, found in workers.each(_compared_with, left, workers=processes[0] if processes else 0):
        if isinstance(found, workers.Failure):
            raise SystemExit(f"{name}: {found.error}")
        results[name] = found
        OUTPUT.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(found), flush=True)
    if PAGE.exists():
        write_within(PAGE, page_table(results), "references")


def _compared_with(name: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    return TASKS[name]()


def _predicted(case: Case, level: str, wanted: dict[str, tuple[str, Any]], **asked: Any) -> dict[str, Any]:
    """Quantities of one prediction beside what is published: a number, or the range of several sources."""
    outcome, about = _outcome(case, level, **asked)
    found = {}
    for label, (text, published) in wanted.items():
        found[label] = _entry(outcome, text, published)
    return about | {"quantities": found}


def _outcome(case: Case, level: str, **asked: Any) -> tuple[Outcome, dict[str, Any]]:
    network = pennpde.load_pretrained("flow")
    assert isinstance(network, Predictor)
    network.set_level(level)
    began = time.process_time()
    outcome = pennpde.predict(network, case, resolution="own", **asked)
    seconds = round(time.process_time() - began, 1)
    balance = outcome.outflow
    assert balance is not None
    scale = float(balance.abs().reshape(len(balance), -1).sum(dim=0).max())
    lost = float(balance.reshape(len(balance), -1).sum(dim=0).abs().max()) / (scale or 1.0)
    about = {"level": level, "points": case.number_of_points, "converged": outcome.certificate.converged}
    return outcome, about | {"seconds": seconds, "flow_lost": lost}


def _entry(outcome: Outcome, text: str, published: Any) -> dict[str, Any]:
    """A quantity, what is published, and how far the coarser solution is from it, which tells the expected error."""
    quantity, flow = parse(text), outcome.flow
    assert flow is not None
    found = quantity.kind.measure(flow, quantity)
    apart = quantity.difference(flow, found)
    return {
        "found": round(float(found.values[-1]), 6),
        "published": published,
        "group": quantity.kind.group,
        "apart": None if apart is None else round(apart, 8),
    }


# The flows


def dfg_2d_1(level: str) -> dict[str, Any]:
    """Schäfer & Turek 1996, values of FeatFlow; in heights of the channel and mean speeds."""
    case = _channel(MEAN_20)
    wanted = {
        "drag coefficient": (f"drag coefficient obstacle length {LENGTH}", 5.5795),
        "lift coefficient": (f"lift coefficient obstacle length {LENGTH}", 0.010619),
    }
    outcome, about = _outcome(case, level, steady=True)
    found = {}
    for label, (text, published) in wanted.items():
        found[label] = _entry(outcome, text, published)
    front, back = (_at_angle(outcome, angle) for angle in (math.pi, 0.0))
    found["pressure difference"] = {"found": round((front - back) * 0.2**2, 6), "published": 0.11752}
    return about | {"quantities": found}


def _at_angle(outcome: Outcome, angle: float) -> float:
    """The pressure on the circle: a parabola through the means over the nearest five facets."""
    flow = outcome.flow
    assert flow is not None
    facets = flow.facets("obstacle")
    away = flow.middles[facets] - 0.2 / CHANNEL_HEIGHT
    turned = (np.arctan2(away[:, 1], away[:, 0]) - angle + math.pi) % (2 * math.pi) - math.pi
    near = np.argsort(np.abs(turned))[:5]
    return float(np.polyfit(turned[near], flow.pressure[-1, facets[near]], 2)[-1])


def dfg_2d_2(level: str, points: float, end: float, interval: float) -> dict[str, Any]:
    """Vortex shedding at Re 100: largest drag and lift, Strouhal number; from rest on, over the last periods."""
    begin = end - 4.5  # heights over mean speeds; a period is about 0.8
    times = (begin + interval * np.arange(1, round(4.5 / interval) + 1)).tolist()
    outcome, about = _outcome(_channel(MEAN_100, points), level, times=times)
    drag, lift = outcome.quantities([f"{name} coefficient obstacle length {LENGTH}" for name in ("drag", "lift")])
    numbers = {
        "largest drag coefficient": (float(drag.values.max()), [3.22, 3.24]),
        "largest lift coefficient": (float(lift.values.max()), [0.98, 1.02]),
        "Strouhal number": (lift.strouhal, [0.295, 0.305]),
    }
    found = {
        name: {"found": None if number is None else round(number, 5), "published": published}
        for name, (number, published) in numbers.items()
    }
    return about | {"quantities": found}


def dfg_2d_3(level: str, points: float, interval: float, pace: float = 1.0) -> dict[str, Any]:
    """The inflow rises and falls over eight seconds, to Re 100: largest drag and lift, pressure difference at the end.

    John 2004 and FeatFlow: drag 2.95092 at t = 3.93625, lift 0.47795 at t = 5.693125, pressure difference -0.1116.

    Args:
        level: Of accuracy.
        points: Per height of the channel.
        interval: At which drag and lift are looked at.
        pace: Times the steps that the level takes.
    """
    case, unit = _channel(MEAN_100, points), CHANNEL_HEIGHT / MEAN_100
    largest, walls = case.dirichlet["u"].values, ("wall", "obstacle")

    def inflow(time: float) -> torch.Tensor:
        return largest * math.sin(math.pi * time * unit / 8.0)

    case = Case(
        case.mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": inflow, **dict.fromkeys(walls, 0.0)}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, **dict.fromkeys(walls, 0.0)}},
        parameters=case.parameters,
    )
    end = 8.0 / unit
    times = (interval * np.arange(1, math.ceil(end / interval))).tolist()
    slower = {splits: pace * courant for splits, courant in coarse_march._COURANT.items()}
    with mock.patch.multiple(coarse_march, _COURANT=slower, _FINE_COURANT=pace * coarse_march._FINE_COURANT):
        outcome, about = _outcome(case, level, times=[*times, end], length=1.0, speed=1.0)
    drag, lift = outcome.quantities(
        [f"{name} coefficient obstacle length {LENGTH} speed 1 along 1 0" for name in ("drag", "lift")]
    )
    found: dict[str, Any] = {
        "largest drag coefficient": {"found": round(float(drag.values.max()), 5), "published": 2.95092},
        "its time": {"found": round(unit * drag.times[int(drag.values.argmax())], 4), "published": 3.93625},
        "largest lift coefficient": {"found": round(float(lift.values.max()), 5), "published": 0.47795},
        "the lift's time": {"found": round(unit * lift.times[int(lift.values.argmax())], 4), "published": 5.69313},
    }
    front, back = (_at_angle(outcome, angle) for angle in (math.pi, 0.0))
    found["pressure difference at the end"] = {"found": round(front - back, 5), "published": -0.1116}
    return about | {"quantities": found}


def shedding_cylinder(reynolds: float, level: str, end: float, interval: float) -> dict[str, Any]:
    """A free stream past a circle that sheds vortices; the stream is a degree off the axis of the mesh.

    Ranges of Park et al. 1998, Liu et al. 1998, Posdziech & Grundmann 2007 and others.
    """
    published = {100.0: ([1.32, 1.36], [0.32, 0.345], [0.163, 0.167])}[reynolds]
    slant = math.radians(1.0)
    stream = (math.cos(slant), math.sin(slant))
    case = Case(
        _rings(48, 32, 30.0),
        initial={"u": stream, "p": 0.0},
        dirichlet={"u": {"inlet": stream, "cylinder": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "cylinder": 0.0}},
        parameters={"viscosity": 1.0 / reynolds},
    )
    times = np.arange(end - 24.0, end + 0.5 * interval, interval).tolist()  # four periods
    outcome, about = _outcome(case, level, times=times, length=1.0, speed=1.0)
    drag, lift = outcome.quantities(
        [f"{name} coefficient cylinder along {stream[0]} {stream[1]}" for name in ("drag", "lift")]
    )
    numbers = {
        "mean drag coefficient": (drag.mean, published[0]),
        "amplitude of lift": (lift.amplitude, published[1]),
        "Strouhal number": (lift.strouhal, published[2]),
    }
    found = {
        name: {"found": None if number is None else round(number, 5), "published": known}
        for name, (number, known) in numbers.items()
    }
    return about | {"quantities": found}


MEAN_20, MEAN_100 = 0.2, 1.0
"""Mean speeds of the DFG benchmarks, in metres per second."""


def _channel(mean_speed: float, points: float = 16.0) -> Case:
    flow = cylinder()
    case = case_on_mesh(flow, network_mesh(flow, MeshPlan("graded", points, 0.5, 0)))
    viscosity = torch.tensor(1e-3 / (mean_speed * CHANNEL_HEIGHT), dtype=torch.float64)
    return Case(
        case.mesh,
        initial=case.initial,
        conditions=case.conditions,
        parameters={"viscosity": viscosity},
    )


def open_cylinder(reynolds: float, level: str) -> dict[str, Any]:
    """A uniform stream past a circle; the mesh ends 30 diameters away."""
    published = {
        20.0: ([2.00, 2.06], [0.91, 0.94]),
        40.0: ([1.50, 1.54], [2.13, 2.35]),
    }[reynolds]
    case = Case(
        mesh := _rings(48, 32, 30.0),
        initial={"u": (1.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "cylinder": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "cylinder": 0.0}},
        parameters={"viscosity": 1.0 / reynolds},
    )
    assert mesh.space == 2
    wanted = {
        "drag coefficient": ("drag coefficient cylinder", published[0]),
        "length of the wake": ("recirculation length cylinder", published[1]),
    }
    return _predicted(case, level, wanted, steady=True, length=1.0, speed=1.0)


def _rings(around: int, number: int, outer: float) -> Mesh:
    """Quads between a circle of diameter one and one far away, as long as they are wide."""
    angle = 2 * np.pi * np.arange(around) / around
    radii = 0.5 * (2 * outer) ** np.linspace(0.0, 1.0, number + 1)
    points = (radii[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)).reshape(-1, 2)
    ring, place = (each.ravel() for each in np.meshgrid(np.arange(number), np.arange(around), indexing="ij"))
    here, beside = ring * around + place, ring * around + (place + 1) % around
    mesh = Mesh.from_arrays(points, {"quad": np.stack([here, here + around, beside + around, beside], axis=1)})
    edges = mesh.facets.connectivity.reshape(-1, 2)
    middles = points[edges].mean(axis=1)
    body, downstream = np.linalg.norm(middles, axis=1) < 1.0, middles[:, 0] > 0.5 * outer
    patches = {"cylinder": body, "outlet": ~body & downstream, "inlet": ~body & ~downstream}
    return mesh.with_patch_facets({name: edges[chosen].tolist() for name, chosen in patches.items()})


def backward_step(reynolds: float, level: str) -> dict[str, Any]:
    """Erturk 2008; the step is at x = 2.5, its Reynolds number has twice the inlet's height."""
    flow = step(reynolds)
    case = case_on_mesh(flow, network_mesh(flow, MeshPlan("graded", 16.0, 0.5, 0)))
    published = table("step_reattachment_erturk_2008.csv")
    expected = dict(zip(published["reynolds"], published["reattachment"], strict=True))[reynolds]
    outcome, about = _outcome(case, level, steady=True)
    entry = _entry(outcome, "reattachment wall", float(expected))
    return about | {"quantities": {"reattachment": entry | {"found": round(entry["found"] - 2.5, 5)}}}


def poiseuille(level: str) -> dict[str, Any]:
    """A channel eight heights long: Δp = 12 ν U L / H²."""
    length, across, viscosity = 8.0, 16, 0.05
    x, y = np.meshgrid(np.linspace(0.0, length, int(across * length / 2) + 1), np.linspace(0.0, 1.0, across + 1))
    row = x.shape[1]
    corner = (np.arange(across)[:, None] * row + np.arange(row - 1)).ravel()
    quads = np.stack([corner, corner + 1, corner + row + 1, corner + row], axis=1)
    mesh = Mesh.from_arrays(np.stack([x.ravel(), y.ravel()], axis=1), {"quad": quads})
    sides = {"inlet": (0, 0.0), "outlet": (0, length), "bottom": (1, 0.0), "top": (1, 1.0)}
    mesh = mesh.with_patches(
        {name: lambda points, axis=axis, at=at: abs(points[:, axis] - at) < 1e-9 for name, (axis, at) in sides.items()}
    )
    height = mesh.points[:, 1]
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {
                "inlet": torch.stack([6 * height * (1 - height), 0 * height], dim=1),
                "bottom": 0.0,
                "top": 0.0,
            },
            "p": {"outlet": 0.0},
        },
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "bottom": 0.0, "top": 0.0}},
        parameters={"viscosity": viscosity},
    )
    loss = 12 * viscosity * length
    wanted = {
        "pressure drop": ("pressure drop inlet outlet", loss),
        "drag of the walls": ("drag bottom+top", loss),
        "uniformity": ("uniformity outlet", 1 - 1 / (3 * math.sqrt(3))),
    }
    return _predicted(case, level, wanted, steady=True)


TASKS: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"dfg-2d-1 {level}": partial(dfg_2d_1, level) for level in ("fast", "standard", "fine")},
    **{
        f"cylinder-{reynolds:g} {level}": partial(open_cylinder, reynolds, level)
        for reynolds in (20.0, 40.0)
        for level in ("standard", "fine")
    },
    **{
        f"step-{reynolds:g} {level}": partial(backward_step, reynolds, level)
        for reynolds in (100.0, 400.0)
        for level in ("standard", "fine")
    },
    **{f"poiseuille {level}": partial(poiseuille, level) for level in ("standard", "fine")},
    "dfg-2d-2 standard": partial(dfg_2d_2, "standard", 16.0, 25.0, 0.03),
    "dfg-2d-2 fine": partial(dfg_2d_2, "fine", 16.0, 25.0, 0.03),
    **{f"dfg-2d-3 {level}": partial(dfg_2d_3, level, 16.0, 0.05) for level in ("standard", "fine")},
    **{
        f"dfg-2d-3 {level}, steps half as long": partial(dfg_2d_3, level, 16.0, 0.05, pace=0.5)
        for level in ("standard", "fine")
    },
    "dfg-2d-3 fine, cells 2/3 as large": partial(dfg_2d_3, "fine", 24.0, 0.05),
    **{f"cylinder-100 {level}": partial(shedding_cylinder, 100.0, level, 140.0, 0.2) for level in ("standard", "fine")},
}


def page_table(results: dict[str, Any]) -> str:
    rows = []
    for name in TASKS:
        if name not in results:
            continue
        entry = results[name]
        for place, (label, each) in enumerate(entry["quantities"].items()):
            about = [
                f"{name.partition(' ')[0]}, {entry['points']} points",
                f"`{entry['level']}`{', steps half as long' * name.endswith('steps half as long')}",
                f"{entry['seconds']:.0f}",
            ]
            rows.append([*(about if place == 0 else ["", "", ""]), label, *_compared(each, entry["level"])])
    return markdown_table(("flow", "level", "seconds", "quantity", "found", "published", "off by"), rows)


def _compared(entry: dict[str, Any], level: str) -> Sequence[str]:
    published, found = entry["published"], entry["found"]
    if found is None:
        return ("none", str(published), "")
    factors, apart = factors_of(level, entry.get("group", "")), entry.get("apart")
    plus = "" if factors is None or apart is None else f" ± {factors[0] * apart:.2g}"
    low, high = published if isinstance(published, list) else (published, published)
    nearest = min(max(found, low), high)
    off = "within" if low <= found <= high else f"{100 * abs(found / nearest - 1):.2g} %"
    return f"{found:.5g}{plus}", f"{low:.5g}" if low == high else f"{low:g} to {high:g}", off


if __name__ == "__main__":
    main()
