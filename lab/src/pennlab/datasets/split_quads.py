"""Plane meshes whose quads are split into triangles at random: other graphs for the same points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from pennpde.mesh import Mesh
from pennpde.mesh.cells import FLATTEST, QUAD, TRIANGLE, Cells, offsets_of


def triangulated(mesh: Mesh, share: float = 1.0, seed: int = 0) -> Mesh:
    """The plane mesh with quads split into two triangles each, along either diagonal at random.

    Points, boundary, patches and fields stay as they are; the triangles stand in the place of their quad.
    Triangles and polygons stay, and so does a quad of which neither diagonal makes two triangles.

    Args:
        mesh: any plane mesh.
        share: how many of the quads are split, about. With the same seed a larger share splits the same and more.
        seed: of the choice of quads and of diagonals.
    """
    if mesh.space != 2:
        raise ValueError("Only the quads of a plane mesh can be split; Mesh.plane_of makes one of a thin mesh.")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"The share of quads to split is from 0 to 1; got {share:g}.")
    whole = Cells(mesh.connectivity, mesh.offsets, mesh.cell_types)
    cells = _split(mesh.points.detach().numpy(), whole, share, seed)
    split = replace(mesh, connectivity=cells.connectivity, offsets=cells.offsets, cell_types=cells.types, patches={})
    return split.with_patches_of(mesh)


def _split(points: Float[np.ndarray, "points 2"], cells: Cells, share: float, seed: int) -> Cells:
    """Plane cells with this share of the quads split into two triangles each, along either diagonal at random.

    The triangles stand in the place of their quad. A diagonal that leaves the quad, or that three of its corners lie
    on, is never taken; a quad that has no other stays.
    """
    quads = np.flatnonzero(cells.types == QUAD)
    corners = cells.connectivity[cells.offsets[quads, None] + np.arange(4)]
    # Two numbers for each quad, whatever the share: more quads are split with a larger share, never others.
    random = np.random.default_rng(seed).random((len(quads), 2))
    halves = np.stack([corners[:, [[0, 1, 2], [0, 2, 3]]], corners[:, [[0, 1, 3], [1, 2, 3]]]], axis=1)
    first, second, third = np.moveaxis(points[halves], 3, 0)
    one, other = second - first, third - first
    doubled_areas = one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0]
    widths = np.ptp(points[corners], axis=1).max(axis=1)
    inside = (doubled_areas > 2 * FLATTEST * widths[:, None, None] ** 2).all(axis=2)
    split = (random[:, 0] < share) & inside.any(axis=1)
    diagonal = np.where(inside.all(axis=1), random[:, 1] < 0.5, inside[:, 1]).astype(np.int64)
    number = np.ones(len(cells), dtype=np.int64)
    number[quads[split]] = 2
    place = offsets_of(number)[:-1]
    sizes = np.repeat(np.where(number == 2, 3, cells.sizes), number)
    offsets = offsets_of(sizes)
    connectivity = np.empty(offsets[-1], dtype=np.int64)
    whole = np.repeat(number == 1, cells.sizes)
    connectivity[np.repeat(np.repeat(number == 1, number), sizes)] = cells.connectivity[whole]
    triangles = halves[np.flatnonzero(split), diagonal[split]].reshape(-1, 6)
    connectivity[offsets[place[quads[split]], None] + np.arange(6)] = triangles
    types = np.repeat(np.where(number == 2, TRIANGLE, cells.types), number).astype(np.uint8)
    return Cells(connectivity, offsets, types)
