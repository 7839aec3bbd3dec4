"""Designs solved by the user's own OpenFOAM solver, and the same quantities measured on what it wrote."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from pennpde.case import Case
from pennpde.files import locked_folder, plain
from pennpde.openfoam.dictionaries import Dimensions, NonUniform, format_dictionary, read_dictionary
from pennpde.openfoam.fields import PointValues, first_field, on_faces, read_field, start_time, time_folders
from pennpde.openfoam.poly_mesh import Body, PolyMesh
from pennpde.penn import STEADY, Physics
from pennpde.penn.equation import OUTFLOW, PRESSED, VISCOUS
from pennpde.quantities import SolvedFlow
from pennpde.study.changes import Place
from pennpde.study.programs import run_program
from pennpde.study.study import TIME, Study
from pennpde.study.table import VERIFIED, Row, Table, Verified

_PROPERTIES = ("transportProperties", "physicalProperties")


def verify(
    study: Study, table: Table, folder: Path, designs: Sequence[int], solver: str, timeout: float = 3600.0
) -> Iterator[Verified]:
    """Solve designs one after the other; what was found is kept in the folder of the study.

    Args:
        study: Of OpenFOAM cases.
        table: Its rows.
        folder: Of it; the cases are written to its folder `verified`.
        designs: Their numbers.
        solver: OpenFOAM's program.
        timeout: Seconds after which it is ended.
    """
    rows = {row.design: row for row in table.rows}
    if unknown := [each for each in designs if each not in rows]:
        raise ValueError(f"The study has no design {unknown[0]}; its designs are 1 to {len(rows)}.")
    if shutil.which(solver) is None:
        raise FileNotFoundError(
            f"there is no program {solver} on the PATH; source OpenFOAM's settings, or name another"
        )
    with locked_folder(folder, "a study"):
        for number in designs:
            found = _verified(study, rows[number], folder / "verified" / f"{number:05d}", solver, timeout)
            with (folder / VERIFIED).open("ab") as stream:
                stream.write(json.dumps(plain(asdict(found)), allow_nan=False).encode() + b"\n")
            yield found


def _verified(study: Study, row: Row, folder: Path, solver: str, timeout: float) -> Verified:
    begin = time.perf_counter()
    try:
        write_design(study, row.values, folder)
        times = _run_until(row, folder, solver, timeout)
        seconds = round(time.perf_counter() - begin, 3)
        flow = flow_of(folder, study.network.equation, times)
        quantities = {each.name: _at_times(each.of(flow).values, times, row.times) for each in study.measures}
    except (ValueError, LookupError, OSError, ArithmeticError) as error:
        reason = " ".join(str(error).split())
        return Verified(row.design, solver, {}, round(time.perf_counter() - begin, 3), reason, str(folder))
    return Verified(row.design, solver, quantities, seconds, "", str(folder))


def _at_times(values: np.ndarray, solved: Sequence[float], predicted: Sequence[float]) -> list[float | None]:
    """For each predicted time the value that was solved; None where none was."""
    known = [float(each) if np.isfinite(each) else None for each in values]
    return [
        next(
            (value for value, other in zip(known, solved, strict=True) if math.isclose(other, each, rel_tol=1e-6)), None
        )
        for each in predicted
    ]


# The case of a design


def write_design(study: Study, values: Mapping[str, float], folder: Path) -> None:
    """Write a design as an OpenFOAM case with its mesh; what was there is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shape = {name: value for name, value in values.items() if name in study.origin.names}
    study.origin.write(shape, folder)
    case, equation = study.case_of(values), study.network.equation
    for name, value in values.items():
        if name in shape or name == TIME:
            continue
        if name in equation.foam_parameters:
            _write_parameter(folder, equation.foam_parameters[name], value)
        elif (place := Place.parse(name, case)) is not None:
            _write_condition(folder, equation.foam_fields[place.unknown].name, place, case)


def _write_parameter(folder: Path, name: str, value: float) -> None:
    path = next((path for each in _PROPERTIES if (path := folder / "constant" / each).is_file()), None)
    entries = {} if path is None else read_dictionary(path, folder)
    if path is None or name not in entries:
        raise ValueError(f"constant/transportProperties of {folder} has no entry {name}, which varies.")
    old = entries[name] if isinstance(entries[name], tuple) else (entries[name],)
    known = [each for each in old if isinstance(each, Dimensions)]
    entries[name] = (*known, value) if known else value
    _write_dictionary(path, entries, "dictionary")


def _write_condition(folder: Path, name: str, place: Place, case: Case) -> None:
    """The values on the faces of a patch, as the facets of the changed case have them."""
    start = start_time(folder)
    path, cells = first_field(folder, name, start), PolyMesh.read(folder)
    faces = cells.patches[place.patch].faces
    facets, known = case.mesh.facets, case.dirichlet[place.unknown].on_facets
    assert known is not None  # otherwise it could not vary
    middles = np.add.reduceat(case.mesh.points.numpy()[facets.connectivity], facets.offsets[:-1])
    nearest = KDTree(middles / facets.sizes[:, None]).query(cells.face_centres[faces][:, : case.space])[1]
    values = known.ends[np.asarray(nearest)].mean(axis=1)
    if values.ndim == 2:
        values = np.pad(values, ((0, 0), (0, 3 - values.shape[1])))
    entries = read_dictionary(path, folder)
    condition = {"type": "fixedValue", "value": NonUniform(values)}
    entries["boundaryField"] = {**entries["boundaryField"], place.patch: condition}
    _write_dictionary(path, entries, "volVectorField" if values.ndim == 2 else "volScalarField")


