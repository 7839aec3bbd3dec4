"""Quantities as OpenFOAM's function objects write them: tables in the folder `postProcessing` of a case.

Of each patch with a force or moment `forces` and `forceCoeffs`, in the format of version 1912 and later, per metre of
depth; of all quantities one table, `quantities.dat`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pennpde.files import write_atomically
from pennpde.quantities.language import parse
from pennpde.quantities.quantity import Quantity

if TYPE_CHECKING:
    from pennpde.prediction import Outcome

_COEFFICIENTS = ("Cd", "Cs", "Cl", "CmRoll", "CmPitch", "CmYaw", "Cd(f)", "Cd(r)", "Cs(f)", "Cs(r)", "Cl(f)", "Cl(r)")
_PARTS = "(total_x total_y total_z)\t(pressure_x pressure_y pressure_z)\t(viscous_x viscous_y viscous_z)"


def write_tables(
    case: Path, outcome: Outcome, wanted: Sequence[Quantity], folders: Mapping[int, str], start: float
) -> list[str]:
    """Write the values at times that have a folder, and return the names of the files.

    Args:
        case: Folder of the OpenFOAM case.
        outcome: The prediction.
        wanted: The quantities.
        folders: By place of a time, the name of its folder.
        start: Of the case, which names the folder of the tables.
    """
    places = list(folders)
    found = [each.of(outcome) for each in wanted]
    head = "\t".join(f"{each.name} [{each.unit or '-'}]" for each in found)
    columns = np.stack([each.values[places] for each in found], axis=1)
    tables = {"quantities/{}/quantities.dat": (["# Quantities", f"# Time\t{head}"], _rows(columns))}
    of_forces = {each.patches[0]: each for each in wanted if each.kind.group == "force"}
    for patch, each in of_forces.items():
        suffix = "" if len(of_forces) == 1 else f"({patch})"
        tables["forces" + suffix + "/{}/force.dat"] = _forces(outcome, each, places)
        tables["forceCoeffs" + suffix + "/{}/coefficient.dat"] = _coefficients(outcome, each, places)
    written = []
    for name, (lines, rows) in tables.items():
        path = case / "postProcessing" / name.format(f"{start:.10g}")
        path.parent.mkdir(parents=True, exist_ok=True)
        times = (f"{folder:<14}\t{row}" for folder, row in zip(folders.values(), rows, strict=True))
        write_atomically(path, "\n".join([*lines, *times]) + "\n")
        written.append(str(path))
    return written


def _forces(outcome: Outcome, quantity: Quantity, places: Sequence[int]) -> tuple[list[str], list[str]]:
    flow = outcome.flow
    assert flow is not None
    facets, density = flow.facets(quantity.patches[0]), quantity.options.get("density", (1.0,))[0]
    parts = [density * flow.force(facets, part).sum(axis=1)[places] for part in ("", "pressure", "viscous")]
    rows = ["\t".join(_vector(part[time]) for part in parts) for time in range(len(places))]
    return [f"# Force, rhoInf {density:g}, per metre of depth", f"# Time\t{_PARTS}"], rows


def _coefficients(outcome: Outcome, quantity: Quantity, places: Sequence[int]) -> tuple[list[str], list[str]]:
    flow = outcome.flow
    assert flow is not None
    patch, options = quantity.patches[0], {name: each for name, each in quantity.options.items() if name != "density"}
    drag, lift, moment = (
        Quantity(parse(f"{name} coefficient '{patch}'").kind, (patch,), options).of(flow).values[places]
        for name in ("drag", "lift", "moment")
    )
    none, pitch = np.zeros_like(drag), -moment  # pitch is about -z, as the x axis is drag and y is lift
    ends = (drag / 2, drag / 2, none, none, lift / 2 + pitch, lift / 2 - pitch)
    (length, speed), (along, across) = quantity.reference(flow), quantity.directions(flow)
    about = {"dragDir": _vector(along), "liftDir": _vector(across), "pitchAxis": "(0 0 -1)"}
    about |= {"magUInf": f"{speed:.6e}", "lRef": f"{length:.6e}", "Aref": f"{length:.6e} (per metre of depth)"}
    lines = ["# Force coefficients", *(f"# {name:<12}: {each}" for name, each in about.items()), "#"]
    head = "\t".join(f"{name:<14}" for name in _COEFFICIENTS)
    columns = np.stack([drag, none, lift, none, pitch, none, *ends], axis=1)
    return [*lines, f"# Time        \t{head}"], _rows(columns)


def _rows(columns: np.ndarray) -> list[str]:
    return ["\t".join(f"{each:<14.6e}" for each in row) for row in columns]


def _vector(values: Iterable[float]) -> str:
    return f"({' '.join(f'{each:.6e}' for each in [*values, 0.0])})"
