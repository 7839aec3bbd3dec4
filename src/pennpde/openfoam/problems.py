"""An OpenFOAM case as the problem of an equation: with all that the equation needs, or an error that names it."""

from __future__ import annotations

from pathlib import Path

import torch

from pennpde.case import Case, Remark
from pennpde.openfoam.cases import read_case
from pennpde.openfoam.conditions import is_field
from pennpde.openfoam.fields import start_time, time_folders
from pennpde.openfoam.forces import uniform_forces, with_force
from pennpde.openfoam.pressure_reference import with_pressure_reference
from pennpde.openfoam.unread import unread
from pennpde.penn import Physics


def read_problem(folder: Path | str, equation: Physics, time: float | None = None) -> Case:
    """Read an OpenFOAM case for an equation that names its fields there (`Physics.foam_fields`).

    What the case says and the equation does not know, such as a turbulence model, is in `Case.remarks`.

    Args:
        folder: Of the case.
        equation: Whose unknowns and parameters are read.
        time: Whose folder holds conditions and initial fields; by default that at which the case starts, see
            `start_time`, if it has all fields.
    """
    folder = Path(folder)
    unnamed = sorted(equation.unknowns.keys() - equation.foam_fields.keys())
    if unnamed:
        raise ValueError(
            f"{type(equation).__name__} does not say how OpenFOAM names {', '.join(unnamed)}: give it `foam_fields`, "
            "or give a mesh file and a problem file instead of an OpenFOAM case."
        )
    time = _start(folder, equation) if time is None else time
    case = read_case(folder, equation.foam_fields, equation.foam_parameters, time)
    for ours, theirs in equation.foam_parameters.items():
        if ours not in case.parameters:
            raise ValueError(
                f"{folder} gives no {ours} {theirs}: constant/transportProperties has no such entry, and no time has "
                "such a field."
            )
    accelerated = [foam.name for foam in equation.foam_fields.values() if foam.has_flux]
    forces: tuple[str, ...] = ()
    for name, foam in equation.foam_fields.items():
        if foam.has_reference:
            if accelerated:
                case, forces = with_force(case, folder, name, accelerated[0])
            case = with_pressure_reference(case, folder, name)
    known = equation.foam_parameters.values()
    remarks = unread(folder, equation.foam_fields, known, equation.foam_solvers, forces)
    return case.remarked(*_about_start(case, equation), *remarks)


def other_physics(folder: Path | str, equation: Physics) -> tuple[Remark, ...]:
    """What the dictionaries of a case add to the equation, read before anything else; see `Remark.other_physics`.

    Uniform forces are not among them: `read_problem` knows whether they become a part of the case.
    """
    folder = Path(folder)
    known = equation.foam_parameters.values()
    found = unread(folder, equation.foam_fields, known, equation.foam_solvers, uniform_forces(folder))
    return tuple(each for each in found if each.other_physics)


def _about_start(case: Case, equation: Physics) -> list[Remark]:
    """A start that is not uniform, of a network that is trained to start from something else."""
    given = [
        equation.foam_fields[name].name
        for name, values in case.initial.items()
        if len(torch.unique(values[~case.dirichlet[name].mask], dim=0)) > 1
    ]
    if not given or not equation.own_start:
        return []
    return [
        Remark(
            f"The initial {' and '.join(given)} of the case {'is' if len(given) == 1 else 'are'} not uniform, and the "
            f"prediction starts from {'it' if len(given) == 1 else 'them'}; the network was trained on starts from "
            f"{equation.own_start}, which a uniform field stands for."
        )
    ]


def _start(folder: Path, equation: Physics) -> float | None:
    """The time at which a case starts, if its fields are there: others may lie in the folders of processors."""
    start = start_time(folder) if folder.is_dir() else 0.0
    found = [path for path in (time_folders(folder) if folder.is_dir() else []) if float(path.name) == start]
    complete = found and all(is_field(found[0] / foam.name) for foam in equation.foam_fields.values())
    return start if complete else None
