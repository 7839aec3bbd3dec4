"""Settings of OpenFOAM that the sweep measures: by name, resolution and way of solving.

A name is FAMILY-CELLS-STEP, such as `gamg-smooth-22.5-0.01`: the way of solving, cells per unit length, and the time
step, or `co0.9` for one that adapts to a largest Courant number. `@3` behind it keeps it to three cases. Any numbers
will do, so a sweep can be widened without a change here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pennlab.datasets.flow import truth as flow_truth
from pennlab.datasets.flow.truth import END_TIME
from pennlab.datasets.profile import Profile
from pennpde import openfoam
from pennpde.models.designs import Duct

LINEAR_UPWIND = "Gauss linearUpwind grad(U)"


def _gamg(tolerance: float, relative: float = 0.0) -> dict[str, Any]:
    return {"solver": "GAMG", "smoother": "GaussSeidel", "tolerance": tolerance, "relTol": relative}


def _smooth(tolerance: float, relative: float = 0.0) -> dict[str, Any]:
    return {"solver": "smoothSolver", "smoother": "symGaussSeidel", "tolerance": tolerance, "relTol": relative}


@dataclass(frozen=True)
class Family:
    """How OpenFOAM solves, whatever the resolution.

    Attributes:
        about: in words, for tables.
        pressure: linear solver of the pressure.
        final_pressure: the same in the last corrector of a step.
        velocity: linear solver of the velocity.
        correctors: pressure corrections a step.
        non_orthogonal: repetitions of each on skewed meshes.
        outer: repetitions of the whole step, for time steps beyond PISO's reach.
        time_scheme: OpenFOAM's name.
        convection: OpenFOAM's scheme of div(phi,U).
        program: icoFoam, or pimpleFoam where the time step is to adapt or a step is to be repeated.
        paper: headings of the paper's table for this pair of linear solvers, as printed.
    """

    about: str
    pressure: Mapping[str, Any]
    final_pressure: Mapping[str, Any]
    velocity: Mapping[str, Any]
    correctors: int = 2
    non_orthogonal: int = 0
    outer: int = 1
    time_scheme: str = "backward"
    convection: str = LINEAR_UPWIND
    program: str = "icoFoam"
    paper: tuple[str, str] | None = None


def _paper(pressure: Mapping[str, Any], velocity: Mapping[str, Any], printed: tuple[str, str], about: str) -> Family:
    return Family(about, pressure, pressure, velocity, non_orthogonal=1, time_scheme="Euler", paper=printed)


_LOOSE = (_gamg(1e-3, 0.1), _gamg(1e-3, 0.05), _smooth(1e-3, 0.1))

# The paper's text says GAMG for p and smooth for u; the headings of its table have the two the other way round. The
# rows of the table are those of the text, read with the text's meaning.
FAMILIES: Mapping[str, Family] = {
    "gamg-smooth": _paper(_gamg(1e-6), _smooth(1e-6), ("GAMG", "Smooth"), "the paper's: GAMG for p, smooth for u"),
    "gamg-gamg": _paper(_gamg(1e-6), _gamg(1e-6), ("GAMG", "GAMG"), "the paper's: GAMG for p and u"),
    "smooth-smooth": _paper(_smooth(1e-6), _smooth(1e-6), ("Smooth", "Smooth"), "the paper's: smooth for p and u"),
    "loose": Family("tolerances of 1e-3, no non-orthogonal corrector, Euler", *_LOOSE, time_scheme="Euler"),
    "tuned": Family("tolerances of 1e-3, no non-orthogonal corrector, second order in time", *_LOOSE),
    "tuned-lust": Family("tuned, with LUST convection", *_LOOSE, convection="Gauss LUST grad(U)"),
    "careful": Family("tuned, with a non-orthogonal corrector", *_LOOSE, non_orthogonal=1),
    "careful-lust": Family(
        "tuned, with LUST and a non-orthogonal corrector", *_LOOSE, non_orthogonal=1, convection="Gauss LUST grad(U)"
    ),
    "tight": Family(
        "tolerances of 1e-6, second order in time", _gamg(1e-6, 0.1), _gamg(1e-6), _smooth(1e-6), non_orthogonal=1
    ),
    "one-corrector": Family("loose, with a single corrector", *_LOOSE, correctors=1, time_scheme="Euler"),
    "adaptive": Family("loose, with a time step that adapts", *_LOOSE, time_scheme="Euler", program="pimpleFoam"),
    "outer": Family("loose, each step repeated twice", *_LOOSE, outer=3, time_scheme="Euler", program="pimpleFoam"),
}

_NAME = re.compile(r"(?P<family>[a-z-]+)-(?P<cells>[\d.]+)-(?P<adaptive>co)?(?P<step>[\d.]+)(@(?P<cases>\d+))?")
_MOST_CELLS = 180.0
_LARGEST_STEP = 1.0
_FIRST_STEP = 0.05
"""Of a time step that adapts, in units of Courant number / cells: small, and grown from there."""


@dataclass(frozen=True)
class Setting:
    """One way of solving at one resolution.

    Attributes:
        family: a key of `FAMILIES`.
        cells: per unit length.
        time_step: where it is fixed.
        courant: the largest Courant number, where the time step adapts.
    """

    family: str
    cells: float
    time_step: float | None = None
    courant: float | None = None

    @property
    def name(self) -> str:
        step = f"{self.time_step:g}" if self.time_step is not None else f"co{self.courant:g}"
        return f"{self.family}-{self.cells:g}-{step}"

    @property
    def program(self) -> str:
        return FAMILIES[self.family].program

    def dictionaries(self) -> dict[str, Any]:
        """All settings of OpenFOAM except the mesh: with the case they determine a result."""
        family = FAMILIES[self.family]
        velocity = {"U": family.velocity, "UFinal": family.velocity}
        correctors = {"nCorrectors": family.correctors, "nNonOrthogonalCorrectors": family.non_orthogonal}
        reference = {"pRefCell": 0, "pRefValue": 0}
        if family.program == "pimpleFoam":
            repeated = {"nOuterCorrectors": family.outer, "consistent": family.outer > 1}
            algorithms = {"PIMPLE": {**repeated, **correctors, **reference}}
        else:
            algorithms = {"PISO": {**correctors, **reference}}
        # Only the end is written: a user who wants t = 4 would not write forty frames.
        control: dict[str, Any] = {"application": family.program, "writeControl": "runTime", "writeInterval": END_TIME}
        if self.courant is not None:
            control |= {"adjustTimeStep": True, "maxCo": self.courant, "maxDeltaT": _LARGEST_STEP}
            control |= {"writeControl": "adjustableRunTime"}
        return {
            "cells": self.cells,
            "time_step": self.first_step,
            "schemes": {
                **flow_truth.SCHEMES,
                "ddtSchemes": {"default": family.time_scheme},
                "divSchemes": {
                    **flow_truth.SCHEMES["divSchemes"],
                    "div(phi,U)": family.convection,
                    "div((nuEff*dev2(T(grad(U)))))": "Gauss linear",
                },
            },
            "solvers": {
                "Phi": flow_truth.SOLVERS["Phi"],
                "p": family.pressure,
                "pFinal": family.final_pressure,
                **velocity,
            },
            "algorithms": algorithms,
            "control": control,
        }

    @property
    def first_step(self) -> float:
        if self.time_step is not None:
            return self.time_step
        assert self.courant is not None
        return _FIRST_STEP * self.courant / self.cells

    def write(self, folder: Path, shape: Duct) -> None:
        """Write the OpenFOAM case of a duct."""
        told = self.dictionaries()
        constant = {
            "transportProperties": {"transportModel": "Newtonian", "nu": (openfoam.VISCOSITY, flow_truth.VISCOSITY)},
            "turbulenceProperties": {"simulationType": "laminar"},
        }
        flow_truth.write_case(
            folder,
            shape,
            Profile(told["cells"], told["time_step"]),
            schemes=told["schemes"],
            solvers=told["solvers"],
            algorithms=told["algorithms"],
            control=told["control"],
            constant=constant if self.program == "pimpleFoam" else None,
        )


@dataclass(frozen=True)
class Planned:
    """A setting, and how many cases it is measured on at most."""

    setting: Setting
    cases: int | None = None


def parse(text: str) -> Planned:
    """A setting from its name."""
    found = _NAME.fullmatch(text.strip())
    if found is None or found["family"] not in FAMILIES:
        raise ValueError(
            f"{text!r} names no setting of OpenFOAM. A name is FAMILY-CELLS-STEP, such as gamg-smooth-22.5-0.01 or "
            f"adaptive-22.5-co0.9, with the suffix @3 for only three cases; the families are {', '.join(FAMILIES)}. "
            f"Whole groups are {', '.join(GROUPS)}."
        )
    try:
        cells, step = float(found["cells"]), float(found["step"])
    except ValueError:
        raise ValueError(f"{text!r}: {found['cells']!r} or {found['step']!r} is not a number.") from None
    limit = None if found["cases"] is None else int(found["cases"])
    if not 2 <= cells <= _MOST_CELLS:
        raise ValueError(f"{text!r} asks for {cells:g} cells per unit length; 2 to {_MOST_CELLS:g} are possible.")
    if limit == 0:
        raise ValueError(f"{text!r} asks for no case; the number behind @ is at least 1.")
    family = found["family"]
    if found["adaptive"]:
        if FAMILIES[family].program != "pimpleFoam":
            raise ValueError(f"{text!r}: icoFoam's time step cannot adapt; take adaptive-{cells:g}-co{step:g}.")
        if not 0 < step <= 50:
            raise ValueError(f"{text!r} asks for a Courant number of {step:g}; it is above 0 and at most 50.")
        return Planned(Setting(family, cells, courant=step), limit)
    if not 0 < step <= _LARGEST_STEP:
        raise ValueError(f"{text!r} has a time step of {step:g}; it is above 0 and at most {_LARGEST_STEP:g}.")
    if abs(round(END_TIME / step) * step - END_TIME) > 1e-9:
        raise ValueError(f"{text!r}: steps of {step:g} do not end at t = {END_TIME:g}; take one that divides it.")
    return Planned(Setting(family, cells, time_step=step), limit)


def read(texts: Iterable[str]) -> tuple[Planned, ...]:
    """Settings and groups, each text one of them or several with commas between; none: the group `default`."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()] or ["default"]
    plan: dict[Setting, Planned] = {}
    for name in names:
        for each in map(parse, GROUPS.get(name, (name,))):
            before = plan.get(each.setting)
            # Asked for twice, a setting gets the larger number of cases.
            if before is None or (before.cases is not None and (each.cases is None or each.cases > before.cases)):
                plan[each.setting] = each
    return tuple(plan.values())


