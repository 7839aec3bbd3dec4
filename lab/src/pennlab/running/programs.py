"""OpenFOAM's programs: finding them, running them, following what they say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pennlab.datasets.recipe import MissingProgramError


class OpenFOAMError(RuntimeError):
    """OpenFOAM is missing, failed or diverged; `log_tail` holds the last lines it wrote."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(f"{message}\nThe end of its log:\n{log_tail}" if log_tail else message)
        self.log_tail = log_tail


class InstallationError(OpenFOAMError, MissingProgramError):
    """No OpenFOAM that works was found."""


class DivergenceError(OpenFOAMError):
    """The solver met a floating-point exception, or its Courant number grew without bound."""


_INSTALL = (
    "Install it with `sudo apt install openfoam` (Debian, Ubuntu) or from https://openfoam.com, then open a new shell "
    "or source its etc/bashrc."
)
_DEBIAN_PROJECT = "/usr/share/openfoam"


@dataclass(frozen=True)
class Installation:
    """An OpenFOAM that starts.

    Attributes:
        project: the folder that holds its `etc/controlDict`; Debian's programs do not find it by themselves.
        version: such as 1912.
        programs: where they are.
    """

    project: Path
    version: str
    programs: Mapping[str, Path] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        # A floating-point exception must stop the solver: otherwise it goes on with NaN to the end.
        return {**os.environ, "WM_PROJECT_DIR": str(self.project), "FOAM_SIGFPE": "true", "OMP_NUM_THREADS": "1"}


