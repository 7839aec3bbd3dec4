"""Prescribed values facet by facet, as each facet's own patch has them.

A point where two patches meet holds one value, so a patch of a single facet between two others would lose its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pennpde.case.conditions.course import Course
from pennpde.mesh import Mesh


@dataclass(frozen=True, eq=False)
class FacetValues:
    """Prescribed values on the exterior facets of a mesh.

    Attributes:
        patch: the number of the patch that prescribes each facet; -1 where none does. Where patches share a facet, the
            later one counts.
        ends: the value at the points of each facet, as its patch has it; zero where nothing is prescribed. In space,
            where facets have any number of points, the same mean twice.
        is_mean: whether the mean over the facet is known and `ends` is that mean twice: OpenFOAM's face values.
        course: how `ends` change with time; None: not at all.
    """

    patch: Int64[np.ndarray, " facets"]
    ends: Float[np.ndarray, "facets 2 *axes"]
    is_mean: Bool[np.ndarray, " facets"]
    course: Callable[[float], np.ndarray] | None = None

    @staticmethod
    def of(mesh: Mesh, parts: Sequence[tuple[np.ndarray, Course | Tensor]], like: Tensor) -> FacetValues:
        """From the facets of each patch and what it prescribes at all points, in the order of the patches."""
        number = len(mesh.facets)
        patch = np.full(number, -1)
        for place, (facets, _) in enumerate(parts):
            patch[facets] = place

        def at(time: float | None) -> np.ndarray:
            ends = np.zeros((number, 2, *like.shape[1:]))
            for place, (_, part) in enumerate(parts):
                own = np.flatnonzero(patch == place)
                now = part.at(part.first if time is None else time) if isinstance(part, Course) else part
                ends[own] = _at_ends(mesh, own, now.detach().cpu().double().numpy())
            return ends

        varies = any(isinstance(part, Course) for _, part in parts)
        return FacetValues(patch, at(None), np.zeros(number, bool), at if varies else None)

    @property
    def held(self) -> Bool[np.ndarray, " facets"]:
        return self.patch >= 0

    def with_means(self, facets: Int64[np.ndarray, " some"], means: Float[np.ndarray, "some *axes"]) -> FacetValues:
        """With the known means over some facets, whose values do not change with time."""
        is_mean = self.is_mean.copy()
        is_mean[facets] = True

        def known(ends: np.ndarray) -> np.ndarray:
            ends = ends.copy()
            ends[facets] = means[:, None]
            return ends

        return replace(self.mapped(known), is_mean=is_mean)

    def mapped(self, change: Callable[[np.ndarray], np.ndarray], one_time: float = 1.0) -> FacetValues:
        """With changed values, and times counted in a unit."""
        course = self.course
        later = None if course is None else lambda time: change(course(time * one_time))
        return replace(self, ends=change(self.ends), course=later)

    def at(self, time: float) -> FacetValues:
        return self if self.course is None else replace(self, ends=self.course(time), course=None)

    def turned(self, turn: Float[Tensor, "space space"]) -> FacetValues:
        """Of vectors, after a rotation."""
        matrix = turn.detach().cpu().double().numpy()
        return self.mapped(lambda ends: ends @ matrix.T)


def _at_ends(mesh: Mesh, facets: np.ndarray, values: np.ndarray) -> np.ndarray:
    chosen = mesh.facets.take(facets)
    if mesh.space == 2:
        return values[chosen.connectivity.reshape(-1, 2)]
    if not len(facets):
        return np.zeros((0, 2, *values.shape[1:]))
    sizes = np.diff(chosen.offsets)
    means = np.add.reduceat(values[chosen.connectivity], chosen.offsets[:-1]) / sizes.reshape(
        -1, *[1] * (values.ndim - 1)
    )
    return np.stack([means, means], axis=1)
