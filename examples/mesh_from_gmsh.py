"""A mesh from gmsh: physical groups become patches, and a pretrained network predicts the flow through a duct.

    python examples/mesh_from_gmsh.py [duct.msh]

Name the parts of the boundary in gmsh (`Physical Curve("inlet") = {1};`) and the fluid (`Physical Surface("fluid")`),
then mesh and save as .msh, format 2.2 or 4.1, text or binary. Without a file of yours a small one is written first:
water flows at 0.1 m/s through a duct that widens from 10 to 20 mm.
"""

import sys
from pathlib import Path

import numpy as np

import pennpde as penn

GROUPS = {"inlet": (1, 1), "outlet": (1, 2), "wall": (1, 3), "fluid": (2, 4)}  # dimension and number, as gmsh has them


def write_duct(path, width=0.01, cells=20):
    """A step of triangles in gmsh's format 2.2: named groups, points, then lines and triangles with their group."""
    x, y = np.meshgrid(np.arange(3 * cells + 1), np.arange(2 * cells + 1), indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    quads = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1)
    quads = quads[(x[1:, 1:] > cells) | (y[1:, 1:] > cells)]  # the lower left square is solid
    triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    used, triangles = np.unique(triangles, return_inverse=True)
    points, triangles = np.stack([x.ravel(), y.ravel()], axis=1)[used], triangles.reshape(-1, 3)

    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    _, first, times = np.unique(np.sort(sides, axis=1), axis=0, return_index=True, return_counts=True)
    elements = []
    for start, end in sides[first[times == 1]]:  # a side of one triangle only: the boundary
        at = points[[start, end], 0]
        group = "inlet" if (at == 0).all() else "outlet" if (at == 3 * cells).all() else "wall"
        elements.append(f"1 2 {GROUPS[group][1]} 1 {start + 1} {end + 1}")
    elements += [f"2 2 {GROUPS['fluid'][1]} 1 {a + 1} {b + 1} {c + 1}" for a, b, c in triangles]

    def section(name, rows):
        return [f"${name}", str(len(rows)), *rows, f"$End{name}"]

    names = [f'{dimension} {number} "{name}"' for name, (dimension, number) in GROUPS.items()]
    places = [f"{n} {a:.9g} {b:.9g} 0" for n, (a, b) in enumerate(points * width / cells, start=1)]
    numbered = [f"{n} {row}" for n, row in enumerate(elements, start=1)]
    lines = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat", *section("PhysicalNames", names)]
    lines += [*section("Nodes", places), *section("Elements", numbered), ""]
    Path(path).write_text("\n".join(lines))


def main(path=None, folder="."):
    if path is None:
        path = Path(folder) / "duct.msh"
        write_duct(path)
    mesh = penn.Mesh.read(path)
    print(mesh)
    case = penn.Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (0.1, 0.0), "wall": 0.0}, "p": {"outlet": 0.0}},  # where both hold, the wall wins
        neumann={"u": {"outlet": 0.0}, "p": 0.0},
        parameters={"viscosity": 1e-6},  # metres and seconds; any units do
    )
    outcome = penn.predict(penn.load_pretrained("flow"), case)
    speed = outcome.last["u"].norm(dim=1)
    print(f"after {outcome.time:.2g} s: largest speed {speed.max():.3f} m/s")
    print(*outcome.certificate.lines(), sep="\n")
    outcome.save(Path(folder) / "duct.vtu")
    print(f"Written: {Path(folder) / 'duct.vtu'}")
    return outcome


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
