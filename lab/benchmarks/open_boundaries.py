"""Pressure, total pressure, flow rates and free streams at inlets: `penn predict` against pimpleFoam.

A channel of 3 x 1 and a step of height 0.5, at Reynolds numbers of about 10 to 200. Both programs read the same
conditions; pimpleFoam runs on cells that are twice as fine along both axes. Errors are relative L2 errors over the
points inside, in per cent, one and four reference times after a start from rest, and in the steady state.

    python lab/benchmarks/open_boundaries.py [NAME ...]

Prints and writes `lab/benchmarks/results/open_boundaries.json`.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree

import pennpde as penn
from pennlab import running
from pennpde import openfoam
from pennpde.openfoam.cases import read_problem
from pennpde.openfoam.fields import PointValues
from pennpde.openfoam.poly_mesh import Body, plane_of

OUTPUT = Path(__file__).parent / "results" / "open_boundaries.json"
CELLS, FINER = 16, 2
"""Cells per unit of length of the user's mesh, and of the reference in each of them."""
TIMES = (1.0, 4.0)
STEADY_AFTER = 30.0
FREE = "type zeroGradient;"
REST = "type noSlip;"
OUTLET = ("type zeroGradient;", "type fixedValue; value uniform 0;")
WALL = (REST, "type zeroGradient;")


@dataclass(frozen=True)
class Setting:
    """Conditions of U and p at inlet, outlet and walls."""

    inlet: tuple[str, str]
    outlet: tuple[str, str] = OUTLET
    wall: tuple[str, str] = WALL
    viscosity: float = 0.02
    step: bool = False
    start: str = "(0 0 0)"


def _pressure(value: float, kind: str = "pressureInletVelocity") -> tuple[str, str]:
    return f"type {kind}; value uniform (0 0 0);", f"type fixedValue; value uniform {value};"


def _total(value: float, kind: str = "pressureInletOutletVelocity") -> tuple[str, str]:
    return f"type {kind}; value uniform (0 0 0);", f"type totalPressure; p0 uniform {value}; value uniform {value};"


_RATE = "type flowRateInletVelocity; volumetricFlowRate {}; value uniform (0 0 0);"
_STREAM = "type freestreamVelocity; freestreamValue uniform (1 0 0); value uniform (1 0 0);"
_FAR = (_STREAM, "type freestreamPressure; freestreamValue uniform 0; value uniform 0;")
CASES = {
    "pressure, channel": Setting(_pressure(0.72)),
    "pressure, zeroGradient": Setting(_pressure(0.72, "zeroGradient")),
    "pressure, step": Setting(_pressure(0.4), step=True, viscosity=0.05),
    "total pressure, channel": Setting(_total(1.0)),
    "total pressure, channel, Re 200": Setting(_total(0.6), viscosity=0.005),
    "total pressure, normal": Setting(_total(1.0, "pressureInletVelocity")),
    "total pressure, step": Setting(_total(0.6), step=True, viscosity=0.01),
    "total pressure, slip walls": Setting(_total(0.5), wall=("type slip;", "type slip;")),
    "flow rate, channel": Setting((_RATE.format(0.1), "type zeroGradient;")),
    "flow rate, step": Setting((_RATE.format(0.05), "type zeroGradient;"), step=True, viscosity=0.01),
    "flow rate as a ramp": Setting((_RATE.format("table ((0 0) (1 0.1))"), "type zeroGradient;")),
    "free stream over a step": Setting(_FAR, outlet=_FAR, step=True, start="(1 0 0)"),
}


