"""Steady states: `flow` beside simpleFoam on the same cells, against published values or a solution on finer cells.

    step      length of reattachment against Erturk 2008, in per cent; inlet channel of four step heights
    cavity    largest difference of u on the vertical centre line from Ghia, Ghia & Shin 1982, in lid speeds
    cylinder  length of the wake outside of the published range, in per cent (0 within); domain of 40 diameters. At
              Re 10, where sources differ by a third, as the next two
    elbow     OpenFOAM's tutorial of 918 triangles, and
    sbend     the tutorial of adjointOptimisationFoam (24,000 quads): relative L2 differences of u and p from our
              scheme on cells split thrice and once, at the points of the mesh, in per cent
    su2       a step of 31,000 points at Re 800, as SU2's laminar step

    python lab/benchmarks/steady.py [NAME ...]

Prints and writes `lab/benchmarks/results/steady.json` and the table of docs/trust.md; with names only these rows are
measured again. Seconds are those of one processor core, all-in but for starting and reading; of `flow` the expected
error is included, of simpleFoam writing the case is not.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from stretched_meshes import Flow, Rectangle, case_of
from tutorials import EXAMPLES, Cases

import pennpde as penn
from pennlab import running
from pennlab.paper.tables import markdown_table, write_within
from pennlab.running import plane_flows
from pennpde.case import Case
from pennpde.flow.scheme import FlowScheme
from pennpde.mesh import Mesh
from pennpde.metrics import relative_l2
from pennpde.models.flow_physics import PlaneFlowPhysics
from pennpde.openfoam.cases import read_problem

OUTPUT = Path(__file__).parent / "results" / "steady.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "trust.md"
REATTACHMENT = {100: 2.922, 400: 8.237, 600: 10.349, 800: 11.834}
HEIGHTS = np.array([0.0547, 0.1016, 0.1719, 0.2813, 0.4531, 0.5, 0.6172, 0.7344, 0.8516, 0.9531])
# Those at Re 400, 3200 and 5000 agree in every digit with three independent public copies of the paper's Table I.
GHIA = {
    100: [-0.03717, -0.06434, -0.1015, -0.15662, -0.2109, -0.20581, -0.13641, 0.00332, 0.23151, 0.68717],
    400: [-0.08186, -0.14612, -0.24299, -0.32726, -0.17119, -0.11477, 0.02135, 0.16256, 0.29093, 0.55892],
    1000: [-0.18109, -0.29730, -0.38289, -0.27805, -0.10648, -0.06080, 0.05702, 0.18719, 0.33304, 0.46604],
    # At y = 0.4531 the paper prints -0.86636, a misprint.
    3200: [-0.32407, -0.41933, -0.34323, -0.24427, -0.08664, -0.04272, 0.07156, 0.19791, 0.34682, 0.46101],
    5000: [-0.41165, -0.40435, -0.33050, -0.22855, -0.07404, -0.03039, 0.08183, 0.20087, 0.33556, 0.46036],
}
WAKE = {20: (0.91, 0.94), 40: (2.13, 2.35)}
"""Lengths behind the cylinder, in diameters, as later authors quote them: from what Coutanceau & Bouard (1977) measured
to the longest, of Dennis & Chang (1970). Fornberg's (1980) are in between."""

Fields = tuple[np.ndarray, np.ndarray]
"""Velocity and pressure at the points of the mesh."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A flow on one mesh and how wrong an answer is."""

    case: Case
    errors: Callable[[Fields], Mapping[str, float]]


def step(reynolds: float, fine: float = 1.0) -> Trial:
    """About 8,000 points: 16 cells on the step, 0.125 long as far as the flow is detached."""
    high = np.linspace(0.0, 1.0, round(16 * fine) + 1)
    long = np.linspace(0.0, 16.0, round(128 * fine) + 1)
    along = np.concatenate([long, 16.0 + 14.0 * np.linspace(0.0, 1.0, round(56 * fine) + 1)[1:]])
    before = np.linspace(-4.0, 0.0, round(24 * fine) + 1)
    rectangles = Rectangle(along, high - 1.0), Rectangle(along, high), Rectangle(before, high)
    flow = Flow(rectangles, 2.0 / reynolds, lambda y: 6 * y * (1 - y), lambda *_: {})
    shape = len(along), len(high)

    def errors(fields: Fields) -> dict[str, float]:
        u = fields[0][: shape[0] * shape[1], 0].reshape(shape)
        near = 4 * u[:, 1] - u[:, 2]  # the shear at the wall, by a parabola
        place = int(near.argmin()) + int(np.flatnonzero(near[near.argmin() :] >= 0)[0]) - 1
        found = along[place] - near[place] * (along[place + 1] - along[place]) / (near[place + 1] - near[place])
        return {"reattachment": 100 * (float(found) / REATTACHMENT[round(reynolds)] - 1)}

    return Trial(case_of(flow), errors)


