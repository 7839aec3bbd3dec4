"""How much of the error on coarse cells no stress can take away: what conserving mass alone does to the truth.

    python lab/experiments/general_flow/representation.py

The truth's velocity at a moment, taken at the points of a training mesh that is not split, is made to conserve mass on
the cells around these points, as every step does. The change is compared with the error of the untrained scheme one
interval later, from that start. Writes `lab/experiments/general_flow/representation.json`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pennlab.datasets.plane_flow import finished, flows
from pennpde.files import write_json
from pennpde.flow.grid import Grid
from pennpde.flow.march import step_limit
from pennpde.flow.problem import Problem
from pennpde.flow.step import advance, begin

FINISHED = Path(__file__).resolve().parents[3] / "data" / "plane_flow" / "finished"
RESULT = Path(__file__).parent / "representation.json"
FLOWS, LONGEST, MOST_POINTS, COURANT = 8, 1.6, 3500, 2.0


def measured(name: str) -> dict[str, float] | None:
    """Relative changes of u on the first interval of a flow; None where it is long or its mesh is fine."""
    file = finished.cases(FINISHED, flows.draw_flow(name.rpartition(".")[0], 0))[name]
    case, times = file.case, file.times
    if case.number_of_points >= MOST_POINTS or len(times) < 2 or times[1] - times[0] >= LONGEST:
        return None
    problem = Problem.of(Grid.of(case), float(case.parameters["viscosity"]), case.number_of_points)
    before, after = (case.targets["u"][..., place].double().T.contiguous() for place in (0, 1))

    def relative(found: torch.Tensor, truth: torch.Tensor) -> float:
        areas = problem.cells.areas
        return float(((areas * (found - truth).square()).sum() / (areas * truth.square()).sum()).sqrt())

    state = begin(replace(problem, velocity=before))
    projected = relative(state.velocity, before)
    state = replace(state, pressure=case.targets["p"][..., 0].double())
    interval = times[1] - times[0]
    count = math.ceil(interval / step_limit(problem, state.fluxes, COURANT))
    for number in range(count):
        length = torch.full_like(problem.viscosity, interval / count)
        state = advance(problem, state, length, passes=1 if number else 2)
    return {
        "projected": projected,
        "after the interval": relative(state.velocity, after),
        "flow": relative(before, after),
    }


def main() -> None:
    torch.set_num_threads(1)
    names = [name for name in finished.names(FINISHED) if int(name.rpartition("_")[2]) < 1000]
    generator = np.random.default_rng(1)
    found: dict[str, dict[str, float]] = {}
    for place in generator.permutation(len(names)):
        name = f"{names[place]}.{'ab'[generator.integers(2)]}"
        if (result := measured(name)) is not None:
            found[name] = {key: float(f"{value:.3g}") for key, value in result.items()}
            print(name, found[name], flush=True)
        if len(found) == FLOWS:
            break
    write_json(RESULT, found)


if __name__ == "__main__":
    main()
