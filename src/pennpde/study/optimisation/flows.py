"""Steady flows of one family: in the same units, on cells split equally often, so that they can be compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.flow.grid import Grid
from pennpde.flow.plane_physics import PlaneFlowPhysics
from pennpde.flow.problem import Problem
from pennpde.flow.steady import SteadyState, steady_state
from pennpde.flow.steady_equations import Residual, SteadyEquations
from pennpde.flow.step import State

TOLERANCE = 1e-9
"""Of the residual: what is left of it is far below what a gradient is wanted to."""


class NoSteadyStateError(ArithmeticError):
    """Newton's method has not found a steady state."""


class UnsoundShapeError(ValueError):
    """Cells of a moved mesh are inverted or flat."""


@dataclass(frozen=True)
class Family:
    """What flows have in common.

    Attributes:
        units: in which all of them are computed. Those of each flow's own inlet would change what the scheme damps.
        splits: how often their cells are split.
    """

    units: Units
    splits: int

    @staticmethod
    def of(case: Case, level: str = "standard") -> Family:
        """The family of a case.

        Args:
            case: any of its flows.
            level: of accuracy of the flow network, whose cells are solved on.
        """
        physics = PlaneFlowPhysics()
        complete = physics.complete(case)
        units = physics.units(complete)
        return Family(units, CoarseMarch(level).splits(units.dimensionless(complete)))

    @property
    def coarser(self) -> Family | None:
        return replace(self, splits=self.splits - 1) if self.splits else None

    def flow(self, case: Case, like: Flow | None = None) -> Flow:
        """One flow of the family.

        Args:
            case: in the user's units, with conditions that do not change.
            like: one on the same cells, maybe moved: has the factors that only a flow without one near it needs, and
                the triangles, which a moved mesh alone might cut in another way.
        """
        if case.changes_with_time:
            raise ValueError("A condition of the case changes with time; gradients are those of steady flows.")
        sizes = case.mesh.cell_volumes
        if not bool((sizes > 1e-6 * sizes.mean()).all()):
            raise UnsoundShapeError(f"{int((sizes <= 1e-6 * sizes.mean()).sum())} cells of the mesh are inverted.")
        scaled = self.units.dimensionless(PlaneFlowPhysics().complete(case)).to(torch.float64)
        resting = {name: scaled.dirichlet[name].apply(torch.zeros_like(each)) for name, each in scaled.initial.items()}
        grid = Grid.of(replace(scaled, initial=resting))
        if like is not None and like.triangles.shape == grid.cells.triangles.shape:
            grid = replace(grid, cells=replace(grid.cells, triangles=like.triangles))
        triangles = grid.cells.triangles
        for _ in range(self.splits):
            grid = grid.split()
        solver = None if like is None else like.problem.pressure_solver
        viscosity = float(scaled.parameters["viscosity"])
        problem = Problem.of(grid, viscosity, case.number_of_points, solver=solver)
        return Flow(self, case, triangles, grid, problem)


@dataclass(frozen=True, eq=False)
class Flow:
    """The equations of one flow."""

    family: Family
    case: Case
    triangles: Int64[np.ndarray, "triangles 3"]
    grid: Grid
    problem: Problem

    @cached_property
    def equations(self) -> SteadyEquations:
        return SteadyEquations(self.problem)

    def facets(self, patch: str) -> Int64[np.ndarray, " facets"]:
        """The facets of a patch, or of several joined by +, as split as the cells are."""
        mesh, parts = self.case.mesh, 2**self.family.splits
        names = [patch] if patch in mesh.patches else patch.split("+")
        facets = np.unique(np.concatenate([mesh.patch(name).facets for name in names]))
        return (facets[:, None] * parts + np.arange(parts)).ravel()

    def at(self, unknowns: Float[Tensor, " unknowns"]) -> Fields:
        velocity, pressure = self.equations.unpacked(unknowns)
        return Fields(self, velocity, pressure, self.equations.residual(unknowns))

    def solved(self, nearby: Answer | None = None) -> Answer:
        """The steady state.

        Args:
            nearby: that of a similar flow.
        """
        found: SteadyState | None = None
        if nearby is not None:
            found = steady_state(self.problem, nearby.state, tolerance=TOLERANCE)
        if found is None or not found.converged:
            found = steady_state(self.problem, tolerance=TOLERANCE)
        if not found.converged:
            raise NoSteadyStateError(
                f"Newton's method has found no steady state: a residual of {found.residuals[-1]:.1e} is left after "
                f"{len(found.residuals)} iterations. The flow may be unsteady; take a larger viscosity."
            )
        return Answer(self, found.state)


@dataclass(frozen=True, eq=False)
class Fields:
    """A state of a flow and its residual, as tensors with derivatives, in the units of the family."""

    flow: Flow
    velocity: Float[Tensor, "2 points"]
    pressure: Float[Tensor, " points"]
    residual: Residual


@dataclass(frozen=True, eq=False)
class Answer:
    """The steady state of a flow."""

    flow: Flow
    state: State

    @cached_property
    def unknowns(self) -> Float[Tensor, " unknowns"]:
        return torch.from_numpy(self.flow.equations.packed(self.state.velocity, self.state.pressure))
