"""Pairs of periodic patches: copies are one point, for operators, solver, batches and units; a jump is kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from pennlab.datasets.split_quads import triangulated
from pennpde.case import Across, Case, Dirichlet, batch
from pennpde.case.companion import CompanionError, ends_of_conditions, on_companion
from pennpde.case.units import Scale, Units
from pennpde.mesh import Mesh
from pennpde.models.ducts import flow_network
from pennpde.models.potential_flow import potential_flow
from pennpde.penn.encoder import Encoder
from pennpde.testing import assert_dirichlet, assert_equivariant
from poisson import solve_poisson
from problems import brick, rectangle


def wavy(cells=(6, 5), split: float = 0.0, jitter: float = 0.0, start: float = 0.0) -> Mesh:
    """[start, start + 2] x [0, 1] with inner points moved along a field that repeats itself after 2."""
    mesh = rectangle(cells, (2.0, 1.0))
    x, y = mesh.points.T
    x = x + start
    away = jitter * torch.stack([torch.sin(np.pi * x), torch.cos(np.pi * x)], dim=1)
    points = torch.stack([x, y], dim=1) + (y * (1 - y))[:, None] * away
    mesh = replace(mesh, points=points).with_patches(
        {"low": np.flatnonzero(np.isclose(y, 0)), "high": np.flatnonzero(np.isclose(y, 1))}
    )
    return triangulated(mesh, split) if split else mesh


def channel(cells=(6, 5), jump=0.0, **options) -> Case:
    """Everything that a flow needs, periodic from left to right."""
    mesh = wavy(cells, **options)
    period = np.array([[2.0, 0.0], [-2.0, 0.0]])
    return Case(
        mesh,
        initial={"u": (0.3, 0.0), "p": 0.0},
        dirichlet={"u": {"side": 0.0}},
        neumann={"p": 0.0},
        periodic={"u": {"inlet": "outlet"}, "p": {"inlet": Across("outlet", jump=jump)}},
        parameters={"viscosity": 0.05},
        features={"wall_distance": mesh.distance_to("side", images=period)},
        name=str(cells),
    )


@pytest.mark.parametrize("cells", [(1, 4), (2, 4), (3, 4), (7, 5)])
@pytest.mark.parametrize("split", [0.0, 1.0])
@pytest.mark.parametrize("damping", [None, 0.25])
def test_a_linear_field_with_its_jump_has_exact_derivatives_everywhere(cells, split, damping):
    mesh = wavy(cells, split)
    slope = torch.tensor([2.0, -3.0], dtype=torch.float64)
    case = Case(
        mesh,
        initial={"f": 0.0},
        periodic={"f": {"inlet": Across("outlet", jump=4.0)}},
        neumann={"f": {"low": 3.0, "high": -3.0}},
    )
    field = mesh.points @ slope
    assert_close(case.periodic["f"].apply(field), field, rtol=0, atol=1e-14)
    operators, derivative = case.operators["f"], case.slope("f").normal_derivative
    if damping is not None:
        operators = operators.composed(damping)
    assert_close(operators.grad(field, derivative), slope.expand(len(field), 2), rtol=0, atol=1e-12)
    assert operators.laplacian(field, derivative).abs().max() < 1e-10


def test_in_space_with_two_pairs_four_copies_of_an_edge_are_one():
    mesh = brick((3, 4, 5), 1.0)
    sides = {
        name: np.flatnonzero(np.isclose(mesh.points[:, axis], value))
        for name, axis, value in (("left", 0, 0.0), ("right", 0, 3.0), ("front", 1, 0.0), ("back", 1, 4.0))
    }
    mesh = mesh.with_patches(sides)
    slope = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    case = Case(
        mesh,
        initial={"f": 0.0},
        periodic={"f": {"left": Across("right", jump=3.0), "front": Across("back", jump=8.0)}},
    )
    field = mesh.points @ slope
    copies = torch.bincount(case.periodic["f"].points)
    assert sorted(copies.unique().tolist()) == [0, 1, 2, 4]
    assert_close(case.periodic["f"].apply(field), field, rtol=0, atol=1e-12)
    gradient = case.operators["f"].grad(field)
    assert_close(gradient, slope.expand_as(gradient), rtol=0, atol=1e-12)
    assert len(case.periods("f")) == 6  # along x, along y, both; each forth and back


def test_copies_have_the_same_derivatives_and_those_of_the_inside_of_a_longer_mesh():
    case = Case(wavy((6, 5), jitter=0.3), initial={"f": 0.0}, periodic={"f": {"inlet": "outlet"}})
    # Columns of six points, a period of six columns; the same mesh three times in a row has no seam in the middle.
    once, step = case.mesh.points, torch.tensor([2.0, 0.0])
    long = replace(wavy((18, 5)), points=torch.cat([once[:36], once[:36] + step, once + 2 * step]))

    def wave(points):
        return torch.sin(np.pi * points[:, 0]) * torch.exp(points[:, 1])

    operators, plain = case.operators["f"], penn.Operators.on(long)
    found, expected = operators.grad(wave(case.mesh.points)), plain.grad(wave(long.points))
    assert_close(found[:36], expected[36:72], rtol=0, atol=1e-12)
    assert_close(found[:6], found[36:], rtol=0, atol=1e-12)
    found, expected = operators.laplacian(wave(case.mesh.points)), plain.laplacian(wave(long.points))
    assert_close(found[:36], expected[36:72], rtol=0, atol=1e-10)
    damped, long_damped = operators.composed(0.25), plain.composed(0.25)
    found, expected = damped.laplacian(wave(case.mesh.points)), long_damped.laplacian(wave(long.points))
    assert_close(found[:36], expected[36:72], rtol=0, atol=1e-10)


def test_the_error_of_a_periodic_solution_with_a_mean_gradient_falls_with_the_square_of_the_spacing():
    errors = []
    for cells in (8, 16, 32):
        mesh = wavy((2 * cells, cells))
        x, y = mesh.points.T
        exact = torch.sin(np.pi * x) * torch.cos(np.pi * y) + 2.0 * x
        case = Case(
            mesh,
            initial={"T": 0.0},
            dirichlet={"T": {"side": exact}},
            periodic={"T": {"inlet": Across("outlet", jump=4.0)}},
        )
        found = solve_poisson(case, 2 * np.pi**2 * torch.sin(np.pi * x) * torch.cos(np.pi * y))
        errors.append(float((found - exact).abs().max()))
    assert errors[0] < 0.2
    assert errors[0] > 3.0 * errors[1] > 3.0**2 * errors[2]


@pytest.mark.slow
def test_a_pressure_drop_drives_the_parabola_of_a_channel():
    # nu u'' = dp/dx = -1/2: u = y (1 - y) / (4 nu).
    case = channel((4, 16), jump=-1.0)
    operators, viscosity = case.operators["u"].composed(0.25), 0.05
    pressure = case.periodic["p"].apply(-0.5 * case.mesh.points[:, 0])
    slope = case.operators["p"].grad(pressure, case.slope("p").normal_derivative)
    assert_close(slope, torch.tensor([-0.5, 0.0]).double().expand_as(slope), rtol=0, atol=1e-12)
    velocity = torch.zeros_like(case.initial["u"])
    for _ in range(4000):
        rate = viscosity * operators.laplacian(velocity) - slope
        velocity = velocity + 5e-3 * rate
        for condition in case.conditions_of("u"):
            velocity = condition.apply(velocity)
    y = case.mesh.points[:, 1]
    exact = y * (1 - y) / (4 * viscosity)
    assert (velocity[:, 0] - exact).abs().max() < 0.02 * exact.max()
    assert velocity[:, 1].abs().max() < 1e-12


def flow() -> penn.PENN:
    torch.manual_seed(0)
    network = flow_network(width=4, iterations=2, pressure_iterations=2).double()
    for parameter in network.parameters():  # away from the start, where some layers are zero
        parameter.data += 0.05 * torch.randn_like(parameter)
    return network


def pinned(case: Case) -> Case:
    mask = torch.zeros(case.number_of_points, dtype=torch.bool)
    mask[0] = True
    pin = case.periodic["p"].closing(Dirichlet(mask, torch.zeros_like(case.initial["p"])), "p")
    return replace(case, dirichlet={**case.dirichlet, "p": pin})


def test_a_network_gives_copies_the_same_value_but_for_the_jump_bit_for_bit():
    case = pinned(channel(jump=-0.5, jitter=0.2))
    fields = flow()(case)
    first, second = (torch.from_numpy(np.sort(case.mesh.patch(name).points)) for name in ("inlet", "outlet"))
    assert torch.equal(fields["u"][first], fields["u"][second])
    assert torch.equal(fields["p"][second], fields["p"][first] - 0.5)
    assert fields["p"].std() > 0.01
    assert_dirichlet(flow(), case)


def test_a_network_keeps_symmetry():
    assert_equivariant(flow(), channel(jump=-0.5, jitter=0.2), motions=1)


def test_where_a_channel_is_cut_open_makes_no_difference():
    def predicted(start: float):
        case = channel((6, 5), jitter=0.25, start=start)
        case = replace(case, initial={**case.initial, "u": waves(case.mesh.points)})
        return case.mesh.points, flow()(case)

    def waves(points):
        return torch.stack([torch.sin(np.pi * points[:, 0]) * points[:, 1], torch.cos(np.pi * points[:, 0])], dim=1)

    (here, fields), (there, others) = predicted(0.0), predicted(2.0 / 3.0)  # two columns of points further
    assert_close(here[12:], there[:30], rtol=0, atol=1e-12)
    for name in fields:
        assert_close(fields[name][12:], others[name][:30], rtol=0, atol=1e-10)
        assert_close(fields[name][:12], others[name][24:36], rtol=0, atol=1e-10)


def test_a_batch_gives_what_its_cases_give_one_by_one():
    cases = [channel(jump=-0.5), channel((4, 4), jitter=0.2), channel((1, 5), jump=1.0)]
    alone = [flow()(case) for case in cases]
    together = flow()(batch(cases))
    for name in ("u", "p"):
        assert_close(together[name], torch.cat([fields[name] for fields in alone]), rtol=0, atol=1e-12)


def test_units_scale_the_jump_and_the_periods():
    case = channel(jump=-0.5)
    scaled = Units(4.0, 2.0, {"p": Scale(0.25, 1.0)}).dimensionless(case)
    assert scaled.periodic["p"].shift.amin() == -2.0
    assert_close(scaled.periods("u")[0], case.periods("u")[0] / 4.0)


def test_distances_and_potential_flow_see_over_the_seam():
    mesh = wavy((8, 4)).with_patches({"inner": lambda x: np.isclose(x[:, 0], 0.0)})
    case = Case(
        mesh,
        initial={"u": (0.7, 0.0), "p": 0.0},
        dirichlet={"u": {"side": 0.0}},
        periodic={"u": {"inlet": "outlet"}, "p": {"inlet": "outlet"}},
        neumann={"p": 0.0},
    )
    distance = mesh.distance_to("inner", images=case.periods("u"))
    x = mesh.points[:, 0]
    assert_close(distance, torch.minimum(x, 2.0 - x), rtol=0, atol=1e-12)
    flowing = potential_flow(case)
    free = ~case.dirichlet["u"].mask
    assert_close(flowing[free], torch.tensor([0.7, 0.0]).double().expand(int(free.sum()), 2), rtol=0, atol=1e-7)
    assert flowing[~free].abs().max() == 0


def test_values_prescribed_at_one_copy_hold_at_the_other():
    mesh = wavy((4, 4)).with_patches({"corner": np.array([0])})
    case = Case(
        mesh,
        initial={"p": 0.0},
        dirichlet={"p": {"corner": 2.0}},
        periodic={"p": {"inlet": Across("outlet", jump=-1.0)}},
    )
    assert case.dirichlet["p"].mask.sum() == 2
    assert case.dirichlet["p"].values[mesh.patch("outlet").points[0]] == 1.0


def test_a_case_with_such_a_pair_has_no_companion():
    case = channel()
    for act in (lambda: ends_of_conditions(case), lambda: on_companion(case, case.mesh)):
        with pytest.raises(CompanionError, match="cyclic in OpenFOAM"):
            act()


def test_a_jump_does_not_pass_through_an_encoder_that_is_not_linear():
    model = flow()
    model.encoders["p"] = Encoder((1, 4, 4)).double()
    model(channel())
    with pytest.raises(ValueError, match=r"'periodic' of 'p' .*not linear"):
        model(channel(jump=1.0))


def uneven() -> Mesh:
    return wavy((4, 4)).with_patches({"part": lambda x: np.isclose(x[:, 0], 2.0) & (x[:, 1] < 0.9)})


def turned() -> Mesh:
    return rectangle((4, 4)).with_patches(
        {
            "left": lambda x: np.isclose(x[:, 0], 0) & (x[:, 1] > 0.1),
            "low": lambda x: np.isclose(x[:, 1], 0) & (x[:, 0] > 0.1),
        }
    )


@pytest.mark.parametrize(
    ("mesh", "conditions", "message"),
    [
        (uneven, {"periodic": {"p": {"inlet": "part"}}}, r"'inlet' and 'part' have 5 and 4 points"),
        (turned, {"periodic": {"p": {"left": "low"}}}, r"do not match: shifted by .* \(rotational\)"),
        (turned, {"periodic": {"p": {"inlet": "side"}}}, "points"),
        (turned, {"periodic": {"p": {"inlet": "inlet"}}}, "share points"),
        (turned, {"periodic": {"p": {"inlet": "nowhere"}}}, "no patch 'nowhere'"),
        (turned, {"periodic": {"p": {"inlet": 3.0}}}, r"give the opposite patch, as 'outlet' or Across"),
        (turned, {"periodic": {"p": "inlet"}}, "give the values by patch"),
        (turned, {"periodic": {"p": {"inlet": Across("outlet", np.arange(25.0))}}}, "a jump is one number"),
        (
            turned,
            {"periodic": {"p": {"inlet": "outlet"}}, "dirichlet": {"p": {"inlet": 0.0, "outlet": 1.0}}},
            r"dirichlet\['p'\] prescribes values on both sides .* differ by 1",
        ),
    ],
)
def test_mistakes_are_named(mesh, conditions, message):
    with pytest.raises((ValueError, KeyError), match=message):
        Case(mesh(), initial={"p": 0.0}, **conditions)
