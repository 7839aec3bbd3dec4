"""Flows to learn from, solved by the scheme itself on cells of half the size.

    python lab/experiments/plane_flow/finer_cells.py --data data/plane --out data/plane_finer --workers 2

The truth of the plane flows is off by about as much as the scheme without its learned part
(docs/experiments_general.md), and a network that learns from it learns its error as well. The scheme's own solution
with each cell split once more is nearer to the solution, needs no other solver, and leaves nothing to learn but what
coarse cells lose.

Cases that are there already are kept, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch
from tqdm import tqdm

from pennlab.datasets.plane_flow import flows
from pennlab.levels import solved_at_level
from pennpde.data import storage, vtkhdf
from pennpde.flow.network import stepping_flow
from pennpde.penn.predictor import seen_by

_MOST_POINTS = 8_000
"""Of the cells that the network solves; there are four times as many here."""
_NUMBERS = {"train": 320, "validation": 24}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--data", default="data/plane", help="the dataset plane-flow, training and validation")
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--workers", type=int, default=2)
    given = arguments.parse_args()
    folder, source = Path(given.out), storage.read_manifest(given.data)
    if not (folder / storage.MANIFEST).is_file():
        about = {"cells": "split once more than by the network", "most_points": _MOST_POINTS}
        storage.write(folder, [], dict.fromkeys(_NUMBERS, ()), source.dataset, settings=about)
    for split, number in _NUMBERS.items():
        manifest = storage.read_manifest(folder)
        chosen = [name for name, _ in zip(_affordable(given.data, source, split), range(number), strict=False)]
        storage.write_manifest(folder, replace(manifest, splits={**manifest.splits, split: chosen}))
        missing = [name for name in chosen if name not in manifest.cases]
        one_thread = {"initializer": torch.set_num_threads, "initargs": (1,)}
        with ProcessPoolExecutor(given.workers, get_context("spawn"), **one_thread) as pool:
            under_way = {pool.submit(solved, given.data, name): name for name in missing}
            for done in tqdm(as_completed(under_way), desc=split, total=len(missing)):
                name = under_way[done]
                entry = storage.store(folder, name, done.result(), source.cases[name].facts)
                storage.write_manifest(folder, storage.read_manifest(folder).with_case(name, entry))


def solved(data: str, name: str) -> bytes:
    """The file of a case with the fields on finer cells at its moments."""
    file = storage.read_file(data, name)
    return vtkhdf.pack(replace(file.case, targets=solved_at_level(file.case, file.times, 1)), file.times)


def _affordable(data: str, manifest: storage.Manifest, split: str) -> Iterator[str]:
    """Flows on their first mesh, in an order by which any number of them is a small dataset."""
    plain = stepping_flow(corrected=False)
    names = [name for name in manifest.names(split) if name.endswith(".a")]
    for name in flows.by_checksum(names):
        case = storage.read_file(data, name, manifest).case
        if plain.points_solved(seen_by(plain, case).case) <= _MOST_POINTS:
            yield name


if __name__ == "__main__":
    main()
