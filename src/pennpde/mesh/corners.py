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
    inside = facets.within(prescribed)
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
    continued to the corner from the next two points, unless it, or a parabola through the next three, comes near the
    corner's value by itself, as a developed flow comes to the wall's zero.
    """
    ends = mesh.facets.connectivity.reshape(-1, 2)
    result = values[ends].astype(float)
    patches = patches_at_points(mesh)
    lengths = _lengths(mesh)
    held = np.logical_and(prescribed[ends[:, 0]], prescribed[ends[:, 1]])
    following = _next_facets(ends, len(values))
    for side in (0, 1):
        corner, other = ends[:, side], ends[:, 1 - side]
        wanted = np.flatnonzero(held & (patches[corner] > patches[other]) & (following[:, 1 - side] >= 0))
        if not len(wanted):
            continue
        near, second = other[wanted], following[wanted, 1 - side]
        beyond, way = _far_end(ends, second, near)
        slope = (values[near] - values[beyond]) / lengths[second][:, None]
        same = held[second] & (patches[beyond] == patches[near])
        size = lengths[wanted][:, None]
        continued = values[near] + np.where(same[:, None], slope * size, 0.0)
        # With a third point the slope's own change is known, and a parabola meets the wall on the coarsest mesh.
        third = following[second, way]
        further, _ = _far_end(ends, third, beyond)
        bent = same & (third >= 0) & held[third] & (patches[further] == patches[beyond])
        before = (values[beyond] - values[further]) / lengths[third][:, None]
        change = (slope - before) * (size + lengths[second][:, None]) / (lengths[second] + lengths[third])[:, None]
        curved = continued + np.where(bent[:, None], change * size, 0.0)
        there = values[corner[wanted]]
        apart = np.minimum(np.linalg.norm(continued - there, axis=1), np.linalg.norm(curved - there, axis=1))
        jumps = apart > _CONTINUOUS * np.linalg.norm(values[near], axis=1) + 1e-12
        result[wanted[jumps], side] = continued[jumps]
    return result


def facet_parabolas(
    values: Float[np.ndarray, "points components"],
    mesh: Mesh,
    prescribed: Bool[np.ndarray, " points"],
    *,
    by_patch: bool = True,
) -> Float[np.ndarray, "facets 3 components"]:
    """The prescribed field at start, middle and end of each exterior facet of a plane mesh, as its patch has it.

    The middle is that of the parabola through the ends and the next point of the patch, or the mean of the two
    parabolas where the patch goes on at both ends. Where two patches meet nothing is known of the profile beyond.

    Args:
        values: of the field.
        mesh: in the plane.
        prescribed: the points that count.
        by_patch: False: corners have the values of their points, as a field has that a patch does not prescribe.
    """
    ends = mesh.facets.connectivity.reshape(-1, 2)
    profile = facet_ends(values, mesh, prescribed) if by_patch else values[ends].astype(float)
    lengths = _lengths(mesh)
    patches = patches_at_points(mesh) if by_patch else np.zeros(mesh.number_of_points, np.int64)
    held = np.logical_and(prescribed[ends[:, 0]], prescribed[ends[:, 1]])
    slopes = (profile[:, 1] - profile[:, 0]) / lengths[:, None]
    bend, counted = np.zeros_like(slopes), np.zeros(len(ends))
    both = _next_facets(ends, len(values))
    for side in (0, 1):
        following = both[:, side]
        shared, other = ends[:, side], ends[:, 1 - side]
        going_on = np.flatnonzero(held & (following >= 0) & (patches[shared] <= patches[other]))
        following = following[going_on]
        # A neighbour that runs the other way has a slope of the other sign.
        beyond, way = _far_end(ends, following, shared[going_on])
        same = held[following] & (patches[shared[going_on]] <= patches[beyond])
        going_on, following, way = going_on[same], following[same], way[same]
        onward = np.where(way == side, 1.0, -1.0)[:, None] * slopes[following]
        rise = (onward - slopes[going_on]) * (1.0 if side == 1 else -1.0)
        bend[going_on] += 2.0 * rise / (lengths[going_on] + lengths[following])[:, None]
        counted[going_on] += 1
    second_derivative = bend / np.maximum(counted, 1)[:, None]
    middle = profile.mean(axis=1) - second_derivative * lengths[:, None] ** 2 / 8.0
    return np.stack([profile[:, 0], middle, profile[:, 1]], axis=1)


def _far_end(
    ends: Int64[np.ndarray, "facets 2"], facets: Int64[np.ndarray, " some"], near: Int64[np.ndarray, " some"]
) -> tuple[Int64[np.ndarray, " some"], Int64[np.ndarray, " some"]]:
    """The end of each facet that is not the near one, and which of both it is."""
    way = np.where(ends[facets, 0] == near, 1, 0)
    return ends[facets, way], way


def _lengths(mesh: Mesh) -> Float[np.ndarray, " facets"]:
    corners = mesh.points.detach().cpu().numpy()[mesh.facets.connectivity.reshape(-1, 2)]
    return np.linalg.norm(corners[:, 1] - corners[:, 0], axis=1)


def _next_facets(ends: Int64[np.ndarray, "facets 2"], number: int) -> Int64[np.ndarray, "facets 2"]:
    """The other facet at both ends of each facet; -1 where more than two meet, as where bodies touch."""
    point, facet = ends.ravel(), np.repeat(np.arange(len(ends)), 2)
    order = np.argsort(point, kind="stable")
    counts = np.bincount(point, minlength=number)
    starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    first = facet[order][starts[ends]]
    second = facet[order][np.minimum(starts[ends] + 1, len(order) - 1)]
    return np.where(counts[ends] == 2, np.where(first == np.arange(len(ends))[:, None], second, first), -1)
