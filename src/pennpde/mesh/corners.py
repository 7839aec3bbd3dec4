"""Corner points: which patch's value counts where two patches meet.

A point holds one value. Where an inlet meets a wall, the corner has the wall's velocity or the inlet's, and the last
facet of the other patch must not take a half of it. So a facet listens to those of its points that are in the fewest
patches.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int64

from pennpde.mesh.mesh import Mesh

_CONTINUOUS = 0.35
"""A profile that is continued to a corner and misses the corner's value by less than this share of its value at the
next point goes to that value: at 12 points per width a parabola misses it by 0.17, a uniform profile by 1."""


def patches_at_points(mesh: Mesh) -> Int64[np.ndarray, " points"]:
    """The number of patches that each point is in: two or more at a corner."""
    number = np.zeros(mesh.number_of_points, np.int64)
    for patch in mesh.patches.values():
        number[patch.points] += 1
    return number


def facet_means(
    values: Float[np.ndarray, "points components"], mesh: Mesh, prescribed: Bool[np.ndarray, " points"]
) -> tuple[Float[np.ndarray, "facets components"], Bool[np.ndarray, " facets"]]:
    """The mean of a field over the points of each exterior facet, and whether all of them are prescribed.

    Where all are prescribed, only those in the fewest patches count.
    """
    facets = mesh.facets
    sizes = np.diff(facets.offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    inside = np.logical_and.reduceat(prescribed[facets.connectivity], facets.offsets[:-1])
    patches = patches_at_points(mesh)[facets.connectivity]
    counted = ~inside[owner] | (patches == np.minimum.reduceat(patches, facets.offsets[:-1])[owner])
    columns = values[facets.connectivity].T
    sums = np.stack([np.bincount(owner, counted * column, len(sizes)) for column in columns], axis=1)
    return sums / np.bincount(owner, counted, len(sizes))[:, None], inside


def facet_ends(
    values: Float[np.ndarray, "points components"], mesh: Mesh, prescribed: Bool[np.ndarray, " points"]
) -> Float[np.ndarray, "facets 2 components"]:
    """The prescribed field at both ends of each exterior facet of a plane mesh, as the facet's own patch has it.

    At a corner the point may have the value of the other patch. Then the profile of the facet's own patch is
    continued to the corner from the next two points, unless it comes near the corner's value by itself, as a
    parabola comes to the wall's zero.
    """
    ends = mesh.facets.connectivity.reshape(-1, 2)
    result = values[ends].astype(float)
    patches = patches_at_points(mesh)
    positions = mesh.points.detach().cpu().numpy()
    lengths = np.linalg.norm(positions[ends[:, 1]] - positions[ends[:, 0]], axis=1)
    # Both facets of each boundary point; where more than two meet (bodies that touch) nothing is continued.
    point, facet = ends.ravel(), np.repeat(np.arange(len(ends)), 2)
    order = np.argsort(point, kind="stable")
    counts = np.bincount(point, minlength=len(values))
    starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    sorted_facets = facet[order]
    held = np.logical_and(prescribed[ends[:, 0]], prescribed[ends[:, 1]])
    for side in (0, 1):
        corner, other = ends[:, side], ends[:, 1 - side]
        wanted = np.flatnonzero(held & (patches[corner] > patches[other]) & (counts[other] == 2))
        if not len(wanted):
            continue
        near = other[wanted]
        pair = sorted_facets[starts[near][:, None] + np.arange(2)]
        following = np.where(pair[:, 0] == wanted, pair[:, 1], pair[:, 0])
        beyond = np.where(ends[following, 0] == near, ends[following, 1], ends[following, 0])
        slope = (values[near] - values[beyond]) * (lengths[wanted] / lengths[following])[:, None]
        same = held[following] & (patches[beyond] == patches[near])
        continued = values[near] + np.where(same[:, None], slope, 0.0)
        apart = np.linalg.norm(continued - values[corner[wanted]], axis=1)
        jumps = apart > _CONTINUOUS * np.linalg.norm(values[near], axis=1) + 1e-12
        result[wanted[jumps], side] = continued[jumps]
    return result
