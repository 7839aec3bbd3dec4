"""The general flow network on the test flows of the plane-flow dataset that are finished, next to its rivals.

Every moment and the steady state of each case, on both meshes. Cases in the results are not predicted again, unless
weights or solver have changed. Seconds are processor seconds of one core.

    python lab/benchmarks/general_flow_test.py [--limit N] [--model flow] [--workers 2]
    python lab/benchmarks/general_flow_test.py --table      # only table and figure, from results that are there

Writes `lab/benchmarks/results/general_flow_test.json`, and the table and the figure of `docs/general_flow_results.md`.
Rivals come from `lab/benchmarks/plane_flow_rivals.py` and `lab/benchmarks/plane_flow_openfoam.py`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from flow_results import as_they_come, made_with

import pennpde
from pennlab.charts import chart, save
from pennlab.datasets.plane_flow import finished, flows
from pennlab.paper.plane_flow_errors import errors, labels, stacked
from pennlab.paper.plane_flow_table import SPLITS, Cases, Comparison, settings
from pennlab.paper.tables import within
from pennpde.case import Case
from pennpde.data.vtkhdf import unpack
from pennpde.files import write_json

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "general_flow_test.json"
PAGE = ROOT / "docs" / "general_flow_results.md"
RIVALS, OPENFOAM, TUNING = (
    OUTPUT.with_name(f"plane_flow_{name}.json") for name in ("rivals", "openfoam", "openfoam_tuning")
)
SENSITIVITY = ARCHIVES / "sensitivity.json"
PICTURE = ROOT / "docs" / "images" / "plane_flow_rivals.png"
TITLES = {"start": "start field", "nearest": "nearest training flow", "mesh_graph_net": "MeshGraphNet"}
OURS = "this network"


def measured(model: torch.nn.Module, case: Case, times: Sequence[float]) -> dict[str, Any]:
    """Relative errors at each time; the steady state is called so."""
    steady = labels(case, times)[-1] == "steady"
    asked = [*times, *([pennpde.STEADY] if steady else [])]
    began = time.process_time()
    outcome = pennpde.predict(model, replace(case, targets={}), times=asked)
    seconds = time.process_time() - began
    judging = outcome.seconds["certificate"] / sum(outcome.seconds.values())
    fields = outcome.fields if len(asked) > 1 else {name: each[..., None] for name, each in outcome.fields.items()}
    return {
        "errors": errors(case, times, stacked(fields)),
        "seconds": round(seconds, 2),
        "judging": round(judging * seconds, 2),
        "points": case.number_of_points,
    }


def measured_flow(model: str, name: str, split: str) -> dict[str, Any]:
    """Both cases of a flow."""
    network = pennpde.load_pretrained(model)
    found = {}
    for case, product in finished.products(ARCHIVES, flows.draw_flow(name, 0)).items():
        file = unpack(product.content, case)
        facts = {"split": split, "reynolds": product.facts["reynolds"], "mesh": product.facts["mesh"]["kind"]}
        found[case] = {**facts, **measured(network, file.case, file.times)}
    return found


# The page


def comparison() -> Comparison:
    """All rivals that have results; the network comes last."""
    of_rivals = _read(RIVALS)
    rivals: dict[str, Cases] = {title: of_rivals[name] for name, title in TITLES.items() if of_rivals.get(name)}
    missing = [title for name, title in TITLES.items() if not of_rivals.get(name)]
    for setting, of_flows in _read(OPENFOAM).items():
        rivals[f"OpenFOAM, spacing {setting}"] = per_case(of_flows)
    judged = json.loads(SENSITIVITY.read_text(encoding="utf-8")) if SENSITIVITY.exists() else None
    return Comparison({**rivals, OURS: _read(OUTPUT)["cases"]}, missing, judged)


def per_case(of_flows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """OpenFOAM computes a flow once for both meshes, so each of its cases costs as much as the flow."""
    return {
        case: {"errors": rows, "seconds": of_flow["programs"]}
        for of_flow in of_flows.values()
        for case, rows in of_flow.get("errors", {}).items()
    }


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def draw(compared: Comparison) -> None:
    """Mean error of u against mean seconds, one panel for each set of flows."""
    group = compared.columns[0]
    figure, (axes,) = chart(1, len(SPLITS), 8.6, 3.5, sharey=True)
    for axis, (split, title) in zip(axes, SPLITS.items(), strict=True):
        for number, rival in enumerate(compared.rivals):
            found = compared.of_cases(rival, split, group, "u")
            if not found:
                continue
            error, seconds = 100 * mean(found.values()), compared.seconds(rival, split)
            if rival.startswith(("start", "nearest")):
                axis.axhline(error, color=f"C{number}", linestyle="--", linewidth=1, label=f"{rival} (no solver)")
            else:
                mark = "*" if rival == OURS else "o"
                axis.plot(seconds, error, mark, color=f"C{number}", markersize=13 if mark == "*" else 7, label=rival)
        axis.set(xscale="log", yscale="log", xlim=(0.05, 20), title=title, xlabel="processor seconds per case")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
        axis.set_ylim(1, 100)
        axis.yaxis.set_minor_formatter("")
    axes[0].set_ylabel("error of u, %")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    save(figure, PICTURE, colours=64)


def of_judging(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """How much of the network's time goes into the certificate and the expected error, in words."""
    shares = []
    for split in SPLITS:
        rows = [each for each in cases.values() if each["split"] == split]
        shares.append(f"{mean(row['judging'] for row in rows):.1f}")
    return (
        f"Of the network's seconds {', '.join(shares[:-1])} and {shares[-1]} are those of the certificate and of the "
        "expected error, with its second solution; no rival has one."
    )


def write_page() -> None:
    compared = comparison()
    page = PAGE.read_text(encoding="utf-8")
    for marker, text in (
        ("test set", f"{compared.table()}\n\n{of_judging(_read(OUTPUT)['cases'])}\n"),
        ("losses", compared.losses()),
        ("settings", settings(_read(TUNING)) + "\n"),
    ):
        print(text)
        page = within(page, text, marker, required=True)
    PAGE.write_text(page, encoding="utf-8")
    draw(compared)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--limit", type=int)
    arguments.add_argument("--model", default="flow")
    arguments.add_argument("--workers", type=int, default=1, help="processes of one thread each")
    arguments.add_argument("--results", type=Path, default=OUTPUT, help="where cases are kept")
    arguments.add_argument("--table", action="store_true", help="only the table and the figure")
    given = arguments.parse_args()
    if given.table:
        write_page()
        return
    about = made_with(given.model)
    results: dict[str, Any] = {**about, "cases": {}}
    if given.results.exists():
        kept = json.loads(given.results.read_text())
        results = kept if about.items() <= kept.items() else results
    there = set(finished.names(ARCHIVES))
    chosen = [(split, name) for split in SPLITS for name in flows.splits()[split] if name in there]
    # By turns from each split, so that an interrupted run has some of all.
    order = {name: [other for split_, other in chosen if split_ == split].index(name) for split, name in chosen}
    chosen.sort(key=lambda each: order[each[1]])
    known = {case.rpartition(".")[0] for case in results["cases"]}
    tasks = {name: (given.model, name, split) for split, name in chosen[: given.limit] if name not in known}
    for _, of_flow in as_they_come(measured_flow, tasks, given.workers):
        results["cases"] = dict(sorted((results["cases"] | of_flow).items()))
        write_json(given.results, results, indent=0)
        print(json.dumps(of_flow), flush=True)
    if given.results == OUTPUT:
        write_page()


if __name__ == "__main__":
    main()
