"""Flows in space: the same laws as in the plane, on every kind of cell."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from meshes import arrays
from pennpde.flow.compiled import CompiledSteps, can_compile
from pennpde.flow.dual_cells import DualCells
from pennpde.flow.grid import Grid
from pennpde.flow.krylov import Effort
from pennpde.flow.march import Pace, march
from pennpde.flow.problem import Problem
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.steady import SteadyEquations, steady_state
from pennpde.flow.step import advance, begin
from pennpde.mesh.space_cells import SpaceCells
from pennpde.models.flow_physics import PlaneFlowPhysics
from pennpde.penn import PENN
from steady_flows import square

SOLIDS = ("tetrahedron", "pyramid", "wedge", "hexahedron", "mixed_solid")
TURN = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64))[0]


def cube(kind: str, along: int = 4, jitter: float = 0.1) -> penn.Mesh:
    return penn.Mesh.from_arrays(*arrays(kind, along, jitter=jitter))


def sides(axis: int) -> dict:
    return {f"{'xyz'[axis]}{end}": lambda x, end=end: np.isclose(x[:, axis], end) for end in (0, 1)}


def channel(mesh: penn.Mesh, viscosity: float = 0.1) -> penn.Case:
    """Between y = 0 and y = 1, developed where it enters; the other sides slip."""
    mesh = mesh.with_patches(sides(0) | sides(1) | sides(2))
    y = mesh.points[:, 1]
    inflow = torch.stack([6 * y * (1 - y), 0 * y, 0 * y], dim=1)
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"x0": inflow, "y0": 0.0, "y1": 0.0}, "p": {"x1": 0.0}},
        neumann={"u": {"x1": 0.0}, "p": {"x0": 0.0, "y0": 0.0, "y1": 0.0, "z0": 0.0, "z1": 0.0}},
        slip={"u": ["z0", "z1"]},
        parameters={"viscosity": viscosity},
    )


def quarter(mesh: penn.Mesh) -> penn.Case:
    """A quarter of a duct: two slip walls meet at an edge."""
    mesh = mesh.with_patches(sides(0) | sides(1) | sides(2))
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"x0": (1.0, 0.0, 0.0), "y1": 0.0, "z1": 0.0}, "p": {"x1": 0.0}},
        neumann={"u": {"x1": 0.0}, "p": {"x0": 0.0, "y0": 0.0, "y1": 0.0, "z0": 0.0, "z1": 0.0}},
        slip={"u": ["y0", "z0"]},
        parameters={"viscosity": 0.05},
    )


def cavity(mesh: penn.Mesh) -> penn.Case:
    mesh = mesh.with_patches(
        {
            "lid": sides(2)["z1"],
            **{name: each for axis in (0, 1) for name, each in sides(axis).items()},
            "z0": sides(2)["z0"],
        }
    )
    walls = dict.fromkeys(("x0", "x1", "y0", "y1", "z0"), 0.0)
    return penn.Case(
        mesh,
        initial={"u": (0.0, 0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"lid": (1.0, 0.0, 0.0), **walls}},
        neumann={"p": {"lid": 0.0, **walls}},
        parameters={"viscosity": 0.02},
    )


def own_units(case: penn.Case) -> penn.Case:
    return PlaneFlowPhysics().units(case).dimensionless(PlaneFlowPhysics().complete(case))


def problem_of(case: penn.Case, splits: int = 0) -> Problem:
    return FlowScheme(splits=splits).problem(own_units(case))


# Cells


@pytest.mark.parametrize("kind", SOLIDS)
def test_dual_cells_fill_the_space_close_and_know_linear_fields(kind):
    solid = SpaceCells.of(cube(kind))
    for cells in (solid, solid.split()):
        dual = DualCells.of(cells.points, cells.groups)
        assert_close(float(dual.areas.sum()), 1.0)
        assert float(dual.areas.min()) > 0
        slope = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        field = slope.T @ torch.from_numpy(cells.points.T)
        assert_close(dual.slope(field), slope.T[:, :, None].expand(3, 3, len(cells.points)), rtol=0, atol=1e-9)
        inside = np.setdiff1d(np.arange(len(cells.points)), cells.facets)
        assert float(dual.collected(dual.faces)[:, inside].abs().max()) < 1e-13
        # A linear field conducts nothing into a cell inside: diffusion is exact for it.
        conducted = dual.collected(dual.conductances * dual.difference(field))
        assert float(conducted[:, inside].abs().max()) < 1e-12


@pytest.mark.parametrize("kind", SOLIDS)
def test_splitting_keeps_points_and_boundary(kind):
    mesh = cube(kind)
    cells = SpaceCells.of(mesh)
    split = cells.split()
    assert (split.points[: len(cells.points)] == cells.points).all()
    number = [len(group) for group in cells.groups]
    ten = np.array([8 * number[0] + 4 * number[1], 6 * number[1], 8 * number[2], 8 * number[3]])
    assert [len(group) for group in split.groups] == ten.tolist()
    assert (split.owner == np.repeat(cells.owner, 4)).all()
    # What is linear stays so.
    assert np.allclose(split.parents @ cells.points, split.points)
    corners = split.points[split.facets]
    areas = 0.5 * np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    for axis in range(3):
        found = np.bincount(split.owner, areas[:, axis], len(mesh.facets))
        assert np.allclose(found, mesh.facet_areas.numpy()[:, axis])


def test_boxes_exchange_through_their_sides_only():
    solid = SpaceCells.of(cube("hexahedron", 3, 0.0))
    dual = DualCells.of(solid.points, solid.groups)
    assert len(dual.first) == 3 * 3 * 16
    assert float(dual.conductances.min()) > 0


def test_a_polyhedron_that_is_too_hollow_is_refused_by_name():
    points, cells = arrays("polyhedron", 2)
    points = points.copy()
    middle = np.flatnonzero((np.abs(points - 0.5) < 1e-9).all(axis=1))
    points[middle] = 0.06
    with pytest.raises(ValueError, match=r"polyhedron at .* is not convex enough"):
        SpaceCells.of(penn.Mesh.from_arrays(points, cells))


# Steps


@pytest.mark.parametrize("make", [channel, quarter, cavity])
@pytest.mark.parametrize("kind", ["tetrahedron", "mixed_solid"])
def test_a_compiled_step_is_that_of_pytorch(make, kind):
    problem = problem_of(make(cube(kind)))
    assert can_compile(problem)
    take, effort = CompiledSteps(), Effort(1e-11)
    ours = theirs = begin(problem)
    for number, length in enumerate((0.01, 0.02, 0.05)):
        step, passes = torch.full_like(problem.viscosity, length), 2 if number == 0 else 1
        ours = take(problem, ours, step, passes=passes, effort=effort)
        theirs = advance(problem, theirs, step, passes=passes, effort=effort)
        assert_close(ours.velocity, theirs.velocity, rtol=0, atol=1e-8)
        assert_close(ours.fluxes, theirs.fluxes, rtol=0, atol=1e-8)
        assert_close(ours.pressure, theirs.pressure, rtol=0, atol=1e-6)
        # Mass is conserved in every cell, to round-off; what is not let through leaves by the outlet.
        closed = problem.pressure_free > 0 if not bool(problem.closed) else torch.ones_like(problem.free) > 0
        left = theirs.fluxes.new_tensor(0.0) + problem.cells.collected(ours.fluxes) + problem.inflow
        assert float(left[closed].abs().max()) < 1e-12


@pytest.mark.parametrize("make", [channel, quarter])
def test_the_jacobian_is_the_derivative_of_the_residual(make):
    problem = problem_of(make(cube("mixed_solid", 3)))
    equations, start = SteadyEquations(problem), begin(problem)
    random = np.random.default_rng(0)
    unknowns = equations.packed(start.velocity, start.pressure)
    unknowns = unknowns + 0.1 * random.standard_normal(len(unknowns))
    direction, length = random.standard_normal(len(unknowns)), 1e-6
    ahead, behind = (equations.residual(unknowns + sign * length * direction).values.numpy() for sign in (1, -1))
    found = equations.jacobian(equations.residual(unknowns)) @ direction
    np.testing.assert_allclose(found, (ahead - behind) / (2 * length), rtol=0, atol=1e-7)


def test_where_slip_walls_meet_the_fluid_goes_along_the_edge():
    problem = problem_of(quarter(cube("hexahedron")))
    state = steady_state(problem).state
    assert problem.slip_too is not None
    at_edge = (problem.slip_too.abs().sum(dim=0) > 0).nonzero()[:, 0]
    assert len(at_edge) == 4  # the edge without its point at the inlet, which is prescribed
    assert float(state.velocity[1:, at_edge].abs().max()) < 1e-12
    assert float(state.velocity[0, at_edge].min()) > 1.0


# Flows


@pytest.mark.parametrize("motion", ["turned", "mirrored"])
def test_a_flow_turns_and_mirrors_with_its_mesh(motion):
    case = quarter(cube("mixed_solid"))
    turn = TURN * torch.linalg.det(TURN) * (1 if motion == "turned" else -1)
    moved = case.moved(turn, torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    one, other = (penn.predict(FlowScheme(splits=0), each, times=[0.3, 1.0]).fields for each in (case, moved))
    # The momentum's equations are solved to 3e-5.
    assert_close(torch.einsum("ab,pbt->pat", turn, one["u"]), other["u"], rtol=0, atol=2e-4)
    assert_close(one["p"], other["p"], rtol=0, atol=2e-3)


def test_a_plane_flow_extruded_by_a_cell_stays_what_it_is():
    """Of triangles: those of prisms conduct the same. Only the damping of pressures knows how thick they are."""

    def flow(mesh: penn.Mesh, slip: dict) -> penn.Outcome:
        velocity = np.pad(kovasznay(mesh.points.numpy()[:, :2]), ((0, 0), (0, mesh.space - 2)))
        names = [name for name in mesh.patches if name != "sides"]
        case = penn.Case(
            mesh,
            initial={"u": (0.0,) * mesh.space, "p": 0.0},
            dirichlet={"u": dict.fromkeys(names, torch.from_numpy(velocity))},
            neumann={"p": dict.fromkeys(mesh.patches, 0.0)},
            parameters={"viscosity": 0.1},
            slip=slip,
        )
        return penn.predict(FlowScheme(splits=0), case, steady=True, length=1.0, speed=1.0)

    flat = square("triangle", 8).with_patches({"all": lambda x: np.ones(len(x), bool)})
    number, triangles = flat.number_of_points, flat.connectivity.reshape(-1, 3)
    layers = np.concatenate([np.insert(flat.points.numpy(), 2, height, axis=1) for height in (0.0, 0.25)])
    mesh = penn.Mesh.from_arrays(layers, np.concatenate([triangles, triangles + number], axis=1), "wedge").with_patches(
        {
            "sides": lambda x: np.isclose(x[:, 2], 0) | np.isclose(x[:, 2], 0.25),
            "all": lambda x: np.isclose(np.abs(x[:, :2] - 0.5).max(axis=1), 0.5),
        }
    )
    solid, plane = flow(mesh, {"u": ["sides"]}), flow(flat, {})
    found, twin = solid.fields["u"], torch.cdist(mesh.points[:, :2], flat.points).argmin(dim=1)
    assert float(found[:, 2].abs().max()) < 1e-9
    # The facets of both know the profile in other ways: the difference is the plane's error at its corners.
    exact = torch.from_numpy(kovasznay(flat.points.numpy()))
    wrong = (plane.fields["u"] - exact).abs().max()
    assert float((found[:, :2] - exact[twin]).abs().max()) < float(wrong)
    assert float((found[:, :2] - plane.fields["u"][twin]).square().mean().sqrt()) < 0.5 * float(wrong)


@pytest.mark.parametrize("kind", SOLIDS)
def test_flow_between_plates_is_a_parabola(kind):
    case = channel(cube(kind, 6, 0.1))
    outcome = penn.predict(FlowScheme(splits=0), case, steady=True)
    assert outcome.certificate.converged
    y = case.mesh.points[:, 1]
    exact = torch.stack([6 * y * (1 - y), 0 * y, 0 * y], dim=1)
    volumes = case.mesh.point_volumes
    wrong = (
        (volumes * (outcome.fields["u"] - exact).square().sum(dim=1)).sum()
        / (volumes * exact.square().sum(dim=1)).sum()
    ).sqrt()
    assert float(wrong) < 0.03
    assert abs(float(outcome.certificate.check("flux imbalance").value)) < 1e-9


def kovasznay(points: np.ndarray) -> np.ndarray:
    """Half a wave of Kovasznay's flow at Reynolds number 20, an exact solution, turned out of all axes."""
    turn = TURN.numpy() if points.shape[1] == 3 else np.array([[0.8, -0.6], [0.6, 0.8]])
    x, y, *_ = (0.5 * (points - 0.5) @ turn).T
    rate = 10.0 - np.sqrt(100.0 + 4 * np.pi**2)
    u = 1 - np.exp(rate * x) * np.cos(2 * np.pi * y)
    v = rate / (2 * np.pi) * np.exp(rate * x) * np.sin(2 * np.pi * y)
    return np.stack([u, v, np.zeros_like(u)], axis=1)[:, : points.shape[1]] @ turn.T


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tetrahedron", "wedge", "hexahedron"])
def test_the_error_falls_with_the_square_of_the_cells(kind):
    errors = []
    for along in (4, 8):
        mesh = cube(kind, along, 0.0).with_patches({"all": lambda x: np.ones(len(x), bool)})
        velocity = torch.from_numpy(kovasznay(mesh.points.numpy()))
        case = penn.Case(
            mesh,
            initial={"u": (0.0, 0.0, 0.0), "p": 0.0},
            dirichlet={"u": {"all": velocity}},
            neumann={"p": {"all": 0.0}},
            parameters={"viscosity": 0.1},
        )
        found = penn.predict(FlowScheme(splits=0), case, steady=True, length=1.0, speed=1.0)
        volumes = mesh.point_volumes
        errors.append(float((volumes * (found.fields["u"] - velocity).square().sum(dim=1)).sum().sqrt()))
    assert np.log2(errors[0] / errors[1]) > 1.7


