"""The files of a flow for OpenFOAM: mesh, conditions, schemes and solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pennlab import running
from pennlab.datasets.plane_flow.conditions import Inlet, Outlet, Prescribed, Slip, Wall
from pennlab.datasets.plane_flow.dual import Dual
from pennlab.datasets.plane_flow.flow import INTERVAL, Flow
from pennpde import openfoam
from pennpde.openfoam import NonUniform, Uniform

SCHEMES: dict[str, Any] = {
    "ddtSchemes": {"default": "backward"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {
        "default": "none",
        "div(phi,U)": "Gauss LUST grad(U)",
        "div((nuEff*dev2(T(grad(U)))))": "Gauss linear",
    },
    "laplacianSchemes": {"default": "Gauss linear corrected"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "corrected"},
}
_PRESSURE = {"solver": "GAMG", "smoother": "GaussSeidel"}
_VELOCITY = {"solver": "smoothSolver", "smoother": "symGaussSeidel"}
SOLVERS: dict[str, Any] = {
    "p": {**_PRESSURE, "tolerance": 1e-6, "relTol": 0.05},
    "pFinal": {**_PRESSURE, "tolerance": 1e-6, "relTol": 0.005},
    "U": {**_VELOCITY, "tolerance": 1e-6, "relTol": 0.01},
    "UFinal": {**_VELOCITY, "tolerance": 1e-6, "relTol": 0.01},
}
PIMPLE: dict[str, Any] = {
    "momentumPredictor": True,
    "nOuterCorrectors": 1,
    "nCorrectors": 2,
    "nNonOrthogonalCorrectors": 0,
}
STEADY_SCHEMES: dict[str, Any] = {
    **SCHEMES,
    "ddtSchemes": {"default": "steadyState"},
    "divSchemes": {**SCHEMES["divSchemes"], "div(phi,U)": "bounded Gauss linearUpwind grad(U)"},
}
STEADY_SOLVERS: dict[str, Any] = {
    "p": {**_PRESSURE, "tolerance": 1e-8, "relTol": 0.05},
    "U": {**_VELOCITY, "tolerance": 1e-8, "relTol": 0.1},
}
SIMPLE: dict[str, Any] = {"nNonOrthogonalCorrectors": 0, "consistent": True, "residualControl": {"p": 1e-4, "U": 1e-6}}
STEADY_ITERATIONS = 600
LARGEST_COURANT = 2.0
OUTER_CORRECTORS = PIMPLE["nOuterCorrectors"]
OUTER_CORRECTORS_AROUND_BODIES = 2
"""Bodies shed eddies, whose phase is wrong by a third of u with one: see docs/plane_flow.md."""


@dataclass(frozen=True)
class Resolution:
    """How finely a flow is computed.

    Attributes:
        spacing: factor of all sizes of cells.
        courant: largest Courant number.
        steady_iterations: at most, for a steady state at spacing 1.
        outer_correctors: how often momentum and pressure are solved in a time step. With one, the flux that carries the
            momentum is that of the step before, which is of first order in time.
    """

    spacing: float = 1.0
    courant: float = LARGEST_COURANT
    steady_iterations: int = STEADY_ITERATIONS
    outer_correctors: int = OUTER_CORRECTORS

    @staticmethod
    def of(flow: Flow, spacing: float = 1.0) -> Resolution:
        """The dataset's: flows around bodies have a second outer corrector."""
        around_bodies = len(flow.domain.loops) > 1
        correctors = OUTER_CORRECTORS_AROUND_BODIES if around_bodies else OUTER_CORRECTORS
        return Resolution(spacing, outer_correctors=correctors)

    @property
    def iterations(self) -> int:
        """At most so many for a steady state: finer meshes need more."""
        return round(self.steady_iterations / self.spacing)

    @property
    def halved(self) -> Resolution:
        """Half the spacing; at the same Courant number the time step is half as long, too."""
        return replace(self, spacing=0.5 * self.spacing)

    @property
    def steadier(self) -> Resolution:
        """Half the Courant number, for a flow that diverges."""
        return replace(self, courant=0.5 * self.courant)


def write_mesh(folder: Path, flow: Flow, dual: Dual) -> None:
    running.write_mesh(folder, dual.mesh)
    kinds = {name: "wall" if isinstance(each, Wall) else "patch" for name, each in flow.conditions.items()}
    rows = [
        f"{name} {{ type {kinds.get(name, patch.type)}; nFaces {patch.count}; startFace {patch.start}; }}"
        for name, patch in dual.mesh.patches.items()
    ]
    header = openfoam.format_dictionary("boundary", {}, "polyBoundaryMesh")
    boundary = folder / "constant" / "polyMesh" / "boundary"
    boundary.write_text("\n".join([header, str(len(rows)), "(", *rows, ")", ""]))


