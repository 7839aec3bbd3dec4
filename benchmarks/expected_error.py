"""How well networks know how wrong they are: coverage of the 90 % bound on families that the calibration leaves out.

    python benchmarks/expected_error.py flow                 measure, and write results and tables
    python benchmarks/expected_error.py flow --calibrate     also write expected_error.json next to the weights

Cases with truth are finished plane flows and, for `flow`, validation cases of its own dataset. A calibration on all of
them is then judged on the trials: one change at a time on the step of `penn demo` (`data/trials`). Measured cases are
kept in `runs/expected_error`, so the script can be stopped and started again. Writes
`benchmarks/results/expected_error_NETWORK.json` and the tables of `docs/trust.md`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from pennpde.checkpoints import SHIPPED, config_of, load_pretrained
from pennpde.datasets.plane_flow import finished, flows, trials
from pennpde.files import write_json
from pennpde.network import STEADY, Predictor
from pennpde.paper.tables import write_within
from pennpde.prediction import calibrating
from pennpde.prediction.calibrating import Known, Measured
from pennpde.prediction.expected_error import ExpectedError
from pennpde.prediction.known_cases import read_known

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "trust.md"
FINISHED, TRIALS = ROOT / "data" / "plane_flow" / "finished", ROOT / "data" / "trials"


@dataclass(frozen=True)
class Source:
    """Cases that a network is calibrated with."""

    folder: Path
    split: str | None = None
    every: int = 1
    per_flow: int = 1
    only: tuple[str, ...] = ()


def held_out(number: int) -> tuple[str, ...]:
    """Plane flows of no training split, in an order in which families and splits take turns."""
    there = set(finished.names(FINISHED)) if FINISHED.is_dir() else set()
    names = {
        split: [name for name in members if name in there]
        for split, members in flows.splits().items()
        if split != "train"
    }
    return tuple(flows.in_turn(names)[:number])


SOURCES: Mapping[str, Sequence[Source]] = {
    # It was trained on data/flow only; a plane flow serves where one of its moments is the network's own time.
    "flow-paper": (Source(ROOT / "data" / "flow", "validation"), Source(FINISHED, per_flow=2)),
    "flow": (Source(FINISHED, only=held_out(60)),),
}


def cases(network: str) -> Iterator[Known]:
    for source in SOURCES[network]:
        yield from read_known(source.folder, source.split, source.every, source.per_flow, source.only)


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
                "grade": calibrating.grade_of(estimates),
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
    parser.add_argument("--limit", type=int, help="calibrate with the first cases only; writes no results")
    parser.add_argument("--measured", action="store_true", help="only with cases that were measured before")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network = load_pretrained(arguments.network)
    assert isinstance(network, Predictor)
    cache = ROOT / "runs" / "expected_error" / f"{arguments.network}.jsonl"
    count = 0

    def tell(known: Known, outcome: Sequence[Measured] | Exception) -> None:
        nonlocal count
        count += 1
        told = f"{len(outcome)} times" if not isinstance(outcome, Exception) else f"left out: {outcome}"
        print(f"{count} {known.case.name}: {told}", flush=True)

    known_before = set()
    if arguments.measured:
        known_before = {json.loads(line)["case"] for line in cache.read_text().splitlines()}

    def chosen() -> Iterator[Known]:
        for number, known in enumerate(cases(arguments.network)):
            if arguments.measured and known.case.name not in known_before:
                continue
            if arguments.limit is not None and number >= arguments.limit:
                return
            yield known

    began = time.monotonic()
    calibration, measured = calibrating.calibrate(network, chosen(), cache=cache, on_case=tell)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    by_family = calibrating.coverage_by_family(measured)
    tried = calibrating.usable(calibrating.measure_all(network, read_known(TRIALS), cache, on_case=tell))
    on_trials = calibrating.coverage_of(calibration, tried)["all"]
    print("\n".join(calibrating.table(by_family | {"trials": on_trials})))
    rows = trial_rows(calibration, tried)
    print(trial_table(rows))
    config = config_of(network)
    about = {
        "network": arguments.network,
        "weights_sha256": "" if config is None else config.weights_sha256,
        "sources": [
            {**asdict(each), "folder": str(each.folder.relative_to(ROOT))} for each in SOURCES[arguments.network]
        ],
        "cases": len({each.case for each in measured}),
        "predictions": len(measured),
    }
    if arguments.limit is not None:
        return
    if arguments.calibrate:
        covered = {family: {"cases": each.cases, **each.covered} for family, each in by_family.items()}
        folder = SHIPPED / arguments.network
        calibrating.save(folder, network, calibration, about | {"coverage": covered})
    record = {
        **about,
        "families": {family: asdict(each) for family, each in by_family.items()},
        "trials": asdict(on_trials),
        "trial_rows": rows,
    }
    write_json(ROOT / "benchmarks" / "results" / f"expected_error_{arguments.network}.json", record)
    told = f"Calibrated with {about['predictions']} predictions of {about['cases']} cases."
    tables = "\n".join([told, "", *calibrating.table(by_family | {"trials": on_trials}), "", trial_table(rows)])
    write_within(PAGE, tables, f"expected error of {arguments.network}")


if __name__ == "__main__":
    main()
