"""How much the plane flows change with twice the spacing: which of their moments are determined.

    python lab/benchmarks/plane_flow_sensitivity.py                 flows for tests in the archives
    python lab/benchmarks/plane_flow_sensitivity.py --dataset OUT   also those of a dataset that is being made
    python lab/benchmarks/plane_flow_sensitivity.py --compared      those that are compared with half the spacing
    python lab/benchmarks/plane_flow_sensitivity.py --table         only the table of the page

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
from itertools import islice
from pathlib import Path
from typing import Any

from pennlab.datasets.plane_flow import cost, finished, flows, sensitivity
from pennlab.datasets.plane_flow.quality import compared_flows
from pennlab.datasets.plane_flow.recipe import PlaneFlowRecipe
from pennlab.datasets.recipe import HopelessError, Product
from pennlab.paper.tables import markdown_table, within
from pennpde.case.moments import FOREVER
from pennpde.data import storage
from pennpde.data.vtkhdf import CaseFile, unpack
from pennpde.files import write_atomically

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "plane_flow.md"
ARCHIVES = ROOT / "data" / "plane_flow" / "finished"
OUTPUT = ARCHIVES / sensitivity.FILE
SPLITS = ("test", "test-unseen-families", "test-unseen-reynolds")


def known_flows(dataset: Path | None) -> dict[str, Path]:
    """By flow that is computed, the folder that has it."""
    found = {}
    if dataset is not None:
        found |= {name[:-2]: dataset for name in storage.read_manifest(dataset).cases if name.endswith(".a")}
    return found | dict.fromkeys(finished.names(ARCHIVES), ARCHIVES)


def computed(name: str, spacing: float = 1.0) -> Product:
    (product,) = PlaneFlowRecipe(spacing=spacing).make([f"{name}.a"], lambda _: None)
    return product


def truth(folder: Path | None, name: str) -> CaseFile:
    if folder is None:
        return unpack(computed(name).content, name)
    if folder == ARCHIVES:
        return finished.cases(ARCHIVES, flows.draw_flow(name))[f"{name}.a"]
    return storage.read_file(folder, f"{name}.a")


def measured(folder: Path | None, name: str) -> dict[str, Any]:
    """The differences of one flow, and what the run with larger cells took."""
    try:
        coarser = computed(name, sensitivity.SPACING)
    except HopelessError as error:
        return {"error": str(error)}
    facts = coarser.facts["truth"]
    kept = ("cells", "steps", "courant", "seconds_meshing", "seconds_moments", "seconds_steady")
    return {
        **sensitivity.differences(truth(folder, name), unpack(coarser.content, name)),
        **{key: facts[key] for key in kept if key in facts},
    }


def for_tests(dataset: Path | None) -> Iterator[tuple[str, Path]]:
    """Flows for tests without an entry, as long as there are some; the dataset may grow in the meantime."""
    while left := {
        name: folder
        for name, folder in known_flows(dataset).items()
        if flows.split_of(name) in SPLITS and name not in entries()
    }:
        name = min(left, key=rank)
        yield name, left[name]


def for_comparison(dataset: Path | None) -> Iterator[tuple[str, Path | None]]:
    """Flows without an entry that are compared with half the spacing; some of them are nowhere yet."""
    folders = known_flows(dataset)
    for name in sorted(compared_flows(), key=rank):
        if name not in entries():
            yield name, folders.get(name)


rank = cache(cost.rank)


def entries() -> dict[str, Any]:
    return json.loads(OUTPUT.read_text(encoding="utf-8"))["flows"] if OUTPUT.exists() else {}


def write(found: Mapping[str, Any]) -> None:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    about = {"spacing": sensitivity.SPACING, "limit": sensitivity.LIMIT}
    write_atomically(OUTPUT, f'{json.dumps(about)[:-1]}, "flows": {{\n{rows}\n}}}}\n')


def counted(found: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """By split for tests, the numbers of flows, moments and steady states, and of those that are determined."""
    numbers = {}
    measured = [name for name in finished.names(ARCHIVES) if name in found and "error" not in found[name]]
    for split in SPLITS:
        names = [name for name in measured if flows.split_of(name) == split]
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
    parser.add_argument(
        "--compared", action="store_true", help="the flows of lab/benchmarks/plane_flow_truth.py instead"
    )
    parser.add_argument("--limit", type=int, help="compute at most so many flows")
    parser.add_argument("--table", action="store_true", help="only the table, from what is there")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if not given.table:
        left = for_comparison(given.dataset) if given.compared else for_tests(given.dataset)
        for name, folder in islice(left, given.limit):
            entry = measured(folder, name)
            write(entries() | {name: entry})  # another process may have added to it
            print(name, json.dumps(entry), flush=True)
    found = entries()
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(within(page, table(found) + "\n", "sensitivity", required=True), encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
