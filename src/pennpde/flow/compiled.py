"""Steps of the plain scheme in compiled loops: one flow, on a CPU, in double precision, without derivatives.

`scheme.advance` is the reference. Both solve the same equations, the momentum's to the same tolerance.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from pennpde.flow.dual_cells import DualCells
from pennpde.flow.krylov import Effort
from pennpde.flow.march import Control, Pace, Way, stepped
from pennpde.flow.pressure import Factorised, Solver
from pennpde.flow.problem import Problem
from pennpde.flow.step import State
from pennpde.flow.step import begin as plain_begin

if TYPE_CHECKING:
    from pennpde.flow import kernels


_NOTHING = np.empty((2, 0))  # has no points, whatever the number of axes
_ARRAYS: WeakKeyDictionary[DualCells, kernels.Cells] = WeakKeyDictionary()
_STEPS = 16
"""That are taken before it is looked whether the time is over."""


def can_compile(problem: Problem) -> bool:
    """Whether the compiled loops take steps of a problem."""
    velocity = problem.velocity
    return velocity.device.type == "cpu" and velocity.dtype == torch.float64 and problem.cells.number_of_meshes == 1


class CompiledSteps:
    """Takes steps of one flow, as `advance` does, without derivatives."""

    def __init__(self) -> None:
        # Half a second, which who takes no such steps need not wait for.
        from pennpde.flow import kernels

        self.kernels = kernels
        self.iterations = 0
        self._flow: tuple[Problem, kernels.Flow] | None = None

    def __call__(
        self,
        problem: Problem,
        state: State,
        step: Tensor,
        *,
        passes: int = 1,
        effort: Effort | None = None,
    ) -> State:
        """The state a step later; see `advance`."""
        if not can_compile(problem):
            raise ValueError(
                "Compiled steps are for one flow on a CPU in double precision; take others with `advance`."
            )
        cells, flow, kernels = self._cells(problem.cells), self._conditions(problem), self.kernels
        effort, length = effort or Effort(), float(step)
        velocity, pressure, fluxes = (each.detach().numpy() for each in (state.velocity, state.pressure, state.fluxes))
        leading = 1.0
        if state.before is None:
            points_first = np.ascontiguousarray(velocity.T)
            expected = kernels.Expected(points_first, points_first, fluxes, np.empty(0))
        else:
            before, fluxes_before, last = state.before
            ratio = length / float(last)
            leading = (1 + 2 * ratio) / (1 + ratio)
            expected = kernels.continued(cells.axes, velocity, before.numpy(), fluxes, fluxes_before.numpy(), ratio)
        left, new = 0.0, (velocity, pressure, fluxes)
        for _ in range(passes):
            found, through, wanted, left, iterations = kernels.predicted(
                cells, flow, expected, pressure, length, leading, effort.tolerance, effort.most
            )
            change = self._solved(problem.pressure_solver, wanted)
            new = kernels.projected(cells, flow, found, through, pressure, change, length / leading)
            _, pressure, fluxes = new
            expected = expected._replace(fluxes=fluxes)
            self.iterations += iterations
        velocity, pressure, fluxes = (torch.from_numpy(each) for each in new)
        return State(velocity, pressure, fluxes, (state.velocity, state.fluxes, step), step.new_tensor([left]))

    def way(self) -> Way:
        """For `march`."""
        return Way(self, self.rate, self.changes, self.go)

    def go(self, problem: Problem, control: Control, pace: Pace, time: float) -> Control:
        """Some steps towards a time; each of those that `march` takes costs a tenth of a millisecond by itself."""
        solver = problem.pressure_solver
        if not isinstance(solver, Factorised) or solver.lower is None or not can_compile(problem):
            return stepped(problem, control, pace, time, None, replace(self.way(), go=None))
        state, kernels = control.state, self.kernels
        velocity, pressure, fluxes = (each.detach().numpy() for each in (state.velocity, state.pressure, state.fluxes))
        is_first, before, last = state.before is None, (velocity, fluxes), 0.0
        if state.before is not None:
            before, last = (state.before[0].numpy(), state.before[1].numpy()), float(state.before[2])
        going = kernels.Going(
            *(velocity, pressure, fluxes, *before, is_first),
            *(control.now, last, control.allowed, control.stretch, control.fastest, control.change, 0.0, 0, False),
        )
        paced = kernels.Pace(
            *(pace.courant, pace.first, pace.growth, pace.longest, pace.calm, pace.stretch, pace.tolerance),
            Effort().most,
        )
        cells, flow = self._cells(problem.cells), self._conditions(problem)
        found = kernels.marched(cells, flow, solver.lower, paced, going, time, _STEPS)
        self.iterations += found.iterations
        arrays = (found.velocity, found.pressure, found.fluxes, found.before, found.fluxes_before)
        velocity, pressure, fluxes, earlier, through = (torch.from_numpy(each) for each in arrays)
        length, left = (problem.viscosity.new_tensor([each]) for each in (found.step, found.left))
        new = State(velocity, pressure, fluxes, None if found.is_first else (earlier, through, length), left)
        told = found.now, found.step, found.allowed, found.stretch, found.fastest, found.change, found.lost
        return Control(new, *told)

    def changes(self, problem: Problem, following: State, state: State, step: float) -> tuple[float, float]:
        """As `march.changes`."""
        earlier, ratio = _NOTHING, 0.0
        if state.before is not None:
            earlier, ratio = state.before[0].numpy(), step / float(state.before[2])
        found = self.kernels.changes(
            problem.cells.areas.numpy(), following.velocity.numpy(), state.velocity.numpy(), earlier, ratio
        )
        return found[0], math.inf if state.before is None else found[1]

    def rate(self, problem: Problem, fluxes: Tensor) -> Tensor:
        """As `march.rate`."""
        return torch.from_numpy(self.kernels.exchange_rates(self._cells(problem.cells), fluxes.numpy()))

    def _solved(self, solver: Solver, right: np.ndarray) -> np.ndarray:
        if isinstance(solver, Factorised):
            return solver.solved(right) if solver.lower is None else self.kernels.solved(solver.lower, right)
        wanted = torch.from_numpy(right)
        return solver.solve(wanted, torch.zeros_like(wanted)).numpy()

    def _prescribed(self, problem: Problem) -> np.ndarray:
        if self._flow is not None and self._flow[0].free is problem.free:
            return self._flow[1].prescribed
        cells, free = self._cells(problem.cells), problem.free.numpy() > 0
        row = np.repeat(np.arange(len(free)), np.diff(cells.rows))
        prescribed = ~(free[row] & free[cells.columns])
        prescribed[cells.diagonal] = False
        return np.flatnonzero(prescribed)

    def _cells(self, cells: DualCells) -> kernels.Cells:
        if cells not in _ARRAYS:
            _ARRAYS[cells] = _as_arrays(self.kernels, cells)
        return _ARRAYS[cells]

    def _conditions(self, problem: Problem):
        if self._flow is None or self._flow[0] is not problem:
            rise, slope = (np.empty(0), _NOTHING) if problem.jump is None else (each.numpy() for each in problem.jump)
            names = ("free", "velocity", "pressure", "pressure_free", "inflow", "facet_shift", "open")
            self._flow = (
                problem,
                self.kernels.Flow(
                    self._cells(problem.cells).axes,
                    float(problem.viscosity),
                    slip_too=_NOTHING if problem.slip_too is None else problem.slip_too.numpy(),
                    slip=_NOTHING if problem.slip is None else problem.slip.numpy(),
                    static=np.empty(0) if problem.static is None else problem.static.numpy(),
                    closed=bool(problem.closed),
                    prescribed=self._prescribed(problem),
                    rise=rise,
                    jump_slope=slope,
                    **{name: getattr(problem, name).numpy() for name in names},
                ),
            )
        return self._flow[1]


def begin(problem: Problem) -> State:
    """As `step.begin`, in compiled loops where it can."""
    solver = problem.pressure_solver
    if (
        torch.is_grad_enabled()
        or not can_compile(problem)
        or not isinstance(solver, Factorised)
        or solver.lower is None
    ):
        return plain_begin(problem)
    steps = CompiledSteps()
    velocity, fluxes = steps.kernels.begun(steps._cells(problem.cells), steps._conditions(problem), solver.lower)
    return State(torch.from_numpy(velocity), problem.pressure, torch.from_numpy(fluxes))


def _as_arrays(kernels, cells: DualCells):
    points, edges = cells.number_of_points, len(cells.first)
    place = np.empty(points + 2 * edges, np.uint32)
    place[cells.entries.numpy()] = np.arange(len(place), dtype=np.uint32)
    curvature = cells.curvature

    def short(indices: Tensor) -> np.ndarray:
        return indices.numpy().astype(np.uint32)

    def pairs(values: Tensor) -> np.ndarray:
        return np.ascontiguousarray(values.numpy().T)

    return kernels.Cells(
        axes=(0.0,) * cells.space,
        areas=cells.areas.numpy(),
        crossings=cells.crossings.numpy(),
        first=short(cells.first),
        second=short(cells.second),
        faces=pairs(cells.faces),
        conductances=cells.conductances.numpy(),
        conducting=cells.gathered(cells.conductances.clamp_min(0.0)).numpy(),
        offsets=pairs(cells.offsets),
        rows=cells.pattern_rows.numpy(),
        columns=short(cells.pattern_columns),
        gradient=np.stack([each.values.numpy() for each in cells.gradient], axis=1),
        diagonal=place[:points],
        forth=place[points : points + edges],
        back=place[points + edges :],
        mirrored=short(cells.mirrored),
        heights=curvature.heights.numpy(),
        side_cell=short(curvature.side_cell),
        side_edge=short(curvature.side_edge),
        side_means=np.empty(0) if curvature.means is None else curvature.means.numpy(),
        face_cell=short(curvature.face_cell),
        face_edge=short(curvature.face_edge),
        face_shares=pairs(curvature.faces),
        number_of_cells=curvature.number_of_cells,
    )