def find_installation(programs: Sequence[str] = ("blockMesh", "potentialFoam", "icoFoam")) -> Installation:
    """Find OpenFOAM's programs on the PATH, and the folder of its settings; the error says how to install them."""
    found: dict[str, Path] = {}
    for name in programs:
        path = shutil.which(name)
        if path is None:
            raise InstallationError(f"OpenFOAM's program {name!r} is not on the PATH. {_INSTALL}")
        found[name] = Path(path)
    first = found[programs[0]]
    # With an installation from source the programs lie in PROJECT/platforms/SYSTEM/bin.
    candidates = [os.environ.get("WM_PROJECT_DIR", ""), _DEBIAN_PROJECT, *map(str, first.resolve().parents)]
    project = next((Path(each) for each in candidates if each and (Path(each) / "etc/controlDict").is_file()), None)
    if project is None:
        raise InstallationError(
            "OpenFOAM's programs are there, but its etc/controlDict is not. Set the environment variable "
            f"WM_PROJECT_DIR to the folder that holds etc/ (Debian: {_DEBIAN_PROJECT})."
        )
    environment = Installation(project, "").environment()
    try:
        answer = subprocess.run(
            [first, "-help"], capture_output=True, text=True, errors="replace", timeout=60, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationError(f"{first} does not start: {error}. {_INSTALL}") from error
    said = answer.stdout + answer.stderr
    if answer.returncode != 0:
        raise InstallationError(f"{first} does not start. {_INSTALL}", said[-2000:])
    version = re.search(r"OpenFOAM-?v?(\w[\w.]*)?\s*(?:\((\w+)\))?", said)
    known = [group for group in version.groups() if group] if version else []
    return Installation(project, known[0] if known else "of unknown version", found)


@dataclass(frozen=True)
class Progress:
    """What a solver has said about its last time step.

    Attributes:
        time: of the flow.
        courant: the largest Courant number in the mesh.
        largest_courant: the largest one so far.
        residuals: initial residual of each unknown, as solved last.
    """

    time: float = 0.0
    courant: float = 0.0
    largest_courant: float = 0.0
    residuals: Mapping[str, float] = field(default_factory=dict)


_TIME = re.compile(r"^Time = ([0-9.eE+-]+)s?$")
_COURANT = re.compile(r"^Courant Number mean: (\S+) max: (\S+)")
# Not the line of the banner that says that such exceptions are trapped.
_FLOATING_POINT = re.compile(r"sigFpe|Floating point exception(?! trapping)")
_RESIDUAL = re.compile(r"Solving for (\w+), Initial residual = ([^\s,]+)")


def run(
    folder: Path | str,
    program: str,
    *arguments: str,
    installation: Installation | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    largest_courant: float = 50.0,
    timeout: float | None = None,
) -> Progress:
    """Run one of OpenFOAM's programs in a case folder; what it says goes to `log.PROGRAM` there.

    Args:
        folder: the case.
        program: such as "icoFoam".
        arguments: its options.
        installation: saves looking for it again.
        on_progress: is called after each time step.
        largest_courant: a Courant number beyond this, or one that is not finite, is taken for divergence.
        timeout: seconds after which the program is ended, an OpenFOAMError.
    """
    folder = Path(folder)
    installation = installation or find_installation((program,))
    path = installation.programs.get(program) or shutil.which(program)
    if path is None:
        raise InstallationError(f"OpenFOAM's program {program!r} is not on the PATH. {_INSTALL}")
    log = folder / f"log.{program}"
    follower = _Follower(on_progress)
    late = threading.Event()
    with log.open("w") as stream:
        process = subprocess.Popen(
            [str(path), *arguments],
            cwd=folder,
            env=installation.environment() | {"PWD": str(folder.resolve())},  # it warns where PWD is another folder
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None

        def end_it() -> None:
            late.set()
            process.kill()

        # A program may hang without saying anything, so the clock must not wait for its next line.
        clock = threading.Timer(timeout or threading.TIMEOUT_MAX, end_it)
        clock.daemon = True
        if timeout is not None:
            clock.start()
        diverged = False
        try:
            for line in process.stdout:
                stream.write(line)
                follower.hear(line)
                if not follower.progress.courant <= largest_courant:
                    diverged = True
                    break
            else:
                process.wait()
        finally:
            clock.cancel()
            process.kill()  # does nothing where it has ended
            process.wait()
            process.stdout.close()
    ended = f"was ended after {timeout:g} s" if late.is_set() else None
    if failure := _failure(
        f"{program} in {folder}", follower.progress, _tail(log), process.returncode, ended, diverged
    ):
        raise failure
    follower.step_done()
    return follower.progress


def _failure(
    what: str, progress: Progress, said: str, status: int, ended: str | None, diverged: bool
) -> OpenFOAMError | None:
    """What went wrong with a program that is over, from the end of its log and its exit status; None: nothing."""
    if ended is not None:
        return OpenFOAMError(f"{what} {ended}.", said)
    cause = None
    if diverged:
        cause = f"Courant number {progress.courant:g}"
    elif status == -signal.SIGFPE or _FLOATING_POINT.search(said):
        cause = "floating-point exception"
    if cause is not None:
        return DivergenceError(
            f"{what} diverged: {cause} at time {progress.time:g}. Take a smaller time step, or look at the initial "
            "velocity.",
            said,
        )
    if status != 0 or "FOAM FATAL" in said:
        return OpenFOAMError(f"{what} failed with exit status {status}.", said)
    return None


class _Follower:
    """Reads a log line by line. A step is over when the next one starts."""

    def __init__(self, on_progress: Callable[[Progress], None] | None) -> None:
        self.on_progress = on_progress
        self.progress = Progress()
        self.residuals: dict[str, float] = {}

    def hear(self, line: str) -> None:
        if match := _TIME.match(line):
            self.step_done()
            self.progress = replace(self.progress, time=_number(match[1]))
        elif match := _COURANT.match(line):
            courant = _number(match[2])
            self.progress = replace(
                self.progress, courant=courant, largest_courant=max(self.progress.largest_courant, courant)
            )
        elif match := _RESIDUAL.search(line):
            self.residuals[match[1]] = _number(match[2])

    def step_done(self) -> None:
        if self.residuals:
            self.progress = replace(self.progress, residuals=dict(self.residuals))
            self.residuals.clear()
            if self.on_progress is not None:
                self.on_progress(self.progress)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _tail(path: Path, lines: int = 40) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 8000))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-lines:])
