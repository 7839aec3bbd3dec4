"""Finished simulations as a user has them, in SI units: bends, nozzles, diffusers, plumes. Needs OpenFOAM and pennlab.

    python examples/own_runs/make_runs.py bends --out runs/bends            # icoFoam, 54 runs of some seconds each
    python examples/own_runs/make_runs.py nozzles --out runs/nozzles        # icoFoam, 54 runs
    python examples/own_runs/make_runs.py diffusers --out runs/diffusers    # simpleFoam, steady
    python examples/own_runs/make_runs.py plumes --out runs/plumes          # scalarTransportFoam

    penn collect runs/bends/* --out data/bends --spacing 0.06L --test-share 0.15     # 41 to train, 5, 8 to test
    penn collect runs/nozzles/* --out data/nozzles --spacing 0.06L --test-share 0.15
    penn collect runs/diffusers/* --out data/diffusers --spacing 0.06L --time steady --test-share 0.25
    penn collect runs/plumes/* --out data/plumes --time 0:4:1 --test-share 0.25

A run that is there is not run again. All numbers of a run are drawn from the seed and its number alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from pennlab import running
from pennlab.running import Block, NewField
from pennpde import openfoam
from pennpde.openfoam import Uniform

WATER = 1e-6
"""Kinematic viscosity of water in m²/s."""
SCHEMES = {
    "ddtSchemes": {"default": "Euler"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {"default": "Gauss linearUpwind grad(U)", "div((nuEff*dev2(T(grad(U)))))": "Gauss linear"},
    "laplacianSchemes": {"default": "Gauss linear corrected"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "corrected"},
}
PRESSURE = {"solver": "GAMG", "smoother": "GaussSeidel", "tolerance": 1e-9, "relTol": 0.01}
OTHERS = {"solver": "smoothSolver", "smoother": "symGaussSeidel", "tolerance": 1e-9, "relTol": 0.01}
SOLVERS = {"p": PRESSURE, "pFinal": {**PRESSURE, "relTol": 0}, '"(U|T)"': OTHERS}
EMPTY = {"frontAndBack": {"type": "empty"}}


def bend(folder: Path, number: int, seed: int, cells: int) -> dict[str, float]:
    """Start-up of water in a bend: an inlet, a bend of 20 to 120 degrees, an outlet. Up to 4 widths over speed."""
    random = np.random.default_rng([seed, 1, number])
    width = 0.01 * random.uniform(0.6, 1.6)
    reynolds = math.exp(random.uniform(math.log(60), math.log(600)))
    angle, radius = math.radians(random.uniform(20, 120)), width * random.uniform(1.0, 2.2)
    before, after = width * random.uniform(1.0, 2.0), width * random.uniform(2.0, 3.5)
    speed = reynolds * WATER / width
    lower, upper = [], []
    along = [*np.linspace(0.0, before, _steps(before, width, cells), endpoint=False)]
    around = _steps(angle * radius, width, cells)
    for x in along:
        lower.append((x, 0.0))
        upper.append((x, width))
    # Around a centre above the upper wall: the flow turns to the left.
    centre = (before, width / 2 + radius)
    for turn in np.linspace(0.0, angle, around, endpoint=False):
        for side, wall in ((1.0, lower), (-1.0, upper)):
            away = radius + side * width / 2
            wall.append((centre[0] + away * math.sin(turn), centre[1] - away * math.cos(turn)))
    for x in np.linspace(0.0, after, _steps(after, width, cells) + 1):
        for side, wall in ((1.0, lower), (-1.0, upper)):
            away = radius + side * width / 2
            corner = centre[0] + away * math.sin(angle), centre[1] - away * math.cos(angle)
            wall.append((corner[0] + x * math.cos(angle), corner[1] + x * math.sin(angle)))
    end = 4 * width / speed
    # At the inner wall cells are shorter and the flow is faster.
    step = 0.3 * (width / cells) * (1 - 0.5 * width / radius) / speed
    steps = math.ceil(end / step)
    control = {"application": "icoFoam", "endTime": end, "deltaT": end / steps, "writeInterval": steps}
    _write_duct(folder, lower, upper, cells, speed, WATER, control, {"PISO": {"nCorrectors": 2}}, width)
    return {"width": width, "speed": speed, "reynolds": reynolds, "angle": math.degrees(angle), "radius": radius}


def diffuser(folder: Path, number: int, seed: int, cells: int) -> dict[str, float]:
    """Steady flow in a duct that widens or narrows smoothly."""
    random = np.random.default_rng([seed, 2, number])
    width = 0.01 * random.uniform(0.6, 1.6)
    reynolds = math.exp(random.uniform(math.log(20), math.log(150)))
    ratio, ramp = random.uniform(0.6, 1.8), width * random.uniform(1.0, 3.0)
    before, after = width * random.uniform(1.0, 2.0), width * random.uniform(3.0, 5.0)
    speed = reynolds * WATER / width
    lower, upper = _tapered(width, before, ramp, after, ratio, cells)
    control = {"application": "simpleFoam", "endTime": 1500, "deltaT": 1, "writeInterval": 1500}
    simple = {"consistent": True, "nNonOrthogonalCorrectors": 1, "residualControl": {"p": 1e-5, "U": 1e-6}}
    solution = {"SIMPLE": simple, "relaxationFactors": {"equations": {"U": 0.9}, "fields": {"p": 1.0}}}
    schemes = {
        "ddtSchemes": {"default": "steadyState"},
        "divSchemes": {**SCHEMES["divSchemes"], "div(phi,U)": "bounded Gauss linearUpwind grad(U)"},
    }
    _write_duct(folder, lower, upper, cells, speed, WATER, control, solution, width, schemes)
    return {"width": width, "speed": speed, "reynolds": reynolds, "ratio": ratio, "ramp": ramp}


def nozzle(folder: Path, number: int, seed: int, cells: int) -> dict[str, float]:
    """Start-up of water in a duct that narrows smoothly, up to 2 widths over speed."""
    random = np.random.default_rng([seed, 4, number])
    width = 0.01 * random.uniform(0.6, 1.6)
    reynolds = math.exp(random.uniform(math.log(100), math.log(1000)))
    ratio, ramp = random.uniform(0.35, 0.7), width * random.uniform(0.6, 2.0)
    before, after = width * random.uniform(0.6, 1.2), width * random.uniform(1.0, 2.0)
    speed = reynolds * WATER / width
    lower, upper = _tapered(width, before, ramp, after, ratio, cells)
    end, step = 2 * width / speed, 0.3 * ratio * (width / cells) / speed
    steps = math.ceil(end / step)
    control = {"application": "icoFoam", "endTime": end, "deltaT": end / steps, "writeInterval": steps}
    _write_duct(folder, lower, upper, cells, speed, WATER, control, {"PISO": {"nCorrectors": 2}}, width)
    return {"width": width, "speed": speed, "reynolds": reynolds, "ratio": ratio, "ramp": ramp}


def _tapered(
    width: float, before: float, ramp: float, after: float, ratio: float, cells: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Lower and upper wall of a duct whose width changes smoothly by a ratio."""
    x = np.linspace(0.0, before + ramp + after, _steps(before + ramp + after, width, cells) + 1)
    share = np.clip((x - before) / ramp, 0.0, 1.0)
    half = 0.5 * width * (1 + (ratio - 1) * share**2 * (3 - 2 * share))
    upper = [(float(place), float(height)) for place, height in zip(x, half, strict=True)]
    return [(place, -height) for place, height in upper], upper


