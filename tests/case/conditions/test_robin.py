"""Robin conditions, a f + b df/dn = c: exact on linear fields, convergent, equivariant, the same in batches."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from meshes import box
from pennpde.case import Case, Robin, Table, batch
from pennpde.case.companion import companion_mesh, on_companion
from pennpde.case.units import Scale, Units
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.penn.encoder import Encoder
from pennpde.testing import assert_dirichlet, assert_equivariant
from poisson import solve_poisson
from problems import heated_plate, rectangle


def cooled_plate(cells=(6, 5), numbers=(2.0, 0.5, 3.0), **more) -> Case:
    plate = heated_plate(cells=cells)
    return Case(
        plate.mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": 0.7}},
        robin={"T": {"outlet": numbers}},
        neumann={"T": 0.0},
        parameters=plate.parameters,
        features=plate.features,
        name=f"{cells}",
        **more,
    )


@pytest.mark.parametrize("kind", ["quad", "triangle", "mixed_plane", "tetrahedron", "mixed_solid"])
@pytest.mark.parametrize("damping", [None, 0.25])
def test_derivatives_of_a_linear_field_are_exact_up_to_the_robin_boundary(kind, damping):
    mesh = box(kind, jitter=0.2)
    mesh = mesh.with_patches({"all": mesh.boundary_points})
    slope = torch.arange(1.0, mesh.space + 1, dtype=torch.float64)
    field = mesh.points @ slope + 1.0
    a, b = 1.5 + mesh.points[:, 0], 0.5 + mesh.points[:, 1]
    c = a * field + b * (mesh.normals @ slope)
    case = Case(mesh, initial={"f": 0.0}, robin={"f": {"all": (a, b, c)}})
    operators, derivative = case.operators["f"], case.slope("f").normal_derivative
    if damping is not None:
        operators = operators.composed(damping)
    # Rounding of sums over some thirty neighbours at distances of 0.3; second derivatives divide once more.
    assert_close(operators.grad(field, derivative), slope.expand(len(field), -1), rtol=0, atol=1e-12)
    assert operators.laplacian(field, derivative).abs().max() < 1e-10
    assert operators.hessian(field, derivative).abs().max() < 1e-10


def test_a_vector_with_its_own_right_side_is_exact_component_by_component():
    mesh = rectangle((5, 4))
    jacobian = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    field = mesh.points @ jacobian
    c = 2.0 * field + 0.5 * mesh.point_normals(["outlet"]) @ jacobian
    case = Case(mesh, initial={"u": (0.0, 0.0)}, robin={"u": {"outlet": {"a": 2.0, "b": 0.5, "c": c}}})
    found = case.operators["u"].grad(field, case.slope("u").normal_derivative)
    assert_close(found, jacobian.expand_as(found), rtol=0, atol=1e-12)


def test_heat_through_a_robin_side_is_that_of_the_analytic_solution():
    # T'' = 0, T(0) = 0.7, 2 T(1) + 0.5 T'(1) = 3: linear, so the discrete solution is exact.
    case = cooled_plate((8, 8))
    slope = (3.0 - 2.0 * 0.7) / (2.0 + 0.5)
    found = solve_poisson(case, torch.zeros(case.number_of_points, dtype=torch.float64))
    assert_close(found, 0.7 + slope * case.mesh.points[:, 0], rtol=0, atol=1e-10)


@pytest.mark.slow
def test_an_explicit_iteration_reaches_the_same_state():
    case = cooled_plate((8, 8))
    operators = case.operators["T"].composed(0.25)
    derivative, temperature = case.slope("T").normal_derivative, case.initial["T"]
    for _ in range(6000):
        rate = operators.laplacian(temperature, derivative)
        temperature = case.dirichlet["T"].apply(temperature + 1e-3 * rate)
    expected = 0.7 + (3.0 - 1.4) / 2.5 * case.mesh.points[:, 0]
    assert_close(temperature, expected, rtol=0, atol=1e-6)  # it decays with exp(-4 t): 6 units of time


@pytest.mark.parametrize("transfer", [0.0, 1.0, 4.0, 16.0])
def test_the_error_of_a_curved_solution_falls_with_the_mesh_and_modes_decay(transfer):
    errors = []
    for cells in (8, 16, 32):
        mesh = rectangle((cells, cells))
        x = mesh.points[:, 0]
        right = transfer * np.sin(2.0) + 2.0 * np.cos(2.0)
        case = Case(
            mesh,
            initial={"T": 0.0},
            dirichlet={"T": {"inlet": 0.0}},
            robin={"T": {"outlet": (transfer, 1.0, right)}},
            neumann={"T": 0.0},
        )
        errors.append(float((solve_poisson(case, 4 * torch.sin(2 * x)) - torch.sin(2 * x)).abs().max()))
        if cells == 8:
            free = ~case.dirichlet["T"].mask.numpy()
            composed = case.operators["T"].composed(0.25).composed_laplacian
            assert composed is not None
            matrix = composed.to_scipy().toarray()[free][:, free]
            # The slowest mode decays with (pi/2)^2 without transfer, and faster with it.
            assert np.linalg.eigvals(matrix).real.max() < -2.0
    assert errors[0] < 0.2
    assert errors[0] > 1.9 * errors[1] > 1.9**2 * errors[2]  # first order


def test_where_it_meets_a_neumann_side_only_it_counts():
    case = cooled_plate()
    slope, outlet = case.slope("T"), torch.from_numpy(case.mesh.patch("outlet").points)
    assert_close(slope.normals[outlet], torch.tensor([[1.0, 0.0]]).double().expand(len(outlet), 2))
    assert (case.neumann["T"].mask & ~case.robin["T"].mask).any()
    inlet = case.mesh.patch("inlet").points
    assert not case.neumann["T"].mask[inlet[1:-1]].any()  # a number means: where there is no other condition


def test_without_value_term_it_is_neumann():
    robin = Case(rectangle((4, 4)), initial={"T": 0.0}, robin={"T": {"outlet": (0.0, 2.0, 3.0)}})
    neumann = Case(rectangle((4, 4)), initial={"T": 0.0}, neumann={"T": {"outlet": 1.5}})
    field = torch.randn(25, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = [case.operators["T"].grad(field, case.slope("T").normal_derivative) for case in (robin, neumann)]
    assert_close(*found, rtol=0, atol=1e-12)


def network() -> penn.PENN:
    torch.manual_seed(0)
    return advection_diffusion_network(width=4, iterations=2).double()


def test_a_network_keeps_symmetry_and_prescribed_values_with_it():
    case = cooled_plate()
    plain = Case(
        case.mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": 0.7}},
        neumann={"T": 0.0},
        parameters=case.parameters,
        features=case.features,
    )
    assert (network()(case)["T"] - network()(plain)["T"]).abs().max() > 0.01, "the condition changes nothing"
    assert_equivariant(network(), case, motions=1)
    assert_dirichlet(network(), case)


def test_a_batch_gives_what_its_cases_give_one_by_one():
    cases = [cooled_plate(), cooled_plate((4, 4), (1.0, 2.0, 0.0)), cooled_plate((5, 3), (0.0, 1.0, -1.0))]
    alone = [network()(case)["T"] for case in cases]
    together = network()(batch(cases))["T"]
    assert_close(together, torch.cat(alone), rtol=0, atol=1e-12)


def test_units_change_nothing_but_numbers():
    case = cooled_plate()
    units = Units(2.5, 0.4, {"T": Scale(3.0, 10.0)})
    scaled = units.dimensionless(case)
    field = torch.randn(case.number_of_points, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    here = case.operators["T"].grad(field, case.slope("T").normal_derivative)
    there = scaled.operators["T"].grad((field - 10.0) / 3.0, scaled.slope("T").normal_derivative)
    assert_close(there * 3.0 / 2.5, here, rtol=0, atol=1e-10)


def test_a_companion_has_the_same_condition():
    case = cooled_plate((24, 24))
    moved = on_companion(case, companion_mesh(case.mesh, 0.1))
    found, points = moved.robin["T"], moved.mesh.points
    assert torch.equal(found.mask, (points[:, 0] > 1 - 1e-9))
    assert_close(found.transfer[found.mask], torch.full((int(found.mask.sum()),), 4.0).double())
    assert_close(found.normal_derivative[found.mask], torch.full((int(found.mask.sum()),), 6.0).double())


def test_its_right_side_may_change_with_time():
    case = cooled_plate(numbers=(2.0, 0.5, Table([(0.0, 0.0), (1.0, 4.0)])))
    assert case.changes_with_time
    assert_close(case.at(0.5).robin["T"].normal_derivative.amax(), torch.tensor(4.0).double())
    steady = [cooled_plate(numbers=(2.0, 0.5, 4.0 * time)) for time in (0.25, 0.5, 0.75, 1.0)]
    first = network()(case)["T"][:, 0]
    assert_close(first, network()(steady[0])["T"][:, 0], rtol=0, atol=1e-12)


def test_an_instance_is_taken_as_it_is():
    case = cooled_plate()
    again = Case(case.mesh, initial={"T": 0.0}, robin={"T": case.robin["T"]})
    assert torch.equal(again.robin["T"].transfer, case.robin["T"].transfer)
    with pytest.raises(ValueError, match=r"robin\['T'\].mask has shape \[42\]; it must have \[25\]"):
        Case(rectangle((4, 4)), initial={"T": 0.0}, robin={"T": case.robin["T"]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"outlet": (0.0, 0.0, 1.0)}, r"robin\['T'\]\['outlet'\] has a = b = 0"),
        ({"outlet": (1.0, 0.0, 1.0)}, r"b = 0 .* give it as dirichlet"),
        ({"outlet": (1.0, -1.0, 1.0)}, "opposite signs"),
        ({"outlet": 1.0}, r"takes \(a, b, c\)"),
        ({"outlet": {"a": 1.0, "b": 1.0}}, r"takes \(a, b, c\)"),
        ({"outlet": (1.0, 1.0, float("nan"))}, r"\['outlet'\], c holds a value that is not finite"),
        ({"outlet": ((1.0, 2.0), 1.0, 0.0)}, r"\['outlet'\], a has shape"),
        ({"nowhere": (1.0, 1.0, 0.0)}, "no patch 'nowhere'"),
        (3.0, "give the values by patch"),
    ],
)
def test_mistakes_are_named(given, message):
    with pytest.raises((ValueError, KeyError), match=message):
        Case(rectangle((4, 4)), initial={"T": 0.0}, robin={"T": given})


def test_an_encoder_that_is_not_linear_is_refused():
    case = cooled_plate()
    model = network()
    model.encoders["T"] = Encoder((1, 4, 4)).double()
    with pytest.raises(ValueError, match="not linear"):
        model(case)


def test_the_condition_is_one_of_the_public_names():
    assert penn.Robin is Robin
