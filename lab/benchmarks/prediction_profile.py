"""Where the processor seconds of a prediction go: preparing, marching, correcting, projecting, judging.

    python lab/benchmarks/prediction_profile.py --measure [--levels fast standard] [--repeats 5]
    python lab/benchmarks/prediction_profile.py         # the table from what was measured

Flows of `data/plane_flow/finer`, all their times in one prediction, in a running process that has predicted another
flow; each time the file is read again and what was kept is forgotten. The shortest of some repeats, part by part.
Writes `lab/benchmarks/results/prediction_profile.json` and a table of docs/flow.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from equal_error import WARM_UP, read

import pennpde
from pennlab.paper.tables import markdown_table, write_within
from pennpde.files import write_json
from pennpde.flow import coarse_march, scheme
from pennpde.flow.coarse_march import FAST, STANDARD, CoarseMarch
from pennpde.flow.scheme import FlowScheme
from pennpde.penn import PENN
from pennpde.prediction import stages

OUTPUT = Path(__file__).parent / "results" / "prediction_profile.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "flow.md"
FLOWS = "contraction_2001", "aerofoil_3005", "offset_2003"
PARTS = {
    "checks and units": (stages, "request"),
    "preparing, all": (stages, "prepare"),
    "cells, conditions, factors": (FlowScheme, "_assembled"),
    "start, march, correction, projection": (stages, "solve"),
    "march, with fields and balance": (FlowScheme, "_marched"),
    "balance of the march": (scheme, "balance"),
    "the network": (PENN, "_predict"),
    "projection, with balance": (CoarseMarch, "finished"),
    "balance after it": (coarse_march, "balance"),
    "back to the user's units": (stages, "bring_back"),
    "coarser solution": (stages, "compare"),
    "judging, all": (stages, "judge"),
    "certificate": (stages, "_certified"),
    "clues": (stages, "gather"),
}
"""By name what is clocked; some are parts of others."""


@contextmanager
def clocked(spent: dict[str, float]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, (owner, function) in PARTS.items():
            plain = getattr(owner, function)

            def timed(*given: Any, plain: Any = plain, name: str = name, **named: Any) -> Any:
                began = time.process_time()
                try:
                    return plain(*given, **named)
                finally:
                    spent[name] += time.process_time() - began

            stack.enter_context(patch.object(owner, function, timed))
        yield


def measured(level: str, flow: str, repeats: int) -> dict[str, float]:
    """Milliseconds by part."""
    network = pennpde.load_pretrained("flow")
    network.set_level(level)  # pyright: ignore[reportCallIssue]
    other = read(WARM_UP[flow == WARM_UP[0]])
    pennpde.predict(network, other.case, times=list(other.times))
    best: dict[str, float] = {}
    for _ in range(repeats):
        file, spent = read(flow), defaultdict(float)
        began = time.process_time()
        with clocked(spent):
            pennpde.predict(network, file.case, times=list(file.times))
        spent["all"] = time.process_time() - began
        best = {name: min(seconds, best.get(name, seconds)) for name, seconds in spent.items()}
    order = ["all", *PARTS]
    return {name: round(1000 * best[name], 1) for name in order if name in best}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--levels", nargs="+", default=[FAST, STANDARD], choices=CoarseMarch.levels)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, Any]] = {} if given.measure else json.loads(OUTPUT.read_text(encoding="utf-8"))
    for level in given.levels if given.measure else ():
        for flow in FLOWS:
            file = read(flow)
            label = f"{level}, {file.case.number_of_points:,} points, {len(file.times)} times"
            rows[label] = measured(level, flow, given.repeats)
            write_json(OUTPUT, rows)
    names = ["all", *PARTS]
    table = [[name, *(f"{row[name]:g}" if name in row else "" for row in rows.values())] for name in names]
    made = markdown_table(("processor milliseconds", *rows), table)
    print(made)
    write_within(PAGE, made, "profile")


if __name__ == "__main__":
    main()
