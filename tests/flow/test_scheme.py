"""The finite-volume scheme: exact solutions, conditions, equivariance, units and time."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from pennpde.case import Case
from pennpde.flow import captured_steps as captured
from pennpde.flow import scheme
from pennpde.flow.grid import Grid
from pennpde.flow.krylov import Effort
from pennpde.flow.march import FlowDivergedError, Pace, Way, march, step_limit
from pennpde.flow.pressure import corner_pressures
from pennpde.flow.problem import Problem
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import advance, begin
from pennpde.mesh import Mesh
from pennpde.mesh.splitting import PlaneCells, flips
from pennpde.testing import assert_equivariant
from pennpde.trust.expected_error import uncalibrated
from replaying import Replayed
from square_flows import cavity, duct, square


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["triangle", "quad", "mixed_plane"])
def test_the_parabola_between_plates_is_steady(kind):
    """Poiseuille's flow, u = 6 y (1 - y), p = 12 nu (1 - x), within the scheme's second order."""
    case = duct(square(kind, 12, jitter=0.1))
    found = penn.predict(FlowScheme(splits=1), case, times=[penn.STEADY])
    x, y = case.mesh.points.T
    exact = 6 * y * (1 - y)
    # 24 cells across after the split. The corner of a jittered mesh is what is left.
    assert float((found.fields["u"][:, 0] - exact).abs().max()) < 0.03
    assert float(found.fields["u"][:, 1].abs().max()) < 0.03
    assert float((found.fields["p"] - 0.6 * (1 - x)).abs().mean()) < 0.02
    assert found.certificate.converged


def test_the_error_falls_with_the_square_of_the_spacing():
    errors = []
    for cells_along in (6, 12):
        case = duct(square("quad", cells_along, jitter=0.0), viscosity=0.05)
        found = penn.predict(FlowScheme(splits=0), case, times=[penn.STEADY])
        y = case.mesh.points[:, 1]
        errors.append(float((found.fields["u"][:, 0] - 6 * y * (1 - y)).square().mean().sqrt()))
    assert math.log2(errors[0] / errors[1]) > 1.7


@pytest.mark.parametrize("make", [duct, cavity])
def test_fluxes_conserve_mass_in_every_cell(make):
    model = FlowScheme(splits=0)
    problem = model.problem(make(square()))
    state = begin(problem)
    for _ in range(3):
        state = advance(problem, state, torch.full_like(problem.viscosity, 0.1)).detached()
        left = problem.cells.collected(state.fluxes) + problem.inflow
        # Open cells and the cell of a prescribed pressure take up the rest; in closed domains the rest is zero.
        assert float((left * problem.pressure_free).abs().max()) < 1e-12


def test_long_thin_cells_stay_calm():
    """With fluxes that forget by edges instead of cells, the velocity is 1e10 after these steps."""
    torch.manual_seed(0)
    mesh = square("quad", 12, jitter=0.0)
    mesh = mesh.with_points(mesh.points * torch.tensor([40.0, 1.0], dtype=torch.float64))
    model = FlowScheme(splits=0)
    problem = model.problem(duct(mesh, viscosity=1.0))
    with torch.no_grad():
        state = begin(problem)
        for number in range(20):
            length = torch.full_like(problem.viscosity, 0.005)
            state = advance(problem, state, length, passes=1 if number else 2)
    assert float(state.velocity.abs().max()) < 1.6


def test_prescribed_values_are_exact_bit_for_bit():
    case = duct(square(), profile="uniform")
    fields = penn.predict(FlowScheme(), case, times=[0.3, 1.0]).fields
    for name in ("u", "p"):
        condition = case.dirichlet[name]
        for place in range(2):
            assert torch.equal(fields[name][..., place][condition.mask], condition.values[condition.mask])


@pytest.mark.parametrize(("splits", "make"), [(0, duct), (1, duct), (2, cavity)])
def test_the_flow_turns_with_its_mesh(splits, make):
    model = FlowScheme(splits=splits)
    assert_equivariant(lambda case: model.solve(case, [0.5]).fields, make(square(cells_along=5)), tolerance=1e-12)


def test_units_do_not_matter():
    case = duct(square(cells_along=5))
    model = FlowScheme()
    plain = penn.predict(model, case, times=[0.5, 1.0])
    length, speed = 0.02, 3.0
    mesh = case.mesh.with_points(case.mesh.points * length)
    velocity = case.dirichlet["u"]
    other = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": penn.Dirichlet(velocity.mask, velocity.values * speed),
            "p": penn.Dirichlet(case.dirichlet["p"].mask, case.dirichlet["p"].values + 7.0),
        },
        neumann={"u": {"right": 0.0}, "p": 0.0},
        parameters={"viscosity": 0.05 * length * speed},
    )
    found = penn.predict(model, other, times=[0.5 * length / speed, length / speed])
    assert_close(found.fields["u"] / speed, plain.fields["u"], rtol=1e-6, atol=1e-6)
    assert_close((found.fields["p"] - 7.0) / speed**2, plain.fields["p"], rtol=1e-6, atol=1e-6)
    assert found.numbers["Reynolds number"] == pytest.approx(plain.numbers["Reynolds number"])


def test_times_on_the_way_do_not_change_where_a_flow_goes_by_more_than_the_steps_do():
    case = duct(square(cells_along=6), profile="uniform")
    model = FlowScheme(splits=0)
    with torch.no_grad():
        direct = model.solve(case, [2.0]).fields["u"]
        through = model.solve(case, [0.7, 2.0]).fields["u"][..., -1]
    # Steps of up to a quarter, of second order, while the flow settles.
    assert float((direct - through).abs().max()) < 5e-3


def test_a_flow_goes_on_from_a_given_state():
    """Half of the way, and then the rest from there."""
    mesh = square(cells_along=10)
    model = FlowScheme(splits=0)
    case = duct(mesh, viscosity=0.02, profile="uniform")
    with torch.no_grad():
        half, whole = (model.solve(case, [time]).fields for time in (0.5, 1.0))
        rest = model.solve(duct(mesh, viscosity=0.02, profile="uniform", initial=half), [0.5]).fields
    assert float((rest["u"] - whole["u"]).norm() / whole["u"].norm()) < 0.03


def test_a_slip_wall_slips_and_lets_nothing_through():
    mesh = square()
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"left": (1.0, 0.0), "bottom": 0.0}, "p": {"right": 0.0}},
        neumann={"u": {"right": 0.0}, "p": {"left": 0.0, "bottom": 0.0}},
        slip={"u": "top"},
        parameters={"viscosity": 0.05},
    )
    velocity = FlowScheme().solve(case, [1.0]).fields["u"].detach()[mesh.patch("top").points]
    assert float(velocity[:, 1].abs().max()) < 1e-12
    assert float(velocity[1:-1, 0].min()) > 0.5


def test_a_periodic_channel_is_driven_by_the_jump_of_its_pressure():
    """Poiseuille's u = 6 y (1 - y) needs a pressure that falls by 12 nu over a length of one."""
    mesh = square("quad", 10, jitter=0.0)
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"bottom": 0.0, "top": 0.0}},
        periodic={"u": {"left": "right"}, "p": {"left": penn.Across("right", jump=-12.0 * 0.1)}},
        neumann={"p": {"bottom": 0.0, "top": 0.0}},
        parameters={"viscosity": 0.1},
    )
    fields = penn.predict(FlowScheme(splits=0), case, times=[penn.STEADY]).fields
    y = mesh.points[:, 1]
    assert float((fields["u"][:, 0] - 6 * y * (1 - y)).abs().max()) < 0.03  # 10 cells, second order
    assert_close(fields["u"][mesh.patch("left").points], fields["u"][mesh.patch("right").points])


