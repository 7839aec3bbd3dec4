"""Wall shear, where the flow separates and comes back, and the wake of a body."""

from __future__ import annotations

import numpy as np

from pennpde.mesh.boundary import Ring
from pennpde.mesh.interpolation import interpolation
from pennpde.quantities.quantity import Quantity, Raw
from pennpde.quantities.solved import SolvedFlow

_ACROSS = 0.3
"""Walls whose tangent has no more of the flow's direction than this say nothing about separation."""
_PLACES = 2000
"""On the line behind a body."""


def mean_shear(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """The mean of its modulus, over the density."""
    facets = flow.facets(quantity.arguments[0])
    lengths = flow.lengths[facets]
    values = (np.abs(_shear(flow, facets)) * lengths).sum(axis=1) / lengths.sum()
    return Raw(values, values)


def largest_shear(flow: SolvedFlow, quantity: Quantity) -> Raw:
    values = np.abs(_shear(flow, flow.facets(quantity.arguments[0]))).max(axis=1)
    return Raw(values, values)


def reattachment(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """Where, along the flow's direction, the longest stretch of backward flow at the wall ends."""
    return _positions(flow, quantity, 1)


def separation(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """Where it begins."""
    return _positions(flow, quantity, 0)


def recirculation_length(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """Of the longest stretch of backward flow at the wall; behind a body, of the wake on the line through its middle.

    Zero where there is none.
    """
    facets = flow.facets(quantity.arguments[0])
    if is_body(flow, facets):
        values = _wake(flow, facets, quantity.directions(flow)[0])
    else:
        found = _stretches(flow, quantity)
        values = np.nan_to_num(found[:, 1] - found[:, 0])
    return Raw(values, np.abs(values) + 0.1 * flow.length)


def _positions(flow: SolvedFlow, quantity: Quantity, which: int) -> Raw:
    found = _stretches(flow, quantity)
    if np.isnan(found).all():
        raise ValueError(f"{quantity.name!r} has no value: the flow is attached all along {quantity.arguments[0]!r}.")
    # At single times there may be none; numpy has no other word for that in a series.
    return Raw(found[:, which], found[:, 1] - found[:, 0] + 0.1 * flow.length)


def _shear(flow: SolvedFlow, facets: np.ndarray) -> np.ndarray:
    """Along each facet, positive in the direction in which the facet goes [times, facets]."""
    along = flow.points[flow.ends[facets, 1]] - flow.points[flow.ends[facets, 0]]
    return (flow.force(facets, "viscous") * along).sum(axis=2) / flow.lengths[facets] ** 2


def _stretches(flow: SolvedFlow, quantity: Quantity) -> np.ndarray:
    """By time, where the longest stretch of backward flow begins and ends along the flow's direction."""
    facets = flow.facets(quantity.arguments[0])
    direction = quantity.directions(flow)[0]
    along = flow.points[flow.ends[facets, 1]] - flow.points[flow.ends[facets, 0]]
    cosine = along @ direction / flow.lengths[facets]
    shear = np.where(np.abs(cosine) > _ACROSS, _shear(flow, facets) * np.sign(cosine), np.nan)
    chains = _chains(flow, facets)
    found = np.full((len(flow.times), 2), np.nan)
    for time, values in enumerate(shear):
        for chain in chains:
            for stretch in _backward(values[chain], flow.points[flow.ends[facets[chain]]] @ direction):
                if not np.ptp(stretch) <= np.ptp(found[time]):
                    found[time] = sorted(stretch)
    return found


def _chains(flow: SolvedFlow, facets: np.ndarray) -> list[np.ndarray]:
    """Places among facets in the order in which they follow each other."""
    following = Ring.of(flow.case.mesh).following()
    place = {int(facet): number for number, facet in enumerate(facets)}
    starts = [facet for facet in place if int(following[facet, 0]) not in place]
    chains, seen = [], set()
    for start in (*starts, *place):  # what no start leads to goes round in circles
        chain, facet = [], start
        while facet in place and facet not in seen:
            seen.add(facet)
            chain.append(place[facet])
            facet = int(following[facet, 1])
        if chain:
            chains.append(np.array(chain))
    return chains


def _backward(shear: np.ndarray, positions: np.ndarray) -> list[tuple[float, float]]:
    """Where stretches of negative shear begin and end; between two facets the shear is linear."""
    middles, negative = positions.mean(axis=1), shear < 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], negative, [False]]).astype(int)))
    found = []
    for first, last in zip(edges[::2], edges[1::2] - 1, strict=True):
        places = []
        for inner, outer, end in ((first, first - 1, 0), (last, last + 1, 1)):
            known = 0 <= outer < len(shear) and not np.isnan(shear[outer])
            share = shear[inner] / (shear[inner] - shear[outer]) if known else 0.0
            there = middles[inner] + share * (middles[outer] - middles[inner]) if known else positions[inner, end]
            places.append(float(there))
        found.append((places[0], places[1]))
    return found


def is_body(flow: SolvedFlow, facets: np.ndarray) -> bool:
    """Whether facets close upon themselves around something that is not fluid."""
    ends = flow.ends[facets]
    closed = np.array_equal(np.sort(ends[:, 0]), np.sort(ends[:, 1]))
    area = 0.5 * (flow.middles[facets] * flow.outward[facets]).sum()  # outward of the fluid is into the body
    return closed and area < 0


def _wake(flow: SolvedFlow, facets: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """How far behind the body the velocity on the line through its middle points back."""
    body = flow.points[flow.ends[facets].ravel()]
    across = np.array([-direction[1], direction[0]])
    height = 0.5 * (np.max(body @ across) + np.min(body @ across))
    rear, end = np.max(body @ direction), np.max(flow.points @ direction)
    reach = np.linspace(0.0, end - rear, _PLACES)
    places = (rear + reach)[:, None] * direction + height * across
    backward = np.einsum("pq,tqa,a->tp", interpolation(flow.case.mesh, places).toarray(), flow.fields["u"], direction)
    values = np.zeros(len(flow.times))
    for time, speed in enumerate(backward):
        ends = np.flatnonzero((speed[:-1] < 0) & (speed[1:] >= 0))
        if len(ends):
            last = ends[-1]
            values[time] = reach[last] - speed[last] * (reach[1] - reach[0]) / (speed[last + 1] - speed[last])
    return values
