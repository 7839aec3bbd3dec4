"""The fast flow network: a coarse march on the user's cells, a learned correction, and one projection for mass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.flow.corrector import coarse_case, corrector
from pennpde.flow.network import SteppingFlow
from pennpde.flow.plane_physics import PlaneFlowPhysics
from pennpde.flow.problem import Problem
from pennpde.flow.step import State, begin
from pennpde.penn.predictor import Prediction, Predictor


class FastFlow(Predictor):
    """Plane laminar flow by the plain scheme on the cells as they are, corrected by a PENN.

    Args:
        width: See `corrector`.
        iterations: Likewise.
        hidden: Likewise.
        slices: Likewise.
        courant: Cells that fluid may cross in a step of the march.
        projected: Whether the corrected velocity is made to conserve mass in every cell.
    """

    takes_times: ClassVar = True
    takes_any_precision: ClassVar = True

    def __init__(
        self,
        width: int = 24,
        iterations: int = 6,
        hidden: int = 96,
        slices: int = 24,
        courant: float = 4.0,
        projected: bool = True,
    ) -> None:
        super().__init__()
        self.equation = PlaneFlowPhysics()
        self.corrector = corrector(width, iterations, hidden, slices)
        self.projected = projected
        # Not a submodule: the march has nothing that is trained, and its direct solver is on the CPU.
        self._marches = (SteppingFlow(courant=courant, splits=0, corrected=False),)

    @property
    def march(self) -> SteppingFlow:
        return self._marches[0]

    @property
    def output_times(self) -> tuple[float, ...]:
        return self.march.output_times

    @property
    def fulfils_dirichlet(self) -> bool:
        return True

    def prepare(self, case: Case) -> None:
        self.march.prepare(case)

    def can_keep(self, cases: Sequence[Case]) -> bool:
        return self.march.can_keep(cases)

    def forward(self, case: Case) -> dict[str, Tensor]:
        times = case.parameters.get("time")
        return self.solve(case, None if times is None else [float(times)]).fields

    def solve(self, case: Case, times: Sequence[float] | None = None) -> Prediction:
        """Predict at times, in order; the steady state comes last."""
        wanted = self.output_times if times is None else tuple(times)
        coarse = self.march.solve(case, wanted)
        series = {name: values if len(wanted) > 1 else values[..., None] for name, values in coarse.fields.items()}
        problem = self.march.problem(case)
        start = begin(problem).velocity[:, problem.places].T
        frames = []
        for place, time in enumerate(wanted):
            fields = {name: values[..., place] for name, values in series.items()}
            then = case.at(time) if case.changes_with_time else case
            found = self._corrected(coarse_case(then, fields["u"], fields["p"], start, time))
            if self.projected:
                found["u"] = conserving(problem, found["u"]).velocity[:, problem.places].T.to(found["u"])
            frames.append({name: values.to(case.initial[name]) for name, values in found.items()})
        stacked = {
            name: frames[0][name] if len(frames) == 1 else torch.stack([each[name] for each in frames], dim=-1)
            for name in ("u", "p")
        }
        settled = case.over(wanted) if case.changes_with_time else case
        return Prediction(settled.fulfilled(stacked), coarse.solutions, {})

    def _corrected(self, case: Case) -> dict[str, Tensor]:
        return dict(self.corrector(case))

    def second_opinion(self, case: Case, times: Sequence[float]) -> dict[str, Tensor]:
        """The coarse solution, which is cheaper and less accurate."""
        return self.march.solve(case, times).fields


def conserving(problem: Problem, velocity: Float[Tensor, "points space"]) -> State:
    """The nearest flow whose fluxes conserve mass in every cell, by the factors of the pressure's equation.

    Args:
        problem: On the cells as they are.
        velocity: At the points of the mesh.
    """
    given = problem.velocity.index_copy(1, problem.places, velocity.detach().T.to(problem.velocity))
    return begin(replace(problem, velocity=torch.where(problem.free > 0, given, problem.velocity)))


def fast_flow(
    width: int = 24,
    iterations: int = 6,
    hidden: int = 96,
    slices: int = 24,
    courant: float = 4.0,
    projected: bool = True,
) -> FastFlow:
    """The fast flow network; see `FastFlow`."""
    return FastFlow(width, iterations, hidden, slices, courant, projected)