def test_conditions_may_change_with_time():
    mesh = square(cells_along=6)
    walls = {"bottom": 0.0, "top": 0.0}
    case = duct(mesh, dirichlet={"u": {"left": lambda time: (1.0 + time, 0.0), **walls}, "p": {"right": 0.0}})
    model = FlowScheme(splits=0)
    fields = penn.predict(model, case, times=[0.5, 1.0], length=1.0, speed=1.0).fields["u"]
    place = mesh.patch("left").points[2]
    assert fields[place, 0].tolist() == [1.5, 2.0]
    # What flows in flows out: half as much more at the later time.
    right = mesh.patch("right").points
    assert float(fields[right, 0, 1].mean() / fields[right, 0, 0].mean()) == pytest.approx(2.0 / 1.5, rel=0.1)


def test_a_start_from_rest_is_at_rest_on_split_cells_too():
    """Only what is prescribed moves: no layer as thick as a cell of the user under a lid."""
    grid = Grid.of(cavity(square("quad", 4))).split().split()
    assert not grid.velocity[~grid.held].any()
    assert grid.velocity[grid.held].any()


def test_inflow_is_that_of_the_whole_parabola_however_often_cells_are_split():
    grid = Grid.of(duct(square("triangle", 4, jitter=0.0)))
    for _ in range(3):
        assert grid.boundary_flux().sum() == pytest.approx(-1.0, abs=1e-12)
        y = grid.cells.points[grid.held, 1]
        inlet = grid.cells.points[grid.held, 0] == 0.0
        assert np.allclose(grid.velocity[grid.held, 0], np.where(inlet, 6 * y * (1 - y), 0.0))
        grid = grid.split()


