"""A folder in which all is well, to be spoilt: mesh, case file, OpenFOAM case, networks, dataset, experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commands import store
from foam_cases import write_brick, write_conditions
from pennpde.data import storage
from pennpde.mesh import Mesh
from problems import heated_plate, rectangle

CASE = """
[patches]
inlet = "x == 0"
outlet = "x == 3"
wall = "rest"
[dirichlet.u]
inlet = [1.0, 0.0]
wall = 0.0
[dirichlet.p]
outlet = 0.0
[parameters]
viscosity = 1e-3
"""
EXPERIMENT = """
[common]
dataset = "advection-diffusion"
network = "advection-diffusion"
arguments = { width = 4, iterations = 2, hidden = 8 }
training = { steps = 2 }
[rows.penn]
title = "PENN"
"""


def make_sound(folder: Path) -> Path:
    """Fill the folder."""
    mesh = rectangle((6, 4), (3.0, 1.0))
    Mesh.from_arrays(mesh.points, mesh.connectivity.reshape(-1, 4)).save(folder / "duct.vtu")
    (folder / "duct.toml").write_text(CASE)
    (folder / "rows.toml").write_text(EXPERIMENT)
    store(folder / "own")
    store(folder / "heat", "advection-diffusion")
    store(folder / "gradient", "gradient")
    case = write_brick(folder / "channel", (4, 3, 1), types={"front": "empty", "back": "empty"})
    inlet, outlet = {"left": "type fixedValue; value uniform (1 0 0);"}, {"right": "type fixedValue; value uniform 0;"}
    write_conditions(case, "U", "uniform (0 0 0)", {'".*"': "type noSlip;", "right": "type zeroGradient;"} | inlet)
    write_conditions(case, "p", "uniform 0", {'".*"': "type zeroGradient;"} | outlet)
    plates = [replace(heated_plate(cells=(3, 3), targets=True, inlet=value), name=f"t{value}") for value in (0.2, 0.4)]
    splits = {"train": ["t0.2"], "validation": ["t0.4"], "test": ["t0.4"]}
    storage.write(folder / "data", plates, splits, "advection-diffusion")
    return folder
