"""Compiled steps are those of PyTorch, whatever the cells and the conditions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from pennpde.flow import compiled
from pennpde.flow.compiled import CompiledSteps, can_compile
from pennpde.flow.krylov import Effort
from pennpde.flow.march import FlowDivergedError, Pace, march
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import advance, begin
from steady_flows import cavity, driven, duct, plain, slip_duct, square


def two_inlets(mesh: penn.Mesh) -> penn.Case:
    case = duct(mesh)
    lid = case.dirichlet["u"]
    top = (mesh.points[:, 1] > 1 - 1e-9).numpy()
    values = lid.values.clone()
    values[torch.from_numpy(top & (np.abs(mesh.points[:, 0].numpy() - 0.5) < 0.2))] = torch.tensor([0.0, -0.5]).double()
    return replace(case, dirichlet={**case.dirichlet, "u": replace(lid, values=values)})


@pytest.mark.parametrize("make", [duct, cavity, slip_duct, two_inlets, driven])
@pytest.mark.parametrize("kind", ["triangle", "quad", "mixed_plane"])
def test_a_compiled_step_is_that_of_pytorch(make, kind):
    problem = plain().problem(make(square(kind, 8)))
    assert can_compile(problem)
    take, effort = CompiledSteps(), Effort(1e-11)
    ours = theirs = begin(problem)
    for number, length in enumerate((0.01, 0.02, 0.05, 0.05)):
        step = torch.full_like(problem.viscosity, length)
        passes = 2 if number == 0 else 1
        ours = take(problem, ours, step, passes=passes, effort=effort)
        theirs = advance(problem, theirs, step, passes=passes, effort=effort)
        # Both solve to 1e-11; the pressure divides what is left by the step.
        assert_close(ours.velocity, theirs.velocity, rtol=0, atol=1e-8)
        assert_close(ours.fluxes, theirs.fluxes, rtol=0, atol=1e-8)
        assert_close(ours.pressure, theirs.pressure, rtol=0, atol=1e-6)


def test_a_march_of_the_plain_scheme_is_compiled_and_ends_where_the_other_does(monkeypatch):
    case = duct(square("quad", 10))
    compiled = penn.predict(FlowScheme(splits=0), case, times=[0.5, 2.0]).fields
    problem = plain().problem(case)
    moments = list(march(problem, begin(problem), [0.5, 2.0]))
    for place, moment in enumerate(moments):
        expected = moment.state.velocity.index_select(1, problem.places).T
        # The momentum equation is solved to 3e-5 in each step.
        assert_close(compiled["u"][..., place], expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("make", [duct, cavity, slip_duct])
def test_a_march_in_one_piece_takes_the_steps_that_are_taken_one_by_one(make):
    problem, pace = plain().problem(make(square("mixed_plane", 8))), Pace(courant=6.0, calm=1e-2, tolerance=1e-10)
    way, times = CompiledSteps().way(), [0.3, 1.7, 6.0]
    assert way.go is not None
    whole = list(march(problem, begin(problem), times, pace=pace, way=way))
    single = list(march(problem, begin(problem), times, pace=pace, way=replace(way, go=None)))
    for one, other in zip(whole, single, strict=True):
        assert one.time == other.time
        assert one.step == pytest.approx(other.step, rel=1e-6)
        assert one.change == pytest.approx(other.change, rel=1e-4)
        assert_close(one.state.velocity, other.state.velocity, rtol=0, atol=1e-8)
        assert_close(one.state.fluxes, other.state.fluxes, rtol=0, atol=1e-8)


def test_a_flow_that_blows_up_is_lost_in_one_piece_too():
    problem = plain().problem(duct(square("quad", 8)))
    unstable = replace(problem, viscosity=torch.full_like(problem.viscosity, -0.5))
    with pytest.raises(FlowDivergedError, match="diverged"):
        list(march(unstable, begin(unstable), [50.0], pace=Pace(courant=4.0), way=CompiledSteps().way()))


@pytest.mark.parametrize("make", [duct, cavity, slip_duct, two_inlets])
def test_the_compiled_start_is_that_of_pytorch(make):
    problem = plain().problem(make(square("mixed_plane", 8)))
    theirs = begin(problem)
    with torch.no_grad():
        ours = compiled.begin(problem)
    assert_close(ours.velocity, theirs.velocity, rtol=0, atol=1e-12)
    assert_close(ours.fluxes, theirs.fluxes, rtol=0, atol=1e-12)
    assert_close(ours.pressure, theirs.pressure, rtol=0, atol=0)
