"""Flows of one family, steady or at a time: in the same units, on cells split equally often, so that they compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.flow.balance import lacking
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.flow.grid import Grid
from pennpde.flow.problem import Problem
from pennpde.flow.steady import Residual, SteadyEquations, SteadyState, steady_state
from pennpde.flow.step import State
from pennpde.mesh.splitting import PlaneCells
from pennpde.models.flow_physics import PlaneFlowPhysics
from pennpde.study.optimisation.transient import marched, steps_until

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
        time: when the quantities are taken, from the start on; None: of the steady state.
        steps: the lengths of the steps until then, in reference times.
    """

    units: Units
    splits: int
    time: float | None = None
    steps: tuple[float, ...] = ()

    @staticmethod
    def of(case: Case, level: str = "standard", time: float | None = None) -> Family:
        """The family of a case.

        Args:
            case: any of its flows; the first decides about the steps.
            level: of accuracy of the flow network, whose cells are solved on.
            time: when the quantities are taken; None: of the steady state.
        """
        physics = PlaneFlowPhysics()
        complete = physics.complete(case)
        units, march = physics.units(complete), CoarseMarch(level)
        scaled = units.dimensionless(complete)
        family = Family(units, march.splits(scaled), time)
        if time is None:
            return family
        if time <= 0:
            raise ValueError(f"The time is {time:g}; quantities are taken some time after the start.")
        courant = march.scheme(scaled).courant
        return replace(family, steps=steps_until(family.flow(case).problem, time / units.time, courant))

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
            raise ValueError("A condition of the case changes with time; gradients are those of constant conditions.")
        sizes = case.mesh.cell_volumes
        if not bool((sizes > 1e-6 * sizes.mean()).all()):
            raise UnsoundShapeError(f"{int((sizes <= 1e-6 * sizes.mean()).sum())} cells of the mesh are inverted.")
        scaled = self.units.dimensionless(PlaneFlowPhysics().complete(case)).to(torch.float64)
        resting = {name: scaled.dirichlet[name].apply(torch.zeros_like(each)) for name, each in scaled.initial.items()}
        grid = Grid.of(replace(scaled, initial=resting))
        cells = grid.cells
        if not isinstance(cells, PlaneCells):
            raise ValueError("Gradients are those of flows in the plane; this mesh is in space.")
        if like is not None and like.triangles.shape == cells.triangles.shape:
            cells = replace(cells, triangles=like.triangles)
        triangles, grid = cells.triangles, replace(grid, cells=cells)
        for _ in range(self.splits):
            grid = grid.split()
        # A steady state needs the factors only to begin with; those of a flow near it will do.
        solver = None if like is None or self.steps else like.problem.pressure_solver
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

    def at_state(self, state: State) -> Fields:
        """With what is known of a flow on its way."""
        return Fields(self, state.velocity, state.pressure, OnTheWay(state.fluxes, lacking(self.problem, state)))

    def solved(self, nearby: Answer | None = None) -> Answer:
        """The steady state, or the flow at the family's time.

        Args:
            nearby: that of a similar flow.
        """
        if self.family.steps:
            return Answer(self, marched(self.problem, self.family.steps))
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
class OnTheWay:
    """Of a flow that is not steady, what quantities take from the residual of one that is."""

    fluxes: Float[Tensor, " edges"]
    momentum: Float[Tensor, "2 points"]


@dataclass(frozen=True, eq=False)
class Fields:
    """A state of a flow and its residual, as tensors with derivatives, in the units of the family."""

    flow: Flow
    velocity: Float[Tensor, "2 points"]
    pressure: Float[Tensor, " points"]
    residual: Residual | OnTheWay


@dataclass(frozen=True, eq=False)
class Answer:
    """The steady state of a flow, or its state at a time."""

    flow: Flow
    state: State

    @property
    def fields(self) -> Fields:
        return self.flow.at_state(self.state) if self.flow.family.steps else self.flow.at(self.unknowns)

    @cached_property
    def unknowns(self) -> Float[Tensor, " unknowns"]:
        return torch.from_numpy(self.flow.equations.packed(self.state.velocity, self.state.pressure))