def plume(folder: Path, number: int, seed: int, cells: int) -> dict[str, float]:
    """Heat that a uniform flow carries and diffusion spreads, from one side of a rectangle; at four times."""
    random = np.random.default_rng([seed, 3, number])
    length, height = random.uniform(0.8, 1.4), random.uniform(0.6, 1.0)
    velocity = np.array([random.uniform(0.1, 0.4), random.uniform(-0.05, 0.05), 0.0])
    diffusivity = math.exp(random.uniform(math.log(0.01), math.log(0.1)))
    hot = random.uniform(0.3, 1.0)
    along = round(length * cells)
    end = 4.0
    steps = max(40, math.ceil(end * velocity[0] * cells / 0.4))
    steps = 4 * math.ceil(steps / 4)
    patches = {
        "hot": ("patch", [((0.0, 0.0), (0.0, height))]),
        "outlet": ("patch", [((length, 0.0), (length, height))]),
        "sides": ("patch", [((0.0, 0.0), (length, 0.0)), ((0.0, height), (length, height))]),
    }
    block = Block(((0.0, 0.0), (length, 0.0), (length, height), (0.0, height)), (along, round(height * cells)))
    free = {name: {"type": "zeroGradient"} for name in ("outlet", "sides")}
    same = {name: {"type": "fixedValue", "value": Uniform(velocity)} for name in patches}
    running.write_case(
        folder,
        block_mesh=running.block_mesh_dictionary([block], patches, 0.1),
        control={
            "application": "scalarTransportFoam",
            "endTime": end,
            "deltaT": end / steps,
            "writeInterval": steps // 4,
        },
        schemes={**SCHEMES, "divSchemes": {"default": "Gauss linearUpwind grad(T)"}},
        solution={"solvers": SOLVERS, "SIMPLE": {"nNonOrthogonalCorrectors": 0}},
        constant={"transportProperties": {"DT": (openfoam.VISCOSITY, diffusivity)}},
        fields={
            "U": NewField(openfoam.VELOCITY, velocity, {**same, **EMPTY}),
            "T": NewField(
                openfoam.TEMPERATURE, 0.0, {"hot": {"type": "fixedValue", "value": Uniform(hot)}, **free, **EMPTY}
            ),
        },
    )
    return {"velocity": float(velocity[0]), "diffusivity": diffusivity, "hot": hot, "length": length}


