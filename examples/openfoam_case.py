"""An OpenFOAM case in, a time folder of it out: no OpenFOAM is needed for that.

    python examples/openfoam_case.py [CASE]

Mesh, conditions and viscosity are those of the case; a case that is one cell thick between `empty` patches is a plane
problem. The predicted fields go into a new time folder, from which OpenFOAM's programs go on. Without a case of yours a
small one is written first, a duct with a step, its mesh in the files that `blockMesh` would make.
"""

import sys
from pathlib import Path

import numpy as np

import pennpde as penn
from pennpde import openfoam

HEADER = "FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}\n"
CONDITIONS = {
    "U": """
dimensions [0 1 -1 0 0 0 0];
internalField uniform (0 0 0);
boundaryField
{
    inlet        { type fixedValue; value uniform (1 0 0); }
    outlet       { type zeroGradient; }
    wall         { type noSlip; }
    frontAndBack { type empty; }
}
""",
    "p": """
dimensions [0 2 -2 0 0 0 0];
internalField uniform 0;
boundaryField
{
    inlet        { type zeroGradient; }
    outlet       { type fixedValue; value uniform 0; }
    wall         { type zeroGradient; }
    frontAndBack { type empty; }
}
""",
}


def write_duct(folder, cells=20):
    """The files of a case: 0/U, 0/p, constant/transportProperties, constant/polyMesh, system/controlDict."""
    folder = Path(folder)
    for name, text in CONDITIONS.items():
        write(folder / "0" / name, "volVectorField" if name == "U" else "volScalarField", text)
    write(folder / "constant" / "transportProperties", "dictionary", "nu [0 2 -1 0 0 0 0] 0.001;\n")
    write(
        folder / "system" / "controlDict",
        "dictionary",
        "application icoFoam; endTime 4; deltaT 0.01; writeInterval 100;\n",
    )
    write_mesh(folder / "constant" / "polyMesh", cells)
    return folder


def write_mesh(folder, cells):
    """Squares, one cell thick: faces between two cells first, then those of each patch."""
    x, y = np.meshgrid(np.arange(3 * cells + 1), np.arange(2 * cells + 1), indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    quads = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1)
    quads = quads[(x[1:, 1:] > cells) | (y[1:, 1:] > cells)]  # the lower left square is solid
    used, quads = np.unique(quads, return_inverse=True)
    quads, above = quads.reshape(-1, 4), len(used)
    points = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], axis=1)[used]

    cell_behind = {}  # each side of a square, in the sense of its own corners
    for cell, quad in enumerate(quads):
        cell_behind |= dict.fromkeys(zip(quad, np.roll(quad, -1), strict=True), cell)
    inner, patches = [], {"inlet": [], "outlet": [], "wall": [], "frontAndBack": []}
    for (a, b), cell in cell_behind.items():  # a face whose normal points out of the cell
        face, other = (a, b, b + above, a + above), cell_behind.get((b, a))
        if other is None:
            at = points[[a, b], 0]
            patch = "inlet" if (at == 0).all() else "outlet" if (at == 3 * cells).all() else "wall"
            patches[patch].append((cell, face))
        elif cell < other:
            inner.append((cell, other, face))
    inner.sort()
    patches["frontAndBack"] = [(cell, quad[::-1]) for cell, quad in enumerate(quads)]
    patches["frontAndBack"] += [(cell, quad + above) for cell, quad in enumerate(quads)]

    faces = [face for _, _, face in inner] + [face for rows in patches.values() for _, face in rows]
    owner = [cell for cell, _, _ in inner] + [cell for rows in patches.values() for cell, _ in rows]
    boundary, start = [], len(inner)
    for name, rows in patches.items():
        kind = {"wall": "wall", "frontAndBack": "empty"}.get(name, "patch")
        boundary.append(f"{name} {{ type {kind}; nFaces {len(rows)}; startFace {start}; }}")
        start += len(rows)
    places = np.concatenate([points, points + np.array([0, 0, 1])]) / cells
    write_list(folder / "points", "vectorField", [f"({a:.9g} {b:.9g} {c:.9g})" for a, b, c in places])
    write_list(folder / "faces", "faceList", [f"4({' '.join(map(str, face))})" for face in faces])
    write_list(folder / "owner", "labelList", owner)
    write_list(folder / "neighbour", "labelList", [other for _, other, _ in inner])
    write_list(folder / "boundary", "polyBoundaryMesh", boundary)


def write_list(path, kind, rows):
    write(path, kind, "\n".join([str(len(rows)), "(", *map(str, rows), ")", ""]))


def write(path, kind, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER.format(kind=kind, name=path.name) + text)


def main(case_folder=None, folder="."):
    if case_folder is None:
        case_folder = write_duct(Path(folder) / "duct")
    network = penn.load_pretrained("flow")
    assert isinstance(network, penn.Predictor)
    case = openfoam.read_problem(case_folder, network.equation)
    print(case.mesh)
    outcome = penn.predict(network, case)
    print(*outcome.certificate.lines(), sep="\n")
    written = openfoam.write_time(
        case_folder, outcome.time, outcome.case.mesh, outcome.last, network.equation.foam_fields, overwrite=True
    )
    print(f"Written: {', '.join(str(path) for path in sorted(written.iterdir()))}")
    return outcome, written


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
