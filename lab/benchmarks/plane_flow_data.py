"""What the dataset of plane flows consists of: numbers from its manifest, flow back through outlets, pictures.

    penn generate plane-flow --out data/plane_flow_made --finished data/plane_flow/finished --no-solve
    python lab/benchmarks/plane_flow_data.py data/plane_flow_made

Writes `lab/benchmarks/results/plane_flow_data.json`, tables of `docs/plane_flow.md`, the distributions
`docs/images/plane_flow_distributions.png`, and sheets with one flow of each family,
`docs/images/plane_flow_families_1.png` to `_4.png`, where the dataset has flows of all families. `--pictures` draws
only.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.tri import Triangulation

from pennlab.charts import COLOURS, chart, save
from pennlab.datasets.generate import failures
from pennlab.datasets.plane_flow import flows, meshes
from pennlab.datasets.plane_flow.cases import STEADY_VELOCITY
from pennlab.datasets.plane_flow.conditions import Inlet, Outlet, Slip, Wall
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.recipe import MESHES
from pennlab.datasets.plane_flow.shapes import FAMILIES, UNSEEN
from pennlab.paper.tables import markdown_table, within
from pennpde.case import Case
from pennpde.data import storage
from pennpde.data.storage import Manifest, summary

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "plane_flow.md"
OUTPUT = Path(__file__).parent / "results" / "plane_flow_data.json"
IMAGES = ROOT / "docs" / "images"
BACKFLOW = 0.001
"""Shares of the inflow below this are rounding."""
FAMILIES_PER_SHEET = 5
_COLOURS = {
    "wall": "black",
    "moving wall": "tab:orange",
    "inlet": COLOURS[0],
    "outlet": COLOURS[1],
    "slip": "tab:green",
}


# Numbers


def flow_of(name: str) -> str:
    """The flow of a case."""
    return name.rpartition(".")[0]


def first_cases(manifest: Manifest) -> dict[str, str]:
    """By flow that is there, the case on its first mesh, which has all of its moments."""
    return {flow_of(name): name for name in sorted(manifest.cases, reverse=True)}


def backflow(case: Case, outlets: Sequence[str], velocity: np.ndarray) -> float:
    """What enters through outlets, as a share of what leaves through them."""
    entering = leaving = 0.0
    areas = case.mesh.facet_areas.numpy()
    for name in outlets:
        facets = case.mesh.patch(name).facets
        ends = case.mesh.facets.take(facets).connectivity.reshape(len(facets), 2)
        outward = (velocity[ends].mean(axis=1) * areas[facets]).sum(axis=1)
        entering -= outward[outward < 0].sum()
        leaving += outward[outward > 0].sum()
    return float(entering / leaving) if leaving > 0 else 0.0


def measured_backflow(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """How often fluid enters through outlets: over the moments of all flows, and over steady states."""
    rows = []
    for name, first in first_cases(manifest).items():
        flow = flows.draw_flow(name)
        if not flow.outlets:
            continue
        case = storage.read_file(folder, first, manifest).case
        u = case.targets["u"].numpy()
        at_moments = [backflow(case, flow.outlets, u[..., place]) for place in range(u.shape[-1])]
        steady = case.targets.get(STEADY_VELOCITY)
        rows.append(
            (
                flow.family,
                flow.reynolds,
                at_moments,
                backflow(case, flow.outlets, steady.numpy()) if steady is not None else None,
            )
        )

    def told(shares: Sequence[float]) -> dict[str, Any]:
        some = [share for share in shares if share > BACKFLOW]
        return {
            "of": len(shares),
            "with_backflow": len(some),
            "above_a_tenth": sum(share > 0.1 for share in shares),
            "largest": round(max(shares, default=0.0), 4),
        }

    families = sorted({row[0] for row in rows})
    bands = ((3, 30), (30, 100), (100, 300), (300, 1000), (1000, 3000))
    return {
        "moments": told([share for row in rows for share in row[2]]),
        "steady_states": told([row[3] for row in rows if row[3] is not None]),
        "moments_by_family": {
            family: told([s for row in rows if row[0] == family for s in row[2]]) for family in families
        },
        "moments_by_reynolds": {
            f"{low} to {high}": told([s for row in rows if low <= row[1] < high for s in row[2]]) for low, high in bands
        },
    }


def counted(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Numbers of flows, cases, failures and bytes."""
    cases, made = manifest.cases, first_cases(manifest)
    lost = {flow_of(name) for name in manifest.failed} - made.keys()
    by_family = Counter(flows.parse_name(name)[0] for name in made)
    lost_by_family = Counter(flows.parse_name(name)[0] for name in lost)
    looked_for = [name for name, first in made.items() if "steady" in cases[first].facts["truth"]]
    steady = [name for name in looked_for if cases[made[name]].facts["truth"]["steady"]]
    why = Counter(
        str(cases[made[name]].facts["truth"]["why_not_steady"])[:60] for name in looked_for if name not in set(steady)
    )
    return {
        "flows": len(made),
        "cases": len(cases),
        "flows_by_split": {
            split: {
                "made": len({flow_of(name) for name in names if name in cases}),
                "of": len(flows.splits()[split]),
                "failed": len({flow_of(name) for name in names} & lost),
            }
            for split, names in manifest.splits.items()
        },
        "around_bodies": sum(len(flows.draw_flow(name).domain.loops) > 1 for name in made),
        "at_half_the_courant_number": sorted(
            name for name, first in made.items() if cases[first].facts["truth"].get("courant", 2.0) < 2.0
        ),
        "families": {name: {"made": by_family[name], "failed": lost_by_family[name]} for name in FAMILIES},
        "failed_flows": sorted(lost),
        "failures": failures(manifest),
        "moments": sum(len(cases[first].facts["times"]) for first in made.values()),
        "steady": {"looked_for": len(looked_for), "found": len(steady), "why_not": dict(why.most_common(8))},
        "megabytes": round(storage.bytes_on_disk(folder, manifest) / 1e6, 1),
        "files": len(manifest.files),
    }