_TUNED = (
    "tuned-9-0.05",
    "tuned-11.25-0.05",
    "tuned-15-0.04",
    "tuned-22.5-0.05",
    "tuned-22.5-0.04",
    "tuned-22.5-0.02",
    "tuned-30-0.02",
    "tuned-45-0.01",
    "loose-22.5-0.05",
    "loose-22.5-0.02",
    "tuned-lust-22.5-0.02",
    "tuned-lust-45-0.01@10",
    "adaptive-15-co0.9",
    "adaptive-22.5-co0.9",
    "outer-22.5-0.1",
    "one-corrector-22.5-0.02",
    "careful-22.5-0.04",
    "careful-30-0.02",
    "careful-45-0.02",
    "careful-45-0.01",
    "careful-60-0.01",
    "careful-lust-22.5-0.02",
    "careful-lust-30-0.02",
    "careful-lust-45-0.02",
    "careful-lust-60-0.02",
    "careful-lust-60-0.01",
)
GROUPS: Mapping[str, tuple[str, ...]] = {
    # Five hours on one core for 25 cases. With more than 22.5 cells one to five of them are measured, and what takes
    # hours is left out: smooth-smooth with more cells or shorter steps.
    "default": (
        "gamg-smooth-22.5-0.05",
        "gamg-smooth-22.5-0.01",
        "gamg-smooth-22.5-0.005",
        "gamg-smooth-22.5-0.001",
        "gamg-smooth-45-0.05@5",
        "gamg-smooth-45-0.01@5",
        "gamg-smooth-45-0.005@5",
        "gamg-smooth-45-0.001@5",
        "gamg-smooth-90-0.05@3",
        "gamg-smooth-90-0.01@1",
        "gamg-smooth-90-0.005@1",
        "gamg-smooth-90-0.001@1",
        "gamg-gamg-22.5-0.05",
        "gamg-gamg-22.5-0.01",
        "gamg-gamg-22.5-0.005",
        "gamg-gamg-22.5-0.001",
        "gamg-gamg-45-0.05@5",
        "gamg-gamg-45-0.01@5",
        "gamg-gamg-45-0.005@5",
        "gamg-gamg-45-0.001@5",
        "gamg-gamg-90-0.05@1",
        "gamg-gamg-90-0.01@1",
        "gamg-gamg-90-0.005@1",
        "smooth-smooth-22.5-0.05",
        "smooth-smooth-22.5-0.01",
        "smooth-smooth-22.5-0.005",
        "smooth-smooth-45-0.05@5",
        "smooth-smooth-45-0.01@5",
        *_TUNED,
    ),
    "paper": tuple(
        f"{family}-{cells}-{step}"
        for family in ("gamg-smooth", "gamg-gamg", "smooth-smooth")
        for cells in ("22.5", "45", "90")
        for step in ("0.05", "0.01", "0.005", "0.001")
    ),
    "tuned": _TUNED,
}