# Predictions


def test_the_network_says_that_in_space_it_is_the_plain_scheme():
    case = channel(cube("hexahedron"))
    network = penn.load_pretrained("flow")
    assert isinstance(network, PENN)
    network.set_level("fast")
    outcome = penn.predict(network, case, times=[0.2])
    assert outcome.expected.unknown_because
    assert any("plain scheme" in each for each in outcome.certificate.warnings)
    plain = penn.predict(FlowScheme(splits=0, courant=4.0), case, times=[0.2])
    assert_close(plain.fields["u"].to(outcome.fields["u"]), outcome.fields["u"])


def test_profiles_at_inlets_keep_their_flux_when_cells_are_split():
    grid = Grid.of(own_units(channel(cube("hexahedron", 4, 0.0))))
    # Of a parabola, although four straight pieces have a sixteenth less.
    assert grid.corner_fluxes().sum() == pytest.approx(-1.0)
    finer = grid.split().split()
    assert finer.corner_fluxes().sum() == pytest.approx(-1.0)
    inlet = finer.held & np.isclose(finer.cells.points[:, 0], 0)
    y = finer.cells.points[inlet, 1]
    assert np.allclose(finer.velocity[inlet, 0], 6 * y * (1 - y))


def test_meshes_of_other_kinds_of_cells_are_marched_alike():
    found = []
    for kind in ("tetrahedron", "hexahedron", "polyhedron"):
        case = cavity(cube(kind, 6, 0.0))
        outcome = penn.predict(FlowScheme(splits=0), case, times=[1.0])
        weights = case.mesh.point_volumes[:, None]
        found.append((weights * outcome.fields["u"]).sum(dim=0))
        assert torch.isfinite(outcome.fields["u"]).all()
    assert_close(found[0], found[1], rtol=0, atol=0.01)
    assert_close(found[2], found[1], rtol=0, atol=0.01)


