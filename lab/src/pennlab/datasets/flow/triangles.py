"""Triangle meshes of the ducts without any structure, as mesh generators make them: what users bring to a network.

Points are scattered at random, none too near to another, joined by Delaunay and smoothed. Networks that have seen the
only quads of `flow.coarse_mesh` are tested on them.
"""

from __future__ import annotations

import zlib

import numpy as np
from jaxtyping import Float, Int64

from pennpde.mesh import Mesh, triangulation
from pennpde.mesh.cells import cross
from pennpde.mesh.triangulation import SMOOTHING, delaunay, inside, scattered, smoothed
from pennpde.models.designs import duct

_NEAREST_TO_BOUNDARY = 0.6
"""Of the spacing."""
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
    for _ in range(SMOOTHING):
        points = smoothed(points, _triangles(points, sides), len(boundary))
    triangles = _triangles(points, sides)
    patches = {patch: np.flatnonzero(shape.on_patch(patch, points)) for patch in shape.patches}
    mesh = Mesh.from_arrays(points, {"triangle": triangles}, patches=patches)
    _check(mesh, name, sides, len(boundary))
    return mesh


def smallest_angles(mesh: Mesh) -> Float[np.ndarray, " triangles"]:
    """The smallest angle of each triangle, in degrees."""
    return triangulation.smallest_angles(mesh.points.numpy()[mesh.connectivity.reshape(-1, 3)])


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
    """Random points inside, none nearer to another or to a side than a share of the spacing."""
    low, high = sides.min(axis=(0, 1)), sides.max(axis=(0, 1))
    number = round(float(np.prod(high - low)) / spacing**2)

    def throw() -> np.ndarray:
        thrown = random.uniform(low, high, (number, 2))
        return thrown[inside(thrown, sides) & (_distance(thrown, sides) > _NEAREST_TO_BOUNDARY * spacing)]

    return scattered(throw, boundary, spacing)


def _triangles(points: np.ndarray, sides: np.ndarray) -> Int64[np.ndarray, "triangles 3"]:
    """Delaunay's triangles that lie inside."""
    triangles = delaunay(points)
    return triangles[inside(points[triangles].mean(axis=1), sides)]


def _distance(points: Float[np.ndarray, "points 2"], sides: Float[np.ndarray, "sides 2 2"]) -> np.ndarray:
    start, along = sides[:, 0], sides[:, 1] - sides[:, 0]
    offset = points[:, None] - start
    share = np.clip((offset * along).sum(axis=2) / (along * along).sum(axis=1), 0.0, 1.0)
    return np.linalg.norm(offset - share[..., None] * along, axis=2).min(axis=1)


def _check(mesh: Mesh, name: str, sides: np.ndarray, boundary: int) -> None:
    area, filled = float(cross(sides[:, 0], sides[:, 1]).sum()) / 2, float(mesh.cell_volumes.sum())
    smallest = float(smallest_angles(mesh).min())
    if len(mesh.facets) != boundary or abs(filled - area) > 1e-9 * area or smallest < _SMALLEST_ANGLE:
        raise ValueError(
            f"The triangles of {name} fill {filled:.6g} of {area:.6g}, have {len(mesh.facets)} edges on the boundary "
            f"instead of {boundary}, and a smallest angle of {smallest:.1f} degrees. Take another seed."
        )
