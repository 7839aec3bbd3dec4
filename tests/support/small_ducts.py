"""Six small flows through ducts in any units, as cases and as a dataset."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pennpde.case import Case
from pennpde.case.units import Scale, Units
from pennpde.data import storage
from problems import rectangle

NAMES = [f"duct_{number}" for number in range(6)]
SPLITS = {"train": NAMES[:4], "validation": NAMES[4:5], "test": NAMES[5:]}


def duct(number: int, cells: tuple[int, int] = (8, 4)) -> Case:
    """A flow into a duct of length 2 and width 1: not a solution, but close enough to train towards."""
    mesh = rectangle(cells, (2.0, 1.0))
    x, y = mesh.points.T
    entry = torch.minimum(x, torch.ones_like(x))
    along = 6 * y * (1 - y) * (1 + 0.05 * number * torch.sin(np.pi * x / 2)) * entry + 1 - entry
    velocity = torch.stack([along, 0.1 * number * x * y * (1 - y)], dim=1)
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "side": 0.0}},
        parameters={"viscosity": 0.01 * (1 + 0.2 * number)},
        name=NAMES[number],
    )
    targets = {"u": velocity, "p": (2 - x) * (0.1 + 0.02 * number)}
    return replace(case, targets={name: case.dirichlet[name].apply(values) for name, values in targets.items()})


def flow_in_units(case: Case, length: float = 1.0, speed: float = 1.0, pressure: float = 0.0) -> Case:
    """The flow as somebody writes it down whose inlet has this width and speed, and whose outlet this pressure."""
    scales = {
        "u": Scale(1 / speed),
        "p": Scale(1 / speed**2, -pressure / speed**2),
        "viscosity": Scale(1 / (length * speed)),
        "wall_distance": Scale(1 / length),
    }
    return Units.of_speed(1 / length, 1 / speed, scales).dimensionless(case)


def store_ducts(folder: Path, length: float = 1.0, speed: float = 1.0, kind: str = "flow", **splits: list[str]) -> Path:
    """A dataset of the six, at four times the time that the flow takes for the width of its inlet."""
    cases = [flow_in_units(duct(number), length, speed) for number in range(6)]
    storage.write(folder, cases, splits or SPLITS, kind, times=[4 * length / speed])
    return folder
