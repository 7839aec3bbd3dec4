"""Mesh files from anybody, read in a process of their own.

VTK trusts the counts in a file: a wrong one ends the process that reads it, or takes all of its memory. A server must
outlive that.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from pennpde.mesh import Mesh, Patch

SUFFIXES = (".vtu", ".vtk", ".vtkhdf", ".msh")
MOST_POINTS = 200_000
MOST_MEMORY = 6 * 2**30
PATIENCE = 60.0


class Reader:
    """A process that reads one mesh file after the other, and is replaced when a file is its end.

    Args:
        patience: Seconds after which reading is given up.
    """

    def __init__(self, patience: float = PATIENCE):
        self.patience = patience
        self._lock = threading.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Have the process ready before the first file comes: loading libraries takes seconds."""
        with self._lock:
            self._pipe_to_process()

    def read(self, path: Path) -> Mesh:
        """A plane mesh from a file; a ValueError says why there is none."""
        if path.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{path.name} is of no known kind: choose a file that ends in {', '.join(SUFFIXES)}.")
        with self._lock:
            pipe = self._pipe_to_process()
            try:
                pipe.send(str(path))
                if not pipe.poll(self.patience):
                    raise ValueError(f"{path.name} was given up: it takes more than {self.patience:.0f} s to read.")
                kind, content = pipe.recv()
            except (EOFError, OSError):
                self._replace()
                raise ValueError(f"{path.name} is damaged so badly that reading it crashed.") from None
            except BaseException:
                self._replace()
                raise
        if kind == "error":
            raise ValueError(content)
        return _mesh_of(content)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _pipe_to_process(self) -> Connection:
        if self._process is None or not self._process.is_alive() or self._pipe is None:
            self._end()
            # A fresh interpreter: a fork would inherit torch's threads halfway through their work.
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True, name="mesh reader")
            self._process.start()
            theirs.close()
        return self._pipe

    def _replace(self) -> None:
        self._end()
        self._pipe_to_process()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _serve(pipe: Connection) -> None:
    """What the process does until its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is meant for the parent
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    # VTK complains to the terminal, past Python.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    import pyvista  # noqa: F401

    with contextlib.suppress(EOFError):
        while True:
            path = Path(pipe.recv())
            try:
                answer = "mesh", _arrays_of(_read(path))
            except MemoryError:
                answer = "error", f"{path.name} needs more than {MOST_MEMORY >> 30} GB of memory."
            except SystemExit:  # meshio's way to say that it cannot read a file
                answer = "error", f"{path.name} cannot be read: it is damaged or of another kind than its name says."
            except Exception as error:
                answer = "error", f"{path.name} cannot be read: {_reason(error, path)}"
            pipe.send(answer)


def _reason(error: Exception, path: Path) -> str:
    """What went wrong, without the folder that only we know, and without the place in VTK's source."""
    reason = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    reason = re.sub(r"ERROR: In \S+, line \d+\s+\([^)]*\): ", "", reason).replace(str(path), f" {path.name}")
    return " ".join(reason.split()) or type(error).__name__


def _read(path: Path) -> Mesh:
    mesh = Mesh.read(path)
    if mesh.number_of_points > MOST_POINTS:
        raise ValueError(
            f"it has {mesh.number_of_points:,} points, and the page takes {MOST_POINTS:,}. Use `penn predict` for it."
        )
    if mesh.space == 2:
        return mesh
    try:
        return Mesh.plane_of(mesh)
    except ValueError as error:
        raise ValueError(
            f"the page draws plane meshes, or those one cell thick in z. {error} Use `penn predict` for bodies."
        ) from None


def _arrays_of(mesh: Mesh) -> dict[str, Any]:
    """Plain arrays: tensors would travel through shared memory that dies with the process."""
    patches = {name: (patch.points, patch.facets) for name, patch in mesh.patches.items()}
    return {
        "points": mesh.points.numpy(),
        "connectivity": mesh.connectivity,
        "offsets": mesh.offsets,
        "cell_types": mesh.cell_types,
        "patches": patches,
    }


def _mesh_of(arrays: dict[str, Any]) -> Mesh:
    patches = {name: Patch(*parts) for name, parts in arrays.pop("patches").items()}
    return Mesh(torch.from_numpy(arrays.pop("points")), **arrays, patches=patches)
