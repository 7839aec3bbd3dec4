"""Meshes and cases that users upload, as arrays or as a problem of the network's equation.

VTK trusts the counts in a file: a wrong one ends the process that reads it, or takes all of its memory. So this runs in
a process of its own (`workers`), with a limit of memory.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from pennpde import plugins
from pennpde.case import Case
from pennpde.mesh import Mesh, Patch
from pennpde.mesh.files import WRITABLE
from pennpde.openfoam.problems import read_problem
from pennpde.penn import Equation
from pennpde.viewer.archives import case_folder, unpack

MOST_POINTS = 200_000


def suffixes() -> tuple[str, ...]:
    """Of the mesh files that the page takes."""
    return (*WRITABLE, ".msh", *sorted(plugins.formats()))


def read_mesh(path: Path) -> Mesh:
    """A plane mesh from a file; a ValueError says why there is none, with the name of the file."""
    if path.suffix.lower() not in suffixes():
        raise ValueError(
            f"{path.name} is of no known kind: choose a file that ends in {', '.join(suffixes())}, or an "
            "OpenFOAM case as .zip."
        )
    with named(path):
        return _plane(Mesh.read(path))


def read_case(archive: Path, folder: Path, equation: Equation) -> Case:
    """The plane OpenFOAM case of a zip file, unpacked into a folder that this makes."""
    with named(archive):
        unpack(archive, folder)
        return open_case(folder, equation)


def open_case(folder: Path, equation: Equation) -> Case:
    """The case of an unpacked archive."""
    found = case_folder(folder)
    try:
        case = read_problem(found, equation)
    except Exception as error:
        # Users know their case by its own name, not by the folder that it was unpacked to.
        raise ValueError(words_of(error).replace(f"{found}/", "").replace(str(found), "the case")) from error
    if unknown := [each.text for each in case.remarks if each.other_physics]:
        raise ValueError(f"the case has physics that the network does not know: {' '.join(unknown)}")
    _check_size(case.mesh)
    if case.space != 2:
        raise ValueError(
            "the page draws plane cases, those one cell thick between `empty` patches. Use `penn predict`."
        )
    return case


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors as one sentence that begins with the name of the file."""
    try:
        yield
    except MemoryError:
        raise ValueError(f"{path.name} needs more memory than the page has for it.") from None
    except (SystemExit, UnicodeDecodeError):  # meshio's ways to say that it cannot read a file
        raise ValueError(f"{path.name} cannot be read: it is not a mesh, or it is damaged.") from None
    except Exception as error:
        raise ValueError(_reason(error, path)) from error


def words_of(error: BaseException) -> str:
    """What went wrong. Errors about wrong input explain themselves; any other needs its kind."""
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    plain = message and isinstance(error, ValueError | KeyError | OSError)
    return message if plain else f"{type(error).__name__}: {message}"


def _check_size(mesh: Mesh) -> None:
    if mesh.number_of_points > MOST_POINTS:
        raise ValueError(
            f"it has {mesh.number_of_points:,} points, and the page takes {MOST_POINTS:,}. Use `penn predict` for it."
        )


def _plane(mesh: Mesh) -> Mesh:
    _check_size(mesh)
    if mesh.space == 2:
        return mesh
    try:
        return Mesh.plane_of(mesh)
    except ValueError as error:
        raise ValueError(
            f"the page draws plane meshes, or those one cell thick in z. {error} Use `penn predict` for bodies."
        ) from None


def _reason(error: Exception, path: Path) -> str:
    """What went wrong, without the folder that only we know, and without VTK's view of its own inside."""
    reason = words_of(error)
    reason = re.sub(r"ERROR: In \S+, line \d+\s+\([^)]*\): ", "", reason).replace(str(path), f" {path.name}")
    reason = re.sub(r":?\s*The VTK reader `.*", ".", reason, flags=re.DOTALL)
    reason = " ".join(reason.split()) or type(error).__name__
    return reason if reason.startswith(path.name) else f"{path.name} cannot be read: {reason}"


def arrays_of(mesh: Mesh) -> dict[str, np.ndarray]:
    arrays = {
        "points": mesh.points.numpy(),
        "connectivity": mesh.connectivity,
        "offsets": mesh.offsets,
        "cell_types": mesh.cell_types,
        "patches": np.array(list(mesh.patches), dtype=str),
        "notes": np.array(mesh.notes, dtype=str),
    }
    for number, patch in enumerate(mesh.patches.values()):
        arrays |= {f"points of {number}": patch.points, f"facets of {number}": patch.facets}
    return arrays


def mesh_of(arrays: Mapping[str, np.ndarray]) -> Mesh:
    patches = {
        str(name): Patch(arrays[f"points of {number}"], arrays[f"facets of {number}"])
        for number, name in enumerate(arrays["patches"])
    }
    return Mesh(
        torch.from_numpy(arrays["points"]),
        arrays["connectivity"],
        arrays["offsets"],
        arrays["cell_types"],
        patches=patches,
        notes=tuple(map(str, arrays["notes"])),
    )
