"""How smooth the errors of flow networks are: differences between neighbours, at prescribed points and elsewhere.

The paper supposes that a plain decoder with the Dirichlet layer after it (row G) makes fields discontinuous where
values are prescribed, and that the pseudoinverse decoder does not. A discontinuity is a difference of the error between
a prescribed point and its free neighbours that is large compared with differences between other neighbours.

    python lab/benchmarks/smoothness.py

Takes the networks of rows PENN, C, F and G whose weights are in lab/records/flow. Writes
`lab/benchmarks/results/smoothness.json`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pennlab.paper.tables import markdown_table
from pennpde.case import Case
from pennpde.checkpoints import WEIGHTS, load_pretrained
from pennpde.data import storage
from pennpde.files import write_json

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "lab" / "benchmarks" / "results" / "smoothness.json"
ROWS = ("penn", "C", "F", "G")
Fields = Mapping[str, Tensor]


def differences(case: Case, fields: Fields) -> dict[str, tuple[float, float]]:
    """By unknown, mean squares of the error's difference along edges: with one prescribed end, and with none."""
    start, end = (torch.as_tensor(ends) for ends in case.mesh.edges)
    found = {}
    for name, truth in case.targets.items():
        error = (fields[name].to(truth) - truth).reshape(len(truth), -1)
        prescribed = case.dirichlet[name].mask.reshape(len(truth), -1).any(dim=1)
        squared = (error[start] - error[end]).square().sum(dim=1)
        across, free = prescribed[start] != prescribed[end], ~(prescribed[start] | prescribed[end])
        found[name] = (float(squared[across].mean()), float(squared[free].mean()))
    return found


def measure(network: Callable[[Case], Fields], cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    """Means over cases: at prescribed points, elsewhere, and the ratio of the two."""
    with torch.no_grad():
        of_cases = [differences(case, network(case)) for case in cases]
    found = {}
    for name in of_cases[0]:
        at, elsewhere = (statistics.fmean(each[name][part] for each in of_cases) for part in (0, 1))
        found[name] = {"at_prescribed_points": at, "elsewhere": elsewhere, "ratio": at / elsewhere}
    return found


def main() -> None:
    cases = storage.read(ROOT / "data" / "flow", "test")
    record: dict[str, Any] = {}
    for row in ROWS:
        for path in sorted((ROOT / "lab" / "records" / "flow" / row).glob(f"*/{WEIGHTS}")):
            network = load_pretrained(str(path.parent), dtype=torch.float64)
            record[f"{row}, seed {path.parent.name}"] = measure(network, cases)
    write_json(RESULT, record, indent=1)
    headings = ["row", *(f"{name}, {what}" for name in ("u", "p") for what in ("at prescribed points", "ratio"))]
    lines = [
        [title, *(f"{each[name][what]:.2g}" for name in ("u", "p") for what in ("at_prescribed_points", "ratio"))]
        for title, each in record.items()
    ]
    print(markdown_table(headings, lines))


if __name__ == "__main__":
    main()
