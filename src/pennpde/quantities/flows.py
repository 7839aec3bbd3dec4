"""What enters and leaves, and what it loses on the way: from the scheme's fluxes, which are in balance to round-off."""

from __future__ import annotations

import numpy as np

from pennpde.quantities.quantity import Quantity, Raw
from pennpde.quantities.solved import SolvedFlow

_NOTHING = 1e-9
"""Share of all fluxes or of the reference speed that is rounding."""


def flow_rate(flow: SolvedFlow, quantity: Quantity) -> Raw:
    through = _through(flow, quantity.arguments[0])
    return Raw(through, _entering(flow))


def flow_split(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """The share of the first patch in what flows through all that are named."""
    parts = np.stack([_through(flow, patch) for patch in quantity.arguments])
    total = parts.sum(axis=0)
    if not (np.abs(total) > _NOTHING * np.abs(parts).sum(axis=0)).all():
        raise ValueError(f"{quantity.name!r} has no value: nothing flows through these patches in total.")
    return Raw(parts[0] / total, np.ones(len(flow.times)))


def pressure_drop(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """Of the static pressure, its means over the patches."""
    first, second = (_mean_pressure(flow, patch) for patch in quantity.arguments)
    return Raw(first - second, np.abs(first - second) + 1e-2 * flow.speed**2)


def total_pressure_drop(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """Of p + u²/2, the latter weighted with the flow rate: the energy that a unit of mass loses."""
    first, second = (_total_pressure(flow, patch, quantity) for patch in quantity.arguments)
    return Raw(first - second, np.abs(first - second) + 1e-2 * flow.speed**2)


def loss_coefficient(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """The loss of total pressure over the dynamic pressure of the reference speed."""
    lost = total_pressure_drop(flow, quantity)
    one = 0.5 * quantity.options.get("speed", (flow.speed,))[0] ** 2
    return Raw(lost.values / one, lost.scale / one)


def mean_pressure(flow: SolvedFlow, quantity: Quantity) -> Raw:
    values = _mean_pressure(flow, quantity.arguments[0])
    return Raw(values, np.abs(values) + 1e-2 * flow.speed**2)


def uniformity(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """1 - ∫ |u_n - ū| / (2 |ū| L): one for a uniform velocity, 1 - 1 / (3 √3) for a parabola."""
    facets = flow.facets(quantity.arguments[0])
    velocity, weights = flow.profile(facets)
    normal = flow.outward[facets] / flow.lengths[facets][:, None]
    through = np.einsum("tfga,fa->tfg", velocity, normal)
    shares = flow.lengths[facets][:, None] * weights / flow.lengths[facets].sum()
    mean = (through * shares).sum(axis=(1, 2))
    if not (np.abs(mean) > _NOTHING * flow.speed).all():
        raise ValueError(f"{quantity.name!r} has no value: nothing flows through {quantity.arguments[0]!r} in total.")
    apart = (np.abs(through - mean[:, None, None]) * shares).sum(axis=(1, 2))
    return Raw(1.0 - 0.5 * apart / np.abs(mean), np.ones(len(mean)))


def residence_time(flow: SolvedFlow, quantity: Quantity) -> Raw:
    """The mean over the fluid that leaves: the area over the flow rate."""
    entering = _entering(flow)
    if not (entering > 0).all():
        raise ValueError(f"{quantity.name!r} has no value: nothing enters this domain.")
    values = float(flow.case.mesh.cell_volumes.sum()) / entering
    return Raw(values, values)


def _through(flow: SolvedFlow, patch: str) -> np.ndarray:
    return flow.outflow[:, flow.facets(patch)].sum(axis=1)


def _entering(flow: SolvedFlow) -> np.ndarray:
    return np.clip(-flow.outflow, 0.0, None).sum(axis=1)


def _mean_pressure(flow: SolvedFlow, patch: str) -> np.ndarray:
    facets = flow.facets(patch)
    return (flow.pressure[:, facets] * flow.lengths[facets]).sum(axis=1) / flow.lengths[facets].sum()


def _total_pressure(flow: SolvedFlow, patch: str, quantity: Quantity) -> np.ndarray:
    facets = flow.facets(patch)
    velocity, weights = flow.profile(facets)
    through = np.einsum("tfga,fa,g->tfg", velocity, flow.outward[facets], weights)
    rate = through.sum(axis=(1, 2))
    if not (np.abs(rate) > _NOTHING * np.abs(through).sum(axis=(1, 2))).all():
        raise ValueError(f"{quantity.name!r} has no value: nothing flows through {patch!r}; leave out total.")
    # The pressure by length: at an inlet the mean over it is in balance, that at its single points is not.
    carried = 0.5 * ((velocity**2).sum(axis=-1) * through).sum(axis=(1, 2))
    return _mean_pressure(flow, patch) + carried / rate