# Tables of the page


def splits_table(found: Mapping[str, Any]) -> str:
    rows = [
        [f"`{split}`", *(f"{numbers[key]:,}" for key in ("of", "made", "failed"))]
        for split, numbers in found["flows_by_split"].items()
    ]
    return markdown_table(("split", "flows", "computed", "failed"), rows)


def failures_text(found: Mapping[str, Any]) -> str:
    """One or two sentences about what could not be computed."""
    lost, total = found["failed_flows"], found["flows"] + len(found["failed_flows"])
    names = ", ".join(f"`{name}`" for name in lost)
    words = f"Of {total:,} flows {f'{len(lost)} failed: {names}' if lost else 'none failed'}."
    if again := found["at_half_the_courant_number"]:
        words += f" {len(again)} needed half the Courant number: {', '.join(f'`{name}`' for name in again)}."
    return words


def backflow_table(found: Mapping[str, Any]) -> str:
    rows = []
    groups = {"all moments": found["moments"], "steady states": found["steady_states"]}
    groups |= {f"moments, Re {band}": numbers for band, numbers in found["moments_by_reynolds"].items()}
    for name, numbers in groups.items():
        total = max(1, numbers["of"])
        shares = [f"{100 * numbers[key] / total:.1f} %" for key in ("with_backflow", "above_a_tenth")]
        rows.append([name, f"{numbers['of']:,}", *shares, f"{100 * numbers['largest']:.0f} %"])
    return markdown_table(("", "number", "fluid enters", "more than a tenth of what leaves", "largest share"), rows)


# Pictures


