"""The finite-volume scheme as a predictor: fields at any times, or the steady state, on the user's own mesh."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.case.moments import TIME
from pennpde.flow.balance import balance
from pennpde.flow.captured_steps import CapturedSteps
from pennpde.flow.compiled import CompiledSteps, begin, can_compile
from pennpde.flow.grid import Grid
from pennpde.flow.march import FlowDivergedError, Pace, Snapshot, Way, march
from pennpde.flow.marched_together import Together, can_march_together
from pennpde.flow.pressure import corner_pressures
from pennpde.flow.problem import Numbering, Problem, facet_shift, outlets
from pennpde.flow.steady import MOST_ITERATIONS, TOLERANCE, SteadyState, prolonged, steady_state
from pennpde.flow.step import State
from pennpde.machine import can_capture, give_back_freed_memory, keep_freed_memory
from pennpde.mesh.splitting import PlaneCells, flips
from pennpde.models.flow_physics import PlaneFlowPhysics, sharpness
from pennpde.models.inlet import BoundaryProfile
from pennpde.operators.sparse import SparseMatrix
from pennpde.penn.equation import BALANCE, Clue
from pennpde.penn.predictor import STEADY, Finer, Prediction, Predictor
from pennpde.penn.solver import Solution
from pennpde.progress import OutOfTimeError, limited, limits

_LOGGER = logging.getLogger(__name__)

# Problems that are kept for as long as their cases are in use, and as long as there is room for them.


MOST_POINTS = 1_000_000
"""Of the cells that are solved, in all problems together: 1.6 GB on a CPU, much of it factors of the pressure's matrix.
A hundred runs fit. Of thousands only those used last are kept: to prepare one takes a tenth of a march."""
_GIVE_BACK_EVERY = 100_000
"""Points of new problems after which freed memory goes back to the system: each time costs a fifth of a march."""

Start = tuple[object, ...]


class KeptProblems:
    """Problems by case; those that were not used for longest are dropped when there are too many.

    Moments of one run start alike and share a problem.

    Args:
        most_points: Of all problems together; a single one may have more.
    """

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self.most_points, self._points_made = most_points, 0
        # In the order of their last use. A case that nobody holds any more takes its problem along.
        self._problems: WeakKeyDictionary[Case, tuple[Start, Problem]] = WeakKeyDictionary()

    def of(self, case: Case, make: Callable[[], Problem]) -> Problem:
        """The problem of a case, made where it is not known."""
        known = self._problems.pop(case, None)
        if known is None:
            start = _start(case)
            problem = next((problem for other, problem in self._problems.values() if other == start), None)
            known = (start, self._made(make) if problem is None else problem)
        self._problems[case] = known
        if self.number_of_points > self.most_points:
            self._drop(known[1])
        return known[1]

    def has_room_for(self, cases: Iterable[tuple[Case, int]]) -> bool:
        """Whether the problems of all cases, each with its number of points, can be kept together."""
        return sum({_start(case): points for case, points in cases}.values()) <= self.most_points

    @property
    def number_of_points(self) -> int:
        return sum({id(each): each.cells.number_of_points for _, each in self._problems.values()}.values())

    def _made(self, make: Callable[[], Problem]) -> Problem:
        problem = make()
        self._points_made += problem.cells.number_of_points
        if self._points_made > _GIVE_BACK_EVERY:
            give_back_freed_memory()
            self._points_made = 0
        return problem

    def _drop(self, last: Problem) -> None:
        """Make room, but keep the problem that was used last."""
        for case, (_, problem) in list(self._problems.items()):
            if problem is last:
                continue
            del self._problems[case]
            if self.number_of_points <= self.most_points:
                break


def _start(case: Case) -> Start:
    """Equal for two cases, both of which are still in use, only if their flows start alike on the same mesh.

    Things are the same object or not: to compare their numbers would take longer than it saves.
    """
    parameters = {name: value for name, value in case.parameters.items() if name != TIME or case.changes_with_time}
    conditions = (each for by_unknown in case.conditions.values() for each in by_unknown.values())
    return tuple(map(id, (case.mesh, *case.initial.values(), *conditions, *parameters.values())))


_COARSE = 0.045
"""Cells larger than this share of the reference length are split: 22 points per inlet width."""
_MOST_SPLITS = 3
_FEW = {1: 3_000, 2: 1_000}
"""Meshes of up to so many points are split at least so often: it costs a second, and takes most of the error away."""
_MOST_POINTS_SPLIT = 60_000
_POTENTIAL = 0.12
"""A start this close to the potential flow, relative to it, is taken to be that. On coarse meshes two ways to compute
it differ by up to 7 %."""
_CAREFUL = 0.25
"""Steps of a second attempt, as a share of those of the first, which diverged."""
_NO_JUMPS = "an inlet or a moving wall whose velocity goes to that of the walls beside it"
_SPLIT = "on split cells: "
_STEADY_CHANGE = 2e-4
_STEADY_PACE = Pace(courant=10.0, growth=1.15, longest=2.0, stretch=1.0, tolerance=2e-6)
_MOST_STEADY_TIME = 120.0
_MOST_POINTS_OF_NEWTON = {2: 200_000, 3: 5_000}
"""By the number of axes; beyond, the factors of a direct solver take more memory than a workstation has, or more time
than a march to the steady state."""

_STEADY_STATES: WeakKeyDictionary[Case, dict[tuple[int, float, int], SteadyState]] = WeakKeyDictionary()
"""By how often cells are split, tolerance and number of iterations: on one level the solution that judges another is
the one that it started from."""


class FlowScheme(Predictor):
    """Laminar flow by implicit steps of a finite-volume scheme of second order. Nothing is learned here.

    Args:
        courant: Cells that fluid may cross in a step, of those that are solved, split or not.
        splits: How often cells are split before solving; "auto" splits coarse meshes.
    """

    precision: Tensor

    def __init__(self, *, courant: float = 1.4, splits: int | str = "auto") -> None:
        super().__init__()
        if splits != "auto" and (not isinstance(splits, int) or not 0 <= splits <= 4):
            raise ValueError(f'splits is {splits!r}; it may be "auto" or a number from 0 to 4.')
        if not 0.01 <= courant <= 20:
            raise ValueError(f"courant is {courant!r}; it must be from 0.01, below which steps take for ever, to 20.")
        self.equation = PlaneFlowPhysics()
        self.courant, self.splits = float(courant), splits
        # It has no weights, but a precision and a device like any module.
        self.register_buffer("precision", torch.zeros((), dtype=torch.float64), persistent=False)
        self._kept = KeptProblems()
        self._solved: WeakKeyDictionary[Case, dict[tuple[object, ...], Prediction]] = WeakKeyDictionary()

    @property
    def takes_times(self) -> bool:
        return True

    @property
    def takes_any_precision(self) -> bool:
        return True

    @property
    def output_times(self) -> tuple[float, ...]:
        return (4.0,)

    @property
    def fulfils_dirichlet(self) -> bool:
        return True

    def number_of_splits(self, case: Case) -> int:
        """How often the cells of a case, in the network's units, are split."""
        if isinstance(self.splits, int):
            return self.splits
        volume, points, space = float(case.mesh.cell_volumes.sum()), case.number_of_points, case.space
        if "u" in case.periodic and space == 3:
            return 0  # the middles of edges on both sides of a period are not known to be the same
        # Layers grow thinner with the Reynolds number, which is one over the viscosity here.
        fine = _COARSE * min(1.0, (300.0 * float(case.parameters["viscosity"])) ** 0.75)
        wanted = math.ceil(math.log2(max((volume / points) ** (1.0 / space) / fine, 1e-9)) - 0.15)
        affordable = int(math.log(max(_MOST_POINTS_SPLIT / points, 1.0), 2.0**space))
        least = max((splits for splits, few in _FEW.items() if points <= few and space == 2), default=0)
        if not least and BoundaryProfile.loses(case):
            if points > _MOST_POINTS_SPLIT:
                raise ValueError(
                    f"A condition of the boundary holds on one facet, or changes from facet to facet, and the mesh has "
                    f"{points:,} points: too many to split its cells until they resolve that. Refine the mesh there, "
                    "so that each such part of the boundary has at least two facets."
                )
            least = 1
        return max(least, min(wanted, _MOST_SPLITS, affordable))

    def clues(self, case: Case) -> list[Clue]:
        size = (float(case.mesh.cell_volumes.sum()) / case.number_of_points) ** (1.0 / case.space)
        size /= 2 ** self.number_of_splits(case)
        return [
            Clue.of_size("size of the cells that are computed with", size, remedy="a finer mesh"),
            Clue.of_size(
                "Reynolds number of the cells that are computed with",
                size / float(case.parameters["viscosity"]),
                remedy="a finer mesh",
            ),
            Clue.of_size("pressure in corners where the velocity jumps", self._corner_pressure(case), remedy=_NO_JUMPS),
            Clue("corners that walls turn into the flow", sharpness(case.mesh)),
        ]

    def _corner_pressure(self, case: Case) -> float:
        """Root mean square over the mesh of what Taylor's flow adds to the pressure in corners."""
        corner_pressure, volumes = self.problem(case).corner_pressure, case.mesh.point_volumes
        if corner_pressure is None:
            return 0.0
        corners, _, added = corner_pressure
        squares = volumes[corners.cpu()] * added.cpu().square()
        return math.sqrt(float(squares.sum() / volumes.sum()))

    def prepare(self, case: Case) -> None:
        self.problem(case)

    def can_keep(self, cases: Sequence[Case]) -> bool:
        return self._kept.has_room_for((case, self.points_solved(case)) for case in cases)

    def points_solved(self, case: Case) -> int:
        return case.number_of_points * 2 ** (case.space * self.number_of_splits(case))

    # Kept for later, when gradients may be wanted: tensors made in inference mode could never have any.
    @torch.inference_mode(mode=False)
    def problem(self, case: Case) -> Problem:
        """The flow on dual cells, as it is at the start; kept as long as there is room (see `KeptProblems`)."""
        return self._kept.of(case, lambda: self._assembled(case, self.number_of_splits(case)))

    @torch.inference_mode(mode=False)
    def _assembled(self, case: Case, splits: int) -> Problem:
        # On a CPU in double precision, which the compiled steps are in.
        dtype = torch.float64 if case.device.type == "cpu" else case.initial["u"].dtype
        problem = _problem(_at_rest(case), splits, case.device)
        if _has_own_start(case, problem):
            problem = _problem(case, splits, case.device)
        return problem.to(dtype, case.device)

    def forward(self, case: Case) -> dict[str, Tensor]:
        times = case.parameters.get("time")
        try:
            return self._attempted(case, self.output_times if times is None else (float(times),)).fields
        except FlowDivergedError:
            # Training skips a case whose loss is not finite; an error would end it.
            return {name: torch.full_like(case.initial[name], math.nan) for name in ("u", "p")}

    def solve(self, case: Case, times: Sequence[float] | None = None) -> Prediction:
        """Predict at times, in order; the steady state comes last. Kept with the case, because levels ask again."""
        wanted = self.output_times if times is None else tuple(times)
        if torch.is_grad_enabled():
            return self._attempted(case, wanted)
        asked, known = limits(), self._solved.setdefault(case, {})
        key = wanted, asked.iterations, asked.residual
        if key not in known:
            try:
                known[key] = self._attempted(case, wanted)
            except OutOfTimeError as error:
                if error.times:  # what was reached is asked for again
                    known[error.times, None, None] = error.result
                raise
        return known[key]

    def coarser_solution(self, case: Case, times: Sequence[float]) -> dict[str, Tensor] | None:
        """Fields and balance on cells twice as large, in a quarter of the time; see `as_coarser_solution`."""
        splits = self.number_of_splits(case)
        return FlowScheme(courant=self.courant, splits=splits - 1).as_coarser_solution(case, times) if splits else None

    def as_coarser_solution(self, case: Case, times: Sequence[float]) -> dict[str, Tensor] | None:
        """Fields and balance to judge those on finer cells by; None if this flow diverged, or did not settle."""
        try:
            with limited():  # a part of what was spent already
                found = self.solve(case, times)
        except FlowDivergedError:
            return None
        # A solution that is on its way to somewhere else is no evidence.
        settled = all(bool(each.converged.all()) for each in found.solutions)
        return {**found.fields, **found.balance} if settled else None

    def _attempted(self, case: Case, wanted: tuple[float, ...]) -> Prediction:
        keep_freed_memory()
        problem, splits = self.problem(case), self.number_of_splits(case)
        try:
            return self._marched(case, wanted, problem, splits, 1.0)
        except FlowDivergedError:
            pass
        try:
            return self._marched(case, wanted, problem, splits, _CAREFUL)
        except FlowDivergedError as error:
            raise FlowDivergedError(f"{error} {_where(case, problem, error.velocity)}", error.velocity) from None

    def _marched(
        self, case: Case, wanted: tuple[float, ...], problem: Problem, splits: int, length: float
    ) -> Prediction:
        """With steps of a length, as a share of the usual one."""
        pace = Pace(courant=length * self.courant, first=length * Pace.first)
        conditions = _Conditions(case, splits) if case.changes_with_time else None
        captured = can_capture(problem.velocity.device) and conditions is None and not torch.is_grad_enabled()
        way = Way(CapturedSteps()) if captured else Way()
        if can_compile(problem) and not torch.is_grad_enabled():
            way = CompiledSteps().way()
        state, now = begin(problem), 0.0
        snapshots: list[Snapshot] = []
        solutions: tuple[Solution, ...] = ()
        finite, cut = [time for time in wanted if time != STEADY], None
        try:
            for snapshot in march(problem, state, finite, pace=pace, conditions=conditions, way=way):
                snapshots.append(snapshot)
                state, now = snapshot.state, snapshot.time
            if STEADY in wanted:
                found = None
                if not case.changes_with_time and not torch.is_grad_enabled():
                    found = self._steady_state(case, problem, splits)
                # After as many iterations as are allowed, it is what it is.
                if found is not None and (found.converged or limits().iterations is not None):
                    reached = found.state.to(problem.velocity)
                    snapshot, history, done = Snapshot(STEADY, reached, 0.0, 0.0), found.residuals, found.converged
                else:
                    snapshot, history = _until_steady(problem, state, now, pace, conditions, way, length)
                    done = history[-1] < _STEADY_CHANGE
                snapshots.append(snapshot)
                residuals = torch.tensor(history)[:, None]
                solutions = (Solution({}, residuals, torch.tensor([done]), torch.tensor([False])),)
        except OutOfTimeError as error:
            if not snapshots:
                raise
            cut, wanted = error, tuple(each.time for each in snapshots)
        prediction = self._gathered(case, wanted, problem, splits, [(each.time, each.state) for each in snapshots])
        prediction = replace(prediction, solutions=solutions)
        if cut is not None:
            raise OutOfTimeError(str(cut), wanted, prediction)
        return prediction

    def marched_together(
        self, cases: Sequence[Case], times: Sequence[Sequence[float]], device: torch.device | str
    ) -> None:
        """March those that a GPU takes side by side, and keep what `solve` will be asked for; a CPU has nothing of it.

        Flows that were lost go one by one, with shorter steps.
        """
        if torch.device(device).type == "cpu":
            return
        able = [place for place, case in enumerate(cases) if STEADY not in times[place] and not case.changes_with_time]
        problems = {place: self.problem(cases[place]) for place in able}
        able = [place for place in able if can_march_together(problems[place])]
        if not able:
            return
        try:
            together = Together([problems[place] for place in able], device)
            found = together.march([times[place] for place in able], Pace(courant=self.courant))
        except RuntimeError as error:  # of its driver, or memory that other programs hold: slower ways still work
            _LOGGER.warning("flows could not be marched together: %s", str(error).partition("\n")[0])
            return
        for place, states, lost in zip(able, found.states, found.lost, strict=True):
            if not lost:
                case, wanted, problem = cases[place], tuple(times[place]), problems[place]
                then = [(time, state.to(problem.velocity)) for time, state in zip(wanted, states, strict=True)]
                key = wanted, limits().iterations, limits().residual
                prediction = self._gathered(case, wanted, problem, self.number_of_splits(case), then)
                self._solved.setdefault(case, {})[key] = prediction

    def _gathered(
        self,
        case: Case,
        wanted: tuple[float, ...],
        problem: Problem,
        splits: int,
        snapshots: Sequence[tuple[float, State]],
    ) -> Prediction:
        """Fields and balance of the states at the times."""
        conditions = _Conditions(case, splits) if case.changes_with_time else None
        finer = splits > 0 and problem.jump is None and case.space == 2 and not _flips(case)
        fields, boundary = [], BoundaryProfile.of(case)
        for time, state in snapshots:
            now = problem
            if conditions is not None:
                now, boundary = conditions.at_output(problem, time), BoundaryProfile.of(case.at(time))
            level = _level(case, now, state)
            fields.append(self._fields(case, now, state, level))
            if not torch.is_grad_enabled():
                fields[-1] |= balance(now, boundary, state, float(level))
                if finer and problem.numbering is not None:
                    fields[-1] |= _on_split_cells(case, problem.numbering, state, level)
        settled = case.over(wanted) if case.changes_with_time else case
        stacked = {
            name: fields[0][name] if len(fields) == 1 else torch.stack([each[name] for each in fields], dim=-1)
            for name in fields[0]
        }
        balanced = {name: stacked.pop(name) for name in BALANCE if name in stacked}
        split = {name: stacked.pop(_SPLIT + name) for name in ("u", "p") if _SPLIT + name in stacked}
        fulfilled = settled.fulfilled(stacked)
        return Prediction(fulfilled, (), {}, balance=balanced, finer=Finer(split, fulfilled) if split else None)

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def _steady_state(self, case: Case, problem: Problem, splits: int) -> SteadyState | None:
        """By Newton's method, from that of the cells before splitting; None where there are too many points."""
        if problem.cells.number_of_points > _MOST_POINTS_OF_NEWTON[problem.cells.space]:
            return None
        known, asked = _STEADY_STATES.setdefault(case, {}), limits()
        tolerance = TOLERANCE if asked.residual is None else asked.residual
        most_iterations = MOST_ITERATIONS if asked.iterations is None else asked.iterations
        key = splits, tolerance, most_iterations
        if key not in known:
            own, start = problem.to(torch.float64, "cpu"), None
            if splits:
                coarse = _problem(_at_rest(case), splits - 1)
                before = self._steady_state(case, coarse, splits - 1)
                start = prolonged(coarse, before.state, own) if before is not None and before.converged else None
            known[key] = steady_state(own, start, tolerance=tolerance, most_iterations=most_iterations)
        return known[key]

    def _fields(self, case: Case, problem: Problem, state: State, level: Tensor) -> dict[str, Tensor]:
        velocity = state.velocity.index_select(1, problem.places).T
        pressure = _pressure(problem, state) + level
        return {"u": velocity.to(case.initial["u"]), "p": pressure.to(case.initial["p"])}


