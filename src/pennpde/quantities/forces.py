"""Forces, moments and their coefficients on patches: the fluid's on the body, kinematic (over the density).

The force of the pressure is its integral along the facets, that of viscosity what the momentum equation lacks in the
cells at the wall (`pennpde.flow.balance`). Coefficients are those of OpenFOAM's `forceCoeffs`: 2 F / (U² L).
"""

from __future__ import annotations

import numpy as np

from pennpde.quantities.quantity import Quantity, Raw
from pennpde.quantities.solved import SolvedFlow


def _total(flow: SolvedFlow, quantity: Quantity, part: str) -> np.ndarray:
    return flow.force(flow.facets(quantity.arguments[0]), part).sum(axis=1)


def _size(flow: SolvedFlow, quantity: Quantity) -> np.ndarray:
    """The whole force; lift is judged by it, too."""
    return np.linalg.norm(_total(flow, quantity, ""), axis=1)


def component(which: int, part: str = "", *, coefficient: bool = False):
    """Drag (0) or lift (1)."""

    def measure(flow: SolvedFlow, quantity: Quantity) -> Raw:
        one = _dynamic(flow, quantity) if coefficient else 1.0
        along = _total(flow, quantity, part) @ quantity.directions(flow)[which]
        return Raw(along / one, _size(flow, quantity) / one)

    return measure


def axis_component(axis: int, part: str = ""):
    def measure(flow: SolvedFlow, quantity: Quantity) -> Raw:
        return Raw(_total(flow, quantity, part)[:, axis], _size(flow, quantity))

    return measure


def magnitude(part: str = ""):
    def measure(flow: SolvedFlow, quantity: Quantity) -> Raw:
        return Raw(np.linalg.norm(_total(flow, quantity, part), axis=1), _size(flow, quantity))

    return measure


def moment(part: str = "", *, coefficient: bool = False):
    """Counter-clockwise, about the middle of the patch unless a point is given."""

    def measure(flow: SolvedFlow, quantity: Quantity) -> Raw:
        facets = flow.facets(quantity.arguments[0])
        middles, lengths = flow.middles[facets], flow.lengths[facets]
        centre = (lengths[:, None] * middles).sum(axis=0) / lengths.sum()
        away = middles - np.array(quantity.options.get("about", centre))
        force, every = flow.force(facets, part), flow.force(facets)
        one = _dynamic(flow, quantity) * quantity.reference(flow)[0] if coefficient else 1.0
        values = (away[:, 0] * force[..., 1] - away[:, 1] * force[..., 0]).sum(axis=1)
        reach = np.linalg.norm(away, axis=1).max()
        return Raw(values / one, np.linalg.norm(every.sum(axis=1), axis=1) * reach / one)

    return measure


def _dynamic(flow: SolvedFlow, quantity: Quantity) -> float:
    length, speed = quantity.reference(flow)
    return 0.5 * speed**2 * length
