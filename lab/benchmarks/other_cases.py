"""Do the bounds of `flow` hold on cases like those that engineers tried: benchmarks, tutorials, layered meshes?

Cavities (Ghia) steady and started, steps (Erturk, SU2), COMSOL's step, lids of PINNacle, cylinders in open flow and in
a channel (DFG 2D-1), the elbow and sbend tutorials, channels, a plate and a bend with layers at the walls; and cases
that nothing was tuned for (`unkind_cases.py`). Errors are relative L2 errors at the points of the mesh, against our
scheme on cells split so often that it has sixteen times as many points, extrapolated
(`pennlab.datasets.unlike_flows`): published values exist on lines only, and agree (`steady.py`,
`stretched_meshes.py`). For steady cases of `unkind_cases.py` errors inside are given by simpleFoam on cells a third as
wide as well, once --references has run. None of these cases is calibrated with. Turbulent cases (pitzDaily) are refused
before anything is solved.

    python lab/benchmarks/other_cases.py [--level standard] [--references] [NAME ...]

Prints and writes `lab/benchmarks/results/other_cases.json` and the table of docs/trust.md. A case that is there is not
predicted again with the same weights and calibration. References are kept in `runs/other_cases`; with --references only
these are computed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import steady
import stretched_meshes
import torch
import unkind_cases
from general_flow_references import PLANS, TASKS

import pennpde as penn
from pennlab.datasets import unlike_flows
from pennlab.datasets.plane_flow.cases import case_on_mesh
from pennlab.datasets.plane_flow.meshes import network_mesh
from pennlab.paper.tables import markdown_table, write_within
from pennlab.running import plane_flows
from pennpde.case import Case
from pennpde.checkpoints import expected_error_file, origin_of
from pennpde.metrics import relative_l2, without_level
from pennpde.penn import STEADY, Predictor

OUTPUT = Path(__file__).parent / "results" / "other_cases.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "trust.md"
KEPT = Path(__file__).resolve().parents[2] / "runs" / "other_cases"
GHIA = (100, 400, 1000, 3200)
WRONG = 10.0
"""Per cent: nothing that is wrong by more may be graded good."""


def published(name: str) -> Case:
    flow = TASKS[name][0]()
    return case_on_mesh(flow, network_mesh(flow, PLANS[name]))


def layered(name: str, aspect_ratio: float) -> Case:
    return stretched_meshes.case_of(stretched_meshes.FLOWS[name](aspect_ratio))


def lid(fastest: float) -> Case:
    """PINNacle's: u = a x (1 - x) on the lid, viscosity 0.01."""
    case = steady.cavity(100, 32).case
    x = case.mesh.points[:, 0].double()
    moving = torch.stack([fastest * x * (1 - x), 0 * x], dim=1)
    held = {"u": {"top": moving, "walls": 0.0}, "p": {"corner": 0.0}}
    start = {"u": (0.0, 0.0), "p": 0.0}
    return Case(case.mesh, initial=start, dirichlet=held, parameters={"viscosity": 0.01})


Made = tuple[Callable[[], Case], tuple[float, ...]]
"""A case and its times."""
NOW = (STEADY,)
CASES: Mapping[str, Made] = {
    **{f"cavity Re {number}": (lambda number=number: steady.cavity(number, 32).case, NOW) for number in GHIA},
    "cavity Re 1000, triangles": (lambda: published("cavity-1000"), NOW),
    **{f"cavity Re {n}, started": (lambda n=n: steady.cavity(n, 20).case, (0.5, 4.0)) for n in (10, 100)},
    **{f"lid {speed} x (1 - x)": (lambda speed=speed: lid(speed), NOW) for speed in (2, 8, 32)},
    "COMSOL's step": (lambda: published("comsol-step"), NOW),
    **{f"step Re {n}": (lambda n=n: steady.step(n, 0.5).case, NOW) for n in (100, 200, 400, 600, 800)},
    "step Re 400, triangles": (lambda: published("step-400"), NOW),
    "step Re 800, as SU2's": (lambda: steady.step(800, 1.0).case, NOW),
    "step Re 100, started": (lambda: steady.step(100, 0.5).case, (2.0, 8.0)),
    **{f"cylinder Re {n}": (lambda n=n: steady.cylinder(n, 48, 32).case, NOW) for n in (10, 20, 40)},
    "DFG 2D-1": (lambda: published("cylinder"), NOW),
    "elbow": (steady.elbow, NOW),
    "elbow, started": (steady.elbow, (10.0,)),
    **{f"channel, layers {n}": (lambda n=n: layered("channel", n), NOW) for n in (10, 16, 44, 92, 300, 1000)},
    **{f"{name}, layers {n}": (lambda name=name, n=n: layered(name, n), NOW) for name in ("plate", "bend", "step")
       for n in (30, 300)},
    "sbend": (steady.sbend, NOW),
    **{name: (lambda make=make: make(1), NOW) for name, make in unkind_cases.STEADY_CASES.items()},
    **{name: (lambda make=make: make(1), (0.5, 2.0)) for name, make in unkind_cases.STARTED_CASES.items()},
}  # fmt: skip
BY_OPENFOAM = [name for name in unkind_cases.STEADY_CASES if "nozzle" not in name]
FINER = 3