def test_a_corner_between_lid_and_wall_has_the_pressure_of_taylors_flow():
    """Of 2 ν / r (C cos θ + D sin θ), with C and D by hand for a right angle and a lid that comes from the wall."""
    coarse = Grid.of(cavity(square("quad", 4, jitter=0.0)))
    fine = coarse.split()
    corners, weights, added = corner_pressures(coarse, fine, viscosity=0.1)
    assert sorted(coarse.cells.points[corners].tolist()) == [[0.0, 1.0], [1.0, 1.0]]
    x, quarter = fine.cells.points, math.pi / 2
    strength = 1.0 / (quarter**2 - 1.0)
    for corner, mean, constant in zip(corners, weights.toarray(), added, strict=True):
        right = coarse.cells.points[corner][0] > 0
        distance = np.linalg.norm(x - coarse.cells.points[corner], axis=1)
        along = np.abs(x[:, 0] - coarse.cells.points[corner][0]) / np.maximum(distance, 1e-9)
        down = np.abs(x[:, 1] - 1.0) / np.maximum(distance, 1e-9)
        sign = 1.0 if right else -1.0
        pressure = sign * 0.2 * strength * (along + quarter * down) / np.maximum(distance, 1e-9)
        # A smooth pressure of 3 on top: what comes out is 3 and the mean over a quarter of a disc of radius 1/8.
        value = mean @ (pressure + 3.0) + constant
        expected = sign * 4 * 0.1 * strength * (1.0 + quarter) / (quarter * 0.125)
        assert mean.sum() == pytest.approx(1.0)
        assert value == pytest.approx(3.0 + expected, rel=1e-9)


@pytest.mark.parametrize(("viscosity", "cells"), [(1.0, 2.6), (0.1, 1.2), (1e-3, 0.55)])
def test_the_faster_the_flow_the_nearer_the_points_that_tell_the_level_in_a_corner(viscosity, cells):
    """Momentum piles up pressure within 3 ν over the speed, here 0.3 at most; half a cell is the least."""
    coarse = Grid.of(cavity(square("quad", 4, jitter=0.0)))
    fine = coarse.split().split()
    corners, weights, _ = corner_pressures(coarse, fine, viscosity)
    for corner, mean in zip(corners, weights.toarray(), strict=True):
        distance = np.linalg.norm(fine.cells.points - coarse.cells.points[corner], axis=1)
        assert np.array_equal(mean > 0, (distance > 0) & (distance < 0.25 * cells))


def test_corners_in_which_the_velocity_jumps_are_a_clue():
    def found(case: Case) -> float:
        clues = {each.name: each.value for each in FlowScheme(splits=0).clues(case)}
        return clues["pressure in corners where the velocity jumps"]

    mesh = square("quad", 6, jitter=0.0)
    assert found(duct(mesh, profile="uniform")) > -2.0
    assert found(duct(mesh, profile="parabolic")) == -6.0  # the logarithm of nothing


