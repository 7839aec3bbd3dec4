"""Small meshes of every cell type that fill the unit square or the unit cube."""

from dataclasses import replace

import numpy as np
import torch

from pennpde.mesh import Mesh
from pennpde.mesh.cells import CELL_TYPES, HEXAHEDRON

PLANE_TYPES = ("triangle", "quad", "pixel", "polygon", "mixed_plane")
SOLID_TYPES = ("tetrahedron", "hexahedron", "voxel", "wedge", "pyramid", "polyhedron", "mixed_solid")
ALL_TYPES = PLANE_TYPES + SOLID_TYPES
HEXAHEDRON_FACES = np.array(CELL_TYPES[HEXAHEDRON].facets)
UNIT_SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
LEFT = {"left": lambda x: np.isclose(x[:, 0], 0.0)}
# Six tetrahedra around the diagonal from corner 0 to corner 6, each with a positive volume.
TETRAHEDRA = np.array([[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]])


def grid(shape: tuple[int, ...], jitter: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points of a grid over the unit box and its quads or hexahedra; inner points shifted by a share of the spacing."""
    steps = [np.linspace(0.0, 1.0, count + 1) for count in shape]
    points = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(shape))
    inside = ((points > 1e-9) & (points < 1 - 1e-9)).all(axis=1)
    shift = np.random.default_rng(seed).uniform(-jitter, jitter, points.shape) / np.array(shape)
    points = points + inside[:, None] * shift
    number = np.arange(len(points)).reshape([count + 1 for count in shape])
    rings = [(0, 0), (1, 0), (1, 1), (0, 1)]
    if len(shape) == 3:
        rings = [(*ring, 0) for ring in rings] + [(*ring, 1) for ring in rings]
    corners = [number[tuple(slice(low, low + count) for low, count in zip(ring, shape, strict=True))] for ring in rings]
    return points, np.stack(corners, axis=-1).reshape(-1, len(rings))


def arrays(kind: str, cells_along: int = 3, jitter: float = 0.0, seed: int = 0) -> tuple[np.ndarray, dict]:
    """Points and cells of one type, or mixed, as `Mesh.from_arrays` takes them."""
    generator = np.random.default_rng(seed)
    if kind in PLANE_TYPES:
        along = 2 * ((cells_along + 1) // 2)  # polygons are pairs of quads
        points, quads = grid((along, cells_along), jitter, seed)
        triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
        pairs = quads.reshape(along // 2, 2, cells_along, 4)
        left, right = pairs[:, 0].reshape(-1, 4), pairs[:, 1].reshape(-1, 4)
        polygons = np.concatenate([left[:, [0, 1]], right[:, [1, 2]], left[:, [2, 3]]], axis=1)
        split = generator.random(len(quads)) < 0.5
        split[:2] = True, False
        cells = {
            "triangle": {"triangle": triangles},
            "quad": {"quad": quads},
            "pixel": {"pixel": quads[:, [0, 1, 3, 2]]},
            "polygon": {"polygon": polygons},
            "mixed_plane": {"triangle": triangles[np.tile(split, 2)], "quad": quads[~split]},
        }
        return points, cells[kind]
    points, cubes = grid((cells_along,) * 3, jitter, seed)
    if kind == "mixed_solid":
        column = np.arange(len(cubes)) // cells_along  # wedges split the top and bottom of a whole column
        choice = generator.permutation(np.arange(cells_along**2) % 4)[column]
        centres, pyramids = _pyramids(cubes[choice == 2], len(points))
        points = np.concatenate([points, points[cubes[choice == 2]].mean(axis=1)])
        assert len(centres) == (choice == 2).sum()
        cells = {
            "hexahedron": cubes[choice == 0],
            "wedge": _wedges(cubes[choice == 1]),
            "pyramid": pyramids,
            "polyhedron": _polyhedra(cubes[choice == 3], generator),
        }
        return points, {name: rows for name, rows in cells.items() if len(rows)}
    if kind == "pyramid":
        return np.concatenate([points, points[cubes].mean(axis=1)]), {"pyramid": _pyramids(cubes, len(points))[1]}
    cells = {
        "tetrahedron": cubes[:, TETRAHEDRA].reshape(-1, 4),
        "hexahedron": cubes,
        "voxel": cubes[:, [0, 1, 3, 2, 4, 5, 7, 6]],
        "wedge": _wedges(cubes),
        "polyhedron": _polyhedra(cubes, generator),
    }
    return points, {kind: cells[kind]}


def box(kind: str, cells_along: int = 3, jitter: float = 0.0, seed: int = 0) -> Mesh:
    return Mesh.from_arrays(*arrays(kind, cells_along, jitter, seed))


def _wedges(cubes: np.ndarray) -> np.ndarray:
    return np.concatenate([cubes[:, [0, 1, 2, 4, 5, 6]], cubes[:, [0, 2, 3, 4, 6, 7]]])


def walled(kind: str, cells_along: int = 3, jitter: float = 0.0, seed: int = 0) -> Mesh:
    """A box whose whole boundary is a patch, and its left side another."""
    return box(kind, cells_along, jitter, seed).with_patches(
        {"boundary": lambda x: np.ones(len(x), dtype=bool), **LEFT}
    )


def bent(mesh: Mesh) -> Mesh:
    """The mesh under a smooth map that keeps its cells convex."""
    x = mesh.points
    return replace(mesh, points=x + 0.06 * torch.sin(torch.pi * (x.flip(1) + x.roll(1, dims=1))))


def unit_cube(shape: tuple[int, int, int] = (2, 2, 2)) -> Mesh:
    """The unit cube, so many cells along each axis."""
    return Mesh.from_arrays(*grid(shape))


def _pyramids(cubes: np.ndarray, first_centre: int) -> tuple[np.ndarray, np.ndarray]:
    centres = first_centre + np.arange(len(cubes))
    bases = cubes[:, HEXAHEDRON_FACES[:, ::-1]].reshape(-1, 4)
    return centres, np.concatenate([bases, np.repeat(centres, 6)[:, None]], axis=1)


def _polyhedra(cubes: np.ndarray, generator: np.random.Generator) -> list[list[list[int]]]:
    """The cubes by their faces, which turn this way and that, as in many files."""
    return [[face[:: generator.choice([-1, 1])].tolist() for face in cube[HEXAHEDRON_FACES]] for cube in cubes]
