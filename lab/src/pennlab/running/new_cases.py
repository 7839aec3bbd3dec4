"""New OpenFOAM cases: written from dictionaries, run in a scratch folder."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pennlab.running.programs import Installation, Progress, find_installation, run
from pennpde.openfoam.dictionaries import Dimensions, Uniform, format_dictionary, format_entry
from pennpde.openfoam.poly_mesh import PolyMesh


@dataclass(frozen=True, eq=False)
class NewField:
    """A field at the start.

    Attributes:
        value: the same in every cell, a number or three.
        boundary: by patch, the entries of its condition.
    """

    dimensions: Dimensions
    value: float | np.ndarray
    boundary: Mapping[str, Mapping[str, Any]]


def write_case(
    folder: Path,
    *,
    block_mesh: str,
    control: Mapping[str, Any],
    schemes: Mapping[str, Any],
    solution: Mapping[str, Any],
    constant: Mapping[str, Mapping[str, Any]],
    fields: Mapping[str, NewField],
) -> None:
    """Write an OpenFOAM case, ready for blockMesh and a solver.

    Args:
        folder: is filled.
        block_mesh: the text of `blockMeshDict`, see `block_mesh_dictionary`.
        control: entries of `controlDict`: at least application, endTime, deltaT and writeInterval. By default a run
            starts at zero and writes every so many time steps in binary.
        schemes: `fvSchemes`.
        solution: `fvSolution`.
        constant: dictionaries of the folder `constant`, by name, such as transportProperties.
        fields: at the start, by OpenFOAM's name.
    """
    control = {
        "application": control["application"],
        "startFrom": "startTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": control["endTime"],
        "deltaT": control["deltaT"],
        "writeControl": "timeStep",
        "writeInterval": control["writeInterval"],
        "writeFormat": "binary",
        "timePrecision": 8,
        "runTimeModifiable": False,
        **control,
    }
    files = {
        "system/blockMeshDict": block_mesh,
        "system/controlDict": format_dictionary("controlDict", control),
        "system/fvSchemes": format_dictionary("fvSchemes", schemes),
        "system/fvSolution": format_dictionary("fvSolution", solution),
    }
    for name, entries in constant.items():
        files[f"constant/{name}"] = format_dictionary(name, entries)
    for name, field in fields.items():
        entries = {
            "dimensions": field.dimensions,
            "internalField": Uniform(field.value),
            "boundaryField": field.boundary,
        }
        kind = "volVectorField" if np.ndim(field.value) else "volScalarField"
        files[f"0/{name}"] = format_dictionary(name, entries, kind)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def write_mesh(case: Path | str, mesh: PolyMesh) -> None:
    """Write `constant/polyMesh` of a case, binary; patches are numbered, for their names may be anything."""
    folder = Path(case) / "constant" / "polyMesh"
    folder.mkdir(parents=True)
    _write_lists(folder / "points", "vectorField", mesh.points.astype("<f8"))
    _write_lists(folder / "owner", "labelList", mesh.owner.astype("<i4"))
    _write_lists(folder / "neighbour", "labelList", mesh.neighbour.astype("<i4"))
    _write_lists(folder / "faces", "faceCompactList", mesh.face_offsets.astype("<i4"), mesh.face_points.astype("<i4"))
    rows = [
        f"patch{place} {{ type patch; nFaces {patch.count}; startFace {patch.start}; }}"
        for place, patch in enumerate(mesh.patches.values())
    ]
    header = format_dictionary("boundary", {}, "polyBoundaryMesh")
    (folder / "boundary").write_text("\n".join([header, str(len(rows)), "(", *rows, ")", ""]))


def _write_lists(path: Path, kind: str, *lists: np.ndarray) -> None:
    """A file of bare lists, in text where they are empty: a binary list of nothing has no parentheses."""
    binary = all(len(each) for each in lists)
    layout = {"format": "binary", "arch": '"LSB;label=32;scalar=64"'} if binary else {"format": "ascii"}
    header = format_entry("FoamFile", {"version": "2.0", **layout, "class": kind, "object": path.name})
    blocks = [f"\n{len(each)}\n(".encode() + (each.tobytes() if binary else b"") + b")\n" for each in lists]
    path.write_bytes(header + b"".join(blocks))


@dataclass(frozen=True)
class Workplace:
    """A scratch folder for one case, gone at the end, and the installation that runs there."""

    folder: Path
    installation: Installation
    started: float

    def run(self, program: str, *arguments: str, on_progress: Callable[[Progress], None] | None = None) -> Progress:
        """Run one of OpenFOAM's programs, see `run`."""
        return run(self.folder, program, *arguments, installation=self.installation, on_progress=on_progress)

    def facts(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Facts stored in a file of results: name, solver, settings, computing time so far."""
        return {
            "name": name,
            "solver": f"OpenFOAM {self.installation.version}",
            "settings": json.dumps(settings),
            "seconds": time.monotonic() - self.started,
        }


@contextmanager
def workplace(
    programs: Sequence[str],
    installation: Installation | None = None,
    *,
    scratch: Path | str | None = None,
    prefix: str = "penn-",
) -> Iterator[Workplace]:
    """A place to run a case.

    Args:
        programs: what will be run, looked for unless the installation is given.
        installation: saves looking for OpenFOAM again.
        scratch: the folder to make the scratch folder in; the system's own by default.
        prefix: of the scratch folder's name.
    """
    installation = installation or find_installation(programs)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=prefix, dir=scratch) as made:
        yield Workplace(Path(made), installation, started)