def cavity(reynolds: float, cells: int = 64) -> Trial:
    line = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0.0, 1.0, cells + 1))
    line = 0.5 * line + 0.5 * np.linspace(0.0, 1.0, cells + 1)
    case = case_of(Flow((Rectangle(line, line),), 1.0 / reynolds, None, lambda *_: {}))

    def errors(fields: Fields) -> dict[str, float]:
        u = fields[0][:, 0].reshape(cells + 1, cells + 1)[cells // 2]
        return {"u on the centre line": float(np.abs(np.interp(HEIGHTS, line, u) - GHIA[round(reynolds)]).max())}

    return Trial(case, errors)


def cylinder(reynolds: float, around: int = 96, outward: int = 64) -> Trial:
    """Rings of quads around a cylinder of diameter one, to twenty diameters from its centre."""
    radii = 0.5 * 40.0 ** np.linspace(0.0, 1.0, outward + 1)
    angles = 2 * np.pi * np.arange(around) / around
    points = (radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)).reshape(-1, 2)
    first = np.arange(outward)[:, None] * around + np.arange(around)
    beside = np.arange(outward)[:, None] * around + (np.arange(around) + 1) % around
    quads = np.stack([first, first + around, beside + around, beside], axis=-1).reshape(-1, 4)
    mesh = Mesh.from_arrays(points, {"quad": quads})
    far = np.isclose(np.linalg.norm(points, axis=1), radii[-1])
    behind = far & (points[:, 0] > 0.5 * radii[-1])
    ahead = far & ~(points[:, 0] > 0.5 * radii[-1] + 1e-9)
    ends = mesh.facets.connectivity.reshape(-1, 2)
    behind = np.isin(np.arange(len(points)), ends[behind[ends].all(axis=1)])
    ahead = np.isin(np.arange(len(points)), ends[(far[ends].all(axis=1)) & ~behind[ends].all(axis=1)]) | ahead
    mesh = mesh.with_patches({"cylinder": np.isclose(np.linalg.norm(points, axis=1), 0.5), "in": ahead, "out": behind})
    case = Case(
        mesh,
        initial={"u": (1.0, 0.0), "p": 0.0},
        dirichlet={"u": {"cylinder": 0.0, "in": (1.0, 0.0)}, "p": {"out": 0.0}},
        parameters={"viscosity": 1.0 / reynolds},
    )

    def errors(fields: Fields) -> dict[str, float]:
        line = fields[0][::around, 0]
        place = int(np.flatnonzero((line[:-1] < 0) & (line[1:] >= 0))[-1]) if (line < 0).any() else 0
        rise = line[place + 1] - line[place]
        end = radii[place] - line[place] * (radii[place + 1] - radii[place]) / rise if line[place] < 0 else 0.5
        length = float(end - 0.5)
        return {"wake": 100 * (length / float(np.clip(length, *WAKE[round(reynolds)])) - 1)}

    return Trial(case, errors)


def _by_finer(case: Case, splits: int) -> Trial:
    """Judged by the scheme on cells split so many times more."""
    found = penn.predict(FlowScheme(splits=splits), case, times=[penn.STEADY])
    assert found.certificate.converged
    truth = tuple(found.fields[name].double() for name in ("u", "p"))
    volumes = case.mesh.point_volumes.double()

    def errors(fields: Fields) -> dict[str, float]:
        return {
            name: 100 * float(relative_l2(torch.from_numpy(mine).reshape(true.shape), true, volumes))
            for name, mine, true in zip("up", fields, truth, strict=True)
        }

    return Trial(case, errors)


def elbow() -> Case:
    with tempfile.TemporaryDirectory() as name:
        installation = running.find_installation(("fluentMeshToFoam",))
        return read_problem(Cases(Path(name), installation).elbow(), PlaneFlowPhysics())


def sbend() -> Case:
    source = EXAMPLES / "adjointOptimisationFoam"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("0", "constant", "system"):
            origin = source / "shapeOptimisation" / "sbend" / "laminar" / "primalAdjoint" / part
            (folder / part).mkdir()
            for file in origin.iterdir():
                if file.is_file() and file.suffix != ".gz":
                    (folder / part / file.name).write_bytes(file.read_bytes())
        (folder / "constant" / "polyMesh").mkdir()
        for file in (source / "resources" / "meshes" / "sbend" / "polyMesh").iterdir():
            content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            (folder / "constant" / "polyMesh" / file.stem).write_bytes(content)
        return read_problem(folder, PlaneFlowPhysics())