def test_a_calm_flow_takes_longer_steps():
    problem = FlowScheme(splits=0).problem(duct(square("quad", 8), viscosity=0.1))
    with torch.no_grad():
        quick, slow = (
            list(march(problem, begin(problem), [2.0, 4.0], pace=Pace(stretch=stretch, longest=1.0)))
            for stretch in (3.0, 1.0)
        )
    assert quick[-1].step > 2.0 * slow[-1].step
    assert_close(quick[-1].state.velocity, slow[-1].state.velocity, rtol=0, atol=1e-4)


def test_polygons_are_solved_on_triangles():
    honeycomb = Mesh.from_arrays(*_polygons()).with_patches(
        {"left": lambda x: np.isclose(x[:, 0], 0.0), "right": lambda x: np.isclose(x[:, 0], 2.0)}
    )
    rest = np.setdiff1d(honeycomb.boundary_points, honeycomb.patch("left").points)
    wall = np.zeros(honeycomb.number_of_points, bool)
    wall[np.setdiff1d(rest, honeycomb.patch("right").points)] = True
    mesh = honeycomb.with_patches({"wall": wall | (np.isin(honeycomb.points[:, 1].numpy(), (0.0, 1.0)))})
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"left": (1.0, 0.0), "wall": 0.0}, "p": {"right": 0.0}},
        neumann={"u": {"right": 0.0}, "p": {"left": 0.0, "wall": 0.0}},
        parameters={"viscosity": 0.1},
    )
    velocity = FlowScheme(splits=1).solve(case, [1.0]).fields["u"].detach()
    assert bool(torch.isfinite(velocity).all())
    assert float(velocity[:, 0].max()) > 1.0


def _polygons() -> tuple[np.ndarray, dict[str, list[list[int]]]]:
    """A box of two by one with two hexagons: points in three rows, the middle ones of which are corners of both."""
    points = np.array([[x, y] for y in (0.0, 0.5, 1.0) for x in (0.0, 1.0, 2.0)])
    return points, {"polygon": [[0, 1, 4, 7, 6, 3], [1, 2, 5, 8, 7, 4]]}


@pytest.mark.parametrize("way", ["factors", "inverse", "levels"])
def test_a_batch_gives_what_its_flows_give_one_by_one(way):
    cases = [duct(square("quad", 5)), cavity(square("triangle", 6))]
    parts = [Problem.of(Grid.of(case), 0.01, case.number_of_points, way=way) for case in cases]
    both = Problem.side_by_side(parts)
    lengths = torch.tensor([0.1, 0.05], dtype=torch.float64)

    def steps(problem, length):
        state = begin(problem)
        for _ in range(2):
            state = advance(problem, state, length, effort=Effort(1e-12))
        return state

    together = steps(both, lengths)
    alone = [steps(part, lengths[place : place + 1]) for place, part in enumerate(parts)]
    assert_close(together.velocity, torch.cat([each.velocity for each in alone], dim=-1), rtol=1e-8, atol=1e-9)
    assert_close(together.pressure, torch.cat([each.pressure for each in alone]), rtol=1e-8, atol=1e-8)


def test_replayed_steps_are_the_steps_and_take_more_iterations_where_needed(monkeypatch):
    tried = []

    def capture(work, begin):
        tried.append(begin)
        return Replayed(work, begin)

    model = FlowScheme(splits=0)
    case = duct(square(cells_along=8), viscosity=0.1)
    monkeypatch.setattr(scheme, "can_compile", lambda problem: False)
    with torch.no_grad():
        plain = model.solve(case, [0.3, 1.0]).fields
        monkeypatch.setattr(scheme, "can_capture", lambda device: True)
        monkeypatch.setattr(captured, "capture", capture)
        monkeypatch.setattr(captured, "ITERATIONS", (2, 60))
        replayed = FlowScheme(splits=0).solve(case, [0.3, 1.0]).fields
    assert len(tried) == 2  # two iterations did not suffice
    # Meshes that are done stand still, so that iterations beyond change nothing.
    assert_close(replayed, plain, rtol=1e-12, atol=1e-12)