def test_pictures_of_flows_in_space_are_slices(tmp_path):
    outcome = penn.predict(FlowScheme(splits=0), channel(cube("hexahedron", 4, 0.0)), times=[0.2])
    outcome.plot(path=tmp_path / "slice.png")
    assert (tmp_path / "slice.png").stat().st_size > 10_000


def test_periodic_sides_are_as_good_as_slip_walls_and_refused_on_split_cells():
    slips = channel(cube("hexahedron", 4, 0.0))
    y = slips.mesh.points[:, 1]
    periodic = penn.Case(
        slips.mesh,
        initial={"u": (0.0, 0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {"x0": torch.stack([6 * y * (1 - y), 0 * y, 0 * y], dim=1), "y0": 0.0, "y1": 0.0},
            "p": {"x1": 0.0},
        },
        neumann={"u": {"x1": 0.0}, "p": {"x0": 0.0, "y0": 0.0, "y1": 0.0}},
        periodic={"u": {"z0": "z1"}, "p": {"z0": "z1"}},
        parameters={"viscosity": 0.1},
    )
    one, other = (penn.predict(FlowScheme(splits=0), each, times=[0.5]).fields["u"] for each in (slips, periodic))
    assert_close(one, other, rtol=0, atol=2e-3)
    with pytest.raises(ValueError, match="Periodic patches in space are solved on the cells as they are"):
        penn.predict(FlowScheme(splits=1), periodic, times=[0.1])


def test_multigrid_marches_as_factors_do():
    case = own_units(channel(cube("mixed_solid", 6)))
    grid, found = Grid.of(case), []
    for way in ("factors", "levels"):
        problem = Problem.of(grid, float(case.parameters["viscosity"]), case.number_of_points, way=way)
        (last,) = march(problem, begin(problem), [0.5], pace=Pace(), way=CompiledSteps().way())
        found.append(last.state)
        left = problem.cells.collected(last.state.fluxes) + problem.inflow
        assert float(left[problem.pressure_free > 0].abs().max()) < 1e-8
    assert_close(found[0].velocity, found[1].velocity, rtol=0, atol=1e-6)