def trials() -> Iterator[tuple[str, float | None, Callable[[], Trial]]]:
    for reynolds in REATTACHMENT:
        yield f"step Re {reynolds}", reynolds, lambda reynolds=reynolds: step(reynolds)
    yield "step Re 800, as SU2's", 800, lambda: step(800, 2.0)
    for reynolds in GHIA:
        yield f"cavity Re {reynolds}", reynolds, lambda reynolds=reynolds: cavity(reynolds)
    yield "cylinder Re 10", 10, lambda: _by_finer(cylinder(10, 48, 32).case, 2)
    for reynolds in WAKE:
        yield f"cylinder Re {reynolds}", reynolds, lambda reynolds=reynolds: cylinder(reynolds)
    yield "elbow", None, lambda: _by_finer(elbow(), 3)
    yield "sbend", None, lambda: _by_finer(sbend(), 1)


def by_network(trial: Trial, level: str) -> dict[str, object]:
    model = penn.load_pretrained("flow")
    assert isinstance(model, penn.Predictor)
    model.set_level(level)
    case = replace(trial.case)
    began = time.process_time()
    found = penn.predict(model, case, times=[penn.STEADY])
    seconds = time.process_time() - began
    fields = tuple(found.fields[name].double().numpy().reshape(len(case.mesh.points), -1) for name in ("u", "p"))
    (history,) = found.certificate.residuals
    return {
        "errors": dict(trial.errors((fields[0], fields[1][:, 0]))),
        "seconds": round(seconds, 2),
        "iterations": len(history) - 1,
        "residual": history[-1],
        "converged": found.certificate.converged,
        "grade": found.expected.grade,
        "bounds": {name: 100 * each.bound for name, each in found.expected.errors.items()},
    }


def by_openfoam(trial: Trial) -> dict[str, object]:
    found = plane_flows.solve(trial.case)
    points = trial.case.mesh.points.double().numpy()
    # Points on walls have the wall's velocity; a linear interpolation of cells would not see it at corners.
    velocity, pressure = found.at(points)
    held = trial.case.dirichlet["u"]
    mask = held.mask.numpy()
    velocity[mask] = held.values.double().numpy()[mask]
    return {"errors": dict(trial.errors((velocity, pressure))), "seconds": round(found.seconds, 2),
            "iterations": found.iterations}  # fmt: skip


def table(rows: list[dict]) -> str:
    lines = []
    for name in dict.fromkeys(row["flow"] for row in rows):
        by = {row["by"]: row for row in rows if row["flow"] == name}
        cells = [name, f"{next(iter(by.values()))['points']:,}"]
        for way in ("standard", "simpleFoam"):
            row = by.get(way, {})
            if "errors" not in row:
                cells += [str(row.get("failed", "")), ""]
                continue
            told = ", ".join(
                f"{key} {value:.2g}{'' if 'line' in key else ' %'}" for key, value in row["errors"].items()
            )
            cells += [told, f"{row['seconds']:.1f}"]
        mine = by.get("standard", {})
        cells.append(f"{mine['residual']:.0e}" if "residual" in mine else "")
        cells.append(str(mine.get("grade", "")))
        lines.append(cells)
    head = ("flow", "points", "`flow`", "seconds", "simpleFoam", "seconds", "residual", "grade")
    return markdown_table(head, lines)


def main() -> None:
    torch.set_num_threads(1)
    known = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.exists() else []
    there = {name for name, _, _ in trials()}
    known, wanted = [row for row in known if row["flow"] in there], sys.argv[1:]
    penn.predict(penn.load_pretrained("flow"), step(100, 0.25).case, times=[penn.STEADY])  # what is loaded once
    for name, reynolds, make in trials():
        if (wanted and name not in wanted) or (not wanted and any(row["flow"] == name for row in known)):
            continue
        trial = make()
        known = [row for row in known if row["flow"] != name]
        for way, solve in {
            "fast": lambda trial: by_network(trial, "fast"),
            "standard": lambda trial: by_network(trial, "standard"),
            "simpleFoam": by_openfoam,
        }.items():
            try:
                found = solve(trial)
            except (ArithmeticError, running.OpenFOAMError, ValueError) as error:
                found = {"failed": str(error).partition("\n")[0]}
            row = {"flow": name, "reynolds": reynolds, "points": trial.case.number_of_points, "by": way, **found}
            known.append(row)
            print(json.dumps(row), flush=True)
        about = {"penn": penn.__version__, "rows": known}
        OUTPUT.write_text(json.dumps(about, indent=1) + "\n")
    made = table(known)
    print(made)
    write_within(PAGE, made, "steady states")


if __name__ == "__main__":
    main()