def _flips(case: Case) -> bool:
    """Whether points of its triangles are others than those of the mesh, once they are split."""
    cells = PlaneCells.of(case.mesh)
    return flips(cells.points, cells.triangles)


def _pressure(problem: Problem, state: State) -> Float[Tensor, " user_points"]:
    pressure = state.pressure[problem.places] + problem.jumps
    if problem.corner_pressure is not None:
        corners, weights, added = problem.corner_pressure
        pressure = pressure.index_copy(0, corners, (weights @ state.pressure[:, None])[:, 0] + added)
    return pressure


def _level(case: Case, problem: Problem, state: State) -> Tensor:
    """What is missing to the pressure: in a closed domain the level is that of the prescribed point."""
    held = case.dirichlet["p"]
    if not (bool(problem.closed.all()) and bool(held.mask.any())):
        return torch.zeros_like(state.pressure[0])
    return (held.values - _pressure(problem, state))[held.mask].mean()


@dataclass(frozen=True, eq=False)
class _Conditions:
    """Makes the problem at a time, where conditions change: cells and factors stay."""

    case: Case
    splits: int

    def __call__(self, problem: Problem, time: float) -> Problem:
        return self._changed(problem, _split(Grid.of(self.case.at(time)), self.splits))

    def at_output(self, problem: Problem, time: float) -> Problem:
        """With the pressures in corners, which no step needs."""
        coarse = Grid.of(self.case.at(time))
        grid = _split(coarse, self.splits)
        changed = self._changed(problem, grid)
        corner_pressure = _corner_pressure_of(problem, coarse, grid, float(self.case.parameters["viscosity"]))
        return replace(changed, corner_pressure=corner_pressure).to(changed.velocity.dtype, changed.velocity.device)

    def _changed(self, problem: Problem, grid: Grid) -> Problem:
        assert problem.numbering is not None, "conditions change in one flow, not in a batch"
        stands, places = problem.numbering.stands, problem.numbering.places
        flux = np.bincount(places, grid.boundary_flux(), len(stands))
        changed = replace(
            problem,
            velocity=torch.from_numpy(grid.velocity[stands].T.copy()),
            pressure=torch.from_numpy((grid.pressure - grid.pressure_jump)[stands]),
            inflow=torch.from_numpy(flux),
            facet_fluxes=torch.from_numpy(grid.corner_fluxes().sum(axis=1)) if problem.cells.space == 3 else None,
            facet_shift=facet_shift(grid, problem.cells, places),
            open=outlets(grid, places, problem.free.cpu().numpy() == 0),
        )
        return changed.to(problem.velocity.dtype, problem.velocity.device)


