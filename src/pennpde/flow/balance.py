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
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.flow.problem import Problem
from pennpde.flow.step import State, along_edges, unbalanced
from pennpde.models.inlet import BoundaryProfile
from pennpde.penn.equation import DISSIPATION, OUTFLOW, PRESSED, VISCOUS


def balance(problem: Problem, boundary: BoundaryProfile, state: State, level: float = 0.0) -> dict[str, Tensor]:
    """By facet of the user's mesh what leaves through it and the forces of the fluid on it; dissipation of the domain.

    In space only what leaves, so far.

    Args:
        problem: One flow.
        boundary: What is prescribed on the facets, at the time of the state.
        state: Of the flow.
        level: What is to be added to its pressure.
    """
    if problem.cells.space == 3:
        return {OUTFLOW: outflow(problem, boundary, state)}
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


def lacking(problem: Problem, state: State) -> Float[Tensor, "space points"]:
    """What the momentum equation lacks in each cell: nothing but where the boundary takes it up."""
    cells, velocity = problem.cells, state.velocity
    gradient, along = problem.gradient(state.pressure), along_edges(problem, cells.slope(velocity))
    momentum = unbalanced(problem, velocity, state.fluxes, gradient, along)
    if state.before is None:
        return momentum
    # Only the rate of what is prescribed counts: masses are those of single points.
    return momentum + cells.areas * (velocity - state.before[0]) / state.before[2]


def taken_up(
    problem: Problem,
    velocity: Float[Tensor, "space points"],
    momentum: Float[Tensor, "space points"],
    outward: Float[Tensor, "facets 2"],
    takes: Bool[Tensor, " facets"],
) -> Float[Tensor, "facets 2"]:
    """The integral of ν ∂u/∂n over each facet, split as the cells are, that prescribes a velocity or a part of it.

    Args:
        problem: One flow.
        velocity: At the points.
        momentum: See `lacking`.
        outward: Area vectors of the facets.
        takes: Which of them take up momentum.
    """
    assert problem.facets is not None, "a batch has no facets"
    ends, takes = problem.facets, takes.to(outward)
    left = momentum - problem.restrict(momentum)  # what is solved has no reaction
    # Between the facets of a corner: as the gradient at the point says, and what is left by length.
    slopes = problem.cells.slope(velocity)[:, :, ends]
    direct = 0.5 * problem.viscosity * torch.einsum("cafe,fa->cfe", slopes, outward) * takes[:, None]
    lengths = (outward.norm(dim=1) * takes)[:, None].expand(-1, 2)
    around = torch.zeros_like(left[0]).index_add(0, ends.reshape(-1), lengths.reshape(-1))
    left = left.index_add(1, ends.reshape(-1), direct.reshape(2, -1), alpha=-1)
    shares = left[:, ends] * lengths / around[ends].clamp_min(1e-300)
    return (direct + shares).sum(dim=2).T


def _reactions(problem: Problem, boundary: BoundaryProfile, state: State) -> Float[np.ndarray, "facets 2"]:
    parts, outward, _ = _parts(problem, boundary)
    takes = torch.from_numpy(np.repeat(boundary.held | boundary.slips | boundary.entrances, parts))
    found = taken_up(
        problem, state.velocity, lacking(problem, state),
        torch.from_numpy(outward).to(state.velocity), takes.to(state.velocity.device),
    )  # fmt: skip
    return _array(found).reshape(-1, parts, 2).sum(axis=1)


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


# What leaves the domain through each facet of its boundary, from the fluxes of the scheme.
#
# Where the velocity is prescribed, a facet has the integral of what is prescribed. At outlets it has what the fluxes
# between the cells leave for it: mass is conserved in every cell, so what enters the domain leaves it, to round-off.


def outflow(problem: Problem, boundary: BoundaryProfile, state: State) -> Float[Tensor, " facets"]:
    """What leaves the domain in a unit of time through each facet of the user's mesh, negative at inlets.

    A volume, in the plane per depth.

    Args:
        problem: One flow.
        boundary: What is prescribed on the facets, at the time of the state.
        state: Of the flow.
    """
    assert problem.facets is not None, "a batch has no facets"
    left = -_conserving(problem, state.fluxes).numpy()
    if problem.owner is not None and problem.facet_fluxes is not None:
        return _outflow_in_space(problem, boundary, left)
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


def _outflow_in_space(problem: Problem, boundary: BoundaryProfile, left: np.ndarray) -> Float[Tensor, " facets"]:
    """Of the facets around a cell that are open, each has a share of what the fluxes leave by its area."""
    assert problem.facets is not None, "a batch has no facets"
    assert problem.owner is not None, "facets in the plane have no owners"
    assert problem.facet_fluxes is not None, "facets in the plane have no fluxes"
    owner, ends, through = problem.owner.numpy(), problem.facets.numpy(), _array(problem.facet_fluxes).copy()
    parts = np.bincount(owner, minlength=len(boundary.opened))
    sizes = np.repeat((np.linalg.norm(boundary.outward, axis=1) / parts)[owner][:, None], 4, axis=1)
    sizes[ends[:, 2] == ends[:, 3], 3] = 0.0
    opened = boundary.opened[owner]
    around = np.bincount(ends[opened].ravel(), sizes[opened].ravel(), len(left))
    through[opened] = (left[ends[opened]] * sizes[opened] / around[ends[opened]]).sum(axis=1)
    return torch.from_numpy(np.bincount(owner, through, len(parts)))


def _conserving(problem: Problem, fluxes: Float[Tensor, " edges"]) -> Float[Tensor, " points"]:
    """What leaves each cell but through outlets, once what steps left undone is corrected."""
    cells = problem.cells
    missing = cells.collected(fluxes) + problem.inflow
    if not bool(problem.closed.all()):
        change = problem.pressure_solver.solve(-missing, torch.zeros_like(missing))
        missing = missing - cells.collected(cells.conductances * cells.difference(change))
    return missing.detach().cpu().double()
