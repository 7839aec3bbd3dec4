"""How well networks know how wrong they are: coverage of the 90 % bound on families that the calibration leaves out.

    python lab/benchmarks/expected_error.py flow --sample 3              three cases, and how long all would take
    python lab/benchmarks/expected_error.py flow --calibrate             all; also writes expected_error.json
    python lab/benchmarks/expected_error.py flow --calibrate --seconds 1200    with as many cases as that time allows
    python lab/benchmarks/expected_error.py flow --seconds 0             tables again, with what was measured before
    python lab/benchmarks/expected_error.py flow --trials                the trials only, by the shipped calibration
    python lab/benchmarks/expected_error.py flow --fresh                 likewise flows that nothing has learned from

Cases with truth are finished plane flows, one mesh per flow, families and splits in turn; for `ducts` also
validation cases of its own dataset. A calibration on all of them is then judged on the trials: one change at a time on
the step of `penn demo` (`data/trials`). Measured cases are kept in `runs/expected_error`, in a file for these weights
and this code, so the script can be stopped and started again. Moments whose truth depends on the mesh that it was
computed on are judged, but not learned from; the tables count them apart. Writes
`lab/benchmarks/results/expected_error_NETWORK.json` and the tables of `docs/trust_results.md`.

The clues were chosen by looking at these flows and trials. Flows that neither they nor the weights know are the better
judges: `--fresh` takes flows of the training split that the network's training did not come to, and writes
`lab/benchmarks/results/expected_error_fresh.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import pennpde
from pennlab.coverage import UNDETERMINED, Known, coverage_by_family, coverage_of, fitted, known_of
from pennlab.datasets.plane_flow import finished, flows, trials
from pennlab.known_cases import read_known
from pennlab.paper.tables import markdown_table, write_within
from pennpde.checkpoints import config_of, expected_error_file, load_pretrained
from pennpde.files import write_json
from pennpde.models.flow_physics import BACKFLOW
from pennpde.penn import STEADY, Predictor
from pennpde.registry import WEIGHTS
from pennpde.train import calibrate as calibrating
from pennpde.train.calibrate import Coverage, Measured
from pennpde.train.calibrate import Known as KnownCase
from pennpde.trust.calibration import BEYOND, COARSER_SOLUTION, without_coarser_solution
from pennpde.trust.expected_error import GOOD, ExpectedError, Uncalibrated, calibration_of, grade_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "trust_results.md"
FINISHED, TRIALS = ROOT / "data" / "plane_flow" / "finished", ROOT / "data" / "trials"
COMPUTES = ("case", "flow", "mesh", "models", "operators", "penn")
ALSO = ("prediction/stages.py", "trust/evidence.py", "trust/certificate.py")
"""Packages and files that a measured case depends on, besides the weights."""
ALONE = "all, without a second opinion"
WITHOUT: Mapping[str, tuple[str, ...]] = {
    "without a second opinion": (COARSER_SOLUTION, BACKFLOW),
    "with a second opinion": (BEYOND, BACKFLOW),
    "... and what flows back through outlets": (BEYOND,),
    "... and large differences by themselves (now)": (),
}
"""By what the calibration knows, the parts of names of clues that it does not know: what each clue brings."""
LAST_TAUGHT = "diffuser_0006.a"
"""The last flow that `flow` has learned from, in the order of `lab/experiments/plane_flow/finer_cells.py`."""


@dataclass(frozen=True)
class Source:
    """Cases that a network is calibrated with."""

    folder: Path
    split: str | None = None
    every: int = 1
    per_flow: int = 1
    only: tuple[str, ...] = ()


def held_out() -> tuple[str, ...]:
    """Plane flows of no training split, in an order in which families and splits take turns."""
    there = set(finished.names(FINISHED)) if FINISHED.is_dir() else set()
    names = {
        split: [name for name in members if name in there]
        for split, members in flows.splits().items()
        if split != "train"
    }
    return tuple(flows.in_turn(names))


def fresh() -> tuple[str, ...]:
    """Flows of the training split that nothing has learned from: the training of `flow` did not come to them."""
    there = set(finished.names(FINISHED)) if FINISHED.is_dir() else set()
    order = [case.removesuffix(".a") for case in flows.by_checksum(f"{name}.a" for name in flows.splits()["train"])]
    behind = order.index(LAST_TAUGHT.removesuffix(".a")) + 1
    return tuple(name for name in order[behind:] if name in there)


SOURCES: Mapping[str, Sequence[Source]] = {
    # It was trained on data/flow only; a plane flow serves where one of its moments is the network's own time.
    "ducts": (Source(ROOT / "data" / "flow", "validation"), Source(FINISHED, per_flow=2)),
    "flow": (Source(FINISHED, only=held_out()),),
}


def code() -> str:
    """A fingerprint of the code that predicts and measures: cases that another one measured do not count."""
    package = Path(pennpde.__file__).parent
    files = [path for name in COMPUTES for path in (package / name).rglob("*.py")] + [package / name for name in ALSO]
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def measured_of(network: Predictor, name: str, cases: Iterator[KnownCase], seconds: float | None) -> list[Measured]:
    """Cases that were measured before and, as long as there is time, the others.

    Args:
        network: That predicts.
        name: Of the file in which measured cases are kept.
        cases: Those that were not measured before.
        seconds: Of processor time; those of the clock depend on who else computes.
    """
    cache = cache_of(name)
    before = calibrating.kept(network, cache)
    began, count = time.process_time(), 0

    def in_time() -> Iterator[KnownCase]:
        for known in cases:
            if seconds is not None and time.process_time() - began > seconds:
                print(f"{name}: {seconds:.0f} s are used up; the others are left for the next time", flush=True)
                return
            yield known

    def tell(known: KnownCase, outcome: Sequence[Measured] | Exception) -> None:
        nonlocal count
        count += 1
        told = f"{len(outcome)} times" if not isinstance(outcome, Exception) else f"left out: {outcome}"
        print(f"{count} {known.case.name}: {told}, {time.process_time() - began:.0f} s", flush=True)

    new = calibrating.measure_all(network, in_time(), cache, on_case=tell)
    print(f"{name}: {len(before)} cases from before, {count} new in {time.process_time() - began:.0f} s", flush=True)
    return calibrating.usable([each for found in before.values() for each in found] + new)


def cache_of(name: str) -> Path:
    return ROOT / "runs" / "expected_error" / f"{name}-{code()}.jsonl"


def cases(network: str, without: Sequence[str]) -> Iterator[KnownCase]:
    for source in SOURCES[network]:
        yield from read_known(source.folder, source.split, source.every, source.per_flow, source.only, set(without))


def by_clues(measured: Sequence[Measured], known: Known) -> dict[str, dict[str, Any]]:
    """Coverage with fewer clues, by what is left, and in it by group of predictions."""
    found = {}
    for title, left_out in WITHOUT.items():
        fewer = [replace(each, clues=_without(each.clues, left_out)) for each in measured]
        coverage = coverage_by_family(fewer, known)
        found[title] = {group: asdict(coverage[group]) for group in ("all", UNDETERMINED, "blunt-bodies")}
    return found


def _without(clues: Mapping[str, float], left_out: Sequence[str]) -> dict[str, float]:
    return {name: value for name, value in clues.items() if not any(part in name for part in left_out)}


def clue_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    groups = {"all": "all", UNDETERMINED: "not determined", "blunt-bodies": "blunt bodies"}
    titles = [f"{name}, {words}" for name in ("u", "p") for words in groups.values()]
    rows = []
    for title, by_group in found.items():
        shares = [by_group[group]["covered"][name] for name in ("u", "p") for group in groups]
        total = by_group["all"]
        counts = [total["grades"].get(GOOD, 0), total["good_but_wrong"]]
        rows.append([title, *(f"{100 * share:.0f} %" for share in shares), *map(str, counts)])
    return markdown_table(["clues", *titles, "good", "good, but above 20 %"], rows)


def trial_rows(calibration: calibrating.Calibration, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    rows = []
    for each in measured:
        estimates = {name: calibration.estimate(name, each.clues) for name in calibration.unknowns}
        rows.append(
            {
                "name": each.case,
                "changed": trials.trial(each.case).changed,
                "time": "steady" if each.time == STEADY else each.time,
                "errors": {name: round(error, 5) for name, error in each.errors.items()},
                "expected": {name: round(expected, 5) for name, (expected, _) in estimates.items()},
                "bound": {name: round(bound, 5) for name, (_, bound) in estimates.items()},
                "grade": grade_of({name: ExpectedError(*each) for name, each in estimates.items()}),
            }
        )
    return rows


def trial_table(rows: Sequence[Mapping[str, Any]]) -> str:
    unknowns = list(rows[0]["errors"])
    titles = ["changed against the step of `penn demo`", "t"]
    for name in unknowns:
        titles += [f"error of {name}", "expected"]
    lines = [f"| {' | '.join([*titles, 'grade'])} |", "| --- |" + " ---: |" * (len(titles) - 1) + " --- |"]
    for row in rows:
        entries = [row["changed"], f"{row['time']:g}" if isinstance(row["time"], float) else row["time"]]
        for name in unknowns:
            estimate = ExpectedError(row["expected"][name], row["bound"][name])
            held = "" if row["errors"][name] <= row["bound"][name] else " ✗"
            entries += [f"{100 * row['errors'][name]:.1f} %{held}", str(estimate).replace("90 % of such cases ", "")]
        lines.append(f"| {' | '.join([*entries, row['grade']])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=list(SOURCES))
    parser.add_argument("--calibrate", action="store_true", help="write expected_error.json next to the weights")
    parser.add_argument("--seconds", type=float, help="processor time for new cases; default: all of them")
    parser.add_argument("--sample", type=int, help="measure so many new cases, and say how long all take")
    parser.add_argument("--trials", action="store_true", help="only the trials; families stay as they are recorded")
    parser.add_argument("--fresh", action="store_true", help="only flows that nothing has learned from; `flow` alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    name: str = arguments.network
    network = load_pretrained(name)
    assert isinstance(network, Predictor)
    left = cases(name, list(calibrating.kept(network, cache_of(name))))
    if arguments.sample is not None:
        sample(network, name, left, arguments.sample)
        return
    if arguments.fresh:
        if name != "flow":
            parser.error(f"{name} has learned from other flows: --fresh is for flow.")
        report_fresh(network, arguments.seconds)
        return
    on_trials = f"{name}-trials"
    untried = read_known(TRIALS, without=calibrating.kept(network, cache_of(on_trials)))
    tried = measured_of(network, on_trials, untried, None)
    if arguments.trials:
        shipped = shipped_calibration(network)
        record = json.loads(record_of(name).read_text(encoding="utf-8"))
        by_family = {family: Coverage(**each) for family, each in record["families"].items()}
        _report(name, record, by_family, shipped, tried)
        return
    measured = measured_of(network, name, left, arguments.seconds)
    known = known_of(FINISHED, measured)
    by_family = coverage_by_family(measured, known)
    alone = [replace(each, clues=without_coarser_solution(each.clues)) for each in measured]
    if alone != measured:
        by_family[ALONE] = coverage_by_family(alone, known)["all"]
    calibration = fitted(measured, known)
    config = config_of(network)
    about = {
        "network": name,
        "weights_sha256": "" if config is None else config.weights_sha256,
        "sources": [{**asdict(each), "folder": str(each.folder.relative_to(ROOT))} for each in SOURCES[name]],
        "cases": len({each.case for each in measured}),
        "predictions": len(measured),
    }
    if arguments.calibrate:
        covered = {family: {"cases": each.cases, **each.covered} for family, each in by_family.items()}
        calibrating.save(WEIGHTS / name, network, calibration, about | {"coverage": covered})
    if name == "flow":
        about["clues"] = by_clues(measured, known)
        write_within(PAGE, clue_table(about["clues"]), "what clues bring")
    _report(name, about, by_family, calibration, tried)


def shipped_calibration(network: Predictor) -> calibrating.Calibration:
    shipped = calibration_of(network)
    if isinstance(shipped, Uncalibrated):
        raise SystemExit(f"There is no calibration to judge: {shipped.why}")
    return shipped


def calibration_hash() -> str:
    """Of the calibration of `flow` that is shipped."""
    return hashlib.sha256((WEIGHTS / "flow" / expected_error_file("standard")).read_bytes()).hexdigest()


def report_fresh(network: Predictor, seconds: float | None) -> None:
    """Judge the shipped calibration of `flow` by flows that nothing has learned from."""
    name = "flow-fresh"
    left = read_known(FINISHED, only=fresh(), without=calibrating.kept(network, cache_of(name)))
    measured = measured_of(network, name, left, seconds)
    found = coverage_of(shipped_calibration(network), measured)
    record = {
        "network": "flow",
        "calibration_sha256": calibration_hash(),
        "cases": len({each.case for each in measured}),
        "predictions": len(measured),
        "families": {family: asdict(each) for family, each in found.items()},
    }
    write_json(record_of("fresh"), record)
    print(fresh_table(record))
    print(f"graded good, but above 20 %: {', '.join(found['all'].wrong) or 'none'}")
    write_within(PAGE, fresh_table(record), "expected error on fresh flows")


def fresh_table(record: Mapping[str, Any]) -> str:
    told = f"{record['predictions']:,} predictions of {record['cases']} flows."
    by_family = {family: Coverage(**each) for family, each in record["families"].items()}
    return "\n".join([told, "", *calibrating.table(by_family)])


def record_of(name: str) -> Path:
    return ROOT / "lab" / "benchmarks" / "results" / f"expected_error_{name}.json"


def _report(
    name: str,
    about: Mapping[str, Any],
    by_family: Mapping[str, Coverage],
    calibration: calibrating.Calibration,
    tried: Sequence[Measured],
) -> None:
    """The record and the tables of the page."""
    trial_coverage = coverage_of(calibration, tried)["all"]
    table = calibrating.table({**by_family, "trials": trial_coverage})
    rows = trial_rows(calibration, tried)
    print("\n".join(table), trial_table(rows), sep="\n")
    for each in (by_family["all"], trial_coverage):
        print(f"graded good, but above 20 %: {', '.join(each.wrong) or 'none'}")
    record = {
        **about,
        "families": {family: asdict(each) for family, each in by_family.items()},
        "trials": asdict(trial_coverage),
        "trial_rows": rows,
    }
    write_json(record_of(name), record)
    told = f"Calibrated with {about['predictions']} predictions of {about['cases']} cases."
    write_within(PAGE, "\n".join([told, "", *table, "", trial_table(rows)]), f"expected error of {name}")


def sample(network: Predictor, name: str, left: Iterator[KnownCase], number: int) -> None:
    """Measure a few cases and tell how long all of them would take."""
    began = time.process_time()
    found = measured_of(network, name, (known for _, known in zip(range(number), left, strict=False)), None)
    done = len({each.case for each in found})
    # One mesh of each flow; `ducts` has no list, and most of its flows have no moment that it could predict.
    rest = sum(len(source.only) for source in SOURCES[name]) - done
    each = (time.process_time() - began) / number
    print(f"{each:.1f} s per case: {max(rest, 0)} further cases take {max(rest, 0) * each / 60:.0f} core-minutes")


if __name__ == "__main__":
    main()