def _on_split_cells(case: Case, numbering: Numbering, state: State, level: Tensor) -> dict[str, Tensor]:
    """The fields at all points of the split cells."""
    places = torch.from_numpy(numbering.places).to(state.pressure.device)
    velocity, pressure = state.velocity[:, places].T, state.pressure[places] + level
    return {_SPLIT + "u": velocity.to(case.initial["u"]), _SPLIT + "p": pressure.to(case.initial["p"])}


def _problem(case: Case, splits: int, device: torch.device | str = "cpu") -> Problem:
    coarse = Grid.of(case)
    grid = _split(coarse, splits)
    problem = Problem.of(grid, float(case.parameters["viscosity"]), case.number_of_points, device=device)
    return replace(
        problem, corner_pressure=_corner_pressure_of(problem, coarse, grid, float(case.parameters["viscosity"]))
    )


def _corner_pressure_of(
    problem: Problem, coarse: Grid, grid: Grid, viscosity: float
) -> tuple[Tensor, SparseMatrix, Tensor] | None:
    if problem.cells.number_of_points < len(grid.cells.points) or problem.cells.space == 3:
        return None  # periodic: the numbers of points are others; in space the flow in such a corner is not known
    corners, weights, added = corner_pressures(coarse, grid, viscosity)
    if not len(corners):
        return None
    assert problem.numbering is not None, "batches have no corner pressures"
    weights = SparseMatrix.from_scipy(weights[:, problem.numbering.stands])
    return torch.from_numpy(corners), weights, torch.from_numpy(added)