def reference_of(name: str) -> tuple[Case, Mapping[str, np.ndarray] | None]:
    """The case and its fields, solved for where they are not kept."""
    make, times = CASES[name]
    case, path = make(), KEPT / f"{name.replace(' ', '_').replace('/', '_')}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, allow_pickle=False, **(unlike_flows.solve_reference(case, times) or {}))
    with np.load(path) as content:
        return case, {unknown: content[unknown] for unknown in ("u", "p")} if "u" in content else None


def simple_foam_file(name: str) -> Path:
    return KEPT / f"{name.replace(' ', '_')}.simpleFoam.npz"


def simple_foam_of(name: str, case: Case) -> Mapping[str, np.ndarray]:
    """The fields by simpleFoam on finer cells, at the points of the case."""
    path = simple_foam_file(name)
    if not path.exists():
        solved = plane_flows.solve(unkind_cases.STEADY_CASES[name](FINER), tolerance=1e-6)
        velocity, pressure = solved.at(case.mesh.points.double().numpy())
        np.savez_compressed(path, allow_pickle=False, u=velocity, p=pressure)
    with np.load(path) as content:
        return {unknown: content[unknown] for unknown in ("u", "p")}


def judged(name: str, case: Case, model: Predictor, reference: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The worst of the times, unknown by unknown."""
    times = CASES[name][1]
    found = penn.predict(model, case, times=times)
    volumes, free = case.mesh.point_volumes.double(), model.equation.free_levels(case)
    inside = torch.ones(case.number_of_points, dtype=torch.bool)
    inside[torch.as_tensor(case.mesh.boundary_points)] = False

    def errors(others: Mapping[str, np.ndarray], where: torch.Tensor) -> dict[str, float]:
        worst = {}
        for unknown, values in found.fields.items():
            mine = values.double().reshape(*case.initial[unknown].shape, len(times))
            true = torch.from_numpy(others[unknown]).double().reshape(mine.shape)
            each = [(mine[..., place][where], true[..., place][where]) for place in range(len(times))]
            if unknown in free:
                each = [tuple(without_level(one, volumes[where]) for one in pair) for pair in each]
            worst[unknown] = max(100 * float(relative_l2(one, other, volumes[where])) for one, other in each)
        return worst

    row = {
        "points": case.number_of_points,
        "errors": errors(reference, torch.ones_like(inside)),
        "bounds": {unknown: 100 * each.bound for unknown, each in found.expected.errors.items()},
        "grade": found.expected.grade,
        "kind": model.equation.kind(case, times[-1]),
        "converged": found.certificate.converged,
    }
    if name in BY_OPENFOAM and simple_foam_file(name).exists():
        row["against simpleFoam"] = errors(simple_foam_of(name, case), inside)
    return row


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for name, row in rows.items():
        cells = [name, f"{row['points']:,}"]
        for unknown in ("u", "p"):
            error, bound = row["errors"][unknown], row["bounds"][unknown]
            cells.append(f"{error:.2g} %{'' if error <= bound else ' ✗'} (below {min(bound, 999):.2g} %)")
        lines.append([*cells, row["grade"]])
    held = [
        f"{sum(row['errors'][name] <= row['bounds'][name] for row in rows.values())} of {len(rows)} bounds hold"
        for name in ("u", "p")
    ]
    wrong = sum(row["grade"] == "good" and row["errors"]["u"] > WRONG for row in rows.values())
    lines.append(["all", "", *held, f"{wrong} good, but u above {WRONG:.0f} %"])
    return markdown_table(("case", "points", "u", "p", "grade"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--level", default="standard")
    parser.add_argument(
        "--references", action="store_true", help="solve for what is missing of these, and nothing else"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = penn.load_pretrained("flow")
    assert isinstance(model, Predictor)
    model.set_level(given.level)
    folder = origin_of(model)
    assert folder is not None
    calibration = hashlib.sha256((Path(folder) / expected_error_file(given.level)).read_bytes()).hexdigest()[:12]
    records = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {"levels": {}}
    rows = records["levels"].setdefault(given.level, {})
    for name in given.names or CASES:
        if rows.get(name, {}).get("calibration") == calibration and not given.names and not given.references:
            continue
        case, reference = reference_of(name)
        if given.references:
            print(name, case.number_of_points, reference is not None, flush=True)
            if name in BY_OPENFOAM:
                simple_foam_of(name, case)
            continue
        if reference is None:
            print(f"{name}: no reference", flush=True)
            continue
        rows[name] = judged(name, case, model, reference) | {"calibration": calibration}
        print(name, json.dumps(rows[name]), flush=True)
        records["levels"][given.level] = {each: rows[each] for each in CASES if each in rows}
        OUTPUT.write_text(json.dumps(records, indent=1) + "\n")
    if given.references:
        return
    made = table({each: rows[each] for each in CASES if each in rows})
    print(made)
    if given.level == "standard":
        write_within(PAGE, made, "other cases")


if __name__ == "__main__":
    main()
