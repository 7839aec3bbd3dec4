"""Advection and diffusion across a square: the cases of the paper's second experiment.

On the unit square T is zero at the start, T̂ on the inlet x = 0, and has no normal derivative on the other sides; the
velocity (c, 0) and the diffusivity D are known. The equation is linear in T̂, so one run of OpenFOAM with T̂ = 1 gives
the cases of all T̂ with the same c and D.
"""

from __future__ import annotations

import io
import itertools
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from jaxtyping import Float

from pennlab import running
from pennlab.datasets.profile import Profile
from pennlab.running import Block, Side
from pennpde import openfoam
from pennpde.case import Case
from pennpde.files import write_atomically
from pennpde.models.designs import PLATE_POINTS as POINTS
from pennpde.models.designs import advection_diffusion_case, heated_at_inlet  # noqa: F401
from pennpde.models.designs import plate_mesh as coarse_mesh
from pennpde.openfoam import Uniform

TIMES = (0.25, 0.5, 0.75, 1.0)
END_TIME = TIMES[-1]
COEFFICIENTS = tuple(round(0.1 * number, 1) for number in range(11))
"""Of the velocity and of the diffusivity."""
INLET_TEMPERATURES = COEFFICIENTS[1:]
OFF_LATTICE = (0.05, 0.25, 0.35, 0.55, 0.75, 0.95)
"""Velocities and diffusivities of the second test set, each half-way between two of the lattice."""
OFF_LATTICE_TEMPERATURE = 0.75
SPLIT_SIZES = {"train": 960, "validation": 120, "test": 120}
PACKED_RUNS = "packed_runs.h5"


# Cells along the flow; across it there is one, because nothing changes there.
PROFILES = {"paper": Profile(400, 0.00025), "standard": Profile(200, 0.0005), "small": Profile(50, 0.005)}
CELLS_ACROSS = 1
PROGRAMS = ("blockMesh", "scalarTransportFoam")
THICKNESS = 0.01

# A limited scheme keeps T between 0 and T̂ where nothing diffuses. Limiters depend only on ratios, so that the scheme
# is as linear in T̂ as the equation. Of those of OpenFOAM, SuperBee keeps the moving step sharpest, and costs nothing
# where T is smooth.
SCHEMES = {
    "ddtSchemes": {"default": "Euler"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {"default": "none", "div(phi,T)": "Gauss SuperBee"},
    "laplacianSchemes": {"default": "Gauss linear corrected"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "corrected"},
}
SOLVERS = {"T": {"solver": "PBiCGStab", "preconditioner": "DILU", "tolerance": 1e-10, "relTol": 0}}
_TERMS = 200
_SIDES: dict[str, tuple[Side, ...]] = {
    "inlet": (((0.0, 1.0), (0.0, 0.0)),),
    "side": (((0.0, 0.0), (1.0, 0.0)), ((1.0, 0.0), (1.0, 1.0)), ((1.0, 1.0), (0.0, 1.0))),
}


# Cases and their names


def run_name(velocity: float, diffusivity: float) -> str:
    """Such as `u0.50_d0.10`: what the cases of all inlet temperatures share."""
    return f"u{velocity:.2f}_d{diffusivity:.2f}"


def case_name(velocity: float, diffusivity: float, inlet_temperature: float) -> str:
    """Such as `u0.50_d0.10_t0.80`."""
    return f"{run_name(velocity, diffusivity)}_t{inlet_temperature:.2f}"


def all_names() -> list[str]:
    """The 1200 cases of the set; velocity and diffusivity are not both zero."""
    values = itertools.product(COEFFICIENTS, COEFFICIENTS, INLET_TEMPERATURES)
    return [case_name(c, D, hot) for c, D, hot in values if c or D]


def parse_name(name: str) -> tuple[float, float, float]:
    """Velocity, diffusivity and inlet temperature of a case, each from 0 to 1."""
    match = re.fullmatch(r"u(\d+\.?\d*)_d(\d+\.?\d*)_t(\d+\.?\d*)", name)
    if match is None:
        raise ValueError(f"{name!r} names no case of advection-diffusion; names look like 'u0.50_d0.10_t0.80'.")
    velocity, diffusivity, inlet_temperature = (float(group) for group in match.groups())
    parameters = {"velocity": velocity, "diffusivity": diffusivity, "inlet temperature": inlet_temperature}
    for what, value in parameters.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name!r}: the {what} {value:g} is outside of its range from 0 to 1.")
    if velocity == diffusivity == 0:
        raise ValueError(f"{name!r}: without velocity and diffusivity nothing happens; let one of them be positive.")
    return velocity, diffusivity, inlet_temperature


def splits(seed: int = 0) -> dict[str, list[str]]:
    """The 1200 cases, split at random into train, validation and test, as in the paper.

    Cases that differ only in the inlet temperature are multiples of each other, and end up in different splits.
    """
    names = all_names()
    random = np.random.default_rng([seed, zlib.crc32(b"splits")])
    order = [names[place] for place in random.permutation(len(names))]
    dealt = {}
    for split, size in SPLIT_SIZES.items():
        dealt[split], order = sorted(order[:size]), order[size:]
    return dealt


