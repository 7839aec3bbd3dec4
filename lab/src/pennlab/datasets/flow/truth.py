"""The truth of the flow dataset: OpenFOAM on a fine mesh, one run file per case.

A run file (HDF5) holds the fine plane mesh and the cell values of all frames. The coarse cases that networks see are
made from it in a moment (`flow.case_from_run`), so the expensive part is never repeated for another coarse mesh.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from jaxtyping import Float

from pennlab import running
from pennlab.datasets.fine_mesh import FineMesh
from pennlab.datasets.flow.ducts import blocks_of
from pennlab.datasets.profile import Profile
from pennpde import openfoam
from pennpde.files import write_atomically
from pennpde.models.designs import INLET_VELOCITY, VISCOSITY, Duct, duct
from pennpde.openfoam import NonUniform, Uniform

END_TIME = 4.0
TIMES = np.linspace(0.0, END_TIME, 41)
PROGRAMS = ("blockMesh", "potentialFoam", "icoFoam")


# Cells per unit length; may be fractional, see `ducts.Region.cells`.
PROFILES = {"paper": Profile(90, 0.001), "standard": Profile(90, 0.005), "small": Profile(22, 0.01)}

# These schemes reproduce the authors' data. Of a step's pressure solves only the last is tight: that halves the cost of
# 1e-6 everywhere, and on a_1.00 (standard) changes the fields at t = 4 by 1.4e-8 (u) and 0.9e-8 (p) in the mean square.
SCHEMES = {
    "ddtSchemes": {"default": "Euler"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {"default": "none", "div(phi,U)": "Gauss linearUpwind grad(U)", "div(div(phi,U))": "Gauss linear"},
    "laplacianSchemes": {"default": "Gauss linear corrected"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "corrected"},
}
SOLVERS = {
    "Phi": {"solver": "GAMG", "smoother": "GaussSeidel", "tolerance": 1e-8, "relTol": 1e-3},
    "p": {"solver": "GAMG", "smoother": "GaussSeidel", "tolerance": 1e-6, "relTol": 0.1},
    "pFinal": {"solver": "GAMG", "smoother": "GaussSeidel", "tolerance": 3e-6, "relTol": 0},
    "U": {"solver": "smoothSolver", "smoother": "symGaussSeidel", "tolerance": 3e-6, "relTol": 0},
}
PISO = {"nCorrectors": 2, "nNonOrthogonalCorrectors": 1, "pRefCell": 0, "pRefValue": 0}
ALGORITHMS = {"PISO": PISO}
VELOCITY_CONDITIONS: dict[str, dict[str, Any]] = {
    "inlet": {"type": "fixedValue", "value": Uniform(np.array([*INLET_VELOCITY, 0.0]))},
    "wall": {"type": "noSlip"},
    "outlet": {"type": "zeroGradient"},
    "frontAndBack": {"type": "empty"},
}
PRESSURE_CONDITIONS: dict[str, dict[str, Any]] = {
    "inlet": {"type": "zeroGradient"},
    "wall": {"type": "zeroGradient"},
    "outlet": {"type": "fixedValue", "value": Uniform(0.0)},
    "frontAndBack": {"type": "empty"},
}


def solve(
    name: str,
    profile: Profile,
    run_file: Path | str,
    installation: running.Installation | None = None,
    on_progress: Callable[[running.Progress], None] | None = None,
    scratch: Path | str | None = None,
) -> None:
    """Run OpenFOAM for one case and write its run file, complete or not at all.

    Args:
        name: of the case, such as "b_0.10_0.70".
        profile: the resolution.
        run_file: appears when it is complete.
        installation: saves looking for OpenFOAM again.
        on_progress: is called after each time step; `END_TIME` is the last.
        scratch: where the OpenFOAM case is kept while it runs (about 100 MB with the standard profile).
    """
    with running.workplace(PROGRAMS, installation, scratch=scratch, prefix=f"penn-{name}-") as place:
        write_case(place.folder, duct(name), profile)
        mesh = initialise(place.folder, place.installation)
        progress = place.run("icoFoam", on_progress=on_progress)
        settings = {"profile": asdict(profile), "schemes": SCHEMES, "solvers": SOLVERS, "piso": PISO}
        facts = {**place.facts(name, settings), "largest_courant": progress.largest_courant}
        write_run(run_file, _collected(place.folder, mesh, facts))


def write_case(
    folder: Path,
    shape: Duct,
    profile: Profile,
    *,
    schemes: Mapping[str, Any] = SCHEMES,
    solvers: Mapping[str, Any] = SOLVERS,
    algorithms: Mapping[str, Mapping[str, Any]] = ALGORITHMS,
    control: Mapping[str, Any] | None = None,
    constant: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write an OpenFOAM case, ready for blockMesh, potentialFoam and icoFoam.

    Args:
        folder: is filled.
        shape: the domain.
        profile: the resolution.
        schemes: `fvSchemes`; those of the truth by default, as the next two.
        solvers: of the linear equations.
        algorithms: the dictionaries of correctors in `fvSolution`, by OpenFOAM's name.
        control: entries of `controlDict` that replace or join ours.
        constant: dictionaries of the folder `constant` that replace or join ours.
    """
    patches = {name: ("wall" if name == "wall" else "patch", sides) for name, sides in shape.patches.items()}
    running.write_case(
        folder,
        block_mesh=running.block_mesh_dictionary(blocks_of(shape, profile.cells), patches, thickness=0.1),
        control={
            "application": "icoFoam",
            "endTime": END_TIME,
            "deltaT": profile.time_step,
            "writeInterval": round(END_TIME / (len(TIMES) - 1) / profile.time_step),
            **(control or {}),
        },
        schemes=schemes,
        solution={"solvers": solvers, **algorithms, "potentialFlow": {"nNonOrthogonalCorrectors": 20}},
        constant={"transportProperties": {"nu": (openfoam.VISCOSITY, VISCOSITY)}, **(constant or {})},
        fields={
            "U": running.NewField(openfoam.VELOCITY, np.zeros(3), VELOCITY_CONDITIONS),
            "p": running.NewField(openfoam.PRESSURE, 0.0, PRESSURE_CONDITIONS),
        },
    )


