"""Uploaded mesh files: read in a process of their own, within limits, as plane meshes."""

from __future__ import annotations

import re
from pathlib import Path

from pennpde.mesh import Mesh, reader_process

SUFFIXES = (".vtu", ".vtk", ".vtkhdf", ".msh", ".su2", ".unv", ".cgns")
MOST_POINTS = 200_000
MOST_MEMORY = 6 * 2**30
PATIENCE = 60.0


class Reader:
    """Reads the files of the page's users; whatever they hold, the server lives on.

    Args:
        patience: Seconds after which reading is given up.
    """

    def __init__(self, patience: float = PATIENCE):
        self._process = reader_process.Reader(patience, MOST_MEMORY)

    def start(self) -> None:
        """Have the process ready before the first file comes: loading libraries takes a while."""
        self._process.start()

    def read(self, path: Path) -> Mesh:
        """A plane mesh from a file; a ValueError says why there is none."""
        if path.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{path.name} is of no known kind: choose a file that ends in {', '.join(SUFFIXES)}.")
        try:
            return self._plane(path)
        except (ValueError, OSError) as error:
            raise ValueError(_reason(error, path)) from None

    def close(self) -> None:
        self._process.close()

    def _plane(self, path: Path) -> Mesh:
        contents = self._process.read(path)
        number = len(contents.points)
        if number > MOST_POINTS:
            raise ValueError(
                f"it has {number:,} points, and the page takes {MOST_POINTS:,}. Use `penn predict` for it."
            )
        mesh = Mesh.from_contents(contents)
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
    reason = re.sub(r"ERROR: In \S+, line \d+\s+\([^)]*\): ", "", str(error))
    reason = reason.replace(str(path.absolute()), f" {path.name}").replace(str(path), f" {path.name}")
    reason = re.sub(r":?\s*The VTK reader `.*", ".", reason, flags=re.DOTALL)
    reason = " ".join(reason.split()) or type(error).__name__
    return reason if reason.startswith(path.name) else f"{path.name} cannot be read: {reason}"
