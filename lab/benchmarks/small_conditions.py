"""Conditions that few faces of a coarse mesh resolve, or that contradict each other: does `predict` hold, or say no?

Squares of 20 x 20 cells whose sides are cut into patches of one, two or three faces: jets, outlets, lids, gaps, lists
of face values with steps and zigzags, closed outlets, fluxes that do not match. Each is predicted by the shipped
network from the OpenFOAM case as it is, and computed by icoFoam on cells a quarter as large, with the same conditions
on the same stretches of the boundary. Errors are relative L2 errors over the points inside, in per cent.

    right             below its bound
    refined           the same, after cells were split because the points of the mesh cannot hold a condition
    above its bound   by less than half of it, or by less than 5 % (u) or 10 % (p) of the field
    warned            wrong by more, graded poor or with a warning
    refused           by an error or a grade; whether icoFoam stops as well is in the next column
    wrong in silence  everything else

    python lab/benchmarks/small_conditions.py [NAME ...]

Prints and writes `lab/benchmarks/results/small_conditions.json`; with names only these cases are measured again.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pennpde as penn
from pennlab import running
from pennpde import openfoam
from pennpde.models.inlet import BoundaryProfile
from pennpde.openfoam.cases import read_problem

OUTPUT = Path(__file__).parent / "results" / "small_conditions.json"
CELLS, FINER = 20, 4
SIDES = "left", "right", "bottom", "top"
LARGE = {"u": 5.0, "p": 10.0}
ABOVE = 1.5


@dataclass(frozen=True)
class Part:
    """Neighbouring faces of a side with one condition.

    Attributes:
        faces: how many.
        velocity: prescribed, of all faces or of each; None: zero gradient.
        pressure: prescribed; None: zero gradient.
        kind: OpenFOAM's condition, where it is another one: slip or inletOutlet.
    """

    faces: int
    velocity: tuple[float, float] | Sequence[tuple[float, float]] | None = (0.0, 0.0)
    pressure: float | None = None
    kind: str = ""


@dataclass(frozen=True)
class Square:
    """A case; sides that are not named are resting walls.

    Attributes:
        sides: their parts in the direction of x or y.
        fastest: a bound of the speed, for the time step of icoFoam.
        time: at which both are compared.
        level: of the pressure at the start.
    """

    sides: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    viscosity: float = 0.01
    fastest: float = 1.5
    time: float = 1.0
    level: float = 0.0

    def parts(self, side: str) -> Sequence[Part]:
        return self.sides.get(side, [Part(CELLS)])


def opening(faces: int, pressure: float = 0.0, kind: str = "") -> Part:
    return Part(faces, None, pressure, kind)


def inflow(faces: int, u: float = 1.0, v: float = 0.0) -> Part:
    return Part(faces, (u, v))


def each(values: Sequence[float], across: bool = False) -> Part:
    """A list of face values, of the velocity along x or, across, along y."""
    return Part(len(values), [(0.0, value) if across else (value, 0.0) for value in values])


def within(part: Part, at: int | None = None) -> list[Part]:
    """A part of a side between resting walls, by default in its middle."""
    at = (CELLS - part.faces) // 2 if at is None else at
    parts = [Part(at), part, Part(CELLS - at - part.faces)]
    return [each for each in parts if each.faces]


OUT = [opening(CELLS)]
FULL = [inflow(CELLS)]
ZIGZAG = [float(place % 2) for place in range(CELLS)]
STEP = [1.0] * 10 + [0.0] * 10
CASES = {
    "even channel": Square({"left": FULL, "right": OUT}),
    **{f"jet of {n}": Square({"left": within(inflow(n)), "right": OUT}) for n in (1, 2, 3)},
    "jet of 1 in a corner": Square({"left": within(inflow(1), 0), "right": OUT}),
    "jet of 1 and outlet of 1": Square({"left": within(inflow(1)), "right": within(opening(1))}),
    "jet of 1 and outlet of 1 aside": Square({"left": within(inflow(1), 3), "top": within(opening(1), 15)}),
    "two jets of 1": Square({"left": [*within(inflow(1), 4)[:2], Part(10), inflow(1), Part(4)], "right": OUT}),
    "jet of 1 across a channel": Square({"left": FULL, "right": OUT, "bottom": within(inflow(1, 0.0, 2.0))}, fastest=3),
    "slanted jet of 1": Square({"left": within(inflow(1, 1.0, 1.0)), "right": OUT}),
    **{
        f"outlet of {n}": Square({"left": [inflow(CELLS, 0.1)], "right": within(opening(n))}, fastest=3.0 / n, time=2.0)
        for n in (1, 2, 3)
    },
    "outlet of 1 in a corner": Square(
        {"left": [inflow(CELLS, 0.1)], "right": within(opening(1), 0)}, fastest=3.0, time=2.0
    ),
    "three outlets of 1": Square(
        {
            "left": [inflow(CELLS, 0.1)],
            "right": [Part(3), opening(1), Part(5), opening(1), Part(6), opening(1), Part(3)],
        },
        time=2.0,
    ),
    "inletOutlet of 2": Square(
        {"left": [inflow(CELLS, 0.1)], "right": within(opening(2, kind="inletOutlet"))}, time=2.0
    ),
    **{f"lid of {n}": Square({"top": within(inflow(n))}) for n in (1, 2, 3)},
    "whole lid": Square({"top": FULL}),
    "lid of 1 in a channel": Square(
        {"left": FULL, "right": OUT, "top": within(inflow(1, -2.0))}, fastest=2.5
    ),
    "lids of 1 to and fro": Square({"top": [each([1.0, -1.0] * 10)]}),
    "slip of 1": Square({"left": FULL, "right": OUT, "top": within(Part(1, None, None, "slip"))}),
    "list with a step": Square({"left": [each(STEP)], "right": OUT}),
    "list with a step in a corner": Square({"left": [each([1.0] + [0.0] * 19)], "right": OUT}),
    "list in zigzag": Square({"left": [each(ZIGZAG)], "right": OUT}),
    "list with a spike": Square({"left": [each([0.2] * 9 + [1.0] + [0.2] * 10)], "right": OUT}),
    "list with a gap": Square({"left": [each([1.0] * 10 + [0.0] + [1.0] * 9)], "right": OUT}),
    "list with a face the other way": Square({"left": [each([1.0] * 10 + [-1.0] + [1.0] * 9)], "right": OUT}),
    "list in zigzag along the inlet": Square(
        {"left": [Part(CELLS, [(1.0, 0.5 * (-1) ** place) for place in range(CELLS)])], "right": OUT}
    ),
    "parabola as a list": Square(
        {"left": [each([6 * y * (1 - y) for y in (np.arange(CELLS) + 0.5) / CELLS])], "right": OUT}, fastest=2.0
    ),
    "wall of 1 in an inlet": Square({"left": [inflow(10), Part(1), inflow(9)], "right": OUT}),
    "jets of 1 in and out of a wall": Square(
        {"left": FULL, "right": OUT, "bottom": [each([0.5 * (-1) ** place for place in range(CELLS)], across=True)]}
    ),
    "suction of 1": Square(
        {"left": FULL, "right": OUT, "top": within(inflow(1, 0.0, 4.0))}, fastest=5.0
    ),
    "source and sink of 1": Square({"left": within(inflow(1)), "right": within(inflow(1))}),
    "pressures on faces of 1": Square(
        {"left": within(opening(1, 1.0)), "right": within(opening(1, 0.0))}, fastest=1.5
    ),
    "outlet above zero": Square({"left": FULL, "right": [opening(CELLS, 1000.0)]}),
    "wall to the left at the outlet": Square({"left": FULL, "right": OUT, "top": [inflow(CELLS, -1.0)]}),
    "wall to the right at the outlet": Square({"left": FULL, "right": OUT, "top": FULL}),
    "closed outlet": Square({"left": FULL}),
    "outlet too slow": Square({"left": FULL, "right": [inflow(CELLS, 0.5)]}),
    "outlet too slow by 2 %": Square({"left": FULL, "right": [inflow(CELLS, 0.98)]}),
    "outlet that fits": Square({"left": FULL, "right": FULL}),
    "lid that sucks": Square({"top": within(inflow(1, 0.0, 1.0))}),
    "nothing moves": Square({"right": OUT}),
}  # fmt: skip


# OpenFOAM's cases


def write_square(folder: Path, square: Square, finer: int, *, write_interval: int, step: float) -> None:
    """A case whose cells are so many times finer along both axes, with the same conditions."""
    number = CELLS * finer
    patches = _write_mesh(folder / "constant" / "polyMesh", square, number, finer)
    velocity, pressure = {"frontAndBack": "type empty;"}, {"frontAndBack": "type empty;"}
    for name, part in patches.items():
        velocity[name] = _velocity(part, finer)
        pressure[name] = (
            "type zeroGradient;" if part.pressure is None else f"type fixedValue; value uniform {part.pressure};"
        )
        if part.kind == "slip":
            pressure[name] = "type slip;"
    dictionary = openfoam.format_dictionary
    files = {
        "system/controlDict": {
            "application": "icoFoam", "startFrom": "startTime", "startTime": "0", "stopAt": "endTime",
            "endTime": f"{square.time:g}", "deltaT": f"{step:.12g}", "writeControl": "timeStep",
            "writeInterval": str(write_interval), "writePrecision": "12", "timePrecision": "8",
        },
        "system/fvSchemes": {
            "ddtSchemes": "{ default backward; }",
            "gradSchemes": "{ default Gauss linear; }",
            "divSchemes": "{ default none; div(phi,U) Gauss linear; }",
            "laplacianSchemes": "{ default Gauss linear orthogonal; }",
            "interpolationSchemes": "{ default linear; }",
            "snGradSchemes": "{ default orthogonal; }",
        },
        "system/fvSolution": {
            "solvers": "{ p { solver PCG; preconditioner DIC; tolerance 1e-8; relTol 0.01; } pFinal { $p; relTol 0; } "
            "U { solver PBiCGStab; preconditioner DILU; tolerance 1e-9; relTol 0; } }",
            "PISO": "{ nCorrectors 3; pRefCell 0; pRefValue 0; }",
        },
        "constant/transportProperties": {"nu": f"{square.viscosity:g}"},
    }  # fmt: skip
    for path, entries in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(dictionary(Path(path).name, entries))
    (folder / "0").mkdir()
    for name, kind, dimensions, start, conditions in (
        ("U", "volVectorField", "[0 1 -1 0 0 0 0]", "(0 0 0)", velocity),
        ("p", "volScalarField", "[0 2 -2 0 0 0 0]", f"{square.level}", pressure),
    ):
        rows = " ".join(f"{patch} {{ {text} }}" for patch, text in conditions.items())
        head = f"FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}"
        body = f"dimensions {dimensions}; internalField uniform {start}; boundaryField {{ {rows} }}"
        (folder / "0" / name).write_text(f"{head}\n{body}\n")


def _velocity(part: Part, finer: int) -> str:
    if part.kind == "slip":
        return "type slip;"
    if part.kind == "inletOutlet":
        return "type inletOutlet; inletValue uniform (0 0 0); value uniform (0 0 0);"
    if part.velocity is None:
        return "type zeroGradient;"
    given = np.asarray(part.velocity, float)
    if given.ndim == 1:
        return f"type fixedValue; value uniform ({given[0]} {given[1]} 0);"
    rows = " ".join(f"({u:.12g} {v:.12g} 0)" for u, v in np.repeat(given, finer, axis=0))
    return f"type fixedValue; value nonuniform List<vector> {finer * len(given)} ({rows});"


def _write_mesh(folder: Path, square: Square, number: int, finer: int) -> dict[str, Part]:
    """Squares in rows, one cell thick; each part of a side is a patch of its own."""
    points = [
        (i / number, j / number, k / number) for k in (0, 1) for j in range(number + 1) for i in range(number + 1)
    ]

    def point(i: int, j: int, k: int) -> int:
        return k * (number + 1) ** 2 + j * (number + 1) + i

    def across_x(i: int, j: int) -> list[int]:
        return [point(i, j, 0), point(i, j + 1, 0), point(i, j + 1, 1), point(i, j, 1)]

    def across_y(i: int, j: int) -> list[int]:
        return [point(i, j, 0), point(i, j, 1), point(i + 1, j, 1), point(i + 1, j, 0)]

    faces, owner, neighbour = [], [], []
    for j in range(number):
        for i in range(number):
            for inside, other, face in (
                (i + 1 < number, j * number + i + 1, across_x(i + 1, j)),
                (j + 1 < number, (j + 1) * number + i, across_y(i, j + 1)),
            ):
                if inside:
                    faces.append(face)
                    owner.append(j * number + i)
                    neighbour.append(other)
    rows, patches = [], {}
    last = number - 1
    for side in SIDES:
        place = 0
        for order, part in enumerate(square.parts(side)):
            name = f"{side}{order}"
            patches[name] = part
            rows.append(f"{name} {{ type patch; nFaces {part.faces * finer}; startFace {len(faces)}; }}")
            for at in range(place, place + part.faces * finer):
                cell = {"left": (0, at), "right": (last, at), "bottom": (at, 0), "top": (at, last)}[side]
                make = across_x if side in ("left", "right") else across_y
                outer = {"left": (0, at), "right": (number, at), "bottom": (at, 0), "top": (at, number)}[side]
                face = make(*outer)
                faces.append(face[::-1] if side in ("left", "bottom") else face)
                owner.append(cell[1] * number + cell[0])
            place += part.faces * finer
        assert place == number, (side, place)
    rows.append(f"frontAndBack {{ type empty; nFaces {2 * number**2}; startFace {len(faces)}; }}")
    for k in (0, 1):
        for j in range(number):
            for i in range(number):
                face = [point(i, j, k), point(i, j + 1, k), point(i + 1, j + 1, k), point(i + 1, j, k)]
                faces.append(face if k == 0 else face[::-1])
                owner.append(j * number + i)
    lists = {
        "points": ("vectorField", [f"({x:.17g} {y:.17g} {z:.17g})" for x, y, z in points]),
        "faces": ("faceList", [f"4({' '.join(map(str, face))})" for face in faces]),
        "owner": ("labelList", list(map(str, owner))),
        "neighbour": ("labelList", list(map(str, neighbour))),
        "boundary": ("polyBoundaryMesh", rows),
    }
    folder.mkdir(parents=True)
    for name, (kind, content) in lists.items():
        head = f"FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}"
        (folder / name).write_text("\n".join([head, str(len(content)), "(", *content, ")"]) + "\n")
    return patches


# Both programs, and what to make of them


def by_openfoam(square: Square, installation: running.Installation) -> dict[str, np.ndarray]:
    """The fields at the points inside of the coarse mesh, row by row."""
    number = CELLS * FINER
    steps = math.ceil(square.time * square.fastest * number / 0.4)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_square(folder, square, FINER, write_interval=steps, step=square.time / steps)
        running.run(folder, "icoFoam", installation=installation)
        last = max(openfoam.time_folders(folder), key=lambda each: float(each.name))
        found = {}
        for ours, theirs in (("u", "U"), ("p", "p")):
            cells = openfoam.read_field(last / theirs, folder).values(number**2).reshape(number, number, -1)
            low = cells[FINER - 1 : -1 : FINER] + cells[FINER::FINER]
            found[ours] = (low[:, FINER - 1 : -1 : FINER] + low[:, FINER::FINER])[..., : 2 if ours == "u" else 1] / 4
        return found


def by_network(square: Square, model: penn.Predictor) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_square(folder, square, 1, write_interval=1, step=0.01)
        try:
            case = read_problem(folder, model.equation)
            outcome = penn.predict(model, case, times=[square.time])
        except (ValueError, ArithmeticError) as error:
            return {"refused": str(error)}
        points = case.mesh.points.numpy()
        places = np.rint(points * CELLS).astype(int)
        fields = {}
        for ours, values in outcome.fields.items():
            on_grid = np.zeros((CELLS + 1, CELLS + 1, 2 if ours == "u" else 1))
            on_grid[places[:, 1], places[:, 0]] = values.double().numpy().reshape(len(points), -1)
            fields[ours] = on_grid[1:-1, 1:-1]
        warnings = [each for each in outcome.certificate.warnings if each not in outcome.certificate.outside]
        return {
            "fields": fields,
            "closed": int(case.dirichlet["p"].mask.sum()) <= 1,
            "lost": bool(BoundaryProfile.of(case).lost.any()),
            "grade": outcome.expected.grade,
            "bounds": {each: 100 * found.bound for each, found in outcome.expected.errors.items()},
            "warnings": warnings,
        }


def compared(square: Square, installation: running.Installation, model: penn.Predictor) -> dict[str, Any]:
    found = by_network(square, model)
    try:
        reference = by_openfoam(square, installation)
    except running.OpenFOAMError as error:
        reference, stopped = None, "continuity" if "ontinuity" in error.log_tail else "error"
    else:
        stopped = ""
    row: dict[str, Any] = {"icofoam_stops": stopped}
    if "refused" in found:
        return {"verdict": "refused", **row, "because": found["refused"]}
    row |= {"grade": found["grade"], "bounds": {name: round(each, 2) for name, each in found["bounds"].items()}}
    row["warnings"] = found["warnings"]
    if found["grade"] == "refused":
        return {"verdict": "refused", **row}
    warned = found["grade"] == "poor" or bool(found["warnings"])
    if reference is None:
        return {"verdict": "warned" if warned else "wrong in silence", **row}
    errors = {}
    for name, values in found["fields"].items():
        one, other = values, reference[name]
        if name == "p" and found["closed"]:
            one, other = one - one.mean(), other - other.mean()
        size = math.sqrt(float((other**2).sum()))
        errors[name] = 100 * math.sqrt(float(((one - other) ** 2).sum())) / (size or 1.0)
    row["errors"] = {name: round(each, 2) for name, each in errors.items()}
    above = {name: each / found["bounds"][name] for name, each in errors.items()}
    if max(above.values()) <= 1.0:
        verdict = "refined" if found["lost"] else "right"
    elif all(above[name] <= ABOVE or errors[name] <= LARGE[name] for name in above):
        verdict = "above its bound"
    else:
        verdict = "warned" if warned else "wrong in silence"
    return {"verdict": verdict, **row}


def main() -> None:
    torch.set_num_threads(1)
    installation = running.find_installation(("icoFoam",))
    model = penn.load_pretrained("flow")
    assert isinstance(model, penn.Predictor)
    rows = {row["case"]: row for row in json.loads(OUTPUT.read_text())["rows"]} if OUTPUT.exists() else {}
    for name in sys.argv[1:] or list(CASES):
        rows[name] = {"case": name, **compared(CASES[name], installation, model)}
        print(json.dumps(rows[name]), flush=True)
        ordered = [rows[each] for each in CASES if each in rows]
        verdicts = [row["verdict"] for row in ordered]
        counted = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
        about = {"cells": CELLS, "finer": FINER, "penn": penn.__version__, "openfoam": installation.version}
        OUTPUT.write_text(json.dumps({**about, "verdicts": counted, "rows": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
