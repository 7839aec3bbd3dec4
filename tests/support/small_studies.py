"""Studies that take seconds: a step whose ramp, viscosity and inlet vary, on a mesh of some hundred points."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from pennpde.case import Case
from pennpde.models.designs import coarse_mesh, flow_through
from pennpde.study import Study

QUANTITIES = ["pressure drop inlet outlet", "flow rate outlet"]


def step(ramp: float) -> Case:
    """A step; one that is too steep cannot be meshed."""
    if ramp > 0.95:
        raise ValueError("the ramp is too steep")
    return flow_through(coarse_mesh(f"a_{ramp:.2f}", cells_per_length=7), 1.0, 1e-2)


def deadly(ramp: float) -> Case:
    """One of its shapes takes the process with it."""
    if ramp > 0.95:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(ramp)


def slow(ramp: float) -> Case:
    """Time enough to be stopped."""
    time.sleep(0.3)
    return step(ramp)


def small(function: Any = step, **changes: Any) -> Study:
    """Six designs of two shapes."""
    vary = {"ramp": [0.0, 0.4], "viscosity": "0.01:0.02:3"}
    given = {"vary": vary, "quantities": QUANTITIES, "level": "fast", "times": 1.0}
    return Study(function, **(given | changes))


def write_problem(folder: Path) -> Path:
    """A mesh file with its conditions and a study of them."""
    coarse_mesh("a_0.30", cells_per_length=7).save(folder / "step.vtu")
    (folder / "step.toml").write_text(
        "[dirichlet.u]\ninlet = [1.0, 0.0]\nwall = 0.0\n[dirichlet.p]\noutlet = 0.0\n"
        "[neumann]\nu = 0.0\np = 0.0\n[parameters]\nviscosity = 0.01\n",
        encoding="utf-8",
    )
    (folder / "study.toml").write_text(
        'input = "step.vtu"\nproblem = "step.toml"\nlevel = "fast"\ntimes = [1.0]\n'
        'quantities = ["pressure drop inlet outlet"]\n[vary]\nviscosity = "0.01:0.02:3"\n"inlet.u" = [0.5, 1.0]\n',
        encoding="utf-8",
    )
    return folder / "study.toml"
