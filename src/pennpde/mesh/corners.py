"""Corner points: which patch's value counts where two patches meet.

A point holds one value. Where an inlet meets a wall, the corner has the wall's velocity or the inlet's, and the last
facet of the other patch must not take a half of it. So a facet listens to those of its points that are in the fewest
patches.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int64

from pennpde.mesh.mesh import Mesh


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