def boundary_velocity(flow: Flow, dual: Dual, name: str) -> Float[np.ndarray, "faces 3"]:
    """The prescribed velocity on the faces of a patch; an inlet's flux is exact."""
    condition = flow.conditions[name]
    assert isinstance(condition, Prescribed)
    values = condition.velocity(dual.face_centres[name])
    if isinstance(condition, Inlet):
        lengths = dual.face_lengths[name]
        along = np.subtract(condition.end, condition.start)
        inward = np.array([-along[1], along[0]]) / np.sqrt((along**2).sum())
        flux = (lengths * (values[:, 0] * inward[0] + values[:, 1] * inward[1])).sum()
        values = values * (condition.speed * lengths.sum() / flux)
    return np.column_stack([values, np.zeros(len(values))])


def _conditions(flow: Flow, dual: Dual) -> tuple[dict[str, Any], dict[str, Any]]:
    velocity: dict[str, Any] = {"frontAndBack": {"type": "empty"}}
    pressure: dict[str, Any] = {"frontAndBack": {"type": "empty"}}
    for name, condition in flow.conditions.items():
        pressure[name] = {"type": "zeroGradient"}
        if isinstance(condition, Prescribed):
            if condition.at_rest:
                velocity[name] = {"type": "noSlip"}
            else:
                velocity[name] = {"type": "fixedValue", "value": NonUniform(boundary_velocity(flow, dual, name))}
        elif isinstance(condition, Slip):
            velocity[name] = {"type": "slip"}
        elif isinstance(condition, Outlet):
            velocity[name] = {"type": "zeroGradient"}
            pressure[name] = {"type": "fixedValue", "value": Uniform(0.0)}
    return velocity, pressure


def write_case(
    folder: Path, flow: Flow, dual: Dual, resolution: Resolution, velocity: Float[np.ndarray, "points 2"]
) -> None:
    speed = max(1.0, float(np.sqrt((velocity**2).sum(axis=1)).max()))
    finest = float(np.sqrt(dual.areas.min()))
    control = {
        "application": "pimpleFoam",
        "startFrom": "startTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": flow.moments[-1],
        "deltaT": round(0.1 * resolution.courant * finest / speed, 6),
        "adjustTimeStep": True,
        "maxCo": resolution.courant,
        "maxDeltaT": 0.05 * resolution.spacing,
        "writeControl": "adjustableRunTime",
        "writeInterval": INTERVAL,
        "writeFormat": "binary",
        "timePrecision": 8,
        "runTimeModifiable": False,
    }
    for_steady = {
        **control,
        "application": "simpleFoam",
        "endTime": resolution.iterations,
        "deltaT": 1,
        "adjustTimeStep": False,
        "writeControl": "timeStep",
        "writeInterval": resolution.iterations,
    }
    reference = {}
    if flow.pressure_point is not None:
        nearest = int(((dual.centres - np.array(flow.pressure_point)) ** 2).sum(axis=1).argmin())
        reference = {"pRefCell": nearest, "pRefValue": 0}
    relaxation = {"relaxationFactors": {"equations": {"U": 0.9, "p": 1.0}, "fields": {"p": 1.0}}}
    pimple = {**PIMPLE, "nOuterCorrectors": resolution.outer_correctors, **reference}
    text = openfoam.format_dictionary
    files = {
        "system/controlDict": text("controlDict", control),
        "system/fvSchemes": text("fvSchemes", SCHEMES),
        "system/fvSolution": text("fvSolution", {"solvers": SOLVERS, "PIMPLE": pimple}),
        "steady/controlDict": text("controlDict", for_steady),
        "steady/fvSchemes": text("fvSchemes", STEADY_SCHEMES),
        "steady/fvSolution": text(
            "fvSolution", {"solvers": STEADY_SOLVERS, "SIMPLE": {**SIMPLE, **reference}, **relaxation}
        ),
        "constant/transportProperties": text(
            "transportProperties", {"transportModel": "Newtonian", "nu": (openfoam.VISCOSITY, flow.viscosity)}
        ),
        "constant/turbulenceProperties": text("turbulenceProperties", {"simulationType": "laminar"}),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "0").mkdir()
    for_velocity, for_pressure = _conditions(flow, dual)
    start = np.column_stack([velocity, np.zeros(len(velocity))])
    openfoam.write_field(folder / "0" / "U", start, openfoam.VELOCITY, for_velocity)
    openfoam.write_field(folder / "0" / "p", np.zeros(len(start)), openfoam.PRESSURE, for_pressure)
