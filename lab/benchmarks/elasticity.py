"""A PENN for linear elasticity with component-wise conditions: trained, without data, and beside what needs no PENN.

    python lab/benchmarks/elasticity.py [--minutes 4]

Plates with an elliptic hole, a family of three parameters (`pennlab.elasticity`). Errors of the displacement are
relative (root of the sum of squares over all test plates), in percent, on plates as they are and rigidly moved. Floors:
nothing done (a plate without hole), the nearest training plate, an MLP of coordinates and parameters, and linear finite
elements on the same cells. Each network trains for the given processor minutes on one core. The network without data
has never seen a solution: its loss is the elastic energy, which also makes the unloaded sides free of traction. Each
finished row is kept, so that an interrupted run goes on. Writes `lab/benchmarks/results/elasticity.json` and the table
of docs/elasticity.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import pennpde as penn
from pennlab import elasticity
from pennlab.elasticity import INTERVALS, PointwiseMLP, case_of, drawn, energy, network, solved
from pennlab.paper.tables import markdown_table, write_within
from pennpde.case import Case
from pennpde.files import write_json

ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).parent / "results" / "elasticity.json"
PAGE = ROOT / "docs" / "elasticity.md"
NUMBERS = {"train": 60, "validation": 10, "test": 20}
SETTINGS: Mapping[str, Any] = {
    "optimizer": "soap",
    "schedule": "cosine",
    "learning_rate": 3e-3,
    "final_rate": 0.01,
    "warm_up": 20,
    "batch_size": 4,
    "test_every": 2,
    "clip": 1.0,
}
TITLES = {
    "nothing": "nothing done: a plate without hole",
    "nearest": "nearest training plate",
    "mlp": "MLP of coordinates and parameters",
    "energy": "PENN, without data: elastic energy",
    "penn": "PENN, trained on finite elements",
    "elements": "finite elements on the same cells",
}
Solver = Callable[[Case], Tensor]


def relative(solver: Solver, cases: list[Case]) -> float:
    above = below = 0.0
    with torch.no_grad():
        for case in cases:
            truth = case.targets["u"].double()
            above += float((solver(case).double() - truth).square().sum())
            below += float(truth.square().sum())
    return 100 * (above / below) ** 0.5


def nearest(train: list[Case], plates: list[elasticity.Plate]) -> Solver:
    """Points correspond to one another in all plates; the prescribed components are set."""
    known = {case.name: plate for case, plate in zip(train, plates, strict=True)}
    by_name = {plate.name: plate for plate in drawn(NUMBERS["test"], seed=2)}

    def distance(one: elasticity.Plate, other: elasticity.Plate) -> float:
        return (one.a - other.a) ** 2 + (one.b - other.b) ** 2 + ((one.poisson - other.poisson) * 0.4 / 0.45) ** 2

    def found(case: Case) -> Tensor:
        best = min(train, key=lambda each: distance(known[each.name], by_name[case.name]))
        return case.fulfilled({"u": best.targets["u"]})["u"]

    return found


def trained(model: nn.Module, kind: str, data: dict[str, list[Case]], minutes: float) -> tuple[nn.Module, dict]:
    began = time.process_time()
    options: dict[str, Any] = {**SETTINGS, "processor_minutes": minutes, "scales": {"u": 0.05}}
    loss = energy if kind == "energy" else None
    train, validation = data["train"], data["validation"]
    if kind == "energy":
        # Its own loss judges it: the validation cases are among those it may see, because it sees no solution.
        train, validation = [*train, *validation], []
    result = penn.fit(model, train, validation, loss=loss, threads=1, progress=False, **options)
    told = {"steps": result.steps, "processor_minutes": result.processor_seconds / 60}
    told |= {
        "parameters": sum(each.numel() for each in model.parameters()),
        "all_minutes": (time.process_time() - began) / 60,
    }
    return result.model.eval(), told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=4.0, help="of one core, for each network")
    given = parser.parse_args()
    torch.set_num_threads(1)
    plates = {split: drawn(number, seed) for seed, (split, number) in enumerate(NUMBERS.items())}
    data = {split: [case_of(plate).to(torch.float32) for plate in some] for split, some in plates.items()}
    generator = torch.Generator().manual_seed(0)
    moved = []
    for case in data["test"]:
        turn = torch.linalg.qr(torch.randn(2, 2, generator=generator, dtype=torch.float64))[0]
        moved.append(case.moved(turn, torch.randn(2, generator=generator, dtype=torch.float64)))
    result: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}

    def keep(name: str, solver: Solver, told: Mapping[str, Any], turns: bool = True) -> None:
        row: dict[str, Any] = {"u": relative(solver, data["test"]), **told}
        if turns:
            row["moved"] = relative(solver, moved)
        began = time.process_time()
        with torch.no_grad():
            for case in data["test"]:
                solver(case)
        row["seconds"] = (time.process_time() - began) / len(data["test"])
        result[name] = row
        write_json(RESULT, result)
        print(name, row, flush=True)

    by_name = {plate.name: plate for plate in plates["test"]}
    keep("nothing", lambda case: case.fulfilled(case.initial)["u"], {})
    keep("nearest", nearest(data["train"], plates["train"]), {}, turns=False)
    keep("elements", lambda case: torch.from_numpy(solved(by_name[case.name], INTERVALS)), {}, turns=False)
    makers: dict[str, Callable[[], nn.Module]] = {"penn": network, "energy": network, "mlp": PointwiseMLP}
    for name, make in makers.items():
        if name not in result:
            torch.manual_seed(0)
            model, told = trained(make(), name, data, given.minutes)
            keep(name, lambda case, model=model: model(case)["u"], told)
            write_within(PAGE, "\n" + table(result) + "\n", "elasticity")
    print(table(result))


def table(result: Mapping[str, Any]) -> str:
    rows = []
    for name, title in TITLES.items():
        if name not in result:
            continue
        told = result[name]
        budget = f"{told['steps']:,} in {told['processor_minutes']:.1f} min" if "steps" in told else ""
        parameters = f"{told['parameters']:,}" if "parameters" in told else ""
        shifted = f"{told['moved']:.3g}" if "moved" in told else ""
        rows.append([title, f"{told['u']:.3g}", shifted, parameters, budget, f"{1e3 * told['seconds']:.3g}"])
    headings = ["", "error of u, %", "rigidly moved", "parameters", "steps of 4 plates, one core", "ms per plate"]
    return markdown_table(headings, rows)


if __name__ == "__main__":
    main()
