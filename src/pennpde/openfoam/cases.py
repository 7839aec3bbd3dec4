"""A user's OpenFOAM case as a Case of ours, and as the problem of an equation: with all that the equation needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from pennpde.case import Case, Dirichlet, Remark
from pennpde.case.conditions import Components, Condition, TotalPressure
from pennpde.mesh import Mesh
from pennpde.mesh.cells import mean_rows
from pennpde.openfoam.conditions import Conditions, FieldReader
from pennpde.openfoam.dictionaries import FoamFormatError, Uniform, is_on, number_of, read_dictionary, shown
from pennpde.openfoam.fields import is_there, read_field, start_time, time_folders
from pennpde.openfoam.poly_mesh import Body, UnsupportedConditionError, pieces_of, plane_of
from pennpde.openfoam.unread import about_field, unread
from pennpde.penn import Physics
from pennpde.penn.equation import FoamName


def read_case(
    folder: Path | str,
    fields: Mapping[str, FoamName],
    parameters: Mapping[str, str] | None = None,
    time: float | None = None,
    body: Body | None = None,
) -> Case:
    """Read the mesh, the patches, the conditions and the initial fields of an OpenFOAM case.

    A case that is one cell thick between `empty` patches becomes plane. Conditions: `fixedValue` and `noSlip` prescribe
    values, `uniformFixedValue` values over time; `zeroGradient`, `fixedGradient`, `uniformFixedGradient` and
    `inletOutlet` (taken as outflow) the normal derivative; `mixed` is a Robin condition; `slip` and `symmetry` forbid
    flow across; `cyclic` patches are periodic. Where patches meet at a point, resting walls win over inlets. Cases that
    are decomposed for parallel runs are read too.

    Args:
        folder: of the case.
        fields: by unknown, its field in OpenFOAM, as `Equation.foam_fields` has them.
        parameters: by our name, the entry of `constant/transportProperties`, or else a field that is the same
            everywhere, as `Equation.foam_parameters` has them. What the case does not give is left out.
        time: whose folder holds conditions and initial fields; the earliest where left out.
        body: the mesh of the case, where it was read before.

    Returns:
        a case without targets. What a network wants besides is added by `Equation.complete`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; an OpenFOAM case is one, with constant/ and a time such as 0/."
        )
    body = body or Body.read(folder, in_pieces=not _has_any(folder, [foam.name for foam in fields.values()]))
    mesh = plane_of(body, folder) if body.is_plane else body.mesh
    initial: dict[str, Any] = {}
    conditions: dict[str, Conditions] = {}
    remarks: list[Remark] = []
    lists: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    readers = {name: FieldReader(body, foam_name.name, time, mesh) for name, foam_name in fields.items()}
    streams = {patch: along for each in readers.values() for patch, along in each.streams().items()}
    mesh = mesh.with_streams(streams) if streams else mesh
    for name, foam_name in fields.items():
        reader = readers[name]
        reader.mesh = mesh
        initial[name] = torch.from_numpy(reader.initial())
        conditions[name] = each = reader.conditions()
        lists[name] = list(reader.face_lists())
        remarks += [*each.remarks, *about_field(foam_name, reader.fields[0], reader.path, folder)]
    case = Case(
        mesh,
        initial=initial,
        dirichlet={name: each.dirichlet for name, each in conditions.items()},
        neumann={name: each.neumann for name, each in conditions.items()},
        slip={name: each.slip for name, each in conditions.items() if each.slip},
        robin={name: each.robin for name, each in conditions.items() if each.robin},
        periodic={name: each.periodic for name, each in conditions.items() if each.periodic},
        conditions={
            TotalPressure: {name: each.total_pressure for name, each in conditions.items() if each.total_pressure},
            Components: {name: _single(each.components) for name, each in conditions.items() if each.components},
        },
        parameters=_parameters(folder, parameters or {}, mesh.space),
        name=folder.resolve().name,
        remarks=[*remarks, *_about_pairs(conditions)],
    )
    case = case.with_conditions(lambda name, each: _with_face_values(each, lists[name], mesh))
    return replace(case, initial=case.fulfilled(case.initial))