def initialise(folder: Path, installation: running.Installation) -> openfoam.PolyMesh:
    """Make the mesh, and the potential flow as initial velocity, with the flux that belongs to it."""
    running.run(folder, "blockMesh", installation=installation)
    return start_from_potential_flow(folder, installation)


def start_from_potential_flow(folder: Path, installation: running.Installation) -> openfoam.PolyMesh:
    """The same in a folder that has its mesh already."""
    running.run(folder, "potentialFoam", "-writephi", installation=installation)
    mesh = openfoam.PolyMesh.read(folder)
    velocity = mesh.cell_velocity(_face_flux(folder / "0" / "phi", mesh))
    largest = float(np.linalg.norm(velocity, axis=1).max())
    if not largest < 10.0:
        raise running.DivergenceError(f"The potential flow in {folder} reaches |U| = {largest:g}; 2 to 3 is expected.")
    openfoam.write_field(folder / "0" / "U", velocity, openfoam.VELOCITY, VELOCITY_CONDITIONS)
    return mesh


def _face_flux(path: Path, mesh: openfoam.PolyMesh) -> Float[np.ndarray, " faces"]:
    flux = openfoam.read_field(path)
    values = np.zeros(mesh.number_of_faces)
    values[: len(mesh.neighbour)] = flux.values(len(mesh.neighbour))
    for name, patch in mesh.patches.items():
        value = flux.boundary.get(name, {}).get("value")
        if isinstance(value, Uniform):
            values[patch.faces] = value.value
        elif isinstance(value, NonUniform) and len(value.values):
            values[patch.faces] = value.values
    return values


@dataclass(frozen=True, eq=False)
class Run:
    """What a run file holds.

    Attributes:
        mesh: the fine one.
        velocity: of each cell at the times, [times, cells, 2].
        pressure: likewise, [times, cells].
        facts: name, solver, settings, seconds and largest_courant.
    """

    mesh: FineMesh
    times: Float[np.ndarray, " times"]
    velocity: Float[np.ndarray, "times cells 2"]
    pressure: Float[np.ndarray, "times cells"]
    facts: Mapping[str, Any]


