"""Plane flows of any case by OpenFOAM, on the cells of the case: extruded by one, its conditions facet by facet."""

from __future__ import annotations

import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from pennlab.running.new_cases import write_mesh
from pennlab.running.programs import Installation, find_installation, run
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.models.inlet import BoundaryProfile
from pennpde.openfoam.dictionaries import format_dictionary
from pennpde.openfoam.poly_mesh import FacePatch, PolyMesh

_STEADY = "simpleFoam"
_SOLVERS = {
    "p": "{ solver GAMG; smoother GaussSeidel; tolerance 1e-10; relTol 0.05; }",
    '"pFinal"': "{ solver PCG; preconditioner DIC; tolerance 1e-7; relTol 0; }",
    "U": "{ solver PBiCGStab; preconditioner DILU; tolerance 1e-10; relTol 0.05; }",
}


@dataclass(frozen=True, eq=False)
class Solved:
    """What a solver left.

    Attributes:
        centres: of the cells, and then the middles of facets on which the velocity is prescribed.
        velocity: there.
        pressure: in the cells only.
        seconds: of the processor.
        iterations: or time steps.
    """

    centres: Float[np.ndarray, "places 2"]
    velocity: Float[np.ndarray, "places 2"]
    pressure: Float[np.ndarray, " cells"]
    seconds: float
    iterations: int

    def at(
        self, points: Float[np.ndarray, "points 2"]
    ) -> tuple[Float[np.ndarray, "points 2"], Float[np.ndarray, " points"]]:
        """Velocity and pressure, linear between the cells, as in the nearest one outside of them."""
        number = len(self.pressure)
        both = (self.centres, self.velocity), (self.centres[:number], self.pressure)
        made = []
        for places, values in both:
            inside = LinearNDInterpolator(places, values)(points)
            lost = ~np.isfinite(inside.reshape(len(points), -1)).all(axis=1)
            inside[lost] = NearestNDInterpolator(places, values)(points[lost])
            made.append(inside)
        return made[0], made[1]


