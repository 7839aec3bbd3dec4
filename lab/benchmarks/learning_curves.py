"""What each change to a network or its training brought: trainings side by side.

    python lab/benchmarks/learning_curves.py add GROUP LABEL RUN --what "what is different"
    python lab/benchmarks/learning_curves.py draw

`add` puts a folder of `penn train` (its `training.json` and `log.csv`) into
`lab/benchmarks/results/learning_curves.json`;
`draw` makes the tables and curves of `docs/experiments.md` from that file: it replaces what stands there between
`<!-- GROUP -->` and `<!-- end of GROUP -->`, and the picture of each group in `docs/images`.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from pennlab.charts import chart, round_ticks, save
from pennlab.paper.tables import markdown_table, write_within
from pennpde.files import write_json

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "benchmarks" / "results" / "learning_curves.json"
PAGE = ROOT / "docs" / "experiments.md"
KEPT = ("network", "arguments", "parameters", "dataset", "steps", "minutes", "milliseconds_per_step", "rollbacks")
SETTINGS = ("optimizer", "learning_rate", "warm_up", "batch_size", "schedule", "seed")


def summary(folder: Path, what: str) -> dict[str, Any]:
    """What is worth keeping of a training."""
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    with (folder / "log.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    targets = [name.removeprefix("validation_") for name in rows[0] if name.startswith("validation_")]
    tests = [row for row in rows if row["validation"]]
    thinned = tests[:: max(1, len(tests) // 60)]
    if thinned[-1] is not tests[-1]:
        thinned.append(tests[-1])
    curve = {"step": [int(row["step"]) for row in thinned], "loss": [_short(row["loss"]) for row in thinned]}
    curve |= {name: [_short(row[f"validation_{name}"]) for row in thinned] for name in targets}
    kept = {name: record[name] for name in KEPT}
    settings = {name: record["settings"].get(name, "adam") for name in SETTINGS}
    about = {"what": what, "device": record["device"], "validation": record["validation"]}
    return {**about, **kept, "settings": settings, "curve": curve}


def _short(number: str) -> float:
    return float(f"{float(number):.4g}")


def table(runs: dict[str, Any]) -> str:
    """One row a training, Markdown."""
    targets = list(next(iter(runs.values()))["validation"])
    headings = ["", "what", "steps", "training loss", *(f"validation {name}" for name in targets), "rollbacks"]
    lines = []
    for label, run in runs.items():
        errors = [f"{run['validation'][name]:.1e}" for name in targets]
        loss = f"{run['curve']['loss'][-1]:.1e}"
        lines.append([f"`{label}`", run["what"], f"{run['steps']:,}", loss, *errors, str(run["rollbacks"])])
    return markdown_table(headings, lines)


def draw(group: str, runs: dict[str, Any]) -> str:
    """The curves as a picture; its path from the page."""
    targets = list(next(iter(runs.values()))["validation"])
    figure, axes = chart(1, len(targets), 4 * len(targets) + 1, 3.2)
    for axis, target in zip(axes[0], targets, strict=True):
        for label, run in runs.items():
            steps = run["curve"]["step"]
            # A single point has no line.
            axis.loglog(steps, run["curve"][target], "o" if len(steps) == 1 else "-", label=label)
        axis.set(xlabel="step", title=f"validation error of {target} (mean square)")
        for which in "xy":
            round_ticks(axis, which)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper")
    path = ROOT / "docs" / "images" / f"curves_{group}.png"
    save(figure, path, colours=64)
    return f"images/{path.name}"


def draw_general() -> None:
    """The general flow network, and MeshGraphNet on its flows."""
    with (ROOT / "lab" / "experiments" / "general_flow" / "log.csv").open(encoding="utf-8", newline="") as stream:
        ours = [row for row in csv.DictReader(stream) if row["validation"]]
    rival = json.loads((ROOT / "lab" / "experiments" / "plane_flow" / "curve.json").read_text(encoding="utf-8"))
    figure, ((left, right),) = chart(1, 2, 8.6, 3.2)
    steps = [int(row["step"]) for row in ours]
    for name, label in (("loss", "training, mean of the last 50 steps"), ("validation", "validation, 24 snapshots")):
        left.plot(steps, [100 * float(row[name]) for row in ours], ".-", label=label)
    for name in ("u", "p"):
        right.plot([row["minutes"] for row in rival], [100 * row[name] for row in rival], ".-", label=name)
    left.set(xlabel="steps", title="flow: error of u and p in %, geometric mean", ylim=(0, None))
    right.set(xlabel="processor-minutes", title="MeshGraphNet: validation error in %", ylim=(0, None))
    for axis in (left, right):
        axis.legend()
    save(figure, ROOT / "docs" / "images" / "curves_general.png", colours=64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("group")
    add.add_argument("label")
    add.add_argument("run", type=Path)
    add.add_argument("--what", required=True)
    commands.add_parser("draw")
    given = parser.parse_args()
    groups = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if given.command == "add":
        groups.setdefault(given.group, {})[given.label] = summary(given.run, given.what)
        write_json(RESULTS, groups, indent=1)
        return
    for group, runs in groups.items():
        write_within(PAGE, f"{table(runs)}\n\n![Learning curves]({draw(group, runs)})\n", group)
    draw_general()


if __name__ == "__main__":
    main()