def _split(grid: Grid, splits: int) -> Grid:
    for _ in range(splits):
        grid = grid.split()
    return grid


def _has_own_start(case: Case, at_rest: Problem) -> bool:
    """Whether the start is neither uniform nor the potential flow, which the scheme finds from rest itself."""
    velocity = case.initial["u"].detach().to("cpu", torch.float64)
    free = ~case.dirichlet["u"].mask.cpu()
    if not bool((velocity[free] != velocity[free][:1]).any()):
        return False  # a uniform field is a first guess, as in OpenFOAM's cases, not a flow to start from
    if "u" in case.periodic:
        return True
    problem = at_rest.to(torch.float64, "cpu")
    with torch.no_grad():
        potential = begin(problem).velocity[:, problem.places]
    weights = problem.cells.areas[problem.places]
    difference = (weights * (potential - velocity.T).square()).sum() / (weights * potential.square()).sum()
    return float(difference) >= _POTENTIAL**2


def _at_rest(case: Case) -> Case:
    """The case with nothing in motion; the pressure of a flow that is not known is not known either."""
    nothing = {name: torch.zeros_like(values) for name, values in case.initial.items()}
    return replace(case, initial={name: case.dirichlet[name].apply(values) for name, values in nothing.items()})


def _until_steady(
    problem: Problem,
    state: State,
    now: float,
    pace: Pace,
    conditions: Callable[[Problem, float], Problem] | None,
    way: Way,
    length: float,
) -> tuple[Snapshot, list[float]]:
    """Steps that grow longer until the velocity no longer changes."""
    changes: list[float] = []
    end = now + _MOST_STEADY_TIME
    settle = replace(
        _STEADY_PACE,
        first=0.1 * length if now > 0 else pace.first,
        courant=max(_STEADY_PACE.courant * length, pace.courant),
        longest=_STEADY_PACE.longest * length,
    )
    time = now
    snapshot = Snapshot(now, state, 0.0, math.inf)
    while time < end:
        time += 2.0
        for snapshot in march(problem, state, [time], pace=settle, start=time - 2.0, conditions=conditions, way=way):
            state = snapshot.state
            changes.append(snapshot.change)
        settle = replace(settle, first=max(snapshot.step, settle.first))
        if changes[-1] < _STEADY_CHANGE:
            break
    return replace(snapshot, time=STEADY), changes


def _where(case: Case, problem: Problem, velocity: Tensor) -> str:
    """Which cell of the user's mesh has lost a flow, and what to do about it."""
    speeds = velocity.detach().abs().amax(dim=0).nan_to_num(math.inf, math.inf).index_select(0, problem.places)
    # Where everything is lost, the most stretched cell is the first suspect.
    stretched = problem.cells.aspect_ratios().index_select(0, problem.places)
    point = int(torch.where(speeds == speeds.max(), stretched, 0.0).argmax())
    position = ", ".join(f"{float(each):.4g}" for each in case.mesh.points[point])
    boundary, drawn = BoundaryProfile.of(case), ""
    if (boundary.entrances & ~boundary.total).any():
        drawn = (
            " A static pressure drives fluid in: where the pressure rises behind the inlet, nothing limits the speed, "
            "and there is no flow to predict. Prescribe the total pressure there (totalPressure, [total_pressure.p])."
        )
    return (
        f"The fastest cell is that of point {point} of the mesh, at ({position}) in reference lengths, with an aspect "
        f"ratio of {float(stretched[point]):.0f}. Steps a quarter as long diverged, too. Smooth the cells around "
        f"it, or check the conditions of the nearest patch and the viscosity.{drawn}"
    )