def _single(components: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Components:
    """The prescribed components of all patches; where patches meet, later ones count."""
    (projector, values), *others = (tuple(map(torch.from_numpy, each)) for each in components.values())
    for each, own in others:
        held = each.flatten(1).any(dim=1)
        projector, values = torch.where(held[:, None, None], each, projector), torch.where(held[:, None], own, values)
    return Components(projector.flatten(1).any(dim=1), values, projector=projector)


def _with_face_values(condition: Condition, lists: list[tuple[np.ndarray, np.ndarray]], mesh: Mesh) -> Condition:
    """The condition with the means that OpenFOAM's lists prescribe on the faces of the mesh."""
    if not lists or not isinstance(condition, Dirichlet) or condition.on_facets is None:
        return condition
    from scipy.spatial import KDTree

    middles = mean_rows(mesh.points.numpy()[mesh.facets.connectivity], mesh.facets.offsets)
    centres, values = (np.concatenate(each) for each in zip(*lists, strict=True))
    facets = np.asarray(KDTree(middles).query(centres[:, : mesh.space])[1])
    means = values[:, : mesh.space] if values.ndim == 2 else values
    return replace(condition, on_facets=condition.on_facets.with_means(facets, means))


def _has_any(folder: Path, names: Iterable[str]) -> bool:
    """Whether some time of a case has one of these fields; if not, they may be with the processors only."""
    return any(is_there(time / name) for time in time_folders(folder) for name in names)


def _parameters(folder: Path, wanted: Mapping[str, str], space: int) -> dict[str, Any]:
    """Those of the wanted parameters that the case gives: as an entry of its properties, or as a uniform field."""
    properties = _properties(folder, wanted.values())
    found: dict[str, Any] = {}
    for ours, theirs in wanted.items():
        if theirs in properties:
            found[ours] = properties[theirs]
            continue
        # The fields of a case that is decomposed may be with the processors only; one that is uniform is so in all.
        places = [folder, *pieces_of(folder)[:1]]
        written = [time / theirs for place in places for time in time_folders(place) if is_there(time / theirs)]
        if written:
            internal = read_field(written[0], folder).internal
            if not isinstance(internal, Uniform):
                raise UnsupportedConditionError(
                    f"{written[0]} is not the same everywhere, so it cannot be the parameter {ours!r} of the equation."
                )
            value = np.asarray(internal.value, float)
            found[ours] = value if value.ndim == 0 else value[:space]
    return found


def _about_pairs(conditions: Mapping[str, Conditions]) -> list[Remark]:
    pairs = dict.fromkeys(f"{one} and {other}" for each in conditions.values() for one, other in each.periodic.items())
    return [Remark(f"The cyclic patches {pair} are taken as periodic.", False) for pair in pairs]


def _properties(folder: Path, wanted: Iterable[str]) -> dict[str, float]:
    """Those of the wanted entries that `transportProperties` has."""
    paths = [folder / "constant" / name for name in ("transportProperties", "physicalProperties")]
    path = next(filter(is_there, paths), None)
    if path is None:
        return {}
    entries = read_dictionary(path, folder)
    # Older cases have no list of phases, but a dictionary with the properties of each.
    phases = [
        key for key, each in entries.items() if isinstance(each, Mapping) and "nu" in each and "nu" not in entries
    ]
    if "phases" in entries or phases:
        named = shown(entries["phases"]) if "phases" in entries else ", ".join(phases)
        raise UnsupportedConditionError(f"{path}: the case has several phases, {named}; only one fluid is known here.")
    model = entries.get("transportModel", entries.get("viscosityModel", "Newtonian"))
    if str(model) not in ("Newtonian", "constant"):
        raise UnsupportedConditionError(f"{path}: the fluid is {shown(model)}; only Newtonian fluids are known here.")
    found = {}
    for entry in wanted:
        if entry in entries:
            value = number_of(entries[entry])
            if value is None:
                raise FoamFormatError(f"{path}: {entry} must be a number, found {shown(entries[entry])}.")
            found[entry] = value
    if "nu" in found:
        found["nu"] += _viscosity_of_stress(folder)
    return found


def _viscosity_of_stress(folder: Path) -> float:
    """What a viscoelastic stress (Maxwell) adds to the viscosity of a fluid at rest."""
    path = folder / "constant" / "turbulenceProperties"
    try:
        laminar = read_dictionary(path, folder).get("laminar", {}) if path.is_file() else {}
    except FoamFormatError:
        return 0.0
    if not isinstance(laminar, Mapping) or str(laminar.get("laminarModel", laminar.get("model"))) != "Maxwell":
        return 0.0
    coefficients = laminar.get("MaxwellCoeffs", laminar)
    return number_of(coefficients.get("nuM") if isinstance(coefficients, Mapping) else None) or 0.0


def other_physics(folder: Path | str, equation: Physics) -> tuple[Remark, ...]:
    """What the dictionaries of a case add to the equation, read before anything else; see `Remark.other_physics`.

    Uniform forces are not among them: `read_problem` knows whether they become a part of the case.
    """
    folder = Path(folder)
    known = equation.foam_parameters.values()
    found = unread(folder, equation.foam_fields, known, equation.foam_solvers, tuple(uniform_forces(folder)))
    return tuple(each for each in found if each.other_physics)


def read_problem(folder: Path | str, equation: Physics, time: float | None = None, body: Body | None = None) -> Case:
    """Read an OpenFOAM case for an equation that names its fields there (`Physics.foam_fields`).

    What the case says and the equation does not know, such as a turbulence model, is in `Case.remarks`.

    Args:
        folder: Of the case.
        equation: Whose unknowns and parameters are read.
        time: Whose folder holds conditions and initial fields; by default that at which the case starts, see
            `start_time`, if it has all fields.
        body: The mesh of the case, where it was read before.
    """
    folder = Path(folder)
    unnamed = sorted(equation.unknowns.keys() - equation.foam_fields.keys())
    if unnamed:
        raise ValueError(
            f"{type(equation).__name__} does not say how OpenFOAM names {', '.join(unnamed)}: give it `foam_fields`, "
            "or give a mesh file and a problem file instead of an OpenFOAM case."
        )
    time = _start(folder, equation) if time is None else time
    case = read_case(folder, equation.foam_fields, equation.foam_parameters, time, body)
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
    complete = found and all(is_there(found[0] / foam.name) for foam in equation.foam_fields.values())
    return start if complete else None


# What else determines the pressure: its reference, and a uniform force
#
# A case that prescribes no pressure has a reference, OpenFOAM's pRefCell, pRefPoint and pRefValue. A uniform force in
# `fvOptions`, as one drives a periodic channel, makes the same flow as a pressure that falls. With the force f per
# mass, -∇p + f = -∇p̂ for p̂ = p - f·x. So between periodic patches p̂ jumps by -f·d, where d leads from one to the
# other, and the force is gone from the equation.

_ALGORITHMS = ("PISO", "PIMPLE", "SIMPLE")


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
    for name in ("constant/fvOptions", "system/fvOptions"):
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
    whole = settings.get("selectionMode") == "all" and settings.get("volumeMode") == "specific"
    if entry.get("type") != "vectorSemiImplicitSource" or not whole or settings.get("timeStart", 0) != 0:
        return None
    rate = settings.get(velocity)
    explicit, implicit = rate if isinstance(rate, list) and len(rate) == 2 else (None, None)
    if not is_on(entry.get("active")) or implicit != 0 or not isinstance(explicit, list):
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