def splits_off_lattice() -> dict[str, list[str]]:
    """A second test set: velocities, diffusivities and temperatures between those of the lattice.

    Every case of the lattice's test split is a multiple of a training case; of these 36, none is.
    """
    values = itertools.product(OFF_LATTICE, OFF_LATTICE)
    return {"test": [case_name(c, D, OFF_LATTICE_TEMPERATURE) for c, D in values]}


# The truth


@dataclass(frozen=True, eq=False)
class Run:
    """The reference solution for T̂ = 1, which depends only on x and t.

    Attributes:
        temperature: of cells of equal length along x, at each of `TIMES`.
        facts: name, solver, settings, seconds.
    """

    temperature: Float[np.ndarray, "cells times"]
    facts: Mapping[str, Any]

    @property
    def x(self) -> Float[np.ndarray, " cells"]:
        """The centres of the cells."""
        return (np.arange(len(self.temperature)) + 0.5) / len(self.temperature)

    def at(self, x: Float[np.ndarray, " points"]) -> Float[np.ndarray, "points times"]:
        """The temperature at these x: exactly 1 on the inlet, and that of the last cell on the outlet."""
        known = np.concatenate([[0.0], self.x, [1.0]])
        values = np.concatenate([np.ones((1, len(TIMES))), self.temperature, self.temperature[-1:]])
        return np.stack([np.interp(x, known, column) for column in values.T], axis=1)


def solve(
    velocity: float,
    diffusivity: float,
    profile: Profile,
    run_file: Path | str,
    installation: running.Installation | None = None,
    on_progress: Callable[[running.Progress], None] | None = None,
    scratch: Path | str | None = None,
) -> None:
    """Run OpenFOAM with T̂ = 1 and write the run file, complete or not at all.

    Args:
        velocity: c.
        diffusivity: D.
        profile: the resolution.
        run_file: appears when it is complete.
        installation: saves looking for OpenFOAM again.
        on_progress: is called after each time step; `END_TIME` is the last.
        scratch: where the OpenFOAM case is kept while it runs.
    """
    with running.workplace(PROGRAMS, installation, scratch=scratch) as place:
        write_case(place.folder, velocity, diffusivity, profile)
        place.run("blockMesh")
        place.run("scalarTransportFoam", on_progress=on_progress)
        temperature = _profile_along_x(place.folder, profile)
        facts = place.facts(run_name(velocity, diffusivity), solver_settings(profile))
    _write_run(Path(run_file), Run(temperature, facts))


def find_installation() -> running.Installation:
    return running.find_installation(PROGRAMS)


def solver_settings(profile: Profile) -> dict[str, Any]:
    """All settings that determine the reference solution."""
    return {"profile": asdict(profile), "cells_across": CELLS_ACROSS, "schemes": SCHEMES, "solvers": SOLVERS}


def _profile_along_x(folder: Path, profile: Profile) -> Float[np.ndarray, "cells times"]:
    frames = openfoam.time_folders(folder)[1:]
    if not np.allclose([float(frame.name) for frame in frames], TIMES):
        raise running.OpenFOAMError(f"scalarTransportFoam wrote the times {[frame.name for frame in frames]}.")
    temperature = np.stack([openfoam.read_field(frame / "T").values(int(profile.cells)) for frame in frames], axis=-1)
    if not (temperature.min() > -1e-6 and temperature.max() < 1 + 1e-6):
        raise running.DivergenceError(
            f"The temperature in {folder} is from {temperature.min():g} to {temperature.max():g}, not from 0 to 1."
        )
    return temperature


