"""How far runs are from each other, whichever way they are turned: no run may have a near twin in another split.

The networks are equivariant, so a run that is another one turned, mirrored or, for a flow, scaled is the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from pennpde.case import Case
from pennpde.data.runs.quantities import Quantities

SHAPE_SCALE, PARAMETER_SCALE, VALUE_SCALE = 0.03, 0.15, 0.1
"""Boundaries that differ by this mean distance (in reference lengths), parameters by this factor, or prescribed values
by this share, make different runs."""
_SAMPLES = 600
_LENGTH_OF_BOX = 0.1
"""The reference length of runs without an inlet, as a share of the diagonal."""
_FURTHEST = 4.0
"""Distances beyond this are not worked out."""


@dataclass(frozen=True, eq=False)
class Signature:
    """What tells runs apart, in reference units.

    Attributes:
        boundary: places all over it, around their middle.
        values: what is prescribed there: of a scalar its value, of a vector its normal and its tangential part.
        unknowns: the unknown that each column belongs to.
        parameters: by name, its logarithm, or of a vector its length's.
        axes: main axes of the boundary, as rows.
    """

    boundary: Float[np.ndarray, "samples space"]
    values: Float[np.ndarray, "samples columns"]
    unknowns: tuple[str, ...]
    parameters: dict[str, float]
    axes: Float[np.ndarray, "space space"]

    @staticmethod
    def of(case: Case, quantities: Quantities) -> Signature:
        """Of a case in its own units."""
        units = quantities.units(case)
        diagonal = float(np.linalg.norm(np.ptp(case.mesh.points.numpy(), axis=0)))
        length = _LENGTH_OF_BOX * diagonal
        if units is not None:
            case, length = units.dimensionless(case), 1.0
        places, facets = _sampled(case)
        columns = [(name, each) for name in sorted(case.initial) for each in _prescribed(case, name, facets)]
        around = places - places.mean(axis=0)
        _, axes = np.linalg.eigh(around.T @ around)
        parameters = {name: _logarithm(value.numpy()) for name, value in sorted(case.parameters.items())}
        return Signature(
            around / length,
            np.stack([each for _, each in columns], axis=1),
            tuple(name for name, _ in columns),
            parameters,
            axes.T,
        )

    @property
    def extent(self) -> Float[np.ndarray, " space"]:
        """Along the main axes."""
        return np.ptp(self.boundary @ self.axes.T, axis=0)

    def turned(self, rotation: Float[np.ndarray, "space space"]) -> Signature:
        return replace(self, boundary=self.boundary @ rotation.T)


def distance(one: Signature, other: Signature) -> float:
    """Below 1 for near twins: the largest of the differences of parameters, shape and conditions, in their scales."""
    if one.parameters.keys() != other.parameters.keys() or one.unknowns != other.unknowns:
        return _FURTHEST
    apart = max(
        (abs(value - other.parameters[name]) / PARAMETER_SCALE for name, value in one.parameters.items()), default=0.0
    )
    # Main axes keep their lengths under rotation; half of the difference is there at least.
    sizes = float(np.abs(one.extent - other.extent).max()) / SHAPE_SCALE / 8
    if max(apart, sizes) >= _FURTHEST:
        return _FURTHEST
    if one.boundary.shape == other.boundary.shape and np.array_equal(one.boundary, other.boundary):
        return min(_FURTHEST, max(apart, _change(one, other, np.arange(len(one.boundary)))))
    return min(_FURTHEST, max(apart, min(_apart(one, turned) for turned in _ways(one, other))))


def _ways(one: Signature, other: Signature) -> list[Signature]:
    """The other one as it is, and turned and mirrored so that the main axes agree."""
    space = len(one.axes)
    flips = [np.diag(signs) for signs in product((1.0, -1.0), repeat=space)]
    return [other, *(other.turned(one.axes.T @ flip @ other.axes) for flip in flips)]


def _apart(one: Signature, other: Signature) -> float:
    to_other, there = KDTree(other.boundary).query(one.boundary)
    back = KDTree(one.boundary).query(other.boundary)[0]
    shape = 0.5 * (float(to_other.mean()) + float(back.mean())) / SHAPE_SCALE
    return max(shape, _change(one, other, np.asarray(there)))


def _change(one: Signature, other: Signature, there: np.ndarray) -> float:
    largest = 0.0
    for name in dict.fromkeys(one.unknowns):
        columns = [place for place, unknown in enumerate(one.unknowns) if unknown == name]
        mine, theirs = one.values[:, columns], other.values[:, columns]
        size = max(float(np.abs(mine).max()), float(np.abs(theirs).max()))
        # Over the places where something is prescribed at all: an inlet is a small part of the boundary.
        held = max(1, int((np.abs(mine) > 0).any(axis=1).sum()))
        if size > 0:
            largest = max(largest, float(np.abs(mine - theirs[there]).sum()) / held / size)
    return largest / VALUE_SCALE


def _sampled(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Places spread evenly over the boundary, and the facet that each is on."""
    mesh = case.mesh
    facets, positions = mesh.facets, mesh.points.numpy()
    ends = np.concatenate([[0.0], np.cumsum(mesh.facet_areas.norm(dim=1).numpy())])
    places = (np.arange(_SAMPLES) + 0.5) / _SAMPLES * ends[-1]
    chosen = np.clip(np.searchsorted(ends, places) - 1, 0, len(facets) - 1)
    if mesh.space == 2:
        edges = facets.connectivity.reshape(-1, 2)[chosen]
        share = ((places - ends[chosen]) / (ends[chosen + 1] - ends[chosen]))[:, None]
        return (1 - share) * positions[edges[:, 0]] + share * positions[edges[:, 1]], chosen
    middles = np.add.reduceat(positions[facets.connectivity], facets.offsets[:-1]) / facets.sizes[:, None]
    return middles[chosen], chosen


def _prescribed(case: Case, name: str, facets: np.ndarray) -> list[np.ndarray]:
    condition = case.dirichlet[name]
    held = case.mesh.facets.within(condition.mask.numpy())[facets]
    connectivity, offsets = case.mesh.facets.connectivity, case.mesh.facets.offsets
    flat = condition.values.numpy().reshape(len(condition.values), -1)
    means = np.add.reduceat(flat[connectivity], offsets[:-1]) / np.diff(offsets)[:, None]
    values = np.where(held[:, None], means[facets], 0.0)
    if condition.values.ndim == 1:
        return [values[:, 0]]
    if condition.values.ndim > 2:
        return [np.linalg.norm(values, axis=1)]
    normals = case.mesh.facet_normals.numpy()[facets]
    across = (values * normals).sum(axis=1)
    return [across, np.linalg.norm(values - across[:, None] * normals, axis=1)]


def _logarithm(value: np.ndarray) -> float:
    size = float(np.linalg.norm(value))
    return float(np.log(size)) if size > 0 else -99.0