def draw_distributions(manifest: Manifest) -> None:
    """Reynolds numbers, moments, sizes of domains and meshes, kinds of meshes and conditions, failures."""
    made = first_cases(manifest)
    drawn = [flows.draw_flow(name) for name in made]
    facts = [entry.facts for entry in manifest.cases.values()]
    figure, grid = chart(3, 3, 8.8, 7.2)
    axes = grid.ravel()
    lost = [flows.draw_flow(name) for name in sorted({flow_of(name) for name in manifest.failed} - made.keys())]
    bins = np.geomspace(3, 3000, 31)
    axes[0].hist([flow.reynolds for flow in drawn], bins, color=COLOURS[0], label="computed")
    axes[0].hist([flow.reynolds for flow in lost], bins, color=COLOURS[1], label="failed")
    axes[0].set(xscale="log", xlabel="Reynolds number", ylabel="flows")
    axes[0].legend(fontsize=8)
    axes[1].hist([moment for flow in drawn for moment in flow.moments], np.arange(0, 8.3, 0.25), color=COLOURS[0])
    axes[1].set(xlabel="time, inlet widths / bulk speed", ylabel="times of flows")
    boxes = np.array([flows.box_of(flow.domain) for flow in drawn])
    axes[2].scatter(boxes[:, 0], boxes[:, 1], s=3)
    axes[2].set(xlabel="length, inlet widths", ylabel="height, inlet widths")
    axes[3].hist([each["points"] for each in facts], 30, color=COLOURS[0])
    axes[3].set(xlabel="points of a mesh for networks", ylabel="cases")
    axes[4].hist([manifest.cases[first].facts["truth"]["cells"] for first in made.values()], 30, color=COLOURS[0])
    axes[4].set(xlabel="cells of the reference", ylabel="flows")
    fineness = [each["mesh"]["points_per_width"] for each in facts]
    axes[5].hist(fineness, 30, color=COLOURS[0])
    axes[5].set(xlabel="points per inlet width", ylabel="cases")
    _bars(axes[6], Counter(each["mesh"]["kind"] for each in facts), "cases")
    kinds = Counter(kind for flow in drawn for kind in {_kind(each) for each in flow.conditions.values()})
    profiles = Counter(
        f"{each.profile} inlet" for flow in drawn for each in flow.conditions.values() if isinstance(each, Inlet)
    )
    kinds.pop("inlet", None)
    _bars(axes[7], kinds + profiles, "flows that have it")
    families = Counter(flow.family for flow in drawn)
    place = np.arange(len(FAMILIES))
    steady = Counter(
        flows.parse_name(name)[0] for name, first in made.items() if manifest.cases[first].facts["truth"].get("steady")
    )
    failed = Counter(flow.family for flow in lost)
    axes[8].barh(place, [families[name] for name in FAMILIES], color=COLOURS[0], label="computed")
    axes[8].barh(place, [steady[name] for name in FAMILIES], color=COLOURS[5], label="with steady state")
    axes[8].barh(
        place,
        [failed[name] for name in FAMILIES],
        left=[families[name] for name in FAMILIES],
        color=COLOURS[1],
        label="failed",
    )
    axes[8].set_yticks(place, list(FAMILIES), fontsize=6)
    axes[8].invert_yaxis()
    axes[8].set(xlabel="flows")
    axes[8].set_xlim(0, 1.5 * max([1, *families.values()]))
    axes[8].legend(fontsize=7, loc="lower right")
    save(figure, IMAGES / "plane_flow_distributions.png", colours=64)


