"""What the scheme's balance gives: forces of the fluid on its boundary, in keeping with its momentum."""

import pytest
import torch

from pennpde.case import Case
from pennpde.flow.balance import balance
from pennpde.flow.problem import Problem
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.steady import steady_state
from pennpde.flow.step import State, advance, begin
from pennpde.models.inlet import BoundaryProfile
from pennpde.penn.equation import DISSIPATION, OUTFLOW, PRESSED, VISCOUS
from steady_flows import duct, slip_duct, square


def carried(problem: Problem, state: State) -> torch.Tensor:
    """The momentum that leaves the cells through the boundary in a unit of time."""
    return (state.velocity * -problem.cells.collected(state.fluxes)).sum(dim=1)


def force(found: dict[str, torch.Tensor]) -> torch.Tensor:
    return (found[VISCOUS] + found[PRESSED]).sum(dim=0)


@pytest.mark.parametrize("make", [duct, slip_duct])
@pytest.mark.parametrize(("kind", "splits"), [("triangle", 0), ("quad", 1)])
def test_forces_on_all_facets_are_what_a_steady_flow_loses_of_its_momentum(make, kind, splits):
    case: Case = make(square(kind, 8))
    problem = FlowScheme(splits=splits).problem(case)
    state = steady_state(problem, tolerance=1e-10).state
    found = balance(problem, BoundaryProfile.of(case), state)
    assert force(found).tolist() == pytest.approx((-carried(problem, state)).tolist(), abs=1e-9)
    assert float(found[OUTFLOW].sum()) == pytest.approx(0.0, abs=1e-12)
    assert float(found[DISSIPATION]) > 0


def test_forces_on_all_facets_are_what_a_flow_in_motion_loses_of_its_momentum():
    case, step = duct(square("triangle", 8)), torch.tensor([0.01], dtype=torch.float64)
    problem = FlowScheme(splits=0).problem(case)
    states = [begin(problem)]
    for _ in range(30):
        states.append(advance(problem, states[-1], step))
    state = states[-1]
    rate = (1.5 * state.velocity - 2.0 * states[-2].velocity + 0.5 * states[-3].velocity) / step
    found = balance(problem, BoundaryProfile.of(case), state)
    missing = force(found) + carried(problem, state) + (problem.cells.areas * rate).sum(dim=1)
    # The splitting of a step into momentum and pressure is of second order in the step.
    assert missing.abs().max() < 0.01 * force(found).abs().max()


def test_a_level_adds_its_own_force_to_every_facet():
    case = duct(square("quad", 4))
    problem = FlowScheme(splits=1).problem(case)
    boundary, state = BoundaryProfile.of(case), begin(problem)
    low, high = (balance(problem, boundary, state, level)[PRESSED] for level in (0.0, 3.0))
    assert torch.allclose(high - low, 3.0 * case.mesh.facet_areas)
