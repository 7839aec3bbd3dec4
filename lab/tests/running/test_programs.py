"""Running OpenFOAM's programs: progress, divergence, failure, and what is installed."""

import time
from pathlib import Path

import pytest

from pennlab import running


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a shell script that stands in for one of OpenFOAM's programs."""
    programs, project = tmp_path / "bin", tmp_path / "project"
    programs.mkdir()
    (project / "etc").mkdir(parents=True)
    (project / "etc" / "controlDict").touch()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("WM_PROJECT_DIR", str(project))

    def make(name: str, script: str) -> Path:
        path = programs / name
        help_text = "echo 'Using: OpenFOAM-v2406 (2406) - visit www.openfoam.com'; exit 0"
        path.write_text(f'#!/bin/sh\nif [ "$1" = -help ]; then {help_text}; fi\n{script}\n')
        path.chmod(0o755)
        return tmp_path

    return make


STEP = """cat <<'END'
Courant Number mean: 0.1 max: {courant}
Time = {time}

smoothSolver:  Solving for Ux, Initial residual = 0.5, Final residual = 1e-7, No Iterations 2
GAMG:  Solving for p, Initial residual = {residual}, Final residual = 1e-7, No Iterations 9
END
"""


def test_progress_is_reported_after_every_step(program):
    steps = [(0.5, 0.1, 0.9), (0.8, 0.2, 0.3), (0.4, 0.3, 0.2)]
    folder = program("solver", "".join(STEP.format(courant=c, time=t, residual=r) for c, t, r in steps))
    heard = []
    last = running.run(folder, "solver", on_progress=heard.append)
    assert [(step.time, step.residuals["p"]) for step in heard] == [(t, r) for _, t, r in steps]
    assert last.time == 0.3
    assert last.largest_courant == 0.8
    assert "Courant" in (folder / "log.solver").read_text()


@pytest.mark.parametrize("courant", ["1e6", "nan", "-nan", "inf"])
def test_a_courant_number_without_bound_is_divergence(program, courant):
    folder = program("solver", STEP.format(courant=courant, time=0.1, residual=1) + "sleep 60")
    started = time.monotonic()
    with pytest.raises(running.DivergenceError, match="Courant number") as caught:
        running.run(folder, "solver")
    assert "Solving" in caught.value.log_tail or "Courant" in caught.value.log_tail
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("script", ["echo '#1 Foam::sigFpe::sigHandler(int)'; exit 1", "kill -FPE $$"])
def test_a_floating_point_exception_is_divergence(program, script):
    with pytest.raises(running.DivergenceError, match="floating-point"):
        running.run(program("solver", script), "solver")


def test_a_short_log_that_says_that_exceptions_are_trapped_is_none(program):
    folder = program("solver", "echo 'trapFpe: Floating point exception trapping enabled (FOAM_SIGFPE).'")
    running.run(folder, "solver")


def test_a_failure_shows_the_end_of_the_log(program):
    folder = program("solver", "echo '--> FOAM FATAL ERROR: keyword nu is undefined'; exit 1")
    with pytest.raises(running.OpenFOAMError, match="nu is undefined"):
        running.run(folder, "solver")


@pytest.mark.slow
def test_a_program_that_hangs_is_ended(program):
    started = time.monotonic()
    with pytest.raises(running.OpenFOAMError, match=r"ended after 0\.5 s"):
        running.run(program("solver", "exec sleep 60"), "solver", timeout=0.5)
    assert time.monotonic() - started < 30


def test_the_installation_says_its_version(program):
    program("solver", "")
    found = running.find_installation(("solver",))
    assert found.version == "2406"
    assert found.environment()["WM_PROJECT_DIR"] == str(found.project)


def test_a_missing_installation_says_how_to_get_one(program, monkeypatch):
    program("other", "")
    with pytest.raises(running.InstallationError, match="apt install openfoam"):
        running.find_installation(("solver",))
    with pytest.raises(running.InstallationError, match="apt install openfoam"):
        running.run(".", "solver")


def test_a_program_that_does_not_start_is_no_installation(program):
    folder = program("solver", "")
    (folder / "bin" / "solver").write_text("#!/bin/sh\necho broken library; exit 127\n")
    with pytest.raises(running.InstallationError, match="broken library"):
        running.find_installation(("solver",))
