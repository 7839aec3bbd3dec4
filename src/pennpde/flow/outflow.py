"""What leaves the domain through each facet of its boundary, from the fluxes of the scheme.

Where the velocity is prescribed, a facet has the integral of what is prescribed. At outlets it has what the fluxes
between the cells leave for it: mass is conserved in every cell, so what enters the domain leaves it, to round-off.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.flow.problem import Problem
from pennpde.flow.step import State
from pennpde.models.boundary_profile import BoundaryProfile


def outflow(problem: Problem, boundary: BoundaryProfile, state: State) -> Float[Tensor, " facets"]:
    """Volume per time and depth out of the domain through each facet of the user's mesh, negative at inlets.

    Args:
        problem: One flow.
        boundary: What is prescribed on the facets, at the time of the state.
        state: Of the flow.
    """
    assert problem.facets is not None, "a batch has no facets"
    left = -_conserving(problem, state.fluxes).numpy()
    parts = len(problem.facets) // len(boundary.opened)
    opened = np.repeat(boundary.opened, parts)
    ends = problem.facets.cpu().numpy()[opened]
    lengths = np.repeat(np.linalg.norm(boundary.outward, axis=1), parts)[opened]
    # A cell at the end of an outlet may have one open facet, others have two: in proportion to their lengths.
    around = np.bincount(ends.ravel(), np.repeat(lengths, 2), len(left))
    through = (left[ends] * lengths[:, None] / around[ends]).sum(axis=1)
    found = boundary.fluxes.copy()
    found[boundary.opened] = through.reshape(-1, parts).sum(axis=1)
    return torch.from_numpy(found)


def _conserving(problem: Problem, fluxes: Float[Tensor, " edges"]) -> Float[Tensor, " points"]:
    """What leaves each cell but through outlets, once what steps left undone is corrected."""
    cells = problem.cells
    missing = cells.collected(fluxes) + problem.inflow
    if not bool(problem.closed.all()):
        change = problem.pressure_solver.solve(-missing, torch.zeros_like(missing))
        missing = missing - cells.collected(cells.conductances * cells.difference(change))
    return missing.detach().cpu().double()
