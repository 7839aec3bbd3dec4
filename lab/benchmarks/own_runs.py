"""How many runs of your own a network needs: from trained weights and from scratch, by the number of training runs.

    python lab/benchmarks/collected_runs.py runs --out data
    python lab/benchmarks/own_runs.py data/bends --from flow --minutes 30 --work runs/rows
    python lab/benchmarks/own_runs.py data/plumes --from advection-diffusion --numbers 10 20 --work runs/rows
    python lab/benchmarks/own_runs.py --draw

Trains on the first 5, 10, 20 and 40 training runs of a dataset, each as `penn train DATASET` does by itself with one
thread, from the given network and from scratch, and measures all of them on the same test runs. From scratch is the
network that `penn train DATASET` takes without `--from`, with random weights.

The budget is in minutes of a processor, the same for all, validations included: on a busy machine the clock runs, but a
training does not. An interrupted call continues where it was: every training keeps its state under `--work`. With
`--pause-after` a call measures what there is by then, and a later one continues; `--rows scratch:40 flow:10` takes some
rows first. Finished and paused rows are in lab/benchmarks/results/own_runs_NAME.json, from which `--draw` writes tables
and learning curves into docs/own_runs.md, between `<!-- own runs: NAME -->` and `<!-- end of own runs: NAME -->`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pennlab.charts import COLOURS, chart, round_ticks, save
from pennlab.evaluation import Model, evaluate
from pennlab.paper.tables import markdown_table, write_within
from pennpde import load_pretrained
from pennpde.case import Case
from pennpde.data import storage
from pennpde.files import write_json
from pennpde.train import Start, for_dataset, run
from pennpde.train.cases import learned, seen_cases
from pennpde.train.folder import read_log
from pennpde.train.report import NearestCase, start

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "benchmarks" / "results"
PAGE = ROOT / "docs" / "own_runs.md"
IMAGES = ROOT / "docs" / "images"
NUMBERS = (5, 10, 20, 40)
SCRATCH = "scratch"
Errors = dict[str, dict[str, float]]
"""By unknown, the mean and the largest relative L2 error."""


def cases_of(data: Path, split: str, model: Any) -> list[Case]:
    """The cases of a split with the targets that a network learns."""
    manifest = storage.read_manifest(data)
    if split not in manifest.splits:
        return []
    files = storage.read_files(data, split)
    return [case for file in files for case in learned(model, file, frames=manifest.has_frames)]


def first_runs(cases: Sequence[Case], number: int, seed: int) -> list[Case]:
    """Some of the training runs, the same at every call; those of a smaller number are among those of a larger."""
    order = np.random.default_rng(seed).permutation(len(cases))
    return [cases[place] for place in order[:number]]


def relative(model: Model, cases: Sequence[Case]) -> Errors:
    records = [record.relative for record in evaluate(model, cases, threads=1).records]
    return {
        name: {"mean": float(np.mean([r[name] for r in records])), "worst": float(np.max([r[name] for r in records]))}
        for name in records[0]
    }


def on_levels(model: Any, cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """Errors and processor seconds a case by level of accuracy; one without a name where a network has none."""
    found, own = {}, getattr(model, "level", "")
    for level in getattr(model, "levels", ()) or ("",):
        if level:
            model.set_level(level)
        relative(model, cases[:1])  # what is loaded or compiled on its first use
        began = time.process_time()
        errors = relative(model, cases)
        found[level] = {"relative_l2": errors, "seconds": round((time.process_time() - began) / len(cases), 3)}
    if own:
        model.set_level(own)
    return found


def floors(data: Path, start_name: str, numbers: Sequence[int], seed: int) -> dict[str, Any]:
    """What can be had without training."""
    begin = Start.of(start_name)
    experiment = for_dataset(data, start=begin, device="cpu")
    model = experiment.build()
    begin.fill(model)
    train, test = cases_of(data, "train", model), cases_of(data, "test", model)
    seen_train, seen_test = seen_cases(model, train), seen_cases(model, test)
    nearest = {
        f"nearest of {number} runs": relative(NearestCase(first_runs(seen_train, number, seed)), seen_test)
        for number in numbers
    }
    untrained = {
        f"{start_name}, not trained{', ' * bool(level)}{level}": {**each["relative_l2"], "seconds": each["seconds"]}
        for level, each in on_levels(model, test).items()
    }
    return {"start field": relative(start, seen_test), **nearest, **untrained}


def trained_row(
    data: Path, number: int, start_name: str | None, minutes: float, work: Path, seed: int, pause_after: float | None
) -> dict[str, Any]:
    """Train, or continue, and measure the best network so far."""
    begin = None if start_name is None else Start.of(start_name)
    changes = {"processor_minutes": minutes, "seed": seed}
    experiment = for_dataset(data, start=begin, changes=changes, device="cpu")
    model = experiment.build()
    some = first_runs(cases_of(data, "train", model), number, seed)
    batch_size = min(experiment.training.batch_size, len(some))
    # As often as `penn train` would test on a dataset of so many runs.
    training = replace(
        experiment.training, batch_size=batch_size, test_every=max(1.0, round(50 * batch_size / len(some), 3))
    )
    folder = work / f"{start_name or SCRATCH}_{number}"
    trained = run(
        replace(experiment, training=training),
        {"train": some, "validation": cases_of(data, "validation", model)},
        folder,
        start=begin,
        resume=True,
        pause_after=pause_after,
        device="cpu",
        threads=1,
    )
    result = trained.result
    test = cases_of(data, "test", model)
    return {
        "runs": len(some),
        "from": start_name or SCRATCH,
        "network": experiment.network,
        "parameters": trained.record["parameters"],
        "ended": result.ended,
        "steps": result.steps,
        "best_step": result.best_step,
        "cases_per_step": batch_size,
        "processor_minutes": result.processor_seconds / 60,
        "clock_minutes": result.seconds / 60,
        "threads": trained.record["threads"],
        "test_runs": len({case.name for case in test}),
        "relative_l2": relative(result.model, test),
        "levels": on_levels(result.model, test) if getattr(result.model, "levels", ()) else {},
        "curve": _curve(folder),
    }


def judged_again(path: Path, content: dict[str, Any], data: Path, work: Path) -> None:
    """Measure the trained networks that are there once more, after a change of what surrounds them."""
    known = _kept(path, content)
    for row in known["rows"]:
        folder = work / f"{row['from']}_{row['runs']}"
        if folder.is_dir():
            model = load_pretrained(str(folder))
            test = cases_of(data, "test", model)
            if levels := getattr(model, "levels", ()):
                model.set_level(levels[0])  # pyright: ignore[reportCallIssue]
                row["levels"] = on_levels(model, test)
            row["relative_l2"] = relative(model, test)
    write_json(path, {**known, "floors": {}})


def _curve(folder: Path) -> dict[str, list[float]]:
    """Steps and validation errors, in units of the loss; thinned."""
    tests = [row for row in read_log(folder) if row.get("validation")]
    some = tests[:: max(1, len(tests) // 40)]
    return {
        "step": [int(row["step"]) for row in some],
        "validation": [float(f"{float(row['validation']):.4g}") for row in some],
    }


def table(found: dict[str, Any]) -> str:
    unknowns = list(found["rows"][0]["relative_l2"])

    def errors(each: Errors) -> list[str]:
        return [f"{100 * each[name]['mean']:.2f} % ({100 * each[name]['worst']:.1f} %)" for name in unknowns]

    has_levels = any(row.get("levels") for row in found["rows"])
    clock = ["seconds"] if has_levels else []
    lines = []
    for row in sorted(found["rows"], key=lambda row: (row["from"] == SCRATCH, row["runs"])):
        ended = "" if row["ended"] == "budget" else f", {row['ended']}"
        network = f"from scratch (`{row['network']}`)" if row["from"] == SCRATCH else f"from `{row['from']}`"
        minutes = f"{row['processor_minutes']:.1f}{ended}"
        told = [str(row["runs"]), network, minutes, f"{row['steps']:,}"]
        for level, each in row.get("levels", {}).items():
            plain = found["floors"][f"{row['from']}, not trained, {level}"]
            if any(each["relative_l2"][name] != plain[name] for name in unknowns):  # something is learned on it
                seconds = f"{each['seconds']:.2f}"
                lines.append([told[0], f"{network}, {level}", *told[2:], seconds, *errors(each["relative_l2"])])
        if not row.get("levels"):
            lines.append([*told, *("" for _ in clock), *errors(row["relative_l2"])])
    for name, each in found["floors"].items():
        seconds = [f"{each['seconds']:.2f}" if "seconds" in each else "" for _ in clock]
        lines.append(["", name, "", "", *seconds, *errors(each)])
    return markdown_table(["training runs", "", "processor-minutes", "steps", *clock, *unknowns], lines)


def draw_curves(name: str, found: dict[str, Any]) -> str:
    """Errors by number of runs, and validation errors in the course of each training."""
    unknowns = list(found["rows"][0]["relative_l2"])
    figure, ((*by_runs, course),) = chart(1, len(unknowns) + 1, 3.0 * (len(unknowns) + 1) + 1.6, 3.2)
    kinds = sorted({row["from"] for row in found["rows"]}, key=lambda kind: kind == SCRATCH)
    colours = dict(zip(kinds, COLOURS, strict=False))
    nearest = {int(key.split()[2]): each for key, each in found["floors"].items() if key.startswith("nearest")}
    for axis, unknown in zip(by_runs, unknowns, strict=True):
        for kind in kinds:
            rows = sorted((row for row in found["rows"] if row["from"] == kind), key=lambda row: row["runs"])
            values = [100 * row["relative_l2"][unknown]["mean"] for row in rows]
            label = "from scratch" if kind == SCRATCH else f"from {kind}"
            axis.plot([row["runs"] for row in rows], values, "o-", color=colours[kind], label=label)
        axis.plot(list(nearest), [100 * each[unknown]["mean"] for each in nearest.values()], "s:", color="grey")
        axis.lines[-1].set_label("nearest training run")
        for key, each in found["floors"].items():
            if key.endswith(("not trained", "not trained, fast")):
                axis.axhline(100 * each[unknown]["mean"], color="black", linestyle="--", label=key)
        axis.set(xscale="log", yscale="log", xlabel="training runs", title=f"relative error of {unknown} in %")
        axis.set_xticks(sorted(nearest), [str(number) for number in sorted(nearest)])
        low, high = axis.get_ylim()
        shown = [each for each in (0.5, 1, 2, 5, 10, 20, 50, 100) if low <= each <= high]
        axis.set_yticks(shown, [f"{each:g}" for each in shown])
        axis.minorticks_off()
    for row in found["rows"]:
        curve = row["curve"]
        minutes = [step * row["processor_minutes"] / max(1, row["steps"]) for step in curve["step"]]
        width = 0.6 + 0.4 * np.log2(row["runs"] / 5)
        course.plot(minutes, curve["validation"], ".-", color=colours[row["from"]], linewidth=width)
    course.set(yscale="log", xlabel="processor-minutes", title="validation error (squared, scaled)")
    round_ticks(course, "y")
    figure.legend(*by_runs[0].get_legend_handles_labels(), loc="outside right upper")
    path = IMAGES / f"own_runs_{name}.png"
    save(figure, path, colours=64)
    return f"images/{path.name}"


def draw(results: Path) -> None:
    for path in sorted(results.glob("own_runs_*.json")):
        found, name = json.loads(path.read_text(encoding="utf-8")), path.stem.removeprefix("own_runs_")
        if found.get("rows"):
            picture = f"![Errors and learning curves: {name}]({draw_curves(name, found)})"
            write_within(PAGE, f"\n{table(found)}\n\n{picture}\n", f"own runs: {name}")


def _kept(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """What is known of this dataset already."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = all(known.get(key) == value for key, value in content.items())
    return known if same else {**content, "floors": {}, "rows": []}