def write_case(folder: Path, setting: Setting, cells: int, time: float, every: float, delta: float) -> None:
    """Three blocks (two for a step: the lower left one is missing), one cell of 0.1 thick."""
    corners = [(x, y, z) for z in (0, 0.1) for y in (0, 0.5, 1) for x in (0, 1, 3)]
    blocks, walls, inlet = [], [], []
    for j in (0, 1):
        for i in (0, 1):
            if setting.step and (i, j) == (0, 0):
                continue
            low = [3 * j + i, 3 * j + i + 1, 3 * j + i + 4, 3 * j + i + 3]
            size = f"({cells * (1 + i)} {cells // 2} 1)"
            blocks.append(
                f"hex ({' '.join(map(str, [*low, *(each + 9 for each in low)]))}) {size} simpleGrading (1 1 1)"
            )

    def face(one: int, other: int) -> str:
        return f"({one} {other} {other + 9} {one + 9})"

    inlet = [face(3, 6)] if setting.step else [face(0, 3), face(3, 6)]
    walls = [face(6, 7), face(7, 8), face(1, 2), *([face(3, 4), face(1, 4)] if setting.step else [face(0, 1)])]
    patches = {"inlet": inlet, "outlet": [face(2, 5), face(5, 8)], "wall": walls}
    boundary = " ".join(f"{name} {{ type patch; faces ({' '.join(each)}); }}" for name, each in patches.items())
    dictionary = openfoam.format_dictionary
    files = {
        "system/blockMeshDict": {
            "vertices": "(" + " ".join(f"({x} {y} {z})" for x, y, z in corners) + ")",
            "blocks": f"({' '.join(blocks)})", "edges": "()", "boundary": f"({boundary})",
            "defaultPatch": "{ name frontAndBack; type empty; }",
        },
        "system/controlDict": {
            "application": "pimpleFoam", "startFrom": "startTime", "startTime": "0", "stopAt": "endTime",
            "endTime": f"{time:g}", "deltaT": f"{delta:.12g}", "writeControl": "adjustableRunTime",
            "writeInterval": f"{every:g}", "writePrecision": "12", "timePrecision": "8", "adjustTimeStep": "yes",
            "maxCo": "0.5", "maxDeltaT": "0.02",
        },
        "system/fvSchemes": {
            "ddtSchemes": "{ default backward; }", "gradSchemes": "{ default Gauss linear; }",
            "divSchemes": "{ default none; div(phi,U) Gauss linear; div((nuEff*dev2(T(grad(U))))) Gauss linear; }",
            "laplacianSchemes": "{ default Gauss linear orthogonal; }",
            "interpolationSchemes": "{ default linear; }", "snGradSchemes": "{ default orthogonal; }",
        },
        "system/fvSolution": {
            "solvers": '{ "p.*" { solver PCG; preconditioner DIC; tolerance 1e-7; relTol 0; } '
            '"U.*" { solver PBiCGStab; preconditioner DILU; tolerance 1e-8; relTol 0; } }',
            "PIMPLE": "{ nOuterCorrectors 2; nCorrectors 2; pRefCell 0; pRefValue 0; }",
        },
        "constant/transportProperties": {"transportModel": "Newtonian", "nu": f"{setting.viscosity:g}"},
        "constant/turbulenceProperties": {"simulationType": "laminar"},
    }  # fmt: skip
    for path, entries in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(dictionary(Path(path).name, entries))
    (folder / "0").mkdir()
    for place, (name, kind, dimensions, start) in enumerate((
        ("U", "volVectorField", "[0 1 -1 0 0 0 0]", setting.start),
        ("p", "volScalarField", "[0 2 -2 0 0 0 0]", "0"),
    )):  # fmt: skip
        given = {
            "inlet": setting.inlet,
            "outlet": setting.outlet,
            "wall": setting.wall,
            "frontAndBack": 2 * ("type empty;",),
        }
        rows = " ".join(f"{patch} {{ {each[place]} }}" for patch, each in given.items())
        head = f"FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}"
        body = f"dimensions {dimensions}; internalField uniform {start}; boundaryField {{ {rows} }}"
        (folder / "0" / name).write_text(f"{head}\n{body}\n")


def compared(setting: Setting, installation: running.Installation, model: penn.Predictor) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        mine, theirs = Path(name) / "mine", Path(name) / "theirs"
        for folder, cells in ((mine, CELLS), (theirs, CELLS * FINER)):
            write_case(folder, setting, cells, STEADY_AFTER, 1.0, 0.002)
            running.run(folder, "blockMesh", installation=installation)
        try:
            case = read_problem(mine, model.equation)
            outcome = penn.predict(model, case, times=TIMES, steady=True)
        except (ValueError, ArithmeticError) as error:
            try:
                running.run(theirs, "pimpleFoam", installation=installation)
            except running.OpenFOAMError as other:
                return {"refused": str(error), "pimplefoam_stops": str(other)[:200]}
            return {"refused": str(error)}
        running.run(theirs, "pimpleFoam", installation=installation)
        body = Body.read(theirs)
        fine = plane_of(body, theirs)
        values = PointValues.of(body, fine)
        inside = np.setdiff1d(np.arange(case.number_of_points), case.mesh.boundary_points)
        same = np.asarray(KDTree(fine.points.numpy()).query(case.mesh.points.numpy()[inside])[1])
        row: dict[str, Any] = {"grade": outcome.expected.grade, "remarks": [each.text for each in case.remarks]}
        for place, time in enumerate((*TIMES, STEADY_AFTER)):
            for ours, field in (("u", "U"), ("p", "p")):
                reference = values.read(field, time)[same]
                found = outcome.fields[ours][..., place].double().numpy()[inside]
                error = math.sqrt(((found - reference) ** 2).sum() / (reference**2).sum())
                row.setdefault(ours, []).append(round(100 * error, 2))
        row["bounds"] = {
            ours: [round(100 * each.errors[ours].bound, 2) for each in outcome.expected_by_time] for ours in ("u", "p")
        }
        row["speeds"] = [
            round(float(outcome.fields["u"][inside, 0, -1].mean()), 4),
            round(float(values.read("U", STEADY_AFTER)[same][:, 0].mean()), 4),
        ]
        return row


def main() -> None:
    torch.set_num_threads(1)
    installation = running.find_installation(("pimpleFoam", "blockMesh"))
    model = penn.load_pretrained("flow")
    assert isinstance(model, penn.Predictor)
    chosen = sys.argv[1:] or list(CASES)
    rows = []
    for name in chosen:
        rows.append({"case": name, **compared(CASES[name], installation, model)})
        print(json.dumps(rows[-1]), flush=True)
    if len(chosen) == len(CASES):
        about = {"cells": CELLS, "finer": FINER, "penn": penn.__version__, "openfoam": installation.version}
        OUTPUT.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