def solve(
    case: Case,
    *,
    most_iterations: int = 4000,
    tolerance: float = 1e-5,
    schemes: str = "bounded Gauss linear",
    installation: Installation | None = None,
) -> Solved:
    """The steady state by simpleFoam.

    Args:
        case: Plane, of triangles and quads.
        most_iterations: At most so many.
        tolerance: Of the initial residuals, of pressure and velocity.
        schemes: How the velocity is advected.
        installation: Saves looking for it.
    """
    installation = installation or find_installation((_STEADY,))
    boundary = BoundaryProfile.of(case)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        order = _write_mesh(folder, case.mesh, boundary)
        _write_case(folder, case, boundary, order, most_iterations, tolerance, schemes)
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(folder, _STEADY, installation=installation, largest_courant=np.inf)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        last = max((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
        velocity, pressure = _values(last / "U").reshape(-1, 3)[:, :2], _values(last / "p")
    points = _points(case.mesh)
    ends = case.mesh.facets.connectivity.reshape(-1, 2)[boundary.held]
    centres = np.array([points[cell].mean(axis=0) for cell in _cells(case.mesh)])
    return Solved(
        np.concatenate([centres, points[ends].mean(axis=1)]),
        np.concatenate([velocity, boundary.velocity[boundary.held, 1]]),
        pressure,
        seconds,
        int(last.name),
    )


def _points(mesh: Mesh) -> Float[np.ndarray, "points 2"]:
    return mesh.points.detach().cpu().numpy().astype(float)


def _cells(mesh: Mesh) -> list[np.ndarray]:
    """Corners of each cell, counter-clockwise."""
    points, found = _points(mesh), []
    for start, end in zip(mesh.offsets[:-1], mesh.offsets[1:], strict=True):
        corners = np.asarray(mesh.connectivity[start:end])
        x, y = points[corners].T
        area = (x * np.roll(y, -1) - np.roll(x, -1) * y).sum()
        found.append(corners if area > 0 else corners[::-1])
    return found


def _write_mesh(folder: Path, mesh: Mesh, boundary: BoundaryProfile) -> dict[str, np.ndarray]:
    """`constant/polyMesh`; by patch, the facets in its order."""
    points, cells = _points(mesh), _cells(mesh)
    number = len(points)
    sides: dict[tuple[int, int], tuple[int, int, int]] = {}
    inner: list[tuple[int, int, int, int]] = []
    for cell, corners in enumerate(cells):
        for one, other in zip(corners.tolist(), np.roll(corners, -1).tolist(), strict=True):
            known = sides.pop((other, one), None)
            if known is None:
                sides[one, other] = (cell, one, other)
            else:
                inner.append((known[0], cell, known[1], known[2]))
    inner.sort()
    facets = {tuple(sorted(ends)): place for place, ends in enumerate(mesh.facets.connectivity.reshape(-1, 2).tolist())}
    outer: dict[str, list[tuple[int, int, int, int]]] = {"held": [], "open": [], "slip": []}
    for cell, one, other in sides.values():
        facet = facets[tuple(sorted((one, other)))]
        kind = "held" if boundary.held[facet] else "open" if boundary.opened[facet] else "slip"
        outer[kind].append((cell, facet, one, other))
    faces, owner, patches = [], [], {}
    for mine, _, one, other in inner:
        faces.append([one, other, other + number, one + number])
        owner.append(mine)
    for name, members in outer.items():
        patches[name] = FacePatch(name, "patch", len(faces), len(members))
        for cell, _, one, other in sorted(members):
            faces.append([one, other, other + number, one + number])
            owner.append(cell)
    patches["frontAndBack"] = FacePatch("frontAndBack", "empty", len(faces), 2 * len(cells))
    for cell, corners in enumerate(cells):
        faces += [corners[::-1].tolist(), (corners + number).tolist()]
        owner += [cell, cell]
    heights = [np.column_stack([points, np.full(number, z)]) for z in (0.0, 1.0)]
    sizes = np.array([len(face) for face in faces])
    write_mesh(
        folder,
        PolyMesh(
            np.concatenate(heights),
            np.concatenate([np.asarray(face) for face in faces]),
            np.concatenate([[0], np.cumsum(sizes)]),
            np.array(owner),
            np.array([each[1] for each in inner]),
            patches,
        ),
    )
    rows = [
        f"{name} {{ type {patch.type}; nFaces {patch.count}; startFace {patch.start}; }}"
        for name, patch in patches.items()
    ]
    header = format_dictionary("boundary", {}, "polyBoundaryMesh")
    text = "\n".join([header, str(len(rows)), "(", *rows, ")", ""])
    (folder / "constant" / "polyMesh" / "boundary").write_text(text)
    return {name: np.array([each[1] for each in sorted(members)], int) for name, members in outer.items()}


def _write_case(
    folder: Path,
    case: Case,
    boundary: BoundaryProfile,
    order: dict[str, np.ndarray],
    most_iterations: int,
    tolerance: float,
    schemes: str,
) -> None:
    files: dict[str, dict[str, Any]] = {
        "system/controlDict": {
            "application": _STEADY, "startFrom": "startTime", "startTime": "0", "stopAt": "endTime",
            "endTime": str(most_iterations), "deltaT": "1", "writeControl": "timeStep",
            "writeInterval": str(most_iterations), "writePrecision": "12",
        },
        "system/fvSchemes": {
            "ddtSchemes": "{ default steadyState; }",
            "gradSchemes": "{ default Gauss linear; }",
            "divSchemes": f"{{ default none; div(phi,U) {schemes}; div((nuEff*dev2(T(grad(U))))) Gauss linear; }}",
            "laplacianSchemes": "{ default Gauss linear corrected; }",
            "interpolationSchemes": "{ default linear; }",
            "snGradSchemes": "{ default corrected; }",
        },
        "system/fvSolution": {
            "solvers": "{" + " ".join(f"{name} {entry}" for name, entry in _SOLVERS.items()) + "}",
            "SIMPLE": "{ consistent yes; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; residualControl "
            f"{{ p {tolerance}; U {tolerance}; }} }}",
            "relaxationFactors": "{ equations { U 0.9; } }",
        },
        "constant/transportProperties": {
            "transportModel": "Newtonian", "nu": f"{float(case.parameters['viscosity']):.12g}"
        },
        "constant/turbulenceProperties": {"simulationType": "laminar"},
    }  # fmt: skip
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(format_dictionary(Path(path).name, content))
    ends = case.mesh.facets.connectivity.reshape(-1, 2)
    speeds = boundary.means[order["held"]]
    levels = case.dirichlet["p"].values.cpu().numpy()[ends[order["open"]]].mean(axis=1)
    velocity = {
        "held": f"type fixedValue; value nonuniform List<vector> {len(speeds)} "
        f"({' '.join(f'({x:.12g} {y:.12g} 0)' for x, y in speeds)});",
        "open": "type zeroGradient;",
        "slip": "type slip;",
        "frontAndBack": "type empty;",
    }
    pressure = {
        "held": "type zeroGradient;",
        "open": f"type fixedValue; value nonuniform List<scalar> {len(levels)} "
        f"({' '.join(f'{each:.12g}' for each in levels)});",
        "slip": "type slip;",
        "frontAndBack": "type empty;",
    }
    (folder / "0").mkdir()
    for name, kind, dimensions, start, conditions in (
        ("U", "volVectorField", "[0 1 -1 0 0 0 0]", "uniform (0 0 0)", velocity),
        ("p", "volScalarField", "[0 2 -2 0 0 0 0]", "uniform 0", pressure),
    ):
        head = f"FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}"
        rows = " ".join(f"{patch} {{ {entries} }}" for patch, entries in conditions.items())
        (folder / "0" / name).write_text(
            f"{head}\ndimensions {dimensions}; internalField {start}; boundaryField {{ {rows} }}\n"
        )


def _values(path: Path) -> np.ndarray:
    text = path.read_text()
    body = text[text.index("internalField") :]
    body = body[body.index("\n(") + 2 : body.index("\n)")]
    return np.array(body.replace("(", " ").replace(")", " ").split(), float)
