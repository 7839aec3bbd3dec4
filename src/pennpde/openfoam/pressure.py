"""What else determines the pressure: its reference, and a uniform force.

A case that prescribes no pressure has a reference, OpenFOAM's pRefCell, pRefPoint and pRefValue.

A uniform force in `fvOptions`, as one drives a periodic channel, makes the same flow as a pressure that falls. With the
force f per mass, -∇p + f = -∇p̂ for p̂ = p - f·x. So between periodic patches p̂ jumps by -f·d, where d leads from one to
the other, and the force is gone from the equation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from pennpde.case import Case, Dirichlet, Remark
from pennpde.case.conditions import TotalPressure
from pennpde.openfoam.dictionaries import FoamFormatError, number_of, read_dictionary, shown

_ALGORITHMS = ("PISO", "PIMPLE", "SIMPLE")
_FILES = ("constant/fvOptions", "system/fvOptions")
_OFF = ("no", "off", "false", "n", "f", "none")


def with_pressure_reference(case: Case, folder: Path | str, pressure: str) -> Case:
    """The case with its pressure prescribed at one point, where it is prescribed nowhere, as below the lid of a cavity.

    The point is that next to the reference that `system/fvSolution` names, where OpenFOAM fixes the level as well.

    Args:
        case: As `read_case` gives it; one that prescribes a pressure is returned as it is.
        folder: It was read from.
        pressure: Our name of the unknown.
    """
    if bool(case.dirichlet[pressure].mask.any()) or pressure in case.conditions.get(TotalPressure.kind, {}):
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


def uniform_forces(folder: Path | str, velocity: str = "U") -> dict[str, Float[np.ndarray, " 3"]]:
    """By its name in `fvOptions`, each force per mass that is the same everywhere and at all times.

    Args:
        folder: Of the case.
        velocity: The name of the field that it accelerates.
    """
    found = {}
    for name in _FILES:
        path = Path(folder) / name
        try:
            entries = read_dictionary(path, folder) if path.is_file() else {}
        except (FoamFormatError, OSError):
            continue  # what cannot be read is remarked on elsewhere
        for key, entry in entries.items():
            if isinstance(entry, Mapping) and (force := _force(entry, velocity)) is not None:
                found[key] = force
    return found


def _force(entry: Mapping[str, Any], velocity: str) -> Float[np.ndarray, " 3"] | None:
    inner = [each for each in entry.values() if isinstance(each, Mapping)]
    inner += [deep for each in inner for deep in each.values() if isinstance(deep, Mapping)]
    settings = {**entry, **{key: value for each in inner for key, value in each.items()}}
    whole = str(settings.get("selectionMode")) == "all" and str(settings.get("volumeMode")) == "specific"
    if (
        str(entry.get("type")) != "vectorSemiImplicitSource"
        or not whole
        or settings.get("timeStart", 0) not in (0, 0.0)
    ):
        return None
    rate = settings.get(velocity)
    explicit, implicit = rate if isinstance(rate, list) and len(rate) == 2 else (None, None)
    if str(entry.get("active", "yes")) in _OFF or implicit != 0 or not isinstance(explicit, list):
        return None
    numbers = [number_of(each) for each in explicit]
    return np.array(numbers, float) if len(numbers) == 3 and None not in numbers else None


def with_force(case: Case, folder: Path | str, pressure: str, velocity: str = "U") -> tuple[Case, tuple[str, ...]]:
    """The case with a pressure that falls between its periodic patches instead of a uniform force.

    Returns:
        The case, and the names of the forces that it contains now; none where nothing is periodic.
    """
    forces = uniform_forces(folder, velocity)
    if not forces or pressure not in case.periodic:
        return case, ()
    periodic = case.periodic[pressure]
    positions = case.mesh.points.to(periodic.shift)
    force = torch.from_numpy(sum(forces.values(), np.zeros(3))[: case.space]).to(positions)
    jump = -((positions - positions[periodic.points]) @ force)
    changed = replace(periodic, shift=periodic.shift + jump, is_seamless=False)
    conditions = {**case.conditions, "periodic": {**case.periodic, pressure: changed}}
    given = " ".join(f"{float(each):g}" for each in force)
    remark = Remark(
        f"The uniform force ({given}) of fvOptions is taken as a pressure that falls between the periodic patches: the "
        "predicted p contains it, a written time folder does not.",
        False,
    )
    return replace(case, conditions=conditions).remarked(remark), tuple(forces)
