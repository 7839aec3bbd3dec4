"""An OpenFOAM case with every plane cell split into four: how far its own run is from a finer one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree

from pennpde import openfoam
from pennpde.mesh import Mesh
from pennpde.mesh.splitting import PlaneCells
from pennpde.openfoam import FacePatch, PolyMesh


def finer_case(folder: Path, target: Path, plane: Mesh, start: str) -> np.ndarray:
    """Write a case with four cells for each of a plane case, half the time step, and the start of its parent cells.

    Returns:
        the parent of each cell.
    """
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("polyMesh", "log.*", "[0-9]*", "predicted"))
    old = PolyMesh.read(folder)
    cells = PlaneCells.of(plane)
    sizes = np.diff(plane.offsets)
    parents = np.concatenate([np.tile(np.flatnonzero(sizes == size), 4) for size in (3, 4)])
    finer = cells.split()
    polygons = [*finer.triangles, *finer.quads]
    names = _patch_of_facet(old)
    mesh = _slab(finer.points, polygons, names, old)
    mesh.write(target)
    rows = [
        f"{patch.name} {{ type {patch.type}; nFaces {patch.count}; startFace {patch.start}; }}"
        for patch in mesh.patches.values()
    ]
    header = openfoam.format_dictionary("boundary", {}, "polyBoundaryMesh")
    (target / "constant" / "polyMesh" / "boundary").write_text("\n".join([header, str(len(rows)), "(", *rows, ")", ""]))
    control = target / "system" / "controlDict"
    text = control.read_text()
    step = float(re.findall(r"(?m)^deltaT\s+(\S+);", text)[0])
    text = re.sub(r"(?m)^(deltaT\s+)\S+;", rf"\g<1>{step / 2:g};", text)
    if re.search(r"(?m)^writeControl\s+timeStep;", text):
        interval = int(re.findall(r"(?m)^writeInterval\s+(\S+);", text)[0])
        text = re.sub(r"(?m)^(writeInterval\s+)\S+;", rf"\g<1>{2 * interval};", text)
    control.write_text(text)
    (target / start).mkdir()
    for name in ("U", "p"):
        field = openfoam.read_field(folder / start / name, folder)
        assert field.dimensions is not None
        values = field.values(old.number_of_cells)[parents]
        openfoam.write_field(target / start / name, values, field.dimensions, field.boundary)
    return parents


def _patch_of_facet(mesh: PolyMesh) -> tuple[KDTree, list[str]]:
    """Places on the sides of a plane case, at a quarter and three quarters of each, and their patches."""
    places, names = [], []
    for patch in mesh.patches.values():
        if patch.type != "empty":
            for face in range(patch.start, patch.start + patch.count):
                ends = np.unique(mesh.points[mesh.points_of_face(face)][:, :2].round(12), axis=0)
                places += [0.75 * ends[0] + 0.25 * ends[1], 0.25 * ends[0] + 0.75 * ends[1]]
                names += [patch.name] * 2
    return KDTree(np.array(places)), names


def _slab(points: np.ndarray, polygons: list[np.ndarray], facets: tuple[KDTree, list[str]], like: PolyMesh) -> PolyMesh:
    """One layer of cells over plane polygons that run counter-clockwise."""
    above = len(points)
    sides: dict[tuple[int, int], tuple[int, int]] = {}
    inner: list[tuple[int, int, int, int]] = []
    for cell, polygon in enumerate(polygons):
        for one, other in zip(polygon.tolist(), np.roll(polygon, -1).tolist(), strict=True):
            if (other, one) in sides:
                first, _ = sides.pop((other, one))
                inner.append((first, cell, other, one))
            else:
                sides[one, other] = (cell, 0)
    inner.sort()
    tree, names = facets
    edges = np.array(list(sides))
    owners = np.array([cell for cell, _ in sides.values()])
    _, nearest = tree.query(points[edges].mean(axis=1))
    patch_of = np.array(names)[nearest]
    faces = [[one, other, other + above, one + above] for _, _, one, other in inner]
    owner = [first for first, _, _, _ in inner]
    patches = {}
    for patch in like.patches.values():
        if patch.type == "empty":
            continue
        chosen = np.flatnonzero(patch_of == patch.name)
        patches[patch.name] = FacePatch(patch.name, patch.type, len(faces), len(chosen), patch.groups)
        faces += [[one, other, other + above, one + above] for one, other in edges[chosen].tolist()]
        owner += owners[chosen].tolist()
    flat = next(patch.name for patch in like.patches.values() if patch.type == "empty")
    patches[flat] = FacePatch(flat, "empty", len(faces), 2 * len(polygons))
    faces += [polygon[::-1].tolist() for polygon in polygons] + [(polygon + above).tolist() for polygon in polygons]
    owner += [*range(len(polygons)), *range(len(polygons))]
    heights = like.points[:, 2].min(), like.points[:, 2].max()
    body = np.concatenate([np.column_stack([points, np.full(above, height)]) for height in heights])
    return PolyMesh(
        body,
        np.concatenate([np.array(face) for face in faces]),
        np.concatenate([[0], np.cumsum([len(face) for face in faces])]),
        np.array(owner),
        np.array([second for _, second, _, _ in inner]),
        patches,
    )