FAMILIES: dict[str, tuple[Callable[..., dict[str, float]], str, int, int]] = {
    "bends": (bend, "icoFoam", 54, 24),
    "diffusers": (diffuser, "simpleFoam", 32, 24),
    "nozzles": (nozzle, "icoFoam", 54, 24),
    "plumes": (plume, "scalarTransportFoam", 32, 24),
}
"""By family: what writes a run, its solver, how many there are, cells across."""


def main(
    family: str, out: Path, number: int | None = None, cells: int | None = None, workers: int = 1, seed: int = 0
) -> dict[str, Any]:
    """Make the runs of a family that are not there yet, and say how long they took."""
    write, solver, all_runs, usual_cells = FAMILIES[family]
    installation = running.find_installation(("blockMesh", solver))

    def make(place: int) -> float:
        folder = out / f"{family[:-1]}_{place:02d}"
        if folder.exists():
            return 0.0
        started = time.monotonic()
        unfinished = out / f".{folder.name}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        numbers = write(unfinished, place, seed, cells or usual_cells)
        running.run(unfinished, "blockMesh", installation=installation)
        running.run(unfinished, solver, installation=installation)
        (unfinished / "numbers.json").write_text(json.dumps(numbers, indent=2) + "\n")
        unfinished.rename(folder)
        return time.monotonic() - started

    with ThreadPoolExecutor(workers) as pool:
        seconds = [each for each in pool.map(make, range(number or all_runs)) if each]
    record = {"family": family, "solver": solver, "made": len(seconds), "seconds": sum(seconds)}
    print(f"{out}: {record['made']} runs of {solver} in {record['seconds']:.0f} s of computing")
    return record


def _steps(length: float, width: float, cells: int) -> int:
    """Cells along a length: a little longer than wide."""
    return max(2, round(length / (1.2 * width / cells)))


def _write_duct(
    folder: Path,
    lower: list[tuple[float, float]],
    upper: list[tuple[float, float]],
    cells: int,
    speed: float,
    viscosity: float,
    control: dict[str, Any],
    solution: dict[str, Any],
    thickness: float,
    schemes: dict[str, Any] | None = None,
) -> None:
    """A duct between two walls, given by as many points each; one block of one cell between each pair of them."""
    blocks = [
        Block((lower[place], lower[place + 1], upper[place + 1], upper[place]), (1, cells))
        for place in range(len(lower) - 1)
    ]
    walls = [(wall[place], wall[place + 1]) for wall in (lower, upper) for place in range(len(wall) - 1)]
    patches = {
        "inlet": ("patch", [(lower[0], upper[0])]),
        "outlet": ("patch", [(lower[-1], upper[-1])]),
        "walls": ("wall", walls),
    }
    inflow = {"type": "fixedValue", "value": Uniform(np.array([speed, 0.0, 0.0]))}
    free = {"type": "zeroGradient"}
    running.write_case(
        folder,
        block_mesh=running.block_mesh_dictionary(blocks, patches, thickness),
        control=control,
        schemes={**SCHEMES, **(schemes or {})},
        solution={"solvers": SOLVERS, **solution},
        constant={
            "transportProperties": {"transportModel": "Newtonian", "nu": (openfoam.VISCOSITY, viscosity)},
            "turbulenceProperties": {"simulationType": "laminar"},
        },
        fields={
            "U": NewField(
                openfoam.VELOCITY,
                np.zeros(3),
                {"inlet": inflow, "outlet": free, "walls": {"type": "noSlip"}, **EMPTY},
            ),
            "p": NewField(
                openfoam.PRESSURE,
                0.0,
                {"inlet": free, "outlet": {"type": "fixedValue", "value": Uniform(0.0)}, "walls": free, **EMPTY},
            ),
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--number", type=int, help="how many runs; all by default")
    parser.add_argument("--cells", type=int, help="across the duct")
    parser.add_argument("--workers", type=int, default=1, help="runs at the same time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.family, given.out, given.number, given.cells, given.workers, given.seed)
