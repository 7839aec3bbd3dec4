"""What the balance of the scheme gives next to fields: forces on the boundary, what leaves it, what is dissipated.

In the cell of a point whose velocity is prescribed the momentum equation is not solved. What it lacks there is what the
boundary does to the fluid, so no velocity has to be differentiated at a wall: with the functions φ_i of linear elements

    A_i du_i/dt + advection_i + ν Σ_j k_ij (u_i - u_j) + A_i (grad p)_i  =  ∫ φ_i ν ∂u/∂n

on the boundary. Summed over all of it this is the balance of momentum, without an error of the discretisation. The
force of the pressure is the integral of the pressure along the facets, of which grad p is the exact counterpart.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.flow.outflow import outflow
from pennpde.flow.problem import Problem
from pennpde.flow.step import State, along_edges, unbalanced
from pennpde.models.boundary_profile import BoundaryProfile
from pennpde.penn.physics import DISSIPATION, OUTFLOW, PRESSED, VISCOUS


def balance(problem: Problem, boundary: BoundaryProfile, state: State, level: float = 0.0) -> dict[str, Tensor]:
    """By facet of the user's mesh what leaves through it and the forces of the fluid on it; dissipation of the domain.

    Args:
        problem: One flow.
        boundary: What is prescribed on the facets, at the time of the state.
        state: Of the flow.
        level: What is to be added to its pressure.
    """
    velocity = state.velocity
    turned = _turned(boundary)
    viscosity = float(problem.viscosity)
    viscous = -_reactions(problem, boundary, state) - viscosity * turned
    cells = problem.cells
    lost = float((cells.conductances * cells.difference(velocity).square()).sum())
    lost += float((boundary.means * turned).sum())
    return {
        OUTFLOW: outflow(problem, boundary, state),
        VISCOUS: torch.from_numpy(viscous),
        PRESSED: torch.from_numpy(_pressed(problem, boundary, state, level)),
        DISSIPATION: torch.tensor(viscosity * lost, dtype=torch.float64),
    }


def _turned(boundary: BoundaryProfile) -> Float[np.ndarray, "facets 2"]:
    """The integral of (∇u)ᵀ n over each facet with a prescribed velocity, by which stress differs from ∂u/∂n.

    Along the tangent it is n · ∂u/∂t, and along the normal -t · ∂u/∂t, because the divergence is zero.
    """
    normal = boundary.outward / np.linalg.norm(boundary.outward, axis=1)[:, None]
    tangent = np.stack([-normal[:, 1], normal[:, 0]], axis=1)
    change = np.where(boundary.held[:, None], boundary.velocity[:, 2] - boundary.velocity[:, 0], 0.0)
    across, along = ((each * change).sum(axis=1)[:, None] for each in (normal, tangent))
    return tangent * across - normal * along


def _reactions(problem: Problem, boundary: BoundaryProfile, state: State) -> Float[np.ndarray, "facets 2"]:
    """The integral of ν ∂u/∂n over each facet that prescribes a velocity, or one component of it."""
    cells, velocity = problem.cells, state.velocity
    slopes = cells.slope(velocity)
    momentum = unbalanced(
        problem, velocity, state.fluxes, problem.gradient(state.pressure), along_edges(problem, slopes)
    )
    if state.before is not None:
        # Only the rate of what is prescribed counts: masses are those of single points.
        momentum = momentum + cells.areas * (velocity - state.before[0]) / state.before[2]
    momentum = momentum - problem.restrict(momentum)  # what is solved has no reaction
    at_points, slopes = _array(momentum).T, _array(slopes).transpose(2, 0, 1)
    parts, outward, ends = _parts(problem, boundary)
    takes = np.repeat(boundary.held | boundary.slips | boundary.entrances, parts)
    outward, ends = outward[takes], ends[takes]
    # Between the facets of a corner: as the gradient at the point says, and what is left by length.
    direct = 0.5 * float(problem.viscosity) * np.einsum("feca,fa->fec", slopes[ends], outward)
    lengths = np.repeat(np.linalg.norm(outward, axis=1), 2)
    around = np.bincount(ends.ravel(), lengths, len(at_points))
    left = at_points.copy()
    np.subtract.at(left, ends.ravel(), direct.reshape(-1, 2))
    shares = left[ends.ravel()] * (lengths / around[ends.ravel()])[:, None]
    found = np.zeros((len(takes), 2))
    found[takes] = direct.sum(axis=1) + shares.reshape(-1, 2, 2).sum(axis=1)
    return found.reshape(-1, parts, 2).sum(axis=1)


def _pressed(problem: Problem, boundary: BoundaryProfile, state: State, level: float) -> Float[np.ndarray, "facets 2"]:
    parts, outward, ends = _parts(problem, boundary)
    means = _array(state.pressure)[ends].mean(axis=1) + level
    if problem.facet_jumps is not None:
        means = means + _array(problem.facet_jumps)
    return (means[:, None] * outward).reshape(-1, parts, 2).sum(axis=1)


def _parts(problem: Problem, boundary: BoundaryProfile) -> tuple[int, np.ndarray, np.ndarray]:
    """In how many parts facets are split; the area vectors of the parts and the cells at their ends."""
    assert problem.facets is not None, "a batch has no facets"
    parts = len(problem.facets) // len(boundary.opened)
    return parts, np.repeat(boundary.outward / parts, parts, axis=0), problem.facets.cpu().numpy()


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().astype(float)