def _write_dictionary(path: Path, entries: Mapping[str, Any], kind: str) -> None:
    own = {name: value for name, value in entries.items() if name != "FoamFile"}
    path.unlink()
    path.write_text(format_dictionary(path.name, own, kind), encoding="utf-8")


# The solver


def _run_until(row: Row, folder: Path, solver: str, timeout: float) -> tuple[float, ...]:
    """Run the solver to the times of a row; those that it wrote, from the start on."""
    start = start_time(folder)
    finite = [each for each in row.times if each != STEADY]
    if not row.times and TIME in row.values:
        finite = [row.values[TIME]]
    control = {"application": solver, "startFrom": "startTime", "startTime": f"{start:.12g}", "stopAt": "endTime"}
    if finite:
        even = all(math.isclose(each / finite[0], round(each / finite[0]), rel_tol=1e-6) for each in finite)
        interval = finite[0] if even else finite[-1]
        control |= {
            "endTime": f"{start + finite[-1]:.12g}",
            "writeControl": "runTime",
            "writeInterval": f"{interval:.12g}",
        }
        control |= {"timePrecision": "9"}
    with (folder / "system" / "controlDict").open("a", encoding="utf-8") as stream:
        # Of entries that are there twice the later one counts.
        stream.write("\n" + "".join(f"{name} {value};\n" for name, value in control.items()))
    run_program([solver], folder, solver, timeout)
    written = [float(path.name) - start for path in time_folders(folder) if float(path.name) > start]
    if not written:
        raise ValueError(f"{solver} wrote no time; its log is {folder / f'log.{solver}'}.")
    if not finite:
        return (STEADY,)
    times = [each for each in finite if any(math.isclose(each, other, rel_tol=1e-6) for other in written)]
    if finite[-1] not in times:
        raise ValueError(
            f"{solver} came to t = {max(written):g}, not to {finite[-1]:g}; see {folder / f'log.{solver}'}."
        )
    return tuple(times)


def flow_of(folder: Path, equation: Physics, times: Sequence[float]) -> SolvedFlow:
    """The fields and fluxes that a solver wrote, as quantities take them.

    Args:
        folder: Of its plane case.
        equation: That names the fields.
        times: From the start on; infinity is the last that it wrote.
    """
    from pennpde.openfoam import read_problem

    case, body, start = read_problem(folder, equation), Body.read(folder), start_time(folder)
    if case.space != 2:
        raise ValueError("Quantities of a solver's fields are measured on plane cases only.")
    units, values = equation.units(case), PointValues.of(body, case.mesh)
    height = float(np.ptp(body.mesh.points.numpy()[:, 2]))
    moments = [float(time_folders(folder)[-1].name) if each == STEADY else start + each for each in times]
    fields = {
        name: np.stack([values.read(foam.name, moment) for moment in moments])
        for name, foam in equation.foam_fields.items()
    }
    balances = [_balance(values, case, equation, moment, height) for moment in moments]
    return SolvedFlow(
        case,
        tuple(times),
        fields,
        {name: np.stack([each[name] for each in balances]) for name in balances[0]},
        1.0 if units is None else units.length,
        1.0 if units is None else units.speed,
    )


def _balance(values: PointValues, case: Case, equation: Physics, moment: float, height: float) -> dict[str, np.ndarray]:
    """What leaves through each facet, and the forces on it, per unit of thickness."""
    velocity, pressure = (
        next(foam.name for foam in equation.foam_fields.values() if getattr(foam, kind))
        for kind in ("has_flux", "has_reference")
    )
    viscosity = float(case.parameters[next(ours for ours, foam in equation.foam_parameters.items() if foam == "nu")])
    (cells, *_), on_velocity = values.known(velocity, moment)
    on_pressure = values.known(pressure, moment)[1]
    facets = case.mesh.facets.connectivity.reshape(-1, 2)
    tree = KDTree(case.mesh.points.numpy()[facets].mean(axis=1))
    outflow, viscous, pressed = np.zeros(len(facets)), np.zeros((len(facets), 2)), np.zeros((len(facets), 2))
    for (piece, patch), ours, theirs in zip(values.faces, on_velocity, on_pressure, strict=True):
        mesh = piece.mesh
        place = np.asarray(tree.query(mesh.face_centres[patch.faces][:, :2])[1])
        area = mesh.face_vectors[patch.faces] / height
        slope = (ours - cells[mesh.owner[patch.faces]]) / mesh.distances_to_cells(patch)[:, None]
        through = (ours * area).sum(axis=1)
        if (path := first_path(piece.folder, "phi", moment)) is not None:
            written = on_faces(read_field(path).boundary.get(patch.name, {}).get("value"), patch.count, ())
            through = through if written is None else written / height
        outflow[place] = through
        viscous[place] = -viscosity * (slope * np.linalg.norm(area, axis=1)[:, None])[:, :2]
        pressed[place] = (theirs[:, None] * area)[:, :2]
    return {OUTFLOW: outflow, VISCOUS: viscous, PRESSED: pressed}


def first_path(folder: Path, name: str, moment: float) -> Path | None:
    """The file of a field at a time; None where it has none."""
    try:
        return first_field(folder, name, moment)
    except FileNotFoundError:
        return None
