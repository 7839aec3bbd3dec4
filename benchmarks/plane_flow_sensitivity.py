"""How much the plane flows change with twice the spacing: which of their moments are determined.

    python benchmarks/plane_flow_sensitivity.py                          flows for tests in the archives
    python benchmarks/plane_flow_sensitivity.py --dataset OUT            also those of a dataset that is being made
    python benchmarks/plane_flow_sensitivity.py --table                  only the table of the page

Each flow is computed again by OpenFOAM with cells twice as large, and compared at the points of its first mesh for
networks. Flows for tests come first, cheap ones before expensive ones; those that are there are kept, so the script can
be stopped and started again. Writes `data/plane_flow/finished/sensitivity.json` after every flow, with the seconds that
meshing, moments and the steady state took on one core, and the table of `docs/plane_flow.md`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pennpde.case.moments import FOREVER
from pennpde.datasets import storage
from pennpde.datasets.plane_flow import cost, finished, flows, sensitivity
from pennpde.datasets.plane_flow.recipe import PlaneFlowRecipe
from pennpde.datasets.recipes import HopelessError
from pennpde.datasets.vtkhdf import CaseFile, unpack
from pennpde.files import write_atomically
from pennpde.paper.tables import markdown_table, within

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "plane_flow.md"
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
OUTPUT = ARCHIVES / sensitivity.FILE
SPLITS = ("test", "test-unseen-families", "test-unseen-reynolds")


def known_flows(dataset: Path | None) -> dict[str, Path]:
    """By flow that is computed, the folder that has it."""
    found = dict.fromkeys(finished.names(ARCHIVES), ARCHIVES)
    if dataset is not None:
        manifest = storage.read_manifest(dataset)
        found |= {name[:-2]: dataset for name in manifest.cases if name.endswith(".a") and name[:-2] not in found}
    return found


def truth(folder: Path, name: str) -> CaseFile:
    if folder == ARCHIVES:
        return finished.cases(ARCHIVES, flows.draw_flow(name))[f"{name}.a"]
    return storage.read_file(folder, f"{name}.a")


def measured(folder: Path, name: str) -> dict[str, Any]:
    """The differences of one flow, and what the run with larger cells took."""
    recipe = PlaneFlowRecipe(spacing=sensitivity.SPACING)
    try:
        (product,) = recipe.make([f"{name}.a"], lambda _: None)
    except HopelessError as error:
        return {"error": str(error)}
    facts = product.facts["truth"]
    kept = ("cells", "steps", "courant", "seconds_meshing", "seconds_moments", "seconds_steady")
    coarser = unpack(product.content, name)
    return {
        **sensitivity.differences(truth(folder, name), coarser),
        **{key: facts[key] for key in kept if key in facts},
    }


def waiting(there: Mapping[str, Any], dataset: Path | None, splits: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Flows without an entry, as long as there are some; the dataset may grow in the meantime."""
    while left := {
        name: folder
        for name, folder in known_flows(dataset).items()
        if name not in there and flows.split_of(name) in splits
    }:
        name = min(left, key=rank)
        yield name, left[name]


rank = cache(cost.rank)


def write(found: Mapping[str, Any]) -> None:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    about = {"spacing": sensitivity.SPACING, "limit": sensitivity.LIMIT}
    write_atomically(OUTPUT, f'{json.dumps(about)[:-1]}, "flows": {{\n{rows}\n}}}}\n')


def counted(found: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """By split, the numbers of flows, moments and steady states, and of those that are determined."""
    numbers = {}
    for split in flows.splits():
        names = [name for name in found if flows.split_of(name) == split and "error" not in found[name]]
        judged = [sensitivity.determined(ARCHIVES, name, time) for name in names for time in found[name]["times"]]
        steady = [sensitivity.determined(ARCHIVES, name, FOREVER) for name in names if "steady_u" in found[name]]
        if names:
            numbers[split] = {
                "flows": len(names),
                "moments": len(judged),
                "determined": sum(map(bool, judged)),
                "steady": len(steady),
                "steady_determined": sum(map(bool, steady)),
            }
    return numbers


def table(found: Mapping[str, Any]) -> str:
    rows = []
    for split, numbers in counted(found).items():
        computed = [name for name in finished.names(ARCHIVES) if flows.split_of(name) == split]
        rows.append(
            [
                f"`{split}`",
                f"{numbers['flows']} of {len(computed)}",
                f"{numbers['determined']} of {numbers['moments']}",
                f"{numbers['steady_determined']} of {numbers['steady']}",
            ]
        )
    return markdown_table(("split", "flows compared", "determined moments", "determined steady states"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dataset", type=Path, help="folder of `penn generate plane-flow`, complete or not")
    parser.add_argument("--split", nargs="+", default=SPLITS, choices=list(flows.splits()))
    parser.add_argument("--limit", type=int, help="compute at most so many flows")
    parser.add_argument("--table", action="store_true", help="only the table, from what is there")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    found: dict[str, Any] = json.loads(OUTPUT.read_text(encoding="utf-8"))["flows"] if OUTPUT.exists() else {}
    if not given.table:
        for number, (name, folder) in enumerate(waiting(found, given.dataset, tuple(given.split)), 1):
            found[name] = measured(folder, name)
            write(found)
            print(name, json.dumps(found[name]), flush=True)
            if number == given.limit:
                break
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(within(page, table(found) + "\n", "sensitivity", required=True), encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