def test_where_a_step_cannot_be_captured_it_is_taken_and_that_is_said_once(monkeypatch, caplog):
    def refuse(work, begin):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    model = FlowScheme(splits=0)
    case = duct(square(cells_along=4))
    monkeypatch.setattr(scheme, "can_compile", lambda problem: False)
    with torch.no_grad():
        plain = model.solve(case, [0.3]).fields
        monkeypatch.setattr(scheme, "can_capture", lambda device: True)
        monkeypatch.setattr(captured, "capture", refuse)
        found = FlowScheme(splits=0).solve(case, [0.3]).fields
    assert_close(found, plain, rtol=0, atol=0)
    assert [record.getMessage() for record in caplog.records] == [
        "steps could not be captured: operation not permitted when stream is capturing"
    ]


def test_with_gradients_nothing_is_replayed(monkeypatch):
    monkeypatch.setattr(scheme, "can_capture", lambda device: True)
    monkeypatch.setattr(captured, "capture", lambda work, begin: pytest.fail("captured"))
    model = FlowScheme(splits=0)
    assert bool(model.solve(duct(square(cells_along=4)), [0.2]).fields["u"].isfinite().all())


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [0, 1])
def test_a_gpu_gives_what_a_cpu_gives(splits):
    model = FlowScheme(splits=splits)
    case = duct(square("triangle", 12), viscosity=0.02)
    with torch.no_grad():
        here = model.solve(case, [0.5, 2.0]).fields
        there = model.to("cuda").solve(case.to(device="cuda"), [0.5, 2.0]).fields
    # Both solve the momentum equation to 3e-5 in each step, from the same start.
    assert_close({name: values.cpu() for name, values in there.items()}, here, rtol=0, atol=2e-4)


@pytest.mark.slow
def test_a_lid_driven_cavity_stays_bounded_for_many_long_steps():
    model = FlowScheme(splits=0)
    problem = model.problem(cavity(square("triangle", 10), viscosity=1 / 3000))
    with torch.no_grad():
        (moment,) = march(problem, begin(problem), [40.0], pace=Pace(courant=5.0))
    assert float(moment.state.velocity.norm(dim=0).max()) <= 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": {"viscosity": 0.0}}, "viscosity"),
        (
            {"dirichlet": {"u": {"left": (1.0, 0.0), "bottom": 0.0, "top": 0.0}}},
            "neither the velocity nor the pressure",
        ),
        ({"neumann": {"u": {"right": (1.0, 0.0)}, "p": 0.0}}, "normal derivative of u other than zero"),
    ],
)
def test_a_case_without_a_solution_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        penn.predict(FlowScheme(), duct(square(), **change), times=[1.0])


def test_nothing_that_drives_a_flow_is_an_error():
    mesh = square()
    case = duct(mesh, dirichlet={"u": {"left": 0.0, "bottom": 0.0, "top": 0.0}, "p": {"right": 0.0}})
    with pytest.raises(ValueError, match="Nothing drives this flow"):
        penn.predict(FlowScheme(), case, times=[1.0])


def evidence_of(model, case):
    with uncalibrated(model):
        return penn.predict(model, case, times=[4.0], resolution="own").evidence[0]


def test_the_second_opinion_is_the_same_network_on_cells_twice_as_large():
    model, case, times = FlowScheme(splits=2), duct(square("quad", 6), viscosity=0.01), (0.3, 1.0)
    coarser = FlowScheme(splits=1)
    coarser.load_state_dict(model.state_dict())
    random = torch.get_rng_state()
    with torch.no_grad():
        second = model.coarser_solution(case, times)
        found = coarser.solve(case, times)
        first = model.solve(case, times).fields
    assert second is not None
    assert_close(second, {**found.fields, **found.balance})
    assert float((second["u"] - first["u"]).abs().max()) > 1e-3
    assert torch.equal(torch.get_rng_state(), random)


def test_cells_that_are_not_split_leave_no_second_opinion():
    case = duct(square("quad", 6))
    assert FlowScheme(splits=0).coarser_solution(case, (1.0,)) is None
    assert not any("second" in name for name in evidence_of(FlowScheme(splits=0), case).numbers)