def _collected(folder: Path, mesh: openfoam.PolyMesh, facts: Mapping[str, Any]) -> Run:
    """All frames of an OpenFOAM case that has run to its end."""
    frames, cells = openfoam.time_folders(folder), mesh.number_of_cells
    if len(frames) != len(TIMES) or not np.allclose([float(frame.name) for frame in frames], TIMES, atol=1e-6):
        raise running.OpenFOAMError(f"{folder} has the times {', '.join(f.name for f in frames)}; 0 to 4 is expected.")
    velocity = np.stack([openfoam.read_field(frame / "U").values(cells)[:, :2] for frame in frames])
    pressure = np.stack([openfoam.read_field(frame / "p").values(cells) for frame in frames])
    if not (np.isfinite(velocity).all() and np.isfinite(pressure).all()):
        raise running.DivergenceError(f"The fields in {folder} are not finite.")
    return Run(FineMesh.of(mesh), TIMES, velocity, pressure, facts)


def write_run(run_file: Path | str, run: Run) -> None:
    """Write a run file with all frames; it appears when it is complete and on the disk."""
    run_file = Path(run_file)
    run_file.parent.mkdir(parents=True, exist_ok=True)
    packed = {"compression": "gzip", "compression_opts": 4, "shuffle": True, "fletcher32": True}
    ends = [0, -1]
    content = io.BytesIO()  # HDF5 does not always tell that a disk is full
    with h5py.File(content, "w") as file:
        file.create_dataset("points", data=run.mesh.points, **packed)
        file.create_dataset("quads", data=run.mesh.quads.astype(np.int32), **packed)
        for name, edges in run.mesh.edges.items():
            file.create_dataset(f"patches/{name}/edges", data=edges.astype(np.int32))
            file.create_dataset(f"patches/{name}/cells", data=run.mesh.edge_cells[name].astype(np.int32))
        file.create_dataset("times", data=run.times)
        # First and last frame in single precision; all of them in half, whose rounding (1e-8 in the mean square) is
        # far below what any network resolves.
        for name, values in (("u", run.velocity), ("p", run.pressure)):
            file.create_dataset(name, data=values[ends].astype(np.float32), **packed)
            chunks = (1, *values.shape[1:])
            file.create_dataset(f"{name}_frames", data=values.astype(np.float16), chunks=chunks, **packed)
        file.attrs.update(run.facts)
        file.attrs["complete"] = True
    write_atomically(run_file, content.getvalue())


def read_run(run_file: Path | str, frames: bool = False) -> Run:
    """Read a run file: the first and the last time, or all of them (in half precision but for these two).

    Args:
        run_file: the file.
        frames: whether to read all times.
    """
    try:
        with h5py.File(run_file, "r") as file:
            if not file.attrs.get("complete", False):
                raise ValueError(f"{run_file} is not complete; remove it and solve the case again.")
            names = list(file["patches"].keys())  # pyright: ignore[reportAttributeAccessIssue]
            mesh = FineMesh(
                _array(file, "points"),
                _array(file, "quads", np.int64),
                {name: _array(file, f"patches/{name}/edges", np.int64) for name in names},
                {name: _array(file, f"patches/{name}/cells", np.int64) for name in names},
            )
            times, velocity, pressure = _array(file, "times"), _array(file, "u"), _array(file, "p")
            if frames:
                ends = velocity, pressure
                velocity, pressure = _array(file, "u_frames"), _array(file, "p_frames")
                velocity[[0, -1]], pressure[[0, -1]] = ends
            else:
                times = times[[0, -1]]
            return Run(mesh, times, velocity, pressure, dict(file.attrs))
    except FileNotFoundError:
        raise
    except (OSError, KeyError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"{run_file} is not a complete run file ({error}); remove it and solve the case again."
        ) from error


def _array(file: h5py.File, name: str, dtype: type = np.float64) -> np.ndarray:
    return np.asarray(file[name]).astype(dtype)


def is_complete(run_file: Path | str) -> bool:
    """Whether a run file is there, was written to its end, and agrees with all of its checksums."""
    try:
        read_run(run_file, frames=True)
    except (OSError, ValueError):
        return False
    return True
