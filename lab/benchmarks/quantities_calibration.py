"""The expected error of quantities, learned from plane flows of no training split.

    python lab/benchmarks/quantities_calibration.py [--references SECONDS]

The references of each flow, steady and soon after the start, are the scheme's on cells split three times; their own
error, a quarter of the next coarser one's, is added by Richardson's factor. They take most of the time and know nothing
of the network: they are kept in `lab/benchmarks/results/quantities_references.json`, and the option adds some. Then
every flow is predicted on each level: quantities of which the network's own coarser solution differs by d have an error
of some times d; the factors of each group of quantities are learned here. Writes
`src/pennpde/quantities/quantities.json` and the table of docs/quantities.md, each family judged by the others. What is
predicted is kept in `runs/quantities.jsonl` for the weights that it was predicted with, so a run that was interrupted
goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pennpde
from pennlab.datasets.plane_flow import flows
from pennlab.datasets.plane_flow.cases import case_on_mesh
from pennlab.datasets.plane_flow.meshes import MeshPlan, network_mesh
from pennlab.known_cases import read_finished
from pennlab.paper.tables import markdown_table, write_within
from pennpde.case import Case
from pennpde.checkpoints import config_of
from pennpde.files import write_json
from pennpde.flow.scheme import FlowScheme
from pennpde.penn import Predictor
from pennpde.quantities import Quantity, SolvedFlow, parse

ROOT = Path(__file__).resolve().parents[2]
FINISHED = ROOT / "data" / "plane_flow" / "finished"
REFERENCES = ROOT / "lab" / "benchmarks" / "results" / "quantities_references.json"
ROWS = ROOT / "runs" / "quantities.jsonl"
SHIPPED = ROOT / "src" / "pennpde" / "quantities" / "quantities.json"
PAGE = ROOT / "docs" / "quantities.md"
SPLITS = ("test-unseen-families", "test", "test-unseen-reynolds", "validation")
LEVELS = ("fast", "standard", "fine")
SINGULAR = ("cavity", "ventilated", "moving-tee")
"""Families with walls that slide along others: their friction has no limit on finer cells, so it has no error."""
WHEN: Mapping[str, Mapping[str, Any]] = {"at 1": {"times": 1.0}, "steady": {"steady": True}}
"""On `fast` only flows on their way are corrected, and so have a coarser solution."""
SPLITS_OF_LEVEL = {"fast": 0, "standard": 1, "fine": 2}
REFERENCE_SPLITS = 3
POINTS = 300
"""About so many has a mesh that is made here: three times split it has 64 times as many."""
MOST_POINTS = 700
"""Of a stored one."""
LEAST = 0.1
"""A factor is never smaller: prescribed flow rates are exact, others of the same group are not."""
MOST_REYNOLDS = 150.0
"""Beyond, many of these flows have no steady state, and a march that waits for one takes minutes."""
COVERED = 0.9
FEWEST = 4
"""Flows, below which nothing is said. With fewer than nine the bound is the largest value that was seen."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--references", type=float, default=0.0, help="seconds to compute more references for")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    references = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}
    end = time.monotonic() + given.references
    for family, case in _chosen({name for name, each in references.items() if each.keys() >= WHEN.keys()}):
        if time.monotonic() > end:
            break
        began = time.process_time()
        known = references.setdefault(_name(case), {"family": family})
        known |= {name: _reference(case, how) for name, how in WHEN.items() if name not in known}
        REFERENCES.write_text(json.dumps(references, indent=0) + "\n")
        print(case.name, case.number_of_points, f"{time.process_time() - began:.0f} s", flush=True)
    rows = measured(references)
    factors, coverage = fitted(rows), covered(rows)
    flows_of = {level: len({row["case"] for row in rows if row["level"] == level}) for level in LEVELS}
    write_json(
        SHIPPED, {"factors": factors, "coverage": coverage, "flows": flows_of, "reference": "cells split thrice"}
    )
    made = table(factors, coverage, flows_of)
    print(made)
    if PAGE.exists():
        write_within(PAGE, made, "coverage")