def _bars(axes: Any, counts: Mapping[str, int], label: str) -> None:
    names = sorted(counts, key=lambda name: -counts[name])
    axes.barh(np.arange(len(names)), [counts[name] for name in names], color=COLOURS[0])
    axes.set_yticks(np.arange(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel=label)


def _kind(condition: object) -> str:
    if isinstance(condition, Wall):
        return "wall" if condition.at_rest else "moving wall"
    if isinstance(condition, Slip):
        return "slip"
    return "outlet" if isinstance(condition, Outlet) else "inlet"


def chosen_flows(manifest: Manifest) -> list[str]:
    """One flow of each family: the one whose Reynolds number is nearest to 300, with a mesh that can be seen."""
    made = first_cases(manifest)
    found = []
    for family in FAMILIES:
        names = [name for name in made if flows.parse_name(name)[0] == family]
        if names:
            found.append(
                min(names[:40], key=lambda name: abs(math.log(manifest.cases[made[name]].facts["reynolds"] / 300)))
            )
    return found


def _cases_of(name: str, manifest: Manifest) -> list[str]:
    return [f"{name}.{mesh}" for mesh in MESHES if f"{name}.{mesh}" in manifest.cases]


def draw_families(folder: Path, manifest: Manifest) -> None:
    """Shape, mesh, speed and pressure of one flow of each family, some families on each sheet."""
    names = chosen_flows(manifest)
    coarser = {
        name: min(_cases_of(name, manifest), key=lambda each: manifest.cases[each].facts["points"]) for name in names
    }
    for sheet, start in enumerate(range(0, len(names), FAMILIES_PER_SHEET), 1):
        some = [flows.draw_flow(name) for name in names[start : start + FAMILIES_PER_SHEET]]
        boxes = [flows.box_of(flow.domain) for flow in some]
        heights = [min(max(height / length, 0.22), 1.0) for length, height in boxes]
        figure, axes = chart(len(some), 4, 8.8, 2.15 * sum(heights) + 0.42 * len(some), height_ratios=heights)
        for row, flow in zip(axes, some, strict=True):
            draw_flow(row, flow, storage.read_file(folder, coarser[flow.name], manifest).case)
        save(figure, IMAGES / f"plane_flow_families_{sheet}.png")


def draw_flow(row: Sequence[Any], flow: Flow, case: Case) -> None:
    shape, mesh_axes, speed_axes, pressure_axes = row
    for piece in flow.domain.pieces:
        kind = _kind(flow.conditions[piece.patch])
        shape.plot(*piece.path.T, color=_COLOURS[kind], linewidth=1.6)
    unseen = ", only for testing" if flow.family in UNSEEN else ""
    shape.set_title(f"{flow.family}{unseen}: Re {flow.reynolds:g}", fontsize=8)
    points = case.mesh.points.numpy()
    cells = meshes.cells_of(case.mesh)
    for each in cells.values():
        mesh_axes.add_collection(
            PolyCollection(list(points[each]), facecolors="none", edgecolors="0.35", linewidths=0.25)
        )
    mesh_axes.set_title(f"{case.mesh.number_of_points:,} points", fontsize=8)
    corners = [each for each in (cells.get("triangle"), *_halves(cells.get("quad"))) if each is not None]
    triangulation = Triangulation(points[:, 0], points[:, 1], np.concatenate(corners))
    u, p = case.targets["u"][..., -1].numpy(), case.targets["p"][..., -1].numpy()
    speed = np.sqrt((u**2).sum(axis=1))
    # A pole of the pressure in a corner would leave one colour for all the rest.
    low, high = np.percentile(p, [1.0, 99.0])
    for axes, values, title, limits, colours in (
        (
            speed_axes,
            speed,
            f"|u| at t = {flow.moments[-1]:g}: 0 to {speed.max():.2f}",
            (0.0, float(speed.max())),
            "viridis",
        ),
        (pressure_axes, p, f"p: {low:.2g} to {high:.2g}", (float(low), float(high)), "RdBu_r"),
    ):
        axes.tripcolor(triangulation, values, shading="gouraud", vmin=limits[0], vmax=limits[1], cmap=colours)
        axes.set_title(title, fontsize=8)
    sides = LineCollection(list(flow.domain.sides), colors="black", linewidths=0.5)
    pressure_axes.add_collection(sides)
    low_corner, high_corner = flow.domain.box
    for axes in row:
        axes.set_aspect("equal")
        axes.set_xlim(low_corner[0] - 0.06, high_corner[0] + 0.06)
        axes.set_ylim(low_corner[1] - 0.06, high_corner[1] + 0.06)
        axes.axis("off")


def _halves(quads: np.ndarray | None) -> list[np.ndarray]:
    return [] if quads is None else [quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "data" / "plane_flow_made")
    parser.add_argument("--pictures", action="store_true", help="draw only")
    given = parser.parse_args()
    manifest = storage.read_manifest(given.folder)
    if not given.pictures:
        found = {
            **counted(given.folder, manifest),
            "facts": summary(manifest),
            "backflow": measured_backflow(given.folder, manifest),
        }
        OUTPUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        page = within(page, splits_table(found) + "\n", "splits", required=True)
        page = within(page, failures_text(found) + "\n", "failures", required=True)
        page = within(page, backflow_table(found["backflow"]) + "\n", "backflow", required=True)
        PAGE.write_text(page, encoding="utf-8")
        print(json.dumps({key: value for key, value in found.items() if key != "facts"}, indent=1))
    draw_distributions(manifest)
    if lacking := [
        name for name in FAMILIES if name not in {flows.parse_name(flow)[0] for flow in first_cases(manifest)}
    ]:
        print(f"The sheets of the families stay as they are: there is no flow of {', '.join(lacking)}.")
    else:
        draw_families(given.folder, manifest)


if __name__ == "__main__":
    main()
