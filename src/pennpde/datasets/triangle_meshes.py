"""Triangle meshes of the ducts without any structure, as mesh generators make them: what users bring to a network.

Points are scattered at random, none too near to another, joined by Delaunay and smoothed. Networks that have seen the
quads of `flow.coarse_mesh` alone are judged on them.
"""

from __future__ import annotations

import zlib

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.spatial import Delaunay, KDTree

from pennpde.datasets.ducts import duct
from pennpde.mesh import Mesh

# Of the spacing: with these throws there is then one point for each square of the spacing, as in a mesh of squares.
_NEAREST = 0.79
_NEAREST_TO_BOUNDARY = 0.6
_THROWS = 40
_SMOOTHING = 12
_SMALLEST_ANGLE = 15.0


def triangle_mesh(name: str, cells_per_length: float, seed: int = 0) -> Mesh:
    """A mesh of a duct with about as many points as its mesh of quads, and the patches inlet, wall and outlet.

    Args:
        name: of the case.
        cells_per_length: of the quads; here boundary edges per unit length.
        seed: of the scattered points; each case has its own random numbers.
    """
    shape = duct(name)
    spacing = 1.0 / cells_per_length
    sides = np.array([side for of_patch in shape.patches.values() for side in of_patch], float)
    boundary = _boundary(sides, spacing)
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    points = np.concatenate([boundary, _scattered(boundary, sides, spacing, random)])
    for _ in range(_SMOOTHING):
        points = _smoothed(points, _triangles(points, sides), len(boundary))
    triangles = _triangles(points, sides)
    patches = {patch: np.flatnonzero(shape.on_patch(patch, points)) for patch in shape.patches}
    mesh = Mesh.from_arrays(points, {"triangle": triangles}, patches=patches)
    _check(mesh, name, sides, len(boundary))
    return mesh


def smallest_angles(mesh: Mesh) -> Float[np.ndarray, " triangles"]:
    """The smallest angle of each triangle, in degrees."""
    corners = mesh.points.numpy()[mesh.connectivity.reshape(-1, 3)]
    angles = []
    for here in range(3):
        one, other = (corners[:, (here + step) % 3] - corners[:, here] for step in (1, 2))
        angles.append(np.arctan2(_cross(one, other), (one * other).sum(axis=1)))
    return np.degrees(np.min(angles, axis=0))


def _boundary(sides: Float[np.ndarray, "sides 2 2"], spacing: float) -> Float[np.ndarray, "boundary 2"]:
    """Points along each side at the spacing, or a little off it, so that corners are points."""
    placed = []
    for start, end in sides:
        count = max(1, round(float(np.linalg.norm(end - start)) / spacing))
        placed.append(start + np.linspace(0.0, 1.0, count, endpoint=False)[:, None] * (end - start))
    return np.concatenate(placed)


def _scattered(
    boundary: np.ndarray, sides: np.ndarray, spacing: float, random: np.random.Generator
) -> Float[np.ndarray, "inner 2"]:
    """Random points inside, none nearer to another than a share of the spacing, until hardly one more fits."""
    low, high = sides.min(axis=(0, 1)), sides.max(axis=(0, 1))
    number = round(float(np.prod(high - low)) / spacing**2)
    inner = np.zeros((0, 2))
    for _ in range(_THROWS):
        thrown = random.uniform(low, high, (number, 2))
        thrown = thrown[_inside(thrown, sides) & (_distance(thrown, sides) > _NEAREST_TO_BOUNDARY * spacing)]
        thrown = thrown[KDTree(np.concatenate([boundary, inner])).query(thrown)[0] > _NEAREST * spacing]
        # Of two that are too near to each other, the later one goes.
        crowded = KDTree(thrown).query_pairs(_NEAREST * spacing, output_type="ndarray").max(axis=1, initial=-1)
        inner = np.concatenate([inner, np.delete(thrown, crowded, axis=0)])
    return inner


def _triangles(points: np.ndarray, sides: np.ndarray) -> Int64[np.ndarray, "triangles 3"]:
    """Delaunay's triangles that lie inside, without the flat ones along straight sides."""
    triangles = Delaunay(points).simplices.astype(np.int64)
    corners = points[triangles]
    doubled = np.abs(_cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    return triangles[(doubled > 1e-6 * np.median(doubled)) & _inside(corners.mean(axis=1), sides)]


def _smoothed(points: np.ndarray, triangles: np.ndarray, fixed: int) -> np.ndarray:
    """Inner points in the middle of their neighbours."""
    sums, counts = np.zeros_like(points), np.zeros(len(points))
    for one, other in ((0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)):
        np.add.at(sums, triangles[:, one], points[triangles[:, other]])
        np.add.at(counts, triangles[:, one], 1.0)
    moved = points.copy()
    moved[fixed:] = sums[fixed:] / counts[fixed:, None]
    return moved


def _inside(
    points: Float[np.ndarray, "points 2"], sides: Float[np.ndarray, "sides 2 2"]
) -> Bool[np.ndarray, " points"]:
    """Whether a ray to the right crosses the boundary an odd number of times."""
    x, y = points[:, :1], points[:, 1:]
    (start_x, start_y), (end_x, end_y) = sides[:, 0].T, sides[:, 1].T
    rises = (start_y > y) != (end_y > y)
    height = np.where(end_y == start_y, 1.0, end_y - start_y)
    crossing = start_x + (y - start_y) / height * (end_x - start_x)
    return (rises & (x < crossing)).sum(axis=1) % 2 == 1


def _distance(points: Float[np.ndarray, "points 2"], sides: Float[np.ndarray, "sides 2 2"]) -> np.ndarray:
    start, along = sides[:, 0], sides[:, 1] - sides[:, 0]
    offset = points[:, None] - start
    share = np.clip((offset * along).sum(axis=2) / (along * along).sum(axis=1), 0.0, 1.0)
    return np.linalg.norm(offset - share[..., None] * along, axis=2).min(axis=1)


def _cross(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


def _check(mesh: Mesh, name: str, sides: np.ndarray, boundary: int) -> None:
    area, filled = float(_cross(sides[:, 0], sides[:, 1]).sum()) / 2, float(mesh.cell_volumes.sum())
    smallest = float(smallest_angles(mesh).min())
    if len(mesh.facets) != boundary or abs(filled - area) > 1e-9 * area or smallest < _SMALLEST_ANGLE:
        raise ValueError(
            f"The triangles of {name} fill {filled:.6g} of {area:.6g}, have {len(mesh.facets)} edges on the boundary "
            f"instead of {boundary}, and a smallest angle of {smallest:.1f} degrees. Take another seed."
        )