def _done(row: dict[str, Any], minutes: float) -> bool:
    return row["ended"] == "early stop" or (row["ended"] == "budget" and row["processor_minutes"] > 0.98 * minutes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="folder of a dataset with the splits train and test")
    parser.add_argument("--name", default="", help="of the family of runs; default: the folder's")
    parser.add_argument("--from", dest="start", default="flow", help="trained network to begin with")
    parser.add_argument("--numbers", type=int, nargs="+", default=NUMBERS)
    parser.add_argument("--rows", nargs="+", help=f"only these, such as {SCRATCH}:40 flow:10")
    parser.add_argument("--minutes", type=float, default=30.0, help="of a processor, for each row")
    parser.add_argument("--pause-after", type=float, help="minutes of the clock, for each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("own_runs"), help="folder for the trainings")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="measure networks that are trained once more")
    parser.add_argument("--draw", action="store_true", help="write the tables and curves of the page")
    given = parser.parse_args()
    if given.data is None and not given.draw:
        parser.error("give the folder of a dataset, or --draw")
    if given.data is not None:
        measure(given)
    if given.draw:
        draw(given.results)


def measure(given: argparse.Namespace) -> None:
    name = given.name or given.data.resolve().name
    path = given.results / f"own_runs_{name}.json"
    content = {"dataset": storage.dataset_hash(given.data), "seed": given.seed}
    if given.again:
        judged_again(path, content, given.data, given.work / name)
    available = len(storage.read_manifest(given.data).names("train"))
    numbers = sorted({min(number, available) for number in given.numbers})
    rows = given.rows or [f"{kind}:{number}" for number in numbers for kind in (given.start, SCRATCH)]
    for row in rows:
        kind, _, number = row.rpartition(":")
        key = (int(number), kind)
        if any(
            (each["runs"], each["from"]) == key and _done(each, given.minutes) for each in _kept(path, content)["rows"]
        ):
            continue
        begin = None if kind == SCRATCH else kind
        made = trained_row(given.data, key[0], begin, given.minutes, given.work / name, given.seed, given.pause_after)
        # Read again: another call may have added rows meanwhile.
        known = _kept(path, content)
        others = [each for each in known["rows"] if (each["runs"], each["from"]) != key]
        write_json(path, {**known, "rows": [*others, made]})
        errors = ", ".join(f"{unknown} {each['mean']:.2%}" for unknown, each in made["relative_l2"].items())
        print(f"{row}, {made['processor_minutes']:.1f} processor-minutes, {made['steps']} steps: {errors}", flush=True)
    if not _kept(path, content)["floors"]:
        found = floors(given.data, given.start, numbers, given.seed)
        write_json(path, {**_kept(path, content), "floors": found})


if __name__ == "__main__":
    main()
