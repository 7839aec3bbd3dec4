"""Mesh files, read in a process of their own by the command. The page has workers, which serve the same end.

Libraries trust what a file says: a wrong count ends the process that reads it, or takes all of its memory. Whoever
asked must outlive that. It is no defence against a file that takes the process over, which runs as the same user. It
loads no torch, so that it is ready in half a second.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pennpde.mesh import files
from pennpde.mesh.contents import Contents

_ROOT = str(Path(__file__).parents[2])
"""Where the package is found, which the process is told: not everybody who imports it has installed it."""


class Reader:
    """A process that reads mesh files one after the other; it is replaced if a file crashes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Have the process ready before the first file comes."""
        if self._process is None or self._process.poll() is not None:
            # Not by multiprocessing, which would run the user's script again in the new process.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))},
                stderr=subprocess.DEVNULL,  # VTK complains to the terminal, past Python
                start_new_session=True,  # Ctrl+C is meant for whoever asked, who ends this one
            )
        return self._process

    def read(self, path: Path | str) -> Contents:
        """What a file says; an error says why there is nothing."""
        return self._ask(path, files.read, path)

    def read_parts(self, paths: Sequence[Path | str], step: int | None = None) -> Contents:
        """What the files of one time say together; see `files.read_parts`."""
        return self._ask(paths[0], files.read_parts, paths, step)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):  # what was still to be written goes nowhere
                process.communicate()

    def _ask(self, path: Path | str, *call: object) -> Contents:
        with self._lock:
            process = self.start()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump((Path.cwd(), *call), process.stdin)
                process.stdin.flush()
                answer = pickle.load(process.stdout)  # noqa: S301 - from this very program
            except (EOFError, OSError, pickle.UnpicklingError):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5.0)
                self.close()
                if process.returncode == 1:  # an exception; what crashes has a signal's number
                    command = f"{sys.executable} -m {__name__}"
                    raise RuntimeError(f"The process that reads mesh files ended: {command}") from None
                raise ValueError(f"{path} is damaged so badly that reading it crashed.") from None
            except BaseException:  # Ctrl+C: what is still being answered is not the answer to the next question
                self.close()
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer


@cache
def shared() -> Reader:
    """The one of this program; it ends with the program."""
    reader = Reader()
    atexit.register(reader.close)
    return reader


def main() -> None:
    """In the process: answer until whoever asks is gone."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    import pyvista  # noqa: F401

    while True:
        try:
            folder, read, *about = pickle.load(sys.stdin.buffer)  # noqa: S301 - likewise
        except EOFError:
            return
        try:
            os.chdir(folder)
            answer = read(*about)
        except MemoryError:
            answer = ValueError(f"{about[0]} needs more memory than there is.")
        except FileNotFoundError as error:
            answer = FileNotFoundError(str(error))
        except Exception as error:
            answer = ValueError(str(error) or type(error).__name__)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
