"""The expected error of each level of `flow`, learned from plane flows of no training split and from unlike flows.

    python lab/benchmarks/flow_calibration.py fast standard fine [--every 1] [--measured]

This is the one command after any change of the weights or of the scheme. Writes `expected_error_LEVEL.json` next to the
weights, with the coverage of its 90 % bound, each family judged by the others, and the table of docs/flow.md.
Predictions are kept in `runs/calib_LEVEL.jsonl` by the hash of the weights, so a run that was interrupted goes on;
remove these files when the scheme has changed. With --measured only these count, which is enough for `fine`, half a
minute a flow. Flows unlike those of training (`pennlab.datasets.unlike_flows`) come first; their references are in
`data/unlike_flows` and are computed where they are missing. With --every 4 `fast` and `standard` take about ten minutes
of one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pennlab import coverage
from pennlab.datasets import unlike_flows
from pennlab.known_cases import read_known
from pennlab.paper.tables import markdown_table, write_within
from pennpde.checkpoints import expected_error_file, load_pretrained
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.penn import Predictor
from pennpde.registry import WEIGHTS
from pennpde.train import calibrate

ROOT = Path(__file__).resolve().parents[2]
FINISHED = ROOT / "data" / "plane_flow" / "finished"
UNLIKE = ROOT / "data" / "unlike_flows"
PAGE = ROOT / "docs" / "flow.md"
LEVELS = CoarseMarch.levels
SPLITS = ("validation", "test", "test-unseen-families", "test-unseen-reynolds")
UNSEEN = ("aerofoil", "moving-tee", "u-bend")


def calibrated(level: str, every: int, only_measured: bool) -> None:
    network = load_pretrained("flow")
    assert isinstance(network, Predictor)
    network.set_level(level)
    cache = ROOT / "runs" / f"calib_{level}.jsonl"
    cache.parent.mkdir(exist_ok=True)
    unlike = (unlike_flows.read(UNLIKE, name) for name in unlike_flows.names())
    others = (known for split in SPLITS for known in read_known(FINISHED, split, every))
    cases = itertools.chain(filter(None, unlike), others)
    if only_measured:
        rows_found = [each for rows in calibrate.kept(network, cache).values() for each in rows]
    else:
        rows_found = calibrate.measure_all(network, cases, cache)
    measured = calibrate.usable(rows_found)
    known = coverage.known_of(FINISHED, [each for each in measured if each.family not in unlike_flows.KINDS])
    found = coverage.coverage_by_family(measured, known)
    about = {
        "network": "flow",
        "level": level,
        "datasets": [FINISHED.name, UNLIKE.name],
        "splits": SPLITS,
        "every": every,
        "coverage": {
            family: {
                "cases": each.cases,
                **each.covered,
                "grades": dict(each.grades),
                "good_but_wrong": each.good_but_wrong,
            }
            for family, each in found.items()
        },
    }
    calibrate.save(WEIGHTS / "flow", network, coverage.fitted(measured, known), about)


def table() -> str:
    """By level, how often the 90 % bound holds."""
    rows = []
    for level in LEVELS:
        record = json.loads((WEIGHTS / "flow" / expected_error_file(level)).read_text(encoding="utf-8"))
        found: Mapping[str, Any] = record["coverage"]
        cells = [f"`{level}`", str(found["all"]["cases"])]
        for name in ("u", "p"):
            cells.append(f"{found['all'][name]:.0%}".replace("%", " %"))
            families = (*UNSEEN, *unlike_flows.KINDS)
            there = [f"{family} {100 * found[family][name]:.0f}" for family in families if family in found]
            cells.append(", ".join(there) or "not measured")
        rows.append([*cells, str(found["all"].get("good_but_wrong", ""))])
    head = (
        "level",
        "predictions",
        "u",
        "u of unseen families and unlike kinds",
        "p",
        "p of these",
        "good, but above 20 %",
    )
    return markdown_table(head, rows)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("levels", nargs="*", choices=[*LEVELS, []])
    arguments.add_argument("--every", type=int, default=1)
    arguments.add_argument("--measured", action="store_true", help="only what is in the file of predictions")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    for level in given.levels:
        calibrated(level, given.every, given.measured)
    made = table()
    print(made)
    write_within(PAGE, made, "coverage by level")


if __name__ == "__main__":
    main()
