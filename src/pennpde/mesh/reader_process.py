"""Mesh files, read in a process of their own by the command. The page has workers, which serve the same end.

Libraries trust what a file says: a wrong count ends the process that reads it, or takes all of its memory. Whoever
asked must outlive that. The process is told paths in a line of JSON and answers with what it found, pickled: it is a
process of this program, with the same rights. It loads no torch, so that it is ready in half a second.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pennpde.mesh import files
from pennpde.mesh.contents import Contents

_ROOT = str(Path(__file__).parents[2])
"""Where the package is found, which the process is told: not everybody who imports it has installed it."""
_KINDS = {"FileNotFoundError": FileNotFoundError}
"""Of errors; all others are ValueErrors."""


class Reader:
    """A process that reads mesh files one after the other; it is replaced if a file crashes it."""

    def __init__(self) -> None:
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
        if isinstance(answer, Contents):
            return answer
        kind, message = answer
        for path in paths:
            message = message.replace(str(path.absolute()), str(path))
        raise _KINDS.get(kind, ValueError)(message)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(
        self, process: subprocess.Popen[bytes], paths: Sequence[Path], how: Mapping[str, object]
    ) -> Contents | tuple[str, str]:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            request = {"paths": [str(path.absolute()) for path in paths], **how}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return pickle.load(process.stdout)  # noqa: S301  what our own process sends
        except (EOFError, OSError, pickle.UnpicklingError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
            failed_to_start = process.returncode == 1  # an exception; what crashes has a signal's number
            self._end()
            if failed_to_start:
                raise RuntimeError(f"The process that reads mesh files ended: {sys.executable} -m {__name__}") from None
            raise ValueError(f"{paths[0]} is damaged so badly that reading it crashed.") from None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
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
    """The one of this program; it ends with the program."""
    reader = Reader()
    atexit.register(reader.close)
    return reader


# In the process


def main() -> None:
    """Answer until whoever asks is gone."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    import pyvista  # noqa: F401

    for line in sys.stdin.buffer:
        pickle.dump(_answer(**json.loads(line)), answers)
        answers.flush()


def _answer(paths: list[str], parts: bool = False, step: int | None = None) -> Contents | tuple[str, str]:
    """What files say, or the kind of the error and its message."""
    try:
        return files.read_parts(paths, step) if parts else files.read(paths[0])
    except MemoryError:
        return "ValueError", f"{paths[0]} needs more than the memory that there is."
    except Exception as error:
        return type(error).__name__, str(error) or type(error).__name__


if __name__ == "__main__":
    main()
