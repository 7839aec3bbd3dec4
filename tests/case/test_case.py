"""Cases: what the loose forms become, what is refused, other precisions."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from flow_problems import flow, square, tensors_of
from pennpde.case import Case, Dirichlet, Neumann, batch
from shapes import unchecked

# What the loose forms become

double = torch.float64


def test_numbers_vectors_and_arrays_become_fields():
    mesh = square()
    array = torch.sin(mesh.points[:, 0])
    case = Case(mesh, initial={"a": 2, "b": (1.0, -1.0), "c": array.numpy().astype(np.float32), "d": mesh.points})
    number = mesh.number_of_points
    assert torch.equal(case.initial["a"], torch.full((number,), 2.0, dtype=double))
    assert torch.equal(case.initial["b"], torch.tensor([1.0, -1.0], dtype=double).expand(number, 2))
    assert_close(case.initial["c"], array, rtol=0, atol=1e-7)
    assert torch.equal(case.initial["d"], mesh.points)
    assert {values.dtype for values in case.initial.values()} == {double}
    assert case.sizes == (number,)


def test_a_matrix_becomes_a_tensor_field_and_its_conditions():
    mesh = square()
    stress, pull = [[1.0, 2.0], [3.0, 4.0]], np.array([[0.0, 1.0], [1.0, 0.0]])
    case = Case(
        mesh,
        initial={"s": stress},
        dirichlet={"s": {"inlet": pull, "wall": 0.0}},
        neumann={"s": {"outlet": lambda time: (1 + time) * pull}},
    )
    assert torch.equal(case.initial["s"], torch.tensor(stress, dtype=double).expand(mesh.number_of_points, 2, 2))
    condition = case.dirichlet["s"]
    wall = torch.from_numpy(mesh.patch("wall").points)
    inlet = torch.from_numpy(np.setdiff1d(mesh.patch("inlet").points, wall))
    assert torch.equal(condition.values[inlet], torch.from_numpy(pull).expand(len(inlet), 2, 2))
    assert not condition.values[wall].any()
    later = case.at(1.0).neumann["s"]
    assert torch.equal(later.normal_derivative[later.mask], 2 * torch.from_numpy(pull).expand(later.mask.sum(), 2, 2))


def test_a_case_keeps_no_hold_on_what_it_was_given():
    mesh = square()
    given = torch.zeros(mesh.number_of_points, dtype=double)
    case = Case(mesh, initial={"T": given}, dirichlet={"T": {"inlet": given}}, features={"f": given})
    given += 1.0
    assert case.initial["T"].max() == case.dirichlet["T"].values.max() == case.features["f"].max() == 0


# Errors


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"initial": {}}, ValueError, "at least one unknown"),
        ({"initial": {"T": float("nan")}}, ValueError, r"initial\['T'\] holds a value that is not finite: nan"),
        ({"initial": {"T": [0.0, 1.0, 2.0]}}, ValueError, r"initial\['T'\] has shape \[3\]; .* each of the 25 points"),
        ({"initial": {"T": np.zeros((25, 3))}}, ValueError, r"initial\['T'\] has shape \[25, 3\]"),
        ({"initial": {"T": np.zeros((2, 3))}}, ValueError, r"shape \[2, 3\]; .* a matrix of 2 by 2, or one of these"),
        ({"dirichlet": {"T": {"wall": np.eye(2)}}}, ValueError, r"shape \[25, 2, 2\], but the unknown has \[25\]"),
        ({"initial": {"T": "warm"}}, ValueError, r"initial\['T'\] is 'warm'"),
        ({"initial": {"T": None}}, ValueError, r"initial\['T'\] is None"),
        ({"dirichlet": {"T": {"lid": 0.0}}}, KeyError, "no patch 'lid'.*inlet, outlet, wall"),
        ({"dirichlet": {"p": {"wall": 0.0}}}, KeyError, r"dirichlet names \['p'\].*unknowns of the case are \['T'\]"),
        ({"neumann": {"p": 0.0}}, KeyError, r"neumann names \['p'\].*give each unknown an initial field"),
        ({"slip": {"p": ["wall"]}}, KeyError, r"slip names \['p'\]"),
        ({"dirichlet": {"T": 1.0}}, ValueError, r"dirichlet\['T'\] is 1.0; give the values by patch"),
        ({"dirichlet": {"T": {"wall": (1.0, 0.0)}}}, ValueError, r"shape \[25, 2\], but the unknown has \[25\]"),
        ({"dirichlet": {"T": {"wall": float("inf")}}}, ValueError, r"dirichlet\['T'\]\['wall'\] .* not finite: inf"),
        ({"neumann": {"T": {"lid": 0.0}}}, KeyError, "no patch 'lid'"),
        ({"neumann": {"T": "wall"}}, ValueError, r"neumann\['T'\] is 'wall'"),
        ({"neumann": {"T": {"corner": 0.0}}}, ValueError, "'corner', which has points but no whole facet"),
        ({"slip": {"T": ["wall"]}}, ValueError, "'T', which is a scalar"),
        ({"parameters": {"c": np.zeros(25)}}, ValueError, r"parameters\['c'\] has shape \[25\].*belongs into features"),
        ({"parameters": {"c": float("nan")}}, ValueError, r"parameters\['c'\] holds a value that is not finite"),
        ({"features": {"d": np.zeros((25, 5))}}, ValueError, r"features\['d'\] has shape \[25, 5\]"),
        ({"targets": {"T": np.zeros((24, 4))}}, ValueError, r"targets\['T'\] has shape \[24, 4\].*\[25\]"),
        ({"targets": {"T": np.full((25, 4), np.nan)}}, ValueError, r"targets\['T'\] .* not finite, at index \[0, 0\]"),
        ({"targets": {"T": np.zeros((25, 4, 2))}}, ValueError, r"targets\['T'\] .* one axis of times more"),
        ({"targets": {"grad": np.zeros((25, 4))}}, ValueError, r"targets\['grad'\] has shape \[25, 4\]"),
        (
            {"dirichlet": {"T": Dirichlet(torch.zeros(25, dtype=torch.bool), torch.zeros(25, 2))}},
            ValueError,
            r"dirichlet\['T'\].values has shape \[25, 2\]; it must have \[25\]",
        ),
        (
            {"neumann": {"T": Neumann(torch.zeros(25, dtype=torch.bool), torch.zeros(25, 3), torch.zeros(25))}},
            ValueError,
            r"neumann\['T'\].normals has shape \[25, 3\]; it must have \[25, 2\]",
        ),
    ],
)
def test_an_error_names_the_thing_and_shows_the_value(given, error, message):
    mesh = square().with_patches({"corner": [0]})
    with unchecked(), pytest.raises(error, match=message):
        Case(**({"mesh": mesh, "initial": {"T": 0.0}} | given))


def test_a_parameter_that_is_missing_or_does_not_fit_is_named():
    case = flow(square())
    with pytest.raises(KeyError, match=r"no parameter 'density'; it has \['gravity', 'viscosity'\]"):
        case.parameter("density", case.initial["p"])
    with pytest.raises(ValueError, match=r"'gravity' is a vector; it cannot multiply a field of \[25\]"):
        case.parameter("gravity", case.initial["p"])


# Precision


def test_a_case_in_another_precision_has_every_tensor_in_it():
    case = flow(square())
    single = case.to(torch.float32)
    for name, values in tensors_of(single).items():
        assert values.dtype == (torch.bool if name.endswith("mask") else torch.float32), name
        assert_close(values.double(), tensors_of(case)[name].double(), rtol=1e-6, atol=1e-7)
    for name, operators in single.operators.items():
        assert torch.equal(operators.gradient.values, case.operators[name].gradient.values.float())
    assert case.to(double) is case
    assert single.to(torch.float32, "cpu") is single
    assert single.to(double).operators["u"].dtype == double


@pytest.mark.gpu
def test_a_case_on_the_gpu_is_there_whole():
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    case = batch([flow(square()), flow(square("triangle", 3))]).to(torch.float32, "cuda")
    assert {values.device.type for values in tensors_of(case).values()} == {"cuda"}
    assert case.index.device.type == "cuda"
    assert case.operators["u"].grad(case.initial["u"]).device.type == "cuda"
    here = case.to(device="cpu")
    assert_close(here.operators["u"].grad(here.initial["u"]), case.operators["u"].grad(case.initial["u"]).cpu())


def test_operators_of_another_neumann_weight_are_kept():
    case = Case(square(), initial={"T": 0.0}, neumann={"T": 0.0})
    other = case.with_neumann_weight(0.0)
    assert other is case.with_neumann_weight(0.0)
    assert other.operators["T"] is case.with_neumann_weight(0.0).operators["T"]
    assert case.with_neumann_weight(case.neumann_weight) is case
    assert not other.operators["T"].neumann_lift.any()
    assert case.operators["T"].neumann_lift.any()
