"""What `penn collect` makes of the families of examples/own_runs/make_runs.py: sizes, ranges, fluxes, splits.

    for family in bends nozzles diffusers plumes; do
        python examples/own_runs/make_runs.py $family --out runs/$family
    done
    python lab/benchmarks/collected_runs.py runs --out data

Writes the datasets, lab/benchmarks/results/collected_runs.json, and the table in docs/own_runs.md. Runs that are
there, and datasets that are collected, are not made again.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

from pennlab.paper.tables import markdown_table, write_within
from pennpde.data.runs.collect import collect_runs
from pennpde.data.runs.survey import Shares
from pennpde.files import write_json

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "benchmarks" / "results" / "collected_runs.json"
PAGE = ROOT / "docs" / "own_runs.md"
_CLOCK = re.compile(r"ExecutionTime = ([0-9.]+) s")
FAMILIES: dict[str, dict[str, Any]] = {
    "bends": {"spacing": "0.06L", "shares": Shares(0.1, 0.15)},
    "nozzles": {"spacing": "0.06L", "shares": Shares(0.1, 0.15)},
    "diffusers": {"spacing": "0.06L", "time": "steady", "shares": Shares(0.1, 0.25)},
    "plumes": {"time": "0:4:1", "shares": Shares(0.1, 0.25)},
}


def measured(runs: Path, out: Path, workers: int, options: dict[str, Any]) -> dict[str, Any]:
    """Collect a family, and tell the report in few numbers."""
    made = collect_runs(sorted(path for path in runs.iterdir() if path.is_dir()), out, workers=workers, **options)
    cases = made.report["cases"].values()
    found: dict[str, Any] = {
        "runs": len(cases),
        "failed": len(made.failed),
        "targets": made.report["content"]["targets"],
        "splits": {split: len(names) for split, names in made.report["splits"].items()},
        "nearest": made.report["splitting"]["nearest"],
        "points_of_runs": [min(each["run"]["points"] for each in cases), max(each["run"]["points"] for each in cases)],
        "points": [min(each["points"] for each in cases), max(each["points"] for each in cases)],
    }
    if spent := [float(times[-1]) for run in runs.iterdir() if (times := _CLOCK.findall(_log(run)))]:
        found["solver_seconds"] = round(mean(spent), 2)
    fluxes = [flux for each in cases for flux in each.get("flux", {}).values()]
    if fluxes:
        found["flux_off_sampled"] = max(abs(each["sampled"] / each["run"] - 1) for each in fluxes)
        found["flux_off"] = max(abs(each["stored"] / each["run"] - 1) for each in fluxes)
    if "Reynolds number" in made.report["ranges"]:
        found["reynolds"] = made.report["ranges"]["Reynolds number"]
    return found


def _log(run: Path) -> str:
    """Of the solver, which writes its processor seconds after every step."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in sorted(run.glob("log.*Foam")))
    return next(texts, "")


def table(found: dict[str, Any]) -> str:
    rows = []
    for name, each in found.items():
        flux = (
            "" if "flux_off" not in each else f"{100 * each['flux_off']:.2f} % ({100 * each['flux_off_sampled']:.1f} %)"
        )
        rows.append(
            [
                name,
                str(each["runs"]),
                each["targets"],
                f"{each['solver_seconds']:.1f}" if "solver_seconds" in each else "",
                "–".join(map(str, each["points_of_runs"])),
                "–".join(map(str, each["points"])),
                flux,
                " / ".join(map(str, each["splits"].values())),
                f"{each['nearest']:.1f}",
            ]
        )
    headings = [
        "family",
        "runs",
        "targets",
        "seconds of a run",
        "points of the runs",
        "points",
        "largest flux error (uncorrected)",
    ]
    headings += ["train / validation / test", "nearest runs of different splits"]
    words = "The last column is in distances of near twins; above 1 there are none, and 4 means 4 or more."
    return f"{markdown_table(headings, rows)}\n\n{words}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder with the families")
    parser.add_argument("--out", type=Path, required=True, help="folder of the datasets")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: this one")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for family, settings in FAMILIES.items():
        if (given.runs / family).is_dir():
            results[family] = measured(given.runs / family, given.out / family, given.workers, settings)
    results = {family: results[family] for family in FAMILIES if family in results}
    write_json(RESULTS, results)
    write_within(PAGE, table(results), "collected")
    print(table(results))
