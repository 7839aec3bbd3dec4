"""Programs of others, such as meshers and OpenFOAM's solvers: run in a folder, with their last words in errors."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_DEBIAN_PROJECT = "/usr/share/openfoam"
_LAST_WORDS = 600
_ERRORS = ("FOAM FATAL", "Error   :")
"""With which OpenFOAM and Gmsh begin to say what is wrong; their exit status may be 0 all the same."""


class ProgramError(ValueError):
    """A program is missing, failed, or took too long."""


def run_program(words: Sequence[str], folder: Path, name: str, seconds: float = 600.0) -> None:
    """Run a program; what it says goes to `log.NAME` in the folder.

    Args:
        words: The program and its arguments.
        folder: In which it runs.
        name: Of its log.
        seconds: After which it is ended.
    """
    found = shutil.which(words[0])
    if found is None:
        raise ProgramError(f"The program {words[0]} is not on the PATH; install it, or source its settings.")
    log = folder / f"log.{Path(name).name}"
    # A floating-point exception must stop a solver; Debian's programs do not find their settings by themselves.
    environment = {**os.environ, "FOAM_SIGFPE": "true", "PWD": str(folder.resolve())}
    if "WM_PROJECT_DIR" not in environment and Path(_DEBIAN_PROJECT, "etc", "controlDict").is_file():
        environment["WM_PROJECT_DIR"] = _DEBIAN_PROJECT
    with log.open("wb") as stream:
        try:
            status = subprocess.run(
                [found, *words[1:]], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, timeout=seconds, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{name} was ended after {seconds:.0f} s.") from None
        except OSError as error:
            raise ProgramError(f"{name} cannot be run: {error.strerror}.") from error
    said = log.read_text(encoding="utf-8", errors="replace")
    if status or any(words in said for words in _ERRORS):
        raise ProgramError(f"{name} failed with exit status {status}. Its last words: {_last_words(said)}")


def _last_words(said: str) -> str:
    """The error, or the end of what was said, on one line."""
    start = max(map(said.rfind, _ERRORS))
    text = said[start:] if start >= 0 else said[-_LAST_WORDS:]
    return " ".join(text.split())[:_LAST_WORDS]
