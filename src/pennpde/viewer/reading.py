"""Uploaded mesh files, read in a separate process.

VTK trusts the counts in a file: a wrong one ends the process that reads it, or takes all of its memory. A server must
outlive that. The process is told a path in a line of JSON and answers with an archive of arrays, behind the number
of its bytes; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import torch

from pennpde.mesh import Mesh, Patch

SUFFIXES = (".vtu", ".vtk", ".vtkhdf", ".msh")
MOST_POINTS = 200_000
MOST_MEMORY = 6 * 2**30
PATIENCE = 60.0


class Reader:
    """A process that reads mesh files one after the other; it is replaced if a file crashes it.

    Args:
        patience: Seconds after which reading is given up.
    """

    def __init__(self, patience: float = PATIENCE):
        self.patience = patience
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have the process ready before the first file comes: loading libraries takes seconds."""
        with self._lock:
            self._running()

    def read(self, path: Path) -> Mesh:
        """A plane mesh from a file; a ValueError says why there is none."""
        if path.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{path.name} is of no known kind: choose a file that ends in {', '.join(SUFFIXES)}.")
        with self._lock:
            answer = self._ask(self._running(), path)
        if "error" in answer:
            raise ValueError(str(answer["error"]))
        return _mesh_of(answer)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(self, process: subprocess.Popen[bytes], path: Path) -> Mapping[str, np.ndarray]:
        assert process.stdin is not None
        assert process.stdout is not None
        given_up = threading.Event()

        def give_up() -> None:
            given_up.set()
            process.kill()

        alarm = threading.Timer(self.patience, give_up)
        alarm.start()
        try:
            process.stdin.write(json.dumps(str(path)).encode() + b"\n")
            process.stdin.flush()
            return _received(process.stdout)
        except (EOFError, OSError):
            self._end()
            self._running()  # the next one, for the next file
            if given_up.is_set():
                raise ValueError(
                    f"{path.name} was given up: it takes more than {self.patience:.0f} s to read."
                ) from None
            raise ValueError(f"{path.name} is damaged so badly that reading it crashed.") from None
        finally:
            alarm.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # VTK complains to the terminal, past Python
                start_new_session=True,  # Ctrl+C is meant for the server
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was still to be written goes nowhere
                if stream is not None:
                    stream.close()


def main() -> None:
    """What the process does until its parent is gone."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    import pyvista  # noqa: F401

    for line in sys.stdin.buffer:
        path = Path(json.loads(line))
        try:
            answer = _arrays_of(_read(path))
        except MemoryError:
            answer = {"error": np.array(f"{path.name} needs more than {MOST_MEMORY >> 30} GB of memory.")}
        except SystemExit:  # meshio's way to say that it cannot read a file
            answer = {"error": np.array(f"{path.name} cannot be read: it is not a mesh, or it is damaged.")}
        except Exception as error:
            answer = {"error": np.array(_reason(error, path))}
        _send(answers, answer)


def _send(stream: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    archive = io.BytesIO()
    np.savez(archive, **arrays)  # pyright: ignore[reportArgumentType]
    content = archive.getvalue()
    stream.write(len(content).to_bytes(8, "little") + content)
    stream.flush()


def _received(stream: IO[bytes]) -> dict[str, np.ndarray]:
    size = stream.read(8)
    content = stream.read(int.from_bytes(size, "little"))
    if len(size) < 8 or len(content) < int.from_bytes(size, "little"):
        raise EOFError("the process ended")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return dict(archive)


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


def _reason(error: Exception, path: Path) -> str:
    """What went wrong, without the folder that only we know, and without VTK's view of its own inside."""
    reason = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    reason = re.sub(r"ERROR: In \S+, line \d+\s+\([^)]*\): ", "", reason).replace(str(path), f" {path.name}")
    reason = re.sub(r":?\s*The VTK reader `.*", ".", reason, flags=re.DOTALL)
    reason = " ".join(reason.split()) or type(error).__name__
    return reason if reason.startswith(path.name) else f"{path.name} cannot be read: {reason}"


def _arrays_of(mesh: Mesh) -> dict[str, np.ndarray]:
    arrays = {
        "points": mesh.points.numpy(),
        "connectivity": mesh.connectivity,
        "offsets": mesh.offsets,
        "cell_types": mesh.cell_types,
        "patches": np.array(list(mesh.patches), dtype=str),
    }
    for number, patch in enumerate(mesh.patches.values()):
        arrays |= {f"points of {number}": patch.points, f"facets of {number}": patch.facets}
    return arrays


def _mesh_of(arrays: Mapping[str, np.ndarray]) -> Mesh:
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
    )


if __name__ == "__main__":
    main()
