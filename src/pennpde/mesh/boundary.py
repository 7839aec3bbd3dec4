"""The boundary of a mesh: in the plane edges that follow each other, and corners, where two patches meet.

A point holds one value. Where an inlet meets a wall, the corner has the wall's velocity or the inlet's, and the last
facet of the other patch must not take a half of it. So a facet listens to those of its points that are in the fewest
patches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from pennpde.machine import remembered
from pennpde.mesh.cells import at_corners, cross, leads_across
from pennpde.mesh.mesh import Mesh

CORNER = np.radians(30.0)
"""A boundary that turns by more at a point has a corner there; by less, it may be a curve in short edges."""
_CONTINUOUS = 0.35
"""A profile that is continued to a corner and misses the corner's value by less than this share of its value at the
next point goes to that value: at 12 points per width a parabola misses it by 0.17, a uniform profile by 1."""


@dataclass(frozen=True, eq=False)
class Ring:
    """The facets of a plane mesh as edges that follow each other, with the domain to their left."""

    edges: Int64[np.ndarray, "facets 2"]
    before: Int64[np.ndarray, " joints"]
    """By joint, the facet that ends there."""
    after: Int64[np.ndarray, " joints"]
    """The facet that starts there."""
    joints: Int64[np.ndarray, " joints"]
    """Points at which one facet ends and one starts."""
    knots: Int64[np.ndarray, " knots"]
    """Points at which more do: the domain touches itself there."""

    @staticmethod
    def of(mesh: Mesh) -> Ring:
        edges = edges_of(mesh)
        starts = np.bincount(edges[:, 0], minlength=mesh.number_of_points)
        facets = np.zeros((2, mesh.number_of_points), np.int64)
        facets[0, edges[:, 1]], facets[1, edges[:, 0]] = np.arange(len(edges)), np.arange(len(edges))
        joints = np.flatnonzero(starts == 1)
        return Ring(edges, facets[0, joints], facets[1, joints], joints, np.flatnonzero(starts > 1))

    def turns(self, positions: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, " joints"]:
        """By joint, the angle by which the boundary turns there, positive to the left."""
        directions = positions[self.edges[:, 1]] - positions[self.edges[:, 0]]
        one, other = directions[self.before], directions[self.after]
        return np.arctan2(cross(one, other), (one * other).sum(axis=1))

    def following(self) -> Int64[np.ndarray, "facets 2"]:
        """The facets that come before and after each facet; -1 where it starts or ends at a knot."""
        found = np.full((len(self.edges), 2), -1)
        found[self.after, 0] = self.before
        found[self.before, 1] = self.after
        return found


def edges_of(mesh: Mesh) -> Int64[np.ndarray, "facets 2"]:
    """The points of each exterior facet of a plane mesh."""
    if mesh.space != 2:
        raise ValueError(f"Only a plane mesh has a boundary of edges; this one has {mesh.space} dimensions.")
    return mesh.facets.connectivity.reshape(-1, 2)


def ends_of(ring: Ring, labels: Bool[np.ndarray, "facets labels"]) -> Int64[np.ndarray, " ends"]:
    """Points between two facets that differ in a label."""
    return ring.joints[(labels[ring.before] != labels[ring.after]).any(axis=1)]


def patches_at_points(mesh: Mesh) -> Int64[np.ndarray, " points"]:
    """The number of patches that each point is in: two or more at a corner."""
    number = np.zeros(mesh.number_of_points, np.int64)
    for patch in mesh.patches.values():
        number[patch.points] += 1
    return number


@dataclass(frozen=True, eq=False)
class _Surroundings:
    """What the facets of a plane mesh have beside them."""

    ring: Ring
    following: Int64[np.ndarray, "facets 2"]
    patches: Int64[np.ndarray, " points"]
    lengths: Float[np.ndarray, " facets"]

    @staticmethod
    def of(mesh: Mesh) -> _Surroundings:
        ring = Ring.of(mesh)
        corners = mesh.points.detach().cpu().numpy()[ring.edges]
        lengths = np.linalg.norm(corners[:, 1] - corners[:, 0], axis=1)
        return _Surroundings(ring, ring.following(), patches_at_points(mesh), lengths)


_surroundings = remembered(_Surroundings.of)


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
    around = _surroundings(mesh)
    ring, patches, lengths = around.ring, around.patches, around.lengths
    result, held = values[ring.edges].astype(float), mesh.facets.within(prescribed)
    for side in (0, 1):
        # Away from the corner, facet after facet.
        corner, ends, following = ring.edges[:, side], ring.edges[:, 1 - side], around.following[:, 1 - side]
        wanted = np.flatnonzero(held & (patches[corner] > patches[ends]) & (following >= 0))
        if not len(wanted):
            continue
        near, second = ends[wanted], following[wanted]
        beyond = ends[second]
        slope = (values[near] - values[beyond]) / lengths[second][:, None]
        same = held[second] & (patches[beyond] == patches[near])
        size = lengths[wanted][:, None]
        continued = values[near] + np.where(same[:, None], slope * size, 0.0)
        # With a third point the slope's own change is known, and a parabola meets the wall on the coarsest mesh.
        third = following[second]
        further = ends[third]
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
    around = _surroundings(mesh)
    ring, lengths = around.ring, around.lengths
    patches = around.patches if by_patch else np.zeros(mesh.number_of_points, np.int64)
    held = mesh.facets.within(prescribed)
    slopes = (profile[:, 1] - profile[:, 0]) / lengths[:, None]
    bend, counted = np.zeros_like(slopes), np.zeros(len(slopes))
    for side in (0, 1):
        shared, other, following = ring.edges[:, side], ring.edges[:, 1 - side], around.following[:, side]
        going_on = np.flatnonzero(held & (following >= 0) & (patches[shared] <= patches[other]))
        beyond = shared[following[going_on]]
        same = held[following[going_on]] & (patches[shared[going_on]] <= patches[beyond])
        going_on = going_on[same]
        following = following[going_on]
        rise = (slopes[following] - slopes[going_on]) * (1.0 if side == 1 else -1.0)
        bend[going_on] += 2.0 * rise / (lengths[going_on] + lengths[following])[:, None]
        counted[going_on] += 1
    second_derivative = bend / np.maximum(counted, 1)[:, None]
    middle = profile.mean(axis=1) - second_derivative * lengths[:, None] ** 2 / 8.0
    return np.stack([profile[:, 0], middle, profile[:, 1]], axis=1)


def facet_profiles(
    values: Float[np.ndarray, "points space"], mesh: Mesh, held: Bool[np.ndarray, " points"]
) -> Float[np.ndarray, "facets places space"]:
    """The prescribed field at start, middle and end of the facets of a plane mesh, or at the corners of those in space.

    In space a corner that belongs to other patches, too, has the mean of the facet's own; after the corners comes the
    mean, up to the number of corners of the largest facet.
    """
    if mesh.space == 2:
        return facet_parabolas(values, mesh, held)
    facets, number = mesh.facets, int(mesh.facets.sizes.max())
    means, _ = facet_means(values, mesh, held)
    patches = patches_at_points(mesh)
    fewest = np.minimum.reduceat(patches[facets.connectivity], facets.offsets[:-1])
    shared = at_corners(facets, patches.astype(float), number) > fewest[:, None]
    found = np.where(shared[..., None], means[:, None], at_corners(facets, values, number))
    beyond = np.arange(number) >= facets.sizes[:, None]
    found[beyond] = 0.0
    return np.where(beyond[..., None], (found.sum(axis=1) / facets.sizes[:, None])[:, None], found)


def facet_heights(
    corners: Float[np.ndarray, "facets corners components"], mesh: Mesh, patch: Int64[np.ndarray, " facets"]
) -> Float[np.ndarray, "facets 4 components"]:
    """By how much a smooth field in the middle of each side of each facet in space is above the mean of both ends.

    Along each side it is a parabola with the slopes that the field has at its ends, the means of those of the patch's
    facets around them. Facets of no patch, and those of more than four corners, are straight. The last side of
    a triangle is the fourth: between its third corner and the first.

    Args:
        corners: The field at the corners of each facet, as its own patch has it.
        mesh: In space.
        patch: The number of the patch of each facet; -1 for none.
    """
    facets, points = mesh.facets, mesh.points.detach().cpu().numpy()
    result = np.zeros((len(facets), 4, corners.shape[2]))
    chosen = np.flatnonzero((patch >= 0) & (facets.sizes <= 4))
    if not len(chosen):
        return result
    owner, place, here, there, along, areas, gradients = ([] for _ in range(7))
    for size in np.unique(facets.sizes[chosen]):
        own = chosen[facets.sizes[chosen] == size]
        ends, given = facets.take(own).connectivity.reshape(-1, size), corners[own, :size]
        ahead, behind = (np.roll(points[ends], turn, axis=1) - points[ends] for turn in (-1, 1))
        rise, other = (np.roll(given, turn, axis=1) - given for turn in (-1, 1))
        # At each corner the slopes that both of its sides have.
        metric = np.stack([[(one * two).sum(axis=-1) for two in (ahead, behind)] for one in (ahead, behind)])
        shares = np.linalg.solve(metric.transpose(2, 3, 0, 1), np.stack([rise, other], axis=2))
        gradients.append(
            (ahead[..., None] * shares[:, :, :1] + behind[..., None] * shares[:, :, 1:]).reshape(-1, 3, given.shape[2])
        )
        areas.append(np.linalg.norm(np.cross(ahead, behind), axis=2).ravel())
        along.append(ahead.reshape(-1, 3))
        here.append(ends.ravel())
        there.append(np.roll(ends, -1, axis=1).ravel())
        owner.append(np.repeat(own, size))
        place.append(np.tile([*range(size - 1), 3], len(own)))
    facet, side, first, second = (np.concatenate(each) for each in (owner, place, here, there))
    lengths, weights, slope = (np.concatenate(each) for each in (along, areas, gradients))
    # A point of two patches has slopes in each.
    _, number = np.unique(np.stack([np.tile(patch[facet], 2), np.r_[first, second]]), axis=1, return_inverse=True)
    start, end = number.ravel().reshape(2, -1)
    slopes, total = np.zeros((int(number.max()) + 1, *slope.shape[1:])), np.zeros(int(number.max()) + 1)
    np.add.at(slopes, start, weights[:, None, None] * slope)
    np.add.at(total, start, weights)
    slopes /= total[:, None, None]
    bend = np.einsum("ea,eac->ec", lengths, slopes[start] - slopes[end])
    # At the rim of a patch slopes across it are those half a side within.
    keys = np.minimum(start, end) * np.int64(len(total)) + np.maximum(start, end)
    _, back, count = np.unique(keys, return_inverse=True, return_counts=True)
    rim = np.zeros(len(total), bool)
    alone = count[back.ravel()] == 1
    rim[start[alone]] = rim[end[alone]] = True
    result[facet, side] = np.where(leads_across(start, end, lengths, rim), 0.25, 0.125)[:, None] * bend
    return result
