"""How many runs of your own a network needs: from trained weights and from scratch, by the number of training runs.

    penn collect runs/* --out data/bends --test-share 0.2
    python benchmarks/own_runs.py data/bends --name bends --steps 2000 --work /tmp/own_runs
    python benchmarks/own_runs.py --draw

Trains on the first 5, 10, 20 and 40 training runs of a dataset, each from the given network and from scratch, with the
same number of steps, and measures all of them on the same test runs. Steps are counted rather than minutes, so that
results do not depend on what else a machine does. An interrupted call goes on where it was: every training keeps its
state under `--work`, and finished ones are in `benchmarks/results/own_runs.json`. The table is written into
docs/own_runs.md between `<!-- own runs: NAME -->` and `<!-- end of own runs: NAME -->`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pennpde.case import Case
from pennpde.datasets import storage
from pennpde.evaluation import evaluate
from pennpde.evaluation.floors import NearestCase, start
from pennpde.experiments import Start, for_dataset, run
from pennpde.experiments.data import learned, seen_cases
from pennpde.files import write_json
from pennpde.paper.tables import markdown_table, write_within

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "own_runs.json"
PAGE = ROOT / "docs" / "own_runs.md"
NUMBERS = (5, 10, 20, 40)
SCRATCH = "scratch"


def cases_of(data: Path, split: str, model: torch.nn.Module) -> list[Case]:
    manifest = storage.read_manifest(data)
    if split not in manifest.splits:
        return []
    files = storage.read_files(data, split)
    return [case for file in files for case in learned(model, file, frames=manifest.has_frames)]


def first_runs(cases: list[Case], number: int, seed: int) -> list[Case]:
    """Some of the training runs, the same at every call; those of a smaller number are among those of a larger."""
    order = np.random.default_rng(seed).permutation(len(cases))
    return [cases[place] for place in order[:number]]


def relative(model: Any, cases: list[Case]) -> dict[str, dict[str, float]]:
    records = [record.relative for record in evaluate(model, cases, threads=None).records]
    return {
        name: {"mean": float(np.mean([r[name] for r in records])), "worst": float(np.max([r[name] for r in records]))}
        for name in records[0]
    }


def measure(
    data: Path, number: int, start_name: str | None, steps: int, work: Path, seed: int, threads: int | None
) -> dict[str, Any]:
    begin = None if start_name is None else Start.of(start_name)
    changes = {"steps": steps, "seed": seed}
    experiment = for_dataset(data, start=begin, changes=changes, device="cpu")
    model = experiment.build()
    some = first_runs(cases_of(data, "train", model), number, seed)
    # One test after as many steps, whatever the number of runs is.
    training = replace(
        experiment.training, test_every=max(1.0, steps / 20 * experiment.training.batch_size / len(some))
    )
    trained = run(
        replace(experiment, training=training),
        {"train": some, "validation": cases_of(data, "validation", model)},
        work / f"{start_name or SCRATCH}_{number}_{steps}_{seed}",
        start=begin,
        resume=True,
        device="cpu",
        threads=threads,
    )
    test = cases_of(data, "test", model)
    nearest = NearestCase(seen_cases(model, some))
    return {
        "runs": len(some),
        "from": start_name or SCRATCH,
        "network": experiment.network,
        "steps": trained.result.steps,
        "cases_per_step": training.batch_size,
        "best_step": trained.result.best_step,
        "minutes": trained.result.seconds / 60,
        "threads": trained.record["threads"],
        "seed": seed,
        "test_runs": len(test),
        "relative_l2": relative(trained.result.model, test),
        "start_field": relative(start, seen_cases(model, test)),
        "nearest_training_run": relative(nearest, seen_cases(model, test)),
    }


def table(rows: list[dict[str, Any]]) -> str:
    unknowns = list(rows[0]["relative_l2"])
    lines = []
    for row in sorted(rows, key=lambda row: (row["runs"], row["from"])):
        errors = [f"{row['relative_l2'][name]['mean']:.2%}" for name in unknowns]
        floors = [f"{row['nearest_training_run'][name]['mean']:.1%}" for name in unknowns]
        lines.append([str(row["runs"]), row["from"], f"{row['steps']:,}", *errors, *floors])
    headings = ["training runs", "from", "steps", *(f"error of {name}" for name in unknowns)]
    return markdown_table([*headings, *(f"nearest training run, {name}" for name in unknowns)], lines)


def draw(results: Path) -> None:
    for name, found in json.loads(results.read_text(encoding="utf-8")).items():
        write_within(PAGE, table(found["rows"]), f"own runs: {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="folder of a dataset with the splits train and test")
    parser.add_argument("--name", default="", help="of the family of runs; default: the folder's")
    parser.add_argument("--from", dest="start", default="flow", help="trained network to begin with")
    parser.add_argument("--numbers", type=int, nargs="+", default=NUMBERS)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--work", type=Path, default=Path("own_runs"), help="folder for the trainings")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--draw", action="store_true", help="only write the tables of the page")
    given = parser.parse_args()
    if given.data is None:
        if not given.draw:
            parser.error("give the folder of a dataset, or --draw")
        draw(given.results)
        return
    name = given.name or given.data.resolve().name
    known = json.loads(given.results.read_text(encoding="utf-8")) if given.results.exists() else {}
    content = {"dataset": storage.dataset_hash(given.data), "steps": given.steps, "seed": given.seed}
    before = known.get(name, {})
    rows = list(before.get("rows", [])) if {key: before.get(key) for key in content} == content else []
    available = len(storage.read_manifest(given.data).names("train"))
    for number in sorted({min(number, available) for number in given.numbers}):
        for start_name in (given.start, None):
            if any((row["runs"], row["from"]) == (number, start_name or SCRATCH) for row in rows):
                continue
            found = measure(given.data, number, start_name, given.steps, given.work / name, given.seed, given.threads)
            rows.append(found)
            errors = ", ".join(f"{key} {value['mean']:.2%}" for key, value in found["relative_l2"].items())
            print(f"{number} runs, from {start_name or SCRATCH}, {found['steps']} steps: {errors}", flush=True)
            write_json(given.results, {**known, name: {**content, "rows": rows}})
    print(table(rows))
    if given.draw:
        draw(given.results)


if __name__ == "__main__":
    main()
