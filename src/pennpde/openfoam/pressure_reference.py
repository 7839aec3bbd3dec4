"""The level of the pressure in a case that prescribes none: OpenFOAM's pRefCell, pRefPoint and pRefValue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pennpde.case import Case, Dirichlet
from pennpde.openfoam.dictionaries import FoamFormatError, number_of, read_dictionary, shown

_ALGORITHMS = ("PISO", "PIMPLE", "SIMPLE")


def with_pressure_reference(case: Case, folder: Path | str, pressure: str) -> Case:
    """The case with its pressure prescribed at one point, where it is prescribed nowhere, as below the lid of a cavity.

    The point is that next to the reference that `system/fvSolution` names, where OpenFOAM fixes the level as well.

    Args:
        case: As `read_case` gives it; one that prescribes a pressure is returned as it is.
        folder: It was read from.
        pressure: Our name of the unknown.
    """
    if bool(case.dirichlet[pressure].mask.any()):
        return case
    path = Path(folder) / "system" / "fvSolution"
    if not path.is_file():
        raise FileNotFoundError(
            f"No patch of {folder} prescribes a pressure, and {path}, which could name a reference, does not exist."
        )
    entries = read_dictionary(path, folder)
    found = [entries[name] for name in _ALGORITHMS if isinstance(entries.get(name), Mapping)]
    settings = next((each for each in found if "pRefCell" in each or "pRefPoint" in each), None)
    if settings is None:
        raise FoamFormatError(
            f"No patch of {folder} prescribes a pressure, and {path} names no reference for it. Give pRefCell (or "
            f"pRefPoint) and pRefValue under one of {', '.join(_ALGORITHMS)}, or a fixedValue on an outlet."
        )
    value = number_of(settings.get("pRefValue", 0.0))
    if value is None or not np.isfinite(value):
        raise FoamFormatError(f"{path}: pRefValue must be a number, found {shown(settings['pRefValue'])}.")
    place = torch.from_numpy(_place(case, settings, path)).to(case.mesh.points)
    point = int((case.mesh.points - place).norm(dim=1).argmin())
    old = case.dirichlet[pressure]
    mask, values = old.mask.clone(), old.values.clone()
    mask[point], values[point] = True, value
    condition = Dirichlet(mask, values)
    if pressure in case.periodic:  # at all copies of the point
        condition = case.periodic[pressure].closing(condition, pressure)
    return replace(case, dirichlet={**case.dirichlet, pressure: condition})


def _place(case: Case, settings: Mapping[str, Any], path: Path) -> np.ndarray:
    if "pRefPoint" in settings:
        position = settings["pRefPoint"]
        if not isinstance(position, list) or len(position) != 3 or any(number_of(each) is None for each in position):
            raise FoamFormatError(f"{path}: pRefPoint must be a vector, found {shown(position)}.")
        return np.array(position, float)[: case.space]
    cell, mesh = settings["pRefCell"], case.mesh
    if not isinstance(cell, int) or not 0 <= cell < mesh.number_of_cells:
        raise FoamFormatError(
            f"{path}: pRefCell must be one of the cells 0 to {mesh.number_of_cells - 1}, found {shown(cell)}."
        )
    return mesh.points.numpy()[mesh.connectivity[mesh.offsets[cell] : mesh.offsets[cell + 1]]].mean(axis=0)