# Measuring


def _name(case: Case) -> str:
    return (case.name or "").partition(".")[0]


def _reference(case: Case, how: Mapping[str, Any]) -> dict[str, float]:
    """Quantities on fine cells; none of a steady state that there is not."""
    try:
        outcome = pennpde.predict(FlowScheme(splits=REFERENCE_SPLITS), case, **how, resolution="own")
    except ArithmeticError:
        return {}
    if not outcome.certificate.converged:
        return {}
    assert outcome.flow is not None
    found = {}
    for each in _wanted(case):
        with contextlib.suppress(ValueError):  # the flow is attached
            found[each.name] = float(each.kind.measure(outcome.flow, each).values[-1])
    return {name: value for name, value in found.items() if math.isfinite(value)}


def measured(references: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every flow with a reference on every level of the network; none where a level has no coarser solution."""
    network = pennpde.load_pretrained("flow")
    assert isinstance(network, Predictor)
    config = config_of(network)
    weights = (config and config.weights_sha256) or ""
    ROWS.parent.mkdir(exist_ok=True)
    kept = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    rows = [row for row in kept if row["weights"] == weights]
    done = {row["case"] for row in rows}
    for family, case in _chosen(done, only=references):
        own = []
        for level, (when, true) in product(LEVELS, references[_name(case)].items()):
            if when not in WHEN or not true:
                continue
            network.set_level(level)
            flow = pennpde.predict(network, case, **WHEN[when], resolution="own").flow
            assert flow is not None
            about = {"case": _name(case), "family": family, "when": when, "level": level, "weights": weights}
            for each in _wanted(case):
                row = _row(each, flow, true[each.name]) if each.name in true else None
                if row is not None:
                    own.append(about | {"group": each.kind.group, "quantity": each.name} | row)
        with ROWS.open("a") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in own)
        print(case.name, len(own), flush=True)
        rows += own
    return rows


def _chosen(done: Collection[str], only: Collection[str] | None = None) -> Iterator[tuple[str, Case]]:
    """Flows of each family in turn, so that an early end leaves no family out: stored small meshes, else own ones."""
    splits = flows.splits()
    by_family: dict[str, list[str]] = defaultdict(list)
    for name in (name for split in SPLITS for name in splits[split]):
        if flows.draw_flow(name).reynolds <= MOST_REYNOLDS:
            by_family[name.rpartition("_")[0]].append(name)
    for place in range(max(map(len, by_family.values()))):
        for family, names in by_family.items():
            if place < len(names) and names[place] not in done and (only is None or names[place] in only):
                flow = flows.draw_flow(names[place])
                stored = next(read_finished(FINISHED, only=[flow.name]), None)
                if stored is not None and stored.case.number_of_points <= MOST_POINTS:
                    yield family, stored.case
                    continue
                plan = MeshPlan("graded", math.sqrt(POINTS / (1.5 * flow.domain.area)), 0.5, place)
                yield family, case_on_mesh(flow, network_mesh(flow, plan))


def _row(quantity: Quantity, flow: SolvedFlow, reference: float) -> dict[str, float] | None:
    try:
        found = quantity.kind.measure(flow, quantity)
        apart = quantity.difference(flow, found)
    except ValueError:  # the flow is attached
        return None
    numbers = [found.values[-1], reference, found.scale[-1], apart if apart is not None else math.nan]
    if not all(math.isfinite(each) for each in numbers):
        return None
    return dict(zip(("value", "reference", "scale", "apart"), map(float, numbers), strict=True))


def _wanted(case: Case) -> list[Quantity]:
    conditions = flows.draw_flow(_name(case)).conditions
    kinds = {name: type(each).__name__ for name, each in conditions.items() if name in case.mesh.patches}
    inlets, outlets, walls = (
        [name for name, kind in kinds.items() if kind == word] for word in ("Inlet", "Outlet", "Wall")
    )
    texts = ["kinetic energy", "dissipation", "recirculation area", "maximum speed", "maximum p", "minimum p"]
    for inlet in inlets:
        texts += [
            f"{first} {inlet} {outlet}" for outlet in outlets for first in ("pressure drop", "total pressure drop")
        ]
        texts.append(f"mean pressure {inlet}")
    texts += [f"{first} {outlet}" for outlet in outlets for first in ("flow rate", "uniformity")]
    texts += [f"flow split {' '.join(outlets)}"] if len(outlets) > 1 else []
    for wall in walls:
        words = ("drag", "lift", "pressure force", "viscous force", "moment", "wall shear", "maximum wall shear")
        texts += [f"{first} {wall}" for first in (*words, "reattachment", "recirculation length")]
    random = np.random.default_rng(len(case.name or ""))
    for point in case.mesh.points[torch.from_numpy(random.integers(0, case.number_of_points, 3))].tolist():
        texts += [f"probe {name} {point[0]!r} {point[1]!r}" for name in ("u", "p")]
    return [parse(text) for text in texts]


# Learning


def errors(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[tuple[str, str, float]]]:
    """By level and group: family, case, and the error over the difference from the coarser flow."""
    found = defaultdict(list)
    for row in rows:
        if not (row["family"] in SINGULAR and row["group"] in ("force", "wall shear", "energy")):
            error = abs(row["value"] - row["reference"])
            richardson = 1.0 / (1.0 - 0.25 ** (REFERENCE_SPLITS - SPLITS_OF_LEVEL[row["level"]]))
            found[row["level"], row["group"]].append((row["family"], row["case"], richardson * error / row["apart"]))
    return found


def _factors(scores: Sequence[tuple[str, str, float]]) -> tuple[float, float] | None:
    """The mean and the quantile of conformal prediction; single scores beyond the quantile have no say in the mean."""
    cases = len({case for _, case, _ in scores})
    if cases < FEWEST:
        return None
    values = np.sort([score for _, _, score in scores])
    place = min(math.ceil(COVERED * (1 + 1 / cases) * len(values)), len(values)) - 1
    return float(np.minimum(values, values[place]).mean()), float(values[place])


def fitted(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {level: {} for level in LEVELS}
    for (level, group), scores in errors(rows).items():
        factors = _factors(scores)
        if factors is not None:
            found[level][group] = [round(max(each, LEAST), 4) for each in factors]
    return found


def covered(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """How often the bound holds where the factors know no flow of the same family, and how large errors are."""
    found: dict[str, dict[str, dict[str, float]]] = {level: {} for level in LEVELS}
    for (level, group), scores in errors(rows).items():
        held = []
        for family in {each for each, _, _ in scores}:
            factors = _factors([each for each in scores if each[0] != family])
            if factors is not None:
                held += [score <= factors[1] for own, _, score in scores if own == family]
        cases = {case for _, case, _ in scores}
        own = [row for row in rows if row["level"] == level and row["group"] == group and row["case"] in cases]
        relative = [abs(row["value"] - row["reference"]) / row["scale"] for row in own if row["scale"] > 0]
        if held:
            found[level][group] = {
                "covered": round(float(np.mean(held)), 3),
                "quantities": len(held),
                "median_error": round(float(np.median(relative)), 5),
            }
    return found


def table(factors: Mapping[str, Any], coverage: Mapping[str, Any], flows: Mapping[str, int]) -> str:
    rows = []
    for group in sorted({group for level in LEVELS for group in factors[level]}):
        cells = [group]
        for level in LEVELS:
            found, known = coverage[level].get(group), factors[level].get(group)
            share = "too few to say" if found is None else f"{100 * found['covered']:.0f} % of {found['quantities']}"
            error = "" if found is None else f"; {100 * found['median_error']:.2g} %"
            cells.append("not known" if known is None else f"{share}{error}; {known[0]:.2g}")
        rows.append(cells)
    return markdown_table(("quantities", *(f"`{level}`, {flows[level]} flows" for level in LEVELS)), rows)


if __name__ == "__main__":
    main()
