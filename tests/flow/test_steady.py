"""Steady states: Newton's method solves the scheme's own equations, and what is not solved is never called good."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from pennpde.flow import scheme as stepping
from pennpde.flow.grid import Grid
from pennpde.flow.march import Pace, march
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.steady import TOLERANCE, SteadyEquations, prolonged, steady_state
from pennpde.flow.step import begin
from pennpde.trust.expected_error import FAIR, GOOD, POOR, Expected, ExpectedError
from steady_flows import cavity, driven, duct, plain, slip_duct, square


@pytest.mark.parametrize("make", [duct, cavity, slip_duct])
@pytest.mark.parametrize("kind", ["triangle", "quad", "mixed_plane"])
def test_the_steady_state_is_where_the_march_goes(make, kind):
    problem = plain().problem(make(square(kind, 8)))
    found = steady_state(problem)
    assert found.converged
    assert found.residuals[-1] < TOLERANCE
    pace = Pace(courant=10.0, growth=1.3, longest=0.2, tolerance=1e-10)
    *_, last = march(problem, begin(problem), [40.0], pace=pace)
    # By then what is left of the start has fallen below 1e-8, and the residual's tolerance is 1e-7.
    assert_close(found.state.velocity, last.state.velocity, rtol=0, atol=1e-6)
    difference = found.state.pressure - last.state.pressure
    assert float((difference - difference.mean() * problem.closed).abs().max()) < 1e-5
    assert_close(found.state.fluxes, last.state.fluxes, rtol=0, atol=1e-6)


def test_a_march_that_goes_on_from_a_steady_state_stays_there():
    problem = plain().problem(cavity(square("quad", 8)))
    found = steady_state(problem, tolerance=1e-11)
    (later,) = march(problem, found.state, [1.0], pace=Pace(tolerance=1e-11))
    assert_close(later.state.velocity, found.state.velocity, rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", [duct, cavity, slip_duct, driven])
def test_the_jacobian_is_the_derivative_of_the_residual(make):
    problem = plain().problem(make(square("mixed_plane", 6)))
    equations, start = SteadyEquations(problem), begin(problem)
    random = np.random.default_rng(0)
    unknowns = equations.packed(start.velocity, start.pressure)
    unknowns = unknowns + 0.1 * random.standard_normal(len(unknowns))
    direction, length = random.standard_normal(len(unknowns)), 1e-6
    ahead, behind = (equations.residual(unknowns + sign * length * direction).values.numpy() for sign in (1, -1))
    found = equations.residual(unknowns)
    expected = (ahead - behind) / (2 * length)
    # Central differences in double precision: 1e-16 / 1e-6.
    np.testing.assert_allclose(equations.jacobian(found) @ direction, expected, rtol=0, atol=1e-8)


def test_a_prolonged_state_is_exact_where_it_is_linear():
    case = duct(square("mixed_plane", 6))
    coarse, fine = (FlowScheme(splits=splits).problem(case) for splits in (0, 1))
    heights = torch.from_numpy(Grid.of(case).split().cells.points[:, 1])
    y = [heights[each.numbering.stands] for each in (coarse, fine)]
    state = replace(begin(coarse), velocity=torch.stack([y[0], 2 * y[0]]))
    assert_close(prolonged(coarse, state, fine).velocity, torch.stack([y[1], 2 * y[1]]), rtol=0, atol=1e-12)


def test_from_the_steady_state_of_coarser_cells_few_steps_remain():
    case = cavity(square("quad", 12), viscosity=1 / 1000)
    coarse, fine = (FlowScheme(splits=splits).problem(case) for splits in (0, 1))
    near = steady_state(fine, prolonged(coarse, steady_state(coarse).state, fine))
    assert near.converged
    assert len(near.residuals) < 10
    assert_close(near.state.velocity, steady_state(fine).state.velocity, rtol=0, atol=1e-6)


def test_near_the_solution_the_residual_falls_faster_and_faster():
    residuals = steady_state(plain().problem(cavity(square("quad", 12))), tolerance=1e-10).residuals
    factors = [later / earlier for earlier, later in pairwise(residuals)]
    assert factors[-1] < 0.1
    assert len(residuals) < 25


def test_mass_is_conserved_in_every_cell_of_a_steady_state():
    problem = plain().problem(duct(square("mixed_plane", 8)))
    found = steady_state(problem, tolerance=1e-11)
    left = problem.cells.collected(found.state.fluxes) + problem.inflow
    assert float((left * problem.pressure_free).abs().max()) < 1e-11


def test_a_lid_at_a_high_reynolds_number_has_a_steady_state():
    found = steady_state(plain().problem(cavity(square("quad", 24, jitter=0.0), viscosity=1 / 3000)))
    assert found.converged


def test_a_steady_state_that_is_cut_off_says_so():
    found = steady_state(plain().problem(cavity(square("quad", 8))), most_iterations=2)
    assert not found.converged
    assert len(found.residuals) == 3


def test_what_has_not_converged_is_never_graded_better_than_poor():
    errors = {"u": ExpectedError(0.01, 0.02), "p": ExpectedError(0.02, 0.05)}
    assert Expected(errors).grade in (GOOD, FAIR)
    stopped = replace(Expected(errors), unconverged=True)
    assert stopped.grade == POOR
    assert "has not converged" in stopped.warnings[0]
    assert stopped.as_dict()["converged"] is False


def test_a_prediction_tells_that_its_steady_state_has_not_converged(monkeypatch):
    monkeypatch.setattr(stepping.FlowScheme, "_steady_state", lambda *_: None)
    monkeypatch.setattr(stepping, "_MOST_STEADY_TIME", 2.0)
    model = penn.load_pretrained("flow")
    outcome = penn.predict(model, duct(square("quad", 8), viscosity=2e-3), times=[0.5, math.inf])
    assert not outcome.certificate.converged
    assert not outcome.expected_by_time[0].unconverged
    assert outcome.expected_by_time[1].unconverged
    assert outcome.expected.grade not in (GOOD, FAIR)
    assert any("has not converged" in each for each in outcome.certificate.warnings)


def test_whoever_watches_is_told_how_far_the_steady_state_is():
    told = []
    with penn.progress.watched(lambda stage, share: told.append((stage, share))):
        assert steady_state(plain().problem(duct(square("quad", 8), viscosity=0.01))).converged
    stages, shares = zip(*told, strict=True)
    assert set(stages) == {"steady state, 81 cells"}
    assert all(later >= earlier for earlier, later in pairwise(shares))
    assert shares[0] == 0.0
    assert 0.5 < shares[-1] < 1.0
