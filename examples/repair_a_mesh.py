"""A mesh as generators leave it: second order, two blocks that are not connected, a point too many; all are repaired.

    python examples/repair_a_mesh.py

The file is one of Gmsh (.msh). Its physical groups become patches. Every repair leaves a note on the mesh;
`repair=False` refuses the file instead.
"""

from pathlib import Path

import torch

import pennpde as penn

QUAD, LINE = 16, 8  # Gmsh's elements of second order: corners come first, then the points between them
COLD, HOT, PLATE = 1, 2, 3  # physical groups


def write_plate(path, cells=4):
    """Two square blocks side by side, each with its own points along the seam; the left and right end are groups."""
    places, elements = [(9.0, 9.0)], []  # the first point belongs to no element

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
                around = [(0, 0), (2, 0), (2, 2), (0, 2), (1, 0), (2, 1), (1, 2), (0, 1)]
                numbers = [point(x + i * half, y + j * half, known) for i, j in around]
                elements.append((QUAD, PLATE, numbers))
                if block == 0 and column == 0:
                    elements.append((LINE, COLD, [numbers[0], numbers[3], numbers[7]]))
                if block == 1 and column == cells - 1:
                    elements.append((LINE, HOT, [numbers[1], numbers[2], numbers[5]]))

    names = ['1 1 "cold"', '1 2 "hot"', '2 3 "plate"']
    lines = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat", "$PhysicalNames", "3", *names, "$EndPhysicalNames"]
    lines += ["$Nodes", str(len(places))]
    lines += [f"{number} {x} {y} 0" for number, (x, y) in enumerate(places, start=1)]
    lines += ["$EndNodes", "$Elements", str(len(elements))]
    for number, (kind, group, points) in enumerate(elements, start=1):
        lines += [" ".join(map(str, (number, kind, 2, group, group, *points)))]
    Path(path).write_text("\n".join([*lines, "$EndElements", ""]))


def main(folder="."):
    path = Path(folder) / "plate.msh"
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
