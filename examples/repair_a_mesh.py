"""A mesh as generators leave it: second order, two blocks that are not connected, a point too many; all are repaired.

    python examples/repair_a_mesh.py

The file is a universal file (.unv), as Salome and I-deas write it. Its groups become patches. Every repair leaves a
note on the mesh; `repair=False` refuses the file instead.
"""

from pathlib import Path

import torch

import pennpde as penn

PLANE_QUAD, BEAM = 95, 24  # parabolic elements: 8 points around a quad, 3 along a line


def write_plate(path, cells=4):
    """Two square blocks side by side, each with its own points along the seam; the left and right end are groups."""
    places, elements, groups = [(9.0, 9.0)], [], {"cold": [], "hot": []}  # the first point belongs to no element

    def point(x, y, known):
        if (x, y) not in known:
            places.append((x, y))
            known[x, y] = len(places)
        return known[x, y]

    for block in (0, 1):
        known, half = {}, 0.5 / cells
        for column in range(cells):
            for row in range(cells):
                x, y = block + column / cells, row / cells
                around = [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1)]  # corner, middle, corner ...
                corners = [point(x + i * half, y + j * half, known) for i, j in around]
                elements.append((PLANE_QUAD, corners))
                if block == 0 and column == 0:
                    elements.append((BEAM, [corners[0], corners[7], corners[6]]))
                    groups["cold"].append(len(elements))
                if block == 1 and column == cells - 1:
                    elements.append((BEAM, corners[2:5]))
                    groups["hot"].append(len(elements))

    lines = ["    -1", "  2411"]
    for label, (x, y) in enumerate(places, start=1):
        lines += [f"{label:10d}{1:10d}{1:10d}{11:10d}", f"{x:25.16E}{y:25.16E}{0.0:25.16E}"]
    lines += ["    -1", "    -1", "  2412"]
    for label, (kind, points) in enumerate(elements, start=1):
        lines += [f"{label:10d}{kind:10d}{2:10d}{1:10d}{7:10d}{len(points):10d}"]
        lines += ["         0         1         1"] if kind == BEAM else []
        lines += ["".join(f"{each:10d}" for each in points)]
    lines += ["    -1", "    -1", "  2467"]
    for number, (name, members) in enumerate(groups.items(), start=1):
        lines += ["".join(f"{each:10d}" for each in (number, 0, 0, 0, 0, 0, 0, len(members))), name]
        lines += [f"{8:10d}{member:10d}{0:10d}{0:10d}" for member in members]
    Path(path).write_text("\n".join([*lines, "    -1", ""]))


def main(folder="."):
    path = Path(folder) / "plate.unv"
    write_plate(path)
    try:
        penn.Mesh.read(path, repair=False)
    except ValueError as error:
        print(f"without repair: {error}")
    mesh = penn.Mesh.read(path)
    print(mesh)
    print(*(f"note: {note}" for note in mesh.notes), sep="\n")
    slope = torch.tensor([2.0, -1.0], dtype=torch.float64)
    error = (penn.Operators.on(mesh).grad(mesh.points @ slope) - slope).abs().max().item()
    print(f"area {mesh.cell_volumes.sum():.6f}, error of a linear field's gradient {error:.1e}")
    return mesh, error


if __name__ == "__main__":
    main()