def _write_run(path: Path, run: Run) -> None:
    content = io.BytesIO()
    with h5py.File(content, "w", libver=("v110", "v110")) as file:
        _fill(file, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def _fill(group: h5py.Group, run: Run) -> None:
    packed = {"compression": "gzip", "compression_opts": 9, "shuffle": True, "fletcher32": True}
    # Written before anything else gets its place in the file: the same run gives the same bytes.
    group.create_dataset("T", data=run.temperature, chunks=run.temperature.shape, **packed).flush()
    # Strings of fixed length: h5py gives others a heap of 4 kB.
    group.attrs.update({key: np.bytes_(v.encode()) if isinstance(v, str) else v for key, v in run.facts.items()})


def pack_runs(folder: Path | str) -> None:
    """Put all run files of a folder into one, for a repository. `read_run` finds them there by their old names."""
    folder = Path(folder)
    names = [path.stem for path in sorted(folder.glob("*.h5")) if path.name != PACKED_RUNS]
    known = _packed_names(folder)
    runs = {name: read_run(folder / f"{name}.h5") for name in sorted({*names, *known})}
    content = io.BytesIO()
    with h5py.File(content, "w", libver=("v110", "v110")) as file:
        for name, run in runs.items():
            _fill(file.create_group(name), run)
    write_atomically(folder / PACKED_RUNS, content.getvalue())
    for name in names:
        (folder / f"{name}.h5").unlink()


def has_run(run_file: Path | str) -> bool:
    """Whether a run was kept, in its own file or packed."""
    return Path(run_file).exists() or Path(run_file).stem in _packed_names(Path(run_file).parent)


def _packed_names(folder: Path) -> list[str]:
    try:
        with h5py.File(folder / PACKED_RUNS, "r") as file:
            return list(map(str, file))
    except (OSError, RuntimeError):
        return []


def read_run(run_file: Path | str) -> Run:
    """Read a run from its file or, where there is none, from the folder's packed runs."""
    run_file = Path(run_file)
    packed = not run_file.exists() and has_run(run_file)
    try:
        with h5py.File(run_file.with_name(PACKED_RUNS) if packed else run_file, "r") as file:
            group = file[run_file.stem] if packed else file
            facts = {key: v.decode() if isinstance(v, bytes) else v for key, v in group.attrs.items()}
            run = Run(np.asarray(file[f"{run_file.stem}/T" if packed else "T"]), facts)
    except FileNotFoundError:
        raise
    except (OSError, KeyError, RuntimeError) as error:
        raise ValueError(f"{run_file} is not a complete run file ({error}); remove it and solve it again.") from error
    if run.temperature.ndim != 2 or run.temperature.shape[1] != len(TIMES):
        raise ValueError(f"{run_file} holds a temperature of shape {run.temperature.shape}; remove it and solve again.")
    return run


def case_from_run(run: Run, name: str, points: int = POINTS, jitter: float = 0.0, seed: int = 0) -> Case:
    """A case on its coarse mesh, with the truth interpolated to the points."""
    velocity, diffusivity, inlet_temperature = parse_name(name)
    mesh = coarse_mesh(name, points, jitter, seed)
    truth = inlet_temperature * run.at(mesh.points[:, 0].numpy())
    targets = {"T": torch.from_numpy(truth)}
    return advection_diffusion_case(mesh, velocity, diffusivity, inlet_temperature, targets, name)


def write_case(folder: Path, velocity: float, diffusivity: float, profile: Profile) -> None:
    """Write an OpenFOAM case with T̂ = 1, ready for blockMesh and scalarTransportFoam."""
    vector = np.array([velocity, 0.0, 0.0])
    square = Block(((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)), (int(profile.cells), CELLS_ACROSS))
    patches = {name: ("patch", sides) for name, sides in _SIDES.items()}

    def inlet_at(value: Any) -> dict[str, dict[str, Any]]:
        fixed = {"type": "fixedValue", "value": Uniform(value)}
        return {"inlet": fixed, "side": {"type": "zeroGradient"}, "frontAndBack": {"type": "empty"}}

    running.write_case(
        folder,
        block_mesh=running.block_mesh_dictionary([square], patches, THICKNESS),
        control={
            "application": "scalarTransportFoam",
            "endTime": END_TIME,
            "deltaT": profile.time_step,
            "writeInterval": round(TIMES[0] / profile.time_step),
        },
        schemes=SCHEMES,
        solution={"solvers": SOLVERS, "SIMPLE": {"nNonOrthogonalCorrectors": 0}},
        constant={"transportProperties": {"DT": (openfoam.VISCOSITY, diffusivity)}},
        fields={
            "U": running.NewField(openfoam.VELOCITY, vector, inlet_at(vector)),
            "T": running.NewField(openfoam.TEMPERATURE, 0.0, inlet_at(1.0)),
        },
    )


def exact_temperature(
    x: Float[np.ndarray, " points"], times: tuple[float, ...], velocity: float, diffusivity: float
) -> Float[np.ndarray, "points times"]:
    """The solution for T̂ = 1: a moving step without diffusion, otherwise a series of eigenfunctions exp(ax) sin(βx)."""
    t = np.asarray(times)
    if diffusivity == 0:
        return (x[:, None] < velocity * t).astype(float) + 0.5 * np.isclose(x[:, None], velocity * t)
    growth = velocity / (2 * diffusivity)
    # The outlet's condition is β cos β + a sin β = 0, with one root in each interval (nπ - π/2, nπ].
    low = np.pi * (np.arange(1, _TERMS) - 0.5)
    high = low + 0.5 * np.pi
    for _ in range(60):
        middle = 0.5 * (low + high)
        same = (middle * np.cos(middle) + growth * np.sin(middle)) * np.sin(low) < 0
        low, high = np.where(same, low, middle), np.where(same, middle, high)
    root = 0.5 * (low + high)
    weight = root / (growth**2 + root**2) / (0.5 - np.sin(2 * root) / (4 * root))
    decay = np.exp(-(diffusivity * root**2 + velocity * growth / 2)[:, None] * t)
    return 1.0 - np.exp(growth * x)[:, None] * (np.sin(x[:, None] * root) @ (weight[:, None] * decay))
