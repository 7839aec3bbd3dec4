"""Mesh files, read in a process of their own by the command. The page has workers, which serve the same end.

Libraries trust what a file says: a wrong count ends the process that reads it, or takes all of its memory. Whoever
asked must outlive that. The process is told paths in a line of JSON and answers with an archive of arrays, behind the
number of its bytes; nothing is unpickled. It loads no torch, so that it is ready in half a second.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np

from pennpde.mesh import files
from pennpde.mesh.cells import Cells, Facets
from pennpde.mesh.contents import Contents

_ROOT = str(Path(__file__).parents[2])
"""Where the package is found, which the process is told: not everybody who imports it has installed it."""


class Reader:
    """A process that reads mesh files one after the other; it is replaced if a file crashes it.

    Args:
        patience: Seconds after which reading is given up; None: never.
        most_memory: Bytes that it may take; None: all that there are.
    """

    def __init__(self, patience: float | None = None, most_memory: int | None = None):
        self.patience, self.most_memory = patience, most_memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have the process ready before the first file comes."""
        with self._lock:
            self._running()

    def read(self, path: Path | str) -> Contents:
        """What a file says; an error says why there is nothing."""
        return self._read([Path(path)], {})

    def read_parts(self, paths: Sequence[Path | str], step: int | None = None) -> Contents:
        """What the files of one time say together; see `files.read_parts`."""
        return self._read([Path(path) for path in paths], {"parts": True, "step": step})

    def _read(self, paths: Sequence[Path], how: Mapping[str, object]) -> Contents:
        with self._lock:
            answer = self._ask(self._running(), paths, how)
        if "error" in answer:
            kind = FileNotFoundError if str(answer["kind"]) == "FileNotFoundError" else ValueError
            message = str(answer["error"])
            for path in paths:
                message = message.replace(str(path.absolute()), str(path))
            raise kind(message)
        return _contents_of(answer)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(
        self, process: subprocess.Popen[bytes], paths: Sequence[Path], how: Mapping[str, object]
    ) -> Mapping[str, np.ndarray]:
        assert process.stdin is not None
        assert process.stdout is not None
        given_up = threading.Event()

        def give_up() -> None:
            given_up.set()
            process.kill()

        alarm = threading.Timer(self.patience or 0.0, give_up)
        if self.patience is not None:
            alarm.start()
        try:
            request = {"paths": [str(path.absolute()) for path in paths], **how}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return _received(process.stdout)
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
            failed_to_start = process.returncode == 1  # an exception; what crashes has a signal's number
            self._end()
            if failed_to_start:
                raise RuntimeError(f"The process that reads mesh files ended: {sys.executable} -m {__name__}") from None
            if given_up.is_set():
                raise ValueError(
                    f"{paths[0]} was given up: it takes more than {self.patience:.0f} s to read."
                ) from None
            raise ValueError(f"{paths[0]} is damaged so badly that reading it crashed.") from None
        finally:
            alarm.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.most_memory or 0)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))},
                stderr=subprocess.DEVNULL,  # VTK complains to the terminal, past Python
                start_new_session=True,  # Ctrl+C is meant for whoever asked, who ends this one
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


@cache
def shared() -> Reader:
    """The one of this program, without limits; it ends with the program."""
    reader = Reader()
    atexit.register(reader.close)
    return reader


# In the process


def main(most_memory: int) -> None:
    """Answer until whoever asks is gone."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if most_memory:
            resource.setrlimit(resource.RLIMIT_DATA, (most_memory, most_memory))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    import pyvista  # noqa: F401

    for line in sys.stdin.buffer:
        request = json.loads(line)
        path, step = request["paths"][0], request.get("step")
        try:
            said = files.read_parts(request["paths"], step) if request.get("parts") else files.read(path)
            answer = _arrays_of(said)
        except MemoryError:
            limit = f"{most_memory >> 30} GB of memory" if most_memory else "the memory that there is"
            answer = {"error": np.array(f"{path} needs more than {limit}."), "kind": np.array("ValueError")}
        except Exception as error:
            answer = {"error": np.array(str(error) or type(error).__name__), "kind": np.array(type(error).__name__)}
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


# What goes from one to the other. Names of fields and patches are values, never names of arrays: they may be anything.

_BY_NAME = ("fields", "patch_points", "patch_facets", "cell_fields")


def _arrays_of(contents: Contents) -> dict[str, np.ndarray]:
    cells = contents.cells
    arrays = {
        "points": contents.points,
        "connectivity": cells.connectivity,
        "offsets": cells.offsets,
        "types": cells.types,
        "notes": np.array(contents.notes, dtype=str),
        "time": np.array([] if contents.time is None else [contents.time]),
    }
    if cells.polyhedron_faces is not None:
        arrays |= _facet_arrays("faces", cells.polyhedron_faces)
    for kind in _BY_NAME:
        named = getattr(contents, kind)
        arrays[kind] = np.array(list(named), dtype=str)
        arrays |= {f"{kind} {number}": values for number, values in enumerate(named.values())}
    arrays["chosen_facets"] = np.array(list(contents.chosen_facets), dtype=str)
    for number, facets in enumerate(contents.chosen_facets.values()):
        arrays |= _facet_arrays(f"chosen_facets {number}", facets)
    return arrays


def _contents_of(arrays: Mapping[str, np.ndarray]) -> Contents:
    faces = _facets_of("faces", arrays) if "faces connectivity" in arrays else None
    fields, patch_points, patch_facets, cell_fields = (
        {str(name): arrays[f"{kind} {number}"] for number, name in enumerate(arrays[kind])} for kind in _BY_NAME
    )
    return Contents(
        arrays["points"],
        Cells(arrays["connectivity"], arrays["offsets"], arrays["types"], faces),
        fields,
        patch_points,
        patch_facets,
        {
            str(name): _facets_of(f"chosen_facets {number}", arrays)
            for number, name in enumerate(arrays["chosen_facets"])
        },
        tuple(map(str, arrays["notes"])),
        cell_fields=cell_fields,
        time=float(arrays["time"][0]) if len(arrays["time"]) else None,
    )


def _facet_arrays(label: str, facets: Facets) -> dict[str, np.ndarray]:
    parts = {"connectivity": facets.connectivity, "offsets": facets.offsets, "cells": facets.cells}
    return {f"{label} {name}": values for name, values in parts.items()}


def _facets_of(label: str, arrays: Mapping[str, np.ndarray]) -> Facets:
    return Facets(*(arrays[f"{label} {name}"] for name in ("connectivity", "offsets", "cells")))


if __name__ == "__main__":
    main(int(sys.argv[1]))