def test_the_second_opinion_is_nearer_where_the_prediction_is():
    # Poiseuille flow is reproduced on any cells; behind a jump of the inlet's velocity it is not.
    mesh = square("quad", 8)
    apart = []
    for profile in ("parabolic", "uniform"):
        found = evidence_of(FlowScheme(splits=1), duct(mesh, profile=profile))
        apart.append(found.numbers["difference from a second, coarser solution in u"])
    assert apart[0] < apart[1] - 0.5


def test_a_prediction_assembles_its_cells_once(monkeypatch):
    assembled = []
    original = scheme._problem

    def noted(case, splits, *rest):
        assembled.append(splits)
        return original(case, splits, *rest)

    monkeypatch.setattr(scheme, "_problem", noted)
    case = duct(square("quad", 6))
    assert case.initial["u"].dtype == torch.float64
    evidence_of(FlowScheme(splits=1), case)  # in single precision
    assert assembled == [1, 0]


def graded(smallest: float, growth: float, largest: float) -> np.ndarray:
    """Positions from 0 to 1 whose spacing grows from the smallest at both ends by a factor, up to the largest."""
    spacings = smallest * growth ** np.arange(1 + int(math.log(largest / smallest, growth)))
    near = np.concatenate([[0.0], np.cumsum(spacings)])
    between = np.linspace(near[-1], 1.0 - near[-1], 1 + math.ceil((1.0 - 2.0 * near[-1]) / largest))
    return np.concatenate([near, between[1:-1], 1.0 - near[::-1]])


def layered(x: np.ndarray, y: np.ndarray, kind: str) -> Mesh:
    """A rectangle whose cells lie between given positions along x and y."""
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    first = (np.arange(len(x) - 1)[:, None] * len(y) + np.arange(len(y) - 1)).ravel()
    quads = np.stack([first, first + len(y), first + len(y) + 1, first + 1], axis=1)
    cells = (
        {"quad": quads} if kind == "quad" else {"triangle": np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])}
    )
    sides = {"left": (0, x[0]), "right": (0, x[-1]), "bottom": (1, y[0]), "top": (1, y[-1])}
    patches = {name: lambda at, axis=axis, place=place: at[:, axis] == place for name, (axis, place) in sides.items()}
    return Mesh.from_arrays(points, cells, patches=patches)


@pytest.mark.parametrize("kind", ["quad", "triangle"])
@pytest.mark.parametrize("aspect_ratio", [10.0, 100.0, 1000.0])
def test_the_parabola_between_plates_does_not_feel_the_aspect_ratio(kind, aspect_ratio):
    """Layers that grow by half at both walls of a channel, six times as long as wide; beyond 90 it was not finite."""
    y = graded(0.25 / aspect_ratio, 1.5, 1.0 / 12.0)
    case = duct(layered(np.linspace(0.0, 6.0, 25), y, kind), viscosity=0.01)
    with torch.no_grad():
        found = FlowScheme(splits=0).solve(case, [penn.STEADY]).fields
    x, height = case.mesh.points.T
    volumes = case.mesh.point_volumes
    for values, exact in ((found["u"][:, 0], 6 * height * (1 - height)), (found["p"], 0.12 * (6 - x))):
        error = (volumes * (values - exact).square()).sum() / (volumes * exact.square()).sum()
        # On even cells, 12 across, quads have 0.24 and 0.76 %, triangles 0.6 and 1.7 %.
        assert float(error.sqrt()) < (0.011 if kind == "quad" else 0.025)


@pytest.mark.parametrize("aspect_ratio", [1.0, 30.0])
def test_layers_at_the_walls_of_a_cavity_do_no_harm(aspect_ratio):
    """Velocity on the vertical centre line at Re 100, of Ghia, Ghia and Shin 1982, at points of their table."""
    positions = np.linspace(0.0, 1.0, 25) if aspect_ratio == 1.0 else graded(1 / 24 / aspect_ratio, 1.5, 1 / 24)
    case = cavity(layered(positions, positions, "quad"), viscosity=0.01)
    found = FlowScheme(splits=0).solve(case, [penn.STEADY]).fields["u"][:, 0]
    velocity = found.detach().numpy().reshape(len(positions), -1)
    line = [np.interp(0.5, positions, column) for column in velocity.T]
    published = {0.1719: -0.1015, 0.2813: -0.15662, 0.4531: -0.2109, 0.6172: -0.13641, 0.7344: 0.00332}
    for place, value in published.items():
        assert float(np.interp(place, positions, line)) == pytest.approx(value, abs=0.012)


