import shutil

import pytest
import torch
from torch.testing import assert_close

import kernels_on_cpu
from pennpde.flow.coarse_march import conserving
from pennpde.flow.compiled import CompiledSteps
from pennpde.flow.march import Pace, march
from pennpde.flow.marched_together import Together, can_march_together
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import begin
from square_flows import cavity, duct, square

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="runs the GPU's kernels through a C++ compiler")
PACE = Pace(courant=4.0, tolerance=1e-9)
TIMES = [[0.41, 0.97], [0.27], [0.53]]


def problems():
    """Other meshes, Reynolds numbers and conditions: open, closed, quads, triangles."""
    cases = [duct(square("triangle", 7), viscosity=0.02), cavity(square("quad", 6)), duct(square("quad", 5))]
    return [FlowScheme(splits=0).problem(case) for case in cases]


def marched_alone(problem, times):
    return [each.state for each in march(problem, begin(problem), times, pace=PACE, way=CompiledSteps().way())]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 2e-3)])
def test_flows_marched_together_go_the_way_of_each(dtype, tolerance):
    # In single precision a time may be met by a step more or less: that error is one of the time step.
    parts = problems()
    together = Together(parts, "cpu", dtype, launch=kernels_on_cpu.launch)
    pace = PACE if dtype == torch.float64 else Pace(courant=4.0, tolerance=1e-5)
    found = together.march(TIMES, pace)
    assert not any(found.lost)
    for part, times, start, states in zip(parts, TIMES, found.start, found.states, strict=True):
        assert_close(start.double(), begin(part).velocity, rtol=0, atol=tolerance)
        for state, alone in zip(states, marched_alone(part, times), strict=True):
            assert_close(state.velocity.double(), alone.velocity, rtol=0, atol=tolerance)
            assert_close(state.pressure.double(), alone.pressure, rtol=0, atol=10 * tolerance)
            assert_close(state.fluxes.double(), alone.fluxes, rtol=0, atol=tolerance)


@needs_compiler
@pytest.mark.slow
def test_velocities_of_several_times_conserve_mass_together_as_alone():
    parts = problems()[:2]
    together = Together(parts, "cpu", torch.float64, launch=kernels_on_cpu.launch)
    generator = torch.Generator().manual_seed(1)
    given = [[torch.randn(part.velocity.shape, generator=generator).double() for _ in range(2)] for part in parts]
    for part, velocities, states in zip(parts, given, together.conserving(given), strict=True):
        for velocity, state in zip(velocities, states, strict=True):
            alone = conserving(part, velocity[:, part.places].T)
            assert_close(state.velocity, alone.velocity, rtol=0, atol=1e-11)
            assert_close(state.fluxes, alone.fluxes, rtol=0, atol=1e-11)


def test_flows_need_times_of_their_own():
    together = Together(problems()[:2], "cpu", launch=lambda *_: None)
    with pytest.raises(ValueError, match="times of 1 flows, of 2 side by side"):
        together.march([[1.0]])


@pytest.mark.gpu
def test_a_gpu_marches_together_as_a_cpu_marches_each():
    parts = problems()
    assert all(map(can_march_together, parts))
    together = Together(parts, "cuda", torch.float32)
    found = together.march(TIMES, Pace(courant=4.0, tolerance=1e-5))
    assert not any(found.lost)
    for part, times, states in zip(parts, TIMES, found.states, strict=True):
        for state, alone in zip(states, marched_alone(part, times), strict=True):
            assert_close(state.velocity.cpu().double(), alone.velocity, rtol=0, atol=2e-3)
    moved = together.conserving([[each.velocity for each in states] for states in found.states])
    for before, after in zip(found.states, moved, strict=True):
        for one, other in zip(before, after, strict=True):
            # The march's velocity at the points is not the nearest one that conserves mass, but close to it.
            assert float((one.velocity - other.velocity).norm() / one.velocity.norm()) < 0.05


@pytest.mark.gpu
def test_flows_of_a_gpu_stand_side_by_side():
    from pennpde.flow.problem import Problem

    parts = [each.to(device="cuda") for each in problems()[:2]]
    both, here = Problem.side_by_side(parts), Problem.side_by_side(problems()[:2])
    assert_close(both.cells.entries.cpu(), here.cells.entries)
    assert_close(both.cells.pattern_columns.cpu(), here.cells.pattern_columns)
    assert_close(both.velocity.cpu(), here.velocity)
