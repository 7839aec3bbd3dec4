"""The assertions that users write about their networks."""

import pytest
import torch

from pennpde.case import Case
from pennpde.testing import assert_dirichlet, assert_equivariant
from problems import heated_plate, polynomial, rectangle


def test_a_gradient_passes_and_the_deviation_comes_back():
    case = polynomial()
    deviations = assert_equivariant(lambda case: {"grad": case.operators["phi"].grad(case.initial["phi"])}, case)
    assert deviations.keys() == {"grad"}
    assert 0.0 < deviations["grad"] < 1e-10


def test_a_preferred_direction_is_found_and_named():
    def flawed(case: Case) -> dict:
        gradient = case.operators["phi"].grad(case.initial["phi"])
        return {"sound": gradient, "flawed": gradient + torch.tensor([0.1, 0.0, 0.0])}

    with pytest.raises(AssertionError, match=r"'flawed' \(rank 1\) deviates by .* at point") as caught:
        assert_equivariant(flawed, polynomial())
    assert "'sound' (rank 1)" not in str(caught.value)


def test_a_handed_network_fails_under_reflection_alone():
    def handed(case: Case) -> dict:
        x = case.operators["a"].grad(case.initial["a"])
        y = case.operators["a"].grad(case.initial["b"])
        return {"turn": x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0]}

    mesh = rectangle((4, 4))
    case = Case(mesh, initial={"a": mesh.points[:, 0], "b": mesh.points[:, 1]})
    with pytest.raises(AssertionError, match="mirror"):
        assert_equivariant(handed, case)


def test_a_prediction_that_depends_on_the_origin_fails():
    with pytest.raises(AssertionError, match="translation"):
        assert_equivariant(lambda case: {"T": case.mesh.points.norm(dim=1)}, heated_plate())


def test_not_a_number_is_no_equivariance():
    with pytest.raises(AssertionError, match="nan"):
        assert_equivariant(lambda case: {"T": torch.full_like(case.initial["T"], torch.nan)}, heated_plate())


def test_a_trailing_axis_of_times_does_not_turn():
    case = heated_plate()
    times = torch.rand(case.number_of_points, 2, dtype=torch.float64)  # two, as many as directions of the plane
    assert_equivariant(lambda case: {"T": times}, case)
    with pytest.raises(AssertionError, match="rank 1"):
        assert_equivariant(lambda case: {"T": times}, case, ranks={"T": 1})


def test_prescribed_values_must_come_out_bit_for_bit():
    case = heated_plate(inlet=0.7)

    def exact(case: Case) -> dict:
        return {"T": case.dirichlet["T"].apply(torch.ones(case.number_of_points, 4))}

    assert_dirichlet(exact, case)

    def nearly(case: Case) -> dict:
        return {"T": torch.nextafter(exact(case)["T"], torch.tensor(1.0))}

    with pytest.raises(AssertionError, match=r"'T' misses 44 of its prescribed values, the largest by 5\.9\de-08"):
        assert_dirichlet(nearly, case)
    with pytest.raises(AssertionError, match="misses"):
        assert_dirichlet(lambda case: {"T": torch.full((case.number_of_points,), torch.nan)}, case)


def test_a_model_without_conditions_cannot_pass_by_accident():
    with pytest.raises(AssertionError, match="Nothing to check"):
        assert_dirichlet(lambda case: {"grad": case.targets["grad"]}, polynomial())