def test_a_flow_that_diverges_is_tried_with_shorter_steps_and_then_named(monkeypatch):
    case = duct(square("quad", 4, jitter=0.0))
    lengths = []

    def exploding(problem, state, step, *_, **__):
        lengths.append(float(step))
        velocity = state.velocity.clone()
        velocity[:, problem.places[12]] = math.nan
        return dataclasses.replace(state, velocity=velocity)

    monkeypatch.setattr(scheme, "Way", lambda: Way(exploding))
    monkeypatch.setattr(scheme, "can_compile", lambda problem: False)
    model = FlowScheme(splits=0)
    with pytest.raises(FlowDivergedError, match=r"point 12 of the mesh, at \(0\.5, 0\.5\).*aspect ratio of 1\."):
        penn.predict(model, case)
    assert max(lengths[len(lengths) // 2 :]) == pytest.approx(0.25 * max(lengths))
    assert model(case)["u"].isnan().all()  # training skips it


def test_layers_along_a_curved_wall_stay_calm():
    """Where long edges bend as the derivatives at their ends say, this diverges within the first steps."""
    y = graded(0.25 / 1000.0, 1.5, 1.0 / 12.0)
    straight = layered(np.linspace(0.0, 6.0, 25), y, "quad")
    x = straight.points[:, :1]
    case = duct(straight, viscosity=0.001)
    curved = straight.with_points(straight.points + torch.cat([0 * x, 0.3 * torch.sin(2.0 * x)], dim=1))
    with torch.no_grad():
        found = FlowScheme(splits=0).solve(dataclasses.replace(case, mesh=curved), [4.0]).fields
    assert float(found["u"].abs().max()) < 2.5


def test_tiny_cells_in_corners_do_not_shorten_the_steps():
    """Layers on all sides of a cavity make a fourth of the cells tiny; they fill less than a hundredth of it."""
    limits = []
    for aspect_ratio in (30.0, 300.0):
        positions = graded(1 / 24 / aspect_ratio, 1.5, 1 / 24)
        problem = FlowScheme(splits=0).problem(cavity(layered(positions, positions, "quad")))
        with torch.no_grad():
            (moment,) = march(problem, begin(problem), [0.02])
        limits.append(step_limit(problem, moment.state.fluxes, 1.4))
    assert limits[1] > 0.7 * limits[0]


@pytest.mark.parametrize("courant", [1e-9, 0.0, -1.0, 21.0, float("nan")])
def test_a_courant_number_with_which_steps_never_end_is_refused(courant):
    with pytest.raises(ValueError, match="courant is"):
        FlowScheme(courant=courant)


def test_a_solution_on_flipped_triangles_is_none_on_split_cells_of_the_mesh():
    mesh = square("triangle", 4, jitter=0.25)
    assert flips(mesh.points.numpy(), mesh.connectivity.reshape(-1, 3))
    with torch.no_grad():
        assert FlowScheme(splits=1).solve(duct(mesh), [0.1]).finer is None


@pytest.mark.parametrize("kind", ["triangle", "quad", "mixed_plane"])
def test_a_solution_on_split_cells_has_its_values_at_the_points_of_the_mesh_first(kind):
    case = duct(square(kind, 4, jitter=0.0))
    with torch.no_grad():
        found = FlowScheme(splits=1).solve(case, [0.5])
    assert found.finer is not None
    split = PlaneCells.of(case.mesh).split()
    number = case.number_of_points
    assert len(found.finer.split["u"]) == len(split.points)
    for name in ("u", "p"):
        apart = (found.finer.split[name][:number] - found.fields[name]).abs().reshape(number, -1).amax(dim=1)
        assert (apart > 1e-9).sum() <= 4  # but for pressures in corners
    middle = torch.from_numpy(split.points[number:, 1]).double()
    near = 6 * middle * (1 - middle)  # the profile of the duct, which develops little
    assert (found.finer.split["u"][number:, 0] - near).abs().max() < 0.2
